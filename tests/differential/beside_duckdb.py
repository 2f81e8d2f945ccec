"""Tables beside DuckDB: the same rows come and go in both, and the results are compared at every epoch."""

from __future__ import annotations

import datetime
import functools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pyarrow as pa

import timely
from timely import differential as dd
from timely.testing import differential

Changes = list[dict[str, list[tuple[Any, int]]]]


def plain(value: Any) -> Any:
    """Return a value of either side as it is compared: with its type, and lists and structs as tuples."""
    if isinstance(value, float):
        return "float", f"{value + 0.0:.12g}"  # not a number equals itself, and both zeros are one
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    return type(value).__name__, value


def typed(rows: Any) -> Counter[Any]:
    """Count rows, with the types of their values: 1, 1.0 and true are not the same here."""
    counts: Counter[Any] = Counter()
    for row, count in rows:
        counts[plain(row)] += count
    return counts


@attrs.frozen
class Tables:
    """Tables of some schemas, and what makes their random rows."""

    schemas: Mapping[str, pa.Schema]
    make: Mapping[str, Callable[[random.Random], Any]]
    epochs: int = 6

    def stream(self, seed: int) -> Changes:
        """Return the changes of each table by epoch: some rows come, some that are there go, and in the end nearly all."""
        source = random.Random(seed)
        held: dict[str, list[Any]] = {name: [] for name in self.schemas}
        epochs: Changes = []
        for epoch in range(self.epochs):
            changes: dict[str, list[tuple[Any, int]]] = {}
            last = epoch == self.epochs - 1
            for name, records in held.items():
                source.shuffle(records)
                gone = len(records) * 9 // 10 if last else len(records) // 3
                changes[name] = [(records.pop(), -1) for _ in range(gone)]
                for _ in range(0 if last else 8 if epoch == 0 else 4):
                    record = source.choice(records) if records and source.random() < 0.2 else self.make[name](source)
                    records.append(record)
                    changes[name].append((record, 1))
            epochs.append(changes)
        return epochs

    def expected(self, changes: Changes, query: str) -> list[Any]:
        """Return what DuckDB gives for ``query`` at each epoch."""
        held: dict[str, Counter[Any]] = {name: Counter() for name in self.schemas}
        by_epoch = []
        connection = database()
        for epoch in changes:
            for name, updates in epoch.items():
                for record, diff in updates:
                    held[name][record] += diff
                register(connection, name, list(held[name].elements()), self.schemas[name])
            by_epoch.append(typed((row, 1) for row in connection.execute(query).fetchall()))
        for name in self.schemas:
            connection.execute(f"drop table {name}")
        return by_epoch

    def found(self, changes: Changes, build: Callable[..., Any]) -> list[Any]:
        """Return what the table of ``build(**tables)`` holds at each epoch."""
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                tables = {name: dd.table(scope, schema, name=name) for name, schema in self.schemas.items()}
                output = build(**tables).output()
            for time, epoch in enumerate(changes):
                for name, updates in epoch.items():
                    for record, diff in updates:
                        tables[name].session.update(record, diff)
                    tables[name].session.advance_to(time + 1)
            for table in tables.values():
                table.session.close()
            return [typed(output.at(time).items()) for time in range(len(changes))]

    def found_on_workers(self, changes: Changes, build: Callable[..., Any], workers: int) -> list[Any]:
        """Return the same on several workers, in small batches whose traces are compacted."""
        inputs = [
            [(record, time, diff) for time, epoch in enumerate(changes) for record, diff in epoch[name]] for name in self.schemas
        ]

        def built(*rows: Any) -> Any:
            return build(*(dd.table(one, schema) for one, schema in zip(rows, self.schemas.values(), strict=True))).collection

        result = differential.run(built, *inputs, workers=workers, compact=True)
        return [typed(differential.accumulated(result, time).items()) for time in range(len(changes))]

    def check(self, build: Callable[..., Any], query: str, *seeds: int) -> None:
        """Check that ``build(**tables)`` is what DuckDB gives for ``query``, at every epoch of random changes."""
        for seed in seeds or (1, 2):
            changes = self.stream(seed)
            assert self.found(changes, build) == self.expected(changes, query)


@functools.cache
def database() -> Any:
    """DuckDB, for all comparisons: to open it took 50 ms for each, and more than the queries."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection


def register(connection: Any, name: str, rows: list[Any], schema: pa.Schema) -> None:
    """Make the table ``name`` of ``rows`` in DuckDB."""
    columns = list(zip(*rows)) or [() for _ in schema]
    data = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema)], schema=schema)
    connection.register("given", data)
    connection.execute(f"create or replace table {name} as select * from given")
    connection.unregister("given")
