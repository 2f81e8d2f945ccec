"""``python -m benchmarks.spark_memory ours components 1000000``: one contestant, alone, its time and the memory that it takes.

A process of its own with a session of its own. What is measured is the memory of all processes of the session (this one, Java
and the Python workers), looked at several times a second, where a page that several share counts once
(``/proc/*/smaps_rollup``, proportional set size). Java returns little of the memory that it has had, so its part says what it
was allowed as much as what it needed; the part of Python is what the workers hold. The processor time is that of all of them, and
says more than the seconds do on a machine that is busy with something else. Every contestant first runs on a small graph, so that
Java has compiled what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_graphx, spark_loops
from benchmarks.graphs import Build, by_workers_once
from benchmarks.watch import Watch
from timely import graphs
from timely.graphs.spark import connected_components, pagerank
from timely.spark import local_session

LOOK_EVERY = 0.2
"""Seconds between two looks."""

SMALL = 20_000
"""Edges of the graph that each contestant warms up with."""

ROUNDS = 10

LIMIT = 1200
"""Seconds of processor time, those of Java's start included, after which a contestant is given up."""


class PythonWatch(Watch):
    """Also keeps the most that was seen in all but Java's processes together, as ``python``, and in Java's, as ``java``."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid, LOOK_EVERY)
        self.python = self.java = 0
        self._processor: dict[int, float] = {}
        self._looking = 0.0

    def take(self, sizes: dict[int, int]) -> None:
        """Take in the bytes of each process."""
        super().take(sizes)
        java = sum(size for pid, size in sizes.items() if _is_java(pid))
        self.java = max(self.java, java)
        self.python = max(self.python, sum(sizes.values()) - java)
        for pid in sizes:  # a process may end between two looks, with up to as much as was between them
            self._processor[pid] = max(_processor_time(pid), self._processor.get(pid, 0.0))
        self._looking = time.thread_time()
        if self.processor > LIMIT:
            self.write({"seconds": None, "processor": LIMIT})
            os._exit(0)  # Java ends with it

    def write(self, took: dict[str, float | None]) -> None:
        """Print what was taken, and the memory that was seen, as JSON."""
        print(json.dumps({**took, "peak": self.peak, "python": self.python, "java": self.java}), flush=True)

    @property
    def processor(self) -> float:
        """The seconds of processor time that all processes have taken, as far as was seen, without what looking took."""
        return sum(self._processor.values()) - self._looking


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def _processor_time(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def random_edges(session: SparkSession, edges: int) -> DataFrame:
    """Return so many edges between a tenth as many nodes, made by Spark itself, the same ones each time."""
    ends = [F.pmod(F.xxhash64("id", F.lit(end)), F.lit(edges // 10)).alias(end) for end in ("src", "dst")]
    return session.range(edges, numPartitions=2).select(*ends)


Algorithm = Callable[[DataFrame], DataFrame]

LOCAL = "toArrow, a local worker and back"


def _local(build: Build) -> Algorithm:
    """Return an algorithm in this process, which Spark hands the edges to."""

    def make(edges: DataFrame) -> DataFrame:
        (batch,) = edges.toArrow().combine_chunks().to_batches()
        return edges.sparkSession.createDataFrame(pa.Table.from_batches(by_workers_once(build, batch)))

    return make


CONTESTANTS: Mapping[str, Mapping[str, Algorithm]] = {
    "components": {
        "ours": connected_components,
        "ours, one worker": partial(connected_components, workers=1),
        LOCAL: _local(graphs.connected_components),
        "GraphX": spark_graphx.components,
        "stars": lambda edges: spark_loops.stars(edges).found,
        "two-phase": lambda edges: spark_loops.two_phase(edges).found,
        "randomized contraction": lambda edges: spark_loops.randomized_contraction(edges).found,
    },
    "PageRank": {
        "ours": lambda edges: pagerank(edges, rounds=ROUNDS),
        "ours, one worker": lambda edges: pagerank(edges, rounds=ROUNDS, workers=1),
        LOCAL: _local(partial(graphs.pagerank, rounds=ROUNDS)),
        "GraphX": lambda edges: spark_graphx.ranks(edges, ROUNDS),
    },
}
"""What each contestant makes of the edges."""


def measure(session: SparkSession, watch: PythonWatch, algorithm: Algorithm, edges: int) -> dict[str, float | None]:
    """Return the seconds and the processor time from so many edges in Spark's cache to the end of the result, thrown away."""
    frame = random_edges(session, edges).persist()
    frame.count()
    time.sleep(2 * LOOK_EVERY)
    start, used = time.perf_counter(), watch.processor
    algorithm(frame).write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - start
    time.sleep(2 * LOOK_EVERY)
    frame.unpersist(blocking=True)
    return {"seconds": seconds, "processor": watch.processor - used}


def main() -> None:
    """Run one contestant and print what it took as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory", description="Measure one contestant.")
    parser.add_argument("contestant", choices=sorted({name for of in CONTESTANTS.values() for name in of}))
    parser.add_argument("algorithm", choices=CONTESTANTS)
    parser.add_argument("edges", type=int)
    chosen = parser.parse_args()
    algorithm = CONTESTANTS[chosen.algorithm][chosen.contestant]
    session = local_session(2)
    with PythonWatch(os.getpid()) as watch:
        measure(session, watch, algorithm, SMALL)
        took = measure(session, watch, algorithm, chosen.edges)
    session.stop()
    watch.write(took)


if __name__ == "__main__":
    main()
