"""Antichains: the exact results, and against the minimal elements found by brute force."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.progress.times import Shift
from timely.errors import TimestampError
from timely.order import Product
from timely.progress import Antichain, ProductSummary, Step

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
