"""``EXISTS`` and ``IN``: for which rows of a relation a row of another matches, and for which that is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from timely.differential.collections import Collection
from timely.differential.tables.expressions.bound import Call, Expr, Ref
from timely.differential.tables.expressions.calls import call
from timely.differential.tables.expressions.column_stages import condition_of, filtered, minus
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, compile_scalar
from timely.differential.tables.operators.table_joins import match_of, matched
from timely.differential.tables.values.kinds import Column, Kind


def marked(
    relation: Relation, other: Relation, conditions: Sequence[Expr], equal: Sequence[Expr], *, negated: bool, mark: Ref | None
) -> Relation:
    """Return the rows for which one of ``other`` meets the ``conditions``, and has all that is to be ``equal``; or the others.

    With a ``mark``, all rows, and a column that says whether that is so, or unknown.
    """
    true, unknown = _true_and_unknown(relation, other, conditions, equal)
    false = reduce(minus, (true, *unknown), relation.collection)
    if mark is None:
        return relation.with_collection(false if negated else true)
    rows = true.map(lambda row: (*row, not negated)).concat(false.map(lambda row: (*row, negated)))
    rows = rows.concat(*(part.map(lambda row: (*row, None)) for part in unknown))
    return relation.extended(rows, [Column("mark", Kind.BOOLEAN, bool(unknown))], [mark.id])


def _true_and_unknown(
    relation: Relation, other: Relation, conditions: Sequence[Expr], equal: Sequence[Expr]
) -> tuple[Collection[Any, Row], list[Collection[Any, Row]]]:
    true = matched(relation, other, match_of(relation, other, [*conditions, *equal]))
    pairs = [part.arguments for part in equal if isinstance(part, Call)]
    nullable = [
        compile_scalar(asked, relation.scope).nullable or compile_scalar(offered, other.scope).nullable
        for asked, offered in pairs
    ]
    if not any(nullable):
        return true, []
    # unknown: no row is equal, and one would be but for nulls
    rest = relation.with_collection(relation.collection.minus(true))
    if len(nullable) > 1:
        perhaps = [
            call("or", [call("or", [same, call("is null", [pair[0]])]), call("is null", [pair[1]])]) if absent else same
            for same, pair, absent in zip(equal, pairs, nullable)
        ]
        return true, [matched(rest, other, match_of(relation, other, [*conditions, *perhaps]))]
    match = match_of(relation, other, conditions)
    asked_null, offered_null = (call("is null", [side]) for side in pairs[0])
    to_null = matched(rest, _where(other, offered_null), match)
    left = rest.with_collection(rest.collection.minus(to_null))
    return true, [to_null, matched(_where(left, asked_null), other, match)]


def _where(relation: Relation, condition: Expr) -> Relation:
    return relation.with_collection(filtered(relation.collection, [condition_of(condition, relation.scope)]))
