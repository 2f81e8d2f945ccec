"""Rows in blocks of a few: sorted as a whole, and found by key.

White box: a block has a quarter of a million rows, so small ones are set, for these rows and for the algorithms that use them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs.test_memory import ALGORITHMS, assert_same, ends_of, rows_of
from timely.graphs.structures import sorted_blocks as module
from timely.graphs.structures.sorted_blocks import SortedBlocks, add_segment
from timely.memory import MemoryBudget, Spool

keys = st.integers(0, 30) | st.integers(0, 2**40)
batches = st.lists(st.lists(st.tuples(keys, st.integers(0, 2**33)), min_size=1, max_size=30), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RUN", 16)
        patch.setattr(module, "_ROWS", 8)
        patch.setattr(module, "_SAMPLE", 2)
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
