"""Temporal filters: rows come and go as ``now()`` advances, which is the moment in a table ``now`` of one row.

A condition compares a moment of each row with ``now()``, or with what never gets less as that advances. A row then waits for one
moment, and what an advance costs is the number of rows whose moment has come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, time, timedelta
from typing import Final

from timely.differential.tables.expressions.bound import Call, Expr, Literal, PlacedError, Ref, parts_in, substituted
from timely.differential.tables.operators.recent_rows import OVERDUE, RECENT
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import ByHorizon, Now, QueryPlan, TableScan, plans_in, with_inputs
from timely.differential.tables.values.kinds import MOMENTS, Kind
from timely.differential.tables.values.moment_functions import truncated

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

_FORM: Final = (
    "now() stands in a condition of its own that compares a column with it, such as at > now() - interval '1 hour':"
    " for its value elsewhere, join the table now"
)

_MONTHS: Final = (
    "a month before now() may go back, as March 30 and March 31 have one end of February: add months to the column,"
    " such as at + interval '1 month' > now(), or to date_trunc('day', now())"
)


def with_temporal_filters(plan: QueryPlan, tables: Collection[str], fresh: Callable[[], int]) -> QueryPlan:
    """Return a plan over tables, without subqueries, in which conditions on ``now()`` are filters of their own."""
    made: dict[int, QueryPlan] = {}

    def filtered(node: QueryPlan) -> QueryPlan:
        if id(node) not in made:
            made[id(node)] = _filtered(with_inputs(node, filtered), tables, fresh)
        return made[id(node)]

    return filtered(plan)


def _filtered(plan: QueryPlan, tables: Collection[str], fresh: Callable[[], int]) -> QueryPlan:
    temporal = [expression for expression in plan.expressions if _clock(expression) is not None]
    if not temporal:
        return plan
    if not isinstance(plan, nodes.FilterRows):
        raise _misplaced(temporal[0])
    rows = nodes.filtered(plan.input, [condition for condition in plan.conditions if condition not in temporal])
    for condition in temporal:
        rows = _by_now(rows, condition, tables, fresh)
    return rows


def _by_now(rows: QueryPlan, condition: Expr, tables: Collection[str], fresh: Callable[[], int]) -> ByHorizon:
    """Return the rows for which a comparison with ``now()`` is true."""
    if not isinstance(condition, Call) or condition.name not in _MIRRORED:
        raise _misplaced(condition)
    moment, bound = condition.arguments
    comparison = condition.name
    if _clock(bound) is None:
        moment, bound, comparison = bound, moment, _MIRRORED[comparison]
    clock = _clock(bound)
    inside = plans_in(rows)
    known = {*tables, *(name for node in inside if isinstance(node, nodes.Fixpoint) for name in node.names)}
    if any(isinstance(node, TableScan) and node.table not in known for node in inside):
        raise _misplaced(
            condition, "now() cannot stand in a step of a recursive query: ask it of the rows before, or of the result"
        )
    rises = clock is not None and rising_part(bound, Now) is clock
    if clock is None or not rises or _clock(moment) is not None or moment.kind not in (*MOMENTS, Kind.INTEGER):
        has_months = any(part.kind is Kind.MONTHS for part in parts_in([bound]))
        raise _misplaced(condition, _MONTHS if has_months else _FORM)
    now = Ref(clock.kind, fresh())
    return ByHorizon(
        rows,
        (TableScan("now", (now,), at=clock.at),),
        moment,
        (substituted(bound, {clock: now}),),
        RECENT if comparison in (">", ">=") else OVERDUE,
        clock=True,
        inclusive=comparison in (">", "<="),
    )


def _clock(expression: Expr) -> Now | None:
    """Return the ``now()`` of an expression."""
    return next((part for part in parts_in([expression]) if isinstance(part, Now)), None)


def rising_part(expression: Expr, of: type[Expr]) -> Expr | None:
    """Return the part of a type that an expression never gets less with, if it is one."""
    if isinstance(expression, of):
        return expression
    if not isinstance(expression, Call) or expression.name not in _RISING:
        return None
    varying = [part for part in expression.arguments if not isinstance(part, Literal) or part.value is None]
    if len(varying) != 1 or (expression.name == "-" and expression.arguments[:-1] != (varying[0],)):
        return None
    if expression.name == "convert" and expression.kind not in (*MOMENTS, Kind.INTEGER):
        return None  # texts of numbers, and times of day, go back
    if expression.name in ("*", "//") and not is_positive(expression.arguments[1]):
        return None
    has_months = expression.name in "+-" and any(part.kind is Kind.MONTHS for part in expression.arguments)
    return rising_part(varying[0], of) if not has_months or _begins_a_day(varying[0]) else None


def is_positive(expression: Expr) -> bool:
    """Return whether an expression is a literal number, or length of time, that is more than nothing."""
    value = expression.value if isinstance(expression, Literal) else None
    return value is not None and value > ((0, timedelta()) if isinstance(value, tuple) else type(value)())


_RISING: Final = ("+", "-", "*", "//", "convert", "date_trunc", "time_bucket")


def _begins_a_day(moment: Expr) -> bool:
    """Return whether an expression is the first moment of a day, so that months after it are never earlier than before."""
    if isinstance(moment, Call) and moment.name == "date_trunc" and isinstance(moment.arguments[0], Literal):
        return truncated(moment.arguments[0].value)(datetime.max).time() == time.min
    return moment.kind is Kind.DATE


def _misplaced(expression: Expr, why: str = _FORM) -> PlacedError:
    clock = _clock(expression)
    return PlacedError(why, None if clock is None else clock.at)
