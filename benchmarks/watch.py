"""How much memory a process and all that descend from it take together, at most, as seen in many looks (Linux only).

A page that several processes share counts once among them (``/proc/*/smaps_rollup``, proportional set size). Looking takes
time on the same processors, so what is watched should not be what is timed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self


class Watch:
    """Looks at a process and its descendants until it is stopped; ``peak`` is the most bytes that it has seen, 0 if it cannot."""

    def __init__(self, pid: int, every: float = 0.05) -> None:
        self.peak = 0
        self._pid = pid
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(self._every):
            self.take({pid: size(pid) for pid in tree(self._pid)})

    def take(self, sizes: dict[int, int]) -> None:
        """Take in the bytes of each process, as seen in one look."""
        self.peak = max(self.peak, sum(sizes.values()))


def tree(root: int) -> list[int]:
    """Return the process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def size(pid: int) -> int:
    """Return the bytes of a process, its share of what it shares; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
