"""``UnionFind``: which nodes are connected, as a forest of parents in an array (a disjoint-set forest).

The invariant: a parent has a smaller number than its child, so there is no cycle; a root is its own parent.
"""

from __future__ import annotations

import numpy as np

from timely.graphs.structures.arrays import Column, join_columns, last_of_equals

CHUNK = 1 << 16
"""Edges of one pass. Once large components exist, most edges of a chunk are inside one and are dropped at once."""


class UnionFind:
    """The components of nodes ``0`` to ``len - 1``."""

    def __init__(self) -> None:
        self._nodes = 0
        self._parents: Column = np.empty(0, np.int64)  # longer than there are nodes
        self._scratch: Column = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._nodes

    def grow(self, nodes: int) -> None:
        """Grow to ``nodes`` nodes; each new one is a component of its own."""
        size = len(self._parents)
        if nodes > size:
            self._parents = np.concatenate((self._parents, np.arange(size, max(nodes, size * 5 // 4))))
            self._scratch = np.empty(len(self._parents), np.int64)
        self._nodes = nodes

    def find(self, nodes: Column) -> Column:
        """Return the root of each of ``nodes``, and shorten their paths to it."""
        roots = self._parents[nodes]
        while True:
            above = self._parents[roots]
            if np.array_equal(above, roots):
                self._parents[nodes] = roots
                return roots
            roots = above

    def union(self, sources: Column, targets: Column) -> Column:
        """Connect the ends of edges; return the nodes that are no longer roots, in ascending order."""
        absorbed = []
        for start in range(0, len(sources), CHUNK):
            left, right = (ends[start : start + CHUNK] for ends in (sources, targets))
            left, right = self.find(left), self.find(right)
            while (apart := left != right).any():
                left, right = left[apart], right[apart]
                high = self._hook(np.maximum(left, right), np.minimum(left, right))
                absorbed.append(high)
                left, right = self.find(left), self.find(right)
        return np.sort(join_columns(absorbed))

    def _hook(self, high: Column, low: Column) -> Column:
        """Make one of ``low`` the parent of each of ``high``, then halve the paths; return ``high``, each once."""
        last = last_of_equals(high, self._scratch)
        high = high[last]
        self._parents[high] = low[last]
        parents = self._parents[high]
        while True:
            above = self._parents[parents]
            if np.array_equal(above, parents):
                return high
            self._parents[high] = parents = above
