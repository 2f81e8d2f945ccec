"""``Adjacency``: the edges that start at a worker's nodes, found by node, while more keep coming.

Edges lie in segments. New edges make a segment of their own, and segments of like size are merged, so that there are few of
them (as many as the logarithm of the number of edges), and an edge is moved that often at most. A segment is loose at first: its
edges lie as they came, and all of them are looked at whenever some are wanted. When that has cost about as much as to sort them,
they are sorted, and then found without a look at the others. So what is asked a few times only is never sorted, and nothing
takes more than twice as long as it would have to. The invariant: an edge is in one segment. What a look-up costs is in the nodes
asked for and the edges found, not in those that there are, but for a fixed number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
import numpy as np

from timely.graphs.pairs import MISSING, Column, Rows, dense, look_up, sorted_order

_SEARCHES: Final = 16
"""How often all edges of a segment are looked at before they are sorted, which takes as long as so many looks, or longer."""

_SPARSE: Final = 8
"""Where nodes have numbers up to so many times the number of edges, there is a table that is looked up by node."""

_FEW: Final = 256
"""So many nodes are sooner searched for among the sources than looked up in the table."""

Whose: TypeAlias = Callable[[], Column]
"""Says of edges that were found which of the nodes that were asked for each starts at."""


@attrs.define(eq=False)
class _Loose:
    """Edges in no order: their ``sources``, which are below ``reach``, and an array that has a row for each other column."""

    sources: Column
    rest: Rows
    reach: int
    searches: int = 0

    def each_source(self) -> Column:
        """Return the source of each edge."""
        return self.sources

    def find(self, nodes: Column) -> tuple[Column, Whose]:
        """Return the places of the edges of any of ``nodes``, and whose each is."""
        self.searches += 1
        inside = np.flatnonzero(nodes < self.reach)
        wanted = np.zeros(self.reach, np.bool_)
        wanted[nodes[inside]] = True
        places = np.flatnonzero(wanted.take(self.sources))

        def whose() -> Column:
            which = np.empty(self.reach, np.int64)
            which[nodes[inside]] = inside
            return which.take(self.sources.take(places))

        return places, whose

    def sorted(self) -> _Sorted:
        """Return the same edges, sorted by source."""
        order = sorted_order(self.sources)
        sources = self.sources.take(order)
        firsts = np.flatnonzero(np.concatenate(([True], sources[1:] != sources[:-1])))
        found = sources[firsts]
        table = dense(found, np.arange(len(found))) if self.reach <= _SPARSE * len(sources) else None
        return _Sorted(found, np.append(firsts, len(sources)), self.rest.take(order, axis=1), table)


@attrs.frozen
class _Sorted:
    """Edges sorted by source: those of ``sources[i]`` are the columns from ``starts[i]`` to ``starts[i + 1]`` of ``rest``.

    ``table`` has, for each node, its place among the sources; there is none where it would be mostly empty.
    """

    sources: Column
    starts: Column
    rest: Rows
    table: Column | None

    def each_source(self) -> Column:
        """Return the source of each edge."""
        return np.repeat(self.sources, np.diff(self.starts))

    def find(self, nodes: Column) -> tuple[Column, Whose]:
        """Return the places of the edges of any of ``nodes``, and whose each is."""
        if self.table is not None and len(nodes) > _FEW:
            at = look_up(self.table, nodes)
            which = np.flatnonzero(at != MISSING)
        else:
            at = np.searchsorted(self.sources, nodes)
            at[at == len(self.sources)] = 0
            which = np.flatnonzero(self.sources[at] == nodes)
        at = at[which]
        starts = self.starts[at]
        counts = self.starts[at + 1] - starts
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        return places, lambda: np.repeat(which, counts)


_Segment: TypeAlias = _Loose | _Sorted


class Adjacency:
    """Edges by source, with so many further ``columns``. The sources are the nodes of ``worker``, one of so many ``peers``: those
    whose numbers leave that remainder.

    >>> adjacency = Adjacency(columns=1)
    >>> adjacency.add(np.array([[5, 6], [7, 8], [5, 9]]))
    >>> adjacency.add(np.array([[7, 1]]))
    >>> which, rest = adjacency.find(np.array([7, 4, 5]))
    >>> sorted(zip(which.tolist(), rest[0].tolist()))
    [(0, 1), (0, 8), (2, 6), (2, 9)]
    """

    __slots__ = ("_columns", "_peers", "_segments", "_worker", "looked_at")

    def __init__(self, columns: int, worker: int = 0, peers: int = 1) -> None:
        self._columns = columns
        self._worker = worker
        self._peers = peers
        self._segments: list[_Segment] = []
        self.looked_at = 0

    def add(self, rows: Rows) -> None:
        """Take in edges: rows of a source, and of whatever belongs to it."""
        if not len(rows):
            return
        sources = (rows[:, 0] // self._peers).astype(np.int64, copy=False)
        rest = np.ascontiguousarray(rows[:, 1:].T, np.int64)
        while self._segments and self._segments[-1].rest.shape[1] <= 2 * len(sources):
            last = self._segments.pop()
            sources, rest = np.concatenate((last.each_source(), sources)), np.hstack((last.rest, rest))
        segment = _Loose(sources, rest, int(sources.max()) + 1)
        self._segments.append(segment if segment.reach <= _SPARSE * len(sources) else segment.sorted())

    def settle(self) -> None:
        """Sort all edges now, since there is time."""
        self._segments = [each.sorted() if isinstance(each, _Loose) else each for each in self._segments]

    def rows(self) -> Rows:
        """Return all the edges, as they were taken in, in an order of their own."""
        parts = [np.vstack((self._nodes(each.each_source()), each.rest)) for each in self._segments]
        return np.hstack([np.empty((self._columns + 1, 0), np.int64), *parts]).T

    def nodes(self) -> Column:
        """Return the nodes that have edges, each once."""
        parts = (each.each_source() if isinstance(each, _Loose) else each.sources for each in self._segments)
        return self._nodes(np.unique(np.concatenate([np.empty(0, np.int64), *parts])))

    def find(self, nodes: Column) -> tuple[Column, Rows]:
        """Return the edges of ``nodes``, each of which is there once: for each edge the place in ``nodes`` of its source, and
        the other columns, as rows; in no order.
        """
        found = self._find(nodes)
        return np.concatenate([np.empty(0, np.int64), *(whose() for _, _, whose in found)]), self._rest(found)

    def of(self, nodes: Column) -> Rows:
        """Return the columns of these edges other than their sources, as rows."""
        return self._rest(self._find(nodes))

    def _find(self, nodes: Column) -> list[tuple[Rows, Column, Whose]]:
        """Return, for each segment, its other columns, which of the edges there are wanted, and whose they are."""
        found = []
        places = nodes // self._peers
        for at, segment in enumerate(self._segments):
            if isinstance(segment, _Loose) and segment.searches == _SEARCHES:
                segment = self._segments[at] = segment.sorted()
            there, whose = segment.find(places)
            self.looked_at += len(segment.sources) if isinstance(segment, _Loose) else len(there)
            found.append((segment.rest, there, whose))
        return found

    def _rest(self, found: list[tuple[Rows, Column, Whose]]) -> Rows:
        """Return the other columns of what was found, as rows."""
        parts = [rest.take(there, axis=1) for rest, there, _ in found]
        return parts[0] if len(parts) == 1 else np.hstack([np.empty((self._columns, 0), np.int64), *parts])

    def _nodes(self, places: Column) -> Column:
        return places * self._peers + self._worker
