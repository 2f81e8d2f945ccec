"""Which runs merge: the sizes that are left, and how often an entry is copied.

White box: which runs merge never changes a result.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.operators.keyed.merge_policy import EVERYTHING, GEOMETRIC, MergePolicy


@pytest.mark.parametrize(
    ("sizes", "due"),
    [
        ([], None),
        ([5], None),
        ([4, 2], None),
        ([3, 2], slice(0, 2)),
        ([2, 2], slice(0, 2)),
        ([100, 40, 20], None),
        ([100, 60, 20], slice(0, 2)),
        ([3, 2, 3, 2], slice(2, 4)),
        ([0, 0], None),
    ],
)
def test_the_newest_neighbours_of_similar_size_are_due(sizes: list[int], due: slice | None) -> None:
    assert GEOMETRIC.due(sizes) == due


@pytest.mark.parametrize("policy", [GEOMETRIC, EVERYTHING])
def test_a_run_whose_entries_cancel_is_due_alone(policy: MergePolicy) -> None:
    assert policy.due([4], [True]) == slice(0, 1)
    assert policy.due([4], [False]) is None


def test_neighbours_come_before_a_run_whose_entries_cancel() -> None:
    assert GEOMETRIC.due([100, 3, 2], [True, False, False]) == slice(1, 3)
    assert GEOMETRIC.due([100, 4, 2], [False, True, True]) == slice(1, 2)


def test_everything_is_due_with_two_runs() -> None:
    assert EVERYTHING.due([100, 1]) == slice(0, 2)
    assert EVERYTHING.due([100, 1, 5], [False] * 3) == slice(0, 3)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200))
def test_runs_stay_few_and_entries_are_copied_a_logarithmic_number_of_times(appended: list[int]) -> None:
    runs: list[int] = []
    copied = 0
    for size in appended:
        runs.append(size)
        while due := GEOMETRIC.due(runs):
            copied += sum(runs[due])
            runs[due] = [sum(runs[due])]
    total = sum(appended)
    assert sum(runs) == total
    assert len(runs) <= math.log2(total) + 1
    assert copied <= 2 * total * (math.log2(total) + 1)
