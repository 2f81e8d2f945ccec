"""``join_arrangements``: pairs of records with equal keys, at the least upper bounds of their times.

A delta of one side is joined with what the other side's cursor has seen, and then seen itself: so every two records meet once.
Where deltas of several times wait, complete times go first, in order, so that the entries before them add up. Otherwise ``n``
epochs of one key would meet ``n`` entries each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.operators.arrangement import Arrangement, Messages, describe_shared
from timely.differential.operators.join_results import JoinResult, Pairing
from timely.differential.operators.scope_times import due_in
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Delta, Row
from timely.differential.trace.entries import Entry
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace_limits import TraceLimits
from timely.differential.updates.updates import Container, Update
from timely.errors import GraphError, StateError
from timely.operators.keyed.by_record import KeyKinds
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


class Unjoined(NamedTuple):
    """An update of one side that waits to be joined, in a checkpoint."""

    key: Any
    time: Any
    side: int
    update: Update


Deltas: TypeAlias = tuple[list[Delta[T]], list[Delta[T]]]
"""The deltas of both sides."""

Waiting: TypeAlias = tuple[Capability[T], Deltas[T]]

Results: TypeAlias = dict[T, list[Container]]
"""Containers of results, by time."""


def emitted(
    counts: Iterable[int], results_by_time: Results[T], capability: Capability[T], output: OutputPort[T], limit: int
) -> Iterator[int]:
    """Send what is collected as ``counts`` is gone through, and yield how many records, whenever there are ``limit`` or more."""
    waiting = 0
    for produced in counts:
        waiting += produced
        if waiting >= limit:
            _send(results_by_time, capability, output)
            yield waiting
            waiting = 0
    _send(results_by_time, capability, output)  # few containers: each is a delta for who arranges them
    yield waiting


def _send(results_by_time: Results[T], capability: Capability[T], output: OutputPort[T]) -> None:
    for bound, batches in results_by_time.items():
        if bound == capability.time:
            session = output.session(capability)
            for batch in batches:
                session.give_batch(batch)
            continue
        with capability.delayed(bound) as later:
            session = output.session(later)
            for batch in batches:
                session.give_batch(batch)
    results_by_time.clear()


class PairTactic(Generic[T]):
    """How a delta is joined with the entries that a cursor has seen: all, or those at times that ``sees(its time, theirs)``."""

    def __init__(
        self, lub: Callable[[T, T], T], result: JoinResult, limit: int, sees: Callable[[T, T], bool] | None = None
    ) -> None:
        self.lub = lub
        self.result = result
        self.limit = limit  # after so many records other operators run
        self.sees = sees

    def pairs(
        self, time: T, delta: Delta[T], mine: Cursor[T] | None, others: Cursor[T], side: int, results_by_time: Results[T]
    ) -> Iterator[int]:
        """Collect containers of the results of a delta by time in ``results_by_time``; yield how many there are, now and then.

        ``mine`` reads the trace of the delta, which has pairs where it is of none.
        """
        chunk = None
        columns_of = self.result.columns_of
        if mine is None or mine.keep is None:
            chunk = delta.chunk_for(others)
            if chunk is None and columns_of is not None and len(delta) * others.trace.rows_per_key() >= others.many:
                from timely.differential.operators.chunk_joins import chunk_of

                changes = delta.rows(True) if mine is None else mine.rows(delta)
                chunk = chunk_of(((key, value, time, diff) for key, value, diff in changes), columns_of[side])
        matches = None if chunk is None else others.matches(chunk.keys)
        if chunk is None or matches is None:
            rows = delta.rows(True, others) if mine is None else mine.rows(delta, others)
            return self.row_pairs(time, rows, others.history, side, results_by_time)
        from timely.differential.operators.chunk_joins import chunk_pairs, with_loose

        if matches.loose and columns_of is not None and chunk.layout.has_rows and len(chunk) >= others.many:
            matches = with_loose(matches, len(chunk.keys), columns_of[1 - side])
        lub, sees = self.lub, self.sees

        def bound(when: T) -> T | None:
            return lub(time, when) if sees is None or sees(time, when) else None

        pairs = chunk_pairs(chunk, matches, side, bound, self.result, results_by_time, self.limit)
        if not matches.loose:
            return pairs
        loose = self.row_pairs(time, chunk.rows(matches.loose), matches.loose.__getitem__, side, results_by_time)
        return chain(pairs, loose)

    def row_pairs(
        self, time: T, rows: Iterable[Row], history: Callable[[Any], list[Entry]], side: int, results_by_time: Results[T]
    ) -> Iterator[int]:
        """Do the same for rows, with the entries of each key."""
        lub, result, sees = self.lub, self.result.collect, self.sees
        last: T | None = None
        results: list[Update] = []
        count = 0
        for key, value, diff in rows:
            entries = history(key)
            if sees is not None:
                entries = [entry for entry in entries if sees(time, entry[1])]
            for other, when, factor in entries:
                if when is not last:
                    last = when
                    batches = results_by_time.setdefault(lub(time, when), [])
                    if not batches or type(batches[-1]) is not list:
                        batches.append([])
                    results = batches[-1]
                result(results, key, (other if side else value), (value if side else other), diff * factor)
                count += 1
            if count >= self.limit:
                yield count
                count, last = 0, None
        yield count


class _Join(Generic[T]):
    def __init__(
        self, info: OperatorInfo, left: Arrangement[T, Any, Any], right: Arrangement[T, Any, Any], result: JoinResult
    ) -> None:
        self._kinds = KeyKinds(info)
        self._due = due_in(left.scope)
        self._pending: Pending[T, Waiting[T]] = Pending()
        self._current: list[T] = []  # the time under way, if any
        self._work: Iterator[int] | None = None
        self._ports: list[InputPort[T, Update]] = []
        self._limit = TraceLimits.current().joined
        self._tactic = PairTactic(left.lattice.lub, result, self._limit)
        self._pairs_of = (left.index.pairs, right.index.pairs)
        self._cursors = (left.cursor(lambda: self._hold(1)), right.cursor(lambda: self._hold(0)))

    def connect(self, left: InputPort[T, Update], right: InputPort[T, Update]) -> None:
        self._ports = [left, right]

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()

    def save(self) -> Iterator[Unjoined]:
        if self._current:
            raise StateError("a join is in the middle of its work, and a checkpoint cannot have half of it: let it rest before")
        for time in self._pending:
            for side, deltas in enumerate(self._pending[time][1]):
                pairs = self._pairs_of[side]
                for delta in deltas:
                    for record, diff in delta:
                        yield Unjoined(record[0] if pairs else record, time, side, (record, diff))

    def load(self, items: Iterable[Unjoined], capability: Capability[T]) -> None:
        """Have what a checkpoint has wait, and be joined; both traces have it already."""
        waiting: dict[T, tuple[list[Update], list[Update]]] = {}
        for _, time, side, update in items:
            waiting.setdefault(time, ([], []))[side].append(update)
        for time, (left, right) in waiting.items():
            first, second = self._cursors
            deltas: Deltas[T] = [first.restore(left, time)] if left else [], [second.restore(right, time)] if right else []
            self._pending[time] = capability.delayed(time), deltas

    def _hold(self, other: int) -> list[T]:
        """Return the frontier at which one trace may be read: the times of what the other side may still bring."""
        if not self._ports:
            return [self._cursors[0].lattice.domain.minimum]
        return [*self._ports[other].elements, *self._pending.minimum(), *self._current]

    def logic(self, left: InputPort[T, Update], right: InputPort[T, Update], output: OutputPort[T]) -> bool:
        """Receive what has arrived, and join some of it; returns whether more is ready."""
        pending = self._pending
        ports: list[Messages[T]] = [left, right]
        for side, port in enumerate(ports):
            for capability, delta in port:
                if side in self._kinds.missing and delta.chunk is None:  # to look at columns would make all of their rows
                    pairs = self._pairs_of[side]
                    self._kinds.see(side, (record[0] if pairs else record for record, _ in delta))
                time = capability.time
                if time in pending:
                    pending[time][1][side].append(delta)
                else:
                    pending[time] = (capability.retain(), ([], []))
                    pending[time][1][side].append(delta)
        left_over = self._limit
        while True:
            if self._work is None:
                self._work = self._next(left, right, output)
                if self._work is None:
                    return False
            for produced in self._work:
                left_over -= produced
                if left_over <= 0:
                    return True
            self._work = None

    def _next(self, left: InputPort[T, Update], right: InputPort[T, Update], output: OutputPort[T]) -> Iterator[int] | None:
        pending = self._pending
        if not pending:
            return None
        if len(pending) == 1:  # the usual case: nothing would be gained by waiting
            (time,) = pending
            return self._at(time, *pending.pop(time), output)
        if not pending.has_due(lambda time: self._is_complete(time, left, right)):
            return None
        return self._several(left, right, output)

    def _is_complete(self, time: T, left: InputPort[T, Update], right: InputPort[T, Update]) -> bool:
        return self._due(time, left.elements) and self._due(time, right.elements)

    def _several(self, left: InputPort[T, Update], right: InputPort[T, Update], output: OutputPort[T]) -> Iterator[int]:
        for cursor in self._cursors:
            cursor.begin_run()
        for time, (capability, deltas) in self._pending.take(lambda time: self._is_complete(time, left, right)):
            yield from self._at(time, capability, deltas, output)
        for cursor in self._cursors:
            cursor.end_run()

    def _at(self, time: T, capability: Capability[T], deltas: Deltas[T], output: OutputPort[T]) -> Iterator[int]:
        self._current = [time]
        results: Results[T] = {}
        yield from emitted(self._pairs(time, deltas, results), results, capability, output, self._limit)
        capability.drop()
        self._current = []

    def _pairs(self, time: T, deltas: Deltas[T], results: Results[T]) -> Iterator[int]:
        for side in (0, 1):
            mine, others = self._cursors[side], self._cursors[1 - side]
            for delta in deltas[side]:
                yield from self._tactic.pairs(time, delta, mine, others, side, results)
                mine.see(delta, time)


def join_arrangements(
    left: Arrangement[T, Any, Any], right: Arrangement[T, Any, Any], result: JoinResult, name: str
) -> Stream[T, Update]:
    """Return the stream of updates that ``result`` collects of the pairs of ``left`` and ``right``."""
    if left.scope is not right.scope:
        raise GraphError(
            f"{name} of a collection of scope {left.scope.path!r} and one of scope {right.scope.path!r}: bring one of them in"
            " with enter(scope), or out with leave()"
        )
    builder: OperatorBuilder[T] = OperatorBuilder(left.scope, name)
    first, second = builder.new_input(left.stream, Pipeline), builder.new_input(right.stream, Pipeline)
    output = builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_collection()
        join = _Join(info, left, right, result)
        info.state.function = Pairing(result.collect, (left.index.pairs, right.index.pairs))
        route = key_route(left.index.key)
        load = partial(join.load, capability=capabilities[0])
        register_keyed_state(info, join.save, load, lambda item: route(item.key))
        join.connect(first, second)
        for index in dict.fromkeys((left.index, right.index)):
            describe_shared(info, index)
        info.at_end(join.close)
        return guarded(info, join.logic, lambda: f"{left.index.trace.size()} and {right.index.trace.size()}")

    builder.build(constructor)
    return output
