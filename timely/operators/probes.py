"""``probe``: see from outside which times may still come at a point of the dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from timely.dataflow import Activator, InputPort, OperatorBuilder, OperatorInfo, Pipeline, Stream, scope_of
from timely.errors import GraphError, TimestampError, brief
from timely.order import PartialOrder
from timely.progress import Antichain, TimeDomain

T = TypeVar("T", bound=PartialOrder)


class ProbeHandle(Generic[T]):
    """Shows the frontier where it is attached; with several places attached, all of their frontiers together.

    Attached nowhere it has an empty frontier and is done.

    >>> probe = ProbeHandle()
    >>> probe.frontier(), probe.done(), probe.less_equal(0)
    (Antichain([]), True, False)
    """

    __slots__ = ("_ports", "_waiting")

    def __init__(self) -> None:
        self._ports: list[InputPort[T, Any]] = []
        self._waiting: list[Activator] = []

    def attach(self, port: InputPort[T, Any]) -> None:
        """Show the frontier of ``port`` too. ``TimestampError`` if its times are of another type than those shown already."""
        self.check_times(port.operator.domain, port.label)
        self._ports.append(port)

    def check_times(self, times: TimeDomain[Any], place: str) -> None:
        """Raise ``TimestampError`` if ``times``, those of ``place``, are of another type than those of the places it shows.

        One frontier is made of them all, and times of two types cannot be compared.
        """
        for port in self._ports:
            shown = port.operator.domain
            if shown is not times:
                raise TimestampError(
                    f"a probe of {port.label}, where times are of type {shown.name}, cannot show {place} too, where they are of"
                    f" type {times.name}: take another timely.ProbeHandle for it"
                )

    @property
    def ports(self) -> Sequence[InputPort[T, Any]]:
        """The places whose frontier it shows."""
        return tuple(self._ports)

    @property
    def attached(self) -> bool:
        """Whether it shows the frontier of anything."""
        return bool(self._ports)

    def wake(self, activator: Activator) -> None:
        """Have an operator of this worker run whenever what the handle shows may have changed.

        So an operator can wait for what happens downstream of it. See ``timely.operators.iterator_source``.
        """
        self._waiting.append(activator)

    def tell(self) -> None:
        """Run those who asked for it with ``wake``."""
        for activator in self._waiting:
            activator.activate()

    def less_than(self, time: T) -> bool:
        """Return whether something at a time before ``time`` may still come."""
        try:
            for port in self._ports:
                for element in port.elements:
                    if element <= time and element != time:
                        return True
        except (AttributeError, TypeError) as error:
            self._check(time, error)
            raise
        return False

    def less_equal(self, time: T) -> bool:
        """Return whether something at ``time`` or before it may still come."""
        try:
            for port in self._ports:
                for element in port.elements:
                    if element <= time:
                        return True
        except (AttributeError, TypeError) as error:
            self._check(time, error)
            raise
        return False

    def _check(self, time: object, error: Exception) -> None:
        """Raise ``TimestampError`` if ``time``, which could not be compared, is no time of a place that this shows."""
        for port in self._ports:
            try:
                port.check(time)
            except TimestampError as fault:
                raise TimestampError(f"a probe was asked about what is no time of its place: {fault}") from error

    def done(self) -> bool:
        """Return whether nothing can come any more."""
        return not any(port.elements for port in self._ports)

    def frontier(self) -> Antichain[T]:
        """Return the frontier: the minimal times that may still come."""
        return Antichain(element for port in self._ports for element in port.elements)


def probe(stream: Stream[T, Any], handle: ProbeHandle[T] | None = None) -> ProbeHandle[T]:
    """Return a handle that shows the frontier of ``stream``: a new one, or ``handle`` with this place added.

    ``GraphError`` for a handle that is none, ``TimestampError`` for one that shows a place where times are of another type.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    ...     seen = stream.map(lambda x: x + 1).probe()
    >>> seen.less_than(5), seen.frontier()
    (True, Antichain([0]))
    >>> numbers.advance_to(5)
    >>> worker.step_while(lambda: seen.less_than(5))
    >>> seen.frontier()
    Antichain([5])
    """
    if not isinstance(handle, ProbeHandle | None):
        raise GraphError(f"probe takes the timely.ProbeHandle that is to show this place too, or nothing, not {brief(handle)}")
    chosen: ProbeHandle[T] = ProbeHandle() if handle is None else handle
    scope = scope_of(stream, "probe")
    chosen.check_times(scope.subgraph.domain, f"a stream of scope {scope.path!r}")
    builder = OperatorBuilder(scope, "probe")
    chosen.attach(builder.new_input(stream, Pipeline))

    def constructor(capabilities: list[Any], info: OperatorInfo) -> Callable[[InputPort[T, Any]], object]:
        info.declare_stateless()

        def logic(input: InputPort[T, Any]) -> None:
            for _ in input:
                pass
            chosen.tell()

        return logic

    builder.build(constructor)
    return chosen
