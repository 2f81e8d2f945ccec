"""Values of records of a broker: each is of the type of its column, or refused, and a row becomes JSON."""

from __future__ import annotations

import datetime
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from timely.errors import ConnectorError, brief, require_package
from timely.operators.keyed.numbers import NotANumber


def _same(value: Any) -> Any:
    return value


def _single(value: Any) -> float:
    """Return a number of 32 bits; ``OverflowError`` where Arrow has infinity for it."""
    number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return number


def _moment(text: str) -> datetime.datetime:
    if re.search(r"[.,]\d{6}0*[1-9]", text):
        raise ValueError(f"{text} has digits beyond microseconds")
    return datetime.datetime.fromisoformat(text)


_READERS: Final[list[tuple[Callable[[pa.DataType], bool], dict[type, Callable[[Any], Any]]]]] = [
    (pa.types.is_integer, {int: _same}),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), {str: _same}),
    (pa.types.is_boolean, {bool: _same}),
    (pa.types.is_float32, dict.fromkeys((float, NotANumber, int, Decimal), _single)),
    (pa.types.is_floating, {float: _same, NotANumber: _same, int: float, Decimal: float}),
    (pa.types.is_decimal, {Decimal: _same, int: Decimal, str: Decimal, float: lambda value: Decimal(repr(value))}),
    (pa.types.is_date, {str: datetime.date.fromisoformat, datetime.date: _same}),
    (pa.types.is_timestamp, {str: _moment, datetime.datetime: _same}),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), {bytes: _same}),
    (pa.types.is_time, {datetime.time: _same}),
]
"""What makes a value of a type of those that JSON and Avro have for it."""

_NONE: Final = type(None)


def typed_array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Return values as a column; ``TypeError`` or ``ValueError`` where one is of another type, out of range, or missing.

    >>> typed_array(["2024-02-29", None], pa.field("day", pa.date32())).to_pylist()
    [datetime.date(2024, 2, 29), None]
    >>> typed_array([1, 1.5], pa.field("n", pa.int64()))
    Traceback (most recent call last):
    TypeError: n is int64, and 1.5 came
    >>> typed_array(["2024-02-29T12:00:00.000000001"], pa.field("at", pa.timestamp("us")))
    Traceback (most recent call last):
    ValueError: 2024-02-29T12:00:00.000000001 has digits beyond microseconds
    """
    readers = next((readers for test, readers in _READERS if test(field.type)), {})
    kinds = set(map(type, values))
    if kinds - readers.keys() - ({_NONE} if field.nullable else set()):
        other = next(value for value in values if type(value) not in readers and not (value is None and field.nullable))
        raise TypeError(f"{field.name} is {field.type}, and {brief(other)} came")
    if any(readers[kind] is not _same for kind in kinds - {_NONE}):
        values = [None if value is None else readers[type(value)](value) for value in values]
    return pa.array(values, field.type)


def avro_reader(registry: Mapping[str, Any], topic: str) -> Callable[[bytes], Any]:
    """Return what reads the Avro values of a topic, whose schemas are in a registry."""
    require_package("fastavro", "KafkaSource(..., registry=...)", "avro")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read, context = AvroDeserializer(SchemaRegistryClient(dict(registry))), SerializationContext(topic, MessageField.VALUE)
    return lambda value: read(value, context)


def json_reader(schema: pa.Schema) -> Callable[[bytes], Any]:
    """Return what reads JSON; where a column is a decimal, no digit of a number is lost.

    >>> read = json_reader(pa.schema([("n", pa.float64())]))
    >>> read(b'{"n": 1.5}')
    {'n': 1.5}
    >>> read(b'{"n": 1, "n": 2}')
    Traceback (most recent call last):
    ValueError: an object has one of n twice
    >>> read(b'{"n": 1e999}')
    Traceback (most recent call last):
    ValueError: 1e999 is beyond a double
    """
    exact = any(pa.types.is_decimal(field.type) for field in schema)

    def number(text: str) -> float | Decimal:
        if math.isinf(float(text)):
            raise ValueError(f"{text} is beyond a double")
        return Decimal(text) if exact else float(text)

    def once(parts: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(parts)
        if len(fields) < len(parts):
            raise ValueError(f"an object has one of {', '.join(fields)} twice")
        return fields

    decode = json.JSONDecoder(parse_float=number, object_pairs_hook=once).raw_decode

    def read(value: bytes) -> Any:
        text = value.decode().strip()
        document, end = decode(text)
        if end != len(text):
            raise ValueError(f"{brief(text[end:])} follows")
        return document

    return read


def json_text(value: Any) -> str:
    """Return a value as JSON; ``ConnectorError`` for one that it has no form for.

    >>> json_text({"day": datetime.date(2024, 2, 29), "price": Decimal("1.50")})
    '{"day": "2024-02-29", "price": "1.50"}'
    >>> json_text({"n": float("inf")})
    Traceback (most recent call last):
    timely.errors.ConnectorError: JSON has no form for NaN and infinity, as in {'n': inf}: have NULL for them in the view
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_text)
    except ValueError:
        raise ConnectorError(
            f"JSON has no form for NaN and infinity, as in {brief(value)}: have NULL for them in the view"
        ) from None


def _as_text(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise ConnectorError(f"JSON has no form for a {type(value).__name__}: make it a text or a number in the view")
