"""Pickles of messages: for other processes, for disk, and for recordings.

Arrow batches are pickled as IPC streams, without what they were sliced from; large whole ones as their buffers. Large buffers can
stand beside the pickle, without a copy. Unpickling executes code, so plain data (numbers, strings, bytes, dates, built-in
collections, the library's own times, arrays and Arrow batches) has a form of its own, which is safe to read whoever wrote it:
see :mod:`timely.dataflow.containers.plain_data`.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, cast

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_LARGE: Final = 1 << 15
"""Bytes of a buffer from which on it stands beside the pickle: a column's own buffers then cost less than a copy of them."""


def dumps(message: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Return a pickle of ``message``; ``buffer_callback`` gets the large buffers of its Arrow batches and arrays."""
    reducers: dict[type, Any] = {}
    for module, kind, reducer in (("pyarrow", "RecordBatch", _reduce_batch), ("numpy", "ndarray", _reduce_array)):
        loaded = getattr(sys.modules.get(module), kind, None)  # what nobody has imported does not occur
        if loaded is not None:
            reducers[loaded] = reducer
    if not reducers:
        return pickle.dumps(message, 5, buffer_callback=buffer_callback)
    main = io.BytesIO()
    pickler = pickle.Pickler(main, 5, buffer_callback=buffer_callback)
    pickler.dispatch_table = copyreg.dispatch_table | reducers
    pickler.dump(message)
    return main.getvalue()


def pickled(message: Any) -> list[bytes | memoryview]:
    """Return a pickle of ``message`` and its large buffers.

    >>> import numpy as np
    >>> main, buffer = pickled(["a message", np.arange(3), np.arange(4096)])
    >>> pickle.loads(main, buffers=[buffer])[:2], len(buffer)
    (['a message', array([0, 1, 2])], 32768)
    """
    buffers = _LargeBuffers()
    main = dumps(message, buffers)
    return [main, *buffers]


class _LargeBuffers(list[memoryview]):
    """The buffers that stand beside a pickle. A pickler calls it with each buffer: it returns whether the pickle has a copy."""

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if len(memory) < _LARGE:
            return True
        self.append(memory)
        return False


class PlainPickles:
    """Pickles one message after another, for ``unpickled_plain`` to read; a new pickler takes longer than a small message."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._buffers = _LargeBuffers()
        self._pickler = _PlainPickler(self._stream, 5, buffer_callback=self._buffers)

    def pickled(self, message: Any) -> list[bytes | memoryview]:
        """Return the pickle of a message and its large buffers.

        >>> pickles = PlainPickles()
        >>> pickles.pickled(["a"]) == pickles.pickled(["a"])
        True
        """
        try:
            self._pickler.dump(message)
            return [self._stream.getvalue(), *self._buffers]
        finally:  # nothing of it stays, so that the next does not refer to it
            self._pickler.clear_memo()
            self._buffers.clear()
            self._stream.seek(0)
            self._stream.truncate()


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind.__module__ == "pyarrow.lib" and kind.__name__ == "RecordBatch":
            return _reduce_batch_to_stream(obj)
        if kind.__module__ == "uuid" and kind.__name__ == "UUID":
            return kind, (obj.hex,)  # Python's own pickle makes an empty one first
        if kind.__module__ == "numpy" and hasattr(obj, "dtype"):
            return _reduce_plain(obj)
        return NotImplemented


def _reduce_batch(batch: pa.RecordBatch) -> tuple[Any, ...]:
    """Pickle a batch as a stream, which copies it, or as its columns where there is nothing to leave out."""
    if batch.nbytes >= _LARGE * max(batch.num_columns, 1) and _is_whole(batch):
        columns: tuple[Any, ...] = batch.__reduce__()
        return columns
    return _reduce_batch_to_stream(batch)


def _reduce_batch_to_stream(batch: pa.RecordBatch) -> tuple[Any, ...]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return read_batch, (pickle.PickleBuffer(sink.getvalue()),)


def _is_whole(batch: pa.RecordBatch) -> bool:
    """Return whether a batch is of plain types and uses nearly all of its buffers."""
    from pyarrow import types

    if batch.get_total_buffer_size() > batch.nbytes + batch.nbytes // 8:
        return False
    text = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return all(types.is_primitive(kind) or any(is_(kind) for is_ in text) for kind in batch.schema.types)


def read_batch(stream: Any) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_next_batch()


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """Pickle an array of numbers as its memory, in a third of the time that NumPy takes."""
    if array.dtype.isbuiltin == 1 and array.dtype.kind in "biufc" and array.flags.forc:
        return _reduce_memory(array, array.dtype.str)
    return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _reduce_plain(value: Any) -> Any:
    """Pickle an array or scalar by a description of its type, which does not depend on NumPy's version."""
    import numpy as np

    if type(value) is np.ndarray and value.dtype == object:
        return read_objects, (value.shape, value.ravel().tolist())
    if value.dtype.hasobject:
        return NotImplemented
    description = np.lib.format.dtype_to_descr(value.dtype)
    if type(value) is np.ndarray:
        return _reduce_memory(value if value.flags.forc else np.ascontiguousarray(value), description)
    return (read_scalar, (description, value.tobytes())) if value.shape == () else NotImplemented


def _reduce_memory(array: np.ndarray[Any, Any], description: Any) -> tuple[Any, ...]:
    order, rows = ("C", array) if array.flags.c_contiguous else ("F", array.T)
    if array.dtype.kind not in "biufc":  # some other types have no buffers of their own
        import numpy as np

        rows = np.frombuffer(rows, np.uint8) if rows.nbytes else np.empty(0, np.uint8)
    return read_array, (description, array.shape, order, pickle.PickleBuffer(cast("Any", rows)))


def read_array(description: Any, shape: tuple[int, ...], order: Literal["C", "F"], memory: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    if type(description) is str and description[1] in "biufc":  # twice as fast as what follows
        return np.frombuffer(memory, description).reshape(shape, order=order)
    return np.frombuffer(memory, np.uint8).view(np.lib.format.descr_to_dtype(description)).reshape(shape, order=order)


def read_objects(shape: tuple[int, ...], values: list[Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.fromiter(values, object, len(values)).reshape(shape)


def read_scalar(description: Any, memory: bytes) -> Any:
    return read_array(description, (1,), "C", memory)[0]
