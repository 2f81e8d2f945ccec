"""Windows of time: what DuckDB makes of the same rows, at every epoch; what is late; on workers, and after a checkpoint."""

from __future__ import annotations

import datetime
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import Tables, typed
from timely import GraphError, OperatorError, SqlError
from timely import differential as dd
from timely.testing import differential
from timely.testing.differential import small_columns, tiny_memory

pytest.importorskip("duckdb")

CLICKS = pa.schema(
    [("user", pa.string()), ("m", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("n", pa.int64())]
)
START = datetime.datetime(2023, 12, 31, 22)


def click(source: random.Random) -> Any:
    """Return a row, of one of two users with one CRC: rows of both are held together."""
    m = START + datetime.timedelta(minutes=source.randint(0, 400), microseconds=source.randint(0, 1))
    user, day = source.choice(["plumless", "buckeroo"]), (m + datetime.timedelta(source.randint(0, 90))).date()
    values = (user, m, m.replace(tzinfo=datetime.UTC), day)
    return tuple(None if source.random() < 0.1 else value for value in (*values, source.randint(-30, 30)))


TABLES = Tables({"clicks": CLICKS}, {"clicks": click})
MANY_CLICKS = Tables({"clicks": CLICKS}, {"clicks": click}, first=60)

SLIDING = """
    select c.*, w, w + interval '{size}' from clicks c, generate_series(-9, 0) s(i),
    lateral (select time_bucket(interval '{step}', m) + i * interval '{step}' as w)
    where w + interval '{size}' > m
"""
SESSIONS = """
    with marked as (
        select *, {at} - lag({at}) over p as passed from clicks where {at} is not null
        window p as (partition by {by} order by {at})
    ),
    numbered as (
        select *, sum(case when passed <= {gap} then 0 else 1 end)
            over (partition by {by} order by {at} rows unbounded preceding) as s
        from marked
    )
    select "user", m, z, d, n, min({at}) over g, max({at}) over g + {gap} from numbered window g as (partition by {by}, s)
"""
WINDOWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tumbling": (
        lambda clicks: clicks.tumbling("m", "10 minutes"),
        "select *, time_bucket(interval '10 minutes', m) as w, w + interval '10 minutes' from clicks where m is not null",
    ),
    "tumbling by a timedelta": (
        lambda clicks: clicks.tumbling("m", datetime.timedelta(hours=7)),
        "select *, time_bucket(interval '7 hours', m) as w, w + interval '7 hours' from clicks where m is not null",
    ),
    "tumbling from an origin": (
        lambda clicks: clicks.tumbling("m", "1 hour", origin=START + datetime.timedelta(minutes=25)),
        "select *, time_bucket(interval '1 hour', m, timestamp '2023-12-31 22:25:00') as w, w + interval '1 hour' from clicks"
        " where m is not null",
    ),
    "tumbling by months": (
        lambda clicks: clicks.tumbling("d", "1 month"),
        "select *, date_trunc('month', d) as w, w + interval '1 month' from clicks where d is not null",
    ),
    "tumbling of instants": (
        lambda clicks: clicks.tumbling("z", "1 day"),
        "select *, time_bucket(interval '1 day', z) as w, w + interval '1 day' from clicks where z is not null",
    ),
    "tumbling of numbers": (
        lambda clicks: clicks.tumbling("n", 7),
        "select *, n - ((n % 7) + 7) % 7 as w, w + 7 from clicks where n is not null",
    ),
    "tumbling counted": (
        lambda clicks: clicks.tumbling("m", "30 minutes").group_by("window_start", "user").agg("count(*) as n"),
        "select time_bucket(interval '30 minutes', m), \"user\", count(*) from clicks where m is not null group by all",
    ),
    "sliding": (lambda clicks: clicks.sliding("m", "1 hour", "10 minutes"), SLIDING.format(size="1 hour", step="10 minutes")),
    "sliding with gaps": (
        lambda clicks: clicks.sliding("m", "10 minutes", "30 minutes"),
        SLIDING.format(size="10 minutes", step="30 minutes"),
    ),
    "sliding unevenly": (
        lambda clicks: clicks.sliding("m", "35 minutes", "15 minutes"),
        SLIDING.format(size="35 minutes", step="15 minutes"),
    ),
    "sessions": (
        lambda clicks: clicks.sessions("m", gap="30 minutes", by=["user"]),
        SESSIONS.format(at="m", by='"user"', gap="interval '30 minutes'"),
    ),
    "sessions of all": (lambda clicks: clicks.sessions("n", gap=3), SESSIONS.format(at="n", by="1", gap="3")),
    "sessions of instants": (
        lambda clicks: clicks.sessions("z", gap="45 minutes", by="user"),
        SESSIONS.format(at="z", by='"user"', gap="interval '45 minutes'"),
    ),
    "tumble": (
        lambda clicks: dd.sql(clicks.scope, "select * from tumble(clicks, z, interval 1 week) w", clicks=clicks),
        "select *, time_bucket(interval '1 week', z) as w, w + interval '1 week' from clicks where z is not null",
    ),
    "hop": (
        lambda clicks: dd.sql(clicks.scope, "from hop(clicks, m, interval '15' minute, interval '35 minutes')", clicks=clicks),
        SLIDING.format(size="35 minutes", step="15 minutes"),
    ),
    "hop with gaps": (
        lambda clicks: dd.sql(
            clicks.scope,
            "with c as (from clicks) select w.*, b.n from hop(c, c.m, interval 30 minute, interval 10 minute) w"
            " join clicks b using (d)",
            clicks=clicks,
        ),
        f"""select w.*, b.n from ({SLIDING.format(size="10 minutes", step="30 minutes")}) w join clicks b using (d)""",
    ),
    "sessions in SQL": (
        lambda clicks: dd.sql(
            clicks.scope,
            "with c as (select *, n as number from clicks) select * exclude number"
            ' from sessions(c, c.m, interval 30 minute, c."user", number % 2)',
            clicks=clicks,
        ),
        SESSIONS.format(at="m", by='"user", n % 2', gap="interval '30 minutes'"),
    ),
    "sessions of all in SQL": (
        lambda clicks: dd.sql(
            clicks.scope, "select count(*), window_start from sessions(clicks, z, interval 1 minute) group by all", clicks=clicks
        ),
        f"""select count(*), s from
            ({SESSIONS.format(at="z", by="1", gap="interval '1 minute'")}) x(a, b, c, d, e, s, t) group by s""",
    ),
}


EACH = 'order by n desc, m, d nulls first, "user"'
FUNCTIONS = {
    "ranks": f"""
        select "user", n, row_number() over (partition by "user" {EACH}), rank() over w, dense_rank() over w, cume_dist() over w,
            percent_rank() over w, rank() over (order by "user" desc) from clicks window w as (partition by "user" order by n)""",
    "shifts": f"""
        select "user", lag(n, 2, -1) over w, lead(d) over w, lag(m, 1, timestamp '2020-02-02') over w
        from clicks window w as (partition by "user" {EACH})""",
    "frames": f"""
        select "user", m, d, n, sum(n) over (w rows between 3 preceding and 1 following),
            count(n) over (w rows between 2 following and 3 following), avg(n) over (partition by "user" order by d),
            sum(n * 0.25) filter (where n > 0) over (order by d, m) from clicks window w as (partition by "user" {EACH})""",
    "extremes": f"""
        select "user", m, d, n, max("user") over (order by n), min(d) over (partition by "user" order by m desc),
            max(n * 0.5) over (partition by "user"),
            min(m) over (partition by "user" {EACH} rows unbounded preceding exclude no others) from clicks""",
    "first rows": f'select "user", m, d, n from clicks qualify row_number() over (partition by "user" {EACH}) <= 3',
    "first row of each": f"""
        select * from (select "user", m, d, n, rank() over w, row_number() over w as k from clicks
        window w as (partition by n % 7 {EACH})) where k = 1""",
    "first of all": f"""
        select "user", n, dense_rank() over (order by n desc) from clicks qualify row_number() over ({EACH}) <= 5""",
}

MOST_CLICKS = Tables({"clicks": CLICKS}, {"clicks": click}, epochs=5, first=90)


@pytest.mark.parametrize("conditions", [partial(small_columns, 1), partial(small_columns, 10**6), tiny_memory])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_rows_and_columns_that_come_and_go(name: str, conditions: Any) -> None:
    epochs = MOST_CLICKS.stream(7)
    with conditions():
        assert epochs.views(FUNCTIONS[name], lambda time: time % 2 == 0) == epochs.expected(FUNCTIONS[name])


@pytest.mark.parametrize("columns", [1, 10**6])
def test_a_first_row_that_goes_before_it_comes_is_not_there(columns: int) -> None:
    query = "select n from clicks qualify row_number() over (partition by d order by n) <= 1"
    with small_columns(columns), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            clicks = dd.table(scope, CLICKS)
            first = dd.sql(scope, query, clicks=clicks).output()
        for time, (n, diff) in enumerate([(5, -1), (5, 1), (7, 1), (6, -2), (6, 3), (6, -1)]):
            clicks.session.advance_to(time)
            clicks.session.update((None, None, None, None, n), diff)
        clicks.session.close()
        assert [first.at(time) for time in range(6)] == [{}, {}, {(7,): 1}, {(7,): 1}, {(6,): 1}, {(7,): 1}]


@pytest.mark.parametrize("by_text", [False, True])
@pytest.mark.parametrize(("columns", "different"), [(150, 20), (150, 500), (10**6, 500)])
def test_first_rows_of_a_partition_that_its_first_rows_leave(columns: int, different: int, by_text: bool) -> None:
    source, expected, there = random.Random(columns), [], Counter[int]()
    order = "n::varchar desc" if by_text else "n"
    query = f"select n from clicks qualify row_number() over (partition by d order by {order}) <= 2"
    with small_columns(columns), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            clicks = dd.table(scope, CLICKS)
            first = dd.sql(scope, query, clicks=clicks).output()
        for time in range(250):
            least = sorted(there.elements(), key=str if by_text else int, reverse=by_text)
            gone = [least[0], *source.sample(least[1:], 1)] if time and source.random() < 0.9 else []
            come = [source.randrange(different) for _ in range(300 if time % 100 == 0 else source.randrange(3))]
            clicks.session.advance_to(time)
            for n, diff in [*((n, 1) for n in come), *((n, -1) for n in gone)]:
                clicks.session.update((None, None, None, None, n), diff)
                there[n] += diff
            first_ones = sorted(there.elements(), key=str if by_text else int, reverse=by_text)[:2]
            expected.append(Counter((n,) for n in first_ones))
        clicks.session.close()
        assert [Counter(first.at(time)) for time in range(250)] == expected


def test_rows_behind_the_first_ones_of_a_partition_are_held_once() -> None:
    def memory(gone: int) -> int:
        with small_columns(10**6), timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                clicks = dd.table(scope, CLICKS)
                query = "select n from clicks qualify row_number() over (partition by d order by n) <= 1"
                first = dd.sql(scope, query, clicks=clicks).output()
            for time in range(gone + 2):
                rows = range(40) if time == 0 else [time - 1] if time <= gone else range(40, 3_000)
                for n in rows:
                    clicks.session.update((None, None, None, None, n), 1 if time in (0, gone + 1) else -1)
                clicks.session.advance_to(time + 1)
                first.wait(time)
                if time == gone:
                    tracemalloc.start()
            assert first.at(gone + 1) == {(gone,): 1}
            clicks.session.close()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return size

    assert memory(20) < 2 * memory(0)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("hop(clicks, m, interval 1 minute)", "it is hop(table, moment, step, length)"),
        ("tumble(clicks, m, interval 1 minute, n)", "it is tumble(table, moment, length)"),
        ("tumble(missing, m, interval 1 minute)", "there is no table missing"),
        ("sessions(clicks, k, interval 1 minute)", "no column of this name"),
        ("tumble(clicks, n, interval 1 minute)", "it does not take (INTERVAL, BIGINT)"),
        ("tumble((select 1), m, interval 1 minute)", "it is tumble(table"),
        (
            "(with w as (select m as window_start from clicks) from hop(w, window_start, interval 1 minute, interval 1 minute))",
            "it has a column window_start or window_end already",
        ),
        ("hop(clicks, m, interval '-1 minute', interval 1 minute)", "longer than nothing"),
    ],
)
def test_what_windows_of_sql_take(source: str, why: str) -> None:
    with pytest.raises(SqlError) as caught, timely.Worker() as worker, worker.dataflow(int) as scope:
        dd.sql(scope, f"select * from {source}", clicks=dd.table(scope, CLICKS))
    assert why in str(caught.value) and "at line 1, column " in str(caught.value)


def test_a_row_in_too_many_windows_is_refused_before_they_are_made() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            clicks = dd.table(scope, pa.table({"at": [START]}))
            dd.sql(scope, "from hop(clicks, at, interval 1 microsecond, interval 10 year)", clicks=clicks)
        with pytest.raises(OperatorError, match="315,532,799,999,999 elements is too long"):
            worker.run()


def test_hops_of_a_month_have_the_moments_that_they_are_of() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            clicks = dd.table(scope, pa.table({"at": [datetime.datetime(2023, 3, 29, 12)]}))
            query = "select count(*), bool_and(at < window_end) from hop(clicks, at, interval 6 hours, interval 1 month)"
            counts = dd.sql(scope, query, clicks=clicks).output()
        assert counts.at(0) == {(28 * 4 + 3, True): 1}  # a month before is noon of February 28


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_duckdb_at_every_epoch(name: str) -> None:
    build, query = WINDOWS[name]
    TABLES.check(build, query)


def by_rows_and_by_columns(build: Callable[[Any], Any], schema: pa.Schema, rows: list[Any]) -> list[Any]:
    """What a table of windows holds at the end: of rows that a session inserts, and of an Arrow table of them."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            inserted = dd.table(scope, schema)
            arrow = pa.Table.from_pylist([dict(zip(schema.names, row)) for row in rows], schema)
            outputs = [build(table).output() for table in (inserted, dd.table(scope, arrow))]
        for row in rows:
            inserted.session.insert(row)
        inserted.session.close()
        return [output.at(0) for output in outputs]


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_columns_are_those_of_rows(name: str) -> None:
    source = random.Random(11)
    one, other = by_rows_and_by_columns(WINDOWS[name][0], CLICKS, [click(source) for _ in range(200)])
    assert one == other and len(one) > 20


@pytest.mark.parametrize("size", [7, 1 << 62, 1 << 70])
def test_windows_of_numbers_that_are_large(size: int) -> None:
    schema = pa.schema([("n", pa.int64())])
    numbers = [(n,) for n in (0, -1, 6, 1 << 40, -(1 << 40), None, 5, 5)]
    one, other = by_rows_and_by_columns(lambda table: table.sliding("n", size, size), schema, numbers)
    assert one == other and sum(one.values()) == 7


def test_windows_at_the_ends_of_time() -> None:
    schema = pa.schema([("m", pa.timestamp("us"))])
    moments = [(datetime.datetime(year, 1, 2),) for year in (1, 1900, 9999, 1969)] * 2
    one, other = by_rows_and_by_columns(lambda table: table.tumbling("m", "1 day"), schema, moments)
    assert one == other and sum(one.values()) == 8
    with pytest.raises(OperatorError, match="9999-12-31"):
        by_rows_and_by_columns(lambda table: table.tumbling("m", "1 day"), schema, [(datetime.datetime(9999, 12, 31, 1),)])


@pytest.mark.parametrize("conditions", [partial(small_columns, 1), partial(small_columns, 16), tiny_memory])
@pytest.mark.parametrize("name", [name for name in WINDOWS if name.startswith("sessions")])
def test_sessions_of_rows_and_columns_that_come_and_go(name: str, conditions: Any) -> None:
    build, query = WINDOWS[name]
    epochs = MANY_CLICKS.stream(5)
    with conditions():
        assert epochs.held(build, lambda time: time % 2 == 0) == epochs.expected(query)


@pytest.mark.parametrize("columns", [1, 128])
def test_sessions_go_on_from_a_checkpoint_on_other_workers(tmp_path: Path, columns: int) -> None:
    epochs = MANY_CLICKS.stream(6)
    build, query = WINDOWS["sessions"]
    updates = [(row, time, diff) for time, changes in enumerate(epochs.changes) for row, diff in changes["clicks"]]

    def built(rows: Any) -> Any:
        return build(dd.table(rows, CLICKS)).collection

    with small_columns(columns):
        result = differential.run_resumed(built, updates, directory=tmp_path, workers=(1, 3))
    held = [typed(differential.accumulated(result, time).items()) for time in range(len(epochs.changes))]
    assert held == epochs.expected(query)


@pytest.mark.parametrize("name", ["tumbling counted", "sliding", "sessions", "sessions of all"])
def test_three_workers_give_the_same(name: str) -> None:
    build, query = WINDOWS[name]
    assert TABLES.stream(3).held_on_workers(build) == TABLES.stream(3).expected(query)


# -- recent rows ---------------------------------------------------------------------------------------------------

MOVES = pa.schema([("key", pa.int64()), ("n", pa.int64())])
KEEP = 10


def moves(seed: int) -> list[list[tuple[Any, int]]]:
    """Return changes by epoch, of rows whose moments go on, are late, and are missing."""
    source = random.Random(seed)
    held: list[Any] = []
    epochs = []
    for epoch in range(8):
        changes = []
        for _ in range(5):
            n = None if source.random() < 0.1 else 4 * epoch + source.randint(-25, 6)
            row = (source.randint(0, 3), n)
            held.append(row)
            changes.append((row, 1))
        source.shuffle(held)
        changes += [(held.pop(), -1) for _ in range(len(held) // 4)]
        epochs.append(changes)
    return epochs


def expected(epochs: list[list[tuple[Any, int]]]) -> list[tuple[Counter[Any], Counter[Any]]]:
    """Return what is recent and what is late after each epoch, by the words of the documentation."""
    recent: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    latest: int | None = None
    by_epoch = []
    for changes in epochs:
        before = latest
        net: Counter[Any] = Counter()  # what comes and goes in one epoch has never been there
        for row, diff in changes:
            net[row] += diff
        for row, diff in net.items():
            in_time = row[1] is not None and (before is None or row[1] >= before - KEEP)
            (recent if in_time else late)[row] += diff
        moments = [row[1] for row, diff in net.items() if row[1] is not None and diff > 0]
        latest = max([*moments, *([] if latest is None else [latest])], default=None)
        for row in list(recent):
            if latest is not None and row[1] < latest - KEEP:
                del recent[row]
        by_epoch.append((Counter({r: c for r, c in recent.items() if c}), Counter({r: c for r, c in late.items() if c})))
    return by_epoch


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_recent_and_late_rows(seed: int, workers: int) -> None:
    epochs = moves(seed)
    updates = [(row, time, diff) for time, changes in enumerate(epochs) for row, diff in changes]
    for side in (0, 1):

        def build(rows: Any) -> Any:
            tables = dd.table(rows, MOVES).keep_recent("n", KEEP)
            return tables[side].collection  # noqa: B023  # called at once

        result = differential.run(build, updates, workers=workers)
        for time, sides in enumerate(expected(epochs)):
            assert Counter(differential.accumulated(result, time)) == sides[side]


def test_recent_rows_go_on_from_a_checkpoint_on_other_workers(tmp_path: Path) -> None:
    epochs = moves(7)
    updates = [(row, time, diff) for time, changes in enumerate(epochs) for row, diff in changes]
    for side in (0, 1):

        def build(rows: Any) -> Any:
            return dd.table(rows, MOVES).keep_recent("n", KEEP)[side].collection  # noqa: B023  # called at once

        result = differential.run_resumed(build, updates, directory=tmp_path / str(side), workers=(1, 3))
        for time, sides in enumerate(expected(epochs)):
            assert Counter(differential.accumulated(result, time)) == sides[side]


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda clicks: clicks.tumbling("user", "1 hour"), "not of VARCHAR"),
        (lambda clicks: clicks.tumbling("m", "1 fortnight"), "no unit"),
        (lambda clicks: clicks.tumbling("m", "soon"), "not an interval"),
        (lambda clicks: clicks.tumbling("m", 10), "timedelta"),
        (lambda clicks: clicks.tumbling("n", "10 minutes"), "whole number"),
        (lambda clicks: clicks.tumbling("m", "0 minutes"), "not longer than nothing"),
        (lambda clicks: clicks.tumbling("n", -1), "not longer than nothing"),
        (lambda clicks: clicks.tumbling("m", "1 month 1 day"), "months"),
        (lambda clicks: clicks.tumbling("m", "1 day", origin=3), "origin"),
        (lambda clicks: clicks.tumbling("z", "1 day", origin=START), "origin"),
        (lambda clicks: clicks.sliding("m", "1 month", "1 day"), "months"),
        (lambda clicks: clicks.sliding("m", "1 year", "1 second"), "months"),
        (lambda clicks: clicks.sliding("m", "100 days", "1 second"), "more than 10000 windows"),
        (lambda clicks: clicks.sessions("m", gap="1 month"), "months"),
        (lambda clicks: clicks.keep_recent("m", "1 month"), "months"),
    ],
)
@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_what_is_no_window_is_refused(build: Any, message: str) -> None:
    with timely.Worker() as worker, worker.dataflow(int) as scope, pytest.raises(GraphError, match=message):
        build(dd.table(scope, CLICKS))


@pytest.mark.filterwarnings("ignore::timely.TimelyWarning")
def test_other_refusals() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope, pytest.raises(SqlError, match="no column"):
            dd.table(scope, CLICKS).tumbling("missing", "1 hour")
        with worker.dataflow(timely.Product[int, int]) as scope, pytest.raises(GraphError, match="totally ordered"):
            dd.table(scope, CLICKS).keep_recent("m", "1 hour")
