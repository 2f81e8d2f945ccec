"""``ActivationQueue``: which numbers run, in ascending order, each at most once in a pass.

A number that is added during a pass belongs to it if it is still ahead, and to the next one otherwise.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_push: Final = heappush  # compiled code looks up an imported name at each use, and a constant once
_pop: Final = heappop


class ActivationQueue:
    """A queue of numbers; ``ready`` is true while the pass has one left, ``waits[n]`` says whether ``n`` is in the queue.

    >>> queue = ActivationQueue()
    >>> for _ in range(4):
    ...     _ = queue.grow()
    >>> queue.add(1)
    >>> while queue.ready:
    ...     print(queue.take())
    ...     queue.add(2)
    1
    2
    >>> queue.end_pass(), queue.ready  # 2 was added again after its turn
    (True, [2])
    """

    __slots__ = ("_at", "_later", "ready", "waits")

    def __init__(self) -> None:
        self.ready: list[int] = []  # a heap
        self.waits: list[bool] = []
        self._later: list[int] = []
        self._at = -1

    def grow(self) -> int:
        """Add one more number to the range, and return it."""
        self.waits.append(False)
        return len(self.waits) - 1

    def add(self, number: int) -> None:
        """Put a number in the queue, unless it is there."""
        if not self.waits[number]:
            self.waits[number] = True
            if number <= self._at:
                self._later.append(number)
            elif self.ready:
                _push(self.ready, number)
            else:
                self.ready.append(number)  # usual: there is nothing to order

    def take(self) -> int:
        """Return, and remove, the first number left in this pass; there must be one."""
        ready = self.ready
        number = self._at = ready.pop() if len(ready) == 1 else _pop(ready)
        self.waits[number] = False
        return number

    def remove(self, number: int) -> None:
        """Remove a number if it is in the queue."""
        if self.waits[number]:
            self.waits[number] = False
            if number in self._later:
                self._later.remove(number)
            elif number == self.ready[0]:  # usual: numbers are run or dropped in order
                _pop(self.ready)
            else:
                self.ready.remove(number)
                heapify(self.ready)

    def end_pass(self) -> bool:
        """End a pass in which nothing is left; return whether the next one has anything."""
        self._at = -1
        later = self._later
        if later:
            self.ready, self._later = later, self.ready
            if len(later) > 1:
                heapify(later)
            return True
        return bool(self.ready)
