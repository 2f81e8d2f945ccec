"""How several tables travel as one: inputs to the workers, outputs back from them.

A barrier stage has one table in and one table out. A row of that table has the tag of the input or output it belongs to, and its
values in a struct of its own; the other structs are null. Unpacking gives the rows that were packed, with their names and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow.output_schema import OutputSchema
from timely.errors import SchemaError

TAG = "timely_table"
"""The column that says which table a row belongs to."""

REPORT = "timely_report"
"""The column with what the driver gets to know of a run, in one row that is of no table."""

REPORTED = -1
"""The tag of the row with a report."""

FAILED = -2
"""The tag of a row with the text of an error, which its reader raises."""

EPOCH = "timely_epoch"
"""The column that says at which epoch a row enters, where any input has one."""


def struct_name(position: int) -> str:
    """Return the name of the struct column of the table at a position, such as ``timely_table_2``."""
    return f"{TAG}_{position}"


def column_name(position: int) -> str:
    """Return the name of a column inside of a run, such as ``timely_column_2``.

    Spark looks names up without regard to case, reads dots in them, and cannot quote them all; positions are safe.
    """
    return f"timely_column_{position}"


@attrs.frozen
class InputTable:
    """One input as the workers see it: its name, the column of its epochs, if any, and its columns' names, where Spark has
    others.
    """

    name: str
    epoch: str | None
    columns: tuple[str, ...] | None = None

    def named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` with the names of this table's columns."""
        return batch if self.columns is None else batch.rename_columns(self.columns)


def pack(position: int, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of the packed table ``schema`` with the rows of ``batch``, the table at ``position``."""
    rows = batch.num_rows
    columns: list[pa.Array] = [pa.repeat(pa.scalar(position, pa.int32()), rows)]
    for other in range(1, len(schema)):
        if other == position + 1:
            columns.append(pa.StructArray.from_arrays(batch.columns, fields=list(schema.field(other).type)))
        else:
            columns.append(pa.nulls(rows, schema.field(other).type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in parts of at most ``rows`` rows, which share its memory; in one piece where ``rows`` is 0."""
    if not 0 < rows < batch.num_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def pack_report(text: str, schema: pa.Schema, tag: int = REPORTED) -> pa.RecordBatch:
    """Return the one row of a packed table that has a report, or the text of an error, and is of no output."""
    columns = [pa.array([tag], pa.int32()), *(pa.nulls(1, field.type) for field in list(schema)[1:-1]), pa.array([text])]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def packed_schema(outputs: Sequence[OutputSchema], *, reported: bool = False) -> pa.Schema:
    """Return the schema of the one table in which several outputs travel, or where ``reported`` outputs and a report."""
    fields = [pa.field(TAG, pa.int32(), nullable=False)]
    for position, output in enumerate(outputs):
        columns = [field.with_name(column_name(at)) for at, field in enumerate(output.schema)]
        fields.append(pa.field(struct_name(position), pa.struct(columns)))
    if reported:
        fields.append(pa.field(REPORT, pa.string()))
    return pa.schema(fields)


def unpack(batch: pa.RecordBatch, inputs: Sequence[InputTable]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Split a batch from Spark into ``(epoch, position of the input, rows)``, in the order of its epochs.

    A single input comes as it is, several come packed. Raises :class:`~timely.errors.SchemaError` for a null or negative epoch.
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
            raise SchemaError(f"a row's epoch is {'null' if epoch is None else epoch}; epochs are integers of 0 or more")
        yield epoch, batch.slice(start, end - start)
        start = end


def _tables(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    tags = batch.column(TAG)
    for position in sorted(pc.unique(tags).to_pylist()):
        structs = pc.filter(batch.column(struct_name(position)), pc.equal(tags, position))
        yield position, pa.RecordBatch.from_arrays(structs.flatten(), names=[field.name for field in structs.type])
