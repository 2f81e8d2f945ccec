"""``GarbageControl``: Python's cyclic garbage collector runs between the steps of a worker, and mostly while it waits.

Python's own full collections take tenths of a second with millions of objects. Here the young generations are collected between
steps, and survivors are frozen (``gc.freeze``) until as much again has come. Free-threaded Python has one generation only: all
is collected when as much again has come. Invariant: memory stays bounded by a small multiple of what is alive, and leaving
restores everything.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

R = TypeVar("R")

_GENERATIONS: Final = "free-threading build" not in sys.version
"""Whether Python's collector has generations. That of free-threaded Python collects everything, whichever is asked for."""

_BUSY: Final = 1.0
_IDLE: Final = 0.5
"""How much may have come since the last full collection, as a part of what was alive then."""

_LEAST: Final = 100_000
"""Objects too few for a full collection, or to be moved."""

_NEVER: Final = 1 << 30
"""More collections than ever come between two full ones."""

_OVERDUE: Final = 10
"""How many times as late as usual a full collection may be after a pause."""

_TRIES: Final = 1000
"""How often to try to collect, with a millisecond in between, while another thread does."""


class GarbageControlled(Protocol):
    """A worker."""

    gc_control: GarbageControl | None


class GarbageControl:
    """A context manager for the time in which ``worker`` runs, after its data has been set up.

    For programs that wait for single results and hold many objects; elsewhere it gains nothing. The collector is one for the
    whole process: all workers that are threads should enter one. ``gc.collect()`` may be called as usual.

    >>> import gc, timely
    >>> def program(worker):
    ...     table = {number: [number] for number in range(1000)}
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream(range(3)).map(table.get).capture()
    ...     with timely.worker.GarbageControl(worker):
    ...         worker.run()
    ...         return seen.extract(), gc.isenabled()
    >>> timely.execute(program), gc.isenabled()
    ([([(0, [[0], [1], [2]])], False)], True)
    """

    def __init__(self, worker: GarbageControlled) -> None:
        self._worker = worker
        self._outer: GarbageControl | None = None

    def __enter__(self) -> Self:
        _SHARED.enter()
        self._outer, self._worker.gc_control = self._worker.gc_control, self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._worker.gc_control = self._outer
        _SHARED.leave()

    def between(self) -> None:
        """Collect what Python would have collected by now. The worker calls it between two steps."""
        young, middle, old = gc.get_count()
        limits = gc.get_threshold()
        if not _GENERATIONS:
            if limits[0] > 0:
                _SHARED.collect_grown(_BUSY)
        elif young > limits[0] > 0:
            if old > limits[2] and middle > limits[1]:
                _SHARED.collect_all(_BUSY)
            else:
                gc.collect(1 if middle > limits[1] else 0)

    def idle(self) -> None:
        """Collect all that is not frozen. The worker calls it before it waits."""
        if not _GENERATIONS:
            _SHARED.collect_grown(_IDLE)
        elif gc.get_count()[2]:
            _SHARED.collect_all(_IDLE)


@contextlib.contextmanager
def collector_paused(*, stays: bool = True) -> Iterator[None]:
    """Pause the collector, for a block whose objects nearly all stay, or else nearly none of them."""
    _SHARED.pause()
    try:
        yield
    finally:
        _SHARED.resume(stays)


def without_full_collections(work: Callable[..., R], *arguments: Any) -> R:
    """Return ``work(*arguments)``; meanwhile Python collects young objects only.

    For work whose objects mostly stay: each full collection on the way goes through all of them, which took half of the time of
    large loads. The thread that raised the limit lowers it. So other threads do not prolong it, and garbage is found in between.
    """
    young, middle, old = gc.get_threshold()
    if not _GENERATIONS or old >= _NEVER:
        return work(*arguments)
    gc.set_threshold(young, middle, old + _NEVER)
    try:
        return work(*arguments)
    finally:
        _lower_limit()


def _lower_limit() -> None:
    """Put the limit of full collections back, unless limits were set meanwhile. What is long overdue comes now."""
    young, middle, old = gc.get_threshold()
    if old < _NEVER:
        return
    old -= _NEVER
    gc.set_threshold(young, middle, old)
    count, _, due = gc.get_count()
    if due > _OVERDUE * old and due != _SHARED.offered and young > 0 and gc.isenabled():
        _SHARED.offered = due  # if Python finds that too little has come, it is asked again when more has
        _ = [set() for _ in range(young - count + 1)]  # it decides when so many are made; lists are used again, and do not count


@contextlib.contextmanager
def unfrozen() -> Iterator[None]:
    """Unfreeze for the block; after it everything alive is frozen again."""
    with _SHARED.lock:
        frozen = gc.get_freeze_count() > 0
        if frozen:
            gc.unfreeze()
        try:
            yield
        finally:
            if frozen:
                _SHARED.freeze()


def times_frozen() -> int:
    """Return how often this module has frozen what was alive."""
    return _SHARED.times_frozen


def find_garbage(since: int) -> None:
    """Collect what is not frozen; frozen objects too, if this module has frozen any since ``times_frozen`` was ``since``.

    What the program froze, or a process when it was forked, stays so: it is mostly older than the run, and there may be millions.
    """
    with _SHARED.lock, unfrozen() if _SHARED.has_frozen(since) else contextlib.nullcontext():
        for _ in range(_TRIES):
            cycle: list[Any] = []
            cycle.append(cycle)
            del cycle  # there is garbage now, so that a collection finds some
            if gc.collect():
                break
            time.sleep(0.001)  # another thread collects, and may not have called all finalizers


class _Shared:
    """What a process has one of: how many pause Python's own collections, how many controls are entered, and what is frozen."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: a collected generator may leave its control
        self._paused = 0
        self._enabled = False
        self._inside = 0
        self._frozen = False
        self.times_frozen = 0
        self._alive = 0
        self._fresh = 0
        self._counted = 0
        self._moved_after = -1
        self.offered = 0

    def pause(self) -> None:
        """Pause Python's automatic collection until as many have resumed as have paused it, on any threads."""
        with self.lock:
            if self._paused == 0:
                self._enabled = gc.isenabled()
            self._paused += 1
            gc.disable()

    def resume(self, stays: bool = False) -> None:
        """Let Python collect as it did before the first pause, if this was the last. Nearly all that is new ``stays``, or not."""
        with self.lock:
            self._paused -= 1
            if self._paused == 0 and self._enabled:
                if stays and _GENERATIONS:
                    self._grow_old()
                gc.enable()

    def _grow_old(self) -> None:
        """Move many new objects to the oldest generation, unvisited: the next collection of the youngest would go through all.

        Without that, closing a dataflow of 10,000 operators took four times as long. Python does not count what is moved, so
        that it would never look for garbage there if each of many dataflows was: once between two full collections.
        """
        collections = gc.get_stats()[2]["collections"]
        if gc.get_count()[0] < _LEAST or collections == self._moved_after:
            return
        self._moved_after = collections
        if not gc.get_freeze_count():  # it counts one by one; to unfreeze would take in what others froze
            gc.freeze()
            gc.unfreeze()

    def enter(self) -> None:
        """Take over from Python if this is the first control."""
        with self.lock:
            self.pause()
            self._inside += 1
            if self._inside == 1:
                self._frozen = gc.get_freeze_count() > 0
                gc.collect()
                self._settle()

    def freeze(self) -> None:
        """Freeze what is alive, objects of a run too: who looks for their garbage has to unfreeze them."""
        self.times_frozen += 1
        gc.freeze()

    def has_frozen(self, since: int) -> bool:
        """Return whether something was frozen here since ``times_frozen`` was ``since``, or a control is entered."""
        return self._inside > 0 or self.times_frozen != since

    def leave(self) -> None:
        """Restore everything if this was the last control."""
        with self.lock:
            self._inside -= 1
            if self._inside == 0 and _GENERATIONS:
                gc.unfreeze()
                if self._frozen:
                    self.freeze()
            self.resume()

    def collect_grown(self, part: float) -> None:
        """Collect everything if what has come since the last time, less what has gone, is ``part`` of what was alive."""
        if self._has_grown(part):
            with self.lock:
                if self._has_grown(part):  # no other thread was faster
                    gc.collect()
                    self._settle()

    def _has_grown(self, part: float) -> bool:
        return gc.get_count()[0] - self._counted > part * max(self._alive, _LEAST)

    def collect_all(self, part: float) -> None:
        """Collect what is not frozen and freeze what survives; collect everything if that is ``part`` of what was alive."""
        with self.lock:
            gc.collect()
            self._fresh += len(gc.get_objects(2))
            if self._fresh > part * max(self._alive, _LEAST):
                gc.unfreeze()
                gc.collect()
                self._settle()
            else:
                self.freeze()

    def _settle(self) -> None:
        """Count what a full collection has left, and freeze it where that spares the next ones work."""
        self._alive, self._fresh = len(gc.get_objects(2)), 0
        self._counted = gc.get_count()[0]  # below 0 where what was collected is subtracted after a new beginning
        if _GENERATIONS:
            self.freeze()


_SHARED: Final = _Shared()


def _after_fork() -> None:
    """Replace the lock in a forked process: a thread of the parent may hold it."""
    _SHARED.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
