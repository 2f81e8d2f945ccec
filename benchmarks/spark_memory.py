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
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import spark_graphx
from timely.graphs.spark import connected_components, pagerank
from timely.spark import local_session

LOOK_EVERY = 0.2
"""Seconds between two looks."""

RUNS = 2
"""Runs, of which the last is timed; the peak is that of all."""

ROUNDS = 10


class Watch:
    """Looks at the processes under this one until it is stopped, and keeps the most that it has seen."""

    def __init__(self) -> None:
        self.peak = 0
        self.python = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_EVERY):
            sizes = {pid: _size(pid) for pid in _tree(os.getpid())}
            self.peak = max(self.peak, sum(sizes.values()))
            self.python = max(self.python, sum(size for pid, size in sizes.items() if not _is_java(pid)))


def _tree(root: int) -> list[int]:
    """Return the process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _size(pid: int) -> int:
    """Return the bytes of a process, its share of what it shares; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


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
    with Watch() as watch:
        for _ in range(RUNS):
            start = time.perf_counter()
            run(chosen.contestant, chosen.algorithm, edges).write.format("noop").mode("overwrite").save()
            told["seconds"] = time.perf_counter() - start
    session.stop()
    print(json.dumps({**told, "peak": watch.peak, "python": watch.python}))


if __name__ == "__main__":
    main()
