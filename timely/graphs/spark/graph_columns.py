"""The columns of a graph's DataFrames: found by name, checked, and selected under the names that workers expect."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, IntegralType, MapType, NullType, StringType, StructType, TimestampType

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.distances import as_node
from timely.spark.connect import functions_of
from timely.spark.versions import arrow_type


def widened(*tables: tuple[DataFrame, str, tuple[str, ...]]) -> list[DataFrame]:
    """Return frames with their columns of ids cast to the widest type, where all are whole numbers of several types.

    A table is a frame, what it has, and its columns of ids. ``SchemaError`` where one is missing.
    """
    kinds = {column_type(frame, name, what) for frame, what, names in tables for name in names}
    if len(kinds) == 1 or not all(isinstance(kind, IntegralType) for kind in kinds):
        return [frame for frame, _, _ in tables]
    col, widest = functions_of(tables[0][0].sparkSession).col, max(kinds, key=lambda kind: arrow_type(kind).bit_width)
    return [frame.withColumns({name: col(quoted(name)).cast(widest) for name in names}) for frame, _, names in tables]


def quoted(name: str) -> str:
    """Return a column's name as an expression takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def vertex_columns(vertices: DataFrame, node: DataType, state: str | None = None) -> DataFrame:
    """Return the columns of nodes and states; ``SchemaError`` for nodes of another type than the edges' ends."""
    kind = column_type(vertices, "node", "vertices")
    if kind != node:
        raise SchemaError(
            f"the vertices' column 'node' is {kind.simpleString()}, and the ends of the edges are {node.simpleString()}:"
            " cast one of them"
        )
    return chosen_columns(vertices, {"node": "node", **({} if state is None else {"state": state})})


def node_type(edges: DataFrame, src: str, dst: str) -> DataType:
    """Return the type of both columns; ``SchemaError`` where one is missing, they differ, or it is none of a node's."""
    (edges,) = widened((edges, "edges", (src, dst)))
    source, target = (column_type(edges, name, "edges") for name in (src, dst))
    if source != target:
        raise SchemaError(
            f"column {src!r} is {source.simpleString()} and column {dst!r} is {target.simpleString()};"
            " both ends of an edge must be of one type: cast one of them"
        )
    if isinstance(source, ArrayType | MapType | StructType | NullType) or source.typeName() == "variant":
        raise SchemaError(
            f"columns {src!r} and {dst!r} are {source.simpleString()}, which cannot be a node:"
            " use a plain value, such as to_json() of it"
        )
    if isinstance(source, StringType) and source != StringType():
        raise SchemaError(
            f"columns {src!r} and {dst!r} are {source.simpleString()}, in which different strings may be equal; nodes are"
            " compared letter by letter: cast both to string, after lower() or what makes equal ones the same"
        )
    return source


def source_value(source: Any, node: DataType, src: str) -> Any:
    """Return a source as the workers look it up; ``ConfigurationError`` for one that is no value of the nodes' type."""
    try:
        kind = arrow_type(node)
    except PySparkException:
        return source  # a type that timely.spark.run refuses, and says why
    try:
        if isinstance(node, TimestampType) and isinstance(source, datetime) and source.tzinfo is None:
            source = datetime.combine(source.date(), source.time()).astimezone(UTC)
        values = pa.array([source], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"the source is {source!r}, and the nodes are {node.simpleString()}: give one of these ({error})"
        ) from error
    if values.null_count:
        raise ConfigurationError(f"the source is {source!r}, which is no node")
    try:
        as_node(source, kind, src)
    except SchemaError as error:
        raise ConfigurationError(str(error)) from error
    return source


def column_type(frame: object, name: object, what: str) -> DataType:
    """Return the type of the one column of that name; ``SchemaError`` where there is none, or more than one."""
    if not isinstance(frame, DataFrame):
        what_came = f"{type(frame)!r}: session.createDataFrame(...) makes one"
        raise ConfigurationError(f"the {what} must be a Spark DataFrame, not {what_came}")
    if not isinstance(name, str):
        raise ConfigurationError(f"a column of the {what} is chosen by its name, a string, not by {name!r}")
    types: list[DataType] = [field.dataType for field in frame.schema if field.name == name]
    if not types:
        raise SchemaError(f"the {what} have no column {name!r}; they have {', '.join(map(repr, frame.columns))}")
    if len(types) > 1:
        raise SchemaError(f"the {what} have {len(types)} columns {name!r}: rename or drop all but one")
    return types[0]


def chosen_columns(frame: DataFrame, chosen: dict[str, str]) -> DataFrame:
    """Return the chosen columns of a frame, by their exact names, under ``chosen``'s names.

    Spark looks names up without regard to case; where several differ in that alone, positions take it a plan more.
    """
    plain = [name.lower() for name in frame.columns]
    if all(plain.count(column.lower()) == 1 for column in chosen.values()):
        places = {column: quoted(column) for column in chosen.values()}
    else:
        numbered = [f"column_{at}" for at in range(len(frame.columns))]
        places = dict(zip(frame.columns, numbered, strict=True))
        frame = frame.toDF(*numbered)
    return frame.selectExpr(*(f"{places[column]} AS {name}" for name, column in chosen.items()))
