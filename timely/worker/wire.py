"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body and how many buffers it has), the sizes of the
buffers, and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of
its containers (Arrow batches as IPC, arrays as they are), which are neither copied into the pickle nor out of it. Frames are
only ever read from peers that have shown the run's secret, since unpickling executes what it is told to.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

HEADER: Final = struct.Struct("<QQ")
_PAD: Final = b"\0" * 8


class _Pickler(pickle.Pickler):
    """Pickles Arrow batches through IPC, which carries a slice and not the whole that it was cut from."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ == "pyarrow.lib" and type(obj).__name__ == "RecordBatch":
            if any(_has_dictionary(field.type) for field in obj.schema):
                return _read_stream, (pickle.PickleBuffer(_stream(obj)),)
            return _read_batch, (pickle.PickleBuffer(obj.schema.serialize()), pickle.PickleBuffer(obj.serialize()))
        return NotImplemented


def _has_dictionary(kind: pa.DataType) -> bool:
    """Return whether values of this type refer to a dictionary, which is no part of a serialized batch."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    """Return the batch with its schema and its dictionaries as an IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _read_stream(buffer: Any) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
        return reader.read_next_batch()


def _read_batch(schema: Any, buffer: Any) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.py_buffer(buffer), pa.ipc.read_schema(pa.py_buffer(schema)))


def encode(message: Any) -> list[bytes | memoryview]:
    """Return the pieces of the frame for ``message``, to be written one after another.

    >>> decode(memoryview(b"".join(encode((1, "two")))[HEADER.size :]), 1)
    (1, 'two')
    """
    loose: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    keep: Callable[[pickle.PickleBuffer], object] = loose.append
    _Pickler(stream, protocol=5, buffer_callback=keep).dump(message)
    parts: list[bytes | memoryview] = [stream.getbuffer(), *(piece.raw() for piece in loose)]
    sizes = [len(part) for part in parts]
    body = 8 * len(sizes) + sum(size + -size % 8 for size in sizes)
    pieces: list[bytes | memoryview] = [HEADER.pack(body, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)]
    for part, size in zip(parts, sizes, strict=True):
        pieces.append(part)
        if size % 8:
            pieces.append(_PAD[: -size % 8])
    return pieces


def decode(body: memoryview, buffers: int) -> Any:
    """Return the message in the body of a frame with this many buffers; its large pieces are views of ``body``."""
    sizes = struct.unpack_from(f"<{buffers}Q", body)
    at = 8 * buffers
    parts = []
    for size in sizes:
        parts.append(body[at : at + size])
        at += size + -size % 8
    return pickle.loads(parts[0], buffers=parts[1:])
