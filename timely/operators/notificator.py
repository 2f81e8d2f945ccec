"""``Notificator``: delivers each requested time once it is complete.

A request holds a capability, so that what is sent on notification is never late. Invariant: no time is delivered before an
earlier one that is complete too, and each is delivered once, with its number of requests. Source: Naiad section 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, cast

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, PortOwner
from timely.errors import CapabilityError, brief
from timely.operators.pending import Pending
from timely.operators.type_variables import T
from timely.order import reaches


class Notificator(Generic[T]):
    """Iterate over it for ``(capability, count)`` of each complete time; request more with ``notify_at``."""

    __slots__ = ("_inputs", "_iterating", "_lone", "_many", "_more", "_operator")

    def __init__(self, inputs: Sequence[InputPort[T, Any]]) -> None:
        self._inputs = list(inputs)
        self._lone: Capability[T] | None = None  # usually one time is requested, which needs no order
        self._many: Pending[T, Capability[T]] | None = None  # all requests, as soon as there are two
        self._more: dict[T, int] = {}
        self._operator: PortOwner[T] | None = inputs[0].operator if inputs else None
        self._iterating = -1  # the activation that iterates, or stopped early

    def request(self, capability: Capability[T], times: Iterable[T]) -> None:
        """Request each of ``times``, and drop ``capability``, which must allow them."""
        for time in times:
            self.notify_at(capability.delayed(time))
        capability.drop()

    def register(self, info: OperatorInfo, capability: Capability[T], times: Iterable[T] = ()) -> None:
        """As ``request``, in a constructor, and register the requests as state: those of a checkpoint replace ``times``.

        On another number of workers each worker requests every time that any worker had, since any may get the state for it.
        """
        counts = Counter(times)
        restored: dict[T, int] | None = None

        def load(requests: Iterable[tuple[T, int]]) -> None:
            nonlocal restored
            restored = restored or {}
            restored.update(requests)

        def rescale(parts: Sequence[Iterable[tuple[T, int]]]) -> None:
            load((time, 1) for requests in parts for time, _ in requests)

        info.register_state(lambda: [(None, request) for request in self.pending()], load, rescale=rescale)
        for time, count in (counts if restored is None else restored).items():
            self.request(capability.copy(), [time] * count)
        capability.drop()

    def notify_at(self, capability: Capability[T]) -> None:
        """Request a notification when the capability's time is complete, and hold the capability until then.

        Where the time is complete already, the logic runs again. ``CapabilityError`` for anything but a held capability: retain
        one that came with the input.
        """
        if not isinstance(capability, Capability) or not capability.held:
            who = self._inputs[0].label if self._inputs else "a notificator without inputs"
            raise CapabilityError(
                f"{who}: notify_at needs a capability that is held, not {brief(capability)}: retain() the one that came with the"
                " input, or give one that was delayed to a later time"
            )
        time = capability.time
        if self._lone is None and self._many is None:
            self._lone = capability
        else:
            self._add(time, capability)
        operator = self._operator
        if operator is None:  # there are no inputs, so that every time is complete as it is
            operator = self._operator = cast("OutputPort[T]", capability.port).operator
        if self._iterating != operator.call and self.complete(time):
            operator.activate()

    def _add(self, time: T, capability: Capability[T]) -> None:
        many = self._many
        if many is None:
            many = self._many = Pending()
        if self._lone is not None:
            many[self._lone.time] = self._lone
            self._lone = None
        if time in many:
            self._more[time] = self._more.get(time, 0) + 1
            capability.drop()
        else:
            many[time] = capability

    def pending(self) -> list[tuple[T, int]]:
        """Return the times requested and not delivered yet, each with its number of requests, in order."""
        times = [self._lone.time] if self._lone is not None else self._many or ()
        return [(time, 1 + self._more.get(time, 0)) for time in times]

    def complete(self, time: T) -> bool:
        """Return whether every input has passed ``time``."""
        for port in self._inputs:
            if reaches(port.elements, time):
                return False
        return True

    def __iter__(self) -> Iterator[tuple[Capability[T], int]]:
        operator = self._operator
        if operator is None:
            return  # nothing was ever requested
        operator.iterating += 1  # left so by a caller that stops early, which gets the rest next time
        self._iterating = operator.call
        while self._lone is not None or self._many is not None:
            lone = self._lone
            if lone is not None:
                time = lone.time
                for port in self._inputs:
                    if reaches(port.elements, time):
                        self._iterating = -1
                        operator.iterating -= 1
                        return
                self._lone = None
                if operator.notified is not None:
                    operator.notified(time, self._inputs)
                yield lone, 1
                continue
            many = cast("Pending[T, Capability[T]]", self._many)
            for time, capability in many.take(self.complete):
                if operator.notified is not None:
                    operator.notified(time, self._inputs)
                yield capability, 1 + self._more.pop(time, 0)
            if many:
                break
            if self._many is many:  # else the caller has taken the rest, and requested more since
                self._many = None
        self._iterating = -1
        operator.iterating -= 1
