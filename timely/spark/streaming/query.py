"""``stream``: micro-batches in, one dataflow that stays up, each epoch's complete outputs delivered to a function.

One streaming query carries the rows of all inputs; Spark's number of a micro-batch is its epoch. The invariant: what can be
refused before anything starts is refused here, at the call. In a classic session epochs go through the epoch log one at a time,
in order, on the query's own thread. Spark takes a micro-batch for done only when its epoch is delivered. A stream that has ended
has left nothing running, and can be started again.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import secrets
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from timely.dataflow.output_schema import OutputSchema
from timely.errors import ConfigurationError, SparkError, TimelyError
from timely.spark.connect import is_connect
from timely.spark.defaults import RunDefaults
from timely.spark.plan import InputPlan, check_build, check_cases, check_names, session_of, struct_type
from timely.spark.reporting import ReportPage, check_page, name_of
from timely.spark.session import check_workers
from timely.spark.sinks import ForeachEpoch, Sink, check_sink
from timely.spark.slots import settle
from timely.spark.stage_messages import check_patience
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.handle import StreamHandle
from timely.spark.streaming.jobs import StreamJobs
from timely.spark.streaming.micro_batches import EpochReport, Epochs, StreamPlan
from timely.spark.streaming.schemas import StreamSchemas, stored_inputs, with_columns_of
from timely.spark.streaming.server_query import check_for_server, start_at_server
from timely.spark.task import Build
from timely.spark.versions import arrow_schema


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
    live: ReportPage | None = None,
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
    checkpoint = defaults.place(checkpoint, "stream", build)
    directory = StreamDirectory.at(checkpoint)
    stored = stored_inputs(session, directory)
    inputs = {name: with_columns_of(stored[name], frame, name) if name in stored else frame for name, frame in inputs.items()}
    plan = InputPlan.of(inputs, None, None)
    schemas = {name: struct_type(session, name, schema) for name, schema in outputs.items()}
    if session.conf.get("spark.sql.caseSensitive", "false") != "true":
        for name, schema in schemas.items():
            check_cases(f"outputs[{name!r}]", schema)
    declared = tuple(OutputSchema(name, arrow_schema(schema)) for name, schema in schemas.items())
    if is_connect(session):
        check_for_server(checkpoint, live, foreach_epoch)
    rows, first = plan.whole(inputs.keys() - fixed), plan.whole(fixed) if fixed else None
    planned = StreamPlan(
        name=name_of(build),
        build=build,
        inputs=plan.inputs,
        outputs=declared,
        schemas=schemas,
        columns=StreamSchemas({name: frame.schema for name, frame in inputs.items()}, schemas),
        layout=arrow_schema(rows.schema),
        directory=directory,
        foreach_epoch=foreach_epoch,
        workers=settle(session, workers, defaults.workers, stays=True),
        every=checkpoint_every,
        patience=patience,
        version=version,
        memory=defaults.memory,
    )
    try:
        if is_connect(session):
            return start_at_server(planned, rows, first, trigger or {})
        handle = _DriverStreamHandle(planned.open(StreamJobs(session, f"timely-{secrets.token_hex(4)}"), first, live))
        handle.start(rows, trigger or {})
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark cannot hand over the rows of {', '.join(map(repr, inputs))} as they come: {str(error).splitlines()[0]} An"
            " aggregation belongs into build, as group_by(...); or give its DataFrame a watermark (withWatermark) before it"
        ) from error
    return handle


def _check_options(foreach_epoch: object, checkpoint_every: object, trigger: object) -> None:
    if find_spec("pandas") is None:
        raise ConfigurationError(
            'Spark needs the package pandas to hand Arrow batches to Python: pip install "timely-dataflow[spark]"'
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


class _DriverStreamHandle(StreamHandle):
    """A stream whose epochs this process runs."""

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self._epochs = epochs
        self._under_way = threading.RLock()
        self._busy: int | None = None
        self._stopping = False

    @property
    def epoch(self) -> int:
        return self._epochs.epoch_log.delivered

    @property
    def recent(self) -> list[EpochReport]:
        return list(self._epochs.reports)

    @property
    def attempts(self) -> int:
        return self._epochs.supervisor.attempts

    @property
    def pids(self) -> Mapping[int, int]:
        return self._epochs.supervisor.pids

    def stop(self) -> None:
        if self._busy == threading.get_ident():
            self._stopping = True
            threading.Thread(target=self.stop, name="timely-stop", daemon=True).start()
            return
        with self._under_way:
            self._stopping = True
        with contextlib.suppress(Exception):  # it, or its session, has ended already
            self.query.stop()
        self._ended.wait()

    def start(self, frame: DataFrame, trigger: Mapping[str, Any]) -> None:
        epochs = self._epochs
        epochs.supervisor.on_failure = self._give_up
        try:
            epochs.supervisor.begin()
            writer = frame.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", epochs.directory.for_spark("query"))
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
