"""The algorithms without functions of the user's: each checks its columns, and runs the dataflow of its name."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DoubleType, LongType, NumericType, StructField, StructType

from timely import graphs
from timely.dataflow import Stream
from timely.errors import SchemaError
from timely.graphs.labels import check_rounds
from timely.graphs.rank import check_parameters
from timely.graphs.spark.graph_columns import chosen_columns, column_type, node_type, source_value, vertex_columns, widened
from timely.graphs.spark.result import GraphResult, RunOptions, graph_run

Apply = partial[Stream[Any, Any]]


def connected_components(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, **options: Unpack[RunOptions]
) -> GraphResult:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    Two nodes have the same ``component`` if a path joins them, whatever the direction of its edges; it is the smallest
    node among them.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("b", "c"), ("d", "e")], "src string, dst string")
    >>> sorted(tuple(row) for row in connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'a'), ('d', 'd'), ('e', 'd')]
    """
    return _run(partial(graphs.connected_components), edges, src, dst, "component", None, options, vertices)


def strongly_connected_components(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, **options: Unpack[RunOptions]
) -> GraphResult:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    Two nodes have the same ``component`` if each reaches the other; it is the smallest node among them.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("a", "b"), ("b", "c")], "src string, dst string")
    >>> sorted(tuple(row) for row in strongly_connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'c')]
    """
    return _run(partial(graphs.strongly_connected_components), edges, src, dst, "component", None, options, vertices)


def pagerank(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds: int | None = None,
    **options: Unpack[RunOptions],
) -> GraphResult:
    """Return a DataFrame ``(node, rank)`` with one row for each node; the ranks, of type double, add up to 1.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 3), (2, 3), (3, 1)], "src long, dst long")
    >>> [(row.node, round(row.rank, 4)) for row in pagerank(edges).orderBy("node").collect()]
    [(1, 0.4635), (2, 0.05), (3, 0.4865)]
    """
    check_parameters(damping, tolerance, rounds)
    apply = partial(graphs.pagerank, damping=damping, tolerance=tolerance, rounds=rounds)
    return _run(apply, edges, src, dst, "rank", DoubleType(), options, vertices)


def breadth_first_search(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", **options: Unpack[RunOptions]
) -> GraphResult:
    """Return a DataFrame ``(node, distance)`` of the nodes that ``source`` reaches: the fewest edges of a path, of type long.

    ``source`` is a value of the nodes' type; a timestamp without a time zone is by this machine's clock. Where it is an end of no
    edge, the result has no rows.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (4, 1)], "src long, dst long")
    >>> sorted(tuple(row) for row in breadth_first_search(edges, 1).collect())
    [(1, 0), (2, 1), (3, 2)]
    """
    source = source_value(source, node_type(edges, src, dst), src)
    return _run(partial(graphs.breadth_first_search, source=source), edges, src, dst, "distance", LongType(), options)


def shortest_paths(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", weight: str = "weight", **options: Unpack[RunOptions]
) -> GraphResult:
    """Return a DataFrame ``(node, distance)`` of the nodes that ``source`` reaches: the least sum of weights, of type double.

    ``source`` is as for :func:`breadth_first_search`. ``weight`` names a column of numbers from 0 up, added as doubles.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2, 0.5), (2, 3, 1.0), (1, 3, 2.0)], "src long, dst long, weight double")
    >>> sorted(tuple(row) for row in shortest_paths(edges, 1).collect())
    [(1, 0.0), (2, 0.5), (3, 1.5)]
    """
    source = source_value(source, node_type(edges, src, dst), src)
    kind = column_type(edges, weight, "edges")
    if not isinstance(kind, NumericType):
        raise SchemaError(f"column {weight!r} is {kind.simpleString()}, and a weight must be a number: cast it")
    return _run(partial(graphs.shortest_paths, source=source), edges, src, dst, "distance", DoubleType(), options, weight=weight)


def label_propagation(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    rounds: int = 10,
    **options: Unpack[RunOptions],
) -> GraphResult:
    """Return a DataFrame ``(node, label)`` with one row for each node: the label, a node, that most of its neighbours had
    in the round before the last.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("a", "b"), ("b", "c"), ("c", "a")], "src string, dst string")
    >>> sorted(tuple(row) for row in label_propagation(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'a')]
    """
    check_rounds(rounds)
    return _run(partial(graphs.label_propagation, rounds=rounds), edges, src, dst, "label", None, options, vertices)


def triangle_count(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, **options: Unpack[RunOptions]
) -> GraphResult:
    """Return a DataFrame ``(node, triangles)`` with one row for each node: in how many triangles it is a corner, of type
    long.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (3, 1), (3, 4)], "src long, dst long")
    >>> sorted(tuple(row) for row in triangle_count(edges).collect())
    [(1, 1), (2, 1), (3, 1), (4, 0)]
    """
    return _run(partial(graphs.triangle_count), edges, src, dst, "triangles", LongType(), options, vertices)


def _run(
    apply: Apply,
    edges: DataFrame,
    src: str,
    dst: str,
    column: str,
    kind: DataType | None,
    options: RunOptions,
    vertices: DataFrame | None = None,
    weight: str | None = None,
) -> GraphResult:
    """Return ``(node, column)`` from ``apply(edges, vertices)``; the column is of type ``kind``, or else of the nodes'."""
    ends_of = (edges, "edges", (src, dst))
    if vertices is None:
        (edges,) = widened(ends_of)
    else:
        edges, vertices = widened(ends_of, (vertices, "vertices", ("node",)))
    node = node_type(edges, src, dst)
    ends = {"src": src, "dst": dst}
    if weight is None:
        inputs = {"edges": chosen_columns(edges, ends)}
    else:
        weighed = chosen_columns(edges, {**ends, "weight": weight})
        inputs = {"edges": weighed.selectExpr("src", "dst", "CAST(weight AS DOUBLE) AS weight")}
    if vertices is not None:
        inputs["vertices"] = vertex_columns(vertices, node)

    name = apply.func.__name__
    schema = StructType([StructField("node", node), StructField(column, kind or node)])
    version = f"{name}({', '.join(f'{name}={value!r}' for name, value in sorted(apply.keywords.items()))})"
    return graph_run(name, apply, inputs, schema, version, options)
