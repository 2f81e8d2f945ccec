"""Rows of Arrow data: tables and batches of PyArrow, and whatever exports one, as polars, pandas and DuckDB do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import override

from timely.dataflow import arrow_batches, without_views
from timely.differential.tables.names.statements import is_append_only
from timely.differential.tables.values.kinds import (
    Column,
    Kind,
    arrow_schema,
    column_checks,
    columns_of,
    is_akin,
    kind_of,
    lower_case,
    plain_type,
    row_check,
)
from timely.differential.updates.arrow_tables import Fields
from timely.differential.updates.int_columns import paired
from timely.differential.updates.row_columns import rows_of_batch
from timely.errors import SchemaError, brief

Row = tuple[Any, ...]


def is_arrow(data: Any) -> bool:
    """Return whether an object exports Arrow data."""
    return hasattr(data, "__arrow_c_stream__") or (hasattr(data, "__arrow_c_array__") and not isinstance(data, pa.Array))


def arrow_table(data: Any, place: str) -> pa.Table:
    """Return what an object exports, with ``narrow`` types; ``SchemaError`` where a value would be changed by that."""
    schema, batches = arrow_batches(data, place)
    return _with_types(pa.Table.from_batches(batches, schema), plain_schema(schema, narrow=True), place)


def _with_types(table: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    arrays = []
    for field, old, column in zip(schema, table.schema, table.columns):
        if field.type == old.type:
            arrays.append(column)
            continue
        try:
            arrays.append(pa.chunked_array([without_views(chunk).cast(field.type) for chunk in column.chunks], field.type))
        except pa.ArrowException as error:
            raise SchemaError(f"{place}: column {field.name!r} is {old.type}, and cannot be {field.type}: {error}") from None
    return pa.Table.from_arrays(arrays, schema=schema.remove_metadata())


def arrow_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of an Arrow table."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from zip(*(column.to_pylist() for column in batch.columns))


def data_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of data for a table: columns that have no value, and so no type, are texts."""
    return pa.schema([field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema])


def plain_schema(schema: pa.Schema, *, narrow: bool = False) -> pa.Schema:
    """Return the schema with the types that tables have, or ``narrow`` ones (``plain_type``)."""
    return pa.schema([field.with_type(plain_type(field.type, narrow=narrow)) for field in schema])


def table_reader(schema: pa.Schema, place: str) -> Callable[[Any], pa.Table]:
    """Return what makes a table, with the types that tables have, of Arrow data of ``schema``; ``SchemaError`` for others."""
    plain = plain_schema(schema)
    columns = columns_of(schema)
    types, checks = plain_schema(schema, narrow=True).types, column_checks(columns, schema)

    def values_of(number: int, field: pa.Field, data: Any) -> Any:
        kind, type_ = columns[number].kind, plain.types[number]
        if data.type != type_:
            if not pa.types.is_null(field.type) and not is_akin(kind_of(field), kind):
                raise SchemaError("cast it, if that is meant")
            cast = data.cast(type_)
            if (kind.nested or kind.scale is not None or kind is Kind.DATE) and not cast.cast(data.type).equals(data):
                raise SchemaError("a value would be another one")
            data = cast
        if types[number] in (type_, field.type):
            return data
        return pa.array([checks[number](value) for value in data.to_pylist()], type_)

    def read(batch: Any) -> pa.Table:
        own = arrow_table(batch, place)
        table = _with_types(own, plain_schema(own.schema), place)
        if table.schema.names != plain.names:
            raise SchemaError(
                f"{place}: the columns are {', '.join(plain.names)}, and {', '.join(table.schema.names) or 'none'} came"
            )
        arrays = []
        for number, (field, data) in enumerate(zip(own.schema, table.columns)):
            try:
                arrays.append(values_of(number, field, data))
            except (pa.ArrowException, ValueError) as error:
                what = f"{place}: column {field.name!r} is {types[number]}, and {field.type} came"
                raise SchemaError(f"{what}: {error}") from None
        return pa.Table.from_arrays(arrays, schema=plain)

    return read


def check_added(row: Any, diff: Any, table: str) -> None:
    """Raise ``SchemaError`` for a row of an append-only table that is taken away."""
    if diff < 0:
        raise SchemaError(
            f"{table} is append-only, and row {brief(row)} would be taken away or replaced: nothing was changed; send rows that"
            " are new, or declare the table without APPEND ONLY"
        )


class RowFields(Fields):
    """The schema of a table's session: rows are tuples, or dictionaries by name, and their values are checked."""

    __slots__ = ("_check", "_grows", "_names", "_read")

    def __init__(self, schema: pa.Schema, place: str) -> None:
        super().__init__(schema)
        self._grows = is_append_only(schema)
        self._read = table_reader(schema, place)
        columns = columns_of(schema)
        self._names = [column.name for column in columns]
        self._check = row_check(columns, schema)

    @override
    def checked(self, record: Any, label: str, diff: Any = 1) -> Any:
        if self._grows:
            check_added(record, diff, label)
        try:
            return self._check(self._by_position(record) if isinstance(record, Mapping) else record)
        except SchemaError as error:
            raise SchemaError(f"{label}: {error}") from None

    def _by_position(self, record: Mapping[str, Any]) -> Row:
        named = {lower_case(str(name)): value for name, value in record.items()}
        if named.keys() != {*self._names}:
            raise SchemaError(f"a row of this table has the columns {', '.join(self._names)}, and {brief(record)} came")
        return tuple([named[name] for name in self._names])

    @override
    def check_columns(self, columns: Sequence[Any], label: str) -> None:
        if len(columns) != 1 or not is_arrow(columns[0]):
            raise SchemaError(f"{label}: insert_columns of a table takes Arrow data, one table or batch, not {brief(columns)}")

    @override
    def updates(self, batch: Any, diff: Any, label: str) -> Any:
        arrow_batch = self._read(batch)
        if self._grows:
            for number, each in enumerate([diff] if type(diff) is int else diff):
                if each < 0:
                    check_added(next(arrow_rows(arrow_batch.slice(number)), ()), each, label)
        if type(diff) is int:
            return rows_of_batch(arrow_batch, diff) if diff else []
        return paired([self._check(row) for row in arrow_rows(arrow_batch)], diff, label)


def stream_reader(schema: pa.Schema, place: str, count: str | None = None) -> Callable[[Any], Any]:
    """Return what makes updates of a container: an Arrow batch, or a list of Arrow batches or of rows, to be checked.

    The column ``count`` of batches says how often a row is added.
    """
    read = table_reader(schema, place)

    def updates(container: Any) -> Any:
        batches = [container] if is_arrow(container) else list(container)
        if count is None and not any(isinstance(record, tuple) for record in batches):
            return rows_of_batch(pa.concat_tables([read(batch) for batch in batches]))
        counted_rows: list[tuple[Row, int]] = []
        for record in batches:
            if count is None:
                counted_rows += [(row, 1) for row in ([record] if isinstance(record, tuple) else arrow_rows(read(record)))]
                continue
            table = read(record)
            counts = table.column(count)
            if counts.null_count:
                raise SchemaError(f"{place}: column {count!r} says how often a row is there, and has nulls")
            counted_rows += zip(arrow_rows(table.drop_columns([count])), counts.to_pylist(), strict=True)
        return counted_rows

    return updates


def batch_of(rows: Sequence[Row], columns: Sequence[Column], place: str) -> pa.RecordBatch:
    """Return rows as an Arrow batch; ``SchemaError`` for values that its types do not hold."""
    schema = arrow_schema(tuple(columns))
    arrays = []
    for field, values in zip(schema, zip(*rows)):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SchemaError(f"{place}: column {field.name!r} cannot be {field.type} in an Arrow batch: {error}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def by_batches(
    f: Callable[[pa.RecordBatch], Any], columns: Sequence[Column], schema: pa.Schema, place: str
) -> Callable[[Iterable[tuple[Row, Any]]], list[tuple[Row, Any]]]:
    """Return what applies ``f`` to updates, once for the rows of each difference: those that come out have the same."""
    read, check = table_reader(schema, place), row_check(columns_of(schema), schema)

    def updates(pairs: Iterable[tuple[Row, Any]]) -> list[tuple[Row, Any]]:
        by_diff: dict[Any, list[Row]] = {}
        for row, diff in pairs:
            by_diff.setdefault(diff, []).append(row)
        batches = ((read(f(batch_of(rows, columns, place))), diff) for diff, rows in by_diff.items())
        return [(check(row), diff) for batch, diff in batches for row in arrow_rows(batch)]

    return updates
