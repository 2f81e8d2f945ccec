"""How the inputs of a run become the one table that its workers read, and what its outputs are declared to be.

Shared by batch runs and streams. Nothing runs here: what is made are DataFrames and schemas. The invariant: whatever about
names, columns and types can be refused before a job starts is refused by what stands here. A caller may assume that every row
of every input is in the planned table once, and that the columns in it go by their positions, whatever they are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import reduce
from typing import Any

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from timely.errors import ConfigurationError, SchemaError, SparkError
from timely.spark.cached import in_place
from timely.spark.columns import can_hash, check_types, has_collation
from timely.spark.packing import EPOCH, TAG, Input, column_name, struct_name
from timely.spark.session import refuse_connect, was_stopped

ColumnOf = str | Mapping[str, str]
"""A column of every input, or of each input that is named."""

_KEY = "timely_key"
_THERE = "timely_there"


def session_of(inputs: Mapping[str, DataFrame]) -> SparkSession:
    """Return the one session of the inputs; ConfigurationError where there are none, or of several sessions."""
    check_names("inputs", inputs)
    for name, frame in inputs.items():
        if not callable(getattr(frame, "mapInArrow", None)):
            given = f"{type(frame)!r}: session.createDataFrame(...) makes one"
            raise ConfigurationError(f"inputs[{name!r}] must be a Spark DataFrame, not {given}")
        refuse_connect(f"inputs[{name!r}]", frame)
    sessions = [frame.sparkSession for frame in inputs.values()]
    if any(session is not sessions[0] for session in sessions):
        raise ConfigurationError("the inputs must be DataFrames of one Spark session; these come from several")
    if was_stopped(sessions[0]):
        raise SparkError("the Spark session of the inputs was stopped: make another one, and the inputs in it")
    return sessions[0]


def check_build(build: object, inputs: Mapping[str, object]) -> None:
    """Raise ConfigurationError unless ``build`` can be called with a scope and a stream for each input.

    >>> check_build(lambda scope, edges: {}, {"edgs": None})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.ConfigurationError: build is called as build(scope, edgs=...), which <function <lambda> at ...> does not take...
    """
    if not callable(build):
        raise ConfigurationError(f"build must be a function of a scope and a stream for each input, not {build!r}")
    try:
        signature = inspect.signature(build)
    except ValueError:  # of some that are not written in Python
        return
    try:
        signature.bind(None, **inputs)
    except TypeError as error:
        call = ", ".join(["scope", *(f"{name}=..." for name in inputs)])
        raise ConfigurationError(
            f"build is called as build({call}), which {build!r} does not take: {error}; inputs and parameters have the same names"
        ) from error


def check_names(what: str, tables: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless ``tables`` is a dictionary with at least one entry, whose keys can be names in Python.

    >>> check_names("inputs", {"a b": None})
    Traceback (most recent call last):
    timely.errors.ConfigurationError: inputs: 'a b' cannot be a name; streams are passed and returned under names like edges
    """
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigurationError(f"{what} must be a dictionary with at least one entry, not {tables!r}")
    for name in tables:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"{what}: {name!r} cannot be a name; streams are passed and returned under names like edges"
            )


# -- inputs ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class InputPlan:
    """How the inputs become the one DataFrame that the workers read. ``epochs`` and ``keys`` are positions of columns."""

    frames: Mapping[str, DataFrame]
    epochs: Mapping[str, int]
    keys: Mapping[str, int]

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame], epoch: ColumnOf | None, key: ColumnOf | None) -> InputPlan:
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
        if len(self.frames) > 1:
            packed = self._packed(bool(self.epochs))
            return _dealt(session, packed, workers, [_KEY] if self.keys else [], EPOCH if self.epochs else None)
        ((name, given),) = self.frames.items()
        frame = _by_position(given)
        if not self.keys and not self.epochs and (dealt_already := in_place(session, frame, workers)) is not None:
            return dealt_already
        key = [column_name(self.keys[name])] if self.keys else []
        return _dealt(session, frame, workers, key, column_name(self.epochs[name]) if self.epochs else None)

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
        """Return what the rows of an input are dealt by where any input has a key: an input without one, by all its columns.

        A hash of the key, which is short; but of strings with a collation, which have different hashes though they are equal, the
        key itself, of which Spark's shuffle knows that.
        """
        known = [field.name for field in frame.schema if can_hash(field.dataType)]
        hashed = F.xxhash64(*known) if known else F.lit(0).cast("long")
        kind = self.field(next(iter(self.keys)), self.keys).dataType
        if not has_collation(kind):
            return F.xxhash64(column_name(self.keys[name])) if name in self.keys else hashed
        if name in self.keys:
            return F.struct(F.col(column_name(self.keys[name])).alias("key"), F.lit(0).cast("long").alias("hash"))
        return F.struct(F.lit(None).cast(kind).alias("key"), hashed.alias("hash"))


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
    if not isinstance(chosen, str | Mapping):
        raise ConfigurationError(
            f"{option} must be the name of a column that every input has, or a dictionary from inputs to names, not {chosen!r}"
        )
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


def _dealt(session: SparkSession, frame: DataFrame, workers: int, key: list[str], epoch: str | None) -> DataFrame:
    """Return the rows of ``frame`` in ``workers`` partitions, without ``_KEY``, each in ascending order of epoch where there are
    epochs; and in a form that Spark does not find to have no rows, since it would start no worker then.
    """
    if epoch is None and _KEY not in key:
        return _never_empty(session, frame).repartition(workers, *key)
    # While it runs, Spark takes a shuffle that turned out to be empty for nothing at all, where it is sorted or loses columns.
    # So one row goes through it that is none. What takes it away must not be known before, or Spark would do so too early.
    none = session.range(0, 1, 1, 1).select(
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema), F.lit(False).alias(_THERE)
    )
    dealt = frame.withColumn(_THERE, F.lit(True)).unionAll(none).repartition(workers, *key)
    if epoch is not None:
        dealt = dealt.sortWithinPartitions(epoch)
    return dealt.where(F.col(_THERE) | (F.monotonically_increasing_id() < 0)).drop(_KEY, _THERE)


def _never_empty(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return ``frame`` in a form of which Spark's optimizer cannot prove that it has no rows.

    What is added is a table of no partitions, of which nothing but running it says that there are none.
    """
    java: Any = session._jsparkSession
    nothing = java.internalCreateDataFrame(session.sparkContext._jsc.emptyRDD().rdd(), frame._jdf.schema(), False)
    return frame.unionAll(DataFrame(nothing, session))


# -- outputs -----------------------------------------------------------------------------------------------------------


def struct_type(name: str, schema: str | StructType) -> StructType:
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


def arrow_schema(schema: StructType) -> Any:
    """Return the schema of Arrow that Spark has for ``schema``: a ``pyarrow.Schema``, with instants in UTC."""
    return to_arrow_schema(schema, timezone="UTC")
