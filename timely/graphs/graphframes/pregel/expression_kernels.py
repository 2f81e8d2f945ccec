"""Expressions over columns of Arrow tables, computed as Spark does: nulls, NaN, overflow, and what is not evaluated at all.

``evaluate`` gives an array with a value for each row. Aggregates have two steps: workers send partial ones, and merge them. The
invariant: a function is here only if its result is Spark's for every input, up to the last bits of a double; all others are
refused when an expression is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.errors import SchemaError
from timely.graphs.structures.arrays import Column, sorted_order


@attrs.frozen
class ColumnField:
    """A column of the table, by its name there."""

    name: str


@attrs.frozen
class Constant:
    """A value of an Arrow type; ``None`` is null."""

    value: Any
    type: pa.DataType


@attrs.frozen
class FunctionCall:
    """A function of Spark's by the name of its expression, such as ``Add``. ``checked`` ones raise where others overflow."""

    function: str
    arguments: tuple[ColumnExpression, ...]
    type: pa.DataType
    checked: bool = True
    detail: Any = None


ColumnExpression: TypeAlias = ColumnField | Constant | FunctionCall


@attrs.frozen
class ColumnAggregate:
    """An aggregate function of the values of an expression, by the name of Spark's expression, such as ``Sum``."""

    function: str
    argument: ColumnExpression
    type: pa.DataType
    checked: bool = True


def evaluate(expression: ColumnExpression, table: pa.Table) -> pa.Array:
    """Return a value for each row. ``SchemaError`` where Spark raises too: overflow, division by zero, a cast that cannot be.

    >>> table = pa.table({"x": [1, None, 3]})
    >>> double = FunctionCall("Multiply", (ColumnField("x"), Constant(2, pa.int64())), pa.int64())
    >>> evaluate(FunctionCall("Coalesce", (double, Constant(0, pa.int64())), pa.int64()), table).to_pylist()
    [2, 0, 6]
    """
    if isinstance(expression, ColumnField):
        column = table[expression.name]
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(expression, Constant):
        return pa.repeat(pa.scalar(expression.value, expression.type), table.num_rows)
    if expression.function in _BRANCHING:
        found = _BRANCHING[expression.function](expression, table)
    else:
        arguments = [evaluate(argument, table) for argument in expression.arguments]
        try:
            found = _FUNCTIONS[expression.function](expression, *arguments)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{expression.function}: {error}: with these values Spark raises too") from error
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found if found.type == expression.type else found.cast(expression.type)


# -- functions that evaluate an argument for some rows only ------------------------------------------------------------


def _case_when(call: FunctionCall, table: pa.Table) -> pa.Array:
    """``condition, value, condition, value, ..., [otherwise]``."""
    *pairs, otherwise = call.arguments if len(call.arguments) % 2 else (*call.arguments, Constant(None, call.type))
    left = np.arange(table.num_rows)
    parts: list[tuple[Column, pa.Array]] = []
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        holds = _true(evaluate(condition, _rows(table, left)))
        parts.append((left[holds], evaluate(value, _rows(table, left[holds]))))
        left = left[~holds]
    return _scattered([*parts, (left, evaluate(otherwise, _rows(table, left)))], call.type)


def _coalesce(call: FunctionCall, table: pa.Table) -> pa.Array:
    left = np.arange(table.num_rows)
    parts: list[tuple[Column, pa.Array]] = []
    for argument in call.arguments:
        values = evaluate(argument, _rows(table, left))
        there = _true(values.is_valid())
        parts.append((left[there], values.filter(pa.array(there))))
        left = left[~there]
    return _scattered([*parts, (left, pa.nulls(len(left), call.type))], call.type)


def _and(call: FunctionCall, table: pa.Table) -> pa.Array:
    return _junction(call, table, pc.and_kleene, decided_by=False)


def _or(call: FunctionCall, table: pa.Table) -> pa.Array:
    return _junction(call, table, pc.or_kleene, decided_by=True)


def _junction(call: FunctionCall, table: pa.Table, combine: Callable[..., Any], *, decided_by: bool) -> pa.Array:
    first, second = call.arguments
    values = evaluate(first, table)
    open_rows = np.flatnonzero(~_true(pc.equal(values, pa.scalar(decided_by))))
    decided = np.flatnonzero(_true(pc.equal(values, pa.scalar(decided_by))))
    rest = combine(values.take(pa.array(open_rows)), evaluate(second, _rows(table, open_rows)))
    return _scattered([(decided, pa.repeat(pa.scalar(decided_by), len(decided))), (open_rows, rest)], call.type)


def _rows(table: pa.Table, rows: Column) -> pa.Table:
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


def _true(mask: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _scattered(parts: Sequence[tuple[Column, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Return values at their rows; the rows of all parts are all rows."""
    for rows, values in parts:
        if len(rows) == sum(len(others) for others, _ in parts):  # in order, since each part is
            return values
    order = np.concatenate([rows for rows, _ in parts])
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    return pa.concat_arrays([values.cast(kind) for _, values in parts]).take(pa.array(at))


# -- functions of all rows ---------------------------------------------------------------------------------------------


def _arithmetic(plain: str, checked: str) -> Callable[..., Any]:
    return lambda call, *arguments: pc.call_function(checked if call.checked else plain, list(arguments))


def _divide(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    return pc.divide(left, _divisor(call, left, right))


def _integral_divide(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    return pc.call_function("divide_checked" if call.checked else "divide", [left, _divisor(call, left, right)])


def _remainder(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    right = _divisor(call, left, right)
    there = pc.and_(left.is_valid(), right.is_valid())
    filled = right.fill_null(1).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # infinity has the remainder NaN
        remainders = np.fmod(left.fill_null(0).to_numpy(zero_copy_only=False), np.where(filled == -1, 1, filled))
    return pc.if_else(there, pa.array(remainders, call.type), pa.scalar(None, call.type))


def _divisor(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    """Return the divisor, with null for zero, which is an error where divisions are checked."""
    zero = pc.equal(right, pa.scalar(0, right.type))
    if call.checked and _true(pc.and_(zero, left.is_valid())).any():
        raise SchemaError(f"{call.function}: division by zero: Spark raises too; F.when(...) or try_divide leaves such rows out")
    return pc.if_else(zero, pa.scalar(None, right.type), right)


def _cast(call: FunctionCall, values: pa.Array) -> Any:
    if pa.types.is_floating(values.type) and pa.types.is_integer(call.type):
        return pc.trunc(values).cast(call.type)
    return values.cast(call.type, safe=not pa.types.is_floating(call.type))


def _equal(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    same = pc.equal(left, right)
    return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right))) if pa.types.is_floating(left.type) else same


def _less(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    """NaN is greater than any other number, and equal to itself."""
    less = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return less
    return pc.or_(less, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _null_safe_equal(call: FunctionCall, left: pa.Array, right: pa.Array) -> Any:
    equal = _equal(call, left, right).fill_null(False)
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


def _in(call: FunctionCall, value: pa.Array, *others: pa.Array) -> Any:
    found = pa.repeat(pa.scalar(False), len(value))
    for other in others:
        found = pc.or_kleene(found, _equal(call, value, other))
    return found


def _extreme(least: bool) -> Callable[..., Any]:
    def extreme(call: FunctionCall, *arguments: pa.Array) -> Any:
        best = arguments[0]
        for other in arguments[1:]:
            better = _less(call, other, best) if least else _less(call, best, other)
            best = pc.if_else(pc.or_(better.fill_null(False), best.is_null()), other, best)
        return best

    return extreme


def _whole(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """``Floor`` and ``Ceil``: a long of a double."""
    return lambda call, values: function(values).cast(call.type) if pa.types.is_floating(values.type) else values


def _log(call: FunctionCall, values: pa.Array) -> Any:
    return pc.ln(pc.if_else(pc.less_equal(values, pa.scalar(0.0)), pa.scalar(None, values.type), values))


def _pow(call: FunctionCall, base: pa.Array, exponent: pa.Array) -> Any:
    """As Java has it: NaN for 1 and -1 to infinity and to NaN, where others have 1."""
    left, right = (values.fill_null(1).to_numpy(zero_copy_only=False) for values in (base, exponent))
    with np.errstate(all="ignore"):
        powers = np.where((np.abs(left) == 1) & np.isinf(right) | np.isnan(right), np.nan, np.power(left, right))
    return pc.if_else(pc.and_(base.is_valid(), exponent.is_valid()), pa.array(powers), pa.scalar(None, pa.float64()))


def _not(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, *arguments: pc.invert(function(call, *arguments))


_BRANCHING: Final[dict[str, Callable[[FunctionCall, pa.Table], pa.Array]]] = {
    "And": _and,
    "CaseWhen": _case_when,
    "Coalesce": _coalesce,
    "If": _case_when,
    "Or": _or,
}

_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Abs": _arithmetic("abs", "abs_checked"),
    "Add": _arithmetic("add", "add_checked"),
    "Cast": _cast,
    "Ceil": _whole(pc.ceil),
    "Concat": lambda call, *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null"),
    "CreateArray": lambda call, *values: _list_of(call, values),
    "CreateNamedStruct": lambda call, *values: pa.StructArray.from_arrays(list(values), fields=list(call.type)),
    "Divide": _divide,
    "EqualNullSafe": _null_safe_equal,
    "EqualTo": _equal,
    "Exp": lambda call, values: pc.exp(values),
    "Floor": _whole(pc.floor),
    "GetStructField": lambda call, struct: pc.struct_field(struct, call.detail),
    "GreaterThan": lambda call, left, right: _less(call, right, left),
    "GreaterThanOrEqual": _not(_less),
    "Greatest": _extreme(least=False),
    "In": _in,
    "IntegralDivide": _integral_divide,
    "IsNaN": lambda call, values: pc.is_nan(values).fill_null(False),
    "IsNotNull": lambda call, values: values.is_valid(),
    "IsNull": lambda call, values: values.is_null(),
    "Least": _extreme(least=True),
    "LessThan": _less,
    "LessThanOrEqual": lambda call, left, right: pc.invert(_less(call, right, left)),
    "Log": _log,
    "Multiply": _arithmetic("multiply", "multiply_checked"),
    "Not": lambda call, values: pc.invert(values),
    "Pow": _pow,
    "Remainder": _remainder,
    "Sqrt": lambda call, values: pc.sqrt(values),
    "Subtract": _arithmetic("subtract", "subtract_checked"),
    "UnaryMinus": _arithmetic("negate", "negate_checked"),
}


def _list_of(call: FunctionCall, values: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row."""
    count = len(values[0])
    flat = pa.concat_arrays(values).take(pa.array(np.arange(len(values) * count).reshape(len(values), count).T.ravel()))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * len(values), pa.int32()), flat)


FUNCTIONS: Final = frozenset({*_BRANCHING, *_FUNCTIONS})
"""The names of the functions that ``evaluate`` knows."""


# -- aggregates --------------------------------------------------------------------------------------------------------


AGGREGATES: Final = frozenset({"Average", "BoolAnd", "BoolOr", "CollectList", "Count", "Max", "Min", "Sum"})
"""The names of the aggregate functions that there are."""

_WIDE: Final = pa.decimal128(38, 0)

_PLAIN: Final = {"BoolAnd": "min", "BoolOr": "max", "Max": "max", "Min": "min"}


def partial_aggregate(function: ColumnAggregate, groups: Column, count: int, table: pa.Table) -> list[pa.Array]:
    """Return columns for ``merged_aggregate`` with a value for each of ``count`` groups, of rows whose groups are ``groups``."""
    values = evaluate(function.argument, table)
    there = _true(values.is_valid())
    return _aggregated(function, groups[there], values.filter(pa.array(there)), count)


def merged_aggregate(function: ColumnAggregate, groups: Column, count: int, partials: Sequence[Sequence[pa.Array]]) -> pa.Array:
    """Return a value for each of ``count`` groups, of partial aggregates whose groups are ``groups``, one part after the other.

    >>> rows = pa.table({"x": [1.0, 2.0, None]})
    >>> total = ColumnAggregate("Sum", ColumnField("x"), pa.float64())
    >>> some, others = (partial_aggregate(total, np.array([2, 2, 0]), 3, rows) for _ in range(2))
    >>> merged_aggregate(total, np.array([0, 1, 2, 0, 1, 2]), 3, [some, others]).to_pylist()
    [None, None, 6.0]
    """
    columns = [_concatenated(parts) for parts in zip(*partials, strict=True)]
    there = _true(columns[0].is_valid())
    groups, columns = groups[there], [column.filter(pa.array(there)) for column in columns]
    kind = function.function
    if kind == "CollectList":
        parents = pc.list_parent_indices(columns[0]).to_numpy()
        return _lists(groups[parents], columns[0].flatten(), count).cast(function.type)
    if kind == "Average":
        sums, counts = (_grouped(groups, column, "sum", count) for column in columns)
        return pc.divide(sums, counts.cast(pa.float64()))
    if kind == "Count":
        return _grouped(groups, columns[0], "sum", count).fill_null(0).cast(function.type)
    (found,) = _aggregated(function, groups, columns[0], count)
    try:
        return found.cast(function.type)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"Sum: {error}: a sum of whole numbers overflows, for which Spark raises too: sum doubles") from error


def _aggregated(function: ColumnAggregate, groups: Column, values: pa.Array, count: int) -> list[pa.Array]:
    """Return the columns of a partial aggregate, null for a group without values."""
    kind = function.function
    if kind == "CollectList":
        return [_lists(groups, values, count)]
    if kind == "Count":
        return [_grouped(groups, values, "count", count)]
    if kind == "Average":
        return [_grouped(groups, values.cast(pa.float64()), "sum", count), _grouped(groups, values, "count", count)]
    if kind == "Sum":
        return [_sums(function, groups, values, count)]
    if pa.types.is_floating(values.type):  # NaN is the greatest
        numbers = values.cast(pa.float64()).to_numpy()
        ordered = _flipped(np.where(np.isnan(numbers), np.nan, numbers).view(np.int64))
        best = _grouped(groups, pa.array(ordered), _PLAIN[kind], count)
        floats = pa.array(_flipped(best.fill_null(0).to_numpy()).view(np.float64))
        return [pc.if_else(best.is_valid(), floats, pa.scalar(None, pa.float64())).cast(values.type)]
    return [_grouped(groups, values, _PLAIN[kind], count)]


def _sums(function: ColumnAggregate, groups: Column, values: pa.Array, count: int) -> pa.Array:
    """Return sums. Those of whole numbers that must not overflow are decimals where they would."""
    if pa.types.is_floating(values.type):
        return _grouped(groups, values.cast(pa.float64()), "sum", count)
    if not function.checked:
        return _grouped(groups, values.cast(pa.int64()), "sum", count)
    if not pa.types.is_decimal(values.type):
        values = values.cast(pa.decimal128(19, 0))
    sums = _grouped(groups, values.cast(_WIDE), "sum", count)
    try:
        return sums.cast(pa.int64())
    except pa.ArrowInvalid:
        return sums


def _concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Return all parts as one column: of decimals, where one part is."""
    if any(pa.types.is_decimal(part.type) for part in parts):
        parts = [part if pa.types.is_decimal(part.type) else part.cast(pa.decimal128(19, 0)).cast(_WIDE) for part in parts]
    return pa.concat_arrays(parts)


def _flipped(bits: Column) -> Column:
    """Return, for the bits of floats, whole numbers in their order, and the bits for these. NaN is above infinity."""
    flipped: Column = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    return flipped


def _lists(groups: Column, values: pa.Array, count: int) -> pa.Array:
    """Return the list of the values of each group."""
    ends = np.cumsum(np.bincount(groups, minlength=count))
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate(([0], ends)), pa.int32()), values.take(pa.array(sorted_order(groups)))
    )


def _grouped(groups: Column, values: pa.Array, function: str, count: int) -> pa.Array:
    """Return the aggregate of each group, null where a group has no rows."""
    sizes = np.bincount(groups, minlength=count)
    if function == "count":
        return pa.array(sizes, mask=sizes == 0)
    if function == "sum" and pa.types.is_float64(values.type):  # hashing takes half as long again
        return pa.array(np.bincount(groups, values.to_numpy(), count).astype(np.float64), mask=sizes == 0)
    table = pa.table({"group": groups, "value": values}).group_by("group", use_threads=False).aggregate([("value", function)])
    at = np.full(count, -1)
    at[table["group"].to_numpy()] = np.arange(table.num_rows)
    return table[f"value_{function}"].combine_chunks().take(pa.array(at, mask=at < 0))
