"""Connected components, against NetworkX's, on any number of workers, while edges keep coming; and which worker a node belongs
to.

White box: that a union absorbs one root for each join costs or saves messages, and changes no component; nor does a node's
worker.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.graphs.running import answers, refused, run, so_far, table_of, vertices_of
from timely.graphs import connected_components
from timely.graphs.stages.edge_input import node_routes
from timely.graphs.structures.union_find import CHUNK, UnionFind


@pytest.mark.parametrize("numbering", ["upward", "downward", "shuffled"])
@pytest.mark.parametrize("workers", [1, 3])
def test_components_of_long_paths(numbering: str, workers: int) -> None:
    size = CHUNK + 1000
    order = {
        "upward": np.arange(size),
        "downward": np.arange(size)[::-1],
        "shuffled": np.random.default_rng(3).permutation(size),
    }[numbering]
    path = pa.table({"src": order[:-1], "dst": order[1:]})
    (table,) = run([path], build=connected_components, workers=workers, rows=1000)
    assert table.num_rows == size
    assert set(table["component"].to_pylist()) == {0}


def test_components_of_a_grid_in_two_halves() -> None:
    grid = np.arange(60 * 60).reshape(60, 60)
    rows = np.column_stack((grid[:, :-1].ravel(), grid[:, 1:].ravel()))
    down = np.column_stack((grid[:-1].ravel(), grid[1:].ravel()))
    halves = [rows[rows[:, 0] % 60 != 29], down, rows[rows[:, 0] % 60 == 29]]
    states = answers(run([table_of(half.tolist()) for half in halves], build=connected_components, workers=2, rows=50))
    assert [len(set(state.values())) for state in states] == [120, 2, 1]


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60), max_size=5))
def test_forest_absorbs_one_root_for_each_join(batches: list[list[tuple[int, int]]]) -> None:
    forest = UnionFind()
    forest.grow(41)
    roots = set(range(41))
    for batch in so_far(batches):
        array = np.array(batch, np.int64).reshape(-1, 2)
        absorbed = forest.union(array[:, 0], array[:, 1]).tolist()
        assert len(set(absorbed)) == len(absorbed)
        assert set(absorbed) <= roots
        roots -= set(absorbed)
        result = forest.find(np.arange(41)).tolist()
        assert set(result) == roots
        groups = {frozenset(members) for members in nx.connected_components(nx.Graph([*batch, *((i, i) for i in range(41))]))}
        assert {frozenset(i for i in range(41) if result[i] == root) for root in roots} == groups


def test_components_refuse_another_type_in_a_later_epoch() -> None:
    message = refused(table_of([(1, 2)]), table_of([("a", "b")], pa.string()), build=connected_components)
    assert "column 'src' is of type string, and 'src' began with int64" in message


def test_components_refuse_vertices_of_another_type() -> None:
    with pytest.raises(timely.OperatorError, match="vertices' column 'node' is of type string"):
        run(
            [table_of([(1, 2)])],
            [vertices_of(["a"], pa.string())],
            build=lambda edges, vertices: connected_components(edges, vertices=vertices),
        )


def test_a_graph_that_grows_refuses_times_without_order() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            edges = scope.to_stream([0]).enter(loop)
            batches = edges.concat(again).map_batch(lambda _: table_of([(1, 2)]).to_batches()[0])
            edges.filter(lambda _: True).connect_loop(handle)
            return connected_components(batches).leave()

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            numbers, stream = scope.new_input()
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                once = stream.enter(loop)
                once.connect_loop(handle)
                connected_components(once.concat(again).map_batch(lambda _: table_of([(1, 2)]).to_batches()[0])).probe()
        for epoch in range(2):
            numbers.send(epoch)
            numbers.advance_to(epoch + 1)
        numbers.close()
        worker.run()

    assert timely.example(build) == [(0, [(1, 1), (2, 1)])]
    with pytest.raises(timely.OperatorError) as caught:
        timely.execute(program)
    assert isinstance(caught.value.__cause__, timely.TimestampError)
    assert "must be totally ordered" in str(caught.value)


def owners(values: pa.Array, peers: int) -> Any:
    info: Any = SimpleNamespace(peers=peers, path="test")
    result = node_routes(info, values, "src") % peers
    assert ((result >= 0) & (result < peers)).all()
    return result


@pytest.mark.parametrize("peers", [1, 2, 3, 7])
@pytest.mark.parametrize("first", [0, -50_000, 2**62])
@pytest.mark.parametrize("stride", [1, 2, 1024, 2**20])
def test_integers_are_partitioned_evenly(peers: int, first: int, stride: int) -> None:
    many = np.bincount(owners(pa.array(first + stride * np.arange(100_000)), peers), minlength=peers)
    assert many.max() <= 1.05 * 100_000 / peers + 1024  # a block


def test_numbers_that_follow_each_other_mostly_belong_to_one_worker() -> None:
    result = owners(pa.array(np.arange(100_000)), 2)
    assert np.count_nonzero(result[1:] != result[:-1]) < 100


WHOLE = [pa.uint64(), pa.int32(), pa.date32()]
NODES = [*(pa.array([0, 1, 9_999], pa.int32()).cast(kind) for kind in WHOLE), pa.array(["", "a"]), pa.array([0.5, 1.0])]


@pytest.mark.parametrize("nodes", NODES, ids=lambda nodes: str(nodes.type))
def test_equal_nodes_belong_to_one_worker_wherever_they_come_up(nodes: pa.Array) -> None:
    again = owners(pa.concat_arrays([nodes.slice(1), nodes]), 3)
    assert owners(nodes, 3).tolist() == again[len(nodes) - 1 :].tolist()
