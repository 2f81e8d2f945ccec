"""Kinds of values: which Python values a column of a table has, which kinds go together, and how one becomes another.

Every value of a column has the one Python type of its kind, so that equal values are equal records.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import math
import re
import string
import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, ClassVar, Final

import attrs
import pyarrow as pa

from timely.differential.tables.values import json_texts, parsing
from timely.differential.tables.values.parsing import to_utc
from timely.errors import SchemaError, SqlError, brief
from timely.operators.keyed.numbers import NAN

Value = Any
Conversion = Callable[[Any], Any]


@attrs.frozen(eq=False, repr=False)
class Kind:
    """What the values of a column are. There is one object for each kind, so kinds are compared with ``is``.

    ``NULL`` is the kind of the literal alone. Lists have an ``element``, structs have ``fields``: their values are tuples.
    Maps have an ``entry``, a struct of a key and a value: they are tuples of entries.
    Decimals have a ``scale``, the number of digits behind the point, and at most 38 digits.
    """

    value: str
    element: Kind | None = None
    fields: tuple[tuple[str, Kind], ...] = ()
    scale: int | None = None
    entry: Kind | None = None

    NULL: ClassVar[Kind]
    BOOLEAN: ClassVar[Kind]
    INTEGER: ClassVar[Kind]
    DECIMAL: ClassVar[Kind]
    REAL: ClassVar[Kind]
    DOUBLE: ClassVar[Kind]
    TEXT: ClassVar[Kind]
    JSON: ClassVar[Kind]
    UUID: ClassVar[Kind]
    BLOB: ClassVar[Kind]
    DATE: ClassVar[Kind]
    TIME: ClassVar[Kind]
    TIMESTAMP: ClassVar[Kind]
    INSTANT: ClassVar[Kind]
    INTERVAL: ClassVar[Kind]
    MONTHS: ClassVar[Kind]

    @property
    def nested(self) -> bool:
        """Whether its values are made of others."""
        return self.element is not None or self.entry is not None or bool(self.fields)

    @property
    def within(self) -> list[Kind]:
        """The kind, and those of what its values are made of."""
        inner = (self.element, self.entry, *(kind for _, kind in self.fields))
        return [self, *(part for each in inner if each is not None for part in each.within)]

    @property
    def base(self) -> Kind:
        """The kind, with ``DECIMAL`` for decimals of any scale."""
        return self if self.scale is None else Kind.DECIMAL

    def __repr__(self) -> str:
        return self.value

    def __reduce__(self) -> Any:
        return _kind, (self.value, self.element, self.fields, self.scale, self.entry)


_KINDS: Final[dict[Any, Kind]] = {}


def _kind(
    value: str,
    element: Kind | None = None,
    fields: tuple[tuple[str, Kind], ...] = (),
    scale: int | None = None,
    entry: Kind | None = None,
) -> Kind:
    key = value, element, fields, scale, entry
    kind = _KINDS.get(key)
    return _KINDS.setdefault(key, Kind(*key)) if kind is None else kind


Kind.NULL = _kind("NULL")
Kind.BOOLEAN = _kind("BOOLEAN")
Kind.INTEGER = _kind("BIGINT")
Kind.DECIMAL = _kind("DECIMAL")
Kind.REAL = _kind("FLOAT")  # doubles that have 32 bits
Kind.DOUBLE = _kind("DOUBLE")
Kind.TEXT = _kind("VARCHAR")
Kind.JSON = _kind("JSON")  # a text, which is compared as it is written
Kind.UUID = _kind("UUID")  # the text of one, in lower case
Kind.BLOB = _kind("BLOB")
Kind.DATE = _kind("DATE")
Kind.TIME = _kind("TIME")
Kind.TIMESTAMP = _kind("TIMESTAMP")
Kind.INSTANT = _kind("TIMESTAMPTZ")
Kind.INTERVAL = _kind("INTERVAL")
Kind.MONTHS = _kind("INTERVAL of months")  # of no column: a pair of months and a duration, which is added to a moment


def decimal(scale: int) -> Kind:
    """Return the kind of decimals of 38 digits, some of them behind the point."""
    return _kind("DECIMAL", None, (), scale)


def list_of(element: Kind) -> Kind:
    """Return the kind of lists; their values are tuples."""
    return _kind(f"{element.value}[]", element)


def struct_of(fields: tuple[tuple[str, Kind], ...]) -> Kind:
    """Return the kind of structs with named fields; their values are tuples of the values of the fields."""
    return _kind(f"STRUCT({', '.join(f'{spelling(name)} {kind.value}'.strip() for name, kind in fields)})", None, fields)


def map_of(key: Kind, value: Kind) -> Kind:
    """Return the kind of maps."""
    return _kind(f"MAP({key.value}, {value.value})", entry=struct_of((("key", key), ("value", value))))


NUMBERS: Final = (Kind.INTEGER, Kind.DECIMAL, Kind.REAL, Kind.DOUBLE)

DOUBLES: Final = (Kind.REAL, Kind.DOUBLE)
"""Kinds whose values are floats."""

MOMENTS: Final = (Kind.DATE, Kind.TIMESTAMP, Kind.INSTANT)
"""Kinds that become one another where they meet, the earlier ones the later ones."""


TEXTS: Final = (Kind.TEXT, Kind.JSON)
"""Kinds of texts: one that is beside JSON is read as JSON."""


@attrs.frozen
class Column:
    """A column: its name, the kind of its values, and whether some may be ``None``."""

    name: str
    kind: Kind
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.kind.value}{'' if self.nullable else ' not null'}"


_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class _LowerCase(str):
    """A name in lower case that was spelled in another way."""

    spelling: str


def lower_case(name: str) -> str:
    """Return a name of a column or table as it is compared, which DuckDB does without regard to the case of ASCII letters."""
    lower = name.translate(_LOWER)
    if lower == name:
        return name
    compared = _LowerCase(lower)
    compared.spelling = name
    return compared


def spelling(name: str) -> str:
    """Return how a name was spelled before it became lower case."""
    return name.spelling if isinstance(name, _LowerCase) else name


def common(one: Kind, other: Kind) -> Kind | None:
    """Return the kind that both become where they meet, or ``None``; fields have the names of ``other``."""
    if one is other or other is Kind.NULL:
        return one
    if one is Kind.NULL:
        return other
    for kinds in (NUMBERS, MOMENTS, TEXTS):
        if one.base in kinds and other.base in kinds:
            wider = kinds[max(kinds.index(one.base), kinds.index(other.base))]
            return decimal(max(one.scale or 0, other.scale or 0)) if wider is Kind.DECIMAL else wider
    if one.element is not None and other.element is not None:
        element = common(one.element, other.element)
        return None if element is None else list_of(element)
    if one.entry is not None and other.entry is not None:
        entry = common(one.entry, other.entry)
        return None if entry is None else map_of(*(kind for _, kind in entry.fields))
    if one.fields and [name for name, _ in one.fields] == [name for name, _ in other.fields]:
        parts = [(name, common(more, kind)) for (_, more), (name, kind) in zip(one.fields, other.fields)]
        fields = tuple((name, kind) for name, kind in parts if kind is not None)
        return struct_of(fields) if len(fields) == len(parts) else None
    return None


def is_akin(own: Kind, kind: Kind) -> bool:
    """Return whether Arrow data of one kind are data of another where no value changes."""
    if own.nested:
        inner = zip(own.within[1:], kind.within[1:])
        return len(own.within) == len(kind.within) and all(is_akin(*pair) for pair in inner)
    return own is kind or {own.base, kind.base} <= {*NUMBERS} or {own, kind} == {Kind.DATE, Kind.TIMESTAMP}


def sortable(value: Value) -> Any:
    """Return what a value is sorted by where it may be ``None``, or be a tuple that has one: ``None`` comes last."""
    if value is None:
        return (1,)
    return (0, tuple(map(sortable, value))) if type(value) is tuple else (0, value)


# -- conversion ----------------------------------------------------------------------------------------------------


def _same(value: Value) -> Value:
    return value


def canonical_float(value: float) -> float:
    """Return a float as tables have it: there is one zero, and one NaN, which equals itself and is the greatest."""
    one_zero = value + 0.0
    return one_zero if one_zero == one_zero else NAN


def _integer_of_double(value: float) -> int:
    try:
        return round(value)
    except (OverflowError, ValueError):
        raise SqlError(f"{value} is not a whole number") from None


def _without_zeros(text: str, microsecond: int) -> str:
    return text.rstrip("0") if microsecond else text


def _text_of_timestamp(value: datetime.datetime) -> str:
    return _without_zeros(str(value), value.microsecond)


def _text_of_blob(value: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\"'\\" else f"\\x{byte:02X}" for byte in value)


def single(value: float) -> float:
    """Return the float of 32 bits that is nearest."""
    return canonical_float(ctypes.c_float(value).value)


def text_of_single(value: float) -> str:
    """Return a float of 32 bits as DuckDB writes it: the fewest digits that tell it from others, where they are certain.

    Where two texts of these are equally near, or one is right between two floats, it writes the digits of the double.
    """
    fraction, exponent = math.frexp(abs(value))
    if not fraction or not math.isfinite(value):
        return text_of_float(value)
    above, exact = Fraction(2) ** (max(exponent - 24, -149) - 1), Fraction(abs(value))
    below = above / 2 if fraction == 0.5 and exponent > -125 else above
    for digits in range(9):
        text = f"{abs(value):.{digits}e}"
        unit = Fraction(10) ** (int(text.partition("e")[2]) - digits)
        for shorter in (Fraction(text), Fraction(text) + unit):
            away = shorter - exact
            if -below <= away <= above:
                certain = -below < away < above and 2 * abs(away) != unit
                return text_of_float(math.copysign(shorter, value) if certain else value)
    return text_of_float(value)


def single_of(value: int | Decimal) -> float:
    """Return the float of 32 bits that is nearest to a number, which is rounded once."""
    exact = Fraction(value)
    double = float(exact)
    if Fraction(double) != exact and struct.pack("<d", double)[0] % 2 == 0:  # odd, it is on the side of the number
        double = math.nextafter(double, math.inf if exact > double else -math.inf)
    return single(double)


def _single_of_double(value: float) -> float:
    number = single_of(value) if isinstance(value, int) else single(value)
    if math.isinf(number) and math.isfinite(value):
        raise SqlError(f"{value} does not fit FLOAT")
    return number


def _half_of_double(value: float) -> float:
    try:
        number: float = struct.unpack("<e", struct.pack("<e", value))[0]
    except OverflowError:
        raise SqlError(f"{value} does not fit a float of 16 bits") from None
    return canonical_float(number)


def _single_of_text(text: str) -> float:
    double = parsing.float_of(text)
    return single_of(parsing.decimal_of(text)) if 1e-50 < abs(double) < 1e50 else single(double)


def text_of_float(value: float) -> str:
    """Return a float as text: the shortest that is the same float."""
    return repr(value + 0.0)


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
    (Kind.BOOLEAN, Kind.REAL): float,
    (Kind.INTEGER, Kind.REAL): single_of,
    (Kind.DECIMAL, Kind.REAL): lambda value: single(float(value)),
    (Kind.DOUBLE, Kind.REAL): _single_of_double,
    (Kind.TEXT, Kind.REAL): _single_of_text,
    (Kind.REAL, Kind.TEXT): text_of_single,
    (Kind.BOOLEAN, Kind.TEXT): lambda value: "true" if value else "false",
    (Kind.DECIMAL, Kind.DOUBLE): lambda value: float(value) + 0.0,  # there is one zero
    (Kind.DECIMAL, Kind.INTEGER): lambda value: int(value.to_integral_value(ROUND_HALF_UP)),
    (Kind.DOUBLE, Kind.INTEGER): _integer_of_double,
    (Kind.TEXT, Kind.INTEGER): parsing.integer_of,
    (Kind.TEXT, Kind.DOUBLE): parsing.float_of,
    (Kind.TEXT, Kind.DECIMAL): parsing.decimal_of,
    (Kind.TEXT, Kind.DATE): parsing.date_of,
    (Kind.TEXT, Kind.TIMESTAMP): parsing.timestamp_of,
    (Kind.DATE, Kind.TEXT): str,
    (Kind.DATE, Kind.TIMESTAMP): start_of_day,
    (Kind.TIMESTAMP, Kind.DATE): lambda value: value.date(),
    (Kind.TIMESTAMP, Kind.TEXT): _text_of_timestamp,
    (Kind.TEXT, Kind.BOOLEAN): parsing.boolean_of,
    (Kind.DOUBLE, Kind.TEXT): text_of_float,
    (Kind.DOUBLE, Kind.BOOLEAN): bool,
    (Kind.DECIMAL, Kind.BOOLEAN): bool,
    (Kind.BOOLEAN, Kind.DECIMAL): Decimal,
    (Kind.TEXT, Kind.TIME): parsing.time_of,
    (Kind.TIME, Kind.TEXT): lambda value: _without_zeros(str(value), value.microsecond),
    (Kind.TIMESTAMP, Kind.TIME): lambda value: value.time(),
    (Kind.TEXT, Kind.BLOB): parsing.blob_of,
    (Kind.TEXT, Kind.UUID): parsing.uuid_of,
    (Kind.UUID, Kind.TEXT): _same,
    (Kind.UUID, Kind.BLOB): lambda value: bytes.fromhex(value.replace("-", "")),
    (Kind.BLOB, Kind.TEXT): _text_of_blob,
    (Kind.TEXT, Kind.INSTANT): parsing.instant_of,
    (Kind.INSTANT, Kind.TEXT): lambda value: _text_of_timestamp(value.replace(tzinfo=None)) + "+00",
    (Kind.INSTANT, Kind.TIMESTAMP): lambda value: value.replace(tzinfo=None),
    (Kind.INSTANT, Kind.DATE): lambda value: value.date(),
    (Kind.TIMESTAMP, Kind.INSTANT): lambda value: value.replace(tzinfo=datetime.UTC),
    (Kind.DATE, Kind.INSTANT): lambda value: start_of_day(value).replace(tzinfo=datetime.UTC),
}


def conversion(source: Kind, target: Kind) -> Conversion | None:
    """Return the function that makes a value of ``source`` one of ``target``, or ``None`` where that is not translated."""
    if source is target or source is Kind.NULL:
        return _same
    if source is Kind.JSON:
        return _same if target is Kind.TEXT else None if (made := _of_json(target)) is None else then(json_texts.read, made)
    if target is Kind.JSON:
        return json_texts.checked if source is Kind.TEXT else None if source.element is Kind.JSON else json_of(source)
    if source.element is not None and target.element is not None:
        convert = conversion(source.element, target.element)
        return None if convert is None else each(convert)
    if source.entry is not None and target.entry is not None:
        convert = conversion(source.entry, target.entry)
        return None if convert is None else then(each(convert), checked_map)
    if source.fields and [name for name, _ in source.fields] == [name for name, _ in target.fields]:
        converts = [conversion(kind, other) for (_, kind), (_, other) in zip(source.fields, target.fields)]
        return None if None in converts else by_field(converts)
    plain = _CONVERSIONS.get((source.base, target.base))
    if source is Kind.REAL and plain is None:
        return conversion(Kind.DOUBLE, target)
    if source.scale is not None and target is Kind.TEXT:
        scale = source.scale
        return lambda value: f"{value or abs(value):.{scale}f}"  # no minus before zero
    if target.scale is None:
        return plain
    digits = 38 if source is Kind.TEXT else source.scale or 0
    narrow = (fitting if digits <= target.scale else rounded)(38, target.scale)
    if source.scale is not None:
        return narrow
    return None if plain is None else then(plain, narrow)


def _of_json(target: Kind) -> Conversion | None:
    """Return what makes a value of what JSON is read as; ``null`` is ``None``."""
    if target.entry is not None:
        return None
    element = None if target.element is None else _of_json(target.element)
    parts = {spelling(name): _of_json(kind) for name, kind in target.fields}
    ways = {kind: conversion(kind, target) for kind in (Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT)}
    if (
        None in parts.values()
        or (target.element is not None and element is None)
        or (not target.nested and ways[Kind.TEXT] is None)
    ):
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if element is not None and isinstance(value, list):
            return tuple(map(element, value))
        if parts and isinstance(value, tuple) and sorted(name for name, _ in value) == sorted(parts):
            read = dict(value)
            return tuple(part(read[name]) for name, part in parts.items() if part is not None)
        if target is Kind.JSON:
            return json_texts.written(value)
        no_number = type(value) is str and target in _NO_NUMBER and _NO_NUMBER[target].search(value)
        if target.nested or no_number or (isinstance(value, list | tuple) and target is not Kind.TEXT):
            raise SqlError(f"{brief(json_texts.written(value))} is no {target.value}")
        source = _KINDS_OF_JSON.get(type(value), Kind.TEXT) if target.base in (*NUMBERS, Kind.BOOLEAN) else Kind.TEXT
        if target.scale is not None and source is Kind.DOUBLE:
            source = Kind.TEXT
        way: Any = ways[source]
        return way(json_texts.text_of(value, exact=target.scale is not None) if source is Kind.TEXT else value)

    return convert


_NO_NUMBER: Final = {Kind.INTEGER: re.compile(r"[.]|^\s*[+-]?[0-9_]+[eE]"), Kind.BOOLEAN: re.compile("[01]")}
"""Texts in JSON that become none of these, as texts elsewhere do."""

_KINDS_OF_JSON: Final = {bool: Kind.BOOLEAN, int: Kind.INTEGER, json_texts.Real: Kind.DOUBLE}


def json_of(kind: Kind) -> Conversion | None:
    """Return what makes a value JSON, ``None`` too; ``None`` where that is not translated."""
    make: Conversion | None
    if kind.element is not None:
        element = json_of(kind.element)
        make = None if element is None else lambda values: f"[{parsing.joined(',', map(element, values))}]"
    elif kind.fields:
        fields = [(json_texts.written(spelling(name)), json_of(part)) for name, part in kind.fields]

        def make(values: Any) -> str:
            parts = ((name, part(value)) for (name, part), value in zip(fields, values) if part is not None)
            if kind.fields[0][0]:
                return "{" + parsing.joined(",", (f"{name}:{text}" for name, text in parts)) + "}"
            return f"[{parsing.joined(',', (text for _, text in parts))}]"

        make = None if any(part is None for _, part in fields) else make
    elif kind.entry is not None or kind.scale is not None:  # how decimals are written depends on the digits of their type
        return None
    elif kind in DOUBLES:
        make = lambda value: json_texts.text_of_double(float(value))  # noqa: E731
    elif kind in (Kind.BOOLEAN, Kind.INTEGER, Kind.NULL):
        make = json_texts.written
    elif kind is Kind.JSON:
        make = then(json_texts.read, json_texts.written)
    else:
        convert = conversion(kind, Kind.TEXT)
        make = None if convert is None else then(then(convert, json_texts.written), lambda text: parsing.joined("", [text]))
    return None if make is None else lambda value: "null" if value is None else make(value)


def then(convert: Conversion, narrow: Conversion) -> Conversion:
    """Return what does one thing after the other."""
    return lambda value: narrow(convert(value))


def each(convert: Conversion) -> Conversion:
    """Return what converts the elements of a list that are not ``None``."""
    return lambda values: tuple(None if value is None else convert(value) for value in values)


def checked_map(entries: Sequence[Any]) -> tuple[Any, ...]:
    """Return a map of some entries; ``SqlError`` for a key that is twice in it, or ``None``."""
    keys = [None if entry is None else entry[0] for entry in entries]
    if None in keys or len(set(keys)) < len(keys):
        raise SqlError("the keys of a map are different, and not NULL")
    return tuple(entries)


def by_field(converts: Sequence[Conversion | None]) -> Conversion:
    """Return what converts the fields of a struct that are not ``None``, each in its way, if it has one."""
    return lambda values: tuple(
        value if value is None or convert is None else convert(value) for convert, value in zip(converts, values)
    )


def _does_not_fit(value: Decimal, precision: int, scale: int) -> SqlError:
    with localcontext(prec=100):  # without the zeros at the end, of which columns and rows have different numbers
        return SqlError(f"{value.normalize()} does not fit DECIMAL({precision}, {scale})")


def fitting(precision: int, scale: int) -> Conversion:
    """Return what returns a decimal that is below the limit of ``DECIMAL(precision, scale)``; ``SqlError`` for others."""
    limit = Decimal(1).scaleb(precision - scale)
    low = -limit

    def fit(value: Decimal) -> Decimal:
        if low < value < limit:
            return value
        raise _does_not_fit(value, precision, scale)

    return fit


def rounded(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Return what rounds to ``DECIMAL(precision, scale)``; ``SqlError`` for what does not fit."""
    unit, limit = Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)

    def convert(value: Decimal) -> Decimal:
        if not value.is_finite() or not -limit < value < limit:
            raise _does_not_fit(value, precision, scale)
        with localcontext(prec=100):
            result = value.quantize(unit, ROUND_HALF_UP)
        if not -limit < result < limit:
            raise _does_not_fit(value, precision, scale)
        return result

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
    """Return the columns of an Arrow schema; ``SchemaError`` for types and names that tables do not have."""
    columns = tuple(Column(lower_case(field.name), kind_of(field), field.nullable) for field in schema)
    for column in columns:
        if sum(other.name == column.name for other in columns) > 1:
            raise SchemaError(f"the schema has column {column.name!r} twice; upper and lower case are the same")
    return columns


def plain_type(kind: pa.DataType, *, narrow: bool = False) -> pa.DataType:
    """Return the Arrow type that a type becomes in a table, without loss: dictionaries their values, nanoseconds microseconds.

    A ``narrow`` one has no more values than ``kind``: floats have its bits, moments its unit, and binary and lists its length.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type, narrow=narrow)
    if narrow and (types.is_fixed_size_binary(kind) or getattr(kind, "unit", None) in ("s", "ms")):
        return pa.date32() if types.is_date(kind) else kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_map(kind):
        return _map_type(plain_type(kind.key_type, narrow=narrow), plain_type(kind.item_type, narrow=narrow))
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type, narrow=narrow)) for field in kind])
    if _is_list(kind):
        element = kind.value_field.with_type(plain_type(kind.value_type, narrow=narrow))
        return pa.list_(element, kind.list_size if narrow and types.is_fixed_size_list(kind) else -1)
    if narrow and types.is_floating(kind):
        return kind
    for tests, plain in _PLAIN:
        if any(test(kind) for test in tests):
            return plain
    return kind


def _map_type(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string() if pa.types.is_null(key) else key, item)  # a key has a type, also where all maps are empty


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(test(kind) for test in tests)


_PLAIN: Final[tuple[tuple[tuple[Callable[[Any], bool], ...], Any], ...]] = (
    ((pa.types.is_floating,), pa.float64()),
    ((pa.types.is_string_view, pa.types.is_large_string), pa.string()),
    ((pa.types.is_binary_view, pa.types.is_large_binary, pa.types.is_fixed_size_binary), pa.binary()),
    ((pa.types.is_date64,), pa.date32()),
    ((pa.types.is_time,), pa.time64("us")),
    ((pa.types.is_duration,), pa.duration("us")),
)


def kind_of(field: pa.Field) -> Kind:
    """Return the kind of an Arrow field; ``SchemaError`` for types that tables do not have."""
    kind = plain_type(field.type)
    if pa.types.is_floating(kind) and plain_type(field.type, narrow=True) != kind:
        return Kind.REAL
    if pa.types.is_decimal(kind):
        return decimal(max(kind.scale, 0))
    if pa.types.is_timestamp(kind):
        return Kind.TIMESTAMP if kind.tz is None else Kind.INSTANT
    for plain, (_, _, test) in _REPRESENTED.items():
        if plain is not Kind.NULL and test(kind):
            return plain
    kind = plain_type(field.type, narrow=True)
    if _is_list(kind):
        return list_of(kind_of(kind.value_field.with_name(f"{field.name}[]")))
    if pa.types.is_map(kind):
        return map_of(*(kind_of(part.with_name(f"{field.name}{{}}")) for part in (kind.key_field, kind.item_field)))
    if pa.types.is_struct(kind) and kind.num_fields:
        names = [lower_case(part.name) for part in kind]
        if len(set(names)) < len(names):
            raise SchemaError(f"column {field.name!r} has a field twice; upper and lower case are the same")
        return struct_of(tuple((name, kind_of(part.with_name(f"{field.name}.{name}"))) for name, part in zip(names, kind)))
    raise SchemaError(
        f"column {field.name!r} is {kind}: tables have bool, whole numbers, floats, decimals, strings, binary, dates, times,"
        " timestamps, durations, and lists, maps and structs of these; cast it, such as a UUID to string"
    )


_REPRESENTED: Final[dict[Kind, tuple[Any, Any, Callable[[Any], bool]]]] = {
    Kind.NULL: (None, pa.null(), pa.types.is_null),
    Kind.BOOLEAN: (bool, pa.bool_(), pa.types.is_boolean),
    Kind.INTEGER: (int, pa.int64(), pa.types.is_integer),
    Kind.DECIMAL: (Decimal, None, pa.types.is_decimal),
    Kind.REAL: (float, pa.float32(), lambda kind: False),
    Kind.DOUBLE: (float, pa.float64(), pa.types.is_float64),
    Kind.TEXT: (str, pa.string(), pa.types.is_string),
    Kind.JSON: (str, pa.string(), lambda kind: False),
    Kind.UUID: (str, pa.string(), lambda kind: False),
    Kind.BLOB: (bytes, pa.binary(), pa.types.is_binary),
    Kind.DATE: (datetime.date, pa.date32(), pa.types.is_date32),
    Kind.TIME: (datetime.time, pa.time64("us"), pa.types.is_time64),
    Kind.TIMESTAMP: (datetime.datetime, pa.timestamp("us"), pa.types.is_timestamp),
    Kind.INSTANT: (datetime.datetime, pa.timestamp("us", "UTC"), pa.types.is_timestamp),
    Kind.INTERVAL: (datetime.timedelta, pa.duration("us"), pa.types.is_duration),
}
"""The type of a kind's values, the widest type of its columns, and what says whether a column is one."""


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of columns: the widest type of each kind."""
    return pa.schema([pa.field(column.name, _arrow_type(column.kind), nullable=column.nullable) for column in columns])


def _arrow_type(kind: Kind) -> pa.DataType:
    if kind.scale is not None:
        return pa.decimal128(38, kind.scale)
    if kind.element is not None:
        return pa.list_(_arrow_type(kind.element))
    if kind.entry is not None:
        return _map_type(*(_arrow_type(part) for _, part in kind.entry.fields))
    if kind.fields:
        return pa.struct([(name, _arrow_type(part)) for name, part in kind.fields])
    return _REPRESENTED[kind][1]


# -- checks --------------------------------------------------------------------------------------------------------


def row_check(columns: tuple[Column, ...], schema: pa.Schema) -> Callable[[Any], tuple[Any, ...]]:
    """Return what checks that a record is a row of a schema, and returns it with the types of its kinds."""
    checks = column_checks(columns, schema)
    width = len(columns)

    def check(record: Any) -> tuple[Any, ...]:
        if not isinstance(record, tuple) or len(record) != width:
            raise SchemaError(f"a row of this table is a tuple of {width} values, not {brief(record)}")
        return tuple(convert(value) for convert, value in zip(checks, record))

    return check


def column_checks(columns: tuple[Column, ...], schema: pa.Schema) -> list[Conversion]:
    """Return what checks a value of each column, and returns it with the type of its kind."""
    return [_column_check(column, field) for column, field in zip(columns, schema)]


def _column_check(column: Column, field: pa.Field) -> Conversion:
    check = _value_check(column.kind, plain_type(field.type, narrow=True))
    nullable = column.nullable

    def convert(value: Any) -> Any:
        if value is None and nullable:
            return None
        try:
            return check(value)
        except SqlError as error:
            raise SchemaError(f"column {column.name!r}: {error}") from None

    return convert


def _value_check(kind: Kind, type_: pa.DataType) -> Conversion:
    """Return what returns a value as one of ``kind``; ``SqlError`` for others."""
    if kind.element is not None:
        of_each = each(_value_check(kind.element, type_.value_type))
        if pa.types.is_fixed_size_list(type_):
            of_each = then(of_each, _only(lambda values: len(values) == type_.list_size, type_))
        return functools.partial(_checked_list, kind, of_each)
    if kind.entry is not None:
        of_entry = _value_check(kind.entry, pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
        of_list = functools.partial(_checked_list, kind, then(each(of_entry), checked_map))
        return lambda value: of_list(tuple(value.items()) if isinstance(value, dict) else value)
    if kind.fields:
        checks = [_value_check(part, type_[place].type) for place, (_, part) in enumerate(kind.fields)]
        return functools.partial(_checked_struct, kind, by_field(checks))
    expected = _REPRESENTED[kind.base][0]
    narrow: Conversion = _same
    if kind is Kind.INTEGER:
        narrow = within(type_.bit_width, pa.types.is_signed_integer(type_))
    elif kind.scale is not None:
        narrow = _exactly(type_.precision, type_.scale)
    elif pa.types.is_float16(type_):
        narrow = _half_of_double
    elif kind in _NARROW:
        narrow = _NARROW[kind]
    if step := {"s": 1_000_000, "ms": 1_000}.get(getattr(type_, "unit", "")):
        part = "microseconds" if kind is Kind.INTERVAL else "microsecond"
        narrow = then(narrow, _only(lambda value: getattr(value, part) % step == 0, type_))
    elif pa.types.is_fixed_size_binary(type_):
        narrow = _only(lambda value: len(value) == type_.byte_width, type_)
    float_of_int = kind in DOUBLES

    def check(value: Any) -> Any:
        if type(value) is expected:
            return narrow(value)
        if float_of_int and (type(value) is int or value is NAN):
            double = _double_of(value)
            return narrow(value if narrow is _single_of_double and type(value) is int else double)
        raise SqlError(f"it is {kind.value}, and {brief(value)} came")

    return check


def _checked_list(kind: Kind, check: Conversion, value: Any) -> Any:
    if not isinstance(value, tuple | list):
        raise SqlError(f"it is {kind.value}, a tuple, and {brief(value)} came")
    return check(value)


def _checked_struct(kind: Kind, check: Conversion, value: Any) -> Any:
    names = [name for name, _ in kind.fields]
    if isinstance(value, dict):
        parts = {lower_case(str(name)): part for name, part in value.items()}
        value = tuple(map(parts.get, names)) if parts.keys() <= {*names} else None
    if not isinstance(value, tuple) or len(value) != len(names):
        raise SqlError(f"it is {kind.value}, a tuple of {len(names)} values or a dictionary, and another value came")
    return check(value)


def comparable(kind: Kind, value: Any) -> bool:
    """Return whether values of ``kind`` can be equal to ``value``: 0.1, a double, is not ``Decimal("0.1")``."""
    inner = kind.element or kind.entry
    if inner is not None:
        return isinstance(value, tuple) and all(part is None or comparable(inner, part) for part in value)
    if kind.fields:
        return (
            isinstance(value, tuple)
            and len(value) == len(kind.fields)
            and all(part is None or comparable(field, part) for (_, field), part in zip(kind.fields, value))
        )
    if kind.base in NUMBERS:
        if isinstance(value, Decimal):
            return kind not in DOUBLES and not value.is_nan()
        number = Real if kind.scale is None else Rational
        return not isinstance(value, bool) and isinstance(value, number) and value == value
    if not isinstance(value, _REPRESENTED[kind][0] or ()):
        return False
    if isinstance(value, datetime.datetime):
        return kind is not Kind.DATE and (value.tzinfo is None) is (kind is Kind.TIMESTAMP)
    return not isinstance(value, datetime.time) or value.tzinfo is None


def _exactly(precision: int, scale: int) -> Conversion:
    convert = rounded(precision, scale)

    def check(value: Decimal) -> Decimal:
        if not value.is_finite() or (same := convert(value)) != value:
            raise _does_not_fit(value, precision, scale)
        return same or abs(same)  # there is one zero

    return check


def _only(fits: Callable[[Any], bool], kind: object) -> Conversion:
    def check(value: Any) -> Any:
        if not fits(value):
            raise SqlError(f"{brief(value)} is no value of {kind}")
        return value

    return check


def _double_of(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise SqlError(f"{brief(value)} does not fit DOUBLE") from None


def _no_zone(value: datetime.datetime | datetime.time) -> datetime.datetime | datetime.time:
    if value.tzinfo is not None:
        raise SqlError(f"{value} has a time zone")
    return value


def _with_zone(value: datetime.datetime) -> datetime.datetime:
    if value.tzinfo is None:
        raise SqlError(f"{value} has no time zone")
    return to_utc(value)


_NARROW: Final[dict[Kind, Conversion]] = {
    Kind.REAL: _single_of_double,
    Kind.DOUBLE: canonical_float,
    Kind.TEXT: _only(lambda text: text.isascii() or not re.search("[\ud800-\udfff]", text), "VARCHAR: half of a surrogate pair"),
    Kind.TIMESTAMP: _no_zone,
    Kind.TIME: _no_zone,
    Kind.INSTANT: _with_zone,
}
