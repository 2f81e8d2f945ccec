"""Graph algorithms on collections of edges, kept up to date as edges come and go.

Edges are pairs ``(src, dst)``, or an arrangement of them by ``src``. Equal edges count once; no count may be below zero. A loop's
variable is its proposals, and the reduction that chooses among them is inside the loop: the join reads its output trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypeVar

from timely.differential.collections import Collection, arranged, no_collection
from timely.differential.iteration import Variable
from timely.differential.operators.arrangement import Arrangement
from timely.differential.operators.half_joins import Lookup, path
from timely.differential.operators.join_results import mapped
from timely.differential.operators.reductions import Function
from timely.errors import ContainerError, GraphError, brief
from timely.order import PartialOrder
from timely.progress import time_domain

if TYPE_CHECKING:
    from timely.differential.operators.column_operators import KeyCounts
    from timely.differential.updates.int_columns import Array
    from timely.differential.updates.updates import Kernel

T = TypeVar("T", bound=PartialOrder, default=int)


class Ordered(Protocol):
    """What can be compared."""

    def __lt__(self, other: Any, /) -> bool: ...


N = TypeVar("N", default=Any)
C = TypeVar("C", bound=Ordered, default=Any)
V = TypeVar("V", default=Any)

Edges: TypeAlias = Collection[T, tuple[N, V]] | Arrangement[T, N, V]
"""Pairs of a node and a value, such as another node; they may be arranged by the node already."""

__all__ = [
    "bidirectional_search",
    "breadth_first_search",
    "connected_components",
    "k_core",
    "propagate",
    "shortest_paths",
    "strongly_connected_components",
    "strongly_connected_edges",
    "triangle_count",
]


def breadth_first_search(edges: Edges[T, N, N], roots: Collection[T, N]) -> Collection[T, tuple[N, int]]:
    """Return ``(node, distance)``: the fewest directed edges on a path from any of ``roots``, for the nodes that have one.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         session, edges = dd.new_collection(scope)
    ...         distances = dd.graphs.breadth_first_search(edges, dd.collection(scope, ["a"])).output()
    ...     for edge in [("a", "b"), ("b", "c"), ("c", "b")]:
    ...         session.insert(edge)
    ...     session.advance_to(1)
    ...     session.remove(("a", "b"))
    ...     session.close()
    ...     sorted(distances.at(0)), sorted(distances.at(1))
    ([('a', 0), ('b', 1), ('c', 2)], [('a', 0)])
    """

    def extend(node: object, distance: Any, target: V) -> tuple[V, Any]:
        return target, distance + 1

    return _closest("breadth_first_search", edges, roots, extend, columns=extend)


def shortest_paths(edges: Edges[T, N, tuple[N, V]], roots: Collection[T, N]) -> Collection[T, tuple[N, V]]:
    """Return ``(node, distance)``: the least sum of weights on a path from any of ``roots``, for the nodes that have one.

    ``edges`` are directed, ``(src, (dst, weight))``. A cycle of edges whose weights add up to less than zero has no shortest
    path, and the loop does not end.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [("a", ("b", 5)), ("a", ("c", 1)), ("c", ("b", 2))])
    ...         distances = dd.graphs.shortest_paths(edges, dd.collection(scope, ["a"])).output()
    ...     sorted(distances.at(0))
    [('a', 0), ('b', 3), ('c', 1)]
    """
    return _closest("shortest_paths", edges, roots, lambda node, distance, edge: (edge[0], distance + edge[1]))


def _closest(
    name: str,
    edges: Edges[T, N, V],
    roots: Collection[T, N],
    extend: Callable[[Any, Any, Any], object],
    columns: Kernel | None = None,
) -> Collection[T, tuple[N, Any]]:
    """Return ``(node, least distance)``, where ``extend(node, distance, value of its edge)`` is the next pair."""
    forward = _by_source(edges, name)
    key = forward.index.key
    with forward.scope.iterative(name) as loop:
        proposals: Variable = Variable(loop)
        start = roots.map(lambda root: (root, 0)).enter(loop)
        distances = proposals.collection.concat(start).min_by_key(key=key)
        proposals.set(distances.join_map(forward.enter(loop), extend, columns=columns, key=key))
        return distances.leave()


def propagate(edges: Edges[T, N, N], labels: Collection[T, tuple[N, V]]) -> Collection[T, tuple[N, V]]:
    """Return ``(node, label)``: the least label that reaches it along directed edges, of the ``(node, label)`` of ``labels``.

    Whole numbers enter the loop by size, small ones first: most of the others then have nowhere to go.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [("a", "b"), ("b", "c")])
    ...         labels = dd.collection(scope, [("a", 7), ("b", 3)])
    ...         least = dd.graphs.propagate(edges, labels).output()
    ...     sorted(least.at(0))
    [('a', 7), ('b', 3), ('c', 3)]
    """
    forward = _by_source(edges, "propagate")
    key = forward.index.key
    with forward.scope.iterative("propagate") as loop:
        proposals: Variable = Variable(loop)
        start = labels.enter_at(loop, _round_of, columns=_rounds_of)
        least = proposals.collection.concat(start).min_by_key(key=key)
        proposals.set(least.join_map(forward.enter(loop), _at_target, columns=_at_target, key=key))
        return least.leave()


def _at_target(node: object, label: V, target: N) -> tuple[N, V]:
    return target, label


def _round_of(labelled: tuple[object, object]) -> int:
    """Return the round in which a label enters: labels twice as large, 64 rounds later."""
    label = labelled[1]
    return 64 * label.bit_length() if isinstance(label, int) and label > 0 else 0


def _rounds_of(nodes: Array, labels: Array) -> Array:
    """Return the rounds of columns of labels."""
    import numpy as np

    bits = np.zeros(len(labels), np.int64)
    for bit in range(63):
        bits[labels >> bit > 0] = bit + 1
    return 64 * bits


def connected_components(edges: Edges[T, C, C]) -> Collection[T, tuple[C, C]]:
    """Return ``(node, least node of its component)``, of undirected edges; a self-loop alone is a component of one node.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         session, edges = dd.new_collection(scope)
    ...         components = dd.graphs.connected_components(edges).output()
    ...     for edge in [(1, 2), (3, 2), (4, 5)]:
    ...         session.insert(edge)
    ...     session.advance_to(1)
    ...     session.remove((1, 2))
    ...     session.close()
    ...     sorted(components.at(0)), sorted(components.at(1))
    ([(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)], [(2, 2), (3, 2), (4, 4), (5, 4)])
    """
    name = "connected_components"
    pairs = _pairs(edges, name)
    joining = pairs.filter(_joins_two(name), columns=lambda src, dst: src != dst)
    both_ways = joining.concat(joining.map(_turned, columns=_turned_columns))
    # A node with a lesser neighbour gets a lesser label than its own from it.
    return propagate(both_ways, pairs.map(lambda edge: (least := min(_ends(name, edge)), least), columns=_lesser_ends))


def strongly_connected_edges(edges: Edges[T, N, N]) -> Collection[T, tuple[N, N]]:
    """Return the directed edges with both ends in one strongly connected component; self-loops are among them.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         session, edges = dd.new_collection(scope)
    ...         inside = dd.graphs.strongly_connected_edges(edges).output()
    ...     for edge in [(1, 2), (2, 1), (2, 3), (3, 4)]:
    ...         session.insert(edge)
    ...     session.advance_to(1)
    ...     session.insert((4, 2))
    ...     session.close()
    ...     sorted(inside.at(0)), sorted(inside.at(1))
    ([(1, 2), (2, 1)], [(1, 2), (2, 1), (2, 3), (3, 4), (4, 2)])
    """
    # Each round removes edges whose ends have unequal labels, forwards and then backwards. What stays has one label in each
    # part that hangs together, forwards and backwards: the least node of the part, which reaches all and is reached by all.
    whole = _pairs(edges, "strongly_connected_edges").distinct()
    with whole.scope.iterative("strongly_connected_edges") as loop:
        entered = whole.enter(loop)
        removed: Variable = Variable(loop)  # few, where what stays would be sent round with all edges
        inside = _with_equal_labels(_with_equal_labels(entered.minus(removed.collection)))
        removed.set(entered.minus(inside).consolidate())
        return inside.leave()


def _with_equal_labels(edges: Collection[T, tuple[N, N]]) -> Collection[T, tuple[N, N]]:
    """Return the edges whose ends are reached by the same least node, turned round.

    Only targets label: no cycle has a node without an edge to it. Labels and edges are consolidated: else what a search tries
    on its way would be joined with all edges.
    """
    forward = edges.arrange_by_key()
    labels = propagate(forward, edges.map(lambda edge: (edge[1], edge[1]))).consolidate().arrange_by_key()
    labelled = forward.as_collection().join_map(labels, lambda src, dst, label: (dst, (src, label)))
    checked = labelled.join_map(labels, lambda dst, start, label: (dst, start[0], start[1] == label))
    return checked.filter(lambda edge: edge[2]).map(lambda edge: edge[:2]).consolidate()


def strongly_connected_components(edges: Edges[T, N, N]) -> Collection[T, tuple[N, N]]:
    """Return ``(node, least node of its strongly connected component)``, for all nodes of directed edges.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [(1, 2), (2, 1), (2, 3)])
    ...         components = dd.graphs.strongly_connected_components(edges).output()
    ...     sorted(components.at(0))
    [(1, 1), (2, 1), (3, 3)]
    """
    nodes = _pairs(edges, "strongly_connected_components").flat_map(lambda edge: edge)
    return propagate(strongly_connected_edges(edges).consolidate(), nodes.map(lambda node: (node, node)))


def k_core(edges: Edges[T, C, C], k: int) -> Collection[T, C]:
    """Return the nodes of the largest subgraph in which each has ``k`` neighbours or more; edges are undirected.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [(1, 2), (2, 3), (3, 1), (3, 4)])
    ...         core = dd.graphs.k_core(edges, 2).output()
    ...     sorted(core.at(0))
    [1, 2, 3]
    """
    if not isinstance(k, int) or k < 0:
        raise GraphError(f"k_core takes a number of neighbours, 0 or more, not {brief(k)}")
    pairs = _pairs(edges, "k_core")
    once = _undirected(pairs, "k_core").map(_unpacked, columns=_unpacked)
    neighbours = once.flat_map(lambda edge: _both_ways(*edge), columns=_both_ways).arrange_by_key().as_collection()
    ends = neighbours.map(lambda edge: edge[0], columns=lambda src, dst: src)
    nodes = (ends if k else pairs.flat_map(lambda edge: edge, columns=lambda *both: both)).distinct()  # also of a self-loop alone
    few = Function(lambda node, counts: [(None, int(0 < counts[None] <= k))], partial(_few, k))
    with nodes.scope.iterative("k_core") as loop:
        lost: Variable = Variable(loop)  # a node, for each neighbour that is not in the core
        # A node counts one more than its neighbours: it stays a record when it has none left.
        counted = ends.concat(nodes).enter(loop).minus(lost.collection)
        outside = counted._reduced(few, "few", None, pairs=False, results=False)
        lost.set(neighbours.enter(loop).semijoin(outside).map(lambda edge: edge[1], columns=lambda src, dst: dst))
        return nodes.minus(outside.leave()).consolidate()


def _few(most: int, counts: KeyCounts, starts: Array) -> KeyCounts:
    """Return the records of so many at ``most``, once."""
    from timely.differential.operators.column_operators import KeyCounts, distinct_columns

    chosen = counts.counts <= most
    return distinct_columns(KeyCounts(counts.numbers[chosen], None, counts.counts[chosen]), starts)


def triangle_count(edges: Edges[T, C, C]) -> Collection[T, tuple[C, int]]:
    """Return ``(node, triangles)``: of how many triangles of undirected edges it is a corner, for the nodes that are of any.

    It keeps no more than the edges; where times are only partly ordered, pairs of edges too.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [(1, 2), (2, 3), (3, 1), (3, 4), (4, 1)])
    ...         triangles = dd.graphs.triangle_count(edges).output()
    ...     sorted(triangles.at(0))
    [(1, 2), (2, 1), (3, 2), (4, 1)]
    """
    packed = _undirected(edges, "triangle_count")
    whole, pairs = packed.arrange_by_self(), packed.map(_unpacked, columns=_unpacked)
    above = pairs.arrange_by_key()
    if time_domain(packed.scope.root.time).total:
        below = pairs.map(_turned, columns=_turned_columns).arrange_by_key()
        # Corners are a < b < c. A change of one edge finds the third corner at the end that it names first, or at the other one
        # where that has many neighbours, and then the last edge. An edge counts those at its own time before it: ab, ac, bc.
        closed = [
            *_closed(0, below, whole, _Third(above, 2, 1, found_first=False), _Third(above, 1, 2, found_first=False)),
            *_closed(1, below, whole, _Third(below, 2, 0, found_first=False), _Third(above, 0, 2, found_first=True)),
            *_closed(2, above, whole, _Third(below, 0, 1, found_first=True), _Third(below, 1, 0, found_first=True)),
        ]
    else:  # half joins need all times in one order
        last_edges = above.as_collection().join_map(above, _last_edge(_packed), columns=_last_edge(_packed_columns))
        closed = [last_edges.semijoin(whole)]
    return closed[0].concat(*closed[1:]).flat_map(lambda corners: _corners(*corners), columns=_corners).count()


def _last_edge(pack: Kernel, found_first: bool = False) -> Kernel:
    return lambda end, other, third: (pack(third, other) if found_first else pack(other, third), end)


class _Third(NamedTuple, Generic[T]):
    """Where the third corner of a triangle is found: by an edge of one number, and then the edge ``last`` must be there."""

    neighbours: Arrangement[T]
    edge: int
    last: int
    found_first: bool

    def lookups(self, number: int, whole: Arrangement[T], most: int | None) -> list[Lookup[T]]:
        finding = mapped(_last_edge(_packed, self.found_first), _last_edge(_packed_columns, self.found_first))
        closing = mapped(lambda edge, end, _: (edge, end), lambda edge, end, _: (edge, end))
        return [Lookup(self.neighbours, finding, self.edge > number, most), Lookup(whole, closing, self.last > number)]


_LIGHT: Final = 256
"""Neighbours up to which they are all asked for: as a rule the square root of the edges bounds the work."""


def _closed(
    number: int, edges: Arrangement[T], whole: Arrangement[T], near: _Third[T], far: _Third[T]
) -> Iterator[Collection[T, Any]]:
    """Yield the triangles that changes of an edge make, from the side of either end, as ``(packed edge, third corner)``."""
    triangles, heavy = path(edges.stream, edges.placement, near.lookups(number, whole, _LIGHT), "triangles")
    yield Collection(triangles)
    turned = Collection(heavy).map(_turned, columns=_turned_columns)
    (triangles,) = path(turned.stream, None, far.lookups(number, whole, None), "triangles")
    yield Collection(triangles)


def _corners(packed: object, low: C) -> tuple[C, C, C]:
    return *_unpacked(packed), low


def bidirectional_search(edges: Edges[T, N, N], pairs: Collection[T, tuple[N, N]]) -> Collection[T, tuple[tuple[N, N], int]]:
    """Return ``((source, target), distance)``, the fewest directed edges on a path, for the ``pairs`` that have one.

    It searches from both ends of a pair at once, and no further than where they meet.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [(1, 2), (2, 3), (3, 4)])
    ...         distances = dd.graphs.bidirectional_search(edges, dd.collection(scope, [(1, 4), (4, 1)])).output()
    ...     distances.at(0)
    {((1, 4), 3): 1}
    """
    forward = _by_source(edges, "bidirectional_search")
    backward = forward.as_collection().map(_turned, columns=_turned_columns).arrange_by_key()
    asked = pairs.distinct()
    with forward.scope.iterative("bidirectional_search") as loop:
        inner = asked.enter(loop)
        ahead: Variable = Variable(loop)  # ((node, pair), distance from the source)
        behind: Variable = Variable(loop)  # ((node, pair), distance to the target)
        reached = ahead.collection.concat(inner.map(lambda pair: ((pair[0], pair), 0))).min_by_key()
        reaching = behind.collection.concat(inner.map(lambda pair: ((pair[1], pair), 0))).min_by_key()
        met = reached.join_map(reaching, lambda place, one, other: (place[1], one + other))
        distances = met.concat(inner.map(lambda pair: (pair, _FAR))).min_by_key()
        # Both together go as far as the distance, so they meet on a shortest path.
        ahead.set(_one_further(reached, distances, forward.enter(loop), 0))
        behind.set(_one_further(reaching, distances, backward.enter(loop), 1))
        return distances.filter(lambda distance: distance[1] != _FAR).leave()


_FAR = float("inf")


def _one_further(
    distances_so_far: Collection[Any, Any], distances: Collection[Any, Any], edges: Arrangement[Any, Any, Any], less: int
) -> Collection[Any, Any]:
    """Return where one more edge leads from what has been found, unless the pair has a path that is too short for that."""
    by_pair = distances_so_far.map(lambda place: (place[0][1], (place[0][0], place[1])))
    near = by_pair.join_map(distances, lambda pair, place, most: (place[0], (pair, place[1], 2 * place[1] + less < most)))
    going = near.filter(lambda place: place[1][2]).consolidate()  # or a search would go on in the round in which it ends
    key = edges.index.key
    return going.join_map(edges, lambda node, place, target: ((target, place[0]), place[1] + 1), key=key)


def _by_source(edges: Edges[T, N, V], name: str) -> Arrangement[T, N, V]:
    arrangement = arranged(edges, name, True, None)
    if not arrangement.index.pairs:
        raise GraphError(f"{name} takes edges that are arranged by their source: call arrange_by_key(), not arrange_by_self()")
    return arrangement


def _pairs(edges: Edges[T, N, V], name: str) -> Collection[T, tuple[N, V]]:
    if isinstance(edges, Arrangement):
        return edges.as_collection()
    if not isinstance(edges, Collection):
        raise no_collection(name, "a differential.Collection or an Arrangement of edges", edges)
    return edges


def _undirected(edges: Edges[T, C, C], name: str) -> Collection[T, Any]:
    """Return each edge once, from its lesser end and packed, without self-loops."""
    joining = _pairs(edges, name).filter(_joins_two(name), columns=lambda src, dst: src != dst)
    return joining.map(lambda edge: _packed(*(edge if edge[0] < edge[1] else _turned(edge))), columns=_lesser_first).distinct()


def _lesser_first(src: Array, dst: Array) -> Array:
    import numpy as np

    return _packed_columns(np.minimum(src, dst), np.maximum(src, dst))


def _packed(one: object, other: object) -> object:
    """Return two whole numbers below 2 ** 31 as one, and anything else as a pair: columns have such numbers as keys."""
    high, low = hash(one), hash(other)  # equal numbers of all types have one hash, and small whole ones are their own
    whole = high == one and low == other and not (high | low) >> 31
    return high << 32 | low if whole else (one, other)


def _packed_columns(one: Array, other: Array) -> Array:
    if ((one | other) >> 31).any():
        raise OverflowError
    return one << 32 | other


def _unpacked(packed: Any) -> tuple[Any, Any]:
    """Return the pair that was packed, or both columns."""
    return packed if isinstance(packed, tuple) else (packed >> 32, packed & 0xFFFFFFFF)


def _joins_two(name: str) -> Callable[[tuple[object, object]], bool]:
    """Return whether an edge has two different ends."""

    def joins(edge: tuple[object, object]) -> bool:
        src, dst = _ends(name, edge)
        return bool(src != dst)

    return joins


def _ends(name: str, edge: tuple[N, N]) -> tuple[N, N]:
    """Return both ends of an edge; an edge without an end, as ``NULL`` of a table, is an error."""
    src, dst = edge[0], edge[1]
    if src is None or dst is None:
        raise ContainerError(f"{name}: edge {brief(edge)} has no {'start' if src is None else 'end'}: leave such edges out")
    return src, dst


def _turned(edge: tuple[N, N]) -> tuple[N, N]:
    return edge[1], edge[0]


def _turned_columns(src: Array, dst: Array) -> tuple[Array, Array]:
    return dst, src


def _lesser_ends(src: Array, dst: Array) -> tuple[Array, Array]:
    import numpy as np

    least = np.minimum(src, dst)
    return least, least


def _both_ways(src: N, dst: N) -> list[tuple[N, N]]:
    return [(src, dst), (dst, src)]
