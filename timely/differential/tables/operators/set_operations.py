"""Set operations: rows of two queries, brought to the same kinds and combined, as bags or as sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timely.differential.collections import Collection
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.values.kinds import Kind, common, conversion
from timely.errors import SqlError


def check_kinds(kinds: Sequence[Kind], others: Sequence[Kind], names: Sequence[str]) -> None:
    """Refuse columns of ``kinds`` where ``others`` are expected, or numbers of another kind."""
    if len(kinds) != len(others):
        raise SqlError(f"it has {len(kinds)} columns, and the other side has {len(others)}")
    for kind, other, name in zip(kinds, others, names):
        wider = common(kind, other)
        fits = kind is Kind.NULL or (wider is other and kind.base is wider.base)
        if conversion(kind, other) is None or not fits:
            raise SqlError(f"column {name!r} is {kind.value} here and {other.value} there: cast one")


def merged(left: Sequence[Kind], right: Sequence[Kind], names: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds that the rows of both sides fit in."""
    if len(left) != len(right):
        raise SqlError(f"one side has {len(left)} columns, the other {len(right)}")
    kinds = []
    for one, other, name in zip(left, right, names):
        kind = common(one, other)
        if kind is None:
            raise SqlError(f"column {name!r} is {one.value} and {other.value}: cast one")
        kinds.append(kind)
    return tuple(kinds)


def combined(operation: str, distinct: bool, one: Collection[Any, Any], other: Collection[Any, Any]) -> Collection[Any, Any]:
    """Return the ``union``, ``except`` or ``intersect`` of rows, as bags or as sets."""
    if operation == "union":
        rows = one.concat(other)
        return rows.distinct() if distinct else rows
    if distinct:
        left = one.distinct().map(lambda row: (row, None))
        keys = other.distinct()
        chosen = left.semijoin(keys) if operation == "intersect" else left.antijoin(keys)
        return chosen.map(lambda pair: pair[0])
    more = one.minus(other).threshold(_count)
    return more if operation == "except" else one.minus(more)


def _count(row: Row, count: int) -> int:
    return count
