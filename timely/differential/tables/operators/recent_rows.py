"""Recent rows: those that a horizon has not passed, and those that it has. It never moves back.

Rows that wait for the horizon are held, in the order of their moments, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
from sortedcontainers import SortedDict

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.collections import Collection
from timely.differential.operators.arrangement import pact_for
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.time_windows import Axis, TimeSpan
from timely.differential.updates.linear import linear
from timely.differential.updates.updates import Update, consolidate
from timely.errors import GraphError, SqlError
from timely.operators.generic import binary_frontier
from timely.operators.pending import Pending
from timely.operators.routing import broadcast
from timely.operators.state_registration import key_route, register_keyed_state, register_union_state
from timely.order import reaches

AHEAD, PASSED, LATE = range(3)
"""Changes of rows ahead of the horizon, of those that it passes, and of those that it had passed before."""


@attrs.frozen
class HorizonUse:
    """What is made of rows at a horizon: how often each kind of change is taken, and what is held for that."""

    signs: Mapping[int, int]
    holds: bool = True
    """Whether rows are held until the horizon passes them."""
    lags: bool = False
    """Whether rows leave at the time after that at which the horizon passes them."""


RECENT: Final = HorizonUse({AHEAD: 1, PASSED: 1})
OVERDUE: Final = HorizonUse({LATE: 1, PASSED: -1})
IN_TIME: Final = HorizonUse({AHEAD: 1}, holds=False)
FORGOTTEN: Final = HorizonUse({AHEAD: 1, PASSED: 1}, lags=True)
"""The rows ahead, of which all others are forgotten: what comes at a time is there at that time."""
CLOSED: Final = HorizonUse({PASSED: -1})
"""The rows that the horizon has passed, as they were then."""


def recent_rows(
    rows: Collection[Any, Row], axis: Axis, before: TimeSpan, use: HorizonUse, place: str
) -> tuple[Collection[Any, Row], Collection[Any, Row], Collection[Any, Row]]:
    """Return what a use makes of rows, the changes that came for rows before the horizon, and the horizon as a watermark.

    The horizon of a time lies so far before the latest moment of all rows up to that time, on all workers. It is made of rows of
    one moment, of which the greatest so far counts.
    """
    rows = rows.consolidate()  # what comes and goes at one time has never been there, in whatever batches it is sent
    moment = axis.moment

    def latest(updates: Iterable[Update]) -> list[Update]:
        moments = [at for row, diff in updates if diff > 0 and (at := moment(row)) is not None]
        return [((before.horizon(max(moments)),), 1)] if moments else []

    watermark = Collection(linear(rows.stream, "watermark", latest))
    tagged = _tagged(rows, moment, _watermarks([watermark]), _horizon_of(1), use, place)
    return _chosen(tagged, use), _chosen(tagged, _LATE_ALONE), watermark


_LATE_ALONE: Final = HorizonUse({LATE: 1})


def rows_by_watermarks(
    rows: Collection[Any, Row], moment: Callable[[Row], Any], bounds: Sequence[Collection[Any, Row]], use: HorizonUse
) -> Collection[Any, Row]:
    """Return what a use makes of rows at the least of some watermarks."""
    horizon = _horizon_of(len(bounds))
    return _chosen(_tagged(rows, moment, _watermarks(bounds), horizon, use, "watermark"), use)


def rows_by_now(
    rows: Collection[Any, Row],
    moment: Callable[[Row], Any],
    now: Collection[Any, Row],
    bound: Callable[[Row], Any],
    use: HorizonUse,
    *,
    inclusive: bool,
) -> Collection[Any, Row]:
    """Return the rows whose moments are ahead of the ``bound`` of the row of ``now``, or the others, as the use says.

    A moment at the bound is not ahead of it if this is ``inclusive``.
    """
    horizon = _Horizon(_next_now, lambda rows: [bound(row) for row in rows], inclusive, of_sums=True)
    return _chosen(_tagged(rows, moment, now.consolidate().stream, horizon, use, "now()"), use)


def _watermarks(bounds: Sequence[Collection[Any, Row]]) -> Stream[Any, Any]:
    """Return watermarks as updates of one stream, each with the number of its source."""
    first, *others = (each.map(partial(_numbered, number)) for number, each in enumerate(bounds))
    return first.concat(*others).stream


def _numbered(number: int, row: Row) -> Row:
    return number, row[0]


def _horizon_of(sources: int) -> _Horizon:
    """Return the least of the watermarks, once all sources have one."""

    def after(before: list[Any], changes: list[Update]) -> list[Any]:
        latest = dict(before)
        for (source, value), _ in changes:
            latest[source] = max(latest.get(source, value), value)
        return sorted(latest.items())

    return _Horizon(after, lambda latest: [min(value for _, value in latest)] if len(latest) == sources else [])


def _next_now(before: list[Row], changes: list[Update]) -> list[Row]:
    """Return the row of the table ``now`` after changes of one time, of which there may be copies."""
    gone, come = ([row for row, diff in set(changes) if diff == sign] for sign in (-1, 1))
    after = come if changes else before
    if not before and not changes:
        raise SqlError("there are rows to compare with now(), and the table now has no row yet: insert its moment before them")
    if len(after) != 1 or (changes and gone != before) or any(diff not in (-1, 1) for _, diff in changes):
        raise SqlError(f"the table now has one row, which another replaces at one time: with {before} there, {changes} came")
    if None in after[0] or (before and after < before):
        raise SqlError(f"the moment in the table now only advances: with {before} there, {after} came")
    return after


@attrs.frozen
class _Horizon:
    """A horizon: ``after(before, values)`` says what it goes by, and ``bounds`` which moment it has come to, if to one."""

    after: Callable[[list[Any], list[Any]], list[Any]]
    bounds: Callable[[list[Any]], list[Any]]
    inclusive: bool = False
    of_sums: bool = False
    """Whether it is that of the sums of the values."""


def _tagged(
    rows: Collection[Any, Row],
    moment: Callable[[Row], Any],
    values: Stream[Any, Any],
    horizon: _Horizon,
    use: HorizonUse,
    place: str,
) -> Stream[Any, Any]:
    """Return the changes of rows, each with what it is to the horizon."""
    scope = rows.scope
    if not scope.subgraph.domain.total:
        raise GraphError(f"{place} in scope {scope.path!r}: what is late is only known for totally ordered times, not in loops")

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        info.state.collection = horizon.of_sums
        return _Recent(moment, horizon, use, capability, info).logic

    return binary_frontier(rows.stream, broadcast(values), pact_for(False, None), Pipeline, place, constructor)


def _chosen(tagged: Stream[Any, Any], use: HorizonUse) -> Collection[Any, Row]:
    signs = use.signs
    return Collection(
        linear(tagged, "changes", lambda updates: [(row, diff * signs[tag]) for (tag, row), diff in updates if tag in signs])
    )


_route_of = key_route(None)


@attrs.define(eq=False)
class _Waiting:
    """What has come for a time that is not complete."""

    capability: Capability[Any]
    updates: list[Update] = attrs.Factory(list)
    latest: list[Any] = attrs.Factory(list)


class _Recent:
    """The logic: the rows held, by moment, and the horizon."""

    def __init__(
        self,
        moment: Callable[[Row], Any],
        horizon: _Horizon,
        use: HorizonUse,
        capability: Capability[Any],
        info: OperatorInfo,
    ) -> None:
        self._moment = moment
        self._horizon = horizon
        self._use = use
        self._held: SortedDict = SortedDict()  # counts of rows by moment
        self._latest: list[Any] = []  # what the horizon goes by, if there is something
        self._bounds: list[Any] = []
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
            if time is None and latest not in self._latest:  # all workers have the same ones
                self._move([*self._latest, latest])
            elif time is not None:
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
        changes = self._passed() if self._use.lags else []
        for row, diff in consolidate(waiting.updates):
            at = self._moment(row)
            ahead = at is not None and not self._has_passed(at)
            changes.append(((AHEAD if ahead else LATE, row), diff))
            if ahead and self._use.holds:
                self._add(at, row, diff)
        self._move(self._horizon.after(self._latest, waiting.latest))
        return changes if self._use.lags else changes + self._passed()

    def _passed(self) -> list[Update]:
        """Return the changes of rows that leave, since the horizon has passed them."""
        changes: list[Update] = []
        while self._held and self._has_passed(self._held.peekitem(0)[0]):
            _, counts = self._held.popitem(0)
            changes += [((PASSED, row), -count) for row, count in counts.items()]
        return changes

    def _move(self, latest: list[Any]) -> None:
        self._latest = latest
        self._bounds = self._horizon.bounds(latest)

    def _has_passed(self, moment: Any) -> bool:
        return any(moment < bound or (self._horizon.inclusive and moment == bound) for bound in self._bounds)

    def _add(self, at: Any, row: Row, diff: Any) -> None:
        counts = self._held.setdefault(at, {})
        count = counts.get(row, 0) + diff
        if count:
            counts[row] = count
        else:
            del counts[row]
            if not counts:
                del self._held[at]
