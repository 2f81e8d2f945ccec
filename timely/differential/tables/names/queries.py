"""Texts of SQL: an expression as a tree, and a query as a relation over other relations. The dialect is DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.tables.expressions.bound import Expr, PlacedError, SortKey, has_query
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import RowScope
from timely.differential.tables.names.aggregate_rules import sort_key
from timely.differential.tables.names.binder import Binder
from timely.differential.tables.names.clauses import check_clauses
from timely.differential.tables.names.grouping_rules import column_number
from timely.differential.tables.names.refusals import naming_the_line, parse, position_of, refusal, written
from timely.differential.tables.plan.build import build
from timely.differential.tables.plan.decorrelate import decorrelated
from timely.differential.tables.plan.nodes import Project, TableScan
from timely.differential.tables.plan.push_down import pushed_down
from timely.differential.tables.values.kinds import Column
from timely.errors import SqlError, brief

Expression = str | exp.Expr
"""An expression: a text of SQL, or sqlglot's."""


@naming_the_line
def parsed(expression: Expression) -> exp.Expr:
    """Return an expression as a tree of its own."""
    outputs = _listed(expression, "SELECT ", "expressions")
    if len(outputs) != 1:
        advice = ": give each as an argument of its own" if outputs else ""
        raise SqlError(f"{brief(str(expression))} is not one expression of SQL{advice}")
    tree: exp.Expr = outputs[0].pop()
    return tree


@naming_the_line
def ordered(expression: Expression) -> list[exp.Expr]:
    """Return the parts of an order, each with its direction."""
    orders = _listed(expression, "SELECT * ORDER BY ", "order")
    if not orders:
        raise SqlError(f"{brief(str(expression))} is not an order of SQL")
    return list(orders[0].expressions)


def _listed(expression: Expression, before: str, argument: str) -> list[exp.Expr]:
    """Return what an expression is as an argument of a ``SELECT``, which has nothing else then."""
    text = expression.sql(dialect="duckdb") if isinstance(expression, exp.Expr) else expression  # as a user would write it
    try:
        trees = parse(before + text, begin=len(before))
    except SqlError as error:
        raise SqlError(f"{brief(text)}: {error}") from None
    args = trees[0].args if len(trees) == 1 and isinstance(trees[0], exp.Select) else {}
    if any(value for name, value in args.items() if name not in ("expressions", argument)):
        return []
    value = args.get(argument) or []
    return value if isinstance(value, list) else [value]


def query_of(text: str) -> exp.Query:
    """Return the text of one query as a tree; ``SqlError`` for what is none, with its position.

    >>> query_of("select n fro m x")
    Traceback (most recent call last):
    timely.errors.SqlError: 'm' at line 1, column 14: the query cannot be parsed: Invalid expression / Unexpected token
    """
    tree = statement_of(text)
    if not isinstance(tree, exp.Query):
        raise refusal(tree, f"a view is a query, not {written(tree).split()[0].upper()}")
    return tree


def statement_of(text: str) -> exp.Expr:
    """Return the text of one statement of any kind as a tree."""
    trees = parse(text)
    if not trees:
        raise SqlError("the text at line 1, column 1: it has no query")
    if len(trees) > 1:
        raise refusal(trees[1], f"a view is one query, and here are {len(trees)}")
    return trees[0]


def useless_order(tree: exp.Query) -> str | None:
    """Return where an ``ORDER BY`` stands that decides nothing: neither which rows there are, nor how they are read."""
    order, distinct = tree.args.get("order"), tree.args.get("distinct")
    on = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None  # of a set operation it is a bool
    return None if order is None or tree.args.get("limit") or tree.args.get("offset") or on else position_of(order)


def values_over(columns: Sequence[Column], expressions: Sequence[exp.Expr]) -> tuple[list[Expr], RowScope]:
    """Return expressions over a table, which is called ``this``, and what they are compiled against."""
    binder = Binder({"this": columns})
    query = binder.query(exp.select(*expressions).from_("this"), None, binder.tables).plan
    rows = query.input if isinstance(query, Project) else query
    if not isinstance(query, Project) or not isinstance(rows, TableScan) or any(map(has_query, query.expressions)):
        raise SqlError("it is an expression of one row here, without subqueries, aggregates and windows")
    return list(query.expressions), RowScope(tuple(columns), {ref.id: place for place, ref in enumerate(rows.columns)})


def sort_keys_over(columns: Sequence[Column], orders: Sequence[exp.Expr]) -> tuple[list[SortKey], RowScope]:
    """Return the parts of an order of a table, of which numbers are its columns."""
    values = [part.this for part in orders]
    for place, value in enumerate(values):
        number = column_number(value)
        if number is not None and number > len(columns):
            raise refusal(value, f"there are only {len(columns)} columns")
        if number is not None:
            values[place] = exp.column(columns[number - 1].name, "this", quoted=True)
    bound, scope = values_over(columns, values)
    return [sort_key(part, value) for part, value in zip(orders, bound)], scope


@naming_the_line
def relation_of(scope: ScopeBuilder[Any], tree: exp.Query, tables: Mapping[str, Relation]) -> Relation:
    """Return the rows of a query over ``tables``."""
    check_clauses(tree)
    binder = Binder({name: relation.columns for name, relation in tables.items()})
    try:
        query = binder.query(tree, None, binder.tables)
        plan = pushed_down(decorrelated(query.plan, binder.fresh))
    except PlacedError as error:
        raise refusal(error.at or tree, str(error)) from None
    relation = build(plan, scope, tables)
    columns = tuple(attrs.evolve(column, name=name) for column, name in zip(relation.columns, query.names, strict=True))
    return attrs.evolve(relation, columns=columns)
