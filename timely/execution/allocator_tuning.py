"""Allocator tuning: freed memory stays with a process that runs workers, for the next batch.

The GNU C library returns large freed pieces to the system, which clears them page by page at the next need. The setting is for
all of a process, and final: for processes of our own only.
"""

from __future__ import annotations

import contextlib
from typing import Final

KEPT: Final = 1 << 26
"""Bytes kept at the end of each thread's heap."""

_LARGEST: Final = 1 << 25
"""Bytes up to which memory comes from the heap: the maximum."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def load_ctypes() -> None:
    """Load what ``keep_freed_memory`` needs, which takes milliseconds, before a fork."""
    with contextlib.suppress(ImportError):
        import ctypes  # noqa: F401


def keep_freed_memory() -> bool:
    """Keep up to ``KEPT`` bytes of freed memory for each thread; return whether the C library has that setting."""
    try:
        import ctypes  # some Pythons are built without it

        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, ImportError, OSError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST))
