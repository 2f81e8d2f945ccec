"""``stream``: micro-batches in, one dataflow that stays up, each epoch's complete outputs delivered to a function.

One streaming query carries the rows of all inputs; Spark's number of a micro-batch is its epoch. The invariant: epochs go through
the epoch log one at a time, in order, on the query's own thread, and Spark takes a micro-batch for done only when its epoch is
delivered. A stream that has ended has left nothing running, and can be started again from its checkpoint.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from timely.dataflow.output_schema import OutputSchema
from timely.errors import CheckpointError, ConfigurationError, DeliveryError, SparkError, TimelyError
from timely.spark.connect import refuse_streams
from timely.spark.defaults import RunDefaults
from timely.spark.logs import log_to_spark
from timely.spark.messages import check_patience
from timely.spark.plan import InputPlan, arrow_schema, check_build, check_cases, check_names, session_of, struct_type
from timely.spark.rendezvous import RunEntry, rendezvous
from timely.spark.reporting import Page, check_page, listen_for_page, name_of
from timely.spark.session import addresses, check_workers, concurrent_tasks, context_of
from timely.spark.sinks import ForeachEpoch, Sink, SinkContext, check_sink
from timely.spark.slots import settle
from timely.spark.streaming.directory import DirectoryLogFiles, StreamDirectory, StreamSchemas
from timely.spark.streaming.epoch_log import EpochLog, File, Outputs, process_epoch
from timely.spark.streaming.ingest import write_epoch
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


def stream(
    build: Build,
    inputs: Mapping[str, DataFrame],
    outputs: Mapping[str, str | StructType],
    *,
    workers: int | None = None,
    foreach_epoch: ForeachEpoch | Sink,
    checkpoint: str | os.PathLike[str],
    checkpoint_every: int = 10,
    trigger: Mapping[str, Any] | None = None,
    version: str = "",
    patience: float | None = None,
    live: Page | None = None,
) -> StreamHandle:
    """Start a dataflow that stays up on Spark, and whose epochs are the micro-batches of streaming DataFrames.

    ``build(scope, **streams)`` is called in every worker, as for :func:`~timely.spark.run`. The rows of micro-batch *n* enter at
    time *n*; an input that is no streaming DataFrame, beside one that is, enters as a whole at time 0. When everything at time
    *n* is complete, the driver calls ``foreach_epoch(n, {name: DataFrame})`` with the rows that the outputs gave at that time:
    for every epoch, also one without rows, in order, and at least once. A driver that is killed while the function runs calls it
    again with the same rows: make it idempotent by the epoch's number, or give a sink, such as
    :class:`~timely.spark.ParquetSink`, which has each epoch once. This requires a dataflow whose outputs depend on its input rows
    alone, whatever their order within an epoch.

    Everything that has to survive is under ``checkpoint``, a path or URI that driver and executors reach: the stream resumes from
    it, also with another number of workers. The state of the operators is written there every ``checkpoint_every`` epochs and by
    :meth:`StreamHandle.stop`. ``trigger`` goes to Spark (``{"availableNow": True}``, ``{"processingTime": "1 second"}``); a
    checkpoint of another ``version`` is refused. A :class:`timely.inspect.LivePage` as ``live`` shows the workers while they are
    up.

    Each worker holds a slot for as long as the stream is up, and Spark's own tasks need one more. Without ``workers`` there are
    as many as the session has slots, but for that one and those of other streams. Returns when the workers are up. Raises
    :class:`~timely.errors.ConfigurationError` for an argument that cannot be, :class:`~timely.errors.SchemaError` for a schema
    that cannot be read or is not that of the checkpoint, :class:`~timely.errors.SparkError` for too few slots, and what the
    workers raise when they build the dataflow, such as :class:`~timely.errors.ChangedDataflowError`. What happens later is
    :attr:`StreamHandle.failure`.

    >>> import tempfile
    >>> from timely.spark import local_session, stream
    >>> session = local_session(2)
    >>> numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().select("value")
    >>> def evens(scope, numbers):
    ...     return {"evens": numbers.map_batch(lambda batch: batch.filter([n % 2 == 0 for n in batch["value"].to_pylist()]))}
    >>> found = {}
    >>> def take(epoch, tables):
    ...     found[epoch] = sorted(row.value for row in tables["evens"].collect())
    ...     if epoch == 2:
    ...         handle.stop()
    >>> folder = tempfile.TemporaryDirectory()
    >>> tables = {"numbers": numbers}, {"evens": "value long"}
    >>> handle = stream(evens, *tables, workers=1, foreach_epoch=take, checkpoint=folder.name)
    >>> handle.await_termination()
    True
    >>> found
    {0: [0, 2], 1: [4], 2: [6, 8]}
    >>> folder.cleanup()
    """
    if workers is not None:
        check_workers(workers)
    _check_options(foreach_epoch, checkpoint_every, trigger)
    check_page(live)
    session = session_of(inputs)
    refuse_streams("the session of the inputs", session)
    defaults = RunDefaults.of(session)
    patience = defaults.patience if patience is None else patience
    check_patience(patience)
    fixed = [name for name, frame in inputs.items() if not frame.isStreaming]
    if len(fixed) == len(inputs):
        raise ConfigurationError(
            f"none of the inputs ({', '.join(fixed)}) is a streaming DataFrame: read one with session.readStream, or use"
            " timely.spark.run"
        )
    check_build(build, inputs)
    check_names("outputs", outputs)
    plan = InputPlan.of(inputs, None, None)
    schemas = {name: struct_type(session, name, schema) for name, schema in outputs.items()}
    if session.conf.get("spark.sql.caseSensitive", "false") != "true":
        for name, schema in schemas.items():
            check_cases(f"outputs[{name!r}]", schema)
    declared = tuple(OutputSchema(name, arrow_schema(schema)) for name, schema in schemas.items())
    directory = StreamDirectory.at(defaults.place(checkpoint, "stream", build))
    workers = settle(session, workers, defaults.workers, stays=True)
    epoch_log, id = _open(directory, StreamSchemas.of({name: frame.schema for name, frame in inputs.items()}, schemas))
    if isinstance(foreach_epoch, Sink):
        foreach_epoch = foreach_epoch.open(SinkContext(session, id, schemas))
    context = context_of(session)
    server, log = rendezvous(*addresses(context)), log_to_spark(context)
    name = name_of(build)
    receive, look = (None, None) if live is None else (live.open(name), live.look)

    def make_task(run: RunEntry, attempt: str) -> WorkerTask:
        listen_for_page(run, receive)
        given = build, plan.inputs, declared, server.invitation(run)
        seen = partial(WorkerTask, *given, log=log, look=look, memory=defaults.memory)
        return seen(directory=directory, version=version, attempt=attempt)

    supervisor = Supervisor(session, server, workers, epoch_log, list(schemas), patience, make_task, name)
    first = plan.whole(fixed) if fixed else None
    epochs = _Epochs(session, directory, schemas, foreach_epoch, supervisor, epoch_log, checkpoint_every, first)
    handle = StreamHandle(epochs)
    handle._start(plan.whole(inputs.keys() - fixed), trigger or {})
    return handle


def _check_options(foreach_epoch: object, checkpoint_every: object, trigger: object) -> None:
    if find_spec("pandas") is None:
        raise ConfigurationError(
            "Spark needs the package pandas to hand Arrow batches to Python: pip install '.[spark]' in a checkout of timely"
        )
    check_sink("foreach_epoch", foreach_epoch)
    if not isinstance(checkpoint_every, int) or isinstance(checkpoint_every, bool) or checkpoint_every < 1:
        raise ConfigurationError(f"checkpoint_every must be an integer of 1 or more, not {checkpoint_every!r}")
    known = list(inspect.signature(DataStreamWriter.trigger).parameters)[1:]
    if trigger is not None and not (isinstance(trigger, Mapping) and len(trigger) < 2 and set(trigger) <= set(known)):
        raise ConfigurationError(
            f"trigger must be a dictionary with one entry, such as {{'availableNow': True}}, and not {trigger!r}; Spark knows"
            f" {', '.join(known)}"
        )


def _open(directory: StreamDirectory, schemas: StreamSchemas) -> tuple[EpochLog, str]:
    """Return the epoch log and the id of a stream, whose checkpoint must be of the same one, and whole."""
    epoch_log = EpochLog(DirectoryLogFiles(directory))
    if epoch_log.last < 0:
        return epoch_log, schemas.settle(directory)
    id = schemas.check(directory)
    if not directory.names("query"):
        raise CheckpointError(f"{directory.uri} holds a stream whose query's own checkpoint, the folder query, is missing")
    return epoch_log, id


class _Epochs:
    """The steps of the epoch log: what is done with each micro-batch."""

    def __init__(
        self,
        session: SparkSession,
        directory: StreamDirectory,
        schemas: Mapping[str, StructType],
        foreach_epoch: ForeachEpoch,
        supervisor: Supervisor,
        epoch_log: EpochLog,
        every: int,
        first: DataFrame | None,
    ) -> None:
        self._session = session
        self._first = first
        self._directory = directory
        self._schemas = schemas
        self._foreach_epoch = foreach_epoch
        self.supervisor = supervisor
        self.epoch_log = epoch_log
        self._every = every
        self._kept = 0
        self._frame: DataFrame | None = None
        self._seconds: dict[str, float] = {}
        self.reports: deque[EpochReport] = deque(maxlen=_REPORTS)

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
        for epoch in self.epoch_log.cover(boundary):
            self._directory.delete(f"inputs/{epoch}")
            self._directory.delete(f"outputs/{epoch}")
            self.epoch_log.forget(epoch)

    def ingest(self, epoch: int) -> Sequence[File]:
        """Have Spark's tasks write the rows of the micro-batch, and with the first one those of inputs that are no streams."""
        assert self._frame is not None
        frame = self._frame if epoch or self._first is None else self._frame.unionAll(self._first)
        with self._timed("ingest"):
            return write_epoch(frame.coalesce(self._spare()), self._directory, epoch, self.supervisor.name)

    def compute(self, epoch: int) -> Outputs:
        """Have the workers compute the epoch."""
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
            return self._session.createDataFrame([], schema)
        paths = [self._directory.for_spark(file.name) for file in files]
        return self._session.read.schema(schema).parquet(*paths).coalesce(self._spare())

    def _spare(self) -> int:
        """Return how many tasks can run beside the workers; with more, an epoch takes longer for nothing."""
        return max(concurrent_tasks(context_of(self._session)) - self.supervisor.workers, 1)


class StreamHandle:
    """A stream that is up, or has ended."""

    def __init__(self, epochs: _Epochs) -> None:
        self._epochs = epochs
        self._query: StreamingQuery | None = None
        self._failure: TimelyError | None = None
        self._under_way = threading.RLock()
        self._busy: int | None = None
        self._stopping = False
        self._ended = threading.Event()

    def __repr__(self) -> str:
        return f"StreamHandle({'up' if self.is_active else 'ended'}, epoch={self.epoch}, failure={self.failure!r})"

    @property
    def query(self) -> StreamingQuery:
        """Spark's own streaming query, for its progress, its source's offsets and so on."""
        assert self._query is not None
        return self._query

    @property
    def epoch(self) -> int:
        """The last epoch that has been delivered, ``-1`` before the first."""
        return self._epochs.epoch_log.delivered

    @property
    def failure(self) -> TimelyError | None:
        """What ended the stream; ``None`` while it is up, and where it was stopped or its input ended."""
        return self._failure

    @property
    def is_active(self) -> bool:
        """Whether it is up."""
        return not self._ended.is_set()

    @property
    def recent(self) -> list[EpochReport]:
        """The reports of the last 100 epochs, the newest last."""
        return list(self._epochs.reports)

    @property
    def attempts(self) -> int:
        """How many times the workers have been started: once, and once more after each loss."""
        return self._epochs.supervisor.attempts

    @property
    def pids(self) -> Mapping[int, int]:
        """The process of each worker, by the worker's index; none while they are started."""
        return self._epochs.supervisor.pids

    def stop(self) -> None:
        """End the stream: finish the epoch under way, write a checkpoint, stop the workers.

        Returns when that is done; at once where ``foreach_epoch`` calls it, whose epoch is then the last. A no-op for a stream
        that has ended.
        """
        if self._busy == threading.get_ident():
            self._stopping = True
            threading.Thread(target=self.stop, name="timely-stop", daemon=True).start()
            return
        with self._under_way:
            self._stopping = True
        with contextlib.suppress(Exception):  # it, or its session, has ended already
            self.query.stop()
        self._ended.wait()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the stream to end, for at most so many seconds; return whether it has. Raises its :attr:`failure`."""
        if self._ended.wait(timeout) and self._failure is not None:
            raise self._failure
        return self._ended.is_set()

    # -- the life of a stream --------------------------------------------------------------------------------------------

    def _start(self, frame: DataFrame, trigger: Mapping[str, Any]) -> None:
        """Start the workers, then the query."""
        epochs = self._epochs
        epochs.supervisor.on_failure = self._give_up
        try:
            epochs.supervisor.begin()
            writer = frame.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", epochs._directory.for_spark("query"))
            self._query = (writer.trigger(**trigger) if trigger else writer).start()
            if epochs.supervisor.failure is not None:  # since it was ready
                self._give_up()
        except BaseException:
            epochs.supervisor.end()
            self._ended.set()
            raise
        threading.Thread(target=self._watch, name="timely-stream", daemon=True).start()

    def _on_batch(self, frame: DataFrame, epoch: int) -> None:
        """Process an epoch: Spark calls this for each micro-batch, which is done when it returns."""
        with self._under_way:
            if self._stopping:
                raise SparkError("the stream is being stopped")
            self._busy = threading.get_ident()
            try:
                self._epochs.process(frame, epoch)
            except TimelyError as error:
                self._failure = error
                raise
            finally:
                self._busy = None

    def _give_up(self) -> None:
        """End the query for want of workers."""
        with contextlib.suppress(Exception):
            self.query.stop()

    def _watch(self) -> None:
        """Wait for the query to end, and clean up behind it."""
        error: Exception | None = None
        try:
            self.query.awaitTermination()
        except Exception as raised:  # Spark's
            error = raised
        with self._under_way:
            supervisor = self._epochs.supervisor
            failure = self._failure or supervisor.failure
            if failure is None and error is not None and not self._stopping:
                failure = SparkError(f"the streaming query has ended: {error}")
                failure.__cause__ = error
            self._failure = failure
            supervisor.checkpoint(self._epochs.epoch_log.committed + 1)
            supervisor.end()
            with contextlib.suppress(Exception):
                self._epochs.prune()
        self._ended.set()
