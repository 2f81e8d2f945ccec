"""How far a run is, shown while its stage runs: on one line of the terminal, and as the description of Spark's job.

A :class:`Monitor` on the driver listens to the reports of the workers of one run (:mod:`timely.spark.metrics`), and keeps the
last of each. A daemon thread, which lives only as long as there is something to show, writes them out. The invariant: what is
shown is of the newest attempt, and nothing waits for it to be shown, neither the workers nor the server that they talk to. A
caller may assume that a terminal, a Spark or a Java that does not play along takes away the display and nothing else.

A DataFrame is lazy: the job is the user's, started by an action, and takes its description from the thread that starts it. Spark
has no call to describe a job that runs already. So the description is changed where Spark's own interface looks it up, in the
entry of the running job in its status listener, which writes it out with its next event. An entry without a description gets
one; where the user has given one, it stays in front.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from timely.monitor.terminal import StatusLine
from timely.spark.logs import LOG, hear_log
from timely.spark.metrics import REPORT, Metrics, Progress, WorkerMetrics, summarize
from timely.spark.rendezvous import Run

SETTING = "spark.timely.progress"
"""The setting of a session that switches the display off, if it is ``false``."""

_EVERY = 0.5
"""Seconds between two looks at what there is to show."""


class Monitor:
    """What the driver knows of the workers of one run, and where it shows it.

    ``name`` is what the run goes by; ``jobs`` is where Spark's jobs are described, ``line`` the line of the terminal: either
    may be ``None``.
    """

    def __init__(self, run: Run, name: str, jobs: JobText | None = None, line: StatusLine | None = None) -> None:
        self.name = name
        self.metrics = Metrics()
        self._run = run
        self._jobs = jobs
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
        if not report.final and (self._jobs is not None or self._line is not None):
            _show(self)

    def show(self) -> bool:
        """Show how far the run is; return whether there may be more to show."""
        progress = self.progress
        if progress is not None and progress != self._shown:
            self._shown = progress
            text = f"timely {self.name}: {progress}"
            if self._line is not None and not progress.complete:
                self._line.write(text)
            if self._jobs is not None:
                self._jobs.describe(progress.stage, text)
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
    return Monitor(run, name, JobText(context), line)


def name_of(build: object) -> str:
    """Return what a dataflow goes by: the name of the function that builds it.

    >>> name_of(name_of), name_of(lambda scope: {})
    ('name_of', 'dataflow')
    """
    name = str(getattr(build, "__name__", ""))
    return name if name.isidentifier() else "dataflow"


class JobText:
    """The descriptions of the jobs of one context, as Spark's web interface and its REST interface have them."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._stage = -1
        self._entry: Any = None
        self._given: str | None = None
        self._field: Any = None
        self._broken = False

    def describe(self, stage: int, text: str) -> bool:
        """Describe the running job that has this stage; return whether that could be done.

        After a failure no more is tried in this context: another Spark may keep its entries in another way.
        """
        if self._broken:
            return False
        try:
            if stage != self._stage:
                self._stage, self._entry = stage, self._find(stage)
            if self._entry is None:
                return False
            jvm: Any = self._context._jvm
            whole = text if self._given is None else f"{self._given} · {text}"
            self._field.set(self._entry, jvm.scala.Some(whole))
            self._write_out(jvm)
        except Exception:
            self._broken = True
        return not self._broken

    def _find(self, stage: int) -> Any:
        """Return the entry of the running job that has this stage; ``None`` where there is none."""
        scala: Any = self._context._jsc.sc()
        tracker = self._context.statusTracker()
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            if info is not None and stage in list(info.stageIds):
                break
        else:
            return None
        listener = scala.statusStore().listener().get()
        entries = _open(listener, "liveJobs").get(listener)
        entry = entries.get(job).get()
        self._field = _open(entry, "description")
        given = self._field.get(entry)
        self._given = str(given.get()) if given.isDefined() else None
        return entry

    def _write_out(self, jvm: Any) -> None:
        """Post an event on which the status listener writes its entries out: a heartbeat without any news in it."""
        none = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList()).toSeq()
        heartbeat = jvm.org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate(
            "driver", none, jvm.scala.Predef.Map().empty()
        )
        self._context._jsc.sc().listenerBus().post(heartbeat)


def _open(thing: Any, name: str) -> Any:
    """Return a field of a Java object, made accessible."""
    for field in thing.getClass().getDeclaredFields():
        if str(field.getName()).endswith(name):
            field.setAccessible(True)
            return field
    raise AttributeError(name)
