"""Windows over event time: each record comes out once for each of its windows, complete or late, by its two times alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import run, seeds, sizes
from timely import ConfigurationError, TimestampError
from timely.operators.keyed.windows import Window, sessions, sliding, tumbling, windows

sends = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20)
"""``(time of sending, event time)``."""
shapes = st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda shape: shape[1] <= shape[0])


@given(st.integers(0, 200), shapes)
def test_an_event_is_in_its_windows_and_in_no_other(event: int, shape: tuple[int, int]) -> None:
    size, every = shape
    expected = [Window(s, s + size) for s in range(0, 201, every) if s <= event < s + size]
    assert sliding(size, every)(event) == expected
    if size == every:
        assert tumbling(size)(event) == expected


@given(st.integers(0, 3000), shapes)
def test_events_in_fractions_are_in_the_windows_of_whole_ones(event: int, shape: tuple[int, int]) -> None:
    """Which windows, as in whole hundredths where there is no rounding; and each is one window, whatever event is asked for."""
    size, every = shape
    result = sliding(size / 10, every / 10)(event / 100)
    assert all(window.start <= event / 100 < window.end for window in result)
    for window in result:
        assert window.start == round(window.start / (every / 10)) * (every / 10)
    if event % 10:  # and at no edge of a window
        whole = sliding(10 * size, 10 * every)(event)
        assert [round(100 * window.start) for window in result] == [window.start for window in whole]
    if size == every:
        [window] = result
        [following] = tumbling(size / 10)(window.end)
        assert following.start == window.end


def test_events_in_fractions_that_share_a_window_come_together() -> None:
    def build(scope: Any) -> Any:
        events = scope.to_stream([0.25, 0.35])
        complete, _ = windows(events, sliding(0.2, 0.1), at=lambda x: x, due=lambda end, time: 1)
        return complete.map(lambda record: (record[1], sorted(record[2])))

    [(_, records)] = timely.example(build)
    assert [events for _, events in records] == [[0.25], [0.25, 0.35], [0.35]]


def complete(record: Any) -> tuple[Any, Window, tuple[Any, ...]]:
    key, window, records = record
    return key, window, tuple(sorted(records))


@given(sends, shapes, sizes, seeds)
def test_each_record_comes_out_once_for_each_window(
    sent: list[tuple[int, int]], shape: tuple[int, int], workers: int, seed: int | None
) -> None:
    assign = sliding(*shape)

    def build(stream: Any) -> Any:
        complete_ones, late = windows(stream, assign, at=lambda event: event, key=lambda event: event % 2)
        return complete_ones.map(complete), late

    outputs, late = run(build, sent, workers=workers, seed=seed)
    expected: dict[Any, list[int]] = {}
    missed: Counter[Any] = Counter()
    for time, event in sent:
        for window in assign(event):
            if time < window.end:
                expected.setdefault((window.end, event % 2, window), []).append(event)
            else:
                missed[time, (window, event)] += 1
    assert outputs == Counter((end, (key, window, tuple(sorted(x)))) for (end, key, window), x in expected.items())
    assert late == missed


class Moment(int):
    """A moment in seconds, as a type of times; as a path summary: so many seconds later."""

    @classmethod
    def minimum(cls) -> Moment:
        return Moment(0)

    identity = minimum

    def results_in(self, time: Moment, /) -> Moment | None:
        return Moment(self + time)

    followed_by = results_in

    @classmethod
    def is_total(cls) -> bool:
        return True


def test_a_window_comes_as_soon_as_the_frontier_has_reached_its_end() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        complete, late = windows(stream, tumbling(10), at=lambda x: x)
        seen, too_late = complete.capture(), late.capture()
    handle.send_batch([1, 15])
    handle.advance_to(9)
    for _ in range(3):
        worker.step()
    assert seen.messages == []
    handle.advance_to(10)
    for _ in range(3):
        worker.step()
    assert seen.drain() == [(10, [(None, Window(0, 10), [1])])]
    handle.close()
    worker.run()
    assert seen.drain() == [(20, [(None, Window(10, 20), [15])])]
    assert too_late.messages == []


@pytest.mark.parametrize("shape", [(0, 0), (5, 0), (5, 6), (5, -1)])
def test_windows_that_leave_gaps_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match="0 < every <= size"):
        sliding(*shape)


# -- sessions ----------------------------------------------------------------------------------------------------------


def grouped(events: list[int], gap: int) -> list[tuple[Window, tuple[int, ...]]]:
    """The sessions of the events of one key."""
    collected: list[list[int]] = []
    for event in sorted(events):
        if collected and event < collected[-1][-1] + gap:
            collected[-1].append(event)
        else:
            collected.append([event])
    return [(Window(group[0], group[-1] + gap), tuple(group)) for group in collected]


@given(sends, st.integers(1, 8), sizes, seeds)
def test_sessions_are_the_groups_of_events_in_time(sent: list[tuple[int, int]], gap: int, workers: int, seed: int | None) -> None:
    def build(stream: Any) -> Any:
        complete_ones, late = sessions(stream, gap, at=lambda event: event, key=lambda event: event % 2)
        return complete_ones.map(complete), late

    outputs, late = run(build, sent, workers=workers, seed=seed)
    expected = Counter(
        (window.end, (key, window, events))
        for key in range(2)
        for window, events in grouped([event for time, event in sent if time <= event and event % 2 == key], gap)
    )
    assert outputs == expected
    assert late == Counter((time, event) for time, event in sent if time > event)


def test_a_session_comes_when_it_is_over_and_not_before() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        complete, _ = sessions(stream, 10, at=lambda x: x)
        seen = complete.capture()
    handle.send_batch([5, 12])
    for promise, expected in [(21, []), (22, [(22, [(None, Window(5, 22), [5, 12])])])]:
        handle.advance_to(promise)
        for _ in range(3):
            worker.step()
        assert seen.messages == expected
    handle.close()
    worker.run()


@pytest.mark.parametrize("second", [lambda ms: ms // 1000, lambda ms: -(-ms // 1000)])
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=8).map(lambda sent: sorted(sent, key=lambda one: one[0])),
    st.integers(1, 25),
    sizes,
    seeds,
)
def test_sessions_over_times_that_are_coarser_than_events_are_the_same_in_every_schedule(
    second: Callable[[int], int], sent: list[tuple[int, int]], gap: int, workers: int, seed: int | None
) -> None:
    """An event at the time at which its session is complete is in time, whether it comes before the frontier does or after."""
    stamped = [(time, 1000 * time + 100 * tenths) for time, tenths in sent]

    def build(stream: Any) -> Any:
        complete_ones, late = sessions(stream, 100 * gap, at=lambda ms: ms, due=second)
        return complete_ones.map(complete), late

    outputs, late = run(build, stamped, workers=workers, seed=seed)
    expected = grouped([event for _, event in stamped], 100 * gap)
    assert outputs == Counter((second(window.end), (None, window, events)) for window, events in expected)
    assert not late


@pytest.mark.parametrize("steps", [0, 3])
def test_a_session_waits_for_events_at_the_time_at_which_it_is_complete(steps: int) -> None:
    worker = timely.Worker()
    with worker.dataflow(Moment) as scope:
        handle, stream = scope.new_input()
        complete, late = sessions(stream, 500, at=lambda ms: ms, due=lambda ms: Moment(-(-ms // 1000)))
        seen, missed = complete.capture(), late.capture()
    for promise, event in [(2, 2000), (3, 2300), (3, 2100), (4, 2200)]:
        handle.advance_to(Moment(promise))
        handle.send(event)
        for _ in range(steps):
            worker.step()
    handle.close()
    worker.run()
    assert seen.extract() == [(3, [(None, Window(2000, 2800), [2000, 2100, 2300])])]
    assert missed.extract() == [(4, [2200])]


def test_event_times_before_0_have_no_overlapping_windows() -> None:
    assert sliding(10, 10)(-3) == [Window(-10, 0)]
    with pytest.raises(TimestampError, match="sliding windows start from 0 on, and -3 is before"):
        sliding(10, 5)(-3)
