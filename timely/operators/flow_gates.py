"""Flow control: sources and gates that bound what is in flight, as a probe downstream shows it.

Invariant: on each worker no more than the bound is sent and not passed by the probe. A gate exceeds it for a time that is
complete upstream, which never waits for times that are not at or before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import index
from typing import Any, Generic, overload

import attrs

from timely.dataflow import (
    Capability,
    CapabilitySet,
    InputCapability,
    InputPort,
    OperatorInfo,
    OutputPort,
    Pipeline,
    ScopeBuilder,
    Stream,
    operator_name,
    scope_of,
)
from timely.errors import ConfigurationError, GraphError, brief
from timely.operators.generic import source, unary_frontier
from timely.operators.pending import Pending
from timely.operators.probes import ProbeHandle, probe
from timely.operators.state_registration import SourcePosition, register_list_state
from timely.operators.type_variables import D, E, T
from timely.order import Product


def check_bound(where: str, name: str, bound: Any) -> int:
    """Return a bound as an ``int``; ``ConfigurationError`` for one that is no whole number of at least 1."""
    try:
        number = 0 if isinstance(bound, bool) else index(bound)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{where}: {name}={brief(bound)} lets nothing through: give a whole number of at least 1")
    return number


@attrs.define(eq=False)
class InFlight(Generic[T]):
    """The number of records sent at each time that the probe had not passed when ``settle`` was last called."""

    _probe: ProbeHandle[T]
    counts: Pending[T, int] = attrs.field(factory=Pending)
    records: int = 0

    def add(self, time: T, records: int) -> None:
        self.counts[time] = self.counts.get(time, 0) + records
        self.records += records

    def load(self, items: Iterable[tuple[T, int]]) -> None:
        for time, records in items:
            self.add(time, records)

    def settle(self) -> None:
        for _, records in self.counts.take(lambda time: not self._probe.less_equal(time)):
            self.records -= records


@overload
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, list[D]]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, D]: ...
@overload
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, Any]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, Any]: ...
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, Any]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, Any]:
    """Return the stream of ``batches``, pairs ``(time, container)``, read from the iterator only as far as the bounds allow.

    ``records`` bounds the records, ``times`` the times, that each worker has sent and ``probe`` has not passed. Attach the probe
    downstream. Times never go back. A run that resumes from a checkpoint needs the same iterator, and skips what was sent.
    ``ConfigurationError`` without a bound, or for more records at one time than ``records``, since a time is complete only when
    all of it is sent. ``CapabilityError`` for a time that goes back, ``GraphError`` for a probe that is not attached.

    >>> import timely
    >>> def build(scope):
    ...     stream = timely.operators.iterator_source(scope, "numbers", ((x, [x]) for x in range(3)), probe, records=2)
    ...     stream.probe(probe)
    ...     return stream
    >>> probe = timely.ProbeHandle()
    >>> timely.example(build)
    [(0, [0]), (1, [1]), (2, [2])]
    """
    where = f"iterator_source {name!r}"
    records = None if records is None else check_bound(where, "records", records)
    times = None if times is None else check_bound(where, "times", times)
    if not isinstance(probe, ProbeHandle):
        raise GraphError(f"{where}: probe is to be a timely.ProbeHandle, and is {brief(probe)}")
    if records is None and times is None:
        raise ConfigurationError(f"{where} needs a bound: give records=, times=, or both")

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        in_flight: InFlight[T] = InFlight(probe)
        sent = SourcePosition(info)
        register_list_state(info, in_flight.counts.items, in_flight.load)
        if sent.over:
            capability.drop()
        items: Iterator[tuple[T, Any]] = iter(batches if capability.held else ())
        following: tuple[T, Any] | None = None
        for time, _ in islice(items, sent.count):  # sent before the checkpoint
            capability.downgrade(time)
        probe.wake(info.activator)

        def full(time: T, size: int) -> bool:
            if records is not None and in_flight.counts.get(time, 0) + size > records:
                raise ConfigurationError(
                    f"iterator_source {info.name!r} ({info.path}): there are more than records={records} at time"
                    f" {brief(time)}, which is not complete before all of it is sent; give a larger bound, or finer times"
                )
            if times is not None and time not in in_flight.counts and len(in_flight.counts) >= times:
                return True
            return records is not None and in_flight.records + size > records

        def logic(output: OutputPort[T]) -> None:
            nonlocal following
            in_flight.settle()
            while capability.held:
                following = following or next(items, None)
                if following is None:
                    sent.over = True
                    capability.drop()
                    break
                time, batch = following
                capability.downgrade(time)
                if full(time, len(batch)):
                    break
                following = None
                sent.count += 1
                in_flight.add(time, len(batch))
                output.session(capability).give_batch(batch)

        return logic

    def check_attached() -> None:
        if not probe.attached:
            raise GraphError(f"{where}: its probe is attached to nothing; call stream.probe(handle) where records are done with")

    scope.checks.append(check_attached)
    return source(scope, name, constructor)


def limit_in_flight(
    stream: Stream[T, D], records: int, body: Callable[[Stream[Any, D]], Stream[Any, E]], *, name: str | None = None
) -> Stream[T, E]:
    """Return ``body(stream)``, which processes at most ``records`` records at once on each worker; for a ``body`` that
    multiplies them.

    The body runs in a nested scope, where each share of the records has its own round: times are ``Product(time, round)``. So it
    must process each share independently. The rest waits in front of it, in containers that can be sliced. A time that is
    complete upstream counts only what is in flight at or before it, so that it never waits for a later time.
    ``ConfigurationError`` for a bound below 1, ``GraphError`` where ``body`` returns anything but a stream made of its own.

    >>> import timely
    >>> def build(scope):
    ...     seeds = scope.to_stream([1, 2, 3])
    ...     return timely.operators.limit_in_flight(seeds, 1, lambda some: some.flat_map(lambda x: [x] * 1000)).count()
    >>> timely.example(build)
    [(0, [3000])]
    """
    records = check_bound("limit_in_flight", "records", records)
    with scope_of(stream, "limit_in_flight").iterative(operator_name("limit_in_flight", name, body)) as inner:
        done: ProbeHandle[Any] = ProbeHandle()
        result = body(unary_frontier(stream.enter(inner), Pipeline, "gate", _gate(records, done)))
        if not isinstance(result, Stream) or result.scope is not inner:
            raise GraphError(f"limit_in_flight: body must return a stream made of the one that it is given, not {brief(result)}")
        probe(result, done)
        return result.leave()


def _gate(records: int, done: ProbeHandle[Any]) -> Callable[..., Any]:
    """Return the constructor of the operator that sends each share at its own round."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        queue = _GateQueue()
        in_flight: InFlight[Any] = InFlight(done)
        register_list_state(info, queue.items, lambda items: queue.load(capability, items))
        register_list_state(info, in_flight.counts.items, in_flight.load)
        capability.drop()
        done.wake(info.activator)

        def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
            for capability, batch in input:
                queue.put(capability, capability.time.outer, batch)
            in_flight.settle()
            while len(queue.waiting):
                if in_flight.records < records:
                    outer, room = queue.waiting.minimum()[0], records - in_flight.records
                else:
                    outer, room = max(exempt(input), key=lambda exempted: exempted[1], default=(None, 0))
                if room <= 0:
                    break
                in_flight.add(*queue.take(outer, room, output))

        def exempt(input: InputPort[Any, Any]) -> Iterator[tuple[Any, int]]:
            """Yield the minimal times that are complete upstream, each with the number of records that may still be sent at it.

            What is in flight at other times is not counted: it may wait for the end of these, in a loop or in the program.
            """
            for outer in queue.waiting.minimum():
                if not input.frontier.less_equal(Product(outer, 0)):
                    yield outer, records - sum(sent for time, sent in in_flight.counts.items() if time.outer <= outer)

        return logic

    return constructor


@attrs.define(eq=False)
class _GateQueue:
    """The queue in front of a gate, by outer time, with capabilities for the minimal ones of these times.

    All capabilities are at one round, later than every share in flight: otherwise one would hold back a share at a later time.
    """

    waiting: Pending[Any, deque[Any]] = attrs.field(factory=Pending)
    _held: CapabilitySet[Any] = attrs.field(factory=CapabilitySet)
    _round: int = 0

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        yield self._round, None, None
        for outer in self.waiting:
            yield from ((self._round, outer, batch) for batch in self.waiting[outer])

    def load(self, capability: Capability[Any], items: Iterable[tuple[int, Any, Any]]) -> None:
        waiting = list(items)
        self._round = max([self._round, *(round for round, _, _ in waiting)])
        for _, outer, batch in waiting:
            if batch is not None:
                self.put(capability, outer, batch)

    def put(self, capability: Capability[Any] | InputCapability[Any], outer: Any, batch: Any) -> None:
        if outer not in self.waiting:
            self._held.insert(capability.delayed(Product(outer, self._round)))
        self.waiting.at(outer, deque).append(batch)

    def take(self, outer: Any, most: int, output: OutputPort[Any]) -> tuple[Any, int]:
        """Send the next share, of at most ``most`` records, of a minimal time; return its time and size."""
        time, batches = Product(outer, self._round), self.waiting[outer]
        batch = batches.popleft()
        share = batch if len(batch) <= most else batch[:most]
        with self._held.delayed(time) as capability:
            output.session(capability).give_batch(share)
        if len(batch) > most:
            batches.appendleft(batch[most:])
        elif not batches:
            self.waiting.pop(outer)
        self._round += 1
        self._held.downgrade(Product(outer, self._round) for outer in self.waiting.minimum())
        return time, len(share)
