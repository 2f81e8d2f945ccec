"""Tables in Spark's cache: which are read in place, and that nobody can tell but by the plan.

White box: a result is the same whether a table was read in place or dealt anew.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from timely import spark as ts
from timely.spark.plan import SLACK, cached_partitions

pytestmark = pytest.mark.spark

Streams = dict[str, timely.Stream[int, Any]]
WORKERS = 3


def keep(frame: DataFrame) -> DataFrame:
    """Have a table in the cache, and Spark have noted so, which it does some time later."""
    frame.persist().count()
    cached: Any = frame.sparkSession.sparkContext._jsc
    number = frame._jdf.queryExecution().withCachedData().cacheBuilder().cachedColumnBuffers().id()
    deadline = time.monotonic() + 600
    while not any(info.id() == number and info.isCached() for info in cached.sc().getRDDStorageInfo()):
        assert time.monotonic() < deadline, "Spark does not say that the table is in its cache"
        time.sleep(0.02)
    return frame


@pytest.fixture(scope="module")
def partitioned(session: SparkSession) -> Iterator[DataFrame]:
    """A table of numbers, with 100 in each of three partitions."""
    frame = keep(session.range(300, numPartitions=WORKERS).select(F.col("id").alias("n")))
    yield frame
    frame.unpersist()


def by_worker(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
    """Every number, and the worker that took it in."""

    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                workers = pa.array([info.worker] * batch.num_rows, pa.int64())
                with output.session(cap) as session:
                    session.give_batch(pa.RecordBatch.from_arrays([batch.column("n"), workers], ["n", "worker"]))

        return logic

    return {"found": numbers.unary(timely.Pipeline, "by worker", constructor)}


def run(numbers: DataFrame, build: Callable[..., Streams] = by_worker, **options: Any) -> DataFrame:
    return ts.run(build, {"numbers": numbers}, {"found": "n long, worker long"}, workers=WORKERS, **options)["found"]


def shuffles(frame: DataFrame) -> int:
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return str(plan.toString()).count("Exchange")


def test_a_table_that_is_partitioned_already_is_read_in_place(partitioned: DataFrame) -> None:
    tables = run(partitioned.select(F.col("n").cast("long").alias("n")))
    assert shuffles(tables) == 1  # behind the workers
    assert Counter(map(tuple, tables.collect())) == Counter((n, n // 100) for n in range(300))


def test_a_table_that_leaves_the_cache_stays_partitioned(session: SparkSession) -> None:
    frame = keep(session.range(30, numPartitions=WORKERS).select(F.col("id").alias("n")))
    tables = run(frame)
    frame.unpersist(blocking=True)
    assert Counter(map(tuple, tables.collect())) == Counter((n, n // 10) for n in range(30))


def test_a_killed_worker_reads_its_partition_again(partitioned: DataFrame, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def die_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 117 in batch.column("n").to_pylist() and not died.exists():
            died.touch()
            os._exit(1)
        return batch

    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        return by_worker(scope, numbers.map_batch(die_once))

    tables = run(partitioned, build)
    assert Counter(map(tuple, tables.collect())) == Counter((n, n // 100) for n in range(300))
    assert died.exists()


def test_every_worker_runs_without_a_row(session: SparkSession) -> None:
    def build(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> Streams:
        alive = scope.to_stream([1]).map_batch(lambda ones: pa.record_batch({"n": ones, "worker": ones}))
        return {"found": numbers.map_batch(lambda batch: batch.append_column("worker", batch.column("n"))).concat(alive)}

    empty = keep(session.range(9, numPartitions=WORKERS).where("id > 10").select(F.col("id").alias("n")))
    assert cached_partitions(session, empty, WORKERS) is not None
    assert [tuple(row) for row in run(empty, build).collect()] == [(1, 1)] * WORKERS
    empty.unpersist()


@pytest.mark.parametrize("option", ["key", "epoch"])
def test_rows_that_are_to_be_partitioned_otherwise_are(partitioned: DataFrame, option: str) -> None:
    chosen: Any = {option: "n"}
    assert shuffles(run(partitioned, **chosen)) == 2


def test_a_part_of_a_table_is_partitioned_anew(partitioned: DataFrame) -> None:
    session = partitioned.sparkSession
    assert cached_partitions(session, partitioned, WORKERS) is not None
    assert cached_partitions(session, partitioned, 2) is None
    assert cached_partitions(session, partitioned.where("n > 100"), WORKERS) is None
    assert cached_partitions(session, partitioned.selectExpr("(select count(*) from range(5)) n"), WORKERS) is None


@pytest.mark.parametrize(
    "how", ["lazy", "compressed", "coalesced", *(pytest.param(how, marks=pytest.mark.soak) for how in ("uneven", "united"))]
)
def test_a_table_that_is_not_as_wanted_is_partitioned_anew(session: SparkSession, how: str) -> None:
    numbers = session.range(1000, numPartitions=WORKERS).select(F.col("id").alias("n"))
    if how == "lazy":
        frame = numbers.where("n % 2 = 0").persist()
    elif how == "uneven":
        heavy = F.when(F.col("n") < 300, F.expr(f"concat(n, repeat('x', {SLACK // 100}))")).alias("heavy")
        frame = keep(numbers.select("n", heavy))
    elif how == "compressed":
        crowded = session.range(0, 300_000, 1, WORKERS).where("id < 100000 or id % 1000 = 0")
        frame = keep(crowded.select(F.lit(7).cast("long").alias("n")))  # next to nothing in the cache, wherever it is
    elif how == "coalesced":
        frame = keep(session.range(1000, numPartitions=6).select(F.col("id").alias("n")).coalesce(WORKERS))
    else:
        parts = [session.range(at, at + 100, numPartitions=1).select(F.col("id").alias("n")) for at in range(0, 300, 100)]
        frame = keep(parts[0].unionAll(parts[1]).unionAll(parts[2]))
    tables = run(frame.select("n"))
    assert shuffles(tables) == 2
    assert sorted(row.n for row in tables.collect()) == sorted(row.n for row in frame.select("n").collect())
    frame.unpersist()
