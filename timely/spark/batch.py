"""A dataflow as a step between DataFrames: :func:`run` plans the one barrier stage whose tasks are the workers.

The driver's side of the pipeline. What leaves for the workers is a :class:`~timely.spark.task.Task`; what stays is
the run's entry at the rendezvous. The invariant: no row of input or output passes through the driver, and whatever
can be refused before a job starts is refused in :func:`run`. A caller may assume that the DataFrames of a
:class:`Result` work with everything that DataFrames work with: the barrier stage, of which Spark says that much does
not, is hidden behind a shuffle, which is also what lets Spark run the stage again when a worker dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import reduce
from importlib.util import find_spec
from typing import Any

import attrs
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from timely.errors import ConfigurationError, SchemaError, TimelyError
from timely.spark.columns import can_hash, check_types
from timely.spark.display import Monitor, monitor, name_of
from timely.spark.logs import log_to_spark
from timely.spark.metrics import Metrics, Progress
from timely.spark.packing import EPOCH, TAG, Input, Output, column_name, struct_name
from timely.spark.rendezvous import SILENCE, Run, rendezvous
from timely.spark.resume import Attempts, Checkpoints, interval, place
from timely.spark.session import check_workers, context_of, is_local, refuse_connect, this_python
from timely.spark.settings import require_settings
from timely.spark.shipping import carried
from timely.spark.task import Build, Task
from timely.spark.verdict import Verdict

ColumnOf = str | Mapping[str, str]
"""A column of every input, or of each input that is named."""

_KEY = "timely_key"


class Result(Mapping[str, DataFrame]):
    """The outputs of a run by name: DataFrames, lazy as any.

    Nothing has run when it is returned. Of a single output every action runs the dataflow again, as is usual in
    Spark; ``persist()`` it to use it twice. Of several, the rows of all are kept in Spark's cache when the first is
    asked for, so that one run serves them all; :meth:`unpersist` frees it.
    """

    def __init__(self, frames: Mapping[str, DataFrame], run: Run, kept: DataFrame | None, monitor: Monitor) -> None:
        self._frames = dict(frames)
        self._run = run
        self._monitor = monitor
        self._kept = kept
        self._attempts = Attempts(run)

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {frame.schema.simpleString()}' for name, frame in self.items())})"

    @property
    def failure(self) -> TimelyError | None:
        """What a worker of this run failed of last, typed, where Spark's own exception only quotes it; ``None`` if
        none did.
        """
        return self._run.failure

    @property
    def progress(self) -> Progress | None:
        """How far the run is that is under way, or was the last one, as its workers report about once a second; ``None`` before
        the first report. See :mod:`timely.spark.display` for where it is shown by itself.
        """
        return self._monitor.progress

    @property
    def metrics(self) -> Metrics:
        """What each worker did in the last run that succeeded; empty before that."""
        return self._monitor.metrics

    @property
    def resumed(self) -> list[int]:
        """The epochs from which attempts of this run went on, in order, where they did not begin anew: with ``checkpoint``."""
        return self._attempts.resumed

    def unpersist(self) -> None:
        """Free what several outputs keep in Spark's cache. They can still be used; the dataflow runs again then."""
        if self._kept is not None:
            self._kept.unpersist()


def run(
    build: Build,
    inputs: Mapping[str, DataFrame],
    outputs: Mapping[str, str | StructType],
    *,
    workers: int,
    epoch: ColumnOf | None = None,
    key: ColumnOf | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | timedelta = timedelta(seconds=10),
    patience: float = SILENCE,
) -> Result:
    """Run a dataflow on Spark: DataFrames in, DataFrames out, one worker in each of ``workers`` tasks of one barrier
    stage.

    ``build(scope, **streams)`` is called in every worker with a stream of Arrow batches for each of ``inputs``, under
    its name, and returns a dictionary of streams of Arrow batches, one for each of ``outputs``, whose values are
    schemas: DDL strings or a ``StructType``. Rows are dealt to the workers evenly, or by the hash of the column
    ``key``; they enter at time 0, or at the time that the integer column ``epoch`` has, in ascending order in each
    worker. Both may be one column that every input has, or a dictionary from inputs to columns.

    With ``checkpoint``, a path or URI that the driver and all executors reach and that is this run's alone, the state of the
    operators and what the outputs have given is written there between epochs: after ``checkpoint_every`` of them that have
    rows, or that much time. A stage that fails, or a run of this program that did, then goes on from the newest checkpoint, on
    any number of workers, and gives what it would have given at once. A run that has ended leaves none. A worker that gives no
    sign of life for ``patience`` seconds is declared gone. ``docs/faults.md`` says more.

    The session must be classic (no Spark Connect) and have a slot for each worker. On a cluster every executor must
    be able to import ``timely`` and whatever ``build`` uses. Raises, before any job starts:
    :class:`~timely.errors.ConfigurationError` for a count of workers below 1, no inputs or outputs, or names that
    cannot be; :class:`~timely.errors.SchemaError` for a schema that cannot be read or a column that is missing;
    :class:`~timely.errors.SparkError` for too few slots. What a worker raises ends its stage, is tried again by Spark
    a few times, and is then quoted in what the action raises: the operator, its path and its worker; see also
    :attr:`Result.failure`.

    >>> from timely.spark import local_session, run
    >>> session = local_session(2)
    >>> def swap(scope, edges):
    ...     return {"swapped": edges.map_batch(lambda batch: batch.select(["dst", "src"]))}
    >>> edges = session.createDataFrame([("a", "b"), ("b", "c")], "src string, dst string")
    >>> result = run(swap, {"edges": edges}, {"swapped": "dst string, src string"}, workers=2)
    >>> sorted(tuple(row) for row in result["swapped"].collect())
    [('b', 'a'), ('c', 'b')]
    """
    check_workers(workers)
    if find_spec("pandas") is None:
        raise ConfigurationError(
            "Spark needs the package pandas to hand Arrow batches to Python: pip install '.[spark]' in a checkout of timely"
        )
    session = _session_of(inputs)
    _check_names("outputs", outputs)
    plan = _InputPlan.of(inputs, epoch, key)
    schemas = {name: _struct_type(name, schema) for name, schema in outputs.items()}
    context = context_of(session)
    require_settings(session, workers)
    server = rendezvous(*_addresses(context))
    checkpoints = None if checkpoint is None else _checkpoints(checkpoint, checkpoint_every, plan, schemas)
    entry = server.open_run(workers, patience=patience, place=None if checkpoints is None else checkpoints.where)
    Verdict(context, entry)
    declared = tuple(Output(name, _arrow_schema(schema)) for name, schema in schemas.items())
    name, log = name_of(build), log_to_spark(context)
    task = Task(build, plan.inputs, declared, server.invitation(entry), _rows_of_a_batch(session), log, checkpoints)
    with this_python(context):
        packed = plan.frame(session, workers).mapInArrow(carried(task.run, f"timely {name}"), _packed_type(schemas), barrier=True)
    return _unpacked(packed, schemas, entry, workers, monitor(session, entry, name))


def _session_of(inputs: Mapping[str, DataFrame]) -> SparkSession:
    """Return the one session of the inputs; ConfigurationError where there are none, or of several sessions."""
    _check_names("inputs", inputs)
    for name, frame in inputs.items():
        if not callable(getattr(frame, "mapInArrow", None)):
            raise ConfigurationError(f"inputs[{name!r}] must be a Spark DataFrame, not {type(frame).__name__}")
        refuse_connect(f"inputs[{name!r}]", frame)
    sessions = [frame.sparkSession for frame in inputs.values()]
    if any(session is not sessions[0] for session in sessions):
        raise ConfigurationError("the inputs must be DataFrames of one Spark session; these come from several")
    return sessions[0]


def _rows_of_a_batch(session: SparkSession) -> int:
    """Return the most rows of an Arrow batch that this session is set to; 0 where it is set to no bound."""
    return max(int(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000") or 0), 0)


def _checkpoints(
    where: str | os.PathLike[str], every: int | timedelta, plan: _InputPlan, schemas: Mapping[str, StructType]
) -> Checkpoints:
    """Return where and when the run keeps checkpoints. ConfigurationError for what cannot be, and for a run without epochs."""
    if not plan.epochs:
        raise ConfigurationError(
            "checkpoint= needs epoch=: a checkpoint is written between two epochs, and without a column that names them all rows"
            " are of one"
        )
    inputs = [f"{name}: {frame.schema.simpleString()} by {plan.epochs.get(name)}" for name, frame in plan.frames.items()]
    outputs = [f"{name}: {schema.simpleString()}" for name, schema in schemas.items()]
    amount, timed = interval(every)
    return Checkpoints(place(where), amount, timed, f"{'; '.join(inputs)} -> {'; '.join(outputs)}")


def _check_names(what: str, tables: Mapping[str, Any]) -> None:
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigurationError(f"{what} must be a dictionary with at least one entry, not {tables!r}")
    for name in tables:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"{what}: {name!r} cannot be a name; streams are passed and returned under names like edges"
            )


def _addresses(context: SparkContext) -> tuple[str, str]:
    """Return where the driver should listen, and the host by which its executors reach it."""
    if is_local(context):
        return "127.0.0.1", "127.0.0.1"
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    bind = context.getConf().get("spark.driver.bindAddress", host)
    return bind.strip("[]"), host.strip("[]")  # Spark puts addresses of IPv6 into brackets


# -- inputs ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class _InputPlan:
    """How the inputs become the one DataFrame that the workers read. ``epochs`` and ``keys`` are positions of columns."""

    frames: Mapping[str, DataFrame]
    epochs: Mapping[str, int]
    keys: Mapping[str, int]

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame], epoch: ColumnOf | None, key: ColumnOf | None) -> _InputPlan:
        """Check the columns. Raises SchemaError for one that cannot be carried, is missing, or cannot be an epoch or a key."""
        for name, frame in frames.items():
            if not frame.columns:
                raise SchemaError(f"input {name!r} has no columns, and so no rows that could be told apart: give it one")
            check_types(f"input {name!r}", frame.schema)
        plan = cls(frames, _columns("epoch", frames, epoch), _columns("key", frames, key))
        for name in plan.epochs:
            _check_epoch(name, plan.field(name, plan.epochs))
        for name in plan.keys:
            _check_key(name, plan.field(name, plan.keys), plan.field(next(iter(plan.keys)), plan.keys))
        return plan

    def field(self, name: str, chosen: Mapping[str, int]) -> StructField:
        """Return the column that was chosen in an input."""
        field: StructField = self.frames[name].schema.fields[chosen[name]]
        return field

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tables as the workers see them."""
        epochs = {name: column_name(position) for name, position in self.epochs.items()}
        return tuple(Input(name, epochs.get(name), tuple(frame.columns)) for name, frame in self.frames.items())

    def frame(self, session: SparkSession, workers: int) -> DataFrame:
        """Return the rows of all inputs in ``workers`` partitions, each in ascending order of epoch where there are
        epochs.
        """
        if len(self.frames) == 1:
            frame = _by_position(next(iter(self.frames.values())))
            key = [column_name(position) for position in self.keys.values()]
            epoch = next((column_name(position) for position in self.epochs.values()), None)
        else:
            frame, epoch = self._packed(bool(self.epochs)), EPOCH if self.epochs else None
            key = [_KEY] if self.keys else []
        dealt = _never_empty(session, frame).repartition(workers, *key)
        if epoch is not None:
            dealt = dealt.sortWithinPartitions(epoch)
        return dealt.drop(_KEY)

    def whole(self) -> DataFrame:
        """Return the rows of all inputs as one DataFrame, dealt as they are."""
        return _by_position(next(iter(self.frames.values()))) if len(self.frames) == 1 else self._packed(bool(self.epochs))

    def _packed(self, ordered: bool) -> DataFrame:
        """Return one DataFrame with the rows of all inputs: a tag, and the row as the struct of its input."""
        tables = [self._table(position, name, ordered) for position, name in enumerate(self.frames)]
        return reduce(DataFrame.unionAll, tables)

    def _table(self, position: int, name: str, ordered: bool) -> DataFrame:
        frame = _by_position(self.frames[name])
        columns = [F.lit(position).cast("int").alias(TAG)]
        if ordered:
            epoch = F.col(column_name(self.epochs[name])) if name in self.epochs else F.lit(0)
            columns.append(epoch.cast("long").alias(EPOCH))
        if self.keys:
            columns.append(self._key(frame, name).alias(_KEY))
        for other, whose in enumerate(self.frames):
            values = F.struct(*frame.columns) if other == position else F.lit(None).cast(_by_position(self.frames[whose]).schema)
            columns.append(values.alias(struct_name(other)))
        return frame.select(*columns)

    def _key(self, frame: DataFrame, name: str) -> Column:
        """Return what the rows of an input are dealt by where any input has a key: an input without one, by all its columns."""
        if name in self.keys:
            return F.xxhash64(column_name(self.keys[name]))
        known = [field.name for field in frame.schema if can_hash(field.dataType)]
        return F.xxhash64(*known) if known else F.lit(0).cast("long")


def _by_position(frame: DataFrame) -> DataFrame:
    """Return ``frame`` with columns that are named after their positions."""
    return frame.toDF(*(column_name(position) for position in range(len(frame.columns))))


def _check_epoch(name: str, field: StructField) -> None:
    kind = field.dataType.typeName()
    if kind not in ("byte", "short", "integer", "long"):
        raise SchemaError(f"input {name!r}: column {field.name!r} cannot be an epoch: it is {kind}, and must be an integer")


def _check_key(name: str, field: StructField, first: StructField) -> None:
    kind = field.dataType.simpleString()
    if not can_hash(field.dataType):
        raise SchemaError(f"input {name!r}: column {field.name!r} cannot be a key: Spark has no hash for values of type {kind}")
    if field.dataType != first.dataType:
        raise SchemaError(
            f"input {name!r}: the key {field.name!r} is of type {kind}, and that of another input of type "
            f"{first.dataType.simpleString()}: equal values of the two need not meet in one worker. Cast one of them"
        )


def _columns(option: str, frames: Mapping[str, DataFrame], chosen: ColumnOf | None) -> dict[str, int]:
    """Return where the column is that an option names for each input. Raises SchemaError where there is none, or are two."""
    if chosen is None:
        return {}
    named = dict.fromkeys(frames, chosen) if isinstance(chosen, str) else dict(chosen)
    for name, column in named.items():
        if name not in frames:
            raise ConfigurationError(
                f"{option}: there is no input {name!r}; the inputs are {', '.join(map(repr, frames))}"
            )
        have = frames[name].columns
        if have.count(column) != 1:
            how = "two columns" if column in have else "no column"
            raise SchemaError(f"{option}: input {name!r} has {how} {column!r}; it has {', '.join(map(repr, have))}")
    return {name: frames[name].columns.index(column) for name, column in named.items()}


def _never_empty(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return ``frame`` in a form of which Spark's optimizer cannot prove that it has no rows, since it would start no
    worker then.

    What is added is a row that a condition takes away again which only running can decide.
    """
    nothing = session.range(1).where(F.monotonically_increasing_id() < 0)
    return frame.unionAll(
        nothing.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema))
    )


# -- outputs -----------------------------------------------------------------------------------------------------------


def _struct_type(name: str, schema: str | StructType) -> StructType:
    """Return the schema that was given for an output. Raises SchemaError where it is none."""
    read: object = schema
    if isinstance(schema, str):
        try:
            read = DataType.fromDDL(schema)
        except PySparkException as error:
            raise SchemaError(f"outputs[{name!r}]: {schema!r} is no list of columns and types: {error}") from error
    if not isinstance(read, StructType) or not read.fields:
        raise SchemaError(f"outputs[{name!r}] must be like 'node long, component long' or a StructType, not {schema!r}")
    names = read.fieldNames()
    if len(set(names)) < len(names):
        raise SchemaError(f"outputs[{name!r}]: two columns have the same name in {', '.join(map(repr, names))}")
    check_types(f"outputs[{name!r}]", read)
    return read


def _arrow_schema(schema: StructType) -> Any:
    return to_arrow_schema(schema, timezone="UTC")


def _packed_type(schemas: Mapping[str, StructType]) -> StructType:
    """Return the type of what the barrier stage gives: the one output, or all of them packed."""
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    structs = [StructField(struct_name(position), _by_number(kind)) for position, kind in enumerate(schemas.values())]
    return StructType([StructField(TAG, IntegerType(), False), *structs])


def _by_number(schema: StructType) -> StructType:
    """Return ``schema`` with columns that are named after their positions."""
    return StructType([StructField(column_name(at), field.dataType, field.nullable) for at, field in enumerate(schema)])


def _unpacked(
    packed: DataFrame, schemas: Mapping[str, StructType], entry: Run, workers: int, watch: Monitor
) -> Result:
    """Return the outputs. The shuffle leaves every row in the partition of its worker, and makes the stage one that
    can be run again.
    """
    shuffled = packed.repartitionById(workers, F.spark_partition_id())
    if len(schemas) == 1:
        return Result(dict.fromkeys(schemas, shuffled), entry, None, watch)
    kept = shuffled.persist()
    frames = {}
    for position, (name, schema) in enumerate(schemas.items()):
        columns = (
            F.col(f"{struct_name(position)}.{column_name(at)}").alias(field.name, metadata=field.metadata)
            for at, field in enumerate(schema)
        )
        frames[name] = kept.where(F.col(TAG) == position).select(*columns)
    return Result(frames, entry, kept, watch)
