"""``Adjacency``: the edges that start at a worker's nodes, found by node, while more keep coming.

Edges lie in segments, each sorted by source. New edges make a segment of their own, and segments of like size are
merged, so that there are few of them (as many as the logarithm of the number of edges), and an edge is moved that often
at most. The invariant: an edge is in one segment. What a look-up costs is in the nodes asked for and the edges found,
not in those that there are.
"""

from __future__ import annotations

import attrs
import numpy as np

from timely.graphs.pairs import Column, Rows, sorted_order


@attrs.frozen
class Segment:
    """Edges sorted by source: those of ``sources[i]`` are the rows from ``starts[i]`` to ``starts[i + 1]`` of ``rest``,
    an array that has a row for each column other than the source.
    """

    sources: Column
    starts: Column
    rest: Rows

    def find(self, nodes: Column) -> tuple[Column, Column]:
        """Return which of ``nodes`` have edges, and how many; and after them the places of these edges."""
        at = np.searchsorted(self.sources, nodes)
        at[at == len(self.sources)] = 0
        which = np.flatnonzero(self.sources[at] == nodes)
        at = at[which]
        starts = self.starts[at]
        counts = self.starts[at + 1] - starts
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        return np.repeat(which, counts), places


class Adjacency:
    """Edges by source, with so many further ``columns``.

    >>> adjacency = Adjacency(columns=1)
    >>> adjacency.add(np.array([[5, 6], [7, 8], [5, 9]]))
    >>> adjacency.add(np.array([[7, 1]]))
    >>> which, rest = adjacency.find(np.array([7, 4, 5]))
    >>> which.tolist(), rest[0].tolist()
    ([0, 2, 2, 0], [8, 6, 9, 1])
    """

    __slots__ = ("_columns", "_segments")

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._segments: list[Segment] = []

    def add(self, rows: Rows) -> None:
        """Take in edges: rows of a source, and of whatever belongs to it."""
        columns = rows.T
        while self._segments and self._segments[-1].rest.shape[1] <= 2 * columns.shape[1]:
            last = self._segments.pop()
            sources = np.repeat(last.sources, np.diff(last.starts))
            columns = np.hstack((np.vstack((sources, last.rest)), columns))
        if columns.shape[1]:
            self._segments.append(_sorted(columns))

    def rows(self) -> Rows:
        """Return all the edges, as they were taken in, in an order of their own."""
        parts = [np.vstack((np.repeat(one.sources, np.diff(one.starts)), one.rest)) for one in self._segments]
        return np.hstack([np.empty((self._columns + 1, 0), np.int64), *parts]).T

    def nodes(self) -> Column:
        """Return the nodes that have edges, each once."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(segment.sources for segment in self._segments)]))

    def find(self, nodes: Column) -> tuple[Column, Rows]:
        """Return the edges of ``nodes``: the place in ``nodes`` of the source of each, and the other columns, as rows."""
        found = [(segment, *segment.find(nodes)) for segment in self._segments]
        if len(found) == 1:
            segment, which, places = found[0]
            return which, segment.rest.take(places, axis=1)
        if not found:
            return np.empty(0, np.int64), np.empty((self._columns, 0), np.int64)
        rest = [segment.rest.take(places, axis=1) for segment, _, places in found]
        return np.concatenate([which for _, which, _ in found]), np.hstack(rest)


def _sorted(columns: Rows) -> Segment:
    sources = columns[0]
    order = sorted_order(sources)
    sources = sources.take(order)
    firsts = np.flatnonzero(np.concatenate(([True], sources[1:] != sources[:-1])))
    return Segment(sources[firsts], np.append(firsts, len(sources)), columns[1:].take(order, axis=1))
