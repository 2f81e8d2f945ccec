"""Runs over Spark Connect, and classic ones whose workers do not reach the driver: rows, reports, errors and what is refused.

White box: expressions of columns are compiled without a run, since what they are compiled to is to be the same for both sessions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.graphs.running import debian
from tests.spark.connecting import connected
from tests.spark.runs import EDGES, Streams, applying, failing, rows, through
from timely import spark as ts
from timely.errors import ConfigurationError, OperatorError, SchemaError, SparkError
from timely.graphs import PregelVertex
from timely.graphs import spark as graphs
from timely.graphs.graphframes.column_expressions import compiled, compiled_aggregate
from timely.inspect import LivePage

pytestmark = pytest.mark.spark

ROOT = Path(timely.__file__).parents[1]


@pytest.fixture(scope="module")
def connect(session: SparkSession) -> Iterator[SparkSession]:
    with connected(session) as remote:
        yield remote


def present(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
    """A row of each worker, whatever it has of the inputs."""
    handle, row = scope.new_input()
    handle.send_batch(pa.RecordBatch.from_pydict({"id": [-1]}))
    handle.close()
    return {name: timely.operators.concatenate([stream, row]) for name, stream in streams.items()}


def test_rows_of_several_tables_and_what_the_workers_did(connect: SparkSession) -> None:
    inputs = {"days": connect.range(20).selectExpr("id AS n", "id % 4 AS day"), "none": connect.range(0)}
    schemas = {"none": "id long", "days": "n long, day long"}
    result = ts.run(through, inputs, schemas, workers=2, epoch={"days": "day"}, key={"days": "n"})
    assert not result.metrics and result.progress is None
    assert rows(result["days"]) == Counter((n, n % 4) for n in range(20))
    assert rows(result["none"]) == Counter()
    assert result.metrics.rows_in == result.metrics.rows_out == {"days": 20, "none": 0}
    assert [worker.epochs for worker in result.metrics] == [4, 4]
    assert cast(ts.RunProgress, result.progress).complete
    attempt = result.metrics[0].attempt
    assert result["days"].where("n < 5").count() == 5
    assert result.metrics[0].attempt == attempt  # the first action has put the rows into the cache
    result.unpersist()


def test_a_table_without_rows_has_workers(connect: SparkSession) -> None:
    result = ts.run(present, {"none": connect.range(0)}, {"none": "id long"})
    assert rows(result["none"]) == Counter({(-1,): 3})
    nothing = ts.run(through, {"none": connect.range(0)}, {"none": "id long"}, workers=1)
    assert (len(nothing["none"].toArrow()), len(nothing.metrics)) == (0, 1)


def test_what_a_worker_raises_is_found_in_the_exception(connect: SparkSession) -> None:
    numbers = connect.range(10).toDF("n")
    result = ts.run(applying(failing("no", only=3)), {"numbers": numbers}, {"numbers": "n long"}, workers=1)
    with pytest.raises(Exception, match="raised ValueError: no") as raised:
        result["numbers"].collect()
    error = ts.failure_of(raised.value)
    assert isinstance(error, OperatorError)
    assert error.name == "map_batch · fail" and error.worker == 0
    assert "no; 'map_batch · fail' was built at" in str(error)
    assert not result.metrics
    with pytest.raises(SparkError, match="give it to timely.spark.failure_of"):
        result.failure  # noqa: B018
    assert ts.failure_of(ValueError("timely-error: no")) is None


def attempts(session: SparkSession) -> dict[int, int]:
    """How many attempts of each stage there have been, in the session whose Java the server is in."""
    context: Any = session.sparkContext
    store = context._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    ids = [jobs.apply(at).stageIds() for at in range(jobs.size())]
    stages = sorted({each.apply(at) for each in ids for at in range(each.size())})
    return {stage: store.lastStageAttempt(stage).attemptId() + 1 for stage in stages}


def test_what_another_attempt_would_fail_of_too_is_tried_once(
    connect: SparkSession, session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("def through(scope, x):\n    return {'x': x}\n")
    sys.path.insert(0, str(tmp_path))
    try:
        from only_here import through as missing  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))

    def mistaken(scope: timely.ScopeBuilder[int], x: timely.Stream[int, Any]) -> Streams:
        raise SchemaError("there is no column 'n'")

    builds: list[tuple[Any, type[Exception], str]] = [
        (missing, ConfigurationError, "cannot load the dataflow: ModuleNotFoundError: No module named 'only_here'"),
        (mistaken, SchemaError, "there is no column 'n'"),
        (applying(failing("no", only=3)), OperatorError, "raised ValueError: no"),
    ]
    for build, kind, message in builds:
        known = attempts(session)
        x = connect.range(3, 4).toDF("n")  # one worker has nothing: a row that it could return might be first
        result = ts.run(build, {"x": x}, {"x": "n long"}, workers=2)
        actions = [result["x"].limit(1).collect, result["x"].count] if build is mistaken else [result["x"].collect]
        for action in actions:
            with pytest.raises(Exception, match=message) as raised:
                action()
            assert isinstance(ts.failure_of(raised.value), kind)
        new = {stage: tries for stage, tries in attempts(session).items() if stage not in known}
        assert build is missing or (new and set(new.values()) == {1})  # nothing of ours is there to say so


def test_what_cannot_be_is_refused_at_the_call(connect: SparkSession, session: SparkSession, tmp_path: Path) -> None:
    inputs: dict[str, Any] = {"x": connect.range(3)}
    schema = {"x": "id long"}

    def refused(error: type[Exception], match: str, outputs: Any = schema, inputs: Any = inputs, **options: Any) -> None:
        with pytest.raises(error, match=match):
            ts.run(through, inputs, outputs, **options)

    refused(SchemaError, "key: input 'x' has no column 'n'; it has 'id'", key="n")
    refused(SchemaError, "is no list of columns and types", {"x": "id lon"})
    refused(SparkError, "99 workers need 99 task slots at the same time; .* offers 3", workers=99)
    refused(ConfigurationError, "rendezvous='driver' needs a program that runs in the driver", rendezvous="driver")
    refused(ConfigurationError, "rendezvous must be 'driver' or 'all_gather', not 'mesh'", rendezvous="mesh")
    refused(ConfigurationError, "is relative to a folder of this machine", epoch="id", checkpoint="here")
    refused(ConfigurationError, "live= needs workers that report", live=LivePage())
    refused(ConfigurationError, "patience must be more than 0", patience=0)
    refused(ConfigurationError, "these come from several", inputs={"x": connect.range(3), "y": session.range(3)})
    refused(ConfigurationError, "is a streaming DataFrame", inputs={"x": connect.readStream.format("rate").load()})
    with pytest.raises(ConfigurationError, match="workers must be an integer"):
        ts.check(connect, 0)
    assert ts.check(connect, 3) == ()
    assert [finding.setting for finding in ts.check(connect, 4)] == ["spark.master"]


def friends(session: SparkSession) -> graphs.GraphFrame:
    people = [("a", 34), ("b", 36), ("c", 30), ("d", 29), ("e", 32)]
    v = session.createDataFrame(people, "id string, age int")
    e = session.createDataFrame([("a", "b"), ("b", "c"), ("c", "b"), ("c", "a"), ("d", "e")], "src string, dst string")
    return graphs.GraphFrame(v, e, workers=1)


def about(session: SparkSession) -> dict[str, Any]:
    """What a handful of the methods of a graph frame find."""
    graph, am = friends(session), graphs.AggregateMessages
    farthest = F.greatest(F.col("most"), graphs.Pregel.msg())
    pregel = graph.pregel.setMaxIter(2).withVertexColumn("most", F.col("age"), farthest)
    pregel = pregel.sendMsgToDst(graphs.Pregel.src("most")).aggMsgs(F.max(graphs.Pregel.msg()))
    return {
        "bfs": rows(graph.bfs("id = 'a'", "age < 31")),
        "connectedComponents": rows(graph.connectedComponents()),
        "find": rows(graph.filterVertices("age > 29").find("(x)-[]->(y); !(y)-[]->(x)").selectExpr("x.id", "y.id AS other")),
        "messages": rows(graph.aggregateMessages([F.sum(am.msg).alias("ages")], sendToDst=[am.src["age"]])),
        "pregel": rows(pregel.run()),
    }


@pytest.mark.cluster
def test_a_graph_frame_finds_what_it_finds_in_a_classic_session(
    connect: SparkSession, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = about(session)
    with pytest.raises(SparkError, match="vertices is one of Spark Connect, and pyspark.sql.functions makes columns for classic"):
        friends(connect)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as SparkSession.builder.remote does, and makes it the active one
    remote: Any = connect
    type(remote)._set_default_and_active_session(remote)
    assert about(connect) == result


def expressions(F: Any) -> list[Any]:
    """Expressions of columns, of each kind that workers compute."""
    a, b, d, f, n, t = map(F.col, "abdfnt")
    return [
        *(a + 1, b + a, f * b, b - d, -a, a % 2, a / 2, f / f, d**2, a != 2, f < a, n == "x", a.eqNullSafe(b), ~t),
        *(F.when(a > 1, F.lit(2)).when(b < 3, 4).otherwise(a), F.coalesce(n, F.lit(None)), F.greatest(a, b), F.least(d, b)),
        *((a > 1) & (b > 1) | (a < 0), F.isnan(f), F.log(b), F.sqrt(a), F.ceil(d), F.floor(f), F.concat(n, F.lit("!"))),
        *(F.struct("a", b.alias("z")), F.array(a, b), F.col("src.x"), F.col("src")["id"], F.col("edge")["src"], F.col("`a`")),
        *(a.cast("int"), d.cast("long"), t.cast("int"), F.lit(1.5), F.lit(None), b + F.lit(None), a.isNull(), a.between(1, b)),
    ]


def aggregates(F: Any) -> list[Any]:
    a, b, n = map(F.col, "abn")
    return [
        *(F.sum(a + b) / F.count("a"), F.avg(b), F.coalesce(F.sum("f"), F.lit(0)), F.collect_list("n"), F.max("f")),
        *(F.bool_and(a > 1), F.col("id") + F.sum(b), F.greatest(F.sum(b), F.max(b)), F.struct(F.min(n).alias("least"))),
    ]


def refused(F: Any) -> list[Any]:
    a, n = F.col("a"), F.col("n")
    distinct = F.count_distinct("a")
    return [F.expr("a + 1"), F.try_add(a, a), a.try_cast("int"), n + 1, n == 1, F.upper(n), F.rand(), F.first("a"), distinct]


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_expressions_are_compiled_as_in_a_classic_session(connect: SparkSession, session: SparkSession, ansi: str) -> None:
    from pyspark.sql.connect import functions

    schema = (
        "id long, a long, b int, f float, d double, n string, t boolean, src struct<id: long, x: int>, edge struct<src: long>"
    )
    frames = [one.createDataFrame([], schema) for one in (session, connect)]
    for one in (session, connect):
        one.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for columns in zip(expressions(F), expressions(functions), strict=True):
            collected = [attempt(compiled, frame, column) for frame, column in zip(frames, columns, strict=True)]
            assert collected[0] == collected[1]
        for columns in zip(aggregates(F), aggregates(functions), strict=True):
            collected = [attempt(compiled_aggregate, frame, "id", column) for frame, column in zip(frames, columns, strict=True)]
            assert collected[0] == collected[1]
        for column in refused(functions):
            with pytest.raises(ConfigurationError, match="which workers cannot compute as Spark does"):
                compiled(frames[1], column)
    finally:
        for one in (session, connect):
            one.conf.unset("spark.sql.ansi.enabled")


def attempt(compile: Callable[..., Any], *arguments: Any) -> Any:
    """What an expression is compiled to, or the kind of error that it is refused with."""
    try:
        return compile(*arguments)
    except ConfigurationError as error:
        return type(error)


def test_slots_that_a_setting_hides_are_asked_for(connect: SparkSession) -> None:
    connect.conf.set("spark.sql.leafNodeDefaultParallelism", "7")
    try:
        assert ts.check(connect, 3) == ()  # the name of a local master says it
    finally:
        connect.conf.unset("spark.sql.leafNodeDefaultParallelism")


def test_components_over_connect(connect: SparkSession) -> None:
    edges = connect.createDataFrame(EDGES, "src string, dst string").dropna()
    vertices = connect.createDataFrame([("d",)], "node string")
    result = graphs.connected_components(edges, vertices=vertices, workers=2)
    assert rows(result) == Counter([("", ""), ("a", ""), ("b", ""), ("c", ""), ("d", "d")])
    assert result.metrics.rows_in == {"edges": 3, "vertices": 1}


def test_a_classic_session_whose_driver_is_out_of_reach(session: SparkSession) -> None:
    result = ts.run(through, {"x": session.range(10)}, {"x": "id long"}, workers=2, rendezvous="all_gather")
    assert not result.metrics
    assert rows(result["x"]) == Counter((n,) for n in range(10))
    assert result.metrics.rows_in == {"x": 10} and len(result.metrics) == 2


def test_a_run_with_checkpoints_deletes_them(connect: SparkSession, tmp_path: Path) -> None:
    days = connect.range(20).selectExpr("id AS n", "id % 4 AS day")
    result = ts.run(through, {"days": days}, {"days": "n long, day long"}, workers=2, epoch="day", checkpoint=tmp_path / "run")
    assert rows(result["days"]) == Counter((n, n % 4) for n in range(20))
    assert result.resumed == []


# -- more of it: pytest -m cluster -----------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_failure_after_a_row_was_returned_is_no_answer(connect: SparkSession, session: SparkSession) -> None:
    """Spark tries such a stage again: rows of a failed attempt must not be taken for those of the run."""
    known = attempts(session)
    connect.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    try:
        days = connect.range(40).selectExpr("id AS n", "id AS day")
        result = ts.run(applying(failing("late", only=39)), {"x": days}, {"x": "n long, day long"}, workers=1, epoch="day")
        with pytest.raises(Exception, match="raised ValueError: late"):
            result["x"].limit(1).collect()
    finally:
        connect.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert max(tries for stage, tries in attempts(session).items() if stage not in known) == 4


@pytest.mark.cluster
def test_a_run_resumes_when_its_worker_is_killed(connect: SparkSession, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def killed(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 17 in batch.column("n").to_pylist() and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    days = connect.range(20).selectExpr("id AS n", "id AS day")
    result = ts.run(
        applying(killed),
        {"days": days},
        {"days": "n long, day long"},
        workers=2,
        epoch="day",
        checkpoint=tmp_path / "run",
        checkpoint_every=3,
    )
    assert rows(result["days"]) == Counter((n, n) for n in range(20))
    assert died.exists()
    assert len(result.resumed) == 1 and 0 < result.resumed[0] <= 17


def _algorithms(session: SparkSession) -> dict[str, Callable[[], DataFrame]]:
    edges = session.createDataFrame(debian("depends"))
    vertices = session.createDataFrame([("nobody",)], "node string")
    weighed = edges.selectExpr("src", "dst", "length(dst) AS weight")
    source = edges.orderBy("src").first()
    assert source is not None
    states = (
        edges.selectExpr("src AS node").unionAll(edges.selectExpr("dst AS node")).distinct().selectExpr("node", "1L AS state")
    )

    def degree(vertex: PregelVertex[Any, Any, Any], messages: list[int]) -> tuple[int, list[tuple[Any, int]]]:
        return sum(messages), [(target, 1) for target in vertex.edges if vertex.superstep == 0]

    return {
        "breadth_first_search": lambda: graphs.breadth_first_search(edges, source.src),
        "connected_components": lambda: graphs.connected_components(edges, vertices=vertices),
        "label_propagation": lambda: graphs.label_propagation(edges),
        "pagerank": lambda: graphs.pagerank(edges).selectExpr("node", "round(rank, 9) AS rank"),
        "pregel": lambda: graphs.pregel(states, edges, degree),
        "shortest_paths": lambda: graphs.shortest_paths(weighed, source.src),
        "strongly_connected_components": lambda: graphs.strongly_connected_components(edges, workers=1),
        "triangle_count": lambda: graphs.triangle_count(edges),
    }


@pytest.mark.cluster
@pytest.mark.parametrize("name", sorted(name for name in graphs.__all__ if name.islower()))
def test_every_algorithm_finds_what_it_finds_in_a_classic_session(
    connect: SparkSession, session: SparkSession, name: str
) -> None:
    actual = rows(_algorithms(connect)[name]())
    assert actual
    assert actual == rows(_algorithms(session)[name]())


CLIENT = """
import sys
from pyspark.sql.connect.session import SparkSession
from timely import spark as ts
session = SparkSession(sys.argv[1])
result = ts.run(lambda scope, x: {"x": x.exchange("id")}, {"x": session.range(10)}, {"x": "id long"}, workers=2)
print(sorted(row.id for row in result["x"].collect()), result.metrics.rows_in)
session.stop()
"""


@pytest.mark.cluster
def test_a_program_that_has_the_client_alone(connect: Any) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_SKIP_CONNECT_COMPAT_TESTS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{connect.conf.get('spark.connect.grpc.binding.port')}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{list(range(10))} {{'x': 10}}"], done.stderr


SHIP = """
from tests.spark.connecting import connected
from timely import spark as ts
with connected(ts.local_session(2)) as session:
    names = ts.ship(session)
    result = ts.run(lambda scope, x: {"x": x}, {"x": session.range(10)}, {"x": "id long"}, workers=2)
    print("timely" in names, ts.ship(session) == names, result["x"].count())
"""


@pytest.mark.cluster
def test_packages_are_shipped() -> None:
    """In a Java of its own, whose other sessions would look for the archive in vain."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SHIP]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.splitlines() == ["True True 10"], done.stderr
