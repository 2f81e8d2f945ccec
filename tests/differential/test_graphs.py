"""``differential.graphs`` against plain algorithms, at every epoch, with edges that come and go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from itertools import combinations, product, starmap
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.differential.epochs import Updates, accumulated, changing, held, total
from tests.progress.times import TotalMoment
from timely import differential as dd
from timely.errors import GraphError, OperatorError
from timely.testing.differential import updates_in_traces

Build = Callable[..., dd.Collection[int, Any]]


# -- plain algorithms ------------------------------------------------------------------------------------------------------


def closest(edges: Iterable[tuple[Any, tuple[Any, int]]], roots: Iterable[Any]) -> dict[Any, int]:
    """Distances by Dijkstra's algorithm."""
    out: dict[Any, list[tuple[Any, int]]] = {}
    for src, edge in edges:
        out.setdefault(src, []).append(edge)
    distances: dict[Any, int] = {}
    queue = [(0, root) for root in roots]
    while queue:
        distance, node = heappop(queue)
        if node not in distances:
            distances[node] = distance
            for target, weight in out.get(node, ()):
                heappush(queue, (distance + weight, target))
    return distances


def hops(edges: Iterable[tuple[Any, Any]], roots: Iterable[Any]) -> dict[Any, int]:
    """Distances by the number of edges."""
    return closest([(src, (dst, 1)) for src, dst in edges], roots)


def reached_by(edges: Iterable[tuple[Any, Any]], labels: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The least label that reaches each node."""
    label_of: dict[Any, Any] = {}
    for node, label in sorted(labels, key=lambda pair: pair[1]):
        for target in hops(edges, [node]):
            label_of.setdefault(target, label)
    return label_of


def both_ways(edges: Iterable[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    """Undirected edges, without self-loops."""
    return {pair for src, dst in edges if src != dst for pair in ((src, dst), (dst, src))}


def components(edges: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The least node of each node's component."""
    graph = networkx.Graph(list(edges))
    return {node: min(part) for part in networkx.connected_components(graph) for node in part}


def strong(edges: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The least node of each node's strongly connected component."""
    graph = networkx.DiGraph(list(edges))
    return {node: min(part) for part in networkx.strongly_connected_components(graph) for node in part}


def strong_edges(edges: Iterable[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    """The edges inside strongly connected components."""
    names = strong(edges)
    return {(src, dst) for src, dst in edges if names[src] == names[dst]}


def core(edges: Iterable[tuple[Any, Any]], k: int) -> set[Any]:
    """The nodes of the k-core, by taking others away."""
    edges = list(edges)
    left = both_ways(edges)
    if k == 0:
        return {node for edge in edges for node in edge}
    while True:
        degrees = Counter(src for src, _ in left)
        few = {node for node, degree in degrees.items() if degree < k}
        if not few:
            return set(degrees)
        left = {edge for edge in left if few.isdisjoint(edge)}


def triangles(edges: Iterable[tuple[Any, Any]]) -> dict[Any, int]:
    """How many triangles each node is a corner of."""
    pairs = both_ways(edges)
    counts: Counter[Any] = Counter()
    for corners in combinations(sorted({node for node, _ in pairs}), 3):
        if all(pair in pairs for pair in combinations(corners, 2)):
            counts.update(corners)
    return dict(counts)


def between(edges: Iterable[tuple[Any, Any]], pairs: Iterable[tuple[Any, Any]]) -> dict[Any, int]:
    """Distances of pairs."""
    edges = list(edges)
    distances = {pair: hops(edges, pair[:1]).get(pair[1]) for pair in pairs}
    return {pair: distance for pair, distance in distances.items() if distance is not None}


def rows(records: Any) -> dict[Any, int]:
    """A set of records, or the pairs of a dict, as a collection."""
    return dict.fromkeys(records.items() if isinstance(records, dict) else records, 1)


# -- random changes --------------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, tuple[Build, Callable[..., Any], str]] = {
    "breadth_first_search": (dd.graphs.breadth_first_search, hops, "node"),
    "shortest_paths": (dd.graphs.shortest_paths, closest, "node"),
    "propagate": (dd.graphs.propagate, reached_by, "pair"),
    "bidirectional_search": (dd.graphs.bidirectional_search, between, "pair"),
    "connected_components": (dd.graphs.connected_components, components, ""),
    "strongly_connected_edges": (dd.graphs.strongly_connected_edges, strong_edges, ""),
    "strongly_connected_components": (dd.graphs.strongly_connected_components, strong, ""),
    "0_core": (lambda edges: dd.graphs.k_core(edges, 0), lambda edges: core(edges, 0), ""),
    "1_core": (lambda edges: dd.graphs.k_core(edges, 1), lambda edges: core(edges, 1), ""),
    "2_core": (lambda edges: dd.graphs.k_core(edges, 2), lambda edges: core(edges, 2), ""),
    "3_core": (lambda edges: dd.graphs.k_core(edges, 3), lambda edges: core(edges, 3), ""),
    "triangle_count": (dd.graphs.triangle_count, triangles, ""),
}


@st.composite
def changes(draw: st.DrawFn, records: st.SearchStrategy[Any], epochs: int) -> list[Updates]:
    """Insertions, and deletions of what is there; records may be there more than once."""
    there: list[Any] = []
    by_epoch: list[Updates] = []
    for _ in range(epochs):
        updates = [(record, 1) for record in draw(st.lists(records, max_size=8))]
        there += [record for record, _ in updates]
        for index in draw(st.lists(st.integers(0, 40), max_size=6)):
            if there:
                updates.append((there.pop(index % len(there)), -1))
        by_epoch.append(updates)
    return by_epoch


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=15, derandomize=True, deadline=None)
@given(data=st.data())
def test_random_changes(name: str, data: st.DataObject) -> None:
    build, plain, second = PROGRAMS[name]
    nodes = st.integers(0, 6)
    pairs = st.tuples(nodes, nodes)
    edges = st.tuples(nodes, st.tuples(nodes, st.integers(0, 9))) if name == "shortest_paths" else pairs
    epochs = data.draw(st.integers(1, 5))
    inputs = [data.draw(changes(edges, epochs))]
    if second:
        inputs.append(data.draw(changes(nodes if second == "node" else pairs, epochs)))
    expected = [rows(plain(*now)) for now in zip(*map(accumulated, inputs))]
    at_once = data.draw(st.booleans())
    assert held(build, list(zip(*inputs)), at_once=at_once) == expected


def moves(chance: random.Random, record: Callable[[], Any], size: int, epochs: int, each: int = 1) -> list[Updates]:
    """``size`` records, of which ``each`` are replaced in each epoch."""
    there = [record() for _ in range(size)]
    by_epoch: list[Updates] = [[(old, 1) for old in there]]
    for _ in range(epochs - 1):
        updates = []
        for index in chance.sample(range(size), each):
            updates += [(there[index], -1)]
            there[index] = record()
            updates += [(there[index], 1)]
        by_epoch.append(updates)
    return by_epoch


def check(name: str, node: Callable[[random.Random], Any], size: int, epochs: int, *, shared: bool = False, **how: Any) -> None:
    """Compare a program with the plain algorithm while edges, and what else it takes, are replaced."""
    build, plain, second = PROGRAMS[name]
    chance = random.Random(name)

    def edge() -> Any:
        src, dst = node(chance), node(chance)
        return (src, (dst, chance.randrange(9))) if name == "shortest_paths" else (src, dst)

    inputs = [moves(chance, edge, size, epochs)]
    if second:
        inputs.append(moves(chance, (lambda: node(chance)) if second == "node" else edge, 3, epochs))
    expected = [rows(plain(*now)) for now in zip(*map(accumulated, inputs))]

    def built(edges: Any, *other: Any) -> Any:
        return build(edges.arrange_by_key(key=lambda node: node // 2) if shared else edges, *other)

    assert held(built, list(zip(*inputs)), **how) == expected


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("at_once", [False, True])
def test_three_workers(name: str, at_once: bool) -> None:
    check(name, lambda chance: chance.randrange(15), 30, 8, workers=3, at_once=at_once)


@pytest.mark.parametrize(("workers", "least"), [(1, 0), (3, 0), (1, 2**31 - 30)])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "shortest_paths"])
def test_columns(name: str, workers: int, least: int) -> None:
    build, plain, second = PROGRAMS[name]
    chance = np.random.default_rng(7)
    edges = [chance.integers(least, least + 60, (2, 400)) for _ in range(3)]
    gone = [chance.choice(edges[0], 150, axis=1, replace=False), chance.choice(edges[1], 150, axis=1, replace=False)]
    other: Updates = (
        [(node if second == "node" else (node, 2 * least + 59 - node), 1) for node in (least + 3, least + 4, least + 5)]
        if second
        else []
    )

    def program(worker: timely.Worker) -> list[dict[Any, int]]:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            inputs = [dd.collection(scope, [record for record, _ in other], on=0)] if second else []
            output = build(collection, *inputs).output()
        by_epoch = []
        for epoch in range(3):
            if worker.index == 0:
                session.insert_columns(*edges[epoch])
                if epoch:
                    session.insert_columns(*gone[epoch - 1], diff=-1)
            session.advance_to(epoch + 1)
            by_epoch.append(output.at(epoch))
        return by_epoch

    parts = timely.execute(program, workers=workers)
    changes = [
        [((src, dst), 1) for src, dst in edges[epoch].T.tolist()]
        + ([((src, dst), -1) for src, dst in gone[epoch - 1].T.tolist()] if epoch else [])
        for epoch in range(3)
    ]
    seconds = [[record for record, _ in other]] if second else []
    for epoch, now in enumerate(accumulated(changes)):
        assert total(part[epoch] for part in parts) == rows(plain(now, *seconds))


# -- what the functions take -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_arrangement_with_a_key_of_its_own_is_shared(name: str, workers: int) -> None:
    check(name, lambda chance: chance.randrange(8), 14, 6, shared=True, workers=workers)


@pytest.mark.parametrize(
    "nodes",
    [
        "abcdefgh",
        [1, True, 1.0, Fraction(2), 2, 3, 4, Decimal(4), 5],  # equal numbers are one node
        [0, 1, -1, 2**31 - 1, 2**31, 2**40, 2**70],
    ],
)
@pytest.mark.parametrize("name", [name for name, (_, _, second) in PROGRAMS.items() if not second])
def test_nodes_of_any_kind(name: str, nodes: Any) -> None:
    check(name, lambda chance: chance.choice(nodes), 14, 6)


def test_labels_of_any_size_and_sign() -> None:
    labels = [(1, 10**30), (2, 5), (3, -4), (4, 0)]
    edges = [(1, 2), (2, 3), (3, 4), (1, 5)]
    epochs: list[tuple[Updates, Updates]] = [([(edge, 1) for edge in edges], [(label, 1) for label in labels])]
    assert held(dd.graphs.propagate, epochs) == [rows({1: 10**30, 2: 5, 3: -4, 4: -4, 5: 10**30})]


SELF_LOOPS: dict[str, Any] = {
    "connected_components": {1: 1, 2: 1, 9: 9},
    "strongly_connected_edges": {(2, 2), (9, 9)},
    "strongly_connected_components": {1: 1, 2: 2, 9: 9},
    "0_core": {1, 2, 9},
    "1_core": {1, 2},
    "2_core": set(),
    "triangle_count": {},
}


@pytest.mark.parametrize("name", SELF_LOOPS)
@pytest.mark.parametrize("columns", [False, True])
def test_graph_1_a_self_loop_alone_is_a_node(name: str, columns: bool) -> None:
    build, plain, _ = PROGRAMS[name]
    edges = [(1, 2), (2, 2), (9, 9)]
    assert rows(plain(edges)) == rows(SELF_LOOPS[name])
    with changing(lambda collection: build(collection).output()) as (session, output):
        if columns:
            session.insert_columns(*np.array(edges).T)
        else:
            session.insert_batch(edges)
        session.advance_to(1)
        session.remove((1, 2))
        session.close()
        assert [output.at(0), output.at(1)] == [rows(SELF_LOOPS[name]), rows(plain(edges[1:]))]


@pytest.mark.parametrize("edge", [(None, 9), (9, None), (None, None)])
@pytest.mark.parametrize("name", ["connected_components", "0_core", "triangle_count"])
def test_graph_1_an_edge_without_an_end_is_refused(name: str, edge: Any) -> None:
    with pytest.raises(OperatorError, match="has no (start|end): leave such edges out"):
        held(PROGRAMS[name][0], [([(edge, 1)],)])


@pytest.mark.parametrize("hub", [0, 1_500, 3_000])
def test_hubs_count_their_triangles(hub: int) -> None:
    spokes = [(hub, node) for node in range(3_001) if node != hub]
    rim = [(1, 2), (2, 3), (1_400, 1_600), (2_900, 2_901)]
    changes = [([(edge, 1) for edge in [*spokes[:-1], *rim]],), ([(spokes[-1], 1), ((1, 2), -1), ((hub, 2_901), -1)],)]
    held_then = [rows(Counter(node for edge in chosen for node in (hub, *edge))) for chosen in (rim, rim[1:3])]
    assert held(dd.graphs.triangle_count, changes) == held_then


@pytest.mark.parametrize("kind", [timely.Product[int, int], TotalMoment])  # in no one order, and without a sort key
def test_triangles_at_times_of_any_kind(kind: Any) -> None:
    chance, changes, times = random.Random(5), list[Any](), list[Any](map(TotalMoment, range(6)))
    if kind is not TotalMoment:
        times = list(starmap(timely.Product, product(range(4), repeat=2)))
    for edge in combinations(range(8), 2):
        begin, end = chance.choice(times), chance.choice(times)
        changes += [(edge, begin, 1), *[(edge, end, -1)] * (begin <= end and begin != end)]
    with timely.Worker() as worker:
        with worker.dataflow(kind) as scope:
            session, edges = dd.new_collection(scope)
            output = dd.graphs.triangle_count(edges).output()
        for change in changes:
            session.update_at(*change)
        session.close()
        for time in times:
            there = Counter[Any]()
            for edge, when, diff in changes:
                there[edge] += diff if when <= time else 0
            assert output.at(time) == rows(triangles(+there)), time


def test_what_is_no_collection_of_edges_is_refused() -> None:
    with timely.Worker().dataflow(int) as scope:
        _, edges = dd.new_collection(scope)
        with pytest.raises(GraphError, match="breadth_first_search takes edges that are arranged by their source"):
            dd.graphs.breadth_first_search(edges.arrange_by_self(), edges)
        with pytest.raises(GraphError, match="triangle_count takes"):
            dd.graphs.triangle_count([(1, 2)])  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="propagate takes"):
            dd.graphs.propagate([(1, 2)], edges)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="number of neighbours"):
            dd.graphs.k_core(edges, -1)


def test_answered_searches_are_forgotten() -> None:
    """Each search from both ends keeps what it visited; a pair that is removed takes that with it."""
    chance = random.Random(2)
    edges = [(chance.randrange(300), chance.randrange(300)) for _ in range(900)]
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            distances = dd.graphs.bidirectional_search(dd.collection(scope, edges).distinct(), pairs).output()
        before = 0
        for epoch in range(60):
            pair = chance.randrange(300), chance.randrange(300)
            session.insert(pair)
            session.advance_to(2 * epoch + 1)
            answers = distances.at(2 * epoch)
            assert len(answers) <= 1 and all(asked == pair for asked, _ in answers)
            session.remove(pair)
            session.advance_to(2 * epoch + 2)
            assert distances.at(2 * epoch + 1) == {}
            distances.forget(2 * epoch + 1)
            if epoch == 10:
                before = sum(updates_in_traces())
        assert sum(updates_in_traces()) < 1.5 * before
        session.close()
        worker.run()
