"""Set operations: rows of two queries, brought to the same kinds and combined, as bags or as sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.values.kinds import Column, Kind, common, conversion
from timely.differential.tables.values.refusals import refusal


def as_kinds(relation: Relation, columns: Sequence[Column], node: exp.Expr, exact: bool = False) -> Collection[Any, Row]:
    """Return the rows with values of the kinds of ``columns``."""
    if len(relation.columns) != len(columns):
        raise refusal(node, f"it has {len(relation.columns)} columns, and the other side has {len(columns)}")
    conversions: list[Callable[[Any], Any] | None] = []
    for column, target in zip(relation.columns, columns):
        convert = conversion(column.kind, target.kind)
        wider = common(column.kind, target.kind)
        fits = not exact or column.kind is Kind.NULL or (wider is target.kind and column.kind.base is wider.base)
        if convert is None or not fits:
            raise refusal(node, f"column {column.name!r} is {column.kind.value} here and {target.kind.value} there: cast one")
        conversions.append(None if column.kind in (target.kind, Kind.NULL) else convert)
    if not any(conversions):
        return relation.collection
    return relation.collection.map(
        lambda row: tuple(
            value if convert is None or value is None else convert(value) for value, convert in zip(row, conversions)
        )
    )


def merged(left: Relation, right: Relation, node: exp.Expr) -> tuple[Column, ...]:
    """Return the columns that the rows of both sides fit in."""
    if len(left.columns) != len(right.columns):
        raise refusal(node, f"one side has {len(left.columns)} columns, the other {len(right.columns)}")
    columns = []
    for one, other in zip(left.columns, right.columns):
        kind = common(one.kind, other.kind)
        if kind is None:
            raise refusal(node, f"column {one.name!r} is {one.kind.value} and {other.kind.value}: cast one")
        columns.append(Column(one.name, kind, one.nullable or other.nullable))
    return tuple(columns)


def combined(node: exp.Expr, one: Collection[Any, Any], other: Collection[Any, Any]) -> Collection[Any, Any]:
    """Return the union, difference or intersection of rows, as bags or as sets."""
    distinct = bool(node.args.get("distinct"))
    if isinstance(node, exp.Union):
        rows = one.concat(other)
        return rows.distinct() if distinct else rows
    if distinct:
        left = one.distinct().map(lambda row: (row, None))
        keys = other.distinct()
        chosen = left.semijoin(keys) if isinstance(node, exp.Intersect) else left.antijoin(keys)
        return chosen.map(lambda pair: pair[0])
    more = one.minus(other).threshold(_count)
    return more if isinstance(node, exp.Except) else one.minus(more)


def _count(row: Row, count: int) -> int:
    return count
