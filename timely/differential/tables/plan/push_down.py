"""Push-down: each condition is asked as early as it can be, and inner joins stand in an order in which equalities join them.

A limit of row numbers, ``row_number() ... <= k``, means that only the first rows of each partition count. They are kept by a
``top``, where a change costs the logarithm of the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Final

import attrs
from typing_extensions import TypeIs

from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, has_query, ids_in
from timely.differential.tables.expressions.calls import call
from timely.differential.tables.operators.window_partitions import rows_asked
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import QueryPlan, plans_in, with_inputs
from timely.differential.tables.values.kinds import Kind

Limits = Sequence[tuple[int, int]]
"""Columns, and the largest of their values that are asked for."""


def pushed_down(plan: QueryPlan) -> QueryPlan:
    """Return a plan without subqueries, whose conditions stand as far down as they can."""
    return _PushDown(plan).run(plan)


_KeepsLeft = nodes.JoinRows | nodes.AsOf | nodes.Mark | nodes.Unnest


def _keeps_left(plan: QueryPlan) -> TypeIs[_KeepsLeft]:
    """Return whether rows of the plan are rows of its left side, with or without others beside them."""
    return isinstance(plan, nodes.AsOf | nodes.Mark | nodes.Unnest) or (isinstance(plan, nodes.JoinRows) and plan.how == "left")


class _PushDown:
    def __init__(self, plan: QueryPlan) -> None:
        self._readers: Final = Counter(id(inner) for node in plans_in(plan) for inner in node.inputs)
        self._made: Final[dict[int, QueryPlan]] = {}

    def run(self, plan: QueryPlan, limits: Limits = ()) -> QueryPlan:
        """Return a plan after push-down, all of whose rows are read, or those within ``limits``."""
        if self._is_shared(plan):
            limits = ()
        if not limits and id(plan) in self._made:
            return self._made[id(plan)]
        made = self._run(plan, limits)
        if not limits:
            self._made[id(plan)] = made
        return made

    def _is_shared(self, plan: QueryPlan) -> bool:
        return self._readers[id(plan)] > 1

    def _run(self, plan: QueryPlan, limits: Limits) -> QueryPlan:
        if isinstance(plan, nodes.FilterRows):
            return self.filtered(plan.input, plan.conditions, limits)
        if isinstance(plan, nodes.JoinRows) and plan.how == "inner":
            return self.joined(plan, ())
        if isinstance(plan, nodes.Project):
            sources = {part.id: part.value.id for part in plan.outputs if isinstance(part.value, Ref)}
            limits = [(sources[number], limit) for number, limit in limits if number in sources]
            return attrs.evolve(plan, input=self.run(plan.input, limits))
        if isinstance(plan, nodes.JoinRows) and plan.how == "right":
            of_match, both = _split(plan.conditions, nodes.ids(plan.left))
            return nodes.JoinRows(self.filtered(plan.left, of_match), self.run(plan.right), "right", tuple(both))
        if _keeps_left(plan):
            return self.around(plan, ())
        if isinstance(plan, nodes.Windows):
            return attrs.evolve(plan, input=self.run(plan.input), most=rows_asked(plan.calls, limits))
        return with_inputs(plan, self.run)

    def filtered(self, plan: QueryPlan, conditions: Sequence[Expr], limits: Limits = ()) -> QueryPlan:
        """Return the rows of a plan for which conditions are true."""
        limits = [*limits, *(limit for condition in conditions if (limit := _limit(condition)) is not None)]
        if not self._is_shared(plan):
            if isinstance(plan, nodes.FilterRows):
                return self.filtered(plan.input, (*plan.conditions, *conditions), limits)
            if isinstance(plan, nodes.JoinRows) and plan.how == "inner":
                return self.joined(plan, conditions)
            if _keeps_left(plan):
                return self.around(plan, conditions)
        return nodes.filtered(self.run(plan, limits), conditions)

    def around(self, plan: _KeepsLeft, conditions: Sequence[Expr]) -> QueryPlan:
        """Return a join that keeps or drops rows of its left side, after the conditions on these."""
        source = plan.input if isinstance(plan, nodes.Unnest) else plan.left
        early, late = _split(conditions, nodes.ids(source))
        inner = self.filtered(source, early)
        if isinstance(plan, nodes.Unnest):
            return nodes.filtered(attrs.evolve(plan, input=inner), late)
        # what is asked of the right side alone decides which of its rows match
        of_match, both = _split(plan.conditions, nodes.ids(plan.right))
        right = self.filtered(plan.right, of_match)
        return nodes.filtered(attrs.evolve(plan, left=inner, right=right, conditions=tuple(both)), late)

    def joined(self, plan: nodes.JoinRows, conditions: Sequence[Expr]) -> QueryPlan:
        """Return inner joins, each with the conditions that it is the first to have the columns of."""
        items, asked = [], list[Expr]()
        node: QueryPlan = plan
        while isinstance(node, nodes.JoinRows) and node.how == "inner" and (node is plan or not self._is_shared(node)):
            items.append(node.right)
            asked = [*node.conditions, *asked]
            node = node.left
        items.append(node)
        left = [*asked, *conditions]
        first, *others = _by_equalities(items[::-1], left)
        early, left = _split(left, nodes.ids(first))
        rows = self.filtered(first, early)
        for item in others:
            own, left = _split(left, nodes.ids(item))
            other = self.filtered(item, own)
            both, left = _split(left, nodes.ids(rows) | nodes.ids(item))
            rows = nodes.JoinRows(rows, other, "inner", tuple(both))
        return nodes.filtered(rows, left)


def _split(conditions: Sequence[Expr], ids: set[int]) -> tuple[list[Expr], list[Expr]]:
    """Return the conditions that read columns of ``ids`` and no others, and the rest."""
    chosen: list[Expr] = []
    rest: list[Expr] = []
    for condition in conditions:
        read = ids_in(condition)
        (chosen if read and read <= ids else rest).append(condition)
    return chosen, rest


def _by_equalities(items: Sequence[QueryPlan], conditions: Sequence[Expr]) -> list[QueryPlan]:
    """Return items so that each has an equality with one before it, where there is one, and those with conditions come first.

    What a condition leaves few rows of leaves few pairs for the joins that follow.
    """
    if len(items) < 3:
        return list(items)
    first, *left = items
    left.sort(key=lambda item: not _split(conditions, nodes.ids(item))[0])
    ids, order = nodes.ids(first), [first]
    pairs = [
        [ids_in(side) for side in condition.arguments]
        for condition in conditions
        if isinstance(condition, Call) and condition.name == "="
    ]
    while left:
        chosen = next((item for item in left if _connected(nodes.ids(item), ids, pairs)), left[0])
        left = [item for item in left if item is not chosen]
        ids |= nodes.ids(chosen)
        order.append(chosen)
    return order


def _connected(own: set[int], others: set[int], pairs: Sequence[list[set[int]]]) -> bool:
    for one, other in pairs:
        if one and other and ((one <= own and other <= others) or (other <= own and one <= others)):
            return True
    return False


def _limit(condition: Expr) -> tuple[int, int] | None:
    """Return a column and up to which value of it, if it is a whole number from 1 on, a condition is true, or ``None``."""
    if not isinstance(condition, Call) or len(condition.arguments) != 2:
        return None
    one, other = condition.arguments
    upper: Sequence[str] = ("=", "<=", "<")
    if isinstance(one, Literal):
        one, other, upper = other, one, ("=", ">=", ">")
    if (
        condition.name not in upper
        or not isinstance(one, Ref)
        or not isinstance(other, Literal)
        or other.kind is not Kind.INTEGER
        or other.value is None
    ):
        return None
    return one.id, other.value - (condition.name == upper[2])


def conjuncts(conditions: Sequence[Expr], owners: Mapping[int, int] | None = None) -> Iterator[Expr]:
    """Yield the conditions that must all be true for some to be, and what follows from their alternatives.

    ``owners`` say of which table each column is: of each, what alternatives say of it alone follows.
    """
    for condition in _sides("and", conditions):
        if isinstance(condition, Call) and condition.name == "or" and owners is not None:
            yield from _implied(condition, owners)
        yield condition


def _sides(name: str, conditions: Sequence[Expr]) -> Iterator[Expr]:
    for condition in conditions:
        if isinstance(condition, Call) and condition.name == name:
            yield from _sides(name, condition.parts)
        else:
            yield condition


def _implied(condition: Expr, owners: Mapping[int, int]) -> Iterator[Expr]:
    """Yield the conditions that all alternatives have, and for each table what one of them says of it alone."""
    tables = _tables(condition, owners)
    if len(tables) < 2 or has_query(condition):
        return
    branches = [list(conjuncts([branch], owners)) for branch in _sides("or", [condition])]
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
