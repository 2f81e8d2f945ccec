"""Queries of the methods of tables, over a table that is called ``this``, and perhaps one that is called ``other``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from timely.differential.tables.expressions.bound import Expr, SortKey, has_query
from timely.differential.tables.expressions.scalar_compiler import RowScope
from timely.differential.tables.names.aggregate_rules import column_number, sort_key
from timely.differential.tables.names.binder import Binder
from timely.differential.tables.names.dialect import nodes_in
from timely.differential.tables.names.queries import query_of
from timely.differential.tables.names.refusals import naming_the_line, parse, refusal, written
from timely.differential.tables.plan.nodes import Project, TableScan
from timely.differential.tables.values.kinds import Column, lower_case
from timely.errors import SqlError, brief

Expression = str | exp.Expr
"""An expression: a text of SQL, or sqlglot's."""

Names = Sequence[str]


@naming_the_line
def _parsed(expression: Expression) -> exp.Expr:
    """Return an expression as a tree of its own."""
    outputs = _listed(expression, "SELECT ", "expressions")
    if len(outputs) != 1:
        advice = ": give each as an argument of its own" if outputs else ""
        raise SqlError(f"{brief(str(expression))} is not one expression of SQL{advice}")
    tree: exp.Expr = outputs[0].pop()
    return tree


@naming_the_line
def _ordered(expression: Expression) -> list[exp.Expr]:
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


def quoted(name: str) -> str:
    """Return the name of a column as SQL has it, whatever its letters are."""
    return '"{}"'.format(name.replace('"', '""'))


def known_names(operator: str, names: Names, asked: Iterable[str]) -> list[str]:
    """Return the names of columns in lower case; ``SqlError`` for those that are not there."""
    for name in asked:
        if not isinstance(name, str) or lower_case(name) not in names:
            raise SqlError(f"{operator}: there is no column {brief(name)}; there are {', '.join(names)}")
    return [lower_case(name) for name in asked]


@naming_the_line
def _named(names: Names, expression: Expression) -> exp.Expr:
    """Return an expression; a text that is one of the ``names`` is that column, also where it is no identifier of SQL."""
    name = lower_case(expression) if isinstance(expression, str) else ""
    if name not in names or exp.to_identifier(name).quoted is False:
        return _parsed(expression)
    try:
        read = {lower_case(node.name) for node in nodes_in(_parsed(expression)) if isinstance(node, exp.Column)}
    except SqlError:
        read = set()
    if read and read <= {*names}:
        raise SqlError(f"{name} is a column, and an expression of others: write {quoted(name)}, or the expression in parentheses")
    return exp.column(name, "this")


def _orders(names: Names, order: Sequence[Expression]) -> list[exp.Expr]:
    """Return expressions of an order, which may have a direction."""
    texts = [_named(names, part) if isinstance(part, str) and lower_case(part) in names else part for part in order]
    return [part for text in texts for part in _ordered(text)]


def selecting(
    names: Names,
    expressions: Sequence[Expression] | None = None,
    *,
    conditions: Sequence[Expression] = (),
    keys: Sequence[Expression] = (),
    order: Sequence[Expression] = (),
    limit: int | None = None,
    offset: int = 0,
) -> exp.Query:
    """Return the query that selects keys and expressions, or all columns."""
    by = [_named(names, key) for key in keys]
    outputs = [exp.Star()] if expressions is None else [_named(names, part) for part in expressions]
    query = exp.select(*by, *outputs).from_("this").where(*map(_parsed, conditions))
    if by:
        query = query.group_by(*(key.unalias() for key in by))
    if limit is not None:
        query = query.order_by(*_orders(names, order)).limit(limit)
    return query.offset(offset) if offset else query


def replacing(names: Names, expressions: Sequence[Expression], named: Mapping[str, Expression]) -> exp.Query:
    """Return the query that selects all columns, others in the place of those of the same name, and more."""
    parts = [_named(names, part) for part in expressions]
    new: dict[str, exp.Expr] = {}
    for part in [*parts, *(exp.alias_(_named(names, part), name) for name, part in named.items())]:
        name = lower_case(part.alias_or_name)
        if not name or part.is_star:
            raise SqlError(f"{written(part)} of with_columns needs a name: add 'as name'")
        if name in new:
            raise SqlError(f"with_columns makes column {name!r} twice")
        new[name] = part
    selected = [new.pop(name) if name in new else exp.column(name, "this") for name in names]
    return exp.select(*selected, *new.values()).from_("this")


def joining(names: Names, others: Names, on: Expression | Sequence[Expression], how: str) -> exp.Query:
    """Return the query of a join, such as ``semi``: ``on`` a condition, or columns of one name."""
    condition, using = None, list[str]()
    if not isinstance(on, str | exp.Expr):
        using = [str(name) for name in on]
    elif isinstance(condition := _named(names, on), exp.Column):
        using = [condition.name]
    if how.startswith("asof"):
        using = known_names("join", names, using)
        known_names("join", others, using)
    keys = f"using ({', '.join(map(quoted, using))})" if using else "on true"
    query = query_of(f"select {'this.' if how in ('semi', 'anti') else ''}* from this {how} join other {keys}")
    if not using:
        query.args["joins"][0].set("on", condition)
    return query


def values_over(columns: Sequence[Column], expressions: Sequence[Expression]) -> tuple[list[Expr], RowScope]:
    """Return expressions over a table, which is called ``this``, and what they are compiled against."""
    names = [column.name for column in columns]
    return _values_over(columns, [_named(names, part) for part in expressions])


def _values_over(columns: Sequence[Column], trees: Sequence[exp.Expr]) -> tuple[list[Expr], RowScope]:
    binder = Binder({"this": columns})
    query = binder.query(exp.select(*trees).from_("this"), None, binder.tables).plan
    rows = query.input if isinstance(query, Project) else query
    if not isinstance(query, Project) or not isinstance(rows, TableScan) or any(map(has_query, query.expressions)):
        raise SqlError("it is an expression of one row here, without subqueries, aggregates and windows")
    return list(query.expressions), RowScope(tuple(columns), {ref.id: place for place, ref in enumerate(rows.columns)})


def sort_keys_over(columns: Sequence[Column], order: Sequence[Expression]) -> tuple[list[SortKey], RowScope]:
    """Return the parts of an order of a table, of which numbers are its columns."""
    names = [column.name for column in columns]
    orders = _orders(names, order)
    values = [part.this for part in orders]
    for place, value in enumerate(values):
        number = column_number(value)
        if number is not None and number > len(columns):
            raise refusal(value, f"there are only {len(columns)} columns")
        if number is not None:
            values[place] = exp.column(names[number - 1], "this", quoted=True)
    bound, scope = _values_over(columns, values)
    return [sort_key(part, value) for part, value in zip(orders, bound)], scope
