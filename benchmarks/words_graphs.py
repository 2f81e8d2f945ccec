"""The searches of ``benchmarks.peers`` in this library, on the edges of a graph in a file.

Run by itself as ``python -m benchmarks.words_graphs``, as the contestants are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyarrow import csv

from benchmarks.contestants.told import ROUNDS, Answer, Task, main
from benchmarks.words import run
from timely import graphs


def breadth_first_search(task: Task) -> Answer:
    """Hops from node 0."""
    return run(task, _edges(task), lambda edges: graphs.breadth_first_search(edges, 0))


def components(task: Task) -> Answer:
    """The smallest node of each one's component."""
    return run(task, _edges(task), graphs.connected_components)


def ranks(task: Task) -> Answer:
    """So many rounds of PageRank."""
    return run(task, _edges(task), lambda edges: graphs.pagerank(edges, rounds=ROUNDS))


def _edges(task: Task) -> Callable[[int], Iterator[pa.RecordBatch]]:
    """Return what reads the edges of the file, and gives the batches that are dealt to a process."""
    return lambda index: iter(csv.read_csv(task.input).to_batches()[index :: task.processes])


if __name__ == "__main__":
    main((breadth_first_search, components, ranks))
