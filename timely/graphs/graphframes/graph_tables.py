"""``GraphTables``: the two DataFrames of a graph as algorithms read them, and what algorithms found beside the vertices.

Workers see edges between vertices alone, with ids that are not null. Invariant: a table is joined for that only where it has not
been validated.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegralType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from timely.dataflow import Stream
from timely.errors import ConfigurationError, SchemaError
from timely.graphs.spark.graph_columns import column_type, node_type, quoted, source_value
from timely.graphs.spark.result import GraphResult, RunOptions, derived_result, graph_run
from timely.spark import Result
from timely.spark.connect import parsed_ddl

ID: Final = "id"
SRC: Final = "src"
DST: Final = "dst"
WEIGHT: Final = "weight"

DEFAULT_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER

DISTANCES: Final = "distances array<struct<landmark: int, distance: int>>"
"""The column of ``landmark_distances``."""

_NULL_ID: Final = "the column {0!r} of the {1} is null in a row, and an id must have a value: filter such rows out"


@attrs.define(eq=False)
class GraphTables:
    """The vertices, with an ``id``, and the edges, with ``src`` and ``dst``; ``whole`` says that every end is a vertex."""

    vertices: DataFrame
    edges: DataFrame
    workers: int | None
    whole: bool = False

    def check_types(self) -> None:
        """Raise ``SchemaError`` unless all ids are of one type, which a dataflow takes."""
        node = node_type(self.edges, SRC, DST)
        kind = column_type(self.vertices, ID, "vertices")
        if kind != node:
            raise SchemaError(
                f"the vertices' column 'id' is {kind.simpleString()}, and the edges' columns 'src' and 'dst' are"
                f" {node.simpleString()}: cast one of them"
            )

    def validate(self, check_vertices: bool, level: StorageLevel) -> None:
        """Do what ``GraphFrame.validate`` says."""
        self.check_types()
        rows, there, distinct = first_row(
            self.vertices.select(F.count(F.lit(1)), F.count(F.col(ID)), F.count_distinct(F.col(ID)))
        )
        if rows != there:
            raise SchemaError(f"the vertices have {rows - there} rows without an id: filter them out")
        if there != distinct:
            raise SchemaError(
                f"the vertices have {there} rows and {distinct} ids, and a vertex must have one row:"
                " vertices.dropDuplicates(['id']) keeps one of each"
            )
        if not check_vertices:
            return
        ends = self.edges.select(F.explode(F.array(SRC, DST)).alias(ID))
        unknown = ends.join(self.vertices.select(ID), ID, "left_anti").persist(level)
        try:
            (missing,) = first_row(unknown.select(F.count(F.lit(1))))
            if missing:
                (example,) = first_row(unknown)
                raise SchemaError(
                    f"the edges have {missing} ends that are no vertices, as {example!r}: add these vertices, or filter such"
                    " edges out"
                )
        finally:
            unknown.unpersist()
        self.whole = True

    def node_column(self, *columns: Column) -> DataFrame:
        """Return the ids as ``node``, and ``columns`` of the vertices."""
        node = F.col(ID) if self.whole else _without_null(ID, "vertices")
        return self.vertices.select(node.alias("node"), *columns)

    def inner_edges(self, *columns: Column) -> DataFrame:
        """Return ``src``, ``dst`` and ``columns`` of the edges between vertices."""
        self.check_types()
        ends = (F.col(end) if self.whole else _without_null(end, "edges") for end in (SRC, DST))
        edges = self.edges.select(*(end.alias(name) for end, name in zip(ends, (SRC, DST), strict=True)), *columns)
        if self.whole:
            return edges
        for end in (SRC, DST):
            ids = self.vertices.select(F.col(ID).alias("_timely_id"))
            edges = edges.join(ids, F.col(end) == F.col("_timely_id"), "left_semi")
        return edges

    def arguments(self, options: RunOptions) -> dict[str, Any]:
        """Return the arguments that the algorithms on edges have in common."""
        return {"edges": self.inner_edges(), "vertices": self.node_column(), "workers": self.workers, **options}

    def run(
        self,
        method: str,
        apply: partial[Stream[Any, Any]],
        columns: str | StructType,
        options: RunOptions,
        *,
        edges: DataFrame | None = None,
        vertices: DataFrame | None = None,
        node: bool = True,
        parameters: str = "",
    ) -> GraphResult:
        """Return ``(node, columns)`` from ``apply(edges, vertices)``, or the columns alone, of all ids by default.

        ``parameters`` says what the user gave that is in the vertices: a checkpoint of other parameters is refused.
        """
        edges = self.inner_edges() if edges is None else edges
        vertices = self.node_column() if vertices is None else vertices
        schema = StructType([StructField("node", column_type(vertices, "node", "vertices"))] if node else [])
        if isinstance(columns, str):
            name, _, kind = columns.partition(" ")
            columns = StructType([StructField(name, parsed_ddl(edges.sparkSession, kind))] if name else [])
        for field in columns:
            schema.add(field)

        inputs = {"edges": edges, "vertices": vertices}
        settings: RunOptions = {"workers": self.workers, **options}
        digest = sha256(f"{sorted(apply.keywords.items())} {parameters}".encode()).hexdigest()  # a Pregel program is long
        return graph_run(method, apply, inputs, schema, f"{method}({digest[:16]})", settings)

    def path_column(self) -> str:
        """Return the column of a path: its ids."""
        return f"path array<{column_type(self.vertices, ID, 'vertices').simpleString()}>"

    def id_array(self, method: str, what: str, values: list[Any]) -> Column:
        """Return ids as an array; ``ConfigurationError`` for what can be none, and for one that is there twice."""
        kind = column_type(self.vertices, ID, "vertices")
        try:
            checked = [source_value(value, kind, ID) for value in values]
        except ConfigurationError as error:
            raise ConfigurationError(f"{method}: of {what}, {error}") from error
        if any(value in checked[:at] for at, value in enumerate(checked)):
            raise ConfigurationError(f"{method}: {what} has an id twice: {values!r}")
        return F.array(*(F.lit(_instant(value)).cast(kind) for value in checked)).cast(ArrayType(kind))

    def numbered(self, method: str, what: str, values: list[Any]) -> Column:
        """Return the place of a vertex's id among ``values``, from 0, or null."""
        at = F.call_function("array_position", self.id_array(method, what, values), F.col(ID))
        return F.when(at > 0, at - 1).cast("int")

    def with_column(
        self, values: DataFrame, name: str, level: StorageLevel, result: Result, *, as_long: bool = False
    ) -> GraphResult:
        """Return the vertices with what a run returned of each, ``(node, value)``, in a column of that name."""
        node, value = values.columns
        column = F.col(value)
        if as_long and isinstance(values.schema[value].dataType, IntegralType):
            column = column.cast("long")
        return self.beside(values.select(node, column.alias(name)), level, result)

    def beside(self, columns: DataFrame, level: StorageLevel, result: Result) -> GraphResult:
        """Return the vertices with the columns that a run returned of each, beside the first, its node."""
        node, *names = columns.columns
        there = {column.lower(): column for column in self.vertices.columns}
        for name in names:
            if name.lower() in there:
                column = there[name.lower()]
                raise SchemaError(f"the vertices have a column {column!r}, and the result is to have {name!r}: rename or drop it")
        chosen = map(quoted, [*self.vertices.columns, *names])
        joined = self.vertices.join(columns.withColumnRenamed(node, ID), ID, "left")
        return derived_result(joined.select(*chosen).persist(level), result)


def _instant(value: Any) -> Any:
    """Return a date or time as the text that Spark casts: of before 1582 it takes the object for another day's."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.isoformat() if isinstance(value, date) else value


def _without_null(name: str, what: str) -> Column:
    return F.coalesce(F.col(name), F.raise_error(F.lit(_NULL_ID.format(name, what))))


def first_row(frame: DataFrame) -> tuple[Any, ...]:
    """Return the first row of a frame that has one."""
    row = frame.first()
    assert row is not None
    return tuple(row)


def nested(frame: DataFrame, name: str) -> DataFrame:
    """Return a frame whose one column is a struct of all columns of ``frame``."""
    return frame.select(F.struct(*map(quoted, frame.columns)).alias(name))


def field(struct: str, name: str) -> Column:
    """Return a field of a struct column."""
    return F.col(quoted(struct)).getField(name)


def condition(expression: str | Column) -> Column:
    """Return a condition of the user's: an SQL expression or a column."""
    return F.expr(expression) if isinstance(expression, str) else expression
