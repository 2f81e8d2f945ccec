"""What is known of a type of times is one object, whoever asks first; Python's totally ordered types are times as they stand."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Self

import pytest

import timely
from timely.progress import Step, lattice, time_domain


class Slow(int):
    """Times of which the least one is found only when two threads have asked for it."""

    asked = threading.Barrier(2)

    @classmethod
    def minimum(cls) -> Self:
        cls.asked.wait()
        return cls(0)

    @classmethod
    def identity(cls) -> Step:
        return Step(0)


def test_threads_that_ask_at_once_get_one_domain() -> None:
    collected: list[Any] = []
    threads = [threading.Thread(target=lambda: collected.append(time_domain(Slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(collected) == 2
    assert collected[0] is collected[1] is time_domain(Slow)


TIMES: list[tuple[Any, list[Any]]] = [
    (datetime, [datetime(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 3, 1)]),
    (date, [date(2026, 1, 1), date(2026, 1, 2), date(2026, 3, 1)]),
    (Decimal, [Decimal("0.1"), Decimal("0.25"), Decimal("3")]),
    (float, [0.5, 1.0, 2.5]),
    (str, ["a", "ab", "b"]),
    (bytes, [b"a", b"ab", b"b"]),
    (tuple[int, str], [(1, "b"), (1, "c"), (2, "a")]),
    (tuple[date, int], [(date(2026, 1, 1), 5), (date(2026, 1, 2), 0), (date(2026, 1, 2), 1)]),
]


@pytest.mark.parametrize(("kind", "times"), TIMES)
def test_a_dataflow_and_a_loop_have_such_times(kind: Any, times: list[Any]) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(kind) as scope:
            numbers, stream = scope.new_input()
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                small, large = stream.enter(loop).concat(again).branch(lambda x: x >= 100)
                small.map(lambda x: 2 * x).connect_loop(handle)
                result = large.leave()
            seen, probe = result.capture(), result.probe()
        for number, time in enumerate(times):
            numbers.advance_to(time)
            numbers.send(number + 1)
            assert probe.less_equal(time)
            worker.step_while(lambda: probe.less_than(time))  # noqa: B023  # called at once
        numbers.close()
        worker.run()
    assert seen.extract() == [(time, [size]) for time, size in zip(times, [128, 128, 192], strict=True)]


@pytest.mark.parametrize(("kind", "times"), TIMES)
def test_they_have_bounds(kind: Any, times: list[Any]) -> None:
    bounds = lattice(kind)
    assert bounds.lub(times[0], times[2]) == times[2]
    assert bounds.glb is not None
    assert bounds.glb(times[0], times[2]) == times[0]
    assert time_domain(kind).minimum < times[0]
    in_loop = lattice(timely.Product[kind, int])
    assert in_loop.lub(timely.Product(times[0], 3), timely.Product(times[1], 1)) == (times[1], 3)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
        (datetime, date(2026, 1, 1)),
        (date, datetime(2026, 1, 1)),
        (float, float("nan")),
        (float, 1),
        (Decimal, Decimal("NaN")),
        (str, b"a"),
        (tuple[int, str], (1, 2)),
        (tuple[int, str], (1,)),
        (tuple[int, str], (-1, "a")),
    ],
)
def test_another_value_is_refused(kind: Any, wrong: Any) -> None:
    with timely.Worker() as worker:
        with worker.dataflow(kind) as scope:
            numbers, _ = scope.new_input()
        with pytest.raises(timely.TimestampError):
            numbers.advance_to(wrong)
        numbers.close()


def test_a_tuple_of_a_partial_order_has_no_lexicographic_one() -> None:
    with pytest.raises(timely.TimestampError, match="lexicographically"):
        time_domain(tuple[timely.Product[int, int], int])


def test_a_cycle_that_nothing_advances_is_refused() -> None:
    with timely.Worker() as worker, pytest.raises(timely.TimelyError), worker.dataflow(str) as scope:
        scope.feedback()
