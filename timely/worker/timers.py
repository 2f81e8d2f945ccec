"""``Timers``: what a worker is to do later, by a clock that can be replaced.

A pure state machine around a heap: it never waits, and says how long a worker may wait until something is due. The invariant:
what is due is done in the order of the moments it was due at, once each. A caller asks ``pause()`` before it waits, and calls
``run_due()`` with every step.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timers:
    """What is to be done when, by ``clock()``, which gives seconds and never goes back.

    >>> now, done = [0.0], []
    >>> timers = Timers(lambda: now[0])
    >>> timers.after(2.0, lambda: done.append("later"), owner=0)
    >>> timers.after(0.5, lambda: done.append("soon"), owner=0)
    >>> timers.after(0.1, lambda: done.append("never"), owner=1)
    >>> timers.forget(1)
    >>> timers.run_due(), done, timers.pause(), len(timers)
    (None, [], 0.5, 2)
    >>> now[0] = 5.0
    >>> timers.pause(), timers.run_due(), done, timers.pause()
    (0.0, None, ['soon', 'later'], None)
    """

    __slots__ = ("_clock", "_number", "entries")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, action: Callable[[], None], owner: int) -> None:
        """Have ``action()`` called once so many seconds have passed; ``owner`` says on whose behalf."""
        heapq.heappush(self.entries, (self._clock() + seconds, next(self._number), owner, action))

    def forget(self, owner: int) -> None:
        """Forget what was to be done on behalf of ``owner``."""
        self.entries = [entry for entry in self.entries if entry[2] != owner]
        heapq.heapify(self.entries)

    def pause(self) -> float | None:
        """Return for how many seconds nothing is due; ``None`` if nothing ever is."""
        return max(0.0, self.entries[0][0] - self._clock()) if self.entries else None

    def run_due(self) -> None:
        """Do what is due."""
        now = self._clock()
        while self.entries and self.entries[0][0] <= now:
            heapq.heappop(self.entries)[3]()

    def __len__(self) -> int:
        return len(self.entries)
