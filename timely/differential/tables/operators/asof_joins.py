"""As-of joins: each row with the nearest of the rows with equal keys, in the order of one expression.

Both sides go by key into one reduction, so a change costs a pass over the rows of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import attrs
from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.tables.expressions.column_stages import Keys
from timely.differential.tables.expressions.join_order import columns_in
from timely.differential.tables.expressions.relation import Relation, beside
from timely.differential.tables.expressions.scalar_compiler import COMPARISONS, Function, Row, compile_scalar, unify
from timely.differential.tables.operators.table_joins import match_of
from timely.differential.tables.values.kinds import sortable
from timely.differential.tables.values.refusals import refusal

_MIRRORED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


@attrs.frozen
class _Nearest:
    """The condition that is no equality: ``left >= right`` and the like."""

    left: Function
    right: Function
    comparison: type[exp.Expr]

    @property
    def backward(self) -> bool:
        """Whether the nearest row is the last of those that match, not the first."""
        return self.comparison in (exp.GT, exp.GTE)


def asof_join(left: Relation, right: Relation, conditions: Sequence[exp.Expr], node: exp.Expr, *, optional: bool) -> Relation:
    """Return each row of ``left`` beside the nearest matching row of ``right``; ``optional`` keeps rows without one.

    ``conditions`` are equalities and one inequality. Of nearest rows that tie, the first by all their columns is taken.
    """
    equal = [condition for condition in conditions if isinstance(condition, exp.EQ)]
    others = [condition for condition in conditions if not isinstance(condition, exp.EQ)]
    if len(others) != 1:
        raise refusal(node, "an as-of join has equalities and one inequality of an expression of each side")
    nearest = _nearest(others[0], left, right)
    match = match_of(left, right, equal)
    if match.rest:
        raise refusal(node, "an equality of an as-of join compares an expression of each side")
    rows = _sided(left.collection, match.left, 0).concat(_sided(right.collection, match.right, 1))
    missing = (None,) * len(right.columns)
    matched = rows.reduce(_joined(nearest), name="asof join").map(itemgetter(1))
    joined = matched.map(lambda pair: pair[0] + pair[1])
    if optional:
        # a row without a match is not in the reduction's output, nor is one whose key has NULL
        absent = left.collection.minus(matched.map(itemgetter(0)))
        joined = joined.concat(absent.map(lambda row: row + missing))
        right = attrs.evolve(right, columns=tuple(attrs.evolve(column, nullable=True) for column in right.columns))
    return beside(left, right, joined)


def _nearest(condition: exp.Expr, left: Relation, right: Relation) -> _Nearest:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    kind = type(condition)
    if kind not in _MIRRORED:
        raise refusal(condition, "the inequality of an as-of join is >=, >, <= or <")
    one, other = condition.this, condition.expression
    if columns_in(one) <= right.tables and columns_in(other) <= left.tables:
        one, other, kind = other, one, _MIRRORED[kind]
    if not (columns_in(one) and columns_in(one) <= left.tables and columns_in(other) and columns_in(other) <= right.tables):
        raise refusal(condition, "the inequality of an as-of join compares an expression of each side")
    sides = unify([one, other], [compile_scalar(one, left.scope), compile_scalar(other, right.scope)], condition)
    return _Nearest(sides[0].function, sides[1].function, kind)


def _sided(rows: Collection[Any, Row], keys: Keys, side: int) -> Collection[Any, Any]:
    def keyed(row: Row) -> Any:
        key = keys.function(row)
        return () if key is None else ((key, (side, row)),)

    return rows.flat_map(keyed, name="key")


def _joined(nearest: _Nearest) -> Callable[[Any, list[tuple[Any, Any]]], Iterable[tuple[Any, Any]]]:
    """Return the reduction: in one pass in order, each row of the left meets the last row of the right before it."""
    matches = COMPARISONS[nearest.comparison]

    def reduce(key: Any, values: list[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
        lefts: list[tuple[Any, Row, Any]] = []
        rights: dict[Any, Row] = {}
        for (side, row), count in values:
            at = (nearest.right if side else nearest.left)(row)
            if at is None or count <= 0:
                continue
            if not side:
                lefts.append((at, row, count))
            elif at not in rights or sortable(row) < sortable(rights[at]):
                rights[at] = row
        times = sorted(rights, reverse=not nearest.backward)
        lefts.sort(key=itemgetter(0), reverse=not nearest.backward)
        reached = 0
        for at, row, count in lefts:
            while reached < len(times) and matches(at, times[reached]):
                reached += 1
            if reached:
                yield (row, rights[times[reached - 1]]), count

    return reduce
