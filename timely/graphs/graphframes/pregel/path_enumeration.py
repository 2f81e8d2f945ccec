"""``simple_cycles`` and ``simple_paths``: every cycle of a graph, every path between nodes. There may be exponentially many.

Paths are rows of node numbers. In a step all paths get longer by an edge, on the worker of their last node.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned
from timely.graphs.structures.arrays import Column, Mask, Rows, join_columns, sorted_distinct
from timely.graphs.structures.lists import Lists
from timely.operators.type_variables import T


def simple_cycles(edges: Stream[T, Any], vertices: Stream[T, Any], *, limit: int | None = None) -> Stream[T, Any]:
    """Return Arrow batches ``(path)``: for each cycle without repeated nodes the list of its nodes, the smallest first and last.

    ``edges`` are batches ``(src, dst)``, of which repeated ones are one; ``vertices`` are batches with a column ``node``. Cycles
    have up to ``limit`` edges, if that is given. Each time is a graph of its own. ``SchemaError``, as the cause of an
    ``OperatorError``, for two vertices with one node, and edges whose ends are no vertices. Source: Rocha and Thatte,
    "Distributed cycle detection in large-scale sparse graphs" (2015).
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
