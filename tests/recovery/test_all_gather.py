"""All-gather between workers: each gets the values of all, round by round, whatever the dataflows do.

White box: only a checkpoint asks whether a paused worker has anything to do.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest

import timely
from tests.recovery.test_boundary import run_late
from timely.errors import PeerLostError, RoutingError, StalledError
from timely.worker.internals import is_quiet


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (2, 2)])
def test_values_come_in_worker_order_as_often_as_asked(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> list[list[Any]]:
        return [worker.all_gather((number, worker.index)) for number in range(20)]

    peers = workers * processes
    expected = [[(number, index) for index in range(peers)] for number in range(20)]
    assert timely.execute(program, workers=workers, processes=processes) == [expected] * peers
    if processes == 1:
        assert run_late(program, workers, seed=workers) == [expected] * peers


def test_while_it_is_paused_nothing_runs_and_what_arrives_waits() -> None:
    def program(worker: timely.Worker) -> tuple[int, bool, int]:
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            seen = stream.exchange(lambda x: x).capture()
        while not worker.idle:
            worker.step()
        worker.paused = worker.index == 0
        worker.all_gather("built")
        if worker.index == 1:
            handle.send_batch([0, 2, 4])
            worker.step()
        worker.all_gather("sent")
        before, quiet = len(seen.messages), is_quiet(worker)
        worker.paused = False
        handle.close()
        worker.run()
        return before, quiet, sum(len(batch) for _, batch in seen.messages)

    zero, one = timely.execute(program, workers=2)
    assert zero == (0, False, 3)
    assert one[2] == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_a_peer_that_has_ended_is_a_stall_and_not_a_hang(processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        if worker.index == 0:
            worker.all_gather("anybody?")

    with pytest.raises(StalledError, match="a value to come from worker 1"):
        timely.execute(program, workers=3 - processes, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_peer_that_waits_for_something_else_is_a_stall_after_a_while(processes: int) -> None:
    def program(worker: timely.Worker, seconds: float, patience: float) -> list[int]:
        with worker.dataflow() as scope:
            handle, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).probe()
        end = time.monotonic() + seconds
        if worker.index == 1:
            worker.step_while(lambda: probe.less_than(1) and time.monotonic() < end)
        result = worker.all_gather(worker.index, patience)
        handle.close()
        return result

    with pytest.raises(StalledError, match="a value to come from worker 1, for all_gather.*: have every worker call"):
        timely.execute(functools.partial(program, seconds=3600, patience=1), workers=3 - processes, processes=processes)
    patient = functools.partial(program, seconds=0.1, patience=600)
    assert timely.execute(patient, workers=3 - processes, processes=processes) == [[0, 1]] * 2


def test_a_peer_that_fails_ends_it() -> None:
    def program(worker: timely.Worker) -> None:
        if worker.index == 1:
            raise ValueError("lost")
        with pytest.raises(PeerLostError, match="lost"):
            worker.all_gather(1)
        raise ValueError("received")

    with pytest.raises(ValueError, match="received|lost"):
        timely.execute(program, workers=2)


def test_a_value_that_cannot_be_sent_is_an_error_that_names_all_gather() -> None:
    with pytest.raises(RoutingError, match="a value for all_gather: "):
        timely.execute(lambda worker: worker.all_gather(threading.Lock()), processes=2)


def test_an_operator_cannot_gather() -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        scope.to_stream([1]).inspect(lambda x: worker.all_gather(x))
    with pytest.raises(timely.OperatorError, match="while one of its operators runs"):
        worker.run()
