"""``Pending``: what an operator keeps for each time until that time has come.

The invariant: what is taken out comes in an order that never puts a later time before an earlier one, each once. What cannot
be taken yet is not looked at one by one: a time that is not due shields all that are beyond it. So a caller may keep very many
times and ask again at every move of a frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from timely.order import PartialOrder, linear_extension
from timely.progress import MinimalHeap

T = TypeVar("T", bound=PartialOrder)
V = TypeVar("V")


class Pending(Generic[T, V]):
    """Values by time: ``pending[time] = value``, and ``take(due)`` for those whose time has come.

    To put one in takes as many comparisons as there are minimal times; so does asking when nothing is due.

    >>> pending = Pending()
    >>> for time in (7, 3, 5, 9):
    ...     pending[time] = str(time)
    >>> [value for time, value in pending.take(lambda time: time < 6)], len(pending)
    (['3', '5'], 2)
    """

    __slots__ = ("_forest", "_fresh", "_planted", "_values")

    def __init__(self) -> None:
        self._values: dict[T, V] = {}
        self._fresh: list[T] = []  # times that came since the forest was last looked at: mostly there is one, and it goes at once
        self._planted: dict[T, int] = {}
        self._forest: MinimalHeap[T] = MinimalHeap()

    def __setitem__(self, time: T, value: V) -> None:
        if time not in self._values:
            self._fresh.append(time)
        self._values[time] = value

    def __getitem__(self, time: T) -> V:
        return self._values[time]

    def __contains__(self, time: object) -> bool:
        return time in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        """Return the times, earlier ones first."""
        return iter(linear_extension(self._values))

    def get(self, time: T, default: V) -> V:
        """Return the value at ``time``, or ``default`` where there is none."""
        return self._values.get(time, default)

    def at(self, time: T, make: Callable[[], V]) -> V:
        """Return the value at ``time``; where there is none yet, ``make()`` is put there."""
        if time not in self._values:
            self[time] = make()
        return self._values[time]

    def minimum(self) -> tuple[T, ...]:
        """Return the minimal times."""
        for time in self._fresh:
            if time in self._values:
                self._forest.add(time)
                self._planted[time] = 1
        self._fresh.clear()
        return self._forest.minimum(self._planted)

    def has_due(self, due: Callable[[T], bool]) -> bool:
        """Return whether ``take(due)`` would give anything."""
        return any(due(time) for time in self.minimum())

    def take(self, due: Callable[[T], bool]) -> Iterator[tuple[T, V]]:
        """Remove and yield ``(time, value)`` for each time that is due, earlier ones first.

        ``due`` must hold of a time if it holds of a later one. What is put in meanwhile takes part.
        """
        values = self._values
        while values:
            if len(values) == 1:  # as it mostly is: then there is nothing to compare
                (time,) = values
                if not due(time):
                    return
                yield time, self.pop(time)
                continue
            ready = [time for time in self.minimum() if due(time)]
            if not ready:
                return
            for time in ready:
                if time not in values:
                    break  # whoever was given the one before has taken more
                yield time, self.pop(time)
                if self._fresh:
                    break  # what was put in may come before the rest

    def pop(self, time: T) -> V:
        """Remove and return the value at ``time``."""
        value = self._values.pop(time)
        if self._planted:
            self._planted.pop(time, None)
        if not self._values:
            self._fresh.clear()
        return value
