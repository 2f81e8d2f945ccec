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

from timely.differential.tables.expressions.bound import NamedExpr
from timely.differential.tables.expressions.column_compiler import Expressions, column_expressions
from timely.differential.tables.expressions.scalar_compiler import RowScope
from timely.differential.tables.operators.aggregations import AggregateCall
from timely.differential.tables.values.kinds import Kind
from timely.differential.updates.rings import Vector
from timely.differential.updates.row_columns import Fixed, RowColumns, values_of
from timely.operators.keyed.column_aggregates import Aggregate, aggregated


@attrs.frozen
class _Argument:
    """What a measure adds up: a column, where a condition is true; ``None`` for all rows."""

    value: Expressions | None
    condition: Expressions | None
    counts: bool


def _argument(call: AggregateCall, scope: RowScope) -> _Argument | None:
    condition = None
    if call.condition is not None:
        condition = column_expressions([call.condition], scope)
        if condition is None:
            return None
    if call.name not in ("count", "sum", "avg"):
        return None
    if not call.inputs:
        return _Argument(None, condition, True)
    counts = call.name == "count"
    if not counts and call.inputs[0].kind.base not in (Kind.INTEGER, Kind.DECIMAL):
        return None
    value = column_expressions(call.inputs, scope)
    return None if value is None else _Argument(value, condition, counts)


def measures_of(
    keys: Sequence[NamedExpr], measures: Sequence[AggregateCall], scope: RowScope
) -> Callable[[RowColumns], list[Any] | None] | None:
    """Return what adds columns up to pairs ``(key, Vector)``; the first coordinate counts rows, unless there are no keys.

    A count has one coordinate, a sum the count and the sum. ``None`` where rows have to be gone through.
    """
    expressions = column_expressions([key.value for key in keys], scope)
    arguments = [argument for measure in measures if (argument := _argument(measure, scope)) is not None]
    if expressions is None or len(arguments) < len(measures):
        return None

    def added_up(table: RowColumns) -> list[Any] | None:
        groups = expressions(table)
        if groups is None:
            return None
        if not groups and not arguments:
            return []
        columns: dict[str, Any] = {f"key{number}": _plain(column) for number, column in enumerate(groups)}
        names = list(columns)
        wanted: list[Aggregate] = [("rows", None)] if keys else []
        scales = {}
        for number, argument in enumerate(arguments):
            values = _values(argument, table)
            if values is None:
                return None
            columns[f"values{number}"] = _plain(values)
            wanted.append((f"count{number}", (f"values{number}", "count")))
            if not argument.counts:
                wanted.append((f"sum{number}", (f"values{number}", "sum")))
            if isinstance(values, Fixed):
                scales[f"sum{number}"] = values.scale
        try:
            results = aggregated(pa.table(columns), names, wanted).combine_chunks()
        except pa.ArrowException:  # a sum beyond 64 bits
            return None
        of_groups = [_like(group, results.column(name).combine_chunks()) for name, group in zip(names, groups, strict=True)]
        records = list(zip(*map(values_of, of_groups), strict=True)) or [()]
        sums = [_exact(results.column(name).combine_chunks(), scales.get(name, 0), table.diff) for name, _ in wanted]
        head = () if keys else (0,)
        return [(record, Vector((*head, *row))) for record, row in zip(records, zip(*sums, strict=True), strict=True)]

    return added_up


def _plain(column: Any) -> Any:
    return column.numbers if isinstance(column, Fixed) else column


def _like(column: Any, values: Any) -> Any:
    """Return plain values as those of a column."""
    return Fixed(values, column.scale) if isinstance(column, Fixed) else values


def _values(argument: _Argument, table: RowColumns) -> Any:
    """Return the column that is counted or added up, ``None`` where there is no kernel for its values."""
    column: Any = pa.repeat(pa.scalar(True), len(table))
    if argument.value is not None:
        values = argument.value(table)
        if values is None:
            return None
        (column,) = values
    if argument.condition is None:
        return column
    condition = argument.condition(table)
    if condition is None:
        return None
    (true,) = condition
    chosen = pc.if_else(pc.fill_null(true, False), _plain(column), pa.scalar(None, _plain(column).type))
    return _like(column, chosen)


def _exact(column: Any, scale: int, diff: int) -> list[Any]:
    """Return counts and sums, ``diff`` times, as exact numbers; a sum of nothing is 0."""
    numbers = values_of(column.fill_null(0))
    if diff != 1:
        numbers = [diff * number for number in numbers]
    if not scale:
        return numbers
    unit = 10**scale
    return [Fraction(number, unit) for number in numbers]
