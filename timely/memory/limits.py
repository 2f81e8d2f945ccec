"""What the system allows this process: the limits of its control group and of its address space, and sizes as text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from timely.errors import ConfigurationError, brief

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_UNLIMITED: Final = 1 << 60
"""A limit from here on is none: version 1 of control groups writes the largest number of pages."""

KEPT: Final = 1 << 26
"""Bytes of freed memory at the end of each thread's heap that a process of workers keeps."""

_LARGEST: Final = 1 << 25
"""Bytes up to which memory then comes from the heap: the maximum."""

_MAPPED: Final = 256 << 20
"""Bytes of an address space for memory that is freed, but stays mapped: pieces between others, and caches of allocators."""


def bytes_of(size: int | str, name: str = "memory") -> int:
    """Return a size in bytes: a number of bytes, or text with a unit of 1,024s (``K``, ``MB``, ``GiB``, ``T``).

    ``ConfigurationError`` for anything else, given as the argument ``name``.

    >>> bytes_of(1000), bytes_of("640 MB"), bytes_of("1.5g"), bytes_of("2GiB")
    (1000, 671088640, 1610612736, 2147483648)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", size.upper()) if isinstance(size, str) else None
    if parts is None or not (number := int(float(parts[1]) * _UNITS[parts[2]])):
        raise ConfigurationError(f"{name}={brief(size)}: give bytes above 0, or a size such as '640MB' or '2GB'")
    return number


def size_text(size: float) -> str:
    """Return a number of bytes for people.

    >>> size_text(512), size_text(3_300_000_000), size_text(640 << 20)
    ('512 bytes', '3.1 GB', '640 MB')
    """
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            number = size / unit
            return f"{number:.0f} {name}" if number >= 10 else f"{number:.1f} {name}"
    return f"{size:.0f} bytes"


def memory_limit(processes: int = 1) -> int | None:
    """Return the bytes that this process may still take by the limits of the system, or None if it sets none.

    The limits are those of its address space (``RLIMIT_AS``, which Spark sets from ``spark.executor.pyspark.memory``) and of its
    control group (version 1 or 2), which so many ``processes`` share. Of an address space all that is mapped counts, so 256 MB
    of it are left for what is freed and stays mapped.

    >>> limit = memory_limit()
    >>> limit is None or limit >= 0
    True
    """
    group, space = control_group_left(), address_space_left()
    lefts = [] if group is None else [group // processes]
    if space is not None:
        lefts.append(max(space - _MAPPED, 0))
    return min(lefts, default=None)


def return_freed_memory() -> None:
    """Return what this process has freed to the system, as far as its allocators can: C's, and Arrow's if that is loaded."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    _call_allocator("malloc_trim", 0)


def save_address_space() -> None:
    """Let new threads share an arena of C's allocator: each would reserve 64 MB or more."""
    _call_allocator("mallopt", -8, 1)  # M_ARENA_MAX


def keep_freed_memory() -> bool:
    """Keep up to ``KEPT`` bytes of freed memory for each thread, for the next batch; return whether the C library can.

    It returns large pieces to the system else, which clears them page by page at the next need. The setting is for all of a
    process, and final: for processes of our own only.
    """
    return _call_allocator("mallopt", -1, KEPT) and _call_allocator("mallopt", -3, _LARGEST)  # M_TRIM_, M_MMAP_THRESHOLD


def _call_allocator(function: str, *arguments: int) -> bool:
    """Call a function of the GNU C library; return whether that is there, and it succeeds."""
    try:
        import ctypes  # some Pythons are built without it

        return bool(getattr(ctypes.CDLL(None), function)(*arguments))
    except (AttributeError, ImportError, OSError, TypeError):
        return False  # not the GNU C library


def address_space_left() -> int | None:
    """Return the bytes that this process may still map, or None without a limit."""
    try:
        import resource
    except ModuleNotFoundError:  # not a Unix
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft in (resource.RLIM_INFINITY, -1):
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return int(soft)
    return max(soft - pages * resource.getpagesize(), 0)


def system_memory_left(meminfo: str = "/proc/meminfo") -> int | None:
    """Return the bytes that are left before the kernel kills a process: of its control group, or of the machine with its swap.

    Page cache counts as left, since the kernel drops it first. None where the system does not say.

    >>> left = system_memory_left()
    >>> left is None or left >= 0
    True
    """
    group, machine = control_group_left(cached=("inactive_file", "active_file")), None
    try:
        lines = (line.split() for line in Path(meminfo).read_text().splitlines())
        machine = sum(int(words[1]) << 10 for words in lines if words[0] in ("MemAvailable:", "SwapFree:"))
    except (OSError, ValueError, IndexError):
        pass
    return min((left for left in (group, machine) if left is not None), default=None)


def control_group_left(
    root: str = "/sys/fs/cgroup", groups: str = "/proc/self/cgroup", cached: tuple[str, ...] = ("inactive_file",)
) -> int | None:
    """Return the bytes that the control group of this process has left, or None if it has no limit.

    The limit of each group above counts too. ``root`` is where control groups are mounted, ``groups`` lists this process's, and
    what ``cached`` says of their memory counts as left.
    """
    try:
        lines = Path(groups).read_text().splitlines()
    except OSError:
        return None
    lefts = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, names, prefix = Path(root), ("memory.max", "memory.current"), ""
        elif "memory" in controllers.split(","):
            base, names, prefix = Path(root, "memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
        else:
            continue
        group = base / path.strip("/")
        for folder in (group, *group.parents):  # in a container the path may be that of the host, and only the root be there
            if folder.is_relative_to(base) and (left := _left(folder, *names, [prefix + name for name in cached])) is not None:
                lefts.append(left)
    return min(lefts, default=None)


def _left(folder: Path, limit: str, usage: str, cached: Iterable[str]) -> int | None:
    """Return what one control group has left. The page cache that it can give back does not count as used."""
    try:
        most = int((folder / limit).read_text())
        used = int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # "max" is no number
        return None
    if most >= _UNLIMITED:
        return None
    return max(most - used + sum(int(stat.get(name, 0)) for name in cached), 0)
