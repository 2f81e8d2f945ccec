"""``StuckDetector``: reports why the workers of a process make no progress, when nothing has moved for a while.

It looks on a thread of its own, so it also sees an operator that does not return, and only reads. Movement is any change of
the counts of capabilities and messages, and of how often operators have read. It reports once for each halt, and once for each
epoch in which a loop goes round and round. A wait for an open input or another thread is reported the first time only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import attrs

from timely.dataflow import Operator, ScopeBuilder
from timely.errors import brief
from timely.inspect.capability_holders import movement, named, number_of, position
from timely.inspect.explanation import explained
from timely.monitor.dataflow_position import epochs, goes_round, rounds_of, top_round
from timely.monitor.local_workers import Member
from timely.progress import Antichain
from timely.scopes import Subgraph
from timely.worker import Worker, internals

_LOG: Final = logging.getLogger(__name__)

_MANY: Final = 100
"""Rounds of a loop, within the patience, that are reported."""


@attrs.define
class _Loop:
    """A loop when its dataflow came to these epochs: its round, and the moment."""

    epochs: Antichain[Any]
    round: int
    since: float
    reported: bool = False


class StuckDetector:
    """Reports when nothing has moved for so many seconds; ``members`` may grow.

    A wait for inputs or another thread is reported once, without ``inputs`` never. The result of ``elsewhere`` changes when
    anything moves in other processes.
    """

    def __init__(
        self,
        members: Sequence[Member],
        after: float,
        say: Callable[[str], object] | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        inputs: bool = True,
        elsewhere: Callable[[], object] = lambda: None,
    ) -> None:
        self._members = members
        self._elsewhere = elsewhere
        self._after = after
        self._say = say or _LOG.warning
        self._clock = clock
        self._seen: object = None
        self._since = clock()
        self._has_reported = False
        self._was_waiting = not inputs
        self._loops: dict[Subgraph[Any, Any], _Loop] = {}

    def look(self) -> None:
        """Look once, and report if nothing has moved for long enough."""
        now = self._clock()
        here = movement(self._members)
        seen = here, self._elsewhere()
        if seen != self._seen:
            self._seen, self._since, self._has_reported = seen, now, False
        elif here is not None and not self._has_reported and now - self._since >= self._after:
            with contextlib.suppress(RuntimeError):
                self._report(now - self._since)
        with contextlib.suppress(RuntimeError):  # changed while it was read: the next look sees it
            self._look_at_loops(now)

    def _look_at_loops(self, now: float) -> None:
        """Report each loop that has gone round many times while its dataflow stayed at the same epochs."""
        seen: dict[Subgraph[Any, Any], _Loop] = {}
        for _, dataflow in self._dataflows():
            for subgraph in dataflow.scopes:
                top = subgraph is dataflow.subgraph
                round = top_round(subgraph) if top else rounds_of(subgraph)
                if round is None:
                    continue
                at = Antichain([] if top else epochs(dataflow.subgraph))
                loop = self._loops.get(subgraph)
                if loop is None or loop.epochs != at or round < loop.round:
                    loop = _Loop(at, round, now)
                seen[subgraph] = loop
                if not loop.reported and now - loop.since >= self._after and round - loop.round >= _MANY:
                    loop.reported = True
                    by = ", ".join(
                        named(child.scope)
                        for child in subgraph.children
                        if isinstance(child.scope, Operator) and goes_round(child.scope)
                    )
                    name, stays = f"the loop {subgraph.path}", f"{dataflow.path} is still at {', '.join(map(brief, at))}"
                    if top:
                        name, stays = f"the loop in {dataflow.path}", "nothing else sends any more"
                    self._write(
                        f"{name} has gone from round {loop.round} to round {round} in {now - loop.since:.0f} s, with"
                        f" {subgraph.under_way()} records on their way in it, and {stays}. If it is to end, have each round"
                        f" send fewer records to connect_loop, or give feedback() a summary with a limit. They go round by {by}"
                    )
        self._loops = seen

    def _report(self, seconds: float) -> None:
        members = tuple(self._members)
        expects = any(internals.expects(member.worker) for member in members)  # before ``explained`` adds activators
        explanations = [explained(worker, dataflow, members) for worker, dataflow in self._dataflows()]
        named = {where.worker for each in explanations for where in each.positions}
        positions = [where for member in members if member.worker.index not in named and (where := position(member)) is not None]
        running = [where for where in positions if where.operators]
        waiting = not running and (expects or all(each.waits_for_inputs for each in explanations))
        if not waiting or not self._was_waiting:
            reasons = [each for each in explanations if each.reasons or each.unfinished]
            self._write("\n".join([f"nothing has moved for {seconds:.0f} s", *map(str, reasons), *map(str, running)]))
        self._was_waiting |= waiting
        self._has_reported = True

    def _dataflows(self) -> list[tuple[Worker, ScopeBuilder[Any]]]:
        """Return the dataflows that are not complete, each on the first worker that has it."""
        dataflows: dict[int, tuple[Worker, ScopeBuilder[Any]]] = {}
        for member in tuple(self._members):
            for dataflow in member.worker.scopes:
                dataflows.setdefault(number_of(dataflow), (member.worker, dataflow))
        return list(dataflows.values())

    def _write(self, text: str) -> None:
        try:
            self._say(text)
        except Exception:
            _LOG.exception("the watchdog could not report:\n%s", text)
