"""Bound expressions, compiled to kernels of Arrow that do the same as ``scalar_compiler`` does row by row.

A kernel is made only where it gives the same values. Expressions without a kernel, and values that a kernel cannot reproduce
(numbers beyond 64 bits, NaN), fall back to rows.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, ids_in
from timely.differential.tables.expressions.scalar_compiler import RowScope, compile_scalar
from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import DOUBLES, NUMBERS, TEXTS, Column, Kind
from timely.differential.tables.values.moment_functions import MONDAY, unit_of
from timely.differential.updates.row_columns import Fixed, RowColumns, values_of
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


def column_expressions(expressions: Sequence[Expr], scope: RowScope) -> Expressions | None:
    """Return expressions as kernels; ``None`` where one of them has no kernel."""
    try:
        parts = [_compiled(expression, scope) for expression in expressions]
        if any(part.kind is Kind.NULL for part in parts):
            return None
    except (NoKernel, SqlError, pa.ArrowException, OverflowError):
        return None
    return Expressions([part.kernel for part in parts])


def chosen_rows(conditions: Sequence[Any]) -> Any:
    """Return the numbers of the rows for which all of several columns of booleans are true."""
    chosen = functools.reduce(pc.and_kleene, conditions)
    return np.flatnonzero(chosen.fill_null(False).to_numpy(zero_copy_only=False))


# -- columns that come ---------------------------------------------------------------------------------------------


def canonical(column: Any, kind: Kind) -> Any:
    """Return a column as kernels expect it: whole numbers of 64 bits, decimals as ``Fixed``, texts that are large.

    ``ArrowException`` or ``None`` for values that go by rows.
    """
    if kind is Kind.INTEGER:
        return column.cast(pa.int64())
    if kind in (*TEXTS, Kind.UUID):
        return column.cast(pa.large_string())
    if kind is Kind.TIMESTAMP:
        return column.cast(pa.timestamp("us"))
    if kind is Kind.INSTANT:
        return column.cast(pa.timestamp("us", "UTC"))
    if kind.scale is not None:
        return _fixed(column)
    if kind.element is not None:
        type_ = arrow_type(kind)
        return None if type_ is None else column.cast(type_)
    if kind in DOUBLES:
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
    return None if (type_ := arrow_type(kind)) is None else pa.nulls(count, type_)


# -- compilation ---------------------------------------------------------------------------------------------------


def _compiled(expression: Expr, scope: RowScope) -> _Vectorized:
    if isinstance(expression, Ref):
        place = scope.places[expression.id]
        return _Vectorized(expression.kind, lambda columns: columns[place])
    if not ids_in(expression):
        scalar = compile_scalar(expression, scope)
        return _constant(scalar.kind, scalar.function(()))
    if not isinstance(expression, Call):
        raise NoKernel
    compiler = _COMPILERS.get(expression.name) if expression.overload.columns is None else _of_arrays
    if compiler is not None:
        try:
            return compiler(
                expression, [_argument(*part, scope) for part in zip(expression.arguments, expression.overload.kinds)]
            )
        except NoKernel:
            pass
    return _by_values(expression, scope)


def _argument(argument: Expr, kind: Kind | None, scope: RowScope) -> _Vectorized:
    if kind is None and isinstance(argument, Literal):  # it is read when the call is compiled
        return _Vectorized(argument.kind, lambda columns: None, True, argument.value)
    return _compiled(argument, scope)


def _by_values(call: Call, scope: RowScope) -> _Vectorized:
    """Return a call without a kernel: its function of each row of the columns that it reads, or of each different value."""
    kind, ids = call.kind, sorted(ids_in(call))
    if kind.scale is None and arrow_type(kind) is None:
        raise NoKernel
    places = [scope.places[number] for number in ids]
    read = RowScope(tuple(scope.columns[place] for place in places), {number: place for place, number in enumerate(ids)})
    function = compile_scalar(call, read).function

    def kernel(columns: Sequence[Any]) -> Any:
        arrays, rows = [columns[place] for place in places], None
        if len(arrays) == 1 and not isinstance(arrays[0], Fixed) and not pa.types.is_list(arrays[0].type):
            encoded = pc.dictionary_encode(arrays[0], null_encoding="encode")
            if 2 * len(encoded.dictionary) <= len(arrays[0]):
                arrays, rows = [encoded.dictionary], encoded.indices
        try:
            column = column_of(kind, [function(row) for row in zip(*map(values_of, arrays), strict=True)])
        except Exception as error:  # rows raise it, or never call the function with such values
            raise NoKernel from error
        return column if rows is None else column.take(rows)

    return _Vectorized(kind, kernel)


def column_of(kind: Kind, values: Sequence[Any]) -> Any:
    """Return values as a column; ``NoKernel`` where one is NaN, or the kind has no columns."""
    if kind.scale is not None:
        scale = kind.scale
        return Fixed(pa.array([None if value is None else _scaled_number(value, scale) for value in values], pa.int64()), scale)
    type_ = arrow_type(kind)
    if type_ is None or (kind in DOUBLES and NAN in values):
        raise NoKernel
    return pa.array(values, type_)


def arrow_type(kind: Kind) -> pa.DataType | None:
    """Return the type of the columns of a kind, ``None`` where it has none: of decimals, and of lists of doubles or of lists."""
    if kind.element is None or kind.element in DOUBLES:
        return _ARROW.get(kind)
    return pa.list_(_ARROW[kind.element]) if kind.element in _ARROW else None


def _scaled_number(value: Any, scale: int) -> int:
    return int(scalars.EXACT.scaleb(value, scale))


_ARROW: Final = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    **dict.fromkeys(DOUBLES, pa.float64()),
    **dict.fromkeys((*TEXTS, Kind.UUID), pa.large_string()),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def _constant(kind: Kind, value: Any) -> _Vectorized:
    if kind is not Kind.NULL and kind.scale is None and (kind not in _ARROW or value is NAN):
        raise NoKernel

    @functools.cache
    def made() -> Any:  # when columns come: PyArrow's first value imports pandas, a quarter of a second
        if kind.scale is not None:
            scale = 0 if value is None else max(0, -value.as_tuple().exponent)
            number = None if value is None else _scaled_number(value, scale)
            return Fixed(pa.scalar(number, pa.int64()), scale)
        return None if kind is Kind.NULL else pa.scalar(value, _ARROW[kind])

    return _Vectorized(kind, lambda columns: made(), True, value)


def _of_arrays(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    """Return a function of the program that takes arrays; what it cannot do goes by rows, which have an error of their own."""
    kinds = [part.kind for part in parts]
    if not {call.kind, *kinds} <= _ARROW.keys():
        raise NoKernel

    def computed(columns: Sequence[Any]) -> Any:
        values = [part.kernel(columns) for part in parts]
        count = max(len(value) for value in values if isinstance(value, pa.Array))
        arrays = [_as_array(value, count) for value in values]
        arrays = [array.cast(pa.string()) if kind is Kind.TEXT else array for array, kind in zip(arrays, kinds)]
        present = functools.reduce(pc.and_, [pc.is_valid(array) for array in arrays])
        try:
            assert call.overload.columns is not None
            result = canonical(pc.if_else(present, call.overload.columns(*arrays), None), call.kind)
        except Exception as error:
            raise NoKernel from error
        if result is None:
            raise NoKernel
        return result

    return _Vectorized(call.kind, computed)


Compiler = Callable[[Call, Sequence[_Vectorized]], _Vectorized]


def _converted(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    (part,), kind, kernel = parts, call.kind, parts[0].kernel
    if kind.scale is not None and part.kind is Kind.INTEGER:
        return _Vectorized(kind, lambda columns: Fixed(kernel(columns), 0))
    if kind.scale is not None and part.kind.scale is not None:
        return _Vectorized(kind, kernel)
    if (part.kind, kind) == DOUBLES:
        return _Vectorized(kind, kernel)
    if (part.kind, kind) in ((Kind.INTEGER, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP)):
        target = _ARROW[kind]
        return _Vectorized(kind, lambda columns: pc.cast(kernel(columns), target))
    raise NoKernel  # a double of a decimal may be rounded in another way


def _applied(kernel: kernels.Kernel, kind: Kind, parts: Sequence[_Vectorized]) -> _Vectorized:
    """Return a kernel of parts; decimals come to it as whole numbers of one scale."""
    inner = [part.kernel for part in parts]

    def apply(columns: Sequence[Any]) -> Any:
        values = [compute(columns) for compute in inner]
        scale = max((value.scale for value in values if isinstance(value, Fixed)), default=0)
        result = kernel(kernels.DUCKDB, *[_scaled(value, scale) if isinstance(value, Fixed) else value for value in values])
        if kind is Kind.REAL:
            result = pc.add(result.cast(pa.float32(), safe=False).cast(pa.float64()), 0.0)  # of 32 bits; -0.0 becomes 0.0
        return result if kind.scale is None else Fixed(result, scale)

    return _Vectorized(kind, apply)


def _scaled(value: Fixed, scale: int) -> Any:
    return value.numbers if value.scale == scale else pc.multiply_checked(value.numbers, 10 ** (scale - value.scale))


def _kernel(kernel: kernels.Kernel) -> Compiler:
    return lambda call, parts: _applied(kernel, call.kind, parts)


def _arithmetic(kernel: kernels.Kernel) -> Compiler:
    def compiler(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
        if any(part.kind.base not in NUMBERS for part in parts):
            raise NoKernel
        return _applied(kernel, call.kind, parts)

    return compiler


_WHOLE: Final = attrs.evolve(kernels.DUCKDB, divide_by_zero="raise")


def _whole(kernel: kernels.Kernel) -> Compiler:
    """Return the compiler of a division of whole numbers."""

    def compiler(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
        one, other = (part.kernel for part in parts)
        if any(part.kind is not Kind.INTEGER for part in parts):
            raise NoKernel

        def divided(columns: Sequence[Any]) -> Any:
            left, right = one(columns), other(columns)
            count = max(len(value) for value in (left, right) if isinstance(value, pa.Array))
            return kernel(_WHOLE, _as_array(left, count), _as_array(right, count))

        return _Vectorized(call.kind, divided)

    return compiler


_MULTIPLY: Final = kernels.arithmetic("multiply")


def _product(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    if call.kind.scale is None:
        return _arithmetic(_MULTIPLY)(call, parts)
    one, other = (part.kernel for part in parts)

    def product(columns: Sequence[Any]) -> Fixed:
        first, second = one(columns), other(columns)
        return Fixed(_MULTIPLY(kernels.DUCKDB, first.numbers, second.numbers), first.scale + second.scale)

    return _Vectorized(call.kind, product)


def _is(expected: bool) -> Compiler:
    def compiler(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
        return _applied(kernels.null_safe_equal, Kind.BOOLEAN, [*parts, _constant(Kind.BOOLEAN, expected)])

    return compiler


def _like(negated: bool) -> Compiler:
    def compiler(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
        text, pattern = parts[0].kernel, parts[1]
        if not pattern.constant or pattern.value is None:
            raise NoKernel
        match = _matcher(pattern.value, parts[2].value if len(parts) > 2 else "")
        if negated:
            return _Vectorized(Kind.BOOLEAN, lambda columns: pc.invert(match(text(columns))))
        return _Vectorized(Kind.BOOLEAN, lambda columns: match(text(columns)))

    return compiler


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


_PARTS: Final = {"YEAR": pc.year, "MONTH": pc.month, "DAY": pc.day, "QUARTER": pc.quarter}


def _part(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    *units, inner = parts
    part, kernel = _PARTS.get(str(units[0].value if units else call.name).upper()), inner.kernel
    if part is None or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise NoKernel
    return _Vectorized(Kind.INTEGER, lambda columns: part(kernel(columns)))


_UNITS: Final = {**dict.fromkeys("HIp", "hour"), "M": "minute", "S": "second", **dict.fromkeys("fg", "microsecond")}
"""What a format reads of a moment, by its letters; others read the day."""

_BY_UNIT: Final = {
    **dict.fromkeys(("hour", "minute", "second")),
    **dict.fromkeys(("dayofweek", "dayofyear", "isodow", "week", "weekday", "weekofyear"), "day"),
}


def _of_unit(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    """Return a function that reads moments down to a unit: it is computed once for each that is there."""
    moment, *formats = parts
    if moment.kind not in (Kind.DATE, Kind.TIMESTAMP) or not all(isinstance(part.value, str) for part in formats):
        raise NoKernel
    order = ["day", *dict.fromkeys(_UNITS.values())]
    read = [_UNITS.get(letter, "day") for part in formats for letter in part.value]
    unit = max(read, key=order.index) if read else _BY_UNIT[call.name] or call.name
    inner = attrs.evolve(call, arguments=(Ref(moment.kind, 0), *call.arguments[1:]))
    function = compile_scalar(inner, RowScope((Column("", moment.kind),), {0: 0})).function
    kernel, type_ = moment.kernel, _ARROW[call.kind]

    def computed(columns: Sequence[Any]) -> Any:
        moments = kernel(columns)
        if moment.kind is Kind.TIMESTAMP and unit != "microsecond":
            moments = pc.floor_temporal(moments, unit=unit)
        encoded = pc.dictionary_encode(moments)
        values = [function((value,)) for value in encoded.dictionary.to_pylist()]
        return pa.array(values, type_).take(encoded.indices)

    return _Vectorized(call.kind, computed)


def _substring(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    text, *bounds = parts
    if len(bounds) != 2 or not all(bound.constant for bound in bounds):
        raise NoKernel
    start, length = bounds
    if type(start.value) is not int or type(length.value) is not int or start.value < 1 or length.value < 0:
        raise NoKernel
    first, last, kernel = start.value - 1, start.value - 1 + length.value, text.kernel
    return _Vectorized(Kind.TEXT, lambda columns: pc.utf8_slice_codeunits(kernel(columns), first, last))


_FIRST_MOMENT: Final = datetime.datetime(1, 1, 1)


def _bucket(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    length, moment = parts[0].value, parts[1]
    if len(parts) != 2 or not isinstance(length, datetime.timedelta) or moment.kind not in (Kind.TIMESTAMP, Kind.INSTANT):
        raise NoKernel
    kernel, step = moment.kernel, length // datetime.timedelta(microseconds=1)
    first, least = (_since_1970(limit) for limit in (MONDAY, _FIRST_MOMENT))

    def starts(columns: Sequence[Any]) -> Any:
        moments = kernel(columns)
        numbers = moments.cast(pa.int64())
        begins = pc.subtract(numbers, pa.array((numbers.fill_null(first).to_numpy() - first) % step))
        if pc.any(pc.less(begins, least)).as_py():
            raise NoKernel
        return begins.cast(moments.type)

    return _Vectorized(call.kind, starts)


def _since_1970(moment: datetime.datetime) -> int:
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


def _truncated(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    unit, moment = parts
    name = unit_of(unit.value) if unit.constant and isinstance(unit.value, str) else None
    if name is None or moment.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.INSTANT):
        raise NoKernel
    kernel, as_date = moment.kernel, moment.kind is Kind.DATE

    def starts(columns: Sequence[Any]) -> Any:
        moments = kernel(columns)
        return pc.floor_temporal(moments.cast(pa.timestamp("us")) if as_date else moments, unit=name.lower())

    return _Vectorized(call.kind, starts)


def _negative_or_difference(call: Call, parts: Sequence[_Vectorized]) -> _Vectorized:
    return _arithmetic(kernels.arithmetic("negate" if len(parts) == 1 else "subtract"))(call, parts)


_COMPILERS: Final[dict[str, Compiler]] = {
    "convert": _converted,
    "+": _arithmetic(kernels.arithmetic("add")),
    "-": _negative_or_difference,
    "*": _product,
    "/": _arithmetic(kernels.divide),
    "//": _whole(kernels.integral_divide),
    **dict.fromkeys(("%", "mod"), _whole(kernels.remainder)),
    "time_bucket": _bucket,
    **dict.fromkeys(("date_trunc", "datetrunc"), _truncated),
    "=": _kernel(kernels.equal),
    "<>": _kernel(kernels.opposite(kernels.equal)),
    "<": _kernel(kernels.less),
    "<=": _kernel(kernels.opposite(kernels.greater)),
    ">": _kernel(kernels.greater),
    ">=": _kernel(kernels.opposite(kernels.less)),
    "in": _kernel(kernels.one_of),
    "and": _kernel(kernels.same_everywhere(pc.and_kleene)),
    "or": _kernel(kernels.same_everywhere(pc.or_kleene)),
    "not": _kernel(kernels.same_everywhere(pc.invert)),
    "is null": _kernel(kernels.same_everywhere(pc.is_null)),
    "is true": _is(True),
    "is false": _is(False),
    "like": _like(False),
    "like escape": _like(False),
    "not like": _like(True),
    "not like escape": _like(True),
    "case": _kernel(kernels.case),
    **dict.fromkeys(("coalesce", "ifnull"), _kernel(kernels.coalesce)),
    **dict.fromkeys(("strftime", *_BY_UNIT), _of_unit),
    **dict.fromkeys(("date_part", "year", "month", "day", "quarter"), _part),
    **dict.fromkeys(("substring", "substr"), _substring),
}
