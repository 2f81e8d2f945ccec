"""What workers report while a run goes on, and where the driver shows it: ``Result.progress``, the terminal, a live page.

A worker has one :class:`TaskMeter` an attempt. It sends a :class:`WorkerMetrics` about once a second and a last one at the end.
A :class:`Monitor` on the driver keeps the last report of each worker. The invariant: reports are never waited for, and nothing
but the display depends on them. The metrics of a run are those of the one attempt that succeeded.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from pyspark.sql import SparkSession

from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError, TimelyError
from timely.monitor.dataflow_position import position_of
from timely.monitor.memory import record_memory, resident_memory
from timely.monitor.terminal import StatusLine, count
from timely.spark.logs import log_on_driver
from timely.spark.registration import Registration
from timely.spark.rendezvous import RunEntry
from timely.spark.stage_messages import Failed, LiveReport, LogLine, Message, Resumed, Sender
from timely.worker import Worker

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

REPORT_EVERY = 1.0
"""Seconds between two reports of a worker."""


@attrs.frozen
class WorkerMetrics(Message):
    """What one worker has done in one attempt.

    ``attempt`` is the task id of the attempt's first task. ``epoch`` is the least epoch that is not complete on all workers
    (``None`` when all are), ``iteration`` the greatest round under way in the innermost loops (``None`` outside of loops).
    ``rows_in`` and ``rows_out`` go by input and output; batches are Arrow batches. ``memory`` is resident memory in bytes.
    ``elapsed`` are seconds since the attempt began: ``busy`` of processor time, and ``waiting`` the rest. ``final`` says that the
    attempt has succeeded.
    """

    worker: int
    attempt: int
    stage: int
    host: str
    pid: int
    epoch: int | None
    iteration: int | None
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    batches_in: int
    batches_out: int
    epochs: int
    steps: int
    checkpoints: int
    memory: int
    peak_memory: int
    elapsed: float
    busy: float
    waiting: float
    final: bool = False


@attrs.frozen
class RunProgress:
    """How far a run is, at the last report of its workers.

    Fields are as in :class:`WorkerMetrics`, of all workers together. ``reporting`` is how many of the ``workers`` have reported;
    ``slowest`` the worker that has computed for longest, for which the others most likely wait; ``complete`` that all have
    finished.
    """

    attempt: int
    stage: int
    workers: int
    reporting: int
    epoch: int | None
    iteration: int | None
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    memory: int
    slowest: int
    elapsed: float
    complete: bool

    def __str__(self) -> str:
        where = "complete" if self.complete else "finishing" if self.epoch is None else f"epoch {self.epoch}"
        if self.iteration is not None and not self.complete:
            where += f", iteration {self.iteration}"
        rows = f"{count(sum(self.rows_in.values()))} rows in, {count(sum(self.rows_out.values()))} out"
        who = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        slowest = f", slowest {self.slowest}" if self.workers > 1 else ""
        return f"{where}; {rows}; {who}{slowest}, {self.memory >> 20} MiB; {self.elapsed:.0f} s"


def summarize(reports: Iterable[WorkerMetrics], workers: int) -> RunProgress | None:
    """Return how far a run is, given the last report of each worker that has made one; ``None`` of none."""
    known = list(reports)
    if not known:
        return None
    return RunProgress(
        attempt=known[0].attempt,
        stage=known[0].stage,
        workers=workers,
        reporting=len(known),
        epoch=min((report.epoch for report in known if report.epoch is not None), default=None),
        iteration=max((report.iteration for report in known if report.iteration is not None), default=None),
        rows_in=_sums(report.rows_in for report in known),
        rows_out=_sums(report.rows_out for report in known),
        memory=sum(report.memory for report in known),
        slowest=max(known, key=lambda report: report.busy).worker,
        elapsed=max(report.elapsed for report in known),
        complete=len(known) == workers and all(report.final for report in known),
    )


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for each in counts:
        for name, rows in each.items():
            sums[name] = sums.get(name, 0) + rows
    return sums


class Metrics(tuple[WorkerMetrics, ...]):
    """What the workers of the attempt that succeeded have done, in worker order."""

    __slots__ = ()

    @property
    def rows_in(self) -> dict[str, int]:
        """The rows that entered at all workers, by input."""
        return _sums(worker.rows_in for worker in self)

    @property
    def rows_out(self) -> dict[str, int]:
        """The rows that left all workers, by output."""
        return _sums(worker.rows_out for worker in self)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return one plain dictionary for each worker, as for JSON."""
        return [attrs.asdict(worker) for worker in self]


# -- the worker's side -------------------------------------------------------------------------------------------------


class Named(Protocol):
    """An input or output: a table that has a name."""

    @property
    def name(self) -> str:
        """Its name."""


class TaskMeter:
    """Counts what one worker does in one attempt, and reports to the driver about once a second."""

    def __init__(
        self, driver: Sender, worker: int, attempt: int, stage: int, inputs: Sequence[Named], outputs: Sequence[Named]
    ) -> None:
        self.checkpoints = 0
        self._rows_in = [0] * len(inputs)
        self._rows_out = [0] * len(outputs)
        self._batches_in = 0
        self._batches_out = 0
        self._epochs = 0
        self._steps = 0
        self._driver = driver
        self._who = {"worker": worker, "attempt": attempt, "stage": stage, "host": socket.gethostname(), "pid": os.getpid()}
        self._inputs = [table.name for table in inputs]
        self._outputs = [table.name for table in outputs]
        self._epoch = -1
        self._scope: ScopeBuilder[Any] | None = None
        self._began = self._reported = time.monotonic()
        self._worked = time.process_time()
        self._record = record_memory()
        self._peak = resident_memory()

    def watch(self, scope: ScopeBuilder[Any]) -> None:
        """Report on this dataflow."""
        self._scope = scope

    def count_in(self, position: int, rows: int, epoch: int) -> None:
        """Count a batch of rows that enters at an epoch; epochs ascend."""
        self._rows_in[position] += rows
        self._batches_in += 1
        if epoch > self._epoch:
            self._epoch = epoch
            self._epochs += 1

    def count_out(self, position: int, rows: int) -> None:
        """Count a batch of rows of an output."""
        self._rows_out[position] += rows
        self._batches_out += 1

    def tick(self) -> None:
        """Count a step, and report if the last report is a second old."""
        self._steps += 1
        if time.monotonic() - self._reported >= REPORT_EVERY:
            self._send(final=False)

    def finish(self) -> None:
        """Send the last report."""
        self._send(final=True)

    def _send(self, *, final: bool) -> None:
        self._driver.send(self.report(final=final))
        self._reported = time.monotonic()

    def report(self, *, final: bool) -> WorkerMetrics:
        """Return what has been counted."""
        elapsed = time.monotonic() - self._began
        busy = min(time.process_time() - self._worked, elapsed)
        memory = resident_memory()
        self._peak = max(self._peak, memory)
        if (record := record_memory()) > self._record:  # so it was in this attempt
            self._peak = max(self._peak, record)
        epoch, iteration = (None, None) if self._scope is None else position_of(self._scope)
        return WorkerMetrics(
            **self._who,  # type: ignore[arg-type]
            epoch=epoch,
            iteration=iteration,
            rows_in=dict(zip(self._inputs, self._rows_in, strict=True)),
            rows_out=dict(zip(self._outputs, self._rows_out, strict=True)),
            batches_in=self._batches_in,
            batches_out=self._batches_out,
            epochs=self._epochs,
            steps=self._steps,
            checkpoints=self.checkpoints,
            memory=memory,
            peak_memory=self._peak,
            elapsed=round(elapsed, 3),
            busy=round(busy, 3),
            waiting=round(elapsed - busy, 3),
            final=final,
        )


SETTING = "spark.timely.progress"
"""The setting of a session that switches the display off, if it is ``false``."""

_REFRESH = 0.5
"""Seconds between two lines of a run."""


class Monitor:
    """What the driver knows of the workers of one run, and where it shows it.

    ``name`` is the name of the dataflow, ``line`` the line of the terminal, if there is one. ``metrics`` and the epochs that
    attempts ``resumed`` from are as in a run's ``Result``.
    """

    def __init__(self, run: RunEntry, name: str, line: StatusLine | None = None) -> None:
        self.name = name
        self.metrics = Metrics()
        self.resumed: list[int] = []
        self._run = run
        self._line = line
        self._attempt = -1
        self._reports: dict[int, WorkerMetrics] = {}
        self._shown = -math.inf
        run.listen(WorkerMetrics, self._receive)
        run.listen(Failed, self._clear)
        run.listen(LogLine, log_on_driver)
        run.listen(Resumed, self._note_resumed)

    @property
    def failure(self) -> TimelyError | None:
        """The error of the worker that failed last."""
        return self._run.failure

    @property
    def progress(self) -> RunProgress | None:
        """How far the newest attempt is; ``None`` before the first report."""
        return summarize(list(self._reports.values()), self._run.workers)

    def _receive(self, worker: int, generation: int, report: WorkerMetrics) -> None:
        """Note a report. On the server's thread."""
        if generation < self._attempt:
            return
        if generation > self._attempt:
            self._attempt, self._reports = generation, {}
        self._reports[worker] = report
        if len(self._reports) == self._run.workers and all(each.final for each in self._reports.values()):
            self.metrics = Metrics(self._reports[index] for index in sorted(self._reports))
        if self._line is None:
            return
        progress = self.progress
        if progress is None or progress.complete:
            self._line.clear()
        elif time.monotonic() - self._shown >= _REFRESH:
            self._shown = time.monotonic()
            self._line.write(f"timely {self.name}: {progress}")

    def _note_resumed(self, worker: int, generation: int, message: Resumed) -> None:
        if message.epoch is not None:
            self.resumed.append(message.epoch)

    def _clear(self, worker: int, generation: int, message: Failed) -> None:
        if self._line is not None:
            self._line.clear()


def monitor(session: SparkSession, run: RunEntry, name: str) -> Monitor:
    """Return the monitor of a run; it shows as much as the session's settings and the terminal allow."""
    context: SparkContext = session.sparkContext
    if str(session.conf.get(SETTING, "true")).lower() == "false":
        return Monitor(run, name)
    scala: Any = context._jsc.sc()
    own_bar = scala.progressBar().isDefined()  # that of spark.ui.showConsoleProgress, on the same line
    line = None if own_bar or not sys.stderr.isatty() else StatusLine(sys.stderr)
    return Monitor(run, name, line)


def name_of(build: object) -> str:
    """Return the name of a dataflow: that of the function that builds it."""
    name = str(getattr(build, "__name__", ""))
    return name if name.isidentifier() else "dataflow"


Look = Callable[[Worker, Callable[[dict[str, Any]], object]], AbstractContextManager[None]]
"""What a worker calls before it builds anything: ``look(worker, send)``. It travels to the executors by pickle."""

Receive = Callable[[int, int, Mapping[str, Any]], None]
"""Receives a worker's report: ``receive(worker, attempt, report)``, on the server's thread."""


class ReportPage(Protocol):
    """What can be given as ``live``: a :class:`timely.inspect.LivePage`."""

    @property
    def look(self) -> Look:
        """Return what each worker calls."""

    def open(self, name: str) -> Receive:
        """Return what receives the reports of another run."""


def check_page(live: object) -> None:
    """Raise ConfigurationError for what is no page.

    >>> check_page(8080)
    Traceback (most recent call last):
    timely.errors.ConfigurationError: live=8080: give a timely.inspect.LivePage, within whose with-block the run is asked for
    """
    if live is not None and not (callable(getattr(live, "look", None)) and callable(getattr(live, "open", None))):
        raise ConfigurationError(f"live={live!r}: give a timely.inspect.LivePage, within whose with-block the run is asked for")


def listen_for_page(run: RunEntry, receive: Receive | None) -> None:
    """Hand the live reports of a run to its page, if there is one."""
    if receive is not None:
        run.listen(LiveReport, lambda worker, generation, message: receive(worker, generation, message.report))


def page_reports(look: Look | None, worker: Worker, registration: Registration) -> AbstractContextManager[None]:
    """Return the context that a worker does all its work in: one that reports to a live page, or nothing."""
    return nullcontext() if look is None else look(worker, lambda report: registration.send(LiveReport(report)))
