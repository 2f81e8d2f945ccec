"""Ordinary functions as coroutines: each has a thread of its own, as it may wait anywhere, and only one runs at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class CoroutineExit(BaseException):
    """Raised inside a function that is to end; no ``Exception``, so that a program does not catch it."""


class Coroutine:
    """One function that pauses and is resumed."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self.started = False
        self.ended = False
        self._closed = False
        self._work = work
        self._resumed = threading.Lock()
        self._paused = threading.Lock()
        self._resumed.acquire()
        self._paused.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def resume(self) -> None:
        """Run the function until it pauses or ends."""
        if not self.started:
            self.started = True
            self._thread.start()
        self._resumed.release()
        self._paused.acquire()
        if self.ended:
            self._thread.join()

    def pause(self) -> None:
        """Return control to the caller of :meth:`resume`; called by the function itself."""
        if not self._closed:
            self._paused.release()
            self._resumed.acquire()
        if self._closed:
            raise CoroutineExit

    def close(self) -> None:
        """End the function where it stands; its ``finally`` clauses run."""
        self._closed = True
        if self.started and not self.ended:
            self.resume()

    def _run(self) -> None:
        self._resumed.acquire()
        try:
            self._work()
        except CoroutineExit:
            pass
        finally:
            self.ended = True
            self._paused.release()
