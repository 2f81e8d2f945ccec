"""Mutable antichains: counts of times, and the frontier of the times with a positive count.

Counts may be negative for a while: a worker may receive a consumption before the production. The frontier may retreat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, SupportsIndex, TypeVar

from timely.order import PartialOrder, linear_extension
from timely.progress.antichain import Antichain
from timely.progress.change_batch import ChangeBatch
from timely.progress.count_sink import whole_number

T = TypeVar("T", bound=PartialOrder)


class MutableAntichain(Generic[T]):
    """A multiset of times with counts of either sign, and its frontier (Naiad section 2.3).

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
