"""Strongly connected components from DataFrame to DataFrame."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType

from tests.graphs.running import components, debian, expected
from timely import SchemaError
from timely.graphs.spark import strongly_connected_components

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
