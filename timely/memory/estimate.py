"""``MemoryEstimate``: about how much memory a graph algorithm takes, before it runs."""

from __future__ import annotations

from typing import Final

from timely.errors import ConfigurationError
from timely.memory.limits import size_text

_PER_EDGE: Final = {
    "pagerank": 50,
    "connected_components": 44,
    "strongly_connected_components": 135,
    "breadth_first_search": 46,
    "shortest_paths": 79,
    "label_propagation": 278,
    "triangle_count": 1600,
}
"""Bytes for an edge between integers, with ten edges a node, over all workers (``python -m benchmarks.sizing_graphs``)."""


class MemoryEstimate:
    """About how much memory an algorithm takes for so many ``edges``, over all ``workers``; ``str`` says it in a line.

    ``algorithm`` is the name of a function of ``timely.graphs``; ``value_size`` are the bytes of a node's value, 8 for integers.
    The estimate is for ten edges a node, and may be off by half.

    >>> estimate = MemoryEstimate("pagerank", 30_000_000, workers=2)
    >>> estimate.total, estimate.per_worker
    (1500000000, 750000000)
    >>> estimate.describe(1 << 30)
    'pagerank takes about 1.4 GB for 30,000,000 edges on 2 workers, 715 MB each; a process may take 1.0 GB: it stays in memory'
    >>> estimate.describe(500 << 20)
    'pagerank takes about 1.4 GB for 30,000,000 edges on 2 workers, 715 MB each; a process may take 500 MB: it will use disk'
    """

    def __init__(self, algorithm: str, edges: int, workers: int = 1, value_size: float = 8) -> None:
        if algorithm not in _PER_EDGE or edges < 0 or workers < 1:
            known = ", ".join(sorted(_PER_EDGE))
            raise ConfigurationError(
                f"no estimate for {algorithm!r} with {edges!r} edges on {workers!r} workers: give one of {known}, at least 0"
                " edges and 1 worker"
            )
        self.algorithm = algorithm
        self.edges = edges
        self.workers = workers
        self.total = int(edges * (_PER_EDGE[algorithm] + 4 * (value_size - 8)))
        """Bytes over all workers."""
        self.per_worker = self.total // workers
        """Bytes of each worker."""

    def __str__(self) -> str:
        per_worker = f" on {self.workers} workers, {size_text(self.per_worker)} each" if self.workers > 1 else ""
        return f"{self.algorithm} takes about {size_text(self.total)} for {self.edges:,} edges{per_worker}"

    def fits(self, memory: int) -> bool:
        """Return whether a worker's part fits into the given bytes."""
        return self.per_worker <= memory

    def describe(self, memory: int | None) -> str:
        """Return a line that says whether a worker's process, which may take ``memory`` bytes, will use disk."""
        if memory is None:
            return f"{self}; nothing limits a process"
        what = "it stays in memory" if self.fits(memory) else "it will use disk"
        return f"{self}; a process may take {size_text(memory)}: {what}"
