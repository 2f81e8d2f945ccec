"""Queries of Nexmark in bytewax, by its own operators; an epoch is a batch of each source, and windows close with the last."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow, Stream
from bytewax.testing import run_main

from benchmarks.contestants.by_bytewax import Batches, Sink
from benchmarks.contestants.nexmark_rows import Epochs, Run, main

Tables = dict[str, Stream]

START = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK = win.EventClock(lambda row: row[-1], wait_for_system_duration=timedelta(days=1))


def windows(seconds: int) -> win.TumblingWindower:
    """Return windows side by side."""
    return win.TumblingWindower(length=timedelta(seconds=seconds), align_to=START)


def everything(tables: Tables) -> Stream:
    """Return the rows of query 0."""
    return op.map("columns", tables["bid"], lambda bid: (bid[0], bid[1], bid[2], bid[5]))


def other_currency(tables: Tables) -> Stream:
    """Return those of query 1, prices in thousandths."""
    return op.map("columns", tables["bid"], lambda bid: (bid[0], bid[1], 908 * bid[2], bid[5]))


def some_auctions(tables: Tables) -> Stream:
    """Return those of query 2."""
    chosen = op.filter("some", tables["bid"], lambda bid: bid[0] % 123 == 0)
    return op.map("columns", chosen, lambda bid: (bid[0], bid[2]))


def sellers(tables: Tables) -> Stream:
    """Return those of query 3."""
    persons = op.filter("states", tables["person"], lambda person: person[2] in ("OR", "ID", "CA"))
    auctions = op.filter("category", tables["auction"], lambda auction: auction[2] == 10)
    one = op.key_on("person", persons, lambda person: str(person[0]))
    other = op.key_on("seller", auctions, lambda auction: str(auction[1]))
    pairs = op.join("join", one, other, insert_mode="product", emit_mode="final")
    both = op.filter("both", pairs, lambda pair: None not in pair[1])
    return op.map("columns", both, lambda pair: (pair[1][0][1], pair[1][0][2], pair[1][1][0]))


def most_bids(tables: Tables) -> Stream:
    """Return those of query 5."""

    def greater(most: list[Any], count: tuple[int, int]) -> list[Any]:
        if not most or count[1] > most[0][1]:
            return [count]
        return [*most, count] if count[1] == most[0][1] else most

    counts = win.count_window("count", tables["bid"], CLOCK, windows(2), lambda bid: str(bid[0])).down
    by_window = op.map("window", counts, lambda pair: (str(pair[1][0]), (int(pair[0]), pair[1][1])))
    most = op.fold_final("most", by_window, list, greater)
    return op.flat_map("rows", most, lambda pair: [(auction, 2_000_000 * int(pair[0]), n) for auction, n in pair[1]])


def highest_bids(tables: Tables) -> Stream:
    """Return those of query 7."""

    def higher(highest: list[Any], bid: Any) -> list[Any]:
        if not highest or bid[2] > highest[0][2]:
            return [bid]
        return [*highest, bid] if bid[2] == highest[0][2] else highest

    keyed = op.key_on("all", tables["bid"], lambda bid: "")
    highest = win.fold_window("highest", keyed, CLOCK, windows(10), list, higher, lambda one, other: one + other).down
    return op.flat_map("rows", highest, lambda pair: [(*bid[:3], 10_000_000 * pair[1][0]) for bid in pair[1][1]])


def new_sellers(tables: Tables) -> Stream:
    """Return those of query 8."""
    one = op.key_on("person", tables["person"], lambda person: str(person[0]))
    other = op.key_on("seller", tables["auction"], lambda auction: str(auction[1]))
    pairs = win.join_window("join", CLOCK, windows(10), one, other, insert_mode="first", emit_mode="final").down
    both = op.filter("both", pairs, lambda pair: None not in pair[1][1])
    return op.map("columns", both, lambda pair: (*pair[1][1][0][:2], 10_000_000 * pair[1][0]))


QUERIES = {
    "Q0": everything,
    "Q1": other_currency,
    "Q2": some_auctions,
    "Q3": sellers,
    "Q5": most_bids,
    "Q7": highest_bids,
    "Q8": new_sellers,
}


def program(query: Callable[[Tables], Stream]) -> Callable[[Epochs], tuple[Run, Run]]:
    """Return what runs a query; moments are made of their numbers before, and numbers of them after."""

    def made(epochs: Epochs) -> tuple[Run, Run]:
        rows: list[Any] = []
        flow, place = Dataflow("nexmark"), {"bid": 5, "person": 3, "auction": 3}
        tables = {}
        for name, at in place.items():
            batches = [[(*row[:at], START + timedelta(microseconds=row[at])) for row in epoch[name]] for epoch in epochs]
            tables[name] = op.input(f"{name} rows", flow, Batches(batches))
        op.output("sink", query(tables), Sink(rows.extend))

        def measured() -> list[Any]:
            run_main(flow)
            return rows

        def answer() -> list[Any]:
            return [
                [(value - START) // timedelta(microseconds=1) if type(value) is datetime else value for value in row]
                for row in rows
            ]

        return measured, answer

    return made


if __name__ == "__main__":
    main({name: program(query) for name, query in QUERIES.items()})
