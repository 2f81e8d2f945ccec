"""Label propagation: in each round every node takes the label that most of its neighbours have.

A loop with one operator in it. Each worker stores the last label of every node at the other end of an edge of its nodes. Only
nodes with a new label send it, and only nodes that received one vote again, so a round costs the edges of what has changed. Nodes
are numbered in their own order, so that the smaller label is the smaller node on any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.errors import ConfigurationError
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.gathering import Collected, collector, drained, gather, gather_loop
from timely.graphs.stages.node_joins import attach
from timely.graphs.stages.repartitioned_state import register_parts
from timely.graphs.structures.adjacency import Adjacency
from timely.graphs.structures.arrays import (
    Column,
    Rows,
    both_ways,
    distinct,
    first,
    join_rows,
    run_starts,
    sorted_distinct,
    sorted_order,
)
from timely.graphs.structures.dictionary import ranks
from timely.memory import Spool
from timely.operators.type_variables import T
from timely.order import Product


def label_propagation(
    edges: Stream[T, Any],
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: Stream[T, Any] | None = None,
    rounds: int = 10,
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, label)``: one row for each node of the graph, over all workers together.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type that Arrow can sort; ``vertices`` are
    batches with a column ``node``, for nodes without edges. Directions make no difference, self-loops are dropped, and repeated
    edges count. At first each node is its own label. In a round all nodes at once take the label that most of their edges lead
    to, of several the smallest. That ends when no label changes, or after so many ``rounds``: the two nodes of a lone edge
    would swap labels for ever. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for
    columns that are missing, have nulls or other types; ``ConfigurationError`` for ``rounds`` below 0. Source: Raghavan, Albert
    and Kumara 2007.

    >>> import timely
    >>> def build(scope):
    ...     edges = pa.record_batch({"src": ["a", "a", "b", "x", "x", "y"], "dst": ["b", "c", "c", "y", "z", "z"]})
    ...     return label_propagation(scope.to_stream([0]).map_batch(lambda _: edges))
    >>> timely.example(build)
    [(0, [('a', 'a'), ('b', 'a'), ('c', 'a'), ('x', 'x'), ('y', 'x'), ('z', 'x')])]
    """
    check_rounds(rounds)
    numbers, names = _in_order(*encode(edges, src, dst, vertices=vertices))
    voting: _Voting[T] = _Voting(rounds)
    edges_of = [(numbers.map_batch(both_ways), Exchange(first))]
    ended = gather_loop("labels", edges_of, Exchange(first), voting.finish, keep=voting.register)
    (labelled,) = gather("labels: node", [(names, Pipeline), (ended, Pipeline)], 1, voting.labels)
    (named,) = gather("labels: name", [(names, Pipeline), (labelled, Exchange("label"))], 1, _name)
    return named


def check_rounds(rounds: int) -> None:
    """Raise ``ConfigurationError`` for an invalid number of rounds."""
    if not (isinstance(rounds, int) and rounds >= 0):
        raise ConfigurationError(f"label_propagation: rounds must be 0 or more, not {rounds!r}")


def _in_order(numbers: Stream[T, Any], names: Stream[T, Any]) -> tuple[Stream[T, Any], Stream[T, Any]]:
    """Return the result of ``encode`` with other numbers, in the order of the nodes. Worker 0 sorts them."""
    routed = names.map_batch(lambda batch: batch.append_column("to", pa.array(np.zeros(len(batch), np.int64))))
    places, ordered = gather("labels: order", [(routed, Exchange("to"))], 2, _sort)
    attached = attach(attach(numbers, places, 0), places, 1).map_batch(lambda rows: rows[:, 2:])
    (named,) = gather("labels: names", [(ordered, Exchange("id"))], 1, lambda _, __, collected: [pa.concat_batches(collected[0])])
    return attached, named


def _sort(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
    """Return ``(number, rank)``, and the names in their order."""
    batch = pa.concat_batches(collected[0])
    place = ranks(batch.column("value"))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    names = {"id": np.arange(len(place)), "value": batch.column("value").take(pa.array(order))}
    return [np.vstack((batch.column("id").to_numpy(), place)).T, pa.record_batch(names)]


class _Part:
    """One worker's nodes of one outer time: their edges, and the labels of all nodes at the other ends."""

    def __init__(self, info: OperatorInfo, edges: Collected) -> None:
        self._peers = info.peers
        self._by_node, self._by_neighbour, self._workers = adjacencies = [Adjacency(1) for _ in range(3)]
        reverse: Collected = collector()
        nodes = neighbours = 0
        for rows in edges:
            reverse.append(rows[:, ::-1])
            nodes, neighbours = max(nodes, int(rows[:, 0].max()) + 1), max(neighbours, int(rows[:, 1].max()) + 1)
        self._by_neighbour.add(reverse if isinstance(reverse, Spool) else join_rows(reverse, 2))
        self._by_node.add(edges if isinstance(edges, Spool) else join_rows(edges, 2))
        pairs = [sorted_distinct(rows[:, 0] * info.peers + rows[:, 1] % info.peers) for rows in self._by_node.rows()]
        at = np.concatenate(pairs)
        self._workers.add(np.vstack((at // info.peers, at % info.peers)).T)
        for adjacency in adjacencies:
            adjacency.sort()  # the first rounds find nearly all edges
        self._labels: Column = np.arange(neighbours)
        self.own: Column = np.arange((nodes - 1) // info.peers + 1) * info.peers + info.worker

    def nodes(self) -> Column:
        return self._by_node.nodes()

    def receive(self, messages: Iterable[Rows]) -> Column:
        """Store the labels of neighbours, ``(worker, node, label)``; return the nodes next to them."""
        changed = [np.empty(0, np.int64)]
        for _, nodes, labels in (rows.T for rows in messages):
            self._labels[nodes] = labels
            changed.append(nodes)
        neighbours = (nodes for (nodes,) in self._by_neighbour.columns_of(np.concatenate(changed)))
        return distinct(neighbours, len(self.own) * self._peers)

    def vote(self, nodes: Column) -> Rows:
        """Give ``nodes`` the labels that most of their edges lead to; return ``(node, label)`` for those that change."""
        elected = [self._elect(nodes, places, neighbours) for places, (neighbours,) in self._by_node.find(nodes)]
        changed = np.concatenate([np.empty((0, 2), np.int64), *elected])
        self.own[changed[:, 0] // self._peers] = changed[:, 1]
        return changed

    def _elect(self, nodes: Column, places: Column, neighbours: Column) -> Rows:
        votes = places << 32 | self._labels[neighbours]
        votes = votes[sorted_order(votes)]
        starts = run_starts(votes)
        counts = np.diff(np.append(starts, len(votes)))
        voter, label = votes[starts] >> 32, votes[starts] & 0xFFFFFFFF
        firsts = run_starts(voter)
        most = np.repeat(np.maximum.reduceat(counts, firsts), np.diff(np.append(firsts, len(voter))))
        winning = np.flatnonzero(counts == most)
        winning = winning[run_starts(voter[winning])]  # of several the first, which is the smallest label
        nodes, won = nodes[voter[winning]], label[winning]
        changed = won != self.own[nodes // self._peers]
        return np.vstack((nodes[changed], won[changed])).T

    def messages(self, changed: Rows) -> Rows:
        """Return ``(worker, node, label)`` for every worker that has neighbours of a changed node."""
        parts = [np.vstack((workers, changed[places].T)).T for places, (workers,) in self._workers.find(changed[:, 0])]
        return np.concatenate([np.empty((0, 3), np.int64), *parts])


class _Voting(Generic[T]):
    """The finish functions of one worker."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._parts: dict[T, _Part] = {}

    def register(self, info: OperatorInfo) -> None:
        """Register the edges and labels of each outer time."""
        register_parts(info, self._parts, "labels/1")

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        edges, messages = collected
        outer, round = time
        if len(edges):
            part = self._parts[outer] = _Part(info, edges)
            nodes = part.nodes()
        else:
            part = self._parts[outer]
            nodes = part.receive(drained(messages))
        if round == self._rounds:
            return [[], []]
        return [part.messages(part.vote(nodes)), []]

    def labels(self, info: OperatorInfo, outer: T, collected: list[list[Any]]) -> list[Any]:
        """Return ``(number of the label, node)``, and forget the time."""
        (names,) = collected[0]
        labels = names.column("id").to_numpy().copy()
        part = self._parts.pop(outer, None)
        if part is not None:  # nodes after the last one that has edges are their own labels
            labels[: len(part.own)] = part.own
        return [pa.record_batch({"label": labels, "node": names.column("value")})]


def _name(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
    """Return ``(node, label)``."""
    if not collected[1]:
        return [[]]
    (names,), labelled = collected[0], pa.concat_batches(collected[1])
    places = labelled.column("label").to_numpy() // info.peers
    label = names.column("value").take(pa.array(places))
    return [pa.record_batch({"node": labelled.column("node"), "label": label})]
