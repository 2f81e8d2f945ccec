"""``simple_cycles`` and ``simple_paths``: every cycle of a graph, every path between nodes. There may be exponentially many.

Paths are rows of node numbers. In a step all paths get longer by an edge, on the worker of their last node.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.graphs.arrays import Column, Mask, Rows, join_columns, ranges, sorted_distinct
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.graph_partition import GraphPartition, partitioned
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def simple_cycles(edges: Stream[T, Any], vertices: Stream[T, Any], *, limit: int | None = None) -> Stream[T, Any]:
    """Return Arrow batches ``(path)``: for each cycle without repeated nodes the list of its nodes, the smallest first and last.

    ``edges`` are batches ``(src, dst)``, of which repeated ones are one; ``vertices`` are batches with a column ``node``. Cycles
    have up to ``limit`` edges, if that is given. Each time is a graph of its own. ``SchemaError``, as the cause of an
    ``OperatorError``, for two vertices with one node, and edges whose ends are no vertices. Source: Rocha and Thatte,
    "Distributed cycle detection in large-scale sparse graphs" (2015).

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b", "c", "b"], "dst": ["b", "c", "a", "a"]}))
    ...     return simple_cycles(edges, start.map_batch(lambda _: pa.record_batch({"node": ["a", "b", "c"]})))
    >>> [(time, rows)] = timely.example(build)
    >>> sorted(path for path, in rows)
    [['a', 'b', 'a'], ['a', 'b', 'c', 'a']]
    """
    return bulk_synchronous("simple cycles", [vertices, edges], partial(_cycles, limit=limit))


def simple_paths(
    edges: Stream[T, Any], vertices: Stream[T, Any], *, limit: int | None = None, both_ways: bool = False
) -> Stream[T, Any]:
    """Return Arrow batches ``(path)``: for each path without repeated nodes, from a start to an end, the list of its nodes.

    ``vertices`` are batches ``(node, start, end)`` with truth values. A node that is both is a path without edges. The rest is as
    for :func:`simple_cycles`; with ``both_ways`` edges lead in either direction.

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b", "a"], "dst": ["b", "c", "c"]}))
    ...     ends = {"node": ["a", "b", "c"], "start": [True, False, False], "end": [False, False, True]}
    ...     return simple_paths(edges, start.map_batch(lambda _: pa.record_batch(ends)))
    >>> [(time, rows)] = timely.example(build)
    >>> sorted(path for path, in rows)
    [['a', 'b', 'c'], ['a', 'c']]
    """
    return bulk_synchronous("simple paths", [vertices, edges], partial(_paths, limit=limit, both_ways=both_ways))


class _Steps:
    """One worker's edges, each once, by the number of their targets."""

    def __init__(self, info: OperatorInfo, part: GraphPartition, numbers: Column) -> None:
        self._info, self._part = info, part
        pairs = sorted_distinct(part.sources * max(part.mirrors, 1) + part.targets)
        sources, self._targets = np.divmod(pairs, max(part.mirrors, 1))
        self._starts = np.searchsorted(sources, np.arange(len(part) + 1))
        self._numbers = numbers

    def longer(self, paths: Rows) -> tuple[Rows, Column]:
        """Return all paths with an edge more, and the mirrors they lead to."""
        places = paths[:, -1] // self._info.peers
        counts = self._starts[places + 1] - self._starts[places]
        mirrors = self._targets[ranges(self._starts[places], counts)]
        return np.column_stack((np.repeat(paths, counts, axis=0), self._numbers[mirrors])), mirrors


def _begin(
    info: OperatorInfo, collected: list[list[Any]], both_ways: bool = False
) -> Steps[tuple[GraphPartition, _Steps, Column]]:
    """Return the partition, its steps, and the numbers of its nodes."""
    vertices, edges = collected
    part = yield from partitioned(info, vertices, edges, both_ways=both_ways)
    own = np.arange(len(part)) * info.peers + info.worker
    mirrored = yield part.to_mirrors(own)
    return part, _Steps(info, part, np.concatenate(mirrored)), own


def _cycles(info: OperatorInfo, collected: list[list[Any]], *, limit: int | None) -> Steps[Any]:
    part, steps, own = yield from _begin(info, collected)
    paths: Rows = own[:, np.newaxis]
    found: list[Rows] = []
    length = 0
    while length != limit:
        paths, mirrors = steps.longer(paths)
        found.append(paths[paths[:, 0] == paths[:, -1]])
        fresh = (paths[:, -1] > paths[:, 0]) & ~(paths[:, :-1] == paths[:, -1:]).any(axis=1)
        length += 1
        arrived = yield from _moved(part, paths[fresh], mirrors[fresh])
        if arrived is None:
            break
        paths = arrived
    lists = yield from _named(info, part, found)
    return pa.record_batch({"path": pa.array([_from_smallest(path) for path in lists], pa.list_(part.nodes.type))})


def _paths(info: OperatorInfo, collected: list[list[Any]], *, limit: int | None, both_ways: bool) -> Steps[Any]:
    part, steps, own = yield from _begin(info, collected, both_ways)
    start, end = (_mask(part, name) for name in ("start", "end"))
    paths: Rows = own[start][:, np.newaxis]
    found: list[Rows] = []
    length = 0
    while True:
        found.append(paths[end[paths[:, -1] // info.peers]])
        if length == limit:
            break
        paths, mirrors = steps.longer(paths)
        fresh = ~(paths[:, :-1] == paths[:, -1:]).any(axis=1)
        length += 1
        arrived = yield from _moved(part, paths[fresh], mirrors[fresh])
        if arrived is None:
            break
        paths = arrived
    lists = yield from _named(info, part, found)
    return pa.record_batch({"path": pa.array(lists, pa.list_(part.nodes.type))})


def _mask(part: GraphPartition, name: str) -> Mask:
    """Return a column of truth values of the nodes, where null is false."""
    if not len(part):
        return np.empty(0, np.bool_)
    return np.asarray(part.attributes[name].fill_null(False).to_numpy(), np.bool_)


def _moved(part: GraphPartition, paths: Rows, mirrors: Column) -> Steps[Rows | None]:
    """Return the paths that lead to nodes of this worker; none if no worker has any."""
    received = yield part.to_owners(mirrors, paths)
    _, arrived = part.from_mirrors(received)
    going: list[int] = yield [len(paths)] * len(part.mirrored)
    return arrived if any(going) else None


def _named(info: OperatorInfo, part: GraphPartition, found: list[Rows]) -> Steps[list[list[Any]]]:
    """Return the nodes of each path."""
    numbers = sorted_distinct(join_columns([paths.ravel() for paths in found]))
    asked: list[Column] = yield [numbers[numbers % info.peers == peer] for peer in range(info.peers)]
    replies: list[pa.Array] = yield [part.nodes.take(pa.array(wanted // info.peers)) for wanted in asked]
    names: dict[int, Any] = {}
    for peer, values in enumerate(replies):
        names.update(zip(numbers[numbers % info.peers == peer].tolist(), values.to_pylist(), strict=True))
    return [[names[number] for number in path] for paths in found for path in paths.tolist()]


def _from_smallest(cycle: list[Any]) -> list[Any]:
    at = min(range(len(cycle) - 1), key=cycle.__getitem__)
    return [*cycle[at:-1], *cycle[:at], cycle[at]]
