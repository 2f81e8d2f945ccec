"""PageRank of a graph's vertices, for all of them or for each of some sources."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.graph_tables import DEFAULT_LEVEL, DST, SRC, WEIGHT, GraphTables
from timely.graphs.graphframes.pregel.personalized_rank import Dangling, check_rank_parameters, personalized_pagerank
from timely.graphs.spark.graph_columns import quoted
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
    check_rank_parameters(1 - reset, tol, rounds, dangling)
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
