"""Expressions that workers compute give what Spark gives, for odd values of every type; where Spark raises, they do too.

White box: no public function compiles one expression alone, so this compiles and evaluates as ``Pregel`` does.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.runs import arrow_of
from timely import ConfigurationError, SchemaError
from timely.graphs.graphframes.column_expressions import compiled, compiled_aggregate
from timely.graphs.graphframes.pregel.expression_kernels import (
    ColumnAggregate,
    ColumnField,
    evaluate,
    merged_aggregate,
    partial_aggregate,
)
from timely.spark.versions import arrow_type

pytestmark = pytest.mark.spark

LONGS = [None, 0, 1, -1, 7, -8, 2**40]
DOUBLES = [None, 0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1e300]
SCHEMA = "a long, b long, x double, y double, s string, t string, p boolean, q boolean, i int, d date"


def values(session: SparkSession) -> DataFrame:
    pairs = list(itertools.product(LONGS, LONGS))
    numbers = list(itertools.product(DOUBLES, DOUBLES))
    words = list(itertools.product([None, "", "a", "Z", "ä"], repeat=2))
    truths = list(itertools.product([None, True, False], repeat=2))
    rows = [
        (*pairs[at % len(pairs)], *numbers[at], *words[at % len(words)], *truths[at % 9], [None, 3, -4][at % 3], None)
        for at in range(len(numbers))
    ]
    return session.createDataFrame(rows, SCHEMA)


def expressions() -> list[Column]:
    """Made when they are needed: a column needs a session."""
    a, b, x, y, p, q, i = (F.col(name) for name in "abxypqi")
    return [
        a + b, a - b, a * i, -a, F.abs(b), a + x, x * y, x - y, -x, F.abs(x), i + a,
        F.when(y != 0, x / y), F.when(b != 0, a % b), F.when(b != 0, F.expr("a div b")), F.when(y != 0, x % y),
        a == b, a != b, a < b, a <= b, a > b, a >= b, x == y, x != y, x < y, x <= y, x > y, x >= y, a < x, i == a,
        F.col("s") < F.col("t"), F.col("s") == F.col("t"), F.col("s") >= F.col("t"), p == q,
        a.eqNullSafe(b), x.eqNullSafe(y), F.col("s").eqNullSafe(F.col("t")),
        p & q, p | q, ~p, p & (a > 0), (b != 0) & (a / F.when(b != 0, b) > 1), (b == 0) | (a / F.when(b != 0, b) > 1),
        a.isNull(), x.isNotNull(), F.isnan(x), a.isin(1, 7), a.isin(1, None), x.isin(1.5, math.nan),
        F.coalesce(a, b), F.coalesce(x, y, F.lit(0.0)), F.nvl(a, F.lit(5)), F.coalesce(i, a),
        F.when(a > 0, "up").when(a < 0, F.col("s")).otherwise(None), F.when(p, a), F.expr("if(p, a, x)"),
        F.least(a, b), F.greatest(a, b, i), F.least(x, y), F.greatest(x, y), F.greatest("s", "t"),
        F.sqrt(x), F.exp(x), F.log(x), F.pow(x, y), F.when(F.abs(x) < 100, F.floor(x)), F.when(F.abs(x) < 100, F.ceil(x)),
        F.floor(a),
        a.cast("double"), a.cast("float"), x.cast("float"), i.cast("long"), p.cast("int"), F.when(F.abs(x) < 100, x.cast("long")),
        F.when(a.between(-9, 9), a.cast("int")), F.concat("s", F.lit("-"), "t"), F.lit(None).cast("long"), F.lit(1), F.lit("w"),
        F.struct(a, x.alias("z")).getField("z"), F.array(a, b), F.col("d"), F.col("d") < F.col("d"),
    ]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, rel=1e-12)
    return type(one) is type(other) and one == other


LARGEST = "9223372036854775807"
WRAPPING = (f"a + {LARGEST}", f"a * {LARGEST}", "a / 0", "a % 0", "a div b", "x % y", f"-(-{LARGEST} - a)")
"""What raises in ANSI mode, and has a result or null in the other."""


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_expressions(session: SparkSession, ansi: str) -> None:
    session.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = values(session).persist()
        chosen = expressions() + (list(map(F.expr, WRAPPING)) if ansi == "false" else [])
        wanted = frame.select(*(one.alias(str(at)) for at, one in enumerate(chosen)))
        expected, table = arrow_of(wanted), arrow_of(frame)
        for at, one in enumerate(chosen):
            try:
                expression, kind = compiled(frame, one)
            except ConfigurationError:  # a cast to a narrower type, which wraps in Spark
                assert ansi == "false" and "CAST" in str(one), str(one)
                continue
            assert kind.simpleString() == wanted.schema[at].dataType.simpleString()
            column = evaluate(expression, table)
            assert column.type == arrow_type(kind)
            pairs = zip(column.to_pylist(), expected[at].to_pylist(), strict=True)
            differ = [(mine, spark) for mine, spark in pairs if not same(mine, spark)]
            assert not differ, (str(one), differ[:3])
        frame.unpersist()
    finally:
        session.conf.unset("spark.sql.ansi.enabled")


def test_aggregates(session: SparkSession) -> None:
    frame = values(session).withColumn("id", F.coalesce(F.col("b"), F.lit(99))).persist()
    a, x = F.col("a"), F.col("x")
    aggregates = [
        F.sum(a), F.sum(x), F.sum("i"), F.avg(a), F.avg(x), F.count(a), F.count(F.lit(1)), F.min(a), F.max(a), F.min(x), F.max(x),
        F.min("s"), F.max("s"), F.min("p"), F.bool_or("p"), F.bool_and("p"), F.max(x) + F.min(a), F.sum(a * 2) / F.count(a),
        F.coalesce(F.sum("i"), F.lit(0)), F.struct(F.max(a).alias("m"), "id"), F.sort_array(F.collect_list(a)), F.min("d"),
    ]  # fmt: skip
    wanted = arrow_of(frame.groupBy("id").agg(*(one.alias(f"v{at}") for at, one in enumerate(aggregates))))
    table = arrow_of(frame)
    parts = [table.slice(0, 2), table.slice(2, 9), table.slice(11)]  # of three workers
    ids = np.unique(table["id"].to_numpy())
    groups = np.tile(np.arange(len(ids)), len(parts))
    for at, one in enumerate(aggregates):
        listed = "collect_list" in str(one)
        functions, combined, _ = compiled_aggregate(frame, "id", F.collect_list(a) if listed else one)
        columns = {}
        for place, function in enumerate(functions):
            partials = [
                partial_aggregate(function, np.searchsorted(ids, part["id"].to_numpy()), len(ids), part) for part in parts
            ]
            columns[str(place)] = merged_aggregate(function, groups, len(ids), partials)
        results = evaluate(combined, pa.table({"id": ids, **columns})).to_pylist()
        mine = dict(zip(ids.tolist(), map(sorted, results) if listed else results))
        spark = dict(zip(wanted["id"].to_pylist(), wanted[f"v{at}"].to_pylist()))
        assert all(same(mine[key], spark[key]) for key in spark), (str(one), mine, spark)
    frame.unpersist()


def test_a_sum_of_which_a_part_overflows() -> None:
    """One worker's part does not fit into a long, and the whole does; where it does not either, it is an error."""
    total = ColumnAggregate("Sum", ColumnField("x"), pa.int64())
    groups = np.array([0, 0, 1])
    some = partial_aggregate(total, groups, 2, pa.table({"x": [2**62, 2**62, 5]}))
    others = partial_aggregate(total, groups, 2, pa.table({"x": [-(2**62), 1, 6]}))
    both = np.array([0, 1, 0, 1])
    assert merged_aggregate(total, both, 2, [some, others]).to_pylist() == [2**62 + 1, 11]
    with pytest.raises(SchemaError, match="a sum of whole numbers overflows"):
        merged_aggregate(total, both, 2, [some, some])
    wrapping = ColumnAggregate("Sum", ColumnField("x"), pa.int64(), checked=False)
    some = partial_aggregate(wrapping, groups, 2, pa.table({"x": [2**62, 2**62, 5]}))
    assert merged_aggregate(wrapping, both, 2, [some, some]).to_pylist() == [0, 10]


@pytest.mark.soak
@pytest.mark.parametrize(
    "raising",
    [
        "a + 9223372036854775807",
        "a * 9223372036854775807",
        "a / 0",
        "a % 0",
        "a div 0",
        "cast(x as long)",
        "cast(a as int)",
        "-(-9223372036854775807 - abs(a))",
    ],
)
def test_what_spark_raises_for(session: SparkSession, raising: str) -> None:
    frame = values(session)
    expression, _ = compiled(frame, F.expr(raising))
    with pytest.raises(Exception, match=r"OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|overflow"):
        frame.select(F.expr(raising)).collect()
    with pytest.raises(SchemaError):
        evaluate(expression, arrow_of(frame))
