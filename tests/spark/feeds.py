"""What the tests of ``maintain`` have in common: folders in which changes arrive, random orders, and what a view holds."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
Rows = Sequence[Mapping[str, Any]]

ORDERS = "id long, customer long, total long"
CHANGES = f"{ORDERS}, _change_type string, _commit_version long"
CUSTOMERS = "id long, name string, gone boolean"
QUERY = """
    select name, count(*) as n, sum(total) as total
    from orders join customers on orders.customer = customers.id
    group by name
"""


class FeedFolder:
    """A folder into which files of JSON arrive, each a micro-batch of its own, in the order in which they are put."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def put(self, *epochs: Rows) -> None:
        """Add a file for each epoch."""
        for rows in epochs:
            self.write(len(list(self.path.iterdir())), rows)

    def write(self, number: int, rows: Rows) -> None:
        """Write a file, in place of the one that is there."""
        aside = self.path.parent / f".{self.path.name}-{number}"
        aside.write_text("".join(json.dumps(row) + "\n" for row in rows) or "\n")
        os.utime(aside, (1_000_000_000 + number,) * 2)
        aside.rename(self.path / f"{number}.json")

    def read(self, session: SparkSession, schema: str) -> DataFrame:
        """The streaming DataFrame of what arrives, a file in each micro-batch; an empty line is no row."""
        first = schema.split()[0]
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.path)).where(f"{first} is not null")


class Shop:
    """Orders and customers that change at random: the rows of the feeds of one epoch after the other, and what there is."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.orders: dict[int, Row] = {}
        self.customers: dict[int, str] = {}
        self.version = 0
        self.calls = 0

    def order_changes(self, number: int) -> list[dict[str, Any]]:
        """Some changes of orders, shuffled."""
        rows: list[dict[str, Any]] = []

        def change(kind: str, row: Row) -> None:
            rows.append({**dict(zip(("id", "customer", "total"), row)), "_change_type": kind, "_commit_version": self.version})

        for _ in range(number):
            self.version += 1
            id, new = self.dice.randrange(12), (self.dice.randrange(5), self.dice.randrange(100))
            if id not in self.orders:
                self.orders[id] = (id, *new)
                change("insert", self.orders[id])
            elif self.dice.random() < 0.4:
                change("delete", self.orders.pop(id))
            else:
                change("update_preimage", self.orders[id])
                self.orders[id] = (id, *new)
                change("update_postimage", self.orders[id])
        self.dice.shuffle(rows)
        return rows

    def customer_calls(self, number: int) -> list[dict[str, Any]]:
        """Some upserts of customers, each at most once; ``call`` says which is the later one of two epochs."""
        rows: list[dict[str, Any]] = []
        self.calls += 1
        for id in self.dice.sample(range(5), number):
            gone = id in self.customers and self.dice.random() < 0.4
            name = self.dice.choice(["ada", "bob", "eve"])
            if gone:
                del self.customers[id]
            else:
                self.customers[id] = name
            rows.append({"id": id, "name": name, "gone": gone, "call": self.calls})
        return rows

    def result(self) -> Counter[Row]:
        """What ``QUERY`` gives of all that there is."""
        by_name: dict[str, list[int]] = {}
        for _, customer, total in self.orders.values():
            if customer in self.customers:
                by_name.setdefault(self.customers[customer], []).append(total)
        return Counter((name, len(totals), sum(totals)) for name, totals in by_name.items())


def apply(held: Counter[Row], epoch: int, rows: Iterable[Row]) -> None:
    """Apply the changes of an epoch to what a view holds: deletes are of rows that are there, and come before inserts."""
    inserting = False
    for *values, kind, version in rows:
        row = tuple(values)
        assert version == epoch
        assert kind == "insert" or not inserting
        inserting = kind == "insert"
        if inserting:
            held[row] += 1
        else:
            assert held[row] > 0
            held[row] -= 1
            if not held[row]:
                del held[row]
