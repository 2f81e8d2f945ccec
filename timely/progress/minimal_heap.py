"""The minimal elements of a large, changing set of partially ordered times.

Where times are totally ordered, a heap tells the least of many. A ``MinimalHeap`` does the same for a partial order
with ``<=`` alone: a pairing heap that may have several roots. The invariant: every member stands in the forest once,
below nothing that it is not beyond, and the roots are incomparable; so the minimal members are among the roots. Members
whose counts are not positive any more are noticed when they come to be roots. A caller says which times have come, and
gives the counts when it asks; for few times it is quicker to compare them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


class MinimalHeap(Generic[T]):
    """Times under which others stand that are beyond them (a pairing heap, Fredman et al. 1986, without a total order).

    To add a time takes as many comparisons as there are minimal times. A minimal time that goes leaves those that stood
    right under it, which are paired off: where times happen to be totally ordered, logarithmically many on average.

    >>> from timely.order import Product
    >>> forest = MinimalHeap([Product(0, 1), Product(1, 0), Product(1, 1)])
    >>> counts = {Product(0, 1): 1, Product(1, 0): 1, Product(1, 1): 1}
    >>> forest.minimum(counts)
    ((0, 1), (1, 0))
    >>> del counts[Product(0, 1)], counts[Product(1, 0)]
    >>> forest.minimum(counts), len(forest)
    (((1, 1),), 1)
    """

    __slots__ = ("_above", "_roots")

    def __init__(self, times: Iterable[T] = ()) -> None:
        self._above: dict[T, list[T]] = {}
        self._roots: list[T] = []
        for time in times:
            self.add(time)

    def __len__(self) -> int:
        return len(self._above)

    def add(self, time: T) -> None:
        """Make ``time`` a member, if it is not one yet."""
        if time not in self._above:
            self._above[time] = []
            self._plant(time)

    def minimum(self, counts: Mapping[T, int]) -> tuple[T, ...]:
        """Return the minimal members of positive count; what is not beyond any of these is a member no more."""
        while True:
            gone = [time for time in self._roots if counts.get(time, 0) <= 0]
            if not gone:
                return tuple(self._roots)
            self._roots = [time for time in self._roots if counts.get(time, 0) > 0]
            for root in gone:
                for time in self._paired(self._above.pop(root)):
                    self._plant(time)

    def _plant(self, time: T) -> None:
        """Put a time that stands under nothing under a root, or make it one."""
        for root in self._roots:
            if root <= time:
                self._above[root].append(time)
                return
        beyond = [root for root in self._roots if time <= root]
        if beyond:
            self._above[time].extend(beyond)
            self._roots = [root for root in self._roots if root not in beyond]
        self._roots.append(time)

    def _paired(self, times: list[T]) -> list[T]:
        """Compare times two by two, put the later one of each pair under the other, and return the rest."""
        left: list[T] = times[len(times) & ~1 :]
        for i in range(1, len(times), 2):
            first, second = times[i - 1], times[i]
            if first <= second:
                self._above[first].append(second)
                left.append(first)
            elif second <= first:
                self._above[second].append(first)
                left.append(second)
            else:
                left += (first, second)
        return left
