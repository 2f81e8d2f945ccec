"""What graphs may bring that nobody hopes for: odd weights, odd types of nodes, nulls in hiding; and what rounds cost.

White box: the cost of rounds is how often searches, sorts and look-ups are called.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from tests.graphs.running import answers, refused, run, table_of
from timely import testing
from timely.graphs import (
    breadth_first_search,
    connected_components,
    label_propagation,
    pagerank,
    shortest_paths,
    strongly_connected_components,
    triangle_count,
)
from timely.graphs.distances import Distances
from timely.graphs.structures.adjacency import Adjacency, _Unsorted
from timely.graphs.structures.union_find import UnionFind

ALL: dict[str, Callable[..., Any]] = {
    "components": connected_components,
    "strong": strongly_connected_components,
    "ranks": pagerank,
    "labels": label_propagation,
    "triangles": triangle_count,
    "steps": lambda edges: breadth_first_search(edges, "a"),
}


def table_of_strings(kind: pa.DataType) -> pa.Table:
    return pa.table({"src": pa.array(["a", "b", "b", "é" * 20], kind), "dst": pa.array(["b", "é" * 20, "b", "a"], kind)})


@pytest.mark.parametrize("name", ALL)
def test_nodes_in_views_are_as_in_strings(name: str) -> None:
    (views,), (plain,) = (run([table_of_strings(kind)], build=ALL[name], workers=2) for kind in (pa.string_view(), pa.string()))
    assert views.schema == plain.schema
    assert views.num_rows == 3
    assert sorted(views.to_pylist(), key=str) == sorted(plain.to_pylist(), key=str)


@pytest.mark.parametrize("name", ALL)
def test_a_null_among_the_values_of_a_dictionary_is_no_node(name: str) -> None:
    hidden = pa.DictionaryArray.from_arrays([0, 1, 1], ["a", None])
    message = refused(pa.table({"src": hidden, "dst": hidden}), build=ALL[name], workers=2)
    assert "'src' has 2 nulls, and a node must have a value" in message


@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()])
@pytest.mark.parametrize("name", [name for name in ALL if name != "steps"])
def test_both_zeros_of_floats_are_one_node(name: str, kind: pa.DataType) -> None:
    src, dst = (np.array(ends, kind.to_pandas_dtype()) for ends in ([0.0, -0.0, 1.0, 2.0], [1.0, 2.0, -0.0, 0.0]))
    (table,) = run([pa.table({"src": src, "dst": dst})], build=ALL[name], workers=2, rows=1)
    assert sorted(map(str, table["node"].to_pylist())) == ["0.0", "1.0", "2.0"]


@pytest.mark.parametrize("source", [0.0, -0.0])
def test_either_zero_is_where_distances_begin(source: float) -> None:
    table = table_of([(-0.0, 1.0), (0.0, 2.0)], pa.float64())
    (states,) = answers(run([table], build=lambda edges: breadth_first_search(edges, source), workers=2, rows=1))
    assert states == {0.0: 0, 1.0: 1, 2.0: 1}


@pytest.mark.parametrize("name", ALL)
def test_an_interval_is_no_node(name: str) -> None:
    between = pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval())
    assert "which cannot be a node" in refused(pa.table({"src": between, "dst": between}), build=ALL[name], workers=1)


def uuids() -> pa.Array:
    return pa.array([bytes(16), bytes(range(16))], pa.binary(16)).cast(pa.uuid())


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    ("nodes", "remedy"),
    [
        (lambda: pa.array([1, 2], pa.decimal32(5, 2)), "cast it to decimal128(5, 2)"),
        (lambda: pa.array([1, 2], pa.decimal64(12, 2)), "cast it to decimal128(12, 2)"),
        (uuids, "cast it to what it is stored as, fixed_size_binary[16]"),
        (lambda: pa.array([1, 0], pa.int8()).cast(pa.bool8()), "cast it to what it is stored as, int8"),
        (lambda: pa.array([[1], [2]]), "give each node a number or a string of its own"),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_types_that_arrow_cannot_distinguish_are_to_be_cast(name: str, nodes: Any, remedy: str, encoded: bool) -> None:
    column = pa.DictionaryArray.from_arrays([0, 1], nodes()) if encoded else nodes()
    message = refused(pa.table({"src": column, "dst": column}), build=ALL[name], workers=1)
    assert f"column 'src' is of type {nodes().type}, which cannot be a node: {remedy}" in message


@pytest.mark.parametrize("cast", [pa.decimal128(5, 2), pa.decimal256(60, 2), pa.binary(16)])
@pytest.mark.parametrize("name", [name for name in ALL if name != "steps"])
def test_what_they_are_cast_to_is_a_node(name: str, cast: pa.DataType) -> None:
    column = uuids() if pa.types.is_fixed_size_binary(cast) else pa.array([1, 2], pa.decimal32(5, 2))
    column = column.cast(cast)
    (table,) = run([pa.table({"src": column, "dst": column[::-1]})], build=ALL[name], workers=2)
    assert table["node"].combine_chunks().sort().equals(column)


@pytest.mark.parametrize("values", [pa.string_view(), pa.binary_view(), "twice"])
@pytest.mark.parametrize("name", ALL)
def test_nodes_in_dictionaries_of_views_are_as_in_strings(name: str, values: Any) -> None:
    plain = pa.array(["a", "b"], pa.string() if values == "twice" else values)
    column = pa.DictionaryArray.from_arrays([0, 1], plain.dictionary_encode() if values == "twice" else plain)
    (table,) = run([pa.table({"src": column, "dst": column[::-1]})], build=ALL[name], workers=2)
    assert table["node"].type in (pa.string(), pa.binary())
    assert sorted(table["node"].combine_chunks().cast(pa.string()).to_pylist()) == ["a", "b"]


@pytest.mark.parametrize("weights", [pa.array([1.0, None]), pa.array([1, None]), pa.nulls(2, pa.float32())])
def test_a_weight_that_is_missing_is_called_a_weight(weights: pa.Array) -> None:
    table = pa.table({"src": [1, 2], "dst": [2, 3], "weight": weights})
    assert "and a weight must have a value" in refused(table, build=lambda edges: shortest_paths(edges, 1))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_path_beyond_all_floats_leads_nowhere(workers: int) -> None:
    table = pa.table({"src": [1, 2, 2, 3], "dst": [2, 3, 4, 5], "weight": [1e308, 1.7e308, 0.0, 1.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (states,) = answers(run([table], build=lambda edges: shortest_paths(edges, 1), workers=workers))
    assert states == {1: 0.0, 2: 1e308, 4: 1e308}


def steps_of(program: Any, runs: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The most steps that a worker takes in a search, and how many nodes all of them visit."""
    steps: Counter[int] = Counter()
    visited: list[int] = []
    step, find = Distances.step, Adjacency._find

    def counted_step(self: Any) -> Any:
        steps[id(self)] += 1
        return step(self)

    def counted_find(self: Any, nodes: Any) -> Any:
        visited.append(len(nodes))
        return find(self, nodes)

    monkeypatch.setattr(Distances, "step", counted_step)
    monkeypatch.setattr(Adjacency, "_find", counted_find)
    runs(program)
    return max(steps.values()), sum(visited)


@pytest.mark.parametrize(("workers", "seed"), [(1, None), (3, None), (2, 0), (3, 1)])
def test_a_search_visits_each_node_once_and_takes_a_step_for_each_level(
    workers: int, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 20
    nodes = np.arange(size * size).reshape(size, size)
    right, down = (np.stack((a.ravel(), b.ravel())) for a, b in ((nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])))
    ends = np.hstack((right, down, right[::-1], down[::-1]))

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, edges = scope.new_input()
            breadth_first_search(edges, 0).probe()
        mine = ends[:, worker.index :: worker.peers]
        handle.send_batch(pa.record_batch({"src": mine[0], "dst": mine[1]}))
        handle.close()
        worker.run()

    def runs(program: Any) -> object:
        if seed is None:
            return timely.execute(program, workers=workers)
        return testing.simulate(program, workers=workers, seed=seed)

    steps, visited = steps_of(program, runs, monkeypatch)
    assert visited == size * size
    assert steps <= 2 * size - 1


def test_edges_are_sorted_when_another_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    graph = pa.record_batch({"src": random.integers(0, 2_000, 20_000), "dst": random.integers(0, 2_000, 20_000)})
    held: list[Adjacency] = []
    sorts: list[int] = []
    add, put_in_order = Adjacency.add, _Unsorted.sorted

    def noted_add(self: Adjacency, rows: Any) -> None:
        held[:] = [self]
        add(self, rows)

    def noted_sort(self: _Unsorted) -> Any:
        sorts.append(len(self.sources))
        return put_in_order(self)

    monkeypatch.setattr(Adjacency, "add", noted_add)
    monkeypatch.setattr(_Unsorted, "sorted", noted_sort)

    def search() -> tuple[timely.Worker, Any, Any]:
        worker = timely.Worker()
        with worker.dataflow(int) as scope:
            handle, edges = scope.new_input()
            probe = breadth_first_search(edges, 0).probe()
        handle.send_batch(graph)
        return worker, handle, probe

    worker, handle, _ = search()
    handle.close()
    worker.run()
    assert sorts == []
    worker, handle, probe = search()
    handle.advance_to(1)
    worker.step_while(lambda: probe.less_than(1))
    looked_at = held[0].scanned
    handle.send_batch(pa.record_batch({"src": [0], "dst": [5_000]}))
    handle.advance_to(2)
    worker.step_while(lambda: probe.less_than(2))
    assert sorts == [20_000]
    assert held[0].scanned - looked_at <= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_few_edges_more_cost_little_however_many_nodes_there_are(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20_000
    looked_at: list[int] = []
    roots = UnionFind.find

    def counted(self: Any, nodes: Any) -> Any:
        looked_at.append(len(nodes))
        return roots(self, nodes)

    monkeypatch.setattr(UnionFind, "find", counted)
    costs: list[int] = []

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, edges = scope.new_input()
            named = connected_components(edges)
            captured, probe = named.capture(), named.probe()
        epochs = [(range(1, size), range(size - 1)), ([5, 7], [9, size - 1]), ([size + 1, size + 2], [3, size + 1]), ([0], [-1])]
        for epoch, (src, dst) in enumerate(epochs):
            if worker.index == 0:
                looked_at.clear()
                handle.send_batch(pa.record_batch({"src": src, "dst": dst}))
            handle.advance_to(epoch + 1)
            worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called before epoch changes
            if worker.index == 0:
                costs.append(sum(looked_at))
        handle.close()
        worker.run()
        return captured.extract()

    rows = [row for part in timely.execute(program, workers=workers) for row in part]
    assert [(time, len(captured)) for time, captured in rows] == [(0, size), (2, 2), (3, size + 3)]
    assert costs[0] > size
    assert costs[1] < 100
    assert costs[2] < 100
