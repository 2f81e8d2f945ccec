"""Joins of relations: keys that are equal, other conditions, and rows without a match.

``NULL`` is equal to nothing, so rows whose key has one match none.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import attrs

from timely.differential.collections import Collection
from timely.differential.operators.half_joins import Lookup, path
from timely.differential.operators.join_results import JoinResult
from timely.differential.tables.expressions.bound import Call, Expr, NamedExpr, Ref, has_query, ids_in
from timely.differential.tables.expressions.calls import call
from timely.differential.tables.expressions.column_stages import (
    Keys,
    Predicate,
    columns_of,
    condition_of,
    filtered,
    keyed,
    keys_of,
    minus,
    mixed_keys,
    only_keys,
    padded,
    pruned,
    unkeyed,
)
from timely.differential.tables.expressions.relation import Relation, beside
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.groups import grouped
from timely.differential.tables.values.kinds import Kind
from timely.differential.updates.row_columns import Columns, RowColumns


@attrs.frozen
class Match:
    """How rows of two relations match: their keys, what these are made of, and the rest of the condition, of both rows.

    ``mixed`` are numbers that rows with equal keys have too, and the whole condition.
    """

    left: Keys
    right: Keys
    lefts: tuple[Expr, ...]
    rights: tuple[Expr, ...]
    strict: tuple[bool, ...]
    """Whether ``NULL`` matches nothing."""
    rest: tuple[Predicate, ...]
    mixed: tuple[Keys, Keys, tuple[Predicate, ...]] | None = None


def _collect_beside(results: list[Any], key: Any, left: Row, right: Row, diff: int) -> None:
    results.append((left + right, diff))


def _beside_columns(keys: Any, left: Columns, right: Columns, diff: int) -> RowColumns:
    return RowColumns((*left, *right), len(keys), diff)


def _beside(left: Relation, right: Relation) -> JoinResult:
    return JoinResult(_collect_beside, None, _beside_columns, (columns_of(left.columns), columns_of(right.columns)))


def match_of(left: Relation, right: Relation, conditions: Sequence[Expr]) -> Match:
    """Return how the rows of two relations match when all ``conditions`` are to be true."""
    both = beside(left, right, left.collection).scope
    lefts, rights, strict, rest = list[Expr](), list[Expr](), list[bool](), list[Predicate]()
    for condition in conditions:
        sides = sides_of(condition, left.ids, right.ids, EQUALITIES)
        if sides is None:
            rest.append(condition_of(condition, both))
            continue
        assert sides[0].kind is sides[1].kind, condition  # else their numbers would not go together
        lefts.append(sides[0])
        rights.append(sides[1])
        strict.append(sides[2] == "=")  # IS NOT DISTINCT FROM has NULL match NULL
    mixed = None
    if len(lefts) > 1 and all(strict) and not (len(lefts) == 2 and all(part.kind is Kind.INTEGER for part in lefts)):
        one, other = mixed_keys(lefts, left.scope), mixed_keys(rights, right.scope)
        if one is not None and other is not None:
            mixed = one, other, tuple(condition_of(condition, both) for condition in conditions)
    keys = keys_of(lefts, strict, left.scope), keys_of(rights, strict, right.scope)
    return Match(*keys, tuple(lefts), tuple(rights), tuple(strict), tuple(rest), mixed)


def _arranged(relation: Relation, keys: Keys, parts: Sequence[Expr], strict: Sequence[bool]) -> Collection[Any, Any]:
    """Return pairs of the key of a row and the row, arranged: once for keys of the same columns of a collection."""
    rows, places = relation.collection, relation.scope.places
    columns = [places[part.id] for part in parts if isinstance(part, Ref)]
    same = keys.name, tuple(columns), tuple(strict)
    arranged = rows.arranged.get(same)
    if arranged is None:
        arranged = keyed(rows, keys).arrange_by_key()
        if len(columns) == len(parts):
            rows.arranged[same] = arranged
    return Collection(arranged.stream, arranged.index.ring, arrangement=arranged)


EQUALITIES: Final = ("=", "is not distinct from")


def sides_of(
    condition: Expr, left: abc.Collection[int], right: abc.Collection[int], names: Sequence[str]
) -> tuple[Expr, Expr, str] | None:
    """Return the sides of a comparison that read columns of ``left`` and of ``right``, and its name with them in this order.

    ``None`` for conditions of other ``names``, or of other columns.
    """
    if not isinstance(condition, Call) or condition.name not in names:
        return None
    one, other = condition.arguments
    if _belongs(one, left) and _belongs(other, right):
        return one, other, condition.name
    if _belongs(other, left) and _belongs(one, right):
        return other, one, MIRRORED.get(condition.name, condition.name)
    return None


MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
"""Comparisons as they are with the sides exchanged."""


def _belongs(expression: Expr, columns: abc.Collection[int]) -> bool:
    ids = ids_in(expression)
    return bool(ids) and ids.issubset(columns) and not has_query(expression)


def matches(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` followed by those of ``right``, for all that match."""
    left_keys, right_keys, rest = match.mixed or (match.left, match.right, match.rest)
    one, other = _arranged(left, left_keys, match.lefts, match.strict), _arranged(right, right_keys, match.rights, match.strict)
    return filtered(one._join(other, _beside(left, right), "join", None), rest)


def matched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match any of ``right``, each as often as it is there."""
    if match.rest:
        width = len(left.columns)
        keys = pruned(matches(left, right, match), range(width)).distinct()
        return left.collection.map(lambda row: (row, None)).semijoin(keys).map(lambda pair: pair[0])
    if match.mixed is not None:
        parts = [NamedExpr(-1 - place, part) for place, part in enumerate(match.rights)]
        different = grouped(right, parts, ())
        equal = [call("=", [one, part.ref]) for one, part in zip(match.lefts, parts, strict=True)]
        return pruned(matches(left, different, match_of(left, different, equal)), range(len(left.columns)))
    keys = only_keys(right.collection, match.right).distinct()
    return unkeyed(_arranged(left, match.left, match.lefts, match.strict).semijoin(keys))


def unmatched(left: Relation, right: Relation, match: Match) -> Collection[Any, Row]:
    """Return the rows of ``left`` that match none of ``right``."""
    return minus(left.collection, matched(left, right, match))


def join(left: Relation, right: Relation, conditions: Sequence[Expr], how: str) -> Relation:
    """Return the join of two relations: ``how`` is inner, left, right or full."""
    match = match_of(left, right, conditions)
    rows = matches(left, right, match)
    if how in ("left", "full"):
        rows = rows.concat(padded(unmatched(left, right, match), [column.kind for column in right.columns], after=True))
    if how in ("right", "full"):
        others = unmatched(right, left, match_of(right, left, conditions))
        rows = rows.concat(padded(others, [column.kind for column in left.columns], after=False))
    if how in ("left", "full"):
        right = right.optional()
    if how in ("right", "full"):
        left = left.optional()
    return beside(left, right, rows)


def by_half_joins(items: Sequence[Relation], conditions: Sequence[Expr]) -> Relation | None:
    """Return inner joins of one table with itself in a cycle by half joins, which arrange that table and no pairs of its rows.

    ``None`` for others. Where tables differ, or conditions leave few rows of one, pairs are fewer to arrange than the rows that
    half joins arrange by each key: those keep 5 times as much of TPC-H's queries 5, 8 and 9, and take 4 times as long to load.
    """
    linked = [
        (one, other)
        for other, item in enumerate(items)
        for one in range(other)
        if any(sides_of(condition, items[one].ids, item.ids, EQUALITIES) for condition in conditions)
    ]
    orders = [_order(linked, first) for first in range(len(items))]
    alike = len({id(item.collection) for item in items}) == 1
    if not alike or len(linked) < len(items) or any(len(order) < len(items) for order in orders):
        return None
    whole = reduce(lambda one, other: beside(one, other, one.collection), items)
    paths = []
    for first, *others in orders:
        rows, left = items[first], list(conditions)
        for place in others:
            item = items[place]
            both = {*rows.ids, *item.ids}
            match = match_of(rows, item, [condition for condition in left if ids_in(condition) <= both])
            left = [condition for condition in left if not ids_in(condition) <= both]
            keys, of_item, rest = match.mixed or (match.left, match.right, match.rest)
            arranged = _arranged(item, of_item, match.rights, match.strict).arrange_by_key()
            changes = keyed(rows.collection, keys)
            (stream,) = path(changes.stream, None, [Lookup(arranged, _beside(rows, item), place > first)], "join")
            rows = beside(rows, item, filtered(Collection(stream), rest))
        paths.append(pruned(rows.collection, [rows.ids.index(number) for number in whole.ids]))
    return whole.with_collection(paths[0].concat(*paths[1:]))


def _order(linked: Sequence[tuple[int, int]], first: int) -> list[int]:
    """Return the items that links lead to from the first one; those that come after it in a join are the earlier ones."""
    order = [first]
    while True:
        next_to = {one for pair in linked for one, other in (pair, pair[::-1]) if other in order} - {*order}
        if not next_to:
            return order
        order.append(min(next_to, key=lambda place: (place < first, place)))
