"""``all_reduce``: the same whole on every worker, at every time at which anything came anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import testing
from timely.operators import all_reduce

Epochs = list[list[list[int]]]


def contribute(epochs: Epochs, combine: Any) -> Any:
    """A program: ``epochs[e][w]`` are the records of worker w at epoch e."""

    def program(worker: timely.Worker) -> list[tuple[int, list[Any]]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            whole = stream.apply(all_reduce, combine).capture()
        for epoch, parts in enumerate(epochs):
            for record in parts[worker.index]:
                handle.send(record)
            handle.advance_to(epoch + 1)
        handle.close()
        worker.run()
        return whole.extract()

    return program


records = st.lists(st.integers(-9, 9), max_size=3)


@given(st.lists(st.tuples(records, records, records), max_size=4), st.integers(1, 3), st.integers(0, 99))
def test_all_reduce_adds_up_everywhere(epochs: Any, workers: int, seed: int) -> None:
    sums = [(epoch, [sum(map(sum, parts[:workers]))]) for epoch, parts in enumerate(epochs) if any(map(len, parts[:workers]))]
    program = contribute(epochs, int.__add__)
    assert timely.execute(program, workers=workers) == [sums] * workers
    assert testing.simulate(program, workers=workers, seed=seed).results == [sums] * workers


@pytest.mark.parametrize(("workers", "processes"), [(3, 1), (1, 2), (2, 2)])
def test_all_reduce_of_arrays_is_the_same_to_the_last_bit(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> bytes:
        with worker.dataflow(int) as scope:
            part = np.random.default_rng(worker.index).normal(size=1000) * 10.0 ** (4 * worker.index)
            whole = scope.to_stream([part]).apply(all_reduce, np.add).capture()
        worker.run()
        ((_, (found,)),) = whole.messages
        return bytes(found.tobytes())

    found = timely.execute(program, workers=workers, processes=processes)
    parts = [np.random.default_rng(i).normal(size=1000) * 10.0 ** (4 * i) for i in range(workers * processes)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert set(found) == {whole.tobytes()}


def test_all_reduce_goes_by_the_order_of_the_workers() -> None:
    found = timely.execute(contribute([[["c"], ["a"], ["b"]]], str.__add__), workers=3)  # type: ignore[list-item]
    assert found == [[(0, ["cab"])]] * 3


def test_all_reduce_in_a_loop() -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            start = scope.to_stream([worker.index + 1])
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                whole = start.enter(loop).concat(again).apply(all_reduce, int.__add__)
                whole.filter(lambda x: x < 1000).connect_loop(handle)
                last = whole.filter(lambda x: x >= 1000).leave().capture()
        worker.run()
        return last.extract()

    assert timely.execute(program, workers=3) == [[(0, [6 * 3**5])]] * 3  # 6, 18, 54, 162, 486, 1458


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
