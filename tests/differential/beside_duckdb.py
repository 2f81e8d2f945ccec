"""Tables beside DuckDB: the same rows come and go in both, and the results are compared at every epoch."""

from __future__ import annotations

import datetime
import functools
import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

import timely
from timely import differential as dd
from timely.recovery import Recovery
from timely.testing import differential

Changes = Mapping[str, list[tuple[Any, int]]]
"""The updates of each table."""

RESTART = 3
"""The epoch at which a program with a checkpoint starts again."""


def plain(value: Any) -> Any:
    """Return a value of either side as it is compared: with its type, and lists and structs as tuples."""
    if isinstance(value, uuid.UUID):
        value = str(value)
    if isinstance(value, float):
        return "float", f"{value + 0.0:.12g}"  # not a number equals itself, and both zeros are one
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    return type(value).__name__, value


def rows_in(result: Any, most: int | None = None) -> list[Any]:
    """Return some rows of a result of DuckDB, or all; maps are pairs of keys and values, where structs are values."""
    kinds = [column[1] for column in result.description]
    rows = result.fetchall() if most is None else result.fetchmany(most)
    if not any("MAP(" in str(kind) for kind in kinds):
        return list(rows)
    return [tuple(map(_with_pairs, kinds, row)) for row in rows]


def _with_pairs(kind: Any, value: Any) -> Any:
    if value is None or "MAP(" not in str(kind):
        return value
    parts = dict(kind.children)
    if kind.id == "struct":
        return tuple(_with_pairs(parts[name], part) for name, part in value.items())
    if kind.id != "map":
        return tuple(_with_pairs(parts["child"], part) for part in value)
    keys, values = (value["key"], value["value"]) if isinstance(value.get("key"), list) else (value, value.values())
    return tuple((_with_pairs(parts["key"], key), _with_pairs(parts["value"], part)) for key, part in zip(keys, values))


def typed(rows: Any) -> Counter[Any]:
    """Count rows, with the types of their values: 1, 1.0 and true are not the same here."""
    counts: Counter[Any] = Counter()
    for row, count in rows:
        counts[plain(row)] += count
    return counts


def as_batches(changes: Sequence[tuple[Any, int]], schema: pa.Schema) -> list[tuple[pa.RecordBatch, int]]:
    """Return changes as Arrow batches, each with its difference."""
    by_diff: dict[int, list[Any]] = {}
    for record, diff in changes:
        by_diff.setdefault(diff, []).append(record)
    made = [([pa.array(column, field.type) for column, field in zip(zip(*rows), schema)], diff) for diff, rows in by_diff.items()]
    return [(pa.RecordBatch.from_arrays(arrays, schema=schema), diff) for arrays, diff in made]


@attrs.frozen(eq=False, slots=False)
class Epochs:
    """The changes of some tables, and what queries and programs over them give at each epoch."""

    schemas: Mapping[str, pa.Schema]
    changes: Sequence[Changes]

    @functools.cached_property
    def in_duckdb(self) -> list[str]:
        """The schema of DuckDB for each epoch, with what the tables hold then."""
        held: dict[str, Counter[Any]] = {name: Counter() for name in self.schemas}
        names = []
        for epoch in self.changes:
            names.append(f"epoch{next(_NUMBERS)}")
            with _using(names[-1], create=True) as connection:
                for name, schema in self.schemas.items():
                    for record, diff in epoch.get(name, ()):
                        held[name][record] += diff
                    register(connection, name, list(held[name].elements()), schema)
        return names

    def rows_in_duckdb(self, query: str) -> list[list[Any]]:
        """Return the rows that DuckDB gives at each epoch."""
        by_epoch = []
        for name in self.in_duckdb:
            with _using(name) as connection:
                by_epoch.append(rows_in(connection.execute(query)))
        return by_epoch

    def expected(self, query: str) -> list[Any]:
        """Return what DuckDB gives."""
        return [typed((row, 1) for row in rows) for rows in self.rows_in_duckdb(query)]

    def held(self, build: Callable[..., Any], by_columns: Callable[[int], bool] = lambda time: False) -> list[Any]:
        """Return what ``build(**tables)`` holds; the changes of the times that ``by_columns`` chooses come as Arrow batches."""
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                tables = {name: dd.table(scope, schema, name=name) for name, schema in self.schemas.items()}
                output = build(**tables).output()
            for time, epoch in enumerate(self.changes):
                for name, table in tables.items():
                    if by_columns(time):
                        for batch, diff in as_batches(epoch.get(name, ()), self.schemas[name]):
                            table.session.insert_columns(batch, diff=diff)
                    else:
                        for record, diff in epoch.get(name, ()):
                            table.session.update(record, diff)
                    table.session.advance_to(time + 1)
            for table in tables.values():
                table.session.close()
            return [typed(output.at(time).items()) for time in range(len(self.changes))]

    def held_on_workers(self, build: Callable[..., Any], workers: int = 3) -> list[Any]:
        """Return the same on several workers, in small batches whose traces are compacted."""
        inputs = [
            [(record, time, diff) for time, epoch in enumerate(self.changes) for record, diff in epoch.get(name, ())]
            for name in self.schemas
        ]

        def built(*rows: Any) -> Any:
            return build(**{name: dd.table(one, self.schemas[name]) for one, name in zip(rows, self.schemas)}).collection

        result = differential.run(built, *inputs, workers=workers, compact=True)
        return [typed(differential.accumulated(result, time).items()) for time in range(len(self.changes))]

    def views(self, query: str, by_columns: Callable[[int], bool] = lambda time: False) -> list[Any]:
        """Return what a view holds."""
        return self.held(view(query), by_columns)

    def views_on_workers(self, query: str) -> list[Any]:
        """Return what a view holds on three workers."""
        return self.held_on_workers(view(query))

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


def view(query: str) -> Callable[..., Any]:
    """Return what builds the view of a query."""
    return lambda **tables: dd.sql(next(iter(tables.values())).scope, query, **tables)


@attrs.frozen(eq=False)
class Tables:
    """Tables of some schemas, and what makes their random rows; so many come at first."""

    schemas: Mapping[str, pa.Schema]
    make: Mapping[str, Callable[[random.Random], Any]]
    epochs: int = 6
    first: int = 8

    @functools.cache  # noqa: B019  # there are few
    def stream(self, seed: int) -> Epochs:
        """Return changes of each table by epoch: some rows come, some that are there go, and in the end nearly all."""
        source = random.Random(seed)
        held: dict[str, list[Any]] = {name: [] for name in self.schemas}
        epochs: list[Changes] = []
        for epoch in range(self.epochs):
            changes: dict[str, list[tuple[Any, int]]] = {}
            last = epoch == self.epochs - 1
            for name, records in held.items():
                source.shuffle(records)
                gone = len(records) * 9 // 10 if last else len(records) // 3
                changes[name] = [(records.pop(), -1) for _ in range(gone)]
                for _ in range(0 if last else self.first if epoch == 0 else 4):
                    record = source.choice(records) if records and source.random() < 0.2 else self.make[name](source)
                    records.append(record)
                    changes[name].append((record, 1))
            epochs.append(changes)
        return Epochs(self.schemas, epochs)

    def check(self, build: Callable[..., Any], query: str, *seeds: int) -> None:
        """Check that ``build(**tables)`` is what DuckDB gives for ``query``, at every epoch of random changes."""
        for seed in seeds or (1, 2):
            assert self.stream(seed).held(build) == self.stream(seed).expected(query)


_NUMBERS = itertools.count()


@contextmanager
def _using(schema: str, create: bool = False) -> Iterator[Any]:
    """Yield DuckDB with a schema of its own for names that say none."""
    connection = database()
    if create:
        connection.execute(f"create schema {schema}")
    connection.execute(f"use {schema}")
    try:
        yield connection
    finally:
        connection.execute("use main")


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
