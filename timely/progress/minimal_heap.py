"""``MinimalHeap``: the minimal elements of a large, changing set of partially ordered times.

A pairing heap (Fredman et al. 1986) with several roots, which asks for ``<=`` alone. The roots are incomparable, so the minimal
members are among them. Few times are faster compared directly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from timely.order import PartialOrder, beyond, less_equal, reaches

T = TypeVar("T", bound=PartialOrder)

FEW: Final = 6
"""Up to this number of partially ordered times, comparing all is faster than a heap."""


class MinimalHeap(Generic[T]):
    """A heap of times; the caller keeps the counts.

    To add a time costs up to two comparisons for each minimal time. A minimal time that goes costs a pairing of its children:
    logarithmic on average where times are totally ordered.

    >>> from timely.order import Product
    >>> heap = MinimalHeap([Product(0, 1), Product(1, 0), Product(1, 1)])
    >>> counts = {Product(0, 1): 1, Product(1, 0): 1, Product(1, 1): 1}
    >>> heap.minimum(counts)
    ((0, 1), (1, 0))
    >>> del counts[Product(0, 1)], counts[Product(1, 0)]
    >>> heap.minimum(counts), len(heap)
    (((1, 1),), 1)
    """

    __slots__ = ("_children", "_roots")

    def __init__(self, times: Iterable[T] = ()) -> None:
        self._children: dict[T, list[T]] = {}
        self._roots: dict[T, None] = {}
        for time in times:
            self.add(time)

    def __len__(self) -> int:
        return len(self._children)

    def add(self, time: T) -> None:
        """Make ``time`` a member."""
        if time not in self._children:
            self._children[time] = []
            self._insert(time)

    def minimum(self, counts: dict[T, int], changed: list[T] | None = None) -> tuple[T, ...]:
        """Return the minimal members of positive count. Members found with another count are removed.

        ``changed`` has all members whose counts have become positive, or ceased to be, since the last call; None: any may have.
        """
        roots = self._roots
        gone = [time for time in (roots if changed is None else changed) if time in roots and counts.get(time, 0) <= 0]
        while gone:
            time = gone.pop()
            if time in roots:
                del roots[time]
                for child in self._paired(self._children.pop(time)):
                    self._insert(child)
                    if counts.get(child, 0) <= 0:
                        gone.append(child)
        return tuple(roots)

    def _insert(self, time: T) -> None:
        """Insert a time without a parent below a root, or as one."""
        roots = list(self._roots)
        if reaches(roots, time):
            for root in roots:
                if less_equal(root, time):
                    self._children[root].append(time)
                    return
        for root in beyond(roots, time):
            self._children[time].append(root)
            del self._roots[root]
        self._roots[time] = None

    def _paired(self, times: list[T]) -> list[T]:
        """Merge times two by two, and return those without a parent."""
        left: list[T] = times[len(times) & ~1 :]
        for i in range(1, len(times), 2):
            first, second = times[i - 1], times[i]
            if first <= second:
                self._children[first].append(second)
                left.append(first)
            elif second <= first:
                self._children[second].append(first)
                left.append(second)
            else:
                left += (first, second)
        return left
