"""Random streams of three tables, and the corpus of queries over them."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.differential.beside_duckdb import Tables
from tests.differential.random_queries import Queries

duckdb = pytest.importorskip("duckdb")

CORPUS = Path(__file__).with_name("corpus.sql").read_text()
ENTRIES = CORPUS.split(";\n")


def _lines(entry: str, comments: bool) -> str:
    return "\n".join(line for line in entry.splitlines() if line.startswith("--") is comments).strip()


QUERIES = [query for entry in ENTRIES if (query := _lines(entry, comments=False))]
SQLITE_DIFFERS = {_lines(entry, comments=False): entry for entry in ENTRIES if "-- SQLite: " in _lines(entry, comments=True)}

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64())])
LINES = pa.schema(
    [("order_id", pa.int64()), ("price", pa.float64()), ("n", pa.int64()), ("day", pa.date32()), ("fee", pa.decimal128(8, 2))]
)
EDGES = pa.schema([pa.field("src", pa.int64(), nullable=False), pa.field("dst", pa.int64(), nullable=False), ("w", pa.int64())])
SCHEMAS = {"orders": ORDERS, "lines": LINES, "edges": EDGES}


def maybe(random: random.Random, value: Any) -> Any:
    return None if random.random() < 0.2 else value


def order(random: random.Random) -> Any:
    customers = ["ada", "bob", "eve", "a_a", "Zoë"]
    return maybe(random, random.randint(1, 6)), maybe(random, random.choice(customers)), maybe(random, random.randint(0, 9))


def line(random: random.Random) -> Any:
    price = maybe(random, random.randint(-12, 40) / 4)
    day = maybe(random, datetime.date(2024, 1, 1) + datetime.timedelta(random.randint(0, 90)))
    fee = maybe(random, Decimal(random.randint(-300, 900)) / 100)
    return maybe(random, random.randint(1, 6)), price, maybe(random, random.randint(0, 5)), day, fee


def edge(random: random.Random) -> Any:
    return random.randint(1, 6), random.randint(1, 6), maybe(random, random.randint(0, 5))


stream = Tables(SCHEMAS, {"orders": order, "lines": line, "edges": edge}, epochs=7, first=7).stream


def check_random_query(number: int) -> bool:
    """Compare a random query with DuckDB, if DuckDB accepts it; return whether it does."""
    query, epochs = Queries(number).query(), stream(number % 4)
    try:
        expected = epochs.expected(query)
    except duckdb.Error:
        return False
    assert epochs.views(query) == expected, query
    assert epochs.views(query, lambda time: time % 3 != 1) == expected, query
    return True
