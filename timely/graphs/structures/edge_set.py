"""``EdgeSet``: edges that start at a worker's nodes, each once, with the version of the set that added it.

An edge is one whole number: the source in the upper 32 bits, the target in the lower. Sorted segments of such numbers are merged
when they are of like size, so the edges of a node are adjacent and membership is a binary search. With a memory budget they may
be on disk: lookups in order of the edges read each block about once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timely.graphs.structures.arrays import MISSING, Column, Rows, run_starts
from timely.graphs.structures.sorted_blocks import SortedBlocks, add_segment
from timely.memory import Spool


def packed(sources: Column, targets: Column | int) -> Column:
    """Return edges as one number each."""
    return sources.astype(np.int64, copy=False) << 32 | targets


class EdgeSet:
    """A set of packed edges.

    >>> edges, some = EdgeSet(), Spool()
    >>> some.append(np.array([[5 << 32 | 6, 0], [5 << 32 | 8, 0], [7 << 32 | 5, 0], [5 << 32 | 6, 0]]))
    >>> [(new[:, 0] >> 32).tolist() for new in edges.add(some)]
    [[5, 5, 7]]
    >>> some.append(np.array([[7 << 32 | 5, 1]]))
    >>> list(edges.add(some)), edges.versions(np.array([5 << 32 | 6, 1])).tolist()
    ([], [0, -1])
    >>> edges.find(np.array([7, 4, 5])).T.tolist()
    [[0, 5, 0], [2, 6, 0], [2, 8, 0]]
    """

    def __init__(self) -> None:
        self._segments: list[SortedBlocks] = []

    def add(self, rows: Spool) -> SortedBlocks:
        """Add edges, rows of ``(edge, version)``, which are drained; return the new ones, sorted, each once."""
        new = SortedBlocks()
        for block in SortedBlocks(rows):
            block = block[run_starts(block[:, 0])]
            new.append(block[self.versions(block[:, 0]) == MISSING].T)
        add_segment(self._segments, new)
        return new

    def rows(self) -> Iterator[Rows]:
        """Yield all edges, in no order, with their versions."""
        for segment in self._segments:
            yield from segment

    def versions(self, edges: Column) -> Column:
        """Return the version that added each of ``edges``, ``MISSING`` for those that are not in the set."""
        latest = np.full(len(edges), MISSING)
        for segment in self._segments:
            for places, block in segment.touched(edges):
                wanted = edges[places]
                at = np.searchsorted(block[0], wanted)
                at[at == block.shape[1]] = 0
                latest[places] = np.where(block[0, at] == wanted, block[1, at], latest[places])
        return latest

    def find(self, nodes: Column) -> Rows:
        """Return the edges of ``nodes``: columns with the place in ``nodes`` of each source, the target, and the version."""
        parts = [np.empty((3, 0), np.int64)]
        for segment in self._segments:
            for places, which, block in segment.find(packed(nodes, 0), packed(nodes + 1, 0)):
                edges, versions = block.take(which, axis=1).astype(np.int64, copy=False)
                parts.append(np.vstack((places, edges & 0xFFFFFFFF, versions)))
        return np.hstack(parts)
