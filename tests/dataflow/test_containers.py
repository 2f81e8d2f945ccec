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
from timely.dataflow import pickled, route_column

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
def test_a_pipeline_hands_on_the_very_container(kind: str) -> None:
    batch = KINDS[kind][0](range(5))
    [(time, seen)] = fed(timely.Worker(), [batch], lambda s: s.concat(s.scope.empty()).inspect_batch(lambda t, b: None))
    assert (time, seen is batch) == (0, True)


@kinds
def test_across_scopes_and_round_a_loop(kind: str) -> None:
    make, _, read = KINDS[kind]

    def build(stream: Stream[int, Any]) -> Stream[int, Any]:
        with stream.scope.region() as region, region.iterative() as loop:
            handle, again = loop.feedback(timely.ProductSummary(timely.Step(0), timely.Step(1, limit=3)))
            around = stream.enter(region).enter(loop).concat(again)
            around.connect_loop(handle)
            return around.leave().leave()

    messages = fed(timely.Worker(), [make(range(3)), make(range(2))], build)
    assert sorted((time, read(batch)) for time, batch in messages) == [(0, [0, 1, 2])] * 4 + [(1, [0, 1])] * 4


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


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_rows_are_partitioned_alike_however_they_lie_in_memory(workers: int) -> None:
    rows = np.random.default_rng(3).integers(-50, 50, (200, 3))
    by_row, by_column, apart = (
        Exchange(lambda some: some[:, 1]).parts(0, array, workers)
        for array in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2])
    )
    for parts in (by_row, by_column, apart):
        assert [worker for worker, _ in parts] == list(range(workers))
        assert [part.tolist() for _, part in parts] == [rows[rows[:, 1] % workers == w].tolist() for w in range(workers)]


@pytest.mark.parametrize("workers", [2, 3, 9, 16, 17, 300])
@pytest.mark.parametrize("size", [0, 1, 7, 2_000, 2_001, 14_000, 14_001, 1 << 14, (1 << 14) + 1])
def test_columns_are_partitioned_alike_however_many_rows_and_workers_there_are(workers: int, size: int) -> None:
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


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_numbers_are_routed_as_they_are_with_nothing_in_the_place_of_what_is_missing(kind: pa.DataType) -> None:
    column = pa.array([5, None, (1 << 63) - 1, 3], kind)
    assert route_column(column).tolist() == [5, 0, (1 << 63) - 1, 3]
    assert route_column(column[2:]).tolist() == [(1 << 63) - 1, 3]
    assert route_column(column[4:]).tolist() == route_column(pa.nulls(0, kind)).tolist() == []


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


def rich() -> Any:
    """A batch of many types, with nulls and empty values."""
    return pa.record_batch(
        {
            "k": pa.array([0, 1, 2, 3, 4, None], pa.int32()),
            "text": pa.array(["a", None, "", "ä€😀", "e", "f"]),
            "large": pa.array(["a", None, "", "d", "e", "f"], pa.large_string()),
            "bytes": pa.array([b"", b"\0", None, b"x", b"y", b"z"]),
            "none": pa.nulls(6),
            "list": pa.array([[1], [], None, [2, 3], [4], [5]], pa.list_(pa.int64())),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": None}, {"a": 3, "b": ""}, None]),
            "dictionary": pa.array(["p", "q", None, "p", "q", "p"]).dictionary_encode(),
            "inner": pa.array([["p"], [], None, ["q", "p"], ["q"], ["p"]], pa.list_(pa.string())).cast(
                pa.list_(pa.dictionary(pa.int32(), pa.string()))
            ),
            "when": pa.array([1, None, 3, 4, 5, 6], pa.timestamp("us", tz="UTC")),
            "flag": pa.array([True, None, False, True, False, True]),
            "ratio": pa.array([1.5, None, float("inf"), 4.0, 5.0, 6.0]),
        }
    )


@pytest.mark.parametrize("start", [0, 1, 5, 6])
def test_a_slice_of_every_type_survives_the_way_to_another_process(start: int) -> None:
    def program(worker: timely.Worker) -> list[Any]:
        batch = rich().slice(start)
        batches = [batch] if worker.index == 0 else []
        return fed(worker, batches, lambda s: s.unary(Exchange("k"), "keep", keep))

    def keep(initial: Capability[int], info: timely.OperatorInfo) -> Callable[[Any, Any], object]:
        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                batch.validate(full=True)
                output.session(capability).give_batch([batch.to_pylist()])

        return logic

    found = timely.execute(program, processes=3)
    expected = rich().slice(start).to_pylist()
    for index, messages in enumerate(found):
        mine = [row for row in expected if (row["k"] or 0) % 3 == index]
        assert [batch for _, batch in messages] == ([[mine]] if mine else [])


def test_a_slice_travels_without_the_whole_that_it_was_cut_from() -> None:
    whole = pa.record_batch({"k": pa.array(range(1_000_000))})
    assert sum(map(len, pickled(whole.slice(10, 5)))) < 5_000


def test_arrays_of_every_layout_survive_the_way_to_another_process() -> None:
    arrays = [
        np.arange(24).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(20)[::3],
        np.arange(20)[::-1],
        np.array(["a", "bc"]),
        np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([1.5, float("nan")]),
    ]

    def program(worker: timely.Worker) -> list[Any]:
        # Every row of worker 0 goes to worker 1.
        def rows(array: Any) -> Any:
            return np.ones(len(array), dtype=np.int64)

        return fed(worker, arrays if worker.index == 0 else [], lambda s: s.exchange(rows))

    nobody, messages = timely.execute(program, processes=2)
    assert nobody == []
    for sent, (_, got) in zip(arrays, messages, strict=True):
        np.testing.assert_array_equal(sent, got)
        assert sent.dtype == got.dtype


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
