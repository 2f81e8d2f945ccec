"""``propagate``: values travel along edges until every node has the greatest that reaches it.

A nested loop with one operator in it. Each node belongs to one worker, which has its outgoing edges and the best value
that it has seen; when that improves, the node's successors are offered it, round the loop. The loop is not counted: it
is over for a time when the frontier shows that no offer of that time is on its way anywhere. Only then are the values
sent out, on an output that is no part of the loop, and everything that was kept for the time is dropped. Offers are
taken as they come, whatever round they are of; greatest values make the order irrelevant to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

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
from timely.graphs.pairs import MISSING, Column, Rows, first, join_rows
from timely.operators import enter
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)


def propagate(edges: Stream[T, Any], seeds: Stream[T, Any], name: str = "propagate") -> Stream[T, Any]:
    """Return ``(node, value)`` for every node that any of ``seeds`` reaches along ``edges``, itself included: the
    greatest value that does.

    ``edges`` are arrays of ``(source, target)``, ``seeds`` of ``(node, value)``, both of node numbers as ``encode``
    gives them and with values from 0 up; several seeds at a node count as their greatest. Rows come out on the worker
    of their node, when their time is complete. Source: the loops of Naiad section 2.1, and its connected components by
    labels.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2], [3, 2], [2, 1]]))
    ...     seeds = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 10], [3, 30]]))
    ...     return propagate(edges, seeds)
    >>> timely.example(build)
    [(0, [[0, 10], [1, 30], [2, 30], [3, 30]])]
    """
    with scope_of(edges, name).iterative(name) as loop:
        handle, again = loop.feedback()
        builder = OperatorBuilder(loop, name)
        builder.new_input(edges.enter(loop), Exchange(first))
        builder.new_input(enter(seeds, loop), Exchange(first))
        builder.new_input(again, Pipeline)
        offers = builder.new_output()
        values = builder.new_output()
        builder.build(_Propagate)
        offers.connect_loop(handle, Exchange(first))
        return values.leave()


class Best:
    """The best value so far at each of a growing row of places.

    >>> best = Best(2)
    >>> best.raise_to(np.array([1, 1, 0]), np.array([5, 7, 3])).tolist()
    [1, 0]
    >>> best.raise_to(np.array([1, 4]), np.array([6, 0])).tolist(), best.values.tolist()
    ([4], [3, 7, -1, -1, 0])
    """

    __slots__ = ("_mark", "values")

    def __init__(self, places: int) -> None:
        self.values: Column = np.full(places, MISSING, np.int64)
        self._mark: Column = np.empty(places, np.int64)

    def raise_to(self, places: Column, offers: Column) -> Column:
        """Take ``offers`` at ``places`` where they are better; return the places that have changed, each once."""
        if len(places) and (needed := int(places.max()) + 1) > len(self.values):
            grown = Best(max(needed, len(self.values) * 5 // 4))
            grown.values[: len(self.values)] = self.values
            grown.values[needed:] = MISSING
            self.values, self._mark = grown.values, grown._mark
        better = offers > self.values[places]
        places = places[better]
        np.maximum.at(self.values, places, offers[better])
        turns = np.arange(len(places))
        self._mark[places] = turns  # of the equal places the last one stays
        changed: Column = places[self._mark[places] == turns]
        return changed


class Propagation(Generic[T]):
    """One worker's part of one outer time: its edges, the best values of its nodes, and what it has offered to whom."""

    __slots__ = (
        "_best",
        "_counts",
        "_edges",
        "_offered",
        "_peers",
        "_pending",
        "_slots",
        "_starts",
        "_targets",
        "held",
        "result",
    )

    def __init__(self, peers: int, result: Capability[Product[T, int]]) -> None:
        self._peers = peers
        self._edges: list[Rows] | None = []
        self._pending: list[Rows] = []
        self._best = Best(0)
        self.held: Capability[Product[T, int]] | None = None
        self.result = result

    @property
    def waits(self) -> bool:
        """Whether it has not got all its edges yet."""
        return self._edges is not None

    def add_edges(self, edges: Rows) -> None:
        """Take in edges that start here."""
        assert self._edges is not None, "edges came after their time was complete"
        self._edges.append(edges)

    @property
    def given(self) -> tuple[list[Rows], list[Rows]]:
        """The edges and the offers that it has and has done nothing with."""
        return self._edges or [], self._pending

    def add_offers(
        self, offers: Rows, capability: InputCapability[Product[T, int]] | Capability[Product[T, int]], time: Product[T, int]
    ) -> None:
        """Take in values offered to nodes here at ``time``; ``held`` is then as late as the latest of them."""
        self._pending.append(offers)
        if self.held is None:
            self.held = capability.delayed(time)
        elif self.held.time < time:
            self.held.downgrade(time)

    def arrange(self) -> None:
        """All edges are here: sort them by their source, and give each target that there is a slot."""
        edges = join_rows(self._edges or [], 2)
        self._edges = None
        sources, targets = edges[:, 0] // self._peers, edges[:, 1]
        there = np.zeros(int(targets.max()) + 1 if len(targets) else 0, np.bool_)
        there[targets] = True
        self._targets: Column = np.flatnonzero(there)
        self._slots: Column = (np.cumsum(there) - 1)[targets[np.argsort(sources, kind="stable")]]
        self._counts: Column = np.bincount(sources)
        self._starts: Column = np.cumsum(self._counts) - self._counts
        self._offered = Best(len(self._targets))

    def improve(self) -> Rows:
        """Take the pending offers; return those to make in turn: at most one to a successor, better than before."""
        offers = join_rows(self._pending, 2)
        self._pending = []
        changed = self._best.raise_to(offers[:, 0] // self._peers, offers[:, 1])
        changed = changed[changed < len(self._counts)]  # nodes after the last source have no successors
        counts = self._counts[changed]
        ends = np.cumsum(counts)
        edges = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self._starts[changed] - ends + counts, counts)
        slots = self._offered.raise_to(self._slots[edges], np.repeat(self._best.values[changed], counts))
        return np.column_stack((self._targets[slots], self._offered.values[slots]))

    def values(self, worker: int) -> Rows:
        """Return ``(node, value)`` for every node that has a value."""
        places = np.flatnonzero(self._best.values != MISSING)
        return np.column_stack((places * self._peers + worker, self._best.values[places]))


Waiting: TypeAlias = tuple[Any, int, list[Rows], list[Rows]]
"""An outer time, the round that it is at, and the edges and offers that have come for it."""


class _Propagate(Generic[T]):
    """The logic of the operator in the loop."""

    __slots__ = ("peers", "times", "worker")

    def __init__(self, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        self.peers = info.peers
        self.worker = info.worker
        self.times: dict[T, Propagation[T]] = {}
        self._keep(capabilities, info)
        for capability in capabilities:
            capability.drop()

    def _keep(self, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        """Declare what has come at outer times that are not complete. One that is goes on to its end while anything moves."""
        offers, values = capabilities

        def save() -> Iterator[tuple[None, Waiting]]:
            for outer, part in self.times.items():
                if not part.waits:
                    raise StateError(f"{info.path}: what came at {outer!r} is being worked on, which cannot be kept")
                yield None, (outer, part.held.time.inner if part.held is not None else 0, *part.given)

        def load(items: Iterable[Waiting]) -> None:
            for outer, round, edges, pending in items:
                if outer not in self.times:
                    self.times[outer] = Propagation(self.peers, values.delayed(Product(outer, 0)))
                for rows in edges:
                    self.times[outer].add_edges(rows)
                for rows in pending:
                    self.times[outer].add_offers(rows, offers, Product(outer, round))

        def mine(batches: Sequence[Rows]) -> list[Rows]:
            return [rows[rows[:, 0] % info.peers == info.worker] for rows in batches]

        def rescale(parts: Sequence[Iterable[Waiting]]) -> None:
            for items in parts:
                load((outer, round, mine(edges), mine(pending)) for outer, round, edges, pending in items)

        info.register_state(save, load, rescale=rescale)

    def __call__(
        self,
        edges: InputPort[Product[T, int], Any],
        seeds: InputPort[Product[T, int], Any],
        again: InputPort[Product[T, int], Any],
        offers: OutputPort[Product[T, int]],
        values: OutputPort[Product[T, int]],
    ) -> None:
        batch: Any
        for capability, batch in edges:
            self.at(capability).add_edges(batch)
        for port in (seeds, again):
            for capability, batch in port:
                self.at(capability).add_offers(batch, capability, capability.time)
        for outer, part in list(self.times.items()):
            if part.waits:
                if _may_come(edges, outer):
                    continue
                part.arrange()
            if part.held is not None:
                with part.held as held:
                    offers.session(held).give_batch(part.improve())
                part.held = None
            elif not _may_come(again, outer) and not _may_come(seeds, outer):
                with part.result as result:
                    values.session(result).give_batch(part.values(self.worker))
                del self.times[outer]

    def at(self, capability: InputCapability[Product[T, int]]) -> Propagation[T]:
        """Return the part of the capability's outer time, made when there is none yet."""
        outer = capability.time.outer
        part = self.times.get(outer)
        if part is None:
            part = self.times[outer] = Propagation(self.peers, capability.retain(1))
        return part


def _may_come(port: InputPort[Product[T, int], Any], outer: T) -> bool:
    """Whether anything of an outer time, in whatever round, may still come at an input."""
    return any(time.outer <= outer for time in port.frontier)
