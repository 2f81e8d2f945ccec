"""``delay``, ``delay_batch`` and ``reclock`` against what they are to do, for any times in any order on any number of workers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute, seeds, sizes
from timely import OperatorError
from timely.operators import reclock


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
