"""``Lifeline``: the processes of a run end with the one that started them.

A pipe from the parent, to which nothing is written: it ends when the run is over or the parent is gone. A process then stops its
workers, those whose operators compute too, and exits hard after ``GRACE`` seconds. (``PR_SET_PDEATHSIG`` would react to the end
of the thread that forked.)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from timely.execution.computations import PAUSE

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

GRACE: Final = 10.0
"""Seconds that a process has for its clean-up after the run is over."""


class Lifeline:
    """A pipe whose end says that a run is over: ``reader`` for the processes, ``writer`` for the parent alone.

    >>> lifeline = Lifeline()
    >>> lifeline.deadline is None
    True
    >>> lifeline.end()
    >>> lifeline.reader.poll()
    True
    >>> lifeline.reader.close()
    """

    def __init__(self) -> None:
        from multiprocessing import Pipe

        self.reader, self.writer = Pipe(duplex=False)
        self.deadline: float | None = None
        """When the processes of a run that is over should have ended."""

    def end(self) -> None:
        """End the processes; the first call starts their grace."""
        if self.deadline is None:
            self.deadline = time.monotonic() + GRACE
            self.writer.close()


def follow(lifeline: Connection, stop: Callable[[], object], interrupt: Callable[[], object]) -> None:
    """Start a thread that waits for the end of a lifeline, calls ``stop()``, ``interrupt()``, and exits hard after the grace."""

    def wait() -> None:
        lifeline.poll(None)
        stop()
        time.sleep(PAUSE)
        interrupt()
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=wait, name="timely lifeline", daemon=True).start()
