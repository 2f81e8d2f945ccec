"""``GarbageControl``: has Python look for cyclic garbage between the steps of a worker, and mostly where nothing waits for it.

What keeps track of progress leaves no garbage that only the collector finds, but a program's records and state make Python run it
all the same, in the middle of anything, and now and then over everything that is alive: tenths of a second where that is millions
of objects. With this the young generations are looked at between steps, as often as Python would; and what has survived is *set
aside* (``gc.freeze``), so that it is not looked at again until as much again has come. The invariant: memory is bounded as it is
without, by a small multiple of what is alive, if steps are; and when the last one is left, all is as it was. A caller opts in,
since the collector is one for the whole process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from timely.worker.worker import Worker

_BUSY: Final = 1.0
_IDLE: Final = 0.5
"""How much may have been set aside since everything was last looked at, as a part of what was then alive."""

_LEAST: Final = 100_000
"""Objects that are too few to be looked at for that."""


class GarbageControl:
    """A context manager for the time in which ``worker`` runs, after its data has been set up.

    It is for programs that wait for single results, and hold many objects. Elsewhere it gains nothing. Workers that are threads
    of one process share it: all of them should enter one. ``gc.collect()`` may be called as ever. Where something had been set
    aside before, all that is alive is when the last one is left.

    >>> import gc, timely
    >>> def program(worker):
    ...     table = {number: [number] for number in range(1000)}
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream(range(3)).map(table.get).capture()
    ...     with timely.worker.GarbageControl(worker):
    ...         worker.run()
    ...         return seen.extract(), gc.isenabled()
    >>> timely.execute(program), gc.isenabled(), gc.get_freeze_count()
    ([([(0, [[0], [1], [2]])], False)], True, 0)
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._outer: GarbageControl | None = None

    def __enter__(self) -> Self:
        _SHARED.enter()
        self._outer, self._worker.collector = self._worker.collector, self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._worker.collector = self._outer  # which still needs somebody to look
        _SHARED.leave()

    def between(self) -> None:
        """Look at what Python would have looked at by now. The worker calls it between two steps."""
        young, middle, old = gc.get_count()
        limits = gc.get_threshold()
        if young > limits[0] > 0:
            if old > limits[2] and middle > limits[1]:
                _SHARED.collect_all(_BUSY)
            else:
                gc.collect(1 if middle > limits[1] else 0)

    def idle(self) -> None:
        """Look at all that is not set aside. The worker calls it before it waits."""
        if gc.get_count()[2]:
            _SHARED.collect_all(_IDLE)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector from looking, again and again, at what is being built: nearly all of that stays.

    >>> with collector_paused():
    ...     paused = gc.isenabled()
    >>> paused, gc.isenabled()
    (False, True)
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def everything_in_sight() -> Iterator[None]:
    """Have the garbage collector know of what was set aside, too; behind the block all that is alive is set aside again."""
    with _SHARED.lock:
        aside = gc.get_freeze_count() > 0
        if aside:
            gc.unfreeze()
        try:
            yield
        finally:
            if aside:
                gc.freeze()


def find_garbage() -> None:
    """Look once for all that nothing refers to any more, also among what was set aside."""
    with everything_in_sight():
        gc.collect()


class _Shared:
    """What the collectors of a process have in common: how many there are, and what is set aside."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # what is collected may be about to leave, such as a program that was never resumed
        self._inside = 0
        self._enabled = False
        self._frozen = False
        self._alive = 0
        self._fresh = 0

    def enter(self) -> None:
        """Take over, if nobody has yet, and set aside what is there."""
        with self.lock:
            self._inside += 1
            if self._inside == 1:
                self._enabled = gc.isenabled()
                self._frozen = gc.get_freeze_count() > 0
                gc.disable()
                gc.collect()
                self._set_aside()

    def leave(self) -> None:
        """Have everything be as it was, if nobody needs it otherwise."""
        with self.lock:
            self._inside -= 1
            if self._inside == 0:
                gc.unfreeze()
                if self._frozen:
                    gc.freeze()
                if self._enabled:
                    gc.enable()

    def collect_all(self, part: float) -> None:
        """Look at all that is not set aside, and set aside what survives; and at everything if that is a ``part`` again."""
        with self.lock:
            gc.collect()
            self._fresh += len(gc.get_objects(2))
            if self._fresh > part * max(self._alive, _LEAST):
                gc.unfreeze()
                gc.collect()
                self._set_aside()
            else:
                gc.freeze()

    def _set_aside(self) -> None:
        """Set aside all that is alive."""
        self._alive, self._fresh = len(gc.get_objects(2)), 0
        gc.freeze()


_SHARED: Final = _Shared()


def _after_fork() -> None:
    """Have a lock of one's own in a process that was forked: whoever held the other one then is no thread of it."""
    _SHARED.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
