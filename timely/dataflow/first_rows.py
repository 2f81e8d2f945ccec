"""The first records of a stream as a table, for a terminal or a notebook."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from html import escape
from itertools import islice
from typing import Any, Final

import attrs

from timely.dataflow.containers.container import records_of
from timely.errors import brief

_CELL: Final = 60
"""The most characters of a cell."""


@attrs.frozen
class Preview:
    """Some rows of a table, and how many there are in all.

    >>> print(preview([(0, [{"node": 1, "name": "one"}, {"node": 20}])]))
    node | name
    -----+-----
       1 | one
      20 |
    >>> print(preview([(3, [("to", 2), ("be", 1)])], limit=1, first="time"))
    time | 0  | 1
    -----+----+--
       3 | to | 2
    ... 1 row more
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    @property
    def _rest(self) -> str:
        more = self.total - len(self.rows)
        return f"... {more:,} row{'' if more == 1 else 's'} more" if more else ""

    def html(self) -> str:
        """Return an HTML table."""
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(_text(cell))}</td>' for cell in row)}</tr>" for row in self.rows)
        rest = f"<caption>{self._rest}</caption>" if self._rest else ""
        return f"<table>{rest}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __str__(self) -> str:
        if not self.rows:
            return "no rows"
        cells = [[_text(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        numbers = [all(isinstance(cell, int | float) for cell in column) for column in zip(*self.rows, strict=True)]
        lines = [_line(self.columns, widths, [False] * len(widths)), "-+-".join("-" * width for width in widths)]
        lines += [_line(row, widths, numbers) for row in cells]
        return "\n".join([*lines, *filter(None, [self._rest])])


class _Absent(Enum):
    """A cell of a row without that column; an enumeration, which stays itself in another process."""

    CELL = 0


_ABSENT: Final = _Absent.CELL


def preview(messages: Iterable[tuple[Any, Any]], *, limit: int = 20, first: str | None = None) -> Preview:
    """Return the first ``limit`` records of messages ``(time, container)``; ``first`` names a column of their times.

    Columns are those of Arrow batches, the keys of dictionaries, the fields of data classes, attrs objects and named tuples, and
    the positions of tuples.
    """
    rows: list[dict[str, Any]] = []
    total = 0
    for time, container in messages:
        total += len(container)
        left = limit - len(rows)
        if left > 0:
            rows += [{first: time, **row} if first is not None else row for row in _rows(container, left)]
    return _preview(rows, total)


def counted_preview(names: Sequence[str], counted: Iterable[tuple[Any, Any]], total: int) -> Preview:
    """Return the preview of records, whose fields have these names if any, each with how often it is there."""
    rows = ((count, [dict(zip(names, record, strict=True)) if names else record]) for record, count in islice(counted, 20))
    return attrs.evolve(preview(rows, first="count"), total=total)


def joined(previews: Sequence[Preview], *, limit: int = 10) -> Preview:
    """Return the preview of several workers' parts of a stream.

    >>> print(joined([preview([(0, [1])]), preview([(0, ["two"])])]))
    record
    ------
    1
    two
    """
    rows = [dict(zip(each.columns, row, strict=True)) for each in previews for row in each.rows][:limit]
    return _preview(rows, sum(each.total for each in previews))


def _preview(rows: Sequence[Mapping[str, Any]], total: int) -> Preview:
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    return Preview(columns, tuple(tuple(row.get(column, _ABSENT) for column in columns) for row in rows), total)


def _rows(container: Any, limit: int) -> list[dict[str, Any]]:
    if hasattr(container, "schema"):
        batch = container.slice(0, limit)
        return [
            dict(zip(batch.schema.names, row, strict=True)) for row in zip(*(column.to_pylist() for column in batch), strict=True)
        ]
    return [_fields(record) for record in list(records_of(container))[:limit]]


def _fields(record: Any) -> dict[str, Any]:
    if isinstance(record, Mapping):
        return {str(key): value for key, value in record.items()}
    if isinstance(record, tuple):
        names = getattr(record, "_fields", None) or map(str, range(len(record)))
        return dict(zip(names, record, strict=True))
    if attrs.has(type(record)):
        return {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}
    if dataclasses.is_dataclass(record):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {"record": record}


def _text(cell: Any) -> str:
    if cell is _ABSENT:
        return ""
    if cell is None:
        return "null"
    text = str(cell) if isinstance(cell, str | datetime.date) else brief(cell)  # a datetime is a date
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= _CELL else f"{text[: _CELL - 4]} ..."


def _line(cells: Iterable[str], widths: list[int], numbers: list[bool]) -> str:
    return " | ".join(
        cell.rjust(width) if number else cell.ljust(width) for cell, width, number in zip(cells, widths, numbers, strict=True)
    ).rstrip()
