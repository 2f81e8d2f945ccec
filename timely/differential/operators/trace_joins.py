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
from timely.differential.operators.due_times import due_in
from timely.differential.operators.join_results import JoinResult, Pairing
from timely.differential.trace.deltas import Delta, Row
from timely.differential.trace.entries import Entry
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace_limits import TraceLimits
from timely.differential.updates.updates import Container, Update
from timely.errors import GraphError, StateError
from timely.operators.keyed.key_kinds import KeyKinds
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


class _Join(Generic[T]):
    def __init__(
        self, info: OperatorInfo, left: Arrangement[T, Any, Any], right: Arrangement[T, Any, Any], result: JoinResult
    ) -> None:
        self._kinds = KeyKinds(info)
        self._lub = left.lattice.lub
        self._due = due_in(left.scope)
        self._result = result
        self._pending: Pending[T, Waiting[T]] = Pending()
        self._current: list[T] = []  # the time under way, if any
        self._work: Iterator[int] | None = None
        self._ports: list[InputPort[T, Update]] = []
        self._limit = TraceLimits.current().joined  # after so many records other operators run
        self._pairs_of = (left.index.pairs, right.index.pairs)
        self._cursors = (left.cursor(lambda: self._hold(1)), right.cursor(lambda: self._hold(0)))

    def connect(self, left: InputPort[T, Update], right: InputPort[T, Update]) -> None:
        """Take the ports, whose frontiers hold the traces."""
        self._ports = [left, right]

    def close(self) -> None:
        """Let go of both traces."""
        for cursor in self._cursors:
            cursor.close()

    def save(self) -> Iterator[Unjoined]:
        """Return the updates that wait."""
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
        results_by_time: Results[T] = {}
        waiting = 0
        for side in (0, 1):
            for delta in deltas[side]:
                for produced in self._tactic(time, delta, side, results_by_time):
                    waiting += produced
                    if waiting >= self._limit:
                        self._send(results_by_time, capability, output)
                        yield waiting
                        waiting = 0
                self._cursors[side].see(delta, time)
        self._send(results_by_time, capability, output)  # few containers: each is a delta for who arranges them
        capability.drop()
        self._current = []
        yield waiting

    def _send(self, results_by_time: Results[T], capability: Capability[T], output: OutputPort[T]) -> None:
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

    def _tactic(self, time: T, delta: Delta[T], side: int, results_by_time: Results[T]) -> Iterator[int]:
        """Collect containers of the results of a delta by time in ``results_by_time``; yield how many there are, now and then."""
        mine, others = self._cursors[side], self._cursors[1 - side]
        chunk = None if mine.keep is not None else delta.chunk_for(others)
        matches = None if chunk is None else others.matches(chunk.keys)
        if chunk is None or matches is None:
            return self._row_pairs(time, mine.rows(delta, others), others.history, side, results_by_time)
        from timely.differential.operators.chunk_joins import chunk_pairs

        pairs = chunk_pairs(time, chunk, matches, side, self._lub, self._result, results_by_time, self._limit)
        if not matches.loose:
            return pairs
        loose = self._row_pairs(time, chunk.rows(matches.loose), matches.loose.__getitem__, side, results_by_time)
        return chain(pairs, loose)

    def _row_pairs(
        self, time: T, rows: Iterable[Row], history: Callable[[Any], list[Entry]], side: int, results_by_time: Results[T]
    ) -> Iterator[int]:
        lub, result = self._lub, self._result.collect
        last: T | None = None
        results: list[Update] = []
        count = 0
        for key, value, diff in rows:
            for other, when, factor in history(key):
                if when is not last:
                    last = when
                    batches = results_by_time.setdefault(lub(time, when), [])
                    if not batches or type(batches[-1]) is not list:
                        batches.append([])
                    results = batches[-1]
                result(results, key, (other if side else value), (value if side else other), diff * factor)
                count += 1
            if count >= self._limit:
                yield count
                count, last = 0, None
        yield count


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
