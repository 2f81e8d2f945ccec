"""Programs that take turns: each has a thread of its own, and exactly one of all of them runs at any time.

A program of a worker is an ordinary function that may wait in the middle of anything, so it needs a stack of its own; here that
is a thread, which does nothing until it is given its turn and gives it back when it pauses. The invariant: between ``turn``
and its return nothing else runs, so that what happens is a function of the order of the turns, whatever the interpreter does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class UnreferencedCapabilities(BaseException):
    """Raised inside a program that is not to go on; it derives from ``BaseException`` so that a program does not catch it."""


class Player:
    """One program, and its thread.

    >>> said = []
    >>> def work():
    ...     said.append("a")
    ...     player.pause()
    ...     said.append("b")
    >>> player = Player(work, "example")
    >>> player.turn()
    >>> said.append("-")
    >>> player.turn()
    >>> said, player.ended
    (['a', '-', 'b'], True)
    """

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self.started = False
        self.ended = False
        self._abandoned = False
        self._work = work
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._play, name=name, daemon=True)

    def turn(self) -> None:
        """Let the program run until it pauses or ends. To be called by whoever gives out the turns."""
        if not self.started:
            self.started = True
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self.ended:
            self._thread.join()

    def pause(self) -> None:
        """Give the turn back, and come back with the next one. To be called by the program itself."""
        if not self._abandoned:
            self._back.release()
            self._go.acquire()
        if self._abandoned:
            raise UnreferencedCapabilities

    def abandon(self) -> None:
        """Have the program end where it stands, with its ``finally`` clauses run."""
        self._abandoned = True
        if self.started and not self.ended:
            self.turn()

    def _play(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except UnreferencedCapabilities:
            pass
        finally:
            self.ended = True
            self._back.release()
