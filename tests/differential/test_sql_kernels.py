"""Expressions of views give the same for rows and for columns, whatever the values are: both come from one generator."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differential.sql_epochs import Epochs

SCHEMA = pa.schema(
    [
        *(("a", pa.int64()), ("b", pa.int64()), ("x", pa.float64()), ("y", pa.float64())),
        *(("d", pa.decimal128(18, 2)), ("e", pa.decimal128(18, 4)), ("s", pa.string()), ("t", pa.string())),
        *(("p", pa.bool_()), ("q", pa.bool_()), ("day", pa.date32())),
    ]
)
longs = st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**40])
doubles = st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.5, math.inf, math.nan, 1e300])
cents = st.none() | st.integers(-500, 500) | st.sampled_from([10**15, -(10**15)])
words = st.none() | st.sampled_from(["", "a", "ab", "b%", "ä"])
truths = st.none() | st.booleans()
days = st.none() | st.dates(datetime.date(1999, 12, 30), datetime.date(2000, 3, 2))
rows = st.tuples(
    *(longs, longs, doubles, doubles, cents.map(lambda n: None if n is None else Decimal(n).scaleb(-2))),
    *(cents.map(lambda n: None if n is None else Decimal(n).scaleb(-4)), words, words, truths, truths, days),
)

EXPRESSIONS = (
    *(
        "a + b",
        "a - 1",
        "a * b",
        "-a",
        "x + y",
        "x - a",
        "x * y",
        "x / y",
        "-x",
        "a / b",
        "d + e",
        "d - a",
        "d * e",
        "-d",
        "d * a",
    ),
    *("-d", "a = b", "a <> b", "a < x", "x <= y", "x > y", "x >= 1.5", "d < e", "d = a", "s < t", "s <> t", "p = q", "p < q"),
    *("p and a > 0", "p or b = 1", "not p", "p is null", "d is not null", "q is true", "q is not false", "a between b and 2"),
    *("a in (1, b, null)", "d in (e, 1.5)", "s in ('a', t)", "s like '%b%'", "s like 'a_'", "s not like 'a%'"),
    *("case when a > 0 then d when p then e else a end", "case a when 1 then s when b then t end", "if(p, a, x)"),
    *("coalesce(a, b, 7)", "coalesce(d, e)", "coalesce(s, 'none')", "extract(month from day)", "year(day)"),
    *("substring(s, 1, 2)", "day < date '2000-01-01'", "a + 1 > b * 2 and (x < y or s = t)"),
)
AGGREGATES = (
    *("count(*), count(a), sum(a), avg(a)", "sum(d), avg(e), count(s)", "sum(a) filter (where p), count(*) filter (where a > b)"),
    *("sum(a * 2 + b), count(x)", "sum(d * e)"),
)


def both_ways(query: str, values: list[Any]) -> Iterator[Any]:
    """Yield what a view holds of rows that come one by one, and as columns."""
    epochs = Epochs({"r": SCHEMA}, [{"r": [(row, 1) for row in values]}, {"r": [(row, -1) for row in values[::2]]}])
    for by_columns in (False, True):
        yield epochs.views(query, lambda time: by_columns)  # noqa: B023


@pytest.fixture(autouse=True, scope="module")
def few_rows_go_by_columns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timely.differential.tables.expressions.column_stages.FEW", 1)
        yield


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(values=st.lists(rows, max_size=5))
def test_an_expression(expression: str, values: list[Any]) -> None:
    by_rows, by_columns = both_ways(f"select {expression} as value from r", values)
    assert by_columns == by_rows


@pytest.mark.parametrize("aggregates", AGGREGATES)
@given(keys=st.sampled_from(["", "s", "a", "x, p", "d, day"]), values=st.lists(rows, max_size=8))
def test_aggregates(aggregates: str, keys: str, values: list[Any]) -> None:
    by_rows, by_columns = both_ways(f"select {aggregates} from r {f'group by {keys}' if keys else ''}", values)
    assert by_columns == by_rows
