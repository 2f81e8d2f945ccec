"""As-of joins: each row with the nearest of the rows with equal keys, in the order of one expression.

Both sides go by key into one reduction, so a change costs a pass over the rows of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import ge, gt, itemgetter, le, lt
from typing import Any, Final

from timely.differential.collections import Collection
from timely.differential.tables.expressions.bound import Expr
from timely.differential.tables.expressions.column_stages import Keys
from timely.differential.tables.expressions.relation import Relation, beside
from timely.differential.tables.expressions.scalar_compiler import Row, compile_scalar
from timely.differential.tables.operators.table_joins import match_of
from timely.differential.tables.values.kinds import sortable

INEQUALITIES: Final = {">": gt, ">=": ge, "<": lt, "<=": le}


def asof_join(
    left: Relation, right: Relation, equal: Sequence[Expr], nearest: Sequence[Expr], comparison: str, *, optional: bool
) -> Relation:
    """Return each row of ``left`` beside the nearest of the rows of ``right`` that are ``equal``.

    The sides of ``nearest`` compare so, as ``left >= right``. ``optional`` keeps rows without one. Of rows that tie,
    the first by all their columns is taken.
    """
    match = match_of(left, right, equal)
    rows = _sided(left.collection, match.left, 0).concat(_sided(right.collection, match.right, 1))
    missing = (None,) * len(right.columns)
    matched = rows.reduce(_joined(nearest, comparison, left, right), name="asof join").map(itemgetter(1))
    joined = matched.map(lambda pair: pair[0] + pair[1])
    if optional:
        # a row without a match is not in the reduction's output, nor is one whose key has NULL
        absent = left.collection.minus(matched.map(itemgetter(0)))
        joined = joined.concat(absent.map(lambda row: row + missing))
        right = right.optional()
    return beside(left, right, joined)


def _sided(rows: Collection[Any, Row], keys: Keys, side: int) -> Collection[Any, Any]:
    def keyed(row: Row) -> Any:
        key = keys.function(row)
        return () if key is None else ((key, (side, row)),)

    return rows.flat_map(keyed, name="key")


def _joined(
    nearest: Sequence[Expr], comparison: str, left: Relation, right: Relation
) -> Callable[[Any, list[tuple[Any, Any]]], Iterable[tuple[Any, Any]]]:
    """Return the reduction: in one pass in order, each row of the left meets the last row of the right before it."""
    matches, backward = INEQUALITIES[comparison], comparison in (">", ">=")
    sides = [compile_scalar(part, rows.scope).function for part, rows in zip(nearest, (left, right))]

    def reduce(key: Any, values: list[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
        lefts: list[tuple[Any, Row, Any]] = []
        rights: dict[Any, Row] = {}
        for (side, row), count in values:
            at = sides[side](row)
            if at is None or count <= 0:
                continue
            at = sortable(at) if type(at) is tuple else at
            if not side:
                lefts.append((at, row, count))
            elif at not in rights or sortable(row) < sortable(rights[at]):
                rights[at] = row
        times = sorted(rights, reverse=not backward)
        lefts.sort(key=itemgetter(0), reverse=not backward)
        reached = 0
        for at, row, count in lefts:
            while reached < len(times) and matches(at, times[reached]):
                reached += 1
            if reached:
                yield (row, rights[times[reached - 1]]), count

    return reduce
