"""``gather``: collect everything that comes at a time, and work on it when the time is complete.

What a join, a grouping or a dictionary needs. The invariant: ``finish`` runs once on each worker for each time at which
anything came there, after the frontiers have shown that nothing more can, or the caller who knows how much is to come has
said that it is all there; what was collected is forgotten then. A caller may assume nothing about the order of the
containers, which is the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

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
    Spill,
    Stream,
    scope_of,
)
from timely.operators.generic import Keep
from timely.order import PartialOrder, linear_extension
from timely.progress import Antichain

T = TypeVar("T", bound=PartialOrder)

Finish: TypeAlias = Callable[[OperatorInfo, Any, list[list[Any]]], Sequence[Any]]
"""``finish(info, time, collected)`` gets the containers of each input, and returns one for each output."""


Whole: TypeAlias = Callable[[OperatorInfo, Any, list[list[Any]]], bool]
"""``whole(info, time, collected)`` says whether nothing more can come at a time, whatever the frontiers say."""


Meanwhile: TypeAlias = Callable[[OperatorInfo, Any, list[list[Any]]], None]
"""``meanwhile(info, time, collected)`` does what need not wait for the rest of a time."""


class _Gathered(Generic[T]):
    """What has come at one time, and the right to send at it: what came with the first of it, or what was kept of that.

    The right is given up when this is forgotten.
    """

    __slots__ = ("capabilities", "containers")

    def __init__(self, inputs: int, capabilities: Sequence[Capability[T] | InputCapability[T]]) -> None:
        self.containers: list[list[Any]] = [[] for _ in range(inputs)]
        self.capabilities = capabilities


class _Gather(Generic[T]):
    """The logic of the operator."""

    __slots__ = ("finish", "info", "inputs", "meanwhile", "outputs", "times", "whole")

    def __init__(
        self,
        info: OperatorInfo,
        inputs: int,
        outputs: int,
        finish: Finish,
        whole: Whole | None,
        meanwhile: Meanwhile | None,
    ) -> None:
        self.info = info
        self.inputs = inputs
        self.outputs = outputs
        self.finish = finish
        self.whole = whole
        self.meanwhile = meanwhile
        self.times: dict[T, _Gathered[T]] = {}

    def __call__(self, *ports: Any) -> None:
        inputs: Sequence[InputPort[T, Any]] = ports[: self.inputs]
        outputs: Sequence[OutputPort[T]] = ports[self.inputs :]
        fresh: list[InputCapability[T]] = []
        for index, port in enumerate(inputs):
            for capability, container in port:
                gathered = self.times.get(capability.time)
                if gathered is None:
                    gathered = self.times[capability.time] = _Gathered(self.inputs, [capability] * self.outputs)
                    fresh.append(capability)
                gathered.containers[index].append(container)
        if self.times:
            frontiers = [port.frontier for port in inputs]
            for time in linear_extension([time for time in self.times if self.complete(time, frontiers)]):
                self.send(time, self.times.pop(time), outputs)
        for capability in fresh:
            kept = self.times.get(capability.time)
            if kept is not None:
                kept.capabilities = [capability.retain(output) for output in range(self.outputs)]
                if self.meanwhile is not None:
                    self.meanwhile(self.info, capability.time, kept.containers)

    def complete(self, time: T, frontiers: Sequence[Antichain[T]]) -> bool:
        """Return whether nothing more can come at a time."""
        if self.whole is not None and self.whole(self.info, time, self.times[time].containers):
            return True
        return not any(frontier.less_equal(time) for frontier in frontiers)

    def send(self, time: T, gathered: _Gathered[T], outputs: Sequence[OutputPort[T]]) -> None:
        """Send the results of one complete time."""
        results = self.finish(self.info, time, gathered.containers)
        for output, capability, result in zip(outputs, gathered.capabilities, results, strict=True):
            if len(result):
                output.session(capability).give_batch(result)

    def keep(self, initial: list[Capability[T]], pacts: Sequence[Pact]) -> None:
        """Declare what was collected at times that are not complete; it is dealt anew, by the pacts, to other workers."""
        worker, peers = self.info.worker, self.info.peers

        def save() -> Iterator[tuple[None, tuple[T, int, Any]]]:
            for time, gathered in self.times.items():
                for index, containers in enumerate(gathered.containers):
                    yield from ((None, (time, index, container)) for container in containers)

        def load(items: Iterable[tuple[T, int, Any]]) -> None:
            for time, index, container in items:
                if time not in self.times:
                    self.times[time] = _Gathered(self.inputs, [capability.delayed(time) for capability in initial])
                self.times[time].containers[index].append(container)

        def rescale(parts: Sequence[Iterable[tuple[T, int, Any]]]) -> None:
            for place, items in enumerate(parts):
                for time, index, container in items:
                    pact = pacts[index]
                    pact = pact.pact if isinstance(pact, Spill) else pact
                    dealt: Sequence[tuple[int, Any]] = [(place % peers, container)]
                    if isinstance(pact, Exchange | Distribute):
                        dealt = pact.parts(time, container, peers)
                    load((time, index, part) for target, part in dealt if target == worker)

        self.info.register_state(save, load, rescale=rescale)
        for capability in initial:
            capability.drop()


def gather(
    name: str,
    inputs: Sequence[tuple[Stream[T, Any], Pact]],
    outputs: int,
    finish: Finish,
    *,
    keep: Keep | None = None,
    whole: Whole | None = None,
    meanwhile: Meanwhile | None = None,
) -> list[Stream[T, Any]]:
    """Return the ``outputs`` streams of an operator that runs ``finish(info, time, collected)`` for each time that
    is complete.

    Times are finished in an order that extends theirs. ``collected`` has a list of containers for each input;
    ``finish`` returns a container for each output, and an empty one sends nothing. What was collected is part of a
    checkpoint; where ``finish`` remembers anything from one time to the next, ``keep(info)``, called once on each worker,
    is to declare that. ``whole(info, time, collected)`` may say that a time is complete before the frontiers do, where it is
    known how much comes at it. ``meanwhile(info, time, collected)`` runs once for a time that is not complete when the first
    of it has come: while others still work on what they will send, it may work on what ``finish`` will need. Source: the
    operators of Naiad section 2.2 that wait for ``OnNotify``.

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
        logic: _Gather[T] = _Gather(info, len(inputs), outputs, finish, whole, meanwhile)
        logic.keep(capabilities, [pact for _, pact in inputs])
        if keep is not None:
            keep(info)
        return logic

    builder.build(constructor)
    return streams
