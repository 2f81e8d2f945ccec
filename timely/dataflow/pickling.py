"""Pickles of messages: for the way to another process, and for what waits on disk.

Arrow batches are pickled as IPC streams, so that a slice never takes along the whole that it was cut from. The large flat pieces
of containers can be had beside the pickle, without a copy. What is read back is equal to what was written. Arrow is imported only
where there is a batch.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


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
