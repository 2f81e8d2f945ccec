"""Connected components: each worker joins what its own edges connect, and worker 0 joins what the workers have found.

There is no loop, so a long path costs no more than a short one. Each worker has a ``UnionFind`` of its nodes, for all times. At
the end of a time it sends worker 0 one link for each new node, and for each of its components that became part of another.
Worker 0 does the same with these links, and names the components. The invariant: the links connect the nodes that the edges
connect. The nodes of the whole graph must fit into worker 0, its edges need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream, scope_of
from timely.graphs.stages.contraction import contract
from timely.graphs.stages.edge_input import edge_columns, next_time, vertex_columns
from timely.graphs.stages.gathering import gather, optional
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import Column, Rows, distinct, grow, join_rows
from timely.graphs.structures.dictionary import Dictionary, Values, ranks
from timely.graphs.structures.union_find import UnionFind
from timely.memory import MemoryBudget
from timely.operators.type_variables import T


def connected_components(
    edges: Stream[T, Any], src: str = "src", dst: str = "dst", *, vertices: Stream[T, Any] | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, component)``, on worker 0: at each time the nodes that are new or whose component has another
    name.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type that Arrow can sort; ``vertices`` are
    batches with a column ``node``, for nodes without edges. Two nodes have the same ``component``, the smallest node among
    them, if a path joins them in whatever direction. Edges stay for all later times, and the latest row of a node is its
    answer. A time costs its edges, and a pass over all nodes if any earlier one gets another name. ``SchemaError``, as the
    cause of an ``OperatorError``, for columns that are missing, have nulls or other types; ``TimestampError`` for times without
    an order. Source: union-find by hooking and pointer jumping (Shiloach and Vishkin 1982).

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
    if MemoryBudget.current().limit is not None:
        return contract(edges, src, dst, vertices)
    linking, naming = _Links(src, dst), _Components("src", "dst")
    finish = linking.finish if scope_of(edges, "connected_components").allocator.peers > 1 else linking.forward
    (links,) = gather("components: link", [(edges, Pipeline), *optional(vertices, Pipeline)], 1, finish, keep=linking.register)
    (named,) = gather("components: name", [(links, Exchange("to"))], 1, naming.finish, keep=naming.register)
    return named


class _Change(NamedTuple):
    """What a time, or a whole run, has added to a graph."""

    last: Any
    """The last time."""
    nodes: pa.RecordBatch
    """The new nodes, in the order of their codes."""
    absorbed: Rows
    """``(node, root)`` by code, for nodes that are no longer roots."""
    named: Rows
    """``(node, name)`` by code, for nodes that have another name."""

    def emptied(self) -> _Change:
        """Return a change of the same time and type that adds nothing."""
        return _Change(self.last, self.nodes.slice(0, 0), self.absorbed[:0], self.named[:0])


class _Graph:
    """The nodes of one worker so far, by code, and which of them are connected."""

    def __init__(self, src: str, dst: str) -> None:
        self._columns = (src, dst)
        self._last: Any = None
        self._type: pa.DataType | None = None
        self.codes = Dictionary()
        self.values = Values()
        self.components = UnionFind()
        self.log: Log | None = None

    def register(self, info: OperatorInfo, named: Callable[[], Rows], load: Callable[[_Change], None]) -> None:
        """Register the graph. With other workers only worker 0 restores it; the links that the others then repeat are no-ops."""

        def save() -> Iterator[_Change]:
            if self._type is not None:
                nodes = np.arange(len(self.components))
                absorbed = nodes[nodes != self.components.find(nodes)]
                yield self.change(0, absorbed, named())

        def repartition(item: _Change, sender: int, _: int) -> Iterator[_Change]:
            change = _Change(*item)
            yield change if sender == info.worker == 0 else change.emptied()

        self.log = register_state(info, save, lambda item: load(_Change(*item)), repartition)

    def change(self, new: int, absorbed: Column, named: Rows) -> _Change:
        """Return what the nodes from code ``new`` on, and these absorbed and named ones, have added."""
        count = len(self.codes)
        nodes = self.values.take(np.arange(new, count)) if new < count else pa.array([], self._type)
        links = np.vstack((absorbed, self.components.find(absorbed))).T
        return _Change(self._last, pa.record_batch({"value": nodes}), links, named)

    def restore(self, change: _Change) -> None:
        """Add a change. A root is the least code of its component, so the roots are the same again."""
        self.restore_type(change)
        values = change.nodes.column("value")
        self.codes.extend(values)
        self.values.append(values)
        self.components.grow(len(self.codes))
        self.components.union(*change.absorbed.T)

    def restore_type(self, change: _Change) -> None:
        """Restore the last time and the type of the nodes."""
        self._last, self._type = change.last, change.nodes.column("value").type

    def input_columns(self, info: OperatorInfo, collected: list[list[Any]]) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the sources of the edges and then the targets, and the vertices."""
        ends = edge_columns(info, collected[0], *self._columns, self._type)
        alone = vertex_columns(info, collected[1] if len(collected) > 1 else [], ends[0].type if ends else self._type)
        self._type = (ends or alone)[0].type
        return ends, alone

    def add(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> tuple[int, Column]:
        """Add the edges and vertices of a time; return the first new code, and the nodes that are no longer roots."""
        self._last = next_time(info, self._last, time)
        ends, alone = self.input_columns(info, collected)
        new = len(self.codes)
        nodes, values = self.codes.encode(*ends, *alone)
        self.values.append(values)
        self.components.grow(len(self.codes))
        edges = sum(map(len, ends)) // 2
        return new, self.components.union(nodes[:edges], nodes[edges : 2 * edges])


class _Links:
    """The first stage, on every worker. One worker alone only forwards, so that a later run may have more."""

    def __init__(self, src: str, dst: str) -> None:
        self._graph = _Graph(src, dst)

    def register(self, info: OperatorInfo) -> None:
        """Register the graph; one worker alone needs the type of its nodes only."""
        load = self._graph.restore if info.peers > 1 else self._graph.restore_type
        self._graph.register(info, lambda: join_rows([], 2), load)

    def forward(self, info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        """Return the edges as they are, and a self-loop for each vertex."""
        ends, alone = self._graph.input_columns(info, collected)
        half = len(ends) // 2
        sources, targets = ends[:half] + alone, ends[half:] + alone
        if len(sources) == 1:
            return [_links(sources[0], targets[0])]
        return [_links(pa.concat_arrays(sources), pa.concat_arrays(targets))]

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return a link to its root for every node that is new or no longer a root."""
        graph = self._graph
        new, absorbed = graph.add(info, time, collected)
        if graph.log is not None:
            graph.log(graph.change(new, absorbed, join_rows([], 2)))
        moved = np.concatenate((absorbed[absorbed < new], np.arange(new, len(graph.components))))
        if not len(moved):
            return [[]]
        return [_links(graph.values.take(moved), graph.values.take(graph.components.find(moved)))]


def _links(sources: pa.Array, targets: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"src": sources, "dst": targets, "to": np.zeros(len(sources), np.int64)})


class _Components:
    """The second stage, on worker 0 alone."""

    def __init__(self, src: str, dst: str) -> None:
        self._graph = _Graph(src, dst)
        self._least = np.empty(0, np.int64)  # of each root, the smallest node of its component
        self._order = np.empty(0, np.int64)  # scratch space
        self._names = np.empty(0, np.int64)  # of each node, the name that was sent last

    def register(self, info: OperatorInfo) -> None:
        """Register the graph and the names."""

        def named() -> Rows:
            nodes = np.arange(len(self._graph.components))
            return np.vstack((nodes, self._names[nodes])).T

        self._graph.register(info, named, self._restore)

    def _restore(self, change: _Change) -> None:
        self._graph.restore(change)
        nodes, names = change.named.T
        self._grow(len(self._graph.components))
        self._names[nodes] = names
        self._least[self._graph.components.find(nodes)] = names

    def _grow(self, nodes: int) -> None:
        self._order, self._names, self._least = (grow(table, nodes) for table in (self._order, self._names, self._least))

    def finish(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> list[Any]:
        """Return the nodes whose component has a name for the first time, or another one."""
        graph = self._graph
        new, absorbed = graph.add(info, time, collected)
        count = len(graph.components)
        self._grow(count)
        self._least[new:count] = np.arange(new, count)
        nodes = np.arange(0 if self._merge_names(absorbed, new) else new, count)
        names = self._least[graph.components.find(nodes)]
        changed = names != self._names[nodes]
        self._names[nodes] = names
        if graph.log is not None:
            graph.log(graph.change(new, absorbed, np.vstack((nodes[changed], names[changed])).T))
        if not changed.any():
            return [[]]
        changes = {"node": nodes[changed], "component": names[changed]}
        return [pa.record_batch({name: graph.values.take(codes) for name, codes in changes.items()})]

    def _merge_names(self, absorbed: Column, new: int) -> bool:
        """Give each root that absorbed others the least of their names; return whether any node below ``new`` is renamed."""
        if not len(absorbed):
            return False
        components = self._graph.components
        roots = distinct((absorbed, components.find(absorbed)), len(components))
        names = self._least[roots]
        order = ranks(self._graph.values.take(names))
        by_order = np.empty(len(roots), np.int64)
        by_order[order] = names
        now = components.find(roots)
        self._order[now] = len(roots)
        np.minimum.at(self._order, now, order)
        self._least[roots] = by_order[self._order[now]]
        return bool((self._least[roots] != names)[roots < new].any())
