"""``CAST``: what a value of one kind is as a type of SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.values.kinds import (
    Kind,
    conversion,
    decimal,
    list_of,
    lower_case,
    rounded,
    struct_of,
    then,
    within,
)
from timely.differential.tables.values.number_functions import round_float
from timely.differential.tables.values.overloads import Overload, always
from timely.differential.tables.values.parsing import OutOfYears
from timely.differential.tables.values.refusals import only, refusal
from timely.errors import SqlError

Narrow = Callable[[Any], Any]


def cast_of(kind: Kind, target: exp.DataType, node: exp.Expr) -> Overload:
    """Return the cast of values of ``kind`` to a type."""
    result, narrow = _target(target, node)
    convert = conversion(kind, result)
    if kind is Kind.DOUBLE and result.scale is not None:
        convert = _decimal_of_double(result.scale)
    if convert is None:
        raise refusal(node, f"a cast of {kind.value} to {result.value} is not supported")
    return Overload((kind,), result, convert if narrow is None else then(convert, narrow))


def tried(cast: Overload, node: exp.Expr) -> Overload:
    """Return a cast that gives ``None`` for what does not fit."""
    if cast.result.nested:
        raise refusal(node, "TRY_CAST of lists and structs is not supported")
    convert = cast.f

    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except OutOfYears:
            raise
        except SqlError:
            return None

    return Overload(cast.kinds, cast.result, attempt, always)


def _decimal_of_double(scale: int) -> Callable[[float], Decimal]:
    def convert(value: float) -> Decimal:
        units = round_float(value * 10.0**scale)
        if not math.isfinite(units):
            raise SqlError(f"{value} does not fit a DECIMAL")
        return Decimal(f"{int(units)}e-{scale}")  # with all digits, where arithmetic would round

    return convert


def _target(target: exp.DataType, node: exp.Expr) -> tuple[Kind, Narrow | None]:
    """Return the kind of a type, and what checks that a value fits it."""
    only(target, "this", "expressions", "nested")
    name = target.this
    parts = target.expressions
    if name == _TYPE.DECIMAL:
        digits, scale = decimal_sizes(target, node)
        return decimal(scale), rounded(digits, scale)
    if name in (_TYPE.ARRAY, _TYPE.LIST) and len(parts) == 1:
        kind, narrow = _target(parts[0], node)
        return list_of(kind), None if narrow is None else _narrow_list(narrow)
    if name == _TYPE.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        fields = [(lower_case(part.name), *_target(part.args["kind"], node)) for part in parts]
        return struct_of(tuple((field, kind) for field, kind, _ in fields)), _narrow_struct([one[2] for one in fields])
    if parts and not (name in (_TYPE.VARCHAR, _TYPE.TEXT) and len(parts) == 1 and parts[0].name.isdecimal()):
        raise refusal(node, "this type has no parameters here")
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return Kind.INTEGER, within(*_BITS[name])
    if name in _KINDS:
        return _KINDS[name], None
    raise refusal(node, f"the type {target.sql(dialect='duckdb')} is not supported")


def decimal_sizes(target: exp.DataType, node: exp.Expr) -> tuple[int, int]:
    """Return the digits of a type ``DECIMAL``, and how many of them are behind the point."""
    written = [part.name for part in target.expressions]
    if len(written) > 2 or not all(part.isdecimal() and len(part) < 3 for part in written):
        raise refusal(node, "DECIMAL takes two whole numbers: how many digits it has, and how many of them behind the point")
    digits, scale = [int(part) for part in (*written, "0")][:2] if written else (18, 3)
    if not 1 <= digits <= 38 or scale > digits:
        raise refusal(node, "DECIMAL has 1 to 38 digits, and not more than that behind the point")
    return digits, scale


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
