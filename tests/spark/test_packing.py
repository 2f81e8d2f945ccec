"""What is packed on one side is unpacked on the other, and output batches have the declared columns or are refused.

White box: packed rows never leave a run, and its inputs never come packed in all these ways.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.dataflow import OutputSchema
from timely.errors import SchemaError
from timely.spark.packing import EPOCH, TAG, InputTable, pack, packed_schema, struct_name, unpack

EDGES = pa.schema([("src", pa.string()), ("dst", pa.string())])
RANKS = pa.schema([("node", pa.int64()), ("rank", pa.float64())])
TABLES = (OutputSchema("edges", EDGES), OutputSchema("ranks", RANKS))
Rows = list[dict[str, Any]]

edge_rows = st.lists(st.fixed_dictionaries({"src": st.none() | st.text(), "dst": st.text()}))
rank_rows = st.lists(st.fixed_dictionaries({"node": st.integers(-9, 9), "rank": st.none() | st.floats(allow_nan=False)}))


@given(st.lists(st.one_of(st.tuples(st.just(0), edge_rows), st.tuples(st.just(1), rank_rows))))
def test_packing_and_unpacking_give_the_rows_back(parts: list[tuple[int, Rows]]) -> None:
    schema = packed_schema(TABLES)
    batches = [pack(position, pa.RecordBatch.from_pylist(rows, TABLES[position].schema), schema) for position, rows in parts]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    inputs = [InputTable(table.name, None, tuple(table.schema.names)) for table in TABLES]
    back: list[Rows] = [[], []]
    for batch in whole:
        for epoch, position, rows in unpack(batch, inputs):
            assert epoch == 0
            assert rows.schema == TABLES[position].schema
            back[position] += rows.to_pylist()
    assert back == [[row for position, rows in parts if position == wanted for row in rows] for wanted in range(2)]


@given(st.lists(st.integers(0, 4)).map(sorted))
def test_epochs_cut_a_batch_in_order(epochs: list[int]) -> None:
    batch = pa.RecordBatch.from_pydict({"day": pa.array(epochs, pa.int16()), "row": list(range(len(epochs)))})
    parts = list(unpack(batch, [InputTable("visits", "day")]))
    assert [epoch for epoch, _, _ in parts] == sorted(set(epochs))
    assert [(epoch, row) for epoch, _, rows in parts for row in rows["row"].to_pylist()] == list(
        zip(epochs, range(len(epochs)), strict=True)
    )


def test_epochs_of_packed_tables() -> None:
    packed = pa.RecordBatch.from_pydict(
        {
            TAG: pa.array([0, 1, 1, 0], pa.int32()),
            EPOCH: pa.array([0, 0, 3, 3], pa.int64()),
            struct_name(0): [{"a": 1}, None, None, {"a": 2}],
            struct_name(1): [None, {"b": "x"}, {"b": "y"}, None],
        }
    )
    parts = [(e, p, r.to_pylist()) for e, p, r in unpack(packed, [InputTable("one", "day"), InputTable("two", None)])]
    assert parts == [(0, 0, [{"a": 1}]), (0, 1, [{"b": "x"}]), (3, 0, [{"a": 2}]), (3, 1, [{"b": "y"}])]


@pytest.mark.parametrize("bad", [None, -1])
def test_an_epoch_that_is_none_is_refused(bad: int | None) -> None:
    batch = pa.RecordBatch.from_pydict({"day": pa.array([bad], pa.int64())})
    with pytest.raises(SchemaError, match="epoch is (null|-1)"):
        list(unpack(batch, [InputTable("visits", "day")]))


def conform(schema: pa.Schema, batch: dict[str, pa.Array]) -> dict[str, list[Any]]:
    got = OutputSchema("out", schema).conform(pa.RecordBatch.from_pydict(batch))
    assert got.schema == schema
    columns: dict[str, list[Any]] = got.to_pydict()
    return columns


@pytest.mark.parametrize(
    ("declared", "actual", "values"),
    [
        (pa.int64(), pa.int32(), [1, None]),
        (pa.int32(), pa.uint64(), [1, 2]),
        (pa.float64(), pa.int64(), [1, 2]),
        (pa.string(), pa.large_string(), ["a", None]),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", "a"]),
        (pa.binary(), pa.large_binary(), [b"a"]),
        (pa.int64(), pa.null(), [None]),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), [[1], None]),
        (pa.list_(pa.float64()), pa.list_(pa.float32()), [[0.5], None]),
        (pa.list_(pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string())), [["a", "a"], None]),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())]), [{"a": 1}, None]),
        (pa.float32(), pa.float64(), [0.5, -math.inf, None]),
        (pa.float64(), pa.decimal128(3, 2), [Decimal("1.25")]),
        (pa.decimal128(3, 2), pa.float64(), [1.25]),
    ],
)
def test_a_kindred_type_is_cast(declared: pa.DataType, actual: pa.DataType, values: list[Any]) -> None:
    assert conform(pa.schema([("x", declared)]), {"x": pa.array(values, actual)}) == {"x": values}


@pytest.mark.parametrize(
    ("declared", "actual", "values"),
    [
        (pa.int32(), pa.int64(), [1 << 40]),
        (pa.int64(), pa.float64(), [0.5]),
        (pa.string(), pa.int64(), [1]),
        (pa.int64(), pa.string(), ["1"]),
        (pa.int64(), pa.bool_(), [True]),
        (pa.timestamp("us", "UTC"), pa.int64(), [1]),
        (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), [{"a": 1}]),
        (pa.float32(), pa.float64(), [1e300]),
        (pa.float32(), pa.float64(), [0.5, 0.1]),
        (pa.decimal128(10, 1), pa.float64(), [1.26]),
        (pa.float64(), pa.decimal128(20, 18), [Decimal("1.234567890123456789")]),
        (pa.list_(pa.int64()), pa.list_(pa.string()), [["1"]]),
        (pa.list_(pa.float32()), pa.list_(pa.float64()), [[1e300]]),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())]), [{"a": 1}]),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())]), [{"a": 1, "b": 2}]),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())]), [{"a": 1}]),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), [[("a", "1")]]),
    ],
)
def test_another_type_is_refused(declared: pa.DataType, actual: pa.DataType, values: list[Any]) -> None:
    with pytest.raises(SchemaError, match="output 'out': column 'x' is declared"):
        conform(pa.schema([("x", declared)]), {"x": pa.array(values, actual)})


def test_columns_are_found_by_name() -> None:
    batch = {"rank": pa.array([0.5]), "node": pa.array([1])}
    assert conform(RANKS, batch) == {"node": [1], "rank": [0.5]}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"node": [1]}, "output 'out': the batch has no column 'rank'; it has 'node'"),
        (
            {"node": [1], "rank": [0.5], "more": [1]},
            "output 'out': the batch has a column 'more' that was not declared",
        ),
    ],
)
def test_a_missing_or_undeclared_column_is_named(batch: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        OutputSchema("out", RANKS).conform(pa.RecordBatch.from_pydict(batch))


def test_a_column_that_is_there_twice_is_named() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([0.5])], ["node", "node", "rank"])
    with pytest.raises(SchemaError, match="more than one column 'node'"):
        OutputSchema("out", RANKS).conform(twice)


def test_a_null_where_none_may_be_is_refused() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="'x' is declared not null"):
        conform(schema, {"x": pa.array([1, None])})
    with pytest.raises(SchemaError, match="'x' is declared not null"):  # though the batch says that there is none
        OutputSchema("out", schema).conform(pa.RecordBatch.from_pylist([{"x": 1}, {}], schema=schema))


def test_a_number_that_is_none_stays_one() -> None:
    got = conform(pa.schema([("x", pa.float32())]), {"x": pa.array([math.nan, 0.5])})["x"]
    assert math.isnan(got[0]) and got[1] == 0.5


@pytest.mark.parametrize("value", [{"a": 1}, None])
def test_what_is_no_container_of_rows_is_refused(value: object) -> None:
    with pytest.raises(SchemaError, match="map_batch"):
        OutputSchema("out", RANKS).conform(value)
