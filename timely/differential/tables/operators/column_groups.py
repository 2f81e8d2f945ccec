"""``GROUP BY`` of columns: a container is added up by Arrow, so that a group of it is one update.

Sums are exact, as those of rows are: what might leave 64 bits goes by rows, and so do sums of doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from timely.differential.tables.expressions.column_compiler import Expressions, column_expressions
from timely.differential.tables.expressions.scalar_compiler import NameScope, compile_scalar
from timely.differential.tables.values.kinds import Kind
from timely.differential.updates.int_columns import greatest_of
from timely.differential.updates.rings import Vector
from timely.differential.updates.row_columns import Fixed, RowColumns, values_of


@attrs.frozen
class _Argument:
    """What a measure adds up: a column, where a condition is true; ``None`` for all rows."""

    value: Expressions | None
    condition: Expressions | None
    counts: bool


def _argument(node: exp.Expr, scope: NameScope) -> _Argument | None:
    inner, condition = node, None
    if isinstance(inner, exp.Filter):
        condition = column_expressions([inner.expression.this], scope, [Kind.BOOLEAN])
        if condition is None:
            return None
        inner = inner.this
    if type(inner) not in (exp.Count, exp.Sum, exp.Avg) or isinstance(inner.this, exp.Distinct | exp.Order):
        return None
    counts = isinstance(inner, exp.Count)
    if inner.this is None or isinstance(inner.this, exp.Star):
        return _Argument(None, condition, True)
    if not counts and compile_scalar(inner.this, scope).kind.base not in (Kind.INTEGER, Kind.DECIMAL):
        return None
    value = column_expressions([inner.this], scope)
    return None if value is None else _Argument(value, condition, counts)


def measures_of(
    keys: Sequence[exp.Expr], measures: Sequence[exp.Expr], scope: NameScope
) -> Callable[[RowColumns], list[Any] | None] | None:
    """Return what adds columns up to pairs ``(key, Vector)``; the first coordinate counts rows, unless there are no keys.

    A count has one coordinate, a sum the count and the sum. ``None`` where rows have to be gone through.
    """
    by = column_expressions(keys, scope)
    found = [_argument(measure, scope) for measure in measures]
    arguments = [argument for argument in found if argument is not None]
    if by is None or len(arguments) < len(measures):
        return None
    expressions = by

    def added_up(table: RowColumns) -> list[Any] | None:
        groups = expressions(table)
        if groups is None:
            return None
        if not groups and not arguments:
            return []
        columns: dict[str, Any] = {f"k{number}": _plain(column) for number, column in enumerate(groups)}
        wanted: list[Any] = [([], "count_all")] if keys else []
        scales: list[int | None] = [None] * len(wanted)
        for number, argument in enumerate(arguments):
            values = _values(argument, table)
            if values is None:
                return None
            columns[f"m{number}"] = _plain(values)
            wanted.append((f"m{number}", "count"))
            scales.append(None)
            if argument.counts:
                continue
            if not _fits(columns[f"m{number}"]):
                return None
            wanted.append((f"m{number}", "sum"))
            scales.append(values.scale if isinstance(values, Fixed) else None)
        diff = table.diff
        sums = _sums(columns, len(groups), wanted)
        records = list(zip(*_keys(groups, sums[: len(groups)]), strict=True)) or [()]
        rows = zip(*(_exact(column, scale, diff) for column, scale in zip(sums[len(groups) :], scales, strict=True)), strict=True)
        head = () if keys else (0,)
        return [(record, Vector((*head, *row))) for record, row in zip(records, rows, strict=True)]

    return added_up


def _plain(column: Any) -> Any:
    return column.numbers if isinstance(column, Fixed) else column


def _values(argument: _Argument, table: RowColumns) -> Any:
    """Return the column that is counted or added up, ``None`` where there is no kernel for its values."""
    column: Any = pa.repeat(pa.scalar(True), len(table))
    if argument.value is not None:
        found = argument.value(table)
        if found is None:
            return None
        (column,) = found
    if argument.condition is None:
        return column
    condition = argument.condition(table)
    if condition is None:
        return None
    (true,) = condition
    chosen = pc.if_else(pc.fill_null(true, False), _plain(column), pa.scalar(None, _plain(column).type))
    return Fixed(chosen, column.scale) if isinstance(column, Fixed) else chosen


def _fits(column: Any) -> bool:
    """Return whether no sum of some of the numbers can leave 64 bits."""
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return greatest_of(numbers) * len(numbers) < 1 << 63


def _sums(columns: dict[str, Any], keys: int, wanted: Sequence[Any]) -> list[Any]:
    """Return the columns of the groups, and those of the sums."""
    if keys:
        names = list(columns)[:keys]
        found = pa.table(columns).group_by(names, use_threads=False).aggregate(list(wanted))
        order = [*(found.column(name) for name in names), *_results(found, names)]
        return [column.combine_chunks() for column in order]
    return [
        pa.array([(pc.count if what == "count" else pc.sum)(columns[name]).as_py() or 0], pa.int64()) for name, what in wanted
    ]


def _results(found: pa.Table, names: Sequence[str]) -> list[Any]:
    return [column for name, column in zip(found.column_names, found.columns, strict=True) if name not in names]


def _keys(groups: Sequence[Any], found: Sequence[Any]) -> list[list[Any]]:
    """Return the keys of the groups as Python values."""
    return [
        values_of(Fixed(column, group.scale) if isinstance(group, Fixed) else column)
        for group, column in zip(groups, found, strict=True)
    ]


def _exact(column: Any, scale: int | None, diff: int) -> list[Any]:
    """Return counts and sums, ``diff`` times, as exact numbers; a sum of nothing is 0."""
    numbers = values_of(column.fill_null(0))
    if diff != 1:
        numbers = [diff * number for number in numbers]
    if not scale:
        return numbers
    unit = 10**scale
    return [Fraction(number, unit) for number in numbers]
