"""``relax``: distances travel along edges until none becomes less; edges that come later only lower them further.

A loop with one operator in it. Each node belongs to one worker, which has its outgoing edges and its distance. When that
becomes less, the node offers its successors a distance: on the same worker at once, on others round the loop. The nearest nodes
go first (delta-stepping, with one average weight as the step), so few are visited more than once. A time ends when the frontier
shows that none of its offers is under way, and only then does the next begin. The invariant: at the end of a time every
distance is the least in the graph of all edges so far, and the output is exactly what became less.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias

import numpy as np

from timely.dataflow import (
    Capability,
    Exchange,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pipeline,
    Stream,
    scope_of,
)
from timely.errors import StateError
from timely.graphs.stages.edge_input import next_time
from timely.graphs.stages.gathering import Collected, collector
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
    marked,
    owned,
)
from timely.memory import Spool
from timely.operators import enter
from timely.operators.type_variables import T
from timely.order import Product, linear_extension

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
    with scope_of(edges, "relax").iterative("relax") as loop:
        handle, again = loop.feedback()
        builder = OperatorBuilder(loop, "relax")
        builder.new_input(edges.enter(loop), Exchange(first))
        builder.new_input(enter(seeds, loop), Exchange(first))
        builder.new_input(again, Pipeline)
        offers = builder.new_output()
        changed = builder.new_output()
        builder.build(functools.partial(_Relax[T], weighted))
        offers.connect_loop(handle, Exchange(first))
        return changed.leave()


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
        yield join_rows([], 3 if self._weighted else 2), np.vstack((nodes, bits(self._least[nodes]))).T
        for edges in self._adjacency.rows():
            yield edges, _NOTHING

    def restore(self, edges: Rows, near: Rows) -> None:
        """Add edges and distances that have been output before, so no offers result."""
        self._count(edges)
        self._adjacency.add(edges)
        self._know(near)

    def lowered(self) -> Lowered:
        """Return what has become less since the last call of ``changed``."""
        nodes = self._distinct(join_columns(self._lowered))
        return np.vstack((nodes, bits(self._least[nodes]))).T, self.waiting, self._common

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
            reached = marked(self._least < np.inf, edges[:, 0])
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
        return np.vstack((others, bits(self._least[others]))).T if len(others) else _NOTHING

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


class _Time(Generic[T]):
    """The input of one outer time that is not processed yet, the offers by round, and the capabilities to send at it."""

    def __init__(self, result: Capability[Product[T, int]]) -> None:
        self.begun = False
        self.edges: Collected = collector()
        self.offers: defaultdict[int, list[Rows]] = defaultdict(list)
        self.held: Capability[Product[T, int]] | None = None
        self.result = result

    def hold(self, capability: InputCapability[Product[T, int]]) -> None:
        """Retain the capability of the first round that has work."""
        if self.held is None:
            self.held = capability.retain(0)
        elif capability.time < self.held.time:
            self.held.drop()
            self.held = capability.retain(0)

    def pop_offers(self, round: int) -> Rows:
        """Return the offers of a round, and forget them."""
        return join_rows(self.offers.pop(round, []), 2)

    def end_round(self, waiting: bool) -> None:
        """Downgrade the capability to the next round if nodes are waiting, or to the first that has offers; else drop it."""
        assert self.held is not None
        outer, round = self.held.time
        if waiting or self.offers:
            self.held.downgrade(Product(outer, round + 1 if waiting else min(self.offers)))
        else:
            self.held.drop()
            self.held = None


Graph: TypeAlias = tuple[Any, Rows, Rows]
"""The last time, edges, and distances that were output."""

Pending: TypeAlias = tuple[Any, list[Rows], dict[int, list[Rows]], int | None, Lowered | None]
"""An outer time, some of its edges, and its offers by round; the round of its capability, and what has become less if it has
begun."""


class _Relax(Generic[T]):
    """The logic of the operator in the loop: one outer time after another."""

    def __init__(self, weighted: bool, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        self.info = info
        self.columns = 3 if weighted else 2
        self.distances = Distances(info.worker, info.peers, weighted)
        self.times: dict[T, _Time[T]] = {}
        self.last: T | None = None
        self.log = self.register_graph()
        self.register_pending(capabilities)
        for capability in capabilities:
            capability.drop()

    def register_graph(self) -> Log | None:
        """Register the edges and the distances. With other workers each restores all distances."""

        def save() -> Iterator[Graph]:
            if self.last is not None:
                yield from ((self.last, *known) for known in self.distances.known())

        def load(item: Graph) -> None:
            self.last, edges, near = item
            self.distances.restore(edges, near)

        def repartition(item: Graph, *_: int) -> Iterator[Graph]:
            last, edges, near = item
            yield last, owned(self.info, edges), near

        return register_state(self.info, save, load, repartition)

    def register_pending(self, capabilities: list[Capability[Product[T, int]]]) -> None:
        """Register the input of outer times, and what has become less in the one that has begun."""

        def save() -> Iterator[Pending]:
            for outer, part in self.times.items():
                round = None if part.held is None else part.held.time.inner
                yield outer, [], dict(part.offers), round, self.distances.lowered() if part.begun else None
                yield from ((outer, [edges], {}, None, None) for edges in part.edges)

        def load(item: Pending) -> None:
            outer, edges, offers, first_round, lowered = item
            part = self.times.get(outer)
            if part is None:
                part = self.times[outer] = _Time(capabilities[1].delayed(Product(outer, 0)))
            for some in edges:
                part.edges.append(some)
            for round, rows in offers.items():
                part.offers[round] += rows
            if first_round is not None:
                held = Product(outer, first_round)
                if part.held is None or held < part.held.time:
                    part.held = capabilities[0].delayed(held)
            if lowered is not None:
                part.begun = True
                self.distances.restore_lowered(lowered)

        def repartition(item: Pending, *_: int) -> Iterator[Pending]:
            outer, edges, offers, first_round, lowered = item
            if lowered is not None:
                raise StateError(f"{self.info.path}: {outer!r} is being processed: go on with as many workers")
            yield outer, self.mine(edges), {round: self.mine(rows) for round, rows in offers.items()}, first_round, None

        register_state(self.info, save, load, repartition, logged=False)

    def mine(self, parts: Sequence[Rows]) -> list[Rows]:
        return [owned(self.info, rows) for rows in parts]

    def __call__(
        self,
        edges: InputPort[Product[T, int], Any],
        seeds: InputPort[Product[T, int], Any],
        again: InputPort[Product[T, int], Any],
        offers: OutputPort[Product[T, int]],
        changed: OutputPort[Product[T, int]],
    ) -> None:
        batch: Any
        for capability, batch in edges:
            self.at(capability).edges.append(batch)
        for port in (seeds, again):
            for capability, batch in port:
                self.at(capability).offers[capability.time.inner].append(batch)
        for outer in linear_extension(self.times):
            part = self.times[outer]
            if not part.begun:
                coming = [time.outer for port in (edges, seeds) for time in port.frontier]
                under_way = [time.outer for time in again.frontier if time.outer != outer]
                if any(time <= outer for time in coming + under_way):
                    return
                self.last = next_time(self.info, self.last, outer)
                part.begun = True
            while (held := part.held) is not None:
                if any(time <= held.time for time in again.frontier):
                    return  # a peer has not finished the round before
                self.advance(part, held, offers)
            if any(time.outer <= outer for time in again.frontier):
                return
            nearer = self.distances.changed()
            if self.log is not None:
                self.log((outer, join_rows([], self.columns), nearer))
            with part.result as result:
                changed.session(result).give_batch(nearer)
            del self.times[outer]
            if edges.frontier:
                self.distances.sort()

    def advance(self, part: _Time[T], held: Capability[Product[T, int]], offers: OutputPort[Product[T, int]]) -> None:
        """Process the input of the round, and make offers: with peers as many as a round is worth, else until none are left."""
        near = self.distances
        made: list[Rows] = []
        received = part.pop_offers(held.time.inner)
        if len(part.edges):
            edges = part.edges if isinstance(part.edges, Spool) else join_rows(part.edges, self.columns)
            if self.log is not None:
                for some in edges if isinstance(edges, Spool) else [edges]:
                    self.log((self.last, some, _NOTHING))
            made.extend(near.add_edges(edges))
            part.edges = collector()
        near.offer(received[:, 0], floats(received[:, 1]))
        scanned, steps = near.scanned, 0
        while len(near.waiting):
            made.extend(near.step())
            steps += 1
            if self.info.peers > 1 and (steps == _STEPS or near.scanned - scanned > _EDGES):
                break
        offers.session(held).give_batch(join_rows(made, 2))
        part.end_round(waiting=len(near.waiting) > 0)

    def at(self, capability: InputCapability[Product[T, int]]) -> _Time[T]:
        """Return the state of the capability's outer time, with a capability to make offers."""
        outer = capability.time.outer
        part = self.times.get(outer)
        if part is None:
            part = self.times[outer] = _Time(capability.retain(1))
        part.hold(capability)
        return part
