"""Containers of a user's own, things that are no containers, and containers of every kind in recordings."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import ContainerError, EventLink, FileSink, FileSource, Messages, OperatorError, Product, Progress, RoutingError
from timely.dataflow import records_of, route


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


@pytest.mark.parametrize("batch", [[1, 2], arrow(), np.arange(3), Runs(((1, 2),))], ids=["list", "arrow", "numpy", "own"])
def test_a_link_hands_on_the_very_container(batch: Any) -> None:
    worker = timely.Worker()
    link: EventLink[int] = EventLink()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.capture_into(link)
    with worker.dataflow(int) as scope:
        seen = scope.replay(link).capture()
    handle.send_batch(batch)
    handle.close()
    worker.run()
    assert [got is batch for _, got in seen.messages] == [True]


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


@pytest.mark.parametrize("kind", BY_ROW)
def test_what_is_looked_at_by_record_is_passed_on_as_it_is(kind: str) -> None:
    rows: list[Any] = []
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        batches = scope.to_stream([0]).map_batch(BY_ROW[kind])
        seen = batches.inspect(rows.append).inspect_time(lambda time, row: rows.append((time, row))).capture()
    worker.run()
    assert rows == [*PAIRS, *[(0, row) for row in PAIRS]]
    assert type(seen.messages[0][1]) is type(BY_ROW[kind](None))
