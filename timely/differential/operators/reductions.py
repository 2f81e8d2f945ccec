"""``reduce_by_key``: one output for each key, as a function of its values, kept up to date.

A time is processed once it is complete, in a linear extension of the order. An entry of the key whose time ``h`` is not at or
before ``t`` makes the output change at their least upper bound too, so the key is processed there as well (McSherry et al., CIDR
2013, section 4.3). Repeating this reaches every time at which the output can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Pact, Pipeline, Stream
from timely.differential.operators.aggregates import Aggregate, Counted, Groups, counts_at
from timely.differential.operators.arrangement import Arrangement, Index, Messages, describe_shared, pact_for, register_trace
from timely.differential.operators.due_times import Due, due_in
from timely.differential.operators.reduce_tactics import ColumnReduce, ReadInput, ReduceTactic, RowReduce
from timely.differential.operators.scope_lattice import bounds_in
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Keys, keys_of
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace, delta_of
from timely.differential.updates.rings import INTEGERS, Ring
from timely.differential.updates.updates import Container, Counts, Key, Update, in_order
from timely.errors import brief
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.operators.column_operators import ReduceKernel
    from timely.differential.trace.chunk import Gathered
    from timely.differential.updates.int_columns import Array

T = TypeVar("T", bound=PartialOrder)

_PER_UPDATE: Final = 16
"""Entries that columns read in the time in which a bag takes an update."""


class Function(NamedTuple):
    """A function of a key and its values, ``rows(key, {value: count})``, and what does the same for columns."""

    rows: Callable[[Any, Counts], Iterable[Counted]]
    kernel: ReduceKernel | None = None


class ReduceInput(ReadInput[T], Protocol[T]):
    """The input of a reduction: what has been taken of it, by key."""

    def take(self, time: T, batches: list[Container]) -> Iterable[Keys]:
        """Take the batches of ``time``, and return their keys."""

    def restore(self, updates: list[Update], time: T) -> Any:
        """Return a batch of updates that waited in a checkpoint."""

    def begin_run(self) -> None:
        """Begin to take several times in turn."""

    def end_run(self) -> None:
        """End it."""

    def maintain(self, portion: int) -> bool:
        """Compact some of it; return whether more is to be done."""


class _Own:
    """An input that is kept by the reduction alone."""

    def large(self, keys: Array) -> list[Any]:
        return []

    def restore(self, updates: list[Update], time: T) -> Any:
        return updates

    def begin_run(self) -> None:
        pass

    def end_run(self) -> None:
        pass


class _OwnTrace(_Own, Generic[T]):
    """The input is a trace of the reduction's own, to which a time's updates are appended when it is taken."""

    def __init__(self, trace: Trace[T], f: Function) -> None:
        self.trace = trace
        self.pairs = trace.pairs
        self._rows = f.rows
        self.maintain = trace.maintain

    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        for delta in self.trace.deltas(time, batches):
            yield keys_of(self.trace.append(time, delta), self.pairs)

    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        counts = counts_at(self.trace.history(key), time, self.trace.lattice.lub, later)
        return self._rows(key, counts) if counts else ()

    def gather(self, keys: Array) -> Gathered | None:
        return self.trace.gather(keys)


class _SharedTrace(Generic[T]):
    """The input is an arrangement, whose deltas are seen when their time is taken."""

    def __init__(self, cursor: Cursor[T], pairs: bool, f: Function) -> None:
        self._cursor = cursor
        self.trace = cursor.trace
        self.pairs = pairs
        self.restore = cursor.restore
        self._rows = f.rows
        self.begin_run = cursor.begin_run
        self.end_run = cursor.end_run
        self.gather = cursor.gather

    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        cursor = self._cursor
        for delta in batches:
            whole = cursor.keep is None and delta.chunk is not None
            yield keys_of(delta, self.pairs) if whole else dict.fromkeys([key for key, _, _ in cursor.rows(delta)])
            cursor.see(delta, time)

    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        counts = counts_at(self._cursor.history(key), time, self._cursor.lattice.lub, later)
        return self._rows(key, counts) if counts else ()

    def large(self, keys: Array) -> list[Any]:
        return []

    def maintain(self, portion: int) -> bool:
        return False  # its arrangement does that


class _Grouped(_Own, Generic[T]):
    """The input is the groups of an aggregate."""

    def __init__(self, groups: Groups[T]) -> None:
        self._groups = groups
        self.trace = groups.trace
        self.pairs = True
        self.result = groups.result
        self.large = groups.large  # type: ignore[method-assign]
        self.maintain = groups.trace.maintain
        self._updates = 0

    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        self._updates = sum(map(len, batches))
        for delta in self.trace.deltas(time, batches):
            yield self._groups.append(time, delta)

    def gather(self, keys: Array) -> Gathered | None:
        entries, limits = self.trace.gather(keys), self.trace.limits
        if entries is not None and len(keys) < limits.columns and len(entries.numbers) > _PER_UPDATE * self._updates:
            return None  # rows make a bag of such a group, to which an update costs the same however large it is
        return entries


class Restored(NamedTuple):
    """What waits for a key at a time, in a checkpoint: an update of its input, or nothing but the key."""

    key: Any
    time: Any
    update: Update | None


class _Waiting(Generic[T]):
    """What waits for one time to be complete."""

    __slots__ = ("arrays", "batches", "capability", "keys")

    def __init__(self, capability: Capability[T]) -> None:
        self.capability = capability
        self.batches: list[Container] = []
        self.keys: dict[Any, None] = {}
        self.arrays: list[Array] = []  # more keys: those of columns that the trace has already

    def add_keys(self, taken: Keys) -> None:
        """Add keys of batches that the input has taken."""
        if isinstance(taken, dict):
            self.keys.update(taken)
        else:
            self.arrays.append(taken)

    def portions(self, most: int | None, by_hash: bool) -> Iterator[list[Keys]]:
        """Remove and return the keys, at ``most`` so many at a time."""
        if most is None:
            keys, arrays, self.keys, self.arrays = self.keys, self.arrays, {}, []
            yield [keys, *arrays]
            return
        while self.arrays:
            array = self.arrays.pop()
            if len(array) > most:
                self.arrays.append(array[most:])
            yield [array[:most]]
        ordered = iter(sorted(self.keys, key=hash) if by_hash else list(self.keys))
        while portion := dict.fromkeys(islice(ordered, most)):
            for key in portion:
                del self.keys[key]
            yield [portion]


class _Reduction(Generic[T]):
    """The logic of one reduction; ``pairs`` says whether its output is ``(key, value)`` or the key alone."""

    def __init__(self, times: Lattice[T], due: Due[T], pairs: bool) -> None:
        self._due = due
        self._pending: Pending[T, _Waiting[T]] = Pending()
        self._now: list[T] = []
        self._current: list[_Waiting[T]] = []  # what is under way, if anything
        self._work: Iterator[int] | None = None
        self._port: InputPort[T, Update] | None = None
        self._minimum = times.domain.minimum
        self.input: ReduceInput[T]
        self.tactic: ReduceTactic[T]
        self.index: Index
        self.trace: Trace[T] = Trace(times, pairs, self.hold)
        self.sent: Cursor[T] = Cursor(self.trace, times, self.hold)

    def connect(self, port: InputPort[T, Update]) -> None:
        """Take the port, whose frontier says which times are complete."""
        self._port = port

    def hold(self) -> list[T]:
        """Return the frontier of the times that are still to be processed."""
        if self._port is None:
            return [self._minimum]
        return [*self._port.elements, *self._pending.minimum(), *self._now]

    def waiting(self, time: T, capability: Callable[[], Capability[T]]) -> _Waiting[T]:
        return self._pending.at(time, lambda: _Waiting(capability()))

    def save(self) -> Iterator[Restored]:
        """Return the updates, and the keys without one, that wait."""
        pairs = self.input.pairs
        under_way = zip(self._now, self._current, strict=False)
        for time, waiting in (*under_way, *((time, self._pending[time]) for time in self._pending)):
            for batch in waiting.batches:
                for record, diff in batch:
                    yield Restored(record[0] if pairs else record, time, (record, diff))
            for key in (*waiting.keys, *(key for keys in waiting.arrays for key in keys.tolist())):
                yield Restored(key, time, None)

    def load(self, items: Iterable[Restored], capability: Capability[T]) -> None:
        """Queue what a checkpoint has."""
        updates: dict[T, list[Update]] = {}
        for key, time, update in items:
            waiting = self.waiting(time, lambda: capability.delayed(time))  # noqa: B023  # called at once
            if update is None:
                waiting.keys[key] = None
            else:
                updates.setdefault(time, []).append(update)
        for time, waiting_updates in updates.items():
            self._pending[time].batches.append(self.input.restore(waiting_updates, time))

    def logic(self, input: InputPort[T, Update], output: OutputPort[T]) -> bool:
        """Receive what has arrived, and process the times that are complete."""
        limited = self.trace.has_limit
        messages: Messages[T] = input
        for capability, batch in messages:
            waiting = self.waiting(capability.time, capability.retain)
            waiting.batches.append(batch)
            if limited and sum(map(len, waiting.batches)) > self.trace.limits.delta:
                self._take(capability.time, waiting)
        sent = 0
        more = False
        if self._work is None and len(self._pending):
            self._work = self._due_times(input, output)
        if self._work is not None:
            for changes in self._work:
                sent += changes
                if limited and sent >= self.trace.limits.reduced:
                    more = True
                    break
            else:
                self._work = None
        left = self.input.maintain(sent)
        self.index.notify()
        return self.trace.maintain(sent) or left or more

    def _take(self, time: T, waiting: _Waiting[T]) -> None:
        """Append what waits for a time to the input. This may be early: entries of incomplete times do not count."""
        batches, waiting.batches = waiting.batches, []
        for keys in self.input.take(time, batches):
            waiting.add_keys(keys)

    def _due_times(self, input: InputPort[T, Update], output: OutputPort[T]) -> Iterator[int]:
        """Process the times that are complete; yield how many changes were sent, now and then."""
        several = len(self._pending) > 1
        if several:
            self.input.begin_run()
            self.sent.begin_run()
        for time, waiting in self._pending.take(lambda time: self._due(time, input.elements)):
            yield from self._process(time, waiting, output)
        if several:
            self.input.end_run()
            self.sent.end_run()

    def _process(self, time: T, waiting: _Waiting[T], output: OutputPort[T]) -> Iterator[int]:
        self._now, self._current = [time], [waiting]
        if waiting.batches:
            self._take(time, waiting)
        by_hash = self.input.trace.reads_disk or self.trace.reads_disk
        most = max(self.trace.limits.reduced // self.input.trace.entries_per_key(), 1) if self.trace.has_limit else None
        for keys in waiting.portions(most, by_hash):
            yield self._reduce(time, keys, waiting.capability, output)
        waiting.capability.drop()
        self._now, self._current = [], []

    def _reduce(self, time: T, keys: list[Keys], capability: Capability[T], output: OutputPort[T]) -> int:
        changes = self.tactic.changes(time, keys, lambda bound, again: self._wait_at(bound, capability, again))
        if len(changes):
            delta = self.trace.append(time, delta_of(changes, time))
            self.sent.see(delta, time)
            output.session(capability).give_batch(delta)
        return len(changes)

    def _wait_at(self, time: T, capability: Capability[T], keys: Iterable[Any]) -> None:
        self.waiting(time, lambda: capability.delayed(time)).keys.update(dict.fromkeys(keys))


def by_value(f: Callable[[Any, list[Counted]], Iterable[Counted]]) -> Callable[[Any, Counts], Iterable[Counted]]:
    """Return what calls a user's ``f(key, [(value, count), ...])`` and checks what it returns."""

    def call(key: object, counts: Counts) -> list[Counted]:
        values = in_order(counts.items(), itemgetter(0))
        results = f(key, values)
        try:
            return [(value, count) for value, count in results]
        except (TypeError, ValueError):
            error = TypeError(f"f({brief(key)}, {brief(values)}) must return pairs (value, count): {brief(results)}")
        raise error

    return call


def reduce_stream(
    stream: Stream[T, Update],
    ring: Ring,
    f: Function | Aggregate,
    name: str,
    *,
    pairs: bool = True,
    results: bool = True,
    key: Key | None = None,
    source: Arrangement[T, Any, Any] | None = None,
    made: Ring = INTEGERS,
) -> Arrangement[T, Any, Any]:
    """Return the arrangement of the output of ``f`` for each key; ``ring`` is that of the input, ``made`` that of the output.

    ``pairs``: the input has pairs of key and value; ``results``: so has the output. With ``source`` it reads that trace.
    """
    times = bounds_in(stream.scope)
    reduction = _Reduction(times, due_in(stream.scope), results)
    pact: Pact = pact_for(pairs, key)
    builder: OperatorBuilder[T] = OperatorBuilder(stream.scope, name)
    if source is not None and source.index.pairs == pairs and not isinstance(f, Aggregate):
        stream, pact = source.stream, Pipeline
    elif source is not None:
        pact = Pipeline  # its keys are where they belong already
        source = None
    port = builder.new_input(stream, pact)
    output = builder.new_output()
    index = Index(reduction.trace, key, made, builder.info.path, stream.scope)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        index.connect(info)
        reduction.index = index
        if isinstance(f, Aggregate):
            groups = Groups(f, Trace(times, True, reduction.hold))
            reduction.input = _Grouped(groups)
            register_trace(info, groups.trace, key, groups.large_entries)
            info.describe(lambda: f"input: {groups.size()}")
        elif source is not None:
            cursor = source.cursor(reduction.hold)
            reduction.input = _SharedTrace(cursor, pairs, f)
            describe_shared(info, source.index)
            info.at_end(cursor.close)
        else:
            own: Trace[T] = Trace(times, pairs, reduction.hold)
            reduction.input = _OwnTrace(own, f)
            register_trace(info, own, key)
            info.describe(lambda: f"input: {own.size()}")
        rows = RowReduce(reduction.input, reduction.sent)
        reduction.tactic = rows if f.kernel is None or ring is not INTEGERS else ColumnReduce(f.kernel, rows)
        register_trace(info, reduction.trace, key)
        info.describe(lambda: f"output: {reduction.trace.size()}")
        route = key_route(key)
        load = partial(reduction.load, capability=capabilities[0])
        register_keyed_state(info, reduction.save, load, lambda item: route(item.key))
        reduction.connect(port)
        return guarded(
            info, reduction.logic, lambda: f"{reduction.input.trace.size()} of input and {reduction.trace.size()} of output"
        )

    builder.build(constructor)
    return Arrangement(output, index)
