"""``EdgeSet``: edges that start at a worker's nodes, each once, with the version of the set that added it.

An edge is one whole number: the source in the upper 32 bits, the target in the lower. Sorted segments of such numbers are merged
when they are of like size, so the edges of a node are adjacent and membership is a binary search.
"""

from __future__ import annotations

import attrs
import numpy as np

from timely.graphs.arrays import MISSING, Column, join_columns, ranges, run_starts, sorted_order


def packed(sources: Column, targets: Column) -> Column:
    """Return edges as one number each."""
    return sources << 32 | targets


@attrs.frozen
class _Segment:
    edges: Column
    versions: Column

    def merge(self, other: _Segment) -> _Segment:
        edges = np.concatenate((self.edges, other.edges))
        order = np.argsort(edges, kind="stable")
        return _Segment(edges[order], np.concatenate((self.versions, other.versions))[order])


class EdgeSet:
    """A set of packed edges.

    >>> edges = EdgeSet()
    >>> new = edges.add(packed(np.array([5, 5, 7, 5]), np.array([6, 8, 5, 6])), version=0)
    >>> (new >> 32).tolist(), (new & 0xFFFFFFFF).tolist()
    ([5, 5, 7], [6, 8, 5])
    >>> edges.add(np.array([7 << 32 | 5]), version=1).tolist(), edges.versions(np.array([5 << 32 | 6, 1])).tolist()
    ([], [0, -1])
    >>> which, targets, versions = edges.find(np.array([7, 4, 5]))
    >>> which.tolist(), targets.tolist(), versions.tolist()
    ([0, 2, 2], [5, 6, 8], [0, 0, 0])
    """

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def add(self, edges: Column, version: int | Column) -> Column:
        """Add edges, in one version or one for each; return the new ones, sorted, each once."""
        order = sorted_order(edges)
        order = order[run_starts(edges[order])]
        order = order[self.versions(edges[order]) == MISSING]
        edges = edges[order]
        if len(edges):
            segment = _Segment(edges, np.full(len(edges), version) if isinstance(version, int) else version[order])
            while self._segments and len(self._segments[-1].edges) <= 2 * len(segment.edges):
                segment = self._segments.pop().merge(segment)
            self._segments.append(segment)
        return edges

    def edges(self) -> tuple[Column, Column]:
        """Return all edges, in no order, and their versions."""
        segments = self._segments
        return join_columns([segment.edges for segment in segments]), join_columns([segment.versions for segment in segments])

    def versions(self, edges: Column) -> Column:
        """Return the version that added each of ``edges``, ``MISSING`` for those that are not in the set."""
        found = np.full(len(edges), MISSING)
        for segment in self._segments:
            at = np.searchsorted(segment.edges, edges)
            at[at == len(segment.edges)] = 0
            present = segment.edges[at] == edges
            found[present] = segment.versions[at[present]]
        return found

    def find(self, nodes: Column) -> tuple[Column, Column, Column]:
        """Return the edges of ``nodes``: the place in ``nodes`` of each source, the target, and the version."""
        places, targets, versions = [], [], []
        for segment in self._segments:
            starts = np.searchsorted(segment.edges, nodes << 32)
            counts = np.searchsorted(segment.edges, (nodes + 1) << 32) - starts
            found = ranges(starts, counts)
            places.append(np.repeat(np.arange(len(nodes)), counts))
            targets.append(segment.edges[found] & 0xFFFFFFFF)
            versions.append(segment.versions[found])
        return join_columns(places), join_columns(targets), join_columns(versions)
