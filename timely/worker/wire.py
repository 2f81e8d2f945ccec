"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body and how many buffers it has), the sizes of the
buffers, and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of
its containers (Arrow batches as IPC, arrays as they are), which are neither copied into the pickle nor out of it. Frames are
only ever read from peers that have shown the run's secret, since unpickling executes what it is told to.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

HEADER: Final = struct.Struct("<QQ")
_PAD: Final = b"\0" * 8


def _reduce_batch(batch: pa.RecordBatch) -> tuple[Any, ...]:
    """Pickle an Arrow batch as an IPC stream: with its schema and dictionaries, and without what it was cut from."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _read_batch, (pickle.PickleBuffer(sink.getvalue()),)


def _read_batch(stream: Any) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_next_batch()


def dumps(message: Any, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Return a pickle of ``message``, with Arrow batches, wherever in it, as IPC streams; ``keep`` gets large buffers."""
    kind = getattr(sys.modules.get("pyarrow"), "RecordBatch", None)
    if kind is None:  # nobody has imported Arrow, so there are none
        return pickle.dumps(message, 5, buffer_callback=keep)
    main = io.BytesIO()
    pickler = pickle.Pickler(main, 5, buffer_callback=keep)
    pickler.dispatch_table = {**copyreg.dispatch_table, kind: _reduce_batch}
    pickler.dump(message)
    return main.getvalue()


def encode(message: Any) -> list[bytes | memoryview]:
    """Return the pieces of the frame for ``message``, to be written one after another.

    >>> decode(memoryview(b"".join(encode((1, "two")))[HEADER.size :]), 1)
    (1, 'two')
    """
    loose: list[pickle.PickleBuffer] = []
    keep: Callable[[pickle.PickleBuffer], object] = loose.append
    parts: list[bytes | memoryview] = [dumps(message, keep)]
    parts.extend(piece.raw() for piece in loose)
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
