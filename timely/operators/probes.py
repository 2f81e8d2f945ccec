"""``probe``: shows from outside which times may still come at a point of the dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

import attrs

from timely.dataflow import Activator, InputPort, OperatorBuilder, OperatorInfo, Pipeline, Stream, operator_name, scope_of
from timely.errors import GraphError, TimestampError, brief
from timely.operators.type_variables import T
from timely.progress import Antichain, TimeDomain


@attrs.define(eq=False, repr=False)
class ProbeHandle(Generic[T]):
    """Shows the frontier of the streams it is attached to, all together. Attached nowhere, it is done.

    >>> probe = ProbeHandle()
    >>> probe.frontier(), probe.done(), probe.less_equal(0)
    (Antichain([]), True, False)
    """

    _ports: list[InputPort[T, Any]] = attrs.field(factory=list, init=False)
    _waiting: list[Activator] = attrs.field(factory=list, init=False)

    def __repr__(self) -> str:
        where = ", ".join(port.operator.path for port in self._ports) or "attached nowhere"
        frontier = ", ".join(map(brief, self.frontier()))
        return f"ProbeHandle({where}, {f'at {frontier}' if frontier else 'done'})"

    def attach(self, port: InputPort[T, Any]) -> None:
        """Show the frontier of ``port`` too; ``TimestampError`` for times of another type."""
        self.check_times(port.operator.domain, port.label)
        self._ports.append(port)

    def check_times(self, times: TimeDomain[Any], place: str) -> None:
        """Raise ``TimestampError`` if the times of ``place`` are of another type than those it shows."""
        for port in self._ports:
            shown = port.operator.domain
            if shown is not times:
                raise TimestampError(
                    f"a probe of {port.label}, where times are of type {shown.name}, cannot show {place} too, where they are of"
                    f" type {times.name}: take another timely.ProbeHandle for it"
                )

    @property
    def ports(self) -> Sequence[InputPort[T, Any]]:
        """The inputs whose frontier it shows."""
        return tuple(self._ports)

    @property
    def attached(self) -> bool:
        """Whether it is attached to anything."""
        return bool(self._ports)

    def wake(self, activator: Activator) -> None:
        """Activate an operator of this worker whenever the frontier may have changed, as ``iterator_source`` does."""
        self._waiting.append(activator)

    def activate_waiting(self) -> None:
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


def probe(stream: Stream[T, Any], handle: ProbeHandle[T] | None = None, *, name: str | None = None) -> ProbeHandle[T]:
    """Return a handle that shows the frontier of ``stream``: a new one, or ``handle``, attached here too.

    ``TimestampError`` for a handle that shows times of another type.

    >>> import timely
    >>> with (worker := timely.Worker()).dataflow() as scope:
    ...     numbers, stream = scope.new_input()
    ...     seen = stream.probe()
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
    builder = OperatorBuilder(scope, operator_name("probe", name))
    chosen.attach(builder.new_input(stream, Pipeline))

    def constructor(capabilities: list[Any], info: OperatorInfo) -> Callable[[InputPort[T, Any]], object]:
        info.declare_stateless()

        def logic(input: InputPort[T, Any]) -> None:
            for _ in input:
                pass
            chosen.activate_waiting()

        return logic

    builder.build(constructor)
    return chosen
