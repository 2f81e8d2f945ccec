"""Tables and views that are made, replaced and dropped while others run: at one epoch, with the difference for who follows.

White box: only a computation that is held up takes long enough.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import queue
import random
import shutil
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.server.client import Events, ask
from timely.errors import ConfigurationError, OutputError, SqlError, ViewError
from timely.server import InputWatcher, Limits, Views, ViewServer, WatchedInput
from timely.server.computation import Computation

SCRIPT = """create table t (k varchar, n bigint);
create view sums as select k, sum(n) as n from t group by k;
create view big as select k, n from sums where n > 1;
create view most as select max(n) as n from big;"""


def rows(views: Views, name: str) -> Counter[Any]:
    return Counter(dict(views.read(name).rows))


def started(limits: Limits | None = None) -> Views:
    views = Views(limits)
    views.run_script(SCRIPT)
    views.write("t", insert=[("a", 1), ("a", 2), ("b", 1)])
    return views


def test_a_replaced_view_and_its_readers_change_at_one_epoch() -> None:
    views = started()
    epoch = views.run_script("create or replace view sums as select k, 10 * sum(n) as n from t group by k")
    assert epoch == views.time == 2
    assert views.changes("sums", 1) == [(2, [(("a", 3), -1), (("b", 1), -1), (("a", 30), 1), (("b", 10), 1)])]
    assert views.changes("big", 1) == [(2, [(("a", 3), -1), (("a", 30), 1), (("b", 10), 1)])]
    assert views.changes("most", 1) == [(2, [((3,), -1), ((30,), 1)])]
    assert views.changes("t", 1) == []
    views.write("t", insert=[("b", 4)])
    assert rows(views, "most") == {(50,): 1}
    views.view("sums", "select k, sum(n) as n from t group by k", replace=True)
    assert rows(views, "most") == {(5,): 1} and views.changes("most", 3) == [(4, [((50,), -1), ((5,), 1)])]


def test_all_statements_of_a_script_hold_from_one_epoch_on_or_none() -> None:
    views = started()
    epoch = views.run_script(
        "create view late as select n from most; create or replace view most as select min(n) as n from big;"
    )
    assert epoch == 2 and rows(views, "late") == {(3,): 1}
    with pytest.raises(SqlError, match=r"view most: n .*there is no such column|view big"):
        views.run_script("create view more as select 1 as one; create or replace view sums as select k from t group by k")
    with pytest.raises(OutputError):
        views.read("more")
    assert views.time == epoch and [each.name for each in views.overview()[1]] == ["t", "sums", "big", "most", "late"]


def test_what_others_read_is_not_dropped_unless_they_are_too() -> None:
    views = started()
    with pytest.raises(ConfigurationError, match="sums is read by big, most: drop these first, or write CASCADE"):
        views.run_script("drop view sums")
    with pytest.raises(ConfigurationError, match="t is a table: write DROP TABLE"):
        views.run_script("drop view t cascade")
    with pytest.raises(OutputError, match="there is no table or view nope: there are t, sums"):
        views.drop("nope")
    query = views.query("select count(*) as n from big")
    views.run_script("drop view most; drop view big cascade;")
    assert [each.name for each in views.overview()[1]] == ["t", "sums"]
    with pytest.raises(ViewError, match="big, which it reads, was dropped"):
        views.read(query.name)
    views.run_script("drop table t cascade; create table t (k varchar); create view big as select k from t")
    views.write("t", insert=[("z",)])
    assert rows(views, "big") == {("z",): 1}
    with pytest.raises(OutputError):
        views.read("sums")


def test_there_are_no_more_tables_and_views_than_the_limit() -> None:
    views = started(Limits(definitions=5))
    with pytest.raises(ConfigurationError, match="more than 5 tables and views: drop some first"):
        views.run_script("create view a as select 1 as n; create view b as select 2 as n")
    views.run_script("drop view most; create view a as select 1 as n; create view b as select 2 as n")
    assert len(views.overview()[1]) == 5


@pytest.mark.parametrize(
    "query", ["select k, n from big", "select k, n from sums", "select k, n from t where n < (select n from most)"]
)
def test_a_view_cannot_come_to_read_itself(query: str) -> None:
    with pytest.raises(SqlError, match="view sums cannot read (big|sums|most), which reads sums"):
        started().view("sums", query, replace=True)


def test_a_table_that_follows_files_is_not_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("k,n\na,1\n")
    views = Views()
    InputWatcher(views, [WatchedInput("t", path)])
    for script in ("drop table t", "drop table t; create view t as select 1 as n"):
        with pytest.raises(ConfigurationError, match="table t follows files, and is not dropped"):
            views.run_script(script)


@pytest.mark.parametrize("columns", ["k varchar, n bigint", "k bigint"])
def test_a_table_that_is_dropped_and_made_again_is_empty(columns: str, tmp_path: Path) -> None:
    """In one request too, where a restart reads the table from a checkpoint, and where it reads the request from the log."""
    with Views(data=tmp_path / "data") as views:
        views.run_script(SCRIPT)
        views.write("t", insert=[("a", 1), ("b", 2)])
    with Views(data=tmp_path / "data") as views:
        views.run_script(f"drop table t cascade; create table t ({columns}); create view v as select k from t")
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        assert rows(views, "t") == rows(views, "v") == {}
    for place in ("data", "crashed"):
        with Views(data=tmp_path / place) as again:
            assert rows(again, "t") == rows(again, "v") == {}
            assert [column.name for column in again.describe("t").columns] == [each.split()[0] for each in columns.split(", ")]


QUERIES = (
    "select k, n from {}",
    "select k, sum(n) as n from {} group by k",
    "select k, max(n) as n from {} group by k",
    "select k, n + 1 as n from {} where n <> 2",
    "select k, 10 // (n - 3) as n from {}",
    "select x.k, x.n from {} x join t on x.k = t.k",
    "select 'z' as k, count(*) as n from {}",
)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_random_definitions_are_what_views_from_scratch_have(seed: int, durable: bool, tmp_path: Path) -> None:
    """Who follows a view from its beginning has its rows, also after restarts."""
    chance = random.Random(seed)
    limits = Limits(replay_seconds=0.0 if seed else 5.0)  # with a checkpoint after each epoch, or at the end
    views = Views(limits, tmp_path / "data" if durable else None)
    views.table("t", "k string, n long", [("a", 1)])
    definitions: dict[str, str] = {}
    held: dict[str, tuple[int, Any, Counter[Any]]] = {}  # up to which epoch, with which columns, and which rows a client has
    failed: set[str] = set()
    for _ in range(25):
        kind, name = chance.random(), chance.choice("uvw")
        if kind < 0.4:
            row = (chance.choice("abc"), chance.randrange(4))
            views.commit({"t": [(row, 1)] if chance.random() < 0.6 or not rows(views, "t")[row] else [(row, -1)]})
        elif kind < 0.9:
            earlier = ["t", *(other for other in definitions if other < name)]
            definitions[name] = chance.choice(QUERIES).format(chance.choice(earlier))
            views.view(name, definitions[name], replace=name in views_of(views))
        elif durable:
            views.close()
            views = Views(limits, tmp_path / "data")
        fresh = Views()
        fresh.table("t", "k string, n long", rows(views, "t").elements())
        for each in sorted(definitions):
            try:
                fresh.view(each, definitions[each])
                expected: Counter[Any] | None = rows(fresh, each)
            except (ViewError, SqlError):
                expected = None
            if expected is None:
                failed.add(each)
                with pytest.raises(ViewError):
                    views.read(each)
                continue
            assert rows(views, each) == expected, (each, definitions)
            columns = views.describe(each).columns
            since, before, client = held.get(each, (views.time, columns, expected.copy()))
            if before == columns and each not in failed:  # else the client may have to begin anew
                for epoch in views.changes(each, since):
                    for row, diff in epoch.changes:
                        client[row] += diff
                assert Counter({row: count for row, count in client.items() if count}) == expected, (each, definitions)
            held[each] = views.time, columns, expected.copy()
            failed.discard(each)
    views.close()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_writes_go_on_while_definitions_are_built(
    seed: int, durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that defines is held up in its first computations, until others have written."""
    chance, step_while = random.Random(seed), timely.Worker.step_while
    events, released, computations = queue.Queue[str](), queue.Queue[None](), itertools.count()

    def hold_up(*arguments: Any) -> None:
        if threading.current_thread().name == "definer" and next(computations) < len(new):  # not of those that hold up writes
            events.put("held up")
            released.get()
        step_while(*arguments)

    def define() -> None:
        try:
            views.run_script(script)
            chain.update(new)
        except ViewError as error:  # w reads what fails
            assert "which it reads, has no result now" in str(error)
        finally:
            events.put("over")

    monkeypatch.setattr(timely.Worker, "step_while", hold_up)
    chain = {"u": chance.choice(QUERIES).format("t"), "v": chance.choice(QUERIES).format("u")}
    new = {"v": chance.choice(QUERIES).format("u"), "w": "select v.k, v.n, u.n as m from v join u on v.k = u.k"}
    with Views(data=tmp_path / "data" if durable else None) as views:
        views.table("t", "k string, n long", [("a", 1), ("b", 2)])
        for name, query in chain.items():
            views.view(name, query)
        before, columns, followed = views.time, views.describe("v").columns, seen(views, "v")
        script = "".join(f"create or replace view {name} as {query};" for name, query in new.items())
        definer = threading.Thread(target=define, name="definer")
        definer.start()
        while events.get() == "held up":
            for _ in range(chance.randrange(30)):
                row = (chance.choice("abc"), chance.randrange(4))
                views.commit({"t": [(row, -1 if rows(views, "t")[row] and chance.random() < 0.6 else 1)]})
            released.put(None)
        definer.join()
        views.commit({"t": [(("d", 5), 1)]})
        fresh = Views()
        fresh.table("t", "k string, n long", rows(views, "t").elements())
        for name, query in chain.items():
            with contextlib.suppress(ViewError):
                fresh.view(name, query)
        for name in ("u", "v", "w"):
            assert seen(views, name) == seen(fresh, name), (name, script)
        if columns == views.describe("v").columns and followed is not None and seen(views, "v") is not None:
            together = Counter(followed)
            for epoch in views.changes("v", before):
                together.update(dict(epoch.changes))
            assert {row: count for row, count in together.items() if count} == seen(views, "v")


def seen(views: Views, name: str) -> dict[Any, int] | None:
    """Return what is read, or ``None`` where there is no result."""
    try:
        return dict(views.read(name).rows)
    except (ViewError, OutputError):
        return None


def views_of(views: Views) -> list[str]:
    return [each.name for each in views.overview()[1] if each.kind == "view"]


def test_over_http_followers_get_the_difference_and_learn_what_was_dropped() -> None:
    views = started(limits=Limits(query_seconds=2))
    with ViewServer(views, writable=True) as server, Events(server.port, "/views/sums/changes") as events:
        assert len(events.next().data["rows"]) == 2
        answer = ask(server.port, "/script", "POST", "create or replace view sums as select k, sum(n) as n from t group by k, n")
        assert answer.content == {"time": 2}
        assert events.next().data == {
            "time": 2,
            "changes": [{"count": -1, "row": {"k": "a", "n": 3}}, *({"count": 1, "row": {"k": "a", "n": n}} for n in (1, 2))],
        }
        answer = ask(server.port, "/script", "POST", {"sql": "create or replace view sums as select n, k, 1 as one from t"})
        dropped = events.next()
        assert dropped.name == "dropped" and "other columns" in dropped.data["reason"]
        with Events(server.port, "/views/sums/changes", Last_Event_ID=f"{views.id}-2") as again:
            assert [again.next().name for _ in range(2)] == ["reset", "snapshot"]
            refused = ask(server.port, "/script", "POST", "drop view sums")
            assert refused.status == 400 and "is read by big, most" in refused.content["error"]
            assert ask(server.port, "/script", "POST", "drop view sums cascade").status == 200
            end = again.rest()
            assert [each.name for each in end] == ["dropped"] and "sums was dropped" in end[0].data["reason"]
        wrong = ask(server.port, "/script", "POST", "create view v as\nselect nope from t")
        assert wrong.status == 400 and (wrong.content["line"], wrong.content["column"]) == (2, 8)
        assert ask(server.port, "/script", "POST", "select 1").status == 400
        long = ask(server.port, "/script", "POST", "create view v as select 1 as n" + " " * 20_000)
        assert long.status == 400 and "20000 at most" in long.content["error"]
        loop = "with recursive r(n) as (select n from {} where n = 1 union select n + 1 from r) select n from r"
        for script in (
            f"create view loop as {loop.format('t')}",
            f"create view first as select n from t; create view later as {loop.format('first')}",
            "create view halves as select 1 // (n - 1) as n from t",
            "create table u (k varchar); create view w as select k from u; create view halves as select 1 // (n - 1) as m from t",
        ):
            assert ask(server.port, "/script", "POST", script).status == 503, script
        names = [each["name"] for each in ask(server.port, "/views").content["views"]]
        assert names == ["t"]
        later = "create table u (k varchar); create view some as select t.k from t, u"
        assert ask(server.port, "/script", "POST", later).status == 200
    with ViewServer(views) as server:
        assert ask(server.port, "/script", "POST", "drop table t cascade").status == 403


def test_a_build_that_takes_long_remembers_no_more_than_there_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    views, begun, goes_on, advance = Views(Limits(epochs=10)), threading.Event(), threading.Event(), Computation.advance
    views.table("t", "k string, n long", [("a", 1)])
    builder = threading.Thread(target=views.view, args=("late", "select k, sum(n) as n from t group by k"))

    def held(self: Computation, *arguments: Any) -> Any:
        if threading.current_thread() is builder:
            begun.set()
            goes_on.wait()
        return advance(self, *arguments)

    def change(times: int) -> int:
        for number in range(times):
            views.commit({"t": {("b", number % 3): 1}})
            views.commit({"t": {("b", number % 3): -1}})
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    monkeypatch.setattr(Computation, "advance", held)
    builder.start()
    begun.wait()
    tracemalloc.start()
    before = change(30)
    assert change(300) - before < 50_000
    tracemalloc.stop()
    views.commit({"t": {("b", 7): 1}})
    goes_on.set()
    builder.join()
    assert sorted(views.read("late").rows) == [(("a", 1), 1), (("b", 7), 1)]


def test_json_uuid_float_and_maps_go_from_view_to_view() -> None:
    views = started()
    parts = "json_object('n', n) as j, n::float / 3 as f, md5(k)::uuid as u, map {k: n} as m"
    views.run_script(f"create view made as select k, n, {parts} from t")
    query = "select j ->> 'n' as n, f + 0.1 as f, u = '0CC175B9C0F1B6A831C399E269772661' as same, m['a'] as a from"
    views.run_script(f"create view parts as {query} made")
    views.run_script(f"create view whole as {query} (select k, n, {parts} from t)")
    assert rows(views, "parts") == rows(views, "whole")
    for column in ("j json", "u uuid[]", "m map(varchar, json)", "s struct(j json)"):
        with pytest.raises(SqlError, match="declare VARCHAR, and cast"):
            views.run_script(f"create table other ({column})")
