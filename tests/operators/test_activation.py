"""Operators that run again of their own accord, later, or when another thread says so; and sources that stop early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import timely
from timely import Capability, ConfigurationError, OperatorError, OperatorInfo, StalledError
from timely.testing import simulate
from timely.worker import thread_transports


class Clock:
    """A clock that somebody has to set, and a scheduler for which waiting means that time goes by."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float | None] = []

    def __call__(self) -> float:
        return self.now

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        return active

    def park(self, timeout: float | None) -> None:
        self.waits.append(timeout)
        self.now += timeout or 0.0


def ticking(clock: Callable[[], float], pauses: Sequence[float], seen: list[float]) -> Any:
    """The constructor of a source that sends when each pause is over, and notes by the clock when that was."""

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
        left = list(pauses)

        def logic(output: Any) -> None:
            seen.append(clock())
            output.session(capability).give(len(left))
            if left:
                info.activator.activate_after(left.pop(0))
            else:
                capability.drop()

        return logic

    return constructor


def test_a_waiting_worker_is_awake_in_time() -> None:
    clock, seen = Clock(), list[float]()
    worker = timely.Worker(scheduler=clock, clock=clock)
    with worker.dataflow(int) as scope:
        captured = scope.source("ticks", ticking(clock, [5.0, 0.25, 100.0], seen)).capture()
    worker.run()
    assert seen == [0.0, 5.0, 5.25, 105.25]
    assert clock.waits == [5.0, 0.25, 100.0]
    assert captured.extract() == [(0, [0, 1, 2, 3])]


def test_the_earliest_comes_first_and_nothing_comes_early() -> None:
    clock = Clock()
    runs: list[tuple[float, int]] = []

    def numbered(number: int, delays: Sequence[float]) -> Any:
        def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
            for delay in delays:
                info.activator.activate_after(delay)

            def logic(output: Any) -> None:
                runs.append((clock.now, number))
                if clock.now >= 9:
                    capability.drop()

            return logic

        return constructor

    worker = timely.Worker(clock=clock)
    with worker.dataflow(int) as scope:
        scope.source("one", numbered(1, [3.0, 9.0]))
        scope.source("two", numbered(2, [1.0, 9.0]))
    for now in range(10):
        clock.now = float(now)
        worker.step()
    assert runs == [(0.0, 1), (0.0, 2), (1.0, 2), (3.0, 1), (9.0, 1), (9.0, 2)]
    assert not worker.step()


def test_step_or_park_waits_no_longer_than_its_timeout() -> None:
    clock, seen = Clock(), list[float]()
    worker = timely.Worker(scheduler=clock, clock=clock)
    with worker.dataflow(int) as scope:
        scope.source("ticks", ticking(clock, [5.0], seen))
    worker.step()
    worker.step_or_park(2.0)
    assert clock.waits == [2.0]
    worker.step_or_park(None)
    assert clock.waits == [2.0, 3.0]
    assert seen == [0.0, 5.0]


def test_one_that_is_dropped_is_not_waited_for() -> None:
    clock, seen = Clock(), list[float]()
    worker = timely.Worker(scheduler=clock, clock=clock)
    with worker.dataflow(int) as unwanted:
        unwanted.source("ticks", ticking(clock, [3600.0], seen))
    with worker.dataflow(int) as scope:
        handle, _ = scope.new_input()
    worker.step()
    worker.drop_dataflow(unwanted)
    with pytest.raises(StalledError, match="input"):
        worker.run()
    assert clock.waits == []
    handle.close()
    worker.run()


def test_a_timer_of_an_unfinished_dataflow_stays_while_the_worker_waits_for_another() -> None:
    clock = Clock()
    worker = timely.Worker(scheduler=clock, clock=clock)
    with worker.dataflow(int, name="other"):
        pass
    with worker.dataflow(int, name="open") as other:
        handle, _ = other.new_input()
    runs: list[float] = []

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
        info.activator.activate_after(5.0)

        def logic(output: Any) -> None:
            runs.append(clock.now)
            if clock.now >= 5:
                capability.drop()

        return logic

    with worker.dataflow(int, name="building") as scope:
        scope.source("late", constructor)
        for _ in range(3):
            worker.step_or_park(1.0)
    handle.close()
    worker.run()
    assert runs[-1] == 5.0


def test_what_was_never_finished_or_is_over_is_not_waited_for() -> None:
    clock, activators = Clock(), []
    worker = timely.Worker(scheduler=clock, clock=clock)

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
        activators.append(info.activator)
        info.activator.activate_after(50.0)
        return lambda output: None

    with pytest.raises(KeyError), worker.dataflow(int) as scope:
        scope.source("late", constructor)
        raise KeyError
    with worker.dataflow(int) as scope:
        scope.source("over soon", constructor)
    with worker.dataflow(int) as scope:
        handle, _ = scope.new_input()
    for _ in range(3):
        worker.step()
    activators[-1].activate_after(50.0)
    activators[-1].activate()
    with pytest.raises(StalledError, match="input"):
        worker.run()
    assert clock.waits == []
    handle.close()
    worker.run()


@pytest.mark.parametrize("seconds", [float("inf"), 1e12])
@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_a_timer_further_off_than_a_system_can_wait(seconds: float, workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> int:
        runs: list[int] = []

        def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
            bell = info.activator.new_sync_activator()

            def logic(output: Any) -> None:
                runs.append(1)
                if len(runs) == 1:
                    info.activator.activate_after(seconds)
                    threading.Timer(0.05, bell.activate).start()
                else:
                    capability.drop()

            return logic

        with worker.dataflow(int) as scope:
            scope.source("one day", constructor)
        worker.run()
        return len(runs)

    assert timely.execute(program, workers=workers, processes=processes) == [2] * workers * processes


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None])
def test_less_than_no_time_is_refused(seconds: Any) -> None:
    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[[Any], object]:
        return lambda output: info.activator.activate_after(seconds)

    with pytest.raises(OperatorError, match="give a number of seconds of at least 0") as failure:
        timely.example(lambda scope: scope.source("late", constructor))
    assert isinstance(failure.value.__cause__, ConfigurationError)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_real_and_simulated_workers_wake_up(workers: int) -> None:
    """Every worker has a source that goes on later; nobody takes the run for stalled meanwhile."""

    def program(worker: timely.Worker) -> list[int]:
        with worker.dataflow(int) as scope:
            ticks = scope.source("ticks", ticking(lambda: 0.0, [0.002] * 3, []))
            seen = ticks.exchange(lambda x: x).capture()
        worker.run()
        return sorted(x for _, batch in seen.messages for x in batch)

    expected = [sorted([x for x in range(4) if x % workers == w] * workers) for w in range(workers)]
    assert timely.execute(program, workers=workers) == expected
    for seed in range(3):
        assert simulate(program, workers, seed).results == expected


def test_with_peers_a_worker_that_waits_for_a_timer_has_not_stalled() -> None:
    """Longer than it takes to find out that everybody waits in vain, by clocks that go by when a worker waits."""
    clocks = [Clock(), Clock()]
    pairs = zip(thread_transports(2), clocks, strict=True)
    workers = [timely.Worker(transport, clock, clock) for transport, clock in pairs]
    seen: list[float] = []
    captured = []
    for worker, clock in zip(workers, clocks, strict=True):
        with worker.dataflow(int) as scope:
            pauses = [50.0] if worker.index == 0 else []
            captured.append(scope.source("ticks", ticking(clock, pauses, seen)).exchange(lambda x: 1).capture())
    for _ in range(300):
        for worker in workers:
            worker.run_step(1.0)
    assert [worker.dataflows for worker in workers] == [[], []]
    assert [record for _, batch in captured[1].messages for record in batch].count(0) == 2
    assert 50.0 in seen
    for worker in workers:
        worker.transport.close(0.0)


# -- early stop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("deed", ["step", "run", "run_step", "step_while", "step_or_park"])
def test_an_operator_does_not_step_its_worker(deed: str, workers: int) -> None:
    """What one activation reads, sends and holds is one statement, so nothing goes on in the middle of it."""

    def program(worker: timely.Worker) -> None:
        deeds: dict[str, Callable[[], object]] = {
            "step": worker.step,
            "run": worker.run,
            "run_step": worker.run_step,
            "step_while": lambda: worker.step_while(lambda: True),
            "step_or_park": lambda: worker.step_or_park(0.0),
        }
        with worker.dataflow(int) as scope:
            scope.to_stream([1, 2]).map(lambda x: deeds[deed]())
        worker.run()

    with pytest.raises(OperatorError, match=r"operator 'map' .* is stepped while one of its operators runs"):
        timely.execute(program, workers=workers)
