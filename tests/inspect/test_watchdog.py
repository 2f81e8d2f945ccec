"""A watchdog speaks when nothing has moved for long enough, once, and says why.

White box: the detector is given its clock, and the movement of another process.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import timely
from tests.dataflow.own_scopes import Own
from timely.inspect.watchdog import StuckDetector
from timely.monitor.local_workers import Member


def ticking(step: float) -> Callable[[], float]:
    """A clock that has gone on by ``step`` each time it is read."""
    numbers = itertools.count()
    return lambda: step * next(numbers)


def detector_of(worker: timely.Worker, say: Callable[[str], object], thread: int | None = None) -> StuckDetector:
    """A detector whose clock goes on by 4 s with each look."""
    return StuckDetector([Member(worker, thread or threading.get_ident())], 10, say, ticking(4))


class Watched:
    """A worker with a detector; ``messages`` is what it has said."""

    def __init__(self, worker: timely.Worker | None = None) -> None:
        self.worker = worker or timely.Worker()
        self.messages: list[str] = []
        self._detector = detector_of(self.worker, self.messages.append)

    def look(self, times: int = 10, steps: int = 0) -> None:
        """Step so often before each look."""
        for _ in range(times):
            for _ in range(steps):
                self.worker.step()
            self._detector.look()


def hoarding(worker: timely.Worker) -> tuple[timely.InputHandle[int, int], list[Any]]:
    """A dataflow in which an operator keeps a capability for each time."""
    held: list[Any] = []

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(input: Any, output: Any) -> None:
            held.extend(cap.retain() for cap, _ in input)

        return logic

    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        stream.unary(timely.Pipeline, "hoarder", constructor)
    return numbers, held


def test_it_speaks_once_for_each_halt() -> None:
    watched = Watched()
    numbers, held = hoarding(watched.worker)
    numbers.send(1)
    numbers.advance_to(7)
    numbers.send(1)
    numbers.close()
    for _ in range(5):
        watched.worker.step()
    watched.look(3)
    assert watched.messages == []
    watched.look()
    assert len(watched.messages) == 1
    assert "holds 1 capability for 0" in watched.messages[0]
    held.pop(0)
    watched.worker.step()
    watched.look()
    assert len(watched.messages) == 2
    assert "holds 1 capability for 7" in watched.messages[1]


def test_one_who_only_waits_for_input_is_reported_once() -> None:
    watched = Watched()
    numbers, held = hoarding(watched.worker)
    for time in range(1, 5):
        watched.look()
        numbers.advance_to(time)
        watched.worker.step()
    assert len(watched.messages) == 1
    assert "may still send at 0" in watched.messages[0]
    numbers.send(1)
    numbers.advance_to(9)
    watched.look(3, steps=1)
    assert held
    watched.look()
    assert len(watched.messages) == 2
    assert "'hoarder'" in watched.messages[1]


def test_one_who_waits_for_a_moment_is_reported_once() -> None:
    watched = Watched(timely.Worker(clock=lambda: 0.0))

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(output: Any) -> None:
            capability.downgrade(capability.time + 1)
            info.activator.activate_after(3600)

        return logic

    with watched.worker.dataflow(int, name="df") as scope:
        scope.source("hourly", constructor).map(str)
    for _ in range(3):
        watched.worker.step()
        watched.look()
    assert len(watched.messages) == 1
    detector = StuckDetector([Member(watched.worker)], 10, watched.messages.append, ticking(4), inputs=False)
    for _ in range(10):
        detector.look()
    assert len(watched.messages) == 1


def test_it_says_nothing_of_what_moves_or_is_complete() -> None:
    watched = Watched()
    with watched.worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        stream.map(str).probe()
    for time in range(1, 12):
        numbers.advance_to(time)
        watched.look(1, steps=1)
    for _ in range(10):
        numbers.send(1)  # which comes and goes at one time
        watched.look(1, steps=1)
    numbers.close()
    watched.worker.run()
    watched.look()
    assert watched.messages == []


@pytest.mark.parametrize("kind", [RuntimeError, LookupError])
def test_it_goes_on_when_nothing_can_be_reported(kind: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    worker, messages = timely.Worker(), list[str]()

    def fail(text: str) -> None:
        messages.append(text)
        raise kind("nobody there")

    numbers, held = hoarding(worker)
    detector = detector_of(worker, fail)
    numbers.send(1)
    numbers.advance_to(1)
    numbers.send(1)
    numbers.close()
    for _ in range(3):
        worker.step()
    for _ in range(10):
        detector.look()
    held.pop()
    worker.step()
    for _ in range(10):
        detector.look()
    assert len(messages) == 2
    assert all(text in caplog.text for text in messages)


def test_one_who_only_looks_again_and_again_has_not_moved() -> None:
    watched = Watched()

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        return lambda input, output: info.activator.activate()

    with watched.worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        stream.unary(timely.Pipeline, "poller", constructor)
    numbers.send(1)
    numbers.close()
    watched.look(steps=1)
    [text] = watched.messages
    assert "'poller' (/df/poller#1" in text
    watched.worker.close()


def test_what_moves_in_another_process_is_movement() -> None:
    worker, messages = timely.Worker(), list[str]()
    numbers, _ = hoarding(worker)
    elsewhere = iter([*range(10), *[10] * 10])
    detector = StuckDetector([Member(worker)], 10, messages.append, ticking(4), elsewhere=lambda: next(elsewhere))
    for _ in range(10):
        detector.look()
    assert messages == []
    for _ in range(10):
        detector.look()
    assert len(messages) == 1
    numbers.close()


def looping(worker: timely.Worker, keep: Callable[[int], bool]) -> timely.InputHandle[int, int]:
    """A dataflow that sends round, and adds one to, each record of which that is to be kept."""
    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.iterative("again") as loop:
            handle, again = loop.feedback()
            done, more = stream.enter(loop).concat(again).map(lambda x: x + 1).branch(keep)
            more.connect_loop(handle)
            done.leave().probe()
    return numbers


def test_an_endless_loop_is_reported_once_an_epoch() -> None:
    watched = Watched()
    looping(watched.worker, lambda x: True).send(0)
    watched.look(20, steps=30)
    [text] = watched.messages
    assert "the loop /df/again#1 has gone from round" in text
    assert "/df is still at 0. If it is to end" in text


@pytest.mark.parametrize("closed", [True, False])
def test_stream_3_a_loop_in_no_nested_scope_is_reported_once_nothing_else_sends(closed: bool) -> None:
    watched = Watched()
    with watched.worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        handle, again = scope.feedback()
        stream.concat(again).connect_loop(handle)
    numbers.send(0)
    for epoch in range(20):
        if closed:
            numbers.close()
        else:
            numbers.advance_to(30 * epoch)
        watched.look(1, steps=30)
    if closed:
        [text] = watched.messages
        assert "the loop in /df has gone from round" in text and "nothing else sends any more. If it is to end" in text
    else:
        assert watched.messages == []
    watched.worker.drop_dataflow(scope)


class Restless(Own):
    """A custom scope that always says it has work left."""

    def __init__(self, patient: bool) -> None:
        super().__init__(0)
        self.patient = patient

    def work(self, *counts: Any) -> bool:
        return True


@pytest.mark.parametrize("patient", [False, True])
def test_stream_4_a_custom_scope_that_never_ends_is_named(patient: bool) -> None:
    watched = Watched()
    with watched.worker.dataflow(int, name="df") as scope:
        scope.add_scope(Restless(patient), [])[0].probe()
    watched.look(steps=1)
    [text] = watched.messages
    assert text.startswith("nothing has moved for")
    assert "scope 'Restless' (/df/Restless#0, built at " in text
    assert "return False once nothing is unreported" in text
    assert text.endswith("and call activate() until then, since it is patient") == patient
    watched.worker.drop_dataflow(scope)


def test_loops_that_end_are_not_reported() -> None:
    watched = Watched()
    numbers = looping(watched.worker, lambda x: x % 50 != 0)
    for epoch in range(1, 20):
        numbers.send(0)
        numbers.advance_to(epoch)
        watched.look(1, steps=30)
    assert watched.messages == []
