"""``propagate``: values travel along edges until every node has the greatest that reaches it.

A loop with one operator in it, without a count of rounds. Each node belongs to one worker, which has its outgoing edges and its
best value. When that improves, the node offers it to its successors in the next round. A time ends when the frontier shows that
none of its offers is under way. Only then are the values output, and the state of the time is dropped.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.graphs.arrays import MISSING, Column, Rows, first, join_rows, last_of_equals, ranges
from timely.graphs.gathering import gather, gather_loop
from timely.graphs.state import register_parts
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
    propagating: _Propagating[T] = _Propagating()
    inputs: list[tuple[Stream[T, Any], Pact]] = [(edges, Exchange(first)), (seeds, Exchange(first))]
    ended = gather_loop(name, inputs, Exchange(first), propagating.finish, keep=propagating.register)
    (values,) = gather(f"{name}: values", [(ended, Pipeline)], 1, propagating.values)
    return values


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

    def __init__(self, info: OperatorInfo, edges: Rows) -> None:
        self._worker, self._peers = info.worker, info.peers
        sources, targets = edges[:, 0] // info.peers, edges[:, 1]
        is_target = np.zeros(int(targets.max()) + 1 if len(targets) else 0, np.bool_)
        is_target[targets] = True
        self._targets: Column = np.flatnonzero(is_target)
        self._slots: Column = (np.cumsum(is_target) - 1)[targets[np.argsort(sources, kind="stable")]]
        self._counts: Column = np.bincount(sources)
        self._starts: Column = np.cumsum(self._counts) - self._counts
        self._best = Best(0)
        self._offered = Best(len(self._targets))

    def improve(self, offers: Rows) -> Rows:
        """Process offers; return the offers that result, at most one to a target, better than before."""
        changed = self._best.raise_to(offers[:, 0] // self._peers, offers[:, 1])
        changed = changed[changed < len(self._counts)]  # nodes after the last source have no successors
        counts = self._counts[changed]
        edges = ranges(self._starts[changed], counts)
        slots = self._offered.raise_to(self._slots[edges], np.repeat(self._best.values[changed], counts))
        return np.column_stack((self._targets[slots], self._offered.values[slots]))

    def values(self) -> Rows:
        """Return ``(node, value)`` for every node that has a value."""
        places = np.flatnonzero(self._best.values != MISSING)
        return np.column_stack((places * self._peers + self._worker, self._best.values[places]))


class _Propagating(Generic[T]):
    """The finish functions of one worker."""

    def __init__(self) -> None:
        self._parts: dict[T, Propagation] = {}

    def register(self, info: OperatorInfo) -> None:
        """Register the edges and values of each outer time."""
        register_parts(info, self._parts)

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        """Return offers, and a tick at the first round of an outer time."""
        edges, seeds, again = collected
        ticks = []
        if time.outer not in self._parts:
            self._parts[time.outer] = Propagation(info, join_rows(edges, 2))
            ticks = [0]
        return [self._parts[time.outer].improve(join_rows([*seeds, *again], 2)), ticks]

    def values(self, info: OperatorInfo, outer: T, _: object) -> list[Any]:
        """Return the values, and forget the time."""
        return [self._parts.pop(outer).values()]
