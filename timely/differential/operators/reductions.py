"""``reduce_by_key``: one output for each key, as a function of its values, kept up to date.

A time is processed once it is complete, in a linear extension of the order. An entry of the key whose time ``h`` is not at or
before ``t`` makes the output change at their least upper bound too, so the key is processed there as well (McSherry et al., CIDR
2013, section 4.3). Repeating this reaches every time at which the output can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Pact, Pipeline, Stream
from timely.differential.operators.aggregates import Aggregate, Counted, counts_at
from timely.differential.operators.arrangement import Arrangement, Index, Messages, describe_shared, pact_for, register_trace
from timely.differential.operators.join_results import GroupShape
from timely.differential.operators.reduce_inputs import Groups, OwnTrace, Rows, SharedTrace
from timely.differential.operators.scope_times import Due, bounds_in, due_in
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Keys
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace, delta_of
from timely.differential.updates.containers import as_columns
from timely.differential.updates.rings import INTEGERS, Ring
from timely.differential.updates.updates import Container, Counts, Key, Update, in_order
from timely.errors import brief
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.operators.column_operators import ReduceKernel
    from timely.differential.updates.int_columns import Array, Updates

T = TypeVar("T", bound=PartialOrder)

Wait: TypeAlias = Callable[[T, Iterable[Any]], object]
"""Called with the keys that have to be looked at again, and when."""


class Function(NamedTuple):
    """A function of a key and its values, ``rows(key, {value: count})``, and what does the same for columns."""

    rows: Rows
    kernel: ReduceKernel | None = None


def row_changes(input: OwnTrace[T], sent: Cursor[T], time: T, keys: Sequence[Keys], wait: Wait[T]) -> list[Update]:
    """Return the updates that turn what was sent for keys into what is to be at ``time``, by the history of each key."""
    changes: list[Update] = []
    trace, history, result = sent.trace, sent.history, input.result
    lub, pairs = trace.lattice.lub, trace.pairs
    each = keys[0]
    if len(keys) > 1 or not isinstance(each, dict):
        each = dict.fromkeys(chain.from_iterable(part if isinstance(part, dict) else part.tolist() for part in keys))
    for key in sorted(each, key=hash) if input.trace.reads_disk or trace.reads_disk else each:
        later: set[T] = set()
        left = counts_at(history(key), time, lub, later)
        for value, count in result(key, time, later):
            left[value] = left[value] - count if value in left else -count
        for value, count in left.items():
            if count:
                changes.append(((key, value) if pairs else key, -count))
        for bound in later:
            wait(bound, (key,))
    return changes


def kernel_changes(
    kernel: ReduceKernel, input: OwnTrace[T], sent: Cursor[T], time: T, keys: Sequence[Keys], wait: Wait[T]
) -> list[Update] | Updates:
    """Do the same with a kernel, for many keys that are whole numbers, or keys of many updates; others are left to rows."""
    many = sent.many
    if sum(map(len, keys)) < many and all(isinstance(part, dict) for part in keys):
        return row_changes(input, sent, time, keys, wait)
    from timely.differential.operators.column_operators import reduced_columns

    columns, rest = reduced_columns(kernel, input, sent, time, keys, wait)
    rows = row_changes(input, sent, time, [dict.fromkeys(rest)], wait) if rest else []
    if columns is None:
        return rows
    together = as_columns([columns, rows], sent.trace.pairs, many)
    return [*rows, *columns] if together is None else together.consolidated()


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

    def __init__(self, times: Lattice[T], due: Due[T], pairs: bool, kernel: ReduceKernel | None) -> None:
        self._due = due
        self._kernel = kernel
        self._pending: Pending[T, _Waiting[T]] = Pending()
        self._now: list[T] = []
        self._current: list[_Waiting[T]] = []  # what is under way, if anything
        self._work: Iterator[int] | None = None
        self._port: InputPort[T, Update] | None = None
        self._minimum = times.domain.minimum
        self.input: OwnTrace[T]
        self.index: Index
        self.trace: Trace[T] = Trace(times, pairs, self.hold)
        self._sent: Cursor[T] = Cursor(self.trace, times, self.hold)
        self.cursors = [self._sent]  # those that it reads with

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
        for cursor in self.cursors if several else ():
            cursor.begin_run()
        for time, waiting in self._pending.take(lambda time: self._due(time, input.elements)):
            yield from self._process(time, waiting, output)
        for cursor in self.cursors if several else ():
            cursor.end_run()

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
        def wait(bound: T, again: Iterable[Any]) -> None:
            self.waiting(bound, lambda: capability.delayed(bound)).keys.update(dict.fromkeys(again))

        changes: list[Update] | Updates
        if self._kernel is None:
            changes = row_changes(self.input, self._sent, time, keys, wait)
        else:
            changes = kernel_changes(self._kernel, self.input, self._sent, time, keys, wait)
        if len(changes):
            delta = self.trace.append(time, delta_of(changes, time))
            self._sent.see(delta, time)
            output.session(capability).give_batch(delta)
        return len(changes)


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
    reduction = _Reduction(times, due_in(stream.scope), results, f.kernel if ring is INTEGERS else None)
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
        info.state.function = GroupShape(pairs, results)
        if isinstance(f, Aggregate):
            groups = Groups(f, Trace(times, True, reduction.hold))
            reduction.input = groups
            register_trace(info, groups.trace, key, groups.large_entries)
            info.describe(lambda: f"input: {groups.size()}")
        elif source is not None:
            cursor = source.cursor(reduction.hold)
            reduction.input = SharedTrace(cursor, f.rows)
            reduction.cursors.append(cursor)
            describe_shared(info, source.index)
            info.at_end(cursor.close)
        else:
            own: Trace[T] = Trace(times, pairs, reduction.hold)
            reduction.input = OwnTrace(own, f.rows)
            register_trace(info, own, key)
            info.describe(lambda: f"input: {own.size()}")
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
