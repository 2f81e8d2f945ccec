"""Decorrelation: plans in which no subquery is left, nor anything that reads columns of the rows around it.

What reads columns of the rows around it is computed once for all of them. Its *domain* are the distinct values of these columns.
Its rows have a row of the domain in front, and whatever groups, orders or limits them does so for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import singledispatchmethod
from typing import Any, Final

import attrs

from timely.differential.tables.expressions.bound import (
    Call,
    Expr,
    Literal,
    Membership,
    NamedExpr,
    PlacedError,
    Ref,
    ScalarQuery,
    Subquery,
    has_query,
    ids_in,
    parts_in,
    substituted,
)
from timely.differential.tables.expressions.calls import call
from timely.differential.tables.operators.aggregations import AggregateCall
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import ONE_ROW, QueryPlan, free, least_and_most_rows, with_inputs
from timely.differential.tables.values.kinds import Kind


def decorrelated(plan: QueryPlan, fresh: Callable[[], int]) -> QueryPlan:
    """Return a plan without subqueries in its expressions; ``fresh`` makes numbers of new columns."""
    return _Decorrelation(fresh).flat(plan)


class _Decorrelation:
    def __init__(self, fresh: Callable[[], int]) -> None:
        self._fresh: Final = fresh
        self._made: Final[dict[int, tuple[QueryPlan, QueryPlan]]] = {}
        """By the identity of a plan, which is kept with its result: what is read twice stays one."""

    def flat(self, plan: QueryPlan, domain: QueryPlan | None = None) -> QueryPlan:
        """Return the rows of a plan, or with a domain, those for each of its rows, behind that."""
        if domain is None:
            made = self._made.get(id(plan))
            if made is None:
                made = self._made[id(plan)] = plan, self._flat(plan, None)
            return made[1]
        if plan is ONE_ROW:
            return domain
        if not free(plan) & nodes.ids(domain):
            return nodes.JoinRows(domain, self.flat(plan), "inner")
        return self._flat(plan, domain)

    @singledispatchmethod
    def _flat(self, plan: QueryPlan, domain: QueryPlan | None) -> QueryPlan:
        return with_inputs(plan, lambda inner: self.flat(inner, domain))

    @_flat.register
    def _filter(self, plan: nodes.FilterRows, domain: QueryPlan | None) -> QueryPlan:
        plain = [condition for condition in plan.conditions if not has_query(condition)]
        if domain is not None and not free(plan.input) & nodes.ids(domain):
            own = [condition for condition in plain if ids_in(condition) <= nodes.ids(plan.input)]
            others = tuple(condition for condition in plain if condition not in own)
            rows: QueryPlan = nodes.JoinRows(domain, nodes.filtered(self.flat(plan.input), own), "inner", others)
        else:
            rows = nodes.filtered(self.flat(plan.input, domain), plain)
        for condition in plan.conditions:
            if has_query(condition):
                rows = self.condition(rows, condition)
        return rows

    def condition(self, rows: QueryPlan, condition: Expr) -> QueryPlan:
        """Return the rows for which a condition with a subquery is true."""
        inner, negated = condition, False
        while isinstance(inner, Call) and inner.name == "not":
            inner, negated = inner.arguments[0], not negated
        if isinstance(inner, Membership):
            return self.marked(rows, inner, negated is not inner.negated, None)
        wider, (changed,) = self.attached(rows, [condition])
        return nodes.Project(nodes.FilterRows(wider, (changed,)), _same(rows.columns))

    def computed(self, plan: Any, domain: QueryPlan | None) -> Any:
        """Return a node of the rows of its input, to which its subqueries are attached."""
        rows, values = self.attached(self.flat(plan.input, domain), plan.expressions)
        return attrs.evolve(plan.with_expressions(values), input=rows)

    @_flat.register
    def _of_one(self, plan: nodes.DistinctRows | nodes.Unnest, domain: QueryPlan | None) -> QueryPlan:
        rows: QueryPlan = self.computed(plan, domain)
        return rows

    @_flat.register
    def _project(self, plan: nodes.Project, domain: QueryPlan | None) -> QueryPlan:
        rows = self.computed(plan, domain)
        return nodes.Project(rows.input, (*_same(_columns(domain)), *rows.outputs))

    @_flat.register
    def _topk(self, plan: nodes.TopK, domain: QueryPlan | None) -> QueryPlan:
        outer, rows = _columns(domain), self.flat(plan.input, domain)
        return attrs.evolve(plan, input=rows, by=(*outer, *plan.by), width=plan.width + len(outer))

    @_flat.register
    def _groups(self, plan: nodes.GroupRows, domain: QueryPlan | None) -> QueryPlan:
        filled = domain if () in plan.sets else None
        return attrs.evolve(self.computed(plan, domain), outer=_columns(domain), domain=filled)  # type: ignore[no-any-return]

    @_flat.register
    def _windows(self, plan: nodes.Windows, domain: QueryPlan | None) -> QueryPlan:
        rows, outer = self.computed(plan, domain), _columns(domain)
        calls = [
            attrs.evolve(part, value=attrs.evolve(part.value, partition=(*outer, *part.value.partition))) for part in rows.calls
        ]
        return nodes.Windows(rows.input, tuple(calls))

    @_flat.register
    def _join(self, plan: nodes.JoinRows, domain: QueryPlan | None) -> QueryPlan:
        if domain is not None and plan.how in ("right", "full"):
            raise PlacedError("a correlated FROM with a RIGHT or FULL JOIN is not supported", plan.at)
        left = self.flat(plan.left, domain)
        right, same = self.dependent(left, plan.right)
        if same and plan.how not in ("inner", "left"):
            raise PlacedError("a LATERAL subquery stands in an inner or left join", plan.at)
        return nodes.JoinRows(left, right, plan.how, (*same, *plan.conditions))

    @_flat.register
    def _left(self, plan: nodes.AsOf | nodes.Mark, domain: QueryPlan | None) -> QueryPlan:
        left = self.flat(plan.left, domain)
        right, same = self.dependent(left, plan.right)
        return attrs.evolve(plan, left=left, right=right, conditions=(*same, *plan.conditions))

    @_flat.register
    def _set_operation(self, plan: nodes.SetOperation, domain: QueryPlan | None) -> QueryPlan:
        left, right = self.flat(plan.left, domain), self.flat(plan.right, domain)
        return attrs.evolve(plan, left=left, right=right, columns=(*_columns(domain), *plan.columns))

    # -- subqueries ------------------------------------------------------------------------------------------------

    def dependent(self, rows: QueryPlan, plan: QueryPlan) -> tuple[QueryPlan, list[Expr]]:
        """Return a plan for all values of the columns of ``rows`` that it reads, and what matches those."""
        read = free(plan)
        outer = [ref for ref in rows.columns if ref.id in read]
        if not outer:
            return self.flat(plan), []
        domain = nodes.DistinctRows(nodes.Project(rows, _same(outer)))
        inner = self.flat(plan, domain)
        renamed = [NamedExpr(self._fresh(), ref) for ref in outer]
        others = _same(inner.columns[len(outer) :])
        same: list[Expr] = [call("is not distinct from", [ref, part.ref]) for ref, part in zip(outer, renamed)]
        return nodes.Project(inner, (*renamed, *others)), same

    def attached(self, rows: QueryPlan, expressions: Sequence[Expr]) -> tuple[QueryPlan, list[Expr]]:
        """Return the rows with a column more for each subquery in expressions, and the expressions with these columns."""
        values: dict[Expr, Expr] = {}
        for part in parts_in(expressions):
            if isinstance(part, Subquery) and part not in values:
                if isinstance(part, Membership):
                    mark = Ref(Kind.BOOLEAN, self._fresh())
                    rows, values[part] = self.marked(rows, part, part.negated, mark), mark
                elif isinstance(part, ScalarQuery):
                    rows, values[part] = self.scalar(rows, part)
        return rows, [substituted(expression, values) for expression in expressions] if values else list(expressions)

    def marked(self, rows: QueryPlan, query: Membership, negated: bool, mark: Ref | None) -> QueryPlan:
        """Return the rows for which a membership is true or false, or all with a mark."""
        plan, outputs = query.plan, dict[Expr, Expr]()
        while isinstance(plan, nodes.DistinctRows):
            plan = plan.input
        if isinstance(plan, nodes.Project):
            outputs, plan = {part.ref: part.value for part in plan.outputs}, plan.input
        correlated = self._correlated(plan, rows, outputs.values())
        if correlated is None:
            other, same = self.dependent(rows, query.plan)
            return nodes.Mark(rows, other, tuple(same), query.equal, negated, mark)
        other = self.flat(nodes.filtered(plan.input, [part for part in plan.conditions if part not in correlated]))
        equal = tuple(substituted(part, outputs) for part in query.equal)
        return nodes.Mark(rows, other, tuple(correlated), equal, negated, mark)

    def _correlated(self, plan: QueryPlan, rows: QueryPlan, others: Collection[Expr]) -> list[Expr] | None:
        """Return the conditions of a filter by which alone a subquery reads ``rows``; ``None`` if there are none, or more."""
        outer = nodes.ids(rows)
        if not isinstance(plan, nodes.FilterRows) or free(plan.input) & outer:
            return None
        correlated = [condition for condition in plan.conditions if ids_in(condition) & outer]
        if any(map(has_query, (*correlated, *others))) or ids_in(*others) & outer:
            return None
        return correlated or None

    def scalar(self, rows: QueryPlan, query: ScalarQuery) -> tuple[QueryPlan, Ref]:
        """Return the rows with a column that is the value of a scalar subquery: null where it has no row."""
        of_groups = self._of_groups(rows, query.plan)
        if of_groups is not None:
            return of_groups
        least, most = least_and_most_rows(query.plan)
        other, same = self.dependent(rows, query.plan)
        if most > 1:
            other = nodes.Single(other, len(same), query.error)
        joined = nodes.JoinRows(rows, other, "inner" if least == 1 else "left", tuple(same))
        value = NamedExpr(self._fresh(), other.columns[-1])
        return nodes.Project(joined, (*_same(rows.columns), value)), value.ref

    def _of_groups(self, rows: QueryPlan, plan: QueryPlan) -> tuple[QueryPlan, Ref] | None:
        """Return the same for an aggregate of the rows with values that are equal, without a domain: in half the time."""
        groups = plan.input if isinstance(plan, nodes.Project) else plan
        if (
            not isinstance(plan, nodes.Project)
            or not isinstance(groups, nodes.GroupRows)
            or groups.sets != ((),)
            or groups.groupings
        ):
            return None
        correlated = self._correlated(groups.input, rows, [*groups.expressions, *plan.expressions])
        sides = [_side_inside(condition, rows) for condition in correlated or ()]
        inner = [side for side in sides if side is not None]
        if not inner or len(inner) < len(sides):
            return None
        assert isinstance(groups.input, nodes.FilterRows) and correlated is not None
        rest = [part for part in groups.input.conditions if part not in correlated]
        source = self.flat(nodes.filtered(groups.input.input, rest))
        keys = tuple(NamedExpr(self._fresh(), side) for side in inner)
        grouped = nodes.GroupRows(source, keys, (tuple(range(len(keys))),), groups.aggregates)
        value = NamedExpr(self._fresh(), plan.outputs[0].value)
        values = nodes.Project(grouped, (*_same([key.ref for key in keys]), value))
        equal = tuple(substituted(part, {key.value: key.ref}) for part, key in zip(correlated, keys))
        empty: dict[Expr, Expr] = {
            part.ref: Literal(part.value.kind, part.value.empty)
            for part in groups.aggregates
            if isinstance(part.value, AggregateCall)
        }
        there = call("case", [call("is null", [keys[0].ref]), substituted(value.value, empty), value.ref])
        result = NamedExpr(self._fresh(), there)  # a key is never null where it matches
        return nodes.Project(nodes.JoinRows(rows, values, "left", equal), (*_same(rows.columns), result)), result.ref


def _side_inside(condition: Expr, rows: QueryPlan) -> Expr | None:
    """Return the side of an equality that reads no column of ``rows``, where the other reads no others; ``None`` for others."""
    if not isinstance(condition, Call) or condition.name != "=":
        return None
    outer = nodes.ids(rows)
    for one, other in (condition.arguments, condition.arguments[::-1]):
        if ids_in(one) and not ids_in(one) & outer and ids_in(other) <= outer:
            return one
    return None


def _columns(domain: QueryPlan | None) -> tuple[Ref, ...]:
    return () if domain is None else domain.columns


def _same(columns: Sequence[Ref]) -> tuple[NamedExpr, ...]:
    return tuple(NamedExpr(ref.id, ref) for ref in columns)
