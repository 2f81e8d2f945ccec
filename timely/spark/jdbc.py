"""A sink for databases: each epoch is one transaction, which has the rows of all outputs and the epoch's number.

Spark's tasks write the rows of an epoch to staging tables. One transaction on the driver then moves them to their tables, and
notes the epoch in the table ``timely_epochs``. The invariant: an epoch that is noted is in the tables, once, with the rows that
the stream gave and no others; and only the driver that opened the sink last changes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from timely.errors import CheckpointError, ConfigurationError, SchemaError, SparkError
from timely.spark.sinks import CHANGE_TYPE, COMMIT_VERSION, ForeachEpoch, SinkContext

EPOCHS = "timely_epochs"
"""The table with the last epoch of each stream."""

_TRIES = 3
"""How often the rows of an epoch are staged, where a task of Spark's wrote its rows twice."""

_EMPTY_COPY = {
    "db2": "create table {copy} as (select {columns} from {table}) with no data",
    "derby": "create table {copy} as select {columns} from {table} with no data",
    "sqlserver": "select {columns} into {copy} from {table} where 1 = 0",
}
"""How databases make a table with the columns of another, where it is not as PostgreSQL, MySQL and most others do it."""

_USUAL_COPY = "create table {copy} as select {columns} from {table} where 1 = 0"

_MEND = "start the stream again with other keys, or with a function in place of the sink, which the epoch is delivered to"


@attrs.frozen
class JdbcSink:
    """Writes to tables of a database, each epoch in one transaction.

    ``table`` is the table of the only output, or a dictionary from outputs to tables. They exist, and have at least the columns
    of their outputs. ``keys`` are the columns of the table's key, or a dictionary of these by output. With them rows replace
    those with the same key: an upsert. Rows whose ``_change_type`` is ``delete`` delete them, so that a table is a copy of a view
    that :func:`timely.differential.spark.maintain` keeps. Without keys rows are appended. ``properties`` go to the driver of the
    database, such as ``user``, ``password`` and ``driver``, whose jar the session has (``spark.jars``).

    Where the stream starts it raises :class:`~timely.errors.ConfigurationError` for a table that is not there, and
    :class:`~timely.errors.SchemaError` for a column that is not. A null in a key, or two rows of an epoch with one key, end the
    stream; nothing of the epoch is written then.

    >>> from timely.spark import JdbcSink
    >>> JdbcSink("postgresql://host/sales", "revenue")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: url must begin with jdbc:, such as jdbc:postgresql://host/database, not 'postgresql://host/sales'
    """

    needs_java: ClassVar[bool] = True
    url: str
    table: str | Mapping[str, str]
    keys: Sequence[str] | Mapping[str, Sequence[str]] = attrs.field(default=(), kw_only=True)
    properties: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith("jdbc:"):
            raise ConfigurationError(f"url must begin with jdbc:, such as jdbc:postgresql://host/database, not {self.url!r}")
        for keys in self.keys.values() if isinstance(self.keys, Mapping) else [self.keys]:
            if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
                raise ConfigurationError(f"keys is a list of columns, or a dictionary of them by output, not {self.keys!r}")

    def open(self, context: SinkContext) -> ForeachEpoch:
        """Make the staging tables, and the table of epochs where there is none."""
        names = self._tables(list(context.outputs))
        if isinstance(self.keys, Mapping) and not set(self.keys) <= set(names):
            raise ConfigurationError(f"keys names the outputs {', '.join(self.keys)}; the stream has {', '.join(names)}")
        database = _Database(self, context)
        token = secrets.token_hex(4)
        with database.connected() as connection:
            targets = [
                _Target.of(self, database, connection, name, names[name], f"timely_{token}_{number}", schema.names)
                for number, (name, schema) in enumerate(context.outputs.items())
            ]
            tables = hashlib.blake2b(json.dumps(sorted(names.items())).encode(), digest_size=8).hexdigest()
            epochs = _Epochs(f"{context.stream}-{tables}", token)
            epochs.take_over(connection)
            for target in targets:
                connection.run(target.copy)
        return _Delivery(database, epochs, targets)

    def _tables(self, outputs: list[str]) -> Mapping[str, str]:
        if isinstance(self.table, str):
            if len(outputs) > 1:
                raise ConfigurationError(f"table must be a dictionary from outputs to tables: there are {', '.join(outputs)}")
            return {outputs[0]: self.table}
        if set(self.table) != set(outputs):
            raise ConfigurationError(f"table names the outputs {', '.join(self.table)}; the stream has {', '.join(outputs)}")
        return self.table

    def keys_of(self, output: str) -> Sequence[str]:
        """Return the columns of the key of an output's table; none where rows are appended."""
        return self.keys.get(output, ()) if isinstance(self.keys, Mapping) else self.keys


class _Connection:
    """A connection of JDBC, on which every statement is a transaction but inside :meth:`transaction`."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def run(self, statement: str, *values: object) -> int:
        """Run a statement; return how many rows it changed."""
        with self._prepared(statement, values) as prepared:
            return int(prepared.executeUpdate())

    def first(self, query: str, *values: object) -> list[Any] | None:
        """Return the first row of a query."""
        with self._prepared(query, values) as prepared:
            result = prepared.executeQuery()
            width = int(result.getMetaData().getColumnCount())
            return [result.getObject(position + 1) for position in range(width)] if result.next() else None

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table."""
        with self._prepared(f"select * from {table} where 1 = 0", ()) as prepared:
            described = prepared.executeQuery().getMetaData()
            return [str(described.getColumnName(position + 1)) for position in range(int(described.getColumnCount()))]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back."""
        self._java.setAutoCommit(False)
        try:
            yield
            self._java.commit()
        except BaseException:
            self._java.rollback()
            raise
        finally:
            self._java.setAutoCommit(True)

    @contextlib.contextmanager
    def _prepared(self, statement: str, values: Sequence[object]) -> Iterator[Any]:
        """Yield a statement with its values. ``SparkError`` for what the database says against it."""
        try:
            prepared = self._java.prepareStatement(statement)
            try:
                for position, value in enumerate(values):
                    prepared.setObject(position + 1, value)
                yield prepared
            finally:
                prepared.close()
        except Py4JJavaError as error:
            raise SparkError(f"{statement}: {_message(error)}") from error


def _message(error: Py4JJavaError) -> str:
    """Return what Java says, without its stack."""
    return str(error.java_exception.getMessage())


class _Database:
    """What Spark knows of a database: how to connect to it, and how it quotes a name."""

    def __init__(self, sink: JdbcSink, context: SinkContext) -> None:
        self._sink = sink
        jvm: Any = context.session.sparkContext._jvm
        spark = jvm.org.apache.spark.sql
        try:
            options = spark.execution.datasources.jdbc.JDBCOptions(
                sink.url, EPOCHS, jvm.PythonUtils.toScalaMap(dict(sink.properties))
            )
            self._dialect = spark.jdbc.JdbcDialects.get(sink.url)
            self._connect = self._dialect.createConnectionFactory(options)
        except Py4JJavaError as error:
            raise ConfigurationError(f"{sink.url}: {_message(error)}: give the session the driver's jar (spark.jars)") from error

    @contextlib.contextmanager
    def connected(self) -> Iterator[_Connection]:
        """Yield a connection. ``SparkError`` where there is none to be had."""
        try:
            java = self._connect.apply(-1)
        except Py4JJavaError as error:
            raise SparkError(f"{self._sink.url} cannot be reached: {_message(error)}") from error
        try:
            yield _Connection(java)
        finally:
            java.close()

    def quote(self, name: str) -> str:
        """Return a column's name as it stands in a statement."""
        return str(self._dialect.quoteIdentifier(name))

    def append(self, frame: DataFrame, table: str) -> None:
        """Write rows by Spark's tasks."""
        frame.write.mode("append").jdbc(self._sink.url, table, properties=dict(self._sink.properties))


@attrs.frozen
class _Epochs:
    """The row of a stream and its tables in the table of epochs: the last epoch, and the driver that may write the next."""

    stream: str
    token: str

    def take_over(self, connection: _Connection) -> None:
        """Make this driver the one that may write, and delete the staging tables of the one before."""
        with contextlib.suppress(SparkError):  # it is there; a database that cannot have it fails in what follows
            connection.run(
                f"create table {EPOCHS}"
                " (stream varchar(64) not null primary key, epoch bigint not null, token varchar(64) not null)"
            )
        before = connection.first(f"select token from {EPOCHS} where stream = ?", self.stream)
        if before is None:
            connection.run(f"insert into {EPOCHS} (stream, epoch, token) values (?, -1, ?)", self.stream, self.token)
            return
        connection.run(f"update {EPOCHS} set token = ? where stream = ?", self.token, self.stream)
        with contextlib.suppress(SparkError):  # until there is none of this number
            for number in range(10_000):
                connection.run(f"drop table timely_{before[0]}_{number}")

    def last(self, connection: _Connection) -> int:
        """Return the last epoch that is in the tables. ``CheckpointError`` where another driver has taken over."""
        row = connection.first(f"select epoch, token from {EPOCHS} where stream = ?", self.stream)
        if row is None or row[1] != self.token:
            raise self._fenced()
        return int(row[0])

    def note(self, connection: _Connection, epoch: int) -> None:
        """Note an epoch, which keeps all other drivers out until the transaction ends."""
        noting = f"update {EPOCHS} set epoch = ? where stream = ? and token = ? and epoch < ?"
        if connection.run(noting, epoch, self.stream, self.token, epoch) != 1:
            raise self._fenced()

    def _fenced(self) -> CheckpointError:
        return CheckpointError(f"{EPOCHS} has another driver for this stream: it was started again elsewhere")


@attrs.frozen
class _Target:
    """A table, the staging table of it, and the statements that move rows from this to that."""

    output: str
    table: str
    stage: str
    columns: Mapping[str, str]
    """The table's column for each of the output's."""
    keys: Sequence[str]
    """Columns of the output."""
    changes: bool
    """Whether the rows are changes, whose deletes delete."""
    quote: Any = attrs.field(repr=False, eq=False)
    copy: str = attrs.field(repr=False)

    @classmethod
    def of(
        cls,
        sink: JdbcSink,
        database: _Database,
        connection: _Connection,
        output: str,
        table: str,
        stage: str,
        columns: Sequence[str],
    ) -> _Target:
        """Return what an output's rows go to, once it is checked against the database."""
        try:
            there = connection.columns(table)
        except SparkError as error:
            raise ConfigurationError(f"{sink.url} has no table {table} that can be read: create it first: {error}") from error
        wanted = sink.keys_of(output)
        changes = bool(wanted) and CHANGE_TYPE in columns and not any(name.lower() == CHANGE_TYPE for name in there)
        extra = (CHANGE_TYPE, COMMIT_VERSION) if changes else ()
        targets = {name: _column(name, there, table) for name in columns if name not in extra}
        keys = [name for key in wanted for name in targets if name.lower() == key.lower()]
        if len(keys) != len(wanted):
            raise SchemaError(f"keys: not all of {', '.join(wanted)} are columns of the output; it has {', '.join(targets)}")
        copied = ", ".join(map(database.quote, targets.values()))
        if changes:
            copied += f", 'insert' as {database.quote(CHANGE_TYPE)}"  # a text of six letters, as 'delete' is
        kind = sink.url.split(":")[1]
        copy = _EMPTY_COPY.get(kind, _USUAL_COPY).format(copy=stage, columns=copied, table=table)
        return cls(output, table, stage, targets, keys, changes, database.quote, copy)

    def staged(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the columns of the staging table."""
        columns = [F.col(f"`{name}`").alias(there) for name, there in self.columns.items()]
        return frame.select(*columns, *([CHANGE_TYPE] if self.changes else []))

    def count(self, frame: DataFrame) -> int:
        """Return how many rows are to be inserted."""
        return (frame.where(F.col(CHANGE_TYPE) == "insert") if self.changes else frame).count()

    def move(self, connection: _Connection) -> int:
        """Replace and insert rows, inside a transaction; return how many were inserted. ``SchemaError`` for a bad key."""
        inserted = f" where {self.quote(CHANGE_TYPE)} = 'insert'" if self.changes else ""
        if self.keys:
            keys = [self.quote(self.columns[key]) for key in self.keys]
            self._check_keys(connection, keys, inserted)
            same = " and ".join(f"{self.stage}.{key} = {self.table}.{key}" for key in keys)
            connection.run(f"delete from {self.table} where exists (select 1 from {self.stage} where {same})")
        columns = ", ".join(map(self.quote, self.columns.values()))
        return connection.run(f"insert into {self.table} ({columns}) select {columns} from {self.stage}{inserted}")

    def _check_keys(self, connection: _Connection, keys: list[str], inserted: str) -> None:
        columns = ", ".join(keys)
        missing = " or ".join(f"{key} is null" for key in keys)
        if connection.first(f"select {columns} from {self.stage} where {missing}") is not None:
            raise SchemaError(f"{self.table}: a row has a null in its key ({', '.join(self.keys)}): {_MEND}")
        twice = connection.first(f"select {columns} from {self.stage}{inserted} group by {columns} having count(*) > 1")
        if twice is not None:
            raise SchemaError(
                f"{self.table}: an epoch has two rows with the key {', '.join(map(str, twice))}: keys tell the rows"
                f" of an output apart: {_MEND}"
            )


def _column(name: str, there: Sequence[str], table: str) -> str:
    """Return the column of a table for one of an output: that of the name, or the only one that differs in case alone."""
    matches = [each for each in there if each == name] or [each for each in there if each.lower() == name.lower()]
    if len(matches) != 1:
        raise SchemaError(f"{table} has no column {name}; it has {', '.join(there)}")
    return matches[0]


@attrs.frozen
class _Delivery:
    """Takes epochs."""

    database: _Database
    epochs: _Epochs
    targets: Sequence[_Target]

    def __call__(self, epoch: int, tables: Mapping[str, DataFrame]) -> None:
        """Write an epoch, unless it is there."""
        with self.database.connected() as connection:
            if self.epochs.last(connection) >= epoch:
                return
            expected = {target.output: target.count(tables[target.output]) for target in self.targets}
            for _ in range(_TRIES):
                for target in self.targets:
                    connection.run(f"delete from {target.stage}")
                    self.database.append(target.staged(tables[target.output]), target.stage)
                with contextlib.suppress(_Repeated), connection.transaction():
                    self._move(connection, epoch, expected)
                    return
        raise SparkError(
            f"Spark staged other rows of epoch {epoch} than there are, {_TRIES} times: its tasks fail after they have written to"
            " the database. Nothing of the epoch is in the tables"
        )

    def _move(self, connection: _Connection, epoch: int, expected: Mapping[str, int]) -> None:
        self.epochs.note(connection, epoch)
        for target in self.targets:
            if target.move(connection) != expected[target.output]:
                raise _Repeated


class _Repeated(Exception):
    """A task of Spark's that was run twice has staged its rows twice."""
