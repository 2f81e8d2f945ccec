"""A dataflow as a step between DataFrames: :func:`run` plans the one barrier stage whose tasks are the workers.

The driver's side of the pipeline. What leaves for the workers is a :class:`~timely.spark.task.Task`; what stays is
the run's entry at the rendezvous. The invariant: no row of input or output passes through the driver, and whatever
can be refused before a job starts is refused in :func:`run`. A caller may assume that the DataFrames of a
:class:`Result` work with everything that DataFrames work with: the barrier stage, of which Spark says that much does
not, is hidden behind a shuffle, which is also what lets Spark run the stage again when a worker dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from timely.spark.packing import EPOCH, TAG, Input, Output, packed_schema, struct_name
from timely.spark.rendezvous import Run, rendezvous
from timely.spark.session import check_workers, context_of, is_local, require_slots, this_python
from timely.spark.task import Build, Task

ColumnOf = str | Mapping[str, str]
"""A column of every input, or of each input that is named."""

_KEY = "timely_key"


class Result(Mapping[str, DataFrame]):
    """The outputs of a run by name: DataFrames, lazy as any.

    Nothing has run when it is returned. Of a single output every action runs the dataflow again, as is usual in
    Spark; ``persist()`` it to use it twice. Of several, the rows of all are kept in Spark's cache when the first is
    asked for, so that one run serves them all; :meth:`unpersist` frees it.
    """

    def __init__(self, frames: Mapping[str, DataFrame], run: Run, kept: DataFrame | None) -> None:
        self._frames = dict(frames)
        self._run = run
        self._kept = kept

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
) -> Result:
    """Run a dataflow on Spark: DataFrames in, DataFrames out, one worker in each of ``workers`` tasks of one barrier
    stage.

    ``build(scope, **streams)`` is called in every worker with a stream of Arrow batches for each of ``inputs``, under
    its name, and returns a dictionary of streams of Arrow batches, one for each of ``outputs``, whose values are
    schemas: DDL strings or a ``StructType``. Rows are dealt to the workers evenly, or by the hash of the column
    ``key``; they enter at time 0, or at the time that the integer column ``epoch`` has, in ascending order in each
    worker. Both may be one column that every input has, or a dictionary from inputs to columns.

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
    require_slots(session, workers)
    server = rendezvous(*_addresses(context))
    entry = server.open_run(workers)
    declared = tuple(Output(name, _arrow_schema(schema)) for name, schema in schemas.items())
    task = Task(build, plan.inputs, declared, server.invitation(entry))
    with this_python(context):
        packed = plan.frame(session, workers).mapInArrow(task.run, _packed_type(schemas, declared), barrier=True)
    return _unpacked(packed, schemas, entry, workers)


def _session_of(inputs: Mapping[str, DataFrame]) -> SparkSession:
    """Return the one session of the inputs; ConfigurationError where there are none, or of several sessions."""
    _check_names("inputs", inputs)
    for name, frame in inputs.items():
        if not callable(getattr(frame, "mapInArrow", None)):
            raise ConfigurationError(f"inputs[{name!r}] must be a Spark DataFrame, not {type(frame).__name__}")
    sessions = [frame.sparkSession for frame in inputs.values()]
    if any(session is not sessions[0] for session in sessions):
        raise ConfigurationError("the inputs must be DataFrames of one Spark session; these come from several")
    return sessions[0]


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
    return context.getConf().get("spark.driver.bindAddress", host), host


# -- inputs ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class _InputPlan:
    """How the inputs become the one DataFrame that the workers read."""

    frames: Mapping[str, DataFrame]
    inputs: tuple[Input, ...]
    keys: Mapping[str, str]

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame], epoch: ColumnOf | None, key: ColumnOf | None) -> _InputPlan:
        """Check the columns that are named. Raises SchemaError for one that is missing or cannot be an epoch."""
        epochs = _columns("epoch", frames, epoch)
        keys = _columns("key", frames, key)
        for name, column in epochs.items():
            kind = frames[name].schema[column].dataType.typeName()
            if kind not in ("byte", "short", "integer", "long"):
                raise SchemaError(
                    f"input {name!r}: column {column!r} cannot be an epoch: it is {kind}, and must be an integer"
                )
        return cls(frames, tuple(Input(name, epochs.get(name)) for name in frames), keys)

    def frame(self, session: SparkSession, workers: int) -> DataFrame:
        """Return the rows of all inputs in ``workers`` partitions, each in ascending order of epoch where there are
        epochs.
        """
        ordered = any(table.epoch for table in self.inputs)
        if len(self.inputs) == 1:
            (name, frame), epoch = next(iter(self.frames.items())), self.inputs[0].epoch
            key = [_column(self.keys[name])] if name in self.keys else []
        else:
            frame, epoch = self._packed(ordered), EPOCH if ordered else None
            key = [F.col(_KEY)] if self.keys else []
        dealt = _never_empty(session, frame).repartition(workers, *key)
        if epoch is not None:
            dealt = dealt.sortWithinPartitions(_column(epoch))
        return dealt.drop(_KEY) if key and len(self.inputs) > 1 else dealt

    def _packed(self, ordered: bool) -> DataFrame:
        """Return one DataFrame with the rows of all inputs: a tag, and the row as the struct of its input."""
        tables = [self._table(position, ordered) for position in range(len(self.inputs))]
        whole = tables[0]
        for table in tables[1:]:
            whole = whole.unionAll(table)
        return whole

    def _table(self, position: int, ordered: bool) -> DataFrame:
        table = self.inputs[position]
        frame = self.frames[table.name]
        columns = [F.lit(position).cast("int").alias(TAG)]
        if ordered:
            columns.append((F.lit(0) if table.epoch is None else _column(table.epoch)).cast("long").alias(EPOCH))
        if self.keys:
            keys = [self.keys[table.name]] if table.name in self.keys else frame.columns
            columns.append(F.xxhash64(*map(_column, keys)).alias(_KEY))
        for other, name in enumerate(self.frames):
            values = F.struct(*map(_column, frame.columns)) if other == position else F.lit(None)
            columns.append(values.cast(self.frames[name].schema).alias(struct_name(other)))
        return frame.select(*columns)


def _columns(option: str, frames: Mapping[str, DataFrame], chosen: ColumnOf | None) -> dict[str, str]:
    """Return the column that an option names for each input. Raises SchemaError where an input has no such column."""
    if chosen is None:
        return {}
    named = dict.fromkeys(frames, chosen) if isinstance(chosen, str) else dict(chosen)
    for name, column in named.items():
        if name not in frames:
            raise ConfigurationError(
                f"{option}: there is no input {name!r}; the inputs are {', '.join(map(repr, frames))}"
            )
        if column not in frames[name].columns:
            have = ", ".join(map(repr, frames[name].columns))
            raise SchemaError(f"{option}: input {name!r} has no column {column!r}; it has {have}")
    return named


def _column(name: str) -> Column:
    """Return the column of exactly that name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")


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
    return read


def _arrow_schema(schema: StructType) -> Any:
    return to_arrow_schema(schema, timezone="UTC")


def _packed_type(schemas: Mapping[str, StructType], declared: tuple[Output, ...]) -> StructType:
    """Return the type of what the barrier stage gives: the one output, or all of them packed."""
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    structs = zip(packed_schema(declared).names[1:], schemas.values(), strict=True)
    return StructType([StructField(TAG, IntegerType(), False), *(StructField(name, kind) for name, kind in structs)])


def _unpacked(packed: DataFrame, schemas: Mapping[str, StructType], entry: Run, workers: int) -> Result:
    """Return the outputs. The shuffle leaves every row in the partition of its worker, and makes the stage one that
    can be run again.
    """
    shuffled = packed.repartitionById(workers, F.spark_partition_id())
    if len(schemas) == 1:
        return Result(dict.fromkeys(schemas, shuffled), entry, None)
    kept = shuffled.persist()
    frames = {
        name: kept.where(F.col(TAG) == position).select(f"{struct_name(position)}.*")
        for position, name in enumerate(schemas)
    }
    return Result(frames, entry, kept)
