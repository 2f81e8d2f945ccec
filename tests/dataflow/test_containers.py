"""Containers of every kind, odd makes and a user's own included, on every path: loops, exchange, scopes, recordings, the wire."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import (
    Capability,
    ContainerError,
    Exchange,
    FileSink,
    FileSource,
    Messages,
    OperatorError,
    Product,
    Progress,
    RoutingError,
    Stream,
)
from timely.dataflow import pickled, records_of, route
from timely.progress import ProductSummary, Step


def as_arrow(numbers: range) -> Any:
    return pa.record_batch({"k": pa.array(numbers, pa.int64())})


def as_numpy(numbers: range) -> Any:
    return np.array(numbers, dtype=np.int64)


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


@attrs.frozen(eq=True)
class Runs:
    """Numbers as runs of equal ones: ``(number, how often)``, which are never written out on the way."""

    runs: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return sum(count for _, count in self.runs)

    def __iter__(self) -> Iterator[int]:
        for number, count in self.runs:
            yield from [number] * count

    def partition(self, key: Callable[[int], int], workers: int) -> list[tuple[int, Runs]]:
        parts: list[list[tuple[int, int]]] = [[] for _ in range(workers)]
        for run in self.runs:
            parts[route(key(run[0])) % workers].append(run)
        return [(worker, Runs(tuple(part))) for worker, part in enumerate(parts)]


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_a_container_of_ones_own_goes_everywhere(workers: int, processes: int) -> None:
    runs = tuple((number, number + 1) for number in range(6))

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            with scope.iterative() as loop:
                back, again = loop.feedback(timely.ProductSummary(timely.Step(0), timely.Step(1, limit=1)))
                around = stream.enter(loop).concat(again).exchange(lambda x: x)
                around.connect_loop(back)
            seen = around.leave().capture()
            doubled = stream.map(lambda x: 2 * x).capture()
        handle.send_batch(Runs(runs))
        handle.close()
        worker.run()
        return seen.messages, doubled.extract()

    size = workers * processes
    for index, (messages, doubled) in enumerate(timely.execute(program, workers=workers, processes=processes)):
        mine = Runs(tuple(run for run in runs if run[0] % size == index))
        assert messages == ([(0, mine)] * (2 * size) if mine.runs else [])
        assert doubled == [(0, sorted(2 * number for number, count in runs for _ in range(count)))]


def exchange(parts: Callable[[Any, int], list[tuple[Any, Any]]]) -> None:
    """Exchange a container that is partitioned like this."""

    class Partitioned(list[int]):
        def partition(self, key: Any, workers: int) -> Any:
            return parts(self, workers)

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        return scope.to_stream([1]).map_batch(lambda batch: Partitioned([1, 2, 3])).exchange("key")

    timely.example(build)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (lambda batch, workers: [(0, [1, 2])], r"Partitioned.partition\(key, 1\) makes 2 records of 3"),
        (lambda batch, workers: [(0, batch), (0, [9])], "makes 4 records of 3"),
        (lambda batch, workers: [], "makes 0 records of 3"),
        (lambda batch, workers: [(workers, batch)], "sends to worker 1, and there are 0 to 0"),
        (lambda batch, workers: [(-1, batch)], "sends to worker -1"),
    ],
)
def test_a_container_that_is_partitioned_wrongly(parts: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=rf"exchange into input 0 of operator 'exchange'.*{words}") as failure:
        exchange(parts)
    assert isinstance(failure.value.__cause__, RoutingError)


def test_a_container_that_is_partitioned_in_pieces_and_out_of_order() -> None:
    exchange(lambda batch, workers: [(0, []), (0, [3]), (0, [1, 2])])


@pytest.mark.parametrize("wrong", [3, None, iter([1, 2]), object()])
def test_what_has_no_length_is_no_container(wrong: Any) -> None:
    with pytest.raises(OperatorError, match="operator 'map_batch'.*a container is a list.*what was sent is a") as failure:
        timely.example(lambda scope: scope.to_stream([1]).map_batch(lambda batch: wrong))
    assert isinstance(failure.value.__cause__, ContainerError)


def test_what_cannot_be_read_by_record() -> None:
    class Opaque:
        def __len__(self) -> int:
            return 1

    with pytest.raises(ContainerError, match="type Opaque cannot be read by record: give its type __iter__"):
        records_of(Opaque())
    with pytest.raises(ContainerError, match=r"type DataFrame .*: send the batches of its to_arrow\(\)"):
        records_of(pytest.importorskip("polars").DataFrame({"a": [1]}))


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.chunked_array([[1], [None]])])
def test_arrays_of_arrow_have_values_as_records(array: Any) -> None:
    assert records_of(array) == [1, None]
    assert timely.example(lambda scope: scope.to_stream(array)) == [(0, [1, None])]


def test_batches_without_columns_have_records() -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert records_of(empty) == [(), ()]
    assert records_of(pa.record_batch({"a": pa.array([], pa.int64())})) == []


# -- in recordings -------------------------------------------------------------------------------------------------------


def arrow() -> Any:
    return pa.record_batch(
        {
            "i": pa.array([1, None, 3]),
            "s": pa.array(["a", None, "é€😀"]),
            "d": pa.array(["x", None, "x"]).dictionary_encode(),
            "l": pa.array([[1], None, []], pa.list_(pa.int64())),
            "t": pa.array([1, 2, None], pa.timestamp("ns", tz="UTC")),
        },
        metadata={"made": "here"},
    )


def through_a_file(path: Path, batches: list[Any], trusted: bool = False) -> list[Any]:
    """Record containers, and replay them."""
    sink: FileSink[int] = FileSink(path)
    sink.append(Progress([(0, 1)]))
    for time, batch in enumerate(batches):
        sink.append(Messages(time, batch))
    sink.append(Progress([(0, -1)]))
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = scope.replay(FileSource(path, trusted=trusted)).capture()
    worker.run()
    return [batch for _, batch in seen.messages]


def test_arrow_batches_are_recorded_with_all_that_they_have(tmp_path: Path) -> None:
    whole = arrow()
    sliced = pa.record_batch({"k": pa.array(range(100_000))}).slice(7, 3)
    result = through_a_file(tmp_path / "recorded", [whole, sliced, whole.slice(1)])
    for batch, again in zip([whole, sliced, whole.slice(1)], result, strict=True):
        again.validate(full=True)
        assert again.equals(batch, check_metadata=True)
    assert (tmp_path / "recorded").stat().st_size < 20_000  # and without the whole that a slice was cut from


def test_lists_are_recorded_with_all_plain_data(tmp_path: Path) -> None:
    records = [
        None, True, -(2**70), 1.5, 2j, "é\0", b"\0", (1, [2, {3: {4}}]), frozenset({5}), bytearray(b"6"), Product(1, 2),
        datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC), datetime.date(2020, 1, 2), datetime.timedelta(1), range(3),
        timely.LoopTime(1, (2, 3)), timely.Unit(), np.int64(-3), np.float32(1.5), np.str_("é"), np.datetime64("2020-01-02"),
    ]  # fmt: skip
    (result,) = through_a_file(tmp_path / "recorded", [records])
    assert result == records
    assert [type(record) for record in result] == [type(record) for record in records]


def test_batches_and_arrays_inside_of_records_are_recorded(tmp_path: Path) -> None:
    ((pair, text),) = through_a_file(tmp_path / "recorded", [[(arrow(), np.arange(3)), "text"]])
    assert pair[0].equals(arrow())
    np.testing.assert_array_equal(pair[1], np.arange(3))
    assert text == "text"


def test_a_container_of_ones_own_is_recorded_where_it_is_trusted(tmp_path: Path) -> None:
    runs = Runs(((1, 2), (3, 1)))
    assert through_a_file(tmp_path / "recorded", [runs], trusted=True) == [runs]


def test_arrow_that_does_not_fit_together_is_refused_from_strangers(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 900, 2], np.int32).tobytes())
    broken = pa.RecordBatch.from_arrays([pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"ab"))], names=["k"])
    with pytest.raises(OperatorError, match="is damaged: frame 1 cannot be read"):
        through_a_file(tmp_path / "recorded", [broken])


ROWS = pa.record_batch({"k": [3, 1, 2], "v": ["c", "a", "b"]})
PAIRS = [(3, "c"), (1, "a"), (2, "b")]
RECORDWISE: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "map": (lambda s: s.map(lambda row: row[1] + str(row[0])), ["a1", "b2", "c3"]),
    "filter": (lambda s: s.filter(lambda row: row[0] > 1), [(2, "b"), (3, "c")]),
    "flat_map": (lambda s: s.flat_map(lambda row: [row[1]] * row[0]), ["a", "b", "b", "c", "c", "c"]),
    "partition": (lambda s: s.partition(2, lambda row: (row[0] % 2, row))[1], [(1, "a"), (3, "c")]),
    "branch": (lambda s: s.branch(lambda row: row[0] == 2)[1], [(2, "b")]),
    "delay": (lambda s: s.delay(lambda row, time: time), sorted(PAIRS)),
    "accumulate": (lambda s: s.accumulate(0, lambda total, row: total + row[0]), [6]),
    "count": (lambda s: s.count(), [3]),
    "aggregate": (lambda s: s.aggregate(lambda k, v, old: v, lambda k, v: (k, v)), sorted(PAIRS)),
    "distinct": (lambda s: s.distinct(), sorted(PAIRS)),
    "join": (lambda s: s.join(s), [(1, ("a", "a")), (2, ("b", "b")), (3, ("c", "c"))]),
}
BY_ROW: dict[str, Callable[[Any], Any]] = {
    "list": lambda batch: PAIRS,
    "arrow": lambda batch: ROWS,
    "numpy": lambda batch: np.array(PAIRS, dtype=[("k", "i8"), ("v", "U1")]),
}


@pytest.mark.parametrize("kind", BY_ROW)
@pytest.mark.parametrize("operator", RECORDWISE)
def test_operators_that_work_by_record_take_rows_of_every_container(operator: str, kind: str) -> None:
    build, expected = RECORDWISE[operator]
    assert timely.example(lambda scope: build(scope.to_stream([0]).map_batch(BY_ROW[kind]))) == [(0, expected)]


read_only = np.arange(6)
read_only.flags.writeable = False

CONTAINERS: dict[str, Any] = {
    "no columns": pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([]))),
    "views": pa.record_batch({"k": pa.array(["a" * 30, None], pa.string_view()), "b": pa.array([None, b""], pa.binary_view())}),
    "a dictionary": pa.record_batch({"k": pa.array(["a", None, "a"]).dictionary_encode()}),
    "a piece of a dictionary": pa.record_batch({"k": pa.array(["a", "b", "c"]).dictionary_encode()}).slice(2),
    "nothing but nulls": pa.record_batch({"k": pa.nulls(3)}).replace_schema_metadata({"made": "here"}),
    "structured": np.array([(1, 2.5, "é"), (2, 3.5, "zz")], dtype=[("k", "i4"), ("b", ">f8"), ("c", "U3")]),
    "big-endian": np.arange(3, dtype=">i8"),
    "turned": np.arange(24).reshape(4, 6).T,
    "with gaps": np.arange(24).reshape(4, 6)[::2, ::3],
    "backwards": np.arange(5)[::-1],
    "broadcast": np.broadcast_to(np.arange(3), (4, 3)),
    "read-only": read_only,
    "objects": np.array([1, "a", None, (1, 2)], dtype=object),
    "rows of objects": np.array([[(1, 2), (3, 4)], ["a", None]], dtype=object),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, pa.RecordBatch):
        return bool(len(one) == len(other) and one.equals(other, check_metadata=True))
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tolist() == other.tolist())


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_of_any_make_is_the_same_on_every_path(name: str, processes: int, tmp_path: Path) -> None:
    sent = CONTAINERS[name]
    key: Any = (lambda array: np.ones(len(array), np.int64)) if isinstance(sent, np.ndarray) else "k"

    def program(worker: timely.Worker) -> dict[str, list[Any]]:
        record = tmp_path / f"part{worker.index}"
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            with scope.iterative() as loop:
                feedback, again = loop.feedback(ProductSummary(Step(0), Step(1, limit=2)))  # twice round
                stream.enter(loop).concat(again).connect_loop(feedback)
                looped = again.leave()
            seen = {"pipeline": stream.capture(), "loop": looped.capture(), "broadcast": stream.broadcast().capture()}
            if name != "no columns":
                seen["exchange"] = stream.exchange(key).capture()
            stream.capture_into(record)
        if worker.index == 0:
            handle.send_batch(sent)
        handle.close()
        worker.run()
        with worker.dataflow(int) as scope:
            seen["recording"] = scope.replay(record).capture()
        worker.run()
        return {path: [batch for _, batch in capture.messages] for path, capture in seen.items()}

    results = timely.execute(program, processes=processes)
    for path, times in {"pipeline": 1, "loop": 2, "broadcast": processes, "recording": 1}.items():
        got = [batch for part in results for batch in part[path]]
        assert len(got) == times and all(same(sent, batch) for batch in got), path
    parts = [batch for part in results for batch in part.get("exchange", [sent])]
    assert sum(map(len, parts)) == len(sent) * (1 if "exchange" in results[0] else processes)
    assert len(parts) > 1 or same(sent, parts[0])


def test_views_are_partitioned_to_where_strings_go() -> None:
    words = ["tea", "café", None, "x" * 40, ""]

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.exchange("word").capture()
        if worker.index == 0:
            for kind in (pa.string(), pa.string_view()):
                handle.send_batch(pa.record_batch({"word": pa.array(words, kind), "n": range(len(words))}))
                handle.advance_to(handle.time + 1)
        handle.close()
        worker.run()
        return seen.messages

    collected = [message for part in timely.execute(program, workers=3) for message in part]
    plain, views = ([batch.to_pylist() for time, batch in collected if time == epoch] for epoch in (0, 1))
    assert plain == views
    assert {batch.schema.field("word").type for time, batch in collected if time == 1} == {pa.string_view()}


def test_a_type_without_take_in_arrow_is_an_error_with_the_remedy() -> None:
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array([1, 2]))

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange("n").probe()
        handle.send_batch(pa.record_batch({"n": range(5), "runs": encoded}))
        handle.close()
        worker.run()

    with pytest.raises(OperatorError, match="cast its columns") as raised:
        timely.execute(program, workers=2)
    assert isinstance(raised.value.__cause__, RoutingError)
