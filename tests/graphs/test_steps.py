"""The algorithms that run in bulk-synchronous steps: what networkx finds, for any number of workers, and what they refuse.

White box: these dataflows are in modules of their own, and not among the names of ``timely.graphs``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import timely
from tests.recovery.cutting import Phase
from tests.support.memory_registry import pause
from timely.graphs.graphframes.pregel.column_pregel import ACTIVE, ColumnProgram, MessageColumn, StateColumn, column_pregel
from timely.graphs.graphframes.pregel.expression_kernels import ColumnAggregate, ColumnField, Constant, FunctionCall
from timely.graphs.graphframes.pregel.neighborhood_labels import neighborhood_labels
from timely.graphs.graphframes.pregel.paths import landmark_distances, simple_cycles, simple_paths
from timely.graphs.graphframes.pregel.peeling import k_core, maximal_independent_set
from timely.graphs.graphframes.pregel.personalized_rank import personalized_pagerank
from timely.graphs.graphframes.pregel.svd_plus_plus import Factorization, svd_plus_plus

Build = Callable[[timely.Stream[int, Any], timely.Stream[int, Any]], timely.Stream[int, Any]]

GRAPHS = [(0, True, 3), (1, False, 1), (2, True, 2)]


def made(seed: int, named: bool) -> tuple[list[Any], list[tuple[Any, Any]], nx.DiGraph]:
    """A random graph, with loops, repeated edges, and nodes without edges."""
    chosen = random.Random(seed)
    nodes: list[Any] = [f"n{number:02}" if named else 3 * number - 7 for number in range(14)]
    edges = [(nodes[chosen.randrange(11)], nodes[chosen.randrange(12)]) for _ in range(19)]
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return nodes, edges, graph


def run(build: Build, edges: Sequence[tuple[Any, Any]], vertices: pa.RecordBatch, workers: int) -> list[tuple[Any, ...]]:
    """The rows that all workers find, which get every n-th edge and vertex."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            (edge_input, edge_stream), (vertex_input, vertex_stream) = scope.new_input(), scope.new_input()
            captured = build(edge_stream, vertex_stream).capture()
        own = edges[worker.index :: worker.peers]
        if own:
            edge_input.send_batch(pa.record_batch({"src": [src for src, _ in own], "dst": [dst for _, dst in own]}))
        rows = range(worker.index, len(vertices), worker.peers)
        if rows:
            vertex_input.send_batch(vertices.take(pa.array(rows)))
        edge_input.close()
        vertex_input.close()
        worker.run()
        return captured.messages

    messages = [message for result in timely.execute(program, workers=workers) for message in result]
    return [tuple(row.values()) for _, batch in messages for row in batch.to_pylist()]


def table(nodes: Sequence[Any], **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"node": nodes, **columns})


@pytest.mark.parametrize(("seed", "named", "workers"), GRAPHS)
def test_landmarks(seed: int, named: bool, workers: int) -> None:
    nodes, edges, graph = made(seed, named)
    marks = [nodes[1], nodes[4], nodes[13]]
    numbers = pa.array([marks.index(node) if node in marks else None for node in nodes], pa.int32())
    for both_ways, limit in ((False, None), (True, None), (False, 1)):
        result = dict(
            run(
                partial(landmark_distances, landmarks=3, both_ways=both_ways, limit=limit),
                edges,
                table(nodes, landmark=numbers),
                workers,
            )
        )
        walked = graph.to_undirected() if both_ways else graph
        for node in nodes:
            expected = {
                at: nx.shortest_path_length(walked, mark, node)
                for at, mark in enumerate(marks)
                if nx.has_path(walked, mark, node)
            }
            near = {at: length for at, length in expected.items() if limit is None or length <= limit}
            assert {pair["landmark"]: pair["distance"] for pair in result[node]} == near


@pytest.mark.parametrize(("seed", "named", "workers"), GRAPHS)
def test_cores_and_independent_sets(seed: int, named: bool, workers: int) -> None:
    nodes, edges, graph = made(seed, named)
    left, level, cores = nx.MultiGraph(edges), 0, dict.fromkeys(nodes, 0)
    while left:
        node, degree = min(left.degree(), key=lambda pair: pair[1])
        level = max(level, degree)
        cores[node] = level
        left.remove_node(node)
    assert dict(run(k_core, edges, table(nodes), workers)) == cores
    chosen = [node for (node,) in run(maximal_independent_set, edges, table(nodes), workers)]
    assert sorted(chosen) == sorted(node for (node,) in run(maximal_independent_set, edges, table(nodes), 2))
    near = {node: {other for other in nx.all_neighbors(graph, node) if other != node} for node in nodes}
    assert all(bool(near[node] & {*chosen}) != (node in chosen) for node in nodes)


@pytest.mark.parametrize(("seed", "named", "workers"), GRAPHS)
def test_cycles_and_paths(seed: int, named: bool, workers: int) -> None:
    nodes, edges, graph = made(seed, named)
    simple = nx.DiGraph(graph)
    cycles = []
    for cycle in nx.simple_cycles(simple):
        at = cycle.index(min(cycle))
        cycles.append([*cycle[at:], *cycle[: at + 1]])
    collected = [path for (path,) in run(simple_cycles, edges, table(nodes), workers)]
    assert sorted(collected) == sorted(cycles)
    short = [
        path for (path,) in run(lambda edges, vertices: simple_cycles(edges, vertices, limit=2), edges, table(nodes), workers)
    ]
    assert sorted(short) == sorted(cycle for cycle in cycles if len(cycle) <= 3)
    starts, ends = nodes[1:3], nodes[2:9]
    vertices = table(nodes, start=[node in starts for node in nodes], end=[node in ends for node in nodes])
    paths = [path for (path,) in run(lambda edges, vertices: simple_paths(edges, vertices, limit=4), edges, vertices, workers)]
    expected = [
        path
        for start in starts
        for end in ends
        for path in ([[start]] if start == end else nx.all_simple_paths(simple, start, end, cutoff=4))
    ]
    assert sorted(paths) == sorted(expected)


@pytest.mark.parametrize(("seed", "named", "workers"), GRAPHS)
def test_ranks(seed: int, named: bool, workers: int) -> None:
    nodes, edges, graph = made(seed, named)
    sources = [nodes[3], nodes[13]]
    numbers = pa.array([sources.index(node) if node in sources else None for node in nodes], pa.int32())

    def ranks(**settings: Any) -> dict[Any, list[float]]:
        apply: Build = lambda edges, vertices: personalized_pagerank(edges, vertices, **settings)  # noqa: E731
        return dict(run(apply, edges, table(nodes, source=numbers), workers))

    of_all = {node: rank / len(nodes) for node, (rank,) in ranks(tolerance=1e-10).items()}
    assert of_all == pytest.approx(nx.pagerank(graph, tol=1e-12), abs=1e-9)
    both = ranks(sources=2, tolerance=1e-12, damping=0.7)
    for at, source in enumerate(sources):
        expected = nx.pagerank(graph, alpha=0.7, personalization={source: 1}, tol=1e-12)
        assert {node: pair[at] for node, pair in both.items()} == pytest.approx(expected, abs=1e-9)
    scaled = ranks(rounds=5, dangling="scale")
    values = dict.fromkeys(nodes, 1.0)
    for _ in range(5):
        sent = dict.fromkeys(nodes, 0.0)
        for src, dst in edges:
            sent[dst] += values[src] / graph.out_degree(src)
        values = {node: 0.15 + 0.85 * sent[node] for node in nodes}
    whole = len(nodes) / sum(values.values())
    assert {node: rank for node, (rank,) in scaled.items()} == pytest.approx(
        {node: rank * whole for node, rank in values.items()}
    )
    assert {node: rank for node, (rank,) in ranks(rounds=0).items()} == dict.fromkeys(nodes, 1.0)


def distances(*, skip: bool, both: bool) -> ColumnProgram:
    """How far a node is from the nearest that has a ``start``."""
    whole, truth = pa.int64(), pa.bool_()
    far, sent = ColumnField("far"), ColumnField("_pregel_msg_")
    one = Constant(1, whole)
    nearer = FunctionCall(
        "Coalesce", (FunctionCall("LessThan", (sent, far), truth), FunctionCall("IsNotNull", (sent,), truth)), truth
    )
    longer = FunctionCall("Add", (ColumnField("src.far"), one), whole)
    if both:  # reads the other end too, and does not send what it would not take
        shorter = FunctionCall("LessThan", (longer, ColumnField("dst.far")), truth)
        shorter = FunctionCall("Coalesce", (shorter, Constant(True, truth)), truth)
        longer = FunctionCall("CaseWhen", (shorter, longer), whole)
    return ColumnProgram(
        {
            "far": StateColumn(whole, ColumnField("start"), FunctionCall("If", (nearer, sent, far), whole)),
            ACTIVE: StateColumn(truth, FunctionCall("IsNotNull", (ColumnField("start"),), truth), nearer),
        },
        [MessageColumn(longer, to_source=False)],
        whole,
        [ColumnAggregate("Min", sent, whole)],
        ColumnField("0"),
        supersteps=100,
        skip_inactive=skip,
        stop_when_inactive=True,
    )


@pytest.mark.parametrize(("skip", "both", "workers"), [(False, False, 3), (False, True, 1), (True, False, 1), (True, True, 3)])
def test_pregel_over_columns(workers: int, skip: bool, both: bool) -> None:
    """Distances from two nodes: a node whose distance has changed is active, and all halt when none is."""
    nodes, edges, graph = made(4, named=True)
    program = distances(skip=skip, both=both)
    starts = {nodes[2]: 0, nodes[5]: 3}
    vertices = table(nodes, start=pa.array([starts.get(node) for node in nodes], pa.int64()))
    result = dict(run(partial(column_pregel, program=program), edges, vertices, workers))
    lengths = {start: nx.single_source_shortest_path_length(graph, start) for start in starts}
    reached = {node: [starts[start] + near[node] for start, near in lengths.items() if node in near] for node in nodes}
    assert result == {node: min(ways, default=None) for node, ways in reached.items()}


@pytest.mark.parametrize("workers", [1, 3])
def test_without_edges_and_without_anything(workers: int) -> None:
    assert sorted(run(k_core, [], table([4, 5]), workers)) == [(4, 0), (5, 0)]
    assert run(k_core, [], table(pa.array([], pa.int64())), workers) == []
    assert run(simple_cycles, [], table(["a"]), workers) == []


@pytest.mark.parametrize(
    ("edges", "nodes", "told"),
    [
        ([(1, 2)], [1], "an edge starts at 2, which is no vertex"),
        ([(1, 2)], [], "an edge starts at 1, which is no vertex"),
        ([], [1, 2, 1], "there are two vertices 1; a vertex has one row"),
        ([], [1, None], "the vertices' column 'node' has 1 nulls|column 'node' has 1 nulls"),
    ],
)
def test_what_is_no_graph(edges: list[tuple[int, int]], nodes: list[Any], told: str) -> None:
    with pytest.raises(timely.OperatorError, match=told):
        run(k_core, edges, table(pa.array(nodes, pa.int64())), 2)


def test_a_source_that_is_no_vertex() -> None:
    vertices = table([1, 2], source=pa.array([None, 0], pa.int32()))
    with pytest.raises(timely.OperatorError, match="a source of the ranks is no vertex: 1 of 2 are none"):
        run(lambda edges, vertices: personalized_pagerank(edges, vertices, sources=2, rounds=1), [], vertices, 2)


@pytest.mark.parametrize(("seed", "both_ways", "direct", "workers"), [(5, False, 1.0, 1), (6, True, 1.0, 3), (7, False, 0.0, 3)])
def test_labels_by_neighbours_in_common(workers: int, seed: int, both_ways: bool, direct: float) -> None:
    """By the definition, with sets: the labels are names whose order is not that of the nodes."""
    nodes, edges, graph = made(seed, named=True)
    near = {node: {*graph.successors(node), *graph.predecessors(node)} for node in nodes}
    voting = sorted({*edges, *((b, a) for a, b in edges)}) if both_ways else edges
    labels = {node: f"{9 - number % 7}{node}" for number, node in enumerate(nodes)}
    values = table(nodes, label=list(labels.values()))
    for _ in range(3):
        votes = {node: Counter[str]() for node in nodes}
        for a, b in voting:
            votes[b][labels[a]] += direct + 0.75 * len(near[a] & near[b])  # type: ignore[assignment]
        labels = {
            node: max(((count, label) for label, count in votes[node].items()), default=(0, labels[node]))[1] for node in nodes
        }
    apply = partial(neighborhood_labels, rounds=3, similarity=0.75, direct=direct, both_ways=both_ways)
    assert dict(run(apply, edges, values, workers)) == labels


@pytest.mark.parametrize("workers", [1, 3])
def test_ratings(workers: int) -> None:
    """SVD++ by its formulas, one rating after the other, where users are rated too; idle runs give the first factors."""
    chosen = random.Random(8)
    edges = [(chosen.randrange(9), chosen.randrange(5, 12)) for _ in range(30)]
    ratings = [float(chosen.randrange(1, 6)) for _ in edges]
    parameters = Factorization(rank=3, rounds=4, least=1.0, bias_rate=0.02, factor_rate=0.03)

    def rated(settings: Factorization, edges: Sequence[tuple[int, int]]) -> dict[int, tuple[Any, ...]]:
        batches = {"src": [a for a, _ in edges], "dst": [b for _, b in edges], "weight": ratings[: len(edges)]}

        def program(worker: timely.Worker) -> list[Any]:
            with worker.dataflow(int) as scope:
                start = scope.to_stream([0] if worker.index == 0 else [])
                pairs = start.map_batch(lambda _: pa.record_batch(batches))
                vertices = start.map_batch(lambda _: pa.record_batch({"node": list(range(13))}))
                captured = svd_plus_plus(pairs, vertices, settings).capture()
            worker.run()
            return captured.messages

        messages = [message for result in timely.execute(program, workers=workers) for message in result]
        return {row["node"]: tuple(row.values())[1:] for _, batch in messages for row in batch.to_pylist()}

    idle = attrs.evolve(parameters, rounds=1, bias_rate=0.0, factor_rate=0.0)
    first, as_items = rated(idle, edges), rated(idle, [(12, item) for item in range(12)])
    users, known = {a for a, _ in edges}, {node for pair in edges for node in pair}
    p = {node: np.array(first[node][0]) for node in known}
    y = {node: np.array(as_items[node][1]) for node in known}
    bias, norm = ({node: first[node][at] for node in known} for at in (2, 3))
    mean = sum(ratings) / len(ratings)
    for node in known:
        own = [rating for pair, rating in zip(edges, ratings) for end in pair if end == node]
        assert (bias[node], norm[node]) == pytest.approx((sum(own) / len(own) - mean, len(own) ** -0.5))
    assert all(0 <= factor < 1 for node in known for factor in (*p[node], *y[node]))

    def error(rating: float, a: int, b: int) -> Any:
        return rating - min(max(mean + bias[a] + bias[b] + float(y[a] @ p[b]), 1.0), 5.0)

    for _ in range(4):
        feedback = {node: sum((y[b] for a, b in edges if a == node), np.zeros(3)) for node in users}
        y.update({node: p[node] + norm[node] * sum_ for node, sum_ in feedback.items()})
        new_p, new_y, new_bias = ({**old} for old in (p, y, bias))
        for (a, b), rating in zip(edges, ratings):
            wrong = error(rating, a, b)
            new_p[a] = new_p[a] + 0.03 * (wrong * p[b] - 0.015 * p[a])
            new_p[b] = new_p[b] + 0.03 * (wrong * y[a] - 0.015 * p[b])
            for node in (a, b):
                new_y[node] = new_y[node] + 0.03 * (wrong * norm[a] * p[b] - 0.015 * y[b])
                new_bias[node] += 0.02 * (wrong - 0.005 * bias[node])
        p, y, bias = new_p, new_y, new_bias
    result = rated(parameters, edges)
    assert result[12] == (None, None, None, None, None, 0)
    for node in known:
        squares = [error(rating, a, b) ** 2 for (a, b), rating in zip(edges, ratings) if b == node]
        explicit, implicit, own_bias, _, errors, count = result[node]
        assert [*explicit, *implicit, own_bias] == pytest.approx([*p[node], *y[node], bias[node]])
        assert (errors, count) == (pytest.approx(sum(squares)) if squares else None, len(squares))


def cut_programs() -> dict[str, tuple[Build, dict[str, Any]]]:
    """Programs in steps, and the columns of vertices that they read."""
    marks = [0, None, 1] + [None] * 11
    ends = {"start": [node < 2 for node in range(14)], "end": [node % 3 == 0 for node in range(14)]}
    ranks = partial(personalized_pagerank, sources=2, tolerance=1e-3, damping=0.6)
    return {
        "landmarks": (partial(landmark_distances, landmarks=2), {"landmark": pa.array(marks, pa.int32())}),
        "cores": (k_core, {}),
        "independent set": (maximal_independent_set, {}),
        "cycles": (partial(simple_cycles, limit=4), {}),
        "paths": (partial(simple_paths, limit=3), ends),
        "ranks": (ranks, {"source": pa.array(marks, pa.int32())}),
        "scaled ranks": (partial(personalized_pagerank, rounds=2, dangling="scale"), {"source": pa.nulls(14, pa.int32())}),
        "labels": (partial(neighborhood_labels, rounds=3), {"label": list("hgfedcbahgfedc")}),
        "pregel": (partial(column_pregel, program=distances(skip=True, both=True)), {"start": pa.array(marks, pa.int64())}),
    }


@pytest.mark.parametrize("name", cut_programs())
def test_a_program_that_is_cut_after_each_step_goes_on(name: str) -> None:
    """Each phase is one of two workers that take a few steps; what it gave is that of a run without a cut, to the last bit."""
    apply, columns = cut_programs()[name]
    nodes, edges, _ = made(1, named=False)
    batches = [pa.record_batch({"src": list(src), "dst": list(dst)}) for src, dst in (zip(*edges[:9]), zip(*edges[9:]))]
    vertices = table(nodes, **columns)

    def phase(start: list[Any]) -> Phase:
        return Phase(lambda scope, edges, vertices: apply(edges, vertices), 2, 2, start)

    def feed(to: Phase) -> None:
        for number, batch in enumerate(batches):
            to.send(0, number, 0, batch)
            to.send(1, number, 0, vertices.slice(7 * number, 7))

    whole = phase([])
    feed(whole)
    whole.advance_to(1)
    whole.end()
    for first, steps in ((4, 5), (5, 4), (6, 4)):
        result: Counter[Any] = Counter()
        part, cuts = phase([]), 0
        feed(part)
        while result.total() < whole.outputs().total():
            part.advance_to(1)
            for _ in range(first if cuts == 0 else steps):
                for pair in part.network.waiting():
                    part.network.deliver(*pair, 9)
                for worker in part.workers:
                    worker.step()
            pause(part.workers, part.network)
            start = [registry.snapshot(compact=False, in_flight=True) for registry in part.state_registries]
            result += part.outputs()
            part, cuts = phase(start), cuts + 1
            assert cuts < 99
        assert cuts > 1
        part.advance_to(1)
        part.end()
        assert result + part.outputs() == whole.outputs()
