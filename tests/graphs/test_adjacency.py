"""The structures of graphs: edges by source, rows in sorted blocks, the dictionary of nodes; what is found is what was taken in.

White box: results show neither when edges are sorted nor the numbers of nodes, and a block has a quarter of a million rows.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.graphs.test_memory import ALGORITHMS, assert_same, ends_of, rows_of
from timely.graphs.structures import adjacency as adjacency_module
from timely.graphs.structures import sorted_blocks
from timely.graphs.structures.adjacency import Adjacency
from timely.graphs.structures.arrays import bits, floats, sorted_order
from timely.graphs.structures.dictionary import SPARE, Dictionary, Values, as_integers, from_integers, ranks
from timely.graphs.structures.sorted_blocks import SortedBlocks, add_segment
from timely.memory import MemoryBudget, Spool

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


def edge_rows(graph: Edges) -> Any:
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
        adjacency.add(edge_rows(mine))
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
    for _ in range(adjacency_module._SCANS + 3):
        before = adjacency.scanned
        assert found(adjacency, nodes) == expected
        looked_at.append(adjacency.scanned - before)
    assert looked_at == [len(graph)] * adjacency_module._SCANS + [expected.total()] * 3


def test_settled_edges_are_found_without_a_look_at_others() -> None:
    adjacency = Adjacency(2)
    adjacency.add(edge_rows([(place % 10, place, 0) for place in range(100)]))
    adjacency.sort()
    assert len(found(adjacency, [3])) == 10
    assert adjacency.scanned == 10


def test_few_edges_of_nodes_with_great_numbers_take_no_table() -> None:
    adjacency = Adjacency(2)
    adjacency.add(edge_rows([(10**12, 1, 2), (5, 3, 4)]))
    assert found(adjacency, [10**12, 6]) == Counter([(10**12, 1, 2)])
    assert adjacency.scanned == 1


keys = st.integers(0, 30) | st.integers(0, 2**40)
batches = st.lists(st.lists(st.tuples(keys, st.integers(0, 2**33)), min_size=1, max_size=30), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_blocks, "_RUN", 16)
        patch.setattr(sorted_blocks, "_ROWS", 8)
        patch.setattr(sorted_blocks, "_SAMPLE", 2)
        yield


@given(batches, st.lists(keys, unique=True, max_size=12), st.integers(1, 5))
def test_rows_come_sorted_and_are_found(added: list[list[tuple[int, int]]], wanted: list[int], width: int) -> None:
    with MemoryBudget(200):
        segments: list[SortedBlocks] = []
        for batch in added:
            spool = Spool()
            spool.append(np.array(batch))
            add_segment(segments, SortedBlocks(spool))
        every = sorted(row for batch in added for row in batch)
        assert sorted((int(key), int(value)) for rows in segments for block in rows for key, value in block) == every
        nodes = np.array(wanted, np.int64)
        for ends, wide in ((None, 1), (nodes + width, width)):
            collected: list[tuple[int, int, int]] = []
            for rows in segments:
                blocks = [block[:, 0].tolist() for block in rows]
                assert all(block == sorted(block) for block in blocks)
                assert all(one[-1] < other[0] for one, other in itertools.pairwise(blocks))  # equal keys are in one block
                distinct = [key for some in rows.distinct_keys() for key in some.tolist()]
                assert distinct == sorted({key for block in blocks for key in block})
                for places, which, block in rows.find(nodes, ends):
                    collected += zip(nodes[places].tolist(), *block[:, which].tolist())
            assert sorted(collected) == sorted((key, *row) for key in wanted for row in every if key <= row[0] < key + wide)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("pagerank", "connected_components")])
def test_algorithms_whose_edges_are_in_many_blocks_find_the_same(algorithm: str) -> None:
    ends = ends_of(60, 300)
    ends = np.hstack((ends, np.vstack((np.zeros(60), np.arange(60))).astype(np.int64)))  # a hub fills more than a block
    expected = rows_of(algorithm, ends, None, 1, epochs=2, **ALGORITHMS[algorithm])
    budget = MemoryBudget(1)
    assert_same(rows_of(algorithm, ends, budget, 2, epochs=2, **ALGORITHMS[algorithm]), expected)
    assert budget.written > 10_000


NAN = float("nan")
DAY = datetime.date(2024, 2, 29)

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(10**9, 10**9 + 5),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.integers(2**64 - 4, 2**64 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.string(): st.text(max_size=2),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False) | st.sampled_from([0.5, 1.5]),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.duration("s"): st.integers(0, 9).map(lambda n: datetime.timedelta(seconds=n)),
    pa.decimal128(9, 2): st.integers(0, 10**6).map(lambda n: decimal.Decimal(n) / 100),
}


@given(st.sampled_from(list(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(st.lists(VALUES[kind])))))
@example((pa.int64(), [[5, 3], [2 * SPARE], [3, 10**15, 5], [3, -1]]))
@example((pa.int64(), [[2**63 - 1], [-(2**63)]]))
@example((pa.float64(), [[0.0, 1.0], [-0.0]]))
def test_numbers_stay(typed: tuple[pa.DataType, list[list[Any]]]) -> None:
    kind, batches = typed
    numbers, names, known = Dictionary(), Values(), dict[Any, int]()
    for batch in batches:
        result, fresh = numbers.encode(pa.array(batch, kind))
        assert fresh.type == kind
        assert sorted(set(batch) - known.keys()) == sorted(fresh.to_pylist())
        known.update(zip(fresh.to_pylist(), range(len(known), len(numbers))))
        names.append(fresh)
        assert result.tolist() == [known[value] for value in batch]
        assert len(numbers) == len(known)
        assert names.take(result).to_pylist() == batch


def test_what_is_no_number_is_one_node() -> None:
    numbers = Dictionary()
    assert numbers.encode(pa.array([NAN, 1.0, -NAN]))[0].tolist() == [0, 1, 0]
    result, fresh = numbers.encode(pa.array([2.0, NAN]))
    assert (result.tolist(), fresh.to_pylist()) == ([2, 0], [2.0])


def test_names_of_many_batches() -> None:
    names = Values()
    for start in range(100):
        names.append(pa.array([f"{start}", f"{start}a"]))
    assert names.take(np.array([199, 0, 57])).to_pylist() == ["99a", "0", "28a"]
    assert names.take(np.array([], np.int64)).to_pylist() == []


@settings(deadline=None)
@given(st.sampled_from(list(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), st.sets(VALUES[kind]))))
def test_ranks_are_places_in_the_order(typed: tuple[pa.DataType, set[Any]]) -> None:
    kind, values = typed
    result = ranks(pa.array(list(values), kind)).tolist()
    assert [value for _, value in sorted(zip(result, values))] == sorted(values)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.uint64(), 2**64 - 1), (pa.int16(), -3), (pa.date32(), DAY), (pa.date64(), DAY), (pa.time32("s"), datetime.time(3))],
)
def test_whole_numbers_below_the_surface(kind: pa.DataType, value: Any) -> None:
    column = pa.array([value], kind)
    keys = as_integers(column)
    assert keys is not None
    assert from_integers(keys, kind).equals(column)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62) | st.integers(0, 3) | st.integers(2**16 - 1, 2**16 + 1)))
def test_sorted_order_is_stable(keys: list[int]) -> None:
    assert sorted_order(np.array(keys, np.int64)).tolist() == sorted(range(len(keys)), key=lambda place: keys[place])


def test_bits_of_a_column_that_is_not_alone() -> None:
    rows = np.vstack((np.arange(3), bits(np.array([0.5, -1.0, 1e300])))).T
    assert floats(rows[:, 1]).tolist() == [0.5, -1.0, 1e300]
