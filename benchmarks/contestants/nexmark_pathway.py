"""Queries of Nexmark in pathway, by its tables; an epoch has one time. Results go nowhere while they are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pathway as pw

from benchmarks.contestants.nexmark_rows import Epochs, Run, main

COLUMNS = {
    "person": ["number", "name", "state", "at"],
    "auction": ["number", "seller", "category", "at", "expires"],
    "bid": ["auction", "bidder", "price", "channel", "url", "at"],
}

Tables = dict[str, Any]


def everything(tables: Tables) -> Any:
    """Return the rows of query 0."""
    return tables["bid"].select(pw.this.auction, pw.this.bidder, pw.this.price, pw.this.at)


def other_currency(tables: Tables) -> Any:
    """Return those of query 1, prices in thousandths."""
    return tables["bid"].select(pw.this.auction, pw.this.bidder, price=908 * pw.this.price, at=pw.this.at)


def some_auctions(tables: Tables) -> Any:
    """Return those of query 2."""
    return tables["bid"].filter(pw.this.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def sellers(tables: Tables) -> Any:
    """Return those of query 3."""
    state = pw.this.state
    persons = tables["person"].filter((state == "OR") | (state == "ID") | (state == "CA"))
    auctions = tables["auction"].filter(pw.this.category == 10)
    return auctions.join(persons, auctions.seller == persons.number).select(persons.name, persons.state, auctions.number)


def final_prices(tables: Tables) -> Any:
    """Return those of query 4."""
    auctions, bids = tables["auction"], tables["bid"]
    pairs = auctions.join(bids, auctions.number == bids.auction)
    pairs = pairs.select(auctions.number, auctions.category, bids.price, opened=auctions.at, expires=auctions.expires, at=bids.at)
    pairs = pairs.filter((pw.this.at >= pw.this.opened) & (pw.this.at <= pw.this.expires))
    prices = pairs.groupby(pw.this.number, pw.this.category).reduce(pw.this.category, price=pw.reducers.max(pw.this.price))
    return prices.groupby(pw.this.category).reduce(pw.this.category, price=pw.reducers.avg(pw.this.price))


def most_bids(tables: Tables) -> Any:
    """Return those of query 5."""
    bids = tables["bid"].select(pw.this.auction, start=pw.this.at // 2_000_000 * 2_000_000)
    counts = bids.groupby(pw.this.auction, pw.this.start).reduce(pw.this.auction, pw.this.start, n=pw.reducers.count())
    most = counts.groupby(pw.this.start).reduce(pw.this.start, n=pw.reducers.max(pw.this.n))
    return counts.join(most, counts.start == most.start, counts.n == most.n).select(counts.auction, counts.start, counts.n)


def highest_bids(tables: Tables) -> Any:
    """Return those of query 7."""
    bids = tables["bid"].select(pw.this.auction, pw.this.bidder, pw.this.price, start=pw.this.at // 10_000_000 * 10_000_000)
    most = bids.groupby(pw.this.start).reduce(pw.this.start, price=pw.reducers.max(pw.this.price))
    both = bids.join(most, bids.start == most.start, bids.price == most.price)
    return both.select(bids.auction, bids.bidder, bids.price, bids.start)


def new_sellers(tables: Tables) -> Any:
    """Return those of query 8."""
    persons = tables["person"].select(person=pw.this.number, name=pw.this.name, start=pw.this.at // 10_000_000 * 10_000_000)
    auctions = tables["auction"].select(pw.this.seller, start=pw.this.at // 10_000_000 * 10_000_000)
    each = auctions.groupby(pw.this.seller, pw.this.start).reduce(pw.this.seller, pw.this.start)
    both = persons.join(each, persons.person == each.seller, persons.start == each.start)
    return both.select(persons.person, persons.name, persons.start)


def bids_in_windows(tables: Tables) -> Any:
    """Return those of query 12."""
    bids = tables["bid"].select(pw.this.bidder, start=pw.this.at // 10_000_000 * 10_000_000)
    return bids.groupby(pw.this.bidder, pw.this.start).reduce(pw.this.bidder, pw.this.start, n=pw.reducers.count())


QUERIES = {
    "Q0": everything,
    "Q1": other_currency,
    "Q2": some_auctions,
    "Q3": sellers,
    "Q4": final_prices,
    "Q5": most_bids,
    "Q7": highest_bids,
    "Q8": new_sellers,
    "Q12": bids_in_windows,
}


def program(query: Callable[[Tables], Any]) -> Callable[[Epochs], tuple[Run, Run]]:
    """Return what runs a query: once to nowhere, and once to a list."""

    def built(epochs: Epochs) -> Any:
        pw.internals.parse_graph.G.clear()
        tables = {}
        for name, columns in COLUMNS.items():
            rows = [(*row, 2 * time + 2, 1) for time, epoch in enumerate(epochs) for row in epoch[name]]
            tables[name] = pw.debug.table_from_pandas(pd.DataFrame(rows, columns=[*columns, "__time__", "__diff__"]))
        return query(tables)

    def made(epochs: Epochs) -> tuple[Run, Run]:
        pw.io.null.write(built(epochs))

        def measured() -> list[Any]:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
            return []

        def answer() -> list[Any]:
            rows: dict[Any, list[Any]] = {}

            def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
                if is_addition:
                    rows[key] = list(row.values())
                elif rows.get(key) == list(row.values()):
                    del rows[key]

            pw.io.subscribe(built(epochs), change)
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
            return list(rows.values())

        return measured, answer

    return made


if __name__ == "__main__":
    main({name: program(query) for name, query in QUERIES.items()})
