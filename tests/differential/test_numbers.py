"""Numbers of all types that come and go: sums are exact, and the order is total, in groups of any size."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.differential.beside_duckdb import Tables, view
from timely import differential as dd
from timely.errors import OperatorError
from timely.testing import differential
from timely.testing.differential import accumulated

Build = Callable[[Any], Any]

BUILDS: dict[str, Build] = {
    "sum": lambda c: c.sum_by_key(),
    "min": lambda c: c.min_by_key(),
    "max": lambda c: c.max_by_key(),
    "top 3": lambda c: c.top_k(3),
    "top by": lambda c: c.top_k(1, by=lambda value: value),
}


def after_each(build: Build, *epochs: Sequence[tuple[Any, int]], **conditions: Any) -> list[Any]:
    """Return the values of the one group after each epoch of changes ``(value, diff)``, from the greatest on."""
    changes = [(("k", value), time, diff) for time, epoch in enumerate(epochs) for value, diff in epoch]
    result = differential.run(build, changes, **conditions)
    groups = [accumulated(result, time) for time in range(len(epochs))]
    return [[one_nan(value) for (_, value), count in group.items() for _ in range(count)] for group in groups]


def one_nan(value: Any) -> Any:
    """Return a value with ``math.nan`` for NaN, which equals itself in lists and tuples."""
    if isinstance(value, tuple):
        return tuple(map(one_nan, value))
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def come(*values: Any) -> list[tuple[Any, int]]:
    return [(value, 1) for value in values]


def go(*values: Any) -> list[tuple[Any, int]]:
    return [(value, -1) for value in values]


def again(value: Any) -> Any:
    """Return an equal number that is another object."""
    return pickle.loads(pickle.dumps(value))


LARGE = 2**60

SUMS: dict[str, tuple[Callable[[int], Any], Any]] = {
    "number-1-inf": (float, math.inf),
    "number-1-nan": (float, math.nan),
    "number-2": (lambda n: Decimal(n) / 1000, Decimal("1e30")),
    "number-2-long": (lambda n: Decimal(n) / 1000, Decimal("0." + "123456789" * 7)),
    "number-3": (np.float64, np.float64(1e20)),
    "number-3-float32": (np.float64, np.float32(1e12)),
    "number-3-long-double": (np.longdouble, np.longdouble("1e40")),
    "number-4": (lambda n: LARGE + n, 0.5),
    "number-4-decimal": (lambda n: LARGE + n, Decimal("0.5")),
    "number-4-fraction": (lambda n: LARGE + n, Fraction(1, 3)),
    "number-5": (Decimal, Decimal("inf")),
    "number-5-nan": (Decimal, Decimal("nan")),
    "number-6": (lambda n: complex(n, 1), 1e20 + 0j),
    "number-6-inf": (lambda n: complex(n, 1), complex(1, math.inf)),
    "number-7": (lambda n: np.uint8(n % 256), np.uint8(255)),
    "number-10": (lambda n: 1.7e308 / (n + 1), 1.7e308),
}


@pytest.mark.parametrize("number", SUMS)
@pytest.mark.parametrize("size", [5, 200])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_number_that_goes_leaves_the_sum_as_it_was(number: str, size: int, workers: int) -> None:
    of, guest = SUMS[number]
    stay = [of(n) for n in range(size)]
    one, _, three = after_each(BUILDS["sum"], come(*stay), come(guest), go(again(guest)), workers=workers, one_by_one=True)
    assert one == three == [exact_sum(stay)] and type(one[0]) is type(three[0]) is type(exact_sum(stay))


def test_nan_is_one_value_in_another_process_and_from_columns() -> None:
    result = differential.run(BUILDS["max"], [(("k", math.nan), 0, 1)])
    assert again(result) == result == [(("k", result[0][0][1]), 0, 1)] and math.isnan(result[0][0][1])
    schema = pa.schema([("k", pa.string()), ("x", pa.float64())])
    batch = pa.table({"k": ["a"] * 2, "x": [math.nan, 1.0]}, schema=schema)
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            pairs, plain = dd.new_collection(scope)
            rows, records = dd.from_columns(scope, schema)
            outputs = plain.output(), records.output()
        pairs.insert_columns(["a", "b"], np.array([math.nan, 1.0]))
        rows.insert_columns(batch)
        for session in (pairs, rows):
            session.advance_to(1)
        pairs.insert_columns(["a"], np.array([math.nan]), diff=-1)
        rows.insert_columns(batch, diff=np.array([-1, -1]))
        for session in (pairs, rows):
            session.close()
        assert outputs[0].at(1) == {("b", 1.0): 1} and outputs[1].at(1) == {}


def test_number_7_small_whole_numbers_of_numpy_do_not_wrap() -> None:
    assert after_each(BUILDS["sum"], come(np.uint8(200), np.uint8(100), np.uint8(50))) == [[350]]


def test_number_10_a_sum_beyond_all_floats_is_infinite() -> None:
    assert after_each(BUILDS["sum"], come(1.7e308, 1.6e308), come(-1.6e308)) == [[math.inf], [1.7e308]]
    assert after_each(BUILDS["sum"], come(-1.7e308, -1.6e308)) == [[-math.inf]]


@pytest.mark.parametrize("name", ["min", "max", "top 3", "top by"])
@pytest.mark.parametrize("nan", [math.nan, Decimal("nan"), np.float32("nan"), (math.nan, 1)], ids=repr)
@pytest.mark.parametrize("size", [5, 100])
def test_number_8_number_9_nan_is_the_greatest_and_goes_again(name: str, nan: Any, size: int) -> None:
    kind = (lambda x: (x, 0)) if isinstance(nan, tuple) else Decimal if isinstance(nan, Decimal) else float
    stay = [kind(n) for n in range(size)]
    epochs = after_each(BUILDS[name], come(*stay), come(nan), go(again(nan)), come(kind(-5)), one_by_one=True)
    count = 3 if name == "top 3" else 1
    expected = [[kind(0)]] * 3 + [[kind(-5)]] if name == "min" else [sorted(stay[-count:])] * 4
    assert [sorted(epoch) for epoch in (epochs[0], *epochs[2:])] == [expected[0], *expected[2:]]
    first = (math.nan, 1) if isinstance(nan, tuple) else math.nan
    with_nan = [first, *stay[:-count:-1]]
    assert sorted(epochs[1], key=repr) == sorted(expected[1] if name == "min" else with_nan, key=repr)


def test_what_cannot_be_added_up_is_refused() -> None:
    with pytest.raises(OperatorError, match="the exponent of Decimal.* is too large for an exact sum: round it"):
        after_each(BUILDS["sum"], come(Decimal("1e999999999"), Decimal(1)))
    with pytest.raises(OperatorError, match="'int' and 'str'"):
        after_each(BUILDS["sum"], come("1", "2"))


# -- random numbers ------------------------------------------------------------------------------------------------


def exact_sum(values: Sequence[Any]) -> Any:
    """Return the sum of numbers as exact arithmetic has it."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(isinstance(value, complex) for value in plain):
        return complex(exact_sum([value.real for value in plain]), exact_sum([value.imag for value in plain]))
    kinds = set(map(type, plain)) - {bool, int}
    special = [float(value) for value in plain if not math.isfinite(value)]
    if special:
        total = sum(special)
        return math.nan if total != total else total if kinds != {Decimal} else Decimal(total)
    exact = sum((Fraction(*value.as_integer_ratio()) for value in plain), Fraction(0))
    if kinds & {float, np.longdouble}:
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf
    return exact if kinds - {Decimal} else Decimal(exact.numerator) / exact.denominator if kinds else int(exact)


def rank(value: Any) -> Any:
    """Return what numbers are ordered by."""
    value = value.item() if isinstance(value, np.generic) else value
    if value != value:
        return 1, 0
    return (0, Fraction(value)) if math.isfinite(value) else (0, float(value))


FLOATS = [0.1, -0.5, 1e-320, 1e20, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan, 0.0, -0.0]

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from(FLOATS),
    st.floats(-1e6, 1e6, width=32).filter(lambda value: value % 1 != 0),
    st.decimals(-(10**30), 10**30, places=30).map(lambda value: value + Decimal(1) / 7),
    st.sampled_from([Decimal("inf"), Decimal("nan"), Decimal("1e-60"), Decimal("0.00")]),
    st.fractions(-1000, 1000, max_denominator=97),
    st.sampled_from([np.float32(0.1), np.float64(0.7), np.float16(0.3), np.uint8(250), np.int64(-(2**63)), np.float32("nan")]),
)

CONDITIONS = st.fixed_dictionaries(
    {
        "workers": st.sampled_from([1, 2]),
        "one_by_one": st.booleans(),
        "compact": st.booleans(),
        "containers": st.sampled_from(["rows", "mixed"]),
    }
)


@st.composite
def histories(draw: Any) -> list[list[tuple[Any, int]]]:
    """Return epochs of numbers that come and go; in the end most of them are gone."""
    there: list[Any] = list(range(1000, 1000 + draw(st.sampled_from([0, 3, 80]))))
    epochs = [come(*there)]
    for _ in range(draw(st.integers(1, 4))):
        gone = [there.pop(draw(st.integers(0, len(there) - 1))) for _ in range(min(draw(st.integers(0, 3)), len(there)))]
        new = draw(st.lists(NUMBERS, max_size=4))
        there += new
        epochs.append(come(*new) + go(*map(again, gone)))
    return [*epochs, go(*there[2:])]


def held_after_each(epochs: list[list[tuple[Any, int]]]) -> list[list[Any]]:
    """Return the values that are there after each epoch."""
    held: list[Any] = []
    by_epoch = []
    for epoch in epochs:
        for value, diff in epoch:
            if diff > 0:
                held.append(value)
            else:
                held.pop(
                    next(place for place, other in enumerate(held) if type(other) is type(value) and repr(other) == repr(value))
                )
        by_epoch.append(list(held))
    return by_epoch


@given(histories(), CONDITIONS)
@settings(max_examples=40)
def test_sums_are_those_of_exact_arithmetic(epochs: list[list[tuple[Any, int]]], conditions: dict[str, Any]) -> None:
    for (*sums,), held in zip(after_each(BUILDS["sum"], *epochs, **conditions), held_after_each(epochs), strict=True):
        assert len(sums) == bool(held)
        if held:
            assert rank(sums[0]) == rank(exact_sum(held)) or same_float(sums[0], held)


def same_float(number: Any, held: list[Any]) -> bool:
    """Return whether a sum is exact where a float is one: 0 and 0.0 are one value, so a group may be of either type."""
    return isinstance(number, int | float | Decimal | Fraction) and float(number) == exact_sum([*held, 0.0])


@given(histories(), CONDITIONS)
@settings(max_examples=40)
def test_the_order_is_total(epochs: list[list[tuple[Any, int]]], conditions: dict[str, Any]) -> None:
    for name, least in (("min", True), ("max", False), ("top 3", False), ("top by", False)):
        for chosen, held in zip(after_each(BUILDS[name], *epochs, **conditions), held_after_each(epochs), strict=True):
            ordered = sorted(map(rank, held), reverse=not least)
            assert sorted(map(rank, chosen), reverse=not least) == ordered[: 3 if name == "top 3" else 1]


# -- doubles of SQL ------------------------------------------------------------------------------------------------

DOUBLES = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])


def doubles(*values: Any) -> Tables:
    """Return tables whose random rows have some of these values."""
    return Tables(
        {"t": DOUBLES, "u": DOUBLES},
        dict.fromkeys("tu", lambda random: (random.randrange(3), random.choice(values), random.choice(values))),
    )


SPECIAL = doubles(math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, -2.25, None)

QUERIES = [
    "select k, sum(x), avg(x), min(x), max(x), count(distinct x) from t group by k",
    "select sum(x), avg(y), sum(distinct x), sum(x) filter (where y > 0) from t",
    "select k, stddev_pop(x), var_pop(x), covar_pop(x, x) from t group by k having count(x) > 1",
    "select k, min_by(k, x), max_by(k, x) from t where x is not null group by k having count(distinct x) = count(x)",
    "select x, count(*), sum(y) from t group by x",
    "select distinct x, -x, abs(x), x + y, x * y, sign(x), isnan(x), round(x, 1), nullif(x, 0)::varchar, greatest(x, y) from t",
    "select x, y, x = y, x < y, x <= y, x > 'nan'::double, x between y and 'nan', x in (1.5, 'nan') from t",
    "select count(*) from t where x > y or x = 'nan'::double",
    "select t.x, count(*) from t join u on t.x = u.x group by t.x",
    "select x from t union select y from u",
    "select x from t intersect select y from u",
    "select x, k, y from t qualify dense_rank() over (partition by k order by x desc nulls last) <= 2",
    "select x, rank() over (order by x), sum(x) over (order by x range unbounded preceding) from t where x is not null",
    "select k, median(x), mode(x), quantile_disc(x, 0.5) from t where isnan(x) group by k",
    "select list_sum([x, y]), list_avg([x, y]), list_max([x, y]), list_sort([x, y]) from t",
    "select x / y, x % y, least(x, y), sqrt(abs(x)), nullif(x, y), coalesce(x, 'nan') from t where y <> 0",
]


@pytest.mark.parametrize("query", QUERIES)
def test_number_11_infinity_and_nan_are_those_of_duckdb(query: str) -> None:
    SPECIAL.check(view(query), query, 1, 2, 3)
    assert SPECIAL.stream(4).held_on_workers(view(query), 2) == SPECIAL.stream(4).expected(query)


def test_number_11_sums_that_overflow_are_infinite() -> None:
    for large in (1.7e308, -1.7e308):
        query = "select k, sum(x), avg(x), list_sum([x, x]) from t group by k, x"
        doubles(large, large).check(lambda t, u: dd.sql(t.scope, query, t=t), query)  # noqa: B023  # called at once


def test_number_11_nan_comes_in_arrow_batches() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows = dd.table(scope, DOUBLES)
            totals = dd.sql(scope, "select k, sum(x) as s, max(y) as m from rows group by k", rows=rows).output()
        batch = pa.table({"k": [1] * 8, "x": [math.nan, *[0.5] * 7], "y": [-0.0, math.nan] * 4}, schema=DOUBLES)
        rows.session.insert_columns(batch)
        rows.session.advance_to(1)
        rows.session.insert_columns(batch.slice(1), diff=-1)
        rows.session.close()
        assert totals.to_arrow(0).to_pylist() == [
            {"k": 1, "s": pytest.approx(math.nan, nan_ok=True), "m": pytest.approx(math.nan, nan_ok=True)}
        ]
        assert totals.to_arrow(1).to_pylist() == [{"k": 1, "s": pytest.approx(math.nan, nan_ok=True), "m": 0.0}]
