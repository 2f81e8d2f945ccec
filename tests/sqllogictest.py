"""``python -m tests.sqllogictest [--queries N] FILE...``: files of sqllogictest, each query asked of DuckDB and kept as a view.

The files are not part of this repository. Statements fill DuckDB. Then each query, or ``N`` of a file, is a view over the same
tables: first all rows come, then every second row goes. After both the view must hold what DuckDB answers, whatever the file
expects, since the dialects differ. Prints how many agree, and which queries are refused, and ends with 1 where one differs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import duckdb
import pyarrow as pa

import timely
from tests.differential.beside_duckdb import typed
from timely import SqlError
from timely import differential as dd

ENGINE = "duckdb"


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


@attrs.define
class Outcome:
    """What became of the queries of some files."""

    equal: int = 0
    refused: Counter[str] = attrs.Factory(Counter)
    failed_in_duckdb: int = 0
    different: list[str] = attrs.Factory(list)


def run(text: str, outcome: Outcome, queries: int | None = None, seed: int = 0) -> None:
    """Run the statements of a file up to each change of its tables, and the queries, or so many of them, in between."""
    connection = duckdb.connect()
    waiting: list[str] = []
    for record in records(text):
        if record.is_query:
            waiting.append(record.sql)
            continue
        _ask(connection, waiting, outcome, queries, seed)
        waiting = []
        try:
            connection.execute(record.sql)
        except duckdb.Error:
            outcome.failed_in_duckdb += 1
    _ask(connection, waiting, outcome, queries, seed)


def _ask(connection: duckdb.DuckDBPyConnection, statements: list[str], outcome: Outcome, queries: int | None, seed: int) -> None:
    if not statements:
        return
    if queries is not None and len(statements) > queries:
        statements = random.Random(seed).sample(statements, queries)
    names = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    tables = {name: connection.table(name).arrow().read_all() for name in names}
    fewer = duckdb.connect()
    for name, table in tables.items():
        rows = table.take(pa.array(range(0, table.num_rows, 2)))
        fewer.register("kept", rows)
        fewer.execute(f"create table {name} as select * from kept")
        fewer.unregister("kept")
    for sql in statements:
        try:
            expected = [typed((row, 1) for row in each.execute(sql).fetchall()) for each in (connection, fewer)]
        except duckdb.Error:
            outcome.failed_in_duckdb += 1
            continue
        try:
            held = view(sql, tables)
        except SqlError as error:
            outcome.refused[str(error)] += 1
        except timely.OperatorError as error:
            outcome.different.append(f"{sql}\n  {error}")
        else:
            if held == expected:
                outcome.equal += 1
            else:
                outcome.different.append(f"{sql}\n  expected {expected}\n  held     {held}")


def view(sql: str, tables: dict[str, pa.Table]) -> list[Counter[Any]]:
    """Return what a view of a query holds of all rows, and of every second row."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            inputs = {name.lower(): dd.table(scope, table.schema, name=name) for name, table in tables.items()}
            output = dd.sql(scope, sql, **inputs).output()
        for name, table in tables.items():
            session = inputs[name.lower()].session
            rows = [tuple(row.values()) for row in table.to_pylist()]
            session.insert_batch(rows)
            session.advance_to(1)
            for row in rows[1::2]:
                session.remove(row)
            session.close()
        worker.run()
        return [typed(output.at(time).items()) for time in (0, 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files that are named; return 1 where a view is not what DuckDB answers."""
    parser = argparse.ArgumentParser(prog="python -m tests.sqllogictest", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, help="so many of the queries between two statements, by chance")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    outcome = Outcome()
    for file in options.files:
        run(file.read_text(encoding="utf-8"), outcome, options.queries, options.seed)
        print(
            f"{file.name}: {outcome.equal} equal, {outcome.refused.total()} refused, {len(outcome.different)} different",
            flush=True,
        )
    for reason, count in outcome.refused.most_common(20):
        print(f"refused {count}: {reason}")
    for difference in outcome.different[:20]:
        print(f"different: {difference}")
    print(
        f"{outcome.equal} equal, {outcome.refused.total()} refused, {len(outcome.different)} different,"
        f" {outcome.failed_in_duckdb} not for DuckDB"
    )
    return 1 if outcome.different else 0


if __name__ == "__main__":
    sys.exit(main())
