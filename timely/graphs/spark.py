"""The graph algorithms from DataFrame to DataFrame, without a scope in sight.

Each function is ``timely.spark.run`` around the dataflow of the same name in ``timely.graphs``. ``src`` and ``dst`` name the
columns of ``edges`` that hold the ends, both of one type, which is that of the result's nodes too. ``vertices`` has a column
``node`` of that type, for nodes without edges. Nothing runs before an action asks for the result; columns and parameters are
checked at the call: ``SchemaError`` for a missing column or a wrong type, ``ConfigurationError`` for a parameter that cannot be.
See ``docs/graphs_on_spark.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time
from functools import partial
from numbers import Number
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from timely import graphs
from timely.dataflow import ScopeBuilder, Stream
from timely.errors import ConfigurationError, SchemaError
from timely.graphs.distances import as_node
from timely.graphs.labels import check_rounds
from timely.graphs.rank import check_parameters
from timely.graphs.supersteps import Compute
from timely.spark import run
from timely.spark.session import refuse_connect

__all__ = [
    "breadth_first_search",
    "connected_components",
    "label_propagation",
    "pagerank",
    "pregel",
    "shortest_paths",
    "strongly_connected_components",
    "triangle_count",
]

Apply = partial[Stream[Any, Any]]

_KEYS = (IntegralType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
"""What a message can be sent to, one by one."""


def connected_components(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, workers: int | None = None
) -> DataFrame:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    Two nodes have the same ``component`` if a path joins them, whatever the direction of its edges; it is the smallest
    node among them.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("b", "c"), ("d", "e")], "src string, dst string")
    >>> sorted(tuple(row) for row in connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'a'), ('d', 'd'), ('e', 'd')]
    """
    return _run(partial(graphs.connected_components), edges, src, dst, "component", None, workers, vertices)


def strongly_connected_components(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, workers: int | None = None
) -> DataFrame:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    Two nodes have the same ``component`` if each reaches the other; it is the smallest node among them.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("a", "b"), ("b", "c")], "src string, dst string")
    >>> sorted(tuple(row) for row in strongly_connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'c')]
    """
    return _run(partial(graphs.strongly_connected_components), edges, src, dst, "component", None, workers, vertices)


def pagerank(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds: int | None = None,
    workers: int | None = None,
) -> DataFrame:
    """Return a DataFrame ``(node, rank)`` with one row for each node; the ranks, of type double, add up to 1.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 3), (2, 3), (3, 1)], "src long, dst long")
    >>> [(row.node, round(row.rank, 4)) for row in pagerank(edges).orderBy("node").collect()]
    [(1, 0.4635), (2, 0.05), (3, 0.4865)]
    """
    check_parameters(damping, tolerance, rounds)
    apply = partial(graphs.pagerank, damping=damping, tolerance=tolerance, rounds=rounds)
    return _run(apply, edges, src, dst, "rank", DoubleType(), workers, vertices)


def breadth_first_search(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", *, workers: int | None = None
) -> DataFrame:
    """Return a DataFrame ``(node, distance)`` of the nodes that ``source`` reaches: the fewest edges of a path, of type long.

    ``source`` is a value of the nodes' type; a timestamp without a time zone is by this machine's clock. Where it is an end of no
    edge, the result has no rows.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (4, 1)], "src long, dst long")
    >>> sorted(tuple(row) for row in breadth_first_search(edges, 1).collect())
    [(1, 0), (2, 1), (3, 2)]
    """
    source = _as_source(source, _node_type(edges, src, dst), src)
    return _run(partial(graphs.breadth_first_search, source=source), edges, src, dst, "distance", LongType(), workers)


def shortest_paths(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", weight: str = "weight", *, workers: int | None = None
) -> DataFrame:
    """Return a DataFrame ``(node, distance)`` of the nodes that ``source`` reaches: the least sum of weights, of type double.

    ``source`` is as for :func:`breadth_first_search`. ``weight`` names a column of numbers from 0 up, added as doubles.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2, 0.5), (2, 3, 1.0), (1, 3, 2.0)], "src long, dst long, weight double")
    >>> sorted(tuple(row) for row in shortest_paths(edges, 1).collect())
    [(1, 0.0), (2, 0.5), (3, 1.5)]
    """
    source = _as_source(source, _node_type(edges, src, dst), src)
    kind = _require(edges, weight, "edges")
    if not isinstance(kind, NumericType):
        raise SchemaError(f"column {weight!r} is {kind.simpleString()}, and a weight must be a number: cast it")
    return _run(partial(graphs.shortest_paths, source=source), edges, src, dst, "distance", DoubleType(), workers, weight=weight)


def label_propagation(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    rounds: int = 10,
    workers: int | None = None,
) -> DataFrame:
    """Return a DataFrame ``(node, label)`` with one row for each node: the label, a node, that most of its neighbours had
    in the round before the last.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("a", "b"), ("b", "c"), ("c", "a")], "src string, dst string")
    >>> sorted(tuple(row) for row in label_propagation(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'a')]
    """
    check_rounds(rounds)
    return _run(partial(graphs.label_propagation, rounds=rounds), edges, src, dst, "label", None, workers, vertices)


def triangle_count(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, workers: int | None = None
) -> DataFrame:
    """Return a DataFrame ``(node, triangles)`` with one row for each node: in how many triangles it is a corner, of type
    long.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (3, 1), (3, 4)], "src long, dst long")
    >>> sorted(tuple(row) for row in triangle_count(edges).collect())
    [(1, 1), (2, 1), (3, 1), (4, 0)]
    """
    return _run(partial(graphs.triangle_count), edges, src, dst, "triangles", LongType(), workers, vertices)


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
    workers: int | None = None,
) -> DataFrame:
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
    node = _node_type(edges, src, dst)
    if not isinstance(node, _KEYS):
        raise SchemaError(f"pregel: the nodes are {node.simpleString()}, which a message cannot be sent to: cast them to string")
    kind = _require(vertices, state, "vertices")
    if weight is not None:
        _require(edges, weight, "edges")
    inputs = {
        "vertices": _vertices(vertices, node, state),
        "edges": _columns(edges, {"src": src, "dst": dst, **({} if weight is None else {"weight": weight})}),
    }
    schema = StructType([StructField("node", node), StructField("state", kind)])

    def build(scope: ScopeBuilder[Any], **streams: Stream[Any, Any]) -> dict[str, Stream[Any, Any]]:
        given, along = streams["vertices"].map_batch(_states), streams["edges"].map_batch(_edges)
        ended = graphs.pregel(given, along, compute, combine)
        return {"found": ended.map_batch(lambda records: _table(records, schema))}

    build.__name__ = "pregel"
    return run(build, inputs, {"found": schema}, workers=workers)["found"]


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
            column = pa.array(values, to_arrow_type(field.dataType, timezone="UTC"))
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


# -- what all of them do -----------------------------------------------------------------------------------------------


def _run(
    apply: Apply,
    edges: DataFrame,
    src: str,
    dst: str,
    column: str,
    kind: DataType | None,
    workers: int | None,
    vertices: DataFrame | None = None,
    weight: str | None = None,
) -> DataFrame:
    """Return ``(node, column)`` from ``apply(edges, vertices)``; the column is of type ``kind``, or else of the nodes'."""
    node = _node_type(edges, src, dst)
    ends = {"src": src, "dst": dst}
    if weight is None:
        inputs = {"edges": _columns(edges, ends)}
    else:
        weighed = _columns(edges, {**ends, "weight": weight})
        inputs = {"edges": weighed.selectExpr("src", "dst", "CAST(weight AS DOUBLE) AS weight")}
    if vertices is not None:
        inputs["vertices"] = _vertices(vertices, node)

    def build(scope: ScopeBuilder[Any], **streams: Stream[Any, Any]) -> dict[str, Stream[Any, Any]]:
        return {"found": apply(**streams)}

    build.__name__ = apply.func.__name__  # what Spark's plans and descriptions of jobs say
    schema = StructType([StructField("node", node), StructField(column, kind or node)])
    return run(build, inputs, {"found": schema}, workers=workers)["found"]


def _vertices(vertices: DataFrame, node: DataType, state: str | None = None) -> DataFrame:
    """Return the columns of nodes and states; ``SchemaError`` for nodes of another type than the edges' ends."""
    kind = _require(vertices, "node", "vertices")
    if kind != node:
        raise SchemaError(
            f"the vertices' column 'node' is {kind.simpleString()}, and the ends of the edges are {node.simpleString()}:"
            " cast one of them"
        )
    return _columns(vertices, {"node": "node", **({} if state is None else {"state": state})})


def _node_type(edges: DataFrame, src: str, dst: str) -> DataType:
    """Return the type of both columns; ``SchemaError`` where one is missing, they differ, or it is none of a node's."""
    source, target = (_require(edges, name, "edges") for name in (src, dst))
    if source != target:
        raise SchemaError(
            f"column {src!r} is {source.simpleString()} and column {dst!r} is {target.simpleString()};"
            " both ends of an edge must be of one type: cast one of them"
        )
    if isinstance(source, ArrayType | MapType | StructType | NullType) or source.typeName() == "variant":
        raise SchemaError(
            f"columns {src!r} and {dst!r} are {source.simpleString()}, which cannot be a node:"
            " use a plain value, such as to_json() of it"
        )
    if isinstance(source, StringType) and source != StringType():
        raise SchemaError(
            f"columns {src!r} and {dst!r} are {source.simpleString()}, in which different strings may be equal; nodes are"
            " compared letter by letter: cast both to string, after lower() or what makes equal ones the same"
        )
    return source


def _as_source(source: Any, node: DataType, src: str) -> Any:
    """Return a source as the workers look it up; ``ConfigurationError`` for one that is no value of the nodes' type."""
    try:
        kind = to_arrow_type(node, timezone="UTC")
    except PySparkException:
        return source  # a type that timely.spark.run refuses, and says why
    try:
        if isinstance(node, TimestampType) and isinstance(source, datetime) and source.tzinfo is None:
            source = datetime.combine(source.date(), source.time()).astimezone(UTC)
        found = pa.array([source], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"the source is {source!r}, and the nodes are {node.simpleString()}: give one of these ({error})"
        ) from error
    if found.null_count:
        raise ConfigurationError(f"the source is {source!r}, which is no node")
    try:
        as_node(source, kind, src)
    except SchemaError as error:
        raise ConfigurationError(str(error)) from error
    return source


def _require(frame: object, name: object, what: str) -> DataType:
    """Return the type of the one column of that name; ``SchemaError`` where there is none, or more than one."""
    refuse_connect(f"the table of {what}", frame)
    if not isinstance(frame, DataFrame):
        given = f"{type(frame)!r}: session.createDataFrame(...) makes one"
        raise ConfigurationError(f"the {what} must be a Spark DataFrame, not {given}")
    if not isinstance(name, str):
        raise ConfigurationError(f"a column of the {what} is chosen by its name, a string, not by {name!r}")
    found: list[DataType] = [field.dataType for field in frame.schema if field.name == name]
    if not found:
        raise SchemaError(f"the {what} have no column {name!r}; they have {', '.join(map(repr, frame.columns))}")
    if len(found) > 1:
        raise SchemaError(f"the {what} have {len(found)} columns {name!r}: rename or drop all but one")
    return found[0]


def _columns(frame: DataFrame, chosen: dict[str, str]) -> DataFrame:
    """Return the chosen columns of a frame, by their exact names, under ``chosen``'s names.

    Spark looks names up without regard to case; where several differ in that alone, positions take it a plan more.
    """
    plain = [name.lower() for name in frame.columns]
    if all(plain.count(column.lower()) == 1 for column in chosen.values()):
        places = {column: "`" + column.replace("`", "``") + "`" for column in chosen.values()}
    else:
        numbered = [f"column_{at}" for at in range(len(frame.columns))]
        places = dict(zip(frame.columns, numbered, strict=True))
        frame = frame.toDF(*numbered)
    return frame.selectExpr(*(f"{places[column]} AS {name}" for name, column in chosen.items()))
