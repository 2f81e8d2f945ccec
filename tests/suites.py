"""``python -m tests.suites [--queries N] [--seconds N] [PATH...]``: queries, each asked of DuckDB and kept as a view.

Without a path, these are the queries of TPC-H and Nexmark. A path is a file of sqllogictest, or a folder of them (``*.test``,
``*.slt``, ``*.slt.part``), or a folder with ``*.parquet`` and ``queries/*.sql``: ``--export tpcds FOLDER`` makes one where the
interpreter has the package ``duckdb-extension-tpcds``, and its DuckDB. Such files are not part of this repository. Statements of
sqllogictest fill DuckDB; of its queries, ``N`` are asked between two statements. A file that takes more than so many seconds
of the processor ends there, and counts as slow, with the query that was asked then.

Tables begin with two thirds of their rows, then have all, then each third row goes. After each the view must hold what DuckDB
answers, whatever the file expects, since the dialects differ. Prints how many are right, and why others are refused or wrong,
and ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import random
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import attrs
import duckdb
import pyarrow as pa

ENGINE = "duckdb"
EPOCHS = 3
ORDERS = 6

DELIBERATE = {
    "select regr_r2(1e230*i, i) from range(5) tbl(i)": "exact sums do not overflow",
    "values(round(-0.1::real)::varchar)": "there is one zero",
}
"""Queries that have another answer here for a reason that the documentation has."""

LEAST_MODE = """create macro least_mode(x) as list_min(list_transform(list_filter(map_entries(histogram(x)),
    lambda entry: entry.value = list_max(map_values(histogram(x)))), lambda entry: entry.key))"""
"""Of equally frequent values DuckDB's ``mode`` takes the one that its hash table has first; here it is the least."""

VIEW = re.compile(r"create\s+materialized\s+view\s+(?P<name>\w+)\s+as\s+(?P<query>.*?)(\s+emit on window close)?", re.I | re.S)
"""A view whose query is asked too, and which is a table for others."""

Tables = Mapping[str, pa.Table]


@attrs.frozen
class Record:
    """A part of a file: a statement, or a query."""

    is_query: bool
    sql: str


def records(text: str) -> Iterator[Record]:
    """Yield the statements that must work and the queries, without those that are for other engines.

    >>> list(records("statement ok\\nCREATE TABLE t(a INT)\\n\\nskipif duckdb\\nquery I\\nSELECT 1\\n----\\n1"))
    [Record(is_query=False, sql='CREATE TABLE t(a INT)')]
    """
    for part in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in part.split("\n") if line and not line.startswith("#")]
        skipped = False
        while lines and lines[0].split()[0] in ("skipif", "onlyif"):
            kind, engine = lines.pop(0).split()[:2]
            skipped |= (engine == ENGINE) is (kind == "skipif")
        if not lines or skipped:
            continue
        head = lines[0].split()
        if head[0] == "halt":
            return
        if head[0] == "query":
            sql = lines[1 : lines.index("----")] if "----" in lines else lines[1:]
            yield Record(True, "\n".join(sql))
        elif head[:2] == ["statement", "ok"]:
            yield Record(False, "\n".join(lines[1:]))


class _SlowFile(BaseException):
    """What no operator makes an error of its own of."""


@attrs.define
class Outcome:
    """What became of the queries of a suite."""

    right: int = 0
    refused: Counter[str] = attrs.Factory(Counter)
    failed_in_duckdb: int = 0
    wrong: list[str] = attrs.Factory(list)
    slow: list[str] = attrs.Factory(list)
    unspecified: int = 0
    """Other answers than DuckDB's, which gives others too where its rows come in another order, or ``DELIBERATE`` ones."""
    asked: str = ""
    """The query that is asked now."""

    def __str__(self) -> str:
        counts = f"{self.right} right, {self.refused.total()} refused, {len(self.wrong)} wrong"
        counts += f", {len(self.slow)} slow" if self.slow else ""
        counts += f", {self.unspecified} unspecified" if self.unspecified else ""
        return counts + (f", {self.failed_in_duckdb} not for DuckDB" if self.failed_in_duckdb else "")

    @contextmanager
    def limited(self, place: Path, seconds: float) -> Iterator[None]:
        """Limit the time of the processor for a file."""

        ended = False

        def end(*_: object) -> NoReturn:
            nonlocal ended
            ended = True
            raise _SlowFile

        signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        except (_SlowFile, RuntimeError):  # DuckDB makes the second of the first
            if not ended:
                raise
            self.slow.append(f"{place}: {self.asked}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def check(self, sql: str, expected: Sequence[Any], tables: Tables, again: Callable[[int | None], Sequence[Any]]) -> None:
        """Count a query, for which DuckDB gives ``expected`` at each epoch, and ``again`` where rows come in other orders.

        ``again(None)`` is the answer with the least of equally frequent modes.
        """
        from timely import OperatorError, SchemaError, SqlError

        try:
            results = views(sql, tables)
        except (SqlError, SchemaError) as error:
            self.refused[reason(str(error))] += 1
        except OperatorError as error:
            if isinstance(error.__cause__, SqlError):
                self.refused[f"a value: {reason(str(error.__cause__))}"] += 1
            else:
                self.wrong.append(f"{sql}\n  {error}")
        except OverflowError:  # a moment that Python has not
            raise
        except Exception as error:  # nothing else may leave dd.sql
            self.wrong.append(f"{sql}\n  {type(error).__name__}: {error}")
        else:
            if results == expected:
                self.right += 1
            elif sql.strip().rstrip(";").lower() in DELIBERATE or is_unspecified(expected, results, again):
                self.unspecified += 1
            else:
                self.wrong.append(f"{sql}\n  expected {expected}\n  holds    {results}")


def is_unspecified(expected: Sequence[Any], results: Sequence[Any], again: Callable[[int | None], Sequence[Any]]) -> bool:
    """Return whether DuckDB gives other answers than ``expected`` too, or ``results`` where modes are the least."""
    try:
        return any(again(seed) != expected for seed in range(ORDERS)) or results == again(None)
    except duckdb.Error:  # a window of modes
        return False


def reason(error: str) -> str:
    """Return why a query is refused, without the part of its text.

    >>> reason("f(x) at line 1, column 8: this is not supported here: there is no function f here; at a.py:1")
    'there is no function f here'
    """
    return re.sub(r"^.*? at line \d+, column \d+: |; at [^;]*$|this is not supported here: ", "", error, flags=re.DOTALL)


def third(rows: pa.Table, first: int, *, others: bool = False) -> pa.Table:
    """Return each third row from the ``first`` on, or all ``others``."""
    return rows.filter(pa.array([(place % 3 == first) is not others for place in range(len(rows))], pa.bool_()))


def at_epoch(rows: pa.Table, epoch: int) -> pa.Table:
    """Return the rows that are there at an epoch."""
    return rows if epoch == 1 else third(rows, 2 if epoch == 0 else 0, others=True)


def views(sql: str, tables: Tables) -> list[Counter[Any]]:
    """Return what a view of a query holds at each epoch."""
    import timely
    from tests.differential.beside_duckdb import typed
    from timely import differential as dd

    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            inputs = {name.lower(): dd.table(scope, table.schema, name=name) for name, table in tables.items()}
            output = dd.sql(scope, sql, **inputs).output()
        for name, table in tables.items():
            session = inputs[name.lower()].session
            session.insert_columns(at_epoch(table, 0))
            session.advance_to(1)
            session.insert_batch([tuple(row.values()) for row in third(table, 2).to_pylist()])
            session.advance_to(2)
            session.insert_columns(third(table, 0), diff=-1)
            session.close()
        worker.run()
        return [typed(output.at(time).items()) for time in range(EPOCHS)]


def contents(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    """Return the tables of a database but those of geometries and variants, which are bytes in Arrow data."""
    names = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    relations = {name: connection.table(name) for name in names}
    own = {name for name, table in relations.items() if {"geometry", "variant"} & {kind.id for kind in table.types}}
    return {name: _as_here(table.to_arrow_table()) for name, table in relations.items() if name not in own}


def _as_here(table: pa.Table) -> pa.Table:
    """Return a table without what Arrow data says of types that are DuckDB's own."""
    return pa.table(table.columns, pa.schema([field.remove_metadata() for field in table.schema]))


def ask(tables: Tables, queries: Sequence[str], outcome: Outcome) -> None:
    """Ask queries over tables at each epoch."""
    databases = _databases(tables)
    for sql in queries:
        outcome.asked = sql
        try:
            expected = _answers(sql, databases)
        except (duckdb.Error, OverflowError, ValueError):  # Python has no such value
            outcome.failed_in_duckdb += 1
            continue
        words = set(re.findall(r"\w+", sql.lower()))
        read = {name: table for name, table in tables.items() if name.lower() in words}
        least = re.sub(r"\bmode\(", "least_mode(", sql, flags=re.I)
        outcome.check(
            sql,
            expected,
            read,
            lambda seed: _answers(least if seed is None else sql, _databases(read, seed)),  # noqa: B023
        )


def _databases(tables: Tables, seed: int | None = None) -> list[duckdb.DuckDBPyConnection]:
    """Return a database for each epoch, with the rows of tables, in an order by chance where there is a seed."""
    databases = [duckdb.connect() for _ in range(EPOCHS)]
    for database in databases:
        database.execute(LEAST_MODE)
    for epoch, database in enumerate(databases):
        for name, table in tables.items():
            rows = at_epoch(table, epoch)
            if seed is not None:
                rows = rows.take(pa.array(random.Random(seed).sample(range(len(rows)), len(rows)), pa.int64()))
            database.register("arriving", rows)
            database.execute(f'create table "{name}" as from arriving')
            database.unregister("arriving")
    return databases


def _answers(sql: str, databases: Sequence[duckdb.DuckDBPyConnection]) -> list[Counter[Any]]:
    """Return what DuckDB answers in each database, which stays as it is."""
    from tests.differential.beside_duckdb import rows_in, typed

    for database in databases:
        database.begin()
    try:
        return [typed((row, 1) for row in rows_in(database.execute(sql))) for database in databases]
    finally:
        for database in databases:
            database.rollback()  # some change tables, and return rows


def run(text: str, outcome: Outcome, queries: int | None = None, seed: int = 0) -> None:
    """Run the statements of a file up to each change of its tables, and the queries, or so many of them, in between."""
    connection = duckdb.connect()
    waiting: list[str] = []
    for record in (*records(text), Record(False, "")):
        if record.is_query:
            waiting.append(record.sql)
            continue
        if waiting:
            chosen = waiting if queries is None else random.Random(seed).sample(waiting, min(queries, len(waiting)))
            ask(contents(connection), chosen, outcome)
            waiting = []
        statement, view = record.sql, VIEW.fullmatch(record.sql.strip().rstrip(";"))
        if view is not None:
            waiting.append(view["query"])
            statement = f"create table {view['name']} as {view['query']}"
        try:
            connection.execute(statement)
        except duckdb.Error:
            outcome.failed_in_duckdb += 1


def run_suite(folder: Path, outcome: Outcome) -> None:
    """Ask the queries of a folder over its tables."""
    connection = duckdb.connect()
    for file in sorted(folder.glob("*.parquet")):
        connection.execute(f"create table {file.stem} as from '{file}'")
    queries = [f"-- {file.name}\n{file.read_text('utf-8')}" for file in sorted((folder / "queries").glob("*.sql"))]
    ask(contents(connection), [query.rstrip().rstrip(";") for query in queries], outcome)


def run_own(name: str, outcome: Outcome) -> None:
    """Ask the queries of TPC-H or Nexmark over the tables that their tests have."""
    if name == "nexmark":
        from benchmarks.nexmark import QUERIES, epochs

        ask(next(iter(epochs(1, 3_000))), list(QUERIES.values()), outcome)
        return
    from tests.differential import test_tpch

    first = test_tpch.epochs(1).changes[0]
    tables = {
        each: pa.Table.from_pylist([dict(zip(schema.names, row)) for row, _ in first[each]], schema)
        for each, schema in test_tpch.ARROW.items()
    }
    ask(tables, list(test_tpch.QUERIES.values()), outcome)


def export(suite: str, folder: Path, scale: float = 0.01) -> None:
    """Write the tables and queries that an extension of DuckDB generates: ``tpcds`` or ``tpch``."""
    package = Path(str(importlib.import_module(f"duckdb_extension_{suite}").__file__)).parent
    (extension,) = package.rglob("*.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"load '{extension}'")
    connection.execute(f"call {'dsdgen' if suite == 'tpcds' else 'dbgen'}(sf = {scale})")
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall():
        connection.execute(f"copy {name} to '{folder}/{name}.parquet'")
    for number, query in connection.execute(f"from {suite}_queries()").fetchall():
        (folder / "queries" / f"{number:02d}.sql").write_text(query, "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that are named; return 1 where a view is not what DuckDB answers."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--queries", type=int, help="so many of the queries between two statements, by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="of the processor, for a file")
    parser.add_argument("--export", choices=["tpcds", "tpch"], help="write a suite to the folder")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of orders that have no effect
    if options.export:
        (folder,) = options.paths
        export(options.export, folder)
        return 0
    outcomes: dict[str, Outcome] = {}
    for path in options.paths or [Path("tpch"), Path("nexmark")]:
        outcome = outcomes[str(path)] = Outcome()
        if not options.paths:
            run_own(str(path), outcome)
        elif (path / "queries").is_dir():
            run_suite(path, outcome)
        else:
            for file in sorted(each for end in ("test", "slt", "slt.part") for each in path.rglob(f"*.{end}")) or [path]:
                try:
                    with outcome.limited(file, options.seconds):
                        run(file.read_text("utf-8"), outcome, options.queries, options.seed)
                except (duckdb.Error, OverflowError, UnicodeError):  # the rest of the file is not for DuckDB, or for Python
                    outcome.failed_in_duckdb += 1
        for why, count in outcome.refused.most_common(20):
            print(f"refused {count}: {why}")
        for kind, queries in (("slow", outcome.slow), ("wrong", outcome.wrong)):
            for query in queries[:20]:
                print(f"{kind}: {query}")
        print(f"{path}: {outcome}", flush=True)
    return 1 if any(outcome.wrong for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
