"""Views: epochs of several tables, what fails and recovers, queries that come and go.

White box: no answer says how often a query was computed.
"""

from __future__ import annotations

import datetime
import gc
import math
import random
import sys
import threading
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import timely
from timely.errors import CompactedError, ConfigurationError, DifferenceError, OutputError, SchemaError, SqlError, ViewError
from timely.server import Limits, Query, RowCondition, Views
from timely.server.computation import Computation

NUMBERS = pa.schema([("k", pa.string()), ("n", pa.int64())])


def rows(views: Views, name: str) -> dict[Any, int]:
    return dict(views.read(name).rows)


def numbers(limits: Limits | None = None) -> Views:
    views = Views(limits)
    views.table("t", NUMBERS, [("a", 1), ("b", 2)])
    return views


def test_views_equal_duckdb_at_every_epoch_while_queries_come_and_go() -> None:
    chance = random.Random(7)
    views, held = Views(), {"t": Counter[Any](), "u": Counter[Any]()}
    open_queries: list[tuple[Query, str]] = []
    for name in held:
        views.table(name, NUMBERS)
    texts = {
        "sums": "select k, sum(n) as n, count(*) as c from t group by k",
        "pairs": "select t.k, t.n, u.n as m from t join u on t.k = u.k",
        "of_views": "select pairs.k, pairs.m, sums.n from pairs join sums on pairs.k = sums.k where pairs.n > 2",
    }
    for name, text in texts.items():
        views.view(name, text)
    for _ in range(12):
        changes: dict[str, Counter[Any]] = {name: Counter() for name in held}
        for name, counts in held.items():
            for _ in range(4):
                changes[name][chance.choice("abc"), chance.randrange(4)] += 1
            for row in chance.sample(sorted(counts), min(3, len(counts))):
                changes[name][row] -= 1
            counts.update(changes[name])
            held[name] = Counter({row: n for row, n in counts.items() if n})
        views.commit(changes)
        database = duckdb.connect()
        for name, counts in held.items():
            database.execute(f"create table {name} (k varchar, n bigint)")
            for row in counts.elements():
                database.execute(f"insert into {name} values (?, ?)", row)
        expected = {}
        for name, text in texts.items():
            expected[name] = Counter(database.execute(text).fetchall())
            database.execute(f"create view {name} as {text}")
            assert rows(views, name) == expected[name]
        for query, name in open_queries:
            assert rows(views, query.name) == expected[name]
        if len(open_queries) == 3:
            open_queries.pop(chance.randrange(3))[0].close()
        name = chance.choice(list(texts))
        open_queries.append((views.query(f"select * from {name}"), name))
        assert rows(views, open_queries[-1][0].name) == expected[name]
    assert views.queries == len(open_queries)


def test_a_row_that_is_refused_changes_nothing() -> None:
    views = numbers()
    views.table("u", NUMBERS)
    with pytest.raises(DifferenceError, match=r"table t: \('a', 9\) would be there -1 times"):
        views.commit({"u": {("x", 1): 1}, "t": {("a", 9): -1}})
    with pytest.raises(SchemaError, match="column 'n': it is BIGINT"):
        views.commit({"u": {("x", 1): 1}, "t": {("a", "z"): 1}})
    with pytest.raises(ConfigurationError, match="T, t: give all changes of a table under one name"):
        views.commit({"T": {("a", 9): 1}, "t": {("b", 9): 1}})
    with pytest.raises(DifferenceError, match=r"whole number, not 1\.5"):
        views.commit({"u": {("x", 1): 1.5}})  # type: ignore[dict-item]
    with pytest.raises(OutputError, match="there are t, u"):
        views.commit({"v": {}})
    with pytest.raises(TypeError, match="inserted"):
        views.write("t", inserted=[("a", 9)])  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="upsert, which alone has a key"):
        views.write("t", insert=[("a", 9)], key=["k"])
    assert views.time == 0 and rows(views, "u") == {}
    views.view("v", "select * from t")
    with pytest.raises(ConfigurationError, match="v is a view: only tables"):
        views.commit({"v": {("a", 1): 1}})
    with pytest.raises(ConfigurationError, match="t already"):
        views.table("T", NUMBERS)


def test_changes_are_checked_after_earlier_ones_of_their_epoch() -> None:
    views = numbers()
    gone, come = {("a", 1): -1}, {("z", 1): 1}
    assert views.check("t", gone) == {"t": [(("a", 1), -1)]}
    assert views.check("t", {("z", 1): -1}, {"t": come}) == {"t": [(("z", 1), -1)]}
    with pytest.raises(DifferenceError, match=r"\('a', 1\) would be there -1 times"):
        views.check("t", gone, {"t": gone})
    with pytest.raises(DifferenceError, match=r"\('z', 1\) would be there -1 times"):
        views.check("t", {("z", 1): -2}, {"t": come})


def test_tables_and_views_may_come_later() -> None:
    views = numbers()
    views.commit({"t": {("a", 1): 1}})
    views.table("u", NUMBERS, [("a", 7)])
    views.view("pairs", "select t.n, u.n as m from t join u on t.k = u.k")
    assert views.time == 1 and rows(views, "pairs") == {(1, 7): 2}
    views.commit({"t": {("a", 1): -2}, "u": {("b", 3): 1}})
    assert rows(views, "pairs") == {(2, 3): 1}
    assert [e.time for e in views.changes("pairs", 1)] == [2]
    with pytest.raises(CompactedError):
        views.changes("pairs", 0)  # it was not there
    with pytest.raises(ConfigurationError, match="table u has rows, or is read already"):
        views.fill({"u": {("c", 1): 1}})


def test_a_view_that_fails_has_no_result_until_it_can_be_computed() -> None:
    views = numbers()
    views.run_script(
        "create view sums as select sum(n) as n from t;"
        "create view inverse as select k, 10 // n as m from t;"
        "create view of_it as select sum(m) as m from inverse"
    )
    query = views.query("select k from t")
    assert rows(views, "of_it") == {(15,): 1}
    views.commit({"t": {("c", 0): 1}})
    assert rows(views, "sums") == {(3,): 1} and rows(views, query.name) == {("a",): 1, ("b",): 1, ("c",): 1}
    assert [(e.time, e.changes) for e in views.changes("sums", 0)] == []
    with pytest.raises(ViewError, match="view inverse has no result now: 10 // 0: division by zero"):
        views.read("inverse")
    with pytest.raises(ViewError, match="view inverse, which it reads, has no result now"):
        views.read("of_it")
    with pytest.raises(ViewError, match="view inverse, which it reads"):
        views.view("late", "select * from inverse")
    views.commit({"t": {("d", 5): 1}})  # it still fails
    assert rows(views, "sums") == {(8,): 1}
    with pytest.raises(ViewError):
        views.read("of_it")
    views.commit({"t": {("c", 0): -1}})
    assert rows(views, "inverse") == {("a", 10): 1, ("b", 5): 1, ("d", 2): 1} and rows(views, "of_it") == {(17,): 1}
    assert [(e.time, e.changes) for e in views.changes("of_it", 0)] == [(3, [((15,), -1), ((17,), 1)])]
    assert [each.error for each in views.overview()[1]] == [None] * 4
    views.commit({"t": {("a", 1): -1}})
    assert rows(views, "of_it") == {(7,): 1}


def test_a_view_that_fails_is_seldom_computed_from_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is right again as soon as it can be, also where no epoch follows."""
    computed, begin = list[str](), Computation.__init__

    def counted(self: Computation, query: str, *arguments: Any, **options: Any) -> None:
        computed.append(query)
        begin(self, query, *arguments, **options)

    views, again = Views(), threading.Event()
    views.table("t", NUMBERS, [("a", n) for n in range(1, 30_000)])
    views.view("inverse", query := "select max(100 // n) as m from t")
    views.view("of_it", "select m + 1 as more from inverse")
    monkeypatch.setattr(Computation, "__init__", counted)
    views.commit({"t": {("z", 0): 1}})
    for n in range(25):
        views.commit({"t": {("b", n): 1}})
        with pytest.raises(ViewError, match="division by zero"):
            views.read("inverse")
    assert computed.count(query) <= 1 + views.time - 26  # the others have epochs of their own
    views.commit({"t": {("z", 0): -1, ("b", 0): -1}})
    views.listen(lambda: None if views.describe("of_it").error else again.set())
    views.commit({})
    assert again.wait(0) and rows(views, "inverse") == {(100,): 1} and rows(views, "of_it") == {(101,): 1}
    views.commit({"t": {("z", 0): 1}})
    again.clear()
    views.commit({"t": {("z", 0): -1}})
    assert again.wait(30) and rows(views, "of_it") == {(101,): 1}


WITHOUT_ROWS = {
    "no whole number": "select cast(coalesce(max(k), 'none') as integer) as m from t",
    "division by zero": "select 10 // count(*) filter (where n = 1) as m from t",
    "row of VALUES": "select v.m // (select count(*) from t where n = 1) as m from (values (10)) as v(m)",
}


@pytest.mark.parametrize("query", WITHOUT_ROWS.values(), ids=WITHOUT_ROWS)
def test_history_5_a_group_that_is_right_again(query: str) -> None:
    """An epoch in which it fails is an error for who reads that epoch, and nothing later sees it."""
    views = Views()
    views.table("t", NUMBERS)
    views.view("other", "select count(*) as c from t")
    views.view("m", query)
    for number in range(4):
        with pytest.raises(ViewError):
            views.read("m")
        views.commit({"t": {("10", 1): 1}})
        assert rows(views, "m") == {(10,): 1} and rows(views, "other") == {(1,): 1}
        with views.query(query) as asked:  # built now, when the table has rows
            assert rows(views, asked.name) == {(10,): 1}
        views.view(f"late{number}", query)
        assert rows(views, f"late{number}") == {(10,): 1}
        with pytest.raises(ViewError, match="has no result now: .*(is not|division|more than)"):
            views.view(f"wrong{number}", "select cast('x' || k as integer) as n from t")
            views.read(f"wrong{number}")
        assert rows(views, "m") == {(10,): 1}  # built anew with the others
        views.commit({"t": {("10", 1): -1}})
    views.commit({"t": {("10", 1): 1, ("9", 1): 1, ("9", 0): 1, ("x", 1): 1, ("x", 0): 1}})
    views.commit({"t": {("9", 1): -1, ("9", 0): -1, ("x", 1): -1, ("x", 0): -1}})
    assert [rows(views, name) for name in ("m", "late0", "late3")] == [{(10,): 1}] * 3


def test_history_5_a_row_that_comes_and_goes_within_an_epoch() -> None:
    views = Views()
    for name, held in (("t", [("a", 7)]), ("u", [("a", 0)])):
        views.table(name, NUMBERS, held)
    views.view("quotients", "select t.n // (u.n + 1) as m from t join u using (k)")
    views.view("of_it", "select sum(m) as m from quotients")
    views.commit({"t": {("b", 9): 1}, "u": {("a", 0): -1, ("a", 6): 1}})
    views.commit({"t": {("b", 9): -1}, "u": {("b", -1): 1}})  # the row of t meets that of u, and has gone
    assert rows(views, "quotients") == {(1,): 1} and rows(views, "of_it") == {(1,): 1}
    views.commit({"t": {("b", 9): 1}})
    with pytest.raises(ViewError, match="division by zero"):
        views.read("quotients")
    views.commit({"u": {("b", -1): -1}})
    assert rows(views, "quotients") == {(1,): 1} and rows(views, "of_it") == {(1,): 1}


def test_a_query_that_fails_leaves_everything_else_as_it_is() -> None:
    views = numbers()
    views.view("sums", "select k, sum(n) as n from t group by k")
    with views.query("select count(*) as c from sums") as other:
        with pytest.raises(ViewError, match="division by zero"):
            views.query("select 1 // (n - 2) as m from sums")
        failing = views.query("select 1 // (n - 7) as m from sums")
        views.commit({"t": {("b", 5): 1}})
        with pytest.raises(ViewError, match="division by zero"):
            views.read(failing.name)
        assert rows(views, "sums") == {("a", 1): 1, ("b", 7): 1} and rows(views, other.name) == {(2,): 1}
        failing.close()
        failing.close()
        assert views.queries == 1
        views.commit({"t": {("c", 5): 1}})
        assert rows(views, other.name) == {(3,): 1}
        assert [e.time for e in views.changes(other.name, 0)] == [2]
    assert views.queries == 0


def test_a_query_that_does_not_settle_later_is_ended() -> None:
    views = numbers(Limits(query_seconds=2))
    views.view("sums", "select sum(n) as n from t")
    growing = views.query("with recursive r(n) as (select n from t where n > 90 union select n + 1 from r) select n from r")
    views.commit({"t": {("c", 100): 1}})
    assert rows(views, "sums") == {(103,): 1}
    with pytest.raises(ViewError, match="took longer"):
        views.read(growing.name)
    growing.close()


def test_no_more_queries_than_the_limit() -> None:
    views = numbers(Limits(queries=1))
    with views.query("select * from t"), pytest.raises(ViewError, match="1 query runs already"):
        views.query("select * from t")
    views.query("select * from t").close()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nope from t", "nope at line 1, column 8"),
        ("select from where", "'where' at line 1, column 13: the query cannot be parsed"),
        ("select 1 as n; select 2 as n", "one query"),
        ("drop table t", "a view is a query, not DROP"),
        ("insert into t values ('a', 1)", "a view is a query, not INSERT"),
        ("copy t to 'out.csv'", "a view is a query, not COPY"),
        ("attach 'x.db'", "a view is a query"),
        ("pragma version", "a view is a query"),
        ("set threads = 1", "a view is a query"),
        ("install httpfs", "a view is a query"),
        ("select * from read_csv('/etc/passwd')", "READ_?CSV|read_csv"),
        ("select * from '/etc/passwd'", "passwd"),
        ("select getenv('HOME') as h", "no function getenv"),
        ("select ?", "parameters"),
    ],
)
def test_nothing_but_queries_is_executed(query: str, message: str) -> None:
    views = numbers()
    for add in (views.query, lambda text: views.view("v", text)):
        with pytest.raises(SqlError, match=message):
            add(query)
    assert views.queries == 0 and len(views.overview()[1]) == 1


def test_positions_are_those_of_the_script() -> None:
    with pytest.raises(SqlError, match="nope at line 3, column 6"):
        numbers().run_script("create view a as select 1 as n;\n\ncreate view b as select\n  k, nope from t".replace("\n\n", "\n"))
    for script in (
        "select 1",
        "create or replace table a (n int)",
        "drop view a restrict",
        "create temp table a (n int)",
        "create view a.b as select 1",
    ):
        with pytest.raises(SqlError, match="at line 1"):
            numbers().run_script(script)
    with pytest.raises(SqlError, match="'missing' at line 2, column 14: the query cannot be parsed"):
        numbers().run_script("create view a as\nselect * frm missing")
    for script in (
        "create view a(b) as select 1 as n",
        "create view a as",
        "create table if not exists a (n int)",
        "create table a.b (n int)",
        "create table a (n int primary key)",
        "create table a as select 1",
        "create table a (n)",
    ):
        with pytest.raises(SqlError):
            numbers().run_script(script)


def test_a_table_that_a_script_declares() -> None:
    views = Views()
    views.run_script("create table d (n int not null, price decimal(9, 2), at timestamp); -- and no more;\n")
    [result] = views.overview()[1]
    assert [(c.name, c.kind.value, c.nullable) for c in result.columns] == [
        ("n", "BIGINT", False),
        ("price", "DECIMAL", True),
        ("at", "TIMESTAMP", True),
    ]
    with pytest.raises(SchemaError):
        views.commit({"d": {(None, None, None): 1}})
    views.run_script("create table position (a int, b int)")
    views.view("v", 'with "extract"(c, d) as (from position) from "extract"')
    assert [column.name for column in views.describe("v").columns] == ["c", "d"]


def test_reads_by_conditions_equal_a_scan() -> None:
    chance = random.Random(3)
    views = Views()
    views.table("t", NUMBERS)
    for _ in range(20):
        held = dict(views.read("t").rows)
        changes = Counter((chance.choice(["a", "b", None]), chance.choice([None, *range(6)])) for _ in range(5))
        for row in chance.sample(sorted(held, key=repr), min(3, len(held))):
            changes[row] -= held[row]
        views.commit({"t": changes})
        everything = views.read("t").rows
        for _ in range(20):
            where = [
                RowCondition(0, "eq", chance.choice(["a", "b", None])),
                RowCondition(1, chance.choice(["lt", "lte", "gt", "gte"]), chance.randrange(6)),
                RowCondition(1, chance.choice(["lt", "gte"]), chance.randrange(6)),
            ]
            chosen = chance.sample(where, chance.randrange(4))
            expected = {row: n for row, n in everything if all(condition.holds(row) for condition in chosen)}
            assert dict(views.read("t", chosen).rows) == expected
    with pytest.raises(ConfigurationError, match="a condition is one of"):
        RowCondition(0, "lt", None)


def test_lists_and_structs_are_conditions_and_keys() -> None:
    views = Views()
    place = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    views.table("t", pa.schema([("at", place), ("n", pa.int64())]), [((1, 2), 7), ((1, None), 8), ((2, 0), 9), (None, 10)])

    def found(comparison: str, value: Any) -> set[Any]:
        return {row[1] for row, _ in views.read("t", [RowCondition(0, comparison, value)]).rows}

    assert (found("eq", (1, 2)), found("eq", (1, None)), found("eq", None)) == ({7}, {8}, {10})
    assert (found("gte", (1, 2)), found("lt", (1, None))) == ({7, 8, 9}, {7})  # NULL inside comes last
    views.write("t", upsert=[((1, 2), 70), ((1, None), 80)], key=["at"])
    assert rows(views, "t") == dict.fromkeys([((1, 2), 70), ((1, None), 80), ((2, 0), 9), (None, 10)], 1)


def test_a_condition_that_can_hold_for_no_row_is_refused() -> None:
    views = Views()
    kinds = {"n": pa.int64(), "x": pa.float64(), "p": pa.decimal128(8, 2), "day": pa.date32(), "at": pa.timestamp("us")}
    schema = pa.schema([*kinds.items(), ("ok", pa.bool_()), ("tags", pa.list_(pa.string())), ("text", pa.string())])
    noon = datetime.datetime(2024, 5, 1, 12)
    row = (1, 1.0, Decimal("1.50"), noon.date(), noon, True, ("a", None), "1")
    views.table("t", schema, [row])
    good = [(0, 1.0), (0, Decimal(1)), (1, 1), (2, Decimal("1.5")), (3, noon.date()), (4, noon), (5, True), (6, ("a", None))]
    for place, value in [*good, (7, "1")]:
        assert [result for result, _ in views.read("t", [RowCondition(place, "eq", value)]).rows] == [row], (place, value)
    assert views.read("t", [RowCondition(2, "gt", 2)]).rows == []
    wrong = [(0, "1"), (0, True), (1, math.nan), (1, Decimal("0.1")), (2, 0.1), (3, noon), (4, noon.date()), (5, 1), (7, b"1")]
    for place, value in [*wrong, (4, noon.replace(tzinfo=datetime.UTC)), (6, "a"), (6, (1,))]:
        for comparison in ("eq", "lt"):
            with pytest.raises(SchemaError, match=f"column '{schema.names[place]}' is [A-Z]+.* {type(value).__name__} "):
                views.read("t", [RowCondition(place, comparison, value)])
    with pytest.raises(ConfigurationError, match="no column at place 8"):
        views.read("t", [RowCondition(8, "eq", 1)])


def test_a_limit_counts_rows_as_often_as_they_are_there() -> None:
    views = Views()
    views.table("t", NUMBERS, [("a", 1)] * 3)
    assert views.read("t", limit=3)[2:] == ([(("a", 1), 3)], False)
    assert views.read("t", limit=2)[2:] == ([(("a", 1), 2)], True)
    assert views.read("t", limit=0)[2:] == ([], True)


def test_memory_is_bounded_after_many_epochs() -> None:
    views = numbers(Limits(epochs=10, changes=50))
    views.view("sums", "select k, sum(n) as n from t group by k")
    views.view("joined", "select t.k, t.n, sums.n as total from t join sums on t.k = sums.k")
    query = views.query("select count(*) as c, max(total) as m from joined")
    sizes = []
    for epoch in range(300):
        if epoch % 10 == 0:
            views.query("select t.k from t join joined on t.n = joined.n").close()
        views.commit({"t": {("c", epoch % 7): 1, **({("c", (epoch - 1) % 7): -1} if epoch else {})}})
        if epoch % 30 == 29:
            gc.collect()
            sizes.append(sys.getallocatedblocks())
    assert rows(views, query.name) == {(3, 5): 1}
    assert max(sizes[3:]) <= max(sizes[:3]) + 300, sizes
    assert len(views.changes("sums", 290)) == 10
    with pytest.raises(CompactedError, match="after epoch 289 are not remembered"):
        views.changes("sums", 289)
    assert views.changes("t", 300) == []
    with pytest.raises(CompactedError):
        views.changes("t", 301)


def test_readers_see_complete_epochs_while_others_commit() -> None:
    views = Views()
    views.table("t", NUMBERS, [("a", 0)])
    views.view("one", "select k, n from t")
    views.view("two", "select o.n, t.n as m from one o join t on o.k = t.k")
    wrong, over = [], threading.Event()

    def read() -> None:
        while not over.is_set():
            answer = views.read("two")
            if answer.rows != [((answer.time, answer.time), 1)]:
                wrong.append(answer)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(100):
        views.commit({"t": {("a", n): -1, ("a", n + 1): 1}})
    over.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_listeners_are_called_until_they_end() -> None:
    views, called = numbers(), []
    end = views.listen(lambda: called.append(views.time))
    views.commit({"t": {("a", 4): 1}})
    end()
    views.commit({"t": {("a", 4): 1}})
    assert set(called) == {1}


def test_what_ends_a_worker_without_a_view_to_blame_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    views = numbers()
    views.view("sums", "select sum(n) as n from t")
    monkeypatch.setattr(timely.Worker, "step_while", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        views.commit({"t": {("c", 1): 1}})
    monkeypatch.undo()
    assert "ZeroDivisionError" in (views.broken or "")
    with pytest.raises(ViewError, match="still read at epoch 0"):
        views.commit({})
    assert rows(views, "t") == {("a", 1): 1, ("b", 2): 1}


def test_a_refusal_names_a_place_in_the_query_and_no_line_of_the_server() -> None:
    views = Views()
    views.table("orders", pa.schema([("price", pa.int64())]))
    with pytest.raises(SqlError, match="orders has price$"):
        views.view("wrong", "select missing from orders")
