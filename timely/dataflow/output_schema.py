"""Output schemas: batches are cast to the declared columns, and a cast that would change a value is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.errors import SchemaError

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


@attrs.frozen
class OutputSchema:
    """One output table: its name and its columns."""

    name: str
    schema: pa.Schema

    def conform(self, batch: object) -> pa.RecordBatch:
        """Return ``batch`` with the declared columns in the declared order and types.

        Numbers are cast to other numbers, and text to other text, where no value changes; ``SchemaError`` otherwise, and for what
        is no Arrow batch.

        >>> output = OutputSchema("sums", pa.schema([("node", pa.int64()), ("sum", pa.int64())]))
        >>> output.conform(pa.record_batch({"sum": [1], "node": [7]})).to_pydict()
        {'node': [7], 'sum': [1]}
        """
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(
                f"output {self.name!r}: its stream carries containers of type {type(batch).__name__}; it must "
                "carry Arrow record batches. Turn lists into batches with map_batch"
            )
        if batch.schema.equals(self.schema):
            for field, column in zip(self.schema, batch.columns, strict=True):
                self._check_nulls(field, column)
            return batch
        self._check_names(batch.schema.names)
        columns = [self._cast(field, batch.column(field.name)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _check_names(self, names: Sequence[str]) -> None:
        declared = self.schema.names
        for name in declared:
            if names.count(name) != 1:
                how = "has no" if name not in names else "has more than one"
                raise SchemaError(
                    f"output {self.name!r}: the batch {how} column {name!r}; it has {', '.join(map(repr, names)) or 'none'}"
                )
        for name in names:
            if name not in declared:
                raise SchemaError(
                    f"output {self.name!r}: the batch has a column {name!r} that was not declared; declared are "
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
        raise self._mismatch(field, column, "cast it in the dataflow if that is meant")

    def _check_nulls(self, field: pa.Field, column: pa.Array) -> None:
        if column.null_count and not field.nullable:
            raise SchemaError(f"output {self.name!r}: column {field.name!r} is declared not null, and has nulls")

    def _mismatch(self, field: pa.Field, column: pa.Array, detail: str) -> SchemaError:
        return SchemaError(
            f"output {self.name!r}: column {field.name!r} is declared {field.type}, and the batch has {column.type}: {detail}"
        )


def _is_akin(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of a type may be cast to another; within lists, structs and maps, only if that cannot round."""
    if pa.types.is_null(given):
        return True
    if pa.types.is_dictionary(given):
        given = given.value_type
    if _kind(given) != _kind(declared):
        return False
    if not pa.types.is_nested(given):
        return True
    parts = _parts(given), _parts(declared)
    return parts[0].keys() == parts[1].keys() and all(
        _is_akin(part, parts[1][name]) and not _may_round(part, parts[1][name]) for name, part in parts[0].items()
    )


def _parts(kind: pa.DataType) -> dict[str, pa.DataType]:
    """Return the types within a nested type: the fields of a struct by name, others by position."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return {field.name if pa.types.is_struct(kind) else str(at): field.type for at, field in enumerate(fields)}


def _may_round(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a cast between numeric types may change a value without an error."""
    if pa.types.is_floating(given) and pa.types.is_floating(declared):
        return bool(given.bit_width > declared.bit_width)
    return {pa.types.is_floating(given), pa.types.is_floating(declared)} == {True, False} and (
        pa.types.is_decimal(given) or pa.types.is_decimal(declared)
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
