"""The columns of a stream's inputs and outputs, as its checkpoint has them, and what a source may do to its own meanwhile.

The invariant: for as long as a checkpoint lives, an input has the columns of the first start, in that order. A column that the
source gains is not read. A type may become wider, never narrower.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from timely.dataflow import warn
from timely.errors import ChangedDataflowError, CheckpointError, SchemaError
from timely.spark.connect import functions_of, is_connect
from timely.spark.packing import column_name
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_log import has_epochs
from timely.spark.streaming.jobs import in_a_task

FORMAT = 3
"""The version of what is in a stream's directory."""

_NAME = "stream.json"
_WIDER = ((ByteType, ShortType, IntegerType, LongType), (FloatType, DoubleType))
"""Types of numbers, each of which holds those before it."""


@attrs.frozen
class StreamSchemas:
    """The columns of each input and output of a stream, in order.

    Written by a stream that has ingested nothing yet, and compared ever after. With them is the stream's id, by which sinks know
    it.
    """

    inputs: Mapping[str, StructType]
    outputs: Mapping[str, StructType]

    def settle(self, directory: StreamDirectory) -> str:
        """Write them to a directory without any epoch; return the id, which a directory has from the first start on."""
        try:
            id = str(json.loads(directory.read(_NAME))["id"])
        except (CheckpointError, ValueError, KeyError):
            id = secrets.token_hex(8)
        self._write(directory, id)
        return id

    def _write(self, directory: StreamDirectory, id: str) -> None:
        schemas = {kind: {name: schema.jsonValue() for name, schema in tables.items()} for kind, tables in self._tables()}
        text = json.dumps({"format": FORMAT, "id": id, **schemas}, indent=1)
        directory.write(_NAME, lambda file: file.write(text.encode()))

    def _tables(self) -> tuple[tuple[str, Mapping[str, StructType]], ...]:
        return ("inputs", self.inputs), ("outputs", self.outputs)

    def check(self, directory: StreamDirectory) -> str:
        """Compare them with those in a directory, and write what has become wider; return its id.

        ``ChangedDataflowError`` for other inputs or outputs, ``SchemaError`` for other columns, ``CheckpointError`` where the
        file is missing, damaged, or of another version.
        """
        try:
            stored = json.loads(directory.read(_NAME))
            if (format := stored["format"]) != FORMAT:
                raise CheckpointError(
                    f"{directory.uri} is of format {format}, and this version of timely reads {FORMAT}: use a new directory as"
                    " checkpoint"
                )
            before, id = _schemas(stored), str(stored["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{directory.uri}/{_NAME} is damaged: {error}. Use a new directory as checkpoint") from error
        for (kind, then), (_, now) in zip(before._tables(), self._tables()):
            if list(then) != list(now):
                raise ChangedDataflowError(
                    f"the checkpoint {directory.uri} is of a stream with the {kind} {', '.join(then)}; this one has"
                    f" {', '.join(now)}. Use a new directory as checkpoint"
                )
        for name, schema in self.inputs.items():
            _check_input(name, schema, before.inputs[name])
        for name, schema in self.outputs.items():
            if _listed(schema) != _listed(before.outputs[name]):
                raise SchemaError(f"{_compared('output', name, schema, before.outputs[name])}. Use a new directory as checkpoint")
        if self != before:
            self._write(directory, id)
        return id


def stored_inputs(session: SparkSession, directory: StreamDirectory) -> Mapping[str, StructType]:
    """Return the columns of each input of the stream in a directory; of none where nothing is ingested.

    They are only asked for here. What is wrong with the directory is said where the stream is opened.
    """

    def text() -> str:
        try:
            return directory.read(_NAME).decode() if has_epochs(directory.ledger()) else "{}"
        except (CheckpointError, OSError):
            return "{}"

    try:
        return _schemas(json.loads(in_a_task(session, text) if is_connect(session) else text())).inputs
    except (ValueError, KeyError, TypeError):
        return {}


def _schemas(stored: Mapping[str, Any]) -> StreamSchemas:
    tables = ({name: StructType.fromJson(schema) for name, schema in stored[kind].items()} for kind in ("inputs", "outputs"))
    return StreamSchemas(*tables)


def with_columns_of(stored: StructType, frame: DataFrame, name: str) -> DataFrame:
    """Return an input with the columns that its checkpoint has. ``SchemaError`` where it does not have all their values.

    Warns of columns that the source has gained.
    """
    schema = frame.schema
    _check_input(name, schema, stored)
    if _names(schema) == _names(stored):
        return frame
    if gained := list(_gained(schema, stored)):
        warn(
            f"input {name!r} has gained {', '.join(gained)}, and its checkpoint goes on without: to read what is new, use a new"
            " directory as checkpoint"
        )
    F = functions_of(frame.sparkSession)
    positions = frame.toDF(*map(column_name, range(len(schema))))
    columns = [F.col(column_name(schema.names.index(field.name))) for field in stored]
    types = [schema[field.name].dataType for field in stored]
    chosen = [_chosen(F, *each) for each in zip(columns, types, (field.dataType for field in stored))]
    return positions.select(*chosen).toDF(*stored.names)


def _chosen(F: Any, column: Column, kind: DataType, stored: DataType) -> Column:
    """Return a column with the fields that ``stored`` has."""
    if not isinstance(stored, StructType) or not isinstance(kind, StructType) or _names(kind) == _names(stored):
        return column
    parts = [_chosen(F, column.getField(part.name), kind[part.name].dataType, part.dataType).alias(part.name) for part in stored]
    chosen: Column = F.when(column.isNotNull(), F.struct(*parts))
    return chosen


def _names(kind: DataType) -> Any:
    return [(part.name, _names(part.dataType)) for part in kind] if isinstance(kind, StructType) else None


def _gained(schema: DataType, stored: DataType, around: str = "") -> Iterator[str]:
    if not isinstance(schema, StructType) or not isinstance(stored, StructType):
        return
    for part in schema:
        if part.name in stored.names:
            yield from _gained(part.dataType, stored[part.name].dataType, f"{around}{part.name}.")
        else:
            yield f"{around}{part.name}"


def _check_input(name: str, now: StructType, then: StructType) -> None:
    if not _holds(now, then):
        raise SchemaError(
            f"{_compared('input', name, now, then)}. Columns may be new, come in another order, or become wider, as int to"
            " bigint. For another change use a new directory as checkpoint, and read the source from its start; maintain takes"
            " the rows that were there before as snapshot="
        )


def _holds(now: DataType, then: DataType) -> bool:
    """Return whether a type has all values of ``then``, and equal ones stay equal."""
    if isinstance(now, StructType) and isinstance(then, StructType):
        if now.names == then.names:
            return all(_holds(one.dataType, other.dataType) for one, other in zip(now, then))
        return all(now.names.count(part.name) == 1 and _holds(now[part.name].dataType, part.dataType) for part in then)
    if isinstance(now, DecimalType) and isinstance(then, DecimalType):
        return now.scale == then.scale and now.precision >= then.precision
    for types in _WIDER:
        if type(now) in types and type(then) in types:
            return types.index(type(now)) >= types.index(type(then))
    return now.simpleString() == then.simpleString()


def _compared(kind: str, name: str, now: StructType, then: StructType) -> str:
    return f"{kind} {name!r} has the columns {_listed(now)}; in the checkpoint it has {_listed(then)}"


def _listed(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)


def widened(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of an epoch with numbers as wide as ``schema`` has them: they may be from before a type became wider.

    >>> widened(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema([("n", pa.int64())])).schema.types
    [DataType(int64)]
    """
    columns = [_widened(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _widened(column: pa.Array, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_struct(kind):
        parts = column.flatten()
        wide = [_widened(part, field.type) for part, field in zip(parts, kind, strict=True)]
        if all(one is other for one, other in zip(wide, parts)):
            return column
        names = [field.name for field in column.type]
        return pa.StructArray.from_arrays(wide, names=names, mask=column.is_null())
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return column.cast(kind) if numbers and column.type != kind else column
