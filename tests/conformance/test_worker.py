"""The worker, its probes and what workers agree on, by the ids of docs/conformance.md."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Antichain, Barrier, CapabilityError, OperatorError, ProbeHandle, Sequencer, TimestampError
from timely.testing import simulate


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


def test_B1_a_probe_follows_its_input() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
    for r in range(10):
        assert not probe.done()
        assert probe.less_equal(r)
        assert probe.less_than(r + 1)
        assert not probe.less_than(r)
        handle.advance_to(r + 1)
        worker.step()
    handle.close()
    for _ in range(4):
        worker.step()
    assert probe.done()


def test_B1_a_probe_behind_a_nested_loop() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        with scope.iterative() as loop:
            around, again = loop.feedback()
            done, more = stream.enter(loop).concat(again).branch(lambda x: x > 0)
            more.map(lambda x: x - 1).connect_loop(around)
            probe = done.leave().probe()
    for r in range(5):
        handle.send(r)
        handle.advance_to(r + 1)
        worker.step_while(lambda: probe.less_than(handle.time))
        assert probe.frontier() == Antichain([r + 1])
    handle.close()
    worker.run()
    assert probe.done()


def test_B2_a_fresh_handle_is_done() -> None:
    probe: ProbeHandle[int] = ProbeHandle()
    assert list(probe.frontier()) == []
    assert probe.done()
    assert not probe.less_equal(0)


def test_B4_before_the_first_step_the_frontier_is_the_minimum() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        _handle, stream = scope.new_input()
        probe = stream.probe()
    assert probe.frontier() == Antichain([0])


def test_B4_while_the_dataflow_is_built_too() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
        assert probe.frontier() == Antichain([0])
        assert not probe.done()
        assert probe.less_equal(0)
        with scope.iterative() as loop:
            inner = stream.enter(loop).probe()
            assert inner.frontier() == Antichain([timely.Product(0, 0)])
        handle.advance_to(2)
        assert probe.less_than(1)
    assert (probe.frontier(), inner.frontier()) == (Antichain([0]), Antichain([timely.Product(0, 0)]))
    worker.step_while(lambda: probe.less_than(2))
    handle.close()
    worker.run()
    assert probe.done()
    assert inner.done()


def test_to_wait_for_a_dataflow_inside_of_its_own_block_is_an_error() -> None:
    worker = timely.Worker()
    with pytest.raises(timely.StalledError, match="still being built runs after its with-block"), worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        probe = stream.probe()
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))


@pytest.mark.parametrize("ask", [ProbeHandle.less_than, ProbeHandle.less_equal])
def test_a_probe_asked_about_a_wrong_type_is_an_error_that_names_its_times(ask: Any) -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        _, stream = scope.new_input()
        outside = stream.probe()
        with scope.iterative("rounds") as rounds:
            inside = stream.enter(rounds).probe()
    with pytest.raises(TimestampError, match=r"'probe' \(/df/rounds#\d/probe#0\): 1 is not .* type Product\[int, int\]") as error:
        ask(inside, 1)
    assert isinstance(error.value.__cause__, TypeError)
    with pytest.raises(TimestampError, match=r"'probe' \(/df/probe#1\): '1' is not a time of type int"):
        ask(outside, "1")


def test_one_handle_at_two_places_shows_both() -> None:
    worker = timely.Worker()
    both: ProbeHandle[int] = ProbeHandle()
    with worker.dataflow(int) as scope:
        left, lefts = scope.new_input()
        right, rights = scope.new_input()
        for stream in (lefts, rights):
            assert timely.operators.probe(stream, both) is both
    left.advance_to(5)
    worker.step()
    assert both.frontier() == Antichain([0])
    right.advance_to(3)
    worker.step()
    assert both.frontier() == Antichain([3])
    right.close()
    worker.step()
    assert both.frontier() == Antichain([5])
    assert not both.done()
    left.close()
    worker.run()
    assert both.done()


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_W11_sequencer(workers: int, seed: int | None) -> None:
    """Every worker pushes strings: the same order everywhere, the preloaded ones first, each worker's own in its order."""

    def program(worker: timely.Worker) -> list[str]:
        seen: list[str] = []
        with Sequencer(worker, ["preloaded 0", "preloaded 1"]) as sequence:
            for number in range(10):
                sequence.push(f"worker {worker.index}: {number}")
                worker.step()
                seen.extend(sequence)
            while len(seen) < 2 + 10 * worker.peers:
                worker.step_or_park(1.0)
                seen.extend(sequence)
        worker.run()
        assert list(sequence) == []
        return seen

    results = timely.execute(program, workers=workers) if seed is None else simulate(program, workers, seed).results
    assert all(seen == results[0] for seen in results)
    assert results[0][:2] == ["preloaded 0", "preloaded 1"]
    for index in range(workers):
        own = [element for element in results[0] if element.startswith(f"worker {index}:")]
        assert own == [f"worker {index}: {number}" for number in range(10)]


def test_W11_pushing_after_the_end_is_refused_and_earlier_elements_stay() -> None:
    worker = timely.Worker()
    sequence: Sequencer[int] = Sequencer(worker)
    sequence.push(1)
    sequence.close()
    with pytest.raises(CapabilityError, match="sequencer"):
        sequence.push(2)
    worker.run()
    assert list(sequence) == [1]


@given(st.integers(1, 3), st.integers(1, 4), st.none() | st.integers(0, 10**6))
def test_nobody_passes_a_barrier_before_all_have_come(workers: int, rounds: int, seed: int | None) -> None:
    come: list[int] = []

    def program(worker: timely.Worker) -> None:
        with Barrier(worker) as barrier:
            for number in range(rounds):
                come.append(number)
                barrier.wait()
                assert come.count(number) == workers

    if seed is None:
        timely.execute(program, workers=workers)
    else:
        simulate(program, workers, seed)
    assert len(come) == rounds * workers


def test_a_barrier_is_reached_only_when_the_slowest_has_come() -> None:
    reached: list[bool] = []

    def program(worker: timely.Worker) -> None:
        with Barrier(worker) as barrier:
            if worker.index == 0:
                barrier.advance()
                for _ in range(5):
                    worker.step()
                reached.append(barrier.reached())
                first.wait()
                worker.step_while(lambda: not barrier.reached())
            else:
                first.wait()
                barrier.wait()
            reached.append(barrier.reached())

    first = threading.Barrier(2)
    timely.execute(program, workers=2)
    assert reached == [False, True, True]
