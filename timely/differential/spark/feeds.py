"""``Feed``: a table that changes, as DataFrames. ``changes`` and ``upserts`` say how its rows are to be read.

Nothing is read here. The invariant: columns that are missing, or of a type that no table has, are refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DataType, StringType, StructType

from timely.dataflow.origin import origin
from timely.differential.spark.feed_tables import Appended, ChangeTypes, Debezium, FeedDecoder, FeedTable, Upserted
from timely.differential.tables.values.kinds import columns_of
from timely.errors import ConfigurationError, SchemaError
from timely.spark.connect import functions_of
from timely.spark.sinks import CHANGE_TYPE, COMMIT_VERSION
from timely.spark.streaming.schemas import with_columns_of
from timely.spark.versions import arrow_schema

Format = Literal["delta", "debezium", "append"]

_COMMIT_TIME = "_commit_timestamp"


@attrs.frozen
class Feed:
    """A table that changes: the DataFrame of its changes, and one of the rows before them; from ``changes`` and ``upserts``."""

    frame: DataFrame
    snapshot: DataFrame | None
    rows: StructType
    decoder: FeedDecoder | Appended
    place: str

    def going_on(self, name: str, stored: StructType | None, snapshot: StructType | None) -> Feed:
        """Return the feed with the columns that a checkpoint has of it."""
        if stored is None:
            return self
        frame = with_columns_of(stored, self.frame, name)
        rows = StructType([field for field in frame.schema if field.name in self.rows.names])
        if isinstance(self.decoder, Debezium):
            rows = cast(StructType, frame.schema["after"].dataType)
        before = self.snapshot
        if before is not None and snapshot is not None:
            before = with_columns_of(snapshot, before, f"snapshot of {name}")
        return attrs.evolve(self, frame=frame, snapshot=before, rows=rows)

    def table(self, name: str) -> FeedTable:
        """Return what the workers know of it. ``SchemaError`` for a type that no table has."""
        schema = arrow_schema(self.rows)
        try:
            columns_of(schema)
        except SchemaError as error:
            raise SchemaError(
                f"input {name!r}{f' given at {self.place}' if self.place else ''}: {error}. Do that in"
                " the DataFrame, or leave the column out"
            ) from None
        return FeedTable(name, schema, self.place)


def changes(frame: DataFrame, format: Format = "delta", *, keys: Sequence[str] = (), snapshot: DataFrame | None = None) -> Feed:
    """Return the feed of a DataFrame whose rows say how a table changes.

    ``"delta"``: the rows of the table with a column ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
    ``update_postimage``), as Delta's change data feed has them; ``_commit_version`` and ``_commit_timestamp`` are not read.
    ``"debezium"``: columns ``op`` (``c``, ``u``, ``d``, ``r``), ``before`` and ``after``; others are not read. ``"append"``:
    rows are only added. ``snapshot`` is a DataFrame of the rows that were there before: it enters as a whole at epoch 0.

    With ``keys`` the table has no two rows with the same values there, and a feed that says otherwise is a
    :class:`~timely.errors.FeedError`: one that repeats changes, as Debezium does after a failure, is noticed. The order of rows
    within a micro-batch makes no difference. A row that is deleted more often than it is there is a
    :class:`~timely.errors.FeedError` at its epoch; so is a row that says nothing known. Raises
    :class:`~timely.errors.SchemaError` for other columns.

    >>> from timely.spark import local_session
    >>> rows = local_session(2).createDataFrame([(1, "insert")], "id long, _change_type string")
    >>> changes(rows).rows.simpleString()
    'struct<id:bigint>'
    """
    _check_frame("changes", frame)
    keys = _names("changes", keys)
    if format == "append":
        if keys:
            raise ConfigurationError("changes: rows that are only added have no keys= to compare; use upserts(df, keys=[...])")
        return _feed(frame, snapshot, frame.schema, Appended(), lambda rows: rows)
    if format == "delta":
        _check_column("changes", frame, CHANGE_TYPE, StringType())
        frame = frame.drop(COMMIT_VERSION, _COMMIT_TIME)
        return _feed(
            frame,
            snapshot,
            frame.drop(CHANGE_TYPE).schema,
            ChangeTypes(keys),
            lambda rows: rows.withColumn(CHANGE_TYPE, functions_of(rows.sparkSession).lit("insert")).select(*frame.columns),
        )
    if format != "debezium":
        raise ConfigurationError(f"changes: format is 'delta', 'debezium' or 'append', not {format!r}")
    _check_column("changes", frame, "op", StringType())
    sides = [_check_column("changes", frame, side, None) for side in ("before", "after")]
    if not isinstance(sides[0], StructType) or not isinstance(sides[1], StructType) or not _same(sides[0], sides[1]):
        raise SchemaError(
            f"changes: before and after must be structs of the table's columns, and are {sides[0].simpleString()} and"
            f" {sides[1].simpleString()}"
        )

    def read(rows: DataFrame) -> DataFrame:
        F = functions_of(rows.sparkSession)
        before, after = F.lit(None).cast(sides[0]), F.struct(*rows.columns).cast(sides[1])
        return rows.select(F.lit("r").alias("op"), before.alias("before"), after.alias("after"))

    return _feed(frame.select("op", "before", "after"), snapshot, sides[1], Debezium(keys), read)


def upserts(
    frame: DataFrame,
    keys: Sequence[str],
    *,
    deleted: str | None = None,
    order_by: str | Sequence[str] = (),
    snapshot: DataFrame | None = None,
) -> Feed:
    """Return the feed of a DataFrame whose rows each replace the row of the table with the same ``keys``.

    ``deleted`` names a column of truth values, which the table does not have: where it is true, the row with these keys is
    removed, if there is one. ``order_by`` names the columns that say which of two rows with the same keys is the later one,
    whenever they come; the table then also remembers the keys that were deleted. Without it a later epoch replaces an earlier
    one, and two different rows with the same keys in one micro-batch are a :class:`~timely.errors.FeedError`. So is a null in a
    key. ``snapshot`` is as for :func:`changes`: without ``order_by`` its rows come before those of the first micro-batch.

    >>> from timely.spark import local_session
    >>> rows = local_session(2).createDataFrame([(1, "a", False)], "id long, name string, gone boolean")
    >>> upserts(rows, keys=["id"], deleted="gone").rows.simpleString()
    'struct<id:bigint,name:string>'
    """
    _check_frame("upserts", frame)
    keys, orders = _names("upserts", keys), (order_by,) if isinstance(order_by, str) else tuple(order_by)
    if not keys:
        raise ConfigurationError("upserts: keys is a list with at least one column")
    table = frame
    if deleted is not None:
        _check_column("upserts", frame, deleted, BooleanType())
        table = frame.drop(deleted)
    for name in orders:
        _check_column("upserts", table, name, None)

    def present(rows: DataFrame) -> DataFrame:
        F = functions_of(rows.sparkSession)
        return rows if deleted is None else rows.withColumn(deleted, F.lit(False)).select(*frame.columns)

    return _feed(frame, snapshot, table.schema, Upserted(keys, deleted, orders), present)


def as_feed(name: str, source: object) -> Feed:
    """Return what was given for an input as a feed: a DataFrame is one whose rows are only added."""
    if isinstance(source, Feed):
        return source
    if not isinstance(source, DataFrame):
        raise ConfigurationError(
            f"inputs[{name!r}] must be a DataFrame, or what changes(...) or upserts(...) return, not {type(source)!r}"
        )
    return changes(source, "append")


def _feed(
    frame: DataFrame,
    snapshot: DataFrame | None,
    rows: StructType,
    decoder: FeedDecoder | Appended,
    alike: Callable[[DataFrame], DataFrame],
) -> Feed:
    """Return the feed, whose snapshot ``alike`` brings into the form of its changes."""
    for key in getattr(decoder, "keys", ()):
        if rows.names.count(key) != 1:
            raise SchemaError(f"keys: the table must have one column {key!r}; it has {', '.join(map(repr, rows.names))}")
    if snapshot is not None:
        _check_frame("snapshot", snapshot)
        if snapshot.isStreaming or not frame.isStreaming:
            raise ConfigurationError("snapshot= is a DataFrame that is no stream, beside a streaming DataFrame of changes")
        if not _same(snapshot.schema, rows):
            raise SchemaError(
                f"snapshot has the columns {snapshot.schema.simpleString()}, and the table that changes {rows.simpleString()}:"
                " select and cast the same"
            )
        snapshot = alike(snapshot.select(*rows.names))
    place = origin()
    return Feed(frame, snapshot, rows, decoder, "" if place is None else str(place))


def _names(function: str, keys: Sequence[str]) -> tuple[str, ...]:
    if isinstance(keys, str):
        raise ConfigurationError(f"{function}: keys is a list of columns, not {keys!r}")
    return tuple(keys)


def _same(one: StructType, other: StructType) -> bool:
    """Return whether two tables have the same columns, in whatever order."""
    return sorted((field.name, field.dataType.simpleString()) for field in one) == sorted(
        (field.name, field.dataType.simpleString()) for field in other
    )


def _check_frame(function: str, frame: object) -> None:
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(f"{function} takes a Spark DataFrame, not {type(frame)!r}")


def _check_column(function: str, frame: DataFrame, name: str, kind: DataType | None) -> DataType:
    """Return the type of a column. ``SchemaError`` where it is missing, or another one."""
    if frame.columns.count(name) != 1:
        raise SchemaError(
            f"{function}: the DataFrame must have one column {name!r}; it has {', '.join(map(repr, frame.columns))}"
        )
    column_type: DataType = frame.schema[name].dataType
    if kind is not None and column_type != kind:
        raise SchemaError(f"{function}: column {name!r} is {column_type.simpleString()}, and must be {kind.simpleString()}")
    return column_type
