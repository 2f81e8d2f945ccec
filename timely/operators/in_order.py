"""``InOrder``: what an operator keeps for each time until nothing can come before it, in one total order of all times.

An operator that carries state from one time to the next needs such an order, also of times that are incomparable. It is that of
their sort keys: in a loop epoch by epoch, and round by round within an epoch. The invariant: times are taken out in that order.
A capability held meanwhile deadlocks no loop: every cycle advances time, and so the key.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, get_args, get_origin

from timely.dataflow import OperatorInfo
from timely.errors import TimestampError, brief
from timely.order import PartialOrder, Product, sort_key
from timely.progress import time_domain

T = TypeVar("T", bound=PartialOrder)
V = TypeVar("V")

OrderKey = Callable[[Any], Any]
"""Returns, for a time, what it is sorted by: less for a time that is less."""


def order_key(time: Any, name: str) -> OrderKey:
    """Return the key that puts times of the type ``time`` into one order, for the operator ``name``; ``TimestampError`` if the
    type offers none.

    >>> order_key(Product[int, int], "demo")(Product(3, 0))
    (3, 0)
    """
    domain = time_domain(time)
    if domain.key(domain.minimum) is not None:
        return sort_key
    if domain.total:
        return lambda one: one
    if get_origin(time) is Product:
        outer, inner = (order_key(part, name) for part in get_args(time))
        return lambda pair: (outer(pair[0]), inner(pair[1]))
    raise TimestampError(
        f"operator {name!r} carries state from one time to the next, and incomparable times of type {domain.name} have no order"
        " in which to take them: give the type a method sort_key() that tells every two times apart, or is_total() if every two"
        " are comparable; or use an operator with a state for each time, such as aggregate"
    )


class InOrder(Generic[T, V]):
    """Values by time: ``at(time, make)`` puts one in, and ``take(due)`` takes out the first ones for as long as they are due.

    >>> def constructor(capability, info):
    ...     kept = InOrder(order_key(Product[int, int], info.name), info)
    ...     for time in (Product(1, 0), Product(0, 5)):
    ...         _ = kept.at(time, lambda: str(time))
    ...     print([value for _, value in kept.take(lambda time: kept.is_next(time, [Product(1, 0)]))])
    ...     return lambda output: None
    >>> import timely
    >>> timely.example(lambda scope: scope.source("demo", constructor))
    ['(0, 5)', '(1, 0)']
    []
    """

    __slots__ = ("_heap", "_info", "_key", "_last", "_made", "_values")

    def __init__(self, key: OrderKey, info: OperatorInfo) -> None:
        self._key = key
        self._info = info
        self._values: dict[T, V] = {}
        self._heap: list[tuple[Any, int, T]] = []
        self._made = 0  # of equal keys none is asked whether its time is less
        self._last: tuple[Any, T] | None = None

    def __iter__(self) -> Iterator[T]:
        """Return the times, in no order."""
        return iter(self._values)

    def __getitem__(self, time: T) -> V:
        return self._values[time]

    def at(self, time: T, make: Callable[[], V]) -> V:
        """Return the value at ``time``; where there is none yet, ``make()`` is put there."""
        if time not in self._values:
            self._values[time] = make()
            heapq.heappush(self._heap, (self._key(time), self._made, time))
            self._made += 1
        return self._values[time]

    def is_next(self, time: T, frontier: Iterable[T]) -> bool:
        """Return whether nothing that ``frontier`` still allows goes before ``time``."""
        key = self._key(time)
        return all(key <= self._key(other) for other in frontier)

    def take(self, due: Callable[[T], bool]) -> Iterator[tuple[T, V]]:
        """Remove and yield the first time and its value, for as long as it is due.

        ``TimestampError`` for two different times with equal keys: what comes of them would depend on which came first.
        """
        while self._heap and due(self._heap[0][2]):
            key, _, time = heapq.heappop(self._heap)
            if self._last is not None and self._last[0] == key and self._last[1] != time:
                raise TimestampError(
                    f"operator {self._info.name!r} ({self._info.path}): sort_key() is the same for {brief(self._last[1])} and"
                    f" {brief(time)}, so it is not known which goes first: it must tell every two times apart"
                )
            self._last = (key, time)
            yield time, self._values.pop(time)
