"""Reductions of columns and of other keys at one time: each key is processed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.differential.epochs import changing
from tests.differential.test_operators import ONE
from timely import Product
from timely.testing.differential import check_operator

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
