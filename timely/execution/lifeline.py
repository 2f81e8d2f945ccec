"""``Lifeline``: the processes of a run end with the one that started them.

A pipe from the parent, to which nothing is written: it ends when the run is over or the parent is gone. A process then stops its
workers, those whose operators compute too, and exits hard after ``GRACE`` seconds. (``PR_SET_PDEATHSIG`` would react to the end
of the thread that forked.)
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from timely.dataflow import Operator
from timely.monitor.local_workers import LocalWorkers, Member

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

GRACE: Final = 10.0
"""Seconds that a process has for its clean-up after the run is over."""

PAUSE: Final = 0.3
"""Seconds in which an operator may end by itself."""


def interrupt_operators(local: LocalWorkers) -> None:
    """Raise ``KeyboardInterrupt`` in each thread of another worker of this process whose operator computes, once.

    No message reaches these. A call that is not Python's has to return first.
    """
    with contextlib.suppress(ImportError):  # some Pythons are built without it
        import ctypes

        for member in tuple(local.members):
            if member.thread not in (None, threading.get_ident()) and _computes(member):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(member.thread), ctypes.py_object(KeyboardInterrupt))


def _computes(member: Member) -> bool:
    children = (child.scope for scope in member.worker.scopes for nested in scope.scopes for child in nested.children)
    return any(isinstance(scope, Operator) and scope.running for scope in children)


class Lifeline:
    """A pipe whose end says that a run is over: ``reader`` for the processes, ``writer`` for the parent alone."""

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
