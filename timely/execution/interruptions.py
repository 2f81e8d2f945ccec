"""``DeferredSignals``: interruptions that come while a process forks are raised after the fork.

Python swallows what a signal handler raises inside its fork hooks, and skips the rest of them: the interruption would be lost,
and locks held forever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self


class DeferredSignals:
    """Replaces the signal handlers while it is entered, or until ``restore`` in a fork; only in the main thread, where they run.

    >>> received = []
    >>> usual = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    >>> with DeferredSignals():
    ...     signal.raise_signal(signal.SIGINT)
    ...     during = list(received)
    >>> _ = signal.signal(signal.SIGINT, usual)
    >>> during, [signal.Signals(number).name for number in received]
    ([], ['SIGINT'])
    """

    __slots__ = ("_came", "_handlers")

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in signal.valid_signals():
                if callable(handler := signal.getsignal(number)):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Restore the handlers, and raise each signal again that came to this process meanwhile."""
        with contextlib.ExitStack() as stack:  # all of them, even if one raises
            while self._handlers:
                number, handler = self._handlers.popitem()
                signal.signal(number, handler)
                if (os.getpid(), number) in self._came:
                    stack.callback(signal.raise_signal, number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((os.getpid(), number))
