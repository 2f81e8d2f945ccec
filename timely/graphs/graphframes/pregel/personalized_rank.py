"""PageRank for one or several reset distributions at once, with a choice of what becomes of rank at nodes without edges."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.errors import SchemaError
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import Floats
from timely.operators.type_variables import T

Dangling: TypeAlias = Literal["spread", "scale"]
"""What becomes of rank at nodes without edges: it is spread as the rest is, or lost, and all ranks are scaled up at the end."""

Matrix: TypeAlias = npt.NDArray[np.float64]


def personalized_pagerank(
    edges: Stream[T, Any],
    vertices: Stream[T, Any],
    *,
    sources: int = 0,
    damping: float = 0.85,
    tolerance: float | None = None,
    rounds: int | None = None,
    dangling: Dangling = "spread",
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, ranks)``: for each node a list of float64, its rank for each of the ``sources``.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches ``(node, source)``, where ``source`` is null, or the number of
    the source that the node is, from 0. The ranks of a source add up to 1. Without ``sources`` there is one rank for each node,
    of which all nodes are a source, and the ranks add up to the number of nodes. In a round a node gives ``damping`` of its rank
    to its targets in equal parts; the rest goes to the source. Exactly one of ``rounds``, and ``tolerance`` for the greatest
    change of a rank in the last round. ``SchemaError`` for a source that no vertex is.
    Source: Haveliwala, "Topic-sensitive PageRank" (2002).
    """
    program = _Ranking(sources, damping, tolerance, rounds, dangling == "scale")
    return bulk_synchronous("personalized pagerank", [vertices, edges], program)


@attrs.define(eq=False)
class _Ranks:
    """One worker's nodes: their ranks, what each source is given in all, and how far the last round has moved a rank here."""

    part: GraphPartition
    reset: Matrix
    totals: Floats
    ranks: Matrix
    done: int = 0
    moved: float = np.inf


@attrs.frozen
class _Ranking(StepProgram[_Ranks]):
    _sources: int
    _damping: float
    _tolerance: float | None
    _rounds: int | None
    _lost: bool

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Ranks]:
        part = yield from partitioned(info, *collected)
        reset = _reset(part, self._sources)
        totals: Floats = np.sum((yield [reset.sum(axis=0)] * info.peers), axis=0)
        if self._sources and not totals.all():
            missing = f"{int((totals == 0).sum())} of {self._sources} are none"
            raise SchemaError(f"{info.path}: a source of the ranks is no vertex: {missing}")
        return _Ranks(part, reset, totals, reset.copy())

    def round(self, info: OperatorInfo, state: _Ranks) -> Steps[bool]:
        if state.done == self._rounds:
            return False
        part = state.part
        degrees = part.degrees()
        away = state.ranks[degrees == 0].sum(axis=0)
        shares = state.ranks / np.maximum(degrees, 1)[:, np.newaxis]
        received = yield [(inflow, away, state.moved) for inflow in part.by_owner(_sums(part, shares))]
        if self._tolerance is not None and max(change for _, _, change in received) <= self._tolerance:
            return False
        inflow = np.zeros_like(state.ranks)
        for places, (sums, _, _) in zip(part.mirrored, received, strict=True):
            inflow[places] += sums
        back = 1 - self._damping
        if not self._lost:
            back = back + self._damping * sum(away for _, away, _ in received) / state.totals
        before, state.ranks = state.ranks, self._damping * inflow + back * state.reset
        state.moved = float(np.abs(state.ranks - before).max(initial=0))
        state.done += 1
        return True

    def end(self, info: OperatorInfo, state: _Ranks) -> Steps[Any]:
        ranks = state.ranks
        if self._lost:
            totals: Floats = np.sum((yield [ranks.sum(axis=0)] * info.peers), axis=0)
            ranks = ranks * (state.totals / np.where(totals > 0, totals, 1))
        lists = pa.FixedSizeListArray.from_arrays(ranks.ravel(), ranks.shape[1]).cast(pa.list_(pa.float64()))
        return result_batch(state.part, ranks=lists)


def _reset(part: GraphPartition, sources: int) -> Matrix:
    """Return the share that each vertex gets of what each source is given."""
    if not sources:
        return np.ones((len(part), 1))
    reset = np.zeros((len(part), sources))
    numbers = part.attributes["source"].combine_chunks()
    places = np.flatnonzero(numbers.is_valid())
    reset[places, numbers.drop_null().to_numpy()] = 1
    return reset


def _sums(part: GraphPartition, shares: Matrix) -> Matrix:
    """Return, for each mirror, the sum of the ``shares`` of its sources."""
    columns = [np.bincount(part.targets, column[part.sources], part.mirrors) for column in shares.T]
    return np.stack(columns, axis=1) if columns else np.empty((part.mirrors, 0))
