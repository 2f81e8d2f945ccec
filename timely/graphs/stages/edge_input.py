"""The input of graph algorithms: columns of Arrow batches, validated, and the worker that each node belongs to.

The invariant: a column that is returned is in its batch once, has no nulls, one type in all batches, and no dictionary. Anything
else is a ``SchemaError`` that names the operator and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, route_column, without_views
from timely.errors import RoutingError, SchemaError, TimestampError
from timely.graphs.structures.arrays import Column, Floats
from timely.operators.type_variables import T

_BLOCK: Final = 10
"""Number of low bits that do not affect which worker an integer belongs to."""

_GOLDEN: Final = 0x9E3779B97F4A7C15
"""The fraction of the golden ratio in 64 bits, for Fibonacci hashing."""


def edge_columns(
    info: OperatorInfo, batches: Sequence[Any], src: str, dst: str, expected: pa.DataType | None = None
) -> list[pa.Array]:
    """Return the sources of all batches, then the targets; all of type ``expected``, or else of the first one's."""
    return _nodes(info, batches, (src, dst), expected, "column", f"{src!r} began with")


def vertex_columns(info: OperatorInfo, batches: Sequence[Any], expected: pa.DataType | None = None) -> list[pa.Array]:
    """Return the column ``node`` of all batches, of type ``expected``, or else of the first one's."""
    return _nodes(info, batches, ("node",), expected, "the vertices' column", "the other nodes are of type")


def _nodes(
    info: OperatorInfo, batches: Sequence[Any], names: Sequence[str], expected: pa.DataType | None, what: str, but: str
) -> list[pa.Array]:
    columns = [(name, _node_column(info, batch, name)) for name in names for batch in batches]
    for name, column in columns:
        kind = expected or columns[0][1].type
        if column.type != kind:
            raise SchemaError(
                f"{info.path}: {what} {name!r} is of type {column.type}, and {but} {kind}; all nodes must be of one type:"
                " cast one of them"
            )
    return [column for _, column in columns]


def weight_column(info: OperatorInfo, batches: Sequence[Any], name: str) -> Floats:
    """Return the weights of all batches: finite floats, at least 0."""
    columns = [_column(info, batch, name) for batch in batches]
    for column in columns:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise SchemaError(f"{info.path}: column {name!r} is of type {kind}, and a weight must be a number: cast it")
        _refuse_nulls(info, column, name, "a weight")
    weights: Floats = np.concatenate([column.to_numpy().astype(np.float64) for column in columns] or [np.empty(0)])
    wrong = weights[~((weights >= 0) & (weights < np.inf))]
    if len(wrong):
        raise SchemaError(
            f"{info.path}: column {name!r} has the weight {wrong[0]}, and a weight must be a finite number from 0 up:"
            " filter such edges out"
        )
    return weights


def node_routes(info: OperatorInfo, values: pa.Array, src: str) -> Column:
    """Return the routing number of each node.

    Integers, dates and times are partitioned in blocks of consecutive ones, since these are often neighbours, and blocks by
    Fibonacci hashing, which spreads consecutive ones evenly. Types without a route of their own are routed as text.
    """
    try:
        routes = route_column(values)
    except RoutingError:
        try:
            return route_column(values.cast(pa.string()))
        except pa.ArrowException as error:
            raise SchemaError(f"{info.path}: column {src!r} is of type {values.type}, which cannot be a node: {error}") from error
    if not (pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)):
        return routes
    mixed = (routes >> _BLOCK).view(np.uint64)
    mixed *= np.uint64(_GOLDEN)
    mixed >>= np.uint64(32)
    mixed *= np.uint64(info.peers)
    mixed >>= np.uint64(32)
    return mixed.view(np.int64)


def same_type(info: OperatorInfo, kinds: Sequence[pa.DataType], expected: pa.DataType | None = None) -> pa.DataType:
    """Return the type of the nodes that workers have sent: ``expected``, or else the first one's."""
    kind = expected or kinds[0]
    for other in kinds:
        if other != kind:
            raise SchemaError(f"{info.path}: some workers have nodes of type {other}, others of {kind}: cast them")
    return kind


def next_time(info: OperatorInfo, last: T | None, time: T) -> T:
    """Return ``time``; ``TimestampError`` unless it is after ``last``, the time before, if there was one."""
    if last is not None and not last <= time:
        raise TimestampError(
            f"{info.path}: {time!r} does not come after {last!r}, the time before:"
            " the times of a graph that grows must be totally ordered"
        )
    return time


def _node_column(info: OperatorInfo, batch: Any, name: str) -> pa.Array:
    """Return a column of nodes without dictionary, with one zero for both zeros of floats.

    Views become strings or bytes, and floats of 16 bits become 32, since Arrow sorts neither.
    """
    column = _column(info, batch, name)
    while pa.types.is_dictionary(column.type):
        column = without_views(column).dictionary_decode()
    column = without_views(column)
    remedy = _remedy(column.type)
    if remedy:
        raise SchemaError(f"{info.path}: column {name!r} is of type {column.type}, which cannot be a node: {remedy}")
    _refuse_nulls(info, column, name, "a node")
    if pa.types.is_floating(column.type):
        floats = column.to_numpy()
        return pa.array(floats.astype(np.promote_types(floats.dtype, np.float32)) + 0.0)
    return column


def _remedy(kind: pa.DataType) -> str:
    """Return what to do about a type whose values Arrow cannot compare; an empty string for other types."""
    if isinstance(kind, pa.BaseExtensionType):
        return f"cast it to what it is stored as, {kind.storage_type}"
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return f"cast it to decimal128({kind.precision}, {kind.scale})"
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        return "give each node a number or a string of its own"
    return ""


def _column(info: OperatorInfo, batch: Any, name: str) -> pa.Array:
    """Return a column; ``SchemaError`` if it is missing."""
    if not isinstance(batch, pa.RecordBatch):
        raise SchemaError(f"{info.path}: edges must come as Arrow record batches, not as {type(batch).__name__}")
    names = batch.schema.names
    if names.count(name) != 1:
        there = "no" if name not in names else "more than one"
        have = ", ".join(map(repr, names))
        raise SchemaError(f"{info.path}: there is {there} column {name!r}; the edges have {have}")
    return batch.column(name)


def _refuse_nulls(info: OperatorInfo, column: pa.Array, name: str, what: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"{info.path}: column {name!r} has {column.null_count} nulls, and {what} must have a value: filter them out"
        )
