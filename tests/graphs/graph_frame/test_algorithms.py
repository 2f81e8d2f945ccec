"""The algorithms of a ``GraphFrame``: the cases of GraphFrames' own tests, what networkx finds, and the conventions.

A job of Spark takes a second or two, so most are for ``pytest -m soak``. The examples of the methods and ``test_drop_in`` run
always.
"""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta
from typing import Any

import networkx as nx
import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.storagelevel import StorageLevel

from tests.graphs.graph_frame.graphs import KNOWS, PEOPLE, column, graph_of, people, rows
from timely import ConfigurationError, SchemaError
from timely.graphs.spark import AggregateMessages as AM
from timely.graphs.spark import AggregateNeighbors as AN
from timely.graphs.spark import GraphFrame, connected_components

pytestmark = pytest.mark.spark

IDS = [one for one, _ in PEOPLE]


def known() -> nx.MultiDiGraph:
    """The graph of ``people`` for networkx."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(IDS)
    graph.add_edges_from((src, dst) for src, dst, _ in KNOWS)
    return graph


# -- components and labels -----------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_component_is_a_long_or_an_id(session: SparkSession) -> None:
    g = graph_of(session, [0, 1, 7], [(0, 0), (1, 0)], "int")
    assert g.connectedComponents().schema["component"].dataType.simpleString() == "bigint"
    labels = g.connectedComponents(useLabelsAsComponents=True, storage_level=StorageLevel.DISK_ONLY)
    assert labels.schema["component"].dataType.simpleString() == "int"
    assert column(labels, "component") == {0: 0, 1: 0, 7: 7}
    names = graph_of(session, ["b", "a", "c"], [("b", "a")], "string")
    assert column(names.connectedComponents(), "component") == {"a": "a", "b": "a", "c": "c"}


@pytest.mark.soak
def test_edges_of_no_vertices_are_left_out(session: SparkSession) -> None:
    g = graph_of(session, range(1, 6), [(7, 8), (1, 7), (7, 2), (7, 1), (2, 7)])
    alone = {one: one for one in range(1, 6)}
    assert column(g.stronglyConnectedComponents(5), "component") == alone
    assert column(g.connectedComponents(), "component") == alone
    assert column(g.k_core(), "kcore") == dict.fromkeys(alone, 0)


# -- ranks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_pagerank(session: SparkSession) -> None:
    ranked = people(session).pageRank(resetProbability=0.2, tol=1e-10)
    assert ranked.vertices.columns == ["id", "name", "pagerank"]
    expected = nx.pagerank(known(), alpha=0.8, tol=1e-12)
    assert column(ranked.vertices, "pagerank") == pytest.approx({one: 6 * rank for one, rank in expected.items()}, abs=1e-6)
    assert ranked.edges.columns == ["src", "dst", "how", "weight"]
    degrees = dict(known().out_degree())
    assert rows(ranked.edges) == sorted((*edge, 1 / degrees[edge[0]]) for edge in KNOWS)


@pytest.mark.soak
def test_pagerank_of_so_many_rounds_and_of_another_total(session: SparkSession) -> None:
    """GraphFrames' own numbers for three rounds, in which lost rank is scaled up."""
    same = people(session).pageRank(maxIter=3, dangling="scale").vertices
    expected = {1: 1.041353, 2: 1.178569, 3: 0.79431, 4: 2.283814, 5: 0.474498, 6: 0.227456}
    assert column(same, "pagerank") == pytest.approx(expected, abs=1e-6)
    shares = column(people(session).pageRank(maxIter=3, total=1).vertices, "pagerank")
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.soak
def test_personalized_pagerank(session: SparkSession) -> None:
    one = column(people(session).pageRank(sourceId=1, tol=1e-10).vertices, "pagerank")
    both = people(session).parallelPersonalizedPageRank(sourceIds=[1, 3], maxIter=60)
    assert both.edges.columns == ["src", "dst", "how", "weight"]
    vectors = {node: list(ranks) for node, ranks in column(both.vertices, "pageranks").items()}
    for at, source in enumerate([1, 3]):
        expected = nx.pagerank(known(), personalization={source: 1}, tol=1e-12)
        assert {node: ranks[at] for node, ranks in vectors.items()} == pytest.approx(expected, abs=1e-5)
    assert {node: ranks[0] for node, ranks in vectors.items()} == pytest.approx(one, abs=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "pageRank: exactly one of maxIter and tol"),
        ({"maxIter": 3, "tol": 0.1}, "pageRank: exactly one of maxIter and tol"),
        ({"maxIter": 0}, "maxIter must be a whole number above 0"),
        ({"tol": 0.0}, "pageRank: tol must be above 0"),
        ({"maxIter": 3, "resetProbability": 0}, "resetProbability must be above 0"),
        ({"maxIter": 3, "sourceId": "x"}, "pageRank: of sourceIds, the source is 'x', and the nodes are bigint"),
        ({"maxIter": 3, "dangling": "keep"}, "dangling must be 'spread' or 'scale'"),
        ({"maxIter": 3, "total": -1}, "total must be above 0"),
    ],
)
def test_parameters_of_pagerank_that_are_refused(session: SparkSession, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        people(session).pageRank(**parameters)


@pytest.mark.soak
def test_sources_that_are_refused(session: SparkSession) -> None:
    g = people(session)
    with pytest.raises(ConfigurationError, match="sourceIds must have an id"):
        g.parallelPersonalizedPageRank(maxIter=3)
    with pytest.raises(ConfigurationError, match="sourceIds has an id twice"):
        g.parallelPersonalizedPageRank(sourceIds=[1, 1], maxIter=3)
    with pytest.raises(Exception, match="a source of the ranks is no vertex"):
        g.pageRank(sourceId=99, maxIter=3).vertices.collect()


# -- paths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_shortest_paths(session: SparkSession) -> None:
    result = people(session).shortestPaths(landmarks=[1, 4, 99])
    assert result.columns == ["id", "name", "distances"]
    assert result.schema["distances"].dataType.simpleString() == "map<bigint,int>"
    graph = known()
    expected = {
        one: {mark: nx.shortest_path_length(graph, one, mark) for mark in (1, 4) if nx.has_path(graph, one, mark)} for one in IDS
    }
    assert column(result, "distances") == expected


@pytest.mark.soak
def test_shortest_paths_either_way(session: SparkSession) -> None:
    g = graph_of(session, range(1, 6), [(1, 2), (2, 3), (3, 4), (4, 5)])
    result = column(g.shortestPaths(landmarks=[1], algorithm="graphframes", is_directed=False), "distances")
    assert result == {one: {1: one - 1} for one in range(1, 6)}


@pytest.mark.soak
def test_shortest_paths_to_ids_of_another_type(session: SparkSession) -> None:
    days = [date(2024, 1, day) for day in (1, 2, 3)]
    g = graph_of(session, days, list(itertools.pairwise(days)), "date")
    assert column(g.shortestPaths([days[2]]), "distances") == {day: {days[2]: 2 - at} for at, day in enumerate(days)}
    with pytest.raises(
        ConfigurationError, match="shortestPaths: of landmarks, the source is 3, and the nodes in column 'id' are of type date32"
    ):
        g.shortestPaths([3])


@pytest.mark.parametrize(
    "kind", ["timestamp", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("date", "timestamp_ntz"))]
)
def test_landmarks_of_before_the_gregorian_calendar(session: SparkSession, kind: str) -> None:
    old, new = (date(999, 5, 5), date(2024, 1, 1)) if kind == "date" else (datetime(999, 5, 5, 7), datetime(2024, 1, 1))
    g = graph_of(session, [old, new], [(new, old)], kind)
    assert column(g.shortestPaths([old]), "distances") == {old: {old: 0}, new: {old: 1}}


@pytest.mark.soak
def test_bfs(session: SparkSession) -> None:
    g = people(session)
    paths = g.bfs("name = 'Ada'", "name = 'Eve'")
    assert paths.columns == ["from", "e0", "v1", "e1", "v2", "e2", "to"]
    assert sorted((path["from"].id, path.e0.how, path.v1.id, path.v2.id, path.to.name) for path in paths.collect()) == [
        (1, "follows", 2, 3, "Eve"),
        (1, "likes", 2, 3, "Eve"),
    ]
    assert g.bfs("id = 1", "id = 5", edgeFilter="how <> 'likes'").count() == 1
    assert g.bfs("id = 1", "id = 5", edgeFilter="how = 'likes'").collect() == []
    assert g.bfs("id = 1", "id = 5", maxPathLength=2).columns == ["id", "name"]


@pytest.mark.soak
def test_bfs_from_vertices_that_are_ends(session: SparkSession) -> None:
    """Several starts and ends: only the shortest paths of all, which here have no edge, or one."""
    g = people(session)
    assert [(row["from"].id, row.to.id) for row in g.bfs("id < 5", F.col("id") > 3).collect()] == [(4, 4)]
    one = g.bfs("id < 4", "id >= 4")
    assert one.columns == ["from", "e0", "to"]
    assert sorted((row["from"].id, row.to.id) for row in one.collect()) == [(3, 4), (3, 5)]
    with pytest.raises(ConfigurationError, match="bfs: maxPathLength must be a whole number from 0 up, not -1"):
        g.bfs("id = 1", "id = 2", maxPathLength=-1)


@pytest.mark.soak
def test_all_paths(session: SparkSession) -> None:
    result = people(session).all_paths("id = 1", F.col("id").isin(1, 5), edge_filter="how <> 'likes'", max_path_length=3)
    assert rows(result) == [([1], 0), ([1, 2, 3, 5], 3)]
    back = people(session).all_paths("id = 5", "id = 1", max_path_length=2, is_directed=False)
    assert rows(back) == [([5, 3, 1], 2)]


# -- degrees and neighbours ----------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("algorithm", ["exact", "approx"])
def test_triangles(session: SparkSession, algorithm: Any) -> None:
    result = people(session).triangleCount(StorageLevel.MEMORY_ONLY, algorithm=algorithm)
    assert result.columns == ["id", "name", "count"]
    assert column(result, "count") == {1: 1, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0}


@pytest.mark.soak
def test_power_iteration_clustering(session: SparkSession) -> None:
    """MLlib begins with random numbers, so which vertices are together is not for certain."""
    edges = session.createDataFrame([("a", "b", 9.0), ("c", "d", 9.0), ("b", "c", 0.01)], "src string, dst string, w double")
    g = GraphFrame(session.createDataFrame([(one,) for one in "abcde"], "id string"), edges)
    clusters = g.powerIterationClustering(k=2, maxIter=10, weightCol="w")
    assert clusters.columns == ["id", "cluster"]
    result = column(clusters, "cluster")
    assert (set(result), set(result.values()) <= {0, 1}) == (set("abcd"), True)


@pytest.mark.soak
def test_messages(session: SparkSession) -> None:
    g = people(session)
    result = g.aggregateMessages(
        [F.sort_array(F.collect_list(AM.msg)).alias("names"), "count(MSG) AS n"],
        sendToSrc=[AM.dst["name"]],
        sendToDst=[F.upper(AM.src["name"])],
    )
    assert result.columns == ["id", "names", "n"]
    assert rows(result)[2:] == [
        (3, ["Ada", "BOB", "Di", "Eve"], 4),
        (4, ["CY", "DI", "Di"], 3),
        (5, ["CY"], 1),
    ]
    one = g.aggregateMessages(F.sum(AM.msg), sendToDst="src.id")
    assert one.columns == ["id", "sum(MSG)"]
    several = g.aggregateMessages([F.max(AM.msg).alias("m")], sendToDst=[AM.edge["how"], AM.src["id"]])
    assert tuple(column(several, "m")[5]) == ("hates", 3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"aggCol": ["count(MSG)"]}, "there are no messages: give sendToSrc, sendToDst, or both"),
        ({"aggCol": [], "sendToDst": "src.id"}, "aggCol must have an aggregate"),
        ({"aggCol": [3], "sendToDst": "src.id"}, "aggCol takes columns and SQL expressions, not 3"),
    ],
)
def test_messages_that_are_refused(session: SparkSession, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"aggregateMessages: {message}"):
        people(session).aggregateMessages(**parameters)


@pytest.mark.soak
def test_neighbors(session: SparkSession) -> None:
    """What both conditions together drop."""
    both = people(session).aggregate_neighbors(
        "id = 4 OR id = 3",
        ["n"],
        [F.lit(0)],
        [F.col("n") + AN.src_attr("id")],
        max_hops=2,
        stopping_condition=AN.dst_attr("id") == 1,
        target_condition=AN.dst_attr("id") > 4,
        remove_loops=True,
    )
    assert rows(both) == [(3, 5, 1)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"target_condition": None}, "give a stopping_condition, a target_condition, or both"),
        ({"accumulator_names": []}, "each accumulator needs a name"),
        ({"accumulator_names": ["name"]}, "the accumulator 'name' has the name of another column"),
        ({"max_hops": 0}, "max_hops must be a whole number above 0"),
    ],
)
def test_neighbors_that_are_refused(session: SparkSession, parameters: dict[str, Any], message: str) -> None:
    settings = {
        "accumulator_names": ["n"],
        "accumulator_inits": ["0"],
        "accumulator_updates": ["n + 1"],
        "target_condition": "true",
    }
    with pytest.raises(ValueError, match=f"aggregate_neighbors: .*{message}"):
        people(session).aggregate_neighbors("id = 1", **{**settings, **parameters})


# -- sketches, communities, ratings --------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["long", "short", "string"])
def test_sketches_of_neighbourhoods(session: SparkSession, kind: str) -> None:
    """Sketches of so few are exact; who is reached in so many hops is counted by powers of the adjacency matrix."""
    g = people(session)
    ids = {name: F.col(name).cast(kind) for name in ("id", "src", "dst")}
    g = GraphFrame(g.vertices.withColumns({"id": ids["id"]}), g.edges.withColumns({"src": ids["src"], "dst": ids["dst"]}))
    matrix = np.zeros((7, 7), np.int64)
    for src, dst, how in KNOWS:
        matrix[src, dst] |= how != "hates"
    result = g.hyper_anf(3, lg_nom_entries=9, edge_filter="how != 'hates'")
    assert result.columns == ["id", "hop_0", "hop_1", "hop_2", "hop_3"]
    sizes = result.select(F.col("id").cast("int"), *(F.hll_sketch_estimate(f"hop_{hop}") for hop in range(4)))
    walks = [np.linalg.matrix_power(matrix, hop) > 0 for hop in range(4)]
    starts = np.flatnonzero(matrix.any(axis=1))
    assert rows(sizes) == [(start, *(int(reached[start].sum()) for reached in walks)) for start in starts.tolist()]
    whole = F.hll_sketch_estimate(F.hll_union("hop_0", F.hll_union("hop_1", F.hll_union("hop_2", "hop_3"))))
    within = rows(result.select(F.col("id").cast("int"), whole))
    assert within == [(start, int(np.any(walks, axis=0)[start].sum())) for start in starts.tolist()]


@pytest.mark.soak
def test_communities_by_neighbours_in_common(session: SparkSession) -> None:
    """Two cliques and an edge between them; with attributes, and without directions."""
    cliques = [(a, b) for own in (range(5), range(5, 10)) for a in own for b in own if a < b]
    g = graph_of(session, range(11), [*cliques, (4, 5)])
    g = GraphFrame(g.vertices.withColumn("team", F.concat(F.lit("t"), F.col("id"))), g.edges, workers=2)
    result = g.neighborhood_aware_cdlp(10, is_directed=False)
    assert result.columns == ["id", "team", "label"]
    assert column(result, "label") == {**dict.fromkeys(range(5), 4), **dict.fromkeys(range(5, 10), 9), 10: 10}
    teams = column(
        g.neighborhood_aware_cdlp(10, 1.0, ignore_direct_links=True, initial_label_col="team", is_directed=False), "label"
    )
    assert len({*teams.values()}) == 3
    assert {name[0] for name in teams.values()} == {"t"}


@pytest.mark.soak
def test_ratings(session: SparkSession) -> None:
    """The loss is that of the predictions that the columns give; ids are any."""
    ratings = [(f"u{user}", f"i{(user * item) % 6}", 1 + (user + item) % 5) for user in range(6) for item in range(1, 4)]
    ids = sorted({end for src, dst, _ in ratings for end in (src, dst)})
    g = graph_of(session, [*ids, "nobody"], [], "string")
    g = GraphFrame(g.vertices, session.createDataFrame(ratings, "src string, dst string, weight int"), workers=2)
    result, loss = g.svdPlusPlus(rank=4, maxIter=20)
    model = {row.id: row for row in result.collect()}
    result.unpersist()
    assert tuple(model["nobody"])[1:] == (None, None, None, None)
    mean = sum(rating for _, _, rating in ratings) / len(ratings)
    errors = [
        rating - min(max(mean + model[a].column3 + model[b].column3 + np.dot(model[a].column2, model[b].column1), 0), 5)
        for a, b, rating in ratings
    ]
    assert loss == pytest.approx(sum(error**2 for error in errors) / len(errors))
    assert sum(model[item].column4 for item in ids if item.startswith("i")) == pytest.approx(loss * len(errors))
    _, first = g.svdPlusPlus(rank=4, maxIter=1, seed=3)
    assert loss < first
    assert np.isnan(GraphFrame(g.vertices, g.edges.limit(0), workers=2).svdPlusPlus()[1])


def test_parameters_that_are_refused(session: SparkSession) -> None:
    g = people(session)
    with pytest.raises(ConfigurationError, match="hyper_anf: lg_nom_entries must be a whole number from 4 to 21, not 3"):
        g.hyper_anf(lg_nom_entries=3)
    with pytest.raises(ConfigurationError, match="must be 0 or more, and above 0 where direct links are ignored, not 0.0"):
        g.neighborhood_aware_cdlp(3, 0.0, ignore_direct_links=True)
    with pytest.raises(ConfigurationError, match="shortestPaths: landmarks must have an id"):
        g.shortestPaths([])
    with pytest.raises(SchemaError, match="the edges have no column 'weight'"):
        g.svdPlusPlus()
    rated = GraphFrame(g.vertices, g.edges.withColumn("weight", F.lit(1)))
    with pytest.raises(ConfigurationError, match="no rating is from 5.0 up to 5.0"):
        rated.svdPlusPlus(minValue=5.0)
    with pytest.raises(ConfigurationError, match="much"):
        g.k_core(memory="much")
    with pytest.raises(ConfigurationError, match="checkpoint_every"):
        g.pageRank(maxIter=1, checkpoint="here", checkpoint_every=timedelta(0))
    dates = graph_of(session, [date(2026, 1, 1)], [], "date")
    with pytest.raises(SchemaError, match="hyper_anf: the ids are date, which Spark has no sketches of"):
        dates.hyper_anf()


# -- ids -----------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_ids_that_are_null_are_an_error(session: SparkSession) -> None:
    with pytest.raises(Exception, match="column 'dst' of the edges is null in a row"):
        graph_of(session, [1, 2], [(1, None)]).connectedComponents().collect()
    with pytest.raises(Exception, match="column 'id' of the vertices is null in a row"):
        graph_of(session, [1, None], [(1, 1)]).k_core().collect()


@pytest.mark.parametrize(
    ("ids", "ends"),
    [("int", "long"), *(pytest.param(*kinds, marks=pytest.mark.soak) for kinds in (("long", "short"), ("byte", "int")))],
)
def test_whole_numbers_are_of_the_widest_type(session: SparkSession, ids: str, ends: str) -> None:
    vertices = session.createDataFrame([(1,), (2,), (7,)], f"id {ids}")
    edges = session.createDataFrame([(1, 2)], f"src {ends}, dst int")
    g = GraphFrame(vertices, edges)
    widest = {"byte": T.IntegerType()}.get(ids, T.LongType())
    assert g.vertices.schema["id"].dataType == g.edges.schema["src"].dataType == g.edges.schema["dst"].dataType == widest
    assert column(g.shortestPaths([2]), "distances") == {1: {2: 1}, 2: {2: 0}, 7: {}}
    assert rows(connected_components(edges, vertices=vertices.toDF("node"))) == [(1, 1), (2, 1), (7, 7)]


def test_types_and_names_that_are_refused(session: SparkSession) -> None:
    g = people(session)
    other = GraphFrame(g.vertices.withColumn("id", F.col("id").cast("string")), g.edges)
    with pytest.raises(SchemaError, match="'id' is string, and the edges' columns 'src' and 'dst' are bigint: cast one"):
        other.pageRank(maxIter=1)
    with pytest.raises(SchemaError, match="the vertices have a column 'Count', and the result is to have 'count'"):
        GraphFrame(g.vertices.withColumnRenamed("name", "Count"), g.edges).triangleCount()
    with pytest.raises(ConfigurationError, match="connectedComponents: algorithm must be one of 'graphframes'"):
        g.connectedComponents("fastest")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="stronglyConnectedComponents: maxIter must be a whole number above 0, not 0"):
        g.stronglyConnectedComponents(0)


@pytest.mark.soak
def test_a_graph_that_was_validated_is_read_without_joins(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def joins(graph: GraphFrame) -> int:
        graph.k_core().explain()
        return capsys.readouterr().out.count("LeftSemi")

    g = people(session)
    before = joins(g)
    g.validate()
    assert (before, joins(g), joins(g.filterEdges("dst < 4")), joins(g.as_undirected())) == (2, 0, 0, 0)
    assert joins(GraphFrame(g.vertices, g.edges)) == before
