"""Kinds of values: which Python values a column of a table has, which kinds go together, and how one becomes another.

Every value of a column has the one Python type of its kind, so that equal values are equal records.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import attrs
import pyarrow as pa

from timely.errors import SchemaError, SqlError, brief

Value = Any
Conversion = Callable[[Any], Any]


class Kind(enum.Enum):
    """What the values of a column are; ``NULL`` is the kind of the literal alone."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    TEXT = "VARCHAR"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"


NUMBERS: Final = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


@attrs.frozen
class Column:
    """A column: its name, the kind of its values, and whether some may be ``None``."""

    name: str
    kind: Kind
    nullable: bool = True


def common(one: Kind, other: Kind) -> Kind | None:
    """Return the kind that both become where they meet, or ``None``.

    >>> common(Kind.INTEGER, Kind.DOUBLE), common(Kind.TEXT, Kind.DATE)
    (<Kind.DOUBLE: 'DOUBLE'>, None)
    """
    if one is other or other is Kind.NULL:
        return one
    if one is Kind.NULL:
        return other
    if one in NUMBERS and other in NUMBERS:
        return NUMBERS[max(NUMBERS.index(one), NUMBERS.index(other))]
    if {one, other} == {Kind.DATE, Kind.TIMESTAMP}:
        return Kind.TIMESTAMP
    return None


def sortable(value: Value) -> Any:
    """Return what a value is sorted by where it may be ``None``, or be a tuple that has one: ``None`` comes last.

    >>> sorted([(1, None), (1, 2), (0, 3)], key=sortable)
    [(0, 3), (1, 2), (1, None)]
    """
    if value is None:
        return (1,)
    return (0, tuple(map(sortable, value))) if type(value) is tuple else (0, value)


# -- conversion ----------------------------------------------------------------------------------------------------


def _same(value: Value) -> Value:
    return value


def finite(value: float) -> float:
    """Return a float that is a number; ``SqlError`` for NaN, which is equal to no record."""
    if value != value:
        raise SqlError("the result is NaN, which a table cannot hold")
    return value


def _integer_of_text(value: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        raise SqlError(f"{brief(value)} is not a whole number")
    return int(value)


def _number_of_text(make: Callable[[str], Any], value: str) -> Any:
    if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", value):
        raise SqlError(f"{brief(value)} is not a number")
    return make(value.strip())


def _date_of_text(value: str) -> datetime.date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise SqlError(f"{brief(value)} is not a date like 2020-01-31")
    found: datetime.date = _checked(datetime.date.fromisoformat, value)
    return found


def _timestamp_of_text(value: str) -> datetime.datetime:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?", value):
        raise SqlError(f"{brief(value)} is not a timestamp like 2020-01-31 12:30:00")
    found: datetime.datetime = _checked(datetime.datetime.fromisoformat, value)
    return found


def _checked(make: Callable[[str], Any], value: str) -> Any:
    try:
        return make(value)
    except ValueError as error:
        raise SqlError(f"{brief(value)}: {error}") from None


def _integer_of_double(value: float) -> int:
    try:
        return round(value)
    except (OverflowError, ValueError):
        raise SqlError(f"{value} is not a whole number") from None


def _integer_of_decimal(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))


def _text_of_timestamp(value: datetime.datetime) -> str:
    text = str(value)
    return text.rstrip("0") if value.microsecond else text


def start_of_day(value: datetime.date) -> datetime.datetime:
    """Return the timestamp at which a date begins."""
    return datetime.datetime(value.year, value.month, value.day)


_CONVERSIONS: Final[dict[tuple[Kind, Kind], Conversion]] = {
    (Kind.INTEGER, Kind.DECIMAL): Decimal,
    (Kind.INTEGER, Kind.DOUBLE): float,
    (Kind.INTEGER, Kind.TEXT): str,
    (Kind.INTEGER, Kind.BOOLEAN): bool,
    (Kind.BOOLEAN, Kind.INTEGER): int,
    (Kind.BOOLEAN, Kind.DOUBLE): float,
    (Kind.BOOLEAN, Kind.TEXT): lambda value: "true" if value else "false",
    (Kind.DECIMAL, Kind.DOUBLE): float,
    (Kind.DECIMAL, Kind.INTEGER): _integer_of_decimal,
    (Kind.DOUBLE, Kind.INTEGER): _integer_of_double,
    (Kind.TEXT, Kind.INTEGER): _integer_of_text,
    (Kind.TEXT, Kind.DOUBLE): lambda value: _number_of_text(float, value),
    (Kind.TEXT, Kind.DECIMAL): lambda value: _number_of_text(Decimal, value),
    (Kind.TEXT, Kind.DATE): _date_of_text,
    (Kind.TEXT, Kind.TIMESTAMP): _timestamp_of_text,
    (Kind.DATE, Kind.TEXT): str,
    (Kind.DATE, Kind.TIMESTAMP): start_of_day,
    (Kind.TIMESTAMP, Kind.DATE): lambda value: value.date(),
    (Kind.TIMESTAMP, Kind.TEXT): _text_of_timestamp,
}


def conversion(source: Kind, target: Kind) -> Conversion | None:
    """Return the function that makes a value of ``source`` one of ``target``, or ``None`` where that is not translated.

    >>> conversion(Kind.TEXT, Kind.INTEGER)(" 12"), conversion(Kind.DATE, Kind.BOOLEAN)
    (12, None)
    """
    if source is target or source is Kind.NULL:
        return _same
    return _CONVERSIONS.get((source, target))


def rounded(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Return what rounds to ``DECIMAL(precision, scale)``; ``SqlError`` for what does not fit.

    >>> rounded(4, 1)(Decimal("2.25"))
    Decimal('2.3')
    """
    unit, limit = Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)

    def convert(value: Decimal) -> Decimal:
        with localcontext(prec=100):
            found = value.quantize(unit, ROUND_HALF_UP)
        if abs(found) >= limit:
            raise SqlError(f"{value} does not fit DECIMAL({precision}, {scale})")
        return found

    return convert


def within(bits: int, signed: bool) -> Callable[[int], int]:
    """Return what checks that a whole number has at most ``bits`` bits."""
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: int) -> int:
        if not least <= value <= most:
            raise SqlError(f"{value} does not fit a whole number of {bits} bits")
        return value

    return convert


# -- Arrow ---------------------------------------------------------------------------------------------------------


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema; ``SchemaError`` for types and names that tables do not have.

    >>> columns_of(pa.schema([pa.field("n", pa.int32(), nullable=False)]))
    (Column(name='n', kind=<Kind.INTEGER: 'INTEGER'>, nullable=False),)
    """
    columns = tuple(Column(field.name.lower(), _kind_of(field), field.nullable) for field in schema)
    for column in columns:
        if sum(other.name == column.name for other in columns) > 1:
            raise SchemaError(f"the schema has column {column.name!r} twice; upper and lower case are the same")
    return columns


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that a type becomes in a table, without loss: dictionaries their values, nanoseconds microseconds.

    >>> plain_type(pa.dictionary(pa.int8(), pa.string())), plain_type(pa.timestamp("ns")), plain_type(pa.float32())
    (DataType(string), TimestampType(timestamp[us]), DataType(double))
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_date64(kind):
        return pa.date32()
    return kind


def _kind_of(field: pa.Field) -> Kind:
    kind = plain_type(field.type)
    if pa.types.is_boolean(kind):
        return Kind.BOOLEAN
    if pa.types.is_integer(kind):
        return Kind.INTEGER
    if pa.types.is_float64(kind):
        return Kind.DOUBLE
    if pa.types.is_decimal(kind):
        return Kind.DECIMAL
    if pa.types.is_string(kind):
        return Kind.TEXT
    if pa.types.is_date32(kind):
        return Kind.DATE
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return Kind.TIMESTAMP
    raise SchemaError(
        f"column {field.name!r} is {kind}: tables have bool, whole numbers, float64, decimal, string, date32, and timestamps"
        " of microseconds without a zone"
    )


_TYPES: Final[dict[Kind, Any]] = {
    Kind.BOOLEAN: bool,
    Kind.INTEGER: int,
    Kind.DECIMAL: Decimal,
    Kind.DOUBLE: float,
    Kind.TEXT: str,
    Kind.DATE: datetime.date,
    Kind.TIMESTAMP: datetime.datetime,
}

_ARROW: Final[dict[Kind, Any]] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.DECIMAL: pa.decimal128(38, 9),
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of columns: the widest type of each kind."""
    return pa.schema([pa.field(column.name, _ARROW[column.kind], nullable=column.nullable) for column in columns])


def row_check(columns: tuple[Column, ...], schema: pa.Schema) -> Callable[[Any], tuple[Any, ...]]:
    """Return what checks that a record is a row of a schema, and returns it with the types of its kinds.

    >>> check = row_check(columns_of(schema := pa.schema([("price", pa.float64())])), schema)
    >>> check((3,))
    (3.0,)
    """
    checks = [_value_check(column, field) for column, field in zip(columns, schema)]
    width = len(columns)

    def check(record: Any) -> tuple[Any, ...]:
        if not isinstance(record, tuple) or len(record) != width:
            raise SchemaError(f"a row of this table is a tuple of {width} values, not {brief(record)}")
        return tuple(convert(value) for convert, value in zip(checks, record))

    return check


def _value_check(column: Column, field: pa.Field) -> Conversion:
    expected = _TYPES[column.kind]
    narrow: Conversion = _same
    if column.kind is Kind.INTEGER:
        narrow = within(field.type.bit_width, pa.types.is_signed_integer(field.type))
    elif column.kind is Kind.DECIMAL:
        narrow = _exactly(field.type.precision, field.type.scale)
    elif column.kind is Kind.DOUBLE:
        narrow = finite
    elif column.kind is Kind.TIMESTAMP:
        narrow = _no_zone

    def convert(value: Any) -> Any:
        if value is None and column.nullable:
            return None
        if type(value) is not expected:
            if column.kind is Kind.DOUBLE and type(value) is int:
                return float(value)
            raise SchemaError(f"column {column.name!r} is {column.kind.value}, and {brief(value)} came")
        try:
            return narrow(value)
        except SqlError as error:
            raise SchemaError(f"column {column.name!r}: {error}") from None

    return convert


def _exactly(precision: int, scale: int) -> Conversion:
    convert = rounded(precision, scale)

    def check(value: Decimal) -> Decimal:
        if not value.is_finite() or convert(value) != value:
            raise SqlError(f"{value} does not fit DECIMAL({precision}, {scale})")
        return value

    return check


def _no_zone(value: datetime.datetime) -> datetime.datetime:
    if value.tzinfo is not None:
        raise SqlError(f"{value} has a time zone")
    return value
