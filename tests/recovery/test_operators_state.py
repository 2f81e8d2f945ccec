"""Operators that keep something: a run that is cut at any boundaries gives what a run without a cut gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.cutting import Build, Cut, Sends, cuts, run, sends
from timely import operators
from timely.dataflow import route
from timely.operators.keyed.windows import sessions, sliding, windows


def _value(pair: tuple[Any, int]) -> int:
    return pair[1]


def _per_time(scope: Any, stream: Any) -> Any:
    """A running sum for each key, over the sums of each time."""
    sums = stream.aggregate(lambda key, value, total: (total or 0) + value, lambda key, total: (key, total))

    def fold(key: Any, value: int, total: int | None) -> tuple[int | None, list[Any]]:
        total = (total or 0) + value
        return (None if total > 12 else total), [(key, total)]

    return sums.state_machine(fold)


def _grouped(scope: Any, stream: Any) -> Any:
    """Sums and numbers of rows on columns, for the keys as text, since they are of several types."""

    def columns(pairs: list[Any]) -> Any:
        return pa.record_batch({"key": [str(key) for key, _ in pairs], "value": [value for _, value in pairs]})

    return stream.map_batch(columns).group_by("key", rows="count", total=("value", "sum"))


def _joined(scope: Any, stream: Any) -> Any:
    """Rows of columns joined with themselves, of which some wait for their time to be complete."""

    def columns(name: str) -> Any:
        return lambda pairs: pa.record_batch({"key": [str(key) for key, _ in pairs], name: [value for _, value in pairs]})

    return stream.map_batch(columns("left")).join(stream.map_batch(columns("right")), on="key")


def _pregap(scope: Any, stream: Any) -> Any:
    events = stream.map(lambda pair: (pair[0], 2 * pair[1] + 4))
    complete, late = sessions(events, 3, at=_value, key=lambda event: event[0])
    return complete.map(lambda result: (result[0], result[1], sorted(result[2]))), late


def _windowed(scope: Any, stream: Any) -> Any:
    complete, late = windows(stream, sliding(4, 2), at=_value, key=lambda pair: pair[0])
    return complete.map(lambda result: (result[0], result[1], sorted(result[2]))), late


def _on_columns(scope: Any, stream: Any) -> Any:
    """Windows and sessions on columns, for the keys as text, since they are of several types."""

    def columns(pairs: list[Any]) -> Any:
        return pa.record_batch({"key": [str(key) for key, _ in pairs], "at": [2 * value + 4 for _, value in pairs]})

    batches = stream.map_batch(columns)
    complete, late = windows(batches, sliding(4, 2), at="at", key="key", rows="count")
    ended, missed = sessions(batches, 3, at="at", key="key", rows="count")
    everyone, _ = sessions(batches, 3, at="at", rows="count")
    return tuple(result.map(tuple) for result in (complete, late, ended, missed, everyone))


def _notified(scope: Any, stream: Any) -> Any:
    """A closure of one's own, with its state declared."""
    groups: dict[tuple[int, Any], int] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            notificator.notify_at(capability.retain())
            for key, value in batch:
                groups[capability.time, key] = groups.get((capability.time, key), 0) + value
        for capability, _ in notificator:
            session = output.session(capability)
            for time, key in [place for place in groups if place[0] == capability.time]:
                session.give((key, groups.pop((time, key))))

    def register(info: timely.OperatorInfo) -> None:
        info.register_state(lambda: ((route(place[1]), (place, value)) for place, value in groups.items()), groups.update)

    return stream.unary_notify(timely.Exchange(lambda pair: pair[0]), "mine", [], logic, state=register)


class Tally(timely.Vertex[int]):
    """Sums by time and key, with the times that are to come and the ones that were asked for at the start."""

    def __init__(self) -> None:
        self.sums: dict[Any, dict[int, int]] = {}
        self.notify_at(2)

    def on_recv(self, port: int, batch: Any, time: int) -> None:
        self.notify_at(time)
        for key, value in batch:
            times = self.sums.setdefault(key, {})
            times[time] = times.get(time, 0) + value

    def on_notify(self, time: int) -> None:
        collected = [(key, times.pop(time)) for key, times in self.sums.items() if time in times]
        self.send_by(0, collected, time)

    def redistribute(self, states: Any, index: int, peers: int) -> Any:
        return {"sums": operators.redistribute_by_key([state["sums"] for state in states], index, peers)}


def _round_and_round(scope: Any, stream: Any) -> Any:
    with scope.iterative() as loop:
        handle, again = loop.feedback()
        known = stream.enter(loop).concat(again).distinct()
        known.filter(lambda pair: pair[1] > 0).map(lambda pair: (pair[0], pair[1] - 1)).connect_loop(handle)
        return known.leave()


UNARY: dict[str, Build] = {
    "state_machine": _per_time,
    "aggregate": lambda scope, stream: stream.aggregate(lambda k, v, total: (total or 0) + v, lambda k, total: (k, total)),
    "value_counts": lambda scope, stream: stream.value_counts(),
    "reduce_by_key": lambda scope, stream: stream.reduce_by_key(int.__add__),
    "group_by": _grouped,
    "join on columns": _joined,
    "distinct": lambda scope, stream: stream.distinct(),
    "distinct by key": lambda scope, stream: stream.distinct(key=lambda pair: pair[0]),
    "delay": lambda scope, stream: stream.delay(lambda pair, time: time + pair[1]),
    "delay_batch": lambda scope, stream: stream.delay_batch(lambda time: time + 2),
    "windows": _windowed,
    "sessions": _pregap,
    "windows and sessions on columns": _on_columns,
    "unary_notify": _notified,
    "vertex": lambda scope, stream: stream.vertex(Tally, pact=timely.Exchange(lambda pair: pair[0])),
    "loop": _round_and_round,
    "stateless": lambda scope, stream: stream.exchange(_value).map(_value).filter(bool).branch(lambda x: x > 2),
}


@pytest.mark.parametrize("name", UNARY)
@given(sends=sends, cuts=cuts, workers=st.integers(1, 3), compact=st.booleans())
@example(sends=[[(1, (0, 2))], [(0, (0, 2))], [], []], cuts=[(1, 1)], workers=2, compact=False)  # one record on either side
@example(sends=[[(2, (0, 2)), (2, (0, 2))], [], [], []], cuts=[(1, 2)], workers=1, compact=False)  # two states become one
@settings(max_examples=9)
def test_a_run_that_is_cut_gives_what_one_without_a_cut_gives(
    name: str, sends: Sends, cuts: list[Cut], workers: int, compact: bool
) -> None:
    build = UNARY[name]
    assert run(build, sends, cuts=cuts, workers=workers, compact=compact) == run(build, sends)
