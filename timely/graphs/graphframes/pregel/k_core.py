"""``k_core``: the core number of each node, by peeling."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import Column, Mask, value_counts
from timely.graphs.structures.lists import Lists
from timely.operators.type_variables import T

_NONE: Final = np.iinfo(np.int64).max


def k_core(edges: Stream[T, Any], vertices: Stream[T, Any]) -> Stream[T, Any]:
    """Return Arrow batches ``(node, core)``: the greatest ``k`` of a subgraph with degrees of at least ``k`` that the node is in.

    ``edges`` are batches ``(src, dst)`` without a direction, ``vertices`` are batches with a column ``node``. Repeated edges
    count, and a loop counts twice. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for
    two vertices with one node, and edges whose ends are no vertices. Source: Matula and Beck, "Smallest-last ordering" (1983).
    """
    return bulk_synchronous("k-core", [vertices, edges], _Peeling())


@attrs.define(eq=False)
class _Cores:
    """One worker's nodes, of which some are peeled."""

    part: GraphPartition
    targets: Lists
    degrees: Column
    cores: Column
    left: Mask
    level: int = 0


class _Peeling(StepProgram[_Cores]):
    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Cores]:
        part = yield from partitioned(info, *collected, both_ways=True)
        count = len(part)
        return _Cores(part, part.by_source(), part.degrees(), np.zeros(count, np.int64), np.ones(count, np.bool_))

    def round(self, info: OperatorInfo, state: _Cores) -> Steps[bool]:
        least = min((yield [int(state.degrees[state.left].min(initial=_NONE))] * info.peers))
        if least == _NONE:
            return False
        level = max(state.level, least)
        peeled = np.flatnonzero(state.left & (state.degrees <= level))
        mirrors, counts = value_counts(state.targets.chosen(peeled)[1])
        places, lost = state.part.from_mirrors((yield state.part.to_owners(mirrors, counts)))
        state.level = level
        state.cores[peeled] = level
        state.left[peeled] = False
        np.subtract.at(state.degrees, places, lost)
        return True

    def end(self, info: OperatorInfo, state: _Cores) -> Steps[Any]:
        yield from ()
        return result_batch(state.part, core=pa.array(state.cores))
