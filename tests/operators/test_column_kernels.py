"""Kernels of columns give, for each row, what Python gives for its values under the same semantics.

White box: a view falls back to rows where a kernel gives up, and Spark is too slow for generated values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely.operators.keyed import column_kernels as kernels
from timely.operators.keyed.column_kernels import DUCKDB, SPARK_ANSI, SPARK_LEGACY, Kernel, NoKernel, Semantics

longs = st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**62])
doubles = st.none() | st.sampled_from([0.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 1e300])
truths = st.none() | st.booleans()
every_semantics = pytest.mark.parametrize("semantics", [DUCKDB, SPARK_ANSI, SPARK_LEGACY], ids=["duckdb", "ansi", "legacy"])


class Raised(Exception):
    """A row has no result."""


def whole(semantics: Semantics, number: int) -> int:
    if -(2**63) <= number < 2**63:
        return number
    if semantics.overflow == "raise":
        raise Raised
    return (number + 2**63) % 2**64 - 2**63


def divided(semantics: Semantics, one: int, other: int, quotient: Callable[[int, int], int]) -> int | None:
    if other == 0 and semantics.divide_by_zero == "null":
        return None
    if other == 0:
        raise Raised
    return whole(semantics, quotient(one, other))


def truncated(one: int, other: int) -> int:
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


WHOLE: dict[str, tuple[Kernel, Callable[..., Any]]] = {
    "+": (kernels.arithmetic("add"), lambda s, one, other: whole(s, one + other)),
    "-": (kernels.arithmetic("subtract"), lambda s, one, other: whole(s, one - other)),
    "*": (kernels.arithmetic("multiply"), lambda s, one, other: whole(s, one * other)),
    "div": (kernels.integral_divide, lambda s, one, other: divided(s, one, other, truncated)),
    "%": (kernels.remainder, lambda s, one, other: divided(s, one, other, lambda a, b: a - b * truncated(a, b))),
}


@every_semantics
@pytest.mark.parametrize("name", WHOLE)
@given(pairs=st.lists(st.tuples(longs, longs), max_size=4))
@example(pairs=[(-(2**63), -1)])
def test_whole_numbers(semantics: Semantics, name: str, pairs: list[tuple[int | None, int | None]]) -> None:
    kernel, by_row = WHOLE[name]
    if semantics.divide_by_zero == "infinity" and name in ("div", "%") and any(other == 0 for _, other in pairs):
        return  # no whole number is infinite: views divide doubles alone
    columns = [pa.array([pair[place] for pair in pairs], pa.int64()) for place in (0, 1)]
    try:
        expected = [None if one is None or other is None else by_row(semantics, one, other) for one, other in pairs]
    except Raised:
        with pytest.raises(pa.ArrowInvalid):
            kernel(semantics, *columns)
    else:
        assert kernel(semantics, *columns).to_pylist() == expected


def order(value: float) -> tuple[bool, float]:
    """NaN is the greatest number, and equal to itself."""
    return (True, 0.0) if math.isnan(value) else (False, value)


COMPARED: dict[str, tuple[Kernel, Callable[[Any, Any], bool]]] = {
    "=": (kernels.equal, lambda one, other: one == other),
    "<>": (kernels.opposite(kernels.equal), lambda one, other: one != other),
    "<": (kernels.less, lambda one, other: one < other),
    "<=": (kernels.opposite(kernels.greater), lambda one, other: one <= other),
    ">": (kernels.greater, lambda one, other: one > other),
    ">=": (kernels.opposite(kernels.less), lambda one, other: one >= other),
}


@pytest.mark.parametrize("name", COMPARED)
@given(pairs=st.lists(st.tuples(doubles, doubles), max_size=4))
def test_comparisons_of_doubles(name: str, pairs: list[tuple[float | None, float | None]]) -> None:
    kernel, by_row = COMPARED[name]
    one, other = (pa.array([pair[place] for pair in pairs], pa.float64()) for place in (0, 1))
    expected = [None if a is None or b is None else by_row(order(a), order(b)) for a, b in pairs]
    assert kernel(SPARK_ANSI, one, other).to_pylist() == expected
    same = [a is b if a is None or b is None else order(a) == order(b) for a, b in pairs]
    assert kernels.null_safe_equal(SPARK_ANSI, one, other).to_pylist() == same
    for better, pick in ((kernels.greater, max), (kernels.less, min)):
        best = [pick((value for value in pair if value is not None), key=order, default=None) for pair in pairs]
        assert list(map(repr, kernels.extreme(better)(SPARK_ANSI, one, other).to_pylist())) == list(map(repr, best))


@given(pairs=st.lists(st.tuples(doubles, doubles), max_size=4))
def test_doubles_of_views_are_never_nan_nor_negative_zero(pairs: list[tuple[float | None, float | None]]) -> None:
    columns = [pa.array([pair[place] for pair in pairs], pa.float64()) for place in (0, 1)]
    try:
        results = kernels.arithmetic("multiply")(DUCKDB, *columns).to_pylist()
    except NoKernel:
        results = [math.nan]
    expected = [None if one is None or other is None else one * other + 0.0 for one, other in pairs]
    if any(value is not None and math.isnan(value) for value in expected):
        expected = [math.nan]
    assert list(map(repr, results)) == list(map(repr, expected))


@given(rows=st.lists(st.tuples(truths, longs, truths, longs, longs), max_size=4))
def test_conditions(rows: list[tuple[Any, ...]]) -> None:
    kinds = [pa.bool_(), pa.int64(), pa.bool_(), pa.int64(), pa.int64()]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    cases = [one if first else other if second else otherwise for first, one, second, other, otherwise in rows]
    assert kernels.case(DUCKDB, *columns).to_pylist() == cases
    values = [[value for value in (row[1], row[3], row[4]) if value is not None] for row in rows]
    assert kernels.coalesce(DUCKDB, *columns[1::2], columns[4]).to_pylist() == [
        present[0] if present else None for present in values
    ]
    among = [None if row[1] is None else True if row[1] in row[3:] else None if None in row[3:] else False for row in rows]
    assert kernels.one_of(DUCKDB, columns[1], *columns[3:]).to_pylist() == among
