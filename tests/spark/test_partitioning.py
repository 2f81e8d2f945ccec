"""How rows without keys reach the workers: each once, whatever the order in which a task has them that runs again."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.spark.runs import Streams
from timely import spark as ts
from timely.errors import ConfigurationError
from timely.graphs.spark import connected_components

pytestmark = pytest.mark.spark

WORKERS = 3
ROWS = 3000


def unordered(session: SparkSession, runs: Path) -> DataFrame:
    """Numbers whose tasks have them in another order each time that they run, and leave a file then."""
    runs.mkdir()

    def in_another_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (runs / uuid4().hex).touch()
        table = pa.Table.from_batches(list(batches))
        yield from table.take(random.SystemRandom().sample(range(len(table)), len(table))).combine_chunks().to_batches()

    numbers = session.range(0, ROWS, 1, WORKERS).select("id", F.col("id").cast("string").alias("text"))
    return numbers.mapInArrow(in_another_order, "id long, text string")


def losing_a_map_output(mark: Path) -> Callable[..., Streams]:
    """A build that passes rows through, and once deletes what a task has written for the workers, and fails."""

    def build(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
        def lose(batch: pa.RecordBatch) -> pa.RecordBatch:
            context = BarrierTaskContext.get()
            assert context is not None
            if context.partitionId() == 0 and not mark.exists():
                mark.touch()
                folders = os.environ["SPARK_LOCAL_DIRS"].split(",")
                written = [file for folder in folders for file in Path(folder).rglob("shuffle_*.data")]
                max(written, key=lambda file: file.stat().st_mtime_ns).unlink()
                raise RuntimeError("a map output is lost")
            return batch

        first, *others = streams.values()
        return {"rows": first.map_batch(lose), **{f"rows{place}": stream for place, stream in enumerate(others)}}

    return build


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("partitioning", ["even", "hash"])
def test_rows_come_once_where_a_task_runs_again_and_has_them_in_another_order(
    session: SparkSession, tmp_path: Path, partitioning: ts.plan.Partitioning, inputs: int
) -> None:
    """A worker fails, and what a task before it has written is gone: Spark runs that task again, then all workers."""
    frames = {f"input{place}": unordered(session, tmp_path / str(place)) for place in range(inputs)}
    outputs = {"rows": "id long, text string", **{f"rows{place}": "id long, text string" for place in range(inputs - 1)}}
    result = ts.run(losing_a_map_output(tmp_path / "lost"), frames, outputs, workers=WORKERS, partitioning=partitioning)
    for output in result.values():
        assert sorted(row.id for row in output.collect()) == list(range(ROWS))
    assert sum(len(list((tmp_path / str(place)).iterdir())) for place in range(inputs)) > inputs * WORKERS
    result.unpersist()


def plan_of(frame: DataFrame) -> str:
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return str(plan.toString())


def test_edges_go_by_the_hash_of_their_ends_and_spread_evenly(session: SparkSession) -> None:
    edges = session.range(0, ROWS, 1, 5).selectExpr("id % 700 as src", "id % 900 as dst")
    assert "hashpartitioning" in plan_of(connected_components(edges, workers=WORKERS))
    assert "RoundRobinPartitioning" not in plan_of(connected_components(edges, workers=WORKERS))

    def counted(scope: timely.ScopeBuilder[int], edges: timely.Stream[int, Any]) -> Streams:
        def place(batch: pa.RecordBatch) -> pa.RecordBatch:
            context = BarrierTaskContext.get()
            assert context is not None
            return pa.record_batch({"worker": [context.partitionId()] * batch.num_rows})

        return {"worker": edges.map_batch(place)}

    placed = ts.run(counted, {"edges": edges}, {"worker": "worker long"}, workers=WORKERS, partitioning="hash")["worker"]
    counts = Counter(row.worker for row in placed.collect())
    assert sum(counts.values()) == ROWS and len(counts) == WORKERS
    assert min(counts.values()) > ROWS / WORKERS * 0.8


def test_rows_of_all_types_go_by_the_hash_of_what_spark_can_hash(session: SparkSession) -> None:
    frame = session.range(50).selectExpr("map(id, id) as m", "id", "array(cast(id as double)) as xs", "cast(null as date) as d")

    def through(scope: timely.ScopeBuilder[int], table: timely.Stream[int, Any]) -> Streams:
        return {"rows": table}

    for columns in (["m", "id", "xs", "d"], ["m"]):
        chosen = frame.select(*columns)
        output = ts.run(through, {"table": chosen}, {"rows": chosen.schema}, workers=2, partitioning="hash")["rows"]
        assert output.count() == 50


def test_another_partitioning_is_refused(session: SparkSession) -> None:
    unknown: Any = "by size"
    with pytest.raises(ConfigurationError, match="partitioning must be 'even' or 'hash', not 'by size'"):
        ts.run(lambda scope, a: {"a": a}, {"a": session.range(1)}, {"a": "id long"}, workers=1, partitioning=unknown)
