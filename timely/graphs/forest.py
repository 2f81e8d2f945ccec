"""``Forest``: which nodes are connected, as a forest of parents in an array (union-find).

Edges come in chunks. In each, both ends are replaced by their roots, what joins nothing is dropped at once, and of the
rest each greater root is hooked to a smaller one, until nothing is left: of roots that meet, at most half stay roots in
a pass. Chains that hooking makes are halved in length by each look at their grandparents. The invariant: a parent has a
smaller number than its child, so that there is no cycle; a root is its own parent.
"""

from __future__ import annotations

import numpy as np

from timely.graphs.pairs import Column

CHUNK = 1 << 16
"""Edges that are joined in one go. Once the large components are there, nearly all edges of a chunk are dropped at once."""


class Forest:
    """The components of nodes ``0`` to ``len - 1``.

    >>> forest = Forest()
    >>> forest.grow(5)
    >>> forest.join(np.array([3, 1, 1]), np.array([4, 3, 4])).tolist()
    [3, 4]
    >>> forest.roots(np.arange(5)).tolist()
    [0, 1, 2, 1, 1]
    """

    __slots__ = ("_mark", "_nodes", "_parents")

    def __init__(self) -> None:
        self._nodes = 0
        self._parents: Column = np.empty(0, np.int64)  # with some to spare
        self._mark: Column = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._nodes

    def grow(self, nodes: int) -> None:
        """Take in new nodes, so that there are ``nodes`` in all; each is a component of its own."""
        there = len(self._parents)
        if nodes > there:
            self._parents = np.concatenate((self._parents, np.arange(there, max(nodes, there * 5 // 4))))
            self._mark = np.empty(len(self._parents), np.int64)
        self._nodes = nodes

    def roots(self, nodes: Column) -> Column:
        """Return the root of each of ``nodes``; two nodes are connected if it is the same."""
        found = self._parents[nodes]
        while True:
            above = self._parents[found]
            if np.array_equal(above, found):
                self._parents[nodes] = found
                return found
            found = above

    def join(self, sources: Column, targets: Column) -> Column:
        """Take in edges; return the nodes that were roots and are none any more, in ascending order."""
        absorbed = [np.empty(0, np.int64)]
        for start in range(0, len(sources), CHUNK):
            chunk = slice(start, start + CHUNK)
            left, right = self.roots(sources[chunk]), self.roots(targets[chunk])
            while True:
                apart = left != right
                if not apart.any():
                    break
                left, right = left[apart], right[apart]
                high = self._hook(np.maximum(left, right), np.minimum(left, right))
                absorbed.append(high)
                left, right = self.roots(left), self.roots(right)
        return np.sort(np.concatenate(absorbed))

    def _hook(self, high: Column, low: Column) -> Column:
        """Make one of ``low`` the parent of each of ``high``; return these, each once."""
        turns = np.arange(len(high))
        self._mark[high] = turns  # of the equal ones the last one stays
        last = self._mark[high] == turns
        high = high[last]
        self._parents[high] = low[last]
        parents = self._parents[high]
        while True:
            above = self._parents[parents]
            if np.array_equal(above, parents):
                return high
            self._parents[high] = parents = above
