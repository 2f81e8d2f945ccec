"""A run shows how far it is on a terminal, and says in the log when it is stuck; it costs nothing where neither is wanted.

White box: how soon a line is shown is set, and so is which process asks which; that a run that nobody watches starts no thread
and has no tracer is looked up.
"""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import timely
from tests.support.terminal import Terminal
from timely import Worker
from timely.errors import ConfigurationError
from timely.execution import run_monitor
from timely.execution.local_run import execute_watched
from timely.inspect.capability_holders import MOVEMENT
from timely.monitor.input_counts import InputCounts, records_sent
from timely.monitor.local_workers import ControlChannel, LocalWorkers, control_channels, local_workers_of
from timely.monitor.terminal import StatusLine
from timely.monitor.watch_settings import WatchSettings
from timely.worker.internals import tracers


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal, on which a line is shown at once; a test makes it the standard error with ``shown_on``."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(run_monitor, "SHOWN_AFTER", 0.01)
    monkeypatch.setattr(run_monitor, "SHOWN_EVERY", 0.01)
    terminal = Terminal()
    yield terminal
    terminal.close()


@contextlib.contextmanager
def shown_on(terminal: Terminal) -> Iterator[None]:
    """Have the terminal be the standard error; not in a fixture, after which pytest puts its own there."""
    before, sys.stderr = sys.stderr, terminal.stream
    try:
        yield
    finally:
        sys.stderr = before


def counting(worker: timely.Worker, on: Callable[[], bool]) -> None:
    """Send records, epoch by epoch, as long as somebody wants."""
    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        probe = stream.map(str).probe()
    time = 0
    while on():
        numbers.send_batch(list(range(100)))
        time += 1
        numbers.advance_to(time)
        while probe.less_than(time):
            worker.step()
        threading.Event().wait(0.001)
    numbers.close()


BEFORE: set[threading.Thread] = set()
"""The threads that were there before the test, which are not its business."""


@pytest.fixture(autouse=True)
def others() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def threads() -> set[str]:
    return {thread.name for thread in set(threading.enumerate()) - BEFORE if thread.name.startswith("timely")}


def test_a_run_shows_epochs_and_records_on_a_terminal_and_leaves_nothing_behind(terminal: Terminal) -> None:
    with shown_on(terminal):
        timely.execute(lambda worker: counting(worker, lambda: "records/s" not in terminal.shown()))
    seen = terminal.shown()
    assert "\r\x1b[Kdf: epoch " in seen
    assert seen.endswith("\r\x1b[K")
    assert threads() == set()
    assert "write" not in vars(terminal.stream)


@pytest.mark.parametrize("quiet", ["argument", "environment", "no terminal", "dumb"])
def test_nothing_is_shown_or_traced_where_it_is_not_wanted(
    quiet: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if quiet == "environment":
        monkeypatch.setenv("TIMELY_WATCH", "0")
    if quiet == "dumb":
        monkeypatch.setenv("TERM", "dumb")

    def program(worker: timely.Worker) -> tuple[set[str], list[Any]]:
        counting(worker, iter([True] * 50 + [False]).__next__)
        return threads(), list(tracers(worker))

    with shown_on(terminal) if quiet != "no terminal" else contextlib.nullcontext():
        [(running, results)] = timely.execute(program, watch=quiet != "argument")
    assert terminal.shown() == ""
    assert results == []
    assert running == ({"timely watch"} if quiet in ("no terminal", "dumb") else set())
    assert threads() == set()


def test_the_first_of_several_processes_shows_the_line(terminal: Terminal) -> None:
    def program(worker: timely.Worker) -> tuple[set[str], int]:
        def unseen() -> bool:
            over = worker.index == 0 and "records/s" in terminal.shown()
            return not any(worker.all_gather(over))

        counting(worker, unseen)
        return threads(), len(tracers(worker))

    with shown_on(terminal):
        first, second = timely.execute(program, processes=2)
    assert (first[0] - second[0], first[1]) == ({"timely watch"}, 1)
    assert (second[0] - first[0], second[1]) == (set(), 1)


def test_the_records_of_all_processes_are_counted() -> None:
    def program(worker: timely.Worker) -> tuple[int, int]:
        company = local_workers_of(worker)
        assert company is not None
        InputCounts.of(worker)
        counting(worker, iter([True] * (worker.index + 1) + [False]).__next__)
        worker.all_gather(None)
        result = run_monitor.RecordCounts(company)()
        worker.all_gather(None)
        return records_sent(worker), result

    assert timely.execute(program, workers=2, processes=2) == [(100, 1000), (200, 1000), (300, 1000), (400, 1000)]


def test_an_interrupted_run_leaves_an_empty_line(terminal: Terminal) -> None:
    def seen() -> bool:
        if "epoch" in terminal.shown():
            raise KeyboardInterrupt
        return True

    with shown_on(terminal), pytest.raises(KeyboardInterrupt):
        timely.execute(lambda worker: counting(worker, seen))
    assert terminal.shown().endswith("\r\x1b[K")
    assert threads() == set()


def hoard(worker: timely.Worker, on: Callable[[], bool]) -> None:
    """Have an operator of worker 1 keep a capability as long as ``on()`` is true."""
    held: list[Any] = []

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(input: Any, output: Any) -> None:
            held.extend(cap.retain() for cap, _ in input if info.worker == 1)

        return logic

    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        stream.unary(timely.Pipeline, "hoarder", constructor)
    numbers.send(1)
    numbers.close()
    while on():
        worker.step_or_park(0.01)
    held.clear()


def test_a_run_that_is_stuck_logs_what_holds_it(caplog: pytest.LogCaptureFixture) -> None:
    timely.execute(lambda worker: hoard(worker, lambda: not caplog.records), workers=2, watch=0.05)
    [record] = [record for record in caplog.records if record.name.startswith("timely")]
    assert record.levelno == logging.WARNING
    assert "nothing has moved for " in record.message
    assert "'hoarder' (/df/hoarder#1, built at test_watch.py:" in record.message
    assert "1 on worker 1" in record.message


def test_one_of_several_processes_reports_what_all_of_them_are_stuck_at() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    done = multiprocessing.Event()

    def report(text: str) -> None:
        writer.send((os.getpid(), text))
        if "1 on worker 1" in text:  # and not that it does not answer yet
            done.set()

    def program(worker: timely.Worker) -> None:
        hoard(worker, lambda: not done.is_set())

    execute_watched(program, 1, 3, "direct", WatchSettings(0.05, say=report))
    reports = []
    while reader.poll():
        reports.append(reader.recv())
    assert len({process for process, _ in reports}) == 1
    assert "'hoarder'" in reports[-1][1]


def test_a_watch_that_fails_does_the_run_no_harm(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise LookupError("no such thing")

    monkeypatch.setattr("timely.inspect.watchdog.StuckDetector", fail)
    timely.execute(lambda worker: counting(worker, lambda: not caplog.records), watch=0.01)
    assert "the run is not watched any more" in caplog.text


@pytest.mark.parametrize("watch", [0, -1.0, float("nan"), "often", None])
def test_a_watch_that_cannot_be_is_refused(watch: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"watch=.*seconds without movement"):
        timely.execute(lambda worker: None, watch=watch)


def test_inspection_is_not_loaded_before_it_is_wanted() -> None:
    import subprocess

    program = "import sys, timely; timely.execute(lambda worker: None); assert 'timely.inspect' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_second_run_beside_the_first_has_no_line(terminal: Terminal) -> None:
    def program(worker: timely.Worker) -> None:
        assert tracers(worker)
        assert timely.execute(lambda beside: list(tracers(beside))) == [[]]

    with shown_on(terminal):
        timely.execute(program)


def test_the_line_makes_way_for_what_a_program_writes(terminal: Terminal) -> None:
    line = StatusLine(terminal.stream)
    with line.beside(terminal.stream, None, io.StringIO()):
        line.write("one")
        print("hello", file=terminal.stream, flush=True)
        line.write("two")
        print("half a ", end="", file=terminal.stream, flush=True)
        line.write("not now")
        print("line", file=terminal.stream, flush=True)
        line.write("three")
        line.clear()
    assert terminal.shown() == "\r\x1b[Kone\r\x1b[Khello\r\n\r\x1b[Ktwo\r\x1b[Khalf a line\r\n\r\x1b[Kthree\r\x1b[K"
    print("after", file=terminal.stream, flush=True)
    assert terminal.shown().endswith("\x1b[Kafter\r\n")


def test_a_line_of_another_process_is_cleared_too(terminal: Terminal) -> None:
    with StatusLine(terminal.stream, shared=True).beside(terminal.stream):
        print("hello", file=terminal.stream, flush=True)
    assert terminal.shown().startswith("\r\x1b[Khello")


def test_nothing_is_written_in_the_background_of_a_shell(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + 1)
    StatusLine(terminal.stream).write("one")
    assert terminal.shown() == ""


def test_it_is_seen_that_another_process_moves() -> None:
    def program(worker: timely.Worker) -> list[Any]:
        company, result = local_workers_of(worker), []
        assert company is not None
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            stream.map(str).probe()
        while not worker.idle:
            worker.step()
        for deed in ("nothing", "send", "nothing"):
            worker.all_gather(None)
            if worker.index == 1 and deed == "send":
                numbers.send(1)
                worker.step()
            worker.all_gather(None)
            result.append(company.ask(MOVEMENT, 60))
        worker.all_gather(None)
        numbers.close()
        return result

    (before, then, after), _ = timely.execute(program, processes=2)
    assert before != then
    assert then == after


def test_a_run_that_only_another_process_works_in_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()

    class Looker:
        def __init__(self, *arguments: Any, elsewhere: Any = None, **more: Any) -> None:
            seen.append(getattr(elsewhere, "func", None))

        def look(self) -> None:
            pass

    monkeypatch.setattr("timely.inspect.watchdog.StuckDetector", Looker)

    def program(worker: timely.Worker) -> None:
        workers = local_workers_of(worker)
        assert workers is not None
        while not seen:
            threading.Event().wait(0.001)
        assert seen == [workers.ask]

    timely.execute(program, watch=0.01)


def test_what_a_program_writes_with_stays_its_own(terminal: Terminal) -> None:
    before: Any = terminal.stream.write
    since: Any = terminal.stream.writelines
    terminal.stream.write = before  # type: ignore[method-assign]
    with StatusLine(terminal.stream).beside(terminal.stream):
        assert terminal.stream.write is not before
    assert terminal.stream.write is before
    with StatusLine(terminal.stream).beside(terminal.stream):
        terminal.stream.write = since  # type: ignore[method-assign]
    assert terminal.stream.write is since


def test_an_empty_text_is_not_written(terminal: Terminal) -> None:
    line = StatusLine(terminal.stream)
    line.write("")
    assert terminal.shown() == ""
    line.write("one")
    line.write("")
    line.write("")
    assert terminal.shown() == "\r\x1b[Kone\r\x1b[K"


def test_the_line_of_a_process_that_is_killed_is_emptied(terminal: Terminal) -> None:
    def killed() -> bool:
        if "epoch" in terminal.shown():
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def program(worker: timely.Worker) -> None:
        counting(worker, killed if worker.index == 0 else lambda: True)

    with shown_on(terminal), pytest.raises(timely.WorkerError, match="exit code -9"):
        timely.execute(program, processes=2)
    assert terminal.shown().endswith("\r\x1b[K")


def answer(members: Any, query: str) -> Any:
    if query == "raise":
        raise LookupError("nothing is known of that")
    return (lambda: None) if query == "send" else (len(members), query)  # a function cannot be pickled


@pytest.fixture
def processes() -> Iterator[list[LocalWorkers]]:
    """The local workers of three processes."""
    made = control_channels(3)
    copies: list[list[ControlChannel]] = [[(one.dup(), other.dup()) for one, other in made] for _ in made]
    yield [LocalWorkers(copy, place, 2, answer) for place, copy in enumerate(copies)]
    for channel in made:
        for end in channel:
            end.close()


def test_all_other_processes_answer(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, two, three:
        two.add(Worker())
        assert one.ask("how many", 60) == {1: (1, "how many"), 2: (0, "how many")}
        assert [list(one.workers_at(place)) for place in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert one.reaches == 6
    assert not [thread for thread in threading.enumerate() if thread.name == "timely listener"]


def test_a_missing_answer_has_a_reason(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, two:
        assert one.ask("raise", 0.1)[1] == "cannot say: nothing is known of that"
        assert one.ask("send", 0.1)[1].startswith("cannot say: ")
        assert one.ask("raise", 0.1)[2] == "does not answer within 0.1 s"
    with three:
        pass  # and is gone


def test_one_who_is_called_too_often_is_not_waited_for(processes: list[LocalWorkers]) -> None:
    one, two, three = processes
    with one, three:
        for _ in range(1000):
            assert one.ask("?", 0.0)[1] == "does not answer within 0 s"
    with two:
        pass


def test_a_worker_made_by_hand_is_in_no_local_workers() -> None:
    worker = Worker()
    with LocalWorkers() as local:
        assert local_workers_of(worker) is None
        local.add(worker)
        assert local_workers_of(worker) is local
    assert local_workers_of(worker) is None
