"""Output schemas: rows and batches become batches of the declared columns; what would change a value is an error."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow.containers.arrow_values import own_array
from timely.dataflow.containers.container import records_of
from timely.errors import ConfigurationError, ContainerError, SchemaError, brief

_KINDS: tuple[tuple[str, Any], ...] = (
    ("a truth value", pa.types.is_boolean),
    ("a number", pa.types.is_integer),
    ("a number", pa.types.is_floating),
    ("a number", pa.types.is_decimal),
    ("a text", pa.types.is_string),
    ("a text", pa.types.is_large_string),
    ("a text", pa.types.is_string_view),
    ("bytes", pa.types.is_binary),
    ("bytes", pa.types.is_large_binary),
    ("bytes", pa.types.is_fixed_size_binary),
)

_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Spark's names of types."""


def declared_types(types: Mapping[str, Any], place: str) -> dict[str, pa.DataType]:
    """Return the types of some columns: types of PyArrow, or Spark's names; ``ConfigurationError`` for others.

    >>> declared_types({"zip": "string", "price": pa.decimal128(8, 2)}, "here")
    {'zip': DataType(string), 'price': Decimal128Type(decimal128(8, 2))}
    """
    declared = {}
    for name, kind in types.items():
        known = kind if isinstance(kind, pa.DataType) else _TYPES.get(str(kind).strip().lower())
        if not isinstance(name, str) or known is None:
            raise ConfigurationError(
                f"{place}: {brief(kind)} is no type of a column, for {brief(name)}. Types are {', '.join(_TYPES)}; for others"
                " give one of PyArrow"
            )
        declared[name] = known
    return declared


def declared_schema(columns: pa.Schema | str, place: str) -> pa.Schema:
    """Return a schema as it is, or the one of a text such as ``"node long, name string"``, with Spark's names of types.

    ``ConfigurationError`` for other texts: types of more than one word need a ``pyarrow.Schema``.

    >>> declared_schema("node long, name string", "here").names
    ['node', 'name']
    """
    if isinstance(columns, pa.Schema):
        return columns
    fields = []
    for column in columns.split(",") if isinstance(columns, str) else ():
        name, _, kind = column.replace(":", " ", 1).strip().partition(" ")
        known = _TYPES.get(kind.strip().lower())
        if not name or known is None:
            raise ConfigurationError(
                f"{place}: {column.strip()!r} is no name and type of a column. Types are {', '.join(_TYPES)}; for others give a"
                " pyarrow.Schema"
            )
        fields.append(pa.field(name.strip("`"), known))
    names = [field.name for field in fields]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"{place}: a schema is a pyarrow.Schema or a text such as 'node long, name string', of columns"
            f" with different names, not {brief(columns)}"
        )
    return pa.schema(fields)


@attrs.frozen
class OutputSchema:
    """One table: its name, its columns, and whether it is an output or an input, for errors."""

    name: str
    schema: pa.Schema
    kind: str = "output"

    def conform(self, batch: object) -> pa.RecordBatch:
        """Return ``batch``, or a container of rows, with the declared columns in the declared order and types.

        Rows are tuples by position, and dictionaries, data classes and attrs objects by name. So are named tuples with the names
        of the columns. Where only a tuple's innermost values are as many as the columns, they are the row: ``(key, (left,
        right))`` has three. Numbers are cast to other numbers, and text to other text, where no value changes; ``SchemaError``
        otherwise.

        >>> output = OutputSchema("sums", pa.schema([("node", pa.int64()), ("sum", pa.int64())]))
        >>> output.conform(pa.record_batch({"sum": [1], "node": [7]})).to_pydict()
        {'node': [7], 'sum': [1]}
        >>> output.conform([(7, 1), {"sum": 2, "node": 8}]).to_pydict()
        {'node': [7, 8], 'sum': [1, 2]}
        """
        if not isinstance(batch, pa.RecordBatch):
            return self._of_rows(batch)
        if batch.schema.equals(self.schema):
            for field, column in zip(self.schema, batch.columns, strict=True):
                self._check_nulls(field, column)
            return batch
        self._check_names(batch.schema.names)
        columns = [self._cast(field, batch.column(field.name)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def label(self) -> str:
        """The table in errors."""
        return f"{self.kind} {self.name!r}"

    def _of_rows(self, container: object) -> pa.RecordBatch:
        try:
            rows = records_of(container)
        except ContainerError as error:
            raise SchemaError(
                f"{self.label}: its stream carries Arrow record batches or containers of rows; make them with map_batch: {error}"
            ) from None
        width = len(self.schema)
        if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {width}:
            names = self.schema.names  # a list that Arrow makes anew each time
            known = frozenset(names)
            rows = [self._row(row, names, known) for row in rows]
        columns = list(zip(*rows, strict=True)) or [()] * width
        arrays = [self._array(field, values) for field, values in zip(self.schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _row(self, row: Any, names: Sequence[str], known: frozenset[str]) -> Sequence[Any]:
        """Return the values of one row, in the order of the columns."""
        if isinstance(row, dict):
            if row.keys() == known:
                return [row[name] for name in names]
        elif isinstance(row, tuple):
            fields = _names_of(type(row))
            if fields is not None and known.issuperset(fields) and len(fields) == len(names):
                return [getattr(row, name) for name in names]
            if len(row) == len(names):
                return row
            values: list[Any] = []
            _flatten(row, values)
            if len(values) == len(names):
                return values
        elif (fields := _names_of(type(row))) is not None:  # type: ignore[arg-type]
            if known == frozenset(fields):
                return [getattr(row, name) for name in names]
        elif len(names) == 1:
            return (row,)
        raise SchemaError(
            f"{self.label}: a row has the values of its columns {', '.join(map(repr, names))}, as a tuple in this order or by"
            f" name, and {brief(row)} has not: map it to such a tuple, or declare other columns"
        )

    def _array(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_map(field.type) and all(value is None or isinstance(value, tuple | list) for value in values):
            return self._map_array(field, values)
        try:
            if pa.types.is_nested(field.type):
                values = [_named(field.type, value) for value in values]
            array = own_array(values)  # of the type that they have: a given one would make 1 of 1.5
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SchemaError(
                f"{self.label}: column {field.name!r} is declared {field.type}, and its values are of no Arrow type: {error}"
            ) from None
        return self._cast(field, array)

    def _map_array(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        """Return maps, which are pairs of a key and a value: Arrow alone takes them only as a type that is given."""
        ends = itertools.accumulate((len(value or ()) for value in values), initial=0)
        offsets = [None if place < len(values) and values[place] is None else end for place, end in enumerate(ends)]
        parts = zip(*(entry for value in values for entry in value or ()), strict=True)
        keys, items = tuple(parts) or ((), ())
        arrays = self._array(field.type.key_field, keys), self._array(field.type.item_field, items)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *arrays, type=field.type)

    def _check_names(self, names: Sequence[str]) -> None:
        declared = self.schema.names
        for name in declared:
            if names.count(name) != 1:
                how = "has no" if name not in names else "has more than one"
                raise SchemaError(
                    f"{self.label}: the batch {how} column {name!r}; it has {', '.join(map(repr, names)) or 'none'}"
                )
        for name in names:
            if name not in declared:
                raise SchemaError(
                    f"{self.label}: the batch has a column {name!r} that was not declared; declared are "
                    f"{', '.join(map(repr, declared))}"
                )

    def _cast(self, field: pa.Field, column: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        self._check_nulls(field, column)
        if column.type.equals(field.type):
            return column
        if _is_akin(column.type, field.type):
            try:
                cast = column.cast(field.type)
                if not _may_round(column.type, field.type) or _is_same(cast.cast(column.type), column):
                    return cast
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise self._mismatch(field, column, str(error)) from error
        first = "" if self.kind == "output" else "declare the type that it has, and "
        raise self._mismatch(field, column, f"{first}cast it in the dataflow if that is meant")

    def _check_nulls(self, field: pa.Field, column: pa.Array) -> None:
        if column.null_count and not field.nullable:
            raise SchemaError(f"{self.label}: column {field.name!r} is declared not null, and has nulls")

    def _mismatch(self, field: pa.Field, column: pa.Array, detail: str) -> SchemaError:
        return SchemaError(
            f"{self.label}: column {field.name!r} is declared {field.type}, and the batch has {column.type}: {detail}"
        )


@functools.lru_cache
def _names_of(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a named tuple, attrs class or data class, and ``None`` for other types."""
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind))
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _flatten(row: Iterable[Any], values: list[Any]) -> None:
    """Append the values of a row, and in place of tuples and objects with fields in it theirs."""
    for value in row:
        if isinstance(value, tuple):
            _flatten(value, values)
        elif (names := _names_of(type(value))) is not None:  # type: ignore[arg-type]
            _flatten([getattr(value, name) for name in names], values)
        else:
            values.append(value)


def _is_akin(actual: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of a type may be cast to another; within lists, structs and maps, only if that cannot round."""
    if pa.types.is_null(actual):
        return True
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if _kind(actual) != _kind(declared):
        return False
    if not pa.types.is_nested(actual):
        return True
    parts = _parts(actual), _parts(declared)
    return parts[0].keys() == parts[1].keys() and all(
        _is_akin(part, parts[1][name]) and not _may_round(part, parts[1][name]) for name, part in parts[0].items()
    )


def _parts(kind: pa.DataType) -> dict[str, pa.DataType]:
    """Return the types within a nested type: the fields of a struct by name, others by position."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return {field.name if pa.types.is_struct(kind) else str(at): field.type for at, field in enumerate(fields)}


def _may_round(actual: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a cast between numeric types may change a value without an error."""
    if pa.types.is_floating(actual) and pa.types.is_floating(declared):
        return bool(actual.bit_width > declared.bit_width)
    return {pa.types.is_floating(actual), pa.types.is_floating(declared)} == {True, False} and (
        pa.types.is_decimal(actual) or pa.types.is_decimal(declared)
    )


def _is_same(cast: pa.Array, column: pa.Array) -> bool:
    same = pc.equal(cast, column)
    if pa.types.is_floating(column.type):
        same = pc.or_(same, pc.is_nan(column))
    return bool(pc.all(same, min_count=0).as_py())


def _kind(kind: pa.DataType) -> str:
    for name, is_one in _KINDS:
        if is_one(kind):
            return name
    return f"type {kind.id}"


def _named(kind: pa.DataType, value: Any) -> Any:
    """Return a value of a column whose structs, where they are tuples, have the names of their fields."""
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        return {field.name: _named(field.type, part) for field, part in zip(kind, value, strict=True)}
    if pa.types.is_list(kind) and isinstance(value, tuple | list):
        return [_named(kind.value_type, part) for part in value]
    return value
