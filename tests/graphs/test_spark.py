"""Strongly connected components from DataFrame to DataFrame."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType

from tests.graphs.oracles import corners, joined, nearest, ranked, voted
from tests.graphs.running import answers, components, debian, expected
from timely import ConfigurationError, SchemaError
from timely.graphs.spark import (
    breadth_first_search,
    connected_components,
    label_propagation,
    pagerank,
    shortest_paths,
    strongly_connected_components,
    triangle_count,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["depends", None])
def test_debian(session: SparkSession, kind: str | None, workers: int) -> None:
    edges = debian(kind)
    found = strongly_connected_components(session.createDataFrame(edges), workers=workers)
    assert [field.dataType for field in found.schema] == [StringType(), StringType()]
    assert components(found.toArrow()) == expected(edges)


def test_columns_of_any_name_and_whole_numbers(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, "x", 2), (2, "y", 1), (2, "z", 3)], "`a.from` long, kind string, `to` long")
    found = strongly_connected_components(edges, "a.from", "to")
    assert [(field.name, field.dataType) for field in found.schema] == [("node", LongType()), ("component", LongType())]
    assert sorted(tuple(row) for row in found.collect()) == [(1, 1), (2, 1), (3, 3)]


def test_no_edges(session: SparkSession) -> None:
    assert strongly_connected_components(session.createDataFrame([], "src long, dst long")).collect() == []


def test_missing_column(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, 2)], "src long, dst long")
    with pytest.raises(SchemaError, match="no column 'target'; they have 'src', 'dst'"):
        strongly_connected_components(edges, dst="target")


def test_types_differ(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, "a")], "src long, dst string")
    with pytest.raises(SchemaError, match="'src' is bigint and column 'dst' is string"):
        strongly_connected_components(edges)


def test_nulls(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, None)], "src long, dst long")
    with pytest.raises(Exception, match="column 'dst' has 1 nulls"):
        strongly_connected_components(edges).collect()


EDGES = [(4, 2), (2, 9), (9, 4), (9, -1), (7, 7), (5, 6), (6, 5), (2, 9)]
ALONE = [3, 9]
WEIGHTED = [(a, b, float(abs(a - b))) for a, b in EDGES]


def graph(session: SparkSession) -> tuple[DataFrame, DataFrame]:
    return session.createDataFrame(EDGES, "`from` long, `to` long"), session.createDataFrame([(n,) for n in ALONE], "node long")


def found(frame: DataFrame) -> dict[object, object]:
    (state,) = answers([frame.toArrow()])
    return state


@pytest.mark.parametrize("workers", [1, 3])
def test_siblings_on_spark(session: SparkSession, workers: int) -> None:
    edges, vertices = graph(session)
    members = connected_components(edges, "from", "to", vertices=vertices, workers=workers)
    assert found(members) == joined(EDGES, ALONE)
    labels = label_propagation(edges, "from", "to", vertices=vertices, rounds=3, workers=workers)
    assert found(labels) == voted(EDGES, ALONE, 3)
    triangles = triangle_count(edges, "from", "to", vertices=vertices, workers=workers)
    assert found(triangles) == corners(EDGES, ALONE)
    assert triangles.schema["triangles"].dataType == LongType()
    ranks = pagerank(edges, "from", "to", vertices=vertices, tolerance=1e-12, workers=workers)
    assert found(ranks) == pytest.approx(ranked(EDGES, ALONE), abs=1e-10)
    assert ranks.schema["rank"].dataType == DoubleType()


@pytest.mark.parametrize("workers", [1, 3])
def test_distances_on_spark(session: SparkSession, workers: int) -> None:
    edges = session.createDataFrame(WEIGHTED, "src long, dst long, `a.km` double")
    assert found(shortest_paths(edges, 4, weight="a.km", workers=workers)) == nearest(WEIGHTED, 4)
    steps = breadth_first_search(edges, 4, workers=workers)
    assert found(steps) == nearest([(a, b, 1) for a, b in EDGES], 4)
    assert steps.schema["distance"].dataType == LongType()


def test_components_of_debian_on_spark(session: SparkSession) -> None:
    edges = debian()
    rows = list(zip(*edges.to_pydict().values()))
    assert found(connected_components(session.createDataFrame(edges), workers=2)) == joined(rows)


def test_what_spark_is_spared(session: SparkSession) -> None:
    edges, vertices = graph(session)
    with pytest.raises(SchemaError, match="vertices have no column 'node'; they have 'n'"):
        connected_components(edges, "from", "to", vertices=vertices.withColumnRenamed("node", "n"))
    with pytest.raises(SchemaError, match="'node' is string, and the ends of the edges are bigint"):
        connected_components(edges, "from", "to", vertices=vertices.selectExpr("string(node) node"))
    with pytest.raises(SchemaError, match="edges have no column 'weight'"):
        shortest_paths(edges, 4, "from", "to")
    with pytest.raises(SchemaError, match="'w' is string, and a weight must be a number"):
        shortest_paths(edges.selectExpr("*", "'1' w"), 4, "from", "to", "w")
    with pytest.raises(ConfigurationError, match="rounds must be 0 or more, not -1"):
        label_propagation(edges, "from", "to", rounds=-1)
    with pytest.raises(ConfigurationError, match="damping must be at least 0 and below 1, not 2"):
        pagerank(edges, "from", "to", damping=2)
