"""Limits of row numbers: ``row_number() ... <= k`` in a condition means that only the first rows of each partition count.

So these are kept by a ``top``, where a change costs the logarithm of the partition.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from timely.differential.tables.expressions.join_order import conjuncts, unwrapped
from timely.differential.tables.expressions.tree_nodes import nodes_in


def is_row_number(node: exp.Expr) -> bool:
    """Return whether a node is a call of ``row_number``."""
    return isinstance(node, exp.AnonymousAggFunc) and node.name == "row_number"


def limit_of(condition: exp.Expr, number: exp.Expr) -> int | None:
    """Return up to which value a condition is true for a number that is a whole one from 1 on, or ``None``."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    one, other = condition.args.get("this"), condition.args.get("expression")
    upper: Any = (exp.EQ, exp.LTE, exp.LT)
    if isinstance(one, exp.Literal):
        one, other, upper = other, one, (exp.EQ, exp.GTE, exp.GT)
    if not isinstance(condition, upper) or one != number or not isinstance(other, exp.Literal) or not str(other.this).isdigit():
        return None
    return int(str(other.this)) - isinstance(condition, exp.LT | exp.GT)


def limit_inside(tree: exp.Query) -> exp.Query:
    """Return a query in which conditions on row numbers of a subquery, or of a ``WITH`` read once, stand inside it too."""
    nodes = nodes_in(tree)
    if not any(is_row_number(node) for node in nodes):
        return tree
    tables = [node.name for node in nodes if isinstance(node, exp.Table)]
    for select in nodes:
        if not isinstance(select, exp.Select):
            continue
        clause = select.args.get("from_")
        if clause is None or select.args.get("where") is None:
            continue
        for item in (clause.this, *(join.this for join in select.args.get("joins") or [])):
            inner = _inner(item, tables)
            if inner is not None:
                _move_limits(list(conjuncts(select.args["where"])), item.alias_or_name, inner)
    return tree


def _inner(item: exp.Expr, tables: list[str]) -> exp.Select | None:
    """Return the query that an item of FROM is, if it is in no other place, and all of its rows are."""
    query: exp.Expr | None = None
    if item.args.get("joins"):
        return None
    if isinstance(item, exp.Subquery):
        query = unwrapped(item)
    elif isinstance(item, exp.Table) and tables.count(item.name) == 1:
        node: exp.Expr | None = item.parent
        while node is not None and query is None:
            clause = node.args.get("with_")
            if clause is not None and not clause.args.get("recursive"):
                query = next((cte.this for cte in clause.expressions if cte.alias == item.name), None)
            node = node.parent
    if not isinstance(query, exp.Select) or query.args.get("limit") or query.args.get("offset"):
        return None
    distinct = query.args.get("distinct")
    return None if distinct is not None and distinct.args.get("on") else query


def _move_limits(conditions: list[exp.Expr], table: str, query: exp.Select) -> None:
    for output in query.selects:
        value = output.unalias()
        if not isinstance(value, exp.Window) or not is_row_number(value.this):
            continue
        for condition in conditions:
            limit = limit_of(condition, exp.column(output.alias_or_name, table))
            if limit is not None:
                inside = exp.LTE(this=value.copy(), expression=exp.Literal.number(limit))
                old = query.args.get("qualify")
                query.set("qualify", exp.Qualify(this=inside if old is None else exp.and_(old.this, inside)))
