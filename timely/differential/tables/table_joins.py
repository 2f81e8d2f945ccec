"""Joins of relations: keys that are equal, other conditions, and rows without a match.

``NULL`` is equal to nothing, so rows whose key has one match none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.tables.relation import Relation, beside
from timely.differential.tables.scalar_compiler import Function, NameScope, Row, compile_condition, compile_scalar, unify


@attrs.frozen
class Match:
    """How rows of two relations match: functions of their keys, and the rest of the condition, of both rows."""

    left: tuple[Function, ...]
    right: tuple[Function, ...]
    rest: tuple[Function, ...]
    strict: tuple[int, ...]
    """Which parts of a key match nothing where they are ``NULL``: those of ``=``, and not of ``IS NOT DISTINCT FROM``."""


def columns_in(node: exp.Expr) -> set[str]:
    """Return the names of the tables whose columns an expression has."""
    return {column.table for column in node.find_all(exp.Column)}


def match_of(left: Relation, right: Relation, conditions: Sequence[exp.Expr]) -> Match:
    """Return how the rows of two relations match when all ``conditions`` are to be true."""
    both = NameScope((*left.columns, *right.columns), beside(left, right, left.collection).places)
    lefts: list[Function] = []
    rights: list[Function] = []
    rest: list[Function] = []
    strict: list[int] = []
    for condition in conditions:
        pair = _sides(condition, left, right)
        if pair is None:
            rest.append(compile_condition(condition, both))
            continue
        if isinstance(_inside(condition), exp.EQ):
            strict.append(len(lefts))
        one, other = pair
        found = unify([one, other], [compile_scalar(one, left.scope), compile_scalar(other, right.scope)], condition)
        lefts.append(found[0].function)
        rights.append(found[1].function)
    return Match(tuple(lefts), tuple(rights), tuple(rest), tuple(strict))


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
    return bool(tables) and tables <= relation.tables and node.find(exp.Query) is None


def _keyed(rows: Collection[Any, Row], functions: tuple[Function, ...], strict: tuple[int, ...]) -> Collection[Any, Any]:
    if not functions:
        return rows.map(lambda row: ((), row), name="key")
    everywhere = len(strict) == len(functions)

    def keyed(row: Row) -> Any:
        key = tuple(function(row) for function in functions)
        if None in key and (everywhere or any(key[place] is None for place in strict)):
            return ()
        return ((key, row),)

    return rows.flat_map(keyed, name="key")


def filtered(rows: Collection[Any, Row], conditions: Sequence[Function]) -> Collection[Any, Row]:
    """Return the rows for which all conditions are true."""
    for condition in conditions:
        rows = rows.filter(condition, name="where")
    return rows


def matches(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` followed by those of ``right``, for all that match."""
    one, other = _keyed(left.collection, match.left, match.strict), _keyed(right.collection, match.right, match.strict)
    return filtered(one.join_map(other, lambda key, row, more: row + more, name="join"), match.rest)


def matched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match any of ``right``, each as often as it is there."""
    if match.rest:
        width = len(left.columns)
        keys = matches(left, right, match).map(lambda row: row[:width]).distinct()
        return left.collection.map(lambda row: (row, None)).semijoin(keys).map(lambda pair: pair[0])
    keys = _keyed(right.collection, match.right, match.strict).map(lambda pair: pair[0]).distinct()
    return _keyed(left.collection, match.left, match.strict).semijoin(keys).map(lambda pair: pair[1])


def unmatched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match none of ``right``."""
    return left.collection.minus(matched(left, right, match))


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
        missing = (None,) * len(right.columns)
        rows = rows.concat(unmatched(left, right, match).map(lambda row: row + missing))
    if how in ("right", "full"):
        none = (None,) * len(left.columns)
        rows = rows.concat(mirrored(left, right, conditions).map(lambda row: none + row))
    if how in ("left", "full"):
        right = _optional(right)
    if how in ("right", "full"):
        left = _optional(left)
    return beside(left, right, rows)


def _optional(relation: Relation) -> Relation:
    return attrs.evolve(relation, columns=tuple(attrs.evolve(column, nullable=True) for column in relation.columns))
