"""``MemoryBudget``: what a process holds in memory, up to a limit, and in temporary files beyond it."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, Final, Self, cast

from timely.errors import ConfigurationError
from timely.memory.limits import address_space_left, bytes_of, memory_limit, save_address_space, size_text

_WORK: Final = 64 << 20
"""Bytes of a process's memory for the blocks that operators work on."""

_IN_FLIGHT: Final = 32 << 20
_LEAST_IN_FLIGHT: Final = 1 << 20

_SHARE: Final = 0.5
"""The part of the rest that is for what is kept; the other part is for dictionaries and messages."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

_stack: ContextVar[tuple[MemoryBudget, ...]] = ContextVar("timely_memory_budgets", default=())


class MemoryBudget:
    """Counts what a process holds in memory, at most ``limit`` bytes, and what its temporary files in ``directory`` have.

    ``limit`` is a number of bytes, a size such as ``"2GB"``, or None for no limit. A :class:`Spool` holds containers by it. All
    workers of a process share one budget, and any thread may use it. In a ``with`` block it is the current one of the thread.
    ``ConfigurationError`` for a limit or directory that cannot be.

    ``in_flight`` is how much each worker may have sent that its peers have not taken: beyond it sources wait. The default is
    32 MB, or half of a smaller limit, and at least 1 MB. See ``docs/scheduling.md``.

    ``total`` is what the process may occupy: ``OutOfMemoryError`` ends a run whose workers hold more in all, spilled or not. None
    is what the system has, ``math.inf`` disables the memory check.

    >>> budget = MemoryBudget("1MB")
    >>> budget.take(800_000), budget.take(800_000), budget.used
    (True, False, 800000)
    >>> budget.give_back(800_000)
    >>> budget.used
    0
    """

    _default: ClassVar[tuple[int, MemoryBudget] | None] = None

    def __init__(
        self,
        limit: int | str | None = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        in_flight: int | str | None = None,
        total: float | str | None = None,
    ) -> None:
        self.limit = None if limit is None else bytes_of(limit)
        """The most bytes in memory, or None."""
        if in_flight is None:
            in_flight = _IN_FLIGHT if self.limit is None else max(min(_IN_FLIGHT, self.limit // 2), _LEAST_IN_FLIGHT)
        self.in_flight = bytes_of(in_flight, "in_flight")
        """The bytes that a worker may have sent to its peers, and they not taken, before sources wait."""
        self.total = total if total is None or total == math.inf else bytes_of(cast("int | str", total), "total")
        """The bytes that the process may occupy, or None."""
        self._measured = 0
        self._room = self._again = 0.0
        self._directory = None if directory is None else check_directory(directory)
        self._lock = threading.Lock()
        self._used = 0
        self._on_disk = 0
        self._written = 0
        self._released: deque[tuple[int, int]] = deque()  # from finalizers, which must not wait for the lock

    @classmethod
    def of_process(
        cls, memory: int | str | None = None, directory: str | os.PathLike[str] | None = None, processes: int = 1
    ) -> MemoryBudget:
        """Return a budget for a process that may take so much ``memory`` in all.

        The default is the environment variable ``TIMELY_MEMORY``, a size or ``none``, and without it what the system allows.

        The process's memory now is subtracted, and so are 64 MB to work with; half of the rest is the limit. So many
        ``processes`` share what the system allows. ``MemoryBudget.of_process()`` has no limit where the system sets none.

        >>> MemoryBudget.of_process("100TB").limit > 40 << 40
        True
        """
        if memory is None and (text := os.environ.get("TIMELY_MEMORY")):
            if text == "none":
                return cls(None, directory, total=math.inf)
            memory = text
        if address_space_left() is not None:
            save_address_space()
        if memory is None:
            total, left = None, memory_limit(processes)
        else:
            total = bytes_of(memory)
            left = total - resident()
        return cls(None if left is None else max(int((left - _WORK) * _SHARE), 1), directory, total=total)

    @classmethod
    def given(cls, memory: int | str | MemoryBudget | None, processes: int = 1) -> MemoryBudget:
        """Return ``memory`` if that is a budget, else ``MemoryBudget.of_process(memory, processes=processes)``."""
        return memory if isinstance(memory, MemoryBudget) else cls.of_process(memory, processes=processes)

    @classmethod
    def current(cls) -> MemoryBudget:
        """Return the budget of the innermost ``with`` block of this thread, which is that of its worker's run.

        Else that of the process: ``MemoryBudget.of_process()``, made once.
        """
        if stack := _stack.get():
            return stack[-1]
        if cls._default is None or cls._default[0] != os.getpid():  # a forked process has its own memory
            cls._default = os.getpid(), cls.of_process()
        return cls._default[1]

    def __enter__(self) -> Self:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _stack.set(_stack.get()[:-1])

    def __reduce__(self) -> tuple[Callable[..., MemoryBudget], tuple[int | None, str | None, int, float | None]]:
        return _budget, (self.limit, self._directory, self.in_flight, self.total)  # of another process, where nothing is used yet

    def __repr__(self) -> str:
        limit = "no limit" if self.limit is None else f"{size_text(self.used)} of {size_text(self.limit)}"
        return f"MemoryBudget({limit}, {size_text(self.on_disk)} on disk)"

    @property
    def directory(self) -> str:
        """Where temporary files go."""
        if self._directory is None:  # finding it takes a while, and most runs need none
            self._directory = check_directory(None)
        return self._directory

    @property
    def used(self) -> int:
        """Bytes in memory now."""
        self._settle()
        return self._used

    @property
    def on_disk(self) -> int:
        """Bytes in temporary files now."""
        self._settle()
        return self._on_disk

    @property
    def written(self) -> int:
        """Bytes that have ever gone to temporary files."""
        return self._written

    def take(self, size: int) -> bool:
        """Count ``size`` bytes in memory, and return True; or return False beyond the limit. ``give_back`` releases them."""
        self._settle()
        with self._lock:
            if self.limit is not None and self._used + size > self.limit:
                return False
            self._used += size
            return True

    def take_disk(self, size: int) -> None:
        """Count ``size`` bytes in a temporary file. ``give_back`` releases them."""
        with self._lock:
            first = not self._written
            self._on_disk += size
            self._written += size
        if first and self.limit is not None:
            import logging  # takes long to load

            text = "%s are in memory: what is larger goes to temporary files in %s"
            logging.getLogger(__name__).info(text, size_text(self.limit), self.directory)

    def note_measured(self, size: int, held: float, again: float) -> None:
        """Note what workers held in a process of ``size`` bytes (less than ``total``), and when to measure again."""
        self._measured, self._again = size, again
        self._room = max((self.total or 0.0) - held, size // 16)

    def is_unmeasured(self, size: int, now: float) -> bool:
        """Return whether a process of ``size`` bytes has grown enough that its workers may hold more than ``total``."""
        grown = size - self._measured
        return grown > self._room and (now > self._again or grown > self._measured // 8)

    def give_back(self, size: int = 0, on_disk: int = 0) -> None:
        """Release bytes. Never waits, so a finalizer may call it."""
        self._released.append((size, on_disk))

    def _settle(self) -> None:
        while self._released:
            try:
                size, on_disk = self._released.popleft()
            except IndexError:  # another thread was faster
                return
            with self._lock:
                self._used -= size
                self._on_disk -= on_disk


def check_directory(directory: str | os.PathLike[str] | None) -> str:
    """Return where temporary files go: ``directory``, else the first of Spark's local ones, else the system's.

    ``ConfigurationError`` if nothing can be written there.
    """
    import tempfile  # takes long to load

    where = os.fspath(directory) if directory is not None else (os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0]
    where = where or tempfile.gettempdir()
    if not (os.path.isdir(where) and os.access(where, os.W_OK)):
        raise ConfigurationError(f"{where!r} is no directory that can be written to: give one for temporary files as directory=")
    return where


def _budget(limit: int | None, directory: str | None, in_flight: int, total: float | None) -> MemoryBudget:
    return MemoryBudget(limit, directory, in_flight=in_flight, total=total)


def readable_back(rows: Any) -> bool:
    """Return whether Arrow IPC reads rows back: it does not read dictionaries of extension types, views or dictionaries."""
    types = rows.schema.types if hasattr(rows, "schema") else [rows.type]
    inner = [kind.value_type for kind in types if hasattr(kind, "index_type")]
    return not any(hasattr(kind, "extension_name") or hasattr(kind, "index_type") or "view" in str(kind) for kind in inner)


def resident() -> int:
    """Return the bytes of memory that this process occupies; 0 where the system does not say."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)  # anew: a forked process has its own
        try:
            return int(os.read(file, 100).split()[1]) * _PAGE
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0
