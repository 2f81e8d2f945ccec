"""How far a run is: what workers report, what is made of the reports, and where it is shown.

White box: reports are put together from those of many workers at one moment, which no run can be stopped at.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import timely
from tests.support.terminal import Terminal
from timely import spark as ts
from timely.monitor.dataflow_position import position_of
from timely.monitor.terminal import StatusLine
from timely.spark import WorkerMetrics, reporting
from timely.spark.reporting import Monitor, TaskMeter, summarize
from timely.spark.stage_messages import Failed, Message

REPORTED = WorkerMetrics(
    worker=0,
    attempt=7,
    stage=2,
    host="here",
    pid=1,
    epoch=3,
    iteration=None,
    rows_in={"edges": 10},
    rows_out={"ranks": 0},
    batches_in=1,
    batches_out=0,
    epochs=4,
    steps=9,
    checkpoints=0,
    memory=1 << 20,
    peak_memory=1 << 20,
    elapsed=2.0,
    busy=1.5,
    waiting=0.5,
)


class Run:
    """A run as far as a monitor uses one: it tells what its workers tell, and which attempt is up."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.id = b"\1\2"
        self.generation: int | None = 7
        self.listeners: dict[Any, Callable[[int, int, Any], object]] = {}

    def listen(self, kind: Any, callback: Callable[[int, int, Any], object]) -> None:
        self.listeners[kind] = callback

    def send(self, report: WorkerMetrics) -> None:
        """Have a worker report, through JSON as in earnest."""
        content = json.loads(json.dumps(attrs.asdict(report)))
        self.listeners[WorkerMetrics](report.worker, report.attempt, WorkerMetrics(**content))


class Driver:
    """What a meter reports to."""

    def __init__(self) -> None:
        self.received: list[WorkerMetrics] = []

    def send(self, message: Message) -> None:
        assert isinstance(message, WorkerMetrics)
        self.received.append(message)


def table(name: str) -> Any:
    return SimpleNamespace(name=name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a meter goes by, in its one element."""
    now = [100.0]
    monkeypatch.setattr("timely.spark.reporting.time", SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: now[0] / 4))
    return now


# -- what workers report -----------------------------------------------------------------------------------------------


def test_a_worker_reports_once_a_second_at_most(clock: list[float]) -> None:
    driver = Driver()
    meter = TaskMeter(driver, 0, 7, 2, [table("edges")], [table("ranks")])
    for tenth in range(35):
        clock[0] = 100.0 + tenth / 10
        meter.tick()
    assert [report.elapsed for report in driver.received] == [1.0, 2.0, 3.0]
    assert [report.steps for report in driver.received] == [11, 21, 31]


def test_a_report_says_what_was_counted(clock: list[float]) -> None:
    driver = Driver()
    meter = TaskMeter(driver, 1, 7, 2, [table("edges"), table("nodes")], [table("ranks")])
    meter.count_in(0, 10, epoch=0)
    meter.count_in(1, 5, epoch=0)
    meter.count_in(0, 7, epoch=3)
    meter.count_out(0, 2)
    meter.checkpoints += 1
    clock[0] += 4.0
    meter.finish()
    (report,) = driver.received
    assert (report.worker, report.attempt, report.stage, report.pid) == (1, 7, 2, os.getpid())
    assert (report.rows_in, report.rows_out) == ({"edges": 17, "nodes": 5}, {"ranks": 2})
    assert (report.batches_in, report.batches_out, report.epochs, report.checkpoints) == (3, 1, 2, 1)
    assert (report.elapsed, report.busy, report.waiting) == (4.0, 1.0, 3.0)
    assert 0 < report.memory <= report.peak_memory
    assert report.final


def test_the_standing_of_nested_loops_is_that_of_the_innermost() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        numbers, stream = scope.new_input()
        with scope.iterative() as outer, outer.iterative() as inner:
            handle, again = inner.feedback()
            more = stream.enter(outer).enter(inner).concat(again).map(lambda x: x - 1).filter(lambda x: x > 0)
            more.connect_loop(handle)
    numbers.advance_to(5)
    numbers.send(30)
    numbers.advance_to(6)
    collected = [position_of(scope)]
    while collected[-1] != (6, None):
        worker.step()
        collected.append(position_of(scope))
    assert {epoch for epoch, _ in collected[:-1]} == {5}
    rounds = [number for _, number in collected if number is not None]
    assert rounds == sorted(rounds)
    assert rounds[-1] in (28, 29)
    numbers.close()
    worker.run()
    assert position_of(scope) == (None, None)


# -- what is made of reports -------------------------------------------------------------------------------------------


def test_reports_are_put_together() -> None:
    behind = attrs.evolve(REPORTED, worker=1, epoch=2, iteration=6, rows_in={"edges": 4}, memory=5, elapsed=3.0, busy=2.0)
    done = attrs.evolve(REPORTED, worker=2, epoch=None, final=True)
    progress = summarize([REPORTED, behind, done], workers=4)
    assert progress is not None
    assert (progress.epoch, progress.iteration, progress.slowest, progress.reporting) == (2, 6, 1, 3)
    assert (progress.rows_in, progress.memory, progress.elapsed) == ({"edges": 24}, (2 << 20) + 5, 3.0)
    assert not progress.complete
    assert summarize([], workers=4) is None


def test_what_an_attempt_that_failed_did_does_not_count() -> None:
    run: Any = Run(2)
    monitor = Monitor(run, "ranks")
    before = monitor.progress
    assert before is None
    assert len(monitor.metrics) == 0
    run.send(attrs.evolve(REPORTED, final=True))
    run.send(attrs.evolve(REPORTED, worker=1))
    assert len(monitor.metrics) == 0
    run.send(attrs.evolve(REPORTED, attempt=9, rows_in={"edges": 1}))
    run.send(attrs.evolve(REPORTED, attempt=7, worker=1, rows_in={"edges": 500}, final=True))  # too late
    assert monitor.progress is not None
    assert (monitor.progress.attempt, monitor.progress.rows_in) == (9, {"edges": 1})
    run.send(attrs.evolve(REPORTED, attempt=9, worker=1, final=True))
    run.send(attrs.evolve(REPORTED, attempt=9, worker=0, final=True))
    assert [(metric.worker, metric.attempt) for metric in monitor.metrics] == [(0, 9), (1, 9)]
    assert (monitor.metrics.rows_in, monitor.progress.complete) == ({"edges": 20}, True)


# -- where it is shown -------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def test_the_line_of_a_terminal_renews_itself(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((20, 24)))
    line = StatusLine(terminal.stream)
    line.clear()
    line.write("a" * 100)
    line.write("short")
    line.clear()
    assert terminal.shown() == f"\r\x1b[K{'a' * 19}\r\x1b[Kshort\r\x1b[K"


def test_what_is_no_terminal_takes_nothing_away() -> None:
    line = StatusLine(io.StringIO())
    line.write("text")
    line.clear()


def test_a_run_is_shown_until_it_ends_or_fails(terminal: Terminal, clock: list[float]) -> None:
    run: Any = Run(1)
    Monitor(run, "ranks", StatusLine(terminal.stream))
    for _ in range(2):  # at once, which is one line
        run.send(REPORTED)
    before = terminal.shown()
    assert before.count("timely ranks: epoch 3; 10 rows in, 0 out; 1 worker, 1 MiB") == 1
    run.send(attrs.evolve(REPORTED, epoch=None, final=True))
    assert terminal.shown() == before + "\r\x1b[K"
    clock[0] += 1
    run.send(attrs.evolve(REPORTED, attempt=8))
    run.listeners[Failed](0, 8, Failed(2, {}))
    assert terminal.shown().endswith("\r\x1b[K")


# -- in Spark ----------------------------------------------------------------------------------------------------------


def held_up(gate: Path) -> Callable[..., dict[str, timely.Stream[int, Any]]]:
    """A build whose workers go round and round until a file appears; each then gives the rows that it has."""

    def rank(scope: timely.ScopeBuilder[int], numbers: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        with scope.iterative() as loop:
            handle, again = loop.feedback()

            def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
                time.sleep(0.02)
                return batch

            every = numbers.exchange("id").enter(loop).concat(again).map_batch(wait)
            more = every.map_batch(lambda batch: batch.slice(0, 0 if gate.exists() else None))
            more.connect_loop(handle)
            done = every.map_batch(lambda batch: batch.slice(0, None if gate.exists() else 0))
            out = done.leave()
        return {"numbers": out}

    return rank


@pytest.mark.spark
def test_a_run_is_followed_while_it_runs(session: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    result = ts.run(held_up(gate), {"numbers": session.range(100)}, {"numbers": "id long"}, workers=2)
    assert (result.progress, result.metrics) == (None, ())
    counted: list[int] = []

    def act() -> None:
        counted.append(result["numbers"].count())

    thread = threading.Thread(target=act)
    thread.start()
    deadline = time.monotonic() + 600
    while (seen := result.progress) is None or seen.iteration is None or seen.workers < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gate.touch()
    thread.join(600)
    assert counted == [100]
    assert (seen.epoch, seen.workers, seen.complete) == (0, 2, False)
    assert seen.rows_out == {"numbers": 0}
    assert result.progress is not None
    assert result.progress.complete
    assert result.metrics.rows_out == {"numbers": 100}
    assert all(worker.steps > 0 and worker.elapsed > 0 for worker in result.metrics)
    assert [(worker["worker"], worker["epoch"]) for worker in result.metrics.as_dicts()] == [(0, None), (1, None)]


@pytest.mark.spark
def test_the_line_can_be_switched_off(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=print, flush=print))
    run: Any = Run(1)
    assert reporting.monitor(session, run, "ranks")._line is not None
    session.conf.set(reporting.SETTING, "false")
    try:
        assert reporting.monitor(session, run, "ranks")._line is None
    finally:
        session.conf.unset(reporting.SETTING)


@pytest.mark.spark
def test_the_plan_names_the_dataflow(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    result = ts.run(held_up(Path("/")), {"numbers": session.range(3)}, {"numbers": "id long"}, workers=1)
    result["numbers"].explain()
    assert "MapInArrow timely rank(" in capsys.readouterr().out
