"""Rows as JSON, as Arrow, and as server-sent events; conditions as parameters of a URL.

In JSON decimals, dates, timestamps and whole numbers beyond 53 bits are texts: JSON readers round such numbers.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from timely.differential.tables.arrow_rows import batch_of
from timely.differential.tables.values.kinds import (
    DOUBLES,
    Column,
    Kind,
    arrow_schema,
    conversion,
    list_of,
    lower_case,
    single_of,
)
from timely.errors import ConfigurationError, SchemaError, SqlError, brief, did_you_mean, listed_names
from timely.server.contents import COMPARISONS, Change, Row, RowCondition

_EXACT: Final = (1 << 53) - 1
"""The largest whole number that every reader of JSON reads exactly."""

_PIECE: Final = 1 << 16
"""Bytes that are sent at once: no more than that waits for a client that reads slowly."""

_BATCH: Final = 2000
"""Rows of a batch of Arrow."""

_CONDITIONS: Final = 32
"""Conditions of one request: each is a comparison for every row, while others wait."""


def json_value(value: Any, kind: Kind) -> Any:
    """Return a value of a row as JSON has it.

    >>> from timely.differential.tables.values.kinds import decimal
    >>> json_value(7, Kind.INTEGER), json_value(1 << 60, Kind.INTEGER), json_value(Decimal("1.5"), decimal(2))
    (7, '1152921504606846976', '1.50')
    """
    if value is None or isinstance(value, str | bool):
        return value
    inner = kind.element or kind.entry
    if inner is not None:
        return [json_value(each, inner) for each in value]
    if kind.fields:
        return {name: json_value(each, part) for (name, part), each in zip(kind.fields, value, strict=True)}
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    convert = conversion(kind, Kind.TEXT)
    return str(value) if convert is None else convert(value)


def row_object(columns: Sequence[Column], row: Row) -> dict[str, Any]:
    return {column.name: json_value(value, column.kind) for column, value in zip(columns, row, strict=True)}


def columns_object(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return columns as JSON: their names, types, and whether they may be ``NULL``."""
    return [{"name": column.name, "type": column.kind.value, "nullable": column.nullable} for column in columns]


def json_pieces(
    head: Mapping[str, Any], columns: Sequence[Column], rows: Sequence[Row], tail: Mapping[str, Any]
) -> Iterator[bytes]:
    """Return an object of JSON in pieces: what ``head`` has, the columns, the rows, and what ``tail`` has.

    >>> b"".join(json_pieces({"time": 0}, [Column("n", Kind.INTEGER, False)], [(7,), (8,)], {"more": False})).decode()
    '{"time":0,"columns":[{"name":"n","type":"BIGINT","nullable":false}],"rows":[{"n":7},{"n":8}],"more":false}'
    """
    begin = _json({**head, "columns": columns_object(columns), "rows": []})
    yield from pieces(
        [begin[:-2].encode()],
        (b"," * (place > 0) + _json(row_object(columns, row)).encode() for place, row in enumerate(rows)),
        [("]," + _json(tail)[1:] if tail else "]}").encode()],
    )


def arrow_pieces(time: int, more: bool, columns: tuple[Column, ...], rows: Sequence[Row]) -> Iterator[bytes]:
    """Return an answer as a stream of Arrow IPC in pieces; the metadata of its schema have the ``time``, and ``more``.

    ``SchemaError`` for rows that do not fit the types of Arrow, at once.
    """
    schema = arrow_schema(columns).with_metadata({"time": str(time), "more": str(more).lower()})
    for begin in range(0, len(rows), _BATCH):
        batch_of(rows[begin : begin + _BATCH], columns, "ask for JSON")
    return _arrow_pieces(schema, columns, rows)


def _arrow_pieces(schema: pa.Schema, columns: tuple[Column, ...], rows: Sequence[Row]) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for begin in range(0, len(rows), _BATCH):
            writer.write_batch(batch_of(rows[begin : begin + _BATCH], columns, "ask for JSON"))
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def pieces(*parts: Iterable[bytes]) -> Iterator[bytes]:
    """Return what the parts have in pieces of some 64 KB.

    >>> [len(piece) for piece in pieces([b"a"], [b"b" * 40_000] * 4)]
    [80001, 80000]
    """
    together: list[bytes] = []
    size = 0
    for content in itertools.chain(*parts):
        together.append(content)
        size += len(content)
        if size >= _PIECE:
            yield b"".join(together)
            together, size = [], 0
    if together:
        yield b"".join(together)


_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def event(name: str, data: Any, id: str | None = None) -> bytes:
    """Return a server-sent event.

    >>> event("changes", {"time": 1}, "a-1")
    b'id: a-1\\nevent: changes\\ndata: {"time":1}\\n\\n'
    """
    return event_head(name, id) + _json(data).encode() + b"\n\n"


def event_head(name: str, id: str | None = None) -> bytes:
    """Return what comes before the data of a server-sent event, which two line feeds end."""
    return (f"id: {id}\n" if id is not None else "").encode() + f"event: {name}\ndata: ".encode()


def changes_event(time: int, columns: Sequence[Column], changes: Sequence[Change], id: str) -> Iterator[bytes]:
    """Return the changes of an epoch as an event, a row at a time: what goes comes before what comes."""
    yield event_head("changes", id) + f'{{"time":{time},"changes":['.encode()
    ordered = itertools.chain((each for each in changes if each[1] < 0), (each for each in changes if each[1] > 0))
    for place, (row, diff) in enumerate(ordered):
        yield b"," * (place > 0) + _json({"count": diff, "row": row_object(columns, row)}).encode()
    yield b"]}\n\n"


# -- what comes in -------------------------------------------------------------------------------------------------


def value_of(column: Column, value: Any) -> Any:
    """Return a value of JSON, or a text of a URL, as a value of a column; ``SchemaError`` if it is none.

    >>> from timely.differential.tables.values.kinds import decimal
    >>> value_of(Column("price", decimal(2)), "1.50")
    Decimal('1.50')
    """
    try:
        return _converted(value, column.kind)
    except (SqlError, ValueError, OverflowError) as error:  # the last two are of numbers with too many digits
        raise SchemaError(f"column {column.name!r} is {column.kind.value}: {error}") from None


def _converted(value: Any, kind: Kind) -> Any:
    inner = kind.element or kind.entry
    if isinstance(value, list) and inner is not None:
        return tuple(_converted(each, inner) for each in value)
    if isinstance(value, dict) and kind.fields:
        parts = {name: _converted(value.get(name), part) for name, part in kind.fields}
        return {**value, **parts}  # what is no field is refused with the row
    if value in ("inf", "-inf") and kind in DOUBLES:
        return float(value)
    if isinstance(value, Decimal | int) and not isinstance(value, bool) and kind in DOUBLES:
        number = float(value) if kind is Kind.DOUBLE else single_of(value)
        if math.isinf(number):
            raise SqlError(f"{value} does not fit {kind.value}")
        return number
    if isinstance(value, int) and not isinstance(value, bool) and kind.scale is not None:
        return Decimal(value)
    if isinstance(value, str) and kind is not Kind.TEXT:
        # All digits of a decimal: the table refuses those that it does not have. Lists and structs are written as JSON.
        convert = conversion(Kind.TEXT, kind.base) or conversion(Kind.JSON, kind if kind.entry is None else list_of(kind.entry))
        if convert is None:
            raise SqlError(f"{brief(value)} is a text")
        if kind is Kind.INTEGER and not re.fullmatch("[+-]?[0-9]+", value):  # a cast would round it
            raise SqlError(f"{brief(value)} is not a whole number")
        return convert(value)
    return value


def rows_of(columns: Sequence[Column], content: Any, what: str) -> list[Row]:
    """Return a list of objects of JSON as rows; ``SchemaError`` for other columns. What is missing is ``NULL``."""
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise SchemaError(f"{what!r} is a list of objects, one a row")
    names = [column.name for column in columns]
    for row in content:
        others = row.keys() - {*names}
        if others:
            other = sorted(others)[0]
            raise SchemaError(f"{what!r} has column {other!r}: the table has {listed_names(names)}{did_you_mean(other, names)}")
    return [tuple(value_of(column, row.get(column.name)) for column in columns) for row in content]


def conditions_of(columns: Sequence[Column], parameters: Iterable[tuple[str, str]]) -> list[RowCondition]:
    """Return the conditions of a URL: ``column=value``, ``column.gte=value`` and so on, and ``column.null=true``.

    >>> from timely.differential.tables.values.kinds import map_of
    >>> conditions_of([Column("n", Kind.INTEGER)], [("n.gte", "5")])
    [RowCondition(place=0, comparison='gte', value=5)]
    >>> conditions_of([Column("a.b", Kind.INTEGER)], [("a.B", "5"), ("a.b.lt", "7")])
    [RowCondition(place=0, comparison='eq', value=5), RowCondition(place=0, comparison='lt', value=7)]
    >>> conditions_of([Column("m", map_of(Kind.TEXT, Kind.INTEGER))], [("m", '[{"key": "a", "value": 1}]')])
    [RowCondition(place=0, comparison='eq', value=(('a', 1),))]
    """
    places = {column.name: place for place, column in enumerate(columns)}
    pairs = list(parameters)
    if len(pairs) > _CONDITIONS:
        raise ConfigurationError(f"there are {len(pairs)} conditions: give {_CONDITIONS} at most")
    conditions = []
    for parameter, text in pairs:
        name, comparison = parameter, ""
        if lower_case(parameter) not in places:  # names may have points too
            name, _, comparison = parameter.rpartition(".")
            name, comparison = (name, comparison) if name else (parameter, "")
        place = places.get(lower_case(name))
        if place is None:
            raise ConfigurationError(f"there is no column {name!r}: there are {listed_names(places)}{did_you_mean(name, places)}")
        if comparison == "null" and text == "true":
            conditions.append(RowCondition(place, "eq", None))
        elif (comparison or "eq") in COMPARISONS:
            conditions.append(RowCondition(place, comparison or "eq", value_of(columns[place], text)))
        else:
            known = ", ".join(f"{name}.{each}" for each in COMPARISONS)
            raise ConfigurationError(f"{parameter}={text}: write {name}=value, one of {known}, or {name}.null=true")
    return conditions
