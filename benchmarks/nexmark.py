"""Nexmark: queries over auctions, persons and bids, kept by SQL, beside DuckDB, which computes them anew after each epoch.

An epoch has 10,000 events, of 50 one person, three auctions, and else bids, a millisecond apart. Both are given Arrow tables and
hold their results as columns. What they hold in the end must be the same. Ratios are of processor seconds of all epochs.

Source: P. Tucker et al., NEXMark: A Benchmark for Queries over Data Streams (2008).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

import timely
from benchmarks.report import Row
from benchmarks.views import check_equal
from timely import differential as dd

Tables = dict[str, pa.Table]

SCHEMAS: Final = {
    "person": pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("state", pa.string(), nullable=False),
            pa.field("date_time", pa.timestamp("us"), nullable=False),
        ]
    ),
    "auction": pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("seller", pa.int64(), nullable=False),
            pa.field("category", pa.int64(), nullable=False),
            pa.field("date_time", pa.timestamp("us"), nullable=False),
            pa.field("expires", pa.timestamp("us"), nullable=False),
        ]
    ),
    "bid": pa.schema(
        [
            pa.field("auction", pa.int64(), nullable=False),
            pa.field("bidder", pa.int64(), nullable=False),
            pa.field("price", pa.int64(), nullable=False),
            pa.field("date_time", pa.timestamp("us"), nullable=False),
        ]
    ),
}

QUERIES: Final = {
    "Q1, prices in another currency": "select auction, bidder, 0.908 * price as price, date_time from bid",
    "Q2, bids for some auctions": "select auction, price from bid where auction % 123 = 0",
    "Q3, sellers in some states": """
        select p.name, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
    "Q4, mean of the final prices of a category": """
        select category, avg(final) as price from (
            select a.id, a.category, max(b.price) as final from auction a join bid b on a.id = b.auction
            where b.date_time between a.date_time and a.expires group by a.id, a.category) group by category""",
    "Q5, auctions with the most bids in a window": """
        with counts as (
            select auction, time_bucket(interval '2 seconds', date_time) as start, count(*) as n from bid
            group by auction, time_bucket(interval '2 seconds', date_time)),
        most as (select start, max(n) as n from counts group by start)
        select c.auction, c.start, c.n from counts c join most m on c.start = m.start and c.n = m.n""",
    "Q7, highest bids of a window": """
        with most as (
            select time_bucket(interval '10 seconds', date_time) as start, max(price) as price from bid
            group by time_bucket(interval '10 seconds', date_time))
        select b.auction, b.bidder, b.price, m.start from bid b
        join most m on b.price = m.price and time_bucket(interval '10 seconds', b.date_time) = m.start""",
    "Q8, persons who open auctions when they are new": """
        select p.id, p.name, p.start from
            (select distinct id, name, time_bucket(interval '10 seconds', date_time) as start from person) p
        join (select distinct seller, time_bucket(interval '10 seconds', date_time) as start from auction) a
        on p.id = a.seller and p.start = a.start""",
}

TIMED: Final = ("Q1", "Q4", "Q5", "Q7")

BARS: Final = (0.5, 1)
"""Floor and aim of DuckDB's seconds over those of a view."""


def epochs(count: int, events: int, seed: int = 1) -> Iterator[Tables]:
    """Yield the rows of each epoch, by table; persons and auctions are mostly sold and bid for when they are new."""
    source = np.random.default_rng(seed)
    for first in range(0, count * events, events):
        number = np.arange(first, first + events)
        at = number * 1_000
        kind = number % 50
        persons, auctions, bids = number[kind == 0], number[(kind > 0) & (kind < 4)], number[kind >= 4]
        made = 3 * (auctions // 50) + auctions % 50 - 1
        seller = np.maximum(auctions // 50 - source.integers(0, 40, len(auctions)), 0)
        newest = 3 * (bids // 50 + 1)
        columns = {
            "person": [
                persons // 50,
                _names("name", persons),
                np.array(["OR", "ID", "CA", "WA"])[persons // 50 % 4],
                at[kind == 0],
            ],
            "auction": [made, seller, 10 + made % 5, auctions * 1_000, auctions * 1_000 + source.integers(1, 10**7, len(made))],
            "bid": [
                np.maximum(newest - 1 - source.integers(0, 300, len(bids)), 0),
                source.integers(0, bids // 50 + 1),
                source.integers(1, 10_000, len(bids)),
                bids * 1_000,
            ],
        }
        yield {
            name: pa.table([pa.array(column, kind) for column, kind in zip(columns[name], schema.types)], schema=schema)
            for name, schema in SCHEMAS.items()
        }


def _names(prefix: str, numbers: Any) -> list[str]:
    return [f"{prefix} {number}" for number in numbers.tolist()]


class View:
    """A query kept by this library."""

    def __init__(self, query: str) -> None:
        self._worker = timely.Worker()
        with self._worker.dataflow(int) as scope:
            tables = {name: dd.table(scope, schema, name=name) for name, schema in SCHEMAS.items()}
            self.output = dd.sql(scope, query, **tables).output()
        self._sessions = {name: table.session for name, table in tables.items()}
        self._time = 0

    def add(self, rows: Tables, diff: int = 1) -> None:
        """Add the rows of an epoch, or take them away, and wait for the result."""
        for name, session in self._sessions.items():
            session.insert_columns(rows[name], diff=diff)
            session.advance_to(self._time + 1)
        self.output.wait(self._time)
        self._time += 1

    def rows(self) -> list[tuple[Any, ...]]:
        """Return what it holds."""
        return [row for row, count in self.output.at(self._time - 1).items() for _ in range(count)]

    def close(self) -> None:
        """Drop it."""
        self._worker.close()


class Recomputed:
    """A query that DuckDB computes anew, on one thread."""

    def __init__(self, query: str) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._query = query
        for name, schema in SCHEMAS.items():
            self._connection.register("rows", schema.empty_table())
            self._connection.execute(f"create table {name} as from rows")

    def add(self, rows: Tables) -> None:
        """Add the rows of an epoch."""
        for name, table in rows.items():
            self._connection.register("rows", table)
            self._connection.execute(f"insert into {name} from rows")

    def remove(self, name: str, rows: int) -> None:
        """Remove the first rows of a table."""
        self._connection.execute(f"delete from {name} where rowid < {rows}")

    def compute(self) -> pa.Table:
        """Compute the query."""
        return self._connection.sql(self._query).to_arrow_table()

    def rows(self) -> list[tuple[Any, ...]]:
        """Return what it gives."""
        return self._connection.execute(self._query).fetchall()


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measured(query: str, count: int, events: int) -> tuple[float, float]:
    """Return the seconds of all epochs: of the view, and of DuckDB."""
    view, recomputed = View(query), Recomputed(query)
    ours = theirs = 0.0
    for rows in epochs(count, events):
        ours += _seconds(lambda: view.add(rows))  # noqa: B023  # called at once
        recomputed.add(rows)
        theirs += _seconds(recomputed.compute)
    check_equal(query, view.rows(), recomputed.rows())
    view.close()
    return ours, theirs


def run(quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    count, events = (5, 2_000) if quick else (20, 10_000)
    rows = []
    for name, query in QUERIES.items():
        ours, theirs = measured(query, count, events)
        floor, aim = BARS if name.startswith(TIMED) else (None, None)
        note = f"{count * events / ours / 1e6:.2f} M events/s; DuckDB {count * events / theirs / 1e6:.2f}"
        rows.append(Row(f"{name}: DuckDB over the view", theirs / ours, floor, aim, note=note))
    return rows
