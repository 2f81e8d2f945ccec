"""Joins of relations: keys that are equal, other conditions, and rows without a match.

``NULL`` is equal to nothing, so rows whose key has one match none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.operators.join_results import JoinResult
from timely.differential.tables.expressions.column_stages import (
    Keys,
    Predicate,
    condition_of,
    filtered,
    keyed,
    keys_of,
    minus,
    only_keys,
    padded,
    pruned,
    unkeyed,
)
from timely.differential.tables.expressions.join_order import columns_in
from timely.differential.tables.expressions.relation import Relation, beside
from timely.differential.tables.expressions.scalar_compiler import NameScope, Row, compile_scalar, unify
from timely.differential.tables.expressions.tree_nodes import has_query
from timely.differential.updates.row_columns import Columns, RowColumns


@attrs.frozen
class Match:
    """How rows of two relations match: their keys, and the rest of the condition, of both rows."""

    left: Keys
    right: Keys
    rest: tuple[Predicate, ...]


def _collect_beside(results: list[Any], key: Any, left: Row, right: Row, diff: int) -> None:
    results.append((left + right, diff))


def _beside_columns(keys: Any, left: Columns, right: Columns, diff: int) -> RowColumns:
    return RowColumns((*left, *right), len(keys), diff)


BESIDE: Final = JoinResult(_collect_beside, None, _beside_columns)


def match_of(left: Relation, right: Relation, conditions: Sequence[exp.Expr]) -> Match:
    """Return how the rows of two relations match when all ``conditions`` are to be true."""
    both = NameScope((*left.columns, *right.columns), beside(left, right, left.collection).places)
    pairs, compared, rest, strict = [], [], [], []
    for condition in conditions:
        pair = _sides(condition, left, right)
        if pair is None:
            rest.append(condition_of(condition, both))
            continue
        pairs.append(pair)
        strict.append(isinstance(_inside(condition), exp.EQ))  # IS NOT DISTINCT FROM has NULL match NULL
        compared.append(unify(pair, [compile_scalar(pair[0], left.scope), compile_scalar(pair[1], right.scope)], condition))
    kinds = [one.kind for one, _ in compared]
    lefts = keys_of([one.function for one, _ in compared], [one for one, _ in pairs], kinds, strict, left.scope)
    rights = keys_of([other.function for _, other in compared], [other for _, other in pairs], kinds, strict, right.scope)
    return Match(lefts, rights, tuple(rest))


def _inside(condition: exp.Expr) -> exp.Expr:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    return condition


def _sides(condition: exp.Expr, left: Relation, right: Relation) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the sides of an equality that are of ``left`` and of ``right``, or ``None`` for other conditions."""
    condition = _inside(condition)
    if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return None
    one, other = condition.this, condition.expression
    for first, second in ((one, other), (other, one)):
        if _belongs(first, left) and _belongs(second, right):
            return first, second
    return None


def _belongs(node: exp.Expr, relation: Relation) -> bool:
    tables = columns_in(node)
    return bool(tables) and tables <= relation.tables and not has_query(node)


def matches(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` followed by those of ``right``, for all that match."""
    one, other = keyed(left.collection, match.left), keyed(right.collection, match.right)
    return filtered(one._join(other, BESIDE, "join", None), match.rest)


def matched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match any of ``right``, each as often as it is there."""
    if match.rest:
        width = len(left.columns)
        keys = pruned(matches(left, right, match), range(width)).distinct()
        return left.collection.map(lambda row: (row, None)).semijoin(keys).map(lambda pair: pair[0])
    keys = only_keys(right.collection, match.right).distinct()
    return unkeyed(keyed(left.collection, match.left).semijoin(keys))


def unmatched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match none of ``right``."""
    return minus(left.collection, matched(left, right, match))


def mirrored(left: Relation, right: Relation, conditions: Sequence[exp.Expr]) -> Collection[Any, Row]:
    """Return the rows of ``right`` that match none of ``left``."""
    return unmatched(right, left, match_of(right, left, conditions))


def join(left: Relation, right: Relation, conditions: Sequence[exp.Expr], how: str) -> Relation:
    """Return the join of two relations: ``how`` is inner, left, right, full, semi or anti."""
    match = match_of(left, right, conditions)
    if how == "semi":
        return left.with_collection(matched(left, right, match))
    if how == "anti":
        return left.with_collection(unmatched(left, right, match))
    rows = matches(left, right, match)
    if how in ("left", "full"):
        rows = rows.concat(padded(unmatched(left, right, match), [column.kind for column in right.columns], after=True))
    if how in ("right", "full"):
        rows = rows.concat(padded(mirrored(left, right, conditions), [column.kind for column in left.columns], after=False))
    if how in ("left", "full"):
        right = _optional(right)
    if how in ("right", "full"):
        left = _optional(left)
    return beside(left, right, rows)


def _optional(relation: Relation) -> Relation:
    return attrs.evolve(relation, columns=tuple(attrs.evolve(column, nullable=True) for column in relation.columns))
