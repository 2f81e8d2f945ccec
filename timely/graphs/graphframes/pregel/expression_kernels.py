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
from timely.graphs.structures.arrays import Column, inverse, sorted_order
from timely.operators.keyed import column_kernels as kernels
from timely.operators.keyed.column_numbers import aggregated


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
    """Return a value for each row. ``SchemaError`` where Spark raises too: overflow, division by zero, a cast that cannot be."""
    if isinstance(expression, ColumnField):
        column = table[expression.name]
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(expression, Constant):
        return pa.repeat(pa.scalar(expression.value, expression.type), table.num_rows)
    if expression.function in _BRANCHING:
        values = _BRANCHING[expression.function](expression, table)
    else:
        arguments = [evaluate(argument, table) for argument in expression.arguments]
        try:
            values = _computed(expression, arguments)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"{expression.function}: {error}: with these values Spark raises too; F.when(...) leaves such rows out"
            ) from error
    if isinstance(values, pa.Scalar):
        values = pa.repeat(values, table.num_rows)
    return values if values.type == expression.type else values.cast(expression.type)


def _computed(call: FunctionCall, arguments: Sequence[pa.Array]) -> Any:
    kernel = _KERNELS.get(call.function)
    if kernel is None:
        return _TYPED[call.function](call, *arguments)
    return kernel(kernels.SPARK_ANSI if call.checked else kernels.SPARK_LEGACY, *arguments)


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
    return pa.concat_arrays([values.cast(kind) for _, values in parts]).take(pa.array(inverse(order)))


# -- functions of all rows ---------------------------------------------------------------------------------------------


def _cast(call: FunctionCall, values: pa.Array) -> Any:
    if pa.types.is_floating(values.type) and pa.types.is_integer(call.type):
        return pc.trunc(values).cast(call.type)
    return values.cast(call.type, safe=not pa.types.is_floating(call.type))


def _whole(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """``Floor`` and ``Ceil``: a long of a double."""
    return lambda call, values: function(values).cast(call.type) if pa.types.is_floating(values.type) else values


def _log(values: pa.Array) -> Any:
    return pc.ln(pc.if_else(pc.less_equal(values, pa.scalar(0.0)), pa.scalar(None, values.type), values))


def _pow(base: pa.Array, exponent: pa.Array) -> Any:
    """As Java has it: NaN for 1 and -1 to infinity and to NaN, where others have 1."""
    left, right = (values.fill_null(1).to_numpy(zero_copy_only=False) for values in (base, exponent))
    with np.errstate(all="ignore"):
        powers = np.where((np.abs(left) == 1) & np.isinf(right) | np.isnan(right), np.nan, np.power(left, right))
    return pc.if_else(pc.and_(base.is_valid(), exponent.is_valid()), pa.array(powers), pa.scalar(None, pa.float64()))


_BRANCHING: Final[dict[str, Callable[[FunctionCall, pa.Table], pa.Array]]] = {
    "And": _and,
    "CaseWhen": _case_when,
    "Coalesce": _coalesce,
    "If": _case_when,
    "Or": _or,
}

_KERNELS: Final[dict[str, kernels.Kernel]] = {
    "Abs": kernels.arithmetic("abs"),
    "Add": kernels.arithmetic("add"),
    "Concat": kernels.same_everywhere(lambda *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null")),
    "Divide": kernels.divide,
    "EqualNullSafe": kernels.null_safe_equal,
    "EqualTo": kernels.equal,
    "Exp": kernels.same_everywhere(pc.exp),
    "GreaterThan": kernels.greater,
    "GreaterThanOrEqual": kernels.opposite(kernels.less),
    "Greatest": kernels.extreme(kernels.greater),
    "In": kernels.one_of,
    "IntegralDivide": kernels.integral_divide,
    "IsNaN": kernels.same_everywhere(lambda values: pc.is_nan(values).fill_null(False)),
    "IsNotNull": kernels.same_everywhere(pc.is_valid),
    "IsNull": kernels.same_everywhere(pc.is_null),
    "Least": kernels.extreme(kernels.less),
    "LessThan": kernels.less,
    "LessThanOrEqual": kernels.opposite(kernels.greater),
    "Log": kernels.same_everywhere(_log),
    "Multiply": kernels.arithmetic("multiply"),
    "Not": kernels.same_everywhere(pc.invert),
    "Pow": kernels.same_everywhere(_pow),
    "Remainder": kernels.remainder,
    "Sqrt": kernels.same_everywhere(pc.sqrt),
    "Subtract": kernels.arithmetic("subtract"),
    "UnaryMinus": kernels.arithmetic("negate"),
}

_TYPED: Final[dict[str, Callable[..., Any]]] = {
    "Cast": _cast,
    "Ceil": _whole(pc.ceil),
    "CreateArray": lambda call, *values: _list_of(values),
    "CreateNamedStruct": lambda call, *values: pa.StructArray.from_arrays(list(values), fields=list(call.type)),
    "Floor": _whole(pc.floor),
    "GetStructField": lambda call, struct: pc.struct_field(struct, call.detail),
}
"""Functions that are called with what is computed, as their result depends on its type."""


def _list_of(values: Sequence[pa.Array]) -> pa.Array:
    """Return a list of the values of each row."""
    count = len(values[0])
    flat = pa.concat_arrays(values).take(pa.array(np.arange(len(values) * count).reshape(len(values), count).T.ravel()))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * len(values), pa.int32()), flat)


FUNCTIONS: Final = frozenset({*_BRANCHING, *_KERNELS, *_TYPED})
"""The names of the functions that ``evaluate`` knows."""


# -- aggregates --------------------------------------------------------------------------------------------------------


AGGREGATES: Final = frozenset({"Average", "BoolAnd", "BoolOr", "CollectList", "Count", "Max", "Min", "Sum"})
"""The names of the aggregate functions that there are."""

_WIDE: Final = pa.decimal128(38, 0)

_EXTREMES: Final = {"BoolAnd": "min", "BoolOr": "max", "Max": "max", "Min": "min"}


def partial_aggregate(function: ColumnAggregate, groups: Column, count: int, table: pa.Table) -> list[pa.Array]:
    """Return columns for ``merged_aggregate`` with a value for each of ``count`` groups, of rows whose groups are ``groups``."""
    values = evaluate(function.argument, table)
    there = _true(values.is_valid())
    return _aggregated(function, groups[there], values.filter(pa.array(there)), count)


def merged_aggregate(function: ColumnAggregate, groups: Column, count: int, partials: Sequence[Sequence[pa.Array]]) -> pa.Array:
    """Return a value for each of ``count`` groups, of partial aggregates whose groups are ``groups``, one after the other."""
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
    (results,) = _aggregated(function, groups, columns[0], count)
    try:
        return results.cast(function.type)
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
    if kind != "Sum":
        return [_grouped(groups, values, _EXTREMES[kind], count)]
    if pa.types.is_floating(values.type):
        return [_grouped(groups, values.cast(pa.float64()), "sum", count)]
    try:
        return [_grouped(groups, values, "sum", count, wrap=not function.checked)]
    except pa.ArrowInvalid:  # other workers may have what brings the sum back into 64 bits
        return [_grouped(groups, _wide(values), "sum", count)]


def _concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Return all parts as one column: of decimals, where one part is."""
    if any(pa.types.is_decimal(part.type) for part in parts):
        parts = list(map(_wide, parts))
    return pa.concat_arrays(parts)


def _wide(numbers: pa.Array) -> pa.Array:
    """Return whole numbers as decimals, whose sums have room."""
    return numbers.cast(pa.decimal128(19 if pa.types.is_integer(numbers.type) else 38, 0)).cast(_WIDE)


def _lists(groups: Column, values: pa.Array, count: int) -> pa.Array:
    """Return the list of the values of each group."""
    ends = np.cumsum(np.bincount(groups, minlength=count))
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate(([0], ends)), pa.int32()), values.take(pa.array(sorted_order(groups)))
    )


def _grouped(groups: Column, values: pa.Array, function: str, count: int, *, wrap: bool = False) -> pa.Array:
    """Return the aggregate of each group, null where a group has no rows."""
    sizes = np.bincount(groups, minlength=count)
    if function == "count":
        return pa.array(sizes, mask=sizes == 0)
    if function == "sum" and pa.types.is_float64(values.type):  # hashing takes half as long again
        return pa.array(np.bincount(groups, values.to_numpy(), count).astype(np.float64), mask=sizes == 0)
    table = aggregated(pa.table({"group": groups, "value": values}), ["group"], [("result", ("value", function))], wrap=wrap)
    return spread(table["result"].combine_chunks(), table["group"].to_numpy(), count)


def spread(values: pa.Array, places: Column, count: int) -> pa.Array:
    """Return ``count`` values: those given at their places, nulls elsewhere."""
    at = np.full(count, -1)
    at[places] = np.arange(len(places))
    return values.take(pa.array(at, mask=at < 0))
