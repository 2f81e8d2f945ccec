"""``ActivationQueue``: which of a number of things are to be done, in the order of their numbers, pass by pass.

In one pass each number is taken at most once, in order. What is added while a pass goes on belongs to it if its turn is still to
come, and to the next one otherwise. The invariant: ``waits[n]`` says exactly whether ``n`` stands on the agenda, and it stands
there once. To add and to take cost nothing for all the numbers that have nothing to do.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_push: Final = heappush  # compiled, a name that was imported is looked up at each use, and a constant is not
_pop: Final = heappop


class ActivationQueue:
    """The numbers that are to be taken; ``ready`` is true while there is one left in this pass.

    >>> agenda = ActivationQueue()
    >>> for _ in range(4):
    ...     _ = agenda.grow()
    >>> agenda.add(1)
    >>> while agenda.ready:
    ...     print(agenda.take())
    ...     agenda.add(2)
    1
    2
    >>> agenda.end_pass(), agenda.ready, agenda.waits  # when it was added again, 2 had been taken
    (True, [2], [False, False, True, False])
    """

    __slots__ = ("_at", "_later", "ready", "waits")

    def __init__(self) -> None:
        self.ready: list[int] = []  # a heap
        self.waits: list[bool] = []
        self._later: list[int] = []
        self._at = -1

    def grow(self) -> int:
        """Have one more number, and return it."""
        self.waits.append(False)
        return len(self.waits) - 1

    def add(self, number: int) -> None:
        """Have a number taken, unless it is to be already."""
        waits = self.waits
        if not waits[number]:
            waits[number] = True
            ready = self.ready
            if number > self._at:
                if ready:
                    _push(ready, number)
                else:
                    ready.append(number)  # as mostly: then there is nothing to put in order
            else:
                self._later.append(number)

    def take(self) -> int:
        """Take the first number that is left in this pass; there must be one."""
        ready = self.ready
        number = self._at = ready.pop() if len(ready) == 1 else _pop(ready)
        self.waits[number] = False
        return number

    def remove(self, number: int) -> None:
        """Do not take a number after all."""
        if self.waits[number]:
            self.waits[number] = False
            if number in self._later:
                self._later.remove(number)
            elif number == self.ready[0]:  # as mostly: whoever runs or drops many goes by their numbers
                _pop(self.ready)
            else:
                self.ready.remove(number)
                heapify(self.ready)

    def end_pass(self) -> bool:
        """End a pass in which nothing is left to be taken; return whether there is something for the next one."""
        self._at = -1
        later = self._later
        if later:
            self.ready, self._later = later, self.ready
            if len(later) > 1:
                heapify(later)
            return True
        return bool(self.ready)
