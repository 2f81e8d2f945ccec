"""How several tables travel as one: inputs to the workers, outputs back from them.

A barrier stage has one table in and one table out. Where a run has several inputs or outputs, a row of that one table
says which of them it belongs to, and carries its values in a struct made for it; the structs of the others are null.
The invariant: what is unpacked are the rows that were packed, under the names and types that were declared, and no
row says more than where it belongs. A caller may assume that an output batch that passed :meth:`Output.conform` has
exactly the declared columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.errors import SchemaError

TAG = "timely_table"
"""The column that says which table a row belongs to."""

EPOCH = "timely_epoch"
"""The column that says at which epoch a row enters, where any input has one."""

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


def struct_name(position: int) -> str:
    """Return the name of the struct column of the table at a position.

    >>> struct_name(2)
    'timely_table_2'
    """
    return f"{TAG}_{position}"


def column_name(position: int) -> str:
    """Return the name by which Spark knows a column inside of a run, where columns go by their positions.

    A DataFrame may have any names, and some of them twice, while Spark looks names up without regard to case, reads dots
    in them, and cannot quote them all.

    >>> column_name(2)
    'timely_column_2'
    """
    return f"timely_column_{position}"


@attrs.frozen
class Input:
    """One input table as the workers see it: its name, the column of what Spark sends that has its epochs, if any, and the
    names of its columns, where Spark sends it with others.
    """

    name: str
    epoch: str | None
    columns: tuple[str, ...] | None = None

    def named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` with the names of this table's columns.

        >>> Input("edges", None, ("src", "dst")).named(pa.RecordBatch.from_pydict({"0": [1], "1": [2]})).schema.names
        ['src', 'dst']
        """
        return batch if self.columns is None else batch.rename_columns(self.columns)


@attrs.frozen
class Output:
    """One output table: its name and its columns."""

    name: str
    schema: pa.Schema

    def conform(self, batch: object) -> pa.RecordBatch:
        """Return ``batch`` with the declared columns in the declared order and types.

        A number may become another type of number, and a text another type of text, where no value is lost. Raises
        :class:`~timely.errors.SchemaError` naming output and column otherwise, and for what is no Arrow batch at all.

        >>> output = Output("sums", pa.schema([("node", pa.int64()), ("sum", pa.int64())]))
        >>> output.conform(pa.RecordBatch.from_pydict({"sum": pa.array([1], pa.int32()), "node": [7]})).to_pydict()
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
                    f"output {self.name!r}: the batch {how} column {name!r}; it has "
                    f"{', '.join(map(repr, names)) or 'none'}"
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
            f"output {self.name!r}: column {field.name!r} is declared {field.type}, and the batch has {column.type}: "
            f"{detail}"
        )


def _is_akin(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of a type may be cast to another. Within lists, structs and maps, only what cannot be rounded."""
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
    """Return the types of what a nested type is made of: the fields of a struct by name, those of others by position."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return {field.name if pa.types.is_struct(kind) else str(at): field.type for at, field in enumerate(fields)}


def _may_round(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a cast between two types of numbers may change a value without an error."""
    if pa.types.is_floating(given) and pa.types.is_floating(declared):
        return bool(given.bit_width > declared.bit_width)
    return {pa.types.is_floating(given), pa.types.is_floating(declared)} == {True, False} and (
        pa.types.is_decimal(given) or pa.types.is_decimal(declared)
    )


def _is_same(cast: pa.Array, column: pa.Array) -> bool:
    """Return whether two arrays of numbers have the same values; what is no number is the same as itself."""
    same = pc.equal(cast, column)
    if pa.types.is_floating(column.type):
        same = pc.or_(same, pc.is_nan(column))
    return bool(pc.all(same, min_count=0).as_py())


def _kind(kind: pa.DataType) -> str:
    """Return what a type is a kind of; types of one kind may be cast to each other."""
    for name, is_one in _KINDS:
        if is_one(kind):
            return name
    return f"type {kind.id}"


def pack(position: int, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the packed table ``schema`` whose rows are those of ``batch``, the table at ``position``."""
    rows = batch.num_rows
    columns: list[pa.Array] = [pa.repeat(pa.scalar(position, pa.int32()), rows)]
    for other in range(1, len(schema)):
        if other == position + 1:
            columns.append(pa.StructArray.from_arrays(batch.columns, fields=list(schema.field(other).type)))
        else:
            columns.append(pa.nulls(rows, schema.field(other).type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in parts of at most ``rows`` rows, which share its memory; in one piece where ``rows`` is 0.

    >>> [part.num_rows for part in cut(pa.RecordBatch.from_pydict({"x": [1, 2, 3]}), 2)]
    [2, 1]
    """
    if not 0 < rows < batch.num_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def packed_schema(outputs: Sequence[Output]) -> pa.Schema:
    """Return the schema of the one table in which several outputs travel.

    >>> packed_schema([Output("a", pa.schema([("x", pa.int64())]))]).names
    ['timely_table', 'timely_table_0']
    """
    fields = [pa.field(TAG, pa.int32(), nullable=False)]
    for position, output in enumerate(outputs):
        columns = [field.with_name(column_name(at)) for at, field in enumerate(output.schema)]
        fields.append(pa.field(struct_name(position), pa.struct(columns)))
    return pa.schema(fields)


def unpack(batch: pa.RecordBatch, inputs: Sequence[Input]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Split a batch that Spark handed over into ``(epoch, position of the input, rows)``; the epochs go up if the
    batch's do.

    A single input comes as it is, several come packed. Raises :class:`~timely.errors.SchemaError` for an epoch that
    is null or negative.

    >>> batch = pa.RecordBatch.from_pydict({"day": [0, 0, 2], "x": [1, 2, 3]})
    >>> [(epoch, position, rows["x"].to_pylist()) for epoch, position, rows in unpack(batch, [Input("a", "day")])]
    [(0, 0, [1, 2]), (2, 0, [3])]
    """
    column = inputs[0].epoch if len(inputs) == 1 else EPOCH if EPOCH in batch.schema.names else None
    slices = [(0, batch)] if column is None else _by_epoch(batch, column)
    for epoch, rows in slices:
        tables = [(0, rows)] if len(inputs) == 1 else _tables(rows)
        for position, table in tables:
            yield epoch, position, inputs[position].named(table)


def _by_epoch(batch: pa.RecordBatch, column: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    runs = pc.run_end_encode(batch.column(column).cast(pa.int64()), run_end_type=pa.int64())
    start = 0
    for epoch, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        if epoch is None or epoch < 0:
            raise SchemaError(
                f"a row's epoch is {'null' if epoch is None else epoch}; epochs are integers of 0 or more"
            )
        yield epoch, batch.slice(start, end - start)
        start = end


def _tables(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    tags = batch.column(TAG)
    for position in sorted(pc.unique(tags).to_pylist()):
        structs = pc.filter(batch.column(struct_name(position)), pc.equal(tags, position))
        yield position, pa.RecordBatch.from_arrays(structs.flatten(), names=[field.name for field in structs.type])
