"""Edges by source: what is found is what was taken in, whether it has been sorted by then or not.

White box: results do not show when edges are sorted, nor which edges a search looks at.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely.graphs.structures import adjacency as module
from timely.graphs.structures.adjacency import Adjacency
from timely.memory import MemoryBudget

Edges = list[tuple[int, int, int]]
Step = tuple[Edges, list[list[int]], bool]
"""Edges that are added, the nodes of later lookups, and whether the edges are sorted in between."""

sources = st.integers(0, 12) | st.integers(0, 100_000)
edges = st.lists(st.tuples(sources, st.integers(0, 50), st.integers(-5, 5)), max_size=30)
wanted = st.lists(sources, unique=True, max_size=12)


def found(adjacency: Adjacency, nodes: list[int]) -> Counter[tuple[int, int, int]]:
    counts: Counter[tuple[int, int, int]] = Counter()
    for which, (targets, weights) in adjacency.find(np.array(nodes, np.int64)):
        assert which.dtype == targets.dtype == np.int64
        counts.update(zip((nodes[place] for place in which.tolist()), targets.tolist(), weights.tolist(), strict=True))
    return counts


def rows_of(graph: Edges) -> Any:
    return np.array(graph, np.int64).reshape(-1, 3)


@given(
    st.lists(st.tuples(edges, st.lists(wanted, max_size=4), st.booleans()), max_size=6),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
)
@example([([(0, 1, 1), (1, 2, 2), (0, 3, 3)], [[0, 1]] * 40, False)], 1, 0, False)
@example([([(0, 1, 1)], [[0]], False), ([(100_000, 1, 1)], [[0, 100_000], [7]], False)], 2, 1, True)
def test_the_edges_of_nodes_are_those_that_were_added(steps: list[Step], peers: int, of: int, on_disk: bool) -> None:
    with MemoryBudget(1 if on_disk else None):
        check(steps, peers, of)


def check(steps: list[Step], peers: int, of: int) -> None:
    worker = of % peers
    adjacency = Adjacency(2, worker, peers)
    there: Edges = []
    for graph, questions, settles in steps:
        mine = [(source * peers + worker, target, weight) for source, target, weight in graph]
        adjacency.add(rows_of(mine))
        there += mine
        if settles:
            adjacency.sort()
        for nodes in ([node * peers + worker for node in question] for question in questions):
            expected = [edge for edge in there if edge[0] in nodes]
            assert found(adjacency, nodes) == Counter(expected)
            rest = [row for rows in adjacency.columns_of(np.array(nodes, np.int64)) for row in zip(*rows.tolist())]
            assert Counter(rest) == Counter(edge[1:] for edge in expected)
        assert Counter(tuple(row) for rows in adjacency.rows() for row in rows.tolist()) == Counter(there)
        assert adjacency.nodes().tolist() == sorted({edge[0] for edge in there})


@pytest.mark.parametrize("many", [10, 4_000])
def test_edges_are_sorted_when_they_have_been_looked_through_for_long(many: int) -> None:
    random = np.random.default_rng(5)
    graph = random.integers(0, 5_000, (20_000, 3))
    nodes = random.choice(6_000, many, replace=False).tolist()
    expected = Counter(map(tuple, graph[np.isin(graph[:, 0], nodes)].tolist()))
    adjacency = Adjacency(2)
    adjacency.add(graph)
    looked_at = []
    for _ in range(module._SCANS + 3):
        before = adjacency.scanned
        assert found(adjacency, nodes) == expected
        looked_at.append(adjacency.scanned - before)
    assert looked_at == [len(graph)] * module._SCANS + [expected.total()] * 3


def test_settled_edges_are_found_without_a_look_at_others() -> None:
    adjacency = Adjacency(2)
    adjacency.add(rows_of([(place % 10, place, 0) for place in range(100)]))
    adjacency.sort()
    assert len(found(adjacency, [3])) == 10
    assert adjacency.scanned == 10


def test_few_edges_of_nodes_with_great_numbers_take_no_table() -> None:
    adjacency = Adjacency(2)
    adjacency.add(rows_of([(10**12, 1, 2), (5, 3, 4)]))
    assert found(adjacency, [10**12, 6]) == Counter([(10**12, 1, 2)])
    assert adjacency.scanned == 1
