"""``EdgeSet``: edges that start at a worker's nodes, each once, with the turn in which it was added.

An edge is one whole number, the source in the upper 32 bits and the target in the lower; segments of such numbers are
sorted, and those of like size are merged. The invariant: no edge is in it twice. So the edges of a node lie side by
side, and whether an edge is there is a binary search.
"""

from __future__ import annotations

import attrs
import numpy as np

from timely.graphs.pairs import MISSING, Column, sorted_order


def packed(sources: Column, targets: Column) -> Column:
    """Return edges as one number each.

    >>> packed(np.array([1]), np.array([2])).tolist() == [(1 << 32) + 2]
    True
    """
    return sources << 32 | targets


@attrs.frozen
class _Segment:
    edges: Column
    turns: Column


class EdgeSet:
    """A set of packed edges.

    >>> edges = EdgeSet()
    >>> new = edges.add(packed(np.array([5, 5, 7, 5]), np.array([6, 8, 5, 6])), turn=0)
    >>> (new >> 32).tolist(), (new & 0xFFFFFFFF).tolist()
    ([5, 5, 7], [6, 8, 5])
    >>> edges.add(np.array([7 << 32 | 5]), turn=1).tolist(), edges.turns(np.array([5 << 32 | 6, 1])).tolist()
    ([], [0, -1])
    >>> which, targets, turns = edges.find(np.array([7, 4, 5]))
    >>> which.tolist(), targets.tolist(), turns.tolist()
    ([0, 2, 2], [5, 6, 8], [0, 0, 0])
    """

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def add(self, edges: Column, turn: int) -> Column:
        """Take in edges; return those that were not there, sorted, each once."""
        edges = edges[sorted_order(edges)]
        edges = edges[np.concatenate((np.ones(min(len(edges), 1), np.bool_), edges[1:] != edges[:-1]))]
        edges = edges[self.turns(edges) == MISSING]
        if len(edges):
            segment = _Segment(edges, np.full(len(edges), turn))
            while self._segments and len(self._segments[-1].edges) <= 2 * len(segment.edges):
                segment = _merged(self._segments.pop(), segment)
            self._segments.append(segment)
        return edges

    def edges(self) -> Column:
        """Return all the edges, in no order."""
        return np.concatenate([np.empty(0, np.int64), *(segment.edges for segment in self._segments)])

    def turns(self, edges: Column) -> Column:
        """Return the turn in which each of ``edges`` was added, ``MISSING`` for those that are not there."""
        found = np.full(len(edges), MISSING)
        for segment in self._segments:
            at = np.searchsorted(segment.edges, edges)
            at[at == len(segment.edges)] = 0
            there = segment.edges[at] == edges
            found[there] = segment.turns[at[there]]
        return found

    def find(self, nodes: Column) -> tuple[Column, Column, Column]:
        """Return the edges of ``nodes``: the place in ``nodes`` of the source of each, the target, and the turn."""
        whichs, targets, turns = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for segment in self._segments:
            starts = np.searchsorted(segment.edges, nodes << 32)
            counts = np.searchsorted(segment.edges, (nodes + 1) << 32) - starts
            ends = np.cumsum(counts)
            places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
            whichs.append(np.repeat(np.arange(len(nodes)), counts))
            targets.append(segment.edges[places] & 0xFFFFFFFF)
            turns.append(segment.turns[places])
        return np.concatenate(whichs), np.concatenate(targets), np.concatenate(turns)


def _merged(one: _Segment, other: _Segment) -> _Segment:
    edges = np.concatenate((one.edges, other.edges))
    order = np.argsort(edges, kind="stable")
    return _Segment(edges[order], np.concatenate((one.turns, other.turns))[order])
