"""``python -m benchmarks.spark_memory ours components 1000000``: one contestant, alone, and the memory that it takes.

A process of its own with a session of its own. What is measured is the memory of all processes of the session (this one, Java
and the Python workers), looked at several times a second, where a page that several share counts once
(``/proc/*/smaps_rollup``, proportional set size). Java returns little of the memory that it has had, so its part says what it
was allowed as much as what it needed; the part of Python is what the workers hold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_graphx
from benchmarks.watch import Watch
from timely.graphs.spark import connected_components, pagerank
from timely.spark import local_session

LOOK_EVERY = 0.2
"""Seconds between two looks."""

RUNS = 2
"""Runs, of which the last is timed; the peak is that of all."""

ROUNDS = 10


class PythonWatch(Watch):
    """Also keeps the most that was seen in all but Java's processes together, as ``python``."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid, LOOK_EVERY)
        self.python = 0

    def take(self, sizes: dict[int, int]) -> None:
        """Take in the bytes of each process."""
        super().take(sizes)
        self.python = max(self.python, sum(size for pid, size in sizes.items() if not _is_java(pid)))


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def random_edges(session: SparkSession, edges: int) -> DataFrame:
    """Return so many edges between a tenth as many nodes, made by Spark itself, the same ones each time."""
    ends = [F.pmod(F.xxhash64("id", F.lit(end)), F.lit(edges // 10)).alias(end) for end in ("src", "dst")]
    return session.range(edges, numPartitions=2).select(*ends)


def run(contestant: str, algorithm: str, edges: DataFrame) -> DataFrame:
    """Return what the contestant makes of the edges."""
    if contestant == "ours":
        return connected_components(edges) if algorithm == "components" else pagerank(edges, rounds=ROUNDS)
    return spark_graphx.components(edges) if algorithm == "components" else spark_graphx.ranks(edges, ROUNDS)


def main() -> None:
    """Run one contestant and print what it took as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory", description="Measure one contestant.")
    parser.add_argument("contestant", choices=["ours", "GraphX"])
    parser.add_argument("algorithm", choices=["components", "PageRank"])
    parser.add_argument("edges", type=int)
    chosen = parser.parse_args()
    session = local_session(2)
    edges = random_edges(session, chosen.edges).persist()
    edges.count()
    told: dict[str, Any] = {}
    with PythonWatch(os.getpid()) as watch:
        for _ in range(RUNS):
            start = time.perf_counter()
            run(chosen.contestant, chosen.algorithm, edges).write.format("noop").mode("overwrite").save()
            told["seconds"] = time.perf_counter() - start
    session.stop()
    print(json.dumps({**told, "peak": watch.peak, "python": watch.python}))


if __name__ == "__main__":
    main()
