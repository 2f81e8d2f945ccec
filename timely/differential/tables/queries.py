"""Texts of SQL: an expression as a tree, and a query as a relation over other relations. The dialect is DuckDB's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.tables.expressions.column_stages import pruned
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.names.binder import bind
from timely.differential.tables.names.clauses import check_clauses
from timely.differential.tables.operators.row_limits import limit_inside
from timely.differential.tables.translation import translate
from timely.differential.tables.values.refusals import naming_the_line, parse, refusal, written
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


@naming_the_line
def relation_of(scope: ScopeBuilder[Any], tree: exp.Query, tables: Mapping[str, Relation]) -> Relation:
    """Return the rows of a query over ``tables``; the tree is changed."""
    check_clauses(tree)
    reads = bind(tree, {name: [column.name for column in relation.columns] for name, relation in tables.items()})
    limit_inside(tree)
    return translate(tree, scope, {name: _pruned(tables[name], columns) for name, columns in reads.items()})


def _pruned(relation: Relation, names: Collection[str]) -> Relation:
    """Return the columns of a table that a query reads."""
    places = [place for place, column in enumerate(relation.columns) if column.name in names]
    if len(places) == len(relation.columns):
        return relation
    return Relation(pruned(relation.collection, places), tuple(relation.columns[place] for place in places))
