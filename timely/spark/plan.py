"""How the inputs of a run become the one table that its workers read, and what its outputs are declared to be.

Batch runs and streams share it. Nothing runs here: it makes DataFrames and schemas. The invariant: names, columns and types that
cannot work are refused before a job starts. Every row of every input is in the planned table once; its columns go by position.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping
from functools import reduce
from typing import Any, Literal, get_args

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)

from timely.errors import ConfigurationError, SchemaError, SparkError
from timely.spark.connect import functions_of, is_connect, parsed_ddl
from timely.spark.packing import EPOCH, TAG, InputTable, column_name, struct_name
from timely.spark.session import context_of, is_local, was_stopped
from timely.spark.versions import HAS_CONNECT, KEEPS_EMPTY_SHUFFLES, arrow_type

ColumnOf = str | Mapping[str, str]
"""A column of every input, or of each input that is named."""

Partitioning = Literal["even", "hash"]
"""How rows without keys reach workers: as many each, or by the hash of the row."""

_KEY = "timely_key"
_EXISTS = "timely_there"


def session_of(inputs: Mapping[str, DataFrame]) -> SparkSession:
    """Return the one session of the inputs; ConfigurationError where there are none, or several sessions."""
    check_names("inputs", inputs)
    for name, frame in inputs.items():
        if not callable(getattr(frame, "mapInArrow", None)):
            what = f"{type(frame)!r}: session.createDataFrame(...) makes one"
            raise ConfigurationError(f"inputs[{name!r}] must be a Spark DataFrame, not {what}")
    sessions = [frame.sparkSession for frame in inputs.values()]
    if any(session is not sessions[0] for session in sessions):
        raise ConfigurationError("the inputs must be DataFrames of one Spark session; these come from several")
    if is_connect(sessions[0]) and not HAS_CONNECT:
        raise SparkError("Spark Connect needs PySpark 4.0 or later: make the session with master(...) rather than remote(...)")
    if was_stopped(sessions[0]):
        raise SparkError("the Spark session of the inputs was stopped: make another one, and the inputs in it")
    return sessions[0]


def check_build(build: object, inputs: Mapping[str, object]) -> None:
    """Raise ConfigurationError unless ``build`` can be called with a scope and a stream for each input."""
    if not callable(build):
        raise ConfigurationError(f"build must be a function of a scope and a stream for each input, not {build!r}")
    try:
        signature = inspect.signature(build)
    except ValueError:  # of some that are not written in Python
        return
    try:
        signature.bind(None, **inputs)
    except TypeError as error:
        called = getattr(build, "__name__", repr(build))
        call = ", ".join(["scope", *(f"{name}=..." for name in inputs)])
        raise ConfigurationError(
            f"build is called as build({call}), which {called}{signature} does not take: {error}; inputs and parameters"
            " have the same names"
        ) from error


def check_names(what: str, tables: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless ``tables`` is a dictionary with at least one entry, whose keys can be names in Python."""
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigurationError(f"{what} must be a dictionary with at least one entry, not {tables!r}")
    for name in tables:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(f"{what}: {name!r} cannot be a name; streams are passed and returned under names like edges")


# -- inputs ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class InputPlan:
    """How the inputs become the one DataFrame that the workers read. ``epochs`` and ``keys`` are positions of columns."""

    frames: Mapping[str, DataFrame]
    epochs: Mapping[str, int]
    keys: Mapping[str, int]
    partitioning: Partitioning = "even"

    @classmethod
    def of(
        cls, frames: Mapping[str, DataFrame], epoch: ColumnOf | None, key: ColumnOf | None, partitioning: Partitioning = "even"
    ) -> InputPlan:
        """Check the columns. Raises SchemaError for one that cannot be carried, is missing, or cannot be an epoch or a key."""
        if partitioning not in get_args(Partitioning):
            raise ConfigurationError(f"partitioning must be 'even' or 'hash', not {partitioning!r}")
        for name, frame in frames.items():
            if not frame.columns:
                raise SchemaError(f"input {name!r} has no columns, so its rows cannot be distinguished: give it one")
            check_types(f"input {name!r}", frame.schema)
        plan = cls(frames, _columns("epoch", frames, epoch), _columns("key", frames, key), partitioning)
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
    def inputs(self) -> tuple[InputTable, ...]:
        """The tables as the workers see them."""
        epochs = {name: column_name(position) for name, position in self.epochs.items()}
        return tuple(InputTable(name, epochs.get(name), tuple(frame.columns)) for name, frame in self.frames.items())

    def frame(self, session: SparkSession, workers: int) -> DataFrame:
        """Return the rows of all inputs in ``workers`` partitions, each in ascending order of epoch."""
        if len(self.frames) > 1:
            packed = self._packed(bool(self.epochs))
            by = [_KEY] if self.keys else self._hashed()
            return _partitioned(session, packed, workers, by, EPOCH if self.epochs else None)
        ((name, original),) = self.frames.items()
        frame = _by_position(original)
        if not self.keys and not self.epochs and (cached := cached_partitions(session, frame, workers)) is not None:
            return cached
        by = [column_name(self.keys[name])] if self.keys else self._hashed()
        return _partitioned(session, frame, workers, by, column_name(self.epochs[name]) if self.epochs else None)

    def _hashed(self) -> list[str]:
        """Return the columns by whose hash rows are partitioned; none where each worker gets as many.

        Spark sorts before it deals rows evenly, so that a task that runs again deals them as before. A hash is the same anyway.
        """
        tables = [""] if len(self.frames) == 1 else [f"{struct_name(position)}." for position in range(len(self.frames))]
        return [
            table + column_name(position)
            for table, frame in zip(tables, self.frames.values())
            for position, field in enumerate(frame.schema)
            if self.partitioning == "hash" and can_hash(field.dataType)
        ]

    def whole(self, chosen: Container[str] | None = None) -> DataFrame:
        """Return the rows of all inputs, or of the ``chosen`` ones, as one DataFrame, in the partitions that they have."""
        if len(self.frames) == 1:
            return _by_position(next(iter(self.frames.values())))
        return self._packed(bool(self.epochs), chosen)

    def _packed(self, ordered: bool, chosen: Container[str] | None = None) -> DataFrame:
        names = enumerate(self.frames)
        tables = [self._table(position, name, ordered) for position, name in names if chosen is None or name in chosen]
        return reduce(lambda one, other: one.unionAll(other), tables)

    def _table(self, position: int, name: str, ordered: bool) -> DataFrame:
        frame = _by_position(self.frames[name])
        F = functions_of(frame.sparkSession)
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
        """Return what the rows of an input are partitioned by where any input has a key: without one, all its columns.

        It is a short hash of the key; but where strings have a collation, equal ones differ in their hash, and Spark gets the key
        itself.
        """
        F = functions_of(frame.sparkSession)
        known = [field.name for field in frame.schema if can_hash(field.dataType)]
        hashed = F.xxhash64(*known) if known else F.lit(0).cast("long")
        kind = self.field(next(iter(self.keys)), self.keys).dataType
        key: Column
        if not has_collation(kind):
            key = F.xxhash64(column_name(self.keys[name])) if name in self.keys else hashed
        elif name in self.keys:
            key = F.struct(F.col(column_name(self.keys[name])).alias("key"), F.lit(0).cast("long").alias("hash"))
        else:
            key = F.struct(F.lit(None).cast(kind).alias("key"), hashed.alias("hash"))
        return key


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
    """Return the position of the column that an option names for each input. SchemaError for none or two."""
    if chosen is None:
        return {}
    if not isinstance(chosen, str | Mapping):
        raise ConfigurationError(
            f"{option} must be the name of a column that every input has, or a dictionary from inputs to names, not {chosen!r}"
        )
    named = dict.fromkeys(frames, chosen) if isinstance(chosen, str) else dict(chosen)
    for name, column in named.items():
        if name not in frames:
            raise ConfigurationError(f"{option}: there is no input {name!r}; the inputs are {', '.join(map(repr, frames))}")
        have = frames[name].columns
        if have.count(column) != 1:
            how = "two columns" if column in have else "no column"
            raise SchemaError(f"{option}: input {name!r} has {how} {column!r}; it has {', '.join(map(repr, have))}")
    return {name: frames[name].columns.index(column) for name, column in named.items()}


def _partitioned(session: SparkSession, frame: DataFrame, workers: int, key: list[str], epoch: str | None) -> DataFrame:
    """Return the rows of ``frame`` in ``workers`` partitions, without ``_KEY``, each in ascending order of epoch.

    Spark must not find it to have no rows, since it would start no worker then.
    """
    F = functions_of(session)
    if epoch is None and _KEY not in key and not is_connect(session) and KEEPS_EMPTY_SHUFFLES:
        return _never_empty(session, frame).repartition(workers, *key)
    # While it runs, Spark takes a shuffle that turned out to be empty for nothing at all, where it is sorted or loses columns.
    # So one row goes through it that is none. What takes it away must not be known before, or Spark would do so too early.
    none = session.range(0, 1, 1, 1).select(
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema), F.lit(False).alias(_EXISTS)
    )
    partitioned = frame.withColumn(_EXISTS, F.lit(True)).unionAll(none).repartition(workers, *key)
    if epoch is not None:
        partitioned = partitioned.sortWithinPartitions(epoch)
    return partitioned.where(F.col(_EXISTS) | (F.monotonically_increasing_id() < 0)).drop(_KEY, _EXISTS)


def _never_empty(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return ``frame`` in a form of which Spark's optimizer cannot prove that it has no rows: with a table of no partitions."""
    java: Any = session._jsparkSession  # through Spark Connect there is none
    nothing = java.internalCreateDataFrame(session.sparkContext._jsc.emptyRDD().rdd(), frame._jdf.schema(), False)
    return frame.unionAll(DataFrame(nothing, session))


# -- outputs -----------------------------------------------------------------------------------------------------------


def struct_type(session: SparkSession, name: str, schema: str | StructType) -> StructType:
    """Return the schema that was given for an output. Raises SchemaError where it is none."""
    read: object = schema
    if isinstance(schema, str):
        try:
            read = parsed_ddl(session, schema)
        except PySparkException as error:
            raise SchemaError(f"outputs[{name!r}]: {schema!r} is no list of columns and types: {error}") from error
    if not isinstance(read, StructType) or not read.fields:
        raise SchemaError(f"outputs[{name!r}] must be like 'node long, component long' or a StructType, not {schema!r}")
    names = read.fieldNames()
    if len(set(names)) < len(names):
        raise SchemaError(f"outputs[{name!r}]: two columns have the same name in {', '.join(map(repr, names))}")
    check_types(f"outputs[{name!r}]", read)
    return read


_HASHLESS = frozenset({"map", "variant", "geometry", "geography"})


def check_types(table: str, schema: StructType) -> None:
    """Raise :class:`~timely.errors.SchemaError` for the first column that Spark cannot hand to Python as it is.

    >>> check_types("input 'sales'", StructType().add("lasted", YearMonthIntervalType()))
    Traceback (most recent call last):
    timely.errors.SchemaError: input 'sales': column 'lasted' is of type interval year to month, which Spark cannot hand ...
    """
    for field in schema:
        _check_type(f"{table}: column {field.name!r}", field.dataType)


def _check_type(where: str, kind: DataType) -> None:
    if isinstance(kind, UserDefinedType):
        _check_type(where, kind.sqlType())
    elif isinstance(kind, StructType):
        names = kind.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"{where} has two fields {name!r} in one struct, which Arrow cannot distinguish: rename one")
        for field in kind:
            _check_type(f"{where}, field {field.name!r}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_type(_element(where, kind.elementType, kind.containsNull, "elements"), kind.elementType)
    elif isinstance(kind, MapType):
        _check_type(_element(where, kind.keyType, False, "keys"), kind.keyType)
        _check_type(_element(where, kind.valueType, kind.valueContainsNull, "values"), kind.valueType)
    else:
        _check_plain(where, kind)


def _element(where: str, kind: DataType, nullable: bool, what: str) -> str:
    if isinstance(kind, NullType) and not nullable:
        raise SchemaError(f"{where} has {what} of no type, as array() and map() have: cast it to the type that is meant")
    return f"{where}, {what}"


def _check_plain(where: str, kind: DataType) -> None:
    if isinstance(kind, CharType | VarcharType):
        raise SchemaError(f"{where} is of type {kind.simpleString()}, which is for tables on disk: say string")
    try:
        arrow_type(kind)
    except PySparkException as error:
        remedy = "cast it to string, or leave the column out"
        if isinstance(kind, YearMonthIntervalType):
            remedy = "cast it to its number of months: CAST(CAST(... AS INTERVAL MONTH) AS INT)"
        raise SchemaError(f"{where} is of type {kind.simpleString()}, which Spark cannot hand to Python: {remedy}") from error


def check_cases(table: str, kind: DataType) -> None:
    """Raise :class:`~timely.errors.SchemaError` where two columns or fields differ in case alone: Spark reads no such files.

    >>> check_cases("outputs['sums']", StructType().add("a", NullType()).add("A", NullType()))
    Traceback (most recent call last):
    timely.errors.SchemaError: outputs['sums']: 'a' and 'A' differ in case alone, and Spark reads no files with both of them: ...
    """
    if isinstance(kind, ArrayType):
        check_cases(table, kind.elementType)
    elif isinstance(kind, MapType):
        check_cases(table, kind.keyType)
        check_cases(table, kind.valueType)
    elif isinstance(kind, StructType):
        seen: dict[str, str] = {}
        for field in kind:
            if (other := seen.setdefault(field.name.lower(), field.name)) != field.name:
                raise SchemaError(
                    f"{table}: {other!r} and {field.name!r} differ in case alone, and Spark reads no files with both of them: "
                    "rename one, or set spark.sql.caseSensitive"
                )
            check_cases(table, field.dataType)


def can_hash(kind: DataType) -> bool:
    """Return whether Spark can hash values of a type, so that rows can be partitioned by it."""
    if isinstance(kind, UserDefinedType):
        return can_hash(kind.sqlType())
    if isinstance(kind, ArrayType):
        return can_hash(kind.elementType)
    if isinstance(kind, StructType):
        return all(can_hash(field.dataType) for field in kind)
    return kind.typeName() not in _HASHLESS


def has_collation(kind: DataType) -> bool:
    """Return whether a type has strings with a collation, of which different ones may be equal.

    >>> has_collation(ArrayType(StringType()))
    False
    """
    if isinstance(kind, ArrayType):
        return has_collation(kind.elementType)
    if isinstance(kind, StructType):
        return any(has_collation(field.dataType) for field in kind)
    return isinstance(kind, StringType) and kind != StringType()


SLACK = 1 << 20
"""Bytes by which the largest partition may exceed the average in any case."""


def cached_partitions(session: SparkSession, frame: DataFrame, partitions: int) -> DataFrame | None:
    """Return the rows of ``frame`` in the ``partitions`` that Spark's cache has them in, which saves a shuffle; ``None`` where it
    has not.

    That is: ``frame`` is some columns of a table that is in the cache in full, in so many even partitions, and a barrier stage
    can read it. Only with a local master: elsewhere the workers would wait for slots near to their partitions. The partitions are
    bound when the DataFrame is made: a table that leaves the cache later is computed again in the same ones.
    """
    if is_connect(session) or not is_local(context_of(session)):
        return None
    from py4j.protocol import Py4JError  # not in the client of Spark Connect alone

    java: Any = session._jsparkSession
    try:
        execution: Any = frame._jdf.queryExecution()
        relation = _relation_of(execution.optimizedPlan())
        if relation is None or not relation.cacheBuilder().isCachedColumnBuffersLoaded():
            return None
        cached, rows = relation.cacheBuilder().cachedColumnBuffers(), relation.stats().rowCount()
        if rows.isEmpty() or not _fits(cached, partitions):
            return None
        if not _are_even(_sizes(java.sparkContext(), cached.id()), partitions, int(rows.get())):
            return None
        bound = java.internalCreateDataFrame(execution.toRdd(), frame._jdf.schema(), False)
    except Py4JError:  # another Spark than this was written for
        return None
    return DataFrame(bound, session)


def _relation_of(plan: Any) -> Any | None:
    """Return the table in the cache that a plan selects columns from; ``None`` of any other plan."""
    if _class_name(plan) == "Project":
        columns = plan.projectList()
        if not all(_is_column(columns.apply(at)) for at in range(columns.size())):
            return None
        plan = plan.child()
    return plan if _class_name(plan) == "InMemoryRelation" else None


def _is_column(expression: Any) -> bool:
    """Return whether an expression is a column, an alias or a cast of one."""
    while (name := _class_name(expression)) in ("Alias", "Cast"):
        expression = expression.child()
    return name == "AttributeReference"


def _fits(cached: Any, partitions: int) -> bool:
    """Return whether a barrier stage may read this: all that it is made of without a shuffle has as many partitions."""
    if cached.getNumPartitions() != partitions or cached.isBarrier():
        return False
    before = cached.getNarrowAncestors().iterator()
    while before.hasNext():
        if before.next().getNumPartitions() != partitions:
            return False
    return True


def _sizes(context: Any, number: int) -> list[int]:
    noted = context.statusStore().rdd(number).partitions()
    return [] if noted.isEmpty() else [_size(noted.get().apply(at)) for at in range(noted.get().size())]


def _are_even(sizes: list[int], partitions: int, rows: int) -> bool:
    """Return whether the largest of so many partitions in the cache is not much larger than the average.

    Spark compresses runs of equal values to next to nothing: with less than a byte for each row, sizes say nothing about rows.
    """
    if len(sizes) != partitions or sum(sizes) < rows:
        return False
    average = sum(sizes) / partitions
    return max(sizes) <= max(1.25 * average, average + SLACK)


def _size(partition: Any) -> int:
    return int(partition.memoryUsed()) + int(partition.diskUsed())


def _class_name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
