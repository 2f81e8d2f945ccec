"""Graphs that grow, at times that are not totally ordered: an error, or nothing that one time knows is missing from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timely
from tests.graphs.running import corners, joined, nearest
from timely import Product, TimestampError
from timely.graphs import breadth_first_search, connected_components, triangle_count
from timely.testing import simulate

NAMED_LATER = [(Product(1, 0), (1, 1)), (Product(0, 1), (3, 4)), (Product(0, 0), (4, 5))]
LOST = [(Product(1, 0), (0, 2)), (Product(0, 1), (0, 3)), (Product(0, 1), (3, 0)), (Product(1, 0), (3, 3))]
"""What gave wrong answers under some schedules: one time used what another one, not at or before it, had learnt."""

ALGORITHMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
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


@pytest.mark.parametrize("name", ALGORITHMS)
@given(st.lists(st.tuples(times, edges), min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 10**6))
@example(NAMED_LATER, 2, 77)
@example(LOST, 2, 1)
def test_a_growing_graph_is_right_or_refuses_times_that_are_incomparable(
    name: str, sent: list[Any], workers: int, seed: int
) -> None:
    algorithm, oracle, latest = ALGORITHMS[name]

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
