"""The progress that a worker sends to its peers in a step, and its order with data.

White box: a message is recognised by its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely.worker import Worker, thread_transports
from timely.worker.worker_messages import ProgressMessage


def build(worker: Worker, look: Any) -> tuple[timely.InputHandle[int, Any], timely.InputHandle[int, Any]]:
    """A dataflow with two inputs, and an operator that calls ``look`` whenever it runs with what the first has sent."""

    def logic(input: Any, output: Any) -> None:
        for _ in input:
            look()

    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        others, _ = scope.new_input()
        stream.unary(timely.Pipeline, "looks", lambda capability, info: logic)
    return numbers, others


class Pair:
    """Two workers that are stepped by hand; ``arrived()`` are the types of the messages that the second has not received yet."""

    def __init__(self, **options: Any) -> None:
        self._transports = thread_transports(2)
        self.here, self.there = (Worker(transport, **options) for transport in self._transports)

    def arrived(self) -> list[type]:
        return [type(message) for _, message in self._transports[1].receive()]

    def settle(self) -> None:
        for _ in range(3):
            self.here.step()
            self.there.step()


def ended(*workers: Worker) -> None:
    """Drop what the workers have, and close their connections."""
    for worker in workers:
        for scope in worker.scopes:
            worker.drop_dataflow(scope)
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("move", [lambda handle: handle.advance_to(1), lambda handle: handle.close()], ids=["advance", "close"])
def test_a_peer_receives_an_inputs_progress_before_an_operator_runs(move: Callable[[Any], None]) -> None:
    """An operator may take long, and what a peer waits for need not wait for it."""
    pair = Pair()
    seen: list[list[type]] = []
    numbers, others = build(pair.here, lambda: seen.append(pair.arrived()))
    build(pair.there, lambda: None)
    pair.settle()
    numbers.send(1)
    move(others)
    pair.here.step()
    assert seen == [[ProgressMessage]]
    ended(pair.here, pair.there)


def test_where_steps_are_short_progress_goes_with_their_messages() -> None:
    """Two messages for each epoch would take longer than its step, so only the first few epochs have two."""
    now = 0.0
    pair = Pair(clock=lambda: now)
    seen: list[list[type]] = []

    def look() -> None:
        nonlocal now
        seen.append(pair.arrived())
        now += duration

    numbers, others = build(pair.here, look)
    build(pair.there, lambda: None)
    for duration in (0.0, 0.02):
        seen.clear()
        for _ in range(20):
            pair.arrived()
            numbers.send(1)
            others.advance_to(others.time + 1)
            pair.here.step()
        assert seen[-2:] == ([[ProgressMessage]] * 2 if duration else [[]] * 2)
    ended(pair.here, pair.there)


def test_an_input_that_only_sends_adds_no_progress_message() -> None:
    """Messages are counted in the progress batch of the step: a second batch would be one too many."""
    pair = Pair()
    seen: list[list[type]] = []
    numbers, _ = build(pair.here, lambda: seen.append(pair.arrived()))
    build(pair.there, lambda: None)
    pair.settle()
    numbers.send(1)
    pair.here.step()
    assert seen == [[]]
    ended(pair.here, pair.there)
