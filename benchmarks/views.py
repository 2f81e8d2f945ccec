"""Views kept by SQL: the 22 queries of TPC-H, loaded, and kept right while rows come and go.

DuckDB recomputes each query after each change, and what it finds must be what the view holds, or the benchmark fails. Data and
queries are those of DuckDB's TPC-H extension, at scale 0.1: 600,000 rows of ``lineitem``. Figures are processor seconds.

- Load: from Arrow tables in memory until the view is complete, over DuckDB's query on the same Arrow tables.
- A change: rows of one table that go, and come back in the next change, until the view is complete. DuckDB's seconds are those
  of the query alone, on tables of its own, without the change. Most rows of a selective query are filtered out, which is why the
  slowest of twenty is given as well.

DuckDB has one thread. pathway keeps two of the queries, in a process of its own: wall seconds.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import attrs
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp, parse_one

import timely
from benchmarks.environments import CACHE, Unavailable, python_with
from benchmarks.report import Row
from timely import differential as dd

PACKAGES: Final = {suite: ("duckdb==1.4.4", f"duckdb-ext-{suite}==1.4.4.20260205") for suite in ("tpch", "tpcds")}

KEYS = {
    "lineitem": ("l_orderkey", "l_linenumber"),
    "orders": ("o_orderkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
}
"""The tables that change, and their keys: of a query the first that it reads."""

LOAD: Final = (20, 5)
"""Floor and aim of a load, over DuckDB's query."""

ONE_ROW: Final = (1, 10)
"""Floor and aim of DuckDB's query over a change of one row: a view that loses has no use."""

THOUSAND_ROWS: Final = (1, 3)
"""The same for a change of a thousand rows."""

Tables = Mapping[str, pa.Table]
Keys = Mapping[str, tuple[str, ...]]


def data(suite: str, scale: float) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the tables and the queries, made when they are first asked for, and kept; ``Unavailable`` without pip."""
    folder = CACHE / f"{suite}-{scale}"
    if not (folder / "queries.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        program = Path(__file__).parent / "contestants" / "suite_data.py"
        command = [python_with(*PACKAGES[suite]), str(program), suite, str(scale), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"{suite} data: {done.stderr.splitlines()[-1:]}")
    tables = {path.stem: required(pq.read_table(path)) for path in sorted(folder.glob("*.parquet"))}
    return tables, [text.rstrip().rstrip(";") for text in json.loads((folder / "queries.json").read_text())]


def required(table: pa.Table) -> pa.Table:
    """Return the table with columns that are not nullable where nothing is missing: TPC-H declares them all so."""
    fields = [field.with_nullable(bool(table[field.name].null_count)) for field in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def tables_in(query: str, tables: Tables) -> dict[str, pa.Table]:
    """Return the tables that a query reads."""
    names = {table.name for table in parse_one(query, dialect="duckdb").find_all(exp.Table)}
    return {name: table for name, table in tables.items() if name in names}


def _processor(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


# -- both sides ----------------------------------------------------------------------------------------------------


class View:
    """A query kept by this library."""

    def __init__(self, query: str, tables: Tables) -> None:
        self._worker = timely.Worker()
        self._loaded = tables
        with self._worker.dataflow(int) as scope:
            self._tables: dict[str, Any] = {name: dd.table(scope, table.schema, name=name) for name, table in tables.items()}
            view = dd.sql(scope, query, **self._tables)
            self.output = view.output()
        self.time = 0

    def load(self) -> None:
        """Load the tables, and wait for the result."""
        for name, table in self._loaded.items():
            self._tables[name].session.insert_columns(table)
        self._advance()

    def change(self, name: str, rows: pa.Table, diff: int) -> None:
        """Add ``diff`` of rows of a table, and wait for the result."""
        session = self._tables[name].session
        if len(rows) == 1:
            session.update(next(zip(*(column.to_pylist() for column in rows.columns), strict=True)), diff)
        else:
            session.insert_columns(rows, diff=diff)
        self._advance()

    def _advance(self) -> None:
        self.time += 1
        for table in self._tables.values():
            table.session.advance_to(self.time)
        self.output.wait(self.time - 1)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return what it holds."""
        last = self.time - 1
        self.output.forget(last)
        return (row for row, count in self.output.at(last).items() for _ in range(count))

    def close(self) -> None:
        """Drop it."""
        self._worker.close()


class Recomputed:
    """A query that DuckDB computes anew."""

    def __init__(self, query: str, tables: Tables, keys: Keys) -> None:
        self._query = query
        self._keys = keys
        self.connection = duckdb.connect(config={"threads": 1})
        for name, table in tables.items():
            self.connection.register(f"{name}_loaded", table)

    def from_arrow(self) -> float:
        """Return the seconds of the query on the tables as they are loaded, and take them over."""
        names = ", ".join(f"{name} as (from {name}_loaded)" for name in self._names())
        text = re.sub(r"^\s*with\s", f"with {names}, ", self._query, count=1, flags=re.IGNORECASE)
        text = text if text != self._query else f"with {names} {self._query}"
        seconds = min(_processor(lambda: self.connection.execute(text).fetchall()) for _ in range(2))
        for name in self._names():
            self.connection.execute(f"create table {name} as from {name}_loaded")
        return seconds

    def _names(self) -> list[str]:
        found = self.connection.execute("select view_name from duckdb_views() where not internal").fetchall()
        return [name.removesuffix("_loaded") for (name,) in found]

    def change(self, name: str, rows: pa.Table, diff: int) -> None:
        """Insert or delete rows of a table."""
        self.connection.register("changed", rows)
        if diff > 0:
            self.connection.execute(f"insert into {name} from changed")
        else:
            equal = " and ".join(f"{name}.{key} = changed.{key}" for key in self._keys[name])
            self.connection.execute(f"delete from {name} using changed where {equal}")
        self.connection.unregister("changed")

    def rows(self) -> list[tuple[Any, ...]]:
        """Compute the query."""
        return self.connection.execute(self._query).fetchall()


def check_equal(query: str, ours: Iterable[tuple[Any, ...]], theirs: Iterable[tuple[Any, ...]]) -> None:
    """Raise ``AssertionError`` unless both are the same rows; doubles are rounded otherwise in the last places.

    >>> check_equal("q", [(1, 0.1 + 0.2)], [(1, 0.3)])
    >>> check_equal("q", [(1,)], [(2,)])
    Traceback (most recent call last):
    AssertionError: q: ...
    """
    found, expected = _by_exact_values(ours), _by_exact_values(theirs)
    close = found.keys() == expected.keys() and all(
        len(rows) == len(expected[key])
        and all(math.isclose(a, b, rel_tol=1e-9) for one, other in zip(rows, expected[key]) for a, b in zip(one, other))
        for key, rows in found.items()
    )
    if not close:
        differing = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
        raise AssertionError(f"{query}: the view holds {found.get(differing[0])}, DuckDB finds {expected.get(differing[0])}")


def _by_exact_values(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        exact = tuple(Decimal(value) if type(value) is int else value for value in row if type(value) is not float)
        found.setdefault(exact, []).append(tuple(value for value in row if type(value) is float))
    return {key: sorted(floats) for key, floats in found.items()}


# -- what is measured ----------------------------------------------------------------------------------------------


@attrs.frozen
class Found:
    """The seconds of a query: those of the view, and those of DuckDB."""

    load: float
    load_again: float
    one: list[float]
    one_again: float
    thousand: list[float]
    thousand_again: float


def measured(number: int, query: str, tables: Tables, changes: Mapping[int, int], keys: Keys = KEYS) -> Found:
    """Load a query, change ``rows`` of a table ``count`` times for each of ``changes``, and compare all that it holds."""
    used = tables_in(query, tables)
    view = View(query, used)
    load = _processor(view.load)
    held = [list(view.rows())]
    name = next(name for name in keys if name in used)
    source = random.Random(number)
    steps: list[tuple[int, pa.Table, int]] = []
    for rows, count in changes.items():
        for _ in range(count // 2):
            chosen = used[name].take(pa.array(source.sample(range(len(used[name])), min(rows, len(used[name]) // 2))))
            steps += [(rows, chosen, -1), (rows, chosen, 1)]
    seconds: dict[int, list[float]] = {rows: [] for rows in changes}
    for rows, chosen, diff in steps:
        seconds[rows].append(_processor(lambda: view.change(name, chosen, diff)))  # noqa: B023  # called at once
        held.append(list(view.rows()))
    view.close()
    recomputed = Recomputed(query, used, keys)
    load_again = recomputed.from_arrow()
    check_equal(query, held[0], recomputed.rows())
    again: dict[int, list[float]] = {rows: [] for rows in changes}
    for (rows, chosen, diff), result in zip(steps, held[1:], strict=True):
        recomputed.change(name, chosen, diff)
        expected: list[Any] = []
        again[rows].append(_processor(lambda: expected.extend(recomputed.rows())))  # noqa: B023
        check_equal(query, result, expected)
    few, many = sorted(changes)
    return Found(
        load,
        load_again,
        sorted(seconds[few]),
        statistics.median(again[few]),
        sorted(seconds[many]),
        statistics.median(again[many]),
    )


def rows_of(number: int, found: Found) -> list[Row]:
    """Return the rows of the report for a query."""
    one, slowest = statistics.median(found.one), found.one[int(0.95 * len(found.one))]
    thousand = statistics.median(found.thousand)
    return [
        Row(f"Q{number}: load, over DuckDB's query", found.load / found.load_again, *LOAD, less=True, note=f"{found.load:.3g} s"),
        Row(
            f"Q{number}: one row: DuckDB's query over the change",
            found.one_again / one,
            *ONE_ROW,
            note=f"{1e3 * one:.3g} ms, of twenty the slowest {1e3 * slowest:.3g}; DuckDB {1e3 * found.one_again:.3g}",
        ),
        Row(f"Q{number}: 1,000 rows: the same", found.thousand_again / thousand, *THOUSAND_ROWS, note=f"{1e3 * thousand:.3g} ms"),
    ]


def summary(found: Sequence[Found]) -> list[Row]:
    """Return the geometric means over the queries."""
    loads = [part.load / part.load_again for part in found]
    one_row = [part.one_again / statistics.median(part.one) for part in found]
    thousand_rows = [part.thousand_again / statistics.median(part.thousand) for part in found]
    mean = statistics.geometric_mean
    return [
        Row("all: load, over DuckDB's query, geometric mean", mean(loads), *LOAD, less=True),
        Row("all: one row: DuckDB's query over the change, geometric mean", mean(one_row), *ONE_ROW),
        Row("all: 1,000 rows: the same, geometric mean", mean(thousand_rows), *THOUSAND_ROWS),
    ]


# -- pathway -------------------------------------------------------------------------------------------------------

PATHWAY = "pathway==0.33.0"

LINES = """select row_number() over () - 1 as number, l_returnflag as flag, l_linestatus as status,
    cast(l_quantity * 100 as bigint) as quantity, cast(l_extendedprice * 100 as bigint) as price,
    cast(l_discount * 100 as bigint) as discount, cast(l_tax * 100 as bigint) as tax,
    l_shipdate - date '1970-01-01' as shipped from lineitem"""
"""What pathway reads: whole numbers, since it has no decimals."""

CHECKS = {
    1: "select sum(price * (100 - discount)) from lines where shipped <= 10471",
    6: """select sum(price * discount) from lines
        where shipped >= 8766 and shipped < 9131 and quantity < 2400 and discount between 5 and 7""",
}
"""The sums of the revenues, of which pathway's must be the same."""


def against_pathway(tables: Tables, found: Mapping[int, Found], changes: int) -> Iterator[Row]:
    """Yield the rows of the queries that pathway keeps."""
    try:
        python = python_with(PATHWAY)
    except Unavailable as reason:
        yield from (Row(f"Q{number}: pathway over this library", None, note=str(reason)) for number in CHECKS)
        return
    connection = duckdb.connect()
    connection.register("lineitem", tables["lineitem"])
    connection.execute(f"create table lines as {LINES}")
    columns: dict[str, Any] = {}
    for name, values in connection.execute("from lines").fetchnumpy().items():
        columns[name] = values.astype(str) if values.dtype == object else np.asarray(values)
    program = Path(__file__).parent / "contestants" / "pathway_views.py"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/lines.npz"
        np.savez(path, allow_pickle=False, **columns)
        for number, check in CHECKS.items():
            command = [python, str(program), path, str(number), str(changes)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1_800)
            if done.returncode:
                yield Row(f"Q{number}: pathway over this library", None, note=f"failed: {done.stderr.splitlines()[-1:]}")
                continue
            theirs = json.loads(done.stdout.splitlines()[-1])
            expected = connection.execute(check).fetchall()[0][0]
            assert theirs["check"] == expected, f"pathway's query {number} finds {theirs['check']}, and not {expected}"
            ours, one = found[number], statistics.median(found[number].one)
            load, change = theirs["load"], theirs["change"]
            yield Row(f"Q{number}: load: pathway over this library", load / ours.load, 10, 30, note=f"pathway {load:.3g} s")
            yield Row(
                f"Q{number}: one row: pathway over this library", change / one, 1, 10, note=f"pathway {1e3 * change:.3g} ms"
            )


def run(quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    try:
        tables, queries = data("tpch", 0.01 if quick else 0.1)
    except Unavailable as reason:
        return [Row("TPC-H", None, note=str(reason))]
    found: dict[int, Found] = {}
    for number, query in enumerate(queries, 1):
        found[number] = measured(number, query, tables, {1: 20, 1_000: 2} if quick else {1: 40, 1_000: 6})
    rows = [row for number, part in found.items() for row in rows_of(number, part)]
    return [*summary(list(found.values())), *rows, *against_pathway(tables, found, 20 if quick else 60)]
