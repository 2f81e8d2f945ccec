"""Small graphs that several tests read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from timely.graphs.spark import GraphFrame

PEOPLE = [(1, "Ada"), (2, "Bob"), (3, "Cy"), (4, "Di"), (5, "Eve"), (6, "Flo")]
KNOWS = [
    (1, 2, "likes"),
    (2, 3, "hates"),
    (3, 1, "follows"),
    (3, 4, "follows"),
    (4, 4, "likes"),
    (1, 2, "follows"),
    (2, 1, "likes"),
    (3, 5, "hates"),
]


def people(session: SparkSession) -> GraphFrame:
    """A triangle with a pair of edges both ways, two edges out of it, a loop, a repeated edge, and a vertex without edges."""
    vertices = session.createDataFrame(PEOPLE, "id long, name string")
    return GraphFrame(vertices, session.createDataFrame(KNOWS, "src long, dst long, how string"), workers=2)


def graph_of(session: SparkSession, ids: Sequence[Any], edges: Sequence[tuple[Any, Any]], kind: str = "long") -> GraphFrame:
    """A graph without attributes."""
    vertices = session.createDataFrame([(one,) for one in ids], f"id {kind}")
    return GraphFrame(vertices, session.createDataFrame(list(edges), f"src {kind}, dst {kind}"), workers=2)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows in order, and no longer in Spark's cache."""
    actual = sorted(tuple(row) for row in frame.collect())
    frame.unpersist()
    return actual


def column(frame: DataFrame, name: str) -> dict[Any, Any]:
    """A column by ``id``, which fails where an id has two rows."""
    actual = [(row.id, row[name]) for row in frame.select("id", name).collect()]
    frame.unpersist()
    assert len(dict(actual)) == len(actual)
    return dict(actual)
