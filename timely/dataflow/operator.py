"""``Operator``: the scope that runs one operator's logic.

It is a leaf of the nesting: its ports gather what the logic reads, sends and holds, and one pull runs the logic once and
reports all of that together. Because every send and every held time went through a capability, its reports need no check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Never, TypeVar

import attrs

from timely.dataflow.ports import InputPort, OutputPort
from timely.errors import OperatorError
from timely.order import PartialOrder
from timely.progress import Antichain, ChangeBatch, PathSummary, TimeDomain
from timely.scopes import Counts, Subgraph, Summaries

T = TypeVar("T", bound=PartialOrder)


class Activator:
    """Has one operator run in the next pass over its scope, whether or not there is input."""

    __slots__ = ("_child", "_scope")

    def __init__(self, scope: Subgraph[Any, Any], child: int) -> None:
        self._scope = scope
        self._child = child

    def activate(self) -> None:
        """Have the operator run soon."""
        self._scope.activate(self._child)


@attrs.frozen
class OperatorInfo:
    """What an operator may know of itself: its index in its scope, its path, the worker it is on, and how to be run again."""

    name: str
    index: int
    path: str
    activator: Activator
    worker: int
    peers: int


class Operator(Generic[T]):
    """One operator as a scope. Its reports are right by construction (``trusted``)."""

    trusted = True

    def __init__(self, name: str, scope: Subgraph[Any, T], worker: int, peers: int) -> None:
        self.name = name
        self.input_ports: list[InputPort[T, Any]] = []
        self.output_ports: list[OutputPort[T]] = []
        self.running = False
        self.call = 0
        self._scope = scope
        self._logic: Callable[..., object] | None = None
        self._ports: tuple[Any, ...] = ()
        self.index = scope.add_child(name, self)
        self.path = f"{scope.path}/{name}#{self.index}"
        self.info = OperatorInfo(name, self.index, self.path, Activator(scope, self.index), worker, peers)

    @property
    def inputs(self) -> int:
        """How many inputs it has."""
        return len(self.input_ports)

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        return len(self.output_ports)

    @property
    def observes(self) -> tuple[int, ...]:
        """The inputs whose frontier the logic asks for."""
        return tuple(port.index for port in self.input_ports if port.observed)

    @property
    def domain(self) -> TimeDomain[T]:
        """The type of its times."""
        return self._scope.domain

    def activate(self) -> None:
        """Have it run in this pass, or the next."""
        self._scope.activate(self.index)

    def install(self, logic: Callable[..., object]) -> None:
        """Give it the logic, which is called with the input ports and then the output ports."""
        self._logic = logic
        self._ports = (*self.input_ports, *self.output_ports)

    def summary(self, input: int, output: int) -> Antichain[PathSummary[T]]:
        """Return the path summaries from an input to an output."""
        return self.input_ports[input].summaries[output]

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return its summaries, and one capability for the minimum time on each output."""
        minimum = self.domain.minimum
        return [port.summaries for port in self.input_ports], [[(minimum, 1)] for _ in self.output_ports]

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Take in the initial frontiers; how the world leads back is of no use to an operator."""
        for port, counts in zip(self.input_ports, external, strict=True):
            port.elements[:] = [time for time, _ in counts]

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Take in how the frontiers have moved."""
        for port, changes in zip(self.input_ports, external):
            if changes:
                port.follow(changes)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Run the logic once and report what it did."""
        self.call += 1
        self.running = True
        try:
            again = self._logic(*self._ports)  # type: ignore[misc]  # installed before the graph is built
            for output in self.output_ports:
                if output.sessions:
                    output.close_sessions()
        except Exception as error:
            self.fail(error)
        finally:
            self.running = False
        for port, read in zip(self.input_ports, consumed):
            if port.consumed:
                port.consumed.drain_into(read)
            if port.queue:
                self.activate()
        for output, held, sent in zip(self.output_ports, internal, produced):
            if output.internal:
                output.internal.drain_into(held)
            if output.produced:
                output.produced.drain_into(sent)
        return again is True

    def fail(self, error: Exception) -> Never:
        """Raise ``OperatorError`` for what the logic raised, with the operator's name, path and worker."""
        raise OperatorError(
            f"operator {self.name!r} ({self.path}) on worker {self.info.worker} raised {type(error).__name__}: {error}",
            self.name,
            self.path,
            self.info.worker,
        ) from error
