"""The graph algorithms from DataFrame to DataFrame: what they find, what they take, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType

from benchmarks import spark as benchmark
from benchmarks import spark_loops
from tests.graphs.running import answers, corners, expected, joined, nearest, ranked, table_of, voted
from tests.spark.runs import SINCE_4, arrow_of
from timely import ConfigurationError, SchemaError
from timely.graphs import PregelVertex
from timely.graphs.spark import (
    breadth_first_search,
    connected_components,
    label_propagation,
    pagerank,
    pregel,
    shortest_paths,
    strongly_connected_components,
    triangle_count,
)
from timely.memory import MemoryBudget

pytestmark = pytest.mark.spark


def test_columns_of_any_name_and_whole_numbers(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, "x", 2), (2, "y", 1), (2, "z", 3)], "`a.from` long, kind string, `to` long")
    components = strongly_connected_components(edges, "a.from", "to")
    assert [(field.name, field.dataType) for field in components.schema] == [("node", LongType()), ("component", LongType())]
    assert sorted(tuple(row) for row in components.collect()) == [(1, 1), (2, 1), (3, 3)]


@SINCE_4
def test_strings_with_a_collation_are_refused(session: SparkSession) -> None:
    edges = session.range(3).selectExpr(*(f"cast(id as string) collate utf8_lcase as {name}" for name in ("src", "dst")))
    with pytest.raises(SchemaError, match="are string collate UTF8_LCASE, in which different strings may be equal"):
        connected_components(edges)


@pytest.mark.filterwarnings("ignore:distutils")  # of PySpark 3.5
def test_rows_that_change_are_warned_of(session: SparkSession) -> None:
    edges = session.range(9).select(F.col("id").alias("src"), (F.rand() * 9).cast("long").alias("dst"))
    with pytest.warns(UserWarning, match=r"the edges of connected_components are computed by rand\(\), .* cache it"):
        connected_components(edges)
    stored = edges.persist()
    stored.count()
    assert connected_components(stored).count() == 9  # warnings are errors here
    stored.unpersist()


def test_columns_that_differ_in_case_alone(session: SparkSession) -> None:
    edges = session.createDataFrame([(1, 2, 3, 0.5, 9.0)], "src long, SRC long, dst long, Weight double, weight double")
    vertices = session.createDataFrame([(7, "seven", 0.0, "x")], "node long, Node string, state double, STATE string")
    assert found(connected_components(edges, "SRC", vertices=vertices)) == {2: 2, 3: 2, 7: 7}
    assert found(shortest_paths(edges, 1, weight="Weight")) == {1: 0.0, 3: 0.5}
    states = vertices.union(session.createDataFrame([(2, "", 1.0, ""), (3, "", 2.0, "")], vertices.schema))

    def least(vertex: PregelVertex[Any, Any, Any], messages: list[float]) -> tuple[float, list[tuple[Any, float]]]:
        return min([vertex.state, *messages]), [(target, cost) for target, cost in vertex.edges if vertex.superstep == 0]

    assert found(pregel(states, edges, least, src="SRC", weight="Weight")) == {2: 1.0, 3: 0.5, 7: 0.0}
    noted = edges.select("*", F.lit("x").alias("note"), F.lit("y").alias("note"))
    assert found(connected_components(noted, "SRC")) == {2: 2, 3: 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": [(1, 2)]}, "the edges must be a Spark DataFrame, not <class 'list'>: session.createDataFrame"),
        ({"vertices": [1]}, "the vertices must be a Spark DataFrame, not <class 'list'>"),
        ({"src": 1}, "a column of the edges is chosen by its name, a string, not by 1"),
    ],
)
def test_what_is_no_table_and_no_name_of_a_column(session: SparkSession, arguments: dict[str, Any], message: str) -> None:
    edges = session.createDataFrame([(1, 2)], "src long, dst long")
    with pytest.raises(ConfigurationError, match=message):
        connected_components(**{"edges": edges, **arguments})


def test_no_edges(session: SparkSession) -> None:
    assert strongly_connected_components(session.createDataFrame([], "src long, dst long")).collect() == []


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
    (state,) = answers([arrow_of(frame)])
    return state


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_siblings_on_spark(session: SparkSession, workers: int) -> None:
    edges, vertices = graph(session)
    members = connected_components(edges, "from", "to", vertices=vertices, workers=workers)
    assert found(members) == joined(EDGES, ALONE)
    strong = strongly_connected_components(edges, "from", "to", vertices=vertices, workers=workers)
    assert found(strong) == {**expected(table_of(EDGES)), **{node: node for node in ALONE if node not in sum(EDGES, ())}}
    labels = label_propagation(edges, "from", "to", vertices=vertices, rounds=3, workers=workers)
    assert found(labels) == voted(EDGES, ALONE, 3)
    triangles = triangle_count(edges, "from", "to", vertices=vertices, workers=workers)
    assert found(triangles) == corners(EDGES, ALONE)
    assert triangles.schema["triangles"].dataType == LongType()
    ranks = pagerank(edges, "from", "to", vertices=vertices, tolerance=1e-12, workers=workers)
    assert found(ranks) == pytest.approx(ranked(EDGES, ALONE), abs=1e-10)
    assert ranks.schema["rank"].dataType == DoubleType()


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_distances_on_spark(session: SparkSession, workers: int) -> None:
    edges = session.createDataFrame(WEIGHTED, "src long, dst long, `a.km` double")
    assert found(shortest_paths(edges, 4, weight="a.km", workers=workers)) == nearest(WEIGHTED, 4)
    steps = breadth_first_search(edges, 4, workers=workers)
    assert found(steps) == nearest([(a, b, 1) for a, b in EDGES], 4)
    assert steps.schema["distance"].dataType == LongType()


def test_what_spark_is_spared(session: SparkSession) -> None:
    edges, vertices = graph(session)
    with pytest.raises(SchemaError, match="vertices have no column 'node'; they have 'n'"):
        connected_components(edges, "from", "to", vertices=vertices.withColumnRenamed("node", "n"))
    with pytest.raises(SchemaError, match="'node' is string, and the ends of the edges are bigint"):
        connected_components(edges, "from", "to", vertices=vertices.selectExpr("string(node) node"))
    with pytest.raises(SchemaError, match="no column 'target'; they have 'from', 'to'"):
        strongly_connected_components(edges, "from", "target")
    with pytest.raises(SchemaError, match="'from' is bigint and column 'to' is string"):
        strongly_connected_components(edges.selectExpr("`from`", "string(`to`) `to`"), "from", "to")
    with pytest.raises(SchemaError, match="edges have no column 'weight'"):
        shortest_paths(edges, 4, "from", "to")
    with pytest.raises(SchemaError, match="'w' is string, and a weight must be a number"):
        shortest_paths(edges.selectExpr("*", "'1' w"), 4, "from", "to", "w")
    with pytest.raises(ConfigurationError, match="rounds must be 0 or more, not -1"):
        label_propagation(edges, "from", "to", rounds=-1)
    with pytest.raises(ConfigurationError, match="damping must be at least 0 and below 1, not 2"):
        pagerank(edges, "from", "to", damping=2)
    with pytest.raises(SchemaError, match="'from' and 'to' are struct<n:bigint>, which cannot be a node"):
        triangle_count(edges.selectExpr("struct(`from` n) `from`", "struct(`to` n) `to`"), "from", "to")
    with pytest.raises(SchemaError, match="edges have 2 columns 'to'"):
        connected_components(edges.selectExpr("*", "`to`"), "from", "to")
    with pytest.raises(ConfigurationError, match="source is 'hen', and the nodes are bigint"):
        breadth_first_search(edges, "hen", "from", "to")
    with pytest.raises(ConfigurationError, match=r"source is 4.5, and the nodes in column 'from' are of type int64: .* be 4"):
        breadth_first_search(edges, 4.5, "from", "to")
    with pytest.raises(ConfigurationError, match="source is None, which is no node"):
        shortest_paths(edges.selectExpr("*", "1 w"), None, "from", "to", "w")
    with pytest.raises(SchemaError, match=r"nodes are decimal\(3,0\), which a message cannot be sent to"):
        pregel(vertices, edges.selectExpr("cast(`from` as decimal(3)) src", "cast(`to` as decimal(3)) dst"), hops)


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        ("string", ["", "a", "b" * 300, "ä"]),
        ("binary", [b"", b"a", b"b", b"\xff"]),
        pytest.param("date", [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)], marks=pytest.mark.soak),
        ("timestamp", [datetime(2024, 3, 31, hour, 30, tzinfo=UTC) for hour in range(4)]),
        ("decimal(38,2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("9" * 36 + ".99")]),
        pytest.param("byte", [-128, -1, 0, 127], marks=pytest.mark.soak),
    ],
)
def test_nodes_of_any_plain_type(session: SparkSession, kind: str, nodes: list[Any]) -> None:
    """``nodes`` are in ascending order."""
    one, two, three, four = nodes
    edges = session.createDataFrame([(two, one), (three, four), (one, two), (four, four)], f"src {kind}, dst {kind}").persist()
    members = connected_components(edges)
    assert {field.dataType for field in members.schema} == {edges.schema["src"].dataType}
    ends = arrow_of(edges.select("src").union(edges.select("dst")))
    low, second, third, high = sorted(set(ends["src"].to_pylist()))
    assert found(members) == {low: low, second: low, third: third, high: third}
    assert found(breadth_first_search(edges, three)) == {third: 0, high: 1}
    edges.unpersist()


@pytest.mark.parametrize(
    "zone",
    [pytest.param("America/New_York", marks=pytest.mark.soak), "Asia/Kathmandu", pytest.param("UTC", marks=pytest.mark.soak)],
)
def test_a_source_is_an_instant_as_spark_gives_it(session: SparkSession, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """Without a time zone, by the clock of this machine; also in the hour that there is twice."""
    before = str(session.conf.get("spark.sql.session.timeZone"))
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    session.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        text = [f"timestamp'2024-11-03 0{hour}:30:00Z'" for hour in (4, 5, 6, 7)]
        edges = session.sql(f"select * from values ({text[0]}, {text[1]}), ({text[2]}, {text[3]}) t(src, dst)")
        for source, row in enumerate(edges.orderBy("src").collect()):
            for values in (row.src, row.src.astimezone(UTC), pd.Timestamp(row.src)):
                reached = sorted(breadth_first_search(edges, values).select(F.unix_timestamp("node") / 3600).collect())
                assert [int(hour) % 24 for (hour,) in reached] == [4 + 2 * source, 5 + 2 * source]
    finally:
        session.conf.set("spark.sql.session.timeZone", before)
        monkeypatch.undo()
        time.tzset()


# -- pregel ------------------------------------------------------------------------------------------------------------


def hops(vertex: PregelVertex[Any, Any, Any], messages: list[float]) -> tuple[float, Iterable[tuple[Any, float]]]:
    best = min([vertex.state, *messages])
    message = vertex.superstep == 0 or best < vertex.state
    return best, [(target, best + length) for target, length in vertex.edges if message]


def starting(session: SparkSession, source: int) -> DataFrame:
    far = {node: float("inf") for edge in EDGES for node in edge}
    return session.createDataFrame(list({**far, source: 0.0}.items()), "node long, `so far` double")


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_pregel_finds_shortest_paths(session: SparkSession, workers: int) -> None:
    edges = session.createDataFrame(WEIGHTED, "`from` long, `to` long, km double")
    roads: dict[str, Any] = {"src": "from", "dst": "to", "weight": "km"}
    ended = pregel(starting(session, 4), edges, hops, min, state="so far", workers=workers, **roads)
    assert ended.schema.simpleString() == "struct<node:bigint,state:double>"
    reached = {node: state for node, state in found(ended).items() if state != float("inf")}
    assert reached == nearest(WEIGHTED, 4)


def test_pregel_with_structs_as_states_and_weights(session: SparkSession) -> None:
    def compute(vertex: PregelVertex[Any, Any, Any], messages: list[str]) -> tuple[Any, list[tuple[Any, str]]]:
        message = sorted({*vertex.state["heard"], *messages})
        received = [(target, by["line"]) for target, by in vertex.edges] if vertex.superstep == 0 else []
        return {"heard": message, "at": vertex.superstep}, received

    states = "node string, state struct<heard: array<string>, at: int>"
    vertices = session.createDataFrame([("a", ([], None)), ("b", (["start"], None))], states)
    lines = [("a", "b", ("one", 1)), ("a", "b", ("two", 2))]
    edges = session.createDataFrame(lines, "src string, dst string, by struct<line: string, n: int>")
    assert {row.node: row.state.asDict() for row in pregel(vertices, edges, compute, weight="by").collect()} == {
        "a": {"heard": [], "at": 0},
        "b": {"heard": ["one", "start", "two"], "at": 1},
    }


def says(what: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda vertex, messages: what(vertex.node)


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (says(lambda node: (0.0, [(77, 1.0)])), "a message was sent to 77, which is no vertex"),
        (says(lambda node: ("far", [])), "the states began as double, and compute returned one that is none"),
    ],
)
def test_pregel_says_what_compute_did_wrong(session: SparkSession, compute: Callable[..., Any], told: str) -> None:
    edges = session.createDataFrame(EDGES, "src long, dst long")
    with pytest.raises(Exception, match=told):
        pregel(starting(session, 4), edges, compute, state="so far").collect()


@pytest.mark.parametrize(
    ("kind", "state", "told"),
    [
        pytest.param("int", 2.5, "2.5 would be cut off as int32", marks=pytest.mark.soak),
        pytest.param("long", Decimal("2.5"), r"Decimal\('2.5'\) would be cut off as int64", marks=pytest.mark.soak),
        pytest.param(
            "date", datetime(2024, 2, 29, 12), "datetime.datetime.* would be cut off as date32.day.", marks=pytest.mark.soak
        ),
        ("map<string, array<struct<x: int, y: int>>>", {"k": [None, {"x": 1, "y": 0.5}]}, "0.5 would be cut off as int32"),
    ],
)
def test_pregel_cuts_nothing_off_a_state(session: SparkSession, kind: str, state: Any, told: str) -> None:
    vertices = session.createDataFrame([(1, None)], f"node long, state {kind}")
    none = session.createDataFrame([], "src long, dst long")
    with pytest.raises(Exception, match=rf"compute returned one that is none \({told}\)"):
        pregel(vertices, none, says(lambda node: (state, []))).collect()


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        pytest.param("int", 2.0, marks=pytest.mark.soak),
        pytest.param("date", datetime(2024, 2, 29), marks=pytest.mark.soak),
        ("map<string, array<struct<x: int, y: double>>>", {"k": [None, {"x": None}, {"x": 3, "y": 0.5}], "none": None}),
    ],
)
def test_pregel_takes_a_state_of_which_nothing_is_cut_off(session: SparkSession, kind: str, state: Any) -> None:
    vertices = session.createDataFrame([(1, None)], f"node long, state {kind}")
    none = session.createDataFrame([], "src long, dst long")
    (row,) = pregel(vertices, none, says(lambda node: (state, []))).collect()
    assert row.state in (2, date(2024, 2, 29), {"k": [None, (None, None), (3, 0.5)], "none": None})


@pytest.mark.parametrize("functions", [(3, None), (hops, "min")])
def test_pregel_refuses_what_is_no_function(session: SparkSession, functions: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigurationError, match="pregel: comp?[a-z]* must be a function, not"):
        pregel(starting(session, 4), session.createDataFrame(EDGES, "src long, dst long"), *functions, state="so far")


def test_pregel_refuses_a_node_that_is_null(session: SparkSession) -> None:
    vertices = session.createDataFrame([(1, 0.0), (None, 0.0)], "node long, state double")
    with pytest.raises(Exception, match="the vertices' column 'node' has 1 nulls"):
        pregel(vertices, session.createDataFrame([(1, 1)], "src long, dst long"), hops).collect()


@pytest.mark.parametrize("algorithm", [connected_components, pagerank])
def test_workers_without_memory_find_the_same(session: SparkSession, algorithm: Any) -> None:
    """Everything that can go to disk does so."""
    pairs = [(number, number * number % 97) for number in range(200)]
    edges = session.createDataFrame(pairs, "src long, dst long")
    assert found(algorithm(edges, workers=2, memory=MemoryBudget(1))) == pytest.approx(found(algorithm(edges, workers=2)))


# -- the benchmark -----------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_all_that_are_compared_find_the_same(session: SparkSession) -> None:
    """On a graph so narrow that the loops go round twice or three times."""
    near = [(one, other) for one in range(4) for other in range(4) if one != other]
    edges = table_of([*near, (5, 4), (4, 5), (4, 4), (2, 1)]).combine_chunks().to_batches()[0]
    for contest in benchmark.contests(session, "a small graph", edges, nodes=6, whole=None, rounds=2):
        for contestant in contest.contestants:
            benchmark.check(contest, contestant)


def test_a_loop_that_is_not_run_to_its_end_gives_what_the_rounds_so_far_found(session: SparkSession) -> None:
    path = session.createDataFrame([(0, 1), (1, 2), (2, 3)], "src long, dst long")
    assert found(spark_loops.distances(path, 2).found) == {0: 0, 1: 1, 2: 2}


def test_a_plan_names_its_algorithm(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    edges = session.createDataFrame([(1, 2, 0.5)], "src long, dst long, weight double")
    plans: dict[str, Callable[[], DataFrame]] = {
        "breadth_first_search": lambda: breadth_first_search(edges, 1),
        "connected_components": lambda: connected_components(edges),
        "label_propagation": lambda: label_propagation(edges),
        "pagerank": lambda: pagerank(edges),
        "pregel": lambda: pregel(edges.selectExpr("src as node", "0 as state"), edges, hops),
        "shortest_paths": lambda: shortest_paths(edges, 1),
        "strongly_connected_components": lambda: strongly_connected_components(edges),
        "triangle_count": lambda: triangle_count(edges),
    }
    for name, plan in plans.items():
        plan().explain()
        assert f"timely {name}(" in capsys.readouterr().out
