"""Flow control: how much may be under way at once.

Queues between operators have no bound, so whoever makes records faster than they are used up fills the memory. The remedy is to
make fewer: a source, or a gate in front of what multiplies records, that waits for a probe further down to show that what
it has let through is done with. The invariant: on each worker no more than the bound is let through and not done with, at any
moment and under every schedule; but for a gate, for which a time that is complete in front of it never waits for times that are
not at or before it, so that it keeps nobody waiting for ever. Nobody waits by spinning: the probe wakes the operator that waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar, overload

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
    scope_of,
)
from timely.errors import ConfigurationError, GraphError, brief
from timely.operators.bounds import check_bound
from timely.operators.generic import source, unary_frontier
from timely.operators.pending import Pending
from timely.operators.probes import ProbeHandle, probe
from timely.operators.state_log import Sent, keep_here
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")


class _Underway(Generic[T]):
    """How many records were let through at each time that the probe has not passed yet, as far as we have looked."""

    __slots__ = ("_probe", "counts", "records")

    def __init__(self, probe: ProbeHandle[T]) -> None:
        self.counts: Pending[T, int] = Pending()
        self.records = 0
        self._probe = probe

    def add(self, time: T, records: int) -> None:
        self.counts[time] = self.counts.get(time, 0) + records
        self.records += records

    def items(self) -> Iterator[tuple[T, int]]:
        """Return how many there are at each time."""
        for time in self.counts:
            yield time, self.counts[time]

    def load(self, items: Iterable[tuple[T, int]]) -> None:
        """Take in what another run had under way at the checkpoint, and so this one has."""
        for time, records in items:
            self.add(time, records)

    def settle(self) -> None:
        """Forget what is done with."""
        for time, records in self.counts.take(lambda time: not self._probe.less_equal(time)):
            self.remove(time, records)

    def remove(self, time: T, records: int) -> None:
        """Take note that so many records at ``time`` are done with."""
        self.records -= records


class _Shares(_Underway[Any]):
    """The same of the shares behind a gate, and how many of them there are at each time of the scope around."""

    __slots__ = ("outer",)

    def __init__(self, probe: ProbeHandle[Any]) -> None:
        super().__init__(probe)
        self.outer: dict[Any, int] = {}

    def add(self, time: Any, records: int) -> None:
        super().add(time, records)
        self.outer[time.outer] = self.outer.get(time.outer, 0) + records

    def remove(self, time: Any, records: int) -> None:
        super().remove(time, records)
        self.outer[time.outer] -= records
        if not self.outer[time.outer]:
            del self.outer[time.outer]

    def up_to(self, outer: Any) -> int:
        """Return how many records are under way at times of the scope around that are at or before ``outer``."""
        return sum(records for other, records in self.outer.items() if other <= outer)


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
    """Return the stream of ``batches``, pairs ``(time, container)``, taken from an iterator only as far as the bounds allow.

    ``records`` bounds how many records, ``times`` at how many times, each worker has sent that ``probe`` has not passed.
    Attach the probe downstream, where records are done with; times may come several times in a row and never go back. A run that
    goes on from a checkpoint takes as many containers as had been sent and leaves them out: it needs to be given the same ones.
    ``ConfigurationError`` without a bound, or for more records at one time than ``records``: these could never be done with, as
    the time is not complete before all of it is sent. ``CapabilityError`` for a time that goes back, ``GraphError`` for a probe
    that is not attached when the dataflow is built.

    >>> import timely
    >>> taken = []
    >>> def numbers():
    ...     for x in range(6):
    ...         taken.append(x)
    ...         yield x, [x]
    >>> worker, probe = timely.Worker(), timely.ProbeHandle()
    >>> with worker.dataflow(int) as scope:
    ...     stream = timely.operators.iterator_source(scope, "numbers", numbers(), probe, records=2)
    ...     gate, hold = scope.new_input()
    ...     both = stream.concat(hold)
    ...     _, seen = both.probe(probe), both.capture()
    >>> for _ in range(9):
    ...     _ = worker.step()
    >>> taken  # 0 and 1 are under way, since the other input is still at 0; 2 waits its turn
    [0, 1, 2]
    >>> gate.close()
    >>> worker.run()
    >>> [record for _, batch in seen.extract() for record in batch]
    [0, 1, 2, 3, 4, 5]
    """
    where = f"iterator_source {name!r}"
    records = None if records is None else check_bound(where, "records", records)
    times = None if times is None else check_bound(where, "times", times)
    if not isinstance(probe, ProbeHandle):
        raise GraphError(f"{where}: probe is to be a timely.ProbeHandle, and is {brief(probe)}")
    if records is None and times is None:
        raise ConfigurationError(f"{where} needs a bound: give records=, times=, or both")

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        underway: _Underway[T] = _Underway(probe)
        sent = Sent(info)
        keep_here(info, underway.items, underway.load)
        if sent.over:
            capability.drop()
        items: Iterator[tuple[T, Any]] = iter(batches if capability.held else ())
        following: tuple[T, Any] | None = None
        for time, _ in islice(items, sent.count):  # none are left out but those that a run before has sent
            capability.downgrade(time)
        probe.wake(info.activator)

        def full(time: T, size: int) -> bool:
            if records is not None and underway.counts.get(time, 0) + size > records:
                raise ConfigurationError(
                    f"iterator_source {info.name!r} ({info.path}): there are more than records={records} at time"
                    f" {brief(time)}, which is not complete before all of it is sent; give a larger bound, or finer times"
                )
            if times is not None and time not in underway.counts and len(underway.counts) >= times:
                return True
            return records is not None and underway.records + size > records

        def logic(output: OutputPort[T]) -> None:
            nonlocal following
            underway.settle()
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
                underway.add(time, len(batch))
                output.session(capability).give_batch(batch)

        return logic

    scope.checks.append(lambda: _check_attached(probe, name))
    return source(scope, name, constructor)


def _check_attached(probe: ProbeHandle[Any], name: str) -> None:
    if not probe.attached:
        raise GraphError(
            f"iterator_source {name!r}: its probe is attached to nothing; call stream.probe(handle) where records are done with"
        )


def limit_in_flight(stream: Stream[T, D], records: int, body: Callable[[Stream[Any, D]], Stream[Any, E]]) -> Stream[T, E]:
    """Return ``body(stream)``, where ``body`` gets at most ``records`` records at once on each worker: what it makes of some is
    done with before it gets more. For a ``body`` that makes much of little.

    The body stands in a nested scope, where each share of the records has a round of its own: times are ``Product(time, round)``.
    So it must treat each share by itself: record by record, say, or by key within one record's results. What waits in front
    of it are the records as they came, in containers that can be sliced. Shares of one time begin to be done with when that time
    is complete upstream. Of a time for which that is so, the bound counts what is under way at it and before it: it does not wait
    behind a share of a later time that was let in first.
    ``ConfigurationError`` for a bound below 1, ``GraphError`` where ``body`` returns anything but a stream made of its own.

    >>> import timely
    >>> def build(scope):
    ...     seeds = scope.to_stream([1, 2, 3])
    ...     return timely.operators.limit_in_flight(seeds, 1, lambda some: some.flat_map(lambda x: [x] * 1000)).count()
    >>> timely.example(build)
    [(0, [3000])]
    """
    records = check_bound("limit_in_flight", "records", records)
    with scope_of(stream, "limit_in_flight").iterative("limit_in_flight") as inner:
        done: ProbeHandle[Any] = ProbeHandle()
        result = body(unary_frontier(stream.enter(inner), Pipeline, "gate", _gate(records, done)))
        if not isinstance(result, Stream) or result.scope is not inner:
            raise GraphError(f"limit_in_flight: body must return a stream made of the one that it is given, not {brief(result)}")
        probe(result, done)
        return result.leave()


def _gate(records: int, done: ProbeHandle[Any]) -> Callable[..., Any]:
    """Return the constructor of the operator that lets records through, each share at a round of its own."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        queue = _GateQueue()
        underway = _Shares(done)
        keep_here(info, queue.items, lambda items: queue.load(capability, items))
        keep_here(info, underway.items, underway.load)
        capability.drop()
        done.wake(info.activator)

        def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
            for capability, batch in input:
                queue.put(capability, capability.time.outer, batch)
            underway.settle()
            while len(queue.waiting):
                if underway.records < records:
                    outer, room = queue.waiting.minimum()[0], records - underway.records
                else:
                    outer, room = max(spared(input), key=lambda found: found[1], default=(None, 0))
                if room <= 0:
                    break
                underway.add(*queue.take(outer, room, output))

        def spared(input: InputPort[Any, Any]) -> Iterator[tuple[Any, int]]:
            """Yield the minimal times that nothing can come at any more, each with how much more may be let in at it.

            What is under way at other times may not be done with before the program, or a loop around, has seen the end of
            these. So that is not counted: else everything would wait for itself.
            """
            for outer in queue.waiting.minimum():
                room = records - underway.up_to(outer)
                if room > 0 and not input.frontier.less_equal(Product(outer, 0)):
                    yield outer, room

        return logic

    return constructor


class _GateQueue:
    """What waits in front of a gate, by time of the scope around, and capabilities for the minimal ones of these times.

    All capabilities are at one round, later than every share that is under way: else one of them would keep a share at a later
    time of the scope around from ever being done with.
    """

    __slots__ = ("_held", "_round", "waiting")

    def __init__(self) -> None:
        self.waiting: Pending[Any, deque[Any]] = Pending()
        self._held: CapabilitySet[Any] = CapabilitySet()
        self._round = 0

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        """Return what waits, with its time, and the round that is next."""
        yield self._round, None, None
        for outer in self.waiting:
            yield from ((self._round, outer, batch) for batch in self.waiting[outer])

    def load(self, capability: Capability[Any], items: Iterable[tuple[int, Any, Any]]) -> None:
        """Take in what waited in front of one gate, or several."""
        found = list(items)
        self._round = max([self._round, *(round for round, _, _ in found)])
        for _, outer, batch in found:
            if batch is not None:
                self.put(capability, outer, batch)

    def put(self, capability: Capability[Any] | InputCapability[Any], outer: Any, batch: Any) -> None:
        """Queue a batch."""
        if outer not in self.waiting:
            self._held.insert(capability.delayed(Product(outer, self._round)))
        self.waiting.at(outer, deque).append(batch)

    def take(self, outer: Any, most: int, output: OutputPort[Any]) -> tuple[Any, int]:
        """Send the next share of one of the minimal times, of at most so many records; return its time and size."""
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
