"""The reader: what an argument of the parser's tree says is read, or refused. Nothing is left out in silence.

Clauses stand at their places, where the parser accepts more than SQL has.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.names.dialect import nodes_in
from timely.differential.tables.names.refusals import has_place, refusal, stands_before, written
from timely.differential.tables.values.kinds import lower_case


def read(node: exp.Expr, *names: str) -> list[Any]:
    """Return arguments of a node, in this order; ``SqlError`` if it has others.

    >>> read(exp.column("a") + 1, "this", "expression")[1].name
    '1'
    >>> read(exp.Limit(expression=exp.Literal.number(1)), "this")
    Traceback (most recent call last):
        ...
    timely.differential.tables.names.refusals.RefusedError: LIMIT 1: a second argument is not supported here
    """
    args = node.args
    for name, value in args.items():
        if name not in names and value is not None and value != []:
            says_nothing = _SAYS_NOTHING.get(type(node), {})
            if name not in says_nothing or says_nothing[name] not in (_ANY, value):
                part = value[0] if isinstance(value, list) else value
                what = _WORDS.get(name) or name.rstrip("_").replace("_", " ").upper()
                what, _, advice = what.partition(": ")
                why = f"{what} is not supported here{advice and ': ' + advice}"
                raise refusal(part if isinstance(part, exp.Expr) and has_place(part) else node, why)
    return [args.get(name) for name in names]


def listed(value: Any) -> list[exp.Expr]:
    """Return the nodes of an argument that may be left out, or be a single node."""
    return value if isinstance(value, list) else [] if value is None else [value]


def identifier(node: exp.Expr) -> str:
    """Return a name as it is written: of a column that stands alone, or of anything else."""
    (name,) = read(node, "this")
    return identifier(name) if isinstance(name, exp.Expr) else str(name)


def name_in(node: exp.Expr) -> str:
    """Return a name as it is compared.

    >>> name_in(exp.column("Id"))
    'id'
    """
    return lower_case(identifier(node))


# -- clauses -----------------------------------------------------------------------------------------------------------

_ORDER: Final = ("from_", "joins", "where", "group", "having", "windows", "qualify", "order")

_NUMBER: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


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
            _check_once("window", [window.this for window in node.args.get("windows") or []])
            if node.args.get("from_") is None and node.args.get("joins"):
                raise refusal(node.args["joins"][0], "a join needs FROM before it")
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
    if isinstance(node, exp.Star):
        renamed = node.args.get("rename") or []
        names = [*names, *(part.this if isinstance(part, exp.Alias) else None for part in renamed)]
    if not all(isinstance(name, exp.Identifier | exp.Column) for name in names):
        return "these are names"
    if isinstance(node, exp.Star) and not all(isinstance(part, exp.Alias) for part in node.args.get("replace") or []):
        return "REPLACE takes a value AS a name"
    if isinstance(node, exp.In) and not node.expressions and node.args.get("query") is None:
        return "IN needs values in parentheses: ('a', 'b')"
    if isinstance(node, exp.Tuple) and not node.expressions and isinstance(node.parent, exp.In):
        return "these parentheses have no value"
    if isinstance(node, exp.Values):
        widths = {len(row.expressions) if isinstance(row, exp.Tuple) else 1 for row in node.expressions}
        return "its rows have different numbers of columns" if len(widths) > 1 else ""
    if isinstance(node, exp.Literal) and not node.is_string and not _NUMBER.fullmatch(str(node.this)):
        return "this is not a number"
    return ""


def is_comma(join: exp.Expr) -> bool:
    """Return whether a join is a comma."""
    return not any(join.args.get(name) for name in ("kind", "side", "method", "on", "using"))


def is_now(node: exp.Expr) -> bool:
    """Return whether a node is ``now()``, or its other name."""
    return isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "now")


def star_of(output: exp.Expr) -> Any:
    """Return the ``*`` that a selected column is, with ``EXCLUDE`` and the like, or ``None``."""
    star = output.this if isinstance(output, exp.Column) else output
    return star if isinstance(star, exp.Star) else None


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


_ANY: Final = object()

_SAYS_NOTHING: Final[dict[Any, dict[str, Any]]] = {
    exp.Array: {"bracket_notation": _ANY, "value_constructor": _ANY},
    exp.ArrayOverlaps: {"null_safe": _ANY},
    exp.Cast: {"_type": _ANY, "safe": _ANY, "requires_string": _ANY},
    exp.TryCast: {"_type": _ANY, "safe": _ANY, "requires_string": _ANY},
    exp.CTE: {"materialized": _ANY},
    exp.DPipe: {"safe": _ANY},
    exp.DataType: {"nested": _ANY},
    exp.Div: {"safe": _ANY, "typed": _ANY},
    exp.Identifier: {"quoted": _ANY},
    exp.Literal: {"is_string": _ANY},
    exp.JSONExtract: {"only_json_types": _ANY},
    exp.JSONExtractScalar: {"only_json_types": _ANY, "scalar_only": _ANY},
    exp.Lateral: {"view": False, "outer": False},
    exp.Unnest: {"offset": False},
    exp.Window: {"over": _ANY},
    **{query: {"emits": _ANY} for query in (exp.Select, exp.Union, exp.Except, exp.Intersect)},
}
"""What the parser notes in each node of a class, with the value that says nothing."""

_WORDS: Final = {
    "db": "a schema: write the name of the table alone",
    "direction": "FETCH: write LIMIT",
    "except_": "EXCLUDE",
    "expression": "a second argument",
    "expressions": "a list",
    "hints": "a hint",
    "joins": "a join",
    "kind": "this kind",
    "locks": "FOR UPDATE",
    "pivots": "PIVOT: write sum(value) FILTER (WHERE name = 'a') for each column",
    "sample": "TABLESAMPLE",
    "spec": "a frame",
    "this": "an argument",
}
