"""Equal numbers are one key, whatever their type, and whether they come as rows or as columns; each is processed once."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import timely
from tests.differential.epochs import changing
from tests.differential.test_operators import ONE
from timely import Product
from timely import differential as dd
from timely.testing.differential import check_operator


@pytest.mark.parametrize("number", [int, float, Fraction, Decimal, np.int64, np.float64])
def test_a_key_of_another_type_finds_what_came_as_columns(number: Callable[[int], Any]) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        session, pairs = dd.new_collection(scope)
        queries, asked = dd.new_collection(scope)
        answers = pairs.semijoin(asked, key=int).output()
        sizes = pairs.reduce(lambda key, values: [(len(values), 1)], key=int).output()
    session.insert_columns(range(300), range(300))
    session.advance_to(1)
    queries.advance_to(1)
    sizes.wait(0)
    queries.insert(number(5))
    session.insert((number(5), 7))
    session.close()
    queries.close()
    assert answers.at(1) == {(5, 5): 1, (5, 7): 1}
    assert sizes.at(1)[5, 2] == 1


def test_large_groups_of_other_keys_leave_columns_as_they_are() -> None:
    with changing(lambda pairs: pairs.count_by_key().output()) as (session, counts):
        for epoch in range(4):
            session.insert_columns(range(300), range(300))
            session.advance_to(3 * epoch + 1)
            for value in range(40):
                session.insert((2.5, value))
                session.insert(("a", value))
            session.advance_to(3 * epoch + 3)
        for epoch in range(4):
            assert counts.at(3 * epoch)[2, epoch + 1] == 1


@pytest.mark.parametrize("diff", [0.5, "3", None])
def test_a_difference_of_another_kind_is_refused(diff: Any) -> None:
    with changing() as (session, _):
        with pytest.raises(dd.DifferenceError, match="are int, not"):
            session.update("x", diff)
        with pytest.raises(dd.DifferenceError, match="are int, not"):
            session.insert_columns(["x", "y"], diff=[1, diff])


def test_whole_numbers_of_numpy_are_differences() -> None:
    with changing() as (session, held):
        session.update("x", np.int32(3))
        session.advance_to(1)
        assert held.at(0) == {"x": 3}


EXAMPLES = 60


def test_columns_come_where_a_text_waits() -> None:
    with changing(lambda pairs: pairs.count_by_key().output(), Product[int, int]) as (session, counts):
        session.update_at(("a", 1), Product(0, 1), 1)
        session.update_at(("a", 2), Product(1, 0), 1)  # so "a" is looked at again at (1, 1)
        session.advance_to(Product(1, 1))
        session.insert_columns(np.repeat(np.arange(100), 2), np.arange(200))
        session.close()
        expected = {(key, 2): 1 for key in ("a", *range(100))}
        assert counts.at(Product(1, 1)) == expected


KEYS = st.sampled_from([0, 1, 2, 3, "a", 2.0, 0.5, None])
RECORDS = st.tuples(KEYS, st.integers(0, 3))


@pytest.mark.parametrize("name", ["count_by_key", "sum_by_key", "min_by_key", "distinct"])
def test_whole_numbers_and_other_keys(name: str) -> None:
    check_operator(*ONE[name], records=RECORDS, size=14, examples=EXAMPLES)
