"""Random streams of three tables, and what queries over them give at each epoch: in DuckDB, and as views."""

from __future__ import annotations

import datetime
import functools
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.random_queries import Queries
from timely import differential as dd
from timely.recovery import Recovery
from timely.testing import differential

duckdb = pytest.importorskip("duckdb")

CORPUS = Path(__file__).with_name("corpus.sql").read_text()
QUERIES = [
    query
    for part in CORPUS.split(";\n")
    if (query := "\n".join(line for line in part.splitlines() if not line.startswith("--")).strip())
]

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64())])
LINES = pa.schema(
    [("order_id", pa.int64()), ("price", pa.float64()), ("n", pa.int64()), ("day", pa.date32()), ("fee", pa.decimal128(8, 2))]
)
EDGES = pa.schema([pa.field("src", pa.int64(), nullable=False), pa.field("dst", pa.int64(), nullable=False), ("w", pa.int64())])
SCHEMAS = {"orders": ORDERS, "lines": LINES, "edges": EDGES}

EPOCHS = 7


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


MADE: dict[str, Callable[[random.Random], Any]] = {"orders": order, "lines": line, "edges": edge}

Changes = list[dict[str, list[tuple[Any, int]]]]


def stream(seed: int) -> Changes:
    """Return the changes of each table by epoch: some come, some of those that are there go, and in the end nearly all."""
    source = random.Random(seed)
    held: dict[str, list[Any]] = {name: [] for name in SCHEMAS}
    epochs: Changes = []
    for epoch in range(EPOCHS):
        changes: dict[str, list[tuple[Any, int]]] = {}
        for name, records in held.items():
            source.shuffle(records)
            gone = len(records) * 9 // 10 if epoch == EPOCHS - 1 else len(records) // 3
            changes[name] = [(records.pop(), -1) for _ in range(gone)]
            for _ in range(0 if epoch == EPOCHS - 1 else 7 if epoch == 0 else 4):
                record = source.choice(records) if records and source.random() < 0.2 else MADE[name](source)
                records.append(record)
                changes[name].append((record, 1))
        epochs.append(changes)
    return epochs


def typed(rows: Any) -> Counter[Any]:
    """Count rows, with the types of their values: 1, 1.0 and true are not the same here."""
    counts: Counter[Any] = Counter()
    for row, count in rows:
        counts[tuple((type(value).__name__, round(value, 9) if type(value) is float else value) for value in row)] += count
    return counts


@functools.cache
def databases(seed: int) -> list[Any]:
    """Return a DuckDB connection for each epoch, with what the tables hold then."""
    found = []
    held: dict[str, Counter[Any]] = {name: Counter() for name in SCHEMAS}
    for epoch in stream(seed):
        connection = duckdb.connect()
        connection.execute("create table orders(id bigint, customer varchar, amount bigint)")
        connection.execute("create table lines(order_id bigint, price double, n bigint, day date, fee decimal(8, 2))")
        connection.execute("create table edges(src bigint not null, dst bigint not null, w bigint)")
        for name, updates in epoch.items():
            for record, diff in updates:
                held[name][record] += diff
            rows = list(held[name].elements())
            connection.executemany(f"insert into {name} values ({', '.join('?' * len(rows[0]))})", rows)
        found.append(connection)
    return found


def expected_by_epoch(seed: int, query: str) -> list[Any]:
    return [typed((row, 1) for row in connection.execute(query).fetchall()) for connection in databases(seed)]


def views_by_epoch(changes: Changes, query: str) -> list[Any]:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
            output = dd.sql(scope, query, **tables).output()
        for time, epoch in enumerate(changes):
            for name, updates in epoch.items():
                for record, diff in updates:
                    tables[name].session.update(record, diff)
                tables[name].session.advance_to(time + 1)
        for found in tables.values():
            found.session.close()
        return [typed(output.at(time).items()) for time in range(len(changes))]


def tables_of(collections: Any) -> dict[str, Any]:
    return {name: dd.table(rows, schema) for rows, (name, schema) in zip(collections, SCHEMAS.items())}


def views_on_workers(changes: Changes, query: str, workers: int) -> list[Any]:
    """Return what a query holds at each epoch on several workers."""
    inputs = [[(record, time, diff) for time, epoch in enumerate(changes) for record, diff in epoch[name]] for name in SCHEMAS]
    found = differential.run(
        lambda *tables: dd.sql(tables[0].scope, query, **tables_of(tables)).collection, *inputs, workers=workers, compact=True
    )
    return [typed(differential.accumulated(found, time).items()) for time in range(len(changes))]


def phase(worker: timely.Worker, where: Path, query: str, stop: int) -> Any:
    """Go on from the last checkpoint up to ``stop``, where another is made, or to the end; return what is held at each time."""
    changes = stream(1)
    with Recovery(worker, where) as recovery:
        with worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
            output = dd.sql(scope, query, **tables).output()
        start = recovery.time or 0
        for found in tables.values():
            found.session.advance_to(start)
        for time in range(start, stop):
            for name, updates in changes[time].items():
                for number, (record, diff) in enumerate(updates):
                    if number % worker.peers == worker.index:
                        tables[name].session.update(record, diff)
                tables[name].session.advance_to(time + 1)
        if stop < EPOCHS:
            recovery.checkpoint(stop)
        for found in tables.values():
            found.session.close()
        worker.run()
        return [list(output.at(time).items()) for time in range(start, stop)] if stop == EPOCHS else None


def views_after_recovery(query: str, where: Path) -> list[Any]:
    """Return what a query holds from epoch 3 on, after a checkpoint there on one worker and a restart on two."""
    timely.execute(lambda worker: phase(worker, where, query, 3), workers=1)
    shares = timely.execute(lambda worker: phase(worker, where, query, EPOCHS), workers=2)
    return [typed(item for share in shares for item in share[index]) for index in range(EPOCHS - 3)]


def check_random_query(number: int) -> bool:
    """Compare a random query with DuckDB, if DuckDB accepts it; return whether it does."""
    query, seed = Queries(number).query(), number % 4
    try:
        expected = expected_by_epoch(seed, query)
    except duckdb.Error:
        return False
    assert views_by_epoch(stream(seed), query) == expected, query
    return True
