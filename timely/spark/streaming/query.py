"""``stream``: micro-batches in, one dataflow that stays up, each epoch's complete outputs handed to a function.

The driver's side of a stream. One streaming query carries the rows of all inputs; the number that Spark gives to a
micro-batch is its epoch. The invariant: epochs go through the ledger one at a time, in order, on the query's own thread, and
Spark takes a micro-batch for done only when its epoch is delivered. A caller may assume that a stream that has ended, for
whatever reason, has left nothing running, and can be started again from its checkpoint.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from timely.dataflow.output_schema import Output
from timely.errors import CheckpointError, ConfigurationError, DeliveryError, SparkError, TimelyError
from timely.spark.logs import log_to_spark
from timely.spark.messages import SILENCE, check_patience
from timely.spark.plan import InputPlan, arrow_schema, check_build, check_cases, check_names, session_of, struct_type
from timely.spark.rendezvous import RunEntry, rendezvous
from timely.spark.reporting import Page, check_page, listen_for_page, name_of
from timely.spark.session import addresses, check_workers, concurrent_tasks, context_of
from timely.spark.slots import settle
from timely.spark.streaming.directory import DirectoryFiles, StreamDirectory, StreamSchemas
from timely.spark.streaming.epoch_log import EpochLog, File, Outputs, go_through
from timely.spark.streaming.ingest import take_in
from timely.spark.streaming.supervisor import Supervisor
from timely.spark.streaming.worker_task import WorkerTask
from timely.spark.task import Build

ForeachEpoch = Callable[[int, Mapping[str, DataFrame]], object]
"""Takes the outputs of an epoch: ``foreach_epoch(epoch, {name: DataFrame})``."""

_REPORTS = 100


@attrs.frozen
class EpochReport:
    """What an epoch came to: how many rows came in, how many each output gave, and the seconds that were spent.

    ``taking``: Spark computed the micro-batch, and its tasks wrote it. ``computing``: the workers computed the outputs and
    wrote them. ``handing``: ``foreach_epoch`` ran. The notes of the ledger are in none of them, nor is what Spark does around
    a micro-batch.
    """

    epoch: int
    rows: int
    outputs: Mapping[str, int]
    taking: float
    computing: float
    handing: float


def stream(
    build: Build,
    inputs: Mapping[str, DataFrame],
    outputs: Mapping[str, str | StructType],
    *,
    workers: int | None = None,
    foreach_epoch: ForeachEpoch,
    checkpoint: str | os.PathLike[str],
    checkpoint_every: int = 10,
    trigger: Mapping[str, Any] | None = None,
    version: str = "",
    patience: float = SILENCE,
    live: Page | None = None,
) -> StreamHandle:
    """Start a dataflow that stays up on Spark, and whose epochs are the micro-batches of streaming DataFrames.

    ``build(scope, **streams)`` is called in every worker, as for :func:`~timely.spark.run`: it gets a stream of Arrow batches
    for each of ``inputs``, and returns one for each of ``outputs``, whose values are schemas. The rows of micro-batch *n*
    enter at time *n*. When everything at time *n* is complete, ``foreach_epoch(n, {name: DataFrame})`` is called in the
    driver with the rows that the outputs gave at that time; every epoch, also one without rows, in order, and at least once.
    A driver that is killed while the function runs calls it for that epoch again, with the same rows: make it idempotent by
    the epoch's number. A dataflow that does nothing but what its input rows say, in whatever order they come within an epoch,
    is what all this rests on.

    Everything that has to survive is under ``checkpoint``, a path or URI that driver and executors reach: start again with
    the same one and the stream goes on, also with another number of workers. The state of the operators is written there
    every ``checkpoint_every`` epochs and by :meth:`StreamHandle.stop`. ``trigger`` goes to Spark (``{"availableNow": True}``,
    ``{"processingTime": "1 second"}``), ``version`` is your own, and a checkpoint of another one is refused.
    A :class:`timely.inspect.LivePage` that is given as ``live`` shows the workers while they are up.

    The workers hold a slot each for as long as the stream is up, and one more is needed for Spark's own tasks; where ``workers``
    is not given they are as many as the session has slots, but that one and those that other streams hold. Returns when they
    are up. Raises :class:`~timely.errors.ConfigurationError` for what cannot be, among it inputs that are not streaming;
    :class:`~timely.errors.SchemaError` for a schema that cannot be read, or is not the one that the checkpoint was made with;
    :class:`~timely.errors.SparkError` for too few slots; and what the workers raise when they build the dataflow, among it
    :class:`~timely.errors.ChangedDataflowError` for another one than the checkpoint is of. What happens later is
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
    check_patience(patience)
    check_page(live)
    session = session_of(inputs)
    for name, frame in inputs.items():
        if not frame.isStreaming:
            raise ConfigurationError(
                f"inputs[{name!r}] is no streaming DataFrame: read it with session.readStream, or use timely.spark.run"
            )
    check_build(build, inputs)
    check_names("outputs", outputs)
    plan = InputPlan.of(inputs, None, None)
    schemas = {name: struct_type(name, schema) for name, schema in outputs.items()}
    if session.conf.get("spark.sql.caseSensitive", "false") != "true":
        for name, schema in schemas.items():
            check_cases(f"outputs[{name!r}]", schema)
    declared = tuple(Output(name, arrow_schema(schema)) for name, schema in schemas.items())
    place = StreamDirectory.at(checkpoint)
    workers = settle(session, workers, stays=True)
    ledger = _open(place, StreamSchemas.of({name: frame.schema for name, frame in inputs.items()}, schemas))
    context = context_of(session)
    server, log = rendezvous(*addresses(context)), log_to_spark(context)
    receive, look = (None, None) if live is None else (live.open(name_of(build)), live.look)

    def make_task(run: RunEntry, attempt: str) -> WorkerTask:
        listen_for_page(run, receive)
        given = build, plan.inputs, declared, server.invitation(run)
        return WorkerTask(*given, log=log, look=look, place=place, version=version, attempt=attempt)

    supervisor = Supervisor(session, server, workers, ledger, list(schemas), patience, make_task)
    epochs = _Epochs(session, place, schemas, foreach_epoch, supervisor, ledger, checkpoint_every)
    handle = StreamHandle(epochs)
    handle._start(plan.whole(), trigger or {})
    return handle


def _check_options(foreach_epoch: object, checkpoint_every: object, trigger: object) -> None:
    if find_spec("pandas") is None:
        raise ConfigurationError(
            "Spark needs the package pandas to hand Arrow batches to Python: pip install '.[spark]' in a checkout of timely"
        )
    if not callable(foreach_epoch):
        raise ConfigurationError(f"foreach_epoch must be a function of an epoch and its tables, not {foreach_epoch!r}")
    if not isinstance(checkpoint_every, int) or isinstance(checkpoint_every, bool) or checkpoint_every < 1:
        raise ConfigurationError(f"checkpoint_every must be an integer of 1 or more, not {checkpoint_every!r}")
    known = list(inspect.signature(DataStreamWriter.trigger).parameters)[1:]
    if trigger is not None and not (isinstance(trigger, Mapping) and len(trigger) < 2 and set(trigger) <= set(known)):
        raise ConfigurationError(
            f"trigger must be a dictionary with one entry, such as {{'availableNow': True}}, and not {trigger!r}; Spark knows"
            f" {', '.join(known)}"
        )


def _open(place: StreamDirectory, identity: StreamSchemas) -> EpochLog:
    """Return the ledger of a stream, whose checkpoint must be of the same one, and whole."""
    ledger = EpochLog(DirectoryFiles(place))
    if ledger.last < 0:
        identity.settle(place)
        return ledger
    identity.check(place)
    if not place.names("query"):
        raise CheckpointError(f"{place.uri} holds a stream whose query's own checkpoint, the folder query, is missing")
    return ledger


class _Epochs:
    """What is done with each micro-batch: the steps that the ledger asks for."""

    def __init__(
        self,
        session: SparkSession,
        place: StreamDirectory,
        schemas: Mapping[str, StructType],
        foreach_epoch: ForeachEpoch,
        supervisor: Supervisor,
        ledger: EpochLog,
        every: int,
    ) -> None:
        self._session = session
        self._place = place
        self._schemas = schemas
        self._foreach_epoch = foreach_epoch
        self.supervisor = supervisor
        self.ledger = ledger
        self._every = every
        self._kept = 0
        self._frame: DataFrame | None = None
        self._seconds: dict[str, float] = {}
        self.reports: deque[EpochReport] = deque(maxlen=_REPORTS)

    def go_through(self, frame: DataFrame, epoch: int) -> None:
        """Do all that is to be done for a micro-batch."""
        self._frame = frame
        self._seconds = dict.fromkeys(("taking", "computing", "handing"), 0.0)
        if go_through(self.ledger, epoch, self):
            self._report(epoch)
        self._frame = None
        if epoch + 1 - self._kept >= self._every:
            self._kept = epoch + 1
            self.supervisor.checkpoint(self._kept)
        self.prune()

    def _report(self, epoch: int) -> None:
        outputs = {name: sum(file.rows for file in files) for name, files in self.ledger.outputs(epoch).items()}
        rows = sum(file.rows for file in self.ledger.inputs(epoch))
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
        for epoch in self.ledger.cover(boundary):
            self._place.delete(f"inputs/{epoch}")
            self._place.delete(f"outputs/{epoch}")
            self.ledger.forget(epoch)

    def take(self, epoch: int) -> Sequence[File]:
        """Have Spark's tasks write the rows of the micro-batch."""
        assert self._frame is not None
        with self._timed("taking"):
            return take_in(self._frame.coalesce(self._spare()), self._place, epoch)

    def compute(self, epoch: int) -> Outputs:
        """Have the workers compute the epoch."""
        with self._timed("computing"):
            return self.supervisor.compute(epoch)

    def hand_over(self, epoch: int, outputs: Outputs) -> None:
        """Call the user's function. ``DeliveryError`` for what it raises."""
        tables = {name: self._table(schema, outputs.get(name, ())) for name, schema in self._schemas.items()}
        try:
            with self._timed("handing"):
                self._foreach_epoch(epoch, tables)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # on a thread of Spark's, which nobody else would hear of
            raise DeliveryError(
                f"foreach_epoch raised {type(error).__name__} for epoch {epoch}: {error}. The epoch is not noted as delivered,"
                " and is handed over again, with the same rows, when the stream is started again",
                epoch,
            ) from error

    def _table(self, schema: StructType, files: Sequence[File]) -> DataFrame:
        if not files:
            return self._session.createDataFrame([], schema)
        paths = [self._place.for_spark(file.name) for file in files]
        return self._session.read.schema(schema).parquet(*paths).coalesce(self._spare())

    def _spare(self) -> int:
        """Return how many tasks can run beside the workers: with more of them than that, an epoch takes longer for nothing."""
        return max(concurrent_tasks(context_of(self._session)) - self.supervisor.workers, 1)


class StreamHandle:
    """A stream that is up, or has been: :meth:`stop`, :meth:`await_termination`, and what there is to know of it."""

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
        """The last epoch that has been handed over, ``-1`` before the first."""
        return self._epochs.ledger.delivered

    @property
    def failure(self) -> TimelyError | None:
        """What ended the stream; ``None`` while it is up, and where it was stopped, or came to the end of its input."""
        return self._failure

    @property
    def is_active(self) -> bool:
        """Whether it is up."""
        return not self._ended.is_set()

    @property
    def recent(self) -> list[EpochReport]:
        """What the last 100 epochs came to that this stream has handed over, the newest last."""
        return list(self._epochs.reports)

    @property
    def attempts(self) -> int:
        """How many times the workers have been brought up: once, and once more each time that one was lost."""
        return self._epochs.supervisor.attempts

    @property
    def pids(self) -> Mapping[int, int]:
        """The operating system's number of each worker's process, by the worker's index; none while they are brought up."""
        return self._epochs.supervisor.pids

    def stop(self) -> None:
        """End the stream: the epoch under way is finished, the state is written to a checkpoint, the workers leave.

        Returns when that is done; at once, when it is called by ``foreach_epoch``, whose epoch is the last one then. Does
        nothing more for a stream that has ended.
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
        """Bring up the workers, then the query."""
        epochs = self._epochs
        epochs.supervisor.on_failure = self._give_up
        try:
            epochs.supervisor.begin()
            writer = frame.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", epochs._place.for_spark("query"))
            self._query = (writer.trigger(**trigger) if trigger else writer).start()
            if epochs.supervisor.failure is not None:  # since it was ready
                self._give_up()
        except BaseException:
            epochs.supervisor.end()
            self._ended.set()
            raise
        threading.Thread(target=self._watch, name="timely-stream", daemon=True).start()

    def _on_batch(self, frame: DataFrame, epoch: int) -> None:
        """Take an epoch to its end: what Spark calls for each micro-batch, and takes for done when it returns."""
        with self._under_way:
            if self._stopping:
                raise SparkError("the stream is being stopped")
            self._busy = threading.get_ident()
            try:
                self._epochs.go_through(frame, epoch)
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
            supervisor.checkpoint(self._epochs.ledger.committed + 1)
            supervisor.end()
            with contextlib.suppress(Exception):
                self._epochs.prune()
        self._ended.set()
