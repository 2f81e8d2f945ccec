"""``unpickled_plain``: plain data from a pickle, whoever wrote it.

Invariant: what comes back is plain data, and takes memory in proportion to its bytes. Arrow batches are validated; those that are
compressed, or whose rows take no bytes, are refused, since a few bytes of these announce any number of rows.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from timely.dataflow.containers.plain_pickles import is_flat, verify

if TYPE_CHECKING:
    import pyarrow as pa

Part: TypeAlias = bytes | bytearray | memoryview

_ROWS_FREE: Final = 1 << 20
"""Rows that may take no bytes, such as those of a column of nulls."""

_READERS: Final = "timely.dataflow.containers.pickling"
_PLAIN: Final = frozenset(
    {("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")}
    | {("uuid", "UUID"), ("builtins", "complex"), ("timely.order", "Product")}
    | {("timely.progress.timestamp", "Unit"), ("timely.progress.loop_time", "LoopTime"), (_READERS, "read_scalar")}
)
"""What a pickle may call as it is."""


def unpickled_plain(parts: Sequence[Part]) -> Any:
    """Return what ``PlainPickles`` has pickled: a pickle and its large buffers.

    ``pickle.UnpicklingError`` for what is no plain data, or not in proportion to its bytes.

    >>> from timely.dataflow import PlainPickles
    >>> unpickled_plain(PlainPickles().pickled({"a": (1, 2.5)}))
    {'a': (1, 2.5)}
    """
    if is_flat(parts[0]):  # half of the time for a hundred numbers, a third for a change of progress
        return pickle.loads(parts[0])
    data = bytes(parts[0])
    verify(data)
    return _Unpickler(io.BytesIO(data), buffers=parts[1:]).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "builtins", "range":
                return _range
            case "decimal", "Decimal":
                return partial(_decimal, super().find_class(module, name))
            case str(), "read_batch" if module == _READERS:
                return _read_batch
            case str(), "read_array" if module == _READERS:
                return partial(_read_array, super().find_class(module, name))
            case str(), "read_objects" if module == _READERS:
                return partial(_read_objects, super().find_class(module, name))
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not plain data")


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    _check_rows(numbers[-1] - numbers[0] if numbers else 0, 0, "a range")
    return numbers


def _decimal(make: Callable[[str], Any], text: str) -> Any:
    if not isinstance(text, str):
        raise pickle.UnpicklingError("it makes a Decimal of something else than its text, which takes long for a long number")
    return make(text)


def _read_array(read: Callable[..., Any], description: Any, shape: tuple[int, ...], order: Any, memory: Any) -> Any:
    _check_rows(max(shape, default=0), len(memory), "an array")
    return read(description, shape, order, memory)


def _read_objects(read: Callable[..., Any], shape: tuple[int, ...], values: list[Any]) -> Any:
    _check_rows(max(shape, default=0), len(values), "an array")
    return read(shape, values)


def _check_rows(rows: int, size: int, what: str) -> None:
    if rows > _ROWS_FREE + 8 * size:
        raise pickle.UnpicklingError(f"it holds {what} of {rows} rows in {size} bytes")


def _read_batch(stream: Any) -> pa.RecordBatch:
    import pyarrow as pa

    source = pa.py_buffer(stream)
    for message in pa.ipc.MessageReader.open_stream(source):
        _check_message(message.metadata.to_pybytes(), source.size)
    with pa.ipc.open_stream(source) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=True)
    _ = batch.schema.names  # raises for one that is no text
    return batch


# -- the metadata of Arrow's messages, which is in the format of FlatBuffers ----------------------------------------------
# Arrow does not say what a message announces before it has allocated that.

_OFFSET, _FIELD, _VTABLE, _LENGTH = (struct.Struct(format) for format in ("<I", "<H", "<i", "<q"))
_NODE: Final = 16
"""Bytes of a column's length and its number of nulls."""

_DICTIONARY, _BATCH = 2, 3


def _check_message(metadata: bytes, size: int) -> None:
    """Raise ``pickle.UnpicklingError`` for a batch that is compressed, or of more rows than its bytes can have."""
    message = _target(metadata, 0)
    header, kind = _field(metadata, message, 2), _field(metadata, message, 1)
    if not header or not kind or metadata[kind] not in (_DICTIONARY, _BATCH):
        return
    batch = _target(metadata, header)
    if metadata[kind] == _DICTIONARY:
        batch = _target(metadata, _field(metadata, batch, 1))
    if _field(metadata, batch, 3):
        raise pickle.UnpicklingError("it holds a compressed Arrow batch")
    rows, nodes = _field(metadata, batch, 0), _field(metadata, batch, 1)
    lengths = [_LENGTH.unpack_from(metadata, rows)[0]] if rows else []
    if nodes:
        start = _target(metadata, nodes)
        for node in range(_OFFSET.unpack_from(metadata, start)[0]):
            lengths.append(_LENGTH.unpack_from(metadata, start + _OFFSET.size + node * _NODE)[0])
    _check_rows(max(lengths, default=0), size, "an Arrow batch")


def _target(metadata: bytes, at: int) -> int:
    """Return where the offset at a place leads."""
    return at + int(_OFFSET.unpack_from(metadata, at)[0])


def _field(metadata: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0 if it has the default value."""
    vtable = table - int(_VTABLE.unpack_from(metadata, table)[0])
    entry = _FIELD.size * (2 + number)
    if entry >= _FIELD.unpack_from(metadata, vtable)[0]:
        return 0
    offset = int(_FIELD.unpack_from(metadata, vtable + entry)[0])
    return table + offset if offset else 0
