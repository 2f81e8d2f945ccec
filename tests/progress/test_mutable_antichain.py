"""Mutable antichains: the exact results, and against the frontier found by brute force."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import ProgressError
from timely.order import Product
from timely.progress import Antichain, MutableAntichain

CHANGES = st.lists(st.tuples(st.builds(Product, st.integers(0, 3), st.integers(0, 3)), st.integers(-2, 2)), max_size=16)


def test_M1_new() -> None:
    times: MutableAntichain[int] = MutableAntichain()
    assert times.frontier == Antichain()
    assert times.is_empty()


def test_M2_update_iter() -> None:
    times = MutableAntichain([1])
    assert times.update_iter([(1, -1), (2, 7)]) == [(1, -1), (2, 1)]
    assert times.frontier.elements == (2,)


def test_M3_comparisons() -> None:
    times = MutableAntichain([1])
    assert [times.less_than(time) for time in (0, 1, 2)] == [False, False, True]
    assert [times.less_equal(time) for time in (0, 1, 2)] == [False, True, True]


def test_M4_changes_from_an_iterator() -> None:
    times = MutableAntichain([1])
    assert times.update_iter(iter([(1, -1), (2, 7)])) == [(1, -1), (2, 1)]


def test_M5_it_does_not_grow() -> None:
    times: MutableAntichain[int] = MutableAntichain()
    times.update_iter([(7, 1)] * 6)
    times.update_iter([(8, 1)] * 5)
    held = 0
    for _ in range(1000):
        assert times.update_iter([(9, 1)]) == []
        held = max(held, len(times._counts))
        assert times.update_iter([(9, -1)]) == []
    assert (held, len(times._counts)) == (3, 2)  # counts, not updates: well below the 32 and 26 that the list allows
    assert (times.count_for(7), times.count_for(8), times.count_for(9)) == (6, 5, 0)
    assert repr(times) == "MutableAntichain({7: 6, 8: 5})"
    assert times.frontier.elements == (7,)


def test_M6_the_frontier_may_retreat() -> None:
    times = MutableAntichain([1])
    assert times.update_iter([(0, 1)]) == [(0, 1), (1, -1)]
    assert times.update_iter([(0, -1)]) == [(0, -1), (1, 1)]


def test_M7_negative_counts() -> None:
    times = MutableAntichain([5])
    assert times.update_iter([(3, -1)]) == []
    assert times.update_iter([(3, 1)]) == []
    assert times.update_iter([(3, 1)]) == [(3, 1), (5, -1)]


def test_M8_a_later_time_comes_forward() -> None:
    times = MutableAntichain([5])
    assert times.update_iter([(9, 1)]) == []
    assert times.update_iter([(5, -1)]) == [(5, -1), (9, 1)]


def test_M11_count_for_and_clear() -> None:
    times = MutableAntichain([7])
    times.update_iter([(7, 2)])
    assert (times.count_for(7), times.count_for(8)) == (3, 0)
    times.clear()
    assert (times.count_for(7), times.is_empty(), times.frontier) == (0, True, Antichain())


def test_a_frontier_once_given_stays() -> None:
    times = MutableAntichain([1])
    before = times.frontier
    times.update_iter([(0, 1)])
    assert before == Antichain([1])
    before.insert(0)
    times.update_iter([(0, -1)])
    assert times.frontier == Antichain([1])


@given(steps=st.lists(CHANGES, max_size=6))
def test_T2_frontier_of_positive_counts(steps: list[list[tuple[Product[int, int], int]]]) -> None:
    together: MutableAntichain[Product[int, int]] = MutableAntichain()
    one_by_one: MutableAntichain[Product[int, int]] = MutableAntichain()
    counts: Counter[Product[int, int]] = Counter()
    shown: Counter[Product[int, int]] = Counter()
    for changes in steps:
        before = set(together.frontier)
        reported = together.update_iter(changes)
        for time, diff in changes:
            counts[time] += diff
            for moved, by in one_by_one.update_iter([(time, diff)]):
                shown[moved] += by
        positive = [time for time, count in counts.items() if count > 0]
        frontier = {time for time in positive if not any(other < time for other in positive)}
        assert set(together.frontier) == set(one_by_one.frontier) == frontier
        assert {time for time, count in shown.items() if count} == frontier
        assert dict(reported) == {**dict.fromkeys(before - frontier, -1), **dict.fromkeys(frontier - before, 1)}
        assert len(dict(reported)) == len(reported)
        assert not any(b < a for index, (a, _) in enumerate(reported) for b, _ in reported[index:])
        assert all(together.count_for(time) == count for time, count in counts.items())
        assert dict(together.updates()) == {time: count for time, count in counts.items() if count}
        assert len(together.updates()) == len(dict(together.updates()))


class Compared(int):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __le__(self, other: int, /) -> bool:
        Compared.comparisons += 1
        return super().__le__(other)


def test_what_the_frontier_implies_is_compared_with_the_frontier_alone() -> None:
    times = MutableAntichain(Compared(time) for time in range(1000))
    Compared.comparisons = 0
    for time in range(1, 100):
        assert times.update_iter([(Compared(time), -1), (Compared(time + 2000), 2)]) == []
    assert Compared.comparisons <= 2 * 100


@pytest.mark.parametrize("diff", ["x", 1.5, None])
def test_a_change_that_is_no_whole_number_changes_nothing(diff: Any) -> None:
    times = MutableAntichain([5])
    with pytest.raises(ProgressError, match=f"by a whole number, as in .*, not by {diff!r}$"):
        times.update_iter([(3, 1), (4, diff)])
    assert times.updates() == [(5, 1)] and times.frontier == Antichain([5])
