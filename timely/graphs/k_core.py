"""``k_core``: the core number of each node, by peeling."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.arrays import ranges
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.graph_partition import partitioned, result_batch
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def k_core(edges: Stream[T, Any], vertices: Stream[T, Any]) -> Stream[T, Any]:
    """Return Arrow batches ``(node, core)``: the greatest ``k`` of a subgraph with degrees of at least ``k`` that the node is in.

    ``edges`` are batches ``(src, dst)`` without a direction, ``vertices`` are batches with a column ``node``. Repeated edges
    count, and a loop counts twice. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for
    two vertices with one node, and edges whose ends are no vertices. Source: Matula and Beck, "Smallest-last ordering" (1983).

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b", "c", "c"], "dst": ["b", "c", "a", "d"]}))
    ...     return k_core(edges, start.map_batch(lambda _: pa.record_batch({"node": ["a", "b", "c", "d", "e"]})))
    >>> timely.example(build)
    [(0, [('a', 2), ('b', 2), ('c', 2), ('d', 1), ('e', 0)])]
    """
    return bulk_synchronous("k-core", [vertices, edges], _program)


def _program(info: OperatorInfo, collected: list[list[Any]]) -> Steps[Any]:
    vertices, edges = collected
    part = yield from partitioned(info, vertices, edges, both_ways=True)
    targets, starts = part.by_source()
    degrees = part.degrees()
    cores = np.zeros(len(part), np.int64)
    left = np.ones(len(part), np.bool_)
    none = np.iinfo(np.int64).max
    level = 0
    while True:
        least = min((yield [int(degrees[left].min(initial=none))] * info.peers))
        if least == none:
            return result_batch(part, core=pa.array(cores))
        level = max(level, least)
        peeled = np.flatnonzero(left & (degrees <= level))
        cores[peeled] = level
        left[peeled] = False
        reached = targets[ranges(starts[peeled], starts[peeled + 1] - starts[peeled])]
        mirrors, counts = np.unique(reached, return_counts=True)
        places, lost = part.from_mirrors((yield part.to_owners(mirrors, counts)))
        np.subtract.at(degrees, places, lost)
