"""One program gives one result, in the driver's own Java, on executors of their own, and on a cluster of separate processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.cluster.clusters import SLOTS
from timely import spark as ts
from timely.differential.spark import changes, maintain
from timely.errors import OperatorError

pytestmark = pytest.mark.cluster

Streams = dict[str, timely.Stream[int, Any]]


def steps_to_one(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any], names: timely.Stream[int, Any]) -> Streams:
    """How often the rule of the hailstones has to be applied to each number; and who did the counting."""

    def begin(batch: pa.RecordBatch) -> list[tuple[int, int, int]]:
        return [(n, n, 0) for n in batch.column("n").to_pylist()]

    def rule(state: tuple[int, int, int]) -> tuple[int, int, int]:
        first, now, steps = state
        return first, (3 * now + 1 if now % 2 else now // 2), steps + 1

    def table(done: list[tuple[int, int, int]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": [first for first, _, _ in done], "steps": [steps for _, _, steps in done]})

    def with_worker(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows))

    with scope.iterative() as loop:
        handle, again = loop.feedback()
        states = numbers.map_batch(begin).enter(loop).concat(again).exchange(lambda state: state[1])
        more, done = states.branch(lambda state: state[1] == 1)
        more.map(rule).connect_loop(handle)
        result = done.leave()
    return {"steps": result.map_batch(table), "names": names.map_batch(with_worker)}


def expected(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def test_a_loop_over_several_inputs_gives_the_same(session: SparkSession) -> None:
    numbers = session.range(1, 300).toDF("n")
    names = session.sql("select id, cast(id as string) as name, array(date'0001-01-01', null) as days from range(50)")
    outputs = {"steps": "n long, steps long", "names": "id long, name string, days array<date>, pid long"}
    result = ts.run(steps_to_one, {"numbers": numbers, "names": names}, outputs, workers=SLOTS)
    steps = result["steps"].where("steps >= 0")
    assert sorted(map(tuple, steps.collect())) == [(n, expected(n)) for n in range(1, 300)]
    held = result["names"].drop("pid")
    assert sorted(map(tuple, held.collect())) == sorted(map(tuple, names.collect()))
    assert result["names"].select("pid").distinct().count() == SLOTS
    result.unpersist()


def through(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
    return streams


def test_more_than_the_driver_would_take_goes_through_the_workers(session: SparkSession, tmp_path: Path) -> None:
    """Except in the driver's own Java, no result of more than a megabyte may be sent to the driver here."""
    texts = session.range(20_000).select("id", F.expr("repeat(uuid(), 30)").alias("text"))
    result: DataFrame = ts.run(through, {"texts": texts}, {"texts": "id long, text string"}, workers=SLOTS, key="id")["texts"]
    result.write.option("compression", "none").parquet(str(tmp_path / "out"))
    assert sum(file.stat().st_size for file in (tmp_path / "out").glob("*.parquet")) > 20_000_000
    assert session.read.parquet(str(tmp_path / "out")).agg(F.sum("id")).collect()[0][0] == sum(range(20_000))
    if not str(session.sparkContext.master).startswith("local["):
        with pytest.raises(Exception, match="maxResultSize"):
            result.collect()


def test_an_error_says_where_it_comes_from(session: SparkSession) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
            raise ValueError("not today")

        return {"numbers": numbers.map_batch(fail)}

    result = ts.run(build, {"numbers": session.range(10)}, {"numbers": "id long"}, workers=SLOTS)
    with pytest.raises(Exception, match="not today"):
        result["numbers"].collect()
    assert isinstance(result.failure, OperatorError)
    assert result.failure.name == "map_batch · fail"


def test_a_view_gives_the_same(session: SparkSession, tmp_path: Path) -> None:
    """On one worker, since Spark's own tasks need the other slot."""
    schema = "id long, _change_type string"
    feed = session.createDataFrame([(1, "delete"), (100, "insert"), (101, "insert")], schema)
    feed.write.parquet(str(tmp_path / "feed"))
    numbers = changes(session.readStream.schema(schema).parquet(str(tmp_path / "feed")), snapshot=session.range(100))
    query = "select id % 2 as odd, count(*) as n from numbers group by id % 2"
    handle = maintain(
        query, {"numbers": numbers}, tmp_path / "view", checkpoint=tmp_path / "c", workers=1, trigger={"availableNow": True}
    )
    handle.await_termination()
    rows = session.read.parquet(str(tmp_path / "view" / "epoch=0")).collect()
    assert sorted(map(tuple, rows)) == [(0, 51, "insert", 0), (1, 50, "insert", 0)]
