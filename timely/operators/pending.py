"""``Pending``: values by time, until that time is due.

Invariant: no time is taken before an earlier one that is due, and each is taken once.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from heapq import heappop, heappush
from typing import Any, Generic

from timely.operators.type_variables import T, V
from timely.order import linear_extension
from timely.progress import MinimalHeap


class Pending(Generic[T, V]):
    """Values by time: ``pending[time] = value``, and ``take(due)`` for the times that are due.

    A time that is not due shields all beyond it: inserting, and finding nothing due, cost one comparison per minimal time.
    ``total`` is for times of which every two can be compared: a binary heap then.
    """

    __slots__ = ("_fresh", "_heap", "_members", "_sorted", "_total", "_values")

    def __init__(self, total: bool = False) -> None:
        self._total = total
        self._sorted: list[Any] = []
        self._values: dict[T, V] = {}
        self._fresh: list[T] = []  # not in the heap yet: usually there is one time, which never needs to be
        self._members: dict[T, int] = {}
        # Partial orders need the heap. A SortedDict needs 1.6 instead of 4 µs a total time; an epoch of delay_batch takes 18.
        self._heap: MinimalHeap[T] = MinimalHeap()

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

    def items(self) -> ItemsView[T, V]:
        """Return the times and their values, in no order."""
        return self._values.items()

    def get(self, time: T, default: V) -> V:
        return self._values.get(time, default)

    def at(self, time: T, make: Callable[[], V]) -> V:
        """Return the value at ``time``, inserting ``make()`` where there is none."""
        values = self._values
        if time in values:
            return values[time]
        self._fresh.append(time)
        value = values[time] = make()
        return value

    def minimum(self) -> tuple[T, ...]:
        """Return the minimal times."""
        if self._total:
            times, values = self._sorted, self._values
            for time in self._fresh:
                heappush(times, time)
            self._fresh.clear()
            while times and times[0] not in values:
                heappop(times)
            return (times[0],) if times else ()
        for time in self._fresh:
            if time in self._values:
                self._heap.add(time)
                self._members[time] = 1
        self._fresh.clear()
        return self._heap.minimum(self._members)

    def has_due(self, due: Callable[[T], bool]) -> bool:
        """Return whether ``take(due)`` would yield anything."""
        return any(due(time) for time in self.minimum())

    def take(self, due: Callable[[T], bool]) -> Iterator[tuple[T, V]]:
        """Remove and yield ``(time, value)`` for each time that is due, those inserted meanwhile included.

        Where ``due`` holds of a time, it must hold of the earlier ones.
        """
        values, times, fresh = self._values, self._sorted, self._fresh
        while self._total and values:
            if fresh or times[0] not in values:
                self.minimum()
            time = times[0]
            if not due(time):
                return
            heappop(times)
            yield time, values.pop(time)
        while values:
            if len(values) == 1:  # the usual case, which compares nothing
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
                    break  # the caller has taken more meanwhile
                yield time, self.pop(time)
                if self._fresh:
                    break  # what was inserted may come before the rest

    def pop(self, time: T) -> V:
        """Remove and return the value at ``time``."""
        value = self._values.pop(time)
        if self._members:
            self._members.pop(time, None)
        if not self._values:
            self._fresh.clear()
        return value
