"""A watchdog speaks when nothing has moved for long enough, once, and says why."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

import timely
from timely.errors import ConfigurationError
from timely.inspect import Watchdog


def ticking(step: float) -> Callable[[], float]:
    """A clock that has gone on by ``step`` each time it is read."""
    numbers = itertools.count()
    return lambda: step * next(numbers)


def test_it_speaks_once_for_each_halt() -> None:
    worker, heard = timely.Worker(), list[str]()
    with worker.dataflow(name="df") as scope:
        numbers, _ = scope.new_input()
    dog = Watchdog(worker, after=10, say=heard.append, clock=ticking(4))
    for _ in range(3):
        dog.look()
    assert heard == []
    for _ in range(10):
        dog.look()
    assert len(heard) == 1
    assert "/df/input#0" in heard[0]
    numbers.advance_to(7)
    worker.step()
    for _ in range(10):
        dog.look()
    assert len(heard) == 2
    assert "may still send at 7" in heard[1]


def test_it_says_nothing_of_what_moves_or_is_complete() -> None:
    worker, heard = timely.Worker(), list[str]()
    with worker.dataflow(name="df") as scope:
        numbers, _ = scope.new_input()
    dog = Watchdog(worker, after=10, say=heard.append, clock=ticking(4))
    for time in range(1, 12):
        numbers.advance_to(time)
        worker.step()
        dog.look()
    numbers.close()
    worker.run()
    for _ in range(10):
        dog.look()
    assert heard == []


def test_an_operator_that_does_not_return_is_named_with_the_line_that_it_is_in() -> None:
    spoken, heard = threading.Event(), list[str]()

    def say(text: str) -> None:
        heard.append(text)
        spoken.set()

    def dawdle(x: int) -> int:
        assert spoken.wait(60)
        return x

    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        scope.to_stream([1]).map(dawdle)
    with Watchdog(worker, after=0.02, say=say):
        worker.run()
    assert "'map' (/df/map#1" in heard[0]
    assert "in dawdle" in heard[0] or "in wait" in heard[0]


def test_a_time_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="greater than 0"):
        Watchdog(timely.Worker(), after=0)


def test_it_watches_again_in_a_second_block() -> None:
    worker, spoken, heard = timely.Worker(), threading.Event(), list[str]()

    def say(text: str) -> None:
        heard.append(text)
        spoken.set()

    with worker.dataflow(name="df") as scope:
        numbers, _ = scope.new_input()
    dog = Watchdog(worker, after=0.05, say=say)
    with dog:
        pass
    with dog:
        assert spoken.wait(60)
    assert "/df/input#0" in heard[0]
    numbers.close()


@pytest.mark.parametrize("kind", [RuntimeError, LookupError])
def test_it_goes_on_when_nobody_can_be_told(kind: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    worker, heard = timely.Worker(), list[str]()

    def fail(text: str) -> None:
        heard.append(text)
        raise kind("nobody there")

    with worker.dataflow(name="df") as scope:
        numbers, _ = scope.new_input()
    dog = Watchdog(worker, after=10, say=fail, clock=ticking(4))
    for _ in range(10):
        dog.look()
    numbers.advance_to(7)
    worker.step()
    for _ in range(10):
        dog.look()
    assert len(heard) == 2
    assert all(text in caplog.text for text in heard)
