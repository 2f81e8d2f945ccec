"""Linear operators on rows that also take whole columns: checks, conditions, projections, keys of joins.

Each has a function of rows, and kernels where there are some. Containers of columns go through the kernels, unless those give
up. So few rows stay columns: what they are joined with may be many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.differential.collections import Collection
from timely.differential.tables.expressions.bound import Expr
from timely.differential.tables.expressions.column_compiler import (
    Expressions,
    canonical,
    chosen_rows,
    column_expressions,
    is_lossless,
    nulls,
)
from timely.differential.tables.expressions.numbered import Numbering, numberings
from timely.differential.tables.expressions.scalar_compiler import Function, Row, RowScope, compile_scalar
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.updates.int_columns import LARGE, Updates
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import INTEGERS, Ring
from timely.differential.updates.row_columns import Fixed, KeyedRows, LazyColumn, RowColumns
from timely.differential.updates.updates import Update

FEW: Final = 4
"""Rows that come, below which columns become rows."""

ByColumns = Callable[[RowColumns], Any]
"""What an operator makes of columns; ``None`` where it has to go through the rows."""


def staged(
    rows: Collection[Any, Any],
    name: str,
    by_rows: Callable[[Iterable[Update]], list[Update]],
    by_columns: ByColumns | None,
    ring: Ring = INTEGERS,
) -> Collection[Any, Any]:
    """Return the collection of ``by_rows(updates)``, or of ``by_columns`` where rows come as columns."""

    def either(updates: Any) -> Any:
        if by_columns is not None and isinstance(updates, RowColumns) and len(updates):
            results = by_columns(updates)
            if results is not None:
                return results
        return by_rows(updates)

    return Collection(linear(rows.stream, name, either), ring)


# -- rows that come ------------------------------------------------------------------------------------------------


def checked(
    rows: Collection[Any, Any],
    check: Callable[[Any], Row],
    columns: Sequence[Column],
    schema: pa.Schema,
    name: str,
    *,
    by_session: bool = False,
    check_diff: Callable[[Any, Any, str], None] | None = None,
) -> Collection[Any, Row]:
    """Return the rows as ``check`` returns them; columns of the types of ``schema`` are as kernels expect them.

    Lists of rows that come ``by_session`` have been checked there. Others go to ``check_diff`` too, with their differences.
    """

    def by_columns(table: RowColumns) -> RowColumns | None:
        if len(table) < FEW or (check_diff is not None and table.diff < 0):
            return None
        read = []
        for column, field, lazy in zip(columns, schema, table.columns, strict=True):
            values = lazy.get()
            if values.type != field.type or (values.null_count and not field.nullable):
                return None
            if is_lossless(field.type):
                read.append(LazyColumn(values, make=partial(canonical, kind=column.kind)))
                continue
            try:
                made = canonical(values, column.kind)
            except (pa.ArrowException, OverflowError):
                return None
            if made is None:
                return None
            read.append(LazyColumn(made))
        return table.with_columns(read)

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        if by_session and isinstance(updates, list):
            return updates
        changes = [(check(record), diff) for record, diff in updates]
        if check_diff is not None:
            for row, diff in changes:
                check_diff(row, diff, name)
        return changes

    return staged(rows, name, by_rows, by_columns)


def pruned(rows: Collection[Any, Row], columns: Sequence[int]) -> Collection[Any, Row]:
    """Return the rows of some of the columns."""
    places = tuple(columns)
    if len(places) == 1:
        (only,) = places
        by_rows: Callable[[Iterable[Update]], list[Update]] = lambda updates: [((row[only],), diff) for row, diff in updates]  # noqa: E731
    else:
        by_rows = lambda updates: [(tuple([row[place] for place in places]), diff) for row, diff in updates]  # noqa: E731
    return staged(rows, "columns", by_rows, lambda table: table.with_columns(table.columns[place] for place in places))


# -- conditions and projections ------------------------------------------------------------------------------------


@attrs.frozen
class Predicate:
    """A condition of rows: true, false or ``None``."""

    function: Function
    columns: Expressions | None


def condition_of(condition: Expr, scope: RowScope) -> Predicate:
    """Return a compiled condition."""
    return Predicate(compile_scalar(condition, scope).function, column_expressions([condition], scope))


def filtered(rows: Collection[Any, Row], conditions: Sequence[Predicate]) -> Collection[Any, Row]:
    """Return the rows for which all conditions are true."""
    if not conditions:
        return rows
    functions = [condition.function for condition in conditions]
    kernels = [condition.columns for condition in conditions]

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        left = updates
        for function in functions:
            left = [update for update in left if function(update[0])]
        return list(left)

    def by_columns(table: RowColumns) -> RowColumns | None:
        results = [None if kernel is None else kernel(table) for kernel in kernels]
        if any(columns is None for columns in results):
            return None
        return table.chosen(chosen_rows([columns[0] for columns in results if columns is not None]))

    return staged(rows, "where", by_rows, by_columns if all(kernels) else None)


def projected(
    rows: Collection[Any, Row], functions: Sequence[Function], expressions: Sequence[Expr], scope: RowScope
) -> Collection[Any, Row]:
    """Return the rows of the values of expressions, which are ``functions`` as they are compiled."""
    kernels = column_expressions(expressions, scope)

    def by_columns(table: RowColumns) -> RowColumns | None:
        columns = None if kernels is None else kernels(table)
        return None if columns is None else table.with_columns(map(LazyColumn, columns))

    def one(updates: Iterable[Update]) -> list[Update]:
        (only,) = functions
        return [((only(row),), diff) for row, diff in updates]

    def several(updates: Iterable[Update]) -> list[Update]:
        return [(tuple([function(row) for function in functions]), diff) for row, diff in updates]

    return staged(rows, "select", one if len(functions) == 1 else several, None if kernels is None else by_columns)


def minus(rows: Collection[Any, Row], other: Collection[Any, Row]) -> Collection[Any, Row]:
    """Return the rows without those of another collection."""
    negated = staged(other, "negate", lambda updates: [(row, -diff) for row, diff in updates], lambda table: table.negated())
    return rows.concat(negated)


def padded(rows: Collection[Any, Row], kinds: Sequence[Kind], *, after: bool) -> Collection[Any, Row]:
    """Return the rows with ``None`` for columns of ``kinds`` after, or before, what they have."""
    missing = (None,) * len(kinds)

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [(row + missing if after else missing + row, diff) for row, diff in updates]

    def by_columns(table: RowColumns) -> RowColumns | None:
        columns = [nulls(kind, len(table)) for kind in kinds]
        if any(column is None for column in columns):
            return None
        more = tuple(map(LazyColumn, columns))
        return table.with_columns((*table.columns, *more) if after else (*more, *table.columns))

    return staged(rows, "no match", by_rows, by_columns)


def columns_of(columns: Sequence[Column]) -> Callable[[Sequence[Row]], tuple[LazyColumn, ...] | None]:
    """Return what makes columns of rows, as kernels expect them; it returns ``None`` for values that go by rows."""

    def make(rows: Sequence[Row]) -> tuple[LazyColumn, ...] | None:
        made = []
        for place, column in enumerate(columns):
            values = [row[place] for row in rows]
            try:
                missing = all(value is None for value in values)
                array = nulls(column.kind, len(values)) if missing else canonical(pa.array(values), column.kind)
            except (pa.ArrowException, OverflowError, TypeError):
                return None
            if array is None:
                return None
            made.append(LazyColumn(array))
        return tuple(made)

    return make


# -- keys of joins -------------------------------------------------------------------------------------------------


@attrs.frozen
class Keys:
    """What rows are joined by: ``function`` of a row, ``None`` for rows that match none; the same of columns.

    A key of one value is that value, as a number where its kind has such. Two whole numbers that fit are one, so that columns
    can be sorted by it. The ``name`` of the operator says what keys are: a checkpoint with others is refused.
    """

    function: Function
    columns: Callable[[RowColumns], tuple[Any, RowColumns] | None] | None
    name: str = "key"


NULL_KEY: Final[frozenset[Any]] = frozenset()
"""The key of ``None`` where that matches: no value of a table is a set."""

_HALF = 31
_LIMIT = 1 << _HALF


def _packed(one: Any, other: Any) -> Any:
    if 0 <= one < _LIMIT and 0 <= other < _LIMIT:
        return one << _HALF | other
    return one, other


def unpacked(key: Any) -> tuple[Any, Any]:
    """Return the two numbers of a key, or of an array of keys."""
    return key if isinstance(key, tuple) else (key >> _HALF, key & _LIMIT - 1)


def no_keys() -> Keys:
    """Return the key of all rows where all match."""
    return Keys(lambda row: 0, lambda table: (np.zeros(len(table), np.int64), table))


def _numbered(part: Expr, made: Numbering, scope: RowScope) -> Function:
    """Return the number of a value of a row."""
    function, of_value = compile_scalar(part, scope).function, made.of_value
    return function if part.kind is Kind.INTEGER else lambda row: None if (value := function(row)) is None else of_value(value)


def _number_columns(
    expressions: Expressions, made: Sequence[Numbering], strict: Sequence[bool], table: RowColumns
) -> tuple[list[Any], RowColumns] | None:
    """Return the numbers of rows, and those rows that have them all; ``None`` where rows have to be gone through."""
    columns = expressions(table)
    if columns is None:
        return None
    plain = [column.numbers if isinstance(column, Fixed) else column for column in columns]
    if any(column.null_count and not matches_none for column, matches_none in zip(plain, strict, strict=True)):
        return None
    valid = [column.is_valid() for column in plain if column.null_count]
    if valid:
        rows = chosen_rows(valid)
        table, indices = table.chosen(rows), pa.array(rows)
        columns = [column.take(indices) for column in columns]
    numbers = [way.of_column(column) for way, column in zip(made, columns, strict=True)]
    return None if any(part is None for part in numbers) else (numbers, table)


def keys_of(parts: Sequence[Expr], strict: Sequence[bool], scope: RowScope) -> Keys:
    """Return the key of rows that consists of the values of ``parts``.

    Where a ``strict`` one is ``None`` the row matches none. ``None`` of others is equal to ``None``.
    """
    if not parts:
        return no_keys()
    made = numberings([part.kind for part in parts]) if len(parts) <= 2 else None
    expressions = None if made is None else column_expressions(parts, scope)
    if made is None:
        functions = [compile_scalar(part, scope).function for part in parts]
    else:
        functions = [_numbered(part, way, scope) for part, way in zip(parts, made, strict=True)]

    def by_columns(table: RowColumns) -> tuple[Any, RowColumns] | None:
        assert expressions is not None and made is not None
        numbered = _number_columns(expressions, made, strict, table)
        if numbered is None:
            return None
        numbers, table = numbered
        if len(numbers) == 1:
            return numbers[0], table
        if any(len(part) and (part.min() < 0 or part.max() >= _LIMIT) for part in numbers):
            return None
        return numbers[0] << _HALF | numbers[1], table

    columns = None if expressions is None else by_columns
    name = "key" if made is None or all(part.kind is Kind.INTEGER for part in parts) else "number"
    if len(functions) == 1:
        only = functions[0]
        if strict[0]:
            return Keys(only, columns, name)
        return Keys(lambda row: NULL_KEY if (value := only(row)) is None else value, columns, name)
    everywhere = all(strict)
    places = [place for place, matches_none in enumerate(strict) if matches_none]
    packed = None if made is None else _packed

    def several(row: Row) -> Any:
        key = tuple([function(row) for function in functions])
        if None in key:
            return None if everywhere or any(key[place] is None for place in places) else key
        return key if packed is None else packed(*key)

    return Keys(several, columns, name)


_MIXING: Final = 0x9E3779B97F4A7C15
_BITS: Final = (1 << 64) - 1


def mixed_keys(parts: Sequence[Expr], scope: RowScope) -> Keys | None:
    """Return a number for each row that is equal where the values of ``parts`` are, and seldom elsewhere.

    ``None`` where values have no numbers. Rows with ``None`` match none.
    """
    made = numberings([part.kind for part in parts])
    expressions = None if made is None else column_expressions(parts, scope)
    if made is None or expressions is None:
        return None
    functions = [_numbered(part, way, scope) for part, way in zip(parts, made, strict=True)]

    def mixed(row: Row) -> int | None:
        key = 0
        for function in functions:
            number = function(row)
            if number is None:
                return None
            key = ((key ^ number) * _MIXING) & _BITS
            key ^= key >> 29
        return key >> 1

    def by_columns(table: RowColumns) -> tuple[Any, RowColumns] | None:
        numbered = _number_columns(expressions, made, [True] * len(parts), table)
        if numbered is None:
            return None
        keys = np.zeros(len(numbered[1]), np.uint64)
        for numbers in numbered[0]:
            keys = (keys ^ numbers.view(np.uint64)) * np.uint64(_MIXING)
            keys ^= keys >> np.uint64(29)
        return (keys >> np.uint64(1)).view(np.int64), numbered[1]

    return Keys(mixed, by_columns, "mixed key")


def keyed(rows: Collection[Any, Row], keys: Keys) -> Collection[Any, Any]:
    """Return pairs of the key and the row, without the rows that match none."""
    key, columns = keys.function, keys.columns

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [((value, row), diff) for row, diff in updates if (value := key(row)) is not None]

    def by_columns(table: RowColumns) -> KeyedRows | None:
        keyed_columns = None if columns is None else columns(table)
        return None if keyed_columns is None else KeyedRows(*keyed_columns)

    return staged(rows, keys.name, by_rows, by_columns)


def only_keys(rows: Collection[Any, Row], keys: Keys) -> Collection[Any, Any]:
    """Return the keys of the rows."""
    key, columns = keys.function, keys.columns

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [(value, diff) for row, diff in updates if (value := key(row)) is not None]

    def by_columns(table: RowColumns) -> Any:
        keyed_columns = None if columns is None or abs(table.diff) >= LARGE else columns(table)
        if keyed_columns is None:
            return None
        return Updates(keyed_columns[0], None, None if table.diff == 1 else np.full(len(keyed_columns[0]), table.diff))

    return staged(rows, keys.name, by_rows, by_columns)


def unkeyed(pairs: Collection[Any, Any]) -> Collection[Any, Row]:
    """Return the rows of pairs."""

    def of_pairs(updates: Any) -> Any:
        return updates.table if isinstance(updates, KeyedRows) else [(row, diff) for (_, row), diff in updates]

    return Collection(linear(pairs.stream, "rows", of_pairs))
