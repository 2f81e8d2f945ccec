"""``PostgresSource``: the rows of tables of PostgreSQL and then their changes, by logical replication.

The invariants: what a transaction does is in one read, and transactions come in the order in which they were committed. A change
is in the copy of the tables, or comes later, never both. The slot stays behind all checkpoints that a run may resume from; each
run reads from a temporary copy of it.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from timely.connect.databases import postgres_connection
from timely.connect.pgoutput import RowChange, Transactions
from timely.connect.protocols import Change, ReadBatch
from timely.errors import ConnectorError, brief, error_text, require_package

_PARTITION: Final = "changes"

_SESSION: Final = (
    "set datestyle = iso; set timezone = utc; set extra_float_digits = 1; set bytea_output = hex; set row_security = off"
)
"""How values are written; and rows that a policy hides are an error of the copy, since changes have them."""


def _boolean(text: str) -> bool:
    return text == "t"


def _decimal(text: str) -> Decimal:
    if text == "NaN":
        raise ValueError("NaN is no decimal")
    return Decimal(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_TYPES: Final[dict[str, tuple[pa.DataType, Callable[[str], Any]]]] = {
    "bool": (pa.bool_(), _boolean),
    "int2": (pa.int16(), int),
    "int4": (pa.int32(), int),
    "int8": (pa.int64(), int),
    "float4": (pa.float64(), float),
    "float8": (pa.float64(), float),
    "text": (pa.string(), str),
    "varchar": (pa.string(), str),
    "bpchar": (pa.string(), str),
    "uuid": (pa.string(), str),
    "json": (pa.string(), str),
    "bytea": (pa.binary(), _bytes),
    "date": (pa.date32(), datetime.date.fromisoformat),
    "timestamp": (pa.timestamp("us"), datetime.datetime.fromisoformat),
    "timestamptz": (pa.timestamp("us", "UTC"), datetime.datetime.fromisoformat),
}
"""Types of columns by their names in PostgreSQL, and how their texts are read."""


class _Table(NamedTuple):
    """A table: its number in PostgreSQL, its name there in quotes, its columns, and how the text of each is read."""

    number: int
    quoted: str
    schema: pa.Schema
    readers: list[Callable[[str], Any]]


class PostgresPosition(NamedTuple):
    """A place in the log of the database, the snapshot of the copy and a place behind it, and the columns of the tables."""

    log: int
    snapshot: str
    copied: int
    columns: dict[str, list[str]]

    def __str__(self) -> str:
        return _lsn_text(self.log)


class PostgresSource:
    """Reads tables of PostgreSQL: their rows, and then each change, a transaction at a time.

    ``where`` is a connection string; what it lacks, such as a password, comes from the environment (``PGPASSWORD``). With one
    table a row is a tuple of its columns; with a list it is ``(table, row)``: see ``dd.source_tables``. ``name`` is that of the
    slot and of the publication, which are made where they are missing. With ``bounded`` it ends with what is there when it begins
    to read.

    The first read copies the tables, as one epoch, in memory. The server needs ``wal_level = logical`` and two free slots. The
    user needs ``REPLICATION``, and owns the tables where the publication is missing. They need ``REPLICA IDENTITY FULL``: without
    it a change does not say what the row was. ``ConnectorError`` where that is not so, or changes are lost. Needs psycopg.
    """

    def __init__(self, where: str, tables: str | Sequence[str], *, name: str = "timely", bounded: bool = False) -> None:
        require_package("psycopg", "PostgresSource", "postgres")
        self.name = name
        self.bounded = bounded
        self._where = where
        self._one = isinstance(tables, str)
        self._names = [tables] if isinstance(tables, str) else list(tables)
        self._connection: Any = None
        self._known: dict[str, _Table] = {}
        self._by_number: dict[int, str] = {}
        self._slot_at: int | None = None  # the position that the copy of the slot goes on from
        self._last: int | None = None  # the position at which a bounded source is over

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each table."""
        with self._connected():
            schemas = {name: table.schema for name, table in self._known.items()}
        self.close()  # most workers need it no more
        return schemas

    @property
    def schema(self) -> pa.Schema:
        """The columns of its only table."""
        if not self._one:
            raise ConnectorError(f"source {self.name!r} has the tables {', '.join(self._names)}: read them with dd.source_tables")
        return self.schemas[self._names[0]]

    def partitions(self) -> list[str]:
        return [_PARTITION]

    def start(self, partition: str) -> None:
        return None

    def read(self, partition: str, begin: PostgresPosition | None, rows: int) -> ReadBatch:
        """Return the rows of the tables, or the next transactions."""
        with self._connected() as connection:
            if self._last is None:
                self._last = self._end_of_log(connection)
            if begin is None:
                return self._copy(connection)
            begin = PostgresPosition(*begin)
            if begin.columns != self._columns:
                raise self._changed_columns(begin.columns, self._columns)
            self._check_published(connection)
            end = self._end_of_log(connection)
            messages = self._messages(connection, begin, end, rows)
            texts, last = Transactions(self.name, begin.log, begin.snapshot, begin.copied).read(messages)
            changes = [(self._changed(change), change.diff) for change in texts]
            if len(messages) < rows:  # all up to the end of the log was read
                last = max(last, end)
            self._slot_at = last
            return ReadBatch(changes, begin._replace(log=last), self.bounded and last >= self._last, end - last)

    def acknowledge(self, positions: Mapping[str, PostgresPosition | None]) -> None:
        """Have the slot follow."""
        position = positions.get(_PARTITION)
        if position is not None:
            log = PostgresPosition(*position).log
            with self._connected() as connection:
                self._slot(connection, log)
                connection.execute("select pg_replication_slot_advance(%s, %s::pg_lsn)", (self.name, _lsn_text(log)))

    def close(self) -> None:
        """Close the connection, and with it the temporary copy of the slot."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    # -- connection ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield the connection; ``ConnectorError`` for errors of the database, and the connection is closed then."""
        import psycopg

        try:
            if self._connection is None:
                self._connection = postgres_connection(self._where)
                self._connection.execute(_SESSION)
                self._slot_at = None
                self._known = {name: self._table(self._connection, name) for name in self._names}
                self._by_number = {table.number: name for name, table in self._known.items()}
            yield self._connection
        except (ConnectorError, psycopg.Error) as error:
            self._connection, connection = None, self._connection
            if connection is not None:
                connection.close()
            if isinstance(error, ConnectorError):
                raise
            raise ConnectorError(f"source {self.name!r}: PostgreSQL: {error_text(error)}") from error

    def _table(self, connection: Any, name: str) -> _Table:
        number, quoted, kind, identity = connection.execute(
            "select oid::int8, oid::regclass::text, relkind, relreplident from pg_class where oid = %s::regclass", (name,)
        ).fetchone()
        if kind != "r":
            raise ConnectorError(f"source {self.name!r}: {name} is no ordinary table, so its changes do not have its name")
        if identity != "f":
            raise ConnectorError(
                f"source {self.name!r}: an update or delete of {name} does not say what the row was, since its replica identity"
                f" is not full: ALTER TABLE {quoted} REPLICA IDENTITY FULL"
            )
        fields, readers = [], []
        columns = connection.execute(
            "select a.attname, case t.typtype when 'e' then 'text' else t.typname end, a.attnotnull, a.atttypmod"
            " from pg_attribute a join pg_type t on t.oid = a.atttypid"
            " where a.attrelid = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum",
            (number,),
        )
        for column, kind, required, size in columns:
            known: Any = _TYPES.get(kind)
            precision, scale = (size - 4) >> 16, (size - 4) & 0x7FF
            if kind == "numeric" and 0 <= scale <= precision <= 38:
                known = (pa.decimal128(precision, scale), _decimal)
            if known is None:
                raise ConnectorError(
                    f"source {self.name!r}: column {column} of {name} is {kind}, and columns are {', '.join(_TYPES)}, enums and"
                    " numeric(p, s) of up to 38 digits: read a table without it, which a trigger fills"
                )
            fields.append(pa.field(column, known[0], not required))
            readers.append(known[1])
        return _Table(number, quoted, pa.schema(fields), readers)

    def _end_of_log(self, connection: Any) -> int:
        return _lsn(connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()[0])

    # -- the copy ------------------------------------------------------------------------------------------------------

    def _copy(self, connection: Any) -> ReadBatch:
        """Make publication and slot, and return the rows of the tables in a snapshot taken after that."""
        tables = [f"only {table.quoted}" for table in self._known.values()]
        if connection.execute("select from pg_publication where pubname = %s", (self.name,)).fetchone() is None:
            connection.execute(f"create publication {_quoted(self.name)} for table {', '.join(tables)}")
        self._check_published(connection)
        if self._slots(connection).get(self.name) is None:
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (self.name,))
        changes: list[Change] = []
        with connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            snapshot, begin, copied = connection.execute(
                "select pg_current_snapshot()::text, pg_current_wal_flush_lsn()::text, pg_current_wal_insert_lsn()::text"
            ).fetchone()
            for (name, table), place in zip(self._known.items(), tables):
                columns = ", ".join(map(_quoted, table.schema.names))
                with connection.cursor().copy(f"copy (select {columns} from {place}) to stdout") as copy:
                    changes += [(self._row(name, texts), 1) for texts in copy.rows()]
        oldest = self._slots(connection)[self.name]
        return ReadBatch(changes, PostgresPosition(min(oldest, _lsn(begin)), snapshot, _lsn(copied), self._columns))

    def _check_published(self, connection: Any) -> None:
        """Raise ``ConnectorError`` unless all changes of the tables, and of no others, are published."""
        published = connection.execute(
            "select prrelid::int8, to_jsonb(r) ->> 'prqual', pubinsert and pubupdate and pubdelete and pubtruncate"
            " from pg_publication p left join pg_publication_rel r on prpubid = p.oid where pubname = %s",
            (self.name,),
        )
        if {*published} != {(number, None, True) for number in self._by_number} or len(self._by_number) < len(self._known):
            raise ConnectorError(
                f"source {self.name!r}: the publication of that name is not of {', '.join(self._known)}, once each, with all rows"
                " and changes, or a table was made anew: drop it and the slot, and start anew, or give another name="
            )

    def _row(self, name: str, texts: Sequence[str | None]) -> Any:
        """Return the row of a table with these texts; ``ConnectorError`` for values that its types do not hold."""
        try:
            row = tuple(
                [None if text is None else read(text) for read, text in zip(self._known[name].readers, texts, strict=True)]
            )
        except (ValueError, ArithmeticError) as error:
            raise ConnectorError(
                f"source {self.name!r}: {name} has a value that is not read, in {brief(texts)}: {error}"
            ) from error
        return row if self._one else (name, row)

    # -- changes -------------------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> dict[str, list[str]]:
        """The columns of each table, as a checkpoint has them."""
        return {name: [f"{field.name} {field.type}" for field in table.schema] for name, table in self._known.items()}

    def _changed(self, change: RowChange) -> Any:
        """Return the row of a change."""
        name = self._by_number[change.table]
        if change.columns != self._known[name].schema.names:
            raise self._changed_columns({name: self._known[name].schema.names}, {name: change.columns})
        return self._row(name, change.texts)

    def _changed_columns(self, before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> ConnectorError:
        return ConnectorError(
            f"source {self.name!r}: its tables had the columns {dict(before)}, and now have {dict(after)}: start anew, with"
            " another name= and an empty folder of checkpoints"
        )

    def _slots(self, connection: Any) -> dict[str, int]:
        slots = connection.execute(
            "select slot_name, confirmed_flush_lsn::text from pg_replication_slots where database = current_database()"
            " and confirmed_flush_lsn is not null"
        )
        return {name: _lsn(place) for name, place in slots}

    def _slot(self, connection: Any, wanted: int) -> None:
        """Raise ``ConnectorError`` where the slot is gone, or beyond the position that is wanted."""
        oldest = self._slots(connection).get(self.name)
        if oldest is None or oldest > wanted:
            state = "there is no such slot" if oldest is None else f"the slot begins at {_lsn_text(oldest)}"
            raise ConnectorError(
                f"source {self.name!r}: the changes from {_lsn_text(wanted)} on are wanted, and {state}: what lies between is"
                " lost. Start anew, with another name= and an empty folder of checkpoints"
            )

    def _messages(self, connection: Any, begin: PostgresPosition, end: int, rows: int) -> list[bytes]:
        """Return what ``pgoutput`` says up to a place in the log, about ``rows`` messages, whole transactions."""
        own = f"{self.name}_{connection.info.backend_pid}"
        if self._slot_at != begin.log:
            if self._slot_at is not None:  # two streams of one source
                connection.execute("select pg_drop_replication_slot(%s)", (own,))
            self._slot(connection, begin.log)
            connection.execute("select pg_copy_logical_replication_slot(%s, %s, true)", (self.name, own))
            self._slot(connection, begin.log)  # which another program may have moved meanwhile
        cursor = connection.cursor(binary=True)
        cursor.execute(
            "select data from pg_logical_slot_get_binary_changes(%s, %s::pg_lsn, %s,"
            " 'proto_version', '1', 'publication_names', %s)",
            (own, _lsn_text(end), rows, _quoted(self.name)),
        )
        return [message for (message,) in cursor]


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _lsn_text(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
