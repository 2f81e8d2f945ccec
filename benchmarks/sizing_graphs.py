"""What graph algorithms hold: the peak of a worker over the number of edges, for graphs of several kinds.

A fresh process runs one algorithm as one worker. Its edges are made batch by batch, as Spark gives them, so that only the
algorithm holds them. What is counted is the most memory that the process ever had, less what it had before the first edge, when
all is imported and a small graph has been through. ``python -m benchmarks.sizing_graphs`` prints the table of ``docs/memory.md``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

import timely
from benchmarks.report import Row, table
from timely import graphs
from timely.monitor.memory import record_memory, resident_memory

BATCH = 65_536
"""Edges of a batch, as ``timely.spark.local_session`` has them."""

Edges = timely.Stream[int, Any]

ALGORITHMS: dict[str, Callable[[Edges], Edges]] = {
    "connected_components": graphs.connected_components,
    "strongly_connected_components": graphs.strongly_connected_components,
    "pagerank": lambda edges: graphs.pagerank(edges, rounds=5),
    "breadth_first_search": lambda edges: graphs.breadth_first_search(edges, source=None),
    "shortest_paths": lambda edges: graphs.shortest_paths(edges, source=None),
    "label_propagation": lambda edges: graphs.label_propagation(edges, rounds=5),
    "triangle_count": graphs.triangle_count,
}
"""The source ``None`` stands for the first node, of whatever type nodes are."""


@attrs.frozen
class Kind:
    """A kind of graph: edges between random nodes, so many to a node, named by numbers that lie close together or by texts."""

    name: str
    degree: int
    texts: bool = False


KINDS = (Kind("10 edges a node", 10), Kind("1 edge a node", 1), Kind("10 edges a node, texts", 10, texts=True))


def batches(edges: int, kind: Kind, weighed: bool) -> Iterator[pa.RecordBatch]:
    """Make the edges, the same ones each time; a text has eight characters."""
    random = np.random.default_rng(7)
    nodes = edges // kind.degree
    for start in range(0, edges, BATCH):
        ends = random.integers(0, nodes, (2, min(BATCH, edges - start)))
        ends[:, 0] = 0 if start == 0 else ends[:, 0]
        columns: dict[str, Any] = dict(zip(("src", "dst"), ends, strict=True))
        if kind.texts:
            columns = {name: pa.array(np.char.mod("n%07d", column)) for name, column in columns.items()}
        if weighed:
            columns["weight"] = random.random(len(ends[0]))
        yield pa.record_batch(columns)


def child(name: str, kind: Kind, edges: int) -> None:
    """Print the bytes that a worker needs: the whole of a fresh process's work."""

    def work(worker: timely.Worker, edges: int) -> int:
        first = "n0000000" if kind.texts else 0
        build = ALGORITHMS[name]
        if name in ("breadth_first_search", "shortest_paths"):
            search = getattr(graphs, name)
            build = lambda stream: search(stream, source=first)  # noqa: E731
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            found = build(stream).capture()
        for batch in batches(edges, kind, name == "shortest_paths"):
            handle.send_batch(batch)
            worker.step()
        handle.close()
        worker.run()
        return sum(len(batch) for _, batch in found.messages)

    def program(worker: timely.Worker) -> int:
        work(worker, 1_000)
        before = resident_memory()
        assert work(worker, edges) > 0
        return record_memory() - before

    print(timely.execute(program)[0])


def peak(name: str, kind: Kind, edges: int) -> int:
    """Return the bytes that one worker needs for an algorithm on so many edges."""
    code = f"from benchmarks.sizing_graphs import KINDS, child; child({name!r}, KINDS[{KINDS.index(kind)}], {edges})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def run(rounds: int = 1, *, quick: bool = False) -> list[Row]:
    """Return the bytes for an edge, by algorithm and kind of graph; rounds make no difference."""
    edges = 100_000 if quick else 500_000
    rows = []
    for name in ALGORITHMS:
        for kind in KINDS:
            found = peak(name, kind, edges)
            rows.append(Row(f"{name}, {kind.name}: bytes for an edge", found / edges, note=f"{found / 2**20:,.0f} MiB in all"))
    return rows


if __name__ == "__main__":
    print(table(run(quick="--quick" in sys.argv)))
