"""Triangle count: a triangle is found once, by the last of its edges, so edges that come later only add triangles.

Each worker has the edges of its nodes, both ways, and each edge once. For a new edge, the end with fewer edges requests, for
each of its other neighbours, whether the other end is adjacent to it too. Of several new edges of a triangle, the one with the
greatest numbers is the last. The invariant: at the end of a time, the count of a node is the number of triangles with it, in
the graph of all edges so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.edge_input import next_time
from timely.graphs.stages.gathering import Collected, drained, gather
from timely.graphs.stages.node_joins import name_values
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import (
    BLOCK,
    MISSING,
    Column,
    Rows,
    both_ways,
    distinct,
    first,
    grow,
    join_columns,
    join_rows,
    owned,
    run_starts,
    value_counts,
)
from timely.graphs.structures.sorted_blocks import SortedBlocks, add_segment
from timely.memory import Spool
from timely.operators.type_variables import T


def packed(sources: Column, targets: Column | int) -> Column:
    """Return edges as one number each: the source in the upper 32 bits, the target in the lower."""
    return sources.astype(np.int64, copy=False) << 32 | targets


class EdgeSet:
    """Edges that start at a worker's nodes, each once as one number, with the version of the set that added it.

    Sorted segments of like size are merged, so the edges of a node are adjacent, and membership is a binary search. With a memory
    budget they may be on disk: lookups in order of the edges read each block about once.
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


def triangle_count(
    edges: Stream[T, Any], src: str = "src", dst: str = "dst", *, vertices: Stream[T, Any] | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, triangles)``: at each time the nodes that are new or are in more triangles.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; ``vertices`` are batches with a column
    ``node``, for nodes without edges. Directions, self-loops and repeated edges make no difference. ``triangles``, int64, is
    the number of triangles with the node; the sum over all nodes is three times the number of triangles. Edges stay for all
    later times, and the latest row of a node is its answer. A time costs, for each new edge, the edges of its end that has
    fewer. ``SchemaError``, as the cause of an ``OperatorError``, for columns that are missing, have nulls or other types;
    ``TimestampError`` for times without an order. Source: edge iteration over the smaller neighbourhood (Chiba and Nishizeki
    1985).

    >>> import pyarrow as pa
    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = triangle_count(edges).capture()
    >>> handle.send_batch(pa.record_batch({"src": ["a", "b", "c", "c"], "dst": ["b", "c", "a", "d"]}))
    >>> handle.advance_to(1)
    >>> handle.send_batch(pa.record_batch({"src": ["d"], "dst": ["a"]}))
    >>> handle.close()
    >>> worker.run()
    >>> for time, rows in found.extract():
    ...     print(time, rows)
    0 [('a', 1), ('b', 1), ('c', 1), ('d', 0)]
    1 [('a', 2), ('c', 2), ('d', 1)]
    """
    numbers, names = encode(edges, src, dst, vertices=vertices, lasting=True)
    part = _Triangles()
    (added,) = gather("triangles: add", [(numbers.map_batch(both_ways), Exchange(first))], 1, part.add, keep=part.register_edges)
    (chosen,) = gather("triangles: choose", [(added, Exchange(_upper))], 1, part.choose)
    (requests,) = gather("triangles: request", [(chosen, Exchange(first))], 1, part.request)
    (corners,) = gather("triangles: find", [(requests, Exchange(_upper))], 1, part.find)
    (counts,) = gather(
        "triangles: count", [(names, Pipeline), (corners, Exchange(first))], 1, part.count, keep=part.register_counts
    )
    return name_values(names, counts, "triangles", lambda column: column)


_Edges: TypeAlias = tuple[Any, Rows]
"""The last time, and packed edges with their versions."""


class _Triangles:
    """One worker's part: the edges of its nodes, their degrees, and their counts of triangles."""

    def __init__(self) -> None:
        self._edges = EdgeSet()
        self._degrees: Column = np.empty(0, np.int64)
        self._counts: Column = np.empty(0, np.int64)
        self._last: Any = None
        self._named = 0
        self._version = 0
        self._edges_log: Log | None = None
        self._counts_log: Log | None = None

    def add(self, info: OperatorInfo, time: Any, collected: list[Collected]) -> Iterator[list[Rows]]:
        """Add edges of nodes here; send the lower end of each new one ``(edge, degree of the higher end, version)``."""
        self._last = next_time(info, self._last, time)
        self._version += 1
        rows = Spool()
        for some in drained(collected[0]):
            rows.append(np.vstack((packed(some[:, 0], some[:, 1]), np.full(len(some), self._version))).T)
        for new in self._add(info, rows):
            if self._edges_log is not None:
                self._edges_log((time, new))
            sources, targets = new[:, 0] >> 32, new[:, 0] & 0xFFFFFFFF
            high = sources > targets
            sources, targets = sources[high], targets[high]
            version = np.full(len(sources), self._version)
            yield [np.vstack((packed(targets, sources), self._degrees[sources // info.peers], version)).T]

    def _add(self, info: OperatorInfo, rows: Spool) -> SortedBlocks:
        """Add edges; return the new ones."""
        new = self._edges.add(rows)
        for some in new:
            places = (some[:, 0] >> 32) // info.peers
            self._degrees = grow(self._degrees, int(places.max(initial=-1)) + 1, 0)
            np.add.at(self._degrees, places, 1)
        return new

    def choose(self, info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Rows]]:
        """Yield ``(near, far, version of the edge at far)``, where ``near`` is the end with fewer edges."""
        for edges, degree, version in _by_key(collected[0], 3):
            low, high = edges >> 32, edges & 0xFFFFFFFF
            swap = degree < self._degrees[low // info.peers]
            at_low = self._edges.versions(edges)
            yield [np.vstack((np.where(swap, high, low), np.where(swap, low, high), np.where(swap, at_low, version))).T]

    def request(self, info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Rows]]:
        """Yield ``(packed far and third, near, version of the edge at far)`` for the neighbours of ``near`` by older edges."""
        for rows in _by_key(collected[0], 3):
            if isinstance(collected[0], Spool):
                blocks = np.cumsum(self._degrees[rows[0] // info.peers]) // (2 * BLOCK)
                some = np.split(rows, run_starts(blocks)[1:], axis=1)
            else:
                some = [rows]
            for near, far, far_version in some:
                places, third, version = self._edges.find(near)
                mine = self._edges.versions(packed(near, far))
                older = _older(version, near[places], third, mine[places], far[places])
                places, third = places[older], third[older]
                yield [np.vstack((packed(far[places], third), near[places], far_version[places])).T]

    def find(self, info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Rows]]:
        """Yield ``(node, triangles)`` for the corners of the triangles that exist."""
        for edges, near, mine in _by_key(collected[0], 3):
            far, third = edges >> 32, edges & 0xFFFFFFFF
            version = self._edges.versions(edges)
            older = (version >= 0) & _older(version, far, third, mine, near)
            yield [np.vstack(value_counts(np.concatenate((near[older], far[older], third[older])))).T]

    def count(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        """Add up the counts; return ``(node, triangles)`` for the nodes that are new or have more."""
        new = join_columns([batch.column("id").to_numpy() for batch in drained(collected[0])]) // info.peers
        self._named = max(self._named, int(new.max(initial=-1)) + 1)
        self._counts = grow(self._counts, self._named, 0)

        def corners() -> Iterator[Column]:
            yield new
            for rows in drained(collected[1]):
                places = rows[:, 0] // info.peers
                np.add.at(self._counts, places, rows[:, 1])
                yield places

        changed = distinct(corners(), self._named)
        counts = np.vstack((changed * info.peers + info.worker, self._counts[changed])).T
        if self._counts_log is not None:
            self._counts_log(counts)
        return [counts]

    def register_edges(self, info: OperatorInfo) -> None:
        """Register the edges, with their versions, since messages in flight have such.

        With other workers nothing is in flight: all edges are older than all later ones, and one version is enough for them.
        """

        def load(item: _Edges) -> None:
            self._last, rows = item
            spool = Spool()
            spool.append(rows)
            self._add(info, spool)
            self._version = max(self._version, int(rows[:, 1].max(initial=0)))

        def repartition(item: _Edges, *_: int) -> Iterator[_Edges]:
            last, rows = item
            mine = rows[(rows[:, 0] >> 32) % info.peers == info.worker, 0]
            yield last, np.vstack((mine, np.zeros(len(mine), np.int64))).T

        def save() -> Iterator[_Edges]:
            if self._last is not None:
                yield self._last, np.empty((0, 2), np.int64)
                yield from ((self._last, rows) for rows in self._edges.rows())

        self._edges_log = register_state(info, save, load, repartition)

    def register_counts(self, info: OperatorInfo) -> None:
        """Register the counts: ``(node, triangles)`` for every node that was named."""

        def load(rows: Rows) -> None:
            places = rows[:, 0] // info.peers
            self._named = max(self._named, int(places.max(initial=-1)) + 1)
            self._counts = grow(self._counts, self._named, 0)
            self._counts[places] = rows[:, 1]

        def save() -> Iterator[Rows]:
            places = np.arange(self._named)
            yield np.vstack((places * info.peers + info.worker, self._counts[places])).T

        self._counts_log = register_state(info, save, load, lambda rows, *_: [owned(info, rows)])


def _by_key(collected: Collected, columns: int) -> Iterator[Rows]:
    """Yield the rows of an input as columns. With a memory budget they are in order of their keys, and so are later lookups."""
    rows = SortedBlocks(collected) if isinstance(collected, Spool) else [join_rows(collected, columns)]
    return (block.T for block in rows)


def _older(version: Column, one: Column, other: Column, than_version: Column, than: Column) -> Any:
    """Return whether the edge between ``one`` and ``other`` comes before that between ``one`` and ``than``."""
    edge = packed(np.minimum(one, other), np.maximum(one, other))
    last = packed(np.minimum(one, than), np.maximum(one, than))
    return (version < than_version) | ((version == than_version) & (edge < last))


def _upper(rows: Rows) -> Column:
    return rows[:, 0] >> 32
