"""Sources and sinks of a script: each row once, whenever the server is killed, and what cannot be so is refused."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.connect.kafka_cluster import mock_cluster
from tests.connect.postgres_server import PostgresServer
from tests.server.client import ask
from timely.errors import TimelyError
from timely.server import Connectors, Limits, Views, ViewServer

_WORLD = multiprocessing.get_context("forkserver")
_WORLD.set_forkserver_preload(["tests.connect.test_served"])

FILES = """create source orders (customer varchar not null, price bigint) with (connector = 'files', path = '{0}/orders');
create view totals as select customer, sum(price) as total, count(*) as n from orders group by customer;
create sink out from totals with (connector = 'sqlite', path = '{0}/out.db', key = 'customer');"""

TOPICS = """create source orders (customer varchar not null, price bigint) with (connector = 'kafka', brokers = '{0}');
create view totals as select customer, sum(price) as total, count(*) as n from orders group by customer;
create sink out from totals with (connector = 'kafka', brokers = '{0}', key = 'customer');"""

TABLES = """create source orders (id bigint, customer int, price bigint), customers (id int, name varchar)
    with (connector = 'postgres', connection = '{0}', tables = 'public.orders, public.customers');
create view totals as select name as customer, sum(price) as total, count(*) as n
    from orders join customers on customers.id = orders.customer group by name;
create sink out from totals with (connector = 'postgres', connection = '{0}', key = 'customer');"""

QUERY = "select name, sum(price)::bigint, count(*) from orders join customers on customers.id = customer group by name"


def serve(folder: Path, script: str, epochs: Connection) -> None:
    """Serve durable views in this process, with checkpoints all the time, until it is killed."""
    with Views(Limits(replay_seconds=0.02), data=folder / "data") as views:
        views.listen(lambda: epochs.send(views.time))
        views.apply_script(script)
        with Connectors(views, seconds=0.001):
            time.sleep(600)


class Files:
    """Orders in files, and totals in SQLite."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.script = FILES.format(folder)
        self._folder = folder
        self._chance = chance
        self._expected: dict[str, tuple[int, int]] = {}
        self._database = sqlite3.connect(folder / "out.db")
        self._database.execute("create table out (customer text primary key, total bigint, n bigint)")
        (folder / "orders").mkdir()

    def change(self) -> None:
        rows = [(self._chance.choice("abcd"), self._chance.randrange(9)) for _ in range(self._chance.randint(1, 3))]
        for customer, price in rows:
            total, n = self._expected.get(customer, (0, 0))
            self._expected[customer] = (total + price, n + 1)
        self._put(rows)

    def _put(self, rows: list[tuple[str, int]]) -> None:
        draft = self._folder / "orders" / "_draft"
        draft.write_text("customer,price\n" + "".join(f"{customer},{price}\n" for customer, price in rows))
        draft.rename(draft.with_name(f"{time.monotonic_ns()}.csv"))

    def expected(self) -> list[tuple[str, int, int]]:
        return sorted((customer, *sums) for customer, sums in self._expected.items())

    def rows(self) -> list[tuple[str, int, int]]:
        return self._database.execute("select customer, total, n from out order by 1").fetchall()


class FilesToDuckDB(Files):
    """Orders in files, and totals in DuckDB."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder, chance)
        self.script = self.script.replace("'sqlite'", "'duckdb'").replace("out.db", "out.duckdb")
        self._run("create table out (customer text primary key, total bigint, n bigint)")

    def _run(self, statement: str) -> list[Any]:
        with duckdb.connect(str(self._folder / "out.duckdb")) as database:
            return database.execute(statement).fetchall()

    def rows(self) -> list[tuple[str, int, int]]:
        return self._run("select customer, total, n from out order by 1")


class Topics(Files):
    """Orders and totals in Kafka."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder, chance)
        self._cluster = contextlib.ExitStack()
        self._broker = self._cluster.enter_context(mock_cluster())
        self.script = TOPICS.format(self._broker.where)
        for topic in ("orders", "out"):  # which makes it
            self._broker.producer.list_topics(topic, timeout=20)

    def _put(self, rows: list[tuple[str, int]]) -> None:
        self._broker.produce("orders", *((None, {"customer": customer, "price": price}) for customer, price in rows))

    def rows(self) -> list[tuple[str, int, int]]:
        return self._broker.rows("out", "customer string, total long, n long")


class Tables:
    """Orders and totals in PostgreSQL."""

    def __init__(self, server: PostgresServer, chance: random.Random) -> None:
        self.script = TABLES.format(server.where)
        self._server = server
        self._chance = chance
        server(
            *("create table orders (id bigserial, customer int, price bigint)", "create table customers (id int, name text)"),
            *("alter table orders replica identity full", "alter table customers replica identity full"),
            "create table out (customer text primary key, total bigint, n bigint)",
            "insert into customers values (1, 'a'), (2, 'b'), (3, 'c')",
        )

    def change(self) -> None:
        self._server(
            f"insert into orders (customer, price) values ({self._chance.randint(1, 3)}, {self._chance.randrange(9)})",
            f"update customers set name = name || 'x' where id = {self._chance.randint(1, 30)}",
        )

    def expected(self) -> list[tuple[str, int, int]]:
        return sorted(self._server(QUERY))

    def rows(self) -> list[tuple[str, int, int]]:
        return sorted(self._server("select customer, total, n from out"))


def check_kills(world: Files | Tables, folder: Path, kills: int, chance: random.Random) -> None:
    """Kill a server behind some epoch so often, then have it go on to the end; each epoch follows a change at the latest."""
    for _ in range(kills):
        ours, theirs = _WORLD.Pipe()
        process = _WORLD.Process(target=serve, args=(folder, world.script, theirs), daemon=True)
        process.start()
        theirs.close()
        for _ in range(chance.randint(1, 4)):
            world.change()
            ours.recv()
        process.kill()
        process.join()
        ours.close()
    with Views(data=folder / "data") as views:
        views.apply_script(world.script)
        with Connectors(views, seconds=0.001) as connectors:
            wait(lambda: world.rows() == world.expected(), connectors)


def later(views: Views, epoch: int) -> bool:
    return views.time > epoch


def wait(condition: Callable[[], bool], connectors: Connectors) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, connectors.problems
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", [Files, FilesToDuckDB, Topics])
def test_sources_and_sinks_whatever_dies(kind: type[Files], kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    check_kills(kind(tmp_path, chance), tmp_path, kills, chance)


@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_postgres_whatever_dies(kills: int, tmp_path: Path, postgres: PostgresServer) -> None:
    chance = random.Random(kills)
    check_kills(Tables(postgres, chance), tmp_path, kills, chance)


def test_columns_of_postgres_are_those_that_are_declared(tmp_path: Path, postgres: PostgresServer) -> None:
    Tables(postgres, random.Random(1))
    columns, options = "id bigint, price bigint, customer int", f"connector = 'postgres', connection = '{postgres.where}'"
    with Views() as views, Connectors(views, seconds=0.001) as connectors:
        views.run_script(f"create source orders ({columns}) with ({options})")
        wait(lambda: "orders has the columns id, customer, price, and orders is declared" in str(connectors.problems), connectors)


def test_a_sink_follows_a_view_that_is_replaced_or_dropped_and_begins_anew(tmp_path: Path) -> None:
    world = Files(tmp_path, random.Random(1))
    world.change()
    script = FILES.format(tmp_path)
    totals = "view totals as select customer, {} as total, count(*) as n from orders group by customer"
    with Views(data=tmp_path / "data") as views, Connectors(views, seconds=0.001) as connectors:
        views.run_script(script)
        wait(lambda: world.rows() == world.expected(), connectors)
        views.run_script(f"create or replace {totals.format('-sum(price)')}")
        wait(lambda: world.rows() == [(name, -total, n) for name, total, n in world.expected()], connectors)
        views.run_script("drop view totals")
        wait(lambda: connectors.problems != [], connectors)
        assert connectors.problems[0].startswith("sink out: there is no table or view totals")
        views.run_script("create view totals as select customer, price as total, 1 as n from orders union all select 'a', 1, 1")
        wait(lambda: "has more than one row" in str(connectors.problems) or connectors.problems == [], connectors)
        views.run_script(f"create or replace {totals.format('sum(price)')}")
        wait(lambda: world.rows() == world.expected() and connectors.problems == [], connectors)
        views.run_script(f"drop sink out; {script.splitlines()[2]}")
        wait(lambda: "empty its rows and its line in timely_sinks" in str(connectors.problems), connectors)
        views.run_script("drop sink out; drop source orders cascade")
        assert views.overview()[1] == []


def test_a_sink_that_is_ahead_of_data_from_a_backup_is_refused_for_good(tmp_path: Path) -> None:
    world, script = Files(tmp_path, random.Random(2)), FILES.format(tmp_path)
    for saved in ("data", "backup"):
        world.change()
        with Views(data=tmp_path / "data") as views, Connectors(views, seconds=0.001) as connectors:
            views.apply_script(script)
            wait(lambda: world.rows() == world.expected(), connectors)
            newest = views.time
        if saved == "data":
            shutil.copytree(tmp_path / "data", tmp_path / "backup")
    rows = world.rows()
    with Views(data=tmp_path / "backup") as views, Connectors(views, seconds=0.001) as connectors:
        for epoch in range(views.time, newest + 1):
            world.change()
            wait(functools.partial(later, views, epoch), connectors)
        connectors.close()
        assert "bring back newer data, or begin anew" in str(connectors.problems) and world.rows() == rows


def test_positions_are_shown_and_those_of_deleted_files_go(tmp_path: Path) -> None:
    world, script = Files(tmp_path, random.Random(3)), FILES.format(tmp_path)
    for _ in range(2):
        world.change()
        with Views(data=tmp_path / "data") as views, ViewServer(views) as server, Connectors(views, seconds=0.001) as connectors:
            views.apply_script(script)
            wait(lambda: world.rows() == world.expected(), connectors)
            wait(lambda: ask(server.port, "/health").content["sources"] == {"orders": "1 of 1 partitions read"}, connectors)
            assert len(views.read("orders_positions").rows) == 1
        for file in (tmp_path / "orders").iterdir():
            file.unlink()


@pytest.fixture(scope="module")
def defined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    folder = tmp_path_factory.mktemp("served")
    with Views(data=folder / "data") as views:
        views.run_script(FILES.format(folder))
        yield views


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("insert orders", "table orders is that of a source, and nothing else changes it"),
        ("insert out", "table out is that of a sink"),
        ("insert orders_positions", "table orders_positions is that of a source"),
        ("drop table orders", "orders is a source: write DROP SOURCE"),
        ("drop source orders", "is read by totals: drop these first"),
        ("create table orders (customer varchar not null, price bigint)", "there is a table or view orders already"),
        ("create source orders (n int) with (connector = 'files', path = 'x')", "there is a source orders already"),
        ("create source a (n int), a (n int) with (connector = 'postgres')", "there is a source a already"),
        ("create source a (n int), b (n int) with (connector = 'files', path = 'x')", "it reads 1 tables, and 2 are declared"),
        ("create source a (n int), b (n int) with (connector = 'postgres', tables = 't, t')", "it reads 1 tables, and 2 are"),
        ("create source a (n int) with (connector = 'x')", "there is no such connector: 'x'"),
        ("create source a (n int) with (connector = 'files')", "source a: write path = '...'"),
        ("create source a (n int) with (connector = 'files', path = 'x', pth = 'y')", "files has no option pth"),
        ("create source a (n int) with (connector = 'files', path = env('NOT_SET'))", "as NOT_SET, and that is not set"),
        ("create source a (n int) with (connector = 'postgres', password = 'x')", "write password = env('NAME')"),
        ("create source a (n int) with (connector = 'postgres', connection = 'host=a password=b')", "which logs would show"),
        ("create source a (n int) with (connector = 'kafka', brokers = 'x', keyed = 'true')", "have a column _key varchar"),
        (
            "create source a (_key text, n int lateness 5) with (connector = 'kafka', keyed = 'true')",
            "rows below its watermark stay",
        ),
        ("create source a (n int) with (connector = 'kafka', keyed = 'yes')", "keyed is 'true' or 'false', not 'yes'"),
        ("create source a (n int) with (path = 'x', path = 'y')", "each option once"),
        ("create source a (n int) with (path 'x')", "write `with (option = value, ...)`"),
        ("create source a (n int) with (path = env('x'", "write `with (option = value, ...)`"),
        ("create source a with (path = 'x')", "write `create table name (column type, ...)`"),
        ("create source a (n int) with (path = 3)", "a value is a text or env('NAME')"),
        ("create source a (n int)", "write `with (option = value, ...)`"),
        ("create source a (n nope) with (path = 'x')", "at line 1, column 18: there is no type nope here"),
        ("create sink a from nope with (connector = 'sqlite')", "sink a: there is no table or view nope"),
        ("create sink a with (connector = 'sqlite')", "write `create sink name from view with"),
        ("create sink a from totals with (connector = 'sqlite', path = 'x')", "sink a: write key = '...'"),
    ],
)
def test_what_cannot_be_right_is_refused(statement: str, message: str, defined: Views) -> None:
    with pytest.raises(TimelyError) as error:
        defined.write(statement[7:], insert=[]) if statement.startswith("insert") else defined.run_script(statement)
    assert message in str(error.value)


def test_comments_are_no_part_of_a_statement(tmp_path: Path) -> None:
    world = Files(tmp_path, random.Random(1))
    world.change()
    source, view, _ = FILES.format(tmp_path).splitlines()
    with Views() as views, Connectors(views, seconds=0.001) as connectors:
        views.run_script(f"{source.replace('source', '/* of files */ SOURCE')}{view}")
        wait(lambda: {row for row, _ in views.read("totals").rows} == {*world.expected()}, connectors)
        with pytest.raises(TimelyError, match="is that of a source"):
            views.write("orders", insert=[("a", 1)])


def test_a_sink_needs_data_that_stays_and_clients_a_permission(tmp_path: Path) -> None:
    with pytest.raises(TimelyError, match="sink out: what it has would be forgotten at the end: start with --data DIR"):
        Views().run_script(FILES.format(tmp_path))
    for connectors, status in ((False, 400), (True, 200)):
        with ViewServer(Views(), writable=True, connectors=connectors) as server:
            assert ask(server.port, "/script", "POST", FILES.format(tmp_path).splitlines()[0]).status == status
