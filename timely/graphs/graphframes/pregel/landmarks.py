"""``landmark_distances``: how many edges each node is from each of some landmarks, for all landmarks in one search."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.errors import ConfigurationError
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import MISSING, Column, sorted_distinct
from timely.graphs.structures.lists import Lists
from timely.operators.type_variables import T

Distances: TypeAlias = npt.NDArray[np.int32]

_PAIR: Final = pa.struct([pa.field("landmark", pa.int32()), pa.field("distance", pa.int32())])


def landmark_distances(
    edges: Stream[T, Any], vertices: Stream[T, Any], landmarks: int, *, both_ways: bool = False, limit: int | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, distances)``: for each node a list of structs ``(landmark, distance)``, sorted by landmark.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches ``(node, landmark)``, where ``landmark`` is null, or the number
    of the landmark that the node belongs to, from 0 up to ``landmarks - 1``. The distance is the least number of edges of a path
    that begins at a node of the landmark, in either direction with ``both_ways``. Landmarks without a path, or with none of up to
    ``limit`` edges, are not in the list. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``,
    for two vertices with one node, and edges whose ends are no vertices; ``ConfigurationError`` for less than 1 landmark.
    """
    if landmarks < 1:
        raise ConfigurationError(f"landmark distances: there must be 1 landmark or more, not {landmarks!r}")
    return bulk_synchronous("landmark distances", [vertices, edges], _Searching(landmarks, both_ways, limit))


@attrs.define(eq=False)
class _Near:
    """One worker's nodes: their distances so far, and the pairs of node and landmark that the last step found."""

    part: GraphPartition
    targets: Lists
    near: Column
    distances: Distances
    step: int = 0


@attrs.frozen
class _Searching(StepProgram[_Near]):
    _landmarks: int
    _both_ways: bool
    _limit: int | None

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Near]:
        part = yield from partitioned(info, *collected, both_ways=self._both_ways)
        numbers = part.attributes["landmark"].combine_chunks() if len(part) else pa.array([], pa.int32())
        near = np.flatnonzero(numbers.is_valid()) * self._landmarks + numbers.drop_null().to_numpy()
        distances = np.full(len(part) * self._landmarks, MISSING, np.int32)
        distances[near] = 0
        return _Near(part, part.by_source(), near, distances)

    def round(self, info: OperatorInfo, state: _Near) -> Steps[bool]:
        if state.step == self._limit:
            return False
        part = state.part
        places, marks = np.divmod(state.near, self._landmarks)
        counts, reached = state.targets.chosen(places)
        mirrors, marks = np.divmod(sorted_distinct(reached * self._landmarks + np.repeat(marks, counts)), self._landmarks)
        received = yield [(len(state.near), sent) for sent in part.to_owners(mirrors, marks)]
        if not any(count for count, _ in received):
            return False
        places, marks = part.from_mirrors([sent for _, sent in received])
        near = sorted_distinct(places * self._landmarks + marks)
        state.step += 1
        state.near = near[state.distances[near] == MISSING]
        state.distances[state.near] = state.step
        return True

    def end(self, info: OperatorInfo, state: _Near) -> Steps[Any]:
        yield from ()
        return result_batch(state.part, distances=_lists(state.distances, self._landmarks))


def _lists(distances: Distances, landmarks: int) -> pa.Array:
    """Return the list of each node."""
    reached = np.flatnonzero(distances != MISSING)
    counts = np.bincount(reached // landmarks, minlength=len(distances) // landmarks)
    pairs = pa.StructArray.from_arrays(
        [pa.array((reached % landmarks).astype(np.int32)), pa.array(distances[reached], pa.int32())], fields=list(_PAIR)
    )
    return pa.ListArray.from_arrays(np.concatenate(([0], np.cumsum(counts))).astype(np.int32), pairs)
