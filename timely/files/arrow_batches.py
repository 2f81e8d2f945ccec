"""Objects with Arrow's C interface as record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from timely.dataflow import check_moments, frame_data
from timely.errors import SchemaError, brief

ROWS = 1 << 16
"""The most rows of a batch."""


def check_arrow(table: Any, place: str) -> None:
    """Raise ``SchemaError`` for an object without Arrow's C interface."""
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise SchemaError(
            f"{place} takes an object with Arrow's C interface (a table of PyArrow, polars, pandas 2.2 or DuckDB), not"
            f" {brief(table)}: use to_stream for records"
        )


def batches_of(table: Any, place: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an object, none of them empty, with plain columns in place of views.

    ``SchemaError`` for what Arrow cannot read, or what has no columns.
    """
    try:
        table = frame_data(table)
        if hasattr(table, "__arrow_c_stream__"):
            batches: Any = pa.RecordBatchReader.from_stream(table)
        else:
            batches = [pa.record_batch(table)]
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS):
                part = _plain(batch.slice(start, ROWS))
                for name, column in zip(part.schema.names, part.columns, strict=True):
                    check_moments(name, column, place)
                yield part
    except SchemaError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"{place}: {brief(table)} cannot be read as Arrow record batches: {error}") from error


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose views are plain strings and bytes, which other functions of Arrow take."""
    columns = [_plain_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _plain_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.value_type in (pa.string_view(), pa.binary_view()):
        return pa.DictionaryArray.from_arrays(column.indices, _plain_column(column.dictionary))
    if kind == pa.string_view():
        return column.cast(pa.string())
    if kind == pa.binary_view():
        return column.cast(pa.binary())
    return column
