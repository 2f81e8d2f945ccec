"""Capabilities: the right to send at a time, which every send needs.

A ``Capability`` is counted: while it is held, no frontier downstream passes its time. An ``InputCapability`` comes with a batch
of input and is not counted, since the batch is; it must be retained to outlive the activation. A ``CapabilitySet`` has one
capability for each minimal time of a frontier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Generic, Self, SupportsIndex, TypeVar

from timely.dataflow.port_owner import CountedInput, CountedOutput
from timely.errors import CapabilityError, GraphError, brief
from timely.order import PartialOrder, Product
from timely.progress import Antichain

T = TypeVar("T", bound=PartialOrder)

_PRODUCT: Final = Product  # compiled, a name that was imported is looked up at each use, and a constant is not


class Capability(Generic[T]):
    """The right to send at ``time`` or later on one output (book, progress chapter: capabilities).

    Held until ``drop()``, the end of a ``with`` block, or until nothing refers to it. ``CapabilityError`` for a time that is not
    at or after its own, and for any use after it was dropped; ``TimestampError`` for what is no time of the scope.

    >>> import timely
    >>> with timely.Worker().dataflow() as scope:
    ...     (handle, capability), stream = scope.new_unordered_input()
    >>> capability.delayed(5).time, capability.held
    (5, True)
    """

    __slots__ = ("_port", "time")

    def __init__(self, time: T, port: CountedOutput[T]) -> None:
        self.time = time
        self._port: CountedOutput[T] | None = port
        port.capabilities.update_at(port.number, time, 1)
        if not port.operator.running:
            port.operator.touch()

    @property
    def held(self) -> bool:
        """Whether it has not been dropped yet."""
        return self._port is not None

    @property
    def port(self) -> CountedOutput[T] | None:
        """The output on which it allows to send; ``None`` once it was dropped."""
        return self._port

    def delayed(self, time: T) -> Capability[T]:
        """Return a new capability at ``time``, which must be at or after this one's; this one stays as it is."""
        port = self._port
        if port is not None and (type(time) is not type(self.time) or type(time) is _PRODUCT):
            port.check(time)
        if port is None or not self.time <= time:
            raise self._refusal("delay", time)
        return Capability(time, port)

    def downgrade(self, time: T) -> None:
        """Move the capability to ``time``, which must be at or after its own."""
        port = self._port
        if port is not None and (type(time) is not type(self.time) or type(time) is _PRODUCT):
            port.check(time)
        if port is None or not self.time <= time:
            raise self._refusal("downgrade", time)
        port.capabilities.update_at(port.number, time, 1)
        port.capabilities.update_at(port.number, self.time, -1)
        self.time = time
        if not port.operator.running:
            port.operator.touch()

    def drop(self) -> None:
        """Drop the capability; dropping it twice is a no-op."""
        port = self._port
        if port is not None:
            self._port = None
            port.capabilities.update_at(port.number, self.time, -1)
            if not port.operator.running:
                port.operator.touch()

    def copy(self) -> Capability[T]:
        """Return a second capability at the same time; ``copy.copy`` and ``copy.deepcopy`` do so too."""
        return self.delayed(self.time)

    def __copy__(self) -> Capability[T]:
        return self.delayed(self.time)

    def __deepcopy__(self, memo: dict[int, Any]) -> Capability[T]:
        return self.delayed(self.time)

    def __reduce__(self) -> Any:
        where = "" if self._port is None else f"{self._port.label}: "
        raise CapabilityError(
            f"{where}the capability for {brief(self.time)} cannot be pickled: it allows its own operator on its own worker to"
            " send; have that one send instead, or keep the time"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.drop()

    def __del__(self) -> None:
        port = self._port
        if port is not None:
            port.operator.unreferenced.note(port, self.time)

    def permits(self, port: CountedOutput[T]) -> bool:
        """Return whether it allows to send on ``port`` at its time."""
        return self._port is port

    def refused_by(self, port: CountedOutput[T]) -> CapabilityError:
        """Return the error for a port that it does not permit."""
        if self._port is None:
            return CapabilityError(f"{port.label}: the capability for {brief(self.time)} was dropped before the send; keep it")
        return CapabilityError(
            f"{port.label}: the capability for {brief(self.time)} belongs to {self._port.label}; each output needs one of its own"
        )

    def _refusal(self, deed: str, time: T) -> CapabilityError:
        if self._port is None:
            return CapabilityError(
                f"cannot {deed} the capability for {brief(self.time)} to {brief(time)}: it was dropped already; keep it, or a"
                " copy() of it, until nothing is to be sent any more"
            )
        return CapabilityError(
            f"{self._port.label}: cannot {deed} the capability for {brief(self.time)} to {brief(time)}, which is not at or"
            " after it; keep a copy() of it from before, or send at a later time"
        )

    def __repr__(self) -> str:
        return f"Capability({brief(self.time)}{'' if self._port is not None else ', dropped'})"


class InputCapability(Generic[T]):
    """What a batch of input allows: to send at its time, in this activation, wherever the operator's summary is the identity.

    ``retain()`` makes a capability of it that outlives the activation; ``delayed(time)`` does the same for a later time, and
    is the way where the summary advances.
    """

    __slots__ = ("_call", "_port", "time")

    def __init__(self, time: T, port: CountedInput[T]) -> None:
        self.time = time
        self._port = port
        self._call = port.operator.call

    def retain(self, output: SupportsIndex = 0) -> Capability[T]:
        """Return a capability for ``output`` at this time, to keep; ``CapabilityError`` where the summary there advances,
        ``GraphError`` for an output that the operator does not have.
        """
        port = self._current("retain")
        if output not in range(len(port.summaries)):
            raise self._no_output(output)
        if output not in port.identities:
            raise CapabilityError(
                f"{port.label}: the summary to output {output} is not the identity, so the capability for {brief(self.time)}"
                f" cannot be retained there; use delayed(time, output={output}) with a time that the summary allows"
            )
        return Capability(self.time, port.operator.output_ports[output])

    def delayed(self, time: T, output: SupportsIndex = 0) -> Capability[T]:
        """Return a capability for ``output`` at ``time``, which must be at or after what the summary makes of this time."""
        port = self._current("delay")
        if type(time) is not type(self.time) or type(time) is _PRODUCT:
            port.check(time)
        if output not in range(len(port.summaries)):
            raise self._no_output(output)
        summaries = port.summaries[output.__index__()]
        for summary in summaries:
            result = summary.results_in(self.time)
            if result is not None and result <= time:
                return Capability(time, port.operator.output_ports[output])
        if len(summaries) == 0:
            raise CapabilityError(f"{port.label}: output {output} is disconnected from this input, so nothing can be sent there")
        raise CapabilityError(
            f"{port.label}: {brief(time)} is not at or after what the summary to output {output} makes of {brief(self.time)};"
            " what is sent later may have a later time, never an earlier one"
        )

    def permits(self, port: CountedOutput[T]) -> bool:
        """Return whether it allows to send on ``port`` at its time, now."""
        mine = self._port
        operator = mine.operator
        return port.operator is operator and self._call == operator.call and operator.running and port.index in mine.identities

    def refused_by(self, port: CountedOutput[T]) -> CapabilityError:
        """Return the error for a port that it does not permit."""
        operator = self._port.operator
        if port.operator is not operator:
            return CapabilityError(f"{port.label}: the capability for {brief(self.time)} came with input of {self._port.label}")
        self._current("send")
        return CapabilityError(
            f"{port.label}: the summary from {self._port.label} is not the identity; send with delayed(time, output)"
        )

    def _no_output(self, output: object) -> GraphError:
        port = self._port
        return GraphError(f"{port.label}: there is no output {brief(output)}, but {len(port.summaries)} of them, counted from 0")

    def _current(self, deed: str) -> CountedInput[T]:
        port = self._port
        if self._call != port.operator.call or not port.operator.running:
            raise CapabilityError(
                f"{port.label}: cannot {deed} with the input capability for {brief(self.time)} after the activation that it came"
                " in; call its retain() there, and keep what that returns"
            )
        return port

    def __repr__(self) -> str:
        return f"InputCapability({brief(self.time)})"


class CapabilitySet(Generic[T]):
    """The right to send at or after each time of ``frontier``, on one output. Whatever fails changes nothing.

    The set owns what is inserted: insert a ``copy()`` of a capability that is used elsewhere. A set that nothing refers to drops
    them all. Source: the book, progress chapter (capabilities); frontiers are those of Naiad section 2.3.

    >>> import timely
    >>> with timely.Worker().dataflow() as scope:
    ...     (handle, capability), stream = scope.new_unordered_input()
    >>> held = timely.CapabilitySet([capability])
    >>> held.downgrade([3, 5])
    >>> held.frontier, held.delayed(4).time
    (Antichain([3]), 4)
    """

    __slots__ = ("_capabilities",)

    def __init__(self, capabilities: Iterable[Capability[T]] = ()) -> None:
        self._capabilities: list[Capability[T]] = []
        for capability in capabilities:
            self.insert(capability)

    @property
    def frontier(self) -> Antichain[T]:
        """The minimal times at which something may still be sent."""
        return Antichain(capability.time for capability in self._capabilities)

    def insert(self, capability: Capability[T]) -> bool:
        """Insert a capability; return whether it was needed. Redundant ones are dropped.

        ``CapabilityError`` for one that was dropped, that belongs to another output, or that was not retained.
        """
        if not isinstance(capability, Capability):
            raise CapabilityError(
                f"a set of capabilities cannot hold {brief(capability)}: put in what retain() or delayed(t) returns"
            )
        if capability.port is None:
            raise CapabilityError(
                f"the capability for {brief(capability.time)} was dropped before it was put into a set; keep it"
            )
        for other in self._capabilities:
            if other.port is not capability.port:
                raise capability.refused_by(other.port or capability.port)
        for other in self._capabilities:
            if other is capability:
                return False
            if other.time <= capability.time:
                capability.drop()
                return False
        redundant = [other for other in self._capabilities if capability.time <= other.time]
        self._capabilities = [other for other in self._capabilities if not capability.time <= other.time]
        self._capabilities.append(capability)
        for other in redundant:
            other.drop()
        return True

    def delayed(self, time: T) -> Capability[T]:
        """Return a new capability at ``time``; the set stays as it is.

        ``CapabilityError`` unless ``time`` is at or after a time of the set, ``TimestampError`` unless it is a time of the scope.
        """
        self._check(time)
        return self.allowing(time, "delay").delayed(time)

    def downgrade(self, frontier: Iterable[T]) -> None:
        """Drop all times that are not at or after an element of ``frontier``; with an empty one, everything.

        ``CapabilityError`` and ``TimestampError`` as for ``delayed``; then nothing is dropped.
        """
        times = list(frontier)
        for time in times:
            self._check(time)
        minimal: Antichain[T] = Antichain(times)
        sources = [self.allowing(time, "downgrade") for time in minimal]
        replaced = self._capabilities
        self._capabilities = [source.delayed(time) for source, time in zip(sources, minimal, strict=True)]
        for capability in replaced:
            capability.drop()

    def drop(self) -> None:
        """Drop everything."""
        self.downgrade(())

    def _check(self, time: T) -> None:
        for capability in self._capabilities[:1]:
            if capability.port is not None:
                capability.port.check(time)

    def allowing(self, time: T, deed: str = "use") -> Capability[T]:
        """Return one of the capabilities, to send at ``time``; it remains the set's. ``CapabilityError`` if none allows it.

        >>> import timely
        >>> def constructor(capability, info):
        ...     held = timely.CapabilitySet([capability])
        ...     def logic(output):
        ...         for time in (7, 5) if held else ():
        ...             output.session(held.allowing(time)).give_batch([10 * time], time)
        ...         held.drop()
        ...     return logic
        >>> timely.example(lambda scope: scope.source("two times", constructor))
        [(5, [50]), (7, [70])]
        """
        for capability in self._capabilities:
            if capability.time <= time:
                return capability
        if not self._capabilities:
            raise CapabilityError(f"cannot {deed} an empty set of capabilities to {brief(time)}: all of them were given up")
        port, times = self._capabilities[0].port, [capability.time for capability in self._capabilities]
        label = "a set of capabilities" if port is None else port.label
        raise CapabilityError(
            f"{label}: cannot {deed} capabilities for {brief(times)} to {brief(time)}, which is at or after none of them"
        )

    def __len__(self) -> int:
        return len(self._capabilities)

    def __iter__(self) -> Iterator[Capability[T]]:
        return iter(tuple(self._capabilities))

    def __repr__(self) -> str:
        return f"CapabilitySet([{', '.join(brief(capability.time) for capability in self._capabilities)}])"
