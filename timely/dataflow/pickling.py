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
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import numpy as np
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


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """Pickle an array of numbers as its bytes and what they mean, in words that take a third of the time that NumPy's take."""
    if array.dtype.isbuiltin == 1 and array.dtype.kind in "biufc" and array.flags.forc:
        order, rows = ("C", array) if array.flags.c_contiguous else ("F", array.T)
        return _read_array, (pickle.PickleBuffer(rows.data), array.dtype.str, array.shape, order)
    return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _read_array(buffer: Any, kind: str, shape: tuple[int, ...], order: Literal["C", "F"]) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.frombuffer(buffer, kind).reshape(shape, order=order)


_REDUCERS: Final = (("pyarrow", "RecordBatch", _reduce_batch), ("numpy", "ndarray", _reduce_array))


def dumps(message: Any, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Return a pickle of ``message``, with Arrow batches, wherever in it, as IPC streams; ``keep`` gets large buffers."""
    reducers: dict[type, Any] = {}
    for module, kind, reducer in _REDUCERS:
        found = getattr(sys.modules.get(module), kind, None)  # of what nobody has imported there is nothing here
        if found is not None:
            reducers[found] = reducer
    if not reducers:
        return pickle.dumps(message, 5, buffer_callback=keep)
    main = io.BytesIO()
    pickler = pickle.Pickler(main, 5, buffer_callback=keep)
    pickler.dispatch_table = copyreg.dispatch_table | reducers
    pickler.dump(message)
    return main.getvalue()
