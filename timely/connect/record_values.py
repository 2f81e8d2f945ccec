"""Values of records of a broker: each is of the type of its column, or refused, and a row becomes JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from timely.errors import ConnectorError, brief, require_package


def _same(value: Any) -> Any:
    return value


_READERS: Final[list[tuple[Callable[[pa.DataType], bool], dict[type, Callable[[Any], Any]]]]] = [
    (pa.types.is_integer, {int: _same}),
    (pa.types.is_string, {str: _same}),
    (pa.types.is_boolean, {bool: _same}),
    (pa.types.is_floating, {float: _same, int: float, Decimal: float}),
    (pa.types.is_decimal, {Decimal: _same, int: Decimal, str: Decimal, float: lambda value: Decimal(repr(value))}),
    (pa.types.is_date, {str: datetime.date.fromisoformat, datetime.date: _same}),
    (pa.types.is_timestamp, {str: datetime.datetime.fromisoformat, datetime.datetime: _same}),
    (pa.types.is_binary, {bytes: _same}),
]
"""What makes a value of a type of those that JSON and Avro have for it."""


def value_reader(field: pa.Field, place: str) -> Callable[[Any], Any]:
    """Return what reads a value of a column, and raises ``TypeError`` or ``ValueError`` for others.

    >>> value_reader(pa.field("day", pa.date32()), "")("2024-02-29")
    datetime.date(2024, 2, 29)
    """
    readers = next((readers for test, readers in _READERS if test(field.type)), None)
    if readers is None:
        raise ConnectorError(f"{place}: column {field.name!r} is {field.type}, which records are not read as: declare a text")
    limits = None
    if pa.types.is_integer(field.type):
        signed = pa.types.is_signed_integer(field.type)
        bits = field.type.bit_width - signed
        limits = range(-signed << bits, 1 << bits)

    def read(value: Any) -> Any:
        if value is None and field.nullable:
            return None
        reader = readers.get(type(value))
        if reader is None or (limits is not None and value not in limits):
            raise TypeError(f"{field.name} is {field.type}, and {brief(value)} came")
        return reader(value)

    return read


def avro_reader(registry: Mapping[str, Any], topic: str) -> Callable[[bytes], Any]:
    """Return what reads the Avro values of a topic, whose schemas are in a registry."""
    require_package("fastavro", "KafkaSource(..., registry=...)", "avro")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read, context = AvroDeserializer(SchemaRegistryClient(dict(registry))), SerializationContext(topic, MessageField.VALUE)
    return lambda value: read(value, context)


def json_reader(schema: pa.Schema) -> Callable[[bytes], Any]:
    """Return what reads JSON; where a column is a decimal, no digit of a number is lost."""
    exact = any(pa.types.is_decimal(field.type) for field in schema)
    decode = json.JSONDecoder(parse_float=Decimal if exact else None).decode
    return lambda value: decode(value.decode())


def json_text(value: Any) -> str:
    """Return a value as JSON; ``ConnectorError`` for one that it has no form for.

    >>> json_text({"day": datetime.date(2024, 2, 29), "price": Decimal("1.50")})
    '{"day": "2024-02-29", "price": "1.50"}'
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise ConnectorError(f"JSON has no form for a {type(value).__name__}: make it a text or a number in the view")
