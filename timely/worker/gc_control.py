"""Python's cyclic garbage collector: when it pauses, when its full collections wait, and what looks for garbage before a stall.

The collector is one for the whole process. Invariant: what is changed of it is as before afterwards, on any threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

R = TypeVar("R")

_GENERATIONS: Final = "free-threading build" not in sys.version
"""Whether Python's collector has generations. That of free-threaded Python collects everything, whichever is asked for."""

_LEAST: Final = 100_000
"""Objects too few to be moved."""

_NEVER: Final = 1 << 30
"""More collections than ever come between two full ones."""

_OVERDUE: Final = 10
"""How many times as late as usual a full collection may be after a pause."""

_TRIES: Final = 1000
"""How often to try to collect, with a millisecond in between, while another thread does."""


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
    large loads. The thread that raised the limit lowers it, unless limits were set meanwhile. So other threads do not prolong it,
    and garbage is found in between: what is long overdue comes at the end.
    """
    young, middle, old = gc.get_threshold()
    if not _GENERATIONS or old >= _NEVER:
        return work(*arguments)
    gc.set_threshold(young, middle, old + _NEVER)
    try:
        return work(*arguments)
    finally:
        young, middle, raised = gc.get_threshold()
        if raised >= _NEVER:
            old = raised - _NEVER
            gc.set_threshold(young, middle, old)
            count, _, due = gc.get_count()
            if due > _OVERDUE * old and due != _SHARED.offered and young > 0 and gc.isenabled():
                _SHARED.offered = due  # if Python finds that too little has come, it is asked again when more has
                _ = [set() for _ in range(young - count + 1)]  # it decides after so many; lists are used again, and do not count


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
    with _SHARED.lock, unfrozen() if times_frozen() != since else contextlib.nullcontext():
        for _ in range(_TRIES):
            cycle: list[Any] = []
            cycle.append(cycle)
            del cycle  # there is garbage now, so that a collection finds some
            if gc.collect():
                break
            time.sleep(0.001)  # another thread collects, and may not have called all finalizers


class _Shared:
    """What a process has one of: how many pause Python's own collections, and how often something was frozen."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: garbage that is collected may end a pause
        self._paused = 0
        self._enabled = False
        self.times_frozen = 0
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

    def freeze(self) -> None:
        """Freeze what is alive, objects of a run too: who looks for their garbage has to unfreeze them."""
        self.times_frozen += 1
        gc.freeze()


_SHARED: Final = _Shared()


def _after_fork() -> None:
    """Replace the lock in a forked process: a thread of the parent may hold it."""
    _SHARED.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
