"""Operators, by the ids of the conformance list (2.7 and 2.12): those with several outputs, with state, and that move in time."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import timely
from tests.conformance.test_operators import Build, run
from timely import Antichain, CapabilityError, OperatorError, Pipeline, Stream
from timely.operators.results import Err, Ok
from timely.testing import simulate


def messages(build: Build) -> list[tuple[int, Any]]:
    """The messages that come out of ``build`` over the records 0..9, in the order in which they came."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        seen = build(scope.to_stream(range(10))).capture()
    worker.run()
    return seen.messages


def test_P2_inspect_progress_reports_each_move_before_later_data() -> None:
    seen: list[Any] = []
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.inspect_progress(lambda time, batch: seen.append((time, batch)), seen.append)
    handle.advance_to(3)
    worker.step()
    handle.send("a")
    handle.advance_to(5)
    worker.step()
    worker.step()  # it sees the frontier in the step after it has read what held that back
    handle.close()
    worker.run()
    assert seen == [Antichain([3]), (3, ["a"]), Antichain([5]), Antichain()]


def test_P8_ok_err() -> None:
    def even(x: int) -> Ok[int] | Err[int]:
        return Ok(x) if x % 2 == 0 else Err(x)

    assert run(lambda s: s.ok_err(even)[0]) == [(0, [0, 2, 4, 6, 8])]
    assert run(lambda s: s.ok_err(even)[1]) == [(0, [1, 3, 5, 7, 9])]


def test_P8_what_is_neither_is_an_error() -> None:
    with pytest.raises(OperatorError, match="expected an Ok or an Err, and got 0"):
        run(lambda s: s.ok_err(lambda x: x)[0])  # type: ignore[arg-type, return-value]  # that is what is tested


def test_P11_delay_gives_one_batch_for_each_time() -> None:
    assert messages(lambda s: s.delay(lambda x, time: x)) == [(x, [x]) for x in range(10)]
    assert messages(lambda s: s.delay(lambda x, time: time + x // 4)) == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])]
    assert messages(lambda s: s.delay_batch(lambda time: time + 1)) == [(1, list(range(10)))]


def test_P11_delays_add_up() -> None:
    outputs = run(
        lambda s: s.delay(lambda x, time: x).delay_batch(lambda time: time // 3 * 3 + 3).delay(lambda x, time: time + x)
    )
    assert outputs == [(time, [x]) for time, x in sorted((x // 3 * 3 + 3 + x, x) for x in range(10))]


@pytest.mark.parametrize("first", [5, 9])
def test_P12_delay_to_an_earlier_time_fails(first: int) -> None:
    def build(stream: Stream[int, int]) -> Stream[int, int]:
        return stream.delay(lambda x, time: 7).delay(lambda x, time: first if x == 0 else 6)

    with pytest.raises(OperatorError, match=f"'delay' .*{min(first, 6)} is not at or after .*7") as failure:
        run(build)
    assert isinstance(failure.value.__cause__, CapabilityError)


def test_P12_delay_to_an_earlier_time_fails_where_records_wait_for_that_time() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        other, others = scope.new_input()
        stream.concat(others).delay(lambda x, time: 6).capture()
    handle.send(1)
    worker.step()
    other.advance_to(8)
    other.send(2)
    with pytest.raises(OperatorError, match="2 at 8 cannot be delayed to 6"):
        worker.step()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P14_broadcast(workers: int) -> None:
    def program(worker: timely.Worker) -> Counter[int]:
        with worker.dataflow(int) as scope:
            seen = scope.to_stream(range(10)).broadcast().capture()
        worker.run()
        return Counter(x for _, batch in seen.messages for x in batch)

    expected = [Counter(dict.fromkeys(range(10), workers))] * workers
    assert timely.execute(program, workers=workers) == expected
    assert simulate(program, workers, seed=workers).results == expected


def test_P15_accumulate_and_count() -> None:
    assert run(lambda s: s.accumulate(0, operator.add)) == [(0, [45])]
    assert run(lambda s: s.accumulate("", lambda text, x: text + str(x))) == [(0, ["0123456789"])]
    assert run(lambda s: s.count()) == [(0, [10])]


def test_P15_only_times_that_have_data_are_answered() -> None:
    assert run(lambda s: s.filter(lambda x: x > 10).count()) == []
    assert run(lambda s: s.delay(lambda x, time: x // 5 * 50).count()) == [(0, [5]), (50, [5])]
    assert run(lambda s: s.delay(lambda x, time: x // 5 * 50).accumulate(1, lambda n, x: n * (x + 1))) == [
        (0, [120]),
        (50, [30240]),
    ]


def test_P15_count_of_other_containers() -> None:
    np = pytest.importorskip("numpy")
    assert run(lambda s: s.map_batch(np.array).count()) == [(0, [10])]


def append(key: int, value: int, values: list[int] | None) -> list[int]:
    return [*(values or []), value]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P16_aggregate(workers: int) -> None:
    def program(worker: timely.Worker) -> tuple[Any, Any]:
        with worker.dataflow(int) as scope:
            pairs = scope.to_stream(range(worker.index, 10, worker.peers)).map(lambda x: (x % 2, x))
            sums = pairs.aggregate(lambda k, x, total: (total or 0) + x, lambda k, total: (k, total)).capture()
            sizes = pairs.aggregate(append, lambda k, values: (k, len(values)), key=lambda k: k + 1).capture()
        worker.run()
        return sums.extract(), sizes.extract()

    results = timely.execute(program, workers=workers)
    assert [x for sums, _ in results for _, batch in sums for x in batch] == [(0, 20), (1, 25)]
    assert sorted(x for _, sizes in results for _, batch in sizes for x in batch) == [(0, 5), (1, 5)]
    if workers == 2:  # dealt by the key, and by the key and one
        assert [sums for sums, _ in results] == [[(0, [(0, 20)])], [(0, [(1, 25)])]]
        assert [sizes for _, sizes in results] == [[(0, [(1, 5)])], [(0, [(0, 5)])]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_P17_state_machine(workers: int) -> None:
    def running_sum(key: int, value: int, total: int | None) -> tuple[int, list[tuple[int, int]]]:
        total = (total or 0) + value
        return total, [(key, total)]

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow(int) as scope:
            numbers = scope.to_stream(range(10) if worker.index == 0 else [])
            seen = numbers.map(lambda x: (x % 2, x)).state_machine(running_sum).capture()
        worker.run()
        return [x for _, batch in seen.extract() for x in batch]

    results = timely.execute(program, workers=workers)
    expected = [(0, 0), (0, 2), (0, 6), (0, 12), (0, 20), (1, 1), (1, 4), (1, 9), (1, 16), (1, 25)]
    assert sorted(x for share in results for x in share) == expected


def test_P21_fan_out_shares_the_objects() -> None:
    class Unique:
        pass

    seen: dict[str, list[Any]] = {"one": [], "two": []}
    batches: dict[str, list[Any]] = {"one": [], "two": []}
    record = Unique()

    def reading(name: str) -> Callable[..., Any]:
        def constructor(capability: Any, info: Any) -> Callable[..., object]:
            def logic(input: Any, output: Any) -> None:
                for _, batch in input:
                    batches[name].append(batch)
                    seen[name].extend(batch)

            return logic

        return constructor

    def build(scope: timely.ScopeBuilder[int]) -> Stream[int, Any]:
        stream = scope.to_stream([record])
        return stream.unary(Pipeline, "one", reading("one")).concat(stream.unary(Pipeline, "two", reading("two")))

    timely.example(build)
    assert seen["one"] == seen["two"] == [record]
    assert batches["one"][0] is batches["two"][0]


@pytest.mark.parametrize(
    ("workers", "processes", "expected"),
    [
        (1, 1, [[0, 1, 2, 3, 4]]),
        (2, 1, [[0, 2, 4], [1, 3, 5, 7]]),
        (1, 2, [[0, 2, 4], [1, 3, 5, 7]]),
    ],
)
def test_X3_the_distinct_operator(workers: int, processes: int, expected: list[list[int]]) -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = stream.distinct().capture()
        for x in [0, 1, 2, 2, 2, 3, 3, 4] if worker.index == 0 else [0, 0, 3, 4, 4, 5, 7, 7]:
            handle.send(x)
        handle.close()
        worker.run()
        return [x for _, records in seen.extract() for x in records]

    assert timely.execute(program, workers=workers, processes=processes) == expected
