"""Programs of ibis and SQLFrame become views by their SQL, and hold what DuckDB says at every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.differential.sql_epochs import stream


def check(query: str) -> None:
    expected = stream(1).expected(query)
    assert any(expected)
    assert stream(1).views(query) == expected


# -- ibis ----------------------------------------------------------------------------------------------------------

IBIS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "groups": lambda ibis, orders, lines: (
        orders.group_by("customer").agg(total=orders.amount.sum(), n=orders.count()).filter(ibis._.total > 5)
    ),
    "join": lambda ibis, orders, lines: orders.join(lines, orders.id == lines.order_id).select(
        "id", revenue=lines.price * lines.n
    ),
    "outer join": lambda ibis, orders, lines: orders.left_join(lines, [orders.id == lines.order_id]),
    "windows": lambda ibis, orders, lines: (
        orders.group_by("customer").order_by("amount", "id").mutate(number=ibis.row_number(), before=ibis._.amount.lag())
    ),
    "running sum": lambda ibis, orders, lines: orders.mutate(
        sum=orders.amount.sum().over(ibis.cumulative_window(order_by=["id", "amount", "customer"]))
    ),
    "share": lambda ibis, orders, lines: orders.mutate(
        share=orders.amount / orders.amount.sum().over(ibis.window(group_by="customer"))
    ),
    "first rows": lambda ibis, orders, lines: orders.order_by(ibis.desc("amount"), "id", "customer").limit(3),
    "cases": lambda ibis, orders, lines: orders.mutate(big=ibis.cases((orders.amount > 3, "big"), else_="small")),
    "in": lambda ibis, orders, lines: orders.filter(orders.id.isin(lines.order_id)),
    "not in": lambda ibis, orders, lines: orders.filter(~orders.id.isin(lines.order_id.fill_null(0))),
    "statistics": lambda ibis, orders, lines: orders.group_by("customer").agg(
        deviation=orders.amount.std(), median=orders.amount.median(), n=orders.amount.nunique()
    ),
    "best": lambda ibis, orders, lines: orders.group_by("customer").agg(best=orders.amount.max(), at=orders.id.argmax(orders.id)),
    "union": lambda ibis, orders, lines: orders.select("id").union(lines.select(id="order_id"), distinct=True),
    "dates": lambda ibis, orders, lines: lines.mutate(year=lines.day.year(), month=lines.day.truncate("M")),
    "quoted": lambda ibis, orders, lines: orders.select(**{"Order ID": orders.id, "Total": orders.amount + 1}).filter(
        ibis._["Total"] > 3
    ),
    "as-of join": lambda ibis, orders, lines: orders.asof_join(
        lines.select("order_id", "n").distinct(), ("amount", "n"), [("id", "order_id")]
    ),
    "missing": lambda ibis, orders, lines: orders.fill_null({"amount": 0}).drop_null(["customer"]),
}


@pytest.mark.parametrize("name", IBIS)
def test_a_program_of_ibis_is_a_view(name: str) -> None:
    ibis = pytest.importorskip("ibis")
    orders = ibis.table({"id": "int64", "customer": "string", "amount": "int64"}, name="orders")
    columns = {"order_id": "int64", "price": "float64", "n": "int64", "day": "date", "fee": "decimal(8, 2)"}
    lines = ibis.table(columns, name="lines")
    check(str(ibis.to_sql(IBIS[name](ibis, orders, lines), dialect="duckdb")))


# -- SQLFrame ------------------------------------------------------------------------------------------------------

SQLFRAME: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "groups": lambda F, W, orders, lines: (
        orders.groupBy("customer").agg(F.sum("amount").alias("total"), F.count("*").alias("n")).where(F.col("total") > 5)
    ),
    "join": lambda F, W, orders, lines: orders.join(lines, orders.id == lines.order_id, "left").select(
        orders.id, (lines.price * lines.n).alias("revenue")
    ),
    "anti join": lambda F, W, orders, lines: orders.join(lines.withColumnRenamed("order_id", "id"), "id", "left_anti"),
    "windows": lambda F, W, orders, lines: orders.withColumn(
        "rank", F.row_number().over(W.partitionBy("customer").orderBy(F.col("amount").desc(), "id"))
    ).where("rank = 1"),
    "distinct": lambda F, W, orders, lines: orders.select("customer").distinct(),
    "first rows": lambda F, W, orders, lines: orders.orderBy(F.desc("amount"), "id", "customer").limit(3),
    "union": lambda F, W, orders, lines: orders.union(orders),
    "statistics": lambda F, W, orders, lines: orders.groupBy("customer").agg(F.stddev("amount"), F.countDistinct("id")),
    "cases": lambda F, W, orders, lines: orders.withColumn("big", F.when(F.col("amount") > 3, "yes").otherwise("no")),
}


@pytest.mark.parametrize("name", SQLFRAME)
def test_a_program_of_sqlframe_is_a_view(name: str) -> None:
    standalone = pytest.importorskip("sqlframe.standalone")
    functions = pytest.importorskip("sqlframe.standalone.functions")
    session = standalone.StandaloneSession()
    session.catalog.add_table("orders", {"id": "bigint", "customer": "string", "amount": "bigint"})
    session.catalog.add_table("lines", {"order_id": "bigint", "price": "double", "n": "bigint"})
    frame = SQLFRAME[name](functions, standalone.Window, session.read.table("orders"), session.read.table("lines"))
    check(frame.sql(dialect="duckdb"))
