"""PageRank, label propagation and triangle count, against SciPy, NetworkX and definitions, on any number of workers.

White box: that the state of a complete epoch is dropped shows in no result, nor which version an edge came with.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.graphs.running import answers, corners, ranked, run, table_of, vertices_of
from timely.graphs import label_propagation, pagerank, triangle_count
from timely.graphs.labels import _Voting
from timely.graphs.triangles import EdgeSet, packed
from timely.memory import Spool


def ranks_of(table: pa.Table) -> dict[Any, float]:
    """The rank of each node; a node that has two rows fails."""
    result = dict(zip(table["node"].to_pylist(), table["rank"].to_pylist()))
    assert len(result) == table.num_rows
    assert not result or sum(result.values()) == pytest.approx(1, rel=1e-9)
    return result


def close(ranks: dict[Any, float], expected: dict[Any, float], within: float = 1e-9) -> bool:
    return ranks.keys() == expected.keys() and all(abs(ranks[node] - expected[node]) <= within for node in expected)


def test_nodes_of_a_large_graph_are_in_blocks() -> None:
    """More nodes than one block has: sources and targets of most edges are in different ones."""
    nodes = 2_200_000
    source = np.arange(nodes)
    target = (source * 999_983 + 7) % nodes  # 999,983 has no factor of the number of nodes: each is a target once
    target[::3] = source[::3] // 1_000
    ranks = np.full(nodes, 1 / nodes)
    for _ in range(2):  # each node has one edge
        ranks = 0.15 / nodes + 0.85 * np.bincount(target, ranks, nodes)
    (table,) = run([pa.table({"src": source, "dst": target})], build=lambda edges: pagerank(edges, rounds=2), workers=2)
    result = np.empty(nodes)
    result[table["node"].to_numpy()] = table["rank"].to_numpy()
    assert table.num_rows == nodes
    assert np.allclose(result, ranks, rtol=1e-12, atol=0)


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize(("targets", "degree"), [(2, 2), (90, 2), (2, 13), (90, 13)])
def test_sums_for_few_targets_and_for_most_nodes(workers: int, targets: int, degree: int) -> None:
    edges = [(f"{node:02}", f"{99 - (7 * node + step) % targets}") for node in range(100) for step in range(degree)]
    (table,) = run([table_of(edges, pa.string())], build=lambda edges: pagerank(edges, rounds=7), workers=workers, rows=9)
    assert close(ranks_of(table), ranked(edges, [], rounds=7, damping=0.85))


def test_ranks_are_those_of_networkx() -> None:
    graph: Any = nx.gnp_random_graph(60, 0.05, seed=2, directed=True)
    tables = [table_of(list(graph.edges))], [vertices_of(list(graph.nodes))]
    (table,) = run(*tables, build=lambda edges, vertices: pagerank(edges, vertices=vertices, tolerance=1e-12), workers=2)
    assert close(ranks_of(table), nx.pagerank(graph, tol=1e-14))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_edges_that_were_sent_stay_as_they_were(workers: int) -> None:
    edges = table_of([(5, 3), (3, 5), (4, 3), (900, 4)]).combine_chunks()
    before = edges.to_pylist()
    collected = [run([edges], build=lambda edges: pagerank(edges, rounds=3), workers=workers)[0] for _ in range(2)]
    assert edges.to_pylist() == before
    assert ranks_of(collected[0]) == ranks_of(collected[1])


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_ranks_are_within_the_tolerance(tolerance: float) -> None:
    random = np.random.default_rng(4)
    edges = random.integers(0, 200, (900, 2)).tolist()
    (table,) = run([table_of(edges)], build=lambda edges: pagerank(edges, tolerance=tolerance), workers=2)
    exact, result = ranked(edges), ranks_of(table)
    away = sum(abs(result[node] - exact[node]) for node in exact)
    assert 1e-12 < away <= tolerance * 0.85 / 0.15


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"damping": 1.0}, "damping must be at least 0 and below 1, not 1.0"),
        ({"damping": float("nan")}, "damping"),
        ({"tolerance": 0}, "tolerance must be above 0, not 0"),
        ({"rounds": -1}, "rounds must be 0 or more, not -1"),
        ({"rounds": 1.5}, "rounds must be 0 or more, not 1.5"),
    ],
)
def test_parameters_that_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(timely.ConfigurationError, match=message):
        timely.example(lambda scope: pagerank(scope.empty(), **wrong))


def test_the_state_of_a_complete_epoch_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[_Voting[int]] = []
    begin = _Voting.__init__

    def noted(self: _Voting[int], rounds: int) -> None:
        begin(self, rounds)
        made.append(self)

    monkeypatch.setattr(_Voting, "__init__", noted)
    run([table_of([(1, 2), (2, 3)]), table_of([(7, 8)])], build=label_propagation, workers=2)
    assert [voting._parts for voting in made] == [{}, {}]


@pytest.mark.parametrize("rounds", [-1, 1.5, None])
def test_rounds_of_labels_that_cannot_be(rounds: Any) -> None:
    with pytest.raises(timely.ConfigurationError, match=f"rounds must be 0 or more, not {rounds}"):
        timely.example(lambda scope: label_propagation(scope.empty(), rounds=rounds))


@pytest.mark.parametrize("workers", [1, 2])
def test_triangles_with_a_hub(workers: int) -> None:
    spokes = [(0, i) for i in range(1, 3001)]
    rim = [(i, i + 1) for i in range(1, 3000)]
    states = answers(run([table_of(spokes), table_of(rim)], build=triangle_count, workers=workers, rows=100))
    assert states == [corners(spokes), corners(spokes + rim)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12), max_size=6))
def test_edge_set_knows_the_version_of_each_edge(batches: list[list[tuple[int, int]]]) -> None:
    edges = EdgeSet()
    versions: dict[tuple[int, int], int] = {}
    for version, batch in enumerate(batches):
        some = Spool()
        some.append(np.array([(a << 32 | b, version) for a, b in batch], np.int64).reshape(-1, 2))
        new = [edge for rows in edges.add(some) for edge in rows[:, 0].tolist()]
        assert [(edge >> 32, edge & 0xFFFFFFFF) for edge in new] == sorted({*batch} - versions.keys())
        versions.update({edge: version for edge in batch if edge not in versions})
    every = [(a, b) for a in range(8) for b in range(8)]
    rows = np.array(every)
    assert edges.versions(packed(rows[:, 0], rows[:, 1])).tolist() == [versions.get(edge, -1) for edge in every]
    wanted = np.array([5, 0, 7, 3])
    which, targets, result = edges.find(wanted)
    mine = sorted(zip(wanted[which].tolist(), targets.tolist(), result.tolist()))
    assert mine == sorted((a, b, version) for (a, b), version in versions.items() if a in wanted.tolist())
