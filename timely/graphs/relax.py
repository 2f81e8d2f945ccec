"""``relax``: distances travel along edges until none gets shorter; edges that come later only shorten them further.

A nested loop with one operator in it. Each node belongs to one worker, which has its outgoing edges and the least
distance that has been offered to it. Where that has become less, the node's successors are offered a distance in turn:
those of the same worker at once, the others round the loop. Nodes that are nearest go first, so that few are visited
more than once (delta-stepping, with one average weight as the step). With peers a round of the loop is one such step on
every worker, taken when no offer of that round is under way any more, or a few of them where that is little work: a
round is no cheaper than these, and a long path takes so many rounds less, at the price of nodes that are visited again
when a peer knows better. The loop is not counted: a time is over when the frontier shows
that no offer of it is on its way anywhere, and only then does the next one begin, so that its edges are relaxed from
distances that are final without them. The invariant: at the end of a time, every distance is the least in the graph of
all edges so far, and what is sent out is exactly what became less. What a time costs is in the nodes whose distance
changes and their edges, not in the size of the graph.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

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
from timely.graphs.adjacency import Adjacency
from timely.graphs.input import next_time
from timely.graphs.pairs import Column, Floats, Rows, bits, distinct, first, floats, join_rows
from timely.operators import enter
from timely.order import PartialOrder, Product, linear_extension

T = TypeVar("T", bound=PartialOrder)

_STEPS: Final = 16
_EDGES: Final = 1 << 13
"""Steps that a worker with peers takes in a round, and edges after which it takes no more: about as much work as a round is by
itself, so that long paths take few rounds, and what was done too soon and has to be done again costs little.
"""

_NOTHING: Final[Rows] = join_rows([], 2)

_MANY: Final = 16
"""One in so many of all nodes are so many that all are looked through for those that are among them."""


def relax(edges: Stream[T, Any], seeds: Stream[T, Any], *, weighted: bool = True) -> Stream[T, Any]:
    """Return ``(node, distance)`` for each node whose distance from the seeds has become less, or finite, at a time.

    ``edges`` are arrays of ``(source, target, weight)``, ``seeds`` of ``(node, distance)``, of node numbers as a lasting
    ``encode`` gives them, and of the bits of floats from 0 up. Edges that are not ``weighted`` are arrays of ``(source,
    target)``, and each has the weight 1. Rows come out on the worker of their node, when their time is complete.
    ``TimestampError`` for times of which neither comes before the other. Source: delta-stepping (Meyer and Sanders 2003), in
    a loop of Naiad section 2.1.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1, bits(np.array([2.5]))[0]]]))
    ...     seeds = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 0]]))
    ...     return relax(edges, seeds).map_batch(lambda rows: list(zip(rows[:, 0].tolist(), floats(rows[:, 1]).tolist())))
    >>> timely.example(build)
    [(0, [(0, 0.0), (1, 2.5)])]
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


class Distances:
    """One worker's edges, and the least distance that it knows of for any node, its own or not.

    Edges that are not ``weighted`` have two columns, and each the weight 1.

    >>> near = Distances(worker=0, peers=2)
    >>> near.offer(np.array([0]), np.array([0.0]))
    >>> offers = near.add_edges(np.array([[0, 2, 0], [0, 1, 0]]) + [0, 0, bits(np.array([1.5]))[0]])
    >>> offers[:, 0].tolist(), floats(offers[:, 1]).tolist(), near.waiting.tolist()
    ([1], [1.5], [0, 2])
    """

    __slots__ = (
        "_adjacency",
        "_distance",
        "_edges",
        "_least",
        "_mark",
        "_none_is_near",
        "_peers",
        "_total",
        "_touched",
        "_weighted",
        "_worker",
        "waiting",
    )

    def __init__(self, worker: int, peers: int, weighted: bool = True) -> None:
        self._worker = worker
        self._peers = peers
        self._weighted = weighted
        self._adjacency = Adjacency(2 if weighted else 1, worker, peers)
        self._edges = 0
        self._total = 0.0
        self._least: Floats = np.empty(0)
        self._none_is_near = True
        self._mark: Column = np.empty(0, np.int64)
        self._touched: list[Column] = []
        self.waiting: Column = np.empty(0, np.int64)
        self._distance: float | None = None
        """Where all nodes that wait differ from each other, and are at the same distance: that."""

    def known(self) -> tuple[Rows, Rows]:
        """Return all edges, and ``(node, distance)`` for the nodes that are reached, as far as is known here."""
        nodes = np.flatnonzero(self._least < np.inf)
        return self._adjacency.rows(), np.vstack((nodes, bits(self._least[nodes]))).T

    def learn(self, edges: Rows, near: Rows) -> None:
        """Take in edges, and distances that have been told already, so that nothing comes of either."""
        self._keep(edges)
        self._reach(near[:, 0])
        np.minimum.at(self._least, near[:, 0], floats(near[:, 1]))
        self._none_is_near = self._none_is_near and not len(near)

    def add_edges(self, edges: Rows) -> Rows:
        """Take in edges that start here; return what they offer to the nodes of other workers."""
        self._keep(edges)
        if self._none_is_near:
            return _NOTHING
        with np.errstate(over="ignore"):
            offers = self._least[edges[:, 0]] + (floats(edges[:, 2]) if self._weighted else 1.0)
        known = offers < np.inf
        return self._lower(edges[known, 1].astype(np.int64, copy=False), offers[known])

    def _keep(self, edges: Rows) -> None:
        """Take in edges, so that nothing comes of them yet."""
        self._reach(edges[:, :2])
        self._adjacency.add(edges)
        self._edges += len(edges)
        with np.errstate(over="ignore"):
            self._total += float(floats(edges[:, 2]).sum()) if self._weighted else len(edges)

    @property
    def looked_at(self) -> int:
        """How many edges have been looked at so far."""
        return self._adjacency.looked_at

    def settle(self) -> None:
        """Get ready for what comes later, since there is time."""
        self._adjacency.settle()

    def offer(self, nodes: Column, distances: Floats) -> None:
        """Take in distances that are offered to nodes of this worker."""
        self._reach(nodes)
        self._lower(nodes, distances)

    def step(self) -> Rows:
        """Let the nearest nodes that wait make their offers; return those to the nodes of other workers."""
        nodes, distance = self.waiting, self._distance
        if distance is not None:
            self.waiting = nodes[:0]
        else:
            nodes = self._each_once(nodes)
            distances = self._least[nodes]
            distance = float(distances.min())
            near = distances <= distance + self._total / max(self._edges, 1) * 0.99
            self.waiting, nodes = nodes[~near], nodes[near]
        if not self._weighted:  # then distances that differ by less than 1 are the same
            return self._lower(self._adjacency.of(nodes)[0], distance + 1.0)
        which, (targets, weights) = self._adjacency.find(nodes)
        with np.errstate(over="ignore"):  # a sum beyond all floats is infinite, and no distance
            return self._lower(targets, self._least[nodes][which] + floats(weights))

    def changed(self) -> Rows:
        """Return ``(node, distance)`` for the nodes of this worker whose distance is less than when last asked."""
        nodes = self._each_once(np.concatenate(self._touched or [np.empty(0, np.int64)]))
        self._touched = []
        return np.vstack((nodes, bits(self._least[nodes]))).T

    def _lower(self, nodes: Column, distances: Floats | float) -> Rows:
        """Keep what is less than before, for each of the ``nodes`` or for all the same; let nodes of this worker wait, and return
        the rest, each node once.
        """
        less = distances < self._least.take(nodes)
        nodes = nodes[less]
        if not len(nodes):
            return _NOTHING
        self._none_is_near = False
        if isinstance(distances, float):
            nodes = self._each_once(nodes)
            self._least[nodes] = distances
        else:
            np.minimum.at(self._least, nodes, distances[less])
            nodes = self._each_once(nodes)
        others = nodes[:0]
        if self._peers > 1:
            mine = nodes % self._peers == self._worker
            others, nodes = nodes[~mine], nodes[mine]
        self._touched.append(nodes)
        self._distance = distances if isinstance(distances, float) and not len(self.waiting) else None
        self.waiting = np.concatenate((self.waiting, nodes)) if len(self.waiting) else nodes
        return np.vstack((others, bits(self._least[others]))).T if len(others) else _NOTHING

    def _each_once(self, nodes: Column) -> Column:
        if len(nodes) * _MANY > len(self._least):
            return distinct([nodes], len(self._least))
        turns = np.arange(len(nodes))
        self._mark[nodes] = turns  # of the equal ones the last one stays
        once: Column = nodes[self._mark[nodes] == turns]
        return once

    def _reach(self, nodes: Column) -> None:
        """Have room for all of ``nodes``."""
        needed = int(nodes.max()) + 1 if nodes.size else 0
        if needed > len(self._least):
            grown = np.full(max(needed, len(self._least) * 5 // 4), np.inf)
            grown[: len(self._least)] = self._least
            self._least, self._mark = grown, np.empty(len(grown), np.int64)


class _Time(Generic[T]):
    """What has come at one outer time and was not taken in yet, the offers by round, and the rights to answer it."""

    __slots__ = ("begun", "edges", "held", "offers", "result")

    def __init__(self, result: Capability[Product[T, int]]) -> None:
        self.begun = False
        self.edges: list[Rows] = []
        self.offers: defaultdict[int, list[Rows]] = defaultdict(list)
        self.held: Capability[Product[T, int]] | None = None
        self.result = result

    def hold(self, capability: InputCapability[Product[T, int]]) -> None:
        """Keep the right to make offers in the first round that there is anything to do in."""
        if self.held is None:
            self.held = capability.retain(0)
        elif capability.time < self.held.time:
            self.held.drop()
            self.held = capability.retain(0)

    def take_offers(self, round: int) -> Rows:
        """Return the offers of this round, and forget them."""
        return join_rows(self.offers.pop(round, []), 2)

    def hold_on(self, waiting: bool) -> None:
        """A round is done: keep the right for the next one, if nodes wait for it, or for that of which offers are here."""
        assert self.held is not None
        outer, round = self.held.time
        if waiting or self.offers:
            self.held.downgrade(Product(outer, round + 1 if waiting else min(self.offers)))
        else:
            self.held.drop()
            self.held = None


Graph: TypeAlias = tuple[Any, Rows, Rows]
"""The last time, edges, and distances that were told."""

Waiting: TypeAlias = tuple[Any, list[Rows], dict[int, list[Rows]]]
"""An outer time, and the edges and, by round, the offers that have come for it."""


class _Relax(Generic[T]):
    """The logic of the operator in the loop: one outer time after another."""

    __slots__ = ("columns", "distances", "info", "last", "note", "times")

    def __init__(self, weighted: bool, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        self.info = info
        self.columns = 3 if weighted else 2
        self.distances = Distances(info.worker, info.peers, weighted)
        self.times: dict[T, _Time[T]] = {}
        self.last: T | None = None
        self.note: Callable[[Graph], None] | None = None
        self._keep_graph()
        self._keep_waiting(capabilities)
        for capability in capabilities:
            capability.drop()

    def _keep_graph(self) -> None:
        """Declare the edges so far, and the distances. On another number of workers each knows all distances."""
        worker, peers = self.info.worker, self.info.peers

        def load(items: Iterable[Graph]) -> None:
            for last, edges, near in items:
                self.last = last
                self.distances.learn(edges, near)

        def rescale(parts: Sequence[Iterable[Graph]]) -> None:
            for items in parts:
                load((last, edges[edges[:, 0] % peers == worker], near) for last, edges, near in items)

        log = self.info.register_state(
            lambda: [(None, (self.last, *self.distances.known()))] if self.last is not None else [],
            load,
            rescale=rescale,
            logged=True,
        )
        if log.kept:
            self.note = lambda graph: log.append(None, graph)

    def _keep_waiting(self, capabilities: list[Capability[Product[T, int]]]) -> None:
        """Declare what has come at outer times that have not begun; one that has goes on to its end while anything moves."""

        def save() -> Iterator[tuple[None, Waiting]]:
            for outer, part in self.times.items():
                if part.begun:
                    raise StateError(f"{self.info.path}: what came at {outer!r} is being worked on, which cannot be kept")
                yield None, (outer, part.edges, dict(part.offers))

        def load(items: Iterable[Waiting]) -> None:
            for outer, edges, offers in items:
                part = self.times.get(outer)
                if part is None:
                    part = self.times[outer] = _Time(capabilities[1].delayed(Product(outer, 0)))
                part.edges += edges
                for round, rows in offers.items():
                    part.offers[round] += rows
                if edges or offers:
                    held = Product(outer, min(0 if edges else round for round in (offers or (0,))))
                    if part.held is None or held < part.held.time:
                        part.held = capabilities[0].delayed(held)

        def mine(batches: Sequence[Rows]) -> list[Rows]:
            return [rows[rows[:, 0] % self.info.peers == self.info.worker] for rows in batches]

        def rescale(parts: Sequence[Iterable[Waiting]]) -> None:
            for items in parts:
                load((outer, mine(edges), {n: mine(rows) for n, rows in offers.items()}) for outer, edges, offers in items)

        self.info.register_state(save, load, rescale=rescale)

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
                given = [time.outer for port in (edges, seeds) for time in port.frontier]
                under_way = [time.outer for time in again.frontier if time.outer != outer]
                if any(time <= outer for time in given + under_way):
                    return
                self.last = next_time(self.info, self.last, outer)
                part.begun = True
            while (held := part.held) is not None:
                if any(time <= held.time for time in again.frontier):
                    return  # a peer has not done its part of the round before
                self.advance(part, held, offers)
            if any(time.outer <= outer for time in again.frontier):
                return
            nearer = self.distances.changed()
            if self.note is not None:
                self.note((outer, join_rows([], self.columns), nearer))
            with part.result as result:
                changed.session(result).give_batch(nearer)
            del self.times[outer]
            if edges.frontier:
                self.distances.settle()

    def advance(self, part: _Time[T], held: Capability[Product[T, int]], offers: OutputPort[Product[T, int]]) -> None:
        """Take in what has come for the round, and make offers: without peers until none are left."""
        near = self.distances
        made: list[Rows] = []
        came = part.take_offers(held.time.inner)
        if part.edges:
            edges = join_rows(part.edges, self.columns)
            made.append(near.add_edges(edges))
            if self.note is not None:
                self.note((self.last, edges, join_rows([], 2)))
            part.edges = []
        near.offer(came[:, 0], floats(came[:, 1]))
        looked_at, steps = near.looked_at, 0
        while len(near.waiting):
            made.append(near.step())
            steps += 1
            if self.info.peers > 1 and (steps == _STEPS or near.looked_at - looked_at > _EDGES):
                break
        offers.session(held).give_batch(join_rows(made, 2))
        part.hold_on(waiting=len(near.waiting) > 0)

    def at(self, capability: InputCapability[Product[T, int]]) -> _Time[T]:
        """Return what is kept for the capability's outer time, with the right to make offers."""
        outer = capability.time.outer
        part = self.times.get(outer)
        if part is None:
            part = self.times[outer] = _Time(capability.retain(1))
        part.hold(capability)
        return part
