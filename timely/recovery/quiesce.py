"""The moment of a checkpoint: everything before its time is complete on every worker, and nothing is in flight.

Workers find it together. Each steps until, as far as it knows, the moment has come; when all have said so, all of them pause
their dataflows and tell each other again. Messages between two workers keep their order, so whoever has heard all the others
say that they have paused has received all that they ever sent. Then each looks once more. If all dataflows are at rest, they
are at rest everywhere; otherwise something was still on its way, and they go on. The invariant: when ``reach`` returns, every
worker's dataflows are paused, nothing is in a queue or between workers, and no capability is held for a time that is not at or
after the boundary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from timely.dataflow import ScopeBuilder
from timely.errors import CheckpointError, TimestampError, shown
from timely.progress import TimeDomain
from timely.scopes import Subgraph
from timely.worker import Worker, internals

PATIENCE: Final = 0.2
"""Seconds without anything to do after which a worker asks the others, though it does not see the moment come."""
STEPS: Final = 64
"""Steps after which a worker looks whether only what never rests is left to do."""
ROUNDS: Final = 3
"""How often the others must have been at rest when something was not, until that does not count."""
PASSES: Final = 16
"""After how many times so many steps a worker asks the others, though it always has something to do."""
_NAMED: Final = 4


def check(scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Raise ``CheckpointError`` unless ``time`` is one of at least one of the dataflows: nothing could be before it elsewhere."""
    if time is None:
        raise CheckpointError("None is no time at which a checkpoint can be taken: give one to which the inputs were advanced")
    faults = {scope.subgraph.domain.name: _fault(scope.subgraph.domain, time) for scope in scopes}
    if faults and all(faults.values()):
        why = "; ".join(map(str, faults.values()))
        raise CheckpointError(f"no checkpoint can be taken at {shown(time)}: {why}; give a time of a dataflow that is kept")


def _fault(domain: TimeDomain[Any], time: Any) -> TimestampError | None:
    """Return what makes ``time`` none of a domain, or ``None`` where it is one."""
    try:
        domain.check(time)
    except TimestampError as error:
        return error
    return None


def reach(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Step until the moment has come on every worker, and leave the worker paused. ``CheckpointError`` if it never can.

    An operator that always asks to be run again never comes to rest. When all the others have for some rounds, it does not count:
    neither against the moment, nor for a chance that it will still come.
    """
    rounds, hopeless = 0, 0
    before: list[list[str]] = []
    while True:
        _settle(worker, scopes, time)
        worker.all_gather(None)
        worker.paused = True
        worker.all_gather(None)  # whatever was sent has arrived when this returns
        found = list(unrest(worker, scopes, time))
        moves = any(moves for _, moves in found)
        state = internals.is_quiet(worker), internals.expects(worker), moves, [what for what, _ in found[:_NAMED]]
        told = worker.all_gather(state)
        quiet, blockers = all(quiet for quiet, *_ in told), [what for *_, what in told]
        if not any(blockers):
            rounds += 1
            if quiet or rounds > ROUNDS:
                return
        elif not any(expects for _, expects, _, _ in told):
            stands = blockers == before and not any(moves for _, _, moves, _ in told)
            hopeless = hopeless + 1 if stands else 0
            if quiet or hopeless > ROUNDS:
                raise CheckpointError(_blame(time, blockers))
        before = blockers
        worker.paused = False


def _settle(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Step until nothing is left to do here and all seems to be at rest, or there was nothing to do for a while; or for long."""
    patient = True
    for _ in range(PASSES):
        steps = 0
        while not worker.idle and steps < STEPS:
            worker.step()
            patient = True
            steps += 1
        if next(unrest(worker, scopes, time), None) is None:
            return
        if not patient and worker.idle:
            return
        worker.step_or_park(PATIENCE)
        patient = not worker.idle


def unrest(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> Iterator[tuple[str, bool]]:
    """Yield what is in the way of a checkpoint at ``time`` as far as this worker knows, and whether it may move by itself.

    Dataflows that are complete or were dropped are not.
    """
    roots = [scope.subgraph for scope in scopes if internals.has(worker, scope)]
    return itertools.chain.from_iterable(root.unrest(_reached(root, time)) for root in roots)


def _reached(root: Subgraph[Any, Any], time: Any) -> Callable[[Any], bool]:
    """Return what says whether a time of a dataflow is at or after the boundary, if its times are of that type at all."""
    if _fault(root.domain, time) is not None:
        return lambda other: True  # it need only be at rest
    return lambda other: bool(time <= other)


def _blame(time: Any, blockers: Sequence[Sequence[str]]) -> str:
    worker, what = next((worker, what) for worker, what in enumerate(blockers) if what)
    more = " and more" if len(what) == _NAMED else ""
    return (
        f"no checkpoint can be taken at {shown(time)}: nothing can move any more, and worker {worker} sees"
        f" {'; '.join(what[: _NAMED - 1])}{more}. Every worker advances its inputs to {shown(time)} or beyond, or closes"
        f" them, before it calls checkpoint({shown(time)}), and operators hold no capability for a time before it"
    )
