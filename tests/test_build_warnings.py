"""Warnings while a dataflow is built: once, at the line of the program, and never for a right program."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import timely
from timely import TimelyWarning
from timely import differential as dd


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings that somebody would see who has set nothing."""
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("default")
        yield result


def messages(shown: list[warnings.WarningMessage]) -> list[str]:
    """What the warnings say, which are of the library's own kind, and of this file."""
    assert all(one.category is TimelyWarning and one.filename == __file__ for one in shown)
    return [str(one.message) for one in shown]


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


# -- what never meets ------------------------------------------------------------------------------------------------------


def test_keys_that_are_never_equal(shown: list[warnings.WarningMessage]) -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        rows: timely.Stream[int, tuple[Any, str]] = scope.to_stream([(1, "a"), (2, "b")])
        names: timely.Stream[int, tuple[Any, str]] = scope.to_stream([("1", "x")])
        return rows.join(names)

    def collections(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        rows: dd.Collection[int, Any] = dd.collection(scope, [((1, "a"), 1)])
        names: dd.Collection[int, Any] = dd.collection(scope, [((1, 2), 1)])
        return rows.antijoin(names.map(lambda pair: pair[0])).stream

    timely.example(build)
    timely.example(collections)
    first, second = messages(shown)
    assert "join#2 joins keys such as 1 on the left with '1' on the right, which are never equal: convert one side" in first
    assert "joins keys such as (1, 'a') on the left with (1, 2) on the right" in second


def test_keys_that_may_be_equal_are_joined_in_silence(shown: list[warnings.WarningMessage]) -> None:
    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        rows: timely.Stream[int, tuple[Any, str]] = scope.to_stream([(1, "a"), (None, "b")])
        names: timely.Stream[int, tuple[Any, str]] = scope.to_stream([(1.0, "x"), ("1", "y")])
        return rows.join(names)

    assert timely.example(build) == [(0, [(1, ("a", "x"))])]
    assert messages(shown) == []


# -- what is looked at before it was run -----------------------------------------------------------------------------------


def test_extract_before_the_run_says_so_once(shown: list[warnings.WarningMessage]) -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        seen = scope.to_stream([1, 2]).capture()
    for _ in range(3):
        line = here() + 1
        assert seen.extract() == []
    [text] = messages(shown)
    assert text.startswith("extract() of /df/capture#1 returns nothing, since its dataflow has not been run: call worker.run()")
    assert shown[0].lineno == line
    worker.run()
    assert seen.extract() == [(0, [1, 2])]


def test_extract_of_what_is_empty_after_a_step_says_nothing(shown: list[warnings.WarningMessage]) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        seen = stream.capture()
    worker.step()
    assert seen.extract() == []
    numbers.close()
    worker.run()
    assert seen.extract() == []
    assert shown == []


# -- what was never run ----------------------------------------------------------------------------------------------------


def test_a_dataflow_that_was_never_run_warns_when_its_worker_is_closed(shown: list[warnings.WarningMessage]) -> None:
    with timely.Worker() as worker, worker.dataflow(name="df") as scope:
        line = here() + 1
        scope.to_stream([1, 2]).inspect(print)
    [text] = messages(shown)
    assert text == "dataflow 'df' was built and never run: call worker.run(), or step the worker, before it is closed"
    assert shown[0].lineno == line


@pytest.mark.parametrize("ending", ["a step", "a drop", "an error", "a run"])
def test_one_that_was_run_or_dropped_or_is_in_trouble_is_not(shown: list[warnings.WarningMessage], ending: str) -> None:
    with pytest.raises(KeyError) if ending == "an error" else warnings.catch_warnings(), timely.Worker() as worker:
        with worker.dataflow() as scope:
            scope.to_stream([1]).inspect(lambda _: None)
        if ending == "a step":
            worker.step()
        elif ending == "a drop":
            worker.drop_dataflow(scope)
        elif ending == "a run":
            worker.run()
        else:
            raise KeyError
    assert shown == []


# -- what never leaves -----------------------------------------------------------------------------------------------------

Inside = Callable[[timely.Stream[int, int], timely.ScopeBuilder[int]], object]


def build(inside: Inside, workers: int = 1) -> None:
    """Run a dataflow with a region in which there is what ``inside(stream, outer scope)`` makes."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(name="df") as scope:
            numbers = scope.to_stream(iter([1, 2]))
            with scope.region("inner") as inner:
                inside(numbers.enter(inner), scope)

    timely.execute(program, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_forgotten_leave_warns_once(shown: list[warnings.WarningMessage], workers: int) -> None:
    line = here() + 1
    build(lambda stream, scope: stream.map(str).filter(bool), workers)
    [text] = messages(shown)
    assert text == (
        "nothing leaves scope /df/inner#1, and nothing in it captures or probes what 'filter' sends: call leave() on that stream"
    )
    assert shown[0].lineno == line


@pytest.mark.parametrize(
    "inside",
    [
        lambda stream, scope: stream.map(str).leave(),
        lambda stream, scope: stream.branch(bool)[0].leave(),
        lambda stream, scope: stream.inspect(lambda _: None),
        lambda stream, scope: stream.map(str).capture(),
        lambda stream, scope: stream.map(str).probe(),
    ],
)
def test_what_leaves_or_is_looked_at_inside_is_not(shown: list[warnings.WarningMessage], inside: Inside) -> None:
    build(inside)
    assert shown == []


# -- what every worker sends -----------------------------------------------------------------------------------------------


def received(send: Callable[[Any, timely.Worker], timely.Stream[int, Any]], workers: int) -> int:
    """How many records come in all, of what each worker sends."""

    def program(worker: timely.Worker) -> int:
        with worker.dataflow(name="df") as scope:
            seen: timely.Capture[int, Any] = send(scope, worker).capture()
        worker.run()
        return sum(len(batch) for _, batch in seen.messages)

    return sum(timely.execute(program, workers=workers))


def sent(records_of: Callable[[timely.Worker], object], workers: int, on: object = None) -> int:
    return received(lambda scope, worker: scope.to_stream(records_of(worker), on=on), workers)


def awaited(make: Callable[[timely.Worker], Any], on: object) -> int:
    return received(lambda scope, worker: scope.from_async("clock", make(worker), on=on), 2)


@pytest.mark.parametrize("records", [[1, 2, 3], (1, 2, 3), range(3), "abc", {1, 2, 3}, {1: 2, 2: 3, 3: 4}])
def test_the_same_records_on_every_worker_warn_once(shown: list[warnings.WarningMessage], records: object) -> None:
    assert sent(lambda worker: records, 3) == 9
    [text] = messages(shown)
    assert text.startswith("each of the 3 workers sends the same to /df/to_stream#0 (")
    assert "so that every record comes 3 times: give on=0 to have worker 0 send alone" in text


@pytest.mark.parametrize(
    ("records_of", "workers", "on", "expected"),
    [
        (lambda worker: [1, 2, 3], 1, None, 3),
        (lambda worker: [1, 2, 3], 2, 0, 3),
        (lambda worker: [1, 2, 3], 2, 1, 3),
        (lambda worker: [1, 2, 3], 2, "each", 6),
        (lambda worker: [1, 2, 3] if worker.index == 0 else [], 2, None, 3),
        (lambda worker: [3 * worker.index + n for n in range(3)], 2, None, 6),
        (lambda worker: ["go"], 2, None, 2),
        (lambda worker: iter([1, 2, 3]), 2, None, 6),
    ],
)
def test_what_is_meant_to_be_sent_is_not(
    shown: list[warnings.WarningMessage], records_of: Callable[[timely.Worker], object], workers: int, on: object, expected: int
) -> None:
    assert sent(records_of, workers, on) == expected
    assert shown == []


async def numbers() -> AsyncIterator[tuple[int, list[int]]]:
    yield 0, [1, 2]


def numbers_from(start: object) -> Callable[[], Any]:
    async def counted() -> AsyncIterator[tuple[int, list[object]]]:
        yield 0, [start, start]

    return lambda: counted()


@pytest.mark.parametrize("make", [lambda worker: numbers, lambda worker: numbers_from(7), lambda worker: numbers_from([1, 2])])
def test_stream_2_the_same_async_records_on_every_worker_warn_once(shown: Any, make: Callable[[timely.Worker], Any]) -> None:
    assert awaited(make, None) == 4
    [text] = messages(shown)
    assert text.startswith("each of the 2 workers sends the same to /df/clock#0 (what numbers")
    assert "so that every record comes 2 times: give on=0 to have worker 0 send alone, or on='each' if that is meant" in text


@pytest.mark.parametrize(
    ("make", "on", "expected"),
    [
        (lambda worker: numbers, 0, 2),
        (lambda worker: numbers, 1, 2),
        (lambda worker: numbers, "each", 4),
        (lambda worker: numbers_from(worker.index), None, 4),
        (lambda worker: numbers_from(object()), None, 4),  # what such values are on each worker is not known
        (lambda worker: functools.partial(numbers), None, 4),
    ],
)
def test_stream_2_what_is_meant_to_be_awaited_is_not(
    shown: list[warnings.WarningMessage], make: Callable[[timely.Worker], Any], on: object, expected: int
) -> None:
    assert awaited(make, on) == expected
    assert shown == []


@pytest.mark.parametrize("on", [2, -1, "all", 0.5])
def test_stream_2_a_worker_that_there_is_not_cannot_send(on: object) -> None:
    with pytest.raises(timely.GraphError, match=r"from_async\(on=.* '/df': give the number of one of the 2 workers"):
        awaited(lambda worker: numbers, on)
    with pytest.raises(timely.GraphError, match=r"to_stream\(on=.* '/df': give the number of one of the 2 workers"):
        sent(lambda worker: [1], 2, on)
