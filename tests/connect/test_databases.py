"""Tables of databases as sinks: each row once whatever dies, and what does not fit is refused."""

from __future__ import annotations

import contextlib
import datetime
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.connect.keyed_changes import keyed_changes
from tests.connect.postgres_server import PostgresServer
from timely.connect import DuckDBSink, PostgresSink, SinkConnector, SqliteSink
from timely.errors import ConnectorError
from timely.testing import check_sink

COLUMNS = ["part", "id", "text"]
TEXTS = ["a", "it's", None, 'x"\\']


class Database:
    """A table ``items`` with a key of two columns in one of the databases."""

    def __init__(self, kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._kind = kind
        self._file = folder / "items.db"
        self._server: Any = request.getfixturevalue("postgres") if kind == "postgres" else None
        self("create table items (part int, id int, text text, primary key (part, id))")

    def __call__(self, statement: str) -> list[Any]:
        if self._server is not None:
            return list(self._server(statement))
        if self._kind == "duckdb":
            import duckdb

            with duckdb.connect(str(self._file)) as database:
                return database.execute(statement).fetchall()
        with contextlib.closing(sqlite3.connect(self._file)) as connection, connection:
            return connection.execute(statement).fetchall()

    def sink(self, **options: Any) -> Any:
        options = {"table": "items", "key": ["part", "id"], **options}
        if self._server is not None:
            return PostgresSink(self._server.where, **options)
        return DuckDBSink(self._file, **options) if self._kind == "duckdb" else SqliteSink(self._file, **options)

    @contextlib.contextmanager
    def open(self, history: str, columns: Sequence[str] = COLUMNS, **options: Any) -> Iterator[SinkConnector]:
        sink = self.sink(**options)
        with contextlib.closing(sink):
            sink.open(history, columns)
            yield sink


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return Database(request.param, tmp_path, request)


@pytest.mark.parametrize("seed", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_each_row_is_there_once_whatever_dies(database: Database, seed: int) -> None:
    def rows() -> dict[Any, int]:
        return dict.fromkeys(database("select * from items"), 1)

    kills = 0
    while kills < seed:
        changes = keyed_changes(seed + kills, 50, lambda chance: (*map(chance.randrange, (2, 4)), chance.choice(TEXTS)))
        kills += check_sink(database.sink, rows, changes, columns=COLUMNS, seed=seed + kills)
        database("delete from items")
        database("delete from timely_sinks")


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda sink: sink.commit(2, [((1, 1, "b"), 1)]), "items"),
        (lambda sink: sink.commit(2, [((1, 2, "b"), -1)]), "does not have the rows that it was given: delete of 1 met 0"),
        (
            lambda sink: sink.commit(2, [((1, 2, "b"), 1), ((1, 2, "c"), 1)]),
            r"the key \(part, id\) has more than one row, \(1, 2\)",
        ),
        (lambda sink: sink.commit(2, [((1, 2, "b"), 2)]), "has more than one row"),
        (lambda sink: sink.commit(2, [((1, None, "b"), 1)]), "is NULL"),
        (lambda sink: sink.commit(2, [((1, 2), 1)]), r"a row has the columns part, id, text, and \(1, 2\) came"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused(database: Database, write: Callable[[SinkConnector], Any], text: str) -> None:
    with database.open("history") as sink:
        sink.commit(1, [((1, 1, "a"), 1)])
        with pytest.raises(ConnectorError, match=text):
            write(sink)
        sink.commit(3, [((1, 1, "a"), -1), ((1, 1, "c"), 1)])  # it goes on
    assert database("select * from items") == [(1, 1, "c")]


def test_names_are_names(database: Database) -> None:
    database('create table "odd ""50%s" ("key?" int primary key, "50%" text)')
    with database.open("history", ["key?", "50%"], table='odd "50%s', key="key?") as sink:
        sink.commit(1, [((1, "a"), 1), ((2, "?"), 1)])
        sink.commit(2, [((1, "a"), -1), ((1, "%s"), 1), ((2, "?"), -1)])
    assert database('select * from "odd ""50%s"') == [(1, "%s")]


def test_moments_are_the_same_whatever_the_zone_of_the_server(postgres: PostgresServer) -> None:
    moment = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    postgres(
        "alter database postgres set timezone = 'Asia/Tokyo'",
        "create table moments (id int primary key, naive timestamp, aware timestamptz)",
    )
    with contextlib.closing(PostgresSink(postgres.where, "moments", key="id")) as sink:
        sink.open("history", ["id", "naive", "aware"])
        sink.commit(1, [((1, moment, moment), 1), ((2, moment.replace(tzinfo=None), moment.replace(tzinfo=None)), 1)])
    rows = postgres("alter database postgres reset timezone", "select naive, aware from moments")
    assert rows == [(moment.replace(tzinfo=None), moment)] * 2


def test_sqlite_which_has_null_for_nan_is_given_none(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "file")) as connection, connection:
        connection.execute("create table items (id int, x real)")
    with contextlib.closing(SqliteSink(tmp_path / "file", "items", key="id")) as sink:
        sink.open("history", ["id", "x"])
        with pytest.raises(ConnectorError, match=r"SQLite has NULL for NaN, as in \(1, nan\)"):
            sink.commit(1, [((1, math.nan), 1)])


def test_a_table_of_other_checkpoints_or_without_the_key_is_refused(database: Database) -> None:
    with database.open("history") as sink:
        sink.commit(1, [((1, 1, "a"), 1)])
        sink.close()
        with pytest.raises(ConnectorError, match="has the rows of other checkpoints, up to epoch 1"):
            database.sink().open("another", COLUMNS)
        with pytest.raises(ConnectorError, match="its key is part, id, and the rows have the columns part:"):
            database.sink().open("history", ["part"])


def test_an_older_run_cannot_write(database: Database) -> None:
    with database.open("older") as older:
        older.close()
        with database.open("newer") as newer:
            newer.close()
            with pytest.raises(ConnectorError, match="another run has opened"):
                older.commit(1, [((1, 1, "a"), 1)])
            newer.commit(1, [((1, 1, "b"), 1)])
    assert database("select * from items") == [(1, 1, "b")]


def test_two_sinks_have_epochs_of_their_own(database: Database) -> None:
    with database.open("one", name="first") as first:
        first.commit(5, [((1, 1, "a"), 1)])
        first.close()
        with database.open("two", name="second") as second:
            second.commit(1, [((1, 2, "b"), 1)])
    assert sorted(database("select * from items")) == [(1, 1, "a"), (1, 2, "b")]
