"""Numbers on columns: sums and products are exact or refused, equal keys are one, and NaN is the greatest.

Kernels give, for each row, what Python gives for its values under the same semantics.

White box: a view falls back to rows where a kernel gives up, and Spark is too slow for generated values.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from timely import OperatorError
from timely.operators.keyed import column_kernels as kernels
from timely.operators.keyed.column_kernels import DUCKDB, SPARK_ANSI, SPARK_LEGACY, Kernel, NoKernel, Semantics
from timely.operators.keyed.windows import sessions, tumbling, windows

HALF = 2**62


def results(build: Callable[[Any], Any], *batches: pa.RecordBatch, workers: int = 1) -> list[dict[str, Any]]:
    """Return the rows that come out of ``build(stream)`` on all workers, to which the batches are dealt in turn."""

    def program(worker: timely.Worker) -> list[dict[str, Any]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = build(stream).capture()
        for batch in batches[worker.index :: worker.peers]:
            handle.send_batch(batch)
        handle.close()
        worker.run()
        return [row for _, batch in captured.messages for row in batch.to_pylist()]

    return [row for part in timely.execute(program, workers=workers) for row in part]


AGGREGATIONS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "group_by": lambda stream, made: stream.group_by("k", **made),
    "group_by two": lambda stream, made: stream.group_by(["k", "at"], **made),
    "windows": lambda stream, made: windows(stream, tumbling(10), at="at", key="k", **made)[0],
    "sessions": lambda stream, made: sessions(stream, 10, at="at", key="k", **made)[0],
}


def batch(keys: Any, values: Any) -> pa.RecordBatch:
    """Return rows at one event time."""
    return pa.record_batch({"k": keys, "v": values, "at": pa.repeat(5, len(keys))})


@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("values", "kind", "function", "expected"),
    [
        ([HALF] * 4, pa.int64(), "sum", None),
        ([HALF] * 4 + [-HALF] * 3, pa.int64(), "sum", HALF),
        ([-HALF, -HALF], pa.int64(), "sum", -(2**63)),
        ([HALF, HALF], pa.int64(), "sum", None),
        ([2**63, 2**63 - 1], pa.uint64(), "sum", 2**64 - 1),
        ([2**63, 2**63], pa.uint64(), "sum", None),
        ([127] * 3, pa.int8(), "sum", 381),
        ([HALF] * 4, pa.int64(), "product", None),
        ([HALF, 4], pa.int64(), "product", None),
        ([HALF, HALF, HALF, 0], pa.int64(), "product", 0),
        ([3**19, -(3**20)], pa.int64(), "product", -(3**39)),
        ([2**63, 2], pa.uint64(), "product", None),
        ([Decimal(9 * 10**37)] * 4, pa.decimal128(38, 0), "sum", None),
        ([Decimal(9 * 10**37)] * 2 + [Decimal(-9 * 10**37)], pa.decimal128(38, 0), "sum", Decimal(9 * 10**37)),
        ([Decimal(9 * 10**37)] * 4, pa.decimal128(38, 0), "product", None),
        ([1.7e308, 1.7e308], pa.float64(), "sum", math.inf),
        ([1.0, math.nan, 7.0], pa.float64(), "max", math.nan),
        ([1.0, math.nan, math.inf], pa.float32(), "max", math.nan),
        ([1.0, math.nan, 7.0], pa.float64(), "min", 1.0),
    ],
)
def test_number_17_aggregates_are_exact_or_refused(
    name: str, order: int, values: list[Any], kind: pa.DataType, function: str, expected: Any
) -> None:
    rows = batch([1] * len(values), pa.array(values, kind)), batch([2], pa.array(values[:1], kind))

    def found() -> Any:
        made = results(lambda stream: AGGREGATIONS[name](stream, {"x": ("v", function)}), *rows[::order])
        return [row["x"] for row in sorted(made, key=lambda row: row["k"])]

    if expected is None:
        with pytest.raises(
            OperatorError, match=rf"SchemaError: group_by cannot make .*{function}.* type {re.escape(str(kind))}.*cast"
        ):
            found()
    else:
        of_one, of_other = found()
        assert of_one == expected or (math.isnan(expected) and math.isnan(of_one))
        assert of_other == values[0]


@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.dictionary(pa.int32(), pa.float64())])
@pytest.mark.parametrize("workers", [1, 2])
def test_number_12_equal_keys_are_one_group(name: str, kind: pa.DataType, workers: int) -> None:
    keys = [0.0, math.nan, 1.5, None, -0.0, -math.nan, None, 1.5]
    parts = [pa.array(part, getattr(kind, "value_type", kind)) for part in (keys[:4], keys[4:])]
    made = [batch(part.dictionary_encode() if part.type != kind else part, [1, 2, 3, 4]) for part in parts]
    outputs = results(lambda stream: AGGREGATIONS[name](stream, {"n": ("v", "sum"), "rows": "count"}), *made, workers=workers)
    assert sorted((str(row["k"]), row["n"], row["rows"]) for row in outputs) == [
        *(("0.0", 2, 2), ("1.5", 7, 2), ("None", 7, 2), ("nan", 4, 2))
    ]


large = st.sampled_from([2**63 - 1, -(2**63), HALF, -HALF, 3, 0, 1, None]) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), large), min_size=1, max_size=5), max_size=4), st.integers(1, 2))
@settings(max_examples=60)
def test_sums_and_products_are_never_wrapped(sent: list[list[Any]], workers: int) -> None:
    batches = [batch([key for key, _ in rows], pa.array([value for _, value in rows], pa.int64())) for rows in sent]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for key, value in [row for rows in sent for row in rows]:
        groups[key] += [] if value is None else [value]
    for function, exact in (("sum", sum), ("product", math.prod)):
        expected = {key: exact(values) if values else None for key, values in groups.items()}
        fits = all(number is None or -(2**63) <= number < 2**63 for number in expected.values())
        try:
            outputs = results(lambda stream: stream.group_by("k", x=("v", function)), *batches, workers=workers)  # noqa: B023
        except OperatorError as error:
            assert "SchemaError" in str(error)
            assert len(sent) > 1 or not fits  # of several batches a part may not fit
        else:
            assert fits and {row["k"]: row["x"] for row in outputs} == expected


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
