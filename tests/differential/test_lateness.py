"""Tables with a lateness: what is in time gives what DuckDB gives for it, and what no change can reach is forgotten."""

from __future__ import annotations

import datetime
import functools
import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import RESTART, Epochs, plain
from timely import ConfigurationError, GraphError, SchemaError, SqlError
from timely import differential as dd
from timely.server import Views

NOON = datetime.datetime(2024, 1, 31, 12)
MINUTE = datetime.timedelta(minutes=1)
LATENESS = {"clicks": 5, "views": 12}
PLAIN = pa.schema([("who", pa.int64()), pa.field("ts", pa.timestamp("us"), nullable=False), ("n", pa.int64())])
EPOCHS = 9


def late_by(minutes: int) -> pa.Schema:
    return PLAIN.set(1, PLAIN.field(1).with_metadata({"timely.lateness": f"{minutes} minutes"}))


def in_time(epochs: list[list[tuple[Any, int]]], lateness: int) -> tuple[list[list[tuple[Any, int]]], list[Any], Counter[Any]]:
    """Return the changes that are in time, the watermark behind each epoch, and the late ones."""
    watermark: Any = None
    accepted, watermarks, late = [], [], Counter[Any]()
    for changes in epochs:
        net = Counter[Any]()
        for row, diff in changes:
            net[row] += diff
        accepted.append([(row, diff) for row, diff in net.items() if diff and (watermark is None or row[1] >= watermark)])
        for row, diff in net.items():
            if watermark is not None and row[1] < watermark:
                late[plain(row)] += diff
        moments = [row[1] - lateness * MINUTE for row, diff in net.items() if diff > 0]
        watermark = max([*moments, *([] if watermark is None else [watermark])], default=None)
        watermarks.append(watermark)
    return accepted, watermarks, Counter({row: count for row, count in late.items() if count})


@attrs.frozen
class Stream:
    """Changes of tables as they come, those in time, and behind each epoch the least watermark."""

    coming: Epochs
    accepted: Epochs
    watermarks: list[Any]
    late: Counter[Any]
    """Of clicks."""


@functools.cache
def stream(seed: int) -> Stream:
    """Return random changes, whose moments go on, and some of which are late: rows that come, and rows that go."""
    source = random.Random(seed)
    coming: dict[str, list[list[tuple[Any, int]]]] = {}
    for name in LATENESS:
        held: list[Any] = []
        coming[name] = []
        for epoch in range(EPOCHS):
            gone = [held.pop(source.randrange(len(held))) for _ in range(len(held) // 4)]
            come = [
                (source.randint(1, 3), NOON + (epoch * 9 + source.randint(-20, 5)) * MINUTE, source.randint(0, 9))
                for _ in range(7)
            ]
            held += come
            coming[name].append([*((row, -1) for row in gone), *((row, 1) for row in come)])
    sides = {name: in_time(coming[name], LATENESS[name]) for name in LATENESS}
    both = (epochs for epochs in (coming, {name: sides[name][0] for name in sides}))
    raw, accepted = ([{name: epochs[name][time] for name in LATENESS} for time in range(EPOCHS)] for epochs in both)
    schemas = {name: late_by(minutes) for name, minutes in LATENESS.items()}
    return Stream(
        Epochs(schemas, raw),
        Epochs(dict.fromkeys(LATENESS, PLAIN), accepted),
        [min(pair) for pair in zip(*(sides[name][1] for name in LATENESS), strict=True)],
        sides["clicks"][2],
    )


TEN = "interval 10 minutes"
EMIT = " emit on window close"
QUERIES = [
    f"select window_start, window_end, who, count(*), sum(n), max(n) from tumble(clicks, ts, {TEN}) group by all",
    f"select window_start, window_end, count(distinct n) from hop(clicks, ts, interval 5 minutes, {TEN}) group by all",
    "select distinct date_trunc('hour', ts) as s, date_trunc('hour', ts) + interval 1 hour as window_end, who from clicks",
    f"select * from (select *, row_number() over (partition by window_start, window_end, who order by n desc, ts) as place"
    f" from tumble(clicks, ts, {TEN})) where place <= 2",
    "select window_end, sum(c) from"
    f" (select window_end, who, count(*) as c from tumble(clicks, ts, {TEN}) group by all) group by window_end",
    f"select a.window_end, a.who, b.n from tumble(clicks, ts, {TEN}) a join tumble(views, ts, {TEN}) b"
    " on a.window_end = b.window_end and a.who = b.who",
    f"select a.window_end, a.who, b.n from tumble(clicks, ts, {TEN}) a left join tumble(views, ts, {TEN}) b"
    " on a.window_end = b.window_end and a.who = b.who",
    f"select window_end, who from tumble(clicks, ts, {TEN}) union select window_end, who from tumble(views, ts, {TEN})",
    f"""select e + {TEN} as window_end, sum(c) from (select unnest(generate_series(w, w + {TEN}, {TEN})) as e, c
        from (select time_bucket({TEN}, ts) as w, count(*) as c from clicks group by all)) group by e""",
]
"""Each has a column window_end; of the others below no rows end."""
UNBOUNDED = [
    "select who, count(*), max(ts) from clicks group by who",
    f"select c.who, v.n, window_start from tumble(clicks, ts, {TEN}) c join views v using (who)",
    "select who, n from clicks where ts > (select max(ts) from clicks) - interval 20 minutes",
    f"""with c as (select time_bucket({TEN}, ts) as w, count(*) as c from clicks group by all),
        v as (select time_bucket({TEN}, ts) as w, count(*) as v from views group by all)
        select 'clicks', sum(c.c) from c join c as d using (w) union all select 'both', sum(c * v) from c join v using (w)""",
    f"""select e, count(*) from (select unnest(generate_series(ts, ts + {TEN}, {TEN})) as e, unnest([1, 2, 3]) as f from clicks)
        group by e""",
    "select n * interval 1 minute as m, count(*) from clicks group by all",
]


def on_duckdb(query: str) -> str:
    """Return a query with its windows as DuckDB has them."""
    for name in LATENESS:
        start = "time_bucket(interval 10 minutes, ts)"
        rows = f"(select *, {start} as window_start, {start} + {TEN} as window_end from {name})"
        query = query.replace(f"tumble({name}, ts, {TEN})", rows)
        starts = "time_bucket(interval 5 minutes, ts) - unnest([0, 5]) * interval 1 minute"
        rows = f"(select *, {starts} as window_start, {starts} + {TEN} as window_end from {name})"
        query = query.replace(f"hop({name}, ts, interval 5 minutes, {TEN})", rows)
    return query


@pytest.mark.parametrize("query", [*QUERIES, *UNBOUNDED])
def test_what_is_in_time_gives_what_duckdb_gives_for_it(query: str, tmp_path: Path) -> None:
    one = stream(1)
    expected = one.accepted.expected(on_duckdb(query))
    assert one.coming.views(query, lambda time: time % 2 == 1) == expected
    assert one.coming.views_on_workers(query) == expected
    assert one.coming.views_after_restart(query, tmp_path) == expected[RESTART:]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_come_out_once_when_their_window_closes(query: str, tmp_path: Path) -> None:
    one = stream(1)
    rows = one.accepted.rows_in_duckdb(f"select *, window_end as closes from ({on_duckdb(query)})")
    whole = one.watermarks if "views" in query else in_time([each["clicks"] for each in one.coming.changes], 5)[1]
    expected = [
        Counter(plain(row[:-1]) for row in at_epoch if watermark is not None and row[-1] <= watermark)
        for at_epoch, watermark in zip(rows, whole, strict=True)
    ]
    final = f"{query} emit on window close;"
    assert one.coming.views(final) == expected
    assert one.coming.views_on_workers(final) == expected
    assert one.coming.views_after_restart(final, tmp_path) == expected[RESTART:]
    assert expected[-1]


def test_late_changes_are_rows_of_their_own() -> None:
    for seed in (1, 2):
        held = stream(seed).coming.held(lambda clicks, views: clicks.late)
        assert held[-1] == stream(seed).late
        assert any(count < 0 for count in held[-1].values())


# -- bounded state -----------------------------------------------------------------------------------------------------


def growth(query: str, schema: pa.Schema, epochs: int = 300) -> int:
    """Return how many objects more there are after so many epochs than after a third, with clicks and views each minute."""
    sizes = []
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema) for name in LATENESS}
            probe = dd.sql(scope, query, **tables).collection.probe()
        for epoch in range(1, epochs + 1):
            for table in tables.values():
                for number in range(4):
                    table.session.insert((number, NOON + epoch * MINUTE, 1000 + epoch))
                table.session.advance_to(epoch)
            worker.step_while(partial(probe.less_than, epoch))
            if epoch in (epochs // 3, epochs):
                gc.collect()
                sizes.append(sys.getallocatedblocks())
        for table in tables.values():
            table.session.close()
        worker.run()
    return sizes[1] - sizes[0]


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[3], QUERIES[5], f"{QUERIES[0]} emit on window close"])
def test_state_is_bounded(query: str) -> None:
    bounded = growth(query, late_by(5))
    assert bounded < 500
    assert "emit" in query or growth(query, PLAIN) > 5 * bounded


@pytest.mark.soak
@pytest.mark.parametrize("query", QUERIES)
def test_state_is_bounded_for_days(query: str) -> None:
    assert growth(query, late_by(5), 10_000) < 1000


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda scope: dd.table(scope, PLAIN, lateness={"at": "1 hour"}), SchemaError, "names no column; there are who, ts, n"),
        (lambda scope: dd.table(scope, PLAIN, lateness=cast(Any, "1 hour")), SchemaError, "is no dictionary"),
        (lambda scope: dd.table(scope, PLAIN, lateness={"ts": 5}), GraphError, "minutes"),
        (lambda scope: dd.table(scope, PLAIN, lateness={"ts": "1 month"}), GraphError, "months"),
        (lambda scope: dd.table(scope, PLAIN, lateness={"ts": "1 hour", "n": 3}), SchemaError, "one column has a lateness"),
        (lambda scope: dd.table(scope, "day date", lateness={"day": "1 day"}), GraphError, "day, a DATE"),
        (lambda scope: dd.table(scope, PLAIN).late, GraphError, "has no lateness"),
        (lambda scope: dd.sql(scope, UNBOUNDED[0] + EMIT, clicks=dd.table(scope, late_by(5))), SqlError, "served view in WITH"),
        (lambda scope: dd.sql(scope, QUERIES[0] + EMIT, clicks=dd.table(scope, PLAIN)), SqlError, "needs rows that end"),
        (lambda scope: dd.sql(scope, f"values (1) {EMIT}"), SqlError, "cannot be parsed"),
    ],
)
@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_what_has_no_lateness_is_refused(build: Any, error: type[Exception], message: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises(error, match=message):
        build(scope)


def test_methods_forget_too() -> None:
    def windows(clicks: Any, views: Any) -> Any:
        return clicks.where("who > 1").sliding("ts", "10 minutes", "5 minutes").group_by("window_start").agg("count(*) as c")

    query = f"select window_start, count(*) from hop(clicks, ts, interval 5 minutes, {TEN}) where who > 1 group by all"
    assert stream(1).coming.held(windows) == stream(1).accepted.expected(on_duckdb(query))
    assert stream(1).coming.held_on_workers(windows) == stream(1).accepted.expected(on_duckdb(query))


BACK = ["at::varchar", "at::boolean", "(at || '0')::bigint", "-at", "5 - at", "abs(at)", "at * -1", "at % 9"]


@pytest.mark.parametrize("key", [*BACK, "at + NULL", "at // NULL", "at * interval '-1 day'"])
def test_what_may_go_back_is_not_forgotten(key: str) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            ticks = dd.table(scope, "at bigint", lateness={"at": 1})
            counts = dd.sql(scope, f"select {key} as k, count(*) as n from ticks group by k", ticks=ticks)
            sums, every = counts.group_by().agg("sum(n) as n").output(), ticks.group_by().agg("count(*) as n").output()
        for at in range(-12, 13):
            ticks.session.insert((at,))
            ticks.session.advance_to(at + 13)
            assert sums.at(at + 12) == every.at(at + 12) == {(at + 13,): 1}
        ticks.session.close()


SERVED = "create table clicks (who bigint, ts timestamp lateness interval '5 minutes', n bigint)"


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[0] + EMIT])
def test_a_server_has_what_is_in_time(query: str, tmp_path: Path) -> None:
    changes = [epoch["clicks"] for epoch in stream(1).coming.changes]
    expected = stream(1).coming.held(lambda clicks, views: dd.sql(clicks.scope, query, clicks=clicks))
    script = f"{SERVED}; create view v as {query}"
    for first, beyond in ((0, 4), (4, EPOCHS)):
        with Views(data=tmp_path) as views:
            views.apply_script(script)
            for epoch in range(first, beyond):
                views.commit({"clicks": changes[epoch]})
                assert Counter({plain(row): count for row, count in views.read("v").rows}) == expected[epoch]
            late = Counter[Any]()
            for row, count in views.read("clicks_late").rows:
                late[plain(row[:-1])] += count * row[-1]
            _, watermarks, expected_late = in_time(changes[:beyond], 5)
            assert Counter({row: count for row, count in late.items() if count}) == expected_late
            assert views.read("clicks_watermark").rows == [((watermarks[-1],), 1)]
            assert views.late == {"clicks": sum(count for _, count in views.read("clicks_late").rows)}


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (pa.int64(), -(1 << 63)),
        (pa.int8(), -128),
        (pa.uint16(), 0),
        (pa.timestamp("us"), datetime.datetime.min),
        (pa.timestamp("us", "UTC"), datetime.datetime.min.replace(tzinfo=datetime.UTC)),
    ],
)
def test_a_watermark_is_no_less_than_the_least_moment(kind: pa.DataType, first: Any) -> None:
    length = "5" if pa.types.is_integer(kind) else "5 minutes"
    schema = pa.schema([pa.field("at", kind, False, {"timely.lateness": length})])
    with Views() as views:
        views.table("ticks", schema, [(first,)])
        views.write("ticks", insert=[(first,)])
        assert views.read("ticks").rows == [((first,), 2)] and views.read("ticks_late").rows == []
        assert views.read("ticks_watermark").rows == [((first,), 1)]
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            ticks = dd.table(scope, schema)
            recent, _ = ticks.keep_recent("at", int(length) if length == "5" else length)
            outputs = [ticks.output(), recent.output()]
        for time in range(2):
            ticks.session.insert((first,))
            ticks.session.advance_to(time + 1)
        ticks.session.close()
        assert [output.at(1) for output in outputs] == [{(first,): 2}] * 2


def test_what_belongs_to_a_lateness_is_not_changed_otherwise() -> None:
    with Views() as views:
        views.run_script(SERVED)
        views.table("ticks", pa.schema([pa.field("at", pa.int64(), False, {"timely.lateness": "5"})]), [(3,), (9,)])
        assert views.read("ticks_watermark").rows == [((4,), 1)]
        views.write("ticks", insert=[(1,), (4,)], delete=[(3,)])
        assert views.read("ticks").rows == [((3,), 1), ((9,), 1), ((4,), 1)]
        assert sorted(views.read("ticks_late").rows) == [((1, 1), 1), ((3, -1), 1)]
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: views.write("clicks_late", insert=[(1, NOON, 1, 1)]), "nothing else changes it"),
            (lambda: views.write("ticks", upsert=[(8,)], key=["at"]), "ticks has a lateness: rows below its watermark stay"),
            (lambda: views.drop("clicks_watermark"), "goes with a table that has a lateness"),
            (lambda: views.run_script(SERVED.replace("5", "6")), "already, with another lateness"),
            (lambda: views.run_script("create table clicks_late (n bigint)"), "already, with other columns"),
            (lambda: views.run_script("create table u_late (n bigint); create table u (n bigint lateness 5)"), "u_late already"),
        ]
        for change, message in refused:
            with pytest.raises(ConfigurationError, match=message):
                change()
        views.drop("clicks")
        assert {each.name for each in views.overview()[1]} == {"ticks", "ticks_late", "ticks_watermark"}
