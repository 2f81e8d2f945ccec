"""What a recursive step may be: linear in its own table, so that a loop has the limit that SQL computes by sets of rows."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from timely.differential.tables.expressions.bound import Membership, Subquery, parts_in
from timely.differential.tables.names.dialect import nodes_in
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import QueryPlan, TableScan, plans_in
from timely.differential.tables.values.kinds import lower_case


def reads_table(query: exp.Expr, table: str) -> bool:
    """Return whether a table of this name stands in a query."""
    return any(isinstance(node, exp.Table) and lower_case(node.name) == table for node in nodes_in(query))


def check_step(step: QueryPlan, loop: str, name: str, distinct: bool) -> None:
    """Refuse a step that is not linear in the rows of ``loop``, which a query calls ``name``, or sees them more than once."""
    reads = [node for node in plans_in(step) if isinstance(node, TableScan) and node.table == loop]
    if len(reads) > 1:
        raise refusal(reads[1].at, f"{name} stands more than once in its own step")
    if not reads:  # tables of the step hide it
        return
    plan, read = step, reads[0]
    while plan is not read:  # down the way to the rows of the loop
        for part in parts_in(plan.expressions):
            if isinstance(part, Subquery) and _has(part.plan, read):
                raise refusal(read.at, f"recursion through {_what(part)} is not supported")
        inner, *others = [inner for inner in plan.inputs if _has(inner, read)]
        why = "recursion through a WITH of the step needs it to be read once, not 2 times" if others else ""
        if why := why or _fault(plan, inner, distinct):
            raise refusal(read.at, why)
        plan = inner


def _has(plan: QueryPlan, read: TableScan) -> bool:
    return any(node is read for node in plans_in(plan))


def _what(query: Subquery) -> str:
    if not isinstance(query, Membership):
        return "a scalar subquery"
    return "ALL" if query.negated else "EXISTS" if not query.asked else "IN" if isinstance(query.at, exp.In) else "ANY"


def _fault(plan: Any, inner: QueryPlan, distinct: bool) -> str:
    """Return why a node is not linear in one of its inputs, or nothing."""
    if isinstance(plan, nodes.GroupRows):
        return "aggregation through recursion is not stratified"
    if isinstance(plan, nodes.Windows):
        return "window functions through recursion are not supported"
    if isinstance(plan, nodes.TopK):
        return f"{'DISTINCT ON' if plan.by else 'LIMIT'} through recursion is not supported"
    if isinstance(plan, nodes.DistinctRows) and not distinct:
        return "recursion by UNION ALL through DISTINCT is not supported"
    if isinstance(plan, nodes.SetOperation) and plan.operation != "union":
        return f"recursion through {plan.operation.upper()} is not supported"
    if isinstance(plan, nodes.SetOperation) and plan.distinct and not distinct:
        return "recursion by UNION ALL through UNION is not supported"
    if isinstance(plan, nodes.Fixpoint) and inner is plan.step:
        return f"recursion through the step of {plan.name.partition(chr(0))[0]} is not linear: read it in the first part"
    if isinstance(plan, nodes.AsOf | nodes.Mark) and inner is plan.right:
        how = "ASOF" if isinstance(plan, nodes.AsOf) else "ANTI" if plan.negated else "SEMI"
        return f"recursion through the optional side of a {how} JOIN is not monotone"
    if isinstance(plan, nodes.JoinRows):
        optional = {"left": plan.right, "full": inner, "right": plan.left}
        if optional.get(plan.how) is inner:
            return f"recursion through the optional side of a {plan.how.upper()} JOIN is not monotone"
    return ""
