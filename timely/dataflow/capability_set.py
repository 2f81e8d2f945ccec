"""``CapabilitySet``: the capabilities of one output, kept as a frontier.

One capability for each minimal time and no other. The invariant: whatever fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from timely.dataflow.capability import Capability
from timely.errors import CapabilityError, brief
from timely.order import PartialOrder
from timely.progress import Antichain

T = TypeVar("T", bound=PartialOrder)


class CapabilitySet(Generic[T]):
    """The right to send at or after each time of ``frontier``, on one output.

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
