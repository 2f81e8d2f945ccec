"""Distances from landmarks, and every cycle or path of a graph, of which there may be exponentially many.

Paths are rows of node numbers. In a step all paths get longer by an edge, on the worker of their last node.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import MISSING, Column, Lists, Mask, Rows, join_columns, sorted_distinct
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
    ``limit`` edges, are not in the list.
    """
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


def simple_cycles(edges: Stream[T, Any], vertices: Stream[T, Any], *, limit: int | None = None) -> Stream[T, Any]:
    """Return Arrow batches ``(path)``: for each cycle without repeated nodes the list of its nodes, the smallest first and last.

    ``edges`` are batches ``(src, dst)``, of which repeated ones are one; ``vertices`` are batches with a column ``node``. Cycles
    have up to ``limit`` edges, if that is given. Source: Rocha and Thatte, "Distributed cycle detection in large-scale sparse
    graphs" (2015).
    """
    return bulk_synchronous("simple cycles", [vertices, edges], _Cycles(limit))


def simple_paths(
    edges: Stream[T, Any], vertices: Stream[T, Any], *, limit: int | None = None, both_ways: bool = False
) -> Stream[T, Any]:
    """Return Arrow batches ``(path)``: for each path without repeated nodes, from a start to an end, the list of its nodes.

    ``vertices`` are batches ``(node, start, end)`` with truth values. A node that is both is a path without edges. The rest is as
    for :func:`simple_cycles`; with ``both_ways`` edges lead in either direction.
    """
    return bulk_synchronous("simple paths", [vertices, edges], _PathsBetween(limit, both_ways))


@attrs.define(eq=False)
class _Paths:
    """One worker's paths, which end at its nodes: all of the last step, and what was found.

    Nodes have numbers, and ``numbers`` has that of each mirror. ``targets`` has those of each node, each once.
    """

    part: GraphPartition
    targets: Lists
    numbers: Column
    paths: Rows
    results: list[Rows] = attrs.field(factory=list)
    length: int = 0

    def longer(self) -> tuple[Rows, Column]:
        """Return all paths with an edge more, and the mirrors they lead to."""
        places = self.paths[:, -1] // len(self.part.mirrored)
        counts, mirrors = self.targets.chosen(places)
        return np.column_stack((np.repeat(self.paths, counts, axis=0), self.numbers[mirrors])), mirrors


def _begin(info: OperatorInfo, collected: list[list[Any]], both_ways: bool = False) -> Steps[_Paths]:
    """Return the paths without edges, one of each node."""
    part = yield from partitioned(info, *collected, both_ways=both_ways)
    own = np.arange(len(part)) * info.peers + info.worker
    mirrored = yield part.to_mirrors(own)
    targets = Lists.of_distinct(part.sources, part.targets, len(part))
    return _Paths(part, targets, np.concatenate(mirrored), own[:, np.newaxis])


@attrs.frozen
class _Cycles(StepProgram[_Paths]):
    _limit: int | None

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Paths]:
        return (yield from _begin(info, collected))

    def round(self, info: OperatorInfo, state: _Paths) -> Steps[bool]:
        if state.length == self._limit:
            return False
        paths, mirrors = state.longer()
        closed = paths[paths[:, 0] == paths[:, -1]]
        fresh = (paths[:, -1] > paths[:, 0]) & ~(paths[:, :-1] == paths[:, -1:]).any(axis=1)
        state.paths, going = yield from _moved(state.part, paths[fresh], mirrors[fresh])
        state.results.append(closed)
        state.length += 1
        return going

    def end(self, info: OperatorInfo, state: _Paths) -> Steps[Any]:
        lists = yield from _named(info, state)
        return pa.record_batch({"path": pa.array(map(_from_smallest, lists), pa.list_(state.part.nodes.type))})


@attrs.frozen
class _PathsBetween(StepProgram[_Paths]):
    _limit: int | None
    _both_ways: bool

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Paths]:
        state = yield from _begin(info, collected, self._both_ways)
        state.paths = state.paths[_mask(state.part, "start")]
        state.results.append(_ended(state.part, state.paths))
        return state

    def round(self, info: OperatorInfo, state: _Paths) -> Steps[bool]:
        if state.length == self._limit:
            return False
        paths, mirrors = state.longer()
        fresh = ~(paths[:, :-1] == paths[:, -1:]).any(axis=1)
        state.paths, going = yield from _moved(state.part, paths[fresh], mirrors[fresh])
        state.results.append(_ended(state.part, state.paths))
        state.length += 1
        return going

    def end(self, info: OperatorInfo, state: _Paths) -> Steps[Any]:
        lists = yield from _named(info, state)
        return pa.record_batch({"path": pa.array(lists, pa.list_(state.part.nodes.type))})


def _mask(part: GraphPartition, name: str) -> Mask:
    """Return a column of truth values of the nodes, where null is false."""
    if not len(part):
        return np.empty(0, np.bool_)
    return np.asarray(part.attributes[name].fill_null(False).to_numpy(), np.bool_)


def _ended(part: GraphPartition, paths: Rows) -> Rows:
    """Return the paths whose last node is an end."""
    return paths[_mask(part, "end")[paths[:, -1] // len(part.mirrored)]]


def _moved(part: GraphPartition, paths: Rows, mirrors: Column) -> Steps[tuple[Rows, bool]]:
    """Return the paths that lead to nodes of this worker, and whether any worker has sent one."""
    received = yield part.to_owners(mirrors, paths)
    _, arrived = part.from_mirrors(received)
    going: list[int] = yield [len(paths)] * len(part.mirrored)
    return arrived, any(going)


def _named(info: OperatorInfo, state: _Paths) -> Steps[list[list[Any]]]:
    """Return the nodes of each path that was found."""
    part, results = state.part, state.results
    numbers = sorted_distinct(join_columns([paths.ravel() for paths in results]))
    asked: list[Column] = yield [numbers[numbers % info.peers == peer] for peer in range(info.peers)]
    replies: list[pa.Array] = yield [part.nodes.take(pa.array(wanted // info.peers)) for wanted in asked]
    names: dict[int, Any] = {}
    for peer, values in enumerate(replies):
        names.update(zip(numbers[numbers % info.peers == peer].tolist(), values.to_pylist(), strict=True))
    return [[names[number] for number in path] for paths in results for path in paths.tolist()]


def _from_smallest(cycle: list[Any]) -> list[Any]:
    at = min(range(len(cycle) - 1), key=cycle.__getitem__)
    return [*cycle[at:-1], *cycle[:at], cycle[at]]
