"""The memory of this process, as far as the system says."""

from __future__ import annotations

import os
import sys


def resident_memory() -> int:
    """Return the bytes of memory that this process occupies now; where the system does not say, ``record_memory()``."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return record_memory()


def record_memory() -> int:
    """Return the most bytes of memory that this program has ever occupied; 0 where the system does not say.

    On Linux ``VmHWM``: ``ru_maxrss`` also counts the program that started this one.
    """
    try:
        with open("/proc/self/status", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"VmHWM:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        import resource
    except ModuleNotFoundError:  # not a Unix
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
