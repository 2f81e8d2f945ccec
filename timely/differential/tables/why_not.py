"""``ViewRows``: where the candidates of a row that a view has not are dropped, and which rows of tables a row can follow from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from timely.differential.collections import Collection
from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, ids_in, substituted
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.names.queries import planned, query_of
from timely.differential.tables.names.refusals import position_of, written
from timely.differential.tables.names.user_functions import NO_FUNCTIONS, Functions
from timely.differential.tables.operators.aggregations import AggregateCall
from timely.differential.tables.operators.window_functions import WindowCall
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.build import build
from timely.differential.tables.plan.candidates import Candidates, Rows, among, candidates, computed, rejects_nulls, unfulfilled
from timely.differential.tables.plan.nodes import QueryPlan, plans_in
from timely.differential.tables.values.kinds import Column
from timely.differential.why_derivations import Derivation, Drop, WhyNot
from timely.errors import ConfigurationError, brief

_FEW: Final = 5
"""Rows that are shown of those that are dropped."""


@attrs.frozen
class ViewRows:
    """What views and tables hold, by name, to be asked why a row is there or not."""

    rows: Mapping[str, Rows]
    columns: Mapping[str, tuple[Column, ...]]
    queries: Mapping[str, str]
    """Of the views, each behind those that it reads."""
    functions: Functions = NO_FUNCTIONS
    _plans: dict[str, QueryPlan] = attrs.field(factory=dict, init=False, repr=False)

    def why_not(self, view: str, values: Mapping[str, Any]) -> WhyNot:
        """Return where the candidates of a row with ``values`` of some columns are dropped."""
        if view not in self.queries:
            raise ConfigurationError(f"why_not is asked of a view, and {view} is none")
        names = [column.name for column in self.columns[view]]
        if not values or any(name not in names for name in values):
            raise ConfigurationError(
                f"why_not of {view} takes values of some of its columns {', '.join(names)}, not {brief(dict(values))}"
            )
        columns = self.plan(view).columns
        conditions = [among(columns[names.index(name)], [value]) for name, value in values.items()]
        drops = sorted(self.drops(view, conditions), key=lambda drop: not drop.rows)
        if not drops:
            raise ConfigurationError(f"why_not: {view} has such a row: {brief(dict(values))}; ask why it is there")
        asked = ", ".join(f"{name} = {brief(value)}" for name, value in values.items())
        return WhyNot(f"with {asked}", tuple(drops))

    def origins(self, view: str, rows: Rows) -> dict[str, dict[Any, int]] | None:
        """Return the rows of tables that rows of a view can follow from, or ``None`` where a loop makes of any row any other."""
        if any(isinstance(node, nodes.LoopRows) for node in plans_in(self.plan(view))):
            return None
        origins: dict[str, dict[Any, int]] = {}
        for table, chosen in self._of(view, rows, alone=True).scans():
            inner = self.origins(table, chosen) if table in self.queries else {table: dict(chosen)}
            if inner is None:
                return None
            for name, each in inner.items():
                origins.setdefault(name, {}).update(each)
        return origins

    def over(self, tables: Mapping[str, Rows]) -> ViewRows:
        """Return the same views over other rows of tables."""
        rows = dict(tables)
        for view in self.queries:
            rows[view] = computed(self.plan(view), rows)
        return attrs.evolve(self, rows=rows)

    def steps(self, view: str, rows: Rows) -> Derivation:
        """Return how the operators of queries make rows of a view."""
        return _Names(self, view, self.plan(view)).step(self._of(view, rows))

    def _of(self, view: str, rows: Rows, *, alone: bool = False) -> Candidates:
        plan = self.plan(view)
        conditions = [among(ref, {row[place] for row in rows}) for place, ref in enumerate(plan.columns)]
        return candidates(plan, conditions, self.rows, alone=alone)

    def program(self, view: str) -> Callable[..., Collection[Any, Row]]:
        """Return the program that makes a view of the tables, by way of others."""

        def program(**tables: Collection[Any, Row]) -> Collection[Any, Row]:
            relations = {name: Relation(rows, self.columns.get(name, ())) for name, rows in tables.items()}
            for name in self.queries:
                plan = self.plan(name)
                rows = build(plan, next(iter(tables.values())).scope, relations).collection
                relations[name] = Relation(rows, self.columns[name])
            return relations[view].collection

        return program

    def plan(self, view: str) -> QueryPlan:
        if view not in self._plans:
            self._plans[view] = planned(query_of(self.queries[view]), self.columns, self.functions).plan
        return self._plans[view]

    def drops(self, view: str, conditions: Sequence[Expr]) -> Iterator[Drop]:
        """Yield where the last candidates are dropped of rows of a view that fulfil conditions; nothing if it has some."""
        plan = self.plan(view)
        chosen = candidates(plan, conditions, self.rows)
        if not chosen.rows:
            yield from _Names(self, view, plan).drops(chosen)
        elif query_of(self.queries[view]).args.get("emits") and chosen.rows.keys().isdisjoint(self.rows[view]):
            rows = tuple(chosen.rows)[:_FEW]
            yield Drop("emit on window close", "the watermark has not passed them", rows, self.columns[view], view)


class _Names:
    """What a query's columns are called."""

    def __init__(self, views: ViewRows, view: str, plan: QueryPlan) -> None:
        self._views, self._view = views, view
        self._made: dict[int, str | Expr] = {}
        self._dropped, self._lossy = set[int](), set[int]()
        self._steps: dict[int, Derivation] = {}
        for node in plans_in(plan):
            table = node.table if isinstance(node, nodes.TableScan) else ""
            for ref, column in zip(node.columns, views.columns.get(table, ())):
                name = column.name if column.name not in self._made.values() else f"{table}.{column.name}"
                self._made[ref.id] = name
            for part in itertools.chain(*(getattr(node, name, ()) for name in ("outputs", "keys", "aggregates", "calls"))):
                if part.value != part.ref:
                    self._made[part.id] = part.value
        for ref, column in zip(plan.columns, views.columns[view]):
            self._made.setdefault(ref.id, column.name)

    # -- texts -----------------------------------------------------------------------------------------------------

    def text(self, expression: Expr) -> str:
        if isinstance(expression, Ref):
            made = self._made.get(expression.id, f"column {expression.id}")
            return made if isinstance(made, str) else self.text(made)
        if expression.at is not None:
            return written(expression.at)
        if isinstance(expression, Literal):
            value = expression.value
            texts = sorted(map(brief, value)) if isinstance(value, frozenset) else [brief(value)]
            return ", ".join(texts[:_FEW]) + (", ..." if len(texts) > _FEW else "")
        if isinstance(expression, AggregateCall | WindowCall):
            return f"{expression.name}({', '.join(map(self.text, expression.inputs))})"
        if not isinstance(expression, Call):
            return type(expression).__name__
        parts = [self.text(part) for part in expression.arguments]
        if expression.name == "in":
            return f"{parts[0]} in ({parts[1]})" if ", " in parts[1] else f"{parts[0]} = {parts[1]}"
        infix = len(parts) == 2 and (not expression.name.isidentifier() or expression.name in ("and", "or"))
        return f" {expression.name} ".join(parts) if infix else f"{expression.name}({', '.join(parts)})"

    def _all(self, conditions: Sequence[Expr]) -> str:
        return " and ".join(map(self.text, conditions)) or "any value"

    def step(self, chosen: Candidates) -> Derivation:
        if id(chosen) not in self._steps:
            self._steps[id(chosen)] = self._step(chosen)
        return self._steps[id(chosen)]

    def _step(self, chosen: Candidates) -> Derivation:
        plan = chosen.plan
        if isinstance(plan, nodes.TableScan) and plan.table in self._views.queries:
            return self._views.steps(plan.table, chosen.rows)
        inputs = tuple(map(self.step, chosen.inputs))
        if isinstance(plan, nodes.Project) and all(isinstance(part, Ref) for part in plan.expressions):
            return inputs[0]
        at = next((f"{written(part.at)}{position_of(part.at)}" for part in plan.expressions if part.at is not None), "")
        return Derivation(_operator(plan), at, tuple(chosen.rows), (), inputs)

    # -- drops -----------------------------------------------------------------------------------------------------

    def drops(self, chosen: Candidates) -> Iterator[Drop]:
        """Yield where the last of candidates are dropped, and what that leads to."""
        if id(chosen) in self._dropped:
            return
        self._dropped.add(id(chosen))
        plan, empty = chosen.plan, [each for each in _needed(chosen) if not each.rows]
        for each in empty:
            yield from self.drops(each)
        if isinstance(plan, nodes.TableScan) and plan.table in self._views.queries:
            own = dict[Expr, Expr](zip(plan.columns, self._views.plan(plan.table).columns))
            yield from self._views.drops(plan.table, [substituted(part, own) for part in chosen.conditions])
        elif len(empty) < max(len(chosen.inputs), 1):
            yield self._drop(chosen)
        for each in chosen.inputs:
            if each.rows:  # which may be others than those that are asked for
                yield from self._lost(each)

    def _lost(self, chosen: Candidates) -> Iterator[Drop]:
        """Yield where some candidates are dropped, though others are not."""
        if id(chosen) in self._lossy:
            return
        self._lossy.add(id(chosen))
        for each in chosen.inputs:
            yield from self._lost(each)
        if isinstance(chosen.plan, nodes.FilterRows):
            lost = {row: count for row, count in chosen.inputs[0].rows.items() if row not in chosen.made}
            if lost:
                yield self._drop(attrs.evolve(chosen, made={}, inputs=(attrs.evolve(chosen.inputs[0], rows=lost),)))

    def _drop(self, chosen: Candidates) -> Drop:
        plan, shown = chosen.plan, next((each for each in chosen.inputs if each.rows), chosen)
        asked: Sequence[Expr] = (
            plan.expressions if isinstance(plan, nodes.JoinRows | nodes.Mark | nodes.AsOf) else chosen.conditions
        )
        operator, reason = _operator(plan), _REASONS.get(type(plan), "no row where {}")
        if isinstance(plan, nodes.FilterRows):
            asked = unfulfilled(plan.conditions, plan.input.columns, next(iter(shown.rows)))[:1]
        elif isinstance(plan, nodes.Mark) and plan.negated:
            reason = "a row is there where {}"
        if chosen.made and plan.inputs and not chosen.rows:
            readable = set[int]().union(*map(nodes.ids, plan.inputs))
            own = [part for part in chosen.conditions if ids_in(part) <= readable]
            alike = {row: 1 for row in chosen.made if not unfulfilled(own, plan.columns, row)}
            reason, shown = f"{reason}, but others", attrs.evolve(chosen, rows=alike or chosen.made)
        place = next((position_of(part.at) for part in asked if part.at is not None), "")
        columns = tuple(Column(self.text(ref), ref.kind) for ref in shown.plan.columns)
        return Drop(operator, reason.format(self._all(asked)) + place, tuple(shown.rows)[:_FEW], columns, self._view)


_REASONS: Final[dict[type[QueryPlan], str]] = {
    nodes.FilterRows: "it is not true that {}",
    nodes.JoinRows: "no pair where {}",
    nodes.AsOf: "no pair where {}",
    nodes.GroupRows: "no group where {}",
    nodes.TopK: "no first row where {}",
    nodes.ByHorizon: "no row at this moment where {}",
    nodes.LoopRows: "no round makes a row where {}",
}

_OPERATORS: Final[dict[type[QueryPlan], str]] = {
    nodes.Project: "select",
    nodes.FilterRows: "filter",
    nodes.ConstantRows: "VALUES",
    nodes.JoinRows: "join",
    nodes.AsOf: "as-of join",
    nodes.Mark: "EXISTS or IN",
    nodes.GroupRows: "group",
    nodes.DistinctRows: "distinct",
    nodes.TopK: "LIMIT",
    nodes.Windows: "window functions",
    nodes.Unnest: "unnest",
    nodes.ByHorizon: "now()",
    nodes.LoopRows: "recursive query",
}


def _operator(plan: QueryPlan) -> str:
    """Return what a query calls a node of its plan."""
    if isinstance(plan, nodes.TableScan):
        return f"table {plan.table.partition(chr(0))[0]}"
    if isinstance(plan, nodes.SetOperation):
        return plan.operation.upper()
    if isinstance(plan, nodes.FilterRows):
        below = plan.input
        while isinstance(below, nodes.Project | nodes.FilterRows):
            below = below.input
        return {nodes.GroupRows: "HAVING", nodes.Windows: "QUALIFY"}.get(type(below), "filter")
    if isinstance(plan, nodes.Windows) and plan.most is not None:
        return "QUALIFY"
    if isinstance(plan, nodes.Mark) and plan.negated:
        return "NOT EXISTS or NOT IN"
    return _OPERATORS.get(type(plan), type(plan).__name__)


def _needed(chosen: Candidates) -> Sequence[Candidates]:
    """Return the candidates of inputs without which there are none."""
    plan = chosen.plan
    if isinstance(plan, nodes.JoinRows) and plan.how != "inner":
        return [
            each
            for side, each in zip(("left", "right"), chosen.inputs)
            if plan.how == side or any(rejects_nulls(part, each.plan.columns) for part in chosen.conditions)
        ]
    if isinstance(plan, nodes.GroupRows) and plan.domain is not None:
        return chosen.inputs[1:]
    left = (
        (isinstance(plan, nodes.Mark) and (plan.negated or plan.mark is not None))
        or (isinstance(plan, nodes.SetOperation) and plan.operation == "except")
        or (isinstance(plan, nodes.AsOf) and plan.optional)
    )
    return chosen.inputs[:1] if left else chosen.inputs
