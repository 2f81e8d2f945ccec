"""Columns of ``maintain`` and ``stream``: how views spell them, and what a source may do to its own while the stream is down."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import timely
from tests.spark.feeds import FeedFolder, Row, apply
from tests.spark.streams import COUNTS, Streams, Taker, as_batches, as_rows, totals
from timely import differential as dd
from timely.differential.spark import changes, maintain, upserts
from timely.errors import SchemaError, TimelyWarning
from timely.spark import stream

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:distutils")]  # of PySpark 3.5

NOW = {"availableNow": True}


def test_views_spell_columns_as_the_user_does(session: SparkSession, tmp_path: Path) -> None:
    person = "struct<fullName: string, Tags: array<struct<Key: string>>>"
    rows = session.createDataFrame([(1, 2, "x", ("Ada", [("k",)]))], f"userId long, Amt long, `Line Item` string, Who {person}")
    rows.write.parquet(str(tmp_path / "rows"))
    orders = session.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    queries = {
        "everything": "select * from orders",
        "by_source": "select USERID, o.amt from orders as o",
        "by_alias": "select userId as USERID, sum(Amt) as TotalAmt from orders group by userid",
        "inner_alias": "with c(Xx) as (select Amt from orders) select xx, Xx + 1 as nextX from c",
        "twice": "select a.userId, b.userId from orders a join orders b on a.userid = b.userid",
        "computed": "select max(Amt) from orders",
        "nested": "select o.who.tags[1] as first from orders as o",
    }

    def build(scope: Any, orders: dd.Table[int]) -> Mapping[str, dd.Table[int]]:
        by_query = {name: dd.sql(scope, query, orders=orders) for name, query in queries.items()}
        return {**by_query, "by_method": orders.group_by("USERID").agg("max(amt) as mostAmt")}

    columns: dict[str, list[str]] = {}
    structs: dict[str, str] = {}

    def note(epoch: int, views: Mapping[str, DataFrame]) -> None:
        for name, frame in views.items():
            assert [row.asDict().keys() for row in frame.collect()] == [dict.fromkeys(frame.columns).keys()]
            columns[name] = frame.columns[:-2]
            structs.update(
                {field.name: field.dataType.simpleString() for field in frame.schema if field.name in ("Who", "first")}
            )

    handle = maintain(build, {"orders": orders}, note, checkpoint=tmp_path / "checkpoint", workers=1, trigger=NOW)
    handle.await_termination()
    assert handle.failure is None
    assert columns == {
        "everything": ["userId", "Amt", "Line Item", "Who"],
        "nested": ["first"],
        "by_source": ["userId", "Amt"],
        "by_alias": ["USERID", "TotalAmt"],
        "inner_alias": ["Xx", "nextX"],
        "twice": ["userId", "userId_1"],
        "computed": ["max(amt)"],
        "by_method": ["userId", "mostAmt"],
    }
    assert structs == {"Who": person.replace(": ", ":").replace(", ", ","), "first": "struct<Key:string>"}


@pytest.mark.parametrize("seeds", [pytest.param([], marks=pytest.mark.soak), [("z", 7)]], ids=["one input", "two inputs"])
def test_a_stream_goes_on_with_columns_that_are_new_elsewhere_and_wider(
    session: SparkSession, tmp_path: Path, seeds: list[Row]
) -> None:
    """Also where it computes epochs anew whose rows are from before."""
    folder, take = FeedFolder(tmp_path / "words"), Taker()

    def start(schema: str, kind: str, number: pa.DataType) -> None:
        def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
            assert dict(zip(batch.schema.names, batch.schema.types)) == {"word": pa.string(), "n": number}
            assert batch.schema.names == ["word", "n"]
            return batch

        def build(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> Streams:
            words, *others = (stream.map_batch(checked) for stream in streams.values())
            return {"counts": as_batches(totals(as_rows(words.concat(*others))), "word", "total")}

        inputs = {"words": folder.read(session, schema)}
        if seeds:
            inputs["seeds"] = session.createDataFrame(seeds, "word string, n long").selectExpr("word", f"cast(n as {kind}) n")
        options: dict[str, Any] = {"foreach_epoch": take, "checkpoint": tmp_path / "checkpoint", "workers": 2, "trigger": NOW}
        stream(build, inputs, {"counts": COUNTS}, **options).await_termination()

    folder.put([{"word": "a", "n": 1}, {"word": "b", "n": 2}], [{"word": "a", "n": 3}])
    start("word string, n int", "int", pa.int32())
    shutil.rmtree(tmp_path / "checkpoint/state")
    folder.put([{"word": "a", "n": 1 << 40, "more": "x"}])
    with pytest.warns(TimelyWarning, match="input 'words' has gained more, and its checkpoint goes on without"):
        start("n long, more string, word string", "long", pa.int64())
    assert take.of("counts") == {0: [("a", 1), ("b", 2), *seeds], 1: [("a", 4)], 2: [("a", (1 << 40) + 4)]}
    with pytest.raises(SchemaError, match="'words' has the columns word string, n int; in the checkpoint .*n bigint"):
        start("word string, n int", "int", pa.int32())


BEFORE, AFTER = "id int, who string, paid decimal(5, 2)", "more double, paid decimal(9, 2), id long, who string"
FEEDS: dict[str, tuple[str, Callable[[DataFrame], Any]]] = {
    "append": ("{0}", lambda frame: frame),
    "delta": ("{0}, _change_type string", changes),
    "keys": ("_change_type string, {0}", lambda frame: changes(frame, keys=["id"])),
    "debezium": ("op string, before struct<{0}>, after struct<{0}>", lambda frame: changes(frame, "debezium")),
    "upserts": ("{0}, gone boolean", lambda frame: upserts(frame, ["id"], deleted="gone")),
}


def line(kind: str, op: str, row: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
    """What a feed has for a row that is created, updated or deleted."""
    if kind == "debezium":
        return [{"op": op, "before": before, "after": row}]
    if kind == "upserts":
        return [{**(row or before or {}), "gone": op == "d"}]
    if kind == "append":
        return [] if row is None else [row]
    sides = [(before, "delete" if op == "d" else "update_preimage"), (row, "insert" if op == "c" else "update_postimage")]
    return [{**side, "_change_type": change} for side, change in sides if side is not None]


@pytest.mark.parametrize(
    "kind", ["debezium", "upserts", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("append", "delta", "keys"))]
)
def test_a_view_keeps_its_state_where_a_source_gains_moves_and_widens_columns(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    """A row of before is updated, and one is deleted, by rows that have the new column."""
    folder, held = FeedFolder(tmp_path / "rows"), Counter[Row]()
    schema, feed = FEEDS[kind]

    def start(columns: str, **options: Any) -> None:
        def take(epoch: int, frame: DataFrame) -> None:
            assert frame.columns[:3] == ["id", "who", "paid"]
            apply(held, epoch, map(tuple, frame.collect()))

        inputs = {"rows": feed(folder.read(session, schema.format(columns)))}
        maintain("select * from rows", inputs, take, checkpoint=tmp_path / "c", workers=2, trigger=NOW).await_termination()

    ada, bob = {"id": 1, "who": "ada", "paid": "1.50"}, {"id": 2, "who": "bob", "paid": "2.25"}
    folder.put([*line(kind, "c", ada), *line(kind, "c", bob)])
    start(BEFORE)
    more = {"id": 1 << 40, "who": "eve", "paid": "1234567.25", "more": 0.5}
    richer = {**ada, "paid": "9.00", "more": 1.0}
    folder.put(
        [*line(kind, "c", more), *line(kind, "u", richer, {**ada, "more": 3.0}), *line(kind, "d", None, {**bob, "more": 2})]
    )
    with pytest.warns(TimelyWarning, match="input 'rows' has gained .*more"):
        start(AFTER)
    rows = [(1, "ada", Decimal("9.00")), (1 << 40, "eve", Decimal("1234567.25"))]
    if kind == "append":
        rows += [(1, "ada", Decimal("1.50")), (2, "bob", Decimal("2.25"))]
    assert held == Counter(rows)


@pytest.mark.parametrize("kind", ["append", "debezium"])
def test_what_changes_otherwise_is_refused_with_how_to_go_on(session: SparkSession, tmp_path: Path, kind: str) -> None:
    folder, (schema, feed) = FeedFolder(tmp_path / "rows"), FEEDS[kind]

    def start(columns: str) -> None:
        inputs = {"rows": feed(folder.read(session, schema.format(columns)))}
        view = maintain("select who from rows", inputs, print, checkpoint=tmp_path / "c", workers=1, trigger=NOW)
        view.await_termination()

    folder.put(line(kind, "c", {"id": 1, "who": "ada", "paid": 1}))
    start(BEFORE)
    for columns in ("id int, who string", "id int, who string, paid decimal(5, 1)", "id int, who int, paid decimal(5, 2)"):
        with pytest.raises(SchemaError, match=r"input 'rows' has .*; in the checkpoint .*use a new directory .* snapshot="):
            start(columns)
