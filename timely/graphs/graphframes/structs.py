"""Rows as structs, and names in expressions: what motifs, paths and messages are made of."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from timely.graphs.spark.graph_columns import quoted


def nested(frame: DataFrame, name: str) -> DataFrame:
    """Return a frame whose one column is a struct of all columns of ``frame``."""
    return frame.select(F.struct(*map(quoted, frame.columns)).alias(name))


def field(struct: str, name: str) -> Column:
    """Return a field of a struct column."""
    return F.col(quoted(struct)).getField(name)


def condition(expression: str | Column) -> Column:
    """Return a condition of the user's: an SQL expression or a column."""
    return F.expr(expression) if isinstance(expression, str) else expression
