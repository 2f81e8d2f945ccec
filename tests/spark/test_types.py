"""Every value that Spark can hand to Python comes back as it was, under whatever name; what it cannot is refused by name.

White box: which types are refused before anything runs is asked type by type, without a run for each.
"""

from __future__ import annotations

import decimal
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import timely
from tests.spark.runs import SINCE_4, arrow_of
from timely import spark as ts
from timely.errors import SchemaError
from timely.spark.plan import can_hash, check_types

spark = pytest.mark.spark

LONG = "repeat('ü', 100000)"
COLUMNS = {
    "tiny": "1Y, -128Y, 127Y",
    "small": "0S, -32768S, 32767S",
    "int": "0, -2147483648, 2147483647",
    "long": "0L, -9223372036854775808L, 9223372036854775807L",
    "single": "float('nan'), float('-inf'), 1.5f",
    "double": "double('nan'), double('inf'), -4.9e-324D",
    "decimal": "1.5BD, cast('-99999999999999999999.999999999999999999' as decimal(38,18)), 0.000000000000000001BD",
    "whole": "cast('99999999999999999999999999999999999999' as decimal(38,0)), cast(-1 as decimal(38,0)), 0",
    "text": f"'', 'naïve 𝄞 ☃', {LONG}",
    "collated": "'Ab' collate unicode_ci, '' collate unicode_ci, 'aB' collate unicode_ci",
    "bytes": f"X'', X'00FF', cast({LONG} as binary)",
    "date": "date'0001-01-01', date'9999-12-31', date'1582-10-15'",
    "instant": "timestamp'0001-01-01 00:00:00', timestamp'9999-12-31 23:59:59.999999', timestamp'2024-11-03 01:30:00'",
    "clock": "timestamp_ntz'0001-01-01 00:00:00', timestamp_ntz'9999-12-31 23:59:59.999999', timestamp_ntz'2024-03-10 02:30:00'",
    "lasted": "interval '1 02:03:04.5' day to second, interval '-106751991 04:00:54.775808' day to second, interval '0' day",
    "true": "true, false, true",
    "nothing": "null, null, null",
    "array": "array(1, null), array(), array(2)",
    "texts": "array('a', '', null), array(null), array()",
    "map": "map('a', 1, 'b', null), map(), map('', 2)",
    "struct": "struct(1 as x, 'a' as y), struct(null as x, null as y), struct(2 as x, '' as y)",
    "deep": "struct(array(map('k', struct(timestamp'2024-03-10 03:00:00' as at, array(1.5BD) as all))) as inside), "
    "struct(array() as inside), struct(null as inside)",
    "variant": """parse_json('{"a": [1, "x", null]}'), parse_json('null'), parse_json('1.5')""",
}
if pyspark.__version__ < "4":
    del COLUMNS["collated"], COLUMNS["variant"]


@pytest.fixture
def new_york(session: SparkSession) -> Iterator[SparkSession]:
    """The session, set to a time zone with summer time."""
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield session
    session.conf.unset("spark.sql.session.timeZone")


def through(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
    return streams


def carried(frame: DataFrame, schema: str | T.StructType, several: bool) -> DataFrame:
    """``frame`` after it has been an input and an output, alone or as one of several."""
    others: dict[str, DataFrame] = {"more": frame.sparkSession.range(3).toDF("n"), "again": frame} if several else {}
    schemas: dict[str, str | T.StructType] = {"more": "n long", "again": schema} if several else {}
    result = ts.run(through, {"rows": frame, **others}, {"rows": schema, **schemas}, workers=2)
    if several:
        assert sorted(row.n for row in result["more"].collect()) == [0, 1, 2]
    return result["rows"]


def bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of floating-point numbers as the bits they are, since one that is not a number equals nothing."""
    if pa.types.is_floating(column.type):
        whole = pa.int32() if column.type.bit_width == 32 else pa.int64()
        return pa.chunked_array([chunk.view(whole) for chunk in column.chunks], whole)
    return column


@spark
@pytest.mark.parametrize("several", [False, True], ids=["alone", "packed"])
def test_values_of_every_type_survive(new_york: SparkSession, several: bool) -> None:
    values = ", ".join(f"element_at(array({three}, null), cast(id as int) + 1) as `{name}`" for name, three in COLUMNS.items())
    frame = new_york.sql(f"select id, {values} from range(4)")
    # Spark cannot hand a null variant to the driver, whatever it is of.
    readable = [F.to_json("variant").alias("variant") if name == "variant" else name for name in frame.columns]
    both = [arrow_of(each.select(*readable).orderBy("id")) for each in (carried(frame, frame.schema, several), frame)]
    got, wanted = both
    assert got.schema.names == wanted.schema.names
    assert got.num_rows == wanted.num_rows == 4
    for name in wanted.schema.names:
        assert got[name].type == wanted[name].type, name
        assert bits(got[name]).equals(bits(wanted[name])), name
    for name in COLUMNS:
        assert got[name][3].as_py() is None, name


@spark
def test_values_of_user_defined_types_survive(session: SparkSession) -> None:
    points = [(0, Vectors.dense([1.0, -2.5])), (1, Vectors.sparse(3, {1: 4.0})), (2, None)]
    frame = session.createDataFrame(points, T.StructType().add("id", "long").add("at", VectorUDT()))
    assert sorted(tuple(row) for row in carried(frame, frame.schema, True).collect()) == points


# -- names -------------------------------------------------------------------------------------------------------------

NAMES = ["a.b", "c`d", "e f", "ü☃", "", "a", "A", "timely_table", "timely_column_0", "`", "x,y;{}()\n\t="]


@spark
@pytest.mark.parametrize("several", [False, True], ids=["alone", "packed"])
def test_columns_may_have_any_names(session: SparkSession, several: bool) -> None:
    schema = T.StructType([T.StructField(name, T.LongType(), True, {"note": name}) for name in NAMES])
    frame = session.createDataFrame([tuple(range(10 * row, 10 * row + len(NAMES))) for row in range(3)], schema)
    got = carried(frame, schema, several)
    assert got.schema == schema
    assert sorted(map(tuple, got.collect())) == sorted(map(tuple, frame.collect()))


@spark
@pytest.mark.parametrize("name", [name for name in NAMES if name in ("c`d", "", "timely_table")])
def test_a_key_and_an_epoch_may_have_any_name(session: SparkSession, name: str) -> None:
    frame = session.range(3).toDF(name)
    plan = ts.plan.InputPlan.of({"one": frame, "two": frame}, {"two": name}, name)
    assert plan.frame(session, 2).columns == ["timely_table", "timely_epoch", "timely_table_0", "timely_table_1"]
    assert ts.plan.InputPlan.of({"one": frame}, name, name).frame(session, 2).columns == ["timely_column_0"]


@spark
def test_a_name_that_two_columns_have(session: SparkSession) -> None:
    def build(scope: timely.ScopeBuilder[int], rows: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        return {"rows": rows.map_batch(lambda batch: batch.rename_columns(["left", "right"]))}

    frame = session.createDataFrame([(1, 2), (3, 4)], ["x", "x"])
    got = ts.run(build, {"rows": frame}, {"rows": "left long, right long"}, workers=2)["rows"]
    assert sorted(map(tuple, got.collect())) == [(1, 2), (3, 4)]
    with pytest.raises(SchemaError, match="key: input 'rows' has two columns 'x'"):
        ts.run(build, {"rows": frame}, {"rows": "left long, right long"}, workers=2, key="x")


# -- types that cannot be ----------------------------------------------------------------------------------------------


@spark
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("interval '1-2' year to month", r"column 'bad' is of type interval year to month.* CAST\(CAST\(... AS INTERVAL MONTH\)"),
        ("array(interval '2' year)", "column 'bad', elements is of type interval year, which"),
        pytest.param(
            *("make_interval(1)", "column 'bad' is of type interval, which Spark cannot hand to Python: cast it to string"),
            marks=SINCE_4,
        ),
        ("struct(1 as a, 2 as a)", "column 'bad' has two fields 'a' in one struct"),
        ("array()", "column 'bad' has elements of no type"),
        ("map('k', map())", "column 'bad', values has keys of no type"),
        pytest.param(
            *("struct(struct(make_interval(1) as y) as x)", "column 'bad', field 'x', field 'y' is of type interval"),
            marks=SINCE_4,
        ),
    ],
)
def test_a_column_that_cannot_be_carried_is_named(session: SparkSession, value: str, message: str) -> None:
    frame = session.sql(f"select 1 as good, {value} as bad")
    with pytest.raises(SchemaError, match=f"input 'rows': {message}"):
        ts.run(through, {"rows": frame}, {"rows": "n long"}, workers=1)
    with pytest.raises(SchemaError, match=r"outputs\['rows'\]: " + message):
        ts.run(through, {"rows": session.range(1)}, {"rows": frame.schema}, workers=1)


@spark
def test_what_the_error_tells_to_do_can_be_done(session: SparkSession) -> None:
    frame = session.sql("select cast(cast(interval '1-2' year to month as interval month) as int) as lasted")
    assert carried(frame, "lasted int", False).collect()[0].lasted == 14


@pytest.mark.parametrize("kind", [T.CharType(3), T.VarcharType(5)])
def test_types_of_tables_on_disk(kind: T.DataType) -> None:
    with pytest.raises(SchemaError, match="outputs: column 'x' is of type (var)?char.*: say string"):
        check_types("outputs", T.StructType().add("x", kind))


@spark
def test_an_input_without_columns(session: SparkSession) -> None:
    with pytest.raises(SchemaError, match="input 'rows' has no columns"):
        ts.run(through, {"rows": session.range(3).select()}, {"rows": "n long"}, workers=1)


@spark
@pytest.mark.parametrize("value", ["map('a', 1)", pytest.param("parse_json('1')", marks=SINCE_4), "array(map(1, 2))"])
def test_a_key_that_cannot_be_hashed(session: SparkSession, value: str) -> None:
    frame = session.sql(f"select 1 as id, {value} as bad")
    with pytest.raises(SchemaError, match="column 'bad' cannot be a key: Spark has no hash for values of type"):
        ts.run(through, {"rows": frame}, {"rows": "n long"}, workers=1, key="bad")
    plan = ts.plan.InputPlan.of({"rows": frame, "keyed": frame}, None, {"keyed": "id"})
    assert plan.frame(session, 2).count() == 2


@spark
@SINCE_4
@pytest.mark.parametrize("key", [pytest.param("k", marks=pytest.mark.soak), "struct(array(k) as one, k as two)"])
def test_strings_that_are_equal_by_their_collation_meet_across_inputs(session: SparkSession, key: str) -> None:
    letters = "select substr('abcdefghij', 1 + int(id % 10), 1) as letter, id from range(40)"
    cased = f"select letter, if(id < 20, letter, upper(letter)) collate utf8_lcase as k from ({letters})"
    text = f"select letter, {key} as `key` from ({cased})"
    inputs = {"one": session.sql(text), "two": session.sql(text), "other": session.range(9).withColumnRenamed("id", "letter")}

    def build(scope: timely.ScopeBuilder[int], **streams: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        def with_worker(batch: pa.RecordBatch) -> pa.RecordBatch:
            letters = batch.column("letter").cast(pa.string())
            return pa.record_batch({"letter": letters, "pid": pa.array([os.getpid()] * len(letters), pa.int64())})

        return {name: stream.map_batch(with_worker) for name, stream in streams.items()}

    schemas: dict[str, str | T.StructType] = dict.fromkeys(inputs, "letter string, pid long")
    result = ts.run(build, inputs, schemas, workers=3, key={"one": "key", "two": "key"})
    rows = [*result["one"].collect(), *result["two"].collect()]
    assert len(rows) == 80
    assert len({(row.letter, row.pid) for row in rows}) == 10
    assert sorted(int(row.letter) for row in result["other"].collect()) == list(range(9))
    result.unpersist()


@spark
def test_keys_of_two_types(session: SparkSession) -> None:
    inputs = {"one": session.range(3), "two": session.range(3).select(F.col("id").cast("int"))}
    with pytest.raises(SchemaError, match="input 'two': the key 'id' is of type int, and that of another input of type bigint"):
        ts.run(through, inputs, {"one": "id long", "two": "id int"}, workers=1, key="id")


def test_what_can_be_hashed() -> None:
    assert can_hash(T.StructType().add("x", T.ArrayType(T.StringType())))
    assert can_hash(VectorUDT())
    assert not can_hash(T.ArrayType(T.StructType().add("x", T.MapType(T.StringType(), T.LongType()))))


@spark
def test_a_sum_over_decimals_keeps_every_digit(session: SparkSession) -> None:
    """What a dataflow computes may be of a kindred type, and is cast where no digit is lost."""

    def build(scope: timely.ScopeBuilder[int], rows: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        def total(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([pa.array([pc.sum(batch.column("x")).as_py()])], ["total"])

        return {"totals": rows.map_batch(total)}

    frame = session.sql("select cast('0.000000000000000001' as decimal(38,18)) as x from range(5)")
    got = ts.run(build, {"rows": frame}, {"totals": "total decimal(38,18)"}, workers=1)["totals"]
    assert got.agg(F.sum("total")).collect()[0][0] == decimal.Decimal("5E-18")
