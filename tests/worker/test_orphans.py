"""Processes end with the one that started them, and with each other: also one that is stopped, or whose interpreter hangs.

White box: the time that a process has to end is shortened.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

import timely
from tests.worker.processes import interrupted, python
from timely import ConfigurationError, WorkerError
from timely.execution import lifeline

_PARENT = """
import multiprocessing, os, sys, threading, time
import timely
from timely.execution import lifeline

lifeline.GRACE = 1.0

def program(worker):
    with worker.dataflow(int) as scope:
        scope.new_input()[1].exchange(lambda x: x).probe()
    os.write(1, f"{os.getpid()}\\n".encode())
    while worker.index or "sleep" not in sys.argv:
        worker.step()
    time.sleep(3600)

def fork():
    os.read(0, 1)  # not from sys.stdin, whose lock a fork would hold for ever
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    other.start()
    os.write(1, f"{other.pid}\\n".encode())

if "fork" in sys.argv:
    threading.Thread(target=fork, daemon=True).start()
timely.execute(program, workers=2, processes=2)
"""


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes one second for their clean-up, in place of ten that a test would wait for."""
    monkeypatch.setattr(lifeline, "GRACE", 1.0)


@contextlib.contextmanager
def followed(process: int) -> Iterator[int]:
    """Give a descriptor that is readable when the process has ended; end it after the block if it has not."""
    descriptor = os.pidfd_open(process)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)


def has_ended(descriptor: int, seconds: float = 600) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs descriptors of processes")
@pytest.mark.parametrize(("number", "way"), [(signal.SIGTERM, ""), (signal.SIGKILL, "sleep"), (signal.SIGKILL, "fork")])
def test_processes_end_with_the_one_that_started_them(number: signal.Signals, way: str) -> None:
    """Also one that sleeps in the user's code, and also where the parent has forked something else that goes on."""
    with contextlib.ExitStack() as stack:
        parent = stack.enter_context(python("-c", _PARENT, way, stdin=subprocess.PIPE))
        stack.callback(parent.kill)
        assert parent.stdout is not None
        assert parent.stdin is not None
        children = [stack.enter_context(followed(pid)) for pid in {int(parent.stdout.readline()) for _ in range(4)}]
        assert len(children) == 2
        if way == "fork":
            print(file=parent.stdin, flush=True)
            other = stack.enter_context(followed(int(parent.stdout.readline())))
        parent.send_signal(number)
        assert [has_ended(child) for child in children] == [True, True]
        if way == "fork":
            assert not has_ended(other, 0)


def _ignoring(worker: timely.Worker) -> None:
    """Sleep on the first worker, whatever interrupts it, until somebody ends the process."""
    if worker.index:
        return
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


@pytest.mark.usefixtures("short_grace")
def test_a_process_that_sleeps_is_ended_when_another_has_died() -> None:
    def program(worker: timely.Worker) -> None:
        if worker.index:
            os._exit(3)
        _ignoring(worker)

    with pytest.raises(WorkerError, match=r"process 1 \(workers 1 to 1\) ended with exit code 3"):
        timely.execute(program, processes=2)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("short_grace")
def test_a_process_that_ignores_an_interruption_is_ended() -> None:
    caller = os.getpid()

    def program(worker: timely.Worker) -> None:
        worker.all_gather(None)
        if worker.index:
            os.kill(caller, signal.SIGINT)
        _ignoring(worker)

    with interrupted():
        timely.execute(program, processes=2)
    assert multiprocessing.active_children() == []


def _in_a_pool(processes: int) -> str:
    try:
        return str(timely.execute(lambda worker: worker.index, processes=processes))
    except ConfigurationError as error:
        return str(error)


def test_a_daemonic_process_may_start_none_and_the_error_has_the_remedy() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        alone, several = pool.map(_in_a_pool, [1, 2])
    assert alone == "[0]"
    assert several.startswith("processes=2: ")
    assert "multiprocessing.Pool" in several
    assert "workers=2" in several


def stops(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.to_stream(iter([worker.index])).exchange(lambda x: x).probe()
    if worker.index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    worker.run()


def test_a_stopped_process_ends_the_run() -> None:
    with pytest.raises(timely.WorkerError, match=r"process 1 \(workers 1 to 1\) gave no sign of life for 1 s.*patience="):
        timely.execute(stops, processes=3, patience=1)


def test_a_process_that_works_or_waits_for_long_is_alive() -> None:
    """Its workers step nothing meanwhile: a thread beside them answers."""

    def program(worker: timely.Worker) -> int:
        end = time.monotonic() + 1.5
        while worker.index == 0 and time.monotonic() < end:
            pass
        if worker.index == 1:
            time.sleep(1.5)
        return worker.index

    assert timely.execute(program, processes=2, patience=1) == [0, 1]
    assert timely.execute(lambda worker: worker.index, processes=2, patience=math.inf) == [0, 1]


@pytest.mark.parametrize("patience", [0, -1, math.nan, "long"])
def test_patience_is_a_time(patience: float) -> None:
    with pytest.raises(timely.ConfigurationError, match="patience="):
        timely.execute(lambda worker: None, patience=patience)
