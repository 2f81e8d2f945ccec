"""``propagate``: values travel along edges until every node has the greatest that reaches it.

A loop with one operator in it, without a count of rounds. Each node belongs to one worker, which has its outgoing edges and its
best value. When that improves, the node offers it to its successors in the next round. A time ends when the frontier shows that
none of its offers is under way. Only then are the values output, and the state of the time is dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.graphs.stages.gathering import Collected, drained, gather_loop, optional
from timely.graphs.stages.repartitioned_state import register_parts
from timely.graphs.structures.adjacency import Adjacency
from timely.graphs.structures.arrays import MISSING, Column, Rows, distinct, first, join_rows, joined_blocks, last_of_equals
from timely.memory import Spool
from timely.operators.type_variables import T
from timely.order import Product

Seeds: TypeAlias = Callable[[Column, T], Column]
"""Returns the first value of each of a worker's nodes at a time."""


def propagate(edges: Stream[T, Any], seeds: Stream[T, Any] | Seeds[T], name: str = "propagate") -> Stream[T, Any]:
    """Return ``(node, value)`` for every node that any of ``seeds`` reaches along ``edges``: the greatest value that does.

    ``edges`` are arrays of ``(source, target)``, ``seeds`` of ``(node, value)``, with numbers of ``encode`` and values from 0
    up. Or ``seeds(nodes, time)`` returns a value for each node with outgoing edges. A seed reaches its own node. Rows come when
    their time is complete, on the worker of their node. Source: the loops of Naiad section 2.1, and its connected components by
    labels.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2], [3, 2], [2, 1]]))
    ...     seeds = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 10], [3, 30]]))
    ...     return propagate(edges, seeds)
    >>> timely.example(build)
    [(0, [[0, 10], [1, 30], [2, 30], [3, 30]])]
    """
    propagating: _Propagating[T] = _Propagating(None if isinstance(seeds, Stream) else seeds)
    inputs = [(edges, Exchange(first)), *optional(seeds if isinstance(seeds, Stream) else None, Exchange(first))]
    return gather_loop(name, inputs, Exchange(first), propagating.finish, keep=propagating.register, ended=propagating.values)


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


class Propagation:
    """One worker's part of one outer time: its edges, the best values of its nodes, and of its offers to each target."""

    def __init__(self, info: OperatorInfo, edges: Collected) -> None:
        self._worker, self._peers = info.worker, info.peers
        self._adjacency = Adjacency(1, info.worker, info.peers)
        self._adjacency.add(edges if isinstance(edges, Spool) else join_rows(edges, 2))
        self._adjacency.sort()
        self._best = Best(0)
        self._offered = Best(0)

    def sources(self) -> Column:
        """Return the nodes that have edges."""
        return self._adjacency.nodes()

    def improve(self, offers: Iterable[Rows]) -> Rows:
        """Process offers; return the offers that result, one to a target, better than before."""
        changed = _once([self._best.raise_to(rows[:, 0] // self._peers, rows[:, 1]) for rows in offers], self._best)
        values, nodes = self._best.values[changed], changed * self._peers + self._worker
        raised = [self._offered.raise_to(targets, values[at]) for at, (targets,) in self._adjacency.find(nodes)]
        targets = _once(raised, self._offered)
        return np.column_stack((targets, self._offered.values[targets]))

    def values(self) -> Rows:
        """Return ``(node, value)`` for every node that has a value."""
        places = np.flatnonzero(self._best.values != MISSING)
        return np.column_stack((places * self._peers + self._worker, self._best.values[places]))


def _once(parts: list[Column], best: Best) -> Column:
    """Return the places of all parts, each once."""
    return parts[0] if len(parts) == 1 else distinct(parts, len(best.values))


class _Propagating(Generic[T]):
    """The finish functions of one worker."""

    def __init__(self, seeds: Seeds[T] | None) -> None:
        self._seeds = seeds
        self._parts: dict[T, Propagation] = {}

    def register(self, info: OperatorInfo) -> None:
        """Register the edges and values of each outer time."""
        register_parts(info, self._parts, "propagation/1")

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        edges, *offers = collected
        sources = []
        if time.outer not in self._parts:
            part = self._parts[time.outer] = Propagation(info, edges)
            if self._seeds is not None:
                nodes = part.sources()
                sources = [np.column_stack((nodes, self._seeds(nodes, time.outer)))]
        arrays = itertools.chain(sources, *map(drained, offers))
        return [self._parts[time.outer].improve(joined_blocks(arrays)), []]

    def values(self, info: OperatorInfo, outer: T) -> Rows:
        """Return the values, and forget the time."""
        return self._parts.pop(outer).values()
