"""Operators with state by time or by key, against Python's own, for any times in any order on any number of workers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute
from timely import TimelyError
from timely.operators import all_reduce

pairs = st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(-5, 5))


def test_reduce_by_key_exchanges_one_pair_for_each_key_and_worker() -> None:
    dealt: list[str] = []

    def key(k: str) -> str:
        dealt.append(k)
        return k

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = stream.reduce_by_key(int.__add__, key).capture()
        for number in range(100):
            handle.send(("ab"[number % 2], number))
            worker.step()
        handle.close()
        worker.run()
        return [pair for _, pairs in captured.messages for pair in pairs]

    parts = execute(program, 3, None)
    assert sorted(pair for part in parts for pair in part) == [("a", 3 * 2450), ("b", 3 * 2500)]
    assert sorted(dealt) == ["a"] * 3 + ["b"] * 3


def test_an_error_of_the_combining_function_is_passed_on() -> None:
    def combine(a: int, b: int) -> int:
        raise TypeError(f"{a} and {b}")

    with pytest.raises(timely.OperatorError, match="reduce_by_key.*TypeError: 1 and 2") as caught:
        timely.example(lambda scope: scope.to_stream([("a", 1), ("a", 2)]).reduce_by_key(combine))
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_state_machine_forgets_a_key_whose_state_is_none() -> None:
    states: list[Any] = []

    def toggle(key: str, value: int, state: int | None) -> tuple[int | None, list[str]]:
        states.append(state)
        return (None if state is not None else value), [] if state is not None else [key]

    outputs = timely.example(lambda scope: scope.to_stream([("a", 1), ("a", 2), ("b", 3), ("a", 4)]).state_machine(toggle))
    assert outputs == [(0, ["a", "a", "b"])]
    assert states == [None, 1, None, None]


def test_state_machines_are_forgotten_when_their_stream_has_ended() -> None:
    class State:
        pass

    states: list[Any] = []

    def fold(key: str, value: int, state: Any) -> tuple[Any, list[int]]:
        new = State()
        states.append(weakref.ref(new))
        return new, [value]

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, stream), (other, others) = scope.new_input(), scope.new_input()
        probe = stream.state_machine(fold).concat(others).probe()
    handle.send(("a", 1))
    handle.advance_to(1)
    for _ in range(3):
        worker.step()
    assert [state() is None for state in states] == [False]
    handle.close()
    for _ in range(3):
        worker.step()
    assert [state() is None for state in states] == [True]
    assert not probe.done()
    other.close()
    worker.run()


@pytest.mark.parametrize(
    ("initial", "add"), [([], list.append), (set(), set.add), ({}, lambda state, record: state.update({record: record}))]
)
def test_accumulate_starts_every_time_from_a_list_a_set_or_a_dict_of_its_own(initial: Any, add: Any) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        handle, stream = scope.new_input()
        seen = stream.accumulate(initial, lambda state, record: add(state, record) or state).capture()
    for time in range(3):
        handle.send(time)
        handle.advance_to(time + 1)
    handle.close()
    worker.run()
    assert [(time, list(state)) for time, [state] in seen.extract()] == [(0, [0]), (1, [1]), (2, [2])]
    assert not initial


def test_state_of_a_time_is_released_with_it() -> None:
    """A record that cannot be seen any more is dropped by ``distinct``, ``aggregate`` and ``delay`` when its time is complete."""

    class Thing:
        pass

    def last(key: int, value: Thing, state: Thing | None) -> Thing:
        return value

    builds: list[Any] = [
        lambda s: s.map(lambda pair: pair[1]).distinct(key=lambda record: 0),
        lambda s: s.aggregate(last, lambda key, thing: None),
        lambda s: s.delay(lambda record, time: time + 1),
        lambda s: s.state_machine(lambda key, thing, state: (None, [])),
    ]
    for build in builds:
        worker = timely.Worker()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = build(stream).probe()
        thing = Thing()
        seen = weakref.ref(thing)
        handle.send((0, thing))
        del thing
        worker.step()
        handle.advance_to(5)
        worker.step_while(lambda: probe.less_than(5))  # noqa: B023  # called at once
        for _ in range(3):
            worker.step()
        gc.collect()
        assert seen() is None
        handle.close()
        worker.run()


def test_a_key_that_cannot_be_routed_is_an_error_that_names_the_operator() -> None:
    builds: dict[str, Any] = {
        "aggregate": lambda s: s.aggregate(lambda k, v, state: v, lambda k, state: state),
        "reduce_by_key": lambda s: s.reduce_by_key(max),
        "state_machine": lambda s: s.state_machine(lambda k, v, state: (state, [])),
    }
    for name, build in builds.items():
        with pytest.raises(TimelyError, match=rf"operator '{name}' .* of type object"):
            timely.example(lambda scope: build(scope.to_stream([(object(), 2)])))  # noqa: B023  # called at once


@pytest.mark.parametrize(("workers", "processes"), [(3, 1), (1, 2), (2, 2)])
def test_all_reduce_of_arrays_is_the_same_to_the_last_bit(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> bytes:
        with worker.dataflow(int) as scope:
            part = np.random.default_rng(worker.index).normal(size=1000) * 10.0 ** (4 * worker.index)
            whole = scope.to_stream([part]).apply(all_reduce, np.add).capture()
        worker.run()
        ((_, (results,)),) = whole.messages
        return bytes(results.tobytes())

    results = timely.execute(program, workers=workers, processes=processes)
    parts = [np.random.default_rng(i).normal(size=1000) * 10.0 ** (4 * i) for i in range(workers * processes)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert set(results) == {whole.tobytes()}


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2)])
def test_all_reduce_reads_batches_by_row_or_combines_them_as_wholes(workers: int, processes: int) -> None:
    def add_rows(one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]

    def merge(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
        return pa.concat_batches([one, other])

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            rows = stream.apply(all_reduce, add_rows).capture()
            wholes = stream.map_batch(lambda batch: [batch]).apply(all_reduce, merge).capture()
        handle.send_batch(pa.record_batch({"n": [worker.index, 1, 2], "s": ["a", "b", "c"]}).slice(0, 2))
        handle.close()
        worker.run()
        ((_, (whole,)),) = wholes.messages
        return rows.extract(), whole.to_pydict()

    peers = workers * processes
    expected = (
        [(0, [(sum(range(peers)) + peers, "ab" * peers)])],
        {"n": [n for index in range(peers) for n in (index, 1)], "s": ["a", "b"] * peers},
    )
    assert timely.execute(program, workers=workers, processes=processes) == [expected] * peers
