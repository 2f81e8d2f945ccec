"""``gather``: collect everything that comes at a time, and compute with it when the time is complete.

What a join, a grouping or a dictionary needs. The invariant: ``finish`` runs once on each worker for each time at which
anything came there, after nothing more can come. The order of the collected containers is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias

import attrs

from timely.dataflow import (
    Capability,
    Distribute,
    Exchange,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pact,
    Pipeline,
    Spill,
    Stream,
    scope_of,
)
from timely.errors import OUT_OF_MEMORY, OutOfMemoryError, StateError
from timely.graphs.stages.repartitioned_state import register_state
from timely.graphs.structures.arrays import BLOCK
from timely.memory import MemoryBudget, Spool, return_freed_memory, size_text
from timely.operators import ProbeHandle, enter
from timely.operators.generic import RegisterState
from timely.operators.type_variables import T
from timely.order import linear_extension
from timely.progress import Antichain

Collected: TypeAlias = list[Any] | Spool
"""The containers of one input at one time. With a memory budget they are in a spool, which may be on disk."""

Finish: TypeAlias = Callable[[OperatorInfo, Any, list[Any]], Sequence[Any] | Iterator[Sequence[Any]]]
"""``finish(info, time, collected)`` gets the containers of each input, and returns one for each output, or an iterator of such.

Of an iterator an activation sends ``BLOCK`` rows, with a memory budget one item, so that not all of a large result is in memory.
"""

Whole: TypeAlias = Callable[[OperatorInfo, Any, list[Any]], bool]
"""``whole(info, time, collected)`` says whether nothing more can come at a time, whatever the frontiers say."""

_RESULTS: Final = -1
"""In place of the number of an input: results of a time that are still to be sent."""

_BEGUN: Final = -2
"""In place of the number of an input: an outer time of a loop that has begun."""

Meanwhile: TypeAlias = Callable[[OperatorInfo, Any, list[Any]], None]
"""``meanwhile(info, time, collected)`` does work that need not wait for the rest of a time."""


Ended: TypeAlias = Callable[[OperatorInfo, Any], Any]
"""``ended(info, outer)`` returns what leaves a loop when no round of an outer time is under way any more."""


def collector() -> Collected:
    """Return an empty list, or with a memory budget a spool."""
    return [] if MemoryBudget.current().limit is None else Spool()


def drained(collected: Collected) -> Iterator[Any]:
    """Yield the containers of an input, and let go of each."""
    if isinstance(collected, Spool):
        yield from collected.drain()
    else:
        collected.reverse()
        while collected:
            yield collected.pop()


def optional(stream: Stream[T, Any] | None, pact: Pact) -> list[tuple[Stream[T, Any], Pact]]:
    """Return the input of a stream that may be absent, in a list."""
    return [] if stream is None else [(stream, pact)]


def blocks(batches: Collected) -> Iterator[list[Any]]:
    """Yield batches, of a spool as many at a time as have about ``BLOCK`` rows, and let go of them."""
    some: list[Any] = []
    rows = 0
    for batch in drained(batches):
        some.append(batch)
        rows += len(batch)
        if rows >= BLOCK and isinstance(batches, Spool):
            yield some
            some, rows = [], 0
    if some:
        yield some


@attrs.define(eq=False)
class _Gathered(Generic[T]):
    """The containers of one time, by input, and a capability for each output."""

    containers: list[Collected]
    capabilities: Sequence[Capability[T] | InputCapability[T]]


@attrs.define(eq=False)
class _OuterTimes:
    """The outer times of a loop that have begun on this worker, each with a capability for what leaves it."""

    ended: Ended
    in_order: bool
    capabilities: dict[Any, Capability[Any]] = attrs.field(factory=dict)

    def begin(self, time: Any, retained: Callable[[], Capability[Any]]) -> None:
        if time.outer not in self.capabilities:
            self.capabilities[time.outer] = retained()

    def candidates(self, times: Iterable[Any], frontiers: Sequence[Antichain[Any]]) -> list[Any]:
        """Return those of ``times`` that need not wait for an outer time before theirs that is under way anywhere."""
        if not self.in_order or not self.capabilities:
            return list(times)
        first = linear_extension(self.capabilities)[0]
        if any(other.outer <= first and other.outer != first for frontier in frontiers for other in frontier):
            return []
        return [time for time in times if time.outer == first]

    def over(self, frontiers: Sequence[Antichain[Any]]) -> list[Any]:
        """Return the outer times of which no round is under way, of those in order the first."""
        under_way = [time.outer for frontier in frontiers for time in frontier]
        outers = linear_extension(self.capabilities)[: 1 if self.in_order else None]
        return [outer for outer in outers if not any(other <= outer for other in under_way)]


@attrs.define(eq=False)
class _Gather(Generic[T]):
    """The logic of the operator."""

    info: OperatorInfo
    inputs: int
    outputs: int
    finish: Finish
    whole: Whole | None
    meanwhile: Meanwhile | None
    after: ProbeHandle[T] | None
    outer_times: _OuterTimes | None
    times: dict[T, _Gathered[T]] = attrs.field(factory=dict)
    rows: int = 0
    """Rows that have come."""
    limited: bool = attrs.field(factory=lambda: MemoryBudget.current().limit is not None)
    sending: tuple[Iterator[Sequence[Any]], Sequence[Capability[T] | InputCapability[T]]] | None = None
    """The rest of the results of a time, and its capabilities."""

    def __call__(self, *ports: Any) -> None:
        try:
            self.run(*ports)
        except MemoryError as error:
            raise OutOfMemoryError(self.shortage(error)) from error

    def shortage(self, error: MemoryError) -> str:
        """Return what to say where memory is short."""
        budget = MemoryBudget.current()
        held = f"its process keeps {size_text(budget.used)} in memory and {size_text(budget.on_disk)} on disk"
        limit = ", without a limit" if budget.limit is None else f", with a limit of {size_text(budget.limit)}"
        return (
            f"{self.info.path}: out of memory after {self.rows:,} rows on this worker ({error}); {held}{limit}. {OUT_OF_MEMORY}"
        )

    def run(self, *ports: Any) -> None:
        inputs: Sequence[InputPort[T, Any]] = ports[: self.inputs]
        outputs: Sequence[OutputPort[T]] = ports[self.inputs :]
        new: list[InputCapability[T]] = []
        for index, port in enumerate(inputs):
            for capability, container in port:
                if capability.time not in self.times:
                    self.times[capability.time] = self.gathered([capability] * self.outputs)
                    new.append(capability)
                    if self.outer_times is not None:
                        self.outer_times.begin(capability.time, partial(capability.retain, 1))
                self.times[capability.time].containers[index].append(container)
                self.rows += len(container)
        if self.sending is not None:
            self.send_more(*self.sending, outputs)
        if self.times and not self.is_sending():
            frontiers = [port.frontier for port in inputs]
            times = self.times if self.outer_times is None else self.outer_times.candidates(self.times, frontiers)
            for time in linear_extension([time for time in times if self.complete(time, frontiers)]):
                self.send(time, self.times.pop(time), outputs)
                if self.is_sending():
                    break
        if self.is_sending():
            self.info.activator.activate()
        elif self.outer_times is not None:
            self.end(self.outer_times, [port.frontier for port in inputs], outputs[1])
        for capability in new:
            incomplete = self.times.get(capability.time)
            if incomplete is not None:
                incomplete.capabilities = [capability.retain(output) for output in range(self.outputs)]
                if self.meanwhile is not None:
                    self.meanwhile(self.info, capability.time, incomplete.containers)

    def is_sending(self) -> bool:
        """Return whether there are more results of a time to send."""
        return self.sending is not None

    def end(self, outer_times: _OuterTimes, frontiers: Sequence[Antichain[Any]], output: OutputPort[T]) -> None:
        """Send what leaves a loop at the outer times that are over."""
        for outer in outer_times.over(frontiers):
            result = outer_times.ended(self.info, outer)
            with outer_times.capabilities.pop(outer) as capability:
                if len(result):
                    output.session(capability).give_batch(result)
            if self.times:
                self.info.activator.activate()  # others may begin

    def gathered(self, capabilities: Sequence[Capability[T] | InputCapability[T]]) -> _Gathered[T]:
        """Return the state of a time, without containers."""
        return _Gathered([collector() for _ in range(self.inputs)], capabilities)

    def complete(self, time: T, frontiers: Sequence[Antichain[T]]) -> bool:
        """Return whether nothing more can come at a time."""
        if self.whole is not None and self.whole(self.info, time, self.times[time].containers):
            return True
        if self.after is not None and self.after.less_than(time):
            return False
        return not any(frontier.less_equal(time) for frontier in frontiers)

    def send(self, time: T, gathered: _Gathered[T], outputs: Sequence[OutputPort[T]]) -> None:
        """Send the results of one complete time."""
        results = self.finish(self.info, time, gathered.containers)
        if isinstance(results, Iterator):
            held = [
                capability.retain(output) if isinstance(capability, InputCapability) else capability
                for output, capability in enumerate(gathered.capabilities)
            ]
            self.send_more(results, held, outputs)
        else:
            self.send_once(results, gathered.capabilities, outputs)

    def send_more(
        self,
        results: Iterator[Sequence[Any]],
        capabilities: Sequence[Capability[T] | InputCapability[T]],
        outputs: Sequence[OutputPort[T]],
    ) -> None:
        """Send the next of several results."""
        rows = 0
        self.sending = results, capabilities
        while rows < BLOCK:
            result = next(results, None)
            if result is None:
                self.sending = None
                if self.limited:
                    return_freed_memory()
                return
            self.send_once(result, capabilities, outputs)
            rows += BLOCK if self.limited else sum(map(len, result))

    def send_once(
        self,
        results: Sequence[Any],
        capabilities: Sequence[Capability[T] | InputCapability[T]],
        outputs: Sequence[OutputPort[T]],
    ) -> None:
        """Send a container to each output, unless it is empty."""
        for output, capability, result in zip(outputs, capabilities, results, strict=True):
            if len(result):
                output.session(capability).give_batch(result)

    def register_state(self, initial: list[Capability[T]], pacts: Sequence[Pact]) -> None:
        """Register what was collected at incomplete times. Other workers partition it by the pacts of the inputs."""
        worker, peers = self.info.worker, self.info.peers

        def save() -> Iterator[tuple[T, int, Any]]:
            if self.sending is not None:
                results, capabilities = self.sending
                rest = list(results)
                self.sending = iter(rest), capabilities
                yield capabilities[0].time, _RESULTS, rest
            for capability in [] if self.outer_times is None else self.outer_times.capabilities.values():
                yield capability.time, _BEGUN, None
            for time, gathered in self.times.items():
                for index, containers in enumerate(gathered.containers):
                    yield from ((time, index, container) for container in containers)

        def load(item: tuple[T, int, Any]) -> None:
            time, index, container = item
            if index == _RESULTS:
                self.sending = iter(container), [capability.delayed(time) for capability in initial]
                return
            if self.outer_times is not None:
                self.outer_times.begin(time, partial(initial[1].delayed, time))
            if index == _BEGUN:
                return
            if time not in self.times:
                self.times[time] = self.gathered([capability.delayed(time) for capability in initial])
            self.times[time].containers[index].append(container)

        def repartition(item: tuple[T, int, Any], sender: int, _: int) -> Iterable[tuple[T, int, Any]]:
            time, index, container = item
            if index == _RESULTS:
                raise StateError(f"{self.info.path}: results of {time!r} are being sent: go on with as many workers")
            if index == _BEGUN:
                return []  # it begins again where it has containers
            pact = pacts[index]
            pact = pact.pact if isinstance(pact, Spill) else pact
            parts: Sequence[tuple[int, Any]] = [(sender % peers, container)]
            if isinstance(pact, Exchange | Distribute):
                parts = pact.parts(time, container, peers)
            return ((time, index, part) for receiver, part in parts if receiver == worker)

        register_state(self.info, save, load, repartition, logged=False)
        for capability in initial:
            capability.drop()


def gather(
    name: str,
    inputs: Sequence[tuple[Stream[T, Any], Pact]],
    outputs: int,
    finish: Finish,
    *,
    keep: RegisterState | None = None,
    whole: Whole | None = None,
    meanwhile: Meanwhile | None = None,
    after: ProbeHandle[T] | None = None,
    outer_times: Callable[[], _OuterTimes | None] = lambda: None,
) -> list[Stream[T, Any]]:
    """Return the ``outputs`` streams of an operator that runs ``finish(info, time, collected)`` for each complete time.

    Times finish in an order that extends theirs. ``collected`` has a list of containers for each input. ``finish`` returns a
    container for each output, or an iterator of such; an empty one sends nothing. With a memory budget, ``collected`` has spools,
    which can be iterated over, or drained. What was collected is part of a checkpoint. If ``finish`` has state across times,
    ``keep(info)`` registers it, once on each worker. ``whole(info, time, collected)`` may declare a time complete before the
    frontiers do. ``meanwhile(info, time, collected)`` runs once for a time that is incomplete when its first containers come, to
    work while others still send. A time waits until the probe ``after`` has passed all before it. Source: the operators of Naiad
    section 2.2 that wait for ``OnNotify``.

    >>> import timely
    >>> def build(scope):
    ...     numbers = scope.to_stream([1, 2, 3])
    ...     def finish(info, time, collected):
    ...         return [[sum(map(sum, collected[0]))]]
    ...     (total,) = gather("total", [(numbers, timely.Pipeline)], 1, finish)
    ...     return total
    >>> timely.example(build)
    [(0, [6])]
    """
    builder = OperatorBuilder(scope_of(inputs[0][0], name), name)
    for stream, pact in inputs:
        builder.new_input(stream, pact)
    streams = [builder.new_output() for _ in range(outputs)]

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> _Gather[T]:
        logic: _Gather[T] = _Gather(info, len(inputs), outputs, finish, whole, meanwhile, after, outer_times())
        if after is not None:
            after.wake(info.activator)
        logic.register_state(capabilities, [pact for _, pact in inputs])
        if keep is not None:
            keep(info)
        return logic

    builder.build(constructor)
    return streams


def gather_loop(
    name: str,
    inputs: Sequence[tuple[Stream[T, Any], Pact]],
    again: Pact,
    finish: Finish,
    *,
    keep: RegisterState,
    whole: Whole | None = None,
    meanwhile: Meanwhile | None = None,
    ended: Ended | None = None,
    in_order: bool = False,
) -> Stream[T, Any]:
    """Return what leaves a loop around one ``gather``.

    Its ``finish`` gets the ``inputs`` and what it sent in the round before; it returns what to send ``again`` and what leaves.
    ``keep(info)`` registers what it remembers from round to round. ``ended(info, outer)`` returns what leaves when all rounds of
    an outer time are over, on the workers where it had any. With ``in_order`` an outer time begins when those before it are over.
    """
    with scope_of(inputs[0][0], name).iterative(name) as loop:
        handle, sent = loop.feedback()
        entered = [(enter(stream, loop), pact) for stream, pact in inputs]
        next_round, leaving = gather(
            name,
            [*entered, (sent, Pipeline)],
            2,
            finish,
            keep=keep,
            whole=whole,
            meanwhile=meanwhile,
            outer_times=lambda: None if ended is None else _OuterTimes(ended, in_order),
        )
        next_round.connect_loop(handle, again)
        return leaving.leave()
