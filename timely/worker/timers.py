"""``Timers``: what a worker does later, by a replaceable clock. Invariant: actions run once each, in the order they are due."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timers:
    """Actions by the moment they are due, in the seconds of ``clock()``, which never goes back."""

    __slots__ = ("_clock", "_number", "entries")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, action: Callable[[], None], owner: int) -> None:
        """Call ``action()`` after so many seconds, on behalf of ``owner``."""
        heapq.heappush(self.entries, (self._clock() + seconds, next(self._number), owner, action))

    def forget(self, owner: int) -> None:
        """Cancel all actions of ``owner``."""
        self.entries = [entry for entry in self.entries if entry[2] != owner]
        heapq.heapify(self.entries)

    def pause(self) -> float | None:
        """Return the seconds until something is due; ``None`` if nothing ever is."""
        return max(0.0, self.entries[0][0] - self._clock()) if self.entries else None

    def run_due(self) -> None:
        now = self._clock()
        while self.entries and self.entries[0][0] <= now:
            heapq.heappop(self.entries)[3]()
