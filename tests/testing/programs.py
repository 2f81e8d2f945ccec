"""Programs for the simulator's tests: small ones that have everything in them that progress must get right."""

from __future__ import annotations

from typing import Any

import pytest

import timely

interpreted = pytest.mark.skipif(timely.compiled, reason="what is compiled calls its own methods, whatever is put in their place")
"""For a test that puts something in the place of a method of the engine."""


def loops(worker: timely.Worker) -> list[tuple[int, list[int]]]:
    """Epochs from each worker through an exchanged loop, each waited for."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            small, large = stream.enter(loop).concat(again).exchange(lambda x: x).branch(lambda x: x >= 20)
            small.map(lambda x: 2 * x + 1).connect_loop(handle)
            out = large.leave()
        probe, seen = out.probe(), out.capture()
    for epoch in range(2):
        numbers.send(epoch + worker.index)
        numbers.advance_to(epoch + 1)
        worker.step_while(lambda: probe.less_than(epoch + 1))  # noqa: B023  # called at once
    numbers.close()
    worker.run()
    return seen.extract()


def nested_loops(worker: timely.Worker) -> list[tuple[int, list[int]]]:
    """A loop in a loop, with records that go to other workers in both."""
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        with scope.iterative() as loop:
            handle, again = loop.feedback()
            with loop.iterative() as inner:
                inner_handle, inner_again = inner.feedback()
                entered = again.concat(stream.enter(loop)).enter(inner).concat(inner_again)
                rest, fifth = entered.exchange(lambda x: x // 3).branch(lambda x: x % 5 == 0)
                rest.map(lambda x: x + 1).connect_loop(inner_handle)
                out = fifth.leave()
            small, large = out.map(lambda x: x + 1).branch(lambda x: x >= 12)
            small.connect_loop(handle)
            done = large.leave()
        seen = done.capture()
    for epoch in range(2):
        numbers.send(epoch + worker.index)
        numbers.advance_to(epoch + 1)
    numbers.close()
    worker.run()
    return seen.extract()


def rounds(worker: timely.Worker) -> list[tuple[Any, list[int]]]:
    """Records to and fro between workers, without a loop: two exchanges after each other, and a sum at the end of each epoch."""

    def add_up(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            if capability.time not in sums:
                notificator.notify_at(capability.retain())
            sums[capability.time] = sums.get(capability.time, 0) + sum(batch)
        for capability, _ in notificator:
            output.session(capability).give(sums.pop(capability.time))

    sums: dict[int, int] = {}
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        dealt = stream.exchange(lambda x: x).map(lambda x: x + 1).exchange(lambda x: x)
        total = dealt.unary_notify(timely.Exchange(lambda x: 0), "total", (), add_up)
        seen = total.capture()
    for epoch in range(3):
        for x in range(3):
            numbers.send(x + worker.index)
        worker.step()
        numbers.advance_to(epoch + 1)
        worker.step()
    numbers.close()
    worker.run()
    return seen.extract()
