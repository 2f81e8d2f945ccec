"""Columns in Spark's notation (``node long, name string``) as an Arrow schema, for ``timely run`` without Spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_schema(columns: object) -> pa.Schema | None:
    """Return the schema that ``columns`` describes; ``None`` for other types than those of one word.

    >>> arrow_schema("node long, name: STRING").names, arrow_schema("path array<long>")
    (['node', 'name'], None)
    """
    if not isinstance(columns, str):
        return None
    fields = []
    for column in columns.split(","):
        name, _, kind = column.replace(":", " ", 1).strip().partition(" ")
        known = _TYPES.get(kind.strip().lower())
        if not name or known is None:
            return None
        fields.append(pa.field(name.strip("`"), known))
    return pa.schema(fields)
