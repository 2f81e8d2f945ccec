"""``GraphPartition``: one worker's vertices and the edges that start at them, with mirrors of the vertices that these lead to.

Vertices belong to workers by their value. A worker has one mirror of each vertex that its edges lead to, sorted by the worker it
belongs to. The invariant: ``mirrored[peer]`` has the places of this worker's vertices in the order of the mirrors on ``peer``,
so that values travel between vertices and mirrors as plain arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import OperatorInfo
from timely.dataflow.containers.partition_arrays import rows_by_worker
from timely.errors import SchemaError
from timely.graphs.graphframes.pregel.bulk_synchronous import Steps
from timely.graphs.stages.edge_input import edge_columns, node_routes, vertex_columns
from timely.graphs.structures.arrays import Column, Lists, inverse, join_columns, sorted_order
from timely.graphs.structures.dictionary import Dictionary


@attrs.frozen(eq=False)
class GraphPartition:
    """One worker's part of a graph. Vertices have places ``0, 1, ...`` on it, and so have edges and mirrors."""

    nodes: pa.Array
    """The value of each vertex."""
    attributes: pa.Table
    """The further columns of the vertices."""
    sources: Column
    """The place of the vertex at which each edge starts."""
    targets: Column
    """The place of the mirror to which each edge leads."""
    edge_attributes: pa.Table
    """The further columns of the edges."""
    bounds: list[int]
    """Mirrors ``bounds[peer]`` up to ``bounds[peer + 1]`` are of vertices of ``peer``."""
    mirrored: list[Column]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def mirrors(self) -> int:
        """How many mirrors there are."""
        return self.bounds[-1]

    def degrees(self) -> Column:
        """Return how many edges start at each vertex."""
        return np.bincount(self.sources, minlength=len(self))

    def by_owner(self, values: Any) -> list[Any]:
        """Return what ``values`` of all mirrors each worker has to get for its vertices."""
        return [values[start:end] for start, end in zip(self.bounds, self.bounds[1:])]

    def to_owners(self, mirrors: Column, *values: Any) -> list[Any]:
        """Return what each worker has to get of messages to ``mirrors``, with their ``values``: arrays of one length."""
        order = sorted_order(mirrors)
        mirrors = mirrors[order]
        values = tuple(each[order] for each in values)
        cuts = np.searchsorted(mirrors, self.bounds).tolist()
        return [
            (mirrors[start:end] - bound, *(each[start:end] for each in values))
            for start, end, bound in zip(cuts, cuts[1:], self.bounds)
        ]

    def from_mirrors(self, received: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the places that received messages are for, and their values."""
        places = [mirrored[indices] for mirrored, (indices, *_) in zip(self.mirrored, received, strict=True)]
        return [
            np.concatenate(places),
            *(np.concatenate(values) for values in zip(*(rest for _, *rest in received), strict=True)),
        ]

    def to_mirrors(self, values: Any) -> list[Any]:
        """Return what ``values`` of all vertices each worker has to get for its mirrors."""
        return [values[places] for places in self.mirrored]

    def by_source(self) -> Lists:
        """Return the targets of each vertex."""
        return Lists(np.concatenate(([0], np.cumsum(self.degrees()))), self.targets[sorted_order(self.sources)])


def partitioned(
    info: OperatorInfo, vertices: Sequence[pa.RecordBatch], edges: Sequence[pa.RecordBatch], *, both_ways: bool = False
) -> Steps[GraphPartition]:
    """Return this worker's part of the graph of all workers' batches, in two steps.

    ``vertices`` have a column ``node``, ``edges`` have ``src`` and ``dst``. With ``both_ways`` edges are there in either
    direction, loops twice. ``SchemaError`` for two vertices with one value, and for edges whose ends are no vertices.
    """
    own = _vertex_table(info, vertices)
    joined = _edge_table(info, edges)
    if both_ways and joined is not None:
        joined = _both_ways(joined)
    received: list[tuple[pa.Table | None, pa.Table | None]] = yield list(
        zip(_by_owner(info, own, "node"), _by_owner(info, joined, "src"), strict=True)
    )
    table, joined = _together([vertex for vertex, _ in received]), _together([edge for _, edge in received])
    if table is None:  # no worker has a vertex, so edges have ends that are none
        table = pa.table({"node": joined["src"][:0] if joined is not None else pa.array([], pa.int64())})
    values = table["node"].combine_chunks()
    places = Dictionary()
    codes, nodes = places.encode(values)
    if len(nodes) < len(values):
        raise SchemaError(f"{info.path}: there are two vertices {_repeated(values)!r}; a vertex has one row: drop the others")
    if joined is None:
        joined = pa.table({"src": nodes[:0], "dst": nodes[:0]})
    sources, targets, mirrors = _numbered(info, places, joined)
    owners = _places_by_owner(info, mirrors)
    at = inverse(join_columns(owners))
    asked: list[pa.Array] = yield [mirrors.take(pa.array(chosen)) for chosen in owners]
    mirrored = [_known(info, places, others, "leads to") for others in asked]
    return GraphPartition(
        nodes,
        table.drop_columns(["node"]).take(pa.array(inverse(codes))),
        sources,
        at[targets],
        joined.drop_columns(["src", "dst"]),
        [0, *np.cumsum([len(chosen) for chosen in owners]).tolist()],
        mirrored,
    )


def result_batch(part: GraphPartition, **columns: Any) -> pa.RecordBatch:
    """Return ``(node, ...)`` with a row for each vertex."""
    return pa.record_batch({"node": part.nodes, **columns})


def _vertex_table(info: OperatorInfo, batches: Sequence[pa.RecordBatch]) -> pa.Table | None:
    return _with_columns(batches, node=vertex_columns(info, batches))


def _edge_table(info: OperatorInfo, batches: Sequence[pa.RecordBatch]) -> pa.Table | None:
    ends = edge_columns(info, batches, "src", "dst")
    return _with_columns(batches, src=ends[: len(batches)], dst=ends[len(batches) :])


def _with_columns(batches: Sequence[pa.RecordBatch], **columns: list[pa.Array]) -> pa.Table | None:
    """Return the batches as a table, with columns that were checked in place of their own."""
    if not batches:
        return None
    table = pa.Table.from_batches(batches)
    rest = {name: table[name] for name in table.column_names if name not in columns}
    return pa.table({**{name: pa.chunked_array(parts) for name, parts in columns.items()}, **rest})


def _both_ways(edges: pa.Table) -> pa.Table:
    swapped = edges.rename_columns([{"src": "dst", "dst": "src"}.get(name, name) for name in edges.column_names])
    return pa.concat_tables([edges, swapped.select(edges.column_names)])


def _by_owner(info: OperatorInfo, table: pa.Table | None, column: str) -> list[pa.Table | None]:
    """Return the rows of each worker; where this one has none, no schema."""
    if table is None:
        return [None] * info.peers
    nodes = table[column].combine_chunks()
    return [table.take(pa.array(rows)) for rows in _places_by_owner(info, nodes)]


def _places_by_owner(info: OperatorInfo, nodes: pa.Array) -> list[Column]:
    rows = dict(rows_by_worker(node_routes(info, nodes, "node"), info.peers)) if len(nodes) else {}
    return [rows.get(peer, np.empty(0, np.int64)) for peer in range(info.peers)]


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    there = [table for table in tables if table is not None]
    return pa.concat_tables(there) if there else None


def _numbered(info: OperatorInfo, places: Dictionary, edges: pa.Table) -> tuple[Column, Column, pa.Array]:
    """Return the places of the sources, the codes of the targets, and the values of these codes."""
    source, target = (edges[name].combine_chunks() for name in ("src", "dst"))
    codes, mirrors = Dictionary().encode(target)
    return _known(info, places, source, "starts at"), codes, mirrors


def _known(info: OperatorInfo, places: Dictionary, nodes: pa.Array, what: str) -> Column:
    """Return the places of nodes; ``SchemaError`` for one that is no vertex."""
    codes, new = places.encode(nodes)
    if len(new):
        raise SchemaError(f"{info.path}: an edge {what} {new[0].as_py()!r}, which is no vertex: add it to the vertices")
    return codes


def _repeated(nodes: pa.Array) -> Any:
    counts = pc.value_counts(nodes)
    return next(count["values"].as_py() for count in counts if count["counts"].as_py() > 1)
