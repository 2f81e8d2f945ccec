"""Texts of SQL: an expression as a tree, and a query as a relation over other relations. The dialect is DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.tables.expressions.column_stages import pruned
from timely.differential.tables.expressions.join_order import select_less, using_names
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.names.clause_names import replace_repeated_names
from timely.differential.tables.names.clauses import check_clauses
from timely.differential.tables.names.correlation import keep_order_names, name_outputs, restore_all, with_unique_tables
from timely.differential.tables.names.names import qualified
from timely.differential.tables.names.using import expand_stars, mark_using, name_sides
from timely.differential.tables.operators.row_limits import limit_inside
from timely.differential.tables.translation import translate
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import naming_the_line, parse, refusal, written
from timely.errors import SqlError, brief

Expression = str | exp.Expr
"""An expression: a text of SQL, or sqlglot's."""


@naming_the_line
def parsed(expression: Expression) -> exp.Expr:
    """Return an expression as a tree of its own."""
    if isinstance(expression, exp.Expr):
        return expression.copy()
    try:
        found = parse(f"SELECT {expression}", begin=len("SELECT "))
    except SqlError as error:
        raise SqlError(f"{brief(expression)}: {error}") from None
    outputs = [output for select in found for output in select.expressions if isinstance(select, exp.Select)]
    if len(found) != 1 or len(outputs) != 1 or any(value for name, value in found[0].args.items() if name != "expressions"):
        advice = ": give each as an argument of its own" if len(found) == 1 and len(outputs) > 1 else ""
        raise SqlError(f"{brief(expression)} is not one expression of SQL{advice}")
    tree: exp.Expr = outputs[0].pop()
    return tree


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
    for part in reversed(list(tree.walk())):  # what stands inside first, since parts are copied
        keep_order_names(part)
        restore_all(part)
    own = {lower_case(cte.alias) for cte in tree.find_all(exp.CTE)}
    columns = {name: [column.name for column in found.columns] for name, found in tables.items() if name not in own}
    for part in tree.walk():
        if isinstance(part, exp.Select):
            name_outputs(part)
            replace_repeated_names(part)
            mark_using(part)
            expand_stars(part, columns)
        if isinstance(part, exp.Parameter | exp.Placeholder):
            raise refusal(part, "parameters have no values here")
    query = limit_inside(with_unique_tables(qualified(tree, {name: found.columns for name, found in tables.items()})))
    name_sides(query)
    select_less(query)
    read = {column.name for column in query.find_all(exp.Column)}
    for item in query.find_all(exp.Table):
        if item.alias_column_names and item.name in tables:  # its columns have other names there
            read.update(column.name for column in tables[item.name].columns)
    for join in query.find_all(exp.Join):
        if using_names(join) == []:  # a natural join compares all that both sides have
            read.update(column.name for found in tables.values() for column in found.columns)
        read.update(lower_case(name) for name in using_names(join) or [])
    names = {name: _pruned(found, read) for name, found in tables.items()}
    return translate(query, scope, names)


def _pruned(relation: Relation, names: set[str]) -> Relation:
    """Return the columns of a table that a query reads."""
    kept = [place for place, column in enumerate(relation.columns) if column.name in names]
    if len(kept) == len(relation.columns):
        return relation
    return Relation(pruned(relation.collection, kept), tuple(relation.columns[place] for place in kept))
