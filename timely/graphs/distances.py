"""Breadth-first search and shortest paths: the distances from one node, and how they shrink as edges are added.

Both are delta-stepping on numbered edges, in a loop with one operator; in a breadth-first search every edge has the weight 1.
Each node belongs to one worker, which has its outgoing edges and its distance. When that becomes less, the node offers its
successors a distance: on the same worker at once, on others round the loop. The nearest nodes go first, with one average weight
as the step, so few are visited more than once. A time ends when the frontier shows that none of its offers is under way, and only
then does the next begin. The invariant: at the end of a time every distance is the least in the graph of all edges so far, and
the output is exactly what became less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.errors import SchemaError, StateError
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.edge_input import next_time
from timely.graphs.stages.gathering import Collected, drained, gather_loop
from timely.graphs.stages.node_joins import name_values
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.adjacency import Adjacency
from timely.graphs.structures.arrays import (
    Column,
    Floats,
    Rows,
    bits,
    distinct,
    first,
    floats,
    join_columns,
    join_rows,
    last_of_equals,
    owned,
)
from timely.memory import Spool
from timely.operators.type_variables import T
from timely.order import Product

_STEPS: Final = 16
_EDGES: Final = 1 << 13
"""Steps that a worker with peers takes in a round, and edges after which it takes no more: about as much work as the round itself
costs. Long paths need fewer rounds, and little is done too early and done again."""

_NOTHING: Final[Rows] = join_rows([], 2)

_MANY: Final = 16
"""Above ``1 / _MANY`` of all nodes deduplicate with a bitmap, below with a scatter."""


def relax(edges: Stream[T, Any], seeds: Stream[T, Any], *, weighted: bool = True) -> Stream[T, Any]:
    """Return ``(node, distance)`` for each node whose distance from the seeds has become less, or finite, at a time.

    ``edges`` are arrays of ``(source, target, weight)``, ``seeds`` of ``(node, distance)``, with numbers of a lasting ``encode``
    and the bits of floats from 0 up. Edges that are not ``weighted`` are ``(source, target)``, each of weight 1. Rows are on the
    worker of their node. ``TimestampError`` for times without an order. Source: delta-stepping (Meyer and Sanders 2003).
    """
    relaxing, inputs = _Relaxing(weighted), [(edges, Exchange(first)), (seeds, Exchange(first))]
    return gather_loop(
        "relax", inputs, Exchange(first), relaxing.finish, keep=relaxing.register, ended=relaxing.changed, in_order=True
    )


Lowered: TypeAlias = tuple[Rows, Column, float | None]
"""``(node, distance)`` of nodes whose distance has become less in a time, those that wait, and their distance if it is one."""


class Distances:
    """One worker's edges, and the least distance that it knows of any node, its own or not."""

    def __init__(self, worker: int, peers: int, weighted: bool = True) -> None:
        self._worker = worker
        self._peers = peers
        self._weighted = weighted
        self._adjacency = Adjacency(2 if weighted else 1, worker, peers)
        self._edges = 0
        self._total = 0.0  # of all weights
        self._least: Floats = np.empty(0)
        self._scratch: Column = np.empty(0, np.int64)
        self._lowered: list[Column] = []
        self.waiting: Column = np.empty(0, np.int64)
        self._common: float | None = None  # the distance of all waiting nodes, if it is one and they are distinct

    def known(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield all edges, and ``(node, distance)`` for the nodes that are reached, as far as known here."""
        nodes = np.flatnonzero(self._least < np.inf)
        yield join_rows([], 3 if self._weighted else 2), self.distances_of(nodes)
        for edges in self._adjacency.rows():
            yield edges, _NOTHING

    def restore(self, edges: Rows, near: Rows) -> None:
        """Add edges and distances that have been output before, so no offers result."""
        self._count(edges)
        self._adjacency.add(edges)
        self._know(near)

    def lowered(self) -> Lowered:
        """Return what has become less since the last call of ``changed``."""
        return self.distances_of(self._distinct(join_columns(self._lowered))), self.waiting, self._common

    def restore_lowered(self, lowered: Lowered) -> None:
        """Add what ``lowered`` returned. Distances of other workers' nodes are not in it: they are offered once more at most."""
        near, self.waiting, self._common = lowered
        self._know(near)
        self._lowered = [near[:, 0]]

    def _know(self, near: Rows) -> None:
        self._reach(near[:, 0])
        np.minimum.at(self._least, near[:, 0], floats(near[:, 1]))

    def add_edges(self, parts: Rows | Spool) -> Iterator[Rows]:
        """Add edges that start here, and drain their spool; yield what they offer to the nodes of other workers."""
        for edges in parts if isinstance(parts, Spool) else [parts]:
            self._count(edges)
            reached = np.flatnonzero((self._least < np.inf).take(edges[:, 0]))
            with np.errstate(over="ignore"):
                offers = self._least[edges[reached, 0]] + (floats(edges[reached, 2]) if self._weighted else 1.0)
            finite = offers < np.inf
            yield self._lower(edges[reached[finite], 1].astype(np.int64, copy=False), offers[finite])
        self._adjacency.add(parts)

    def _count(self, edges: Rows) -> None:
        self._reach(edges[:, :2])
        self._edges += len(edges)
        with np.errstate(over="ignore"):
            self._total += float(floats(edges[:, 2]).sum()) if self._weighted else len(edges)

    @property
    def scanned(self) -> int:
        """How many edges have been read so far."""
        return self._adjacency.scanned

    def sort(self) -> None:
        """Sort the edges, to make small later times cheap."""
        self._adjacency.sort()

    def offer(self, nodes: Column, distances: Floats) -> None:
        """Add distances that are offered to nodes of this worker."""
        self._reach(nodes)
        self._lower(nodes, distances)

    def step(self) -> Iterator[Rows]:
        """Let the nearest waiting nodes make their offers; yield those to the nodes of other workers."""
        nodes, distance = self.waiting, self._common
        if distance is not None:
            self.waiting = nodes[:0]
        else:
            nodes = self._distinct(nodes)
            distances = self._least[nodes]
            distance = float(distances.min())
            near = distances <= distance + self._total / max(self._edges, 1) * 0.99
            self.waiting, nodes = nodes[~near], nodes[near]
        if not self._weighted:  # distances that differ by less than 1 are the same
            yield from (self._lower(targets, distance + 1.0) for (targets,) in self._adjacency.columns_of(nodes))
            return
        offered = self._least[nodes]
        for sources, (targets, weights) in self._adjacency.find(nodes):
            with np.errstate(over="ignore"):  # a sum beyond all floats is infinite, and no distance
                yield self._lower(targets, offered[sources] + floats(weights))

    def changed(self) -> Rows:
        """Return ``(node, distance)`` for the nodes of this worker whose distance is less than at the last call."""
        nodes = self._distinct(join_columns(self._lowered))
        self._lowered = []
        return self.distances_of(nodes)

    def distances_of(self, nodes: Column) -> Rows:
        """Return ``(node, distance)`` for nodes."""
        return np.vstack((nodes, bits(self._least[nodes]))).T

    def _lower(self, nodes: Column, distances: Floats | float) -> Rows:
        """Lower the distances of ``nodes``, to one for each or the same for all. Nodes of this worker whose distance became less
        wait; return the others, each once.
        """
        less = distances < self._least.take(nodes)
        nodes = nodes[less]
        if not len(nodes):
            return _NOTHING
        if isinstance(distances, float):
            nodes = self._distinct(nodes)
            self._least[nodes] = distances
        else:
            np.minimum.at(self._least, nodes, distances[less])
            nodes = self._distinct(nodes)
        others = nodes[:0]
        if self._peers > 1:
            mine = nodes % self._peers == self._worker
            others, nodes = nodes[~mine], nodes[mine]
        self._lowered.append(nodes)
        self._common = (
            distances if isinstance(distances, float) and (not len(self.waiting) or self._common == distances) else None
        )
        self.waiting = np.concatenate((self.waiting, nodes)) if len(self.waiting) else nodes
        return self.distances_of(others) if len(others) else _NOTHING

    def _distinct(self, nodes: Column) -> Column:
        if len(nodes) * _MANY > len(self._least):
            return distinct([nodes], len(self._least))
        return nodes[last_of_equals(nodes, self._scratch)]

    def _reach(self, nodes: Column) -> None:
        """Grow the arrays to all of ``nodes``."""
        needed = int(nodes.max()) + 1 if nodes.size else 0
        if needed > len(self._least):
            grown = np.full(max(needed, len(self._least) * 5 // 4), np.inf)
            grown[: len(self._least)] = self._least
            self._least, self._scratch = grown, np.empty(len(grown), np.int64)


Graph: TypeAlias = tuple[Any, Rows, Rows]
"""The last time, edges, and distances that were output."""


class _Relaxing:
    """The finish functions of one worker."""

    def __init__(self, weighted: bool) -> None:
        self._weighted = weighted
        self._last: Any = None
        self._begun = False  # whether the last time is being processed
        self._log: Log | None = None

    def register(self, info: OperatorInfo) -> None:
        """Register the edges and the distances. With other workers each restores all distances."""
        self._distances = Distances(info.worker, info.peers, self._weighted)

        def save() -> Iterator[Graph]:
            if self._last is not None:
                yield from ((self._last, *known) for known in self._distances.known())

        def load(item: Graph) -> None:
            self._last, edges, near = item
            self._distances.restore(edges, near)

        def repartition(item: Graph, *_: int) -> Iterator[Graph]:
            last, edges, near = item
            yield last, owned(info, edges), near

        def load_lowered(lowered: Lowered) -> None:
            self._begun = True
            self._distances.restore_lowered(lowered)

        def refuse(_: Lowered, *__: int) -> Iterator[Lowered]:
            raise StateError(f"{info.path}: {self._last!r} is being processed: go on with as many workers")

        self._log = register_state(info, save, load, repartition)
        register_state(info, lambda: [self._distances.lowered()] * self._begun, load_lowered, refuse, logged=False)

    def finish(self, info: OperatorInfo, time: Product[Any, int], collected: list[Collected]) -> list[Any]:
        """Process the input of a round; return offers, with peers of as many steps as a round is worth.

        Where nodes still wait, one of the offers is what one of them has: it leads to the next round.
        """
        edges, *received = collected
        near = self._distances
        if not self._begun and self._last is not None:
            near.sort()  # to make small later times cheap
        self._last, self._begun = next_time(info, self._last, time.outer), True
        made: list[Rows] = []
        if len(edges):
            added = edges if isinstance(edges, Spool) else join_rows(edges, 3 if self._weighted else 2)
            if self._log is not None:
                for some in added if isinstance(added, Spool) else [added]:
                    self._log((time.outer, some, _NOTHING))
            made.extend(near.add_edges(added))
        offers = join_rows([rows for part in received for rows in drained(part)], 2)
        near.offer(offers[:, 0], floats(offers[:, 1]))
        scanned, steps = near.scanned, 0
        while len(near.waiting):
            made.extend(near.step())
            steps += 1
            if info.peers > 1 and (steps == _STEPS or near.scanned - scanned > _EDGES):
                made.append(near.distances_of(near.waiting[:1]))
                break
        return [join_rows(made, 2), []]

    def changed(self, info: OperatorInfo, outer: Any) -> Rows:
        """Return what has become less in a time."""
        self._begun = False
        nearer = self._distances.changed()
        if self._log is not None:
            self._log((outer, join_rows([], 3 if self._weighted else 2), nearer))
        return nearer


def breadth_first_search(edges: Stream[T, Any], source: Any, src: str = "src", dst: str = "dst") -> Stream[T, Any]:
    """Return Arrow batches ``(node, distance)``: at each time the nodes whose distance from ``source`` is new or less.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; ``source`` is a node. The distance is the
    least number of edges on a path from ``source`` in their direction, as int64. Everything else is as for ``shortest_paths``.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = breadth_first_search(edges, "a").capture()
    >>> handle.send_batch(pa.record_batch({"src": ["a", "b", "c"], "dst": ["b", "c", "d"]}))
    >>> handle.advance_to(1)
    >>> handle.send_batch(pa.record_batch({"src": ["a"], "dst": ["c"]}))
    >>> handle.close()
    >>> worker.run()
    >>> for time, rows in found.extract():
    ...     print(time, rows)
    0 [('a', 0), ('b', 1), ('c', 2), ('d', 3)]
    1 [('c', 1), ('d', 2)]
    """
    numbers, names = encode(edges, src, dst, lasting=True)
    distances = relax(numbers, names.map_batch(lambda batch: _seed(batch, source, src)), weighted=False)
    return name_values(names, distances, "distance", _as_integers)


def shortest_paths(
    edges: Stream[T, Any], source: Any, src: str = "src", dst: str = "dst", weight: str = "weight"
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, distance)``: at each time the nodes whose distance from ``source`` is new or less.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type, and ``weight``, finite numbers from 0
    up; ``source`` is a node. The distance is the least sum of weights on a path from ``source``, as float64; a sum beyond all
    floats is no distance. Nodes that no path reaches have no row. Edges stay for all later times, and the latest row of a node
    is its answer. A time costs its edges, and those of the nodes whose distance changes. ``SchemaError``, as the cause of an
    ``OperatorError``, for a column that is missing or has nulls, types that differ, a weight below 0, or a ``source`` of
    another type than the nodes; ``TimestampError`` for times without an order. Source: delta-stepping (Meyer and Sanders 2003),
    in a loop of Naiad section 2.1.

    >>> import timely
    >>> def build(scope):
    ...     edges = pa.record_batch({"src": [1, 1, 2], "dst": [2, 3, 3], "weight": [0.5, 4, 2]})
    ...     return shortest_paths(scope.to_stream([0]).map_batch(lambda _: edges), 1)
    >>> timely.example(build)
    [(0, [(1, 0.0), (2, 0.5), (3, 2.5)])]
    """
    numbers, names = encode(edges, src, dst, weight=weight, lasting=True)
    distances = relax(numbers, names.map_batch(lambda batch: _seed(batch, source, src)))
    return name_values(names, distances, "distance", floats)


def _seed(names: pa.RecordBatch, source: Any, src: str) -> Rows:
    """Return ``(number, bits of 0.0)`` of the source, if it is among the names."""
    values = names.column("value")
    index = _index(values, as_node(source, values.type, src))
    return np.array([[names.column("id")[index].as_py(), 0]] if index >= 0 else np.empty((0, 2)), np.int64)


def as_node(source: Any, kind: pa.DataType, src: str) -> pa.Array:
    """Return the source as a column of type ``kind``; ``SchemaError`` unless that represents it exactly."""
    try:
        node = pa.array([source], kind)
        why = "" if _is_exact(source, node) else f"it would be {node[0]}"
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        why = str(error)
    if why:
        raise SchemaError(
            f"the source is {source!r}, and the nodes in column {src!r} are of type {kind}: give a value of that type ({why})"
        )
    return node


def _is_exact(source: Any, node: pa.Array) -> bool:
    """Return whether a node is equal to the source, but for rounding of floats.

    A string may be given as its bytes, and an instant in any time zone.
    """
    kind = node.type
    if node.null_count:
        return False
    if isinstance(source, pa.Scalar | np.datetime64 | np.timedelta64):
        return True  # Arrow itself refuses another type or unit
    if pa.types.is_floating(kind):
        return bool(node[0].as_py() == source) or not np.isinf(node[0].as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        finest = _finest(source, kind)
        return bool(node.cast(finest.type).equals(finest))
    return bool(node[0].as_py() == source)


def _finest(source: Any, kind: pa.DataType) -> pa.Array:
    """Return a source in nanoseconds, or in microseconds if these cannot hold it."""
    if pa.types.is_time(kind):
        return pa.array([source], pa.time64("ns"))
    units = [pa.timestamp(unit, kind.tz) if pa.types.is_timestamp(kind) else pa.duration(unit) for unit in ("ns", "us")]
    try:
        return pa.array([source], units[0])
    except (pa.ArrowInvalid, OverflowError):
        return pa.array([source], units[1])


def _index(values: pa.Array, node: pa.Array) -> int:
    """Return where a node is among values, or -1. All NaN are one node."""
    if pa.types.is_floating(values.type) and np.isnan(node[0].as_py()):
        index = pc.is_nan(values).index(True)
    elif pa.types.is_duration(values.type):  # Arrow does not find durations
        index = values.view(pa.int64()).index(node.view(pa.int64())[0])
    else:
        index = values.index(node[0])
    return int(index.as_py())


def _as_integers(column: Column) -> Column:
    return floats(column).astype(np.int64)
