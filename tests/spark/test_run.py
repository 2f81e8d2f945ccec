"""``timely.spark.run``: DataFrames in, workers in a barrier stage, DataFrames out, and what that takes.

White box: that a run leaves nothing behind on the driver is seen at the objects that are alive, and nobody outside has the keys
that must not be found.
"""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import timely
from tests.spark.runs import EDGES, Streams, applying, arrow_of, jobs_of, rows, through
from timely import spark as ts
from timely.spark.rendezvous import Rendezvous, RunEntry

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak), 3])
def test_rows_come_through_as_they_are(edges: DataFrame, workers: int) -> None:
    result = ts.run(through, inputs={"edges": edges}, outputs={"edges": "src string, dst string"}, workers=workers)
    assert list(result) == ["edges"]
    assert len(result) == 1
    assert rows(result["edges"]) == Counter(EDGES)
    assert result.failure is None


def test_rows_are_exchanged_between_the_workers(numbers: DataFrame) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        def with_worker(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows))

        return {"owned": numbers.exchange("day").map_batch(with_worker)}

    schema = "n long, day int, pid long"
    owned = ts.run(build, {"numbers": numbers}, {"owned": schema}, workers=2)["owned"].collect()
    assert sorted(row.n for row in owned) == list(range(100))
    homes = {row.day % 2: set() for row in owned}  # type: dict[int, set[int]]
    for row in owned:
        homes[row.day % 2].add(row.pid)
    assert [len(pids) for pids in homes.values()] == [1, 1]
    assert homes[0].isdisjoint(homes[1])


def test_rows_are_the_same_where_progress_is_passed_on(numbers: DataFrame) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        return {"numbers": numbers.exchange("n").exchange("day")}

    result = ts.run(build, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=3, epoch="day", progress="central")
    assert rows(result["numbers"]) == rows(numbers)


def test_several_inputs_and_several_outputs(edges: DataFrame, numbers: DataFrame) -> None:
    def build(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any], numbers: timely.Stream[int, Any]) -> Streams:
        def large(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.filter(pc.greater_equal(batch.column("n"), 97)).select(["n"])

        def nodes(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([batch.column("src")], ["node"])

        return {"edges": edges, "large": numbers.map_batch(large), "nodes": edges.map_batch(nodes)}

    outputs: dict[str, str | StructType] = {
        "large": StructType([StructField("n", LongType())]),
        "nodes": "node string",
        "edges": "src string, dst string",
    }
    result = ts.run(build, {"edges": edges, "numbers": numbers}, outputs, workers=3)
    assert list(result) == ["large", "nodes", "edges"]
    assert rows(result["large"]) == Counter([(97,), (98,), (99,)])
    assert rows(result["edges"]) == Counter(EDGES)
    assert rows(result["nodes"]) == Counter((src,) for src, _ in EDGES)
    result.unpersist()


def test_several_outputs_take_one_run(numbers: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "runs"

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        with log.open("a") as file:
            file.write("x")
        return {"one": numbers, "two": numbers}

    schema = "n long, day int"
    result = ts.run(build, {"numbers": numbers}, {"one": schema, "two": schema}, workers=2)
    log.unlink()  # written when its outputs were checked
    assert result["one"].count() == 100
    assert result["two"].where("n < 10").count() == 10
    assert len(result["one"].take(3)) == 3
    assert log.read_text() == "xx"
    result.unpersist()


def test_the_same_rows_may_come_in_by_several_ways(session: SparkSession) -> None:
    """Five inputs, of which two are one DataFrame, two are made from it, and all have the same column."""
    frame = session.range(20).toDF("n")
    inputs = {
        "one": frame,
        "two": frame,
        "joined": frame.join(frame.where("n < 5"), "n"),
        "swapped": frame.select(F.lit("x").alias("kind"), "n"),
        "empty": frame.where("n < 0"),
    }
    schemas = {name: part.schema for name, part in inputs.items()}
    result = ts.run(through, inputs, schemas, workers=2)
    for name, part in inputs.items():
        assert rows(result[name]) == rows(part), name
    result.unpersist()


@pytest.mark.parametrize("names", [["numbers"], ["numbers", "again"]], ids=["one", "two"])
def test_nothing_runs_before_an_action_and_every_action_gives_the_same(numbers: DataFrame, names: list[str]) -> None:
    before = jobs_of(numbers.sparkSession)
    schemas: dict[str, str | StructType] = dict.fromkeys(names, "n long, day int")
    inputs = dict.fromkeys(names, numbers)
    result = ts.run(through, inputs, schemas, workers=2, epoch="day", key="n")
    frame = result["numbers"].where("n < 50")
    assert jobs_of(numbers.sparkSession) == before
    assert rows(frame) == rows(frame) == Counter((n, n % 4) for n in range(50))
    result.unpersist()
    assert frame.count() == 50
    assert jobs_of(numbers.sparkSession) != before
    result.unpersist()


def results_of(session: SparkSession, since: list[int]) -> int:
    """How many bytes the tasks of the jobs that are not in ``since`` have sent to the driver."""
    context = session.sparkContext
    store = context._jsc.sc().statusStore()
    jobs = [context.statusTracker().getJobInfo(job) for job in jobs_of(session) if job not in since]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return sum(int(store.lastStageAttempt(stage).resultSize()) for stage in stages)


def test_no_row_passes_through_the_driver(session: SparkSession, tmp_path: Path) -> None:
    before = jobs_of(session)
    frame = session.range(2000).select(F.expr("repeat(uuid(), 100)").alias("text"))
    result = ts.run(through, {"texts": frame}, {"texts": "text string"}, workers=2)["texts"]
    result.write.option("compression", "none").parquet(str(tmp_path / "out"))
    written = sum(file.stat().st_size for file in (tmp_path / "out").glob("*.parquet"))
    assert written > 7_000_000
    assert 0 < results_of(session, before) < 100_000
    result.agg(F.max("text")).collect()
    arrow_of(result.where("text < '8'"))
    assert results_of(session, before) > 1_000_000  # so this is where rows that pass through the driver would be seen


def test_batches_are_as_large_as_spark_is_set_to(session: SparkSession) -> None:
    """Those that come in are as Spark cuts them; of those that go out the larger ones are cut."""

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_pydict({"n": [batch.num_rows] * 100})

        return {"sizes": numbers.map_batch(sizes)}

    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 7)
    try:
        sizes = ts.run(build, {"numbers": session.range(50)}, {"sizes": "n long"}, workers=2)["sizes"]
        assert {row.n for row in sizes.select("n").distinct().collect()} <= set(range(1, 8))
        assert sizes.count() == 100 * 8
    finally:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 65536)


def test_the_result_is_a_dataframe_like_any(numbers: DataFrame, tmp_path: Path) -> None:
    frame = ts.run(through, {"numbers": numbers}, {"numbers": "n long, day int"}, workers=2)["numbers"]
    assert len(frame.take(5)) == 5
    assert frame.limit(7).count() == 7
    assert frame.coalesce(1).unionAll(frame).count() == 200
    frame.write.parquet(str(tmp_path / "out"))
    assert frame.sparkSession.read.parquet(str(tmp_path / "out")).agg(F.sum("n")).collect()[0][0] == 4950


@pytest.mark.parametrize(("inputs", "options"), [(1, {}), (1, {"epoch": "n"}), (2, {"key": "n"})], ids=str)
def test_every_worker_runs_without_a_row(session: SparkSession, inputs: int, options: dict[str, Any]) -> None:
    def build(scope: timely.ScopeBuilder[int], **numbers: timely.Stream[int, Any]) -> Streams:
        alive = scope.to_stream([1]).map_batch(lambda ones: pa.RecordBatch.from_pydict({"n": ones}))
        return {"all": alive.concat(*numbers.values())}

    empty = session.range(5).where("id > 7").select(F.col("id").alias("n"))
    result = ts.run(build, {f"numbers{at}": empty for at in range(inputs)}, {"all": "n long"}, workers=3, **options)["all"]
    assert rows(result) == Counter({(1,): 3})


def seen_epochs(column: str) -> Callable[..., Streams]:
    """A build that says of each row at which time it came, and whether the frontier had been before."""

    def build(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
        def constructor(capability: Any, info: Any) -> Any:
            def logic(input: Any, output: Any) -> None:
                for cap, batch in input:
                    times = pa.array([cap.time] * batch.num_rows, pa.int64())
                    with output.session(cap) as session:
                        session.give_batch(pa.RecordBatch.from_arrays([batch.column(column), times], ["n", "time"]))

            return logic

        return {name: stream.unary(timely.Pipeline, "time", constructor) for name, stream in streams.items()}

    return build


def test_epochs_of_one_input_of_two(numbers: DataFrame) -> None:
    schema = "n long, time long"
    inputs = {"timed": numbers, "still": numbers}
    result = ts.run(seen_epochs("n"), inputs, {"timed": schema, "still": schema}, workers=2, epoch={"timed": "day"})
    assert rows(result["timed"]) == Counter((n, n % 4) for n in range(100))
    assert rows(result["still"]) == Counter((n, 0) for n in range(100))
    result.unpersist()


@pytest.mark.parametrize("inputs", [["one"], ["one", "two"]])
def test_rows_with_one_key_go_to_one_worker(numbers: DataFrame, inputs: list[str]) -> None:
    def with_worker(batch: pa.RecordBatch) -> pa.RecordBatch:
        pids = pa.array([os.getpid()] * batch.num_rows)
        return pa.RecordBatch.from_arrays([batch.column("day"), pids], ["day", "pid"])

    schemas = dict.fromkeys(inputs, "day int, pid long")
    result = ts.run(applying(with_worker), dict.fromkeys(inputs, numbers), schemas, workers=3, key="day")
    homes = Counter(day for day, _ in {row for name in inputs for row in rows(result[name])})
    assert homes == Counter(range(4))
    result.unpersist()


def test_equal_keys_of_two_inputs_meet_in_one_worker(session: SparkSession) -> None:
    """So a join needs no exchange; which worker it is, is Spark's choice, and not the one that an exchange would make."""

    def build(scope: timely.ScopeBuilder[int], left: timely.Stream[int, Any], right: timely.Stream[int, Any]) -> Streams:
        def with_worker(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows))

        return {"left": left.map_batch(with_worker), "right": right.map_batch(with_worker)}

    left = session.range(40).select(F.concat(F.lit("k"), F.col("id") % 10).alias("word"))
    right = session.range(10).select(F.col("id").alias("n"), F.concat(F.lit("k"), F.col("id")).alias("text"))
    keys = {"left": "word", "right": "text"}
    schemas: dict[str, str | StructType] = {"left": "word string, pid long", "right": "n long, text string, pid long"}
    result = ts.run(build, {"left": left, "right": right}, schemas, workers=3, key=keys)
    homes = {(row.word, row.pid) for row in result["left"].collect()}
    assert homes == {(row.text, row.pid) for row in result["right"].collect()}
    assert len(homes) == 10
    result.unpersist()


def runs_known() -> int:
    """How many runs this process holds in memory."""
    gc.collect()
    return sum(isinstance(thing, RunEntry) for thing in gc.get_objects())


def test_a_run_is_forgotten_when_no_table_needs_it_any_more(session: SparkSession, edges: DataFrame) -> None:
    def run() -> DataFrame:
        return ts.run(through, {"edges": edges}, {"edges": "src string, dst string"}, workers=2)["edges"]

    derived = run().where("src = 'a'")  # of which only Java knows that it is of the run
    before = runs_known()
    made = before + 30  # the driver looks when the runs that it knows have doubled
    for number in range(1, 8 * made):  # more than ``made`` where Java is slow to say what it has collected
        run()
        if number % 10 == 0:
            session._jvm.System.gc()  # type: ignore[union-attr]
        if number >= made and runs_known() < before + number - 10:
            break
    else:
        pytest.fail("no run is forgotten")
    assert rows(derived) == Counter([("a", "b")])


def test_keys_are_in_no_plan_and_in_no_log(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[RunEntry] = []
    open_run = Rendezvous.open_run

    def note(server: Rendezvous, *args: Any, **options: Any) -> RunEntry:
        runs.append(open_run(server, *args, **options))
        return runs[-1]

    monkeypatch.setattr(Rendezvous, "open_run", note)
    caplog.set_level(logging.DEBUG, "timely")
    result = ts.run(through, {"numbers": session.range(100)}, {"numbers": "id long"}, workers=2)
    assert result["numbers"].count() == 100
    (run,) = runs
    shown = result["numbers"]._jdf.queryExecution().toString() + repr(result) + repr(run) + caplog.text
    for key in (run.identity.key, run.driver.key):
        lines = [line for line in key.decode().splitlines() if not line.startswith("---")]
        assert len(lines) > 1
        assert not any(line in shown for line in lines)
