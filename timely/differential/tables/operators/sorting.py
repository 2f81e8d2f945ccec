"""Orders: of the rows of ``ORDER BY``, of a window, or inside an aggregate. Nulls stand where DuckDB has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from operator import neg, not_
from typing import Any, Final

import attrs

from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Descending, Top
from timely.differential.tables.expressions.bound import SortKey
from timely.differential.tables.expressions.scalar_compiler import Function, Row, RowScope, compile_scalar
from timely.differential.tables.operators.added_rows import first_of_groups
from timely.differential.tables.values.kinds import DOUBLES, Kind, sortable


@attrs.frozen
class Ordering:
    """How values of some kinds are sorted."""

    kinds: tuple[Kind, ...]
    descending: tuple[bool, ...]
    nulls_first: tuple[bool, ...]
    turns: tuple[Callable[[Any], Any] | None, ...]
    """What makes of each value one that sorts in its direction."""

    @classmethod
    def of_keys(cls, keys: Sequence[SortKey]) -> Ordering:
        """Return the order of the expressions of ``ORDER BY``."""
        kinds, descending = tuple(key.value.kind for key in keys), tuple(key.descending for key in keys)
        return cls(kinds, descending, tuple(key.nulls_first for key in keys), tuple(map(turned, kinds, descending)))

    def key(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return what orders rows with these values; equal keys are peers."""
        parts: list[Any] = []
        for value, turn, first in zip(values, self.turns, self.nulls_first):
            if value is None:
                parts += (not first, None)
            else:
                parts += (first, value if turn is None else turn(value))
        return tuple(parts)


@attrs.frozen
class RowOrdering:
    """The expressions of ``ORDER BY``, as functions of a row, and how their values are sorted."""

    by: Ordering
    functions: tuple[Function, ...]

    def values(self, row: Row) -> tuple[Any, ...]:
        """Return the values of the expressions."""
        return tuple([function(row) for function in self.functions])

    def of(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a row."""
        return self.by.key([function(row) for function in self.functions])


def turned(kind: Kind, descending: bool) -> Callable[[Any], Any] | None:
    """Return what makes of values of a kind others that sort in a direction, or ``None`` where they do."""
    if kind.nested:
        return (lambda value: Descending(sortable(value))) if descending else sortable
    return _NEGATED.get(kind.base, Descending) if descending else None


_NEGATED: Final[dict[Kind, Callable[[Any], Any]]] = {
    Kind.BOOLEAN: not_,
    Kind.INTEGER: neg,
    **dict.fromkeys(DOUBLES, neg),
    Kind.DECIMAL: Decimal.copy_negate,
    Kind.DATE: lambda value: -value.toordinal(),
}
"""Numbers compare four times as fast as objects of a class of ours."""


def ordering(keys: Sequence[SortKey], scope: RowScope) -> RowOrdering:
    """Return the compiled expressions of ``ORDER BY``."""
    return RowOrdering(Ordering.of_keys(keys), tuple(compile_scalar(key.value, scope).function for key in keys))


def sort_key(keys: Sequence[SortKey], scope: RowScope, width: int) -> Callable[[Row], Any]:
    """Return the key that rows are sorted by: the expressions, then the first ``width`` columns, so that no two rows tie."""
    order = ordering(keys, scope)
    return lambda row: (order.of(row), sortable(row[:width]))


def first_rows(
    rows: Collection[Any, Row], group: Callable[[Row], Any], key: Callable[[Row], Any], k: int, *, grows: bool = False
) -> Collection[Any, Row]:
    """Return the first ``k`` rows of each group in the order of ``key``."""
    pairs = rows.map(lambda row: (group(row), row))
    return first_of_groups(pairs, Top(k, key), "first rows", grows=grows).map(lambda pair: pair[1])
