"""The stages that graph algorithms are made of, on several workers: ``gather``, joins, priorities.

White box: priorities never leave the algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.graphs.running import Edges, run, table_of
from timely import Stream
from timely.dataflow import OperatorInfo
from timely.graphs import attach, encode, gather, propagate, without
from timely.graphs.stages.priorities import node_of, priority

Rows = list[tuple[int, int]]


def stage(build: Any, *inputs: Rows, workers: int = 2) -> list[list[int]]:
    """Run ``build`` on streams of arrays, each partitioned row by row to the workers; return the rows of all, sorted."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handles, streams = zip(*(scope.new_input() for _ in inputs))
            captured = build(*streams).capture()
        for handle, rows in zip(handles, inputs):
            for row in rows[worker.index :: worker.peers]:
                handle.send_batch(np.array([row]))
            handle.close()
        worker.run()
        return [row for _, rows in captured.extract() for row in rows]

    return sorted(row for rows in timely.execute(program, workers=workers) for row in rows)


node = st.integers(0, 7)


@given(
    st.lists(st.tuples(node, node), max_size=20),
    st.lists(st.tuples(node, st.integers(0, 5)), max_size=6),
    st.integers(1, 3),
)
def test_propagate_finds_the_greatest_that_reaches(edges: Rows, seeds: Rows, workers: int) -> None:
    best = dict(sorted(seeds))
    while any(best.get(a, -1) > best.get(b, -1) for a, b in edges):
        for a, b in edges:
            best[b] = max(best.get(b, -1), best.get(a, -1))
    reached = sorted([node, value] for node, value in best.items() if value >= 0)
    assert stage(propagate, edges, seeds, workers=workers) == reached


EDGES = [(0, 1), (1, 2), (9, 0)]
VALUES = [(1, 50), (2, 0)]


@pytest.mark.parametrize("workers", [1, 3])
def test_attach(workers: int) -> None:
    assert stage(lambda e, v: attach(e, v, 0), EDGES, VALUES, workers=workers) == [[1, 2, 50]]
    assert stage(lambda e, v: attach(e, v, 1), EDGES, VALUES, workers=workers) == [[0, 1, 50], [1, 2, 0]]


@pytest.mark.parametrize("workers", [1, 3])
def test_without(workers: int) -> None:
    assert stage(lambda e, v: without(e, v, 0), EDGES, VALUES, workers=workers) == [[0, 1], [9, 0]]
    assert stage(lambda e, v: without(e, v, 1), EDGES, VALUES, workers=workers) == [[9, 0]]
    assert stage(lambda e, v: without(e, v, 0), EDGES, [], workers=workers) == [[0, 1], [1, 2], [9, 0]]


KINDS = {pa.string(): st.text(max_size=2), pa.int64(): st.integers(100, 130) | st.sampled_from([-5, 10**12])}
edges_of_a_kind = st.sampled_from(list(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.tuples(KINDS[kind], KINDS[kind]), min_size=1, max_size=20))
)


@given(edges_of_a_kind, st.integers(1, 3))
def test_encode_is_exact_and_dense(typed: tuple[pa.DataType, Edges], workers: int) -> None:
    kind, edges = typed
    table = table_of(edges, kind)
    names: dict[int, Any] = {}

    def build(stream: timely.Stream[int, Any]) -> timely.Stream[int, Any]:
        numbers, named = encode(stream)
        named.inspect_batch(lambda _, batch: names.update(zip(*batch.to_pydict().values())))
        return numbers.map_batch(lambda rows: pa.record_batch({"src": rows[:, 0], "dst": rows[:, 1]}))

    (result,) = run([table], build=build, workers=workers, rows=3)
    numbered = list(zip(result["src"].to_pylist(), result["dst"].to_pylist()))
    assert sorted((names[a], names[b]) for a, b in numbered) == sorted(edges)
    assert len(set(names.values())) == len(names) == len({value for edge in edges for value in edge})
    for worker in range(workers):
        mine = sorted(number for number in names if number % workers == worker)
        assert mine == [worker + workers * i for i in range(len(mine))]


def test_priorities_are_drawn_anew() -> None:
    nodes = np.arange(2000)
    one, two = priority(nodes, 0), priority(nodes, 1)
    assert node_of(one).tolist() == node_of(two).tolist() == nodes.tolist()
    assert (np.argsort(one) == np.argsort(two)).mean() < 0.01
    assert abs(np.corrcoef(np.argsort(np.argsort(one)), nodes)[0, 1]) < 0.1


def pairs(numbers: Stream[int, int]) -> Stream[int, Any]:
    """Have two records of a time come out as soon as they are there."""

    def finish(info: OperatorInfo, time: int, collected: list[list[Any]]) -> list[Any]:
        return [[(time, sorted(record for batch in collected[0] for record in batch))]]

    def whole(info: OperatorInfo, time: int, collected: list[list[Any]]) -> bool:
        return sum(map(len, collected[0])) == 2

    (result,) = gather("pairs", [(numbers, timely.Pipeline)], 1, finish, whole=whole)
    return result


def test_what_is_whole_does_not_wait_for_the_frontier() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = pairs(stream).capture()
    handle.send_batch([2, 1])
    worker.step()
    assert seen.extract() == [(0, [(0, [1, 2])])]
    handle.advance_to(1)
    handle.send(3)
    worker.step()
    assert len(seen.extract()) == 1, "half of a pair came out though more may come"
    handle.close()
    worker.run()
    assert seen.extract() == [(0, [(0, [1, 2])]), (1, [(1, [3])])]


def test_what_can_be_done_meanwhile_is_done_once_and_only_where_something_is_missing() -> None:
    done: list[tuple[str, int, list[int]]] = []

    def note(what: str, time: int, collected: list[list[Any]]) -> None:
        done.append((what, time, [record for batch in collected[0] for record in batch]))

    def finish(info: OperatorInfo, time: int, collected: list[list[Any]]) -> list[Any]:
        note("finish", time, collected)
        return [[]]

    def meanwhile(info: OperatorInfo, time: int, collected: list[list[Any]]) -> None:
        note("meanwhile", time, collected)

    def whole(info: OperatorInfo, time: int, collected: list[list[Any]]) -> bool:
        return sum(map(len, collected[0])) == 3

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        gather("late", [(stream, timely.Pipeline)], 1, finish, whole=whole, meanwhile=meanwhile)
    for record in (1, 2, 3):
        handle.send(record)
        worker.step()
    handle.advance_to(1)
    handle.send_batch([4, 5, 6])
    handle.close()
    worker.run()
    assert done == [("meanwhile", 0, [1]), ("finish", 0, [1, 2, 3]), ("finish", 1, [4, 5, 6])]
