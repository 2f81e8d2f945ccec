"""What a stream does with each micro-batch, and what must be known to begin: the same wherever it runs.

A :class:`StreamPlan` is made where the program is. In a classic session it is opened there, which is Spark's driver; over Spark
Connect it is sent to a process beside the server. The invariant: an epoch is processed by whoever opened the plan last.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from timely.dataflow.output_schema import OutputSchema
from timely.errors import CheckpointError, DeliveryError
from timely.memory import MemoryBudget
from timely.spark.packing import InputTable
from timely.spark.rendezvous import RunEntry, rendezvous
from timely.spark.reporting import Look, ReportPage, listen_for_page
from timely.spark.sinks import ForeachEpoch, Sink, SinkContext
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_files import write_epoch
from timely.spark.streaming.epoch_log import EpochLog, File, Outputs, process_epoch
from timely.spark.streaming.jobs import StreamJobs
from timely.spark.streaming.schemas import StreamSchemas
from timely.spark.streaming.supervisor import Supervisor
from timely.spark.streaming.worker_task import WorkerTask
from timely.spark.task import Build

_REPORTS = 100


@attrs.frozen
class EpochReport:
    """What an epoch came to: how many rows came in, how many each output gave, and the seconds that were spent.

    ``ingest``: Spark computed and wrote the micro-batch. ``computing``: the workers computed and wrote the outputs. ``handing``:
    ``foreach_epoch`` ran. Writing the epoch log is in none of them, nor is what Spark does around a micro-batch.
    """

    epoch: int
    rows: int
    outputs: Mapping[str, int]
    ingest: float
    computing: float
    handing: float


@attrs.frozen(kw_only=True)
class StreamPlan:
    """Everything that must be known to process the epochs of a stream, but the session and its DataFrames."""

    name: str
    build: Build
    inputs: tuple[InputTable, ...]
    outputs: tuple[OutputSchema, ...]
    schemas: Mapping[str, StructType]
    columns: StreamSchemas
    layout: pa.Schema
    """Of the rows of all inputs as one table."""
    directory: StreamDirectory
    foreach_epoch: ForeachEpoch | Sink
    workers: int
    every: int
    patience: float
    version: str
    memory: int | str | MemoryBudget | None

    def open(self, jobs: StreamJobs, first: DataFrame | None, live: ReportPage | None = None) -> Epochs:
        """Take the stream over from its current owner; return what processes its epochs, whose workers are not up yet.

        ``first`` has the rows of inputs that are no streams. Raises what :func:`timely.spark.stream` does for a checkpoint or a
        sink that cannot be.
        """
        epoch_log, id = _open(self.directory, self.columns)
        foreach_epoch = self.foreach_epoch
        if isinstance(foreach_epoch, Sink):
            foreach_epoch = foreach_epoch.open(SinkContext(jobs.session, id, self.schemas))
        server, log = rendezvous(*jobs.addresses), jobs.log
        receive = None if live is None else live.open(self.name)
        look: Look | None = None if live is None else live.look

        def make_task(run: RunEntry, attempt: str) -> WorkerTask:
            listen_for_page(run, receive)
            shipped = self.build, self.inputs, self.outputs, server.invitation(run)
            seen = partial(WorkerTask, *shipped, log=log, look=look, memory=self.memory)
            return seen(directory=self.directory, layout=self.layout, version=self.version, attempt=attempt)

        names = list(self.schemas)
        supervisor = Supervisor(jobs, server, self.workers, epoch_log, names, self.patience, make_task, self.name)
        return Epochs(jobs, self.directory, self.schemas, foreach_epoch, supervisor, epoch_log, self.every, first)


def _open(directory: StreamDirectory, schemas: StreamSchemas) -> tuple[EpochLog, str]:
    """Return the epoch log and the id of a stream, whose checkpoint must be of the same one, and whole."""
    epoch_log = EpochLog(directory.ledger())
    if epoch_log.last < 0:
        return epoch_log, schemas.settle(directory)
    id = schemas.check(directory)
    if not directory.names("query"):
        raise CheckpointError(f"{directory.uri} holds a stream whose query's own checkpoint, the folder query, is missing")
    return epoch_log, id


@attrs.define(eq=False)
class Epochs:
    """The steps of the epoch log: what is done with each micro-batch."""

    _jobs: StreamJobs
    directory: StreamDirectory
    _schemas: Mapping[str, StructType]
    _foreach_epoch: ForeachEpoch
    supervisor: Supervisor
    epoch_log: EpochLog
    _every: int
    _first: DataFrame | None
    reports: deque[EpochReport] = attrs.field(factory=lambda: deque(maxlen=_REPORTS), init=False)
    _kept: int = attrs.field(default=0, init=False)
    _frame: DataFrame | None = attrs.field(default=None, init=False)
    _seconds: dict[str, float] = attrs.field(factory=dict, init=False)

    def process(self, frame: DataFrame, epoch: int) -> None:
        self._frame = frame
        self._seconds = dict.fromkeys(("ingest", "computing", "handing"), 0.0)
        if process_epoch(self.epoch_log, epoch, self):
            self._report(epoch)
        self._frame = None
        if epoch + 1 - self._kept >= self._every:
            self._kept = epoch + 1
            self.supervisor.checkpoint(self._kept)
        self.prune()

    def _report(self, epoch: int) -> None:
        outputs = {name: sum(file.rows for file in files) for name, files in self.epoch_log.outputs(epoch).items()}
        rows = sum(file.rows for file in self.epoch_log.inputs(epoch))
        self.reports.append(EpochReport(epoch, rows, outputs, **self._seconds))

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[what] = time.perf_counter() - start

    def prune(self) -> None:
        """Delete the files of epochs that nothing will ask for any more."""
        boundary = self.supervisor.new_checkpoint()
        if boundary is None:
            return
        pruned = self.epoch_log.cover(boundary)
        for epoch in pruned:
            self.epoch_log.forget(epoch)  # fails where a newer driver has started, which may need the files
        for folder in ("inputs", "outputs") if pruned else ():
            for name in self.directory.names(folder):
                if name.isdecimal() and int(name) < self.epoch_log.oldest:
                    self.directory.delete(f"{folder}/{name}")

    def ingest(self, epoch: int) -> Sequence[File]:
        """Write the rows of the micro-batch by Spark's tasks, and with the first one those of inputs that are no streams."""
        assert self._frame is not None
        frame = self._frame if epoch or self._first is None else self._frame.unionAll(self._first)
        with self._timed("ingest"):
            return write_epoch(
                frame.coalesce(self._jobs.spare(self.supervisor.workers)), self.directory, epoch, self.supervisor.name
            )

    def compute(self, epoch: int) -> Outputs:
        """Compute the epoch on the workers."""
        with self._timed("computing"):
            return self.supervisor.compute(epoch)

    def deliver(self, epoch: int, outputs: Outputs) -> None:
        """Call the user's function. ``DeliveryError`` for what it raises."""
        tables = {name: self._table(schema, outputs.get(name, ())) for name, schema in self._schemas.items()}
        try:
            with self._timed("handing"):
                self._foreach_epoch(epoch, tables)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # on a thread of Spark's, where nobody else would see it
            raise DeliveryError(
                f"foreach_epoch raised {type(error).__name__} for epoch {epoch}: {error}. The epoch is not noted as delivered,"
                " and is handed over again, with the same rows, when the stream is started again",
                epoch,
            ) from error

    def _table(self, schema: StructType, files: Sequence[File]) -> DataFrame:
        if not files:
            return self._jobs.session.createDataFrame([], schema)
        paths = [self.directory.for_spark(file.name) for file in files]
        reader = self._jobs.session.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")  # whatever other files need
        return reader.parquet(*paths).coalesce(self._jobs.spare(self.supervisor.workers))
