"""The worker's part of ``maintain``, without Spark: feeds become tables, and views the rows that are handed over.

White box: rows of every kind of feed are decoded without a session, which would take a second for each case.
"""

from __future__ import annotations

import datetime as dt
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import differential as dd
from timely.differential.spark.feed_tables import Appended, ChangeTypes, Debezium, FeedDecoder, FeedTable, TableBuilder, Upserted
from timely.differential.spark.view_rows import all_rows, changed_rows
from timely.differential.tables.expressions.column_stages import minus
from timely.errors import CollectionMismatch, FeedError, OperatorError, SchemaError
from timely.recovery import Recovery

Row = tuple[Any, ...]
Epochs = Sequence[Sequence[Mapping[str, Any]]]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def batches(epoch: Sequence[Mapping[str, Any]], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows of an epoch in two batches, as a worker may get them."""
    half = len(epoch) // 2
    return [pa.RecordBatch.from_pylist(list(part), schema) for part in (epoch[:half], epoch[half:]) if part]


def run(
    decoder: FeedDecoder | Appended,
    epochs: Epochs,
    feed: pa.Schema,
    *,
    render: Callable[..., Any] = changed_rows,
    table: pa.Schema = SCHEMA,
    folder: Path | None = None,
    cut: int | None = None,
    workers: int = 1,
) -> dict[int, list[Row]]:
    """The rows handed over at each epoch; with ``cut``, by a run that ends in front of that epoch, and one that goes on."""

    def program(worker: timely.Worker, start: int, end: int) -> list[tuple[int, Row]]:
        seen: list[tuple[int, Row]] = []
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            view = TableBuilder(FeedTable("orders", table, "program.py:1"), decoder).build(stream)
            made = render(view.collection, view.schema, "view")

            def look(time: int, batch: pa.RecordBatch) -> None:
                seen.extend((time, tuple(row.values())) for row in batch.to_pylist())

            probe = made.inspect_batch(look).probe()
        for epoch in range(start, end):
            handle.advance_to(epoch)
            for number, batch in enumerate(batches(epochs[epoch], feed)):
                if number % worker.peers == worker.index:
                    handle.send_batch(batch)
            handle.advance_to(epoch + 1)
            worker.step_while(partial(probe.less_equal, epoch))
        return seen

    def both(worker: timely.Worker) -> list[tuple[int, Row]]:
        if cut is None:
            return program(worker, 0, len(epochs))
        with Recovery(worker, str(folder)) as recovery:
            seen = program(worker, recovery.time or 0, cut if recovery.time is None else len(epochs))
            if recovery.time is None:
                recovery.checkpoint(cut)
        return seen

    by_name: dict[int, list[Row]] = {epoch: [] for epoch in range(len(epochs))}
    for _ in range(1 if cut is None else 2):
        for seen in timely.execute(both, workers=workers):
            for epoch, row in seen:
                by_name[epoch].append(row)
    return {epoch: sorted(rows, key=repr) for epoch, rows in by_name.items()}


def feed_of(**columns: Any) -> pa.Schema:
    return pa.schema([*SCHEMA, *columns.items()])


def accumulated(changes: Mapping[int, Sequence[Row]]) -> dict[int, Counter[Row]]:
    """What a view holds after each epoch, from its changes; no row is both deleted and inserted, or there less than never."""
    held: Counter[Row] = Counter()
    by_name = {}
    for epoch, rows in changes.items():
        kinds: dict[Row, set[str]] = {}
        for *row, kind, version in rows:
            assert version == epoch
            kinds.setdefault(tuple(row), set()).add(kind)
            held[tuple(row)] += 1 if kind == "insert" else -1
        assert all(len(each) == 1 for each in kinds.values())
        assert all(count >= 0 for count in held.values())
        by_name[epoch] = +held
    return by_name


# -- change types ------------------------------------------------------------------------------------------------------


def some_changes(dice: random.Random, epochs: int) -> tuple[list[list[dict[str, Any]]], dict[int, Counter[Row]]]:
    """Epochs of a feed as Delta has them, in any order within an epoch, and what the table holds after each."""
    held: Counter[Row] = Counter()
    feed, tables = [], {}
    for epoch in range(epochs):
        rows: list[dict[str, Any]] = []

        def change(kind: str, row: Row) -> None:
            rows.append({"id": row[0], "n": row[1], "_change_type": kind})  # noqa: B023  # called at once
            held[row] += 1 if kind in ("insert", "update_postimage") else -1

        for _ in range(dice.randrange(8)):
            new = (dice.randrange(3), dice.randrange(3))
            there = sorted((+held).elements())
            if there and dice.random() < 0.6:
                change("update_preimage" if dice.random() < 0.5 else "delete", dice.choice(there))
            if not there or dice.random() < 0.6:
                change("update_postimage" if dice.random() < 0.5 else "insert", new)
        dice.shuffle(rows)
        feed.append(rows)
        tables[epoch] = +held
    return feed, tables


DELTA = feed_of(_change_type=pa.string())


@pytest.mark.parametrize("seed", range(5))
def test_changes_add_up_to_the_table(seed: int) -> None:
    feed, tables = some_changes(random.Random(seed), 6)
    assert accumulated(run(ChangeTypes(()), feed, DELTA)) == tables
    whole = run(ChangeTypes(()), feed, DELTA, render=all_rows)
    assert {epoch: Counter(rows) for epoch, rows in whole.items()} == tables


@pytest.mark.parametrize("render", [changed_rows, all_rows])
@pytest.mark.parametrize("cut", [1, 4])
def test_a_run_that_goes_on_from_a_checkpoint(tmp_path: Path, render: Callable[..., Any], cut: int) -> None:
    feed, _ = some_changes(random.Random(11), 6)
    assert run(ChangeTypes(()), feed, DELTA, render=render, folder=tmp_path, cut=cut, workers=2) == run(
        ChangeTypes(()), feed, DELTA, render=render
    )


@pytest.mark.parametrize("render", [changed_rows, all_rows])
def test_a_row_that_is_there_several_times(render: Callable[..., Any]) -> None:
    row = {"id": 1, "n": None, "_change_type": "insert"}
    tables = run(ChangeTypes(()), [[row] * 3, [], [{**row, "_change_type": "delete"}]], DELTA, render=render)
    if render is changed_rows:
        assert tables == {0: [(1, None, "insert", 0)] * 3, 1: [], 2: [(1, None, "delete", 2)]}
    else:
        assert tables == {0: [(1, None)] * 3, 1: [(1, None)] * 3, 2: [(1, None)] * 2}


def refused(decoder: FeedDecoder | Appended, epochs: Epochs, feed: pa.Schema) -> str:
    with pytest.raises(FeedError) as error:
        run(decoder, epochs, feed)
    assert "input 'orders' given at program.py:1, row " in str(error.value)
    assert "the next start reads its rows again: " in str(error.value)
    return str(error.value)


def test_a_row_that_is_deleted_and_not_there() -> None:
    row = {"id": 7, "n": 1}
    feed = [[{**row, "_change_type": "insert"}], [{**row, "_change_type": "delete"}, {"id": 7, "n": 2, "_change_type": "delete"}]]
    message = refused(ChangeTypes(()), feed, DELTA)
    assert "row {'id': 7, 'n': 2}: it is deleted at epoch 1, 1 times more than inserted, and is there 0 times" in message
    assert "snapshot=" in message


def with_keys(*rows: Row) -> list[dict[str, Any]]:
    return [dict(zip(DELTA.names, row)) for row in rows]


def test_changes_with_keys_have_each_change_once() -> None:
    feed = [
        with_keys((1, 1, "insert"), (2, 1, "insert"), (1, 1, "delete"), (1, 2, "insert")),
        with_keys((1, 2, "update_preimage"), (1, 3, "update_postimage"), (2, 1, "delete")),
    ]
    assert accumulated(run(ChangeTypes(("id",)), feed, DELTA)) == {0: Counter([(1, 2), (2, 1)]), 1: Counter([(1, 3)])}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1, 1, "insert")], r"it is inserted at epoch 1, and \(1, 1\) with the same id is there.*each change once"),
        ([(1, 2, "insert")], r"'n': 2}: it is inserted at epoch 1, and \(1, 1\) with the same id is there"),
        ([(2, 2, "insert")] * 2, r"'n': 2}: it is inserted at epoch 1, and \(2, 2\) with the same id is there"),
        ([(1, 2, "delete")], "'n': 2}: it is deleted at epoch 1, 1 times more than inserted, and is there 0 times"),
        ([(1, 1, "delete")] * 2, "'n': 1}: it is deleted at epoch 1, 2 times more than inserted, and is there 1 times"),
        ([(None, 1, "insert")], "its key 'id' is null"),
    ],
)
def test_changes_that_break_the_keys(rows: list[Row], words: str) -> None:
    assert re.search(words, refused(ChangeTypes(("id",)), [with_keys((1, 1, "insert")), with_keys(*rows)], DELTA))


@pytest.mark.parametrize("kind", ["upsert", None, "INSERT"])
def test_an_unknown_change_type(kind: str | None) -> None:
    message = refused(ChangeTypes(()), [[{"id": 1, "n": 1, "_change_type": kind}]], DELTA)
    assert f"its _change_type is {kind!r}, and none of insert, update_postimage, delete, update_preimage" in message


# -- Debezium ----------------------------------------------------------------------------------------------------------

SIDE = pa.struct(list(SCHEMA))
DEBEZIUM = pa.schema([("op", pa.string()), ("before", SIDE), ("after", SIDE)])
ONE, TWO = {"id": 1, "n": 1}, {"id": 1, "n": None}


def test_debezium_changes_add_up_to_the_table() -> None:
    feed: Epochs = [
        [{"op": "r", "before": None, "after": ONE}, {"op": "c", "before": None, "after": TWO}],
        [{"op": "u", "before": ONE, "after": TWO}],
        [{"op": "d", "before": TWO, "after": None}],
    ]
    assert accumulated(run(Debezium(()), feed, DEBEZIUM)) == {
        0: Counter({(1, 1): 1, (1, None): 1}),
        1: Counter({(1, None): 2}),
        2: Counter({(1, None): 1}),
    }


@pytest.mark.parametrize(
    ("op", "before", "after", "words"),
    [
        ("u", None, ONE, "op 'u' needs 'before', and it is null.*REPLICA IDENTITY FULL"),
        ("d", None, None, "op 'd' needs 'before', and it is null"),
        ("c", None, None, "op 'c' needs 'after', and it is null"),
        ("t", None, None, "its op is 't', and none of c, r, d, u"),
        (None, None, None, "its op is None.*tombstones"),
    ],
)
def test_debezium_rows_without_a_change(op: str | None, before: Any, after: Any, words: str) -> None:
    message = refused(Debezium(()), [[{"op": op, "before": before, "after": after}]], DEBEZIUM)
    assert re.search(words, message)


# -- upserts -----------------------------------------------------------------------------------------------------------

UPSERTS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("gone", pa.bool_())])
Call = tuple[int, int, bool]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.booleans()), max_size=5), max_size=5), st.booleans())
def test_upserts_are_those_of_a_dictionary(calls: list[list[Call]], ordered: bool) -> None:
    """With ``order_by`` whatever comes late changes nothing; without it the last epoch counts."""
    versions: dict[int, Call] = {}
    epochs, tables = [], {}
    for epoch, result in enumerate(calls):
        held: dict[Any, Call] = {}
        for call in result:  # one of a key and version, or one of a key
            held.setdefault(call[:2] if ordered else call[0], call)
        rows = [
            call for call in held.values() if not ordered or versions.get(call[0], call)[1] != call[1] or call[0] not in versions
        ]
        for call in rows:
            if not ordered or call[0] not in versions or versions[call[0]][1] < call[1]:
                versions[call[0]] = call
        epochs.append([{"id": id, "n": n, "gone": gone} for id, n, gone in rows])
        tables[epoch] = Counter((id, n) for id, n, gone in versions.values() if not gone)
    decoder = Upserted(("id",), "gone", ("n",) if ordered else ())
    assert accumulated(run(decoder, epochs, UPSERTS)) == tables


@pytest.mark.parametrize("cut", [1, 2])
def test_upserts_go_on_from_a_checkpoint(tmp_path: Path, cut: int) -> None:
    epochs = [
        [{"id": id, "n": 5, "gone": False} for id in range(6)],
        [{"id": id, "n": 6, "gone": True} for id in range(3)],
        [{"id": id, "n": 4, "gone": False} for id in range(6)],
        [{"id": 0, "n": 7, "gone": False}],
    ]
    tables = run(Upserted(("id",), "gone", ("n",)), epochs, UPSERTS, folder=tmp_path, cut=cut, workers=2)
    assert accumulated(tables) == {
        0: Counter((id, 5) for id in range(6)),
        1: Counter((id, 5) for id in range(3, 6)),
        2: Counter((id, 5) for id in range(3, 6)),
        3: Counter([(0, 7), (3, 5), (4, 5), (5, 5)]),
    }


@pytest.mark.parametrize(
    ("rows", "order_by", "words"),
    [
        ([(1, 1, False), (1, 2, False)], (), "several rows of one key at epoch 0, and none is the last one.*give order_by="),
        ([(1, 1, False), (1, 1, True)], ("n",), "several rows of one key at epoch 0.*a delete.*add a column to order_by="),
        ([(None, 1, False)], (), "its key 'id' is null.*'id is not null'"),
        ([(1, None, False)], ("n",), "its order 'n' is null"),
        ([(1, 1, None)], (), "its 'gone' is null"),
    ],
)
def test_upserts_of_which_nobody_knows_the_last(rows: list[Row], order_by: tuple[str, ...], words: str) -> None:
    epochs = [[dict(zip(UPSERTS.names, row)) for row in rows]]
    assert re.search(words, refused(Upserted(("id",), "gone", order_by), epochs, UPSERTS))


@pytest.mark.parametrize(("order_by", "last"), [((), 2), (("n",), 9)])
def test_a_snapshot_of_upserts_is_before_the_first_of_them_unless_an_order_says_otherwise(
    order_by: tuple[str, ...], last: int
) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (feed, changes), (before, snapshot) = scope.new_input(), scope.new_input()
        decoder = Upserted(("id",), "gone", order_by)
        table = TableBuilder(FeedTable("orders", SCHEMA, ""), decoder).build(changes, snapshot)
        output = table.output()
    feed.send_batch(pa.record_batch({"id": [1], "n": [2], "gone": [False]}))
    before.send_batch(pa.record_batch({"id": [1, 3], "n": [9, 9], "gone": [False, False]}))
    feed.close()
    before.close()
    worker.run()
    assert output.at(0) == {(1, last): 1, (3, 9): 1}


def test_equal_rows_of_one_key_are_one() -> None:
    row = {"id": 1, "n": 1, "gone": False}
    assert run(Upserted(("id",), "gone", ()), [[row, row], [row]], UPSERTS) == {0: [(1, 1, "insert", 0)], 1: []}


# -- values ------------------------------------------------------------------------------------------------------------


def test_values_of_every_type_come_through() -> None:
    values = {
        pa.bool_(): True,
        pa.int64(): -(2**63),
        pa.float64(): 0.1,
        pa.float32(): 0.5,
        pa.decimal128(38, 9): Decimal("1.250000000"),
        pa.string(): "ü",
        pa.binary(): b"\0",
        pa.date32(): dt.date(2020, 2, 29),
        pa.timestamp("us"): dt.datetime(2020, 3, 29, 2, 30, 0, 5),
        pa.timestamp("us", "UTC"): dt.datetime(2020, 3, 29, 2, 30, tzinfo=dt.UTC),
        pa.duration("us"): dt.timedelta(days=-1, microseconds=1),
        pa.list_(pa.string()): ["a", None],
        pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int32()))]): {"x": 1, "y": [2]},
    }
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(values)])
    rows = [dict(zip(schema.names, values.values())), dict.fromkeys(schema.names)]
    feed = [[{**row, "_change_type": kind} for row in rows] for kind in ("insert", "delete")]
    changed = schema.append(pa.field("_change_type", pa.string()))
    for workers in (1, 2):
        tables = run(ChangeTypes(()), feed, changed, table=schema, workers=workers)
        for epoch, kind in enumerate(("insert", "delete")):
            assert tables[epoch] == sorted([(*row.values(), kind, epoch) for row in rows], key=repr)


def test_a_row_with_nan_is_deleted_by_one_that_equals_it() -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.float64())])
    changed = schema.append(pa.field("_change_type", pa.string()))
    feed = [[{"id": 1, "n": float("nan"), "_change_type": kind}] for kind in ("insert", "delete")]
    for workers in (1, 2):
        tables = run(ChangeTypes(()), feed, changed, table=schema, workers=workers)
        assert repr(tables) == repr({0: [(1, float("nan"), "insert", 0)], 1: [(1, float("nan"), "delete", 1)]})


def test_a_value_of_a_view_that_does_not_fit() -> None:
    def render(collection: Any, schema: pa.Schema, name: str) -> Any:
        return changed_rows(collection.map(lambda row: (row[0] * 10**18, row[1])), schema, name)

    with pytest.raises(
        OperatorError, match="view 'view': a value of column 'id' does not fit int64: .*CAST it in the view"
    ) as error:
        run(Appended(), [[{"id": 100, "n": 1}]], SCHEMA, render=render)
    assert isinstance(error.value.__cause__, SchemaError)


def test_a_whole_view_that_has_a_row_less_than_never() -> None:
    def render(collection: Any, schema: pa.Schema, name: str) -> Any:
        return all_rows(collection.negate(), schema, name)

    with pytest.raises(CollectionMismatch, match=r"view 'view' holds \(1, 1\) -1 times at epoch 0"):
        run(Appended(), [[{"id": 1, "n": 1}]], SCHEMA, render=render)


@pytest.mark.parametrize("package", ["pyspark", "sqlglot"])
def test_a_package_that_is_missing(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import timely.differential.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(f"ConfigurationError: .* needs? the package {package}: pip install", done.stderr)


KINDS = [
    pa.string(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(8, 2),
    pa.date32(),
    pa.float64(),
    pa.list_(pa.string()),
    pa.binary(),
]
CLICKS = pa.schema(list(zip(["user", "at", "paid", "on", "ratio", "tags", "data"], KINDS)))


def click(source: random.Random) -> Row:
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=source.randint(0, 600))
    values = (source.choice("ab"), at, Decimal(source.randint(-999, 999)) / 100, at.date(), source.choice([0.5, -0.0, 1e300]))
    return (*[None if source.random() < 0.1 else value for value in (*values, [source.choice("xy")], b"z")],)


@pytest.mark.parametrize(
    "view",
    [
        lambda clicks: clicks,
        lambda clicks: clicks.select('"user"', "paid"),
        lambda clicks: clicks.sessions("at", gap="5 minutes", by="user"),
        lambda clicks: clicks.select('"user"', "at", '"on"').sessions("at", gap="5 minutes", by="user"),
        lambda clicks: clicks.select('"user"', "at", "ratio").sliding("at", "2 hours", "1 hour"),
        lambda clicks: clicks.tumbling("at", "1 hour").group_by("user", "window_start").agg("sum(paid) as paid"),
        lambda clicks: dd.Table(minus(clicks.collection, clicks.where("paid > 0").collection), clicks.columns),
    ],
)
@pytest.mark.parametrize("workers", [1, 3])
def test_changes_of_columns_are_those_of_rows(view: Callable[[Any], Any], workers: int) -> None:
    source = random.Random(4)
    epochs = [[click(source) for _ in range(150)] * 2 for _ in range(4)]

    def program(worker: timely.Worker) -> list[Counter[Any]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            table = TableBuilder(FeedTable("clicks", CLICKS, ""), Appended()).build(stream)
            rows = dd.table(scope, CLICKS)
            views = [view(table), view(rows)]
            outputs = [changed_rows(each.collection, each.schema, "v").capture() for each in views]
        for time, epoch in enumerate(epochs):
            mine = epoch[worker.index :: worker.peers]
            handle.send_batch(pa.RecordBatch.from_pylist([dict(zip(CLICKS.names, row)) for row in mine], CLICKS))
            for row in mine:
                rows.session.insert(row)
            for session in (handle, rows.session):
                session.advance_to(time + 1)
        for session in (handle, rows.session):
            session.close()
        worker.run()
        return [Counter(repr(row) for _, rows in output.extract() for row in rows) for output in outputs]

    shares = timely.execute(program, workers=workers)
    by_columns, by_rows = (sum((share[side] for share in shares), Counter()) for side in (0, 1))
    assert by_columns == by_rows and len(by_rows) > 40
