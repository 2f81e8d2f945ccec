"""Sinks that are tables of a database: PostgreSQL, SQLite and DuckDB.

Invariant: the rows of an epoch, its number and the history are in one transaction. It first locks the sink's line in the table
``timely_sinks``. Each row has a key; a change that does not meet the rows that are there is refused.
"""

from __future__ import annotations

import contextlib
import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from timely.connect.keyed_rows import KeyedTable, RowsByKey
from timely.errors import ConnectorError, brief, error_text, require_package

_LINES: Final = "timely_sinks"


class _DatabaseSink(KeyedTable):
    """A table of a database that is kept equal to a view, by the columns of ``key``."""

    _mark = "?"
    _lock = ""
    _begin = "begin"

    def __init__(self, table: str, key: str | Sequence[str], name: str | None, place: str) -> None:
        super().__init__(table, key, name, place)
        self._table = ".".join(map(self._quoted, table.split(".")))
        self._connection: Any = None

    @abstractmethod
    def _connect(self) -> Any:
        """Return a connection without transactions of its own."""

    def _last(self, cursor: Any) -> tuple[str, int | None]:
        """Lock the sink's line, and return what it has."""
        cursor.execute(f"create table if not exists {_LINES} (name text primary key, history text not null, epoch bigint)")
        cursor.execute(f"select history, epoch from {_LINES} where name = {self._mark}{self._lock}", (self.name,))
        return cursor.fetchone() or ("", None)

    def _claim(self, cursor: Any) -> None:
        line = f"{_LINES} values ({self._mark}, {self._mark}, null)"
        cursor.execute(
            f"insert into {line} on conflict (name) do update set history = excluded.history", (self.name, self._history)
        )

    def _write(self, cursor: Any, epoch: int, rows: RowsByKey) -> None:
        others = [place for place, column in enumerate(self._columns) if column not in self._key]
        names = [*map(self._quoted, self._columns)]
        where = " and ".join(f"{self._quoted(column)} = {self._mark}" for column in self._key)
        rest = ", ".join(f"{names[place]} = {self._mark}" for place in others)
        updates = [(*(row[place] for place in others), *key) for key, row in rows.updates.items()]
        self._apply(cursor, f"delete from {self._table} where {where}", list(rows.deletes))
        self._apply(cursor, f"update {self._table} set {rest} where {where}", updates)
        marks = ", ".join(self._mark for _ in names)
        self._apply(cursor, f"insert into {self._table} ({', '.join(names)}) values ({marks})", list(rows.inserts.values()))
        cursor.execute(f"update {_LINES} set epoch = {self._mark} where name = {self._mark}", (epoch, self.name))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _apply(self, cursor: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            count = self._execute_many(cursor, statement, rows)
            if count != len(rows):
                raise self._unmet(f"{statement.split()[0]} of {len(rows)} met {count}")

    def _quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def _execute_many(self, cursor: Any, statement: str, rows: list[tuple[Any, ...]]) -> int:
        cursor.executemany(statement, rows)
        return int(cursor.rowcount)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Yield the cursor of a transaction; ``ConnectorError`` for errors of the database, and the connection is closed then."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            cursor = self._connection.cursor()
            cursor.execute(self._begin)
            yield cursor
            cursor.execute("commit")
        except ConnectorError:
            self.close()  # which rolls back
            raise
        except Exception as error:
            self.close()
            raise ConnectorError(f"sink {self.name!r}: {self._place}: {error_text(error)}") from error


class PostgresSink(_DatabaseSink):
    """Keeps a table of PostgreSQL equal to a view whose rows differ in ``key``, exactly once.

    ``where`` is a connection string; what it lacks, such as a password, comes from the environment (``PGPASSWORD``). Nothing else
    may change the table, and its key should be its primary key. ``timely_sinks``, in the first schema of the search path, has the
    epochs of all sinks. ``name`` tells sinks apart. Needs psycopg.
    """

    _mark = "%s"
    _lock = " for update"

    def __init__(self, where: str, table: str, *, key: str | Sequence[str], name: str | None = None) -> None:
        require_package("psycopg", "PostgresSink", "postgres")
        super().__init__(table, key, name, "PostgreSQL")
        self._where = where

    def _quoted(self, name: str) -> str:
        return super()._quoted(name).replace("%", "%%")

    def _connect(self) -> Any:
        connection = postgres_connection(self._where)
        connection.execute("set timezone = utc")  # of columns with a time zone for values without one, and the other way
        return connection


def postgres_connection(where: str) -> Any:
    """Return a connection without transactions of its own; an unreadable string, which may have a password, is in no error."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        host = str(conninfo_to_dict(where).get("host", ""))
    except psycopg.ProgrammingError:
        host = "not@read"
    if "@" in host[1:]:  # as where a password has one, whose rest would be in errors; a socket may begin with it
        raise ConnectorError(
            "the connection string of PostgreSQL is not read: write 'host=... dbname=...', or 'postgresql://user@host/database',"
            " with '%40' for an '@' of the password"
        )
    return psycopg.connect(where, autocommit=True)


class _FileSink(_DatabaseSink):
    def __init__(self, file: str | os.PathLike[str], table: str, *, key: str | Sequence[str], name: str | None = None) -> None:
        super().__init__(table, key, name, os.fspath(file))
        self._file = os.fspath(file)


class SqliteSink(_FileSink):
    """Keeps a table of a SQLite file equal to a view whose rows differ in ``key``, exactly once.

    >>> import pathlib, sqlite3, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "totals.db")
    >>> with sqlite3.connect(file) as database:
    ...     _ = database.execute("create table totals (word text primary key, n int)")
    >>> sink = SqliteSink(file, "totals", key="word")
    >>> sink.open("history", ["word", "n"])
    >>> sink.commit(1, [(("to", 2), 1)])
    >>> sink.commit(2, [(("to", 2), -1), (("to", 3), 1)])
    >>> sink.commit(2, [(("to", 2), -1), (("to", 3), 1)])  # again, after a kill: it has the epoch
    >>> sink.close()
    >>> database.execute("select * from totals").fetchall()
    [('to', 3)]
    """

    _begin = "begin immediate"

    def _connect(self) -> Any:
        import sqlite3

        return sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)

    def _execute_many(self, cursor: Any, statement: str, rows: list[tuple[Any, ...]]) -> int:
        for row in rows:
            if any(isinstance(value, float) and math.isnan(value) for value in row):
                raise ConnectorError(f"sink {self.name!r}: SQLite has NULL for NaN, as in {brief(row)}: have no NaN in the view")
        return super()._execute_many(cursor, statement, rows)


class DuckDBSink(_FileSink):
    """Keeps a table of a DuckDB file equal to a view whose rows differ in ``key``, exactly once. Needs duckdb.

    Only one process at a time may have the file open, so others read it when the run has ended.
    """

    def __init__(self, file: str | os.PathLike[str], table: str, *, key: str | Sequence[str], name: str | None = None) -> None:
        require_package("duckdb", "DuckDBSink", "duckdb")
        super().__init__(file, table, key=key, name=name)

    def _connect(self) -> Any:
        import duckdb

        return duckdb.connect(self._file)

    def _execute_many(self, cursor: Any, statement: str, rows: list[tuple[Any, ...]]) -> int:
        return sum(int(cursor.execute(statement, row).fetchone()[0]) for row in rows)
