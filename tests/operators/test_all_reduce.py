"""``all_reduce``: the same whole on every worker, at every time at which anything came anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely.operators import all_reduce


@pytest.mark.parametrize(("workers", "processes"), [(3, 1), (1, 2), (2, 2)])
def test_all_reduce_of_arrays_is_the_same_to_the_last_bit(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> bytes:
        with worker.dataflow(int) as scope:
            part = np.random.default_rng(worker.index).normal(size=1000) * 10.0 ** (4 * worker.index)
            whole = scope.to_stream([part]).apply(all_reduce, np.add).capture()
        worker.run()
        ((_, (results,)),) = whole.messages
        return bytes(results.tobytes())

    results = timely.execute(program, workers=workers, processes=processes)
    parts = [np.random.default_rng(i).normal(size=1000) * 10.0 ** (4 * i) for i in range(workers * processes)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert set(results) == {whole.tobytes()}


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2)])
def test_all_reduce_reads_batches_by_row_or_combines_them_as_wholes(workers: int, processes: int) -> None:
    def add_rows(one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]

    def merge(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
        return pa.concat_batches([one, other])

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            rows = stream.apply(all_reduce, add_rows).capture()
            wholes = stream.map_batch(lambda batch: [batch]).apply(all_reduce, merge).capture()
        handle.send_batch(pa.record_batch({"n": [worker.index, 1, 2], "s": ["a", "b", "c"]}).slice(0, 2))
        handle.close()
        worker.run()
        ((_, (whole,)),) = wholes.messages
        return rows.extract(), whole.to_pydict()

    peers = workers * processes
    expected = (
        [(0, [(sum(range(peers)) + peers, "ab" * peers)])],
        {"n": [n for index in range(peers) for n in (index, 1)], "s": ["a", "b"] * peers},
    )
    assert timely.execute(program, workers=workers, processes=processes) == [expected] * peers
