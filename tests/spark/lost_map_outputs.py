"""A program in which a barrier stage fails and one of its map outputs is gone, for a way to share out rows."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import timely
from tests.spark.runs import Streams
from timely import spark as ts

WORKERS: Final = 3
ROWS: Final = 3000


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


def check(session: SparkSession, folder: Path, partitioning: ts.plan.Partitioning, inputs: int) -> None:
    """Assert that each row of each input comes once, and that a task ran again."""
    folder.mkdir()
    frames = {f"input{place}": unordered(session, folder / str(place)) for place in range(inputs)}
    outputs = {"rows": "id long, text string", **{f"rows{place}": "id long, text string" for place in range(inputs - 1)}}
    result = ts.run(losing_a_map_output(folder / "lost"), frames, outputs, workers=WORKERS, partitioning=partitioning)
    for output in result.values():
        assert sorted(row.id for row in output.collect()) == list(range(ROWS))
    assert sum(len(list((folder / str(place)).iterdir())) for place in range(inputs)) > inputs * WORKERS
    result.unpersist()


def main(folder: Path, partitioning: ts.plan.Partitioning) -> None:
    """Check one and two inputs, and print each."""
    with ts.local_session(WORKERS) as session:
        for inputs in (1, 2):
            check(session, folder / str(inputs), partitioning, inputs)
            print(f"{partitioning}, {inputs} inputs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "even" if sys.argv[2] == "even" else "hash")
