"""Pickles of messages: what is read back is what was written, and what is large is not copied into the pickle.

White box: no dataflow shows whether a buffer stands in a pickle or beside it.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timely.dataflow.containers.pickling import dumps

ARRAYS: dict[str, Any] = {
    "empty": np.array([]),
    "no_rows": np.zeros((0, 3)),
    "no_rows_by_column": np.zeros((3, 0), order="F"),
    "no_dimensions": np.array(5.0),
    "by_row": np.arange(6).reshape(2, 3),
    "by_column": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "three_dimensions_by_column": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "every_other": np.arange(6)[::2],
    "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "other_byte_order": np.arange(3, dtype=">i4"),
    "with_metadata": np.zeros(2, np.dtype("f8", metadata={"unit": "m"})),
    "booleans": np.array([True, False]),
    "short_floats": np.ones(2, np.float16),
    "long_floats": np.array([1.5], np.longdouble),
    "complex": np.array([1j, 2.0]),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a"]),
    "objects": np.array([1, None, "x"], object),
    "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "records": np.array([(1, 2.0)], [("a", int), ("b", float)]),
    "masked": np.ma.MaskedArray([1, 2], mask=[True, False]),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_as_numpy_itself_would_bring_it(name: str, beside: bool) -> None:
    array = ARRAYS[name]
    buffers: list[pickle.PickleBuffer] = []
    written = dumps(["a record", array], buffers.append if beside else None)
    expected: list[pickle.PickleBuffer] = []
    by_numpy = pickle.dumps(array, 5, buffer_callback=expected.append if beside else None)
    back, other = pickle.loads(written, buffers=buffers)[1], pickle.loads(by_numpy, buffers=expected)
    assert type(back) is type(array)
    assert (back.dtype, back.shape, back.strides) == (other.dtype, other.shape, other.strides)
    assert back.flags.writeable == other.flags.writeable
    assert back.dtype.metadata == other.dtype.metadata
    assert back.tolist() == array.tolist()
    assert len(buffers) == len(expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_bytes_of_an_array_are_not_copied(order: Any) -> None:
    array = np.zeros((100, 200), order=order)
    buffers: list[pickle.PickleBuffer] = []
    written = dumps(array, buffers.append)
    assert len(written) < 200
    array[3, 4] = 5
    assert pickle.loads(written, buffers=buffers)[3, 4] == 5
    assert np.shares_memory(pickle.loads(written, buffers=buffers), array)


def test_a_buffer_beside_the_pickle_outlives_the_array() -> None:
    buffers: list[pickle.PickleBuffer] = []
    written = dumps(np.arange(1000), buffers.append)
    assert pickle.loads(written, buffers=buffers).sum() == 499500


COLLECTED = """
import gc
import numpy as np
import pyarrow as pa
from timely.dataflow import pickled
from timely.worker.wire import HEADER, decode, framed

gc.set_threshold(5, 2, 2)
for number in range(300):
    rows, columns = np.arange(number), np.asfortranarray(np.ones((3, number % 50)))
    batch = pa.record_batch({"n": np.arange(40_000 + number)}) if number % 10 == 0 else None
    message = ["data", rows, columns, batch]
    message.append(message)
    pieces = pickled(message)
    message.append(pieces)
    back = decode(memoryview(bytearray(b"".join(framed(pieces))[HEADER.size :])), len(pieces))
    assert np.array_equal(back[1], rows) and np.array_equal(back[2], columns) and back[3] == batch
    back.append(pieces)
"""


def test_what_is_pickled_may_be_part_of_cycles_that_the_collector_finds() -> None:
    """A view that is in use and is let go of by the collector ends the process: CPython 3.11."""
    subprocess.run([sys.executable, "-c", COLLECTED], check=True, timeout=600)


LARGE = 50_000
BATCHES: dict[str, pa.RecordBatch] = {
    "numbers": pa.record_batch({"n": np.arange(LARGE), "x": np.arange(LARGE) / 7}),
    "nulls": pa.record_batch({"n": pa.array([None, 1] * (LARGE // 2))}),
    "text": pa.record_batch({"a": [str(n) for n in range(LARGE)], "b": pa.array(["x" * 9] * LARGE, pa.large_string())}),
    "bytes": pa.record_batch({"a": pa.array([b"x" * 30] * LARGE), "b": pa.array([b"abcd" * 4] * LARGE, pa.binary(16))}),
    "booleans": pa.record_batch({"a": pa.array([True, None] * (16 * LARGE))}),
    "instants": pa.record_batch({"t": pa.array(np.arange(LARGE).astype("M8[us]"))}),
    "days": pa.record_batch({"d": pa.array(np.arange(LARGE, dtype=np.int32), pa.date32())}),
    "decimals": pa.record_batch({"d": pa.array(range(LARGE)).cast(pa.decimal128(20))}),
    "lists": pa.record_batch({"l": pa.array([[1, 2], None] * (LARGE // 2))}),
    "dictionary": pa.record_batch({"w": pa.array(["to", "be"] * (4 * LARGE)).dictionary_encode()}),
    "views": pa.record_batch({"v": pa.array(["a longer word than twelve"] * LARGE, pa.string_view())}),
    "one_column_twice": pa.RecordBatch.from_arrays([pa.array(range(LARGE))] * 2, ["a", "b"]),
    "metadata": pa.record_batch({"n": np.arange(LARGE)}).replace_schema_metadata({"unit": "m"}),
    "a_slice": pa.record_batch({"n": np.arange(3 * LARGE)}).slice(LARGE, LARGE),
    "nearly_all": pa.record_batch({"n": np.arange(LARGE), "s": [str(n) for n in range(LARGE)]}).slice(5, LARGE - 9),
    "no_columns": pa.record_batch({"n": [1, 2, 3]}).select([]),
    "no_rows": pa.record_batch({"n": pa.array([], pa.int64())}),
    "few": pa.record_batch({"n": [1, None]}),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_comes_back_as_it_was(name: str, beside: bool) -> None:
    batch = BATCHES[name]
    buffers: list[pickle.PickleBuffer] = []
    written = dumps([batch, batch.schema], buffers.append if beside else None)
    sent = [bytearray(buffer.raw()) for buffer in buffers]  # what another process gets lies elsewhere
    back, schema = pickle.loads(written, buffers=sent)
    back.validate(full=True)
    assert back.num_rows == batch.num_rows and back.equals(batch, check_metadata=True)
    assert back.schema.equals(schema, check_metadata=True)


def test_a_large_batch_is_not_copied_into_a_stream() -> None:
    batch = BATCHES["numbers"]
    buffers: list[pickle.PickleBuffer] = []
    dumps(batch, buffers.append)
    places = {pa.py_buffer(buffer).address for buffer in buffers}
    assert places == {column.buffers()[1].address for column in batch.columns}


@pytest.mark.parametrize("name", ["a_slice", "nearly_all"])
def test_what_a_batch_was_cut_from_is_not_sent(name: str) -> None:
    batch = BATCHES[name]
    buffers: list[pickle.PickleBuffer] = []
    dumps(batch, buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) <= batch.nbytes * 9 // 8 + 1000


def test_a_slice_of_a_batch_takes_along_only_itself() -> None:
    batch = pa.record_batch({"n": pa.array(range(100_000))}).slice(10, 2)
    written = dumps({"batches": [batch]})
    assert len(written) < 2000
    assert pickle.loads(written)["batches"][0].equals(batch)
