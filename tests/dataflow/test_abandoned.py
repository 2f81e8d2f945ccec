"""Capabilities and handles that nothing refers to any more: Python finds them in the middle of anything, and on any thread.

White box: a timer of the worker itself gives it something to wait for, beside the one operator that is looked at.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import timely
from timely import Capability, Product, Worker
from timely.dataflow import InputPort, OperatorInfo, OutputPort
from timely.worker.internals import timers

Logic = Callable[[InputPort[Any, Any], OutputPort[Any]], object]


class Job:
    """Has a capability, and is part of a cycle."""

    def __init__(self, capability: Capability[Any]) -> None:
        self.capability = capability
        self.myself = self


@pytest.fixture
def collected_at_every_turn() -> Iterator[None]:
    """The collector looks as often as it can at what is made meanwhile."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(2, 1, 1)
    yield
    gc.set_threshold(*before)


def jobs(times: Callable[[Any, int], Any]) -> Callable[[Capability[Any], OperatorInfo], Logic]:
    """Return the constructor of an operator that begins a job for each number, and lets go of the one that it had there."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Logic:
        at_work: dict[int, Job] = {}

        def logic(input: InputPort[Any, int], output: OutputPort[Any]) -> None:
            for arrived, batch in input:
                for number in batch:
                    at_work[number % 20] = Job(arrived.delayed(times(arrived.time, number)))
            if not input.frontier:
                at_work.clear()

        return logic

    return constructor


@pytest.mark.usefixtures("collected_at_every_turn")
@pytest.mark.parametrize("nested", [False, True], ids=["int", "Product"])
def test_the_collector_may_find_capabilities_while_others_are_counted(nested: bool) -> None:
    def later(time: Any, number: int) -> Any:
        return Product(time[0] + number % 50, time[1] + -number % 70) if nested else time + number % 50

    kind: Any = Product[int, int] if nested else int
    worker = Worker()
    with worker.dataflow(kind) as scope:
        handle, stream = scope.new_input()
        probe = stream.unary_frontier(timely.Pipeline, "jobs", jobs(later)).probe()
    for epoch in range(200):
        handle.advance_to(Product(epoch, 0) if nested else epoch)
        for number in range(20):
            handle.send(number * epoch)
        worker.step()
    handle.close()
    worker.run()
    assert probe.done()


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_times_that_only_garbage_holds_are_no_stall(workers: int, processes: int) -> None:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Logic:
        def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
            for arrived, _ in input:
                Job(arrived.retain())

        return logic

    def program(worker: Worker) -> bool:
        with worker.dataflow(int) as scope:
            numbers = scope.to_stream([worker.index])
            probe = numbers.exchange(lambda x: x).unary(timely.Pipeline, "forgets", constructor).probe()
        gc.disable()  # it looks only where it is asked to
        try:
            worker.run()
        finally:
            gc.enable()
        return probe.done()

    assert timely.execute(program, workers=workers, processes=processes) == [True] * workers * processes


def test_what_the_collector_finds_is_dropped_with_the_next_step() -> None:
    held: list[Job] = []
    worker, probe = holding(held)
    before = worker.idle
    held.clear()
    gc.collect()
    assert (before, worker.idle) == (True, False)
    assert probe.less_equal(0)
    worker.step()
    assert probe.done()


def test_what_another_thread_lets_go_of_wakes_the_worker() -> None:
    held: list[Job] = []
    worker, probe = holding(held)
    held.clear()
    waits = threading.Event()

    def collect() -> None:
        waits.wait()
        gc.collect()

    class Scheduler:
        """Waits as the worker would."""

        def choose(self, ready: Sequence[int]) -> Sequence[int]:
            return ready

        def park(self, timeout: float | None) -> None:
            waits.set()
            worker.transport.wait(timeout)
            parked.append(timeout)

    parked: list[float | None] = []
    worker.scheduler = Scheduler()
    timers(worker).after(600, lambda: None, 0)  # something to wait for
    thread = threading.Thread(target=collect)
    gc.disable()
    try:
        thread.start()
        worker.step_or_park(60)
        assert len(parked) == 1
        assert probe.done()  # it was woken before the minute was over, since nothing else drops it
    finally:
        gc.enable()
        thread.join()


def holding(held: list[Job]) -> tuple[Worker, timely.ProbeHandle[int]]:
    """Return a worker that has nothing to do, and a probe that waits for a job in the list."""

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[OutputPort[int]], object]:
        held.append(Job(capability))
        return lambda output: None

    worker = Worker()
    with worker.dataflow(int) as scope:
        probe = scope.source("holds", constructor).probe()
    for _ in range(3):
        worker.step()
    return worker, probe


def test_a_dropped_dataflow_releases_what_it_held() -> None:
    held: list[Job] = []
    worker, _ = holding(held)
    worker.drop_dataflow(worker.scopes[0])
    held.clear()
    gc.collect()
    assert worker.idle


@pytest.mark.skipif(timely.compiled, reason="an instance of a compiled class takes no weak references")
def test_what_was_noted_keeps_no_dataflow_that_was_dropped_since() -> None:
    held: list[Job] = []
    worker = holding(held)[0]
    operator = weakref.ref(worker.scopes[0].subgraph.children[0].scope)
    held.clear()
    gc.collect()
    worker.drop_dataflow(worker.scopes[0])
    gc.collect()
    assert operator() is None  # though the worker has not taken a step since


def test_a_constructor_that_lets_go_of_its_capability_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    woken: list[int] = []
    monkeypatch.setattr(worker.transport, "wake", lambda: woken.append(1))
    with worker.dataflow(int) as scope:
        probe = scope.source("nothing", lambda capability, info: lambda output: None).probe()
    worker.run()
    assert probe.done()
    assert not woken


def test_a_handle_that_the_collector_finds_is_closed_behind_what_it_has_sent() -> None:
    worker = Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = stream.capture()
    with worker.dataflow(int) as scope:
        also = scope.input_from(handle).capture()
    handle.send("first")
    handle.advance_to(3)
    handle.send("last")
    cycle: list[Any] = [handle]
    cycle.append(cycle)
    del handle, cycle
    gc.collect()
    worker.run()
    assert seen.extract() == also.extract() == [(0, ["first"]), (3, ["last"])]
