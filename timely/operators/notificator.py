"""``Notificator``: tells an operator which of the times that it asked for are complete.

A request is a capability: holding the request holds its time back downstream, so that what is sent on notification is never
late. A time is complete when no frontier of any of the inputs has an element at or before it. The invariant: times are
delivered in an order that never puts a later one before an earlier one that is complete too, each once, with the number of
requests that were made for it. Source: Naiad section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from timely.dataflow import Capability, InputPort, Operator, OperatorInfo, OutputPort
from timely.errors import CapabilityError, brief
from timely.operators.pending import Pending
from timely.order import PartialOrder, reaches

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

    __slots__ = ("_inputs", "_lone", "_many", "_more", "_operator", "_telling")

    def __init__(self, inputs: Sequence[InputPort[T, Any]]) -> None:
        self._inputs = list(inputs)
        self._lone: Capability[T] | None = None  # mostly one time is asked for, and there is nothing to put in order
        self._many: Pending[T, Capability[T]] | None = None  # all of them, as soon as there are two
        self._more: dict[T, int] = {}
        self._operator: Operator[T] | None = inputs[0].operator if inputs else None
        self._telling = -1  # the activation in which somebody iterates, or stopped doing so early

    def request(self, capability: Capability[T], times: Iterable[T]) -> None:
        """Ask to be notified of each of ``times``, which ``capability`` allows; it is dropped."""
        for time in times:
            self.notify_at(capability.delayed(time))
        capability.drop()

    def keep(self, info: OperatorInfo, capability: Capability[T], times: Iterable[T] = ()) -> None:
        """As ``request``, in the constructor of an operator, whose state the requests become. Where it goes on from a checkpoint,
        those made there and not delivered take the place of ``times``.

        On another number of workers each asks once for every time that any worker had asked for, since any of them may have got
        what was kept for it. So a worker may be told of a time for which it has nothing.

        >>> import timely
        >>> def tell(scope):
        ...     builder = timely.OperatorBuilder(scope, "tell")
        ...     notificator = Notificator([builder.new_input(scope.empty(), timely.Pipeline)])
        ...     output = builder.new_output()
        ...     def constructor(capabilities, info):
        ...         notificator.keep(info, capabilities.pop(), [3])
        ...         return lambda input, output: [output.session(capability).give("now") for capability, _ in notificator]
        ...     builder.build(constructor)
        ...     return output
        >>> timely.example(tell)
        [(3, ['now'])]
        """
        asked: dict[T, int] = {}
        for time in times:
            asked[time] = asked.get(time, 0) + 1
        made: dict[T, int] | None = None

        def load(requests: Iterable[tuple[T, int]]) -> None:
            nonlocal made
            made = {} if made is None else made
            made.update(requests)

        def rescale(parts: Sequence[Iterable[tuple[T, int]]]) -> None:
            load((time, 1) for requests in parts for time, _ in requests)

        info.keep(lambda: [(None, request) for request in self.pending()], load, rescale=rescale)
        for time, count in (asked if made is None else made).items():
            self.request(capability.copy(), [time] * count)
        capability.drop()

    def notify_at(self, capability: Capability[T]) -> None:
        """Ask to be notified when the capability's time is complete; the notificator holds the capability until then.

        Where it is complete already, and nobody is iterating, the logic is run again for it. ``CapabilityError`` for what is no
        capability, or is not held: one that came with the input has to be retained.
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
        if self._telling != operator.call and self.complete(time):
            operator.activate()

    def _add(self, time: T, capability: Capability[T]) -> None:
        """Keep one more capability beside others."""
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
        """Return the times that are asked for and not delivered yet, each with the number of requests, in order."""
        times = [self._lone.time] if self._lone is not None else self._many or ()
        return [(time, 1 + self._more.get(time, 0)) for time in times]

    def complete(self, time: T) -> bool:
        """Return whether nothing at or before ``time`` can come on any input any more."""
        for port in self._inputs:
            if reaches(port.elements, time):
                return False
        return True

    def __iter__(self) -> Iterator[tuple[Capability[T], int]]:
        operator = self._operator
        if operator is None:
            return  # nothing was ever asked for
        operator.telling += 1  # whoever stops early leaves it so, and is told of the rest the next time
        self._telling = operator.call
        while self._lone is not None or self._many is not None:
            lone = self._lone
            if lone is not None:
                time = lone.time
                for port in self._inputs:
                    if reaches(port.elements, time):
                        self._telling = -1
                        operator.telling -= 1
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
            if self._many is many:  # else whoever was told has gone through the rest, and has asked for more since
                self._many = None
        self._telling = -1
        operator.telling -= 1
