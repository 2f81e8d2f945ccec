"""Batches of every column type are partitioned between two workers."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timely.dataflow import Exchange, pickled

PLAIN = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
    *(pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.duration("ms")),
]
OTHERS = [pa.bool_(), pa.string(), pa.decimal128(9, 2), pa.binary(3), pa.list_(pa.int8()), pa.month_day_nano_interval()]


EXAMPLES: dict[Any, Any] = {
    pa.bool_(): True,
    pa.string(): "a",
    pa.decimal128(9, 2): Decimal(1),
    pa.binary(3): b"abc",
    pa.list_(pa.int8()): [1],
}


def column(kind: pa.DataType, size: int) -> pa.Array:
    """Return so many values of a type; dates at midnight, and what is not plain with values that are missing."""
    if kind in OTHERS:
        return pa.array([None if i % 3 else EXAMPLES.get(kind) for i in range(size)], kind)
    if pa.types.is_date64(kind):
        return pa.array(range(size), pa.int32()).cast(pa.date32()).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(np.arange(size, dtype=np.float16))
    short = pa.types.is_time32(kind) or pa.types.is_date32(kind)
    return pa.array([i % 100 for i in range(size)], pa.int32() if short else pa.int64()).cast(kind)


@pytest.mark.parametrize("size", [1, 2, 501])
@pytest.mark.parametrize("kind", [*PLAIN, *OTHERS], ids=str)
def test_rows_of_every_type_are_partitioned(kind: pa.DataType, size: int) -> None:
    fields = [pa.field("key", pa.int64(), nullable=False), pa.field("value", kind, metadata={"of": "field"})]
    schema = pa.schema(fields, {"of": "all"})
    keys = np.random.default_rng(size).integers(-(1 << 40), 1 << 40, size + 5)
    batch = pa.RecordBatch.from_arrays([pa.array(keys), column(kind, size + 5)], schema=schema)[3:-2]
    for flipped in (batch, batch.set_column(0, schema.field(0), pa.array(keys[3:-2] | 1)), batch.select(["key"])):
        odd = flipped.column("key").to_numpy() % 2
        expected = [(worker, flipped.filter(pa.array(odd == worker))) for worker in (0, 1) if worker in odd]
        parts = Exchange("key").parts(0, flipped, 2)
        assert [worker for worker, _ in parts] == [worker for worker, _ in expected]
        for (_, part), (_, wanted) in zip(parts, expected, strict=True):
            part.validate(full=True)
            assert part.equals(wanted, check_metadata=True)
            main, *buffers = pickled(part)
            assert pickle.loads(main, buffers=buffers).equals(part)


def test_rows_with_missing_values_are_partitioned() -> None:
    batch = pa.record_batch({"key": pa.array([1, None, 2, 3]), "value": pa.array([None, 1.5, None, 2.5])})
    assert [(worker, part.to_pydict()) for worker, part in Exchange("key").parts(0, batch, 2)] == [
        (0, {"key": [None, 2], "value": [1.5, None]}),
        (1, {"key": [1, 3], "value": [None, 2.5]}),
    ]
    assert [(worker, part.to_pydict()) for worker, part in Exchange("key").parts(0, batch[2:], 2)] == [
        (0, {"key": [2], "value": [None]}),
        (1, {"key": [3], "value": [2.5]}),
    ]
