"""PostgreSQL to a view to PostgreSQL: what a transaction does is there once and at once, whatever dies.

White box: no server has as many transactions as it takes until their numbers come again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.connect.postgres_server import PostgresServer
from timely import connect
from timely import differential as dd
from timely.connect import Change, PostgresSink, PostgresSource, ReadBatch
from timely.connect.pgoutput import Transactions
from timely.errors import OperatorError
from timely.recovery import MemoryStore, Recovery, Store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connectors.md"

QUERY = """select owner, sum(balance)::bigint as balance, count(*) as accounts
    from accounts a join owners o on o.id = a.owner_id group by owner"""

TABLES = (
    "create table owners (id int primary key, owner text)",
    "create table accounts (id bigint primary key, owner_id int, balance bigint, note text)",
    "alter table owners replica identity full",
    "alter table accounts replica identity full",
    "create table totals (owner text primary key, balance bigint, accounts bigint)",
    "insert into owners select n, chr(96 + n) from generate_series(1, 4) n",
    "insert into accounts select n, n % 4 + 1, 100, repeat('x', 10 * n) from generate_series(1, 20) n",
)


class Killed(Exception):
    """The end of a run in the middle."""


class Trouble:
    """What happens at random while a run goes on: transactions, lost connections, and its end."""

    def __init__(self, server: PostgresServer, seed: int) -> None:
        self._server = server
        self.choice = random.Random(seed)
        self.kills = 0

    def happen(self) -> None:
        choice = self.choice
        if choice.random() < 0.4:
            self.transact()
        chance = choice.random()
        if chance < 0.08:
            self.kills += 1
            raise Killed
        if chance < 0.1:
            self.kills += 1
            self._server("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")

    def transact(self) -> None:
        """Change several rows of both tables at once; the sum of all balances stays."""
        choice = self.choice
        one, two, amount = choice.randint(1, 20), choice.randint(1, 20), choice.randint(1, 50)
        name = choice.choice("abcdef")
        first = (
            f"update accounts set owner_id = owner_id % 4 + 1 where id = {one}",
            f"""update accounts set balance = balance + case id when {one} then -{amount} when {two} then {amount} end
                where id in ({one}, {two})""",
        )[one != two]
        self._server(first, f"update owners set owner = '{name}' || id where id = {choice.randint(1, 4)}")


class TroubledSource(PostgresSource):
    def __init__(self, trouble: Trouble, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._trouble = trouble

    def read(self, partition: str, begin: Any, rows: int) -> ReadBatch:
        self._trouble.happen()
        read = super().read(partition, begin, 20)
        self._trouble.happen()
        return read


class TroubledSink(PostgresSink):
    def __init__(self, trouble: Trouble, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._trouble = trouble

    def commit(self, epoch: int, changes: Any) -> None:
        self._trouble.happen()
        super().commit(epoch, changes)
        self._trouble.happen()


def follow(server: PostgresServer, store: Store, workers: int, trouble: Trouble | None) -> None:
    """Keep ``totals`` equal to the query: up to now, or while there is trouble, until it ends the run."""

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                names = ["accounts", "owners"]
                source = (
                    PostgresSource(server.where, names, bounded=True)
                    if trouble is None
                    else TroubledSource(trouble, server.where, names)
                )
                tables = dd.source_tables(scope, source)
                query = QUERY.replace("::bigint", "")
                sink = PostgresSink if trouble is None else lambda *a, **k: TroubledSink(trouble, *a, **k)
                dd.sql(scope, query, **tables).write(sink(server.where, "totals", key="owner"))
            connect.run(recovery, seconds=0)

    timely.execute(program, workers=workers)


def check_kills(server: PostgresServer, seed: int, kills: int) -> None:
    server(*TABLES)
    trouble, store, runs = Trouble(server, seed), MemoryStore(), 0
    while trouble.kills < kills:
        runs += 1
        with pytest.raises((Killed, OperatorError, timely.TimelyError)):
            follow(server, store, trouble.choice.randint(1, 2), trouble)
        [(total, rows)] = server("select coalesce(sum(balance), 2000), count(*) from totals")
        assert total == 2000 and rows in (0, 4), f"seed {seed}: half of a transaction is there after run {runs}"
        if trouble.choice.random() < 0.1:
            server.stop()
            server.start()
    follow(server, store, 1, None)
    assert sorted(server("select * from totals")) == sorted(server(QUERY)), f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_a_view_has_each_transaction_once_whatever_dies(postgres: PostgresServer, seed: int) -> None:
    check_kills(postgres, seed, 5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_view_has_each_transaction_once_after_many_kills(postgres: PostgresServer, seed: int) -> None:
    check_kills(postgres, seed, 20)


def read_all(source: PostgresSource, position: Any = None) -> tuple[list[Change], Any]:
    """All changes from a position on, and where they end."""
    changes: list[Change] = []
    over = False
    while not over:
        batch, position, over, _ = source.read("changes", position, 100)
        changes += batch
    return changes, position


def net(changes: Iterable[Change]) -> dict[Any, int]:
    sums: dict[Any, int] = {}
    for row, diff in changes:
        sums[row] = sums.get(row, 0) + diff
    return {row: count for row, count in sums.items() if count}


TYPES = (
    "bool, int2, int4, int8, float4, float8, text, varchar(9), char(5), uuid, json, bytea, date, timestamp, timestamptz,"
    " numeric(9,3), mood"
)
VALUES = (
    "true, -2, 3, 9007199254740993, 0.1, 'nan', E'a\\tb\\\\', 'é', 'ab', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}',"
    " '\\xff00', '2024-02-29', '2024-01-01 12:00:00.5', '2024-01-01 12:00:00+02', 12.5, 'glad'",
    ", ".join(["null"] * 17),
)


def test_values_are_the_same_in_the_copy_and_in_changes(postgres: PostgresServer) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(re.split(r", ?(?!3\))", TYPES)))
    postgres(
        "create type mood as enum ('glad', 'sad')",
        f'create table "Odd ""names" ({columns.replace("c16", "c16 ")})',
        'alter table "Odd ""names" replica identity full',
        *(f'insert into "Odd ""names" values ({values})' for values in VALUES),
    )
    source = PostgresSource(postgres.where, '"Odd ""names"', name='a "slot'.replace(' "', "_"), bounded=True)
    copied, position = read_all(source)
    assert len(copied) == 2 and len(copied[0][0]) == 17
    postgres(*(f'insert into "Odd ""names" values ({values})' for values in VALUES), 'update "Odd ""names" set c1 = 7')
    changes, position = read_all(source, position)
    changed = [row for row, diff in changes if diff == 1]
    assert repr(changed[:2]) == repr([row for row, _ in copied])  # not a number differs from itself
    assert changed[0][:4] == (True, -2, 3, 9007199254740993)
    postgres('delete from "Odd ""names"')
    again, position = read_all(source, position)
    assert net((repr(row), diff) for row, diff in [*copied, *changes, *again]) == {}
    source.close()


def test_large_values_that_an_update_leaves_alone_stay(postgres: PostgresServer) -> None:
    postgres(
        "create table t (id int primary key, n int, large text)",
        "alter table t replica identity full",
        "alter table t alter large set storage external",
        "insert into t values (1, 1, repeat('x', 9000))",
    )
    source = PostgresSource(postgres.where, "t", bounded=True)
    copied, position = read_all(source)
    postgres("update t set n = 2")
    changes, _ = read_all(source, position)
    assert net([*copied, *changes]) == {(1, 2, "x" * 9000): 1}
    source.close()


@pytest.mark.parametrize(
    ("before", "between", "text"),
    [
        ("", "", r"replica identity is not full: ALTER TABLE t REPLICA IDENTITY FULL"),
        ("alter table t add p point; alter table t replica identity full", "", "column p of t is point"),
        ("alter table t add p numeric; alter table t replica identity full", "", "column p of t is numeric"),
        ("drop table t; create view t as select 1 as id", "", "t is no ordinary table"),
        ("drop table t", "", 'relation "t" does not exist'),
        ("FULL", "truncate t", "a table was truncated"),
        ("FULL", "alter table t add p int; insert into t values (9, 9, 9)", "the columns .* now have .*'p'"),
        ("FULL", "alter table t alter n type text; reopen", "the columns .*n int32.* now have .*n string"),
        ("FULL", "insert into t values (9); alter table t replica identity default; delete from t", "was not full for a while"),
        ("FULL", "alter table t replica identity default; update t set n = 2", "was not full for a while"),
        ("FULL", "alter publication timely set (publish = 'insert'); delete from t", "the publication .* is not of t"),
        ("FULL; create publication timely for table t with (publish = 'insert, update, delete')", "", "is not of t"),
        (
            "FULL",
            "drop table t; create table t (id int primary key, n int); alter table t replica identity full; reopen",
            "a table was made anew",
        ),
        (
            "FULL",
            "select pg_drop_replication_slot('timely'); reopen",
            r"the changes from \w+/\w+ on are wanted, and there is no such slot",
        ),
        (
            "FULL",
            "insert into t values (9); select pg_replication_slot_advance('timely', pg_current_wal_lsn()); reopen",
            r"the changes from \w+/\w+ on are wanted, and the slot begins at \w+/\w+",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(postgres: PostgresServer, before: str, between: str, text: str) -> None:
    postgres("create table t (id int primary key, n int)", "insert into t values (1, 1)")
    postgres(*filter(None, before.replace("FULL", "alter table t replica identity full").split("; ")))

    def read() -> None:
        source = PostgresSource(postgres.where, "t", bounded=True)
        try:
            assert source.schema is not None
            copied, position = read_all(source)
            assert copied == [((1, 1), 1)]
            postgres(*between.removesuffix("; reopen").split("; "))
            if between.endswith("reopen"):
                source.close()
            read_all(source, position)
        finally:
            source.close()

    with pytest.raises(timely.ConnectorError, match=text):
        read()


def test_a_table_is_read_whole_and_once(postgres: PostgresServer) -> None:
    postgres(
        "create table t (id int primary key)",
        "alter table t replica identity full",
        "insert into t values (1), (2)",
        "create publication timely for table t",
        "drop role if exists reader",
        "create role reader login replication",
        "grant all on t to reader",
        "grant all on schema public to reader",
        "alter table t enable row level security",
        "create policy odd on t to reader using (id = 1)",
    )
    with pytest.raises(timely.ConnectorError, match="row-level security policy"):
        read_all(PostgresSource(postgres.where.replace("user=postgres", "user=reader"), "t", bounded=True))
    with pytest.raises(timely.ConnectorError, match=r"is not of t, public\.t, once each"):
        read_all(PostgresSource(postgres.where, ["t", "public.t"], bounded=True))
    source = PostgresSource(postgres.where, "t", bounded=True)
    _, position = read_all(source)
    postgres("insert into t values (3)")
    assert [read_all(source, position)[0] for _ in range(2)] == [[((3,), 1)]] * 2  # two streams of one source
    source.close()
    postgres("drop owned by reader", "drop role reader")


def test_numbers_of_transactions_come_again() -> None:
    def transaction(place: int, number: int) -> list[bytes]:
        begin = b"B" + place.to_bytes(8) + bytes(8) + number.to_bytes(4)
        relation = b"R" + bytes(4) + b"public\0t\0f" + (1).to_bytes(2) + b"\0n\0" + bytes(8)
        insert = b"I" + bytes(4) + b"N" + (1).to_bytes(2) + b"t" + (1).to_bytes(4) + b"5"
        return [begin, relation, insert, b"C" + bytes(9) + (place + 1).to_bytes(8) + bytes(8)]

    reader = Transactions("t", 10, "1000:1000:", 20)
    assert reader.read(transaction(15, 900)) == ([], 16)  # the copy has it
    assert [len(reader.read(transaction(place, number))[0]) for place, number in ((15, 1000), (25, 900))] == [1, 1]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("host=/nowhere password=secret", "/nowhere"),
        ("host=/nowhere secret", "is not read"),
        ("postgresql://user:p@secret@nowhere/db", "is not read"),
    ],
)
def test_no_error_and_no_repr_has_a_password(where: str, text: str) -> None:
    pytest.importorskip("psycopg")
    source, sink = PostgresSource(where, "t"), PostgresSink(where, "t", key="id")
    calls: list[Callable[[], Any]] = [lambda: source.schema, lambda: sink.open("history", ["id"])]
    for call in calls:
        with pytest.raises(timely.ConnectorError, match=text) as raised:
            call()
        chain: BaseException | None = raised.value
        while chain is not None:
            assert "secret" not in f"{chain} {source!r} {sink!r}"
            chain = chain.__cause__


CHANGES = (
    "insert into orders values (100, 2, 5)",
    "delete from orders where id = 1",
    "update customers set name = 'eve' where id = 2",
)


def test_the_program_of_the_page_keeps_the_table_equal(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    tables, *_ = re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    program = next(iter(re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))
    [query] = re.findall(r'"""(select.*?)"""', program, re.DOTALL)
    postgres(*filter(str.strip, tables.split(";")))

    def equal() -> bool:
        return sorted(postgres("select * from revenue")) == sorted(postgres(query))

    monkeypatch.chdir(tmp_path)
    ending = program.replace('database = ""', f'database = "{postgres.where}"')
    ending = ending.replace("connect.run(recovery)", "connect.run(recovery, seconds=0.01, until=equal)")
    assert "until=equal" in ending
    for statement in CHANGES:
        postgres(statement)
        exec(compile(ending, "revenue.py", "exec"), {"equal": equal})
        assert equal()
