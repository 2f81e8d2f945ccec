"""Columns of ``maintain`` and ``stream``: how views spell them, and what a source may do to its own while the stream is down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from timely import differential as dd
from timely.differential.spark import maintain

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}


def test_views_spell_columns_as_the_user_does(session: SparkSession, tmp_path: Path) -> None:
    rows = session.createDataFrame([(1, 2, "x")], "userId long, Amt long, `Line Item` string")
    rows.write.parquet(str(tmp_path / "rows"))
    orders = session.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    queries = {
        "everything": "select * from orders",
        "by_source": "select USERID, o.amt from orders as o",
        "by_alias": "select userId as USERID, sum(Amt) as TotalAmt from orders group by userid",
        "inner_alias": "with c(Xx) as (select Amt from orders) select xx, Xx + 1 as nextX from c",
        "twice": "select a.userId, b.userId from orders a join orders b on a.userid = b.userid",
        "computed": "select max(Amt) from orders",
    }

    def build(scope: Any, orders: dd.Table[int]) -> Mapping[str, dd.Table[int]]:
        by_query = {name: dd.sql(scope, query, orders=orders) for name, query in queries.items()}
        return {**by_query, "by_method": orders.group_by("USERID").agg("max(amt) as mostAmt")}

    columns: dict[str, list[str]] = {}

    def note(epoch: int, views: Mapping[str, DataFrame]) -> None:
        for name, frame in views.items():
            assert [row.asDict().keys() for row in frame.collect()] == [dict.fromkeys(frame.columns).keys()]
            columns[name] = frame.columns[:-2]

    handle = maintain(build, {"orders": orders}, note, checkpoint=tmp_path / "checkpoint", workers=1, trigger=NOW)
    handle.await_termination()
    assert handle.failure is None
    assert columns == {
        "everything": ["userId", "Amt", "Line Item"],
        "by_source": ["userId", "Amt"],
        "by_alias": ["USERID", "TotalAmt"],
        "inner_alias": ["Xx", "nextX"],
        "twice": ["userId", "userId_1"],
        "computed": ["max(amt)"],
        "by_method": ["userId", "mostAmt"],
    }
