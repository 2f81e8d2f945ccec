"""Half joins: the changes of one collection meet what the arrangements of others have, and nothing of the result is arranged.

A join of ``n`` collections has one path for each. The changes of collection ``i`` meet, one collection after another, the entries
of ``j`` at earlier times and, where ``j < i``, those at their own: so each combination counts once, at the bound of its times.
Times of a loop are only partly ordered. There one is earlier than another by epochs first, and then by rounds.

Invariant: an arrangement is read at a time once all that is earlier has come. Its history is held at the epoch before the one at
hand, so that it keeps apart what is earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.operators.arrangement import Arrangement, describe_shared, pact_for
from timely.differential.operators.join_results import JoinResult, Pairing
from timely.differential.operators.trace_joins import PairTactic, Results, emitted
from timely.differential.trace.deltas import Delta, Row, RowDelta
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import delta_of
from timely.differential.trace.trace_limits import TraceLimits
from timely.differential.updates.containers import as_columns, is_keyed_rows
from timely.differential.updates.updates import ByUpdate, Container, Update
from timely.errors import GraphError, StateError
from timely.operators.in_order import order_key
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder, Product
from timely.progress import time_domain

T = TypeVar("T", bound=PartialOrder)


class Lookup(NamedTuple, Generic[T]):
    """A step of a path: ``result`` is collected of pairs whose keys are equal, and makes pairs with the key of the next step."""

    arrangement: Arrangement[T]
    result: JoinResult
    strict: bool
    """Whether entries at the time of a change do not count."""
    most: int | None = None
    """Changes whose keys have more entries are sent on unchanged, as the second stream."""


def path(
    stream: Stream[T, Update], placement: ByUpdate | None, lookups: Sequence[Lookup[T]], name: str
) -> list[Stream[T, Update]]:
    """Return what the last of ``lookups`` makes of changes, which are pairs, and the changes that the first one sends on."""
    heavy: list[Stream[T, Update]] = []
    for place, lookup in enumerate(lookups):
        exchange = pact_for(True, lookup.arrangement.index.key)
        pact = Pipeline if place == 0 and placement == exchange else exchange
        stream, *others = _half_join(stream, pact, lookup, place == 0, place == len(lookups) - 1, name)
        heavy += others
    return [stream, *heavy]


def _epoch(time: Any) -> Any:
    while isinstance(time, Product):
        time = time.outer
    return time


def _first_of(epoch: Any, minimum: Any) -> Any:
    """Return the first time of an epoch."""
    return Product(_first_of(epoch, minimum.outer), minimum.inner) if isinstance(minimum, Product) else epoch


class _HalfJoin(Generic[T]):
    """The logic of one step. Inside loops, what goes from one to the next has the bound of its times beside its value."""

    def __init__(self, lookup: Lookup[T], first: bool, last: bool, name: str) -> None:
        arrangement = lookup.arrangement
        self._key = order_key(arrangement.scope.time, name)
        self._minimum = arrangement.lattice.domain.minimum
        self._nested = isinstance(self._minimum, Product)
        self._first = first
        self._last = last
        self._strict = lookup.strict
        self._most = lookup.most
        self._pending: Pending[T, tuple[list[Capability[T]], list[Container]]] = Pending(total=not self._nested)
        self._current: list[T] = []
        self._work: Iterator[int] | None = None
        self._ports: list[InputPort[T, Update]] = []
        self._epochs = [_epoch(self._minimum)] * 2  # the one before, and the earliest of which changes may come
        self._tactic = PairTactic(arrangement.lattice.lub, lookup.result, TraceLimits.current().joined, self._sees)
        self._cursor = arrangement.cursor(self._hold)

    def connect(self, changes: InputPort[T, Update], entries: InputPort[T, Update]) -> None:
        self._ports = [changes, entries]

    def close(self) -> None:
        self._cursor.close()

    def save(self) -> Iterator[tuple[T, Update]]:
        if self._current:
            raise StateError("a join is in the middle of its work, and a checkpoint cannot have half of it: let it rest before")
        for time in self._pending:
            for update in chain.from_iterable(self._pending[time][1]):
                yield time, update

    def load(self, items: Iterable[tuple[T, Update]], capabilities: Sequence[Capability[T]]) -> None:
        """Have what a checkpoint has wait."""
        for time, update in items:
            waiting = self._pending.at(time, lambda: ([each.delayed(time) for each in capabilities], []))  # noqa: B023
            waiting[1].append([update])

    def _sees(self, time: T, when: T) -> bool:
        """Return whether a change at a time meets an entry of another."""
        one, other = self._key(time), self._key(when)
        return bool(other < one if self._strict else other <= one)

    def _hold(self) -> list[T]:
        """Return the frontier at which the trace may be read: at an epoch before those of which changes may come."""
        if not self._ports:
            return [self._minimum]
        times = [*self._ports[0].elements, *self._pending.minimum(), *self._current]
        if not times or not (self._strict or self._nested):
            return times
        epoch = min(map(_epoch, times))
        if epoch != self._epochs[1]:
            self._epochs = [self._epochs[1], epoch]
        return [_first_of(self._epochs[0], self._minimum)]

    def _due(self, time: T) -> bool:
        """Return whether all that it meets has come."""
        return not any(self._sees(time, when) for when in self._ports[1].elements)

    def logic(self, changes: InputPort[T, Update], entries: InputPort[T, Update], *outputs: OutputPort[T]) -> bool:
        """Receive what has arrived, and join some of it; returns whether more is ready."""
        for capability, delta in entries:
            self._cursor.see(delta, capability.time)  # type: ignore[arg-type]  # arrangements send deltas
        for capability, batch in changes:
            places = range(len(outputs))
            waiting = self._pending.at(capability.time, lambda: ([capability.retain(place) for place in places], []))  # noqa: B023
            waiting[1].append(batch)
        if self._work is None and self._pending.has_due(self._due):
            self._work = self._all_due(outputs)
        left_over = self._tactic.limit
        for produced in self._work or ():
            left_over -= produced
            if left_over <= 0:
                return True
        self._work = None
        return False

    def _all_due(self, outputs: Sequence[OutputPort[T]]) -> Iterator[int]:
        results: Results[T] = {}
        for time, (capabilities, batches) in self._pending.take(self._due):
            self._current = [time]
            deltas: Iterable[Delta[T]] = _deltas_of(batches, time, self._cursor.many)
            if self._most is not None:
                deltas = self._light(deltas, outputs[1].session(capabilities[1]).give_batch)
            yield from emitted(self._pairs(time, deltas, results), results, capabilities[0], outputs[0], self._tactic.limit)
            for capability in capabilities:
                capability.drop()
            self._current = []

    def _light(self, deltas: Iterable[Any], send: Callable[[Any], object]) -> Iterator[Delta[T]]:
        """Send the changes of keys that have too many entries, and yield the others."""
        for delta in deltas:
            heavy = self._heavy_keys(delta)
            if not heavy:
                yield delta
                continue
            others, light = delta.split(heavy)
            send(others)
            yield light

    def _heavy_keys(self, delta: Delta[T]) -> list[Any]:
        cursor, most = self._cursor, self._most or 0
        chunk = delta.chunk_for(cursor)
        matches = None if chunk is None else cursor.matches(chunk.keys)
        if chunk is None or matches is None:
            return [key for key in {key for key, _, _ in delta.rows(True)} if len(cursor.history(key)) > most]
        from timely.differential.operators.chunk_joins import entries_of

        heavy: list[Any] = chunk.keys[entries_of(chunk.keys, matches) > most].tolist()
        return heavy + [key for key, entries in matches.loose.items() if len(entries) > most]

    def _pairs(self, time: T, deltas: Iterable[Delta[T]], results: Results[T]) -> Iterator[int]:
        for delta in deltas:
            if self._nested:
                yield from self._bounded(time, delta.rows(True), results)
            else:
                yield from self._tactic.pairs(time, delta, None, self._cursor, 0, results)

    def _bounded(self, time: T, rows: Iterable[Row], results: Results[T]) -> Iterator[int]:
        """Collect results with the bound of their times: at ``time``, which decides what else they meet, or, the last, there."""
        lub, collect = self._tactic.lub, self._tactic.result.collect
        for key, value, diff in rows:
            value, so_far = (value, time) if self._first else value
            for other, when, factor in self._cursor.history(key):
                if not self._sees(time, when):
                    continue
                bound = lub(so_far, when)
                if self._last:
                    collect(results.setdefault(bound, [[]])[0], key, value, other, diff * factor)
                    continue
                made: list[Update] = []
                collect(made, key, value, other, diff * factor)
                batch: list[Update] = results.setdefault(time, [[]])[0]
                batch.extend([((next_key, (record, bound)), count) for (next_key, record), count in made])
            yield 1


def _deltas_of(batches: Sequence[Any], time: T, many: int) -> Iterator[Delta[T]]:
    rows: list[Container] = []
    for batch in batches:
        if getattr(batch, "chunk", None) is not None:  # as its trace has sorted it
            yield batch
        elif is_keyed_rows(batch):
            yield delta_of(batch.ordered(), time)
        else:
            rows.append(batch)
    columns = as_columns(rows, True, many) if rows else None
    if columns is not None:
        yield delta_of(columns.consolidated(), time)
    elif rows:
        yield RowDelta(chain.from_iterable(rows))


def _half_join(
    stream: Stream[T, Update], pact: Any, lookup: Lookup[T], first: bool, last: bool, name: str
) -> list[Stream[T, Update]]:
    arrangement = lookup.arrangement
    scope, index = arrangement.scope, arrangement.index
    if not time_domain(scope.root.time).total:
        raise GraphError(f"{name} needs a dataflow whose times are in one order, such as int; join by join() instead")
    if arrangement.imported is not None:
        raise GraphError(f"{name} cannot look up in {arrangement!r}, whose history is older than its changes; arrange it here")
    builder: OperatorBuilder[T] = OperatorBuilder(scope, name)
    changes, entries = builder.new_input(stream, pact), builder.new_input(arrangement.stream, Pipeline)
    outputs: list[Stream[T, Update]] = [builder.new_output() for _ in range(1 if lookup.most is None else 2)]

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_collection()
        join: _HalfJoin[T] = _HalfJoin(lookup, first, last, name)
        info.state.function = Pairing(lookup.result.collect, (True, index.pairs))
        route = key_route(index.key)
        load = partial(join.load, capabilities=capabilities)
        register_keyed_state(info, join.save, load, lambda item: route(item[1][0][0]))
        join.connect(changes, entries)
        describe_shared(info, index)
        info.at_end(join.close)
        return guarded(info, join.logic, index.trace.size)

    builder.build(constructor)
    return outputs
