"""``Adjacency``: the edges that start at a worker's nodes, found by node, while more are added.

Edges are in segments; segments of like size are merged, so there are logarithmically many. A segment is unsorted at first: each
lookup scans it. After ``_SCANS`` scans, which cost about as much as a sort, it is sorted, and lookups cost what they find. With a
memory budget a segment is sorted at once, in blocks that may be on disk, and lookups read the blocks of their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import attrs
import numpy as np

from timely.graphs.structures.arrays import (
    MISSING,
    Column,
    Rows,
    dense,
    look_up,
    ranges,
    run_starts,
    sorted_distinct,
    sorted_order,
)
from timely.graphs.structures.sorted_blocks import SortedBlocks, add_segment
from timely.memory import MemoryBudget, Spool

_SCANS: Final = 16
"""Scans of a segment before it is sorted. A sort takes as long as that, or longer."""

_SPARSE: Final = 8
"""A sorted segment has a table by node if node numbers are at most this multiple of the number of edges."""

Places: TypeAlias = Callable[[], Column]
"""Returns, for edges that were found, the place of each one's source among the nodes of the lookup."""


@attrs.define(eq=False)
class _Unsorted:
    """Edges in no order: their ``sources``, all below ``bound``, and an array with a row for each other column."""

    sources: Column
    rest: Rows
    bound: int
    scans: int = 0

    def each_source(self) -> Column:
        return self.sources

    def find(self, nodes: Column) -> tuple[Column, Places]:
        """Return which edges start at any of ``nodes``, and the place of each one's source."""
        self.scans += 1
        inside = np.flatnonzero(nodes < self.bound)
        wanted = np.zeros(self.bound, np.bool_)
        wanted[nodes[inside]] = True
        edges = np.flatnonzero(wanted.take(self.sources))

        def places() -> Column:
            by_node = np.empty(self.bound, np.int64)
            by_node[nodes[inside]] = inside
            return by_node.take(self.sources.take(edges))

        return edges, places

    def sorted(self) -> _Sorted:
        order = sorted_order(self.sources)
        sources = self.sources.take(order)
        starts = run_starts(sources)
        nodes = sources[starts]
        table = dense(nodes, np.arange(len(nodes))) if self.bound <= _SPARSE * len(sources) else None
        return _Sorted(nodes, np.append(starts, len(sources)), self.rest.take(order, axis=1), table)


@attrs.frozen
class _Sorted:
    """Edges sorted by source: columns ``starts[i]`` to ``starts[i + 1]`` of ``rest`` are those of ``sources[i]``."""

    sources: Column
    starts: Column
    rest: Rows
    table: Column | None  # of each node, its place among the sources

    def each_source(self) -> Column:
        return np.repeat(self.sources, np.diff(self.starts))

    def find(self, nodes: Column) -> tuple[Column, Places]:
        if self.table is not None:
            at = look_up(self.table, nodes)
            present = np.flatnonzero(at != MISSING)
        else:
            at = np.searchsorted(self.sources, nodes)
            at[at == len(self.sources)] = 0
            present = np.flatnonzero(self.sources[at] == nodes)
        at = at[present]
        starts = self.starts[at]
        counts = self.starts[at + 1] - starts
        return ranges(starts, counts), lambda: np.repeat(present, counts)

    def sorted(self) -> _Sorted:
        return self


class Adjacency:
    """Edges by source, with so many further ``columns``. The sources are nodes of ``worker``, one of so many ``peers``."""

    def __init__(self, columns: int, worker: int = 0, peers: int = 1) -> None:
        self._columns = columns
        self._worker = worker
        self._peers = peers
        self._limited = MemoryBudget.current().limit is not None
        self._segments: list[_Unsorted | _Sorted] = []
        self._spooled: list[SortedBlocks] = []
        self.scanned = 0
        """How many edges all lookups so far have read."""

    def add(self, rows: Rows | Spool) -> None:
        """Add edges: rows of a source and the further columns. A spool is drained."""
        if isinstance(rows, Spool) or self._limited:
            add_segment(self._spooled, SortedBlocks(rows if isinstance(rows, Spool) else _spool(rows)))
            return
        if not len(rows):
            return
        sources = np.ascontiguousarray(rows[:, 0] if self._peers == 1 else rows[:, 0] // self._peers)
        rest = np.ascontiguousarray(rows[:, 1:].T)
        while self._segments and self._segments[-1].rest.shape[1] <= 2 * len(sources):
            last = self._segments.pop()
            sources, rest = np.concatenate((last.each_source(), sources)), np.hstack((last.rest, rest))
        segment = _Unsorted(sources, rest, int(sources.max()) + 1)
        self._segments.append(segment if segment.bound <= _SPARSE * len(sources) else segment.sorted())

    def sort(self) -> None:
        """Sort all edges now."""
        self._segments = [segment.sorted() for segment in self._segments]

    def rows(self) -> Iterator[Rows]:
        """Yield all edges, in no order."""
        for segment in self._segments:
            yield np.vstack((self._nodes(segment.each_source()), segment.rest), dtype=np.int64).T
        for spooled in self._spooled:
            yield from spooled

    def nodes(self) -> Column:
        """Return the nodes that have edges, each once."""
        parts = [self._nodes(segment.sources) for segment in self._segments]
        parts += [keys for spooled in self._spooled for keys in spooled.distinct_keys()]
        return sorted_distinct(np.concatenate([np.empty(0, np.int64), *parts]))

    def find(self, nodes: Column) -> Iterator[tuple[Column, Rows]]:
        """Yield edges of ``nodes``, which are distinct, in no order: the place in ``nodes`` of each one's source, and the further
        columns as rows. All edges of a node come together, if they were added together.
        """
        return ((places(), rest) for rest, places in self._find(nodes))

    def columns_of(self, nodes: Column) -> Iterator[Rows]:
        """Yield the further columns of the edges of ``nodes``, as rows."""
        return (rest for rest, _ in self._find(nodes))

    def _find(self, nodes: Column) -> Iterator[tuple[Rows, Places]]:
        """Yield the further columns of edges, and the places of their sources."""
        for spooled in self._spooled:
            for at, which, block in spooled.find(nodes):
                self.scanned += len(which)
                yield block[1:].take(which, axis=1).astype(np.int64, copy=False), lambda at=at: at  # type: ignore[misc]
        nodes = nodes // self._peers
        for index, segment in enumerate(self._segments):
            if isinstance(segment, _Unsorted) and segment.scans == _SCANS:
                segment = self._segments[index] = segment.sorted()
            edges, places = segment.find(nodes)
            self.scanned += len(segment.sources) if isinstance(segment, _Unsorted) else len(edges)
            yield segment.rest.take(edges, axis=1), places

    def _nodes(self, places: Column) -> Column:
        return places * self._peers + self._worker


def _spool(rows: Rows) -> Spool:
    spool = Spool()
    if len(rows):
        spool.append(rows)
    return spool
