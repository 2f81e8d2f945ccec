"""``keyed``: the changes of a view with a key, as what a table or topic does for each key; ``KeyedTable``: such a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from timely.connect.protocols import Change, check_history
from timely.errors import ConnectorError, brief

Row = tuple[Any, ...]


class RowsByKey(NamedTuple):
    """The rows to delete, those to update, and those to insert, by key."""

    deletes: dict[Row, Row]
    updates: dict[Row, Row]
    inserts: dict[Row, Row]


def check_key(sink: str, key: Sequence[str], columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of a sink's rows; ``ConnectorError`` where its key is not of them."""
    if not key or columns is None or not {*key} <= {*columns}:
        raise ConnectorError(
            f"sink {sink!r}: its key is {', '.join(key) or 'empty'}, and the rows have the columns"
            f" {', '.join(columns or ()) or '(unknown)'}: name the key, and give write(..., columns=[...])"
        )
    return tuple(columns)


def keyed(sink: str, key: Sequence[str], columns: Sequence[str], changes: Sequence[Change]) -> RowsByKey:
    """Return the changes by key; ``ConnectorError`` where a key has several rows, or no value.

    >>> keyed("totals", ["word"], ["word", "n"], [(("a", 1), -1), (("a", 2), 1), (("b", 1), 1)])
    RowsByKey(deletes={}, updates={('a',): ('a', 2)}, inserts={('b',): ('b', 1)})
    """
    places = [columns.index(column) for column in key]
    gone: dict[Row, Row] = {}
    come: dict[Row, Row] = {}
    for row, diff in changes:
        if not isinstance(row, tuple) or len(row) != len(columns):
            raise ConnectorError(f"sink {sink!r}: a row has the columns {', '.join(columns)}, and {brief(row)} came")
        value = tuple(row[place] for place in places)
        side = come if diff > 0 else gone
        if abs(diff) != 1 or value in side or None in value:
            reason = "is NULL" if None in value else "has more than one row"
            raise ConnectorError(
                f"sink {sink!r}: the key ({', '.join(key)}) {reason}, {brief(value)}: write a view with one row for each key,"
                " such as one with GROUP BY, or name more columns as the key"
            )
        side[value] = row
    return RowsByKey(
        {value: row for value, row in gone.items() if value not in come},
        {value: row for value, row in come.items() if value in gone},
        {value: row for value, row in come.items() if value not in gone},
    )


class KeyedTable(ABC):
    """A sink that keeps a table equal to a view by the columns of ``key``; what is read and written is in one transaction."""

    def __init__(self, table: str, key: str | Sequence[str], name: str | None, place: str) -> None:
        self.name = name or table
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._place = f"table {table} of {place}"
        self._history = ""
        self._columns: tuple[str, ...] = ()

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Begin a transaction, and commit it at the end; ``ConnectorError`` for errors of the database."""

    @abstractmethod
    def _last(self, transaction: Any) -> tuple[str, int | None]:
        """Return the history that the rows are of, and the last epoch of it; this one's and ``None`` where there are none."""

    @abstractmethod
    def _write(self, transaction: Any, epoch: int, rows: RowsByKey) -> None:
        """Write the rows and the epoch."""

    @abstractmethod
    def _claim(self, transaction: Any) -> None:
        """Note the history, where it is known before the first epoch."""

    def open(self, history: str, columns: Sequence[str] | None) -> int | None:
        """Return the last epoch."""
        self._history = history
        self._columns = check_key(self.name, self._key, columns)
        with self._transaction() as transaction:
            other, epoch = self._last(transaction)
            check_history(self.name, self._place, history, other, epoch)
            self._claim(transaction)
            return epoch

    def commit(self, epoch: int, changes: Sequence[Change]) -> None:
        """Apply the changes and note the epoch."""
        rows = keyed(self.name, self._key, self._columns, changes)
        with self._transaction() as transaction:
            history, last = self._last(transaction)
            if history != self._history:
                raise ConnectorError(f"sink {self.name!r}: another run has opened {self._place} since: end this one")
            if last is None or last < epoch:
                self._write(transaction, epoch, rows)

    def _unmet(self, what: str) -> ConnectorError:
        return ConnectorError(
            f"sink {self.name!r}: {self._place} does not have the rows that it was given: {what}. Let nothing else change it,"
            f" and have a unique key ({', '.join(self._key)})"
        )
