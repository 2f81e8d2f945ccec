"""``keyed``: the changes of a view with a key, as what a table or topic does for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from timely.connect.protocols import Change
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
