"""Triangle count, against NetworkX's, on any number of workers, while edges keep coming.

White box: which version an edge came with decides only who counts a triangle.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs.oracles import corners
from tests.graphs.running import answers, run, table_of
from timely.graphs import triangle_count
from timely.graphs.triangles import EdgeSet, packed
from timely.memory import Spool


@pytest.mark.parametrize("workers", [1, 2])
def test_triangles_with_a_hub(workers: int) -> None:
    spokes = [(0, i) for i in range(1, 3001)]
    rim = [(i, i + 1) for i in range(1, 3000)]
    states = answers(run([table_of(spokes), table_of(rim)], build=triangle_count, workers=workers, rows=100))
    assert states == [corners(spokes), corners(spokes + rim)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12), max_size=6))
def test_edge_set_knows_the_version_of_each_edge(batches: list[list[tuple[int, int]]]) -> None:
    edges = EdgeSet()
    versions: dict[tuple[int, int], int] = {}
    for version, batch in enumerate(batches):
        some = Spool()
        some.append(np.array([(a << 32 | b, version) for a, b in batch], np.int64).reshape(-1, 2))
        new = [edge for rows in edges.add(some) for edge in rows[:, 0].tolist()]
        assert [(edge >> 32, edge & 0xFFFFFFFF) for edge in new] == sorted({*batch} - versions.keys())
        versions.update({edge: version for edge in batch if edge not in versions})
    every = [(a, b) for a in range(8) for b in range(8)]
    rows = np.array(every)
    assert edges.versions(packed(rows[:, 0], rows[:, 1])).tolist() == [versions.get(edge, -1) for edge in every]
    wanted = np.array([5, 0, 7, 3])
    which, targets, result = edges.find(wanted)
    mine = sorted(zip(wanted[which].tolist(), targets.tolist(), result.tolist()))
    assert mine == sorted((a, b, version) for (a, b), version in versions.items() if a in wanted.tolist())
