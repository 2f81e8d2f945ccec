"""Pickles of messages: what is read back is what was written, and what is large is not copied into the pickle."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timely.dataflow.pickling import dumps

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


def test_what_is_kept_beside_the_pickle_outlives_the_array() -> None:
    buffers: list[pickle.PickleBuffer] = []
    written = dumps(np.arange(1000), buffers.append)
    assert pickle.loads(written, buffers=buffers).sum() == 499500


def test_a_slice_of_a_batch_takes_along_only_itself() -> None:
    batch = pa.record_batch({"n": pa.array(range(100_000))}).slice(10, 2)
    written = dumps({"batches": [batch]})
    assert len(written) < 2000
    assert pickle.loads(written)["batches"][0].equals(batch)
