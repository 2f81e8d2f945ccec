"""Connected components: each worker joins what its own edges connect, and worker 0 joins what the workers have found.

There is no loop, so a long path costs no more than a short one. Each worker has a ``UnionFind`` of its nodes, for all times. At
the end of a time it sends worker 0 one link for each new node, and for each of its components that became part of another.
Worker 0 does the same with these links, and names the components. The invariant: the links connect the nodes that the edges
connect. The nodes of the whole graph must fit into worker 0, its edges need not.

With a memory budget the components are found by contraction (randomized: Boegeholz, Brand and Todor 2020), in a forest of which
each worker holds its own nodes only. Edges join the roots of their ends. In a level of a loop each root takes the node of
greatest priority as its parent, of itself and its neighbours. An edge between two roots becomes one between their parents, on the
workers of these. Each level draws new priorities, so whatever the graph is, it leaves a part of the nodes: the levels grow as
their logarithm. When no edge is left, all nodes replace their parents by those of the parents until these are roots. The
invariants: edges connect what they connected before, and along the parents the last level in which a node had edges grows, so
there is no cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream, scope_of
from timely.graphs.stages.component_names import name_components
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.edge_input import edge_columns, next_time, vertex_columns
from timely.graphs.stages.gathering import Collected, blocks, drained, gather, gather_loop, optional
from timely.graphs.stages.priorities import node_of, priority
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.graphs.structures.arrays import (
    BLOCK,
    MISSING,
    Column,
    Rows,
    both_ways,
    distinct,
    first,
    grow,
    join_rows,
    joined_blocks,
    owned,
    sorted_distinct,
)
from timely.graphs.structures.dictionary import Dictionary, Values, as_integers, ranks
from timely.graphs.structures.union_find import UnionFind
from timely.memory import MemoryBudget
from timely.operators import ProbeHandle, probe
from timely.operators.type_variables import T
from timely.order import Product

_FOREST: Final = 20
"""Bytes that a ``UnionFind`` takes for a node."""

_ROOM: Final = 1 << 25
"""Bytes that a forest may take beside the limit, of those that are reserved to work with."""


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


class _Nodes:
    """Nodes of one worker, by code, and which of them its edges connect."""

    def __init__(self) -> None:
        self.codes = Dictionary()
        self.values = Values()
        self.components = UnionFind()
        self.edges = 0
        self._value_size = 8.0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def size(self) -> float:
        """About how many bytes they take."""
        return len(self) * (60 + self._value_size)

    def add(self, ends: list[pa.Array], alone: Sequence[pa.Array] = ()) -> Column:
        """Add the ends of edges, all sources and then all targets, and nodes alone; return those that are no longer roots."""
        nodes, new = self.codes.encode(*ends, *alone)
        self.values.append(new)
        if as_integers(new) is None and len(new):
            self._value_size = 100 + new.nbytes / len(new)  # in a Python dictionary, too
        self.components.grow(len(self))
        edges = sum(map(len, ends)) // 2
        self.edges += edges
        return self.components.union(nodes[:edges], nodes[edges : 2 * edges])

    def links(self, nodes: Column) -> tuple[pa.Array, pa.Array]:
        """Return nodes and their roots."""
        return self.values.take(nodes), self.values.take(self.components.find(nodes))

    def blocks_of_links(self) -> Iterator[pa.RecordBatch]:
        """Yield a link from each node to its root."""
        for start in range(0, len(self), BLOCK):
            yield _batch(*self.links(np.arange(start, min(start + BLOCK, len(self)))))


class _Graph(_Nodes):
    """The nodes of one worker so far, with the last time and the type of the nodes, as part of checkpoints."""

    def __init__(self, src: str, dst: str) -> None:
        super().__init__()
        self._columns = (src, dst)
        self._last: Any = None
        self._type: pa.DataType | None = None
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

    def add_time(self, info: OperatorInfo, time: Any, collected: list[list[Any]]) -> tuple[int, Column]:
        """Add the edges and vertices of a time; return the first new code, and the nodes that are no longer roots."""
        self._last = next_time(info, self._last, time)
        return len(self), self.add(*self.input_columns(info, collected))


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
        new, absorbed = graph.add_time(info, time, collected)
        if graph.log is not None:
            graph.log(graph.change(new, absorbed, join_rows([], 2)))
        moved = np.concatenate((absorbed[absorbed < new], np.arange(new, len(graph.components))))
        if not len(moved):
            return [[]]
        return [_links(*graph.links(moved))]


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
        new, absorbed = graph.add_time(info, time, collected)
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


def contract(edges: Stream[T, Any], src: str, dst: str, vertices: Stream[T, Any] | None) -> Stream[T, Any]:
    """Return the same as ``connected_components``, on the workers of the nodes."""
    inputs = [(edges, Pipeline), *optional(vertices, Pipeline)]
    forest = _Forest()
    done: ProbeHandle[T] = ProbeHandle()  # the forest is of one time: a time waits for the one before
    links, ticks = gather(
        "components: link", inputs, 2, lambda info, _, collected: _local_links(info, collected, src, dst), after=done
    )
    numbers, names = encode(links, "src", "dst", lasting=True)
    (few,) = gather("components: forest", [(numbers, Pipeline)], 1, _forest)
    (half,) = gather("components: roots of sources", [(few, Exchange(first))], 1, forest.lift, keep=forest.register)
    (joined,) = gather("components: roots of targets", [(half, Exchange(first))], 1, forest.lift_again)
    by_node = Exchange(first)
    ended = gather_loop("components: contract", [(joined, by_node)], by_node, forest.contract, keep=_registered)
    jumped = gather_loop("components: jump", [(ticks, by_node), (ended, Pipeline)], by_node, forest.jump, keep=_registered)
    (members,) = gather("components: members", [(ticks, Exchange(first)), (jumped, Pipeline)], 1, forest.members)
    (again,) = gather("components: tick", [(ticks, Exchange(first))], 1, lambda *_: [[0]])
    named = name_components(names, members, lasting=again)
    probe(named, done)
    return named


def _registered(info: OperatorInfo) -> None:
    """Register nothing: the forest is part of a checkpoint by its first operator, in the middle of a loop too."""


def _local_links(info: OperatorInfo, collected: list[Collected], src: str, dst: str) -> Iterator[list[Any]]:
    """Yield links that connect what a worker's edges connect, and a tick for each worker.

    They are those of a forest, as many as nodes, as long as a dictionary of these fits; where it does not, edges are links.
    """
    yield [[], np.vstack((np.arange(info.peers), np.zeros(info.peers, np.int64))).T]
    limit = MemoryBudget.current().limit
    forest = _Nodes()
    kind: pa.DataType | None = None
    forests = True
    for batches in blocks(collected[0]):
        ends = edge_columns(info, batches, src, dst, kind)
        kind = ends[0].type
        if not forests:
            yield [_batch(pa.concat_arrays(ends[: len(batches)]), pa.concat_arrays(ends[len(batches) :])), []]
            continue
        forest.add(ends)
        if limit is not None and forest.size > limit // 2:
            forests = 2 * len(forest) < forest.edges
            yield from ([links, []] for links in forest.blocks_of_links())
            forest = _Nodes()
    for batches in blocks(collected[1] if len(collected) > 1 else []):
        alone = vertex_columns(info, batches, kind)
        kind = alone[0].type
        yield from ([_batch(column, column), []] for column in alone)
    yield from ([links, []] for links in forest.blocks_of_links())


def _forest(info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Any]]:
    """Yield ``(node, root)`` for a forest that connects what edges between numbers connect; where none fits, the edges."""
    limit = MemoryBudget.current().limit
    nodes = max((int(rows.max(initial=-1)) + 1 for rows in collected[0]), default=0)
    if limit is not None and nodes * _FOREST > limit + _ROOM:
        yield from ([rows] for rows in joined_blocks(drained(collected[0])))
        return
    components = UnionFind()
    components.grow(nodes)
    for rows in joined_blocks(drained(collected[0])):
        components.union(*rows.T.astype(np.int64))
    for start in range(0, nodes, BLOCK):
        some = np.arange(start, min(start + BLOCK, nodes))
        links = np.vstack((some, components.find(some))).T
        yield [links[links[:, 0] != links[:, 1]]]


def _batch(sources: pa.Array, targets: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"src": sources, "dst": targets})


class _Forest:
    """One worker's nodes: the parent of each, by place. Between two times all parents are roots."""

    def __init__(self) -> None:
        self._parents: Column = np.empty(0, np.int64)
        self._changed = np.empty(0, np.bool_)

    def _grow(self, info: OperatorInfo, places: int) -> None:
        """Grow to at least ``places``; each new node is a root."""
        size = len(self._parents)
        if places > size:
            spare = np.arange(size, max(places, size * 5 // 4)) * info.peers + info.worker
            self._parents = np.concatenate((self._parents, spare))
            self._changed = np.concatenate((self._changed, np.zeros(len(spare), np.bool_)))

    def _places(self, info: OperatorInfo, nodes: Column) -> Column:
        places = nodes // info.peers
        self._grow(info, int(places.max(initial=-1)) + 1)
        return places

    def _parents_of(self, info: OperatorInfo, nodes: Column) -> Column:
        places = self._places(info, nodes)
        return self._parents[places]

    def lift(self, info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield ``(target, root of the source)`` for the edges of nodes here."""
        for rows in joined_blocks(drained(collected[0])):
            yield [np.vstack((rows[:, 1], self._parents_of(info, rows[:, 0]))).T]

    def lift_again(self, info: OperatorInfo, time: Any, collected: list[Collected]) -> Iterator[list[Any]]:
        """Yield both directions of the edges between the roots of their ends."""
        for (rows,) in self.lift(info, time, collected):
            yield [both_ways(_distinct(rows))]

    def contract(self, info: OperatorInfo, time: Product[Any, int], collected: list[Collected]) -> Iterator[list[Any]]:
        """Run half a level: choose parents and send them to the neighbours, or replace the ends of edges by their parents."""
        edges = collected[0] if time.inner == 0 else collected[1]
        if time.inner % 2 == 0:
            self._choose(info, time.inner, edges)
        for rows in joined_blocks(drained(edges)):
            parents = self._parents_of(info, rows[:, 0])
            if time.inner % 2 == 0:
                yield [np.vstack((rows[:, 1], parents)).T, []]
                continue
            links = np.vstack((parents, rows[:, 1])).T
            yield [_distinct(links[links[:, 0] != links[:, 1]]), []]

    def _choose(self, info: OperatorInfo, level: int, edges: Collected) -> None:
        """Give each node with edges the node of least priority as parent, of itself and its neighbours."""
        least = np.empty(0, np.int64)
        for rows in edges:
            places = self._places(info, rows[:, 0])
            if len(least) < len(self._parents):
                least = np.concatenate((least, np.full(len(self._parents) - len(least), MISSING)))
            np.maximum.at(least, places, priority(rows[:, 1], level))
        chosen = np.flatnonzero(least != MISSING)
        nodes = chosen * info.peers + info.worker
        best = np.maximum(least[chosen], priority(nodes, level))
        self._set(chosen, node_of(best))

    def _set(self, places: Column, parents: Column) -> None:
        self._parents[places] = parents
        self._changed[places] = True

    def jump(self, info: OperatorInfo, time: Product[Any, int], collected: list[Collected]) -> list[Any]:
        """Request the parents of parents that are elsewhere, ``(node, worker)``, or reply: ``(worker, node, its parent)``."""
        if time.inner % 2 == 1:
            nodes, workers = join_rows(collected[2], 2).T
            self._shorten(info)
            return [np.vstack((workers, nodes, self._parents_of(info, nodes))).T, []]
        if time.inner == 0:
            wanted = self._parents
        else:
            _, nodes, parents = join_rows(collected[2], 3).T
            moved = nodes != parents
            nodes, parents = nodes[moved], parents[moved]
            self._replace(info, nodes, parents)
            wanted = parents
        self._shorten(info)
        wanted = sorted_distinct(self._here(info, wanted))
        wanted = wanted[wanted % info.peers != info.worker]
        return [np.vstack((wanted, np.full(len(wanted), info.worker))).T, []]

    def _here(self, info: OperatorInfo, nodes: Column) -> Column:
        """Return the nodes, and instead of those here their parents."""
        nodes = nodes.copy()
        mine = np.flatnonzero(nodes % info.peers == info.worker)
        nodes[mine] = self._parents_of(info, nodes[mine])
        return nodes

    def _shorten(self, info: OperatorInfo) -> None:
        """Replace parents here by theirs until these are roots, or elsewhere."""
        while True:
            above = self._here(info, self._parents)  # there may be more nodes after it, which are roots
            places = np.flatnonzero(above != self._parents[: len(above)])
            if not len(places):
                return
            self._set(places, above[places])

    def _replace(self, info: OperatorInfo, nodes: Column, parents: Column) -> None:
        """Replace the parents ``nodes`` by ``parents`` wherever they occur."""
        if not len(nodes):
            return
        order = np.argsort(nodes)
        nodes, parents = nodes[order], parents[order]
        at = np.minimum(np.searchsorted(nodes, self._parents), len(nodes) - 1)
        places = np.flatnonzero(nodes[at] == self._parents)
        self._set(places, parents[at[places]])

    def members(self, info: OperatorInfo, _: object, __: list[Collected]) -> Iterator[list[Any]]:
        """Yield ``(node, root)`` for the nodes that have another root than before."""
        changed = np.flatnonzero(self._changed)
        self._changed[changed] = False
        for start in range(0, len(changed), BLOCK):
            places = changed[start : start + BLOCK]
            yield [np.vstack((places * info.peers + info.worker, self._parents[places])).T]

    def register(self, info: OperatorInfo) -> None:
        """Register ``(node, parent, changed)`` for all but roots that have not changed."""

        def save() -> Iterator[Rows]:
            nodes = np.arange(len(self._parents)) * info.peers + info.worker
            places = np.flatnonzero((nodes != self._parents) | self._changed)
            yield np.vstack((nodes[places], self._parents[places], self._changed[places].astype(np.int64))).T

        def load(rows: Rows) -> None:
            places = self._places(info, rows[:, 0])
            self._parents[places] = rows[:, 1]
            self._changed[places] = rows[:, 2]

        register_state(info, save, load, lambda rows, *_: [owned(info, rows)], logged=False)


def _distinct(rows: Rows) -> Rows:
    """Return each edge once, without self-loops."""
    rows = rows[rows[:, 0] != rows[:, 1]]
    packed = sorted_distinct(rows[:, 0] << 32 | rows[:, 1])
    return np.vstack((packed >> 32, packed & 0xFFFFFFFF)).T
