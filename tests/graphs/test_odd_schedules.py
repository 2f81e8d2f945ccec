"""Every algorithm gives the same answer however messages and progress are delayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.graphs.oracles import corners, joined, ranked, voted
from tests.graphs.running import Edges, so_far, table_of
from timely import testing
from timely.graphs import (
    accumulated,
    connected_components,
    label_propagation,
    pagerank,
    strongly_connected_components,
    triangle_count,
)

Build = Callable[..., timely.Stream[int, Any]]

nodes = st.sampled_from([number << 10 for number in range(10)])  # far apart, or all would be one worker's
epochs = st.lists(st.lists(st.tuples(nodes, nodes), max_size=15), min_size=1, max_size=3)
seeds = st.integers(0, 2**16)


def simulated(graphs: list[Edges], build: Build, workers: int, seed: int) -> list[dict[int, Any]]:
    """The rows of each epoch under the schedule that ``seed`` stands for."""

    def program(worker: timely.Worker) -> list[tuple[int, list[tuple[int, Any]]]]:
        with worker.dataflow(int) as scope:
            handle, edges = scope.new_input()
            captured = build(edges).capture()
        for epoch, graph in enumerate(graphs):
            for batch in table_of(graph[worker.index :: worker.peers]).to_batches():
                handle.send_batch(batch)
            handle.advance_to(epoch + 1)
        handle.close()
        worker.run()
        return captured.extract()

    rows: list[list[tuple[int, Any]]] = [[] for _ in graphs]
    for part in testing.simulate(program, workers=workers, seed=seed).results:
        for epoch, some in part:
            rows[epoch].extend(some)
    assert all(len(dict(some)) == len(some) for some in rows)
    return [dict(some) for some in rows]


@pytest.mark.parametrize(("build", "oracle"), [(connected_components, joined), (triangle_count, corners)])
@given(graphs=epochs, workers=st.integers(2, 3), seed=seeds)
def test_what_later_epochs_refine(
    build: Build, oracle: Callable[[Edges], Any], graphs: list[Edges], workers: int, seed: int
) -> None:
    result = simulated(graphs, build, workers, seed)
    state: dict[int, Any] = {}
    for rows, graph in zip(result, so_far(graphs)):
        assert all(state.get(node) != value for node, value in rows.items())
        state.update(rows)
        assert state == oracle(graph)


@given(epochs, st.integers(2, 3), seeds)
def test_labels_of_epochs_that_overlap(graphs: list[Edges], workers: int, seed: int) -> None:
    assert simulated(graphs, label_propagation, workers, seed) == [voted(graph) for graph in graphs]


@given(epochs, st.integers(2, 3), seeds)
def test_ranks_of_epochs_that_overlap(graphs: list[Edges], workers: int, seed: int) -> None:
    result = simulated(graphs, lambda edges: pagerank(accumulated(edges), rounds=4), workers, seed)
    for rows, new, graph in zip(result, graphs, so_far(graphs)):
        assert rows == pytest.approx(ranked(graph, rounds=4) if new else {}, abs=1e-12)


@given(epochs, st.integers(2, 3), seeds)
def test_strong_components_of_epochs_that_overlap(graphs: list[Edges], workers: int, seed: int) -> None:
    alone = [timely.example(lambda scope: strongly_connected_components(_stream(scope, graph))) for graph in graphs]  # noqa: B023
    assert simulated(graphs, strongly_connected_components, workers, seed) == [dict(rows[0][1]) if rows else {} for rows in alone]


def _stream(scope: Any, graph: Edges) -> Any:
    return scope.to_stream(table_of(graph).to_batches()).map_batch(lambda batches: batches[0])
