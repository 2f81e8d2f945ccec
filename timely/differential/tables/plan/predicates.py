"""Conditions: those that must all be true for others to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from timely.differential.tables.expressions.bound import Call, Expr, has_query, ids_in
from timely.differential.tables.expressions.calls import call


def conjuncts(conditions: Sequence[Expr], owners: Mapping[int, int] | None = None) -> Iterator[Expr]:
    """Yield the conditions that must all be true for some to be, and what follows from their alternatives.

    ``owners`` say of which table each column is: of each, what alternatives say of it alone follows.
    """
    for condition in conditions:
        if _is(condition, "and"):
            yield from conjuncts(condition.parts, owners)
        else:
            if _is(condition, "or") and owners is not None:
                yield from _implied(condition, owners)
            yield condition


def _is(condition: Expr, name: str) -> bool:
    return isinstance(condition, Call) and condition.name == name


def _alternatives(condition: Expr) -> Iterator[Expr]:
    if _is(condition, "or"):
        for part in condition.parts:
            yield from _alternatives(part)
    else:
        yield condition


def _implied(condition: Expr, owners: Mapping[int, int]) -> Iterator[Expr]:
    """Yield the conditions that all alternatives have, and for each table what one of them says of it alone."""
    tables = _tables(condition, owners)
    if len(tables) < 2 or has_query(condition):
        return
    branches = [list(conjuncts([branch], owners)) for branch in _alternatives(condition)]
    common = [part for part in branches[0] if all(part in branch for branch in branches[1:])]
    yield from common
    for table in sorted(tables):
        parts = [[part for part in branch if _tables(part, owners) == {table} and part not in common] for branch in branches]
        if all(parts):
            yield _joined("or", [_joined("and", of_branch) for of_branch in parts])


def _tables(condition: Expr, owners: Mapping[int, int]) -> set[int]:
    return {owners.get(number, -1) for number in ids_in(condition)}


def _joined(name: str, conditions: Sequence[Expr]) -> Expr:
    return reduce(lambda one, other: call(name, [one, other]), conditions)
