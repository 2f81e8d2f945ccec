"""Triangle count: a triangle is found once, by the last of its edges, so that edges added later only add triangles.

Each worker has the edges of its nodes, both ways, and each edge once. For a new edge, the end that has fewer edges goes
through them (which keeps hubs from being gone through for each of their edges), and for each of its other neighbours
asks the other end whether that one is its neighbour too. Of several new edges of a triangle, the one with the greatest
numbers counts as the last. The invariant: at the end of a time, the count of a node is the number of triangles in the
graph of all edges so far of which it is a corner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.graphs.decode import name_values
from timely.graphs.edge_set import EdgeSet, packed
from timely.graphs.encode import encode
from timely.graphs.gather import gather
from timely.graphs.input import next_time
from timely.graphs.pairs import Column, Rows, both_ways, distinct, first, join_rows, room
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def triangle_count(
    edges: Stream[T, Any], src: str = "src", dst: str = "dst", *, vertices: Stream[T, Any] | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, triangles)``: at each time the nodes that are new or are in more triangles.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; ``vertices`` are batches with a
    column ``node``, for nodes that no edge names. Directions, loops and repeated edges make no difference.
    ``triangles``, int64, says in how many triangles the node is a corner; a third of the sum over all nodes is the number
    of triangles. Edges stay for all later times, so the latest row of a node is its answer. A time costs, for each new
    edge, the number of edges of its less connected end. ``SchemaError``, as the cause of an ``OperatorError``, for
    columns that are missing, have nulls or other types; ``TimestampError`` for times of which neither comes before the
    other. Source: edge iteration over the smaller neighbourhood (Chiba and Nishizeki 1985).

    >>> import pyarrow as pa
    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = triangle_count(edges).capture()
    >>> handle.send_batch(pa.record_batch({"src": ["a", "b", "c", "c"], "dst": ["b", "c", "a", "d"]}))
    >>> handle.advance_to(1)
    >>> handle.send_batch(pa.record_batch({"src": ["d"], "dst": ["a"]}))
    >>> handle.close()
    >>> worker.run()
    >>> for time, rows in found.extract():
    ...     print(time, rows)
    0 [('a', 1), ('b', 1), ('c', 1), ('d', 0)]
    1 [('a', 2), ('c', 2), ('d', 1)]
    """
    numbers, names = encode(edges, src, dst, vertices=vertices, lasting=True)
    part = _Triangles()
    (told,) = gather("triangles: add", [(numbers.map_batch(both_ways), Exchange(first))], 1, part.add, keep=part.keep_edges)
    (chosen,) = gather("triangles: choose", [(told, Exchange(first))], 1, part.choose)
    (asked,) = gather("triangles: ask", [(chosen, Exchange(first))], 1, part.ask)
    (corners,) = gather("triangles: answer", [(asked, Exchange(_upper))], 1, part.answer)
    counted: list[tuple[Stream[T, Any], Pact]] = [(names, Pipeline), (corners, Exchange(first))]
    (counts,) = gather("triangles: count", counted, 1, part.count, keep=part.keep_counts)
    return name_values(names, counts, "triangles", lambda column: column)


class _Triangles:
    """One worker's part: the edges of its nodes, how many each has, and their counts of triangles."""

    __slots__ = ("_counts", "_degrees", "_edges", "_last", "_named", "_note_counts", "_note_edges", "_turn")

    def __init__(self) -> None:
        self._edges = EdgeSet()
        self._degrees: Column = np.empty(0, np.int64)
        self._counts: Column = np.empty(0, np.int64)
        self._last: Any = None
        self._named = 0
        self._turn = 0
        self._note_edges: Callable[[Any, Column], None] | None = None
        self._note_counts: Callable[[Rows], None] | None = None

    def add(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Take in edges of nodes here; tell the lower end of each new one ``(low, high, edges and turn of the high)``."""
        self._last = next_time(info, self._last, time)
        self._turn += 1
        rows = join_rows(collected[0], 2)
        new = self._grow(info, packed(rows[:, 0], rows[:, 1]))
        if self._note_edges is not None:
            self._note_edges(time, new)
        sources, targets = new >> 32, new & 0xFFFFFFFF
        high = sources > targets
        turn = np.full(int(high.sum()), self._turn)
        return [np.vstack((targets[high], sources[high], self._degrees[sources[high] // info.peers], turn)).T]

    def _grow(self, info: OperatorInfo, edges: Column) -> Column:
        """Take in edges, in this turn; return those that are new."""
        new = self._edges.add(edges, self._turn)
        places = (new >> 32) // info.peers
        self._degrees = degrees = room(self._degrees, int(places.max(initial=-1)) + 1, 0)
        np.add.at(degrees, places, 1)
        return new

    def choose(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        """Return ``(near, far, turn of the edge at far)``, where ``near`` is the end with fewer edges."""
        low, high, degree, turn = join_rows(collected[0], 4).T
        swap = degree < self._degrees[low // info.peers]
        at_low = self._edges.turns(packed(low, high))
        return [np.vstack((np.where(swap, high, low), np.where(swap, low, high), np.where(swap, at_low, turn))).T]

    def ask(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        """Return ``(packed far and third, near, turn of the edge at far)`` for the neighbours of ``near`` by older edges."""
        near, far, far_turn = join_rows(collected[0], 3).T
        which, third, turn = self._edges.find(near)
        mine = self._edges.turns(packed(near, far))
        older = _older(turn, near[which], third, mine[which], far[which])
        which, third = which[older], third[older]
        return [np.vstack((packed(far[which], third), near[which], far_turn[which])).T]

    def answer(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        """Return ``(node, triangles)`` for the corners of the triangles that are there."""
        asked, near, mine = join_rows(collected[0], 3).T
        far, third = asked >> 32, asked & 0xFFFFFFFF
        turn = self._edges.turns(asked)
        found = (turn >= 0) & _older(turn, far, third, mine, near)
        nodes, counts = np.unique(np.concatenate((near[found], far[found], third[found])), return_counts=True)
        return [np.vstack((nodes, counts)).T]

    def count(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        """Add up what has come; return ``(node, triangles)`` for the nodes that are new or have more."""
        new = np.concatenate([np.empty(0, np.int64), *(batch.column("id").to_numpy() for batch in collected[0])]) // info.peers
        self._named = max(self._named, int(new.max(initial=-1)) + 1)
        corners, more = join_rows(collected[1], 2).T
        places = corners // info.peers
        self._counts = counts = room(self._counts, self._named, 0)
        np.add.at(counts, places, more)
        changed = distinct((places, new), self._named)
        found = np.vstack((changed * info.peers + info.worker, counts[changed])).T
        if self._note_counts is not None:
            self._note_counts(found)
        return [found]

    # -- state ---------------------------------------------------------------------------------------------------------

    def keep_edges(self, info: OperatorInfo) -> None:
        """Declare the edges. All that there were before a checkpoint are older than all since, and of one turn will do."""

        def load(items: Iterable[tuple[Any, Column]]) -> None:
            for last, edges in items:
                self._last = last
                self._grow(info, edges)

        def rescale(parts: Sequence[Iterable[tuple[Any, Column]]]) -> None:
            for items in parts:
                load((last, edges[(edges >> 32) % info.peers == info.worker]) for last, edges in items)

        def save() -> Iterator[tuple[None, tuple[Any, Column]]]:
            if self._last is not None:
                yield None, (self._last, self._edges.edges())

        log = info.register_state(save, load, rescale=rescale, logged=True)
        if log.kept:
            self._note_edges = lambda time, edges: log.append(None, (time, edges))

    def keep_counts(self, info: OperatorInfo) -> None:
        """Declare the counts: ``(node, triangles)`` for every node that was named."""

        def load(items: Iterable[Rows]) -> None:
            for rows in items:
                places = rows[:, 0] // info.peers
                self._named = max(self._named, int(places.max(initial=-1)) + 1)
                self._counts = room(self._counts, self._named, 0)
                self._counts[places] = rows[:, 1]

        def rescale(parts: Sequence[Iterable[Rows]]) -> None:
            for items in parts:
                load(rows[rows[:, 0] % info.peers == info.worker] for rows in items)

        def save() -> Iterator[tuple[None, Rows]]:
            places = np.arange(self._named)
            yield None, np.vstack((places * info.peers + info.worker, self._counts[places])).T

        log = info.register_state(save, load, rescale=rescale, logged=True)
        if log.kept:
            self._note_counts = lambda rows: log.append(None, rows)


def _older(turn: Column, one: Column, other: Column, than_turn: Column, than: Column) -> Any:
    """Whether the edge between ``one`` and ``other`` comes before that between ``one`` and ``than``."""
    edge = packed(np.minimum(one, other), np.maximum(one, other))
    last = packed(np.minimum(one, than), np.maximum(one, than))
    return (turn < than_turn) | ((turn == than_turn) & (edge < last))


def _upper(rows: Rows) -> Column:
    return rows[:, 0] >> 32
