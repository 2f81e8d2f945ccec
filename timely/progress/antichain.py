"""Antichains: frontiers of times, and minimal summaries of paths. Mutable ones are the frontiers of counts.

An antichain stands for everything at or beyond its elements; no element is less than or equal to another. Only ``<=`` and ``==``
are asked of the elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, SupportsIndex, TypeVar

from timely.errors import TimestampError
from timely.order import PartialOrder, linear_extension, reaches
from timely.progress.change_batch import ChangeBatch, whole_number

T = TypeVar("T", bound=PartialOrder)


class Antichain(Generic[T]):
    """A set of mutually incomparable elements (Naiad section 2.3), in insertion order, which ``==`` ignores.

    Every operation is linear in the number of elements. Do not change an antichain that is a key of a dictionary.

    >>> frontier = Antichain([3, 5, 2])
    >>> frontier, frontier.less_equal(2), frontier.less_than(2), len(Antichain())
    (Antichain([2]), True, False, 0)
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._elements: list[T] = []
        for element in elements:
            self.insert(element)

    def insert(self, element: T) -> bool:
        """Add ``element``, drop what it dominates, and return whether anything changed.

        >>> frontier: Antichain[int] = Antichain()
        >>> frontier.insert(2), frontier.insert(3), frontier.insert(1), frontier.elements
        (True, False, True, (1,))
        """
        elements = self._elements
        for other in elements:
            if other <= element:
                return False
        if elements:
            elements = [other for other in elements if not element <= other]
        elements.append(element)
        self._elements = elements
        return True

    def extend(self, elements: Iterable[T]) -> bool:
        """Insert each of ``elements``; return whether anything changed."""
        changed = False
        for element in elements:
            if self.insert(element):
                changed = True
        return changed

    def less_equal(self, time: T) -> bool:
        """Return whether an element is at or before ``time``: whether ``time`` may still appear."""
        return reaches(self._elements, time)

    def less_than(self, time: T) -> bool:
        """Return whether an element is strictly before ``time``."""
        for element in self._elements:
            if element <= time and element != time:
                return True
        return False

    @property
    def elements(self) -> tuple[T, ...]:
        """The elements, in the order of their insertion."""
        return tuple(self._elements)

    def as_option(self) -> T | None:
        """Return the only element, or None if there is none. ``TimestampError`` for several, which total orders never have."""
        if len(self._elements) > 1:
            raise TimestampError(f"{self!r} has more than one element; as_option() is for totally ordered times")
        return self._elements[0] if self._elements else None

    def clear(self) -> None:
        """Remove every element: nothing may appear any more."""
        self._elements = []

    def copy(self) -> Antichain[T]:
        """Return an independent copy."""
        return of_incomparable(self._elements)

    def beside(self, other: Antichain[T]) -> Antichain[T]:
        """Return the elements of both antichains, uncompared: the caller knows that they are incomparable."""
        return of_incomparable(self._elements + other._elements)

    def __le__(self, other: Antichain[T], /) -> bool:
        for element in other._elements:
            if not self.less_equal(element):
                return False
        return True

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, Antichain):
            return NotImplemented
        mine, theirs = self._elements, other._elements
        if len(mine) != len(theirs):
            return False
        for element in mine:
            if element not in theirs:
                return False
        return True

    def __hash__(self) -> int:
        return hash(frozenset(self._elements))

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __contains__(self, time: object) -> bool:
        return time in self._elements

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._elements!r})"


def of_incomparable(elements: Iterable[T]) -> Antichain[T]:
    """Return the antichain of elements of which the caller knows that they are incomparable.

    >>> of_incomparable([3])
    Antichain([3])
    """
    antichain: Antichain[T] = Antichain()
    antichain._elements = list(elements)
    return antichain


class MutableAntichain(Generic[T]):
    """A multiset of times with counts of either sign, and the frontier of those with a positive one (Naiad section 2.3).

    A worker may receive a consumption before the production, so counts may be negative for a while, and the frontier may retreat.

    >>> times = MutableAntichain([1])
    >>> times.update_iter([(1, -1), (2, 7)]), times.frontier
    ([(1, -1), (2, 1)], Antichain([2]))
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._counts: ChangeBatch[T] = ChangeBatch()
        self._frontier: Antichain[T] = Antichain()
        self.update_iter([(element, 1) for element in elements])

    def update_iter(self, changes: Iterable[tuple[T, SupportsIndex]]) -> list[tuple[T, int]]:
        """Apply ``changes`` and return those of the frontier, consolidated and in order: -1 for what left, +1 for what came.

        Linear in the changes and the frontier. ``ProgressError``, before anything changes, for a change that is no whole number.

        >>> times = MutableAntichain([5])
        >>> times.update_iter([(3, -1)]), times.update_iter([(3, 1)]), times.update_iter([(3, 1)])
        ([], [], [(3, 1), (5, -1)])
        """
        applied = [(time, diff if type(diff) is int else whole_number(diff)) for time, diff in changes]
        frontier = self._frontier
        rebuild = any(time in frontier if diff < 0 else not frontier.less_equal(time) for time, diff in applied)
        self._counts.extend(applied)
        try:
            return self._rebuild() if rebuild else []
        except (TypeError, ValueError):  # times that do not compare
            self._counts.extend([(time, -diff) for time, diff in applied])
            raise

    def _rebuild(self) -> list[tuple[T, int]]:
        """Replace the frontier, which callers may hold, by a new one, and return how it changed."""
        after = Antichain([time for time, count in self._counts if count > 0])
        changes: dict[T, int] = dict.fromkeys(self._frontier, -1)
        for time in after:
            if changes.pop(time, None) is None:
                changes[time] = 1
        self._frontier = after
        return [(time, changes[time]) for time in linear_extension(changes)]

    @property
    def frontier(self) -> Antichain[T]:
        """The minimal times with a positive count, as a copy."""
        return self._frontier.copy()

    def less_equal(self, time: T) -> bool:
        """Return whether an element of the frontier is at or before ``time``."""
        return self._frontier.less_equal(time)

    def less_than(self, time: T) -> bool:
        """Return whether an element of the frontier is strictly before ``time``."""
        return self._frontier.less_than(time)

    def is_empty(self) -> bool:
        """Return whether no time has a positive count."""
        return not self._frontier

    def count_for(self, time: T) -> int:
        """Return the count of ``time``, which may be negative."""
        return self._counts.counts.get(time, 0)

    def updates(self) -> list[tuple[T, int]]:
        """Return every time that has a count, with it."""
        return list(self._counts)

    def clear(self) -> None:
        """Remove all counts."""
        self._counts.clear()
        self._frontier = Antichain()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._counts.counts!r})"
