"""Every algorithm finds what its definition says: in random graphs that grow, any workers and schedule, also at partial times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timely
from tests.graphs.running import (
    Weighted,
    answers,
    corners,
    debian,
    joined,
    nearest,
    ranked,
    run,
    so_far,
    strong,
    table_of,
    vertices_of,
    voted,
)
from timely import Product, TimestampError
from timely.graphs import (
    breadth_first_search,
    connected_components,
    label_propagation,
    pagerank,
    shortest_paths,
    strongly_connected_components,
    triangle_count,
)
from timely.testing import simulate

Epochs = list[tuple[Weighted, list[Any]]]
"""The edges and the nodes of each epoch."""


class Parameters(NamedTuple):
    """What some of the algorithms take."""

    source: Any
    rounds: int
    damping: float


class Algorithm(NamedTuple):
    """``build(edges, vertices, parameters)``, and what it is to find, of the same; whether later epochs refine the answer."""

    build: Callable[..., Any]
    oracle: Callable[..., dict[Any, Any]]
    refines: bool = True
    near: float = 0


def steps(edges: Weighted, _: Any, parameters: Parameters) -> dict[Any, Any]:
    return nearest([(a, b, 1) for a, b, _ in edges], parameters.source)


def ranks(edges: Weighted, alone: list[Any], parameters: Parameters) -> dict[Any, float]:
    pairs, rounds = [edge[:2] for edge in edges], parameters.rounds
    names = {node for pair in pairs for node in pair} | set(alone)
    if not rounds:
        return {name: 1 / len(names) for name in names}
    return ranked(pairs, alone, rounds=rounds, damping=parameters.damping)


def of_pairs(oracle: Callable[..., dict[Any, Any]]) -> Callable[..., dict[Any, Any]]:
    return lambda edges, alone, parameters: oracle([edge[:2] for edge in edges], alone)


ALGORITHMS: dict[str, Algorithm] = {
    "components": Algorithm(lambda e, v, _: connected_components(e, vertices=v), of_pairs(joined)),
    "triangles": Algorithm(lambda e, v, _: triangle_count(e, vertices=v), of_pairs(corners)),
    "steps": Algorithm(lambda e, _, with_: breadth_first_search(e, with_.source), steps),
    "distances": Algorithm(
        lambda e, _, with_: shortest_paths(e, with_.source), lambda e, _, with_: nearest(e, with_.source), near=1e-12
    ),
    "strong": Algorithm(lambda e, v, _: strongly_connected_components(e, vertices=v), of_pairs(strong), refines=False),
    "labels": Algorithm(
        lambda e, v, with_: label_propagation(e, vertices=v, rounds=with_.rounds),
        lambda e, v, with_: voted([edge[:2] for edge in e], v, with_.rounds),
        refines=False,
    ),
    "ranks": Algorithm(
        lambda e, v, with_: pagerank(e, vertices=v, rounds=with_.rounds, damping=with_.damping), ranks, refines=False, near=1e-9
    ),
    "settled ranks": Algorithm(
        lambda e, v, _: pagerank(e, vertices=v, tolerance=1e-6), of_pairs(ranked), refines=False, near=1e-3
    ),
}

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], Any]] = [
    (pa.int64(), st.integers(0, 9) | st.sampled_from([-5, 10**12]), 0),
    (pa.int64(), st.integers(0, 9).map(lambda number: number << 10), 0),  # far apart, or all would be one worker's
    (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1]), 0),
    (pa.string(), st.text("abcé", max_size=2), "a"),
]
"""Types of nodes, nodes, and where searches begin."""

WEIGHTS = st.integers(0, 12).map(lambda number: number / 2) | st.sampled_from([-0.0, 5e-324, 1e-9, 1e9])


def epochs_of(kind: tuple[pa.DataType, st.SearchStrategy[Any], Any]) -> st.SearchStrategy[tuple[pa.DataType, Any, Epochs]]:
    node, nodes, source = kind
    edges = st.lists(st.tuples(nodes, nodes, WEIGHTS), max_size=20)
    epochs = st.lists(st.tuples(edges, st.lists(nodes, max_size=3)), min_size=1, max_size=4)
    return st.tuples(st.just(node), st.just(source), epochs)


@pytest.mark.parametrize("name", ALGORITHMS)
@given(
    st.sampled_from(KINDS).flatmap(epochs_of),
    st.integers(1, 3),
    st.integers(1, 8),
    st.none() | st.integers(0, 2**16),
    st.integers(0, 7),
    st.sampled_from([0.0, 0.5, 0.85]),
)
def test_an_algorithm_finds_what_its_definition_says(
    name: str, graph: tuple[pa.DataType, Any, Epochs], workers: int, rows: int, seed: int | None, rounds: int, damping: float
) -> None:
    algorithm, (kind, source, epochs) = ALGORITHMS[name], graph
    parameters = Parameters(source, rounds, damping)
    edges, alone = ([epoch[place] for epoch in epochs] for place in (0, 1))
    tables = [
        table_of([edge[:2] for edge in some], kind).append_column("weight", pa.array([edge[2] for edge in some], pa.float64()))
        for some in edges
    ]
    results = run(
        tables,
        [vertices_of(some, kind) for some in alone],
        build=lambda edges, vertices: algorithm.build(edges, vertices, parameters),
        workers=workers,
        rows=rows,
        seed=seed,
    )
    if algorithm.refines:
        states, graphs = answers(results), zip(so_far(edges), so_far(alone))
    else:
        states, graphs = [answers([table])[0] for table in results], zip(edges, alone)
    for state, (some, nodes) in zip(states, graphs, strict=True):
        expected = algorithm.oracle(some, nodes, parameters)
        assert state == (pytest.approx(expected, rel=algorithm.near, abs=0) if algorithm.near else expected)


@pytest.mark.parametrize("name", ["components", "triangles", "steps", "strong", "labels", "ranks"])
def test_an_algorithm_finds_it_in_debian(name: str) -> None:
    algorithm, parameters = ALGORITHMS[name], Parameters("gnome", 3, 0.85)
    edges = debian("suggests" if name in ("labels", "ranks") else "depends")
    (table,) = run([edges], build=lambda edges: algorithm.build(edges, None, parameters), processes=2)
    expected = algorithm.oracle([(*edge, 1.0) for edge in zip(*edges.to_pydict().values())], [], parameters)
    state = answers([table])[0]
    assert len(state) > 1_000
    assert state == (pytest.approx(expected, rel=algorithm.near, abs=0) if algorithm.near else expected)


NAMED_LATER = [(Product(1, 0), (1, 1)), (Product(0, 1), (3, 4)), (Product(0, 0), (4, 5))]
LOST = [(Product(1, 0), (0, 2)), (Product(0, 1), (0, 3)), (Product(0, 1), (3, 0)), (Product(1, 0), (3, 3))]
"""What gave wrong answers under some schedules: one time used what another one, not at or before it, had learnt."""

GROWING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "breadth_first_search": (
        lambda edges: breadth_first_search(edges, 0),
        lambda edges: nearest([(*edge, 1) for edge in edges], 0),
        min,
    ),
    "connected_components": (connected_components, joined, min),
    "triangle_count": (triangle_count, corners, max),
}
times = st.builds(Product, st.integers(0, 1), st.integers(0, 1))
edges = st.tuples(st.integers(0, 5), st.integers(0, 5))


@pytest.mark.parametrize("name", GROWING)
@given(st.lists(st.tuples(times, edges), min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 10**6))
@example(NAMED_LATER, 2, 77)
@example(LOST, 2, 1)
def test_a_growing_graph_is_right_or_refuses_times_that_are_incomparable(
    name: str, sent: list[Any], workers: int, seed: int
) -> None:
    algorithm, oracle, latest = GROWING[name]

    def program(worker: timely.Worker) -> Counter[Any]:
        with worker.dataflow(Product[int, int]) as scope:
            (handle, capability), stream = scope.new_unordered_input()
            columns = stream.map_batch(lambda some: pa.record_batch({"src": [a for a, _ in some], "dst": [b for _, b in some]}))
            seen = algorithm(columns).capture()
        for time, edge in sent[worker.index :: worker.peers]:
            handle.session(capability.delayed(time)).give(edge)
            worker.step()
        capability.drop()
        worker.run()
        return Counter(record for _, batch in seen.extract() for record in batch)

    try:
        rows: Counter[Any] = sum(simulate(program, workers, seed).results, Counter())
    except timely.OperatorError as error:
        assert isinstance(error.__cause__, TimestampError)
        assert any(not (one <= other or other <= one) for (one, _), (other, _) in combinations(sent, 2))
        return
    by_name: dict[int, float] = {}
    for node, value in rows:
        by_name[node] = latest(value, by_name.get(node, value))
    assert by_name == oracle([edge for _, edge in sent])
