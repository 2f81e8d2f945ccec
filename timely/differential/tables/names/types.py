"""Types as they are written: the kind that each is, and what checks that a value fits it."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlglot import exp

from timely.differential.tables.names.reader import identifier, listed, name_in, read
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.values.casts import Narrow, of_elements, of_fields
from timely.differential.tables.values.kinds import Kind, decimal, list_of, rounded, struct_of, within


class SqlType(NamedTuple):
    """A type: its kind, what checks that a value fits it, and how it is written."""

    kind: Kind
    narrow: Narrow | None
    text: str
    digits: int | None = None
    """Of a decimal."""


def type_of(target: exp.Expr, node: exp.Expr) -> SqlType:
    """Return what a type is."""
    name, arguments = read(target, "this", "expressions")
    parts = listed(arguments)
    if name == _TYPE.DECIMAL:
        digits, scale = _decimal_sizes(parts, node)
        return SqlType(decimal(scale), rounded(digits, scale), f"DECIMAL({digits}, {scale})", digits)
    if name in (_TYPE.ARRAY, _TYPE.LIST) and len(parts) == 1:
        element = type_of(parts[0], node)
        narrow = None if element.narrow is None else of_elements(element.narrow)
        return SqlType(list_of(element.kind), narrow, f"{element.text}[]")
    if name == _TYPE.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        named = [read(part, "this", "kind") for part in parts]
        fields = [(name_in(name), type_of(kind, node)) for name, kind in named]
        struct = struct_of(tuple((field, of_field.kind) for field, of_field in fields))
        text = ", ".join(f"{field} {of_field.text}" for field, of_field in fields)
        return SqlType(struct, of_fields([of_field.narrow for _, of_field in fields]), f"STRUCT({text})")
    if parts and not (name in (_TYPE.VARCHAR, _TYPE.TEXT) and len(parts) == 1 and identifier(parts[0]).isdecimal()):
        raise refusal(node, "this type has no parameters here")
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return SqlType(Kind.INTEGER, within(*_BITS[name]), name.value)
    if name in _KINDS:
        return SqlType(_KINDS[name], None, name.value)
    raise refusal(node, f"the type {target.sql(dialect='duckdb')} is not supported")


def _decimal_sizes(parts: list[exp.Expr], node: exp.Expr) -> tuple[int, int]:
    """Return the digits of a type ``DECIMAL``, and how many of them are behind the point."""
    written = [identifier(part) for part in parts]
    if len(written) > 2 or not all(part.isdecimal() and len(part) < 3 for part in written):
        raise refusal(node, "DECIMAL takes two whole numbers: how many digits it has, and how many of them behind the point")
    digits, scale = [int(part) for part in (*written, "0")][:2] if written else (18, 3)
    if not 1 <= digits <= 38 or scale > digits:
        raise refusal(node, "DECIMAL has 1 to 38 digits, and not more than that behind the point")
    return digits, scale


_TYPE = exp.DataType.Type
_BITS: Final = dict(
    [
        *((_TYPE.TINYINT, (8, True)), (_TYPE.SMALLINT, (16, True)), (_TYPE.INT, (32, True)), (_TYPE.BIGINT, (64, True))),
        *((_TYPE.UTINYINT, (8, False)), (_TYPE.USMALLINT, (16, False)), (_TYPE.UINT, (32, False)), (_TYPE.UBIGINT, (64, False))),
        (_TYPE.INT128, (128, True)),
    ]
)
_KINDS: Final = {
    **dict.fromkeys((_TYPE.TEXT, _TYPE.VARCHAR), Kind.TEXT),
    **dict.fromkeys((_TYPE.TIMESTAMP, _TYPE.TIMESTAMPNTZ), Kind.TIMESTAMP),
    **dict.fromkeys((_TYPE.VARBINARY, _TYPE.BINARY), Kind.BLOB),
    _TYPE.BOOLEAN: Kind.BOOLEAN,
    _TYPE.DOUBLE: Kind.DOUBLE,
    _TYPE.DATE: Kind.DATE,
    _TYPE.TIME: Kind.TIME,
    _TYPE.TIMESTAMPTZ: Kind.INSTANT,
}
