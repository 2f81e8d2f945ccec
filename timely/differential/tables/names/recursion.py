"""What a recursive step may be: linear in its own table, so that a loop has the limit that SQL computes by sets of rows."""

from __future__ import annotations

from typing import Any, NoReturn

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
    (read,) = reads
    _Step(read, distinct).check(step)


def _what(query: Subquery) -> str:
    if not isinstance(query, Membership):
        return "a scalar subquery"
    return "ALL" if query.negated else "EXISTS" if not query.asked else "IN" if isinstance(query.at, exp.In) else "ANY"


class _Step:
    def __init__(self, read: TableScan, distinct: bool) -> None:
        self.read = read
        self.distinct = distinct
        self.seen: set[int] = set()

    def has(self, plan: QueryPlan) -> bool:
        return any(node is self.read for node in plans_in(plan))

    def refuse(self, why: str) -> NoReturn:
        raise refusal(self.read.at, why)

    def check(self, plan: QueryPlan) -> None:
        """Check the nodes on the way to the rows of the loop, each of which is read once."""
        if id(plan) in self.seen:
            self.refuse("recursion through a WITH of the step needs it to be read once, not 2 times")
        self.seen.add(id(plan))
        for part in parts_in(plan.expressions):
            if isinstance(part, Subquery) and self.has(part.plan):
                self.refuse(f"recursion through {_what(part)} is not supported")
        inputs = [inner for inner in plan.inputs if self.has(inner)]
        why = self.fault(plan, inputs[0]) if inputs else ""
        if why:
            self.refuse(why)
        for inner in inputs:
            self.check(inner)

    def fault(self, plan: Any, inner: QueryPlan) -> str:
        """Return why a node is not linear in one of its inputs, or nothing."""
        if isinstance(plan, nodes.GroupRows):
            return "aggregation through recursion is not stratified"
        if isinstance(plan, nodes.Windows):
            return "window functions through recursion are not supported"
        if isinstance(plan, nodes.TopK):
            return f"{'DISTINCT ON' if plan.by else 'LIMIT'} through recursion is not supported"
        if isinstance(plan, nodes.DistinctRows) and not self.distinct:
            return "recursion by UNION ALL through DISTINCT is not supported"
        if isinstance(plan, nodes.SetOperation) and plan.operation != "union":
            return f"recursion through {plan.operation.upper()} is not supported"
        if isinstance(plan, nodes.SetOperation) and plan.distinct and not self.distinct:
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
