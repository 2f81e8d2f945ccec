"""``MemoryWatch``: ends a run in which workers hold more than their process may take, before the kernel kills it.

While the process occupies less, a worker reads its size about every ten milliseconds, and counts nothing. Beyond the budget, or
near the end of what the system has, it measures what all workers of the process hold. Invariant: results do not depend on it.
"""

from __future__ import annotations

import gc
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from timely.errors import OUT_OF_MEMORY, ErrorSubject, OutOfMemoryError, brief
from timely.memory.budget import MemoryBudget, resident
from timely.memory.limits import return_freed_memory, size_text, system_memory_left

_INTERVAL: Final = 0.01
"""Seconds between two looks at the size of the process."""

_RESERVE: Final = 64 << 20
"""Bytes that the system has left when a run is ended, or an eighth of what it had at first, if that is less."""

_STALE: Final = 0.25
"""Seconds after which what the system has left is read again, if the process has grown."""

_GROWN: Final = 1 << 20
"""Bytes that are no growth yet."""

_PAUSE: Final = 3
"""How many times as long as it takes to measure nothing is measured again."""

_TRIES: Final = 3
"""How often to measure a worker that changes what is measured meanwhile."""


class Account(NamedTuple):
    """Approximate bytes and records held at one place of a worker, in total and per time.

    ``waits`` is a minimal time that the operator there waits for, if any.
    """

    place: str
    subject: ErrorSubject
    worker: int
    size: float
    records: float
    times: Mapping[Any, tuple[float, float]]
    waits: Sequence[Any] = ()


class MemoryWatch:
    """Ends a run whose workers hold more than the ``total`` of ``budget``, or whose process comes near what the system has left.

    One for each worker: ``accounts()`` returns what it holds. ``OutOfMemoryError`` names the place that holds most in the
    process, and the time.

    >>> hoard = ErrorSubject("operator", "hoard", "/dataflow0/hoard#1", "")
    >>> held = [Account("operator 'hoard'", hoard, 0, 3e7, 1e4, {7: (2e7, 8e3)})]
    >>> watch = MemoryWatch(MemoryBudget(total="1MB"), held.copy)
    >>> watch.look()
    Traceback (most recent call last):
        ...
    timely.errors.OutOfMemoryError: the workers of this process hold about ... more than memory=1.0 MB. Most of it is...
    >>> held.clear()
    """

    def __init__(self, budget: MemoryBudget, accounts: Callable[[], Iterable[Account]]) -> None:
        self._process = _Process.current()
        self._budget = budget
        self._total = math.inf if budget.total is None else budget.total
        self._accounts = accounts
        self.raised: OutOfMemoryError | None = None
        """The error that says who holds most already."""
        self._process.add(self)

    def look(self) -> float:
        """Look whether memory is short; return when to look again, by ``time.perf_counter``."""
        if self._budget.total == math.inf:
            return math.inf
        size, now = resident(), perf_counter()
        short = self._process.is_short(size, now)
        if short or (size > self._total and self._budget.is_unmeasured(size, now)):
            self._measure(short)
        return now + _INTERVAL

    def accounts(self) -> list[Account]:
        """Return what this worker holds; nothing if it changes too fast."""
        for _ in range(_TRIES):
            try:
                return list(self._accounts())
            except RuntimeError:  # another thread measures it, and it runs
                pass
        return []

    def _measure(self, short: bool) -> None:
        """Raise ``OutOfMemoryError`` if memory is still short without garbage, or workers hold more than they may."""
        process = self._process
        if not process.measuring.acquire(blocking=False):
            return  # another worker does it
        try:
            begun = perf_counter()
            gc.collect()  # not what is frozen: in a forked process that would copy pages
            return_freed_memory()
            size = resident()
            if short and process.is_short(size, perf_counter()):
                why = f"this process has {size_text(size)}, and the system has {size_text(process.left)} left for it"
            elif size > self._total:
                why = f"more than memory={size_text(self._total)}"
                short = False
            else:
                return
            accounts = process.accounts()
            held = min(sum(account.size for account in accounts), size)
            now = perf_counter()
            self._budget.note_measured(size, held, now + _PAUSE * (now - begun))
            if short or held > self._total:
                self.raised = _out_of_memory(f"the workers of this process hold about {size_text(held)}, {why}", accounts)
                raise self.raised
        finally:
            process.measuring.release()


def _out_of_memory(text: str, accounts: Sequence[Account]) -> OutOfMemoryError:
    if not any(account.size for account in accounts):
        return OutOfMemoryError(f"{text}. {OUT_OF_MEMORY}")
    most = max(accounts, key=lambda account: account.size)
    advice = "Have times complete sooner (advance or close the inputs), or use finer ones. " if most.times or most.waits else ""
    subject = most.subject
    return OutOfMemoryError(f"{text}. {held_most(accounts)}. {advice}{OUT_OF_MEMORY}", subject.name, subject.path, most.worker)


def held_most(accounts: Sequence[Account]) -> str:
    """Return, for an error, which place holds most, and at which time; "" if nothing is held.

    >>> hoard = ErrorSubject("operator", "hoard", "/dataflow0/hoard#1", "program.py:3")
    >>> held_most([Account("operator 'hoard'", hoard, 0, 3e7, 1e4, {7: (2e7, 8e3)})])[:71]
    "Most of it is held by operator 'hoard' on worker 0: about 29 MB in 10,0"
    """
    if not any(account.size for account in accounts):
        return ""
    place, subject, worker, size, records, times, waits = max(accounts, key=lambda account: account.size)
    text = f"Most of it is held by {place} on worker {worker}: about {_amount(size, records)}"
    if times:
        time = max(times, key=lambda time: times[time][0])
        part = times[time]
        text += f" at time {brief(time)}" if part[0] > 0.99 * size else f", of it {_amount(*part)} at time {brief(time)}"
    elif waits:
        text += f", while it waits for time {brief(waits[0])}"
    return f"{text}; {subject.name!r} was built at {subject.built}" if subject.built else text


def _amount(size: float, records: float) -> str:
    return f"{size_text(size)} in {records:,.0f} records"


class _Process:
    """What all watches of one process share."""

    _current: _Process | None = None

    def __init__(self) -> None:
        self._number = os.getpid()
        self._lock = threading.Lock()
        self._watches: WeakSet[MemoryWatch] = WeakSet()
        self.measuring = threading.Lock()
        self.left = 0
        """What the system had left."""
        self._reserve = -1
        self._size = 0
        self._near = 0
        self._read = 0.0

    @classmethod
    def current(cls) -> _Process:
        if cls._current is None or cls._current._number != os.getpid():  # a forked process has its own memory
            cls._current = cls()
        return cls._current

    def add(self, watch: MemoryWatch) -> None:
        with self._lock:
            self._watches.add(watch)

    def accounts(self) -> list[Account]:
        with self._lock:
            watches = list(self._watches)
        return [account for watch in watches for account in watch.accounts()]

    def is_short(self, size: int, now: float) -> bool:
        """Return whether this process, of such a size, has grown and the system has next to nothing left."""
        grown = size - self._size
        if 0 <= grown < _GROWN or (size < self._near and now - self._read < _STALE):
            return False
        left = system_memory_left()
        self._read = now
        if left is None:
            self._size = self._near = 1 << 62
            return False
        self.left = left
        if self._reserve < 0:
            self._reserve = min(_RESERVE, left // 8)
        short = left < self._reserve and grown > 0
        if not short:
            self._size, self._near = size, size + (left - self._reserve) // 4
        return short
