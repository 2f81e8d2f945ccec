"""``python -m benchmarks.memory_budget pagerank 30000000 300MB``: a graph algorithm with a memory budget, on two processes.

The edges are random, between a tenth as many nodes, and made a block at a time, so that the input is never in memory as a whole.
The sums over the rows show that two budgets give the same rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import timely
from timely import graphs
from timely.memory import MemoryBudget
from timely.monitor.memory import record_memory

BLOCK = 1 << 17

OPTIONS = {"pagerank": {"rounds": 10}, "breadth_first_search": {"source": 0}}


class Figures(NamedTuple):
    """What one worker took, in bytes and seconds; ``total`` adds up the rows."""

    rows: int
    total: float
    peak: int
    written: int
    processor: float


def edges_of(index: int, peers: int, count: int) -> Iterator[pa.RecordBatch]:
    """Yield one worker's part of the edges."""
    for block in range(index, -(-count // BLOCK), peers):
        size = min(BLOCK, count - block * BLOCK)
        src, dst = np.random.default_rng(block).integers(0, count // 10, (2, size))
        yield pa.record_batch({"src": src, "dst": dst})


def measure(algorithm: str, edges: int, memory: str | None, processes: int = 2) -> list[Figures]:
    """Run an algorithm; return the figures of each worker."""

    def program(worker: timely.Worker) -> Figures:
        rows, total = 0, 0.0

        def look(batch: pa.RecordBatch) -> pa.RecordBatch:
            nonlocal rows, total
            rows += len(batch)
            total += float((batch.column(0).to_numpy() % 1000 * batch.column(1).to_numpy()).sum())
            return batch.slice(0, 0)

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            getattr(graphs, algorithm)(stream, **OPTIONS.get(algorithm, {})).map_batch(look).probe()
        for batch in edges_of(worker.index, worker.peers, edges):
            handle.send_batch(batch)
            worker.step()
        handle.close()
        worker.run()
        return Figures(rows, total, record_memory(), MemoryBudget.current().written, time.process_time())

    return timely.execute(program, processes=processes, memory=memory)


def main(algorithm: str, edges: str, memory: str) -> None:
    """Print a row of the table in docs/memory.md."""
    began = time.perf_counter()
    found = measure(algorithm, int(edges), None if memory == "none" else memory)
    peak, written = max(figures.peak for figures in found) >> 20, max(figures.written for figures in found) >> 20
    processor, seconds = max(figures.processor for figures in found), time.perf_counter() - began
    print(f"| {algorithm} | {int(edges):,} | {memory} | {peak} MB | {written} MB | {processor:.1f} s | {seconds:.1f} s |")
    print(f"{sum(figures.rows for figures in found):,} rows, which add up to {sum(figures.total for figures in found)!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
