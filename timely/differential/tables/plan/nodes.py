"""Plans: what a query computes, as records that are equal by value. Each column has a number of its own.

A plan that reads columns of no input of its own stands in a subquery: ``free`` are those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import attrs

from timely.differential.tables.expressions.bound import (
    Expr,
    NamedExpr,
    Ref,
    SortKey,
    Subquery,
    expressions_of,
    ids_in,
    parts_in,
    with_expressions,
)
from timely.differential.tables.operators.grouping_sets import Grouping, Places
from timely.differential.tables.operators.recent_rows import HorizonUse
from timely.differential.tables.values.kinds import Kind


@attrs.frozen
class QueryPlan:
    """A node of a plan."""

    _computed: ClassVar[tuple[str, ...]] = ()
    """The fields with expressions over its inputs."""

    @property
    def inputs(self) -> tuple[QueryPlan, ...]:
        """The plans whose rows it reads."""
        parts = (getattr(self, name, ()) for name in _INPUTS)
        return tuple(inner for part in parts for inner in (part if isinstance(part, tuple) else (part,)) if inner is not None)

    @property
    def columns(self) -> tuple[Ref, ...]:
        """The columns of its rows: those of its inputs, where it adds none."""
        return tuple(ref for inner in self.inputs for ref in inner.columns)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that it computes of its inputs."""
        return expressions_of(self, self._computed)

    def with_expressions(self, expressions: Sequence[Expr]) -> Any:
        """Return the node with other expressions."""
        return with_expressions(self, self._computed, expressions)


_INPUTS: Final = ("input", "left", "right", "domain", "bodies", "sources")


@attrs.frozen
class TableScan(QueryPlan):
    """The rows of a table, or in the step of a recursive query, those so far; all of its columns have numbers."""

    table: str
    columns: tuple[Ref, ...]
    at: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ConstantRows(QueryPlan):
    """Rows of constants."""

    rows: tuple[tuple[Expr, ...], ...]
    columns: tuple[Ref, ...]


ONE_ROW: Final = ConstantRows(((),), ())
"""The row of a query without ``FROM``."""


@attrs.frozen
class FilterRows(QueryPlan):
    """The rows for which all conditions are true."""

    input: QueryPlan
    conditions: tuple[Expr, ...]
    _computed = ("conditions",)


@attrs.frozen
class Project(QueryPlan):
    """Other columns, computed of those of the input."""

    input: QueryPlan
    outputs: tuple[NamedExpr, ...]
    _computed = ("outputs",)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(part.ref for part in self.outputs)


@attrs.frozen
class DistinctRows(QueryPlan):
    """Each row once."""

    input: QueryPlan


@attrs.frozen
class TopK(QueryPlan):
    """The first rows of an order for each value of ``by``, after some of them; rows that tie go by their ``width`` columns."""

    input: QueryPlan
    by: tuple[Ref, ...]
    order: tuple[SortKey, ...]
    width: int
    skip: int = 0
    take: int | None = None
    _computed = ("by", "order")


@attrs.frozen
class GroupRows(QueryPlan):
    """Groups, for each of some ``sets`` of the keys. Those of a domain are for each of its rows, whose columns are ``outer``."""

    input: QueryPlan
    keys: tuple[NamedExpr, ...]
    sets: tuple[Places, ...]
    aggregates: tuple[NamedExpr, ...]
    groupings: tuple[Grouping, ...] = ()
    outer: tuple[Ref, ...] = ()
    domain: QueryPlan | None = None
    _computed = ("outer", "keys", "aggregates")

    @property
    def columns(self) -> tuple[Ref, ...]:
        marks = (Ref(Kind.INTEGER, grouping.id) for grouping in self.groupings)
        return (*self.outer, *(part.ref for part in (*self.keys, *self.aggregates)), *marks)


@attrs.frozen
class Windows(QueryPlan):
    """The rows with window functions; if ``most`` is a number, only the first so many of each partition are asked for."""

    input: QueryPlan
    calls: tuple[NamedExpr, ...]
    most: int | None = None
    _computed = ("calls",)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return (*self.input.columns, *(part.ref for part in self.calls))


@attrs.frozen
class Unnest(QueryPlan):
    """Each row beside the elements of lists, and their numbers if there is a column more than lists."""

    input: QueryPlan
    lists: tuple[Expr, ...]
    elements: tuple[Ref, ...]
    optional: bool = False
    _computed = ("lists",)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return (*self.input.columns, *self.elements)


@attrs.frozen
class Single(QueryPlan):
    """The rows, of which one at most has each value of the first ``width`` columns; ``error`` says that there are more."""

    input: QueryPlan
    width: int
    error: str = attrs.field(eq=False)


@attrs.frozen
class JoinRows(QueryPlan):
    """A join: ``how`` is inner, left, right or full. The right side may read columns of the left one."""

    left: QueryPlan
    right: QueryPlan
    how: str
    conditions: tuple[Expr, ...] = ()
    at: Any = attrs.field(default=None, eq=False, repr=False)
    _computed = ("conditions",)


@attrs.frozen
class AsOf(QueryPlan):
    """An as-of join: ``conditions`` are equalities, and the sides of ``nearest`` are of the left and the right row.

    ``optional`` keeps rows without a match.
    """

    left: QueryPlan
    right: QueryPlan
    conditions: tuple[Expr, ...]
    nearest: tuple[Expr, Expr]
    comparison: str
    optional: bool = False
    _computed = ("conditions", "nearest")


@attrs.frozen
class Mark(QueryPlan):
    """The rows of the left side for which a row of the right one meets the conditions and is equal, or those for which none does.

    With a ``mark``, all rows, and a column that says so; it is ``None`` where a comparison with ``None`` decides.
    """

    left: QueryPlan
    right: QueryPlan
    conditions: tuple[Expr, ...]
    equal: tuple[Expr, ...] = ()
    negated: bool = False
    mark: Ref | None = None
    _computed = ("conditions", "equal")

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns if self.mark is None else (*self.left.columns, self.mark)


@attrs.frozen
class Now(Expr):
    """The moment in the one row of the table ``now``."""


@attrs.frozen
class ByHorizon(QueryPlan):
    """What a use makes of the rows of the left side, whose ``moment`` is ahead of a horizon or is not.

    The horizon is the bound of the row of ``now``, the one source. Without a ``clock`` it is the least of the bounds of sources
    whose greatest rows so far count. A moment at the horizon is not ahead of it if this is ``inclusive``.
    """

    left: QueryPlan
    sources: tuple[QueryPlan, ...]
    moment: Expr
    bounds: tuple[Expr, ...]
    use: HorizonUse
    clock: bool = False
    inclusive: bool = False
    _computed = ("moment", "bounds")

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns


@attrs.frozen
class SetOperation(QueryPlan):
    """A ``union``, ``except`` or ``intersect``, as bags or as sets."""

    left: QueryPlan
    right: QueryPlan
    operation: str
    distinct: bool
    columns: tuple[Ref, ...]


@attrs.frozen
class Fixpoint(QueryPlan):
    """The limit of ``x = f(x)`` from nothing: of ``bodies``, which read each other as tables of these names.

    In a round each reads those before it as they are, and itself and those behind it as the last round left them. A loop that
    still changes after so many ``rounds`` is an error, or if it ``returns``, ends as it is.
    """

    names: tuple[str, ...]
    bodies: tuple[QueryPlan, ...]
    labels: tuple[str, ...] = attrs.field(eq=False)
    """Of the names, for errors."""
    rounds: int
    returns: bool


@attrs.frozen
class LoopRows(QueryPlan):
    """The rows of one of the bodies of a loop."""

    input: Fixpoint
    place: int
    columns: tuple[Ref, ...]


def ids(plan: QueryPlan) -> set[int]:
    return {ref.id for ref in plan.columns}


def filtered(plan: QueryPlan, conditions: Sequence[Expr]) -> QueryPlan:
    """Return the rows of a plan for which conditions are true."""
    return FilterRows(plan, tuple(conditions)) if conditions else plan


def with_inputs(plan: QueryPlan, change: Callable[[QueryPlan], QueryPlan]) -> QueryPlan:
    """Return a node of what ``change`` makes of its inputs."""
    made = [change(inner) for inner in plan.inputs]
    if all(one is other for one, other in zip(plan.inputs, made)):
        return plan
    left, parts = iter(made), {name: getattr(plan, name, None) for name in _INPUTS}
    changed = {
        name: tuple(next(left) for _ in part) if isinstance(part, tuple) else next(left)
        for name, part in parts.items()
        if part is not None
    }
    return attrs.evolve(plan, **changed)


def plans_in(plan: QueryPlan) -> list[QueryPlan]:
    """Return a plan and all that it reads, each once, those of subqueries too."""
    plans, seen = [plan], {id(plan)}
    for node in plans:
        for inner in (*node.inputs, *(part.plan for part in parts_in(node.expressions) if isinstance(part, Subquery))):
            if id(inner) not in seen:
                seen.add(id(inner))
                plans.append(inner)
    return plans


def free(plan: QueryPlan) -> set[int]:
    """Return the columns that a plan reads of the rows around it."""
    plans = plans_in(plan)
    read: set[int] = set()
    made: set[int] = set()
    for node in plans:
        read |= ids_in(*node.expressions)
        made.update(ref.id for ref in node.columns)
    return read - made


def least_and_most_rows(plan: QueryPlan) -> tuple[int, float]:
    """Return how many rows a plan has at least, and at most."""
    known: dict[int, tuple[int, float]] = {}  # of plans that are read twice

    def bounds(inner: QueryPlan) -> tuple[int, float]:
        if id(inner) not in known:
            known[id(inner)] = _least_and_most(inner, bounds)
        return known[id(inner)]

    return bounds(plan)


def _least_and_most(plan: QueryPlan, bounds: Callable[[QueryPlan], tuple[int, float]]) -> tuple[int, float]:
    if isinstance(plan, Project):
        return bounds(plan.input)
    if isinstance(plan, ConstantRows):
        return len(plan.rows), len(plan.rows)
    if isinstance(plan, GroupRows) and plan.sets == ((),) and plan.domain is None:
        return 1, 1
    if isinstance(plan, FilterRows | DistinctRows | Windows):
        least, most = bounds(plan.input)
        return (0 if isinstance(plan, FilterRows) else min(least, 1) if isinstance(plan, DistinctRows) else least), most
    if isinstance(plan, JoinRows) and plan.how == "inner":
        (least, most), (fewest, greatest) = map(bounds, (plan.left, plan.right))
        return (0 if plan.conditions else least * fewest), most and greatest and most * greatest
    if isinstance(plan, TopK):
        least, most = bounds(plan.input)
        limit = float("inf") if plan.take is None or plan.by else plan.take
        return (least if plan.take is None and not plan.skip else 0), min(most, limit)
    return 0, float("inf")
