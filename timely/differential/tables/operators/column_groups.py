"""``GROUP BY`` of columns: a container is added up by Arrow, so that a group of it is one update.

Sums are exact, as those of rows are: what might leave 64 bits goes by rows, and so do doubles that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.differential.tables.expressions.bound import NamedExpr
from timely.differential.tables.expressions.column_compiler import Expressions, column_expressions
from timely.differential.tables.expressions.scalar_compiler import RowScope
from timely.differential.tables.operators.aggregations import AggregateCall
from timely.differential.tables.operators.group_arrays import GroupUpdates, added_up, floats_added_up, times
from timely.differential.tables.values.kinds import NUMBERS
from timely.differential.updates.row_columns import Fixed, LazyColumn, RowColumns
from timely.operators.keyed.column_numbers import canonical_column


@attrs.frozen
class _Argument:
    """What a measure adds up: a column, where a condition is true; ``None`` for all rows."""

    value: Expressions | None
    condition: Expressions | None
    counts: bool
    numbers: Callable[[Any], Any] | None = None


@attrs.frozen
class SumPlaces:
    """Where the sums of a pass over rows stand among all sums of a group, of which each pass adds nothing to the others.

    The first sum of all is a count of rows. ``scales`` are those of all sums.
    """

    start: int
    scales: Sequence[int]
    counts_rows: bool

    def updates(self, keys: Sequence[Any], rows: Any, sums: Sequence[Any]) -> GroupUpdates:
        """Return what a pass adds to groups, of which it counts ``rows``."""
        nothing = np.zeros(len(rows), np.int64)
        others = [nothing] * (self.start - 1), [nothing] * (len(self.scales) - self.start - len(sums))
        columns = [rows if self.counts_rows else nothing, *others[0], *sums, *others[1]]
        return GroupUpdates(RowColumns(tuple(map(LazyColumn, keys)), len(rows)), columns, self.scales)


def _argument(call: AggregateCall, scope: RowScope) -> _Argument | None:
    condition = None
    if call.condition is not None:
        condition = column_expressions([call.condition], scope)
        if condition is None:
            return None
    if call.name not in ("count", "sum", "avg") and call.sums.numbers is None:
        return None
    if not call.inputs:
        return _Argument(None, condition, True)
    counts = call.name == "count"
    if not counts and call.inputs[0].kind.base not in NUMBERS and call.sums.numbers is None:
        return None
    value = column_expressions(call.inputs, scope)
    return None if value is None else _Argument(value, condition, counts, call.sums.numbers)


def measures_of(
    keys: Sequence[NamedExpr], measures: Sequence[AggregateCall], scope: RowScope, place: SumPlaces
) -> Callable[[RowColumns], GroupUpdates | list[Any] | None] | None:
    """Return what adds columns up to pairs ``(key, Vector)``.

    A count has one coordinate, a sum the count and the sum. ``None`` where rows have to be gone through.
    """
    scales = place.scales[place.start :]
    expressions = column_expressions([key.value for key in keys], scope)
    arguments = [argument for measure in measures if (argument := _argument(measure, scope)) is not None]
    if expressions is None or len(arguments) < len(measures):
        return None

    def measured(table: RowColumns) -> GroupUpdates | list[Any] | None:
        columns = expressions(table)
        groups = None if columns is None else groups_of(columns, len(table))
        if groups is None:
            return None
        if not keys and not arguments:
            return []
        sums: list[Any] = []
        for argument in arguments:
            values = _values(argument, table)
            if values is None:
                return None
            numbers = _plain(values)
            missing = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
            sums.append(times(groups.counts(missing), table.diff))
            if argument.numbers is not None:
                carried = None if missing is not None else argument.numbers(values)
                if carried is None:
                    return None
                sums.append(times(added_up(carried, groups.codes, groups.count), table.diff))
            elif not argument.counts:
                plain = numbers.fill_null(0).to_numpy()
                if plain.dtype == np.float64:
                    if not np.isfinite(plain).all():
                        return None
                    sums.append(times(floats_added_up(plain, groups.codes, groups.count), table.diff))
                    sums.append(np.zeros(groups.count, np.int64))
                    continue
                more = scales[len(sums)] - values.scale if isinstance(values, Fixed) else 0
                if more < 0:
                    return None
                sums.append(times(added_up(plain, groups.codes, groups.count), table.diff * 10**more))
        return place.updates(groups.keys, times(groups.counts(None), table.diff), sums)

    return measured


@attrs.frozen
class RowGroups:
    """The groups of some rows: the code of each row, and the columns of ``count`` keys."""

    codes: Any
    keys: list[Any]
    count: int

    def counts(self, missing: Any) -> Any:
        """Return how many rows each group has, without those that are ``missing``."""
        codes = self.codes if missing is None else self.codes[~missing]
        return np.bincount(codes, minlength=self.count).astype(np.int64, copy=False)


def groups_of(columns: Sequence[Any], rows: int) -> RowGroups | None:
    """Return the groups of rows by columns, ``None`` where their values have no codes.

    A million texts take 160 ms, where Arrow's ``hash_sum`` takes 1,300.
    """
    if not columns:
        return RowGroups(np.zeros(rows, np.int64), [], 1)
    plain = [canonical_column(_plain(column)) for column in columns]
    try:
        encoded = [pc.dictionary_encode(column, null_encoding="encode") for column in plain]
    except pa.ArrowNotImplementedError:
        return None
    codes, count = encoded[0].indices.to_numpy(), len(encoded[0].dictionary)
    if len(columns) == 1:
        return RowGroups(codes, [_like(columns[0], encoded[0].dictionary)], count)
    for part in encoded[1:]:
        together = codes.astype(np.int64, copy=False) * len(part.dictionary) + part.indices.to_numpy()
        pairs = pa.array(together).dictionary_encode()
        codes, count = pairs.indices.to_numpy(), len(pairs.dictionary)
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)
    keys = [_like(column, values.take(pa.array(first))) for column, values in zip(columns, plain, strict=True)]
    return RowGroups(codes, keys, count)


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
