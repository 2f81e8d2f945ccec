"""Data of Arrow that others made, and values that rows cannot have: bytes that are no text, dates beyond Python's."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow.containers.data_frames import frame_data
from timely.errors import SchemaError, brief, error_text

_CSchema = ctypes.c_void_p * 9  # format, name, metadata, flags, number of children, children, dictionary, release, private data
_LIST: Final = ctypes.create_string_buffer(b"+l")
_GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


_KNOWN: Final = {"NoneType", "NAType", "datetime64", "timedelta64"}
_OWN: Final[tuple[tuple[Any, Any, tuple[type, ...]], ...]] = (
    (pa.types.is_date, datetime.date, (datetime.datetime,)),
    (pa.types.is_timestamp, datetime.datetime, ()),
    (pa.types.is_time, datetime.time, ()),
    (pa.types.is_duration, datetime.timedelta, ()),
    (pa.types.is_binary, (bytes, bytearray, memoryview), ()),
    (pa.types.is_floating, numbers.Real, (bool,)),
    (pa.types.is_integer, numbers.Integral, ()),
)
"""The types as which Arrow takes values of others, such as 3 as a date, Python's own, and subtypes that are others."""


def arrow_batches(data: Any, place: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches, which are checked, of what has Arrow's C interface; ``SchemaError`` for the rest.

    >>> schema, batches = arrow_batches(pa.table({"n": [1, 2]}), "here")
    >>> [batch.to_pydict() for batch in batches]
    [{'n': [1, 2]}]
    """
    batches: Iterable[pa.RecordBatch]
    with _blaming(data, place):
        exported = frame_data(data)
        if isinstance(exported, pa.RecordBatch | pa.Table):
            schema, batches = exported.schema, [exported] if isinstance(exported, pa.RecordBatch) else exported.to_batches()
        elif hasattr(exported, "__arrow_c_stream__"):
            schema, batches = _of_stream(exported.__arrow_c_stream__())
        elif hasattr(exported, "__arrow_c_array__"):
            capsule, array = exported.__arrow_c_array__()
            schema = pa.Schema._import_from_c_capsule(capsule)
            batches = [pa.RecordBatch._import_from_c_capsule(_with_lists(schema).__arrow_c_schema__(), array)]
        else:
            raise SchemaError(f"{place}: {brief(data)} is not Arrow data: a PyArrow batch or table, or what exports one")
    return schema, _checked(batches, schema, data, place)


@contextlib.contextmanager
def _blaming(data: Any, place: str) -> Iterator[None]:
    try:
        yield
    except SchemaError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"{place}: {brief(data)} cannot be read as Arrow data: {error}") from error


def _of_stream(capsule: object) -> tuple[pa.Schema, pa.RecordBatchReader]:
    """Return the schema and the batches of a stream, in which maps are lists: Arrow ends the process where a key is null."""
    stream, exported = _address(capsule, b"arrow_array_stream"), _CSchema()
    if _GetSchema.from_address(stream)(stream, ctypes.addressof(exported)):
        return None, pa.RecordBatchReader._import_from_c_capsule(capsule)  # raises what the stream says
    schema = pa.Schema._import_from_c(ctypes.addressof(exported))
    lists = _with_lists(schema)
    get_schema = _GetSchema(lambda _, to: lists._export_to_c(to) or 0)
    if lists != schema:
        ctypes.c_void_p.from_address(stream).value = ctypes.cast(get_schema, ctypes.c_void_p).value
    return schema, pa.RecordBatchReader._import_from_c_capsule(capsule)


def _with_lists(schema: pa.Schema) -> pa.Schema:
    """Return a schema with lists of entries in place of maps, at any depth: Arrow has both in the same buffers."""
    fields = [_CSchema()]
    schema._export_to_c(ctypes.addressof(fields[0]))
    for field in fields:
        if ctypes.c_char_p(field[0]).value == b"+m":
            field[0] = ctypes.addressof(_LIST)
        children = (ctypes.c_void_p * (field[4] or 0)).from_address(field[5] or ctypes.addressof(field))
        fields += [_CSchema.from_address(child) for child in (*children, field[6]) if child]
    return pa.Schema._import_from_c(ctypes.addressof(fields[0]))


def _with_maps(column: pa.Array, field: pa.Field, place: str) -> pa.Array:
    """Return a column with maps where it has lists of entries, by a message of Arrow's: what reads these checks the keys."""
    if column.type == field.type:
        return column
    lists, sink = pa.schema([field.with_type(column.type)]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, lists) as writer:
        writer.write_batch(pa.record_batch([column], lists))
    batches = sink.getvalue()[lists.serialize().size :]
    try:
        return pa.ipc.open_stream(pa.schema([field]).serialize().to_pybytes() + batches.to_pybytes()).read_next_batch().column(0)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{place}: column {field.name!r}: {error}") from None


def _checked(batches: Iterable[pa.RecordBatch], schema: pa.Schema, data: Any, place: str) -> Iterator[pa.RecordBatch]:
    with _blaming(data, place):
        for batch in batches:
            check_layout(batch, place)
            columns = [_with_maps(column, field, place) for column, field in zip(batch.columns, schema, strict=True)]
            for name, column in zip(schema.names, columns, strict=True):
                check_moments(name, column, place)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def without_views(column: pa.Array) -> pa.Array:
    """Return a column with plain strings and bytes, which other functions of Arrow take."""
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.value_type in (pa.string_view(), pa.binary_view()):
        return pa.DictionaryArray.from_arrays(column.indices, without_views(column.dictionary))
    if kind == pa.string_view():
        return column.cast(pa.string())
    return column.cast(pa.binary()) if kind == pa.binary_view() else column


def own_array(values: Sequence[Any]) -> pa.Array:
    """Return values as an array of the type that they have; ``TypeError`` where Arrow would make others of some of them.

    >>> own_array([b"to", "be"])
    Traceback (most recent call last):
    TypeError: values of binary are beside a str
    """
    array = pa.array(values)
    columns: list[tuple[Sequence[Any], pa.DataType]] = [(values, array.type)]
    for parts, kind in columns:
        if pa.types.is_list(kind):
            columns.append(([part for value in parts if value is not None for part in value], kind.value_type))
        elif pa.types.is_struct(kind):
            columns += [([value.get(field.name) for value in parts if value is not None], field.type) for field in kind]
        for own, mixed in (names for test, *names in _OWN if test(kind)):
            for other in set(map(type, parts)):
                if other.__name__ not in _KNOWN and (issubclass(other, mixed) or not issubclass(other, own)):
                    raise TypeError(f"values of {kind} are beside a {other.__name__}")
                finer = {"Timestamp": "nanosecond", "Timedelta": "nanoseconds"}.get(other.__name__)  # of pandas
                if finer and any(getattr(value, finer) for value in parts if type(value) is other):
                    raise TypeError(f"values of {kind} are beside one with nanoseconds")
            zoned = getattr(kind, "tz", None) is not None
            if hasattr(own, "tzinfo") and any((value.tzinfo is None) is zoned for value in parts if isinstance(value, own)):
                raise TypeError(f"values of {kind} are beside one with{'out' if zoned else ''} a zone")
    return array


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
