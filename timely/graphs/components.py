"""Connected components: each worker joins what its own edges connect, and one worker joins what the workers have found.

No round goes along the edges, so that a long path costs no more than a short one. A worker keeps a ``Forest`` of the
nodes that it has seen, for all times. At the end of a time it passes on one link for each component of its own that has
become part of another, and for each new node; that is, over all times, at most two rows for each of its nodes however
many edges it has. Worker 0 does the same with these links, and names the components. The invariant: the nodes that the
links passed on connect are those that the edges connect. The nodes of the whole graph must fit into worker 0; its edges
need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream, scope_of
from timely.graphs.forest import Forest
from timely.graphs.gather import gather
from timely.graphs.input import edge_columns, next_time, vertex_columns
from timely.graphs.numbers import Names, Numbers, ranks
from timely.graphs.pairs import Column, Rows, distinct, join_rows, room
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
    linking, naming = _Links(src, dst), _Components("src", "dst")
    finish = linking.finish if scope_of(edges, "connected_components").allocator.peers > 1 else linking.pass_on
    (links,) = gather("components: link", given, 1, finish, keep=linking.keep)
    (named,) = gather("components: name", [(links, Exchange("to"))], 1, naming.finish, keep=naming.keep)
    return named


Known: TypeAlias = tuple[Any, pa.RecordBatch, Rows, Rows]
"""What has been seen: the last time, the new nodes in the order of their numbers, ``(node, root)`` by number for those that are
no roots any more, and ``(node, name)`` for those that have got another name."""


class _Seen:
    """What one worker has seen so far: its nodes by number, and which of them are connected."""

    __slots__ = ("_given", "_kind", "_last", "forest", "names", "note", "numbers")

    def __init__(self, src: str, dst: str) -> None:
        self._given = (src, dst)
        self._last: Any = None
        self._kind: pa.DataType | None = None
        self.numbers = Numbers()
        self.names = Names()
        self.forest = Forest()
        self.note: Callable[[Known], None] | None = None

    def keep(self, info: OperatorInfo, told: Callable[[], Rows], load: Callable[[Known], None]) -> None:
        """Declare what was seen. On another number of workers only worker 0 goes on with what it had: the others find out
        again what they had, and what they pass on is known already.
        """

        def save() -> Iterator[tuple[None, Known]]:
            if self._kind is not None:
                nodes = np.arange(len(self.forest))
                roots = self.forest.roots(nodes)
                joined = nodes != roots
                yield None, (self._last, self._values(0), np.vstack((nodes[joined], roots[joined])).T, told())

        def rescale(parts: Sequence[Iterable[Known]]) -> None:
            for place, items in enumerate(parts):
                for known in items:
                    self.learn_type(known)
                    if place == info.worker == 0:
                        load(known)

        def load_all(items: Iterable[Known]) -> None:
            for known in items:
                load(known)

        log = info.register_state(save, load_all, rescale=rescale, logged=True)
        if log.kept:
            self.note = lambda known: log.append(None, known)

    def known(self, new: int, absorbed: Column, told: Rows) -> Known:
        """Return what a time has added to what was known."""
        roots = self.forest.roots(absorbed)
        return self._last, self._values(new), np.vstack((absorbed, roots)).T, told

    def learn(self, known: Known) -> None:
        """Take in what another run knew, or has added. A root is the least number of its component, and so the same again."""
        self._last, batch, joined, _ = known
        values = batch.column("value")
        self._kind = values.type
        self.numbers.learn(values)
        self.names.add(values)
        self.forest.grow(len(self.numbers))
        self.forest.join(*joined.T)

    def _values(self, new: int) -> pa.RecordBatch:
        """Return the nodes from number ``new`` on."""
        if new == len(self.numbers):
            return pa.record_batch({"value": pa.array([], self._kind)})
        return pa.record_batch({"value": self.names.take(np.arange(new, len(self.numbers)))})

    def learn_type(self, known: Known) -> None:
        """Take in of what type the nodes are."""
        self._last, self._kind = known[0], known[1].column("value").type

    def columns(self, info: OperatorInfo, collected: list[list[Any]]) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the sources of the edges and after them the targets, and the vertices."""
        ends = edge_columns(info, collected[0], *self._given, self._kind)
        alone = vertex_columns(info, collected[1] if len(collected) > 1 else [], ends[0].type if ends else self._kind)
        self._kind = (ends or alone)[0].type
        return ends, alone

    def take(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> tuple[int, Column]:
        """Take in the edges and vertices of a time; return the first new number, and what was absorbed."""
        self._last = next_time(info, self._last, time)
        ends, alone = self.columns(info, collected)
        new = len(self.numbers)
        nodes, fresh = self.numbers.number(*ends, *alone)
        self.names.add(fresh)
        self.forest.grow(len(self.numbers))
        edges = sum(map(len, ends)) // 2
        return new, self.forest.join(nodes[:edges], nodes[edges : 2 * edges])


class _Links:
    """The first stage, on every worker; with one worker it has nothing to do but is there, so that a run can go on with more."""

    def __init__(self, src: str, dst: str) -> None:
        self._seen = _Seen(src, dst)

    def keep(self, info: OperatorInfo) -> None:
        """Declare what was seen, if it may be forgotten on other workers."""
        self._seen.keep(info, lambda: join_rows([], 2), self._seen.learn if info.peers > 1 else self._seen.learn_type)

    def pass_on(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges as they are, and a loop for each vertex."""
        ends, alone = self._seen.columns(info, collected)
        sources, targets = ends[: len(ends) // 2], ends[len(ends) // 2 :]
        columns = {"src": _one(sources + alone), "dst": _one(targets + alone)}
        return [pa.record_batch({**columns, "to": np.zeros(len(columns["src"]), np.int64)})]

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return a link to its root for every node that is new or no root any more."""
        seen = self._seen
        new, absorbed = seen.take(info, time, collected)
        if seen.note is not None:
            seen.note(seen.known(new, absorbed, join_rows([], 2)))
        moved = np.concatenate((absorbed[absorbed < new], np.arange(new, len(seen.forest))))
        if not len(moved):
            return [[]]
        ends = {"src": seen.names.take(moved), "dst": seen.names.take(seen.forest.roots(moved))}
        return [pa.record_batch({**ends, "to": np.zeros(len(moved), np.int64)})]


def _one(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


class _Components:
    """The second stage, on worker 0 alone."""

    def __init__(self, src: str, dst: str) -> None:
        self._seen = _Seen(src, dst)
        self._least = np.empty(0, np.int64)  # of each root, the smallest node of its component
        self._order = np.empty(0, np.int64)
        self._told = np.empty(0, np.int64)

    def keep(self, info: OperatorInfo) -> None:
        """Declare what was seen, and which names were told."""

        def told() -> Rows:
            nodes = np.arange(len(self._seen.forest))
            return np.vstack((nodes, self._told[nodes])).T

        self._seen.keep(info, told, self._learn)

    def _learn(self, known: Known) -> None:
        """Take in what another run knew, or has added: a root's name is that of its component."""
        self._seen.learn(known)
        nodes, names = known[3].T
        self._reach(len(self._seen.forest))
        self._told[nodes] = names
        self._least[self._seen.forest.roots(nodes)] = names

    def _reach(self, nodes: int) -> None:
        """Have room for so many nodes."""
        self._order, self._told, self._least = (room(table, nodes) for table in (self._order, self._told, self._least))

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return the nodes whose component has got a name, or another one."""
        seen = self._seen
        new, absorbed = seen.take(info, time, collected)
        nodes = len(seen.forest)
        self._reach(nodes)
        self._least[new:nodes] = np.arange(new, nodes)
        considered = np.arange(0 if self._join_names(absorbed, new) else new, nodes)
        names = self._least[seen.forest.roots(considered)]
        changed = names != self._told[considered]
        self._told[considered] = names
        if seen.note is not None:
            seen.note(seen.known(new, absorbed, np.vstack((considered[changed], names[changed])).T))
        if not changed.any():
            return [[]]
        found = {"node": considered[changed], "component": names[changed]}
        return [pa.record_batch({name: seen.names.take(numbers) for name, numbers in found.items()})]

    def _join_names(self, absorbed: Column, new: int) -> bool:
        """Give each root that has absorbed others the least of their names; return whether a node below ``new`` has another."""
        if not len(absorbed):
            return False
        forest = self._seen.forest
        roots = distinct((absorbed, forest.roots(absorbed)), len(forest))
        names = self._least[roots]
        order = ranks(self._seen.names.take(names))
        by_order = np.empty(len(roots), np.int64)
        by_order[order] = names
        now = forest.roots(roots)
        self._order[now] = len(roots)
        np.minimum.at(self._order, now, order)
        self._least[roots] = by_order[self._order[now]]
        return bool((self._least[roots] != names)[roots < new].any())
