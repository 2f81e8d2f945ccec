"""Expressions on edge values: each gives what DuckDB gives, row by row."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import plain, register
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
DECIMALS = [None, *map(Decimal, ("0", "0.01", "-0.01", "1.00", "2.50", "-2.55", "99.99", "1234.56", "-9999.99"))]
DAYS = [
    None,
    *map(
        datetime.date.fromisoformat,
        (
            "1970-01-01",
            "1969-12-31",
            "2000-02-29",
            "2024-02-29",
            "2024-12-30",
            "2023-01-01",
            "1999-12-31",
            "0011-01-01",
            "2100-03-01",
        ),
    ),
]
MOMENTS = [
    None,
    *map(
        datetime.datetime.fromisoformat,
        (
            "1970-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "2000-02-29 12:34:56.789012",
            "2024-02-29 00:00:00",
            "2024-01-31 23:00:00.5",
            "2023-12-31 05:06:07",
            "2024-03-31 01:30:00",
            "1582-10-15 10:00:00",
        ),
    ),
]
ZONED = [None if value is None else value.replace(tzinfo=UTC) for value in MOMENTS]
CLOCKS = [None, datetime.time(0), datetime.time(23, 59, 59, 999999), datetime.time(12, 30), datetime.time(1, 2, 3, 40)]
LISTS: list[Any] = [None, (), (1,), (1, 2, 3), (3, None, 1), (None,), (2, 2, 2), (1, 2)]
WORDS: list[Any] = [None, (), ("a",), ("b", "a", None), ("Zoë", ""), ("a", "b")]
STRUCTS: list[Any] = [None, (1, "x"), (1, None), (None, None), (2, "a"), (1, "x")]
BYTES = [None, b"", b"abc", b"\x00\xff", b"a\\'\"\n"]

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.string(), TEXTS),
    "n": (pa.int64(), NUMBERS),
    "f": (pa.float64(), FLOATS),
    "p": (pa.decimal128(8, 2), DECIMALS),
    "d": (pa.date32(), DAYS),
    "m": (pa.timestamp("us"), MOMENTS),
    "z": (pa.timestamp("us", "UTC"), ZONED),
    "c": (pa.time64("us"), CLOCKS),
    "l": (pa.list_(pa.int64()), LISTS),
    "w": (pa.list_(pa.string()), WORDS),
    "s": (pa.struct([("a", pa.int64()), ("b", pa.string())]), STRUCTS),
    "y": (pa.binary(), BYTES),
    "b": (pa.bool_(), [None, True, False]),
}


def expressions_by_column() -> dict[str, list[str]]:
    """Return the expressions of ``expressions.sql``, by the column that they are of."""
    found: dict[str, list[str]] = {}
    for section in Path(__file__).with_name("expressions.sql").read_text().split("-- column ")[1:]:
        column, _, text = section.partition("\n")
        found[column] = [part.strip() for part in text.split(";") if part.strip()]
    return found


EXPRESSIONS = expressions_by_column()


def schema_of(column: str) -> pa.Schema:
    return pa.schema([("id", pa.int64()), (column, COLUMNS[column][0]), *([("n", pa.int64())] if column == "l" else [])])


def rows_of(column: str) -> list[Any]:
    return [(i, value, *([i] if column == "l" else [])) for i, value in enumerate(COLUMNS[column][1])]


def found_by_row(column: str, expressions: list[str]) -> dict[int, Any]:
    """Return the values of expressions for each row, all in one table."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows = dd.table(dd.collection(scope, rows_of(column)), schema_of(column))
            output = rows.select("id", *(f"{part} as c{i}" for i, part in enumerate(expressions))).output()
        return {row[0]: row[1:] for row in output.at(0)}


@pytest.mark.parametrize("column", EXPRESSIONS)
def test_expressions_give_what_duckdb_gives(column: str) -> None:
    expressions = EXPRESSIONS[column]
    found = found_by_row(column, expressions)
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        register(connection, "given", rows_of(column), schema_of(column))
        selected = ", ".join(f"{part} as c{i}" for i, part in enumerate(expressions))
        expected = {row[0]: row[1:] for row in connection.execute(f"select id, {selected} from given").fetchall()}
    wrong = [
        (part, COLUMNS[column][1][row], one, other)
        for row, values in expected.items()
        for part, one, other in zip(expressions, values, found[row])
        if plain(one) != plain(other)
    ]
    assert wrong == []
