"""Windows over event time: each record comes out once for each of its windows, complete or late, by its two times alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from tests.operators.feeding import run, seeds, sizes
from timely import ConfigurationError, GraphError, OperatorError, TimestampError
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


def test_event_times_before_0_have_no_overlapping_windows() -> None:
    assert sliding(10, 10)(-3) == [Window(-10, 0)]
    with pytest.raises(TimestampError, match="sliding windows start from 0 on, and -3 is before"):
        sliding(10, 5)(-3)


events = st.tuples(st.integers(0, 30), st.none() | st.integers(0, 1), st.none() | st.integers(0, 9))
"""``(event time, key, value)``."""
column_sends = st.lists(st.tuples(st.integers(0, 30), events), max_size=20)

AGGREGATES: dict[str, Any] = {"rows": "count", "total": ("value", "sum"), "lowest": ("value", "min")}


def to_batch(rows: list[Any]) -> pa.RecordBatch:
    at, key, value = zip(*rows, strict=True)
    return pa.record_batch(
        {"value": pa.array(value, pa.int64()), "at": pa.array(at, pa.int32()), "key": pa.array(key, pa.int64())}
    )


def aggregated(complete: tuple[Any, Any, list[Any]]) -> tuple[Any, ...]:
    """What columns have of a window by record."""
    key, window, rows = complete
    values = [value for _, _, value in rows if value is not None]
    columns = (window.start, window.end, len(rows), sum(values) if values else None, min(values, default=None))
    return columns if key == "all" else (key, *columns)


def as_columns(row: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    at, key, value = row
    return value, at, key


def in_order(build: Any, sent: Any) -> Any:
    """What ``run`` returns, where rows are sent in the order of their times, and the frontier moves on with these."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        made = build(stream)
        seen, probe = [result.capture() for result in made], stream.probe()
    for time, row in sorted(sent, key=lambda pair: pair[0]):
        handle.advance_to(time)
        worker.step_while(lambda: probe.less_than(time))  # noqa: B023  # called at once
        worker.step()
        handle.send(row)
    handle.close()
    worker.run()
    return [Counter((time, row) for time, rows in result.messages for row in rows) for result in seen]


DUES = [None, lambda end, time: end // 7 + 4]


@settings(max_examples=15)
@given(column_sends, shapes, st.booleans(), st.sampled_from(DUES), sizes, seeds)
@example([(10, (9, 0, 1)), (9, (9, 0, 2)), (0, (30, None, None))], (10, 10), True, None, 1, None)
def test_windows_are_those_of_records(sent: Any, shape: Any, keyed: bool, due: Any, workers: int, seed: int | None) -> None:
    assign = sliding(*shape)

    def by_record(stream: Any) -> Any:
        key = (lambda row: row[1]) if keyed else (lambda row: "all")
        complete, late = windows(stream, assign, at=lambda row: row[0], key=key, due=due)
        return complete.map(aggregated), late.map(lambda pair: (*as_columns(pair[1]), pair[0].start, pair[0].end))

    def on_columns(stream: Any) -> Any:
        batches = stream.map_batch(to_batch)
        complete, late = windows(batches, assign, at="at", key="key" if keyed else None, due=due, **AGGREGATES)
        return complete.map(tuple), late.map(tuple)

    expected = run(by_record, sent)
    assert run(on_columns, sent, workers=workers, seed=seed) == expected
    assert in_order(on_columns, sent) == expected


@settings(max_examples=15)
@given(column_sends, st.integers(1, 6), st.booleans(), st.booleans(), sizes, seeds)
@example([(0, (5, 0, 1)), (2, (3, 0, 2)), (3, (2, 0, 3)), (0, (6, 1, 4)), (0, (8, 0, 5))], 3, True, False, 1, None)
@example([(0, (0, 0, 1)), (0, (5, 0, 2)), (5, (7, 0, 4))], 3, True, True, 1, None)  # a row at the time at which its session ends
def test_sessions_are_those_of_records(sent: Any, gap: int, keyed: bool, coarse: bool, workers: int, seed: int | None) -> None:
    due = (lambda end: end // 7 + 4) if coarse else None

    def by_record(stream: Any) -> Any:
        key = (lambda row: row[1]) if keyed else (lambda row: "all")
        complete, late = sessions(stream, gap, at=lambda row: row[0], key=key, due=due)
        return complete.map(aggregated), late.map(as_columns)

    def on_columns(stream: Any) -> Any:
        batches = stream.map_batch(to_batch)
        complete, late = sessions(batches, gap, at="at", key="key" if keyed else None, due=due, **AGGREGATES)
        return complete.map(tuple), late.map(tuple)

    expected = run(by_record, sent)
    assert run(on_columns, sent, workers=workers, seed=seed) == expected
    assert in_order(on_columns, sent) == expected


def batches_of(columns: dict[str, Any], assign: Callable[[Any], Any]) -> list[Any]:
    """The rows of what ``assign`` makes of a batch, by time."""

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        handle, stream = scope.new_input()
        handle.send_batch(pa.record_batch(columns))
        return assign(stream)[0]

    return timely.example(build)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_have_windows_of_timedeltas(unit: str) -> None:
    at = [datetime(2026, 1, 1, 9, 59), datetime(2026, 1, 1, 10), datetime(2026, 1, 1, 10, 40), datetime(1969, 12, 31, 23, 59)]
    columns = {"at": pa.array(at, pa.timestamp(unit)), "value": [1, 2, 3, 4]}
    hour, origin = timedelta(hours=1), np.datetime64("1969-12-31T00")

    def days(ends: Any, time: Any = None) -> Any:
        return (ends - origin) // np.timedelta64(1, "D") + 1

    outputs = batches_of(columns, lambda s: windows(s, tumbling(hour), at="at", due=days, total=("value", "sum")))
    day = (datetime(2026, 1, 1) - datetime(1969, 12, 31)).days + 1
    assert outputs == [
        (2, [(datetime(1969, 12, 31, 23), datetime(1970, 1, 1), 4)]),
        (day, [(at[1] - hour, at[1], 1), (at[1], at[1] + hour, 5)]),
    ]
    half = timedelta(minutes=30)
    outputs = batches_of(columns, lambda s: sessions(s, half, at="at", due=days, total=("value", "sum")))
    assert outputs == [(2, [(at[3], at[3] + half, 4)]), (day, [(at[0], at[1] + half, 3), (at[2], at[2] + half, 3)])]


def test_batches_may_differ_in_dictionaries_and_widths() -> None:
    batches = [
        pa.record_batch({"key": pa.array(keys).dictionary_encode(), "at": pa.array(at, kind)})
        for keys, at, kind in [(["a", "b"], [1, 2], pa.int8()), (["b", "a"], [3, 4], pa.uint64())]
    ]

    def build(scope: timely.ScopeBuilder[int]) -> Any:
        handle, stream = scope.new_input()
        for batch in batches:
            handle.send_batch(batch)
        result = windows(stream, tumbling(10), at="at", key="key", rows="count")[0]
        return result.concat(sessions(stream, 5, at="at", key=["key"], rows="count")[0])

    expected = [(8, [("b", 2, 8, 2)]), (9, [("a", 1, 9, 2)]), (10, [("a", 0, 10, 2), ("b", 0, 10, 2)])]
    assert timely.example(build) == expected


def test_timestamps_of_several_units_share_windows() -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            assign = tumbling(timedelta(seconds=10))
            captured = windows(stream, assign, at="at", due=lambda ends, time: 1, rows="count")[0].map(tuple).capture()
        unit = ["s", "ns"][worker.index]
        handle.send_batch(
            pa.record_batch({"at": pa.array([datetime(2026, 1, 1, 0, 0, s) for s in (1, 12, 25)], pa.timestamp(unit))})
        )
        handle.close()
        worker.run()
        return [row for _, rows in captured.messages for row in rows]

    one, other = timely.execute(program, workers=2)
    ends = [datetime(2026, 1, 1, 0, 0, s) for s in (10, 20, 30)]
    assert sorted(one + other) == [(end - timedelta(seconds=10), end, 2) for end in ends]


def test_event_times_at_the_ends_of_int64_are_apart() -> None:
    least, most = -(1 << 63) + 20, (1 << 63) - 20
    outputs = batches_of({"at": [most, least, 0]}, lambda s: sessions(s, 10, at="at", due=lambda ends: 1, rows="count"))
    assert outputs == [(1, [(at, at + 10, 1) for at in (least, 0, most)])]


HOUR = timedelta(hours=1)
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "missing time": (
        {"at": [1, None]},
        lambda s: windows(s, tumbling(9), at="at"),
        "'windows'.* 1 of 2 event times in 'at' are missing",
    ),
    "missing time of a session": ({"at": [None, 1]}, lambda s: sessions(s, 9, at="at"), "sessions: 1 of 2 event times in 'at'"),
    "fractions": ({"at": [1.5]}, lambda s: windows(s, tumbling(9), at="at"), "'at' are whole numbers, not double"),
    "text": ({"at": ["1"]}, lambda s: sessions(s, 9, at="at"), "'at' are whole numbers, not string"),
    "no timestamps": (
        {"at": [1]},
        lambda s: windows(s, tumbling(HOUR), at="at", due=lambda ends, time: 1),
        "'at' are timestamps, not int64",
    ),
    "too fine": (
        {"at": pa.array([1], pa.timestamp("s"))},
        lambda s: sessions(s, timedelta(milliseconds=1500), at="at", due=lambda ends: 1),
        "no whole numbers of the unit of 'at', which is timestamp",
    ),
    "no such column": ({"at": [1]}, lambda s: windows(s, tumbling(9), at="when"), r"needs each of the columns \['when'\] once"),
    "taken": ({"at": [1], "window_end": [1]}, lambda s: sessions(s, 9, at="at"), "none named window_start or window_end"),
    "too late": ({"at": [(1 << 63) - 9]}, lambda s: windows(s, tumbling(9), at="at"), "their windows beyond 64 bits"),
    "unsigned": (
        {"at": pa.array([1 << 63], pa.uint64())},
        lambda s: windows(s, tumbling(9), at="at"),
        "'at' do not fit into int64",
    ),
    "before 0": ({"at": [-1]}, lambda s: windows(s, sliding(4, 2), at="at"), "sliding windows start from 0 on"),
    "nested key": ({"at": [1], "key": [{"a": 1}]}, lambda s: sessions(s, 9, at="at", key="key"), "struct"),
    "due of another shape": (
        {"at": [1, 2]},
        lambda s: windows(s, tumbling(9), at="at", due=lambda ends, time: ends[:1]),
        "returns a whole number for each",
    ),
    "due in fractions": ({"at": [1]}, lambda s: sessions(s, 9, at="at", due=lambda ends: ends / 2), "returns a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused(case: str) -> None:
    columns, assign, message = REFUSED[case]
    with pytest.raises(OperatorError, match=message):
        batches_of(columns, assign)


def test_records_are_refused_by_name() -> None:
    with pytest.raises(OperatorError, match="windows with a column as at= is for Arrow record batches.* list"):
        timely.example(lambda scope: scope.to_stream([1]).apply(windows, tumbling(9), at="at")[0])


def test_what_does_not_go_together_is_refused_when_built() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        stream: Any = scope.to_stream([1])
        with pytest.raises(ConfigurationError, match="windows on columns takes tumbling"):
            windows(stream, lambda event: [], at="at")
        with pytest.raises(ConfigurationError, match="whole numbers, or timedeltas"):
            windows(stream, tumbling(0.5), at="at")
        with pytest.raises(ConfigurationError, match="windows of timestamps needs due="):
            windows(stream, tumbling(HOUR), at="at")
        with pytest.raises(GraphError, match="adds the columns window_start and window_end"):
            sessions(stream, 9, at="at", key=["window_start", "window_end"])
        with pytest.raises(GraphError, match="takes the name of a column as key="):
            sessions(stream, 9, at="at", key=["a", 1])  # type: ignore[list-item]
        with pytest.raises(GraphError, match="total=3 is neither"):
            windows(stream, tumbling(9), at="at", total=3)  # type: ignore[call-overload]
        with pytest.raises(ConfigurationError, match="makes columns of Arrow batches, here total, with"):
            windows(stream, tumbling(9), at=abs, total="count")  # type: ignore[call-overload]
        with pytest.raises(ConfigurationError, match="takes a function as key="):
            sessions(stream, 9, at=abs, key="key")  # type: ignore[call-overload]
        with (
            scope.iterative() as loop,
            pytest.raises(TimestampError, match="windows on columns is for times of type int, not Product"),
        ):
            windows(stream.enter(loop), tumbling(9), at="at")
