"""``reduce_by_key``: one output for each key, as a function of its values, kept up to date.

A time is processed once it is complete, in a linear extension of the order. An entry of the key whose time ``h`` is not at or
before ``t`` makes the output change at their least upper bound too, so the key is processed there as well (McSherry et al., CIDR
2013, section 4.3). Repeating this reaches every time at which the output can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import attrs

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, Pact, Pipeline, Stream
from timely.differential.aggregates import Aggregate, Groups, counts_at
from timely.differential.arrangement import Arrangement, Index, pact_for, register_trace
from timely.differential.rings import Ring
from timely.differential.trace import Cursor, Trace
from timely.differential.updates import Update, consolidate
from timely.errors import brief
from timely.operators.pending import Pending
from timely.operators.state import key_route, register_keyed_state
from timely.order import reaches
from timely.progress import Lattice, lattice

Hold = Callable[[], Sequence[Any]]


class Input(Protocol):
    """The input of a reduction: what has been taken of it, by key."""

    pairs: bool

    def take(self, time: Any, batches: list[Any]) -> Iterable[Any]:
        """Take the batches of ``time``, and return their keys."""

    def result(self, key: Any, time: Any, later: set[Any]) -> Iterable[tuple[Any, Any]]:
        """Return the values and counts of the output of ``key`` at ``time``, collecting further times in ``later``."""

    def restore(self, updates: list[Update], time: Any) -> Any:
        """Return a batch of updates that waited in a checkpoint."""

    def begin_run(self) -> None:
        """Begin to take several times in turn."""

    def end_run(self) -> None:
        """End it."""

    def maintain(self, portion: int) -> bool:
        """Compact some of it; return whether more is to be done."""


class _OwnTrace:
    """The input is a trace of the reduction's own, to which a time's updates are appended when it is taken."""

    def __init__(self, trace: Trace[Any], f: Callable[..., Any]) -> None:
        self.trace = trace
        self.pairs = trace.pairs
        self._f = f
        self.maintain = trace.maintain

    def take(self, time: Any, batches: list[Any]) -> Iterable[Any]:
        delta = self.trace.append(time, _consolidated(batches))
        return dict.fromkeys(_keys(delta, self.trace.pairs))

    def restore(self, updates: list[Update], time: Any) -> Any:
        return updates

    def result(self, key: Any, time: Any, later: set[Any]) -> Iterable[tuple[Any, Any]]:
        counts = counts_at(self.trace.history(key), time, self.trace.lattice.lub, later)
        return self._f(key, counts) if counts else ()

    def begin_run(self) -> None:
        pass

    def end_run(self) -> None:
        pass


class _SharedTrace:
    """The input is an arrangement, whose deltas are seen when their time is taken."""

    def __init__(self, cursor: Cursor[Any], pairs: bool, f: Callable[..., Any]) -> None:
        self._cursor = cursor
        self.pairs = pairs
        self.restore = cursor.restore
        self._f = f
        self.begin_run = cursor.begin_run
        self.end_run = cursor.end_run

    def take(self, time: Any, batches: list[Any]) -> Iterable[Any]:
        keys: dict[Any, None] = {}
        for delta in batches:
            for key, _, _ in self._cursor.rows(delta):
                keys[key] = None
            self._cursor.see(delta, time)
        return keys

    def result(self, key: Any, time: Any, later: set[Any]) -> Iterable[tuple[Any, Any]]:
        counts = counts_at(self._cursor.history(key), time, self._cursor.lattice.lub, later)
        return self._f(key, counts) if counts else ()

    def maintain(self, portion: int) -> bool:
        return False  # whoever arranged it does that


class _Grouped:
    """The input is the groups of an aggregate."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.pairs = True
        self.result = groups.result
        self.maintain = groups.trace.maintain

    def take(self, time: Any, batches: list[Any]) -> Iterable[Any]:
        return self._groups.append(time, _consolidated(batches))

    def restore(self, updates: list[Update], time: Any) -> Any:
        return updates

    def begin_run(self) -> None:
        pass

    def end_run(self) -> None:
        pass


def _consolidated(batches: list[Any]) -> list[Update]:
    return consolidate(batches[0] if len(batches) == 1 else [update for batch in batches for update in batch])


def _keys(delta: Iterable[Update], pairs: bool) -> Iterator[Any]:
    return (record[0] if pairs else record for record, _ in delta)


class Restored(NamedTuple):
    """What waits for a key at a time, in a checkpoint: an update of its input, or nothing but the key."""

    key: Any
    time: Any
    update: Update | None


@attrs.define(eq=False)
class _Waiting:
    """What waits for one time to be complete."""

    capability: Capability[Any]
    batches: list[Any] = attrs.Factory(list)
    keys: dict[Any, None] = attrs.Factory(dict)


class _Reduction:
    """The logic of one reduction; ``pairs`` says whether its output is ``(key, value)`` or the key alone."""

    def __init__(self, times: Lattice[Any], pairs: bool) -> None:
        self._pending: Pending[Any, _Waiting] = Pending()
        self._now: list[Any] = []
        self._port: InputPort[Any, Any] | None = None
        self._minimum = times.domain.minimum
        self.input: Input
        self.index: Index
        self.trace: Trace[Any] = Trace(times, pairs, self.hold)
        self._sent: Cursor[Any] = Cursor(self.trace, times, self.hold)

    def connect(self, port: InputPort[Any, Any]) -> None:
        """Take the port, whose frontier says which times are complete."""
        self._port = port

    def hold(self) -> list[Any]:
        """Return the frontier of the times that are still to be processed."""
        if self._port is None:
            return [self._minimum]
        return [*self._port.elements, *self._pending.minimum(), *self._now]

    def waiting(self, time: Any, capability: Callable[[], Capability[Any]]) -> _Waiting:
        """Return what waits for ``time``."""
        return self._pending.at(time, lambda: _Waiting(capability()))

    def save(self) -> Iterator[Restored]:
        """Return the updates, and the keys without one, that wait."""
        pairs = self.input.pairs
        for time in self._pending:
            waiting = self._pending[time]
            for batch in waiting.batches:
                for record, diff in batch:
                    yield Restored(record[0] if pairs else record, time, (record, diff))
            for key in waiting.keys:
                yield Restored(key, time, None)

    def load(self, items: Iterable[Restored], capability: Capability[Any]) -> None:
        """Have what a checkpoint has wait."""
        updates: dict[Any, list[Update]] = {}
        for key, time, update in items:
            waiting = self.waiting(time, lambda: capability.delayed(time))  # noqa: B023  # called at once
            if update is None:
                waiting.keys[key] = None
            else:
                updates.setdefault(time, []).append(update)
        for time, found in updates.items():
            self._pending[time].batches.append(self.input.restore(found, time))

    def logic(self, input: InputPort[Any, Any], output: OutputPort[Any]) -> bool:
        """Receive what has arrived, and process the times that are complete."""
        for capability, batch in input:
            self.waiting(capability.time, capability.retain).batches.append(batch)
        frontier = input.elements
        several = len(self._pending) > 1
        if several:
            self.input.begin_run()
            self._sent.begin_run()
        sent = 0
        for time, waiting in self._pending.take(lambda time: not reaches(frontier, time)):
            sent += self._process(time, waiting, output)
        if several:
            self.input.end_run()
            self._sent.end_run()
        left = self.input.maintain(sent)
        self.index.notify()
        return self.trace.maintain(sent) or left

    def _process(self, time: Any, waiting: _Waiting, output: OutputPort[Any]) -> int:
        self._now = [time]
        keys = waiting.keys
        if waiting.batches:
            keys.update(dict.fromkeys(self.input.take(time, waiting.batches)))
        changes: list[Update] = []
        result, history, lub, pairs = self.input.result, self._sent.history, self.trace.lattice.lub, self.trace.pairs
        capability = waiting.capability
        for key in keys:
            later: set[Any] = set()
            before = counts_at(history(key), time, lub, later)
            for value, count in result(key, time, later):
                if value in before:
                    before[value] = before[value] - count
                else:
                    before[value] = -count
            for value, count in before.items():
                if count:
                    changes.append(((key, value) if pairs else key, -count))
            for bound in later:
                self.waiting(bound, lambda: capability.delayed(bound)).keys[key] = None  # noqa: B023  # called at once
        if changes:
            delta = self.trace.append(time, changes)
            self._sent.see(delta, time)
            output.session(capability).give_batch(delta)
        capability.drop()
        self._now = []
        return len(changes)


def by_value(f: Callable[[Any, list[tuple[Any, Any]]], Iterable[tuple[Any, Any]]]) -> Callable[..., Any]:
    """Return what calls a user's ``f(key, [(value, count), ...])`` and checks what it returns."""

    def call(key: Any, counts: dict[Any, Any]) -> Any:
        values = list(counts.items())
        if len(values) > 1:
            try:
                values.sort(key=itemgetter(0))
            except TypeError:
                pass  # values that cannot be compared come in no particular order
        found = f(key, values)
        try:
            return [(value, count) for value, count in found]
        except (TypeError, ValueError):
            raise TypeError(f"f({brief(key)}, {brief(values)}) must return pairs (value, count): {brief(found)}") from None

    return call


def reduce_stream(
    stream: Stream[Any, Any],
    ring: Ring,
    f: Callable[..., Any] | Aggregate,
    name: str,
    *,
    pairs: bool = True,
    results: bool = True,
    key: Callable[[Any], Any] | None = None,
    source: Arrangement[Any, Any, Any] | None = None,
) -> Arrangement[Any, Any, Any]:
    """Return the arrangement of the output of ``f`` for each key: an ``Aggregate``, or ``f(key, {value: count})``.

    ``pairs``: the input has pairs of key and value; ``results``: so has the output. With ``source`` it reads that trace.
    """
    times = lattice(stream.scope.time)
    reduction = _Reduction(times, results)
    pact: Pact = pact_for(pairs, key)
    builder: OperatorBuilder[Any] = OperatorBuilder(stream.scope, name)
    if source is not None and source.index.pairs == pairs and not isinstance(f, Aggregate):
        stream, pact = source.stream, Pipeline
    elif source is not None:
        pact = Pipeline  # its keys are where they belong already
        source = None
    port = builder.new_input(stream, pact)
    output = builder.new_output()
    index = Index(reduction.trace, key, ring, builder.info.path, stream.scope)

    def constructor(capabilities: list[Capability[Any]], info: OperatorInfo) -> Callable[..., object]:
        index.connect(info)
        reduction.index = index
        if isinstance(f, Aggregate):
            groups = Groups(f, Trace(times, True, reduction.hold))
            reduction.input = _Grouped(groups)
            register_trace(info, groups.trace, key, stream.scope, groups.entries, groups.load)
        elif source is not None:
            cursor = source.cursor(reduction.hold)
            reduction.input = _SharedTrace(cursor, pairs, f)
            info.at_end(cursor.close)
        else:
            own: Trace[Any] = Trace(times, pairs, reduction.hold)
            reduction.input = _OwnTrace(own, f)
            register_trace(info, own, key, stream.scope)
        register_trace(info, reduction.trace, key, stream.scope)
        route = key_route(key)
        register_keyed_state(
            info, reduction.save, lambda items: reduction.load(items, capabilities[0]), lambda item: route(item.key)
        )
        reduction.connect(port)
        return reduction.logic

    builder.build(constructor)
    return Arrangement(output, index)

