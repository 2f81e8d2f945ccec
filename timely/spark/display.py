"""How far a run is, shown on one line of the terminal while its stage runs.

A :class:`Monitor` on the driver keeps the last report of each worker of one run. A daemon thread writes them out, as long as
there is something to show. The invariant: what is shown is of the newest attempt, and neither workers nor server wait for it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from timely.spark.logs import LOG, hear_log
from timely.spark.metrics import REPORT, Metrics, Progress, WorkerMetrics, summarize
from timely.spark.rendezvous import Run
from timely.worker.terminal import StatusLine

SETTING = "spark.timely.progress"
"""The setting of a session that switches the display off, if it is ``false``."""

_EVERY = 0.5
"""Seconds between two looks at what there is to show."""


class Monitor:
    """What the driver knows of the workers of one run, and where it shows it.

    ``name`` is the name of the dataflow, ``line`` the line of the terminal, if there is one.
    """

    def __init__(self, run: Run, name: str, line: StatusLine | None = None) -> None:
        self.name = name
        self.metrics = Metrics()
        self._run = run
        self._line = line
        self._attempt = -1
        self._reports: dict[int, WorkerMetrics] = {}
        self._shown: Progress | None = None
        run.listen(REPORT, self._hear)
        run.listen(LOG, lambda worker, generation, content: hear_log(run.id.hex(), worker, generation, content))

    @property
    def progress(self) -> Progress | None:
        """How far the newest attempt is, as last reported; ``None`` before the first report."""
        return summarize(list(self._reports.values()), self._run.workers)

    def _hear(self, worker: int, generation: int, content: Mapping[str, Any]) -> None:
        """Take in a report. On the server's thread."""
        report = WorkerMetrics.told(content)
        if generation < self._attempt:
            return
        if generation > self._attempt:
            self._attempt, self._reports = generation, {}
        self._reports[worker] = report
        if len(self._reports) == self._run.workers and all(each.final for each in self._reports.values()):
            self.metrics = Metrics(self._reports[index] for index in sorted(self._reports))
            with _showing:
                _showing.notify()
        if not report.final and self._line is not None:
            _show(self)

    def show(self) -> bool:
        """Show how far the run is; return whether there may be more to show."""
        progress = self.progress
        if progress is not None and progress != self._shown:
            self._shown = progress
            if self._line is not None and not progress.complete:
                self._line.write(f"timely {self.name}: {progress}")
        if progress is not None and not progress.complete and self._run.generation == self._attempt:
            return True
        if self._line is not None:
            self._line.clear()
        return False


_monitors: list[Monitor] = []
_showing = threading.Condition()


def _show(monitor: Monitor) -> None:
    """Have the thread that shows things look at a monitor until it has nothing more to show; start it if there is none."""
    with _showing:
        if monitor in _monitors:
            return
        _monitors.append(monitor)
        if len(_monitors) == 1:
            threading.Thread(target=_show_all, name="timely-progress", daemon=True).start()


def _show_all() -> None:
    while True:
        for monitor in list(_monitors):
            more = False
            with contextlib.suppress(Exception):
                more = monitor.show()
            if not more:
                with _showing:
                    _monitors.remove(monitor)
                    if not _monitors:
                        return
        with _showing:
            _showing.wait(_EVERY)


def monitor(session: SparkSession, run: Run, name: str) -> Monitor:
    """Return the monitor of a run, which shows it where and as far as the session's settings and the terminal allow."""
    context: SparkContext = session.sparkContext
    if str(session.conf.get(SETTING, "true")).lower() == "false":
        return Monitor(run, name)
    scala: Any = context._jsc.sc()
    own_bar = scala.progressBar().isDefined()  # that of spark.ui.showConsoleProgress, on the same line
    line = None if own_bar or not sys.stderr.isatty() else StatusLine(sys.stderr)
    return Monitor(run, name, line)


def name_of(build: object) -> str:
    """Return what a dataflow goes by: the name of the function that builds it.

    >>> name_of(name_of), name_of(lambda scope: {})
    ('name_of', 'dataflow')
    """
    name = str(getattr(build, "__name__", ""))
    return name if name.isidentifier() else "dataflow"
