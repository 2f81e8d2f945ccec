"""Clauses of a parsed query, before any is changed: each part of the tree is one that is translated, and stands at its place.

sqlglot accepts more than SQL has, and its rules drop what they do not know. So whatever is not read here is refused first.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.expressions.tree_nodes import nodes_in
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import only, refusal, stands_before, written
from timely.differential.tables.values.written_calls import bare

_SET_OPERATION: Final = ("this", "expression", "distinct", "order", "limit", "offset", "with_")

READ: Final[dict[Any, tuple[str, ...]]] = {
    exp.Select: (
        *("expressions", "from_", "joins", "where", "group", "having", "windows", "qualify"),
        *("order", "limit", "offset", "distinct", "with_"),
    ),
    exp.Union: (*_SET_OPERATION, "by_name"),
    exp.Except: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Subquery: ("this", "alias", "with_", "joins"),
    exp.With: ("expressions", "recursive"),
    exp.CTE: ("this", "alias", "materialized"),
    exp.From: ("this",),
    exp.Join: ("this", "side", "kind", "method", "on", "using"),
    exp.Lateral: ("this", "alias"),
    exp.Table: ("this", "alias", "joins"),
    exp.TableAlias: ("this", "columns"),
    exp.Unnest: ("expressions", "alias", "offset"),
    exp.Values: ("expressions", "alias"),
    exp.Where: ("this",),
    exp.Group: ("expressions", "all"),
    exp.Rollup: ("expressions",),
    exp.Cube: ("expressions",),
    exp.GroupingSets: ("expressions",),
    exp.Having: ("this",),
    exp.Qualify: ("this",),
    exp.Order: ("this", "expressions"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("expression",),
    exp.Offset: ("expression",),
    exp.Distinct: ("expressions", "on"),
    exp.Window: ("this", "partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side", "exclude"),
    exp.Filter: ("this", "expression"),
    exp.WithinGroup: ("this", "expression"),
    exp.IgnoreNulls: ("this",),
    exp.RespectNulls: ("this",),
    exp.Alias: ("this", "alias"),
    exp.Star: ("except_", "replace", "rename"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Identifier: ("this", "quoted"),
    exp.Literal: ("this", "is_string"),
    exp.Boolean: ("this",),
    exp.Paren: ("this",),
    exp.Tuple: ("expressions",),
    exp.Not: ("this",),
    exp.Neg: ("this",),
    exp.Anonymous: ("this", "expressions"),
    exp.Explode: ("this",),
    exp.Any: ("this",),
    exp.All: ("this",),
    exp.Exists: ("this",),
    exp.DataTypeParam: ("this",),
}
"""The parts of a query that are read. Other expressions are checked where they are compiled."""

_ORDER: Final = ("from_", "joins", "where", "group", "having", "windows", "qualify", "order")

_NUMBER: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def check_clauses(tree: exp.Expr) -> None:
    """Raise ``SqlError`` for what no query has, or is not kept up to date; move clauses of parentheses to their query."""
    for node in nodes_in(tree):
        if isinstance(node, exp.Subquery):
            _move_inside(node)
        names = READ.get(type(node))
        if names is not None:
            only(node, *names)
        why = _fault(node)
        if why:
            raise refusal(node, why)
        if isinstance(node, exp.Select):
            _check_select(node)
        if isinstance(node, exp.Query):
            _check_places(node)


def _fault(node: exp.Expr) -> str:
    """Return why a node is none that SQL has, or nothing."""
    if isinstance(node, exp.Order) and any(isinstance(part.this, exp.Var) for part in node.expressions):
        return "ORDER BY ALL has no other columns" if len(node.expressions) > 1 else ""
    if isinstance(node, exp.Group) and node.args.get("all") is False:
        return "GROUP BY DISTINCT is not supported: select DISTINCT"
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        joins = node.this.args.get("joins") or []
        return "" if joins and not any(map(_is_comma, joins)) else "parentheses in FROM are around a query or a join"
    if isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Select | exp.Star):
        return "AS gives names to columns only"
    if isinstance(node, exp.Join):
        conditions = sum(node.args.get(name) is not None for name in ("on", "using"))
        conditions += node.kind == "CROSS" or str(node.args.get("method") or "").upper() in ("NATURAL", "POSITIONAL")
        if conditions != 1 and not _is_comma(node):
            return "CROSS and NATURAL joins have no condition" if conditions else "a join needs ON or USING"
    names = node.args.get("except_" if isinstance(node, exp.Star) else "using") or []
    if not all(isinstance(name, exp.Identifier | exp.Column) for name in names):
        return "these are names"
    if isinstance(node, exp.Star) and not all(isinstance(part, exp.Alias) for part in node.args.get("replace") or []):
        return "REPLACE takes a value AS a name"
    if isinstance(node, exp.In) and not node.expressions and node.args.get("query") is None:
        return "IN needs values"
    if isinstance(node, exp.Tuple) and not node.expressions and isinstance(node.parent, exp.In):
        return "these parentheses have no value"
    if isinstance(node, exp.Values):
        widths = {len(row.expressions) if isinstance(row, exp.Tuple) else 1 for row in node.expressions}
        return "its rows have different numbers of columns" if len(widths) > 1 else ""
    if isinstance(node, exp.Literal) and not node.is_string and not _NUMBER.fullmatch(str(node.this)):
        return "this is not a number"
    return ""


def _move_inside(node: exp.Subquery) -> None:
    """Give the query in parentheses the clauses that stand behind them."""
    query = node.this
    while isinstance(query, exp.Subquery):
        _move_inside(query)
        query = query.this
    for name in ("order", "limit", "offset"):
        clause = node.args.get(name)
        if clause is None:
            continue
        if not isinstance(query, exp.Query) or query.args.get("limit") or query.args.get("offset"):
            raise refusal(clause, "these parentheses have a LIMIT already: name them in FROM, and select from that")
        node.set(name, None)
        if name == "order" and query.args.get("order") is not None:
            clause.set("expressions", [*clause.expressions, *query.args["order"].expressions])
        query.set(name, clause)


def _check_select(select: exp.Select) -> None:
    if not select.expressions:
        raise refusal(select, "SELECT needs columns")
    for output in select.expressions:
        value = output.this if isinstance(output, exp.Alias) else output
        if not isinstance(bare(value), exp.Alias):
            value.replace(bare(value))  # in SELECT DISTINCT (a) the brackets mean nothing
    _check_once("window", [window.this for window in select.args.get("windows") or []])
    if select.args.get("from_") is None and select.args.get("joins"):
        raise refusal(select.args["joins"][0], "a join needs FROM before it")
    _join_before_comma(select)


def _join_before_comma(select: exp.Select) -> None:
    """Have the joins behind a comma be of the item behind it, where that matters: sqlglot takes all items before them."""
    groups: list[list[exp.Expr]] = [[]]
    for join in select.args.get("joins") or []:
        if _is_comma(join):
            groups.append([])
        groups[-1].append(join)
    for first, *others in groups[1:]:
        words = {str(join.args.get(name) or "").upper() for join in others for name in ("side", "method")}
        if words & {"RIGHT", "FULL", "NATURAL"}:
            first.this.set("joins", [*(first.this.args.get("joins") or []), *others])
            select.set("joins", [join for join in select.args["joins"] if not any(join is other for other in others)])


def _is_comma(join: exp.Expr) -> bool:
    return not any(join.args.get(name) for name in ("kind", "side", "method", "on", "using"))


def star_of(output: exp.Expr) -> Any:
    """Return the ``*`` that a selected column is, with ``EXCLUDE`` and the like, or ``None``."""
    star = output.this if isinstance(output, exp.Column) else output
    return star if isinstance(star, exp.Star) else None


def last_of_name(select: exp.Expr, name: exp.Expr) -> exp.Expr | None:
    """Return what a name is that is all that is ordered by, where several columns are selected by it; ``None`` for others.

    >>> from sqlglot import parse_one
    >>> select = parse_one("select *, -a as a, b as a, b from t")
    >>> last_of_name(select, exp.column("A")), last_of_name(select, exp.column("b"))
    (Column(
      this=Identifier(this=b, quoted=False)), None)
    """
    if not isinstance(select, exp.Select) or not isinstance(name, exp.Column) or name.table:
        return None
    wanted = lower_case(name.name)
    same = [output for output in select.expressions if output.is_star or lower_case(output.alias_or_name) == wanted]
    aliases = [output for output in same if isinstance(output, exp.Alias)]
    return aliases[-1].this if aliases and len(same) > 1 else None


def joined_in(item: exp.Expr) -> exp.Expr | None:
    """Return what stands in the parentheses of an item of ``FROM`` that are a join, or ``None`` for other items."""
    inner = item.this if isinstance(item, exp.Subquery) else None
    joined = isinstance(inner, exp.Table) or (isinstance(inner, exp.Subquery) and (inner.args.get("joins") or joined_in(inner)))
    return inner if joined else None


def _check_once(what: str, names: list[Any]) -> None:
    """Refuse a name that is given twice, of which only one would be read."""
    seen: set[str] = set()
    for name in filter(None, names):
        if lower_case(name.name) in seen:
            raise refusal(name, f"there are two of this {what} here: rename one")
        seen.add(lower_case(name.name))


def _check_places(query: exp.Query) -> None:
    clause = query.args.get("with_")
    if clause is not None:
        _check_once("WITH", [cte.args["alias"].this for cte in clause.expressions])
    if isinstance(query, exp.SetOperation):
        for side in (query.this, query.expression):
            if not isinstance(side, exp.Query):
                raise refusal(side, "a set operation stands between queries")
            for name in ("order", "limit", "offset"):
                if not isinstance(side, exp.SetOperation | exp.Subquery) and side.args.get(name) is not None:
                    raise refusal(side.args[name], "it belongs behind the set operation, or its query into parentheses")
        return
    clauses = [clause for name in _ORDER for clause in _listed(query.args.get(name))]
    limits = [clause for name in ("limit", "offset") for clause in _listed(query.args.get(name))]
    for before, after in [*pairwise(clauses), *((clause, limit) for clause in clauses[-1:] for limit in limits)]:
        if stands_before(after, before):
            raise refusal(after, f"it belongs behind {written(before)}")


def _listed(value: Any) -> list[exp.Expr]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]
