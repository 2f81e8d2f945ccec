"""Temporal filters: conditions on ``now()``, beside DuckDB with the moment of each epoch in its place."""

from __future__ import annotations

import datetime
import functools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.differential.beside_duckdb import RESTART, Changes, Epochs, Tables
from tests.differential.sql_epochs import maybe
from timely import OperatorError, SqlError
from timely import differential as dd
from timely.recovery import Recovery

NOON = datetime.datetime(2024, 1, 31, 12)


def moment(minutes: int) -> datetime.datetime:
    return NOON + datetime.timedelta(minutes=minutes)


def event(source: random.Random) -> Any:
    at = maybe(source, moment(source.randint(-40, 60)))
    return source.randint(1, 4), at, maybe(source, source.randint(0, 30)), None if at is None else at.date()


EVENTS = pa.schema([("who", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64()), ("day", pa.date32())])
SCHEMAS = {"events": EVENTS, "now": pa.schema([("moment", pa.timestamp("us"))])}
TABLES = Tables({"events": EVENTS}, {"events": event}, epochs=9, first=12)


@functools.cache
def stream(seed: int) -> Epochs:
    """Return random events, and a clock that advances by 0 to 30 minutes in an epoch, and by a month in the last one."""
    source, clock = random.Random(seed), 0
    changes: list[Changes] = [{**TABLES.stream(seed).changes[0], "now": [((moment(clock),), 1)]}]
    for number, epoch in enumerate(TABLES.stream(seed).changes[1:], 2):
        later = clock + (50_000 if number == TABLES.epochs else source.choice([0, 5, 10, 30]))
        changes.append({**epoch, "now": [((moment(clock),), -1), ((moment(later),), 1)] if later > clock else []})
        clock = later
    return Epochs(SCHEMAS, changes)


QUERIES = [
    "select * from events where ts > now() - interval '20 minutes'",
    "select * from events where ts + interval '1 month' > now() and ts >= date_trunc('day', now()) - interval '1 month'",
    "select * from events where ts <= now()",
    "select * from events where now() > ts",
    "select who, count(*), sum(n) from events where ts between now() - interval '30 minutes' and now() group by who",
    "select * from events where ts + interval '10 minutes' < now() and now() <= ts + to_minutes(n)",
    "select * from events where day >= date_trunc('day', now() - interval '12 hours')",
    "select who from events group by who having max(ts) > now() - interval '15 minutes'",
    "select a.who, b.n from events a join events b on a.who = b.who and b.ts > now() where a.ts <= now()",
    "select who from events e where not exists (select 1 from events f where f.who = e.who and f.ts > now())",
    "select e.who, f.n from events e left join events f on f.n = e.n and f.ts < now() - interval '5 minutes'",
    "with recursive r(n) as (select n from events where ts > now() union select n + 7 from r where n < 30) select n from r",
    "select who, moment from events, now where ts > now()",
]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_come_and_go_as_now_advances(query: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        expected = stream(seed).expected(query.replace("now()", "(select moment from now)"))
        assert stream(seed).views(query) == expected
    assert stream(2).views(query, lambda time: time % 2 == 1) == expected
    assert stream(2).views_on_workers(query) == expected
    assert stream(2).views_after_restart(query, tmp_path) == expected[RESTART:]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select now() from events", "now() at line 1, column 8: now() stands in a condition of its own"),
        ("select * from events where ts > now() or n > 3", "join the table now"),
        ("select * from events where now() - ts < interval '1 hour'", "such as at > now() - interval '1 hour'"),
        ("select * from events where ts = now()", "stands in a condition of its own"),
        ("select * from events where ts > now() - to_minutes(n)", "stands in a condition of its own"),
        ("select * from events where day = date '2024-01-31' and ts < date '2024-01-31' - now()", "do not"),
        ("select max(now()) from events", "stands in a condition of its own"),
        (
            "with recursive r(t) as (select ts from events union select t + interval '1 day' from r where t < now()) from r",
            "now() at line 1, column 98: now() cannot stand in a step of a recursive query: ask it of the rows before",
        ),
        ("select * from events where ts > now(1)", "unless there is a table now of one column"),
        ("select * from events where ts > now() - interval '1 month'", "such as at + interval '1 month' > now()"),
        ("select * from events where ts < date_trunc('hour', now()) + interval '1 year'", "or to date_trunc('day', now())"),
    ],
)
def test_conditions_on_now_that_no_row_waits_for_are_refused(query: str, why: str) -> None:
    with pytest.raises(SqlError) as caught:
        stream(1).views(query)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("moments", "why"),
    [
        ([[]], "the table now has no row yet"),
        ([[(5, 1)], [(5, -1), (4, 1)]], "only advances"),
        ([[(5, 1)], [(6, 1)]], "has one row, which another replaces at one time"),
        ([[(5, 1)], [(5, -1)]], "has one row, which another replaces at one time"),
        ([[(5, 2)]], "has one row, which another replaces at one time"),
        ([[(None, 1)]], "only advances"),
    ],
)
def test_a_clock_that_is_none_is_an_error(moments: Sequence[Sequence[tuple[int | None, int]]], why: str) -> None:
    changes: list[Changes] = [
        {"events": [((1, NOON, 1, None), 1)], "now": [((None if at is None else moment(at),), diff) for at, diff in epoch]}
        for epoch in moments
    ]
    with pytest.raises(OperatorError) as caught:
        Epochs(SCHEMAS, changes).views("select * from events where ts > now()")
    assert why in str(caught.value)


def test_rows_that_have_gone_are_not_held(tmp_path: Path) -> None:
    sizes = []
    for epochs in (20, 200):
        folder = tmp_path / str(epochs)
        with timely.Worker() as worker, Recovery(worker, folder) as recovery:
            with worker.dataflow(int) as scope:
                events, now = (dd.table(scope, f"{name} bigint", name=name) for name in ("at", "now"))
                query = "select count(*) as n from events where at > now() - 10 and at <= now() + 10"
                count = dd.sql(scope, query, events=events, now=now).output()
            for time in range(epochs):
                for row in range(time, time + 3):
                    events.session.insert((row,))
                now.session.update((time,), 1)
                if time:
                    now.session.update((time - 1,), -1)
                for table in (events, now):
                    table.session.advance_to(time + 1)
                count.wait(time)
            recovery.checkpoint(epochs)
            rows = [row for time in range(epochs) for row in range(time, time + 3) if row > epochs - 11]
            assert count.at(epochs - 1) == {(len(rows),): 1}
        sizes.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    assert sizes[1] < 2 * sizes[0]
