"""``Lifeline``: the processes of a run end with the one that started them, however that one ends.

A pipe leads from the parent to all of its processes, and nothing is ever written to it. Its end is what they wait for: the
parent has ended it, since the run is over, or the system has, since the parent is gone. A process then stops its workers, and
exits hard if it is still there after ``GRACE`` seconds. A signal of the kernel at the parent's death (``PR_SET_PDEATHSIG``) would
come when the thread that forked ends. The invariant: only the parent holds the end that is written to.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

GRACE: Final = 10.0
"""Seconds that a process of a run that is over has for what it has to clear up."""


class Lifeline:
    """A pipe whose end says that a run is over; its ``reader`` is the processes', its ``writer`` the parent's alone.

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
        """When the processes should have ended, of a run that is over."""

    def end(self) -> None:
        """Have the processes end; their grace begins when this is called first."""
        if self.deadline is None:
            self.deadline = time.monotonic() + GRACE
            self.writer.close()

    def follow(self, stop: Callable[[], object]) -> None:
        """Have a thread of this process wait for the end, then ``stop()``, and exit hard after the grace."""
        threading.Thread(target=self._follow, args=(stop,), name="timely lifeline", daemon=True).start()

    def _follow(self, stop: Callable[[], object]) -> None:
        self.reader.poll(None)
        stop()
        time.sleep(GRACE)
        os._exit(1)
