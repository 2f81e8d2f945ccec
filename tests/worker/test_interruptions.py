"""``execute``: what is no ``Exception``, an interruption above all, ends the run and reaches the caller, from any worker.

White box: one test raises signals inside the block in which ``execute`` holds them back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.worker.processes import exchanging, interrupted
from tests.worker.test_execute import every, failing, over_three
from timely.execution import lifeline
from timely.execution.processes import DeferredSignals


def interrupt(record: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interruption_is_not_swallowed(workers: int) -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream(range(6)).exchange(lambda x: x).inspect(interrupt).probe()

    with pytest.raises(KeyboardInterrupt):
        timely.execute(program, workers=workers)


def test_an_interruption_of_one_of_three_threads_ends_them_all() -> None:
    with pytest.raises(KeyboardInterrupt):
        over_three(failing(interrupt), "threads")


class Stop(BaseException):
    """What is no ``Exception``, and so is nothing that one catches in passing."""


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("kind", [Stop, GeneratorExit, KeyboardInterrupt])
def test_a_base_exception_is_passed_on_unchanged(kind: type[BaseException], workers: int, processes: int) -> None:
    def stop(record: int) -> None:
        raise kind("that will do")

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            probe = scope.to_stream([1]).exchange(lambda x: x).probe()
        if worker.index == 0:
            stop(0)
        worker.step_while(lambda: probe.less_than(1))

    for stopped in (program, every(stop)):
        with pytest.raises(kind, match="that will do") as failure:
            timely.execute(stopped, workers=workers, processes=processes)
        notes = "".join(getattr(failure.value, "__notes__", ()))
        assert ("in another process" in notes and ", in stop" in notes) == (processes > 1)


def test_an_interruption_of_a_process_reaches_the_caller(capfd: pytest.CaptureFixture[str]) -> None:
    """Of its main thread, which waits for two others."""

    def program(worker: timely.Worker) -> None:
        numbers, _ = exchanging(worker)
        if worker.index == 3:
            os.kill(os.getpid(), signal.SIGINT)
        worker.step_while(lambda: not numbers.closed)

    with interrupted():
        timely.execute(program, workers=2, processes=2)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2), (2, 2)])
def test_an_exit_in_an_operator_is_the_callers(workers: int, processes: int) -> None:
    """It ends the program with the code that it says, however the workers are shared out."""
    with pytest.raises(SystemExit) as ended:
        timely.execute(every(lambda record: sys.exit(5)), workers=workers, processes=processes)
    assert ended.value.code == 5


def test_an_interruption_of_the_waiting_main_thread_stops_the_workers() -> None:
    before = threading.active_count()

    def program(worker: timely.Worker) -> None:
        numbers, _ = exchanging(worker)
        if worker.index == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        worker.step_while(lambda: not numbers.closed)

    with interrupted():
        timely.execute(program, workers=2)
    assert threading.active_count() == before


def test_an_interruption_of_the_waiting_main_thread_waits_for_what_the_workers_clear_up() -> None:
    """Also of the one whose thread it waited for just then."""
    cleared: list[int] = []

    def program(worker: timely.Worker) -> None:
        exchanging(worker)
        try:
            if worker.index == 1:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            worker.step_while(lambda: True)
        finally:
            time.sleep(0.3 if worker.index == 0 else 0)
            cleared.append(worker.index)

    with interrupted():
        timely.execute(program, workers=2)
    assert sorted(cleared) == [0, 1]


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (1, 2), (2, 2)])
def test_an_interruption_of_the_process_that_waits_for_others_reaches_these(workers: int, processes: int, tmp_path: Path) -> None:
    """Which end by themselves then, with all that their programs have to clear up: they were killed, after ten seconds."""
    caller = os.getpid()

    def program(worker: timely.Worker) -> None:
        numbers, _ = exchanging(worker)
        try:
            worker.all_gather(None)  # all have come here
            if worker.index == 0:
                os.kill(caller, signal.SIGINT)
            worker.step_while(lambda: not numbers.closed)
        except BaseException as error:
            (tmp_path / str(worker.index)).write_text(f"{type(error).__name__}: {error}")
            raise

    with interrupted():
        timely.execute(program, workers=workers, processes=processes)
    cleared_up = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert sorted(cleared_up) == [str(index) for index in range(workers * processes)]
    if processes > 1:
        assert all("the run was interrupted" in text or "PeerLostError" in text for text in cleared_up.values()), cleared_up


COMPUTING = """
import os, signal, sys, threading
import timely

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background of a shell ignores it

def compute(record):
    try:
        os.write(1, b"begins\\n")  # whole, also where several write
        while True:
            pass
    finally:
        os.write(1, b"ends\\n")

def program(worker):
    with worker.dataflow(int) as scope:
        scope.to_stream([1], on="each").inspect(compute).probe()

where, workers, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
run = lambda: timely.execute(program, workers=workers, processes=processes, watch=False)
if where == "main":
    run()
else:
    threading.Thread(target=run, daemon=True).start()
    os.read(0, 1)  # sys.stdin has a lock, which a fork would copy
"""


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("where", ["main", "daemon thread"])
def test_stream_5_operators_that_compute_end_with_the_program(where: str, workers: int, processes: int) -> None:
    """After one interruption of the main thread, or its end; a daemon thread of one worker needs none."""
    command = [sys.executable, "-c", COMPUTING, where, str(workers), str(processes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdin is not None and running.stdout is not None
            for _ in range(workers * processes):
                assert running.stdout.readline() == "begins\n"
            if where == "main":
                running.send_signal(signal.SIGINT)
            out, error = running.communicate(input="" if where == "main" else "x", timeout=600)
        finally:
            running.kill()
    assert running.returncode in ((-signal.SIGINT, 130) if where == "main" else (0,)), error
    if where == "main" or processes > 1:
        assert out.split() == ["ends"] * workers * processes


def test_a_process_with_a_long_result_does_not_wait_for_one_that_was_interrupted_to_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifeline, "GRACE", 3600.0)  # nobody is killed: a process that waits would be seen
    caller = os.getpid()

    def program(worker: timely.Worker) -> bytes:
        worker.all_gather(None)
        if worker.index == 0:
            os.kill(caller, signal.SIGINT)
        time.sleep(0.3)
        return bytes(1 << 20)

    with interrupted():
        timely.execute(program, workers=2, processes=2)


class Interrupting:
    """A record that is interrupted whenever it is pickled."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("workers", "processes"), [(1, 4), (2, 2)])
def test_an_interruption_while_records_are_sent_ends_the_run(workers: int, processes: int) -> None:
    """Also where each of the connections to the others is interrupted, which were all to say that this worker has failed."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream([Interrupting()] if worker.index == 0 else []).broadcast().probe()
        worker.run()

    with pytest.raises(KeyboardInterrupt):
        timely.execute(program, workers=workers, processes=processes)


_AROUND: list[str] = []
"""Where around the next fork this process, or the child, is to be interrupted."""


def _interrupt_around_a_fork(moment: str) -> None:
    if moment in _AROUND:
        _AROUND.remove(moment)
        os.kill(os.getpid(), signal.SIGINT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=partial(_interrupt_around_a_fork, "before"),
        after_in_parent=partial(_interrupt_around_a_fork, "in the parent"),
        after_in_child=partial(_interrupt_around_a_fork, "in the child"),
    )


@pytest.mark.parametrize("moment", ["before", "in the parent", "in the child"])
def test_an_interruption_in_the_midst_of_a_fork_ends_the_run(moment: str) -> None:
    """Python prints and swallows what is raised there, and does nothing else that is to be done around a fork."""
    handlers: list[Any] = []
    _AROUND.append(moment)
    try:
        with interrupted():
            try:
                timely.execute(lambda worker: worker.all_gather(None), workers=1, processes=2)
            finally:
                handlers.append(signal.getsignal(signal.SIGINT))
    finally:
        _AROUND.clear()
    assert handlers == [signal.default_int_handler]


def test_every_signal_around_a_fork_is_handled_though_a_handler_raises() -> None:
    seen: list[int] = []

    def raising(number: int, frame: object) -> None:
        seen.append(number)
        raise InterruptedError(signal.Signals(number).name)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    usual = {number: signal.signal(number, raising) for number in numbers}
    try:
        with pytest.raises(InterruptedError), DeferredSignals():
            for number in [*numbers, signal.SIGINT]:
                signal.raise_signal(number)
            assert not seen
        assert sorted(seen) == sorted(numbers)
        assert all(signal.getsignal(number) is raising for number in numbers)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def test_processes_start_from_a_thread_which_may_set_no_handlers() -> None:
    collected: list[list[int]] = []
    thread = threading.Thread(
        target=lambda: collected.append(timely.execute(lambda worker: worker.index, workers=1, processes=2))
    )
    thread.start()
    thread.join()
    assert collected == [[0, 1]]
