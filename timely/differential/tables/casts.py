"""``CAST``: what a value of one kind is as a type of SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.kinds import Kind, conversion, list_of, lower_case, rounded, struct_of, within
from timely.differential.tables.number_functions import round_float
from timely.differential.tables.overloads import Overload
from timely.differential.tables.refusals import only, refusal
from timely.errors import SqlError

Narrow = Callable[[Any], Any]


def cast_of(kind: Kind, scale: int | None, target: exp.DataType, node: exp.Expr) -> Overload:
    """Return the cast of values of ``kind`` to a type; ``scale`` is their number of digits behind the point, if known."""
    found, narrow, digits = _target(target, node)
    convert: Callable[[Any], Any] | None
    if kind is Kind.DOUBLE and found is Kind.DECIMAL:
        convert = _decimal_of_double(digits or 0)
    elif kind is Kind.DECIMAL and found is Kind.TEXT:
        if scale is None:
            raise refusal(node, "how many digits this decimal has is not known: cast it to DECIMAL(precision, scale) first")
        convert = _text_of_decimal(scale)
    else:
        convert = conversion(kind, found)
    if convert is None:
        raise refusal(node, f"a cast of {kind.value} to {found.value} is not supported")
    return Overload((kind,), found, convert if narrow is None else _then(convert, narrow), scale=digits)


def tried(cast: Overload, node: exp.Expr) -> Overload:
    """Return a cast that gives ``None`` for what does not fit."""
    if cast.result.nested:
        raise refusal(node, "TRY_CAST of lists and structs is not supported")
    convert = cast.f

    def found(value: Any) -> Any:
        try:
            return convert(value)
        except SqlError:
            return None

    return Overload(cast.kinds, cast.result, found, optional=True, scale=cast.scale)


def _then(convert: Callable[[Any], Any], narrow: Narrow) -> Callable[[Any], Any]:
    return lambda value: narrow(convert(value))


def _decimal_of_double(scale: int) -> Callable[[float], Decimal]:
    def convert(value: float) -> Decimal:
        found = round_float(value * 10.0**scale)
        if not math.isfinite(found):
            raise SqlError(f"{value} does not fit a DECIMAL")
        return Decimal(f"{int(found)}e-{scale}")  # with all digits, where arithmetic would round

    return convert


def _text_of_decimal(scale: int) -> Callable[[Decimal], str]:
    return lambda value: f"{value or abs(value):.{scale}f}"  # no minus before zero


def _target(target: exp.DataType, node: exp.Expr) -> tuple[Kind, Narrow | None, int | None]:
    """Return the kind of a type, what checks that a value fits it, and its digits behind the point."""
    only(target, "this", "expressions", "nested")
    name = target.this
    parts = target.expressions
    if name == _TYPE.DECIMAL:
        sizes = [int(str(part.this.this)) for part in parts] or [18, 3]
        scale = sizes[1] if len(sizes) > 1 else 0
        return Kind.DECIMAL, rounded(sizes[0], scale), scale
    if name in (_TYPE.ARRAY, _TYPE.LIST) and len(parts) == 1:
        kind, narrow, _ = _target(parts[0], node)
        return list_of(kind), None if narrow is None else _narrow_list(narrow), None
    if name == _TYPE.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        fields = [(lower_case(part.name), *_target(part.args["kind"], node)) for part in parts]
        return struct_of(tuple((field, kind) for field, kind, _, _ in fields)), _narrow_struct([one[2] for one in fields]), None
    if parts and name not in (_TYPE.VARCHAR, _TYPE.TEXT):
        raise refusal(node, "this type has no parameters here")
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return Kind.INTEGER, within(*_BITS[name]), None
    if name in _KINDS:
        return _KINDS[name], None, None
    raise refusal(node, f"the type {target.sql(dialect='duckdb')} is not supported")


def _narrow_list(narrow: Narrow) -> Narrow:
    return lambda values: tuple(None if value is None else narrow(value) for value in values)


def _narrow_struct(narrows: Sequence[Narrow | None]) -> Narrow:
    return lambda values: tuple(
        value if value is None or narrow is None else narrow(value) for value, narrow in zip(values, narrows)
    )


_TYPE = exp.DataType.Type
_BITS: Final = {
    _TYPE.TINYINT: (8, True),
    _TYPE.SMALLINT: (16, True),
    _TYPE.INT: (32, True),
    _TYPE.BIGINT: (64, True),
    _TYPE.INT128: (128, True),
    _TYPE.UTINYINT: (8, False),
    _TYPE.USMALLINT: (16, False),
    _TYPE.UINT: (32, False),
    _TYPE.UBIGINT: (64, False),
}
_KINDS: Final = {
    _TYPE.BOOLEAN: Kind.BOOLEAN,
    _TYPE.DOUBLE: Kind.DOUBLE,
    _TYPE.TEXT: Kind.TEXT,
    _TYPE.VARCHAR: Kind.TEXT,
    _TYPE.DATE: Kind.DATE,
    _TYPE.TIMESTAMP: Kind.TIMESTAMP,
    _TYPE.TIMESTAMPNTZ: Kind.TIMESTAMP,
    _TYPE.TIMESTAMPTZ: Kind.INSTANT,
    _TYPE.TIME: Kind.TIME,
    _TYPE.VARBINARY: Kind.BLOB,
    _TYPE.BINARY: Kind.BLOB,
}
