"""Pregel from DataFrames to a DataFrame, with Python functions that vertices run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, time
from numbers import Number
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from timely import graphs
from timely.dataflow import Stream
from timely.errors import ConfigurationError, SchemaError
from timely.graphs.spark.graph_columns import chosen_columns, column_type, node_type, vertex_columns, widened
from timely.graphs.spark.result import GraphResult, RunOptions, graph_run
from timely.graphs.supersteps import Compute
from timely.spark.reporting import name_of
from timely.spark.versions import arrow_type

_KEYS = (IntegralType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
"""What a message can be sent to, one by one."""


def pregel(
    vertices: DataFrame,
    edges: DataFrame,
    compute: Compute[Any, Any, Any, Any],
    combine: Callable[[Any, Any], Any] | None = None,
    *,
    src: str = "src",
    dst: str = "dst",
    state: str = "state",
    weight: str | None = None,
    **options: Unpack[RunOptions],
) -> GraphResult:
    """Return a DataFrame ``(node, state)`` with one row for each of ``vertices``, in the state that it ended in.

    ``vertices`` has a column ``node`` and one of initial states, of any type, which ``state`` names; the final states have the
    same type. ``compute(vertex, messages)`` is called for every vertex, and then for those that received messages, until nobody
    sends any. It returns the new state, and pairs ``(node, message)``; a message is anything that can be pickled. ``vertex`` is a
    ``timely.graphs.PregelVertex``, whose ``edges`` are the nodes it points to, or with ``weight`` pairs of node and weight, of
    any type. A struct is a dictionary, and a map a list of pairs; timestamps have the session's time zone, and one without any is
    in UTC. ``combine``, a commutative function of two messages, makes one of all messages to a node. Nodes are whole numbers,
    strings, bytes, truth values, dates or timestamps.

    Workers raise ``SchemaError`` for a node that is null or has two rows, for edges or messages of nodes that are no vertices,
    and for a state that the column cannot hold.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> vertices = session.createDataFrame([("a", 3), ("b", 6), ("c", 2), ("d", 1)], "node string, state int")
    >>> edges = session.createDataFrame([("a", "b"), ("b", "a"), ("b", "d"), ("d", "c")], "src string, dst string")
    >>> def greatest(vertex, messages):
    ...     state = max([vertex.state, *messages])
    ...     changed = vertex.superstep == 0 or state > vertex.state
    ...     return state, [(target, state) for target in vertex.edges if changed]
    >>> sorted(tuple(row) for row in pregel(vertices, edges, greatest, max).collect())
    [('a', 6), ('b', 6), ('c', 6), ('d', 6)]
    """
    for name, function in {"compute": compute, "combine": combine}.items():
        if not callable(function) and (name, function) != ("combine", None):
            raise ConfigurationError(f"pregel: {name} must be a function, not {function!r}")
    edges, vertices = widened((edges, "edges", (src, dst)), (vertices, "vertices", ("node",)))
    node = node_type(edges, src, dst)
    if not isinstance(node, _KEYS):
        raise SchemaError(f"pregel: the nodes are {node.simpleString()}, which a message cannot be sent to: cast them to string")
    kind = column_type(vertices, state, "vertices")
    if weight is not None:
        column_type(edges, weight, "edges")
    inputs = {
        "vertices": vertex_columns(vertices, node, state),
        "edges": chosen_columns(edges, {"src": src, "dst": dst, **({} if weight is None else {"weight": weight})}),
    }
    schema = StructType([StructField("node", node), StructField("state", kind)])

    def apply(vertices: Stream[Any, Any], edges: Stream[Any, Any]) -> Stream[Any, Any]:
        ended = graphs.pregel(vertices.map_batch(_states), edges.map_batch(_edges), compute, combine)
        return ended.map_batch(lambda records: _table(records, schema))

    version = f"pregel({name_of(compute)}, {name_of(combine)}, weight={weight!r})"
    return graph_run("pregel", apply, inputs, schema, version, options)


# -- pregel's records --------------------------------------------------------------------------------------------------


def _states(batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
    """Return ``(node, state)``."""
    _refuse_nulls(batch.column("node"), "the vertices' column 'node'")
    return list(zip(batch.column("node").to_pylist(), batch.column("state").to_pylist(), strict=True))


def _edges(batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
    """Return ``(node, edge)``: the edge is where it leads to, or that and its weight."""
    for name in ("src", "dst"):
        _refuse_nulls(batch.column(name), f"the edges' column {name!r}")
    source, *rest = (column.to_pylist() for column in batch.columns)
    return list(zip(source, rest[0] if len(rest) == 1 else zip(*rest, strict=True), strict=True))


def _refuse_nulls(column: pa.Array, what: str) -> None:
    if column.null_count:
        raise SchemaError(f"{what} has {column.null_count} nulls, and a node must have a value: filter them out")


def _table(records: Iterable[tuple[Any, Any]], schema: StructType) -> pa.RecordBatch:
    """Return the records as columns; ``SchemaError`` for a state that the type of the column cannot hold."""
    columns = []
    for place, field in enumerate(schema):
        values = [record[place] for record in records]
        try:
            column = pa.array(values, arrow_type(field.dataType))
            _refuse_cut(column.type, values)
            columns.append(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(
                f"pregel: the states began as {field.dataType.simpleString()}, and compute returned one that is none ({error}):"
                " cast the column, or have compute return such a value"
            ) from error
    return pa.record_batch(columns, names=schema.names)


def _refuse_cut(kind: pa.DataType, values: Iterable[Any]) -> None:
    """Raise ``ValueError`` for values that Arrow would truncate: the fraction of a number, the hour of a date."""
    there = [value for value in values if value is not None]
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        for value in there:
            if _has_fraction(value):
                raise ValueError(f"{value!r} would be cut off as {kind}")
    elif pa.types.is_list(kind):
        _refuse_cut(kind.value_type, itertools.chain.from_iterable(there))
    elif pa.types.is_map(kind):
        pairs = [pair for value in there for pair in (value.items() if isinstance(value, Mapping) else value)]
        for at, part in enumerate((kind.key_type, kind.item_type)):
            _refuse_cut(part, (pair[at] for pair in pairs))
    elif pa.types.is_struct(kind):
        for at, field in enumerate(kind):
            _refuse_cut(field.type, (value.get(field.name) if isinstance(value, Mapping) else value[at] for value in there))


def _has_fraction(value: Any) -> bool:
    """Return whether a number is not whole, or an instant not the beginning of a day."""
    if isinstance(value, datetime):
        return value.time() != time()
    return isinstance(value, Number) and value != int(value)  # type: ignore[call-overload]
