"""Dictionaries of nodes that are close together, of which workers tell each other, and of others, for which they ask."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.graphs.oracles import ranked
from tests.graphs.running import run, table_of
from timely import testing
from timely.errors import OperatorError, SchemaError
from timely.graphs import encode, pagerank, pairs
from timely.graphs.encode import _Encoder, _Told
from timely.graphs.marks import SPARE, SPREAD, Marks, mark, numbered, union

Batches = list[pa.RecordBatch]
Program = Callable[[timely.Worker], list[Any]]

CLOSE = st.integers(100, 130)
FAR = st.sampled_from([101, 108, 5_000, 20_000, 10**12, -(10**12)])
DAY = datetime.date(2026, 11, 23)
KINDS: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int64(): int,
    pa.int8(): lambda node: node % 100,
    pa.uint64(): lambda node: node % 2**64,
    pa.date32(): lambda node: DAY + datetime.timedelta(node % 10_000),
    pa.string(): str,
}


def numbering(parts: list[Batches], vertices: list[Batches], **how: Any) -> Program:
    """Return a program in which each worker has its part; it returns numbered edges, names, and where they were."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            (handle, edges), (others, alone) = scope.new_input(), scope.new_input()
            numbers, names = encode(edges, vertices=alone, **how)
            found, named = numbers.capture(), names.capture()
        for input, batches in ((handle, parts[worker.index]), (others, vertices[worker.index])):
            for batch in batches:
                input.send_batch(batch)
            input.close()
        worker.run()
        rows = [tuple(row) for _, batch in found.messages for row in batch.tolist()]
        return [(row, None) for row in rows] + [
            (None, row) for _, batch in named.messages for row in zip(*batch.to_pydict().values(), strict=True)
        ]

    return program


def check(found: list[list[Any]], edges: list[tuple[Any, Any]], nodes: set[Any]) -> None:
    """Fail unless the numbers are those of these edges, dense, and each named once, where it belongs."""
    named = [name for part in found for _, name in part if name is not None]
    names: dict[int, Any] = dict(named)
    assert len(named) == len(names) == len(set(names.values()))
    assert set(names.values()) == nodes
    rows = [row for part in found for row, _ in part if row is not None]
    assert sorted((names[a], names[b]) for a, b in rows) == sorted(edges)
    for worker, part in enumerate(found):
        here = sorted(name[0] for _, name in part if name is not None)
        assert here == [worker + len(found) * place for place in range(len(here))]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(list(KINDS)),
    st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(0, 2**16),
    st.data(),
)
def test_numbers_are_exact_whoever_tells_and_whoever_asks(
    kind: pa.DataType, shapes: list[tuple[bool, int, int]], seed: int, data: st.DataObject
) -> None:
    parts, alone, edges = [], [], []
    nodes: set[Any] = set()
    for far, many, few in shapes:
        node = (st.one_of(CLOSE, FAR) if far else CLOSE).map(KINDS[kind])
        some = data.draw(st.lists(st.tuples(node, node), max_size=many))
        single = data.draw(st.lists(node, max_size=few))
        parts.append(
            [batch for start in range(0, len(some), 5) for batch in table_of(some[start : start + 5], kind).to_batches()]
        )
        alone.append([pa.record_batch({"node": pa.array(single, kind)})] if single else [])
        edges += some
        nodes.update(single, *some)
    program = numbering(parts, alone)
    check(testing.simulate(program, workers=len(shapes), seed=seed).results, edges, nodes)


NEAR = pa.record_batch({"src": [1, 2], "dst": [2, 3]})
WIDE = pa.record_batch({"src": [1, 10**6], "dst": [2, 3]})
WEST = pa.record_batch({"src": [10**9], "dst": [10**9 + 1]})


@pytest.mark.parametrize(
    ("batch", "workers", "lasting", "tells"),
    [
        (NEAR, 2, False, True),
        (NEAR, 16, False, True),
        (NEAR, 17, False, False),
        (NEAR, 1, False, False),
        (NEAR, 2, True, False),
        (WIDE, 2, False, False),
        (pa.record_batch({"src": ["a"], "dst": ["b"]}), 2, False, False),
        (pa.record_batch({"src": [1.0], "dst": [2.0]}), 2, False, False),
    ],
)
def test_who_tells(batch: pa.RecordBatch, workers: int, lasting: bool, tells: bool) -> None:
    class Info:
        worker, peers, path = 0, workers, "here"

    encoder = _Encoder("src", "dst", None, lasting, narrow=False)
    info: Any = Info()
    coded, requests = encoder.ask(info, None, [[batch]])
    assert [isinstance(request, _Told) for request in requests] == [tells] * len(requests)
    assert (coded.told is not None) == tells
    if tells:
        assert [request.receiver for request in requests] == list(range(workers))


@pytest.mark.parametrize("workers", [2, 17])
def test_workers_of_which_all_are_close_by_themselves_and_not_together(workers: int) -> None:
    parts: list[Batches] = [[NEAR], [WEST], *([] for _ in range(workers - 2))]
    edges = [(1, 2), (2, 3), (10**9, 10**9 + 1)]
    found = timely.execute(numbering(parts, [[] for _ in parts]), workers=workers)
    check(found, edges, {1, 2, 3, 10**9, 10**9 + 1})


def test_one_asks_where_another_tells() -> None:
    for parts in ([[NEAR], [WIDE]], [[WIDE], [NEAR]], [[NEAR], [WIDE], []], [[], [NEAR], [WIDE]]):
        edges = [(1, 2), (2, 3), (1, 2), (10**6, 3)]
        found = timely.execute(numbering(parts, [[] for _ in parts]), workers=len(parts))
        check(found, edges, {1, 2, 3, 10**6})


def test_weights_go_with_their_edges_where_nodes_are_told() -> None:
    edges = [(1, 2, 0.5), (2, 3, 1.5), (1, 3, 2.5)]
    parts: list[Batches] = [[], []]
    for place, (src, dst, weight) in enumerate(edges):
        parts[place % 2].append(pa.record_batch({"src": [src], "dst": [dst], "weight": [weight]}))
    found = timely.execute(numbering(parts, [[], []], weight="weight"), workers=2)
    names = {name[0]: name[1] for part in found for _, name in part if name is not None}
    rows = [row for part in found for row, _ in part if row is not None]
    assert sorted((names[a], names[b], float(np.int64(bits).view(np.float64))) for a, b, bits in rows) == sorted(edges)


def test_workers_with_nodes_of_different_types() -> None:
    parts = [[NEAR], [table_of([(1, 2)], pa.int32()).to_batches()[0]]]
    with pytest.raises(OperatorError, match="some workers have nodes of type") as caught:
        timely.execute(numbering(parts, [[], []]), workers=2)
    assert isinstance(caught.value.__cause__, SchemaError)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.tuples(CLOSE, CLOSE), max_size=30), min_size=1, max_size=3), st.integers(1, 3))
def test_ranks_where_nodes_are_told(graphs: list[list[tuple[int, int]]], workers: int) -> None:
    tables = run([table_of(graph) for graph in graphs], build=lambda edges: pagerank(edges, rounds=8), workers=workers, rows=4)
    for graph, table in zip(graphs, tables, strict=True):
        found = dict(zip(table["node"].to_pylist(), table["rank"].to_pylist(), strict=True)) if graph else {}
        expected = ranked(graph, rounds=8)
        assert found.keys() == expected.keys()
        assert all(abs(found[node] - rank) < 1e-12 for node, rank in expected.items())


# -- the marks themselves ----------------------------------------------------------------------------------------------

columns = st.lists(
    st.lists(
        st.one_of(st.integers(-50, 50), st.integers(2**63 - 40, 2**63 - 1), st.integers(-(2**63), -(2**63) + 40)), max_size=9
    ),
    max_size=3,
)


@given(columns, columns)
def test_marks_are_of_all_values_and_no_others(one: list[list[int]], two: list[list[int]]) -> None:
    made: list[tuple[Marks, set[int]]] = []
    for given_columns in (one, two):
        arrays = [np.array(column, np.int64) for column in given_columns]
        values = {value for column in given_columns for value in column}
        marked = mark(arrays)
        close = bool(values) and max(values) - min(values) + 1 <= SPREAD * sum(map(len, arrays)) + SPARE
        assert (marked is not None) == close
        if marked is not None:
            marks, places = marked
            assert marks.nodes().tolist() == sorted(values)
            assert [(column + marks.low).tolist() for column in places] == given_columns
            assert marks.low % 8 == 0
            made.append((marks, values))
    if made:
        everything = set().union(*(values for _, values in made))
        together = union([marks for marks, _ in made])
        if together is None:
            assert max(everything) - min(everything) > SPARE
        else:
            assert together.nodes().tolist() == sorted(everything)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_numbered_as_the_owners_would(owners: list[int]) -> None:
    given_so_far = [0] * 4
    expected = []
    for owner in owners:
        expected.append(4 * given_so_far[owner] + owner)
        given_so_far[owner] += 1
    assert numbered(np.array(owners, np.uint8), 4).tolist() == expected


@given(st.lists(st.lists(CLOSE, max_size=9).map(lambda values: np.array(values, np.int64)), max_size=3), st.integers(1, 4))
def test_columns_are_looked_through_a_block_at_a_time(columns: list[Any], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_BLOCK", block)
        reach, there = pairs.span(columns), pairs.marked(columns, 131)
    values = {value for column in columns for value in column.tolist()}
    assert reach == ((min(values), max(values)) if values else None)
    assert np.flatnonzero(there).tolist() == sorted(values)
