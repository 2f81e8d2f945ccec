"""The corpus in SQLite: a second opinion on what DuckDB says, for the queries that SQLite has."""

from __future__ import annotations

import datetime
import sqlite3
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tests.differential.beside_duckdb import Epochs
from tests.differential.sql_epochs import QUERIES, SQLITE_DIFFERS, stream

sqlglot = pytest.importorskip("sqlglot")


def plain(value: Any) -> Any:
    """Return a value as SQLite has it: booleans are numbers, dates are texts, and a whole number has one type."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        return int(number) if number.is_integer() else round(number, 9)
    return str(value) if isinstance(value, datetime.date) else value


def databases(epochs: Epochs) -> list[sqlite3.Connection]:
    held: dict[str, Counter[Any]] = {name: Counter() for name in epochs.schemas}
    opened = []
    for changes in epochs.changes:
        connection = sqlite3.connect(":memory:")
        for name, schema in epochs.schemas.items():
            connection.execute(f"create table {name} ({', '.join(schema.names)})")
            for record, diff in changes[name]:
                held[name][record] += diff
            rows = [tuple(map(plain, row)) for row in held[name].elements()]
            connection.executemany(f"insert into {name} values ({', '.join('?' * len(schema.names))})", rows)
        opened.append(connection)
    return opened


def counted(rows: list[Any]) -> Counter[Any]:
    return Counter(tuple(map(plain, row)) for row in rows)


@pytest.mark.soak  # of the corpus alone: the default run compares the library with DuckDB
def test_sqlite_gives_what_duckdb_gives() -> None:
    compared, different = 0, []
    epochs = stream(1)
    connections = databases(epochs)
    for query in QUERIES:
        try:
            (text,) = sqlglot.transpile(query, read="duckdb", write="sqlite", unsupported_level=sqlglot.ErrorLevel.RAISE)
            by_epoch = [counted(connection.execute(text).fetchall()) for connection in connections]
        except (sqlite3.Error, sqlglot.errors.SqlglotError):
            continue  # it has no such function, or no such join
        if query in SQLITE_DIFFERS:
            continue
        compared += 1
        if by_epoch != list(map(counted, epochs.rows_in_duckdb(query))):
            different.append(query)
    assert not different
    assert compared > 450
