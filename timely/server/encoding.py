"""Rows as JSON, as Arrow, and as server-sent events; conditions as parameters of a URL.

In JSON decimals, dates, timestamps and whole numbers beyond 53 bits are texts: JSON readers round such numbers.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from timely.differential.tables.kinds import Column, Kind, arrow_schema, conversion, lower_case
from timely.errors import ConfigurationError, SchemaError, SqlError, brief
from timely.server.contents import COMPARISONS, Row, RowCondition
from timely.server.views import Answer

_EXACT: Final = (1 << 53) - 1
"""The largest whole number that every reader of JSON reads exactly."""


def json_value(value: Any, kind: Kind) -> Any:
    """Return a value of a row as JSON has it.

    >>> from timely.differential.tables.kinds import decimal
    >>> json_value(7, Kind.INTEGER), json_value(1 << 60, Kind.INTEGER), json_value(Decimal("1.5"), decimal(2))
    (7, '1152921504606846976', '1.50')
    """
    if value is None or isinstance(value, str | bool):
        return value
    if kind.element is not None:
        return [json_value(each, kind.element) for each in value]
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
    """Return a row as an object of JSON."""
    return {column.name: json_value(value, column.kind) for column, value in zip(columns, row, strict=True)}


def columns_object(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return columns as JSON: their names, types, and whether they may be ``NULL``."""
    return [{"name": column.name, "type": column.kind.value, "nullable": column.nullable} for column in columns]


def answer_object(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON, with each row as often as it is there."""
    rows = [each for row, count in answer.rows for each in [row_object(answer.columns, row)] * count]
    return {"time": answer.time, "columns": columns_object(answer.columns), "rows": rows, "more": answer.more}


def arrow_stream(answer: Answer) -> bytes:
    """Return an answer as a stream of Arrow IPC; the metadata of its schema have the ``time``, and ``more``."""
    rows = [row for row, count in answer.rows for _ in range(count)]
    metadata = {"time": str(answer.time), "more": str(answer.more).lower()}
    schema = arrow_schema(answer.columns).with_metadata(metadata)
    try:
        arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaError(f"the rows do not fit the types of Arrow: {error}; ask for JSON") from None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def event(name: str, data: Any, id: str | None = None) -> bytes:
    """Return a server-sent event.

    >>> event("changes", {"time": 1}, "a-1")
    b'id: a-1\\nevent: changes\\ndata: {"time":1}\\n\\n'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (f"id: {id}\n" if id is not None else "").encode() + f"event: {name}\ndata: {text}\n\n".encode()


# -- what comes in -------------------------------------------------------------------------------------------------


def value_of(column: Column, given: Any) -> Any:
    """Return a value of JSON, or a text of a URL, as a value of a column; ``SchemaError`` if it is none.

    >>> from timely.differential.tables.kinds import decimal
    >>> value_of(Column("price", decimal(2)), "1.50")
    Decimal('1.50')
    """
    try:
        return _converted(given, column.kind)
    except (SqlError, ValueError, OverflowError) as error:  # the last two are of numbers with too many digits
        raise SchemaError(f"column {column.name!r} is {column.kind.value}: {error}") from None


def _converted(given: Any, kind: Kind) -> Any:
    if isinstance(given, list) and kind.element is not None:
        return tuple(_converted(each, kind.element) for each in given)
    if isinstance(given, dict) and kind.fields:
        parts = {name: _converted(given.get(name), part) for name, part in kind.fields}
        return {**given, **parts}  # what is no field is refused with the row
    if given in ("inf", "-inf") and kind is Kind.DOUBLE:
        return float(given)
    if isinstance(given, Decimal) and kind is Kind.DOUBLE:
        if math.isinf(float(given)):
            raise SqlError(f"{given} does not fit a double")
        return float(given)
    if isinstance(given, int) and not isinstance(given, bool) and kind.base in (Kind.DOUBLE, Kind.DECIMAL):
        return float(given) if kind is Kind.DOUBLE else Decimal(given)
    if isinstance(given, str) and kind is not Kind.TEXT:
        convert = conversion(Kind.TEXT, kind.base)  # all digits of a decimal: the table refuses those that it does not have
        if convert is None:
            raise SqlError(f"{brief(given)} is a text")
        if kind is Kind.INTEGER and not re.fullmatch("[+-]?[0-9]+", given):  # a cast would round it
            raise SqlError(f"{brief(given)} is not a whole number")
        return convert(given)
    return given


def rows_of(columns: Sequence[Column], given: Any, what: str) -> list[Row]:
    """Return a list of objects of JSON as rows; ``SchemaError`` for other columns. What is missing is ``NULL``."""
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise SchemaError(f"{what!r} is a list of objects, one a row")
    names = {column.name for column in columns}
    for row in given:
        others = row.keys() - names
        if others:
            raise SchemaError(f"{what!r} has column {sorted(others)[0]!r}: the table has {', '.join(sorted(names))}")
    return [tuple(value_of(column, row.get(column.name)) for column in columns) for row in given]


def conditions_of(columns: Sequence[Column], parameters: Iterable[tuple[str, str]]) -> list[RowCondition]:
    """Return the conditions of a URL: ``column=value``, ``column.gte=value`` and so on, and ``column.null=true``.

    >>> conditions_of([Column("n", Kind.INTEGER)], [("n.gte", "5")])
    [RowCondition(place=0, comparison='gte', value=5)]
    >>> conditions_of([Column("a.b", Kind.INTEGER)], [("a.B", "5"), ("a.b.lt", "7")])
    [RowCondition(place=0, comparison='eq', value=5), RowCondition(place=0, comparison='lt', value=7)]
    """
    places = {column.name: place for place, column in enumerate(columns)}
    found = []
    for parameter, text in parameters:
        name, comparison = parameter, ""
        if lower_case(parameter) not in places:  # names may have points too
            name, _, comparison = parameter.rpartition(".")
            name, comparison = (name, comparison) if name else (parameter, "")
        place = places.get(lower_case(name))
        if place is None:
            raise ConfigurationError(f"there is no column {name!r}: there are {', '.join(places)}")
        if comparison == "null" and text == "true":
            found.append(RowCondition(place, "eq", None))
        elif (comparison or "eq") in COMPARISONS:
            found.append(RowCondition(place, comparison or "eq", value_of(columns[place], text)))
        else:
            known = ", ".join(f"{name}.{each}" for each in COMPARISONS)
            raise ConfigurationError(f"{parameter}={text}: write {name}=value, one of {known}, or {name}.null=true")
    return found
