"""``propagate``: values travel along edges until every node has the greatest that reaches it.

A loop with one operator in it, without a count of rounds. Each node belongs to one worker, which has its outgoing edges and its
best value. When that improves, the node offers it to its successors, round the loop. A time ends when the frontier shows that
none of its offers is under way. Only then are the values output, and the state of the time is dropped. Offers may come in any
order, since the greatest value does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from timely.graphs.arrays import MISSING, Column, Rows, first, join_rows, last_of_equals, owned, ranges
from timely.graphs.state import register_state
from timely.operators import enter
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)


def propagate(edges: Stream[T, Any], seeds: Stream[T, Any], name: str = "propagate") -> Stream[T, Any]:
    """Return ``(node, value)`` for every node that any of ``seeds`` reaches along ``edges``: the greatest value that does.

    ``edges`` are arrays of ``(source, target)``, ``seeds`` of ``(node, value)``, with numbers of ``encode`` and values from 0
    up. A seed reaches its own node. Rows come when their time is complete, on the worker of their node. Source: the loops of
    Naiad section 2.1, and its connected components by labels.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2], [3, 2], [2, 1]]))
    ...     seeds = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 10], [3, 30]]))
    ...     return propagate(edges, seeds)
    >>> timely.example(build)
    [(0, [[0, 10], [1, 30], [2, 30], [3, 30]])]
    """
    return fixpoint(name, edges, seeds, _Propagate)


def fixpoint(
    name: str, edges: Stream[T, Any], seeds: Stream[T, Any], constructor: Callable[[list[Capability[Any]], OperatorInfo], Any]
) -> Stream[T, Any]:
    """Return what leaves a loop with one operator, whose logic gets the ports ``(edges, seeds, again, offers, results)``: offers
    come ``again`` in the next round. Everything is exchanged by its first column.
    """
    with scope_of(edges, name).iterative(name) as loop:
        handle, again = loop.feedback()
        builder = OperatorBuilder(loop, name)
        builder.new_input(edges.enter(loop), Exchange(first))
        builder.new_input(enter(seeds, loop), Exchange(first))
        builder.new_input(again, Pipeline)
        offers = builder.new_output()
        results = builder.new_output()
        builder.build(constructor)
        offers.connect_loop(handle, Exchange(first))
        return results.leave()


class Best:
    """The best value so far at each place of a growing array."""

    def __init__(self, places: int) -> None:
        self.values: Column = np.full(places, MISSING, np.int64)
        self._scratch: Column = np.empty(places, np.int64)

    def raise_to(self, places: Column, offers: Column) -> Column:
        """Set ``offers`` at ``places`` where they are better; return the places that changed, each once."""
        if len(places) and (needed := int(places.max()) + 1) > len(self.values):
            grown = Best(max(needed, len(self.values) * 5 // 4))
            grown.values[: len(self.values)] = self.values
            self.values, self._scratch = grown.values, grown._scratch
        better = offers > self.values[places]
        places = places[better]
        np.maximum.at(self.values, places, offers[better])
        return places[last_of_equals(places, self._scratch)]


class Propagation(Generic[T]):
    """One worker's part of one outer time: its edges, the best values of its nodes, and of its offers to each target."""

    def __init__(self, peers: int, result: Capability[Product[T, int]]) -> None:
        self._peers = peers
        self._edges: list[Rows] | None = []
        self._pending: list[Rows] = []
        self._best = Best(0)
        self.held: Capability[Product[T, int]] | None = None
        self.result = result

    @property
    def waits(self) -> bool:
        """Whether more edges may come."""
        return self._edges is not None

    @property
    def pending(self) -> tuple[list[Rows], list[Rows]]:
        """The edges and the offers that are not processed yet."""
        return self._edges or [], self._pending

    def add_edges(self, edges: Rows) -> None:
        assert self._edges is not None, "edges came after their time was complete"
        self._edges.append(edges)

    def add_offers(
        self, offers: Rows, capability: InputCapability[Product[T, int]] | Capability[Product[T, int]], time: Product[T, int]
    ) -> None:
        """Add values offered to nodes here at ``time``; hold a capability of the latest such time."""
        self._pending.append(offers)
        if self.held is None:
            self.held = capability.delayed(time)
        elif self.held.time < time:
            self.held.downgrade(time)

    def arrange(self) -> None:
        """Sort the edges by source, and give each distinct target a slot. All edges have come."""
        edges = join_rows(self._edges or [], 2)
        self._edges = None
        sources, targets = edges[:, 0] // self._peers, edges[:, 1]
        is_target = np.zeros(int(targets.max()) + 1 if len(targets) else 0, np.bool_)
        is_target[targets] = True
        self._targets: Column = np.flatnonzero(is_target)
        self._slots: Column = (np.cumsum(is_target) - 1)[targets[np.argsort(sources, kind="stable")]]
        self._counts: Column = np.bincount(sources)
        self._starts: Column = np.cumsum(self._counts) - self._counts
        self._offered = Best(len(self._targets))

    def improve(self) -> Rows:
        """Process the pending offers; return the offers that result, at most one to a target, better than before."""
        offers = join_rows(self._pending, 2)
        self._pending = []
        changed = self._best.raise_to(offers[:, 0] // self._peers, offers[:, 1])
        changed = changed[changed < len(self._counts)]  # nodes after the last source have no successors
        counts = self._counts[changed]
        edges = ranges(self._starts[changed], counts)
        slots = self._offered.raise_to(self._slots[edges], np.repeat(self._best.values[changed], counts))
        return np.column_stack((self._targets[slots], self._offered.values[slots]))

    def values(self, worker: int) -> Rows:
        """Return ``(node, value)`` for every node that has a value."""
        places = np.flatnonzero(self._best.values != MISSING)
        return np.column_stack((places * self._peers + worker, self._best.values[places]))


Pending: TypeAlias = tuple[Any, int, list[Rows], list[Rows]]
"""An outer time, its round, and its edges and offers."""


class _Propagate(Generic[T]):
    """The logic of the operator in the loop."""

    def __init__(self, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        self.peers = info.peers
        self.worker = info.worker
        self.times: dict[T, Propagation[T]] = {}
        self.register(capabilities, info)
        for capability in capabilities:
            capability.drop()

    def register(self, capabilities: list[Capability[Product[T, int]]], info: OperatorInfo) -> None:
        """Register the input of outer times that are not complete; a checkpoint is never in the middle of one that is."""
        offers, values = capabilities

        def save() -> Iterator[Pending]:
            for outer, part in self.times.items():
                if not part.waits:
                    raise StateError(f"{info.path}: {outer!r} is being processed, which a checkpoint cannot hold")
                yield outer, part.held.time.inner if part.held is not None else 0, *part.pending

        def load(item: Pending) -> None:
            outer, round, edges, pending = item
            if outer not in self.times:
                self.times[outer] = Propagation(self.peers, values.delayed(Product(outer, 0)))
            for rows in edges:
                self.times[outer].add_edges(rows)
            for rows in pending:
                self.times[outer].add_offers(rows, offers, Product(outer, round))

        def repartition(item: Pending, *_: int) -> Iterator[Pending]:
            outer, round, edges, pending = item
            yield outer, round, [owned(info, rows) for rows in edges], [owned(info, rows) for rows in pending]

        register_state(info, save, load, repartition, logged=False)

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
        outer = capability.time.outer
        part = self.times.get(outer)
        if part is None:
            part = self.times[outer] = Propagation(self.peers, capability.retain(1))
        return part


def _may_come(port: InputPort[Product[T, int], Any], outer: T) -> bool:
    """Return whether anything of an outer time, in whatever round, may still come at an input."""
    return any(time.outer <= outer for time in port.frontier)
