"""Which columns of the rows around it a subquery reads, and what its tree says about its rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, count
from typing import Any

from sqlglot import exp

from timely.differential.tables.expressions.join_order import columns_in, conjuncts, unwrapped
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.names.clauses import joined_in, joins_within
from timely.differential.tables.operators.groups import aggregates_in
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import refusal


def has_query(node: exp.Expr) -> bool:
    """Return whether an expression has a subquery."""
    return node.find(exp.Query) is not None


def query_in(node: exp.Expr) -> exp.Query:
    """Return the query of a subquery."""
    found = unwrapped(node)
    if not isinstance(found, exp.Query):
        raise refusal(node, "this is not a query")
    return found


def tables_of(query: exp.Expr) -> set[str]:
    """Return the names that tables and subqueries have inside a query."""
    found = query.find_all(exp.Table, exp.Subquery, exp.Values, exp.Lateral, exp.Unnest)
    return {item.alias_or_name for item in found if item is not query}


def outer_columns(query: exp.Expr, relation: Relation) -> list[exp.Expr]:
    """Return the columns of ``relation`` that a query reads, each once."""
    inner = tables_of(query)
    found: dict[exp.Expr, None] = {}
    for column in query.find_all(exp.Column):
        if column.table in relation.tables and column.table not in inner:
            found[column] = None
    return list(found)


def outer_conditions(query: exp.Expr, relation: Relation) -> list[exp.Expr]:
    """Return the conditions in a query's ``WHERE`` that read columns of ``relation``."""
    where = list(conjuncts(query.args.get("where"))) if isinstance(query, exp.Select) else []
    inner = tables_of(query)
    return [part for part in where if columns_in(part) & relation.tables - inner]


def is_plain(query: exp.Expr, relation: Relation, *, aggregates: bool = False) -> bool:
    """Return whether a query only selects rows, or ``aggregates`` of them all, and reads ``relation`` in ``WHERE`` alone."""
    if not isinstance(query, exp.Select) or bool(aggregates_in(query.expressions)) is not aggregates:
        return False
    parts = {name for name, value in query.args.items() if value not in (None, False, [])}
    allowed = {"expressions", "from_", "joins", "where", "with_"}
    if any(output.find(exp.Query, exp.Window, exp.Explode) for output in query.expressions):
        return False
    if not aggregates and (query.args.get("distinct") is None or query.args["distinct"].args.get("on") is None):
        allowed |= {"distinct", "order"}
    outside = query.copy()
    outside.set("where", None)
    conditions = outer_conditions(query, relation)
    return parts <= allowed and not outer_columns(outside, relation) and not any(map(has_query, conditions))


def equal_to_outer(query: exp.Expr, relation: Relation) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """Return what equals what, of the query and of ``relation``, where no other condition correlates them; else ``None``."""
    found = []
    for condition in outer_conditions(query, relation):
        if not isinstance(condition, exp.EQ):
            return None
        sides = [(condition.this, condition.expression), (condition.expression, condition.this)]
        pair = next((pair for pair in sides if columns_in(pair[0]) and not columns_in(pair[0]) & relation.tables), None)
        if pair is None or not columns_in(pair[1]) <= relation.tables:
            return None
        found.append(pair)
    return found or None


def rows_at_most(query: exp.Expr) -> tuple[int, float]:
    """Return how many rows a query has at least, and at most."""
    if not isinstance(query, exp.Select) or any(output.find(exp.Explode) for output in query.expressions):
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


# -- names ---------------------------------------------------------------------------------------------------------


def keep_order_names(node: exp.Expr) -> None:
    """Put a query that orders by its own names into another, where its columns are renamed: sqlglot would rename them inside."""
    alias = node.args.get("alias")
    if not isinstance(node, exp.CTE | exp.Subquery) or not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
        return
    query = node.this
    loops = isinstance(node, exp.CTE) and node.parent is not None and node.parent.args.get("recursive")
    recursive = loops and any(table.name == alias.name for table in query.find_all(exp.Table))
    if isinstance(query, exp.Query) and query.find(exp.Order, exp.Qualify, exp.Having) and not recursive:
        node.set("this", exp.select("*").from_(query.subquery("renamed")))


def restore_all(node: exp.Expr) -> None:
    """Make ``ALL`` of a set operation what it is: sqlglot reads ``ALL ((...) UNION (...))`` as a function."""
    if isinstance(node, exp.Anonymous) and node.name.upper() == "ALL" and len(node.expressions) == 1:
        query = node.expressions[0]
        if isinstance(query, exp.Query):
            node.replace(exp.All(this=exp.Subquery(this=query.copy())))


def name_outputs(select: exp.Select) -> None:
    """Give outputs without an alias their text as a name, as DuckDB does: ``sum(price)``.

    Subqueries have theirs by an alias too: sqlglot fails on ``ORDER BY`` of their numbers.
    """
    used = {lower_case(output.output_name) for output in select.expressions}
    for output in select.expressions:
        name = output.output_name
        if isinstance(output, exp.Subquery):
            output.set("alias", None)
        elif name or output.is_star:
            continue
        name = name or _unused(lower_case(output.sql(dialect="duckdb", comments=False)), used)
        used.add(name)
        output.replace(exp.Alias(this=output.copy(), alias=exp.to_identifier(name)))


def _unused(name: str, used: set[str]) -> str:
    return next(new for number in count() if (new := f"{name}_{number}" if number else name) not in used)


def with_unique_tables(tree: exp.Query) -> exp.Query:
    """Return a qualified query where no table inside has the name of one in a query around it."""
    found = tree.copy()
    _rename(found, {})
    return found


def _rename(node: exp.Expr, names: Mapping[str, str]) -> None:
    """Rename the tables of the queries in ``node`` that have one of ``names``, and the columns that are of them."""
    if isinstance(node, exp.Column):
        if node.table in names:
            node.set("table", exp.to_identifier(names[node.table]))
    elif isinstance(node, exp.Select):
        own = dict(names)
        clause = node.args.get("from_")
        items = [] if clause is None else [clause.this, *(join.this for join in node.args.get("joins") or [])]
        nested = [join for item in items for join in joins_within(item)]
        for item in chain(items, (join.this for join in nested)):
            while (inner := joined_in(item)) is not None:
                item = inner
            if isinstance(item, exp.Subquery):
                _rename(item.this, names)
            elif not isinstance(item, exp.Table):
                _rename_inside(item, own if isinstance(item, exp.Lateral | exp.Unnest) else names)
            alias = item.args.get("alias")
            if not isinstance(alias, exp.TableAlias) or alias.this is None:
                continue
            name = new = alias.name
            while new in own.values():
                new += "_"
            own[name] = new
            alias.set("this", exp.to_identifier(new))
        part: Any
        for part in node.iter_expressions():
            if isinstance(part, exp.With):
                _rename_inside(part, names)
            elif part is not clause and not isinstance(part, exp.Join):
                _rename(part, own)
        for join in (*(node.args.get("joins") or []), *nested):
            for child in join.iter_expressions():
                if child is not join.this:
                    _rename(child, own)
    else:
        _rename_inside(node, names)


def _rename_inside(node: exp.Expr, names: Mapping[str, str]) -> None:
    for part in node.iter_expressions():
        _rename(part, names)
