"""The tables of a ``GraphFrame``, and the graphs made of it: the cases of GraphFrames' own tests, and odd ones."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from tests.graphs.graph_frame.graphs import KNOWS, PEOPLE, graph_of, people, rows
from timely import SchemaError
from timely.graphs.spark import GraphFrame

pytestmark = pytest.mark.spark


def test_tables_are_those_given(session: SparkSession) -> None:
    g = people(session)
    assert rows(g.vertices) == rows(g.nodes) == PEOPLE
    assert rows(g.edges) == sorted(KNOWS)
    assert (g.ID, g.SRC, g.DST, g.EDGE, g.WEIGHT) == ("id", "src", "dst", "edge", "weight")
    assert repr(g).startswith("GraphFrame(v:DataFrame[id: bigint, name: string], e:DataFrame[src: bigint")


def test_triplets(session: SparkSession) -> None:
    g = people(session)
    assert g.triplets.columns == ["src", "edge", "dst"]
    names = dict(PEOPLE)
    actual = sorted((row.src.name, row.edge.how, row.dst.name) for row in g.triplets.collect())
    assert actual == sorted((names[src], how, names[dst]) for src, dst, how in KNOWS)


@pytest.mark.parametrize(
    ("vertices", "edges", "told"),
    [
        ("a long, b string", "src long, dst long", "the vertices have no column 'id'; they have 'a', 'b'"),
        ("id long", "a long, dst long", "the edges have no column 'src'"),
        ("id long", "src long, b long", "the edges have no column 'dst'"),
    ],
)
def test_a_missing_column_is_named(session: SparkSession, vertices: str, edges: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):  # GraphFrames raises a ValueError
        GraphFrame(session.createDataFrame([], vertices), session.createDataFrame([], edges))


def test_degrees(session: SparkSession) -> None:
    g = people(session)
    assert (g.outDegrees.columns, g.inDegrees.columns, g.degrees.columns) == (
        ["id", "outDegree"],
        ["id", "inDegree"],
        ["id", "degree"],
    )
    assert rows(g.outDegrees) == [(1, 2), (2, 2), (3, 3), (4, 1)]
    assert rows(g.inDegrees) == [(1, 2), (2, 2), (3, 1), (4, 2), (5, 1)]
    assert rows(g.degrees) == [(1, 4), (2, 4), (3, 4), (4, 3), (5, 1)]


@pytest.mark.parametrize(("name", "types"), [("how.much", ["likes", "hates"]), pytest.param("a`b", None, marks=pytest.mark.soak)])
def test_degrees_by_a_type_whose_column_has_any_name(session: SparkSession, name: str, types: list[str] | None) -> None:
    g = people(session)
    renamed = GraphFrame(g.vertices, g.edges.withColumnRenamed("how", name))
    for method, ends in (("type_out_degree", [0]), ("type_in_degree", [1]), ("type_degree", [0, 1])):
        frame = getattr(renamed, method)(name, types)
        counted = Counter((edge[end], edge[2]) for edge in KNOWS for end in ends)
        for node, counts in rows(frame):
            assert counts.asDict() == {kind: counted[node, kind] for kind in types or ("follows", "hates", "likes")}
        assert {row.id for row in frame.collect()} == {node for node, _ in counted}


@pytest.mark.soak
@pytest.mark.parametrize("as_column", [False, True])
def test_filters(session: SparkSession, as_column: bool) -> None:
    g = people(session)
    some = g.filterVertices(g.vertices.id < 3 if as_column else "id < 3")
    assert rows(some.vertices) == PEOPLE[:2]
    assert rows(some.edges) == sorted(edge for edge in KNOWS if max(edge[:2]) < 3)
    fewer = g.filterEdges(g.edges.dst > 4 if as_column else "dst > 4")
    assert rows(fewer.vertices) == PEOPLE
    assert rows(fewer.edges) == [(3, 5, "hates")]
    assert rows(fewer.dropIsolatedVertices().vertices) == [(3, "Cy"), (5, "Eve")]
    assert rows(fewer.dropIsolatedVertices().edges) == [(3, 5, "hates")]


@pytest.mark.soak
def test_undirected_and_reversed(session: SparkSession) -> None:
    g = people(session)
    back = [(dst, src, how) for src, dst, how in KNOWS]
    assert rows(g.as_reversed().edges) == sorted(back)
    assert rows(g.as_undirected().edges) == sorted([*KNOWS, *back])
    assert rows(g.as_reversed().vertices) == PEOPLE


def test_cache_and_persist(session: SparkSession) -> None:
    g = people(session)
    assert g.cache().vertices.is_cached
    assert not g.unpersist().vertices.is_cached
    assert g.persist(StorageLevel.DISK_ONLY).edges.storageLevel.useDisk
    assert not g.unpersist(blocking=True).edges.is_cached


def test_validate(session: SparkSession) -> None:
    people(session).validate()
    twice = graph_of(session, [1, 2, 3, 1], [(1, 2)])
    with pytest.raises(ValueError, match=r"4 rows and 3 ids.*dropDuplicates"):
        twice.validate()
    unknown = graph_of(session, [1, 2], [(1, 2), (2, 4), (4, 4)])
    unknown.validate(check_vertices=False)
    with pytest.raises(SchemaError, match="3 ends that are no vertices, as 4"):
        unknown.validate()
    with pytest.raises(SchemaError, match="the vertices have 1 rows without an id"):
        graph_of(session, [1, None], [(1, 1)]).validate()
    with pytest.raises(SchemaError, match="'id' is string, and the edges' columns 'src' and 'dst' are bigint"):
        GraphFrame(session.createDataFrame([("1",)], "id string"), people(session).edges).validate()


def test_another_thread_may_make_a_graph(session: SparkSession) -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(people(session)))
    thread.start()
    thread.join()
    assert [graph.degrees.count() for graph in made] == [5]
