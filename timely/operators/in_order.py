"""``InOrder``: values by time, for operators that carry state from one time to the next, in one total order of all times.

Every cycle advances the sort key, so that a capability held meanwhile deadlocks no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, get_args, get_origin

import attrs
from sortedcontainers import SortedKeyList

from timely.dataflow import OperatorInfo
from timely.errors import TimestampError, brief
from timely.operators.type_variables import T, V
from timely.order import Product, sort_key
from timely.progress import time_domain

OrderKey: TypeAlias = Callable[[Any], Any]
"""Returns what a time is sorted by: a lesser key for a lesser time."""


def order_key(time: Any, name: str) -> OrderKey:
    """Return the key that sorts times of type ``time``, for the operator ``name``; ``TimestampError`` if the type has none."""
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
        " in which to take them. Give the type a method sort_key() that tells every two times apart, or is_total() if every two"
        " are comparable; or use an operator with a state for each time, such as aggregate"
    )


@attrs.define(eq=False, repr=False)
class InOrder(Generic[T, V]):
    """Values by time: ``at(time, make)`` inserts one, and ``take(due)`` removes the first ones for as long as they are due.

    In a loop that is epoch by epoch, and round by round within one.
    """

    _key: OrderKey
    _info: OperatorInfo
    _values: dict[T, V] = attrs.field(factory=dict)
    _times: SortedKeyList = attrs.Factory(lambda self: SortedKeyList(key=self._key), takes_self=True)
    _last: tuple[Any, T] | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self._times)

    def __getitem__(self, time: T) -> V:
        return self._values[time]

    def at(self, time: T, make: Callable[[], V]) -> V:
        """Return the value at ``time``, inserting ``make()`` where there is none."""
        if time not in self._values:
            self._values[time] = make()
            self._times.add(time)
        return self._values[time]

    def is_next(self, time: T, frontier: Iterable[T]) -> bool:
        """Return whether nothing that ``frontier`` still allows goes before ``time``."""
        key = self._key(time)
        return all(key <= self._key(other) for other in frontier)

    def take(self, due: Callable[[T], bool]) -> Iterator[tuple[T, V]]:
        """Remove and yield the first time and its value, for as long as it is due.

        ``TimestampError`` for two different times with equal keys: the result would depend on which came first.
        """
        while self._times and due(self._times[0]):
            time = self._times.pop(0)
            key = self._key(time)
            if self._last is not None and self._last[0] == key and self._last[1] != time:
                raise TimestampError(
                    f"operator {self._info.name!r} ({self._info.path}): sort_key() is the same for {brief(self._last[1])} and"
                    f" {brief(time)}, so it is not known which goes first: it must tell every two times apart"
                )
            self._last = (key, time)
            yield time, self._values.pop(time)
