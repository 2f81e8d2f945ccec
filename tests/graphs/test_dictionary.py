"""The dictionary of nodes: numbers that stay, for values of any type, while more keep coming.

White box: algorithms translate the numbers of nodes back, so nobody sees them.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from timely.graphs.structures.arrays import bits, floats, sorted_order
from timely.graphs.structures.dictionary import SPARE, Dictionary, Values, as_integers, from_integers, ranks

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


@given(
    st.sampled_from([pa.int64(), pa.int8(), pa.uint64(), pa.string(), pa.date32()]).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(st.lists(VALUES[kind], max_size=6), min_size=1, max_size=4))
    ),
    st.lists(st.integers(10, 19), max_size=4),
)
def test_numbers_are_found_column_by_column(typed: tuple[pa.DataType, list[list[Any]]], before: list[int]) -> None:
    kind, columns = typed
    numbers, plain = Dictionary(), Dictionary()
    if before and kind == pa.int64():
        numbers.encode(pa.array(before))
        plain.encode(pa.array(before))
    result, fresh = numbers.encode(*(pa.array(column, kind) for column in columns))
    expected, same = plain.encode(pa.array([value for column in columns for value in column], kind))
    assert fresh.equals(same)
    assert result.tolist() == expected.tolist()


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
