"""``pregel``, against NetworkX, on any number of workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import testing
from timely.graphs import PregelVertex, pregel

Vertex = PregelVertex[Any, Any, Any]
Records = list[tuple[Any, Any]]


def run_pregel(
    epochs: list[tuple[Records, Records]],
    compute: Callable[..., Any],
    combine: Any = None,
    workers: int = 1,
    seed: int | None = None,
) -> list[dict[Any, Any]]:
    """Run on the vertices and edges of each epoch, partitioned to the workers; return the states of each.

    With ``seed``, under the schedule that it stands for.
    """

    def program(worker: timely.Worker) -> list[tuple[int, Records]]:
        with worker.dataflow(int) as scope:
            vertices, edges = scope.new_input(), scope.new_input()
            captured = pregel(vertices[1], edges[1], compute, combine).capture()
        for epoch, (some, others) in enumerate(epochs):
            for (handle, _), records in ((vertices, some), (edges, others)):
                for record in records[worker.index :: worker.peers]:
                    handle.send(record)
                handle.advance_to(epoch + 1)
        vertices[0].close()
        edges[0].close()
        worker.run()
        return captured.extract()

    states: list[dict[Any, Any]] = [{} for _ in epochs]
    if seed is None:
        parts = timely.execute(program, workers=workers)
    else:
        parts = testing.simulate(program, workers=workers, seed=seed).results
    for part in parts:
        for epoch, records in part:
            for node, state in records:
                assert node not in states[epoch]
                states[epoch][node] = state
    return states


def nearer(vertex: Vertex, messages: list[float]) -> tuple[float, Records]:
    """Shortest paths: the state is the distance, an edge is a target and a weight."""
    distance = min([vertex.state, *messages])
    tells = distance < math.inf if vertex.superstep == 0 else distance < vertex.state
    return distance, [(target, distance + weight) for target, weight in vertex.edges if tells]


nodes = st.integers(0, 8)
weighted = st.lists(st.tuples(nodes, nodes, st.integers(0, 9)), max_size=25)


@given(st.lists(weighted, min_size=1, max_size=3), st.integers(1, 3), st.booleans(), st.none() | st.integers(0, 999))
def test_shortest_paths_by_pregel(
    graphs: list[list[tuple[int, int, int]]], workers: int, combined: bool, seed: int | None
) -> None:
    vertices: Records = [(node, math.inf if node else 0) for node in range(9)]
    epochs: list[tuple[Records, Records]] = [(vertices, [(a, (b, w)) for a, b, w in graph]) for graph in graphs]
    expected = []
    for edges in graphs:
        graph: Any = nx.MultiDiGraph()
        graph.add_nodes_from(range(9))
        graph.add_weighted_edges_from(edges)
        reached = nx.single_source_dijkstra_path_length(graph, 0)
        expected.append({node: reached.get(node, math.inf) for node in range(9)})
    assert run_pregel(epochs, nearer, min if combined else None, workers, seed) == expected


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_messages_of_one_superstep_come_together_in_the_next(workers: int) -> None:
    size = 7

    def collect(vertex: Vertex, messages: list[str]) -> tuple[list[Any], Records]:
        state = [*vertex.state, (vertex.superstep, sorted(messages))]
        return state, [(0, f"{vertex.node}@{vertex.superstep}")] if vertex.superstep <= (vertex.node == 0) else []

    (states,) = run_pregel([([(node, []) for node in range(size)], [])], collect, workers=workers)
    message = sorted(f"{node}@0" for node in range(size))
    assert states == {0: [(0, []), (1, message), (2, ["0@1"])], **{node: [(0, [])] for node in range(1, size)}}


def test_messages_are_combined_before_they_travel() -> None:
    seen: list[list[int]] = []

    def count(vertex: Vertex, messages: list[int]) -> tuple[int, Records]:
        if messages:
            seen.append(messages)
        return sum(messages), [("all", 1)] * 3 if vertex.superstep == 0 else []

    vertices: Records = [("all", 0), *((node, 0) for node in range(10))]
    (states,) = run_pregel([(vertices, [])], count, int.__add__)
    assert seen == [[33]]
    assert states["all"] == 33


def refused(vertices: Records, edges: Records, compute: Callable[..., Any] | None = None) -> str:
    with pytest.raises(timely.OperatorError) as caught:
        run_pregel([(vertices, edges)], compute or (lambda vertex, _: (0, [(target, 0) for target in vertex.edges])), workers=2)
    assert isinstance(caught.value.__cause__, timely.SchemaError)
    return str(caught.value)


def test_pregel_refuses_what_is_no_vertex() -> None:
    assert "a message was sent to 2, which is no vertex: add it to the vertices" in refused([(1, 0)], [(1, 2)])
    assert "an edge starts at 2, which is no vertex" in refused([(1, 0)], [(2, 1)])
    assert "two vertices 1" in refused([(1, 0), (1, 0)], [])


@pytest.mark.parametrize("wrong", [None, 5, (1,), (1, None)])
def test_pregel_says_what_compute_is_to_return(wrong: Any) -> None:
    message = refused([("a", 0)], [], lambda vertex, messages: wrong)
    assert f"compute returns a state and pairs (node, message), and for 'a' it returned {wrong!r}" in message


def test_what_compute_raises_names_the_operator() -> None:
    with pytest.raises(timely.OperatorError, match=r"'pregel' .*raised ZeroDivisionError"):
        run_pregel([([(1, 0)], [])], lambda vertex, _: (1 // vertex.state, []))
