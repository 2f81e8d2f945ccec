"""``SyncActivator``: what another thread rings to have something done on a worker's thread.

A dataflow belongs to the thread of its worker, and nothing in it may be touched from another. A bell may: it is rung from any
thread, wakes the worker if that waits, and is answered between two steps, once for all the times it was rung since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SyncActivatorHost(Protocol):
    """Where bells are heard: a worker."""

    def hear(self, bell: SyncActivator, /) -> None:
        """Take note, from any thread, that a bell was rung, and wake the worker if it waits."""


class SyncActivator:
    """Has ``answer()`` called on the worker's thread soon after it was rung.

    ``expected`` says that somebody outside may still ring it, so that the worker waits where nothing else can happen any more.
    """

    __slots__ = ("_answer", "_bells", "_rung", "expected")

    def __init__(self, answer: Callable[[], None], bells: SyncActivatorHost) -> None:
        self.expected = False
        self._answer = answer
        self._bells = bells
        self._rung = False

    def ring(self) -> None:
        """Ring it, from any thread."""
        if not self._rung:
            self._rung = True
            self._bells.hear(self)

    def answer(self) -> None:
        """Do what it was rung for; the worker calls this. Whoever rings from now on is answered anew."""
        self._rung = False
        self._answer()
