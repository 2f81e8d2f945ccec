"""Values of Arrow that rows cannot have, found when they come: bytes that are no text, dates beyond Python's."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from timely.errors import SchemaError, error_text


def check_layout(batch: pa.RecordBatch, place: str) -> None:
    """Raise ``SchemaError``, with the column, for values that are not what their types say, and where Arrow would go astray.

    >>> check_layout(pa.record_batch({"name": pa.array([b"ok", b"\\xff"]).view(pa.string())}), "here")
    Traceback (most recent call last):
    timely.errors.SchemaError: here: column 'name': Invalid UTF8 sequence at string index 1
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{place}: column {name!r}: {error}") from None


def check_moments(name: str, column: Any, place: str) -> None:
    """Raise ``SchemaError`` for dates, times and durations, also within lists and structs, that are none in Python.

    >>> check_moments("d", pa.array([0, 10_000_000], pa.int32()).view(pa.date32()), "here")
    Traceback (most recent call last):
    timely.errors.SchemaError: here: column 'd' is date32[day], and no row has 29349-01-26: OverflowError: date value out of range
    """
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        parts: Any = (
            column.chunks if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_temporal(kind) else ()
        )
    elif isinstance(column, pa.ExtensionArray):
        parts = [column.storage]
    elif pa.types.is_dictionary(kind):
        parts = [column.dictionary]
    elif pa.types.is_struct(kind):
        parts = column.flatten()
    elif pa.types.is_map(kind):
        parts = [column.keys, column.items]
    elif pa.types.is_nested(kind) and hasattr(column, "flatten"):  # lists of all kinds
        parts = [column.flatten()]
    else:
        parts = ()
        if pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval():
            _check_extremes(name, column, place)
    for part in parts:
        check_moments(name, part, place)


def _check_extremes(name: str, column: pa.Array, place: str) -> None:
    """Raise ``SchemaError`` where the least or the greatest value cannot be made one of Python."""
    value: object = "such values"
    try:
        if pa.types.is_time(column.type):
            column.validate(full=True)  # else Python would take the time of another day
        if column.type == pa.time64("ns"):
            column.cast(pa.time64("us"))  # else Python would drop them
        numbers = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        extremes = pc.min_max(numbers)
        for end in pa.array([extremes["min"].as_py(), extremes["max"].as_py()], numbers.type).view(column.type):
            value = end.value
            with contextlib.suppress(pa.ArrowException):
                value = end.cast(pa.string()).as_py()
            end.as_py()
    except (ArithmeticError, LookupError, ValueError) as error:
        raise SchemaError(f"{place}: column {name!r} is {column.type}, and no row has {value}: {error_text(error)}") from None
