"""Expressions of sqlglot, compiled to kernels of Arrow that do the same as ``scalar_compiler`` does row by row.

A kernel is made only where it gives the same values. Expressions without a kernel, and values that a kernel cannot reproduce
(numbers beyond 64 bits, NaN), fall back to rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from timely.differential.tables.expressions.scalar_compiler import NameScope, compile_scalar
from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import NUMBERS, Kind, common, conversion
from timely.differential.tables.values.written_calls import call_of
from timely.differential.updates.row_columns import Fixed, RowColumns
from timely.errors import SqlError
from timely.operators.keyed import column_kernels as kernels
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.keyed.numbers import NAN

Kernel = Callable[[Sequence[Any]], Any]
"""From the columns of rows to an array, or a scalar where all rows have one value."""


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
        except (pa.ArrowException, OverflowError, NoKernel):
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
        parts = [_compiled(node, scope) for node in nodes]
        for place, kind in enumerate(kinds or ()):
            if kind is not None:
                parts[place] = _as_kind(parts[place], kind)
        if any(part.kind is Kind.NULL for part in parts):
            return None
    except (NoKernel, SqlError, pa.ArrowException, OverflowError):
        return None
    return Expressions([part.kernel for part in parts])


def chosen_rows(conditions: Sequence[Any]) -> Any:
    """Return the numbers of the rows for which all of several columns of booleans are true."""
    chosen = reduce(pc.and_kleene, conditions)
    return np.flatnonzero(chosen.fill_null(False).to_numpy(zero_copy_only=False))


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
        scalar = compile_scalar(node, scope)
        return _constant(scalar.kind, scalar.function(()), scalar.literal)
    call = call_of(node)
    compiler = _COMPILERS.get(call.name if call is not None and call.name in _COMPILERS else type(node))
    if compiler is None:
        raise NoKernel
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
        raise NoKernel
    return _Vectorized(kind, lambda columns: made, literal, True, value)


def _as_kind(part: _Vectorized, kind: Kind) -> _Vectorized:
    if part.kind is kind:
        return attrs.evolve(part, literal=None)
    if part.constant:
        convert = conversion(part.kind, kind)
        if convert is None:
            raise NoKernel
        return _constant(kind, None if part.value is None else convert(part.value))
    if part.kind is Kind.NULL:
        raise NoKernel
    kernel = part.kernel
    if kind.scale is not None and part.kind is Kind.INTEGER:
        return _Vectorized(kind, lambda columns: Fixed(kernel(columns), 0))
    if kind.scale is not None and part.kind.scale is not None:
        return _Vectorized(kind, kernel)
    if (part.kind, kind) in ((Kind.INTEGER, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP)):
        target = _ARROW[kind]
        return _Vectorized(kind, lambda columns: pc.cast(kernel(columns), target))
    raise NoKernel  # a double of a decimal may be rounded in another way


def _unified(nodes: Sequence[exp.Expr], scope: NameScope) -> list[_Vectorized]:
    parts = [_compiled(node, scope) for node in nodes]
    kind = Kind.NULL
    for part in parts:
        if part.literal is None:
            both = common(kind, part.kind)
            if both is None:
                raise NoKernel
            kind = both
    if kind is Kind.NULL:
        kind = Kind.TEXT
    return [_as_kind(part, kind) for part in parts]


def _boolean(node: exp.Expr, scope: NameScope) -> _Vectorized:
    return _as_kind(_compiled(node, scope), Kind.BOOLEAN)


def _applied(kernel: kernels.Kernel, kind: Kind, *parts: _Vectorized) -> _Vectorized:
    """Return a kernel of parts; decimals come to it as whole numbers of one scale."""
    inner = [part.kernel for part in parts]

    def apply(columns: Sequence[Any]) -> Any:
        values = [compute(columns) for compute in inner]
        scale = max((value.scale for value in values if isinstance(value, Fixed)), default=0)
        result = kernel(kernels.DUCKDB, *[_scaled(value, scale) if isinstance(value, Fixed) else value for value in values])
        return result if kind.scale is None else Fixed(result, scale)

    return _Vectorized(kind, apply)


def _scaled(value: Fixed, scale: int) -> Any:
    return value.numbers if value.scale == scale else pc.multiply_checked(value.numbers, 10 ** (scale - value.scale))


_ARITHMETIC: Final[dict[Any, kernels.Kernel]] = {
    exp.Add: kernels.arithmetic("add"),
    exp.Sub: kernels.arithmetic("subtract"),
    exp.Mul: kernels.arithmetic("multiply"),
    exp.Div: kernels.divide,
    exp.Neg: kernels.arithmetic("negate"),
}


def _arithmetic(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if isinstance(node.this, exp.Interval) or isinstance(node.expression, exp.Interval):
        raise NoKernel
    if any(_compiled(part, scope).literal is not None for part in (node.this, node.expression)):
        raise NoKernel  # a text, which makes a double of a decimal
    left, right = _unified([node.this, node.expression], scope)
    if isinstance(node, exp.Div):
        left, right = _as_kind(left, Kind.DOUBLE), _as_kind(right, Kind.DOUBLE)
    if left.kind.base not in NUMBERS:
        raise NoKernel
    kernel = _ARITHMETIC[type(node)]
    if left.kind.scale is None or not isinstance(node, exp.Mul):
        return _applied(kernel, left.kind, left, right)
    one, other = left.kernel, right.kernel

    def product(columns: Sequence[Any]) -> Fixed:
        first, second = one(columns), other(columns)
        return Fixed(kernel(kernels.DUCKDB, first.numbers, second.numbers), first.scale + second.scale)

    return _Vectorized(left.kind, product)


def _negative(node: exp.Expr, scope: NameScope) -> _Vectorized:
    inner = _compiled(node.this, scope)
    if inner.kind.base not in NUMBERS:
        raise NoKernel
    return _applied(_ARITHMETIC[exp.Neg], inner.kind, inner)


_OF_ONE_KIND: Final[dict[Any, kernels.Kernel]] = {
    exp.EQ: kernels.equal,
    exp.NEQ: kernels.opposite(kernels.equal),
    exp.LT: kernels.less,
    exp.LTE: kernels.opposite(kernels.greater),
    exp.GT: kernels.greater,
    exp.GTE: kernels.opposite(kernels.less),
    exp.In: kernels.one_of,
}

_CONNECTIVES: Final[dict[Any, kernels.Kernel]] = {
    exp.And: kernels.same_everywhere(pc.and_kleene),
    exp.Or: kernels.same_everywhere(pc.or_kleene),
    exp.Not: kernels.same_everywhere(pc.invert),
}


def _comparison(node: exp.Expr, scope: NameScope) -> _Vectorized:
    others = node.expressions if isinstance(node, exp.In) else [node.expression]
    if node.args.get("query") is not None or not others:
        raise NoKernel
    return _applied(_OF_ONE_KIND[type(node)], Kind.BOOLEAN, *_unified([node.this, *others], scope))


def _connective(node: exp.Expr, scope: NameScope) -> _Vectorized:
    parts = [_boolean(part, scope) for part in (node.this, node.args.get("expression")) if part is not None]
    return _applied(_CONNECTIVES[type(node)], Kind.BOOLEAN, *parts)


def _is(node: exp.Expr, scope: NameScope) -> _Vectorized:
    if isinstance(node.expression, exp.Null):
        return _applied(kernels.same_everywhere(pc.is_null), Kind.BOOLEAN, _compiled(node.this, scope))
    if not isinstance(node.expression, exp.Boolean):
        raise NoKernel
    expected = _constant(Kind.BOOLEAN, bool(node.expression.this))
    return _applied(kernels.null_safe_equal, Kind.BOOLEAN, _boolean(node.this, scope), expected)


def _between(node: exp.Expr, scope: NameScope) -> _Vectorized:
    low = exp.GTE(this=node.this, expression=node.args["low"])
    high = exp.LTE(this=node.this, expression=node.args["high"])
    return _connective(exp.And(this=low, expression=high), scope)


def _like(node: exp.Expr, scope: NameScope) -> _Vectorized:
    escape, inner = "", node
    if isinstance(node, exp.Escape):
        escape, inner = str(node.expression.this), node.this
    if type(inner) is not exp.Like:
        raise NoKernel
    text = _as_kind(_compiled(inner.this, scope), Kind.TEXT).kernel
    pattern = _as_kind(_compiled(inner.expression, scope), Kind.TEXT)
    if not pattern.constant or pattern.value is None:
        raise NoKernel
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


def _conditional(tests: Sequence[exp.Expr], results: Sequence[exp.Expr], scope: NameScope) -> _Vectorized:
    values = _unified(results, scope)
    pairs = zip((_boolean(test, scope) for test in tests), values, strict=False)
    return _applied(kernels.case, values[0].kind, *chain.from_iterable(pairs), values[-1])


def _case(node: exp.Expr, scope: NameScope) -> _Vectorized:
    base = node.args.get("this")
    branches = node.args["ifs"]
    tests = [branch.this if base is None else exp.EQ(this=base, expression=branch.this) for branch in branches]
    results = [branch.args["true"] for branch in branches]
    return _conditional(tests, [*results, node.args.get("default") or exp.Null()], scope)


def _if(node: exp.Expr, scope: NameScope) -> _Vectorized:
    return _conditional([node.this], [node.args["true"], node.args.get("false") or exp.Null()], scope)


def _arguments(node: exp.Expr) -> Sequence[exp.Expr]:
    call = call_of(node)
    assert call is not None
    return call.arguments


def _coalesce(node: exp.Expr, scope: NameScope) -> _Vectorized:
    parts = _unified(_arguments(node), scope)
    return _applied(kernels.coalesce, parts[0].kind, *parts)


def _paren(node: exp.Expr, scope: NameScope) -> _Vectorized:
    return _compiled(node.this, scope)


_PARTS: Final = {"YEAR": pc.year, "MONTH": pc.month, "DAY": pc.day, "QUARTER": pc.quarter}


def _part(node: exp.Expr, scope: NameScope) -> _Vectorized:
    call = call_of(node)
    assert call is not None
    *units, argument = call.arguments
    unit = units[0].name.upper() if units else call.name.upper()
    inner = _compiled(argument, scope)
    if unit not in _PARTS or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise NoKernel
    part, kernel = _PARTS[unit], inner.kernel
    return _Vectorized(Kind.INTEGER, lambda columns: part(kernel(columns)))


def _substring(node: exp.Expr, scope: NameScope) -> _Vectorized:
    written, *bounds = _arguments(node)
    text = _as_kind(_compiled(written, scope), Kind.TEXT).kernel
    compiled = [_compiled(bound, scope) for bound in bounds]
    if len(compiled) != 2 or not all(bound.constant for bound in compiled):
        raise NoKernel
    start, length = compiled
    if type(start.value) is not int or type(length.value) is not int or start.value < 1 or length.value < 0:
        raise NoKernel
    first, last = start.value - 1, start.value - 1 + length.value
    return _Vectorized(Kind.TEXT, lambda columns: pc.utf8_slice_codeunits(text(columns), first, last))


_COMPILERS: Final[dict[Any, Callable[[Any, NameScope], _Vectorized]]] = {
    exp.Paren: _paren,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    **dict.fromkeys(_OF_ONE_KIND, _comparison),
    **dict.fromkeys(_CONNECTIVES, _connective),
    exp.Is: _is,
    exp.Between: _between,
    exp.Like: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.If: _if,
    **dict.fromkeys(("coalesce", "ifnull"), _coalesce),
    **dict.fromkeys(("date_part", "year", "month", "day", "quarter"), _part),
    **dict.fromkeys(("substring", "substr"), _substring),
}
