"""What the tests of ``timely.spark.run`` have in common: edges, dataflows that pass on, apply or fail, and what came of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely

Streams = dict[str, timely.Stream[int, Any]]
EDGES = [("a", "b"), ("b", "c"), ("c", None), (None, "ü"), ("", "a")]


SINCE_4 = pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no such types")


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def arrow_of(frame: DataFrame) -> pa.Table:
    """What ``toArrow`` returns, which Spark 3.5 has not."""
    batches = cast(Any, frame)._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else pa.table({})


def through(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
    """Every input, as it is, under its name."""
    return streams


def failing(message: str, only: int | None = None) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """An operator's function that raises; where ``only`` is given, only on a batch that has this number."""

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if only is None or only in batch.column("n").to_pylist():
            raise ValueError(message)
        return batch

    return fail


def applying(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Callable[..., Streams]:
    """A build that applies a function to the batches of every input."""

    def build(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
        return {name: stream.map_batch(function) for name, stream in streams.items()}

    return build


def jobs_of(session: SparkSession) -> list[int]:
    """The jobs of no group that the session has run, as far as it remembers them."""
    return sorted(session.sparkContext.statusTracker().getJobIdsForGroup())
