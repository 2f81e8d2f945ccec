"""The graph algorithms from DataFrame to DataFrame, for those who never want to see a scope.

Each function is ``timely.spark.run`` around the same dataflow that runs without Spark, on one graph. ``src`` and ``dst``
name the columns of ``edges`` that hold the ends, both of one type, which is the type of the result's nodes too;
``vertices`` is a DataFrame with a column ``node`` of that type, for nodes that no edge names. The job runs in ``workers``
tasks of one barrier stage. A caller may assume that nothing runs before an action asks for the result, and that columns
and parameters are checked before that, here on the driver: ``SchemaError`` for a column that is missing or of the wrong
type, ``ConfigurationError`` for a parameter that cannot be. Nulls are found when the job runs. For the rest see
``timely.spark.run``, and for each algorithm the function of the same name in ``timely.graphs``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, LongType, NumericType, StructField, StructType

from timely import graphs
from timely.dataflow import ScopeBuilder, Stream
from timely.errors import SchemaError
from timely.graphs.labels import check_rounds
from timely.graphs.rank import check_parameters
from timely.spark import run

Apply = Callable[..., Stream[Any, Any]]


def connected_components(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, workers: int = 2
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

    def apply(edges: Stream[Any, Any], vertices: Stream[Any, Any] | None = None) -> Stream[Any, Any]:
        return graphs.connected_components(edges, vertices=vertices)

    return _run(apply, edges, src, dst, "component", None, workers, vertices)


def strongly_connected_components(edges: DataFrame, src: str = "src", dst: str = "dst", workers: int = 2) -> DataFrame:
    """Return a DataFrame ``(node, component)`` with one row for each node of the graph.

    Two nodes have the same ``component`` if each reaches the other; it is the smallest node among them.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([("b", "a"), ("a", "b"), ("b", "c")], "src string, dst string")
    >>> sorted(tuple(row) for row in strongly_connected_components(edges).collect())
    [('a', 'a'), ('b', 'a'), ('c', 'c')]
    """
    return _run(graphs.strongly_connected_components, edges, src, dst, "component", None, workers)


def pagerank(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds: int | None = None,
    workers: int = 2,
) -> DataFrame:
    """Return a DataFrame ``(node, rank)`` with one row for each node; the ranks, of type double, add up to 1.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 3), (2, 3), (3, 1)], "src long, dst long")
    >>> [(row.node, round(row.rank, 4)) for row in pagerank(edges).orderBy("node").collect()]
    [(1, 0.4635), (2, 0.05), (3, 0.4865)]
    """
    check_parameters(damping, tolerance, rounds)

    def apply(edges: Stream[Any, Any], vertices: Stream[Any, Any] | None = None) -> Stream[Any, Any]:
        return graphs.pagerank(edges, vertices=vertices, damping=damping, tolerance=tolerance, rounds=rounds)

    return _run(apply, edges, src, dst, "rank", DoubleType(), workers, vertices)


def breadth_first_search(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", *, workers: int = 2
) -> DataFrame:
    """Return a DataFrame ``(node, distance)`` with one row for each node that a path from ``source`` leads to: the least
    number of edges on one, of type long.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (4, 1)], "src long, dst long")
    >>> sorted(tuple(row) for row in breadth_first_search(edges, 1).collect())
    [(1, 0), (2, 1), (3, 2)]
    """

    def apply(edges: Stream[Any, Any]) -> Stream[Any, Any]:
        return graphs.breadth_first_search(edges, source)

    return _run(apply, edges, src, dst, "distance", LongType(), workers)


def shortest_paths(
    edges: DataFrame, source: Any, src: str = "src", dst: str = "dst", weight: str = "weight", *, workers: int = 2
) -> DataFrame:
    """Return a DataFrame ``(node, distance)`` with one row for each node that a path from ``source`` leads to: the least
    sum of weights on one, of type double. ``weight`` names a column of numbers from 0 up.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2, 0.5), (2, 3, 1.0), (1, 3, 2.0)], "src long, dst long, weight double")
    >>> sorted(tuple(row) for row in shortest_paths(edges, 1).collect())
    [(1, 0.0), (2, 0.5), (3, 1.5)]
    """
    _require(edges, weight, "edges")
    kind = edges.schema[weight].dataType
    if not isinstance(kind, NumericType):
        raise SchemaError(f"column {weight!r} is {kind.simpleString()}, and a weight must be a number: cast it")

    def apply(edges: Stream[Any, Any]) -> Stream[Any, Any]:
        return graphs.shortest_paths(edges, source)

    weights = _exactly(weight).cast(DoubleType()).alias("weight")
    return _run(apply, edges, src, dst, "distance", DoubleType(), workers, kept=[weights])


def label_propagation(
    edges: DataFrame,
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: DataFrame | None = None,
    rounds: int = 10,
    workers: int = 2,
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

    def apply(edges: Stream[Any, Any], vertices: Stream[Any, Any] | None = None) -> Stream[Any, Any]:
        return graphs.label_propagation(edges, vertices=vertices, rounds=rounds)

    return _run(apply, edges, src, dst, "label", None, workers, vertices)


def triangle_count(
    edges: DataFrame, src: str = "src", dst: str = "dst", *, vertices: DataFrame | None = None, workers: int = 2
) -> DataFrame:
    """Return a DataFrame ``(node, triangles)`` with one row for each node: in how many triangles it is a corner, of type
    long.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> edges = session.createDataFrame([(1, 2), (2, 3), (3, 1), (3, 4)], "src long, dst long")
    >>> sorted(tuple(row) for row in triangle_count(edges).collect())
    [(1, 1), (2, 1), (3, 1), (4, 0)]
    """

    def apply(edges: Stream[Any, Any], vertices: Stream[Any, Any] | None = None) -> Stream[Any, Any]:
        return graphs.triangle_count(edges, vertices=vertices)

    return _run(apply, edges, src, dst, "triangles", LongType(), workers, vertices)


def _run(
    apply: Apply,
    edges: DataFrame,
    src: str,
    dst: str,
    column: str,
    kind: DataType | None,
    workers: int,
    vertices: DataFrame | None = None,
    kept: list[Column] | None = None,
) -> DataFrame:
    """Return ``(node, column)`` from ``apply(edges, vertices)``; the column is of type ``kind``, or else of the nodes'."""
    node = _node_type(edges, src, dst)
    inputs = {"edges": edges.select(_exactly(src).alias("src"), _exactly(dst).alias("dst"), *(kept or []))}
    if vertices is not None:
        inputs["vertices"] = _vertices(vertices, node)

    def build(scope: ScopeBuilder[Any], **streams: Stream[Any, Any]) -> dict[str, Stream[Any, Any]]:
        return {"found": apply(**streams)}

    schema = StructType([StructField("node", node), StructField(column, kind or node)])
    return run(build, inputs, {"found": schema}, workers=workers)["found"]


def _vertices(vertices: DataFrame, node: DataType) -> DataFrame:
    """Return the column of nodes; ``SchemaError`` where it is missing or of another type than the ends of the edges."""
    _require(vertices, "node", "vertices")
    kind = vertices.schema["node"].dataType
    if kind != node:
        raise SchemaError(
            f"the vertices' column 'node' is {kind.simpleString()}, and the ends of the edges are {node.simpleString()}:"
            " cast one of them"
        )
    return vertices.select(_exactly("node"))


def _node_type(edges: DataFrame, src: str, dst: str) -> DataType:
    """Return the type of both columns; ``SchemaError`` where one is missing or they differ."""
    _require(edges, src, "edges")
    _require(edges, dst, "edges")
    source, target = edges.schema[src].dataType, edges.schema[dst].dataType
    if source != target:
        raise SchemaError(
            f"column {src!r} is {source.simpleString()} and column {dst!r} is {target.simpleString()};"
            " both ends of an edge must be of one type: cast one of them"
        )
    return source


def _require(frame: DataFrame, name: str, what: str) -> None:
    if name not in frame.columns:
        raise SchemaError(f"the {what} have no column {name!r}; they have {', '.join(map(repr, frame.columns))}")


def _exactly(name: str) -> Column:
    """Return the column of exactly that name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")
