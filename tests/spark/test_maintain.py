"""``timely.differential.spark.maintain``: views over feeds are what Spark makes of the accumulated data, at each epoch.

White box: a query is made to end at each write of its log, which nothing outside can time.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.feeds import CHANGES, CUSTOMERS, ORDERS, QUERY, FeedFolder, Row, Shop, apply
from tests.spark.streams import descriptions
from timely import differential as dd
from timely.differential.spark import Feed, changes, maintain, upserts
from timely.errors import ChangedDataflowError, ConfigurationError, FeedError, SchemaError, SqlError
from timely.spark import StreamHandle
from timely.spark.streaming.epoch_log import EpochLog

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}


@pytest.fixture
def orders(tmp_path: Path) -> FeedFolder:
    return FeedFolder(tmp_path / "orders")


@pytest.fixture
def where(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@attrs.define
class Held:
    """Takes changes, and keeps what the view holds after each epoch."""

    held: Counter[Row] = attrs.field(factory=Counter)
    after: dict[int, Counter[Row]] = attrs.field(factory=dict)
    on_epoch: Callable[[int], object] = lambda epoch: None

    def __call__(self, epoch: int, frame: DataFrame) -> None:
        apply(self.held, epoch, map(tuple, frame.collect()))
        self.after[epoch] = Counter(self.held)
        self.on_epoch(epoch)


def change(kind: str, id: int, customer: int = 0, total: int = 0) -> dict[str, Any]:
    return {"id": id, "customer": customer, "total": total, "_change_type": kind, "_commit_version": 0}


def start(session: SparkSession, orders: FeedFolder, where: str, sink: Any, view: Any = None, **options: Any) -> StreamHandle:
    """A view of orders, on what is in their folder now."""
    values: dict[str, Any] = {"inputs": {"orders": changes(orders.read(session, CHANGES))}, "workers": 2, "trigger": NOW}
    view = view or "select customer, count(*) as n, sum(total) as total from orders group by customer"
    return maintain(view, outputs=sink, checkpoint=where, **{**values, **options})


def test_a_view_is_what_spark_makes_of_the_accumulated_data(
    session: SparkSession, orders: FeedFolder, where: str, tmp_path: Path
) -> None:
    """Changes of orders beside upserts of customers, both after a snapshot; the stream goes on with other workers."""
    shop, customers, expected = Shop(5), FeedFolder(tmp_path / "customers"), []

    def arrive() -> None:
        orders.put(shop.order_changes(8))
        customers.put(shop.customer_calls(3))
        for name, rows, schema in (
            ("orders", list(shop.orders.values()), ORDERS),
            ("customers", list(shop.customers.items()), "id long, name string"),
        ):
            session.createDataFrame(rows, schema).createOrReplaceTempView(name)
        expected.append(Counter(tuple(row) for row in session.sql(QUERY).collect()))
        assert expected[-1] == shop.result()

    shop.order_changes(9)
    shop.customer_calls(4)
    snapshot = session.createDataFrame(list(shop.orders.values()), ORDERS).select("total", "id", "customer")
    known = session.createDataFrame(list(shop.customers.items()), "id long, name string")
    take = Held()
    for workers, epochs in ((2, 2), (1, 1)):
        for _ in range(epochs):
            arrive()
        inputs = {
            "orders": changes(orders.read(session, CHANGES), snapshot=snapshot),
            "customers": upserts(customers.read(session, CUSTOMERS), keys=["id"], deleted="gone", snapshot=known),
        }
        maintain(QUERY, inputs, take, checkpoint=where, workers=workers, trigger=NOW).await_termination()
    assert take.after == dict(enumerate(expected))
    assert "timely view: workers" in descriptions(session)
    assert len(set(map(str, expected))) > 1


def test_a_function_that_builds_several_views_of_a_debezium_feed_as_files(
    session: SparkSession, where: str, tmp_path: Path
) -> None:
    feed, side = FeedFolder(tmp_path / "feed"), "struct<id: long, name: string>"
    people = session.createDataFrame([(1, "ada"), (2, "bob")], "id long, name string")
    feed.put(
        [{"op": "c", "after": {"id": 3, "name": "bob"}}, {"op": "u", "before": {"id": 1, "name": "ada"}, "after": {"id": 1}}],
        [],
        [{"op": "d", "before": {"id": 2, "name": "bob"}}, {"op": "c", "after": {"id": 4, "name": "eve"}}],
    )

    def build(scope: timely.ScopeBuilder[int], query: dd.Table[int], extra: dd.Table[int]) -> Mapping[str, dd.Table[int]]:
        ids = query.collection.map(lambda row: row[:1])
        return {
            "names": dd.sql(scope, "select name from query union all select name from extra", query=query, extra=extra),
            "ids": dd.table(ids, pa.schema([("id", pa.int64())])),
        }

    out = tmp_path / "out"
    inputs: dict[str, DataFrame | Feed] = {
        "query": changes(feed.read(session, f"op string, before {side}, after {side}"), "debezium", snapshot=people),
        "extra": session.createDataFrame([("zoe",), ("zoe",)], "name string"),
    }
    handle = maintain(build, inputs, out, mode="complete", checkpoint=where, workers=2, trigger=NOW)
    handle.await_termination()
    assert sorted(os.listdir(out / "names"))[1:] == ["epoch=1", "epoch=2"]
    for epoch, names, ids in (
        (1, [None, "bob", "bob", "zoe", "zoe"], [1, 2, 3]),
        (2, [None, "bob", "eve", "zoe", "zoe"], [1, 3, 4]),
    ):
        actual = {view: session.read.parquet(f"{out}/{view}/epoch={epoch}").collect() for view in ("names", "ids")}
        assert sorted((row.name for row in actual["names"]), key=lambda name: name or "") == names
        assert sorted(row.id for row in actual["ids"]) == ids


# -- faults ------------------------------------------------------------------------------------------------------------

EPOCHS = [
    [change("insert", 1, 1, 10), change("insert", 2, 2, 20)],
    [change("delete", 1, 1, 10), change("insert", 3, 2, 30)],
    [change("insert", 4, 1, 1)],
    [change("delete", 4, 1, 1), change("insert", 5, 3, 5)],
]
RESULTS = {
    0: Counter({(1, 1, 10): 1, (2, 1, 20): 1}),
    1: Counter({(2, 2, 50): 1}),
    2: Counter({(2, 2, 50): 1, (1, 1, 1): 1}),
    3: Counter({(2, 2, 50): 1, (3, 1, 5): 1}),
}


def held_by(session: SparkSession, out: Path) -> dict[int, Counter[Row]]:
    """What the view holds after each epoch of a folder of changes."""
    held: Counter[Row] = Counter()
    by_name = {}
    for epoch in range(len([name for name in os.listdir(out) if name.startswith("epoch=")])):
        rows = [tuple(row) for row in session.read.parquet(f"{out}/epoch={epoch}").collect()]
        apply(held, epoch, sorted(rows, key=lambda row: row[-2]))
        by_name[epoch] = Counter(held)
    return by_name


@pytest.mark.soak
def test_a_folder_has_each_epoch_once_wherever_a_driver_ends_and_a_worker_is_killed(
    session: SparkSession, orders: FeedFolder, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver ends between the outputs of an epoch and their commit, and between handing over and noting it."""
    orders.put(*EPOCHS)
    out, died = tmp_path / "out", tmp_path / "died"

    def build(scope: timely.ScopeBuilder[int], orders: dd.Table[int]) -> Mapping[str, dd.Table[int]]:
        def die(row: Row) -> Row:
            if row[0] == 5 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return row

        schema = orders.schema
        orders = dd.table(orders.collection.map(die), schema)
        return {"view": orders.group_by("customer").agg("count(*) as n", "sum(total) as total")}

    class Ended(Exception):
        """The driver ends here."""

    def ending(method: Any, last: int) -> Any:
        def end(log: EpochLog, epoch: int, *rest: Any) -> None:
            if epoch == last:
                raise Ended
            method(log, epoch, *rest)

        return end

    for name, last in (("commit", 1), ("deliver", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(EpochLog, name, ending(getattr(EpochLog, name), last))
            handle = start(session, orders, where, out, build)
            with pytest.raises(timely.TimelyError, match="Ended"):
                handle.await_termination()
            assert handle.epoch == last - 1
    before = sorted(os.listdir(out / "view" / "epoch=2"))  # handed over, and not noted
    handle = start(session, orders, where, out, build)
    handle.await_termination()
    assert died.exists()
    assert handle.attempts == 2
    assert sorted(os.listdir(out / "view" / "epoch=2")) == before
    assert held_by(session, out / "view") == RESULTS


def test_a_row_that_cannot_be_applied_loses_nothing(session: SparkSession, orders: FeedFolder, where: str) -> None:
    """The source is repaired, or the row filtered out, and the view goes on from the same checkpoint."""
    orders.put(*EPOCHS[:2], [*EPOCHS[2], change("delete", 9)], [*EPOCHS[3], change("upsert", 9)])
    take = Held()
    handle = start(session, orders, where, take)
    with pytest.raises(FeedError, match=r"input 'orders' given at test_maintain\.py:\d+ in .*'id': 9.*deleted at epoch 2"):
        handle.await_termination()
    assert handle.attempts == 1
    assert take.after == {epoch: RESULTS[epoch] for epoch in (0, 1)}
    orders.write(2, EPOCHS[2])
    with pytest.raises(FeedError, match="'id': 9.*its _change_type is 'upsert'"):
        start(session, orders, where, take).await_termination()
    filtered = changes(orders.read(session, CHANGES).where("_change_type <> 'upsert'"))
    start(session, orders, where, take, inputs={"orders": filtered}).await_termination()
    assert take.after == RESULTS


# -- what it refuses ---------------------------------------------------------------------------------------------------


def nothing(epoch: int, frame: DataFrame) -> None:
    """Takes an epoch and does nothing."""


def test_another_view_than_the_checkpoint_is_of_and_a_folder_of_another_checkpoint(
    session: SparkSession, orders: FeedFolder, where: str, tmp_path: Path
) -> None:
    orders.put(EPOCHS[0])
    start(session, orders, where, tmp_path / "out").await_termination()
    frame = orders.read(session, CHANGES)
    for options, words in (
        ({"view": "select id from orders where total > 1"}, "has another view"),
        ({"mode": "complete"}, "has another mode: 'changes', and not 'complete'"),
        ({"inputs": {"orders": upserts(frame, keys=["id"])}}, "has another inputs"),
    ):
        with pytest.raises(ChangedDataflowError, match=words):
            start(session, orders, where, nothing, **options)
    with pytest.raises(ConfigurationError, match="out is not empty, and not of this checkpoint: give another folder"):
        start(session, orders, where + "2", tmp_path / "out").await_termination()


def test_arguments_that_cannot_be(session: SparkSession, orders: FeedFolder, where: str) -> None:
    frame = orders.read(session, CHANGES)
    fixed = session.createDataFrame([], ORDERS)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"mode": "append"}, ConfigurationError, "mode is 'changes' or 'complete'"),
        ({"sink": None}, ConfigurationError, "outputs must be a function of .*, or a sink, not None"),
        ({"view": "select now() as t from orders"}, SqlError, "line 1"),
        ({"view": "select 1 as x, null as y from orders"}, SchemaError, "view 'view': column 'y' has no type"),
        ({"view": "select id as _change_type from orders"}, SchemaError, "has the name of one that is added: rename it"),
        ({"view": lambda scope, order: order}, ConfigurationError, r"build is called as build\(scope, orders=...\)"),
        ({"view": lambda scope, orders: orders.collection}, ConfigurationError, "a table, or a collection with a schema"),
        ({"inputs": {"orders": fixed}}, ConfigurationError, r"none of the inputs \(orders\) is a streaming DataFrame"),
        ({"inputs": {"orders": [1]}}, ConfigurationError, r"inputs\['orders'\] must be a DataFrame, or what changes"),
        ({"inputs": {"orders": frame, "Orders": frame}}, ConfigurationError, "'orders' and 'Orders' differ in case alone"),
        ({"inputs": {"orders": frame.selectExpr("null as m")}}, SchemaError, "'orders' given at .*'m' is null.*leave the"),
    ]
    for options, error, words in cases:
        with pytest.raises(error, match=words):
            start(session, orders, where, options.pop("sink", nothing), **options)
        assert not os.path.exists(f"{where}/ledger")


def test_feeds_that_cannot_be(session: SparkSession, orders: FeedFolder) -> None:
    frame = orders.read(session, CHANGES)
    rows = frame.drop("_change_type", "_commit_version")
    fixed = session.createDataFrame([], "id long, customer long, total double")
    side = "struct<id: long>"
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: changes(rows), SchemaError, "must have one column '_change_type'; it has 'id', 'customer', 'total'"),
        (lambda: changes(rows.selectExpr("*", "1 as _change_type")), SchemaError, "'_change_type' is int, and must be string"),
        (lambda: changes(frame, "cdc"), ConfigurationError, "format is 'delta', 'debezium' or 'append', not 'cdc'"),  # type: ignore[arg-type]
        (lambda: changes(rows, "debezium"), SchemaError, "must have one column 'op'"),
        (
            lambda: changes(rows.selectExpr("'c' as op", f"cast(null as {side}) as before", "id as after"), "debezium"),
            SchemaError,
            "before and after must be structs",
        ),
        (lambda: changes(frame, snapshot=fixed), SchemaError, "snapshot has the columns .*total:double"),
        (lambda: changes(frame, snapshot=rows), ConfigurationError, "snapshot= is a DataFrame that is no stream"),
        (lambda: changes([1]), ConfigurationError, "changes takes a Spark DataFrame"),  # type: ignore[arg-type]
        (lambda: upserts(rows, keys=[]), ConfigurationError, "keys is a list with at least one column"),
        (lambda: upserts(rows, keys="id"), ConfigurationError, "keys is a list of columns, not 'id'"),
        (lambda: upserts(rows, keys=["no"]), SchemaError, "must have one column 'no'"),
        (lambda: changes(frame, keys=["no"]), SchemaError, "keys: the table must have one column 'no'"),
        (lambda: changes(rows, "append", keys=["id"]), ConfigurationError, "have no keys= to compare"),
        (lambda: upserts(rows, keys=["id"], deleted="total"), SchemaError, "'total' is bigint, and must be boolean"),
        (lambda: upserts(rows, keys=["id"], order_by="at"), SchemaError, "must have one column 'at'"),
    ]
    for make, error, words in cases:
        with pytest.raises(error) as raised:
            make()
        assert re.search(words, str(raised.value))
