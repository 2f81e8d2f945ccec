"""Connected components: each worker joins what its own edges connect, and one worker joins what the workers have found.

No round goes along the edges, so that a long path costs no more than a short one. A worker keeps a ``Forest`` of the
nodes that it has seen, for all times. At the end of a time it passes on one link for each component of its own that has
become part of another, and for each new node; that is, over all times, at most two rows for each of its nodes however
many edges it has. Worker 0 does the same with these links, and names the components. The invariant: the nodes that the
links passed on connect are those that the edges connect. The nodes of the whole graph must fit into worker 0; its edges
need not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.graphs.forest import Forest
from timely.graphs.gather import gather
from timely.graphs.input import edge_columns, next_time, vertex_columns
from timely.graphs.numbers import Names, Numbers, ranks
from timely.graphs.pairs import Column, distinct, room
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def connected_components(
    edges: Stream[T, Any], src: str = "src", dst: str = "dst", *, vertices: Stream[T, Any] | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, component)``, on worker 0: at each time the nodes that are new or whose component has
    another name.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type, which may be any that Arrow can
    sort; ``vertices`` are batches with a column ``node``, for nodes that no edge names. Two nodes have the same
    ``component`` if a path joins them, whatever the direction of its edges; it is the smallest node among them. Edges
    stay for all later times, so the latest row of a node is its answer, and at the first time there is one for every
    node. A time costs what its edges and new nodes do, and, if it gives nodes of earlier times another name, a pass over
    all nodes. ``SchemaError`` as the cause of an ``OperatorError`` for columns that are missing, have nulls or other
    types, and ``TimestampError`` for times of which neither comes before the other. Source: union-find, as hooking and
    pointer jumping on arrays (Shiloach and Vishkin 1982).

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = connected_components(edges).capture()
    >>> handle.send_batch(pa.record_batch({"src": ["b", "d"], "dst": ["c", "e"]}))
    >>> handle.advance_to(1)
    >>> handle.send_batch(pa.record_batch({"src": ["c", "e"], "dst": ["a", "d"]}))
    >>> handle.close()
    >>> worker.run()
    >>> for time, rows in found.extract():
    ...     print(time, rows)
    0 [('b', 'b'), ('c', 'b'), ('d', 'd'), ('e', 'd')]
    1 [('a', 'a'), ('b', 'a'), ('c', 'a')]
    """
    given: list[tuple[Stream[T, Any], Pact]] = [(edges, Pipeline)]
    if vertices is not None:
        given.append((vertices, Pipeline))
    if edges.scope.allocator.peers > 1:
        (links,) = gather("components: link", given, 1, _Links(src, dst).finish)
        given = [(links, Exchange("to"))]
        src, dst = "src", "dst"
    (named,) = gather("components: name", given, 1, _Components(src, dst).finish)
    return named


class _Seen:
    """What one worker has seen so far: its nodes by number, and which of them are connected."""

    __slots__ = ("_given", "_kind", "_last", "forest", "names", "numbers")

    def __init__(self, src: str, dst: str) -> None:
        self._given = (src, dst)
        self._last: Any = None
        self._kind: pa.DataType | None = None
        self.numbers = Numbers()
        self.names = Names()
        self.forest = Forest()

    def take(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> tuple[int, Column]:
        """Take in the edges and vertices of a time; return the first new number, and what was absorbed."""
        self._last = next_time(info, self._last, time)
        ends = edge_columns(info, collected[0], *self._given, self._kind)
        alone = vertex_columns(info, collected[1] if len(collected) > 1 else [], ends[0].type if ends else self._kind)
        self._kind = (ends or alone)[0].type
        new = len(self.numbers)
        nodes, fresh = self.numbers.number(pa.concat_arrays(ends + alone))
        self.names.add(fresh)
        self.forest.grow(len(self.numbers))
        edges = sum(map(len, ends)) // 2
        return new, self.forest.join(nodes[:edges], nodes[edges : 2 * edges])


class _Links:
    """The first stage, on every worker."""

    def __init__(self, src: str, dst: str) -> None:
        self._seen = _Seen(src, dst)

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return a link to its root for every node that is new or no root any more."""
        seen = self._seen
        new, absorbed = seen.take(info, time, collected)
        moved = np.concatenate((absorbed[absorbed < new], np.arange(new, len(seen.forest))))
        if not len(moved):
            return [[]]
        ends = {"src": seen.names.take(moved), "dst": seen.names.take(seen.forest.roots(moved))}
        return [pa.record_batch({**ends, "to": np.zeros(len(moved), np.int64)})]


class _Components:
    """The second stage, on worker 0 alone."""

    def __init__(self, src: str, dst: str) -> None:
        self._seen = _Seen(src, dst)
        self._least = np.empty(0, np.int64)  # of each root, the smallest node of its component
        self._order = np.empty(0, np.int64)
        self._told = np.empty(0, np.int64)

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return the nodes whose component has got a name, or another one."""
        seen = self._seen
        new, absorbed = seen.take(info, time, collected)
        nodes = len(seen.forest)
        self._order = room(self._order, nodes)
        self._told = room(self._told, nodes)
        self._least = room(self._least, nodes)
        self._least[new:nodes] = np.arange(new, nodes)
        considered = np.arange(0 if self._join_names(absorbed, new) else new, nodes)
        names = self._least[seen.forest.roots(considered)]
        changed = names != self._told[considered]
        self._told[considered] = names
        if not changed.any():
            return [[]]
        found = {"node": considered[changed], "component": names[changed]}
        return [pa.record_batch({name: seen.names.take(numbers) for name, numbers in found.items()})]

    def _join_names(self, absorbed: Column, new: int) -> bool:
        """Give each root that has absorbed others the least of their names; return whether a node below ``new`` has another."""
        if not len(absorbed):
            return False
        forest = self._seen.forest
        roots = distinct(np.concatenate((absorbed, forest.roots(absorbed))), len(forest))
        names = self._least[roots]
        order = ranks(self._seen.names.take(names))
        by_order = np.empty(len(roots), np.int64)
        by_order[order] = names
        now = forest.roots(roots)
        self._order[now] = len(roots)
        np.minimum.at(self._order, now, order)
        self._least[roots] = by_order[self._order[now]]
        return bool((self._least[roots] != names)[roots < new].any())
