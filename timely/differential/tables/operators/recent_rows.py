"""Recent rows: those of the last stretch of time before the latest moment so far. Late ones are kept apart.

The horizon of a time lies so far before the latest moment of all rows up to that time, on all workers. It never moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
from sortedcontainers import SortedDict

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.collections import Collection
from timely.differential.operators.arrangement import pact_for
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.time_windows import Axis, TimeSpan
from timely.differential.updates.linear import linear
from timely.differential.updates.updates import Update, consolidate
from timely.errors import GraphError
from timely.operators.generic import binary_frontier
from timely.operators.pending import Pending
from timely.operators.routing import broadcast
from timely.operators.state_registration import key_route, register_keyed_state, register_union_state
from timely.order import reaches

RECENT, LATE = True, False


def recent_rows(
    rows: Collection[Any, Row], axis: Axis, keep: TimeSpan, place: str
) -> tuple[Collection[Any, Row], Collection[Any, Row]]:
    """Return the rows at or after the horizon, and the changes that came for rows before it."""
    scope = rows.scope
    if not scope.subgraph.domain.total:
        raise GraphError(f"{place} in scope {scope.path!r}: what is late is only known for totally ordered times")
    moment = axis.moment
    rows = rows.consolidate()  # what comes and goes at one time has never been there, in whatever batches it is sent

    def latest(updates: Iterable[Update]) -> list[Any]:
        moments = [at for row, diff in updates if diff > 0 and (at := moment(row)) is not None]
        return [max(moments)] if moments else []

    seen = broadcast(linear(rows.stream, "latest moment", latest))

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        return _Recent(moment, keep, capability, info).logic

    tagged: Stream[Any, Any] = binary_frontier(rows.stream, seen, pact_for(False, None), Pipeline, place, constructor)

    def chosen(wanted: bool, name: str) -> Collection[Any, Row]:
        return Collection(linear(tagged, name, lambda updates: [(row, diff) for (tag, row), diff in updates if tag is wanted]))

    return chosen(RECENT, "recent"), chosen(LATE, "late")


_route_of = key_route(None)


@attrs.define(eq=False)
class _Waiting:
    """What has come for a time that is not complete."""

    capability: Capability[Any]
    updates: list[Update] = attrs.Factory(list)
    latest: list[Any] = attrs.Factory(list)


class _Recent:
    """The logic: the rows held, by moment, and the horizon."""

    def __init__(self, moment: Callable[[Row], Any], keep: TimeSpan, capability: Capability[Any], info: OperatorInfo) -> None:
        self._moment = moment
        self._keep = keep
        self._held: SortedDict = SortedDict()  # counts of rows by moment
        self._latest: list[Any] = []  # the latest moment, if there is one
        self._pending: Pending[Any, _Waiting] = Pending()
        self._capability = capability
        register_keyed_state(info, self._save, self._load, lambda item: _route_of(item[1]))
        register_union_state(info, self._save_moments, self._load_moments)
        capability.drop()

    def _save(self) -> Iterator[tuple[Any, Row, Any]]:
        """Return the rows held, without a time, and the updates that wait, with theirs."""
        for counts in self._held.values():
            for row, count in counts.items():
                yield None, row, count
        for time in self._pending:
            for row, diff in self._pending[time].updates:
                yield (time,), row, diff

    def _load(self, items: Iterable[tuple[Any, Row, Any]]) -> None:
        for time, row, count in items:
            if time is None:
                self._add(self._moment(row), row, count)
            else:
                self._at(time[0], self._capability).updates.append((row, count))

    def _save_moments(self) -> Iterator[tuple[Any, Any]]:
        for latest in self._latest:
            yield None, latest
        for time in self._pending:
            for latest in self._pending[time].latest:
                yield (time,), latest

    def _load_moments(self, items: Iterable[tuple[Any, Any]]) -> None:
        for time, latest in items:
            if time is None:
                self._latest = [max([*self._latest, latest])]
            else:
                self._at(time[0], self._capability).latest.append(latest)

    def _at(self, time: Any, capability: Capability[Any]) -> _Waiting:
        return self._pending.at(time, lambda: _Waiting(capability.delayed(time)))

    def logic(self, rows: InputPort[Any, Any], moments: InputPort[Any, Any], output: OutputPort[Any]) -> None:
        """Receive updates and moments, and process those of complete times, in order."""
        for capability, batch in rows:
            self._pending.at(capability.time, lambda: _Waiting(capability.retain())).updates.extend(batch)  # noqa: B023
        for capability, batch in moments:
            self._pending.at(capability.time, lambda: _Waiting(capability.retain())).latest.extend(batch)  # noqa: B023
        frontiers = (rows.elements, moments.elements)
        for _, waiting in self._pending.take(lambda time: not any(reaches(frontier, time) for frontier in frontiers)):
            changes = self._changes(waiting)
            if changes:
                output.session(waiting.capability).give_batch(consolidate(changes))
            waiting.capability.drop()

    def _changes(self, waiting: _Waiting) -> list[Update]:
        horizon = self._horizon()
        changes: list[Update] = []
        for row, diff in consolidate(waiting.updates):
            at = self._moment(row)
            recent = at is not None and (not horizon or at >= horizon[0])
            changes.append(((recent, row), diff))
            if recent:
                self._add(at, row, diff)
        if waiting.latest:
            self._latest = [max([*self._latest, *waiting.latest])]
        for limit in self._horizon():
            while self._held and self._held.peekitem(0)[0] < limit:
                _, counts = self._held.popitem(0)
                changes += [((RECENT, row), -count) for row, count in counts.items()]
        return changes

    def _horizon(self) -> list[Any]:
        return [self._keep.before(latest) for latest in self._latest]

    def _add(self, at: Any, row: Row, diff: Any) -> None:
        counts = self._held.setdefault(at, {})
        count = counts.get(row, 0) + diff
        if count:
            counts[row] = count
        else:
            del counts[row]
            if not counts:
                del self._held[at]
