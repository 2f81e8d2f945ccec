"""Breadth-first search and shortest paths: the distances from one node, and how they shrink as edges are added.

Both are delta-stepping on numbered edges; in a breadth-first search every edge has the weight 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import Stream
from timely.errors import SchemaError
from timely.graphs.delta_stepping import relax
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.node_joins import name_values
from timely.graphs.structures.arrays import Column, Rows, floats
from timely.operators.type_variables import T


def breadth_first_search(edges: Stream[T, Any], source: Any, src: str = "src", dst: str = "dst") -> Stream[T, Any]:
    """Return Arrow batches ``(node, distance)``: at each time the nodes whose distance from ``source`` is new or less.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; ``source`` is a node. The distance is the
    least number of edges on a path from ``source`` in their direction, as int64. Everything else is as for ``shortest_paths``.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = breadth_first_search(edges, "a").capture()
    >>> handle.send_batch(pa.record_batch({"src": ["a", "b", "c"], "dst": ["b", "c", "d"]}))
    >>> handle.advance_to(1)
    >>> handle.send_batch(pa.record_batch({"src": ["a"], "dst": ["c"]}))
    >>> handle.close()
    >>> worker.run()
    >>> for time, rows in found.extract():
    ...     print(time, rows)
    0 [('a', 0), ('b', 1), ('c', 2), ('d', 3)]
    1 [('c', 1), ('d', 2)]
    """
    numbers, names = encode(edges, src, dst, lasting=True)
    distances = relax(numbers, names.map_batch(lambda batch: _seed(batch, source, src)), weighted=False)
    return name_values(names, distances, "distance", _as_integers)


def shortest_paths(
    edges: Stream[T, Any], source: Any, src: str = "src", dst: str = "dst", weight: str = "weight"
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, distance)``: at each time the nodes whose distance from ``source`` is new or less.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type, and ``weight``, finite numbers from 0
    up; ``source`` is a node. The distance is the least sum of weights on a path from ``source``, as float64; a sum beyond all
    floats is no distance. Nodes that no path reaches have no row. Edges stay for all later times, and the latest row of a node
    is its answer. A time costs its edges, and those of the nodes whose distance changes. ``SchemaError``, as the cause of an
    ``OperatorError``, for a column that is missing or has nulls, types that differ, a weight below 0, or a ``source`` of
    another type than the nodes; ``TimestampError`` for times without an order. Source: delta-stepping (Meyer and Sanders 2003),
    in a loop of Naiad section 2.1.

    >>> import timely
    >>> def build(scope):
    ...     edges = pa.record_batch({"src": [1, 1, 2], "dst": [2, 3, 3], "weight": [0.5, 4, 2]})
    ...     return shortest_paths(scope.to_stream([0]).map_batch(lambda _: edges), 1)
    >>> timely.example(build)
    [(0, [(1, 0.0), (2, 0.5), (3, 2.5)])]
    """
    numbers, names = encode(edges, src, dst, weight=weight, lasting=True)
    distances = relax(numbers, names.map_batch(lambda batch: _seed(batch, source, src)))
    return name_values(names, distances, "distance", floats)


def _seed(names: pa.RecordBatch, source: Any, src: str) -> Rows:
    """Return ``(number, bits of 0.0)`` of the source, if it is among the names."""
    values = names.column("value")
    index = _index(values, as_node(source, values.type, src))
    return np.array([[names.column("id")[index].as_py(), 0]] if index >= 0 else np.empty((0, 2)), np.int64)


def as_node(source: Any, kind: pa.DataType, src: str) -> pa.Array:
    """Return the source as a column of type ``kind``; ``SchemaError`` unless that represents it exactly."""
    try:
        node = pa.array([source], kind)
        why = "" if _is_exact(source, node) else f"it would be {node[0]}"
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        why = str(error)
    if why:
        raise SchemaError(
            f"the source is {source!r}, and the nodes in column {src!r} are of type {kind}: give a value of that type ({why})"
        )
    return node


def _is_exact(source: Any, node: pa.Array) -> bool:
    """Return whether a node is equal to the source, but for rounding of floats.

    A string may be given as its bytes, and an instant in any time zone.
    """
    kind = node.type
    if node.null_count:
        return False
    if isinstance(source, pa.Scalar | np.datetime64 | np.timedelta64):
        return True  # Arrow itself refuses another type or unit
    if pa.types.is_floating(kind):
        return bool(node[0].as_py() == source) or not np.isinf(node[0].as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        finest = _finest(source, kind)
        return bool(node.cast(finest.type).equals(finest))
    return bool(node[0].as_py() == source)


def _finest(source: Any, kind: pa.DataType) -> pa.Array:
    """Return a source in nanoseconds, or in microseconds if these cannot hold it."""
    if pa.types.is_time(kind):
        return pa.array([source], pa.time64("ns"))
    units = [pa.timestamp(unit, kind.tz) if pa.types.is_timestamp(kind) else pa.duration(unit) for unit in ("ns", "us")]
    try:
        return pa.array([source], units[0])
    except (pa.ArrowInvalid, OverflowError):
        return pa.array([source], units[1])


def _index(values: pa.Array, node: pa.Array) -> int:
    """Return where a node is among values, or -1. All NaN are one node."""
    if pa.types.is_floating(values.type) and np.isnan(node[0].as_py()):
        index = pc.is_nan(values).index(True)
    elif pa.types.is_duration(values.type):  # Arrow does not find durations
        index = values.view(pa.int64()).index(node.view(pa.int64())[0])
    else:
        index = values.index(node[0])
    return int(index.as_py())


def _as_integers(column: Column) -> Column:
    return floats(column).astype(np.int64)
