"""A dataflow as a step between DataFrames: :func:`run` plans the one barrier stage whose tasks are the workers.

The invariant: no row passes through the driver, and what can be refused before a job starts is refused in :func:`run`. A shuffle
behind the barrier stage lets Spark retry it when a worker dies, and lets the DataFrames of a :class:`Result` be used like any.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors.exceptions import captured
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from timely.dataflow.output_schema import OutputSchema
from timely.errors import ConfigurationError, GraphError, OutputError, PeerLostError, SchemaError, TimelyError
from timely.memory import MemoryBudget, bytes_of
from timely.progress import ProgressGroups, ProgressMode
from timely.recovery.store import is_uri
from timely.spark.connect import functions_of, is_connect
from timely.spark.defaults import RunDefaults
from timely.spark.gathered_rendezvous import GatheredRendezvous, ObservedReports, RendezvousMode, failure_of, rendezvous_mode
from timely.spark.logs import LogPlan, log_to_spark
from timely.spark.packing import FAILED, REPORT, TAG, column_name, struct_name
from timely.spark.plan import ColumnOf, InputPlan, Partitioning, check_build, check_names, session_of, struct_type
from timely.spark.rendezvous import RunEntry
from timely.spark.rendezvous import rendezvous as driver_rendezvous
from timely.spark.reporting import Metrics, Monitor, ReportPage, RunProgress, check_page, listen_for_page, monitor, name_of
from timely.spark.resume import Checkpoints, interval, place
from timely.spark.session import addresses, check_workers, context_of, tasks_python
from timely.spark.shipping import carried
from timely.spark.slots import settle
from timely.spark.stage_messages import Failed, Silent, check_patience, revive
from timely.spark.task import Build, Task, check_outputs
from timely.spark.versions import arrow_schema, stay_in_partitions

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

_HOPELESS = (ConfigurationError, GraphError, SchemaError)
"""Errors that another attempt would only repeat."""

_log = logging.getLogger(__name__)


class Result(Mapping[str, DataFrame]):
    """The outputs of a run by name: lazy DataFrames.

    Of a single output every action runs the dataflow again; ``persist()`` it to use it twice. Of several outputs, the first
    action puts the rows of all into Spark's cache, so that one run serves them all; :meth:`unpersist` frees it.
    """

    def __init__(self, frames: Mapping[str, DataFrame], cached: DataFrame | None, reports: Monitor | ObservedReports) -> None:
        self._frames = dict(frames)
        self._cached = cached
        self._reports = reports

    def __getitem__(self, name: str) -> DataFrame:
        try:
            return self._frames[name]
        except KeyError:
            raise OutputError(f"there is no output {name!r}; the outputs are {', '.join(map(repr, self._frames))}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {frame.schema.simpleString()}' for name, frame in self.items())})"

    @property
    def failure(self) -> TimelyError | None:
        """The typed error of the worker that failed last, which Spark's own exception only quotes; ``None`` if none failed.

        ``SparkError`` over Spark Connect: :func:`failure_of` finds it in the exception.
        """
        return self._reports.failure

    @property
    def progress(self) -> RunProgress | None:
        """How far the current or last run is, as its workers report about once a second; ``None`` before the first report.

        Over Spark Connect there is one report, at the end of a run that has succeeded.
        """
        return self._reports.progress

    @property
    def metrics(self) -> Metrics:
        """What each worker did in the last run that succeeded; empty before that."""
        return self._reports.metrics

    @property
    def resumed(self) -> list[int]:
        """With ``checkpoint``: the epochs from which attempts of this run resumed, in order.

        Over Spark Connect it is that of the attempt that succeeded.
        """
        return self._reports.resumed

    def unpersist(self) -> None:
        """Remove the outputs from Spark's cache. The next action runs the dataflow again."""
        if self._cached is not None:
            self._cached.unpersist()


def run(
    build: Build,
    inputs: Mapping[str, DataFrame],
    outputs: Mapping[str, str | StructType],
    *,
    workers: int | None = None,
    epoch: ColumnOf | None = None,
    key: ColumnOf | None = None,
    partitioning: Partitioning = "even",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | timedelta = timedelta(seconds=10),
    patience: float | None = None,
    progress: ProgressMode = "direct",
    live: ReportPage | None = None,
    memory: int | str | MemoryBudget | None = None,
    version: str = "",
    rendezvous: RendezvousMode | None = None,
) -> Result:
    """Run a dataflow on Spark: DataFrames in, DataFrames out, one worker in each of ``workers`` tasks of one barrier stage.

    Without ``workers``, a run has as many as the session has slots that no stream holds. ``build(scope, **streams)`` is called in
    every worker, and a copy once here to check what it returns. It gets a stream of Arrow batches for each of ``inputs``, under
    its name, and returns a dictionary of such streams, one for each of ``outputs``, whose values are schemas: DDL strings or a
    ``StructType``. Rows are partitioned evenly, or by the hash of the column ``key``. With ``partitioning="hash"`` rows without a
    key go by the hash of all their columns, which Spark does several times faster; the partitions are uneven where many rows are
    equal. Rows enter at time 0, or at the time in the integer column ``epoch``, in ascending order in each worker. Both may be
    one column that every input has, or a dictionary from inputs to columns.

    With ``checkpoint``, the state of the operators and the outputs so far are written there, after every ``checkpoint_every``
    epochs that have rows, or that much time; when all rows are in, also in the middle of a loop, with the messages in flight. It
    is a path or URI that the driver and all executors reach, for this run alone. A stage that fails, or another run of the
    program, resumes from the newest checkpoint, with the same result, and on any number of workers if nothing was in flight. A
    checkpoint of another ``version``, a text of your own, is refused. A run that ends deletes its checkpoints
    (``docs/spark.md``). A worker without a sign of life for ``patience`` seconds (30) is declared gone. ``progress`` is the mode
    of progress aggregation, as for :func:`timely.execute` (``docs/memory.md``). A :class:`timely.inspect.LivePage` as ``live``
    shows the run while it goes on (``docs/live.md``). ``memory`` is what each worker's process may take (``"2GB"``), or a
    :class:`timely.memory.MemoryBudget`. The default is what the system allows: ``spark.executor.pyspark.memory`` where that is
    set (``docs/memory.md``). Settings ``spark.timely.*`` of the session stand in for arguments (``docs/spark_operations.md``).

    Workers meet at the driver, or with ``rendezvous="all_gather"`` at one of them: so they do over Spark Connect, and where
    executors cannot reach the driver (``docs/spark_operations.md``).

    The session must have a slot for each worker; executors that are still starting are waited for. Every
    executor must be able to import ``timely`` and whatever ``build`` uses. Raises before any job starts:
    :class:`~timely.errors.ConfigurationError` for an argument that cannot be, :class:`~timely.errors.SchemaError` for a schema
    that cannot be read or a missing column, :class:`~timely.errors.SparkError` for too few slots. What a worker raises ends its
    stage, is retried by Spark a few times, and is then raised by the action; see :attr:`Result.failure`.

    >>> from timely.spark import local_session, run
    >>> session = local_session(2)
    >>> def swap(scope, edges):
    ...     return {"swapped": edges.map_batch(lambda batch: batch.select(["dst", "src"]))}
    >>> edges = session.createDataFrame([("a", "b"), ("b", "c")], "src string, dst string")
    >>> result = run(swap, {"edges": edges}, {"swapped": "dst string, src string"}, workers=2)
    >>> sorted(tuple(row) for row in result["swapped"].collect())
    [('b', 'a'), ('c', 'b')]
    """
    if workers is not None:
        check_workers(workers)
    ProgressGroups.named(progress, workers or 1)
    check_page(live)
    if isinstance(memory, int | str):
        bytes_of(memory)
    if find_spec("pandas") is None:
        raise ConfigurationError(
            'Spark needs the package pandas to hand Arrow batches to Python: pip install "timely-dataflow[spark]"'
        )
    session = session_of(inputs)
    for name, frame in inputs.items():
        if frame.isStreaming:
            raise ConfigurationError(
                f"inputs[{name!r}] is a streaming DataFrame: read it with session.read, or use timely.spark.stream"
            )
    check_build(build, inputs)
    check_names("outputs", outputs)
    plan = InputPlan.of(inputs, epoch, key, partitioning)
    schemas = {name: struct_type(session, name, schema) for name, schema in outputs.items()}
    check_outputs(build, inputs, outputs)
    by_worker = rendezvous_mode(session, rendezvous) == "all_gather"
    if by_worker and live is not None:
        raise ConfigurationError(
            "live= needs workers that report to the process of the program, and these cannot reach it: leave it out; "
            "Result.metrics says afterwards what each has done"
        )
    defaults = RunDefaults.of(session)
    patience = defaults.patience if patience is None else patience
    check_patience(patience)
    workers = settle(session, workers, defaults.workers)
    memory = defaults.memory if memory is None else memory
    checkpoint = defaults.place(checkpoint, "run", build)
    checkpoints = None if checkpoint is None else _checkpoints(session, checkpoint, checkpoint_every, plan, schemas, version)
    declared = tuple(OutputSchema(name, arrow_schema(schema)) for name, schema in schemas.items())
    name, rows = name_of(build), _rows_of_a_batch(session)
    if by_worker:
        gathering = GatheredRendezvous(workers, patience)
        task = Task(build, plan.inputs, declared, gathering, rows, LogPlan(), checkpoints, progress, memory=memory)
        packed = _barrier_stage(session, plan.frame(session, workers), task, name, _packed_type(schemas, reported=True))
        observed = ObservedReports(session, workers)
        return _unpacked(observed.observe(packed), schemas, workers, observed)
    context = context_of(session)
    server = driver_rendezvous(*addresses(context))
    entry = server.open_run(workers, patience=patience, place=None if checkpoints is None else checkpoints.where)
    FailurePolicy(context, entry)
    raise_typed_errors()
    listen_for_page(entry, None if live is None else live.open(name))
    shipped = build, plan.inputs, declared, server.invitation(entry), rows, log_to_spark(context), checkpoints, progress
    task = Task(*shipped, look=None if live is None else live.look, memory=memory)
    packed = _barrier_stage(session, plan.frame(session, workers), task, name, _packed_type(schemas))
    entry.wanted = has_plan(packed)
    return _unpacked(packed, schemas, workers, monitor(session, entry, name))


def _barrier_stage(session: SparkSession, rows: DataFrame, task: Task, name: str, schema: StructType) -> DataFrame:
    with tasks_python(session):
        return rows.mapInArrow(carried(task.run, f"timely {name}"), schema, barrier=True)


def _rows_of_a_batch(session: SparkSession) -> int:
    """Return the most rows of an Arrow batch in this session; 0 for no bound."""
    return max(int(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000") or 0), 0)


def _checkpoints(
    session: SparkSession,
    where: str | os.PathLike[str],
    every: int | timedelta,
    plan: InputPlan,
    schemas: Mapping[str, StructType],
    version: str,
) -> Checkpoints:
    inputs = [f"{name}: {frame.schema.simpleString()} by {plan.epochs.get(name)}" for name, frame in plan.frames.items()]
    outputs = [f"{name}: {schema.simpleString()}" for name, schema in schemas.items()]
    amount, timed = interval(every)
    if not (timed or plan.epochs):
        raise ConfigurationError(
            f"checkpoint_every={every!r} counts epochs, and without epoch= all rows are of one: give a datetime.timedelta"
        )
    if is_connect(session) and not is_uri(str(where)) and not os.path.isabs(where):
        raise ConfigurationError(
            f"checkpoint={str(where)!r} is relative to a folder of this machine, and the workers are on those of the cluster: "
            "give an absolute path or a URI"
        )
    described = f"{'; '.join(inputs)} -> {'; '.join(outputs)}{version and f' by {version}'}"
    return Checkpoints(place(where), amount, timed, described, bool(plan.epochs))


def _packed_type(schemas: Mapping[str, StructType], *, reported: bool = False) -> StructType:
    """Return the schema of the barrier stage: the one output, or all of them packed, with the report where one is to come."""
    if len(schemas) == 1 and not reported:
        return next(iter(schemas.values()))
    structs = [StructField(struct_name(position), _by_number(kind)) for position, kind in enumerate(schemas.values())]
    report = [StructField(REPORT, StringType())] if reported else []
    return StructType([StructField(TAG, IntegerType(), False), *structs, *report])


def _by_number(schema: StructType) -> StructType:
    return StructType([StructField(column_name(at), field.dataType, field.nullable) for at, field in enumerate(schema)])


def _unpacked(packed: DataFrame, schemas: Mapping[str, StructType], workers: int, reports: Monitor | ObservedReports) -> Result:
    """Return the outputs. The shuffle leaves each row in its worker's partition, and makes a stage that Spark can retry."""
    F = functions_of(packed.sparkSession)
    shuffled = stay_in_partitions(packed, workers, F)
    reported = REPORT in packed.columns
    if len(schemas) == 1 and not reported:
        return Result(dict.fromkeys(schemas, shuffled), None, reports)
    if reported:
        # What takes the report away must come behind the shuffle: Spark forgets the report of a stage whose shuffle has no rows.
        # And an error that was raised before it would have Spark try the barrier stage again.
        never = F.monotonically_increasing_id() < 0
        error = F.raise_error(F.col(REPORT)).cast("boolean")
        shuffled = shuffled.where(F.when(F.col(TAG) == FAILED, error).otherwise((F.col(TAG) >= 0) | never))
    cached = shuffled.persist() if len(schemas) > 1 else None
    frames = {}
    for position, (name, schema) in enumerate(schemas.items()):
        columns = (
            F.col(f"{struct_name(position)}.{column_name(at)}").alias(field.name, metadata=field.metadata)
            for at, field in enumerate(schema)
        )
        frames[name] = shuffled.where(F.col(TAG) == position).select(*columns)
    return Result(frames, cached, reports)


# -- while it runs -------------------------------------------------------------------------------------------------------


class FailurePolicy:
    """Cancels a stage that would only fail again.

    Spark runs a barrier stage again whatever it failed of, four times by default. The invariant: a stage is cancelled only for an
    error that another attempt would repeat, or one that two attempts in a row have ended in; never for a lost worker.
    """

    def __init__(self, context: SparkContext, run: RunEntry) -> None:
        self._context = context
        self._last: dict[int, tuple[int, tuple[str, ...]]] = {}
        run.listen(Failed, self._receive)
        run.listen(Silent, self._on_silence)

    def _receive(self, worker: int, generation: int, message: Failed) -> None:
        error = revive(message.error)
        note_failure(error, message.error)
        if self.is_final(error, message.error, message.stage, generation):
            reason = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            threading.Thread(target=self._cancel, args=(message.stage, reason), name="timely-cancel", daemon=True).start()

    def _on_silence(self, worker: int, generation: int, message: Silent) -> None:
        """Kill the task of a worker that is gone: it may be the only one of its stage, and never end."""
        threading.Thread(target=self._kill, args=(message.task, message.why), name="timely-cancel", daemon=True).start()

    def _kill(self, task: int, reason: str) -> None:
        try:
            self._context._jsc.sc().killTaskAttempt(task, True, reason)
        except Exception:  # it has ended, or the session is being stopped
            _log.debug("task %d could not be killed", task, exc_info=True)

    def is_final(self, error: TimelyError, description: dict[str, Any], stage: int, generation: int) -> bool:
        """Return whether a stage that failed with this error is not to be tried again."""
        if isinstance(error, PeerLostError):
            return False
        fields, worker = ("type", "name", "path", "message"), f"worker {description['worker']} "
        same = tuple(str(description[field]).replace(worker, "") for field in fields)
        before = self._last.get(stage)
        if before is None or before[0] < generation:  # what else is said in an attempt mostly comes of what was said first
            self._last[stage] = generation, same
        return isinstance(error, _HOPELESS) or (before is not None and before[0] < generation and before[1] == same)

    def _cancel(self, stage: int, reason: str) -> None:
        try:
            self._context._jsc.sc().cancelStage(stage, reason)
        except Exception:  # the session is being stopped: nothing is left to cancel
            _log.debug("stage %d could not be cancelled", stage, exc_info=True)


def has_plan(frame: DataFrame) -> Callable[[], bool]:
    """Return a function that returns whether Java still has a plan that runs the function that ``frame`` maps.

    Plans, cached tables and jobs all refer to the one object of that function; a weak reference to it keeps nothing alive.
    """
    jvm: Any = frame.sparkSession._jvm
    function = frame._jdf.queryExecution().logical().functionExpr().func()
    reference = jvm.java.lang.ref.WeakReference(function)

    def has() -> bool:
        try:
            return reference.get() is not None
        except Exception:  # the JVM has ended, and its plans with it
            return False

    return has


# PySpark has one function that makes Python's exception of Java's, for all DataFrames. It asks here first: an exception that
# quotes no error of a worker of this program stays what Spark made of it.

_RECENT: Final[deque[tuple[str, dict[str, Any]]]] = deque(maxlen=1024)
"""The last errors of workers: the text by which Spark's exception quotes one, and its description."""


def note_failure(error: TimelyError, description: dict[str, Any]) -> None:
    """Remember the error of a worker: the exception of an action that quotes it becomes that error."""
    _RECENT.append((f"{type(error).__name__}: {error}", description))


@cache
def raise_typed_errors() -> None:
    """Have the actions of this process raise the typed errors of workers. Another call changes nothing."""
    spark_converted = captured.convert_exception
    captured.convert_exception = lambda e: _typed_error(str(e.toString())) or spark_converted(e)


def _typed_error(text: str) -> Any:
    """Return the error that an exception of Java quotes. Others may come meanwhile, from the thread of the rendezvous."""
    quoted = next((description for quote, description in reversed(_RECENT.copy()) if quote in text), None)
    return failure_of(RuntimeError(text)) if quoted is None else revive(quoted)
