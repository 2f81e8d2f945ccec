"""What the workers of a run have done so far: told by each worker now and then, put together by the driver.

A worker has one :class:`Meter` for each attempt; it counts, and once a second, if the attempt goes on for that long, tells the
driver a :class:`WorkerMetrics`, over the connection on which the worker registered; a last one tells how the attempt ended up.
The invariant: what is told costs the dataflow nothing between two reports but a few additions, and nothing is derived from it:
a report that is lost is missed by nobody. A caller may assume that :func:`summarize` is a function of the reports alone, and that
the metrics of a run are those of one attempt, the last that succeeded; nothing of an attempt that failed is in them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs
from pyspark.sql import DataFrame, SparkSession

from timely.dataflow import ScopeBuilder
from timely.monitor.dataflow_position import position_of
from timely.monitor.memory import record_memory, resident_memory
from timely.monitor.terminal import count

REPORT: Final = "report"
"""The kind of message by which a worker tells what it has done."""

EVERY = 1.0
"""Seconds between two reports of a worker."""

_COLUMNS: Final = (
    "worker int, attempt long, stage int, host string, pid long, epoch long, iteration long, rows_in map<string, long>, "
    "rows_out map<string, long>, batches_in long, batches_out long, epochs long, steps long, checkpoints long, bytes_sent long, "
    "bytes_received long, memory long, peak_memory long, elapsed double, busy double, waiting double, final boolean"
)

_TCP_INFO: Final = struct.Struct("=120xQQ")
"""Where Linux keeps the bytes that a connection has sent and received."""


@attrs.frozen
class WorkerMetrics:
    """What one worker has done in one attempt.

    ``attempt`` and ``stage`` are Spark's numbers: the task id of the attempt's first task, and the stage. ``epoch`` is the least
    epoch that is not complete on all workers (``None`` when all are), ``iteration`` the greatest round under way in the
    innermost loops (``None`` outside of loops). ``rows_in`` and ``rows_out`` go by input and by output; ``batches_in`` and
    ``batches_out`` are Arrow batches. ``epochs`` is how many epochs have entered, ``steps`` how often the worker took a turn,
    ``checkpoints`` how many of its state were written. ``bytes_sent`` and ``bytes_received`` are what went over the connections
    to other workers (0 where the system does not count them), ``memory`` and ``peak_memory`` bytes of resident memory of its
    Python process. ``elapsed`` are seconds since the attempt began; ``busy`` are seconds of processor time among them, and
    ``waiting`` the rest: for rows, for peers, or for Spark to take what was made. ``final`` says that the attempt has succeeded.
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
    bytes_sent: int
    bytes_received: int
    memory: int
    peak_memory: int
    elapsed: float
    busy: float
    waiting: float
    final: bool = False

    @classmethod
    def told(cls, content: Mapping[str, Any]) -> WorkerMetrics:
        """Return what a message told. Raises TypeError for a message that is no report."""
        return cls(**content)


@attrs.frozen
class Progress:
    """How far a run is, at the last report of its workers.

    ``attempt`` is Spark's number of it, ``workers`` how many there are, ``reporting`` how many have reported. ``epoch`` is the
    least epoch that is not complete (``None`` when all are), ``iteration`` the greatest round under way in the innermost loops
    (``None`` outside of loops). ``rows_in`` and ``rows_out`` are rows of all workers, by input and output; ``memory`` is bytes of
    all of them. ``slowest`` is the worker that has computed for longest, for which the others have most likely been waiting.
    ``elapsed`` are seconds, ``complete`` says that all workers have finished.
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


def summarize(reports: Iterable[WorkerMetrics], workers: int) -> Progress | None:
    """Return how far the run of ``workers`` workers is, given the last report of each that has made one; ``None`` of none.

    >>> one = WorkerMetrics(0, 7, 2, "here", 1, 3, None, {"x": 10}, {"y": 1}, 1, 1, 4, 9, 0, 0, 0, 2**20, 2**20, 2.0, 1.5, 0.5)
    >>> two = attrs.evolve(one, worker=1, epoch=2, iteration=5, rows_in={"x": 5}, busy=0.5)
    >>> str(summarize([one, two], workers=2))
    'epoch 2, iteration 5; 15 rows in, 2 out; 2 workers, slowest 0, 2 MiB; 2 s'
    """
    known = list(reports)
    if not known:
        return None
    return Progress(
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
        """The rows that all workers took in, by input."""
        return _sums(worker.rows_in for worker in self)

    @property
    def rows_out(self) -> dict[str, int]:
        """The rows that all workers gave, by output."""
        return _sums(worker.rows_out for worker in self)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return one plain dictionary for each worker, as for JSON."""
        return [attrs.asdict(worker) for worker in self]

    def frame(self, session: SparkSession) -> DataFrame:
        """Return them as a DataFrame with one row for each worker, whose columns are the fields of :class:`WorkerMetrics`."""
        return session.createDataFrame([tuple(worker.values()) for worker in self.as_dicts()], _COLUMNS)


# -- the worker's side -------------------------------------------------------------------------------------------------


class Named(Protocol):
    """An input or output: a table that has a name."""

    @property
    def name(self) -> str:
        """Its name."""


class Teller(Protocol):
    """What takes a report to the driver."""

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        """Send it."""


class Meter:
    """Counts what one worker does in one attempt, and tells the driver about once a second.

    The task calls :meth:`took` for what enters and :meth:`gave` for what leaves, :meth:`tick` after each step and :meth:`finish`
    at the end, and counts :attr:`checkpoints`.

    >>> class Driver:
    ...     def tell(self, kind, content):
    ...         print(kind, content["rows_in"], content["final"])
    >>> class Table:
    ...     name = "edges"
    >>> meter = Meter(Driver(), worker=0, attempt=5, stage=1, inputs=[Table()], outputs=[])
    >>> meter.took(0, 3, epoch=0)
    >>> meter.tick()
    >>> meter.finish()
    report {'edges': 3} True
    """

    def __init__(
        self, driver: Teller, worker: int, attempt: int, stage: int, inputs: Sequence[Named], outputs: Sequence[Named]
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
        self._transport: object = None
        self._began = self._told = time.monotonic()
        self._worked = time.process_time()
        self._record = record_memory()
        self._peak = resident_memory()

    def watch(self, scope: ScopeBuilder[Any], transport: object) -> None:
        """Report on this dataflow, and on what goes over the connections of a transport that has any."""
        self._scope = scope
        self._transport = transport

    def took(self, position: int, rows: int, epoch: int) -> None:
        """Count a batch of rows of an input that enters at an epoch; epochs come in ascending order."""
        self._rows_in[position] += rows
        self._batches_in += 1
        if epoch > self._epoch:
            self._epoch = epoch
            self._epochs += 1

    def gave(self, position: int, rows: int) -> None:
        """Count a batch of rows of an output."""
        self._rows_out[position] += rows
        self._batches_out += 1

    def tick(self) -> None:
        """Count a step; tell the driver how far the worker is, if it has not been told for a second."""
        self._steps += 1
        if time.monotonic() - self._told >= EVERY:
            self._tell(final=False)

    def finish(self) -> None:
        """Tell the driver what it was in the end."""
        self._tell(final=True)

    def _tell(self, *, final: bool) -> None:
        self._driver.tell(REPORT, attrs.asdict(self.report(final=final)))
        self._told = time.monotonic()

    def report(self, *, final: bool) -> WorkerMetrics:
        """Return what has been counted."""
        elapsed = time.monotonic() - self._began
        busy = min(time.process_time() - self._worked, elapsed)
        memory = resident_memory()
        self._peak = max(self._peak, memory)
        if (record := record_memory()) > self._record:  # so it was in this attempt
            self._peak = max(self._peak, record)
        epoch, iteration = (None, None) if self._scope is None else position_of(self._scope)
        sent, received = traffic(getattr(self._transport, "connections", ()))
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
            bytes_sent=sent,
            bytes_received=received,
            memory=memory,
            peak_memory=self._peak,
            elapsed=round(elapsed, 3),
            busy=round(busy, 3),
            waiting=round(elapsed - busy, 3),
            final=final,
        )


def traffic(connections: Iterable[socket.socket]) -> tuple[int, int]:
    """Return the bytes sent and received over connections, as the system has counted them; 0 where it does not."""
    sent = received = 0
    for connection in connections:
        try:
            known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            went, came = _TCP_INFO.unpack(known)
        except (AttributeError, OSError, struct.error):  # another system, or a connection that is closed
            continue
        sent, received = sent + went, received + came
    return sent, received
