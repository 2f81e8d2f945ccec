"""Short batches and arrays that are dealt to two workers go a way of their own, which lets no other thread run."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timely.dataflow import partition_batches
from timely.dataflow.container import partition
from timely.dataflow.partition_arrays import halves
from timely.dataflow.pickling import dumps

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


@pytest.mark.parametrize("size", [1, 2, 499, 500, 501, 1000, 1001])
@pytest.mark.parametrize("kind", [*PLAIN, *OTHERS], ids=str)
def test_few_rows_are_dealt_to_two_as_many_are(kind: pa.DataType, size: int) -> None:
    """Short batches of plain columns go a way of their own."""
    fields = [pa.field("key", pa.int64(), nullable=False), pa.field("value", kind, metadata={"of": "field"})]
    schema = pa.schema(fields, {"of": "all"})
    keys = np.random.default_rng(size).integers(-(1 << 40), 1 << 40, size + 5)
    batch = pa.RecordBatch.from_arrays([pa.array(keys), column(kind, size + 5)], schema=schema)[3:-2]
    for flipped in (batch, batch.set_column(0, schema.field(0), pa.array(keys[3:-2] | 1)), batch.select(["key"])):
        odd = flipped.column("key").to_numpy() % 2
        expected = [(worker, flipped.filter(pa.array(odd == worker))) for worker in (0, 1) if worker in odd]
        dealt = partition(flipped, "key", 2)
        assert [worker for worker, _ in dealt] == [worker for worker, _ in expected]
        for (_, part), (_, wanted) in zip(dealt, expected, strict=True):
            part.validate(full=True)
            assert part.equals(wanted, check_metadata=True)
            assert pickle.loads(dumps(part)).equals(part)


def test_rows_with_missing_values_are_dealt_whole_among_few() -> None:
    batch = pa.record_batch({"key": pa.array([1, None, 2, 3]), "value": pa.array([None, 1.5, None, 2.5])})
    assert [(worker, part.to_pydict()) for worker, part in partition(batch, "key", 2)] == [
        (0, {"key": [None, 2], "value": [1.5, None]}),
        (1, {"key": [1, 3], "value": [None, 2.5]}),
    ]
    assert [(worker, part.to_pydict()) for worker, part in partition(batch[2:], "key", 2)] == [
        (0, {"key": [2], "value": [None]}),
        (1, {"key": [3], "value": [2.5]}),
    ]


def test_of_short_batches_of_a_few_plain_columns_arrow_takes_out_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object) -> None:
        raise AssertionError("Arrow was asked")

    monkeypatch.setattr(partition_batches, "_taken", taken)
    for columns in (1, 2, 3):
        batch = pa.record_batch({str(place): np.arange(1000) for place in range(columns)})
        assert [len(part) for _, part in partition(batch, "0", 2)] == [500, 500]
    for other in (
        pa.record_batch({"0": np.arange(1001)}),
        pa.record_batch({str(place): np.arange(9) for place in range(4)}),
        pa.record_batch({"0": np.arange(2), "1": ["a", "b"]}),
    ):
        with pytest.raises(AssertionError, match="Arrow was asked"):
            partition(other, "0", 2)


ROWS = np.arange(1000)
FEW = np.arange(500)


def _taken_out() -> object:
    pieces, _ = halves(ROWS)
    return np.concatenate([ROWS[piece] for piece in pieces])


@pytest.mark.parametrize(
    "deal", [_taken_out, lambda: partition(FEW, lambda some: some, 2)], ids=["rows of a batch", "an array"]
)
def test_few_rows_are_dealt_without_letting_another_thread_run(deal: Callable[[], object]) -> None:
    """Where one wants to run it takes a while to be let in again: longer than to deal a thousand rows."""
    turns = let_in = 0
    stop = False

    def other() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            time.sleep(0)

    deal()
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    try:
        sys.setswitchinterval(60)  # who wants to run waits until he is let
        time.sleep(0.05)  # the other one has not heard of that if it waits already
        for _ in range(3000):
            before = turns
            deal()
            let_in += turns > before
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
        stop = True
        thread.join()
    assert let_in == 0
