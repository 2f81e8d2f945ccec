"""Which columns of the rows around it a subquery reads, and what its tree says about its rows."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from timely.differential.tables.expressions.join_order import columns_in, conjuncts, unwrapped
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.tree_nodes import columns_of, has_node, has_query
from timely.differential.tables.operators.groups import aggregates_in
from timely.differential.tables.values.refusals import refusal


def query_in(node: exp.Expr) -> exp.Query:
    """Return the query of a subquery."""
    query = unwrapped(node)
    if not isinstance(query, exp.Query):
        raise refusal(node, "this is not a query")
    return query


def outer_columns(query: exp.Expr, relation: Relation) -> list[exp.Expr]:
    """Return the columns of ``relation`` that a query reads, each once."""
    return list(dict.fromkeys(column for column in columns_of(query) if column.table in relation.tables))


def outer_conditions(query: exp.Expr, relation: Relation) -> list[exp.Expr]:
    """Return the conditions in a query's ``WHERE`` that read columns of ``relation``."""
    where = list(conjuncts(query.args.get("where"))) if isinstance(query, exp.Select) else []
    return [part for part in where if columns_in(part) & relation.tables]


def is_plain(query: exp.Expr, relation: Relation, *, aggregates: bool = False) -> bool:
    """Return whether a query only selects rows, or ``aggregates`` of them all, and reads ``relation`` in ``WHERE`` alone."""
    if not isinstance(query, exp.Select) or bool(aggregates_in(query.expressions)) is not aggregates:
        return False
    parts = {name for name, value in query.args.items() if value not in (None, False, [])}
    allowed = {"expressions", "from_", "joins", "where", "with_"}
    if any(has_node(output, exp.Query, exp.Window, exp.Explode) for output in query.expressions):
        return False
    if not aggregates and (query.args.get("distinct") is None or query.args["distinct"].args.get("on") is None):
        allowed |= {"distinct", "order"}
    elsewhere = [part for part in query.iter_expressions() if not isinstance(part, exp.Where)]
    if not parts <= allowed or any(columns_in(part) & relation.tables for part in elsewhere):
        return False
    return not any(map(has_query, outer_conditions(query, relation)))


def equal_to_outer(query: exp.Expr, relation: Relation) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """Return what equals what, of the query and of ``relation``, where no other condition correlates them; else ``None``."""
    pairs = []
    for condition in outer_conditions(query, relation):
        if not isinstance(condition, exp.EQ):
            return None
        sides = [(condition.this, condition.expression), (condition.expression, condition.this)]
        pair = next((pair for pair in sides if columns_in(pair[0]) and not columns_in(pair[0]) & relation.tables), None)
        if pair is None or not columns_in(pair[1]) <= relation.tables:
            return None
        pairs.append(pair)
    return pairs or None


def rows_at_most(query: exp.Expr) -> tuple[int, float]:
    """Return how many rows a query has at least, and at most."""
    if not isinstance(query, exp.Select) or any(has_node(output, exp.Explode) for output in query.expressions):
        return 0, float("inf")
    limit: Any = query.args.get("limit")
    most = float("inf")
    if limit is not None and isinstance(limit.expression, exp.Literal) and str(limit.expression.this).isdigit():
        most = int(str(limit.expression.this))
    clauses = [query.args.get(name) for name in ("having", "qualify", "limit", "offset")]
    if query.args.get("group") is None and aggregates_in([*query.expressions, *filter(None, clauses[:2])]):
        return (0, 1) if any(clauses) else (1, 1)
    if query.args.get("from_") is None and not query.args.get("where") and not any(clauses):
        return 1, 1
    return 0, most
