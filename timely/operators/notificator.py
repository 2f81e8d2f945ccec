"""``Notificator``: tells an operator which of the times that it asked for are complete.

A request is a capability: holding the request holds its time back downstream, so that what is sent on notification is never
late. A time is complete when no frontier of any of the inputs has an element at or before it. The invariant: times are
delivered in an order that never puts a later one before an earlier one that is complete too, each once, with the number of
requests that were made for it. Source: Naiad section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from timely.dataflow import Capability, InputPort
from timely.order import PartialOrder, linear_extension

T = TypeVar("T", bound=PartialOrder)


class Notificator(Generic[T]):
    """Iterate over it for ``(capability, count)`` of the times that are complete; ask for more with ``notify_at``.

    >>> import timely
    >>> seen = []
    >>> def logic(input, output, notificator):
    ...     for capability, count in notificator:
    ...         seen.append((capability.time, count))
    ...         if capability.time < 2:
    ...             notificator.notify_at(capability.delayed(capability.time + 1))
    >>> _ = timely.example(lambda scope: scope.empty().unary_notify(timely.Pipeline, "demo", [0, 0], logic))
    >>> seen
    [(0, 2), (1, 1), (2, 1)]
    """

    __slots__ = ("_capabilities", "_inputs", "_more", "_telling")

    def __init__(self, inputs: Sequence[InputPort[T, Any]]) -> None:
        self._inputs = inputs
        self._capabilities: dict[T, Capability[T]] = {}
        self._more: dict[T, int] = {}
        self._telling = False

    def request(self, capability: Capability[T], times: Iterable[T]) -> None:
        """Ask to be notified of each of ``times``, which ``capability`` allows; it is dropped."""
        for time in times:
            self.notify_at(capability.delayed(time))
        capability.drop()

    def notify_at(self, capability: Capability[T]) -> None:
        """Ask to be notified when the capability's time is complete; the notificator holds the capability until then.

        Where it is complete already, and nobody is iterating, the logic is run again for it.
        """
        time = capability.time
        if time in self._capabilities:
            self._more[time] = self._more.get(time, 0) + 1
            capability.drop()
        else:
            self._capabilities[time] = capability
        if not self._telling and self.complete(time):
            self._inputs[0].operator.activate()

    def pending(self) -> list[tuple[T, int]]:
        """Return the times that are asked for and not delivered yet, each with the number of requests, in order."""
        return [(time, 1 + self._more.get(time, 0)) for time in linear_extension(self._capabilities)]

    def complete(self, time: T) -> bool:
        """Return whether nothing at or before ``time`` can come on any input any more."""
        for port in self._inputs:
            for element in port.elements:
                if element <= time:
                    return False
        return True

    def __iter__(self) -> Iterator[tuple[Capability[T], int]]:
        capabilities = self._capabilities
        self._telling = True
        try:
            while capabilities:
                if len(capabilities) == 1:
                    (time,) = capabilities
                    for port in self._inputs:
                        for element in port.elements:
                            if element <= time:
                                return
                else:
                    ready = [time for time in capabilities if self.complete(time)]
                    if not ready:
                        return
                    time = linear_extension(ready)[0]
                yield capabilities.pop(time), 1 + self._more.pop(time, 0) if self._more else 1
        except GeneratorExit:
            self._inputs[0].operator.activate()  # whoever stops early is told of the rest the next time
            raise
        finally:
            self._telling = False
