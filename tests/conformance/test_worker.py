"""The worker, by the ids of docs/conformance.md."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

import timely
from timely import OperatorError


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 3)])
def test_W2_every_worker_runs_the_program(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[int]:
        lines: list[int] = []
        with worker.dataflow(int) as scope:
            scope.to_stream(range(10)).inspect(lines.append)
        return lines  # filled by the time that execute returns it: the worker goes on to the end of its dataflows

    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [list(range(10))] * (workers * processes)


def test_W3_step_while_returns_at_once_where_nothing_is_before_the_minimum() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
    handle.send(1)
    worker.step_while(lambda: probe.less_than(0))
    assert handle.time == 0
    assert not probe.done()


def test_W4_threadless() -> None:
    before = threading.active_count()
    worker = timely.Worker()
    lines: list[int] = []
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.inspect(lines.append).probe()
    for i in range(10):
        handle.send(i)
        handle.advance_to(i + 1)
        while probe.less_than(handle.time):
            worker.step()
    assert threading.active_count() == before
    assert lines == list(range(10))


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_W5_hello(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[str]:
        seen: list[str] = []
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).inspect(lambda x: seen.append(f"hello {x}")).probe()
        for i in range(10):
            if worker.index == 0:
                handle.send(i)
            handle.advance_to(i + 1)
            worker.step_while(lambda: probe.less_than(handle.time))
        return seen

    w = workers * processes
    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [[f"hello {i}" for i in range(index, 10, w)] for index in range(w)]


@pytest.mark.parametrize("length", [1, 10, 100])
@pytest.mark.parametrize("dataflows", [1, 20])
def test_W6_a_round_takes_two_steps_however_much_is_idle(dataflows: int, length: int) -> None:
    worker = timely.Worker()
    inputs, probes = [], []
    for _ in range(dataflows):
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            with scope.region() as region:
                inner = stream.enter(region)
                for _ in range(length):
                    inner = inner.unary(timely.Pipeline, "link", pass_on)
                probes.append(inner.leave().probe())
            inputs.append(handle)
    for round_ in range(2 * dataflows):
        handle, probe = inputs[round_ % dataflows], probes[round_ % dataflows]
        if round_ % 3:
            handle.send(round_)
        handle.advance_to(handle.time + 1)
        steps = 0
        while probe.less_than(handle.time):
            worker.step()
            steps += 1
        if round_:
            assert steps <= 2


def pass_on(capability: Any, info: timely.OperatorInfo) -> Any:
    def logic(input: Any, output: Any) -> None:
        for cap, batch in input:
            output.session(cap).give_batch(batch)

    return logic


def test_W10_dropping_a_dataflow_in_flight_frees_it_and_leaves_others_running() -> None:
    class State:
        """Something that a weak reference can follow."""

    worker = timely.Worker()
    state = State()
    followed = weakref.ref(state)

    def keep(record: int, state: State = state) -> int:
        return record

    with worker.dataflow(int, name="unwanted") as scope:
        handle, stream = scope.new_input()
        dropped = stream.map(keep).capture()
    with worker.dataflow(int, name="wanted") as other:
        other_handle, other_stream = other.new_input()
        seen = other_stream.capture()
    for i in range(3):
        handle.send(i)
        other_handle.send(i)
        if i < 2:
            worker.step()
    worker.drop_dataflow(scope)
    assert worker.dataflows == ["wanted"]
    worker.step()
    assert dropped.extract() == [(0, [0, 1])]  # what was in flight is gone
    handle.send(9)  # a handle that outlives its dataflow sends nowhere
    handle.close()
    other_handle.close()
    worker.run()
    assert seen.extract() == [(0, [0, 1, 2])]
    del state, keep, scope, handle, stream, dropped
    gc.collect()
    assert followed() is None


@pytest.mark.parametrize(("workers", "processes"), [(3, 1), (1, 3), (2, 2)])
def test_W12_a_worker_that_fails_ends_the_run(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        def fail(record: int) -> int:
            if worker.index == 1:
                raise ZeroDivisionError("of course")
            return record

        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).map(fail).probe()
        handle.send(1)
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        worker.run()  # the input is open: only the failure of another ends this

    with pytest.raises(OperatorError, match="on worker 1 raised ZeroDivisionError: of course") as failure:
        timely.execute(program, workers=workers, processes=processes)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
