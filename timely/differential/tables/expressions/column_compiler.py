"""Expressions of sqlglot, compiled to kernels of Arrow that do the same as ``scalar_compiler`` does row by row.

A kernel is made only where it gives the same values. What has none, or meets a value that it cannot do the same with (numbers
beyond 64 bits, NaN), is left to rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from timely.differential.tables.expressions.scalar_compiler import NameScope, compile_scalar
from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import NUMBERS, Kind, common, conversion
from timely.differential.updates.row_columns import Fixed, RowColumns
from timely.errors import SqlError
from timely.operators.keyed.numbers import NAN

Kernel = Callable[[Sequence[Any]], Any]
"""From the columns of rows to an array, or a scalar where all rows have one value."""


class _NoKernel(Exception):
    """There is no kernel for an expression, or for the values that have come."""


@attrs.frozen
class _Vectorized:
    """An expression as a kernel; ``value`` is what a constant is."""

    kind: Kind
    kernel: Kernel
    literal: str | None = None
    constant: bool = False
    value: Any = None


class Expressions:
    """Compiled expressions: called with rows, it returns a column for each, or ``None`` where rows have to be gone through."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels

    def __call__(self, table: RowColumns) -> list[Any] | None:
        columns = _Read(table)
        try:
            return [_as_array(kernel(columns), table.count) for kernel in self._kernels]
        except (pa.ArrowException, OverflowError, _NoKernel):
            return None


class _Read(Sequence[Any]):
    """The arrays of rows."""

    def __init__(self, table: RowColumns) -> None:
        self._columns = table.columns

    def __getitem__(self, place: Any) -> Any:
        return self._columns[place].get()

    def __len__(self) -> int:
        return len(self._columns)


def _as_array(value: Any, count: int) -> Any:
    if isinstance(value, Fixed):
        return Fixed(_as_array(value.numbers, count), value.scale)
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def column_expressions(
    nodes: Sequence[exp.Expr], scope: NameScope, kinds: Sequence[Kind | None] | None = None
) -> Expressions | None:
    """Return expressions as kernels, of ``kinds`` where these are given; ``None`` where one of them has no kernel.

    >>> from timely.differential.updates.row_columns import LazyColumn
    >>> from timely.differential.tables.values.kinds import Column
    >>> scope = NameScope((Column("n", Kind.INTEGER),), {exp.column("n"): 0})
    >>> compiled = column_expressions([exp.column("n") + 1], scope)
    >>> compiled(RowColumns((LazyColumn(pa.array([1, 2])),), 2))[0].to_pylist()
    [2, 3]
    """
    try:
        found = [_compiled(node, scope) for node in nodes]
        for place, kind in enumerate(kinds or ()):
            if kind is not None:
                found[place] = _as_kind(found[place], kind)
        if any(part.kind is Kind.NULL for part in found):
            return None
    except (_NoKernel, SqlError, pa.ArrowException, OverflowError):
        return None
    return Expressions([part.kernel for part in found])


def chosen_rows(conditions: Sequence[Any]) -> Any:
    """Return the numbers of the rows for which all of several columns of booleans are true."""
    both = reduce(pc.and_kleene, conditions)
    return np.flatnonzero(both.fill_null(False).to_numpy(zero_copy_only=False))


# -- columns that come ---------------------------------------------------------------------------------------------


def canonical(column: Any, kind: Kind) -> Any:
    """Return a column as kernels expect it: whole numbers of 64 bits, decimals as ``Fixed``, texts that are large.

    ``ArrowException`` or ``None`` for values that go by rows.
    """
    if kind is Kind.INTEGER:
        return column.cast(pa.int64())
    if kind is Kind.TEXT:
        return column.cast(pa.large_string())
    if kind is Kind.TIMESTAMP:
        return column.cast(pa.timestamp("us"))
    if kind.scale is not None:
        return _fixed(column)
    if kind is Kind.DOUBLE:
        return None if pc.any(pc.is_nan(column)).as_py() else pc.add(column, 0.0)  # -0.0 becomes 0.0
    return column if kind in (Kind.BOOLEAN, Kind.DATE, Kind.BLOB, Kind.TIME, Kind.INTERVAL) else None


def is_lossless(kind: pa.DataType) -> bool:
    """Return whether every column of a type is one that kernels expect, so that it need not be made before it is read."""
    if pa.types.is_decimal128(kind):
        return bool(kind.scale >= 0 and kind.precision <= 18)
    return bool(pa.types.is_string(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()))


def _fixed(column: Any) -> Fixed | None:
    """Return decimals as whole numbers, ``None`` where they have more than 64 bits."""
    kind = column.type
    if kind.scale < 0:
        return None
    if not pa.types.is_decimal128(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
    halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = halves[::2].copy(), halves[1::2]
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if missing is not None:
        low[missing] = 0
    small = high == low >> 63
    if not (small if missing is None else small | missing).all():
        return None
    return Fixed(pa.array(low, mask=missing), kind.scale)


def nulls(kind: Kind, count: int) -> Any:
    """Return a column of nulls of a kind, or ``None`` for a kind that has no kernels."""
    if kind.scale is not None:
        return Fixed(pa.nulls(count, pa.int64()), 0)
    return pa.nulls(count, _ARROW[kind]) if kind in _ARROW else None


# -- compilation ---------------------------------------------------------------------------------------------------


def _compiled(node: exp.Expr, scope: NameScope) -> _Vectorized:
    place = scope.places.get(node)
    if place is not None:
        return _Vectorized(scope.columns[place].kind, lambda columns: columns[place])
    if _is_constant(node, scope):
        found = compile_scalar(node, scope)
        return _constant(found.kind, found.function(()), found.literal)
    compiler = _COMPILERS.get(type(node))
    if compiler is None:
        raise _NoKernel
    return compiler(node, scope)


def _is_constant(node: exp.Expr, scope: NameScope) -> bool:
    return not any(
        isinstance(part, exp.Column | exp.Query | exp.AggFunc | exp.Filter | exp.Window) or part in scope.places
        for part in node.walk()
    )


_ARROW: Final = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.large_string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def _constant(kind: Kind, value: Any, literal: str | None = None) -> _Vectorized:
    made: Any = None
    if kind.scale is not None:
        scale = 0 if value is None else max(0, -value.as_tuple().exponent)
        number = None if value is None else int(scalars.EXACT.scaleb(value, scale))
        made = Fixed(pa.scalar(number, pa.int64()), scale)
    elif kind in _ARROW and value is not NAN:
        made = pa.scalar(value, _ARROW[kind])
    elif kind is not Kind.NULL:
        raise _NoKernel
    return _Vectorized(kind, lambda columns: made, literal, True, value)


def _as_kind(part: _Vectorized, kind: Kind) -> _Vectorized:
    if part.kind is kind:
        return attrs.evolve(part, literal=None)
    if part.constant:
        convert = conversion(part.kind, kind)
        if convert is None:
            raise _NoKernel
        return _constant(kind, None if part.value is None else convert(part.value))
    if part.kind is Kind.NULL:
        raise _NoKernel
    kernel = part.kernel
    if kind.scale is not None and part.kind is Kind.INTEGER:
        return _Vectorized(kind, lambda columns: Fixed(kernel(columns), 0))
    if kind.scale is not None and part.kind.scale is not None:
        return _Vectorized(kind, kernel)
    if (part.kind, kind) in ((Kind.INTEGER, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP)):
        target = _ARROW[kind]
        return _Vectorized(kind, lambda columns: pc.cast(kernel(columns), target))
    raise _NoKernel  # a double of a decimal may be rounded in another way


def _unified(nodes: Sequence[exp.Expr], scope: NameScope) -> list[_Vectorized]:
    found = [_compiled(node, scope) for node in nodes]
    kind = Kind.NULL
    for part in found:
        if part.literal is None:
            both = common(kind, part.kind)
            if both is None:
                raise _NoKernel
            kind = both
    if kind is Kind.NULL:
        kind = Kind.TEXT
    return [_as_kind(part, kind) for part in found]


def _boolean(node: exp.Expr, scope: NameScope) -> Kernel:
    return _as_kind(_compiled(node, scope), Kind.BOOLEAN).kernel


def _number(values: Any) -> Any:
    """Return doubles; rows where one is NaN, which Arrow compares in another way."""
    if pc.any(pc.is_nan(values)).as_py():
        raise _NoKernel
    return pc.add(values, 0.0)


def _scaled(value: Fixed, scale: int) -> Any:
    return value.numbers if value.scale == scale else pc.multiply_checked(value.numbers, 10 ** (scale - value.scale))


def _one_scale(*values: Any) -> tuple[list[Any], int | None]:
    """Return columns of one kind as arrays; decimals with the scale that all of them have then."""
    if not isinstance(values[0], Fixed):
        return list(values), None
    scale = max(value.scale for value in values)
    return [_scaled(value, scale) for value in values], scale


def _with_scale(values: Any, scale: int | None) -> Any:
    return values if scale is None else Fixed(values, scale)


_OF_DOUBLES: Final[dict[Any, Any]] = {exp.Add: pc.add, exp.Sub: pc.subtract, exp.Mul: pc.multiply, exp.Div: pc.divide}
_EXACT: Final[dict[Any, Any]] = {exp.Add: pc.add_checked, exp.Sub: pc.subtract_checked, exp.Mul: pc.multiply_checked}


def _arithmetic(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if isinstance(node.this, exp.Interval) or isinstance(node.expression, exp.Interval):
        raise _NoKernel
    if any(_compiled(part, scope).literal is not None for part in (node.this, node.expression)):
        raise _NoKernel  # a text, which makes a double of a decimal
    left, right = _unified([node.this, node.expression], scope)
    if isinstance(node, exp.Div):
        left, right = _as_kind(left, Kind.DOUBLE), _as_kind(right, Kind.DOUBLE)
    one, other, kind = left.kernel, right.kernel, left.kind
    if kind.base not in NUMBERS:
        raise _NoKernel
    if kind is Kind.DOUBLE:
        plain = _OF_DOUBLES[type(node)]
        return _Vectorized(kind, lambda columns: _number(plain(one(columns), other(columns))))
    operation = _EXACT[type(node)]
    if kind is Kind.INTEGER:
        return _Vectorized(kind, lambda columns: operation(one(columns), other(columns)))

    def of_decimals(columns: Sequence[Any]) -> Fixed:
        first, second = one(columns), other(columns)
        if operation is pc.multiply_checked:
            return Fixed(operation(first.numbers, second.numbers), first.scale + second.scale)
        values, scale = _one_scale(first, second)
        return Fixed(operation(*values), scale or 0)

    return _Vectorized(kind, of_decimals)


def _negated(values: Fixed) -> Fixed:
    return Fixed(pc.negate_checked(values.numbers), values.scale)


def _negative(node: exp.Expr, scope: NameScope) -> _Vectorized:
    inner = _compiled(node.this, scope)
    kernel = inner.kernel
    if inner.kind.scale is not None:
        return _Vectorized(inner.kind, lambda columns: _negated(kernel(columns)))
    if inner.kind.base not in NUMBERS:
        raise _NoKernel
    if inner.kind is Kind.DOUBLE:
        return _Vectorized(inner.kind, lambda columns: pc.subtract(0.0, kernel(columns)))  # there is one zero
    return _Vectorized(inner.kind, lambda columns: pc.negate_checked(kernel(columns)))


_COMPARISONS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}


def _compared(compare: Callable[[Any, Any], Any], left: _Vectorized, right: _Vectorized) -> Kernel:
    one, other = left.kernel, right.kernel
    return lambda columns: compare(*_one_scale(one(columns), other(columns))[0])


def _comparison(node: exp.Expr, scope: NameScope) -> _Vectorized:
    left, right = _unified([node.this, node.expression], scope)
    return _Vectorized(Kind.BOOLEAN, _compared(_COMPARISONS[type(node)], left, right))


def _connective(node: exp.Expr, scope: NameScope) -> _Vectorized:
    one, other = _boolean(node.this, scope), _boolean(node.expression, scope)
    operation = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
    return _Vectorized(Kind.BOOLEAN, lambda columns: operation(one(columns), other(columns)))


def _not(node: exp.Expr, scope: NameScope) -> _Vectorized:
    inner = _boolean(node.this, scope)
    return _Vectorized(Kind.BOOLEAN, lambda columns: pc.invert(inner(columns)))


def _is(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if isinstance(node.expression, exp.Null):
        inner = _compiled(node.this, scope).kernel

        def missing(columns: Sequence[Any]) -> Any:
            values = inner(columns)
            return pc.is_null(values.numbers if isinstance(values, Fixed) else values)

        return _Vectorized(Kind.BOOLEAN, missing)
    if not isinstance(node.expression, exp.Boolean):
        raise _NoKernel
    condition, expected = _boolean(node.this, scope), bool(node.expression.this)
    return _Vectorized(Kind.BOOLEAN, lambda columns: pc.fill_null(pc.equal(condition(columns), expected), False))


def _between(node: exp.Expr, scope: NameScope) -> _Vectorized:
    low = exp.GTE(this=node.this, expression=node.args["low"])
    high = exp.LTE(this=node.this, expression=node.args["high"])
    return _connective(exp.And(this=low, expression=high), scope)


def _in(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if node.args.get("query") is not None or not node.expressions:
        raise _NoKernel
    value, *options = _unified([node.this, *node.expressions], scope)
    equal = [_compared(pc.equal, value, option) for option in options]
    return _Vectorized(Kind.BOOLEAN, lambda columns: reduce(pc.or_kleene, (kernel(columns) for kernel in equal)))


def _like(node: exp.Expr, scope: NameScope) -> _Vectorized:
    escape, inner = "", node
    if isinstance(node, exp.Escape):
        escape, inner = str(node.expression.this), node.this
    if type(inner) is not exp.Like:
        raise _NoKernel
    text = _as_kind(_compiled(inner.this, scope), Kind.TEXT).kernel
    pattern = _as_kind(_compiled(inner.expression, scope), Kind.TEXT)
    if not pattern.constant or pattern.value is None:
        raise _NoKernel
    match = _matcher(pattern.value, escape)
    if inner.args.get("negate"):
        return _Vectorized(Kind.BOOLEAN, lambda columns: pc.invert(match(text(columns))))
    return _Vectorized(Kind.BOOLEAN, lambda columns: match(text(columns)))


def _matcher(pattern: str, escape: str) -> Callable[[Any], Any]:
    plain = pattern.strip("%")
    if not escape and "_" not in plain and "%" not in plain and plain:
        if pattern == f"{plain}%":
            return lambda texts: pc.starts_with(texts, plain)
        if pattern == f"%{plain}":
            return lambda texts: pc.ends_with(texts, plain)
        if pattern == f"%{plain}%":
            return lambda texts: pc.match_substring(texts, plain)
    regular = f"(?s)^{'.*'.join(segment.regular for segment in scalars.like_segments(pattern, escape))}$"
    return lambda texts: pc.match_substring_regex(texts, regular)


def _conditional(branches: Sequence[tuple[Kernel, exp.Expr]], default: exp.Expr | None, scope: NameScope) -> _Vectorized:
    found = _unified([*(result for _, result in branches), default or exp.Null()], scope)
    conditions = [condition for condition, _ in branches]

    def choose(columns: Sequence[Any]) -> Any:
        values, scale = _one_scale(*(part.kernel(columns) for part in found))
        chosen = values[-1]
        for condition, value in zip(reversed(conditions), reversed(values[:-1])):
            chosen = pc.if_else(pc.fill_null(condition(columns), False), value, chosen)
        return _with_scale(chosen, scale)

    return _Vectorized(found[0].kind, choose)


def _case(node: exp.Expr, scope: NameScope) -> _Vectorized:
    base = node.args.get("this")
    branches = []
    for branch in node.args["ifs"]:
        test = branch.this if base is None else exp.EQ(this=base, expression=branch.this)
        branches.append((_boolean(test, scope), branch.args["true"]))
    return _conditional(branches, node.args.get("default"), scope)


def _if(node: exp.Expr, scope: NameScope) -> _Vectorized:
    return _conditional([(_boolean(node.this, scope), node.args["true"])], node.args.get("false"), scope)


def _coalesce(node: exp.Expr, scope: NameScope) -> _Vectorized:
    found = _unified([node.this, *node.expressions], scope)

    def first(columns: Sequence[Any]) -> Any:
        values, scale = _one_scale(*(part.kernel(columns) for part in found))
        return _with_scale(reduce(lambda one, other: pc.if_else(pc.is_valid(one), one, other), values), scale)

    return _Vectorized(found[0].kind, first)


def _paren(node: exp.Expr, scope: NameScope) -> _Vectorized:
    return _compiled(node.this, scope)


_PARTS: Final = {"YEAR": pc.year, "MONTH": pc.month, "DAY": pc.day, "QUARTER": pc.quarter}


def _part(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if isinstance(node, exp.Extract):
        unit, argument = str(node.this).upper(), node.expression
    else:
        unit, argument = node.key.upper(), node.this
    inner = _compiled(argument, scope)
    if unit not in _PARTS or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise _NoKernel
    part, kernel = _PARTS[unit], inner.kernel
    return _Vectorized(Kind.INTEGER, lambda columns: part(kernel(columns)))


def _substring(node: exp.Expr, scope: NameScope) -> _Vectorized:
    text = _as_kind(_compiled(node.this, scope), Kind.TEXT).kernel
    start, length = (_compiled(node.args[name], scope) if node.args.get(name) else None for name in ("start", "length"))
    if start is None or length is None or not (start.constant and length.constant):
        raise _NoKernel
    if type(start.value) is not int or type(length.value) is not int or start.value < 1 or length.value < 0:
        raise _NoKernel
    first, last = start.value - 1, start.value - 1 + length.value
    return _Vectorized(Kind.TEXT, lambda columns: pc.utf8_slice_codeunits(text(columns), first, last))


_COMPILERS: Final[dict[Any, Callable[[Any, NameScope], _Vectorized]]] = {
    exp.Paren: _paren,
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Div: _arithmetic,
    exp.Neg: _negative,
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.And: _connective,
    exp.Or: _connective,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Extract: _part,
    exp.Year: _part,
    exp.Month: _part,
    exp.Day: _part,
    exp.Substring: _substring,
}
