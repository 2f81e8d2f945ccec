"""Nexmark: queries over auctions, persons and bids, kept by SQL, beside DuckDB, which computes them anew after each epoch.

An epoch has 10,000 events, of 50 one person, three auctions, and else bids, a millisecond apart. Both are given Arrow tables and
hold their results as columns. What they hold in the end must be the same. Ratios are of processor seconds of all epochs.

bytewax and pathway, each in an environment of its own, run the queries that their operators state plainly, on lists of rows which
are there before. Windows of bytewax close with the last epoch; results of pathway go nowhere while it is measured.

Source: P. Tucker et al., NEXMark: A Benchmark for Queries over Data Streams (2008).
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import timely
from benchmarks.environments import Unavailable, python_with
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
            pa.field("channel", pa.string(), nullable=False),
            pa.field("url", pa.string(), nullable=False),
            pa.field("date_time", pa.timestamp("us"), nullable=False),
        ]
    ),
}

_WON = """
    select a.id, a.seller, a.category, b.auction, b.bidder, b.price, b.date_time,
        row_number() over (partition by a.id order by b.price desc, b.date_time, b.bidder) as place
    from auction a join bid b on a.id = b.auction where b.date_time between a.date_time and a.expires"""
"""The bids of each auction, from the highest."""

_DAY = "strftime(date_time, '%Y-%m-%d')"

_RANKS = """count(*) as bids, count(*) filter (where price < 3000) as low,
    count(*) filter (where price >= 3000 and price < 7000) as middle, count(*) filter (where price >= 7000) as high"""

_DISTINCT = """count(distinct bidder) as bidders, count(distinct bidder) filter (where price < 3000) as low_bidders,
    count(distinct auction) as auctions, count(distinct auction) filter (where price >= 7000) as high_auctions"""

QUERIES: Final = {
    "Q0, all bids": "select auction, bidder, price, date_time from bid",
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
    "Q6, mean of the last ten final prices of a seller": f"""
        select seller, id, avg(price) over (partition by seller order by date_time, id rows between 9 preceding and current row)
        from ({_WON}) won where place = 1""",
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
    "Q9, bids that win": f"select id, seller, category, bidder, price, date_time from ({_WON}) won where place = 1",
    "Q10, bids with their day and minute": f"""
        select auction, bidder, price, date_time, {_DAY} as day, strftime(date_time, '%H:%M') as minute from bid""",
    "Q11, sessions of bidders": """
        with marked as (
            select bidder, date_time, coalesce(date_time - lag(date_time) over (partition by bidder order by date_time)
                > interval '10 seconds', true)::int as new from bid),
        numbered as (select bidder, date_time, sum(new) over (partition by bidder order by date_time) as session from marked)
        select bidder, count(*) as bids, min(date_time) as first, max(date_time) as last
        from numbered group by bidder, session""",
    "Q12, bids of a bidder in a window": """
        select bidder, time_bucket(interval '10 seconds', date_time) as start, count(*) as bids from bid
        group by bidder, time_bucket(interval '10 seconds', date_time)""",
    "Q13, bids beside a table that does not change": """
        select b.auction, b.bidder, b.price, side.label from bid b
        join (values (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd')) side(key, label) on b.auction % 4 = side.key""",
    "Q14, bids of some prices, with their time of day": """
        select auction, bidder, 0.908 * price as price,
            case when hour(date_time) between 8 and 18 then 'day' when hour(date_time) <= 6 or hour(date_time) >= 20 then 'night'
                else 'other' end as time, length(url) - length(replace(url, 'c', '')) as count from bid
        where 0.908 * price > 1000 and 0.908 * price < 5000""",
    "Q15, bids of a day": f"select {_DAY} as day, {_RANKS}, {_DISTINCT} from bid group by {_DAY}",
    "Q16, bids of a channel on a day": f"""
        select channel, {_DAY} as day, max(strftime(date_time, '%H:%M')) as minute, {_RANKS}, {_DISTINCT} from bid
        group by channel, {_DAY}""",
    "Q17, bids for an auction on a day": f"""
        select auction, {_DAY} as day, {_RANKS}, min(price) as least, max(price) as most, avg(price) as mean, sum(price) as sum
        from bid group by auction, {_DAY}""",
    "Q18, last bids of a bidder for an auction": """
        select auction, bidder, price, date_time from bid
        qualify row_number() over (partition by bidder, auction order by date_time desc) = 1""",
    "Q19, ten highest bids for an auction": """
        select auction, bidder, price, date_time,
            row_number() over (partition by auction order by price desc, date_time) as place from bid
        qualify row_number() over (partition by auction order by price desc, date_time) <= 10""",
    "Q20, bids with their auction": """
        select b.auction, b.bidder, b.price, b.url, a.seller, a.expires from bid b join auction a on b.auction = a.id
        where a.category = 10""",
    "Q21, numbers of channels": """
        select auction, bidder, price, case lower(channel) when 'apple' then '0' when 'google' then '1'
            else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as channel_id from bid
        where lower(channel) in ('apple', 'google') or regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''""",
    "Q22, folders of addresses": """
        select auction, bidder, price, split_part(url, '/', 4) as one, split_part(url, '/', 5) as two,
            split_part(url, '/', 6) as three from bid""",
    "Q23, bids by sellers": """
        select b.auction, b.price, p.name, a.id from bid b join person p on b.bidder = p.id join auction a on a.seller = p.id""",
    "Q101, auctions with their highest bid, if any": """
        select a.id, a.seller, b.most from auction a
        left join (select auction, max(price) as most from bid group by auction) b on a.id = b.auction""",
    "Q102, auctions with more bids than the mean": """
        select a.id, count(b.auction) as bids from auction a join bid b on a.id = b.auction group by a.id
        having count(b.auction) >= (select count(*) / count(distinct auction) from bid)""",
    "Q103, auctions with many bids": """
        select a.id, a.seller from auction a where a.id in (select auction from bid group by auction having count(*) >= 20)""",
    "Q104, auctions without many bids": """
        select a.id, a.seller from auction a where a.id not in (select auction from bid group by auction having count(*) < 20)""",
    "Q105, auctions with the most bids": """
        select a.id, count(b.auction) as bids from auction a join bid b on a.id = b.auction
        group by a.id order by bids desc, a.id limit 1000""",
    "Q106, least of the final prices": f"select min(price) as least from ({_WON}) won where place = 1",
}
"""Those of Flink's and RisingWave's suites: Q5 with windows side by side, Q12 by the time of an event, Q13 with constants."""

_CHANNELS: Final = np.array(["Google", "Apple", "channel-1", "channel-2", "channel-3"])

TIMED: Final = ("Q1,", "Q4,", "Q5,", "Q7,")

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
                _CHANNELS[bids % len(_CHANNELS)],
                [f"https://www.nexmark.com/{number % 7}/{number % 3}/item&channel_id={number % 9}" for number in bids.tolist()],
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


class Found(NamedTuple):
    """The seconds of all epochs, and of DuckDB's last; those of changes, by the number of bids that go or come back."""

    view: float
    duckdb: float
    last: float
    changes: dict[int, float]
    rows: list[tuple[Any, ...]]


def measured(query: str, count: int, events: int) -> Found:
    """Add epochs to a view and to DuckDB, then have bids go and come back, and compare what both hold in the end."""
    view, recomputed = View(query), Recomputed(query)
    ours = theirs = last = 0.0
    parts: dict[int, Tables] = {}
    for rows in epochs(count, events):
        ours += _seconds(lambda: view.add(rows))  # noqa: B023  # called at once
        recomputed.add(rows)
        theirs += (last := _seconds(recomputed.compute))
        nothing = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
        parts = {size: {**nothing, "bid": rows["bid"].slice(0, size)} for size in (1, 1_000)}
    changes = {
        size: statistics.median([_seconds(lambda: view.add(part, diff)) for diff in (-1, 1) * 3])  # noqa: B023
        for size, part in parts.items()
    }
    rows_in_the_end = recomputed.rows()
    check_equal(query, view.rows(), rows_in_the_end)
    view.close()
    return Found(ours, theirs, last, changes, rows_in_the_end)


# -- bytewax and pathway -------------------------------------------------------------------------------------------

PEERS: Final = {
    "bytewax": ("bytewax==0.21.1", ("Q0", "Q1", "Q2", "Q3", "Q5", "Q7", "Q8")),
    "pathway": ("pathway==0.33.0", ("Q0", "Q1", "Q2", "Q3", "Q4", "Q5", "Q7", "Q8", "Q12")),
}
"""What is installed, and which queries it runs."""

_START: Final = datetime(1970, 1, 1)


def _plain(value: Any) -> Any:
    """Return a value as peers have it: moments in microseconds, decimals in thousandths; doubles are rounded."""
    if isinstance(value, datetime):
        return (value - _START) // timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return int(1000 * value)
    return round(value, 6) if isinstance(value, float) else value


def _plain_rows(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(_plain, row)) for row in rows)


def seconds_of_peers(path: str, name: str, rows: list[tuple[Any, ...]]) -> dict[str, float]:
    """Return the processor seconds of those that run a query of the epochs in a file, and find the same rows."""
    seconds = {}
    for peer, (requirement, queries) in PEERS.items():
        if name not in queries:
            continue
        try:
            python = python_with(requirement)
        except Unavailable:
            continue
        command = [python, "-m", f"benchmarks.contestants.nexmark_{peer}", path, name]
        environment = {**os.environ, "PATHWAY_THREADS": "1"}
        root = Path(__file__).parent.parent
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=1_800)
        assert not done.returncode, f"{peer}, {name}: {done.stderr[-2000:]}"
        answer = json.loads(done.stdout.splitlines()[-1])
        assert _plain_rows(answer["rows"]) == _plain_rows(rows), f"{peer} finds other rows of {name}"
        seconds[peer] = answer["seconds"]
    return seconds


def _written(path: Path, count: int, events: int) -> None:
    """Write the rows of all epochs."""
    written = []
    for tables in epochs(count, events):
        rows = {name: zip(*(column.to_pylist() for column in table.columns), strict=True) for name, table in tables.items()}
        written.append({name: [tuple(map(_plain, row)) for row in each] for name, each in rows.items()})
    path.write_bytes(pickle.dumps(written))


def run(quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    count, events = (5, 2_000) if quick else (20, 10_000)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "epochs"
        _written(path, count, events)
        for name, query in QUERIES.items():
            found = measured(query, count, events)
            floor, aim = BARS if name.startswith(TIMED) else (None, None)
            costs = ", ".join(f"{size:,} bids {1e3 * seconds:.3g}" for size, seconds in found.changes.items())
            peers = {"DuckDB": found.duckdb, **seconds_of_peers(str(path), name.split(",")[0], found.rows)}
            rates = "".join(f"; {peer} {count * events / seconds / 1e6:.2f}" for peer, seconds in peers.items())
            note = f"{count * events / found.view / 1e6:.2f} M events/s{rates}"
            note += f"; ms of a change of {costs}; of DuckDB's query {1e3 * found.last:.3g}"
            rows.append(Row(f"{name}: DuckDB over the view", found.duckdb / found.view, floor, aim, note=note))
    return rows
