"""Reductions of columns and of other keys at one time: each key is processed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import timely
from timely import Product
from timely import differential as dd
from timely.testing.differential import check_operator

Counts = dict[Any, int]
EXAMPLES = 60


def test_columns_come_where_a_text_waits() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(Product[int, int]) as scope:
            session, pairs = dd.new_collection(scope)
            counts = pairs.count_by_key().output()
        session.update_at(("a", 1), Product(0, 1), 1)
        session.update_at(("a", 2), Product(1, 0), 1)  # so "a" is looked at again at (1, 1)
        session.advance_to(Product(1, 1))
        session.insert_columns(np.repeat(np.arange(100), 2), np.arange(200))
        session.close()
        expected = {(key, 2): 1 for key in ("a", *range(100))}
        assert counts.at(Product(1, 1)) == expected


KEYS = st.sampled_from([0, 1, 2, 3, "a", 2.0, 0.5, None])
RECORDS = st.tuples(KEYS, st.integers(0, 3))


def _grouped(pairs: Counts) -> dict[Any, dict[Any, int]]:
    values_by_key: dict[Any, dict[Any, int]] = {}
    for (key, value), count in pairs.items():
        if count:
            values_by_key.setdefault(key, {})[value] = count
    return values_by_key


def _counts(pairs: Counts) -> Counts:
    return {(key, sum(values.values())): 1 for key, values in _grouped(pairs).items()}


def _sums(pairs: Counts) -> Counts:
    return {(key, sum(value * count for value, count in values.items())): 1 for key, values in _grouped(pairs).items()}


def _least(pairs: Counts) -> Counts:
    positive = {key: [value for value, count in values.items() if count > 0] for key, values in _grouped(pairs).items()}
    return {(key, min(values)): 1 for key, values in positive.items() if values}


def _distinct(pairs: Counts) -> Counts:
    return {record: 1 for record, count in pairs.items() if count > 0}


OPERATORS: dict[str, tuple[Callable[[Any], Any], Callable[[Counts], Counts]]] = {
    "count_by_key": (lambda pairs: pairs.count_by_key(), _counts),
    "sum_by_key": (lambda pairs: pairs.sum_by_key(), _sums),
    "min_by_key": (lambda pairs: pairs.min_by_key(), _least),
    "distinct": (lambda pairs: pairs.distinct(), _distinct),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_whole_numbers_and_other_keys(name: str) -> None:
    build, oracle = OPERATORS[name]
    check_operator(build, oracle, records=RECORDS, size=14, examples=EXAMPLES)
