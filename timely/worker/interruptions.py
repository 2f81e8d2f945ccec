"""Interruptions that come while a process forks.

What a signal's handler raises while Python does what is registered to be done around a fork is printed and swallowed, and
the rest of that is left out: the interruption is lost, and the lock of ``logging`` is held for ever, say. So the handlers are
set aside around a fork, in the parent and in the child, and what came meanwhile is raised again after it, in whichever process
it came to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self


class SetAside:
    """Sets the signals' handlers that are functions of Python's aside while it is entered, or until ``over`` is called in a fork.

    In a thread that is not the main one it does nothing, as no handler runs there.

    >>> heard = []
    >>> usual = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    >>> with SetAside():
    ...     signal.raise_signal(signal.SIGINT)
    ...     during = list(heard)
    >>> _ = signal.signal(signal.SIGINT, usual)
    >>> during, [signal.Signals(number).name for number in heard]
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
        self.over()

    def over(self) -> None:
        """Set the handlers up again, and have them hear of what came to this process meanwhile, each once."""
        with contextlib.ExitStack() as stack:  # one that raises keeps none of the others from it
            while self._handlers:
                number, handler = self._handlers.popitem()
                signal.signal(number, handler)
                if (os.getpid(), number) in self._came:
                    stack.callback(signal.raise_signal, number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((os.getpid(), number))
