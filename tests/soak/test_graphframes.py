"""``GraphFrame`` beside GraphFrames itself: the same random graphs, and the same results of every method that both have.

It needs the package ``graphframes-py``, and its jar for this Spark, which the variable ``GRAPHFRAMES_JAR`` names. Java reads its
class path once, so run this file alone: ``GRAPHFRAMES_JAR=... pytest -m soak tests/soak/test_graphframes.py``.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from timely.graphs.spark import AggregateMessages as AM
from timely.graphs.spark import AggregateNeighbors as AN
from timely.graphs.spark import GraphFrame
from timely.spark import local_session

pytestmark = [pytest.mark.soak, pytest.mark.spark]

Graphs = tuple[GraphFrame, Any, list[Any]]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jar = os.environ.get("GRAPHFRAMES_JAR")
    if not jar:
        pytest.skip("GRAPHFRAMES_JAR names no jar of GraphFrames")
    if SparkContext._gateway is not None:
        pytest.skip("Java runs already, without GraphFrames: run this file alone")
    assert Path(jar).is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-class-path {jar} pyspark-shell")
        session = local_session(2)
    session.sparkContext.setCheckpointDir(str(tmp_path_factory.mktemp("checkpoints")))
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["whole numbers", "strings"])
def graphs(session: SparkSession, request: pytest.FixtureRequest) -> Graphs:
    """One graph in both packages, and some of its ids."""
    theirs = pytest.importorskip("graphframes")
    chosen = random.Random(request.param)
    name: Callable[[int], Any] = (lambda n: n) if request.param == "whole numbers" else (lambda n: f"v{n:02}")
    kind = "long" if request.param == "whole numbers" else "string"
    pairs = {(chosen.randrange(18), chosen.randrange(16)) for _ in range(34)}
    v = session.createDataFrame([(name(n), f"n{n % 5}", n) for n in range(20)], f"id {kind}, group string, n int").persist()
    rows = [(name(a), name(b), chosen.choice("xyz")) for a, b in sorted(pairs)]
    e = session.createDataFrame(rows, f"src {kind}, dst {kind}, how string").persist()
    return GraphFrame(v, e), theirs.GraphFrame(v, e), [name(n) for n in range(20)]


def bag(frame: DataFrame) -> Counter[Any]:
    """The rows, by the names of their columns."""
    actual = Counter(frozen(row.asDict()) for row in frame.collect())
    frame.unpersist()
    return actual


def frozen(value: Any) -> Any:
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return frozenset((key, frozen(one)) for key, one in value.items())
    if isinstance(value, list):
        return tuple(map(frozen, value))
    return value


def parts(frame: DataFrame, name: str) -> set[frozenset[Any]]:
    """The sets of vertices that have the same value."""
    result: defaultdict[Any, set[Any]] = defaultdict(set)
    for row in frame.collect():
        result[row[name]].add(row.id)
    return {frozenset(part) for part in result.values()}


def numbers(frame: DataFrame, name: str) -> dict[Any, float]:
    return {row.id: row[name] for row in frame.collect()}


def test_tables(graphs: Graphs) -> None:
    ours, theirs, _ = graphs
    for name in ("degrees", "inDegrees", "outDegrees", "triplets"):
        assert bag(getattr(ours, name)) == bag(getattr(theirs, name)), name
    for name in ("type_degree", "type_in_degree", "type_out_degree"):
        assert bag(getattr(ours, name)("how")) == bag(getattr(theirs, name)("how")), name
    for name, arguments in (
        ("filterVertices", ["n < 12"]),
        ("filterEdges", ["how = 'x'"]),
        ("dropIsolatedVertices", []),
        ("as_undirected", []),
        ("as_reversed", []),
    ):
        mine, other = (getattr(graph, name)(*arguments) for graph in (ours, theirs))
        assert (bag(mine.vertices), bag(mine.edges)) == (bag(other.vertices), bag(other.edges)), name


@pytest.mark.parametrize(
    "pattern",
    [
        "(a)-[e]->(b)",
        "(a)-[e]->(b); (b)-[f]->(c)",
        "(a)-[]->(b); (b)-[]->(c); (c)-[]->(a)",
        "(a)-[e]->(b); !(b)-[]->(a)",
        "!(a)-[]->(b)",
        "(a)-[e]->(); !()-[]->(a)",
        "(a)-[e]-(b)",
        "(a)<-[e]->(b)",
        "(a)-[e*2]->(b)",
        "(a)-[e*1..3]->(b)",
        "(a)-[e*2]-(b)",
        "(a)-[e]->(a)",
    ],
)
def test_motifs(graphs: Graphs, pattern: str) -> None:
    ours, theirs, _ = graphs
    mine, other = ours.find(pattern), theirs.find(pattern)
    assert mine.columns == other.columns
    mine_rows, other_rows = bag(mine), bag(other)
    assert set(mine_rows) == set(other_rows)
    assert mine_rows == other_rows or "!" in pattern


def test_components(graphs: Graphs) -> None:
    ours, theirs, _ = graphs
    assert parts(ours.connectedComponents(), "component") == parts(theirs.connectedComponents(algorithm="graphx"), "component")
    assert parts(ours.stronglyConnectedComponents(20), "component") == parts(theirs.stronglyConnectedComponents(20), "component")


def test_counts(graphs: Graphs) -> None:
    ours, theirs, _ = graphs
    level = StorageLevel.MEMORY_ONLY
    assert numbers(ours.triangleCount(level), "count") == numbers(theirs.triangleCount(level), "count")


@pytest.mark.parametrize("settings", [{"maxIter": 7}, {"maxIter": 5, "source": 3}, {"tol": 1e-3, "resetProbability": 0.5}])
def test_ranks(graphs: Graphs, settings: dict[str, Any]) -> None:
    ours, theirs, ids = graphs
    settings = {
        "sourceId" if name == "source" else name: ids[value] if name == "source" else value for name, value in settings.items()
    }
    mine, other = ours.pageRank(**settings, dangling="scale"), theirs.pageRank(**settings)
    near = 1e-9 if "maxIter" in settings else 5e-3
    assert numbers(mine.vertices, "pagerank") == pytest.approx(numbers(other.vertices, "pagerank"), abs=near)
    assert bag(mine.edges) == bag(other.edges)


def test_ranks_of_several_sources(graphs: Graphs) -> None:
    """Ours are theirs of each source alone; theirs of several sources are other numbers."""
    ours, theirs, ids = graphs
    result = numbers(ours.parallelPersonalizedPageRank(sourceIds=ids[:2], maxIter=4, dangling="scale").vertices, "pageranks")
    vectors: Any = result
    for at, source in enumerate(ids[:2]):
        alone = numbers(theirs.pageRank(sourceId=source, maxIter=4).vertices, "pagerank")
        assert {one: vector[at] for one, vector in vectors.items()} == pytest.approx(alone, abs=1e-9)


def test_paths(graphs: Graphs) -> None:
    ours, theirs, ids = graphs
    mine, other = (graph.shortestPaths(landmarks=[ids[1], ids[5]]) for graph in (ours, theirs))
    assert numbers(mine, "distances") == numbers(other, "distances")
    for start, end, settings in (
        ("n < 3", "n > 12", {}),
        ("n = 2", "n = 9", {"edgeFilter": "how <> 'x'"}),
        ("n < 9", "n > 7", {}),
        ("n = 19", "n = 1", {}),
        ("n < 4", "n = 14", {"maxPathLength": 2}),
    ):
        one, another = ours.bfs(start, end, **settings), theirs.bfs(start, end, **settings)
        assert one.columns == another.columns
        assert bag(one) == bag(another), (start, end)
    mine, other = (graph.filterVertices("n < 9").detectingCycles() for graph in (ours, theirs))  # theirs takes minutes for all
    short = F.size("found_cycles") <= 10  # theirs ends after ten supersteps
    assert bag(mine.filter(short)) == bag(other.filter(short))


def test_messages(graphs: Graphs) -> None:
    ours, theirs, _ = graphs
    settings: dict[str, Any] = {
        "aggCol": [F.sort_array(F.collect_list(AM.msg)).alias("all"), F.max(AM.msg).alias("most")],
        "sendToSrc": [AM.dst["n"]],
        "sendToDst": [F.when(AM.edge["how"] == "x", AM.src["n"])],
    }
    # theirs has the first aggregate twice: its rows are compared without names
    mine, other = (graph.aggregateMessages(**settings) for graph in (ours, theirs))
    assert Counter(tuple(map(frozen, row)) for row in mine.collect()) == Counter(
        (frozen(row[0]), frozen(row[1]), frozen(row[-1])) for row in other.collect()
    )
    walks: dict[str, Any] = {
        "starting_vertices": F.col("n") < 3,
        "accumulator_names": ["total", "steps"],
        "accumulator_inits": [F.lit(0), F.lit("")],
        "accumulator_updates": [F.col("total") + AN.dst_attr("n"), F.concat("steps", AN.edge_attr("how"))],
        "max_hops": 4,
        "stopping_condition": AN.dst_attr("n") == 5,
        "target_condition": AN.dst_attr("n") % 4 == 3,
    }
    assert bag(ours.aggregate_neighbors(**walks)) == bag(theirs.aggregate_neighbors(**walks))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_pregel(graphs: Graphs, skip: bool, both: bool) -> None:
    """Distances from two vertices, by way of both ends or of one, with vertices that vote to halt."""
    ours, theirs, _ = graphs
    collected = []
    for graph in (ours, theirs):
        pregel = graph.pregel
        better = F.coalesce(pregel.msg() < F.col("far"), pregel.msg().isNotNull())
        sent = pregel.src("far") + 1
        if both:
            sent = F.when(F.coalesce(sent < pregel.dst("far"), F.lit(True)), sent)
        program = (
            pregel.setMaxIter(30)
            .setEarlyStopping(both)
            .setStopIfAllNonActiveVertices(True)
            .setSkipMessagesFromNonActiveVertices(skip)
            .setInitialActiveVertexExpression(F.col("n") < 2)
            .setUpdateActiveVertexExpression(better)
            .withVertexColumn("far", F.when(F.col("n") < 2, F.lit(0)), F.when(better, pregel.msg()).otherwise(F.col("far")))
            .withVertexColumn("received", F.lit(0), F.col("received") + pregel.msg().isNotNull().cast("int"))
            .sendMsgToDst(sent)
            .aggMsgs(F.min(pregel.msg()))
        )
        collected.append(bag(program.run().select("id", "group", "far", "received")))
    assert collected[0] == collected[1]
