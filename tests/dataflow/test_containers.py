"""Lists, Arrow batches and NumPy arrays on their way: pipeline, exchange, scopes, loops, capture, and between processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import Capability, Exchange, Stream
from timely.dataflow import pickled

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 2)]
sizes = pytest.mark.parametrize(("workers", "processes"), SIZES)


def as_list(numbers: range) -> Any:
    return list(numbers)


def as_arrow(numbers: range) -> Any:
    return pa.record_batch({"k": pa.array(numbers, pa.int64())})


def as_numpy(numbers: range) -> Any:
    return np.array(numbers, dtype=np.int64)


KINDS: dict[str, tuple[Callable[[range], Any], Any, Callable[[Any], list[int]]]] = {
    "list": (as_list, lambda x: x, list),
    "arrow": (as_arrow, "k", lambda batch: list(batch["k"].to_pylist())),
    "numpy": (as_numpy, lambda array: array, lambda array: list(array.tolist())),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def fed(worker: timely.Worker, batches: list[Any], build: Callable[[Stream[int, Any]], Stream[int, Any]]) -> list[Any]:
    """Send each batch at a time of its own; return the messages that came out."""
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = build(stream).capture()
    for time, batch in enumerate(batches):
        handle.advance_to(time)
        handle.send_batch(batch)
    handle.close()
    worker.run()
    return seen.messages


@kinds
@sizes
def test_exchange_takes_a_key_to_the_same_worker_in_every_container(kind: str, workers: int, processes: int) -> None:
    make, key, read = KINDS[kind]

    def program(worker: timely.Worker) -> list[Any]:
        batches = [make(range(-5, 20)), make(range(0)), make(range(7))]
        return [(time, read(batch), type(batch).__name__) for time, batch in fed(worker, batches, lambda s: s.exchange(key))]

    size = workers * processes
    name = type(make(range(1))).__name__
    for index, messages in enumerate(timely.execute(program, workers=workers, processes=processes)):
        expected = []
        for time, numbers in ((0, range(-5, 20)), (2, range(7))):
            mine = [x for x in numbers if x % size == index]
            expected += [(time, mine, name)] * (size if mine else 0)
        assert sorted(messages) == expected


@pytest.mark.parametrize("workers", [2, 3, 9, 16, 17, 300])
@pytest.mark.parametrize("size", [0, 1, 7, 2_000, 2_001, 14_000, 14_001, 1 << 14, (1 << 14) + 1])
def test_columns_are_partitioned_by_value_for_any_number_of_rows_and_workers(workers: int, size: int) -> None:
    """Few rows are put in order, many are looked for, and what is cut out of a batch has the rows that it was cut from."""
    keys = np.random.default_rng(size).integers(-(1 << 40), 1 << 40, size + 2)
    text = [None if key % 7 == 0 else f"{key}" for key in keys.tolist()]
    batch = pa.record_batch({"key": keys, "text": pa.array(text, pa.string()), "flag": keys > 0})[1:-1]
    owners = keys[1:-1] % workers
    there = np.unique(owners).tolist()
    parts = list(Exchange("key").parts(0, batch, workers))
    assert [worker for worker, _ in parts] == there
    for worker, part in parts:
        assert part.equals(batch.filter(pa.array(owners == worker)))
        main, *buffers = pickled(part)
        assert pickle.loads(main, buffers=buffers).equals(part)
    assert [(worker, part.tolist()) for worker, part in Exchange(lambda some: some).parts(0, keys[1:-1], workers)] == [
        (worker, keys[1:-1][owners == worker].tolist()) for worker in there
    ]


def test_a_container_of_one_kind_may_follow_another() -> None:
    batches = [[1, 2], as_arrow(range(3)), as_numpy(range(2))]
    messages = fed(timely.Worker(), batches, lambda s: s.inspect_batch(lambda t, b: None))
    assert [batch is sent for (_, batch), sent in zip(messages, batches, strict=True)] == [True] * 3


def test_capture_reads_the_records_of_every_kind() -> None:
    worker = timely.Worker()
    table = pa.RecordBatch.from_arrays([pa.array([2, 1]), pa.array(["b", None])], names=["same", "same"])
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    for batch in (table, np.array([[3, 4], [1, 2]]), np.array(["x"]), [9, 8]):
        handle.send_batch(batch)
        handle.advance_to(handle.time + 1)
    handle.close()
    worker.run()
    assert seen.extract() == [(0, [(1, None), (2, "b")]), (1, [[1, 2], [3, 4]]), (2, ["x"]), (3, [8, 9])]


def test_what_capture_returns_is_not_what_was_sent() -> None:
    worker = timely.Worker()
    sent = [3, 1, 2]
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    handle.send_batch(sent)
    handle.close()
    worker.run()
    assert seen.extract() == [(0, [1, 2, 3])]
    assert seen.extract() == seen.extract()
    assert sent == [3, 1, 2]
    assert seen.drain() == [(0, [3, 1, 2])]
    assert seen.extract() == []


@pytest.mark.parametrize("kind", ["arrow", "numpy", "list"])
def test_large_batches_both_ways_at_once_do_not_lock_up(kind: str) -> None:
    make, _, read = KINDS[kind]
    rows = 100_000 if kind == "list" else 1_000_000

    def program(worker: timely.Worker) -> tuple[int, int]:
        counted = [0, 0]

        def count(initial: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
            def logic(input: Any, output: Any) -> None:
                for _, batch in input:
                    counted[0] += len(batch)
                    counted[1] += sum(read(batch[:1] if kind != "arrow" else batch.slice(0, 1)))

            return logic

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            key: Any = {"arrow": "k", "numpy": lambda a: a, "list": lambda x: x}[kind]
            probe = stream.unary(Exchange(key), "count", count).probe()
        for epoch in range(3):
            handle.send_batch(make(range(rows)))
            handle.advance_to(epoch + 1)
        worker.step_while(lambda: probe.less_than(3))
        return counted[0], counted[1]

    assert timely.execute(program, processes=2) == [(3 * rows, 0), (3 * rows, 6)]


def test_more_records_than_a_session_gathers_keep_their_order() -> None:
    many = 3 * 8192 + 5

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[[Any], object]:
        def logic(output: Any) -> None:
            if capability.held:
                with output.session(capability) as session:
                    for i in range(many):
                        session.give(i)
                    session.give_batch([many])
                    session.give_many([many + 1])
                capability.drop()

        return logic

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = scope.source("many", constructor).capture()
    worker.run()
    assert [x for _, batch in seen.messages for x in batch] == list(range(many + 2))
