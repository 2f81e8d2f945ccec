"""Clauses of a parsed query: each stands at its place, where the parser accepts more than SQL has."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.names.reader import listed
from timely.differential.tables.names.refusals import refusal, stands_before, written
from timely.differential.tables.values.kinds import lower_case

_ORDER: Final = ("from_", "joins", "where", "group", "having", "windows", "qualify", "order")

_NUMBER: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def nodes_in(root: exp.Expr) -> list[exp.Expr]:
    """Return the nodes of a tree level by level, in one call: the parser's own generators take several for each node."""
    nodes = [root]
    for node in nodes:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [part for part in value if isinstance(part, exp.Expr)]
    return nodes


def columns_of(node: exp.Expr) -> list[exp.Column]:
    """Return the columns in an expression, also those in its subqueries."""
    return [part for part in nodes_in(node) if isinstance(part, exp.Column)]


def check_clauses(tree: exp.Expr) -> None:
    """Raise ``SqlError`` for what no query has, or what does not stand at its place."""
    for node in nodes_in(tree):
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
        return "" if joins and not any(map(is_comma, joins)) else "parentheses in FROM are around a query or a join"
    if isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Select | exp.Star):
        return "AS gives names to columns only"
    if isinstance(node, exp.Join):
        conditions = sum(node.args.get(name) is not None for name in ("on", "using"))
        conditions += node.kind == "CROSS" or str(node.args.get("method") or "").upper() in ("NATURAL", "POSITIONAL")
        if conditions != 1 and not is_comma(node):
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


def _check_select(select: exp.Select) -> None:
    _check_once("window", [window.this for window in select.args.get("windows") or []])
    if select.args.get("from_") is None and select.args.get("joins"):
        raise refusal(select.args["joins"][0], "a join needs FROM before it")


def is_comma(join: exp.Expr) -> bool:
    """Return whether a join is a comma."""
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
    clauses = [clause for name in _ORDER for clause in listed(query.args.get(name))]
    limits = [clause for name in ("limit", "offset") for clause in listed(query.args.get(name))]
    for before, after in [*pairwise(clauses), *((clause, limit) for clause in clauses[-1:] for limit in limits)]:
        if stands_before(after, before):
            raise refusal(after, f"it belongs behind {written(before)}")
