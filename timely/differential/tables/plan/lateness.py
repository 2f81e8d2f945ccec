"""Lateness: what no change in time can reach is forgotten, and stays in the results.

A table with a lateness has a watermark, which no change of a later time is below. So has each column that never gets less with
that column. A plan whose rows with a value of such a column depend on rows with that value alone needs no rows below its bound:
they leave it, and what it takes away for that reason is left out of its results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, ids_in, substituted
from timely.differential.tables.operators.recent_rows import CLOSED, FORGOTTEN, IN_TIME, HorizonUse
from timely.differential.tables.operators.window_functions import WindowCall
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import ByHorizon, QueryPlan, TableScan, with_inputs
from timely.differential.tables.plan.temporal import is_positive, rising_part
from timely.errors import SqlError

Bound = tuple[tuple[TableScan, Expr], ...]
"""Watermarks with an expression of each: no change of a later time is below the least of them."""

Bounds = Mapping[Expr, Bound]
"""Of columns."""

_STATELESS = nodes.TableScan | nodes.FilterRows | nodes.Project | nodes.Unnest | nodes.ConstantRows


class LatenessRewriter:
    """Rewrites a plan over tables, some of whose columns, by their places, have watermarks."""

    def __init__(self, watermarks: Mapping[str, Mapping[int, TableScan]]) -> None:
        self._watermarks = watermarks
        self._bounds: dict[int, tuple[QueryPlan, Bounds]] = {}
        self._made: dict[Any, QueryPlan] = {}

    def forgetting(self, plan: QueryPlan) -> QueryPlan:
        """Return a plan of the same rows that forgets what no change can reach."""
        if id(plan) not in self._made:
            reachable = self.bounds(plan) and not _is_stateless(plan)
            self._made[id(plan)] = self._by_horizon(plan, IN_TIME) if reachable else with_inputs(plan, self.forgetting)
        return self._made[id(plan)]

    def closed(self, plan: QueryPlan) -> QueryPlan:
        """Return the rows of a plan that no change can reach any more; ``SqlError`` where there are none."""
        if self.bounds(plan):
            return self._by_horizon(plan, CLOSED)
        if isinstance(plan, nodes.Project | nodes.FilterRows):
            return with_inputs(plan, self.closed)
        raise SqlError(
            "EMIT ON WINDOW CLOSE needs rows that end: group by windows, such as those of tumble, of a column with LATENESS, or"
            " write the query of a served view in WITH"
        )

    def bounds(self, plan: QueryPlan) -> Bounds:
        """Return the columns by whose values the rows of a plan are apart, with what no change of a later time is below."""
        if id(plan) not in self._bounds:
            self._bounds[id(plan)] = plan, self._bounds_of(plan)
        return self._bounds[id(plan)][1]

    def _bounds_of(self, plan: QueryPlan) -> Bounds:
        match plan:
            case nodes.TableScan():
                scans = self._watermarks.get(plan.table, {})
                return {plan.columns[place]: ((scan, scan.columns[0]),) for place, scan in scans.items()}
            case nodes.FilterRows() | nodes.DistinctRows():
                return self.bounds(plan.input)
            case nodes.Project():
                return self._of_values({part.ref: part.value for part in plan.outputs}, plan.input)
            case nodes.Unnest():
                elements = zip(plan.elements, plan.lists) if len(plan.lists) == 1 and not plan.optional else ()  # NULL fills up
                starts = {ref: start for ref, values in elements if (start := _least_of(values)) is not None}
                return {**self.bounds(plan.input), **self._of_values(starts, plan.input)}
            case nodes.GroupRows() if plan.domain is None and not plan.outer:
                places = set(range(len(plan.keys))).intersection(*plan.sets)
                return self._of_values({plan.keys[place].ref: plan.keys[place].value for place in sorted(places)}, plan.input)
            case nodes.TopK() | nodes.Windows():
                groups = [plan.by] if isinstance(plan, nodes.TopK) else [_partition(part.value) for part in plan.calls]
                return {ref: bound for ref, bound in self.bounds(plan.input).items() if all(ref in group for group in groups)}
            case nodes.SetOperation():
                left, right = (self.bounds(side) for side in plan.inputs)
                columns = zip(plan.columns, plan.left.columns, plan.right.columns)
                return {ref: _least(left[one], right[two]) for ref, one, two in columns if one in left and two in right}
            case nodes.JoinRows() if plan.how != "full":
                bounds = {**self.bounds(plan.left), **self.bounds(plan.right)}
                pairs = [pair for pair in _equal_columns(plan) if all(ref in bounds for ref in pair)]
                sides = {"inner": (0, 1), "left": (0,), "right": (1,)}[plan.how]  # the other one may be NULL
                return {pair[side]: _least(*(bounds[ref] for ref in pair)) for pair in pairs for side in sides}
        return {}

    def _of_values(self, values: Mapping[Ref, Expr], plan: QueryPlan) -> Bounds:
        """Return the bounds of expressions over a plan that have some."""
        bounds, made = self.bounds(plan), dict[Expr, Bound]()
        for ref, value in values.items():
            part = rising_part(value, Ref)
            if part is not None and part in bounds:
                made[ref] = tuple((scan, substituted(value, {part: bound})) for scan, bound in bounds[part])
        return made

    def _by_horizon(self, plan: QueryPlan, use: HorizonUse) -> QueryPlan:
        column, bound = next(iter(self.bounds(plan).items()))
        rows = plan if _is_stateless(plan) else self._without(plan, column, bound)
        return _at_horizon(rows, column, bound, use)

    def _without(self, plan: QueryPlan, moment: Expr, bound: Bound) -> QueryPlan:
        """Return a plan that holds no more of the rows whose moment is below a bound."""
        if _is_stateless(plan) or (isinstance(plan, nodes.Unnest) and not ids_in(moment) <= nodes.ids(plan.input)):
            return _at_horizon(with_inputs(plan, self.forgetting), moment, bound, FORGOTTEN)
        key = id(plan), moment, bound
        if key not in self._made:
            inputs = iter([self._without(inner, _moment_in(plan, moment, inner), bound) for inner in plan.inputs])
            self._made[key] = with_inputs(plan, lambda _: next(inputs))
        return self._made[key]


def _moment_in(plan: QueryPlan, moment: Expr, inner: QueryPlan) -> Expr:
    """Return what a moment of the rows of a plan is of the rows of one of its inputs."""
    values: dict[Expr, Expr] = {}
    if isinstance(plan, nodes.Project | nodes.GroupRows):
        parts = plan.outputs if isinstance(plan, nodes.Project) else plan.keys
        values = {part.ref: part.value for part in parts}
    elif isinstance(plan, nodes.SetOperation):
        values = dict(zip(plan.columns, inner.columns))
    elif isinstance(plan, nodes.JoinRows) and not ids_in(moment) <= nodes.ids(inner):
        values = {one: other for pair in _equal_columns(plan) for one, other in (pair, pair[::-1])}
    return substituted(moment, values)


def _at_horizon(plan: QueryPlan, moment: Expr, bound: Bound, use: HorizonUse) -> QueryPlan:
    return ByHorizon(plan, tuple(scan for scan, _ in bound), moment, tuple(value for _, value in bound), use)


def _is_stateless(plan: QueryPlan) -> bool:
    return all(isinstance(node, _STATELESS) for node in nodes.plans_in(plan))


def _least(*bounds: Bound) -> Bound:
    return tuple(dict.fromkeys(part for bound in bounds for part in bound))


def _partition(call: Expr) -> tuple[Expr, ...]:
    assert isinstance(call, WindowCall)
    return call.partition


def _equal_columns(plan: nodes.JoinRows) -> list[tuple[Expr, Expr]]:
    """Return the columns that a join has be equal, that of the left side first."""
    left, pairs = set(plan.left.columns), []
    for condition in plan.conditions:
        if isinstance(condition, Call) and condition.name == "=" and all(isinstance(part, Ref) for part in condition.arguments):
            one, other = condition.arguments
            pairs.append((one, other) if one in left else (other, one))
    return pairs


def _least_of(values: Expr) -> Expr | None:
    """Return the start of a list that counts up."""
    if not isinstance(values, Call) or values.name not in ("generate_series", "range") or len(values.arguments) < 2:
        return None
    start, _, step = (*values.arguments, Literal(values.kind, 1))[:3]
    return start if is_positive(step) else None
