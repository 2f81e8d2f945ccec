"""The workloads on Spark alone: DataFrames and Spark's own expressions, no function in Python. As many processes, as many cores.

Starting the session and a first run, which is slow in Java, are not in the seconds that are told. For numbers there is
``range``, which Spark makes by itself.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.contestants.told import Answer, Task, main
from timely.spark import local_session


@cache
def session() -> SparkSession:
    """Return the session, with as many cores as there are processes."""
    cores = int(sys.argv[sys.argv.index("--processes") + 1]) if "--processes" in sys.argv else 1
    return local_session(cores)


def answer(table: DataFrame) -> list[tuple[Any, Any]]:
    """Return the rows of a table of two columns."""
    return [(row[0], row[1]) for row in table.collect()]


def word_count(task: Task) -> Answer:
    """Lines are read, split and counted by Spark."""
    words = session().read.text(task.input).select(F.explode(F.split("value", " ")).alias("word"))
    return answer(words.groupBy("word").count())


def map_filter_map(task: Task) -> Answer:
    """Columns; the optimizer makes one of the steps."""
    grown = session().range(task.size).select((3 * F.col("id") + 1).alias("x"))
    halved = grown.where(F.col("x") % 2 == 0).select(F.expr("x div 2").alias("x"))
    count, total = answer(halved.agg(F.count("x"), F.sum("x")))[0]
    return [("count", count), ("sum", total)]


def sum_by_key(task: Task) -> Answer:
    """Added up for each of a thousand keys, which are strings."""
    pairs = session().range(task.size).select((F.col("id") % 1000).cast("string").alias("key"), "id")
    return answer(pairs.groupBy("key").agg(F.sum("id")))


if __name__ == "__main__":
    session().range(1).count()
    main((word_count, map_filter_map, sum_by_key), warm_ups=1)
    session().stop()
