"""Expressions on edge values: each gives what DuckDB gives, row by row."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import Epochs, plain, register, rows_in
from timely import differential as dd

duckdb = pytest.importorskip("duckdb")

UTC = datetime.UTC

TEXTS = [
    None,
    "",
    " ",
    "a",
    "abc",
    "A,b,,c",
    "  x y ",
    "Zoë",
    "日本語",
    "naïve café",
    "a%b_c",
    "foo123bar45",
    "'quoted\"",
    "x\ny",
    "0",
    "-12",
]
NUMBERS = [None, 0, 1, -1, 2, 7, -8, 10, 100, 255, 1250, -1255, 2**31, -(2**53), 2**63 - 1]
FLOATS = [None, 0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 2.345, 1e-7, 123456.789, 1e15, 1e16, 1e22, -1e300, math.inf, -math.inf]
SINGLES = [*FLOATS[:-3], 16777216.0, 19781.0625, -1915074.75, 50816768.0, 36016008.0, 2.0**-96, 1e-45, 3.4e38, *FLOATS[-2:]]
DECIMALS = [None, *map(Decimal, ("0", "0.01", "-0.01", "1.00", "2.50", "-2.55", "99.99", "1234.56", "-9999.99"))]
DAYS_WRITTEN = "1970-01-01 1969-12-31 2000-02-29 2024-02-29 2024-12-30 2023-01-01 1999-12-31 0011-01-01 2100-03-01"
MOMENTS_WRITTEN = (
    "1970-01-01T00:00:00 1969-12-31T23:59:59.999999 2000-02-29T12:34:56.789012 2024-02-29T00:00:00 2024-01-31T23:00:00.5 "
    "2023-12-31T05:06:07 2024-03-31T01:30:00 1582-10-15T10:00:00"
)
DAYS = [None, *map(datetime.date.fromisoformat, DAYS_WRITTEN.split())]
MOMENTS = [None, *map(datetime.datetime.fromisoformat, MOMENTS_WRITTEN.split())]
ZONED = [None if value is None else value.replace(tzinfo=UTC) for value in MOMENTS]
CLOCKS = [None, datetime.time(0), datetime.time(23, 59, 59, 999999), datetime.time(12, 30), datetime.time(1, 2, 3, 40)]
LISTS: list[Any] = [None, (), (1,), (1, 2, 3), (3, None, 1), (None,), (2, 2, 2), (1, 2)]
WORDS: list[Any] = [None, (), ("a",), ("b", "a", None), ("Zoë", ""), ("a", "b")]
STRUCTS: list[Any] = [None, (1, "x"), (1, None), (None, None), (2, "a"), (1, "x")]
OBJECTS = [
    None,
    "null",
    "true",
    "-12",
    "1.50",
    '"1"',
    '"a\\"b\\u00e9\\n"',
    "[]",
    "[1, 2.0, null, [3]]",
    ' {"a": {"b": [1, {"c": "x"}]}, "a b": null} ',
    '{"a": 1e20, "a": 1e21, "b": -1e-7, "": 12345678901234567890123}',
    '{"b": [1e-6, 0.1, 5e-324, -0.0, 18446744073709551615, 1e999], "0": false}',
]
MAPS: list[Any] = [None, (), (("a", 1),), (("b", None), ("a", 2)), (("", 0), ("Zoë", -1), ("a", 1))]
BYTES = [None, b"", b"abc", b"\x00\xff", b"a\\'\"\n"]

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.string(), TEXTS),
    "n": (pa.int64(), NUMBERS),
    "f": (pa.float64(), FLOATS),
    "r": (pa.float32(), SINGLES),
    "p": (pa.decimal128(8, 2), DECIMALS),
    "d": (pa.date32(), DAYS),
    "m": (pa.timestamp("us"), MOMENTS),
    "z": (pa.timestamp("us", "UTC"), ZONED),
    "c": (pa.time64("us"), CLOCKS),
    "l": (pa.list_(pa.int64()), LISTS),
    "w": (pa.list_(pa.string()), WORDS),
    "s": (pa.struct([("a", pa.int64()), ("b", pa.string())]), STRUCTS),
    "j": (pa.string(), OBJECTS),
    "k": (pa.map_(pa.string(), pa.int64()), MAPS),
    "y": (pa.binary(), BYTES),
    "b": (pa.bool_(), [None, True, False]),
}


def expressions_by_column() -> dict[str, list[str]]:
    """Return the expressions of ``expressions.sql``, by the column that they are of."""
    computed: dict[str, list[str]] = {}
    for section in Path(__file__).with_name("expressions.sql").read_text().split("-- column ")[1:]:
        column, _, text = section.partition("\n")
        computed[column] = [part.strip() for part in text.split(";") if part.strip()]
    return computed


EXPRESSIONS = expressions_by_column()


def schema_of(column: str) -> pa.Schema:
    return pa.schema([("id", pa.int64()), (column, COLUMNS[column][0]), *([("n", pa.int64())] if column == "l" else [])])


def rows_of(column: str, values: list[Any]) -> list[Any]:
    return [(i, value, *([i] if column == "l" else [])) for i, value in enumerate(values)]


def values_by_row(column: str, expressions: list[str], values: list[Any]) -> dict[int, Any]:
    """Return the values of expressions for each row, all in one table."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows = dd.table(dd.collection(scope, rows_of(column, values)), schema_of(column))
            output = rows.select("id", *(f"{part} as c{i}" for i, part in enumerate(expressions))).output()
        return {row[0]: row[1:] for row in output.at(0)}


def values_in_columns(column: str, expressions: list[str], values: list[Any]) -> dict[int, Any]:
    """Return the same for rows that come as columns, each expression in a query of its own: some have kernels."""
    schema = schema_of(column)
    arrays = [pa.array(part, field.type) for part, field in zip(zip(*rows_of(column, values)), schema)]
    data = pa.table(arrays, schema=schema)
    computed: dict[int, tuple[Any, ...]] = dict.fromkeys(range(len(values)), ())
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows = dd.table(scope, data)
            outputs = [rows.select("id", f"{part} as c").output() for part in expressions]
        for output in outputs:
            for row in output.at(0):
                computed[row[0]] += row[1:]
    return computed


def expected_by_row(connection: Any, expressions: list[str]) -> dict[int, Any]:
    selected = ", ".join(f"{part} as c{i}" for i, part in enumerate(expressions))
    return {row[0]: row[1:] for row in rows_in(connection.execute(f"select id, {selected} from entries"))}


def connected(column: str, values: list[Any]) -> Any:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    register(connection, "entries", rows_of(column, values), schema_of(column))
    return connection


def wrong(expressions: list[str], values: list[Any], expected: dict[int, Any], computed: dict[int, Any]) -> list[Any]:
    return [
        (part, values[row], one, other)
        for row, results in expected.items()
        for part, one, other in zip(expressions, results, computed[row])
        if plain(one) != plain(other)
    ]


@pytest.mark.parametrize("column", EXPRESSIONS)
def test_expressions_give_what_duckdb_gives(column: str) -> None:
    expressions, values = EXPRESSIONS[column], COLUMNS[column][1]
    with connected(column, values) as connection:
        expected = expected_by_row(connection, expressions)
    assert wrong(expressions, values, expected, values_by_row(column, expressions, values)) == []
    assert wrong(expressions, values, expected, values_in_columns(column, expressions, values)) == []


def test_there_is_one_zero() -> None:
    values = [0.0, -0.0]
    expressions = ["f::varchar", "1 / f", "-f", "f * -1", "round(f)::varchar", "concat(-f, '')", "1 / -f"]
    expected = ("0.0", math.inf, 0.0, 0.0, "0.0", "0.0", math.inf)
    for computed in (values_by_row("f", expressions, values * 3), values_in_columns("f", expressions, values * 3)):
        assert all(row == expected and str(row[2:4]) == "(0.0, 0.0)" for row in computed.values())


def test_decimals_have_38_digits() -> None:
    largest = Decimal("9" * 28 + "." + "9" * 10)
    schema = pa.schema([("p", pa.decimal128(38, 10)), ("f", pa.float64())])
    expressions = ["p", "-p", "abs(p)", "p::varchar", "p::decimal(38, 10)", "f::decimal(38, 5)", "f::decimal(38, 0)"]
    query = f"select {', '.join(expressions)} from entries"
    with duckdb.connect() as connection, timely.Worker() as worker:
        register(connection, "entries", rows := [(largest, 1e30 / 3), (largest.copy_negate(), 123456789012345680.0)], schema)
        with worker.dataflow(int) as scope:
            entries = dd.table(scope, schema)
            output = dd.sql(scope, query, entries=entries).output()
        for row in rows:
            entries.session.insert(row)
        entries.session.close()
        assert output.at(0) == dict.fromkeys(connection.execute(query).fetchall(), 1)


# -- random values, for an evening ---------------------------------------------------------------------------------


def text(source: random.Random) -> str:
    kind = source.randint(0, 3)
    if kind == 0:
        number = source.choice(
            [
                str(source.randint(0, 2000)),
                f"{source.uniform(0, 200):.3f}",
                f"{source.randint(0, 9)}e{source.randint(-5, 9)}",
                "1_0",
            ]
        )
        return source.choice(["", "-", "+", " "]) + number + source.choice(["", " ", "x"])
    if kind == 1:
        form = source.choice(["%04d-%02d-%02d", "%d-%d-%d", "%04d/%02d/%02d"])
        date = form % (source.randint(1, 2100), source.randint(1, 13), source.randint(1, 31))
        return date + source.choice(["", " ", "T10:11", "T10:11:12.5", " 1:2:3", " 10:11:12.1234567", " 23:60"])
    if kind == 2:
        return f"{source.randint(0, 25):02d}:{source.randint(0, 61):02d}" + source.choice(["", ":03", ":59.9", ":1"])
    letters = source.choice(["abc,", "aA bB", "0123456789.-", "éëßΣİǅa", "日本a", "x\n\t y", "a%_\\'\"", "foo bar12,"])
    return "".join(source.choice(letters) for _ in range(source.randint(0, 9)))


def number(source: random.Random) -> float:
    power = 10.0 ** source.randint(0, 6)
    whole = source.randint(-(10**7), 10**7)
    return source.choice(
        [whole / power, whole / 8, source.uniform(-10, 10), source.uniform(-1, 1) * 10.0 ** source.randint(-20, 15)]
    )


def moment(source: random.Random) -> datetime.datetime:
    passed = datetime.timedelta(source.randint(0, 90000), source.randint(0, 86399), source.choice([0, 500_000, 999_999, 1]))
    return datetime.datetime(1900, 1, 1) + passed


def json_text(source: random.Random, depth: int = 3) -> str:
    kind = source.randint(0, 5 if depth else 3)
    if kind == 0:
        return source.choice(["null", "true", "false", "[]", "{}", "-0"])
    if kind == 1:
        return f"{source.choice(['', '-'])}{source.randint(0, 10 ** source.randint(1, 25))}"
    if kind == 2:
        return source.choice([repr(number(source)), f"{source.randint(0, 99)}.{source.randint(0, 99)}e{source.randint(-9, 30)}"])
    if kind == 3:
        return source.choice(['"a"', '"é\\u00e9"', '"\\n\\/\\u0001"', '"1"', '""', '"2024-01-31"'])
    parts = [json_text(source, depth - 1) for _ in range(source.randint(0, 3))]
    if kind == 4:
        return f"[{source.choice([', ', ',']).join(parts)}]"
    return "{" + ", ".join(f'"{source.choice(["a", "b", "a b", "0", ""])}": {part}' for part in parts) + "}"


RANDOM: dict[str, Callable[[random.Random], Any]] = {
    "t": text,
    "n": lambda source: source.choice(
        [source.randint(-20, 20), source.randint(-(10**6), 10**6), source.randint(-(2**53), 2**53)]
    ),
    "f": number,
    "p": lambda source: Decimal(source.randint(-999_999, 999_999)) / 100,
    "d": lambda source: moment(source).date(),
    "m": moment,
    "z": lambda source: moment(source).replace(tzinfo=UTC),
    "c": lambda source: moment(source).time(),
    "l": lambda source: tuple(source.choice([None, 0, 1, 2, 3]) for _ in range(source.randint(0, 4))),
    "w": lambda source: tuple(source.choice([None, "a", "b", "éa", ""]) for _ in range(source.randint(0, 4))),
    "s": lambda source: (source.choice([None, 1, 2]), source.choice([None, "x", "y", ""])),
    "j": json_text,
    "k": lambda source: tuple(
        (key, source.choice([None, 1, 2])) for key in source.sample(["a", "b", "", "é"], source.randint(0, 3))
    ),
    "y": lambda source: source.randbytes(source.randint(0, 5)),
    "b": lambda source: source.random() < 0.5,
}


@pytest.mark.parametrize("comparison", [">", "<="])
@pytest.mark.parametrize("column", COLUMNS)
def test_values_of_every_kind_have_a_nearest_one(column: str, comparison: str) -> None:
    epochs = Epochs({"t": schema_of(column)}, [{"t": [(row, 1) for row in rows_of(column, COLUMNS[column][1])]}])
    values = f"(select distinct {column} as x from t) b"
    query = f"select a.id, b.x from t a asof left join {values} on a.{column} {comparison} b.x"
    assert epochs.views(query) == epochs.expected(query)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("column", EXPRESSIONS)
def test_expressions_of_random_values(column: str, seed: int) -> None:
    source = random.Random(seed)
    values = [None if source.random() < 0.05 else RANDOM[column](source) for _ in range(200)]
    with connected(column, values) as connection:
        for part in EXPRESSIONS[column]:
            try:
                expected = expected_by_row(connection, [part])
            except duckdb.Error:
                continue  # a value for which it has no result
            assert wrong([part], values, expected, values_by_row(column, [part], values)) == []
            assert wrong([part], values, expected, values_in_columns(column, [part], values)) == []
