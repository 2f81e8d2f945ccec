"""Loops, barriers and termination, by the ids of docs/conformance.md, with 1 to 3 workers and processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import Pipeline, ScopeBuilder, Step, Stream

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2)]
sizes = pytest.mark.parametrize(("workers", "processes"), SIZES)


def flat_loop(scope: ScopeBuilder[int], seen: Callable[[Any, Any], object]) -> None:
    handle, again = scope.feedback(Step(1))
    around = scope.to_stream(range(10)).concat(again).inspect_time(seen)
    around.branch_when(lambda t: t < 100)[1].connect_loop(handle)


def nested_loop(scope: ScopeBuilder[int], seen: Callable[[Any, Any], object]) -> None:
    with scope.iterative() as loop:
        handle, again = loop.feedback()
        around = scope.to_stream(range(10)).enter(loop).concat(again).inspect_time(lambda t, x: seen(t.inner, x))
        around.branch_when(lambda t: t.inner < 100)[1].connect_loop(handle)


@pytest.mark.parametrize("build", [flat_loop, nested_loop])
@sizes
def test_L1_feedback(build: Callable[..., None], workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> Counter[tuple[int, int]]:
        seen: Counter[tuple[int, int]] = Counter()
        with worker.dataflow(int) as scope:
            build(scope, lambda time, x: seen.update([(time, x)]))
        worker.run()
        return seen

    expected = {(time, x): 1 for time in range(101) for x in range(10)}
    assert sum(expected.values()) == 1010
    assert timely.execute(program, workers=workers, processes=processes) == [expected] * (workers * processes)


def collatz(x: int) -> int:
    return x // 2 if x % 2 == 0 else 3 * x + 1


def rounds(seen: list[tuple[int, int]]) -> list[list[int]]:
    """The records of each round, in order of rounds, each in order of arrival."""
    groups: dict[int, list[int]] = {}
    for time, record in seen:
        groups.setdefault(time, []).append(record)
    return [groups[time] for time in sorted(groups)]


@sizes
def test_L2_collatz_to_the_fixpoint(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        with worker.dataflow(int) as scope:
            numbers = scope.to_stream(range(1, 10) if worker.index == 0 else ())
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                stepped = numbers.enter(loop).concat(again).exchange(lambda x: x).map(collatz)
                stepped.inspect_time(lambda t, x: seen.append((t.inner, x))).filter(lambda x: x != 1).connect_loop(handle)
        worker.run()
        return seen

    everyone = timely.execute(program, workers=workers, processes=processes)
    result = rounds([entry for seen in everyone for entry in seen])
    assert (sum(map(len, result)), len(result)) == (64, 19)
    assert sorted(result[0]) == sorted([4, 1, 10, 2, 16, 3, 22, 4, 28])
    assert result[-1] == [1]


def test_L2_collatz_by_mutual_recursion() -> None:
    seen: list[tuple[int, int]] = []

    def build(scope: ScopeBuilder[int]) -> Stream[int, int]:
        evens_handle, evens_again = scope.feedback(Step(1))
        odds_handle, odds_again = scope.feedback(Step(1))
        both = scope.to_stream(range(1, 10)).concat(evens_again, odds_again).inspect_time(lambda t, x: seen.append((t, x)))
        odds, evens = both.branch(lambda x: x % 2 == 0)
        evens.map(lambda x: x // 2).filter(lambda x: x != 1).connect_loop(evens_handle)
        odds.map(lambda x: 3 * x + 1).filter(lambda x: x != 1).connect_loop(odds_handle)
        return both

    timely.example(build)
    result = rounds(seen)
    assert (sum(map(len, result)), len(result)) == (64, 19)
    assert sorted(result[0]) == list(range(1, 10))
    assert result[-1] == [2]


def barrier(initial: list[int], last: int) -> Callable[[timely.Worker], list[list[tuple[int, int]]]]:
    """A loop that asks for the next time when it is notified of one; returns what each call of the logic was given."""

    def program(worker: timely.Worker) -> list[list[tuple[int, int]]]:
        calls: list[list[tuple[int, int]]] = []

        def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
            delivered = []
            for capability, count in notificator:
                delivered.append((capability.time, count))
                if capability.time + 1 < last:
                    notificator.notify_at(capability.delayed(capability.time + 1))
            calls.append(delivered)

        with worker.dataflow(int) as scope:
            handle, again = scope.feedback(Step(1))
            again.unary_notify(Pipeline, "barrier", initial, logic).connect_loop(handle)
        worker.run()
        return calls

    return program


@sizes
def test_L3_barrier_sync(workers: int, processes: int) -> None:
    for calls in timely.execute(barrier([0, 1], 100), workers=workers, processes=processes):
        assert max(map(len, calls)) == 1
        delivered = [entry for call in calls for entry in call]
        assert delivered == [(time, 2 if time == 1 else 1) for time in range(100)]


@sizes
def test_L4_barrier(workers: int, processes: int) -> None:
    for calls in timely.execute(barrier([0], 50), workers=workers, processes=processes):
        assert [time for call in calls for time, _ in call] == list(range(50))


@pytest.mark.parametrize("workers", [2, 3])
def test_L4_workers_advance_in_lockstep(workers: int) -> None:
    log: list[int] = []

    def program(worker: timely.Worker) -> None:
        def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
            for capability, _ in notificator:
                log.append(capability.time)
                if capability.time < 30:
                    notificator.notify_at(capability.delayed(capability.time + 1))

        with worker.dataflow(int) as scope:
            handle, again = scope.feedback(Step(1))
            again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(handle)

    timely.execute(program, workers=workers)
    # A worker may be notified of t+1 only when every worker is done with t: in the common log no time overtakes another.
    assert log == sorted(log)
    assert Counter(log) == dict.fromkeys(range(31), workers)


@sizes
def test_L5_pingpong(workers: int, processes: int) -> None:
    turns, elements = 20, 5

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        with worker.dataflow(int) as scope:
            records = scope.to_stream(range(elements) if worker.index == 0 else ())
            handle, again = scope.feedback(Step(1))
            passed = records.concat(again).exchange(lambda x: x).inspect_time(lambda t, x: seen.append((t, x)))
            passed.map(lambda x: x + 1).branch_when(lambda t: t < turns)[1].connect_loop(handle)
        worker.run()
        return seen

    results = timely.execute(program, workers=workers, processes=processes)
    size = workers * processes
    for index, seen in enumerate(results):
        assert all(x % size == index for _, x in seen)
    everything = sorted(entry for seen in results for entry in seen)
    assert everything == sorted((t, x + t) for t in range(turns + 1) for x in range(elements))
    assert len(everything) == elements * (turns + 1)


@sizes
def test_L9_beyond_the_limit_of_a_feedback_messages_are_dropped(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[tuple[int, list[int]]]:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback(Step(3, limit=10))
            around = scope.to_stream([worker.index]).concat(again)
            around.exchange(lambda x: x).connect_loop(handle)
            seen = around.capture()
        worker.run()
        return seen.extract()

    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [[(t, [index]) for t in (0, 3, 6, 9)] for index in range(workers * processes)]


def test_L10_an_open_input_keeps_the_worker_alive() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.probe()
    assert all(worker.step() for _ in range(50))
    handle.close()
    assert not any(worker.step() for _ in range(3))


def test_L10_dropping_the_handle_closes_the_input() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.probe()
    handle.send(1)
    assert all(worker.step() for _ in range(50))
    del handle
    worker.run()
    assert worker.dataflows == []
