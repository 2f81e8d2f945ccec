"""``k_core`` and ``maximal_independent_set``: rounds that take nodes out of a graph, until none is left."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.stages.priorities import Hashes, mixed, value_hashes
from timely.graphs.structures.arrays import Column, Lists, Mask, value_counts
from timely.operators.type_variables import T

_NONE: Final = np.iinfo(np.int64).max


def k_core(edges: Stream[T, Any], vertices: Stream[T, Any]) -> Stream[T, Any]:
    """Return Arrow batches ``(node, core)``: the greatest ``k`` of a subgraph with degrees of at least ``k`` that the node is in.

    ``edges`` are batches ``(src, dst)`` without a direction, ``vertices`` are batches with a column ``node``. Repeated edges
    count, and a loop counts twice. Source: Matula and Beck, "Smallest-last ordering" (1983).
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


_LAST: Final = np.uint64(2**64 - 1)


def maximal_independent_set(edges: Stream[T, Any], vertices: Stream[T, Any], *, seed: int = 42) -> Stream[T, Any]:
    """Return Arrow batches ``(node)``: nodes of which no two are ends of an edge, and so many that no node can be added.

    ``edges`` are batches ``(src, dst)`` without a direction, of which loops are left out; ``vertices`` are batches with a column
    ``node``. ``seed`` chooses one of the many sets; it is the same set for any number of workers. Source: Luby, "A simple
    parallel algorithm for the maximal independent set problem" (1986).
    """
    return bulk_synchronous("maximal independent set", [vertices, edges], _Choosing(seed))


@attrs.define(eq=False)
class _Chosen:
    """One worker's nodes, of which some are chosen, and some are left to choose from."""

    part: GraphPartition
    names: Hashes
    sources: Column
    targets: Column
    chosen: Mask
    left: Mask
    step: int


@attrs.frozen
class _Choosing(StepProgram[_Chosen]):
    _seed: int

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Chosen]:
        part = yield from partitioned(info, *collected, both_ways=True)
        received = yield part.to_mirrors(np.arange(len(part)) * info.peers + info.worker)
        apart = np.concatenate(received)[part.targets] != part.sources * info.peers + info.worker
        none, left = np.zeros(len(part), np.bool_), np.ones(len(part), np.bool_)
        return _Chosen(part, value_hashes(part.nodes), part.sources[apart], part.targets[apart], none, left, self._seed)

    def round(self, info: OperatorInfo, state: _Chosen) -> Steps[bool]:
        part, sources, targets = state.part, state.sources, state.targets
        if not any((yield [bool(state.left.any())] * info.peers)):
            return False
        own = np.where(state.left, np.minimum(mixed(state.names, state.step + 1), _LAST - np.uint64(1)), _LAST)
        best = np.full(part.mirrors, _LAST)
        np.minimum.at(best, targets, own[sources])
        lowest = np.full(len(part), _LAST)
        for places, priorities in zip(part.mirrored, (yield part.by_owner(best)), strict=True):
            np.minimum.at(lowest, places, priorities)
        new = state.left & (own < lowest)  # nobody of two neighbours of the same priority: they get others in the next round
        covered = np.zeros(part.mirrors, np.bool_)
        covered[targets[new[sources]]] = True
        received = yield part.by_owner(covered)
        state.step += 1
        state.chosen |= new
        state.left &= ~new
        for places, near in zip(part.mirrored, received, strict=True):
            state.left[places[near]] = False
        return True

    def end(self, info: OperatorInfo, state: _Chosen) -> Steps[Any]:
        yield from ()
        return pa.record_batch({"node": state.part.nodes.filter(pa.array(state.chosen))})
