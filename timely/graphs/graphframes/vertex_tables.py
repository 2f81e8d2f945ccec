"""Methods whose loop is a part of the work: ranks, ratings, shortest paths as tables, and MLlib's clusters."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, IntegralType, LongType, NumericType, StructField, StructType

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.graph_tables import (
    DEFAULT_LEVEL,
    DISTANCES,
    DST,
    ID,
    SRC,
    WEIGHT,
    GraphTables,
    condition,
    field,
    first_row,
    nested,
)
from timely.graphs.graphframes.pregel.paths import landmark_distances
from timely.graphs.graphframes.pregel.personalized_rank import Dangling, personalized_pagerank
from timely.graphs.graphframes.pregel.svd_plus_plus import Factorization, svd_plus_plus
from timely.graphs.spark.graph_columns import column_type, quoted
from timely.graphs.spark.result import GraphResult, RunOptions, check_positive
from timely.spark import Result


def ranks(
    tables: GraphTables,
    method: str,
    sources: list[Any],
    reset: float,
    rounds: int | None,
    tol: float | None,
    dangling: Dangling,
    options: RunOptions,
) -> GraphResult:
    """Return ``(node, ranks)`` with a rank for each of ``sources``, or one for all vertices where there are none."""
    if rounds is not None:
        check_positive(method, "maxIter", rounds)
    if not 0 < reset <= 1:
        raise ConfigurationError(f"{method}: resetProbability must be above 0 and at most 1, not {reset!r}")
    if (rounds is None) == (tol is None):
        raise ConfigurationError(f"{method}: exactly one of maxIter and tol must be given, not {rounds!r} and {tol!r}")
    if tol is not None and not tol > 0:
        raise ConfigurationError(f"{method}: tol must be above 0, not {tol!r}")
    if dangling not in get_args(Dangling):
        raise ConfigurationError(f"{method}: dangling must be 'spread' or 'scale', not {dangling!r}")
    apply = partial(
        personalized_pagerank,
        sources=len(sources),
        damping=1 - reset,
        tolerance=tol,
        rounds=rounds,
        dangling=dangling,
    )
    numbers = tables.numbered(method, "sourceIds", sources).alias("source")
    vertices = tables.node_column(numbers)
    return tables.run(method, apply, "ranks array<double>", options, vertices=vertices, parameters=repr(sources))


def ranked(tables: GraphTables, table: DataFrame, name: str, result: Result) -> tuple[DataFrame, DataFrame]:
    """Return the vertices with the ranks that a run returned, and the edges with a weight, 1 / out-degree of ``src``."""
    vertices = tables.with_column(table, name, DEFAULT_LEVEL, result)
    if WEIGHT in tables.edges.columns:
        raise SchemaError(f"the edges have a column {WEIGHT!r} already, and the result is to have one: rename or drop it")
    rest = [name for name in tables.edges.columns if name not in (SRC, DST)]
    edges = tables.inner_edges(*(F.col(quoted(name)) for name in rest))
    shares = edges.groupBy(SRC).agg((F.lit(1.0) / F.count(F.lit(1))).alias(WEIGHT))
    columns = [quoted(name) for name in tables.edges.columns]
    return vertices, edges.join(shares, SRC).select(*columns, WEIGHT)


_FACTORS: Final = ArrayType(DoubleType())

_MODEL: Final = StructType(
    [
        StructField("explicit", _FACTORS),
        StructField("implicit", _FACTORS),
        *(StructField(name, DoubleType()) for name in ("bias", "norm", "error")),
        StructField("ratings", LongType()),
    ]
)


def factorized(tables: GraphTables, parameters: Factorization, options: RunOptions) -> tuple[GraphResult, float]:
    """Return the vertices with the columns of the model, and its mean squared error."""
    kind = column_type(tables.edges, WEIGHT, "edges")
    if not isinstance(kind, NumericType):
        raise SchemaError(f"svdPlusPlus: column 'weight' is {kind.simpleString()}, and a rating must be a number: cast it")
    apply = partial(svd_plus_plus, parameters=parameters)
    edges = tables.inner_edges(F.col(WEIGHT).cast("double").alias("weight"))
    result = tables.run("svdPlusPlus", apply, _MODEL, options, edges=edges)
    table = result.localCheckpoint()  # not persist(): the table goes when the result does
    columns = [F.col(name).alias(f"column{at}") for at, name in enumerate(("explicit", "implicit", "bias"), 1)]
    model = table.select("node", *columns, F.coalesce("error", "norm").alias("column4"))
    error, ratings = first_row(table.select(F.coalesce(F.sum("error"), F.lit(0.0)), F.sum("ratings")))
    return tables.beside(model, DEFAULT_LEVEL, result._result), error / ratings if ratings else float("nan")


def shortest_paths_between(
    tables: GraphTables, start: str | Column, end: str | Column, longest: int, parameters: str, options: RunOptions
) -> DataFrame:
    """Return the shortest paths of up to ``longest`` edges; where there is none, no row, with the columns of the vertices.

    ``parameters`` are those of ``GraphTables.run``.
    """
    ends = condition(end)
    vertices = tables.node_column(F.when(condition(start), 0).alias("landmark"))
    apply = partial(landmark_distances, landmarks=1, limit=longest)
    distances = tables.run("bfs", apply, DISTANCES, options, vertices=vertices, parameters=parameters)
    # not persist(): the table ends with the result, after which it could not be unpersisted
    levels = distances.select("node", F.explode(F.col("distances.distance")).alias("level")).localCheckpoint()
    reached = tables.vertices.filter(ends).join(levels, F.col(ID) == F.col("node"))
    (length,) = first_row(reached.select(F.min("level")))
    if length is None:
        return tables.vertices.sparkSession.createDataFrame([], tables.vertices.schema)
    return _shortest_path_table(tables.vertices, tables.edges, levels, ends, length)


def _shortest_path_table(vertices: DataFrame, edges: DataFrame, levels: DataFrame, ends: Column, length: int) -> DataFrame:
    """Return ``(from, e0, v1, e1, ..., to)``: all paths of ``length`` edges to the vertices for which ``ends`` holds.

    ``levels`` has ``(node, level)``: how many edges from a start each vertex is. Paths grow from their ends, along edges from one
    level to that before. So each of them reaches a start, and none is dropped on the way.
    """
    paths = nested(vertices.filter(ends), "to")
    paths = paths.join(_level(levels, length), field("to", "id") == F.col("node"), "left_semi")
    following = "to"
    for step in reversed(range(length)):
        edge, vertex = f"e{step}", f"v{step}" if step else "from"
        along = nested(edges, edge)
        along = along.join(_level(levels, step), field(edge, "src") == F.col("node"), "left_semi")
        paths = paths.join(along, field(edge, "dst") == field(following, "id"))
        paths = paths.join(nested(vertices, vertex), field(vertex, "id") == field(edge, "src"))
        following = vertex
    if not length:
        return paths.select(F.col("to").alias("from"), "to")
    middle = [name for step in range(1, length) for name in (f"v{step}", f"e{step}")]
    return paths.select("from", "e0", *middle, "to")


def _level(levels: DataFrame, level: int) -> DataFrame:
    return levels.filter(F.col("level") == level).select("node")


def clusters(tables: GraphTables, k: int, rounds: int, weight: str | None) -> DataFrame:
    """Return ``(id, cluster)``; ``weight`` is a column of the edges."""
    from pyspark.ml.clustering import PowerIterationClustering  # takes a second to import

    weights = F.lit(1.0) if weight is None else F.col(quoted(weight)).cast("double")
    if weight is not None:
        column_type(tables.edges, weight, "edges")
    edges = tables.inner_edges(weights.alias("weight"))
    if isinstance(column_type(edges, SRC, "edges"), IntegralType):
        names = None
    else:
        names = tables.vertices.select(ID).distinct().sort(ID)
        names = names.withColumn("number", F.row_number().over(Window.orderBy(ID)).cast("long")).localCheckpoint()
        for end in (SRC, DST):
            numbered = names.select(F.col(ID).alias(end), F.col("number").alias(f"{end}_number"))
            edges = edges.join(numbered, end)
        edges = edges.select(F.col("src_number").alias(SRC), F.col("dst_number").alias(DST), "weight")
    clustering = PowerIterationClustering(k=k, maxIter=rounds, weightCol="weight")
    assigned = clustering.assignClusters(edges)
    if names is None:
        return assigned
    assigned = assigned.select(F.col("id").alias("number"), "cluster")
    return names.join(assigned, "number").select(ID, "cluster")
