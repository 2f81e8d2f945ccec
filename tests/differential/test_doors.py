"""A row is the same by whichever way it comes into a table: as a tuple, by name, as Arrow data, from files, or as JSON.

White box: JSON is read as the server reads it, without one.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import timely
from timely import SchemaError
from timely import differential as dd
from timely.differential.tables.values.kinds import columns_of
from timely.server.row_encoding import json_value, rows_of

ZONE = "Europe/Berlin"
FLAT: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.float32(), [0.1, -0.0, 1e-46, 16777217.0, 3.4e38, 7]),
    "second": (pa.timestamp("s"), [datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.datetime(1, 1, 1)]),
    "day": (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)]),
    "word": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "Zoë"]),
    "whole": (pa.int8(), [-128, 0, 127]),
    "double": (pa.float64(), [0.1, -0.0, math.inf, 3]),
}
MORE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "half": (pa.float16(), [0.1, -0.0, 2049.0, math.nan, -math.inf]),
    "nan": (pa.float32(), [math.nan, -math.nan, math.inf]),
    "price": (pa.decimal128(5, 2), [Decimal("1.5"), Decimal("-0"), Decimal("1.50"), Decimal("1E2")]),
    "hundreds": (pa.decimal128(5, -2), [Decimal(100), Decimal("-3E3")]),
    "milli": (pa.timestamp("ms", ZONE), [datetime.datetime(2024, 10, 27, hour, 30, tzinfo=datetime.UTC) for hour in range(3)]),
    "nano": (pa.timestamp("ns"), [datetime.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "clock": (pa.time32("ms"), [datetime.time(23, 59, 59, 999000), datetime.time(1, fold=1)]),
    "old": (pa.date64(), [datetime.date(1900, 1, 1)]),
    "span": (pa.duration("s"), [datetime.timedelta(seconds=-1), datetime.timedelta(9)]),
    "code": (pa.binary(2), [b"ab", b"\x00\xff"]),
    "numbers": (pa.list_(pa.float32()), [(0.1, None, -0.0), (), (math.nan,)]),
    "two": (pa.list_(pa.float16(), 2), [(0.1, 2049.0)]),
    "pair": (pa.struct([("a", pa.float32()), ("b", pa.timestamp("ms"))]), [(0.1, None), (None, datetime.datetime(2024, 1, 1))]),
    "names": (pa.map_(pa.string(), pa.float32()), [(("a", 0.1),), ()]),
}


def schema_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Schema:
    return pa.schema([(name, kind) for name, (kind, _) in columns.items()])


def rows_by_chance(columns: dict[str, tuple[pa.DataType, list[Any]]], seed: int, count: int = 40) -> list[Any]:
    source = random.Random(seed)
    return [tuple(source.choice([None, *values]) for _, values in columns.values()) for _ in range(count)]


def array_of(values: Any, kind: pa.DataType) -> pa.Array:
    """Return values of a type; Arrow makes no dictionary of values itself, and no float of a whole number that it rounds."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def arrow_of(rows: list[Any], schema: pa.Schema) -> pa.Table:
    return pa.table([array_of(values, kind) for values, kind in zip(zip(*rows), schema.types)], schema=schema)


def wider(kind: pa.DataType) -> pa.DataType:
    """Return a type that has the values of another, and more."""
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    if pa.types.is_fixed_size_binary(kind):
        return pa.large_binary()
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.large_list(wider(kind.value_type))
    return pa.string() if pa.types.is_dictionary(kind) else pa.time64("us") if pa.types.is_time(kind) else kind


def wide_of(rows: list[Any], schema: pa.Schema) -> pa.Table:
    return arrow_of(rows, pa.schema([field.with_type(wider(field.type)) for field in schema]))


def by_rows(session: Any, rows: list[Any], schema: pa.Schema, diff: int) -> None:
    for row in rows:
        session.update(row, diff)


def by_names(session: Any, rows: list[Any], schema: pa.Schema, diff: int) -> None:
    for row in rows:
        session.update(dict(zip(schema.names, row)), diff)


def by_json(session: Any, rows: list[Any], schema: pa.Schema, diff: int) -> None:
    columns = columns_of(schema)
    objects = [{each.name: json_value(value, each.kind) for each, value in zip(columns, row)} for row in rows]
    for row in rows_of(columns, json.loads(json.dumps(objects), parse_float=Decimal), "rows"):
        session.update(row, diff)


WAYS: dict[str, Callable[[Any, list[Any], pa.Schema, int], None]] = {
    "rows": by_rows,
    "names": by_names,
    "columns": lambda session, rows, schema, diff: session.insert_columns(arrow_of(rows, schema), diff=diff),
    "wide": lambda session, rows, schema, diff: session.insert_columns(wide_of(rows, schema), diff=diff),
    "differences": lambda session, rows, schema, diff: session.insert_columns(arrow_of(rows, schema), diff=[diff] * len(rows)),
}


@pytest.mark.parametrize("columns", [FLAT, MORE], ids=["flat", "more"])
def test_what_comes_in_one_way_goes_in_any_other(columns: Any) -> None:
    schema, rows = schema_of(columns), rows_by_chance(columns, 1)
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {pair: dd.table(scope, schema) for pair in itertools.pairwise([*WAYS, "rows"])}
            outputs = {pair: table.output() for pair, table in tables.items()}
            query = "select *, count(*) as n from t group by all"
            grouped = {pair: dd.sql(scope, query, t=table).output() for pair, table in tables.items()}
        for (way, back), table in tables.items():
            WAYS[way](table.session, rows, schema, 1)
            WAYS[back](table.session, rows[::-1], schema, -1)
            table.session.close()
        for pair in tables:
            assert (outputs[pair].at(0), grouped[pair].at(0)) == ({}, {}), pair


def files_of(rows: list[Any], schema: pa.Schema, folder: Path) -> dict[str, Path]:
    """Return the rows in files: as Parquet has them, and as texts of the shortest numbers that are the same."""
    paths = {end: folder / f"rows.{end}" for end in ("parquet", "csv", "json")}
    pyarrow.parquet.write_table(arrow_of(rows, schema), paths["parquet"])
    texts = [[None if value is None else str(value) for value in row] for row in rows]
    pyarrow.csv.write_csv(pa.table([pa.array(column, pa.string()) for column in zip(*texts)], schema.names), paths["csv"])
    paths["json"].write_text("".join(json.dumps(dict(zip(schema.names, row)), default=str) + "\n" for row in rows))
    return paths


def test_files_streams_and_collections_have_the_rows_of_a_session(tmp_path: Path) -> None:
    schema, rows = schema_of(FLAT), rows_by_chance(FLAT, 2)
    rows = [row for row in rows if row[5] != math.inf]  # JSON has none
    declared = {field.name: pa.string() if field.name == "word" else field.type for field in schema}
    paths = files_of(rows, schema, tmp_path)
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session_table = dd.table(scope, schema)
            others = {end: dd.read_table(scope, path, schema=declared) for end, path in paths.items()}
            others["collection"] = dd.table(dd.collection(scope, rows), schema)
            others["data"] = dd.table(scope, arrow_of(rows, schema))
            others["wide"] = dd.table(scope, wide_of(rows, schema), schema=schema)
            others["stream"] = dd.table(scope.to_stream(wide_of(rows, schema).to_batches()), schema)
            query = "(select * from a except all select * from b) union all (select * from b except all select * from a)"
            outputs = {way: dd.sql(scope, query, a=session_table, b=other).output() for way, other in others.items()}
        by_rows(session_table.session, rows, schema, 1)
        session_table.session.close()
        for way, output in outputs.items():
            assert output.at(0) == {}, way


def array_of_own_type(value: Any) -> pa.Array | None:
    """Return a value as Arrow data of the type that it has, or ``None`` where Arrow has no such type."""
    try:
        array = pa.array([value])
        return array if array.to_pylist() == [value] or isinstance(value, tuple) else None
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float32(), 1e300),
        (pa.float16(), 1e5),
        (pa.float64(), 10**400),
        (pa.int8(), 128),
        (pa.decimal128(5, 2), Decimal("0.005")),
        (pa.timestamp("s"), datetime.datetime(2024, 1, 1, 0, 0, 0, 500)),
        (pa.time32("ms"), datetime.time(0, 0, 0, 500)),
        (pa.duration("s"), datetime.timedelta(microseconds=5)),
        (pa.binary(2), b"abc"),
        (pa.list_(pa.int64(), 2), (1,)),
        (pa.list_(pa.float32()), (1e300,)),
        (pa.string(), "\ud800"),
        (pa.list_(pa.int8()), (1, 300)),
        (pa.list_(pa.int8()), (1, "x")),
        (pa.list_(pa.int8()), 3),
        (pa.struct([("a", pa.int64())]), (1, 2)),
        (pa.struct([("a", pa.int64())]), {"b": 1}),
        (pa.struct([("a", pa.int64())]), "x"),
        (pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1)),
        (pa.timestamp("us"), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
        (pa.time64("us"), datetime.time(1, tzinfo=datetime.UTC)),
        (pa.map_(pa.string(), pa.int64()), {"a": "x"}),
        (pa.map_(pa.string(), pa.int64()), (("a", 1), ("a", 2))),
        (pa.map_(pa.string(), pa.int64()), ((None, 1),)),
        (pa.map_(pa.string(), pa.int64()), ("ab",)),
        (pa.binary(), "x"),
        (pa.duration("us"), 3),
        (pa.date32(), datetime.datetime(2024, 1, 1, 5)),
        (pa.time64("us"), datetime.datetime(2024, 1, 1, 5)),
        (pa.bool_(), 5),
        (pa.int64(), True),
        (pa.int64(), 1.5),
        (pa.int64(), "5"),
        (pa.string(), 5),
        (pa.timestamp("us"), 5),
    ],
    ids=lambda part: str(part) if isinstance(part, pa.DataType) else "",
)
def test_what_a_type_has_not_is_refused_by_rows_and_in_columns(kind: Any, value: Any) -> None:
    schema = pa.schema([("odd", kind)])
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session = dd.table(scope, schema).session
        with pytest.raises(SchemaError, match="'odd'"):
            session.insert((value,))
        array = array_of_own_type(value)
        if array is not None:
            with pytest.raises(SchemaError, match="odd"):
                session.insert_columns(pa.table({"odd": array}))
        session.close()
        worker.run()


def test_a_whole_number_is_rounded_to_float_once() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, "x float")
            output = table.collection.output()
        table.session.insert((2**60 + 2**36 + 1,))  # a double is 2**60 + 2**36, halfway between two floats
        table.session.close()
        worker.run()
    assert output.at(0) == {(2.0**60 + 2.0**37,): 1}
