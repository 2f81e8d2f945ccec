"""Memory that is freed stays with a process that runs workers, for the next batch.

A C library gives large pieces of memory back to the system when they are freed, and asks for new ones at the next need, which the
system has to clear page by page. For arrays that live as long as a batch that takes longer than what is done with them. The
invariant: what is kept is bounded (``KEPT`` for each thread), and nothing but speed depends on it. Only the GNU C library can be
told so while a process runs; elsewhere nothing changes. It is for all of a process, and not to be taken back, so for processes of
our own only.
"""

from __future__ import annotations

import contextlib
from typing import Final

KEPT: Final = 1 << 26
"""Bytes at the end of a heap that are kept though they are free; threads have heaps of their own."""

_LARGEST: Final = 1 << 25
"""Bytes up to which memory comes from the heap: the most that can be asked for."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def prepare() -> None:
    """Load what ``keep_what_is_freed`` needs, which takes milliseconds: before a fork, so that no child has to."""
    with contextlib.suppress(ImportError):
        import ctypes  # noqa: F401


def keep_what_is_freed() -> bool:
    """Have freed memory stay here, up to ``KEPT`` bytes for each thread; return whether the C library can be told so."""
    try:
        import ctypes  # which a Python may have been built without

        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, ImportError, OSError, TypeError):
        return False
    return bool(tell(_TRIM_THRESHOLD, KEPT)) and bool(tell(_MMAP_THRESHOLD, _LARGEST))
