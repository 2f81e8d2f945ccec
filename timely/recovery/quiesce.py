"""Quiescing: bring all workers to a moment when everything before a time is complete and nothing is in flight.

Each worker steps until the moment seems to have come. When all have said so they pause their dataflows and synchronise again:
messages between two workers stay in order, so that everything sent before has arrived by then. If all dataflows are still at
rest, they are at rest everywhere; otherwise something was in flight, and the workers resume. The invariant: when ``quiesce``
returns, every worker is paused, no queue or connection holds a message, and no capability precedes the boundary. When ``pause``
returns, every worker is paused, and no connection holds a message.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from timely.dataflow import Operator, ScopeBuilder
from timely.errors import CheckpointError, TimestampError, brief
from timely.progress import TimeDomain
from timely.scopes import Subgraph
from timely.worker import Worker, internals

PATIENCE: Final = 0.2
"""Idle seconds after which a worker synchronises although it is not at rest."""
STEPS: Final = 64
"""Steps between two checks whether only operators that never rest have work."""
ROUNDS: Final = 3
"""Rounds with all other workers at rest after which an operator that never rests is ignored."""
PASSES: Final = 16
"""Passes of ``STEPS`` steps after which a busy worker synchronises."""
_NAMED: Final = 4


class _Report(NamedTuple):
    """What one worker knows in a round: whether it is quiet, expects a wake-up, has blockers that move, and their names."""

    quiet: bool
    expects: bool
    moves: bool
    blockers: list[str]


def check_time(scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Raise ``CheckpointError`` unless ``time`` is a time of at least one of the dataflows."""
    if time is None:
        raise CheckpointError("None is no time at which a checkpoint can be taken: give one to which the inputs were advanced")
    faults = {scope.subgraph.domain.name: _fault(scope.subgraph.domain, time) for scope in scopes}
    if faults and all(faults.values()):
        why = "; ".join(map(str, faults.values()))
        raise CheckpointError(f"no checkpoint can be taken at {brief(time)}: {why}; give a time of a recoverable dataflow")


def _fault(domain: TimeDomain[Any], time: Any) -> TimestampError | None:
    try:
        domain.check(time)
    except TimestampError as error:
        return error
    return None


def quiesce(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Step until everything before ``time`` is complete on all workers; return with the worker paused.

    ``CheckpointError`` if that can never happen. An operator that always reschedules itself never rests. Once the others have
    rested for some rounds it is ignored, both as a blocker and as a reason to wait.
    """
    rounds, hopeless = 0, 0
    before: list[list[str]] = []
    while True:
        _settle(worker, scopes, time)
        worker.all_gather(None)
        worker.paused = True
        worker.all_gather(None)  # whatever was sent has arrived when this returns
        held_up = list(_blockers(worker, scopes, time))
        moves = any(moves for _, moves in held_up)
        named = [what for what, _ in held_up[:_NAMED]]
        reports = worker.all_gather(_Report(internals.is_quiet(worker), internals.expects(worker), moves, named))
        quiet, blockers = all(report.quiet for report in reports), [report.blockers for report in reports]
        if not any(blockers):
            rounds += 1
            if quiet or rounds > ROUNDS:
                return
        elif not any(report.expects for report in reports):
            stuck = blockers == before and not any(report.moves for report in reports)
            hopeless = hopeless + 1 if stuck else 0
            if quiet or hopeless > ROUNDS:
                raise CheckpointError(_cannot_quiesce(time, blockers))
        before = blockers
        worker.paused = False


def pause(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Pause all workers where they are, when all that they sent each other has arrived.

    ``CheckpointError`` where an operator without state holds a capability for a time before ``time``, which a run that resumes
    would not hold: an input that was not advanced.
    """
    for _ in range(ROUNDS):
        worker.step()  # what was sent between two steps leaves with this one
        worker.all_gather(None)
        worker.paused = True
        worker.all_gather(None)  # whatever was sent has arrived when this returns
        holders = worker.all_gather(list(itertools.islice(_stateless_holders(worker, scopes, time), _NAMED)))
        if not any(holders):
            return
        worker.paused = False
    raise CheckpointError(_cannot_quiesce(time, holders))


def _stateless_holders(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> Iterator[str]:
    """Yield each operator without state that holds a capability for a time before ``time``."""
    for scope in scopes:
        if internals.has(worker, scope):
            yield from _holders(scope.subgraph, _not_before(scope.subgraph, time))


def _holders(subgraph: Subgraph[Any, Any], reached: Callable[[Any], bool]) -> Iterator[str]:
    for child, held in subgraph.held():
        operator = child.scope
        if isinstance(operator, Operator) and not operator.info.state.parts and not reached(held):
            yield f"a capability of {operator.path} at {brief(held)}, which has registered no state"
    for child in subgraph.children:
        if child.nested is not None:
            to_outer = child.nested.refinement.to_outer
            yield from _holders(child.nested, lambda time, to_outer=to_outer: reached(to_outer(time)))  # type: ignore[misc]


def _settle(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> None:
    """Step until all seems to be at rest, the worker was idle for a while, or many steps were done."""
    patient = True
    for _ in range(PASSES):
        steps = 0
        while not worker.idle and steps < STEPS:
            worker.step()
            patient = True
            steps += 1
        if next(_blockers(worker, scopes, time), None) is None:
            return
        if not patient and worker.idle:
            return
        worker.step_or_park(PATIENCE)
        patient = not worker.idle


def _blockers(worker: Worker, scopes: Sequence[ScopeBuilder[Any]], time: Any) -> Iterator[tuple[str, bool]]:
    """Yield what this worker knows to prevent a checkpoint at ``time``, and whether it may move by itself."""
    roots = [scope.subgraph for scope in scopes if internals.has(worker, scope)]  # complete and dropped dataflows never do
    return itertools.chain.from_iterable(root.pending(_not_before(root, time)) for root in roots)


def _not_before(root: Subgraph[Any, Any], time: Any) -> Callable[[Any], bool]:
    if _fault(root.domain, time) is not None:
        return lambda other: True  # a dataflow with other times need only be at rest
    return lambda other: bool(time <= other)


def _cannot_quiesce(time: Any, blockers: Sequence[Sequence[str]]) -> str:
    worker, what = next((worker, what) for worker, what in enumerate(blockers) if what)
    more = " and more" if len(what) == _NAMED else ""
    return (
        f"no checkpoint can be taken at {brief(time)}: nothing can move any more, and worker {worker} sees"
        f" {'; '.join(what[: _NAMED - 1])}{more}. Every worker advances its inputs to {brief(time)} or beyond, or closes"
        f" them, before it calls checkpoint({brief(time)}), and operators hold no capability for a time before it"
    )
