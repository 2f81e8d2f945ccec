"""Upserts: a collection of pairs with one value for each key, which ``set`` replaces and ``delete`` removes.

A time is processed once it is complete, so the times must be totally ordered. Invariant: no key has more than one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from timely.dataflow import Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, ScopeBuilder, check_scope
from timely.differential.inputs import TimedSession
from timely.differential.operators.arrangement import Arrangement, Index, register_trace
from timely.differential.operators.scope_times import bounds_in
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace
from timely.differential.updates.rings import INTEGERS
from timely.differential.updates.updates import Key, Update, by_key
from timely.errors import TimestampError
from timely.operators.input_handle import InputHandle
from timely.operators.keyed.by_record import check_hashable
from timely.operators.pending import Pending
from timely.operators.program_inputs import new_input
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder, reaches
from timely.progress import Lattice

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class _Upsert(NamedTuple):
    """One call of one session: the later call has the greater ``number``."""

    worker: int
    number: int
    present: bool
    value: Any


class UpsertSession(TimedSession[T], Generic[T, K, V]):
    """Sets and deletes keys at ``time``, which only advances, until ``close()``; from ``from_upserts``.

    Of several calls for one key at one time the last one of a session counts. Among workers the greatest value counts, and a
    value rather than ``delete``.
    """

    __slots__ = ("_number", "_worker")

    def __init__(self, input: InputHandle[T, Update], worker: int) -> None:
        super().__init__(input)
        self._number = 0
        self._worker = worker

    def set(self, key: K, value: V) -> None:
        """Set ``key`` to ``value``, replacing its earlier value."""
        self._send(key, True, value)

    def delete(self, key: K) -> None:
        """Delete ``key``."""
        self._send(key, False, None)

    def _send(self, key: object, present: bool, value: object) -> None:
        try:
            hash((key, value))
        except TypeError:
            check_hashable([(key, value)])
            raise
        self._number += 1
        self._input.send(((key, _Upsert(self._worker, self._number, present, value)), 1))


class _Upserts(Generic[T]):
    """The logic: what every key has, and the calls of times that are not complete."""

    def __init__(self, times: Lattice[T]) -> None:
        self._pending: Pending[T, _Waiting[T]] = Pending()
        self._now: list[T] = []
        self._port: InputPort[T, Update] | None = None
        self._minimum = times.domain.minimum
        self._values: dict[object, Any] = {}
        self.trace: Trace[T] = Trace(times, True, self.hold)
        self.index: Index

    def connect(self, port: InputPort[T, Update]) -> None:
        """Take the port, whose frontier says which times are complete, and what the trace has of a checkpoint."""
        self._port = port
        trace = self.trace
        for key in trace.keys():  # noqa: SIM118
            sums: dict[object, int] = {}
            for value, _, diff in trace.history(key):
                sums[value] = sums.get(value, 0) + diff
            self._values.update((key, value) for value, count in sums.items() if count)

    def hold(self) -> list[T]:
        """Return the frontier of the times that are still to be processed."""
        if self._port is None:
            return [self._minimum]
        return [*self._port.elements, *self._pending.minimum(), *self._now]

    def save(self) -> Iterator[tuple[object, T, _Upsert]]:
        """Return the calls that wait."""
        for time in self._pending:
            for key, calls in self._pending[time].calls.items():
                for call in calls.values():
                    yield key, time, call

    def load(self, items: Iterable[tuple[object, T, _Upsert]], capability: Capability[T]) -> None:
        """Queue the calls of a checkpoint."""
        for key, time, call in items:
            self._pending.at(time, lambda: _Waiting(capability.delayed(time))).add(key, call)  # noqa: B023  # called at once

    def logic(self, input: InputPort[T, Update], output: OutputPort[T]) -> bool:
        """Receive calls, and process those of complete times, in order."""
        for capability, batch in input:
            waiting = self._pending.at(capability.time, lambda: _Waiting(capability.retain()))  # noqa: B023
            for (key, call), _ in batch:
                waiting.add(key, call)
        frontier = input.elements
        appended = 0
        for time, waiting in self._pending.take(lambda time: not reaches(frontier, time)):
            self._now = [time]
            changes = list(self._changes(waiting))
            if changes:
                output.session(waiting.capability).give_batch(self.trace.append(time, RowDelta(changes)))
                appended += len(changes)
            waiting.capability.drop()
            self._now = []
        self.index.notify()
        return self.trace.maintain(appended)

    def _changes(self, waiting: _Waiting[T]) -> Iterator[Update]:
        values = self._values
        for key, calls in waiting.calls.items():
            new = [call.value for call in calls.values() if call.present]
            if not new:
                if key in values:
                    yield (key, values.pop(key)), -1
                continue
            value = new[0] if len(new) == 1 else max(new)
            if key in values:
                before = values[key]
                if before == value:
                    continue
                yield (key, before), -1
            values[key] = value
            yield (key, value), 1


class _Waiting(Generic[T]):
    """The calls of one time: of each key, the last one of every worker."""

    __slots__ = ("calls", "capability")

    def __init__(self, capability: Capability[T]) -> None:
        self.capability = capability
        self.calls: dict[object, dict[int, _Upsert]] = {}

    def add(self, key: object, call: _Upsert) -> None:
        """Add a call, unless a later one of its session is there."""
        calls = self.calls.setdefault(key, {})
        before = calls.get(call.worker)
        if before is None or before.number < call.number:
            calls[call.worker] = call


def from_upserts(
    scope: ScopeBuilder[T], *, name: str = "from_upserts", key: Key | None = None
) -> tuple[UpsertSession[T, Any, Any], Arrangement[T, Any, Any]]:
    """Return a session that sets and deletes keys from outside, and the arrangement of the pairs ``(key, value)``.

    ``TimestampError`` for a scope whose times are partially ordered.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         names, arranged = dd.from_upserts(scope)
    ...         result = arranged.as_collection().output()
    ...     names.set("frank", "mcsherry")
    ...     names.advance_to(1)
    ...     names.set("frank", "zappa")
    ...     names.advance_to(2)
    ...     names.delete("frank")
    ...     names.close()
    ...     result.at(0), result.at(1), result.at(2)
    ({('frank', 'mcsherry'): 1}, {('frank', 'zappa'): 1}, {})
    """
    check_scope(scope, name)
    if not scope.subgraph.domain.total:
        raise TimestampError(
            f"{name} in scope {scope.path!r}: which value replaces which is only known for totally ordered times, and"
            f" {scope.subgraph.domain.name} is partially ordered"
        )
    input, stream = new_input(scope, name)
    builder: OperatorBuilder[T] = OperatorBuilder(scope, "arrange_upserts")
    port = builder.new_input(stream, by_key(key))
    output = builder.new_output()
    upserts: _Upserts[T] = _Upserts(bounds_in(scope))
    index = upserts.index = Index(upserts.trace, key, INTEGERS, builder.info.path, scope)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        register_trace(info, upserts.trace, key)
        route = key_route(key)
        register_keyed_state(info, upserts.save, lambda items: upserts.load(items, capabilities[0]), lambda item: route(item[0]))
        index.connect(info)
        upserts.connect(port)
        return guarded(info, upserts.logic, upserts.trace.size)

    builder.build(constructor)
    return UpsertSession(input, scope.allocator.index), Arrangement(output, index)
