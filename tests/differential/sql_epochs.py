"""Random streams of three tables, and what queries over them give at each epoch: in DuckDB, and as views."""

from __future__ import annotations

import datetime
import functools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

EPOCHS = 7
RESTART = 3
"""The epoch at which a program with a checkpoint starts again."""


def typed(rows: Any) -> Counter[Any]:
    """Count rows, with the types of their values: 1, 1.0 and true are not the same here."""
    counts: Counter[Any] = Counter()
    for row, count in rows:
        counts[tuple(map(_typed, row))] += count
    return counts


def _typed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_typed, value))
    return type(value).__name__, round(value, 9) if type(value) is float else value


Changes = Mapping[str, list[tuple[Any, int]]]
"""The updates of each table."""


def as_batches(changes: Sequence[tuple[Any, int]], schema: pa.Schema) -> list[tuple[pa.RecordBatch, int]]:
    """Return changes as Arrow batches, each with its difference."""
    by_diff: dict[int, list[Any]] = {}
    for record, diff in changes:
        by_diff.setdefault(diff, []).append(record)
    made = [([pa.array(column, field.type) for column, field in zip(zip(*rows), schema)], diff) for diff, rows in by_diff.items()]
    return [(pa.RecordBatch.from_arrays(arrays, schema=schema), diff) for arrays, diff in made]


class Epochs:
    """The changes of some tables, and what queries over them give at each epoch."""

    def __init__(self, schemas: Mapping[str, pa.Schema], changes: Sequence[Changes]) -> None:
        self.schemas = schemas
        self.changes = changes

    @functools.cached_property
    def databases(self) -> list[Any]:
        """A DuckDB connection for each epoch, with what the tables hold then."""
        connections = []
        held: dict[str, Counter[Any]] = {name: Counter() for name in self.schemas}
        for epoch in self.changes:
            connection = duckdb.connect()
            for name, schema in self.schemas.items():
                empty = schema.empty_table()
                connection.register("empty", empty)
                connection.execute(f"create table {name} as select * from empty")
                connection.unregister("empty")
                for record, diff in epoch.get(name, ()):
                    held[name][record] += diff
                rows = list(held[name].elements())
                if rows:
                    connection.executemany(f"insert into {name} values ({', '.join('?' * len(rows[0]))})", rows)
            connections.append(connection)
        return connections

    def expected(self, query: str) -> list[Any]:
        """Return what DuckDB gives."""
        return [typed((row, 1) for row in connection.execute(query).fetchall()) for connection in self.databases]

    def views(self, query: str, by_columns: Callable[[int], bool] = lambda time: False) -> list[Any]:
        """Return what a view holds; the changes of the times of which ``by_columns`` says so come as Arrow batches."""
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                tables = {name: dd.table(scope, schema, name=name) for name, schema in self.schemas.items()}
                output = dd.sql(scope, query, **tables).output()
            for time, epoch in enumerate(self.changes):
                for name, table in tables.items():
                    changes = epoch.get(name, ())
                    if by_columns(time):
                        for batch, diff in as_batches(changes, self.schemas[name]):
                            table.session.insert_columns(batch, diff=diff)
                    else:
                        for record, diff in changes:
                            table.session.update(record, diff)
                    table.session.advance_to(time + 1)
            for table in tables.values():
                table.session.close()
            return [typed(output.at(time).items()) for time in range(len(self.changes))]

    def views_on_workers(self, query: str, workers: int = 3) -> list[Any]:
        """Return what a view holds on several workers."""
        inputs = [
            [(record, time, diff) for time, epoch in enumerate(self.changes) for record, diff in epoch.get(name, ())]
            for name in self.schemas
        ]

        def build(*collections: Any) -> Any:
            tables = {name: dd.table(rows, schema) for rows, (name, schema) in zip(collections, self.schemas.items())}
            return dd.sql(collections[0].scope, query, **tables).collection

        result = differential.run(build, *inputs, workers=workers, compact=True)
        return [typed(differential.accumulated(result, time).items()) for time in range(len(self.changes))]

    def views_after_restart(self, query: str, where: Path) -> list[Any]:
        """Return what a view holds from ``RESTART`` on, after a checkpoint there on one worker and a restart on two."""
        timely.execute(lambda worker: self._phase(worker, where, query, RESTART), workers=1)
        shares = timely.execute(lambda worker: self._phase(worker, where, query, len(self.changes)), workers=2)
        return [typed(item for share in shares for item in share[index]) for index in range(len(self.changes) - RESTART)]

    def _phase(self, worker: timely.Worker, where: Path, query: str, stop: int) -> Any:
        """Go on from the last checkpoint up to ``stop``, where another is made, or to the end; return what each epoch holds."""
        with Recovery(worker, where) as recovery:
            with worker.dataflow(int) as scope:
                tables = {name: dd.table(scope, schema, name=name) for name, schema in self.schemas.items()}
                output = dd.sql(scope, query, **tables).output()
            start = recovery.time or 0
            for table in tables.values():
                table.session.advance_to(start)
            for time in range(start, stop):
                for name, table in tables.items():
                    for number, (record, diff) in enumerate(self.changes[time].get(name, ())):
                        if number % worker.peers == worker.index:
                            table.session.update(record, diff)
                    table.session.advance_to(time + 1)
            if stop < len(self.changes):
                recovery.checkpoint(stop)
            for table in tables.values():
                table.session.close()
            worker.run()
            return [list(output.at(time).items()) for time in range(start, stop)] if stop == len(self.changes) else None


# -- random streams ------------------------------------------------------------------------------------------------


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


@functools.cache
def stream(seed: int) -> Epochs:
    """Return random epochs: some records come, some of those that are there go, and in the end nearly all."""
    source = random.Random(seed)
    held: dict[str, list[Any]] = {name: [] for name in SCHEMAS}
    epochs: list[Changes] = []
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
    return Epochs(SCHEMAS, epochs)


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
