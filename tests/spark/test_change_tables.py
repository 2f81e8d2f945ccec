"""Frames of the shape that ``spark.readStream.changes(table)`` and ``spark.read.changes(table)`` of Spark 4.2 have, as inputs.

No jar here has a catalog with such tables: what is tested are their columns, of which a catalog chooses the version's type.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.feeds import CUSTOMERS, ORDERS, QUERY, FeedFolder, Row, Shop, apply
from timely.differential.spark import Feed, changes, maintain, upserts

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}


def commits(shop: Shop, number: int) -> list[dict[str, Any]]:
    """Some commits of orders, whose rows are shuffled, each with the time of its commit."""
    return [{**row, "_commit_timestamp": f"2026-01-01 00:{row['_commit_version']:02}:00"} for row in shop.order_changes(number)]


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        pytest.param("string", ["id"], id="keys-string"),
        pytest.param("long", [], id="rows-long", marks=pytest.mark.soak),
        pytest.param("string", [], id="rows-string", marks=pytest.mark.soak),
        pytest.param("long", ["id"], id="keys-long", marks=pytest.mark.soak),
    ],
)
def test_a_view_over_the_changes_of_a_table_and_over_those_of_before(
    session: SparkSession, tmp_path: Path, version: str, keys: list[str]
) -> None:
    """The first commits come as a table that is no stream, the later ones in micro-batches of several commits each."""
    schema = f"_change_type string, {ORDERS}, _commit_version {version}, _commit_timestamp timestamp"
    orders, customers, shop = FeedFolder(tmp_path / "orders"), FeedFolder(tmp_path / "customers"), Shop(3)
    held, after, expected = Counter[Row](), list[Counter[Row]](), list[Counter[Row]]()

    def take(epoch: int, frame: DataFrame) -> None:
        apply(held, epoch, map(tuple, frame.collect()))
        after.append(Counter(held))

    for _ in range(3):
        orders.put(commits(shop, 8))
        customers.put(shop.customer_calls(4))
        expected.append(shop.result())
    inputs: dict[str, Feed] = {
        "orders": changes(orders.read(session, schema), keys=keys),
        "customers": upserts(customers.read(session, CUSTOMERS), keys=["id"], deleted="gone"),
    }
    maintain(QUERY, inputs, take, checkpoint=tmp_path / "c", workers=2, trigger=NOW).await_termination()
    assert after == expected and any(expected)

    held.clear()
    fixed = session.read.schema(schema).json(str(tmp_path / "orders")).where("_change_type is not null")
    inputs["orders"] = changes(fixed, keys=keys)
    maintain(QUERY, inputs, take, checkpoint=tmp_path / "d", workers=2, trigger=NOW).await_termination()
    assert held == expected[-1]
