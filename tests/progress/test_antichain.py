"""Antichains, those of counts, and change batches: the exact results, and against what brute force finds."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.progress.times import Shift
from timely.errors import ProgressError, TimestampError
from timely.order import Product
from timely.progress import Antichain, ChangeBatch, MutableAntichain, ProductSummary, Step

PAIRS = st.builds(Product, st.integers(0, 4), st.integers(0, 4))


def test_A1_insert() -> None:
    chain: Antichain[int] = Antichain()
    assert chain.insert(2)
    assert not chain.insert(3)


def test_A2_extend() -> None:
    chain: Antichain[int] = Antichain()
    assert chain.extend([3])
    assert chain.extend([2, 5])
    assert not chain.extend([3, 4])


def test_A3_less_than() -> None:
    chain = Antichain([2])
    assert [chain.less_than(time) for time in (3, 2, 1)] == [True, False, False]
    chain.clear()
    assert [chain.less_than(time) for time in (3, 2, 1)] == [False, False, False]


def test_A4_less_equal() -> None:
    chain = Antichain([2])
    assert [chain.less_equal(time) for time in (3, 2, 1)] == [True, True, False]
    chain.clear()
    assert [chain.less_equal(time) for time in (3, 2, 1)] == [False, False, False]


def test_A5_elements() -> None:
    chain = Antichain([2])
    assert chain.elements == (2,)
    chain.clear()
    assert list(chain) == []


def test_A6_insertion_order() -> None:
    chain = Antichain([Product(0, 5), Product(3, 0), Product(1, 1)])
    assert chain.elements == (Product(0, 5), Product(3, 0), Product(1, 1))
    assert chain.insert(Product(0, 0))
    assert list(chain) == [Product(0, 0)]


def test_A7_equal_element() -> None:
    chain = Antichain([Product(0, 5), Product(3, 0)])
    assert not chain.insert(Product(0, 5))
    assert chain.elements == (Product(0, 5), Product(3, 0))


def test_A8_order_of_antichains() -> None:
    empty: Antichain[int] = Antichain()
    assert Antichain([1]) <= Antichain([2])
    assert Antichain([2]) <= empty
    assert not empty <= Antichain([2])
    assert empty <= empty


def test_A9_as_option() -> None:
    empty: Antichain[int] = Antichain()
    assert empty.as_option() is None
    assert Antichain([3]).as_option() == 3
    with pytest.raises(TimestampError, match="more than one element"):
        Antichain([Product(0, 1), Product(1, 0)]).as_option()


def test_A11_copy() -> None:
    chain = Antichain([1])
    twin = chain.copy()
    assert twin == chain
    twin.insert(0)
    assert chain == Antichain([1])


def test_it_is_equal_to_no_other_type() -> None:
    assert Antichain([1]) != (1,)
    assert Antichain([1]) == ANY, "a type that knows of antichains may say otherwise"
    assert (Antichain([1]) == Antichain([2])) is (Antichain([1]) == Antichain()) is False
    assert repr(Antichain([2])) == "Antichain([2])"


@given(elements=st.lists(PAIRS, max_size=12))
def test_T1_minimal_elements(elements: list[Product[int, int]]) -> None:
    chain = Antichain(elements)
    assert set(chain) == {time for time in elements if not any(other < time for other in elements)}
    assert len(chain) == len(set(chain))
    assert not any(a <= b for a in chain for b in chain if a != b)
    shuffled = Antichain(reversed(elements))
    assert chain == shuffled and hash(chain) == hash(shuffled)


@given(first=st.lists(PAIRS, max_size=6), second=st.lists(PAIRS, max_size=6), time=PAIRS)
def test_T1_stands_for_what_is_beyond(
    first: list[Product[int, int]], second: list[Product[int, int]], time: Product[int, int]
) -> None:
    one, two = Antichain(first), Antichain(second)
    assert one.less_equal(time) == any(element <= time for element in first)
    assert one.less_than(time) == any(element < time for element in first)
    assert (one <= two) == all(any(a <= b for a in first) for b in second)
    assert one.copy().extend(second) == (not one <= two)


def test_it_holds_path_summaries() -> None:
    paths: Antichain[ProductSummary[int, int]] = Antichain()
    assert paths.insert(ProductSummary(Step(0), Step(2)))
    assert paths.insert(ProductSummary(Step(1), Step(0)))
    assert not paths.insert(ProductSummary(Step(1), Step(2)))
    assert len(paths) == 2


def test_only_at_or_before_is_asked_of_the_elements() -> None:
    """The summaries of somebody else's times may have ``<=`` and ``==`` alone."""
    paths = Antichain([Shift(3), Shift(1), Shift(2)])
    assert paths == Antichain([Shift(1)])
    assert [paths.less_than(Shift(by)) for by in range(4)] == [False, False, True, True]
    assert [paths.less_equal(Shift(by)) for by in range(4)] == [False, True, True, True]


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


UPDATES = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), max_size=20)


def test_C1_new_and_clear() -> None:
    assert ChangeBatch[int]().is_empty()
    batch = ChangeBatch([(17, 1)])
    assert not batch.is_empty()
    batch.clear()
    assert batch.is_empty()


def test_C2_cancelling() -> None:
    batch: ChangeBatch[int] = ChangeBatch()
    batch.update(17, 1)
    assert not batch.is_empty()
    batch.extend([(17, -1)])
    assert batch.is_empty()
    batch.update(17, 1)
    batch.update(17, -1)
    assert batch.is_empty()


def test_C3_reading_and_draining() -> None:
    batch = ChangeBatch([(17, 1)])
    assert list(batch) == [(17, 1)]
    assert not batch.is_empty()
    assert batch.drain() == [(17, 1)]
    assert batch.is_empty()


def test_C4_len_is_consolidated() -> None:
    assert len(ChangeBatch([(17, 1), (17, -1), (14, -1)])) == 1


def test_C5_drain_into() -> None:
    first, second = ChangeBatch([(17, 1)]), ChangeBatch[int]()
    first.drain_into(second)
    assert first.is_empty()
    assert not second.is_empty()


def test_C6_zero_is_nothing() -> None:
    batch: ChangeBatch[int] = ChangeBatch()
    batch.update(17, 0)
    assert batch.is_empty()
    assert len(batch) == 0


def test_drain_into_itself() -> None:
    batch = ChangeBatch([(17, 1)])
    batch.drain_into(batch)
    assert list(batch) == [(17, 1)]


def test_it_is_no_key_and_equal_to_no_other_type() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ChangeBatch[int]())
    assert ChangeBatch([(1, 1)]) != [(1, 1)]
    assert (ChangeBatch([(1, 1)]) == [(1, 1)]) is False
    assert ChangeBatch([(1, 1)]) == ANY


@given(updates=UPDATES, more=UPDATES, seed=st.integers(0, 100))
def test_T3_sums(updates: list[tuple[int, int]], more: list[tuple[int, int]], seed: int) -> None:
    sums: Counter[int] = Counter()
    for key, diff in updates:
        sums[key] += diff
    batch = ChangeBatch(updates)
    assert dict(batch) == {key: total for key, total in sums.items() if total}
    assert len(batch) == len(dict(batch)) == len(list(batch))
    assert ChangeBatch(batch) == batch
    shuffled = updates.copy()
    random.Random(seed).shuffle(shuffled)
    assert ChangeBatch(shuffled) == batch
    other = ChangeBatch(more)
    batch.drain_into(other)
    assert batch.is_empty()
    assert other == ChangeBatch([*updates, *more])
