"""``delay``, ``delay_batch`` and ``reclock`` against what they are to do, for any times in any order on any number of workers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute, run, seeds, sizes
from timely import OperatorError, Product
from timely.operators import reclock

sends = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=25)


@given(sends, sizes, seeds)
def test_delay_moves_each_record_once(sent: list[tuple[int, int]], workers: int, seed: int | None) -> None:
    [found] = run(lambda s: s.delay(lambda x, time: time + x % 4), sent, workers=workers, seed=seed)
    assert found == Counter((time + x % 4, x) for time, x in sent)


@given(sends, sizes, seeds)
def test_delay_batch_moves_each_record_once(sent: list[tuple[int, int]], workers: int, seed: int | None) -> None:
    [found] = run(lambda s: s.delay_batch(lambda time: time // 4 * 4 + 4), sent, workers=workers, seed=seed)
    assert found == Counter((time // 4 * 4 + 4, x) for time, x in sent)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), sizes, seeds)
def test_delay_with_partially_ordered_times(sent: list[tuple[int, int]], workers: int, seed: int | None) -> None:
    pairs = [(Product(*pair), pair) for pair in sent]

    def turned(record: Any, time: Any) -> Any:
        return Product(time.outer, time.inner + record[0])

    [found] = run(lambda s: s.delay(turned), pairs, time=Product[int, int], workers=workers, seed=seed)
    assert found == Counter((Product(a, b + a), (a, b)) for a, b in sent)


@given(st.lists(st.integers(0, 12), max_size=25), sizes, seeds)
def test_delayed_records_come_in_order_and_not_before_their_time(records: list[int], workers: int, seed: int | None) -> None:
    """When a batch comes for a time, nothing at or before it can come in any more; and there is one batch for each time."""

    def program(worker: timely.Worker) -> list[Any]:
        seen: list[int] = []

        def look(time: int, batch: list[int]) -> None:
            seen.append(time)
            assert handle.closed or time < handle.time

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.delay(lambda x, time: max(x, time)).inspect_batch(look)
        for epoch, record in enumerate(records[worker.index :: worker.peers]):
            handle.send(record)
            handle.advance_to(epoch + 1)
            worker.step()
        handle.close()
        worker.run()
        return seen

    for times in execute(program, workers, seed):
        assert times == sorted(set(times))


def first_tick(time: int, ticks: list[int]) -> int:
    return min((tick for tick in ticks if time <= tick), default=time)


@given(sends, st.lists(st.integers(0, 12), max_size=6), sizes, seeds)
def test_reclock_takes_each_record_to_the_next_tick(
    sent: list[tuple[int, int]], ticks: list[int], workers: int, seed: int | None
) -> None:
    def build(stream: Any, clock: Any) -> Any:
        return stream.apply(reclock, clock.broadcast())

    [found] = run(build, sent, [(tick, "tick") for tick in ticks], workers=workers, seed=seed)
    assert found == Counter((first_tick(time, ticks), x) for time, x in sent)


def test_reclock_waits_for_the_tick_and_lets_the_rest_go_when_the_clock_ends() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        clock, ticks = scope.new_input()
        seen = stream.apply(reclock, ticks).capture()
    handle.send("a")
    handle.advance_to(3)
    handle.send("b")
    handle.advance_to(9)
    worker.step()
    clock.advance_to(2)
    clock.send(None)
    worker.step()
    assert seen.messages == []  # the clock may still tick at 2
    clock.advance_to(7)
    worker.step()
    worker.step()
    assert seen.drain() == [(2, ["a"])]
    clock.close()
    handle.close()
    worker.run()
    assert seen.drain() == [(3, ["b"])]


@pytest.mark.parametrize("name", ["delay", "delay_batch"])
def test_what_is_no_time_is_an_error_that_names_the_operator(name: str) -> None:
    with pytest.raises(OperatorError, match=f"'{name}' "):
        timely.example(lambda scope: getattr(scope.to_stream([1]), name)(lambda *_: "tomorrow"))
