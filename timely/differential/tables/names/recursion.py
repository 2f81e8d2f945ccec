"""What a recursive step may be: linear in its own table, so that a loop has the limit that SQL computes by sets of rows."""

from __future__ import annotations

from sqlglot import exp

from timely.differential.tables.expressions.tree_nodes import nodes_in
from timely.differential.tables.operators.groups import aggregates_in
from timely.differential.tables.operators.window_functions import windows_in
from timely.differential.tables.values.refusals import name_of, refusal


def references(node: exp.Expr, name: str) -> list[exp.Table]:
    """Return where a query reads the table ``name``."""
    return [part for part in nodes_in(node) if isinstance(part, exp.Table) and part.name == name]


def check_step(step: exp.Expr, name: str, distinct: bool) -> None:
    """Refuse a step that is not linear in the table ``name``, or sees it more than once."""
    table, *more = references(step, name)
    if more:
        raise refusal(more[0], f"{name} stands more than once in its own step")
    node: exp.Expr = table
    while node is not step:
        parent = node.parent
        assert parent is not None
        if isinstance(parent, exp.CTE):
            node = _only_reader(parent, table)
            continue
        if isinstance(parent, exp.Join):
            _check_recursive_join(node, parent, table)
        _check_linear(parent, table, distinct)
        node = parent
    _check_linear(step, table, distinct)


def _only_reader(cte: exp.CTE, table: exp.Expr) -> exp.Expr:
    """Return where a ``WITH`` of the step is read, which goes on with the rows of ``table``: once, and not by its own step."""
    clause = cte.parent
    assert clause is not None and clause.parent is not None
    loops = clause.args.get("recursive") and references(cte.this, cte.alias)
    if loops and _stands_in(table, cte.this.expression):
        raise refusal(table, f"recursion through the step of {cte.alias} is not linear: read it in the first part")
    readers = [other for other in references(clause.parent, cte.alias) if not _stands_in(other, cte)]
    if len(readers) != 1:
        raise refusal(table, f"recursion through {cte.alias} needs it to be read once, not {len(readers)} times")
    return readers[0]


def _stands_in(node: exp.Expr, other: exp.Expr) -> bool:
    part: exp.Expr | None = node
    while part is not None and part is not other:
        part = part.parent
    return part is not None


def _check_recursive_join(node: exp.Expr, parent: exp.Expr, table: exp.Expr) -> None:
    side, kind = str(parent.args.get("side") or "").upper(), str(parent.args.get("kind") or "").upper()
    kind = "ASOF" if str(parent.args.get("method") or "").upper() == "ASOF" else kind
    if side not in ("", "RIGHT") or kind in ("SEMI", "ANTI", "ASOF"):
        raise refusal(table, f"recursion through the optional side of a {side or kind} JOIN is not monotone")


def _check_linear(node: exp.Expr, table: exp.Expr, distinct: bool) -> None:
    if isinstance(node, exp.Except | exp.Intersect) or type(node) in (exp.Exists, exp.In, exp.Any, exp.All):
        raise refusal(table, f"recursion through {node.key.upper()} is not supported")
    if isinstance(node, exp.Union) and node.args.get("distinct") and not distinct:
        raise refusal(table, "recursion by UNION ALL through UNION is not supported")
    if isinstance(node, exp.Subquery) and not isinstance(node.parent, exp.From | exp.Join | exp.SetOperation):
        raise refusal(table, "recursion through a scalar subquery is not supported")
    if isinstance(node, exp.Func) and not isinstance(node, exp.Unnest | exp.Explode):
        raise refusal(table, f"recursion through {name_of(node)} is not supported")
    if not isinstance(node, exp.Select):
        return
    computed = [*node.expressions, *(node.args[name] for name in ("qualify", "order") if node.args.get(name))]
    if node.args.get("group") or node.args.get("having") or aggregates_in(computed):
        raise refusal(table, "aggregation through recursion is not stratified")
    if windows_in(computed):
        raise refusal(table, "window functions through recursion are not supported")
    if node.args.get("distinct") and node.args["distinct"].args.get("on"):
        raise refusal(table, "DISTINCT ON through recursion is not supported")
    if node.args.get("limit") or node.args.get("offset"):
        raise refusal(table, "LIMIT through recursion is not supported")
    if node.args.get("distinct") and not distinct:
        raise refusal(table, "recursion by UNION ALL through DISTINCT is not supported")
    for other in node.args.get("joins") or []:
        # the recursive table stands before this join, which keeps rows of its own when nothing matches, or counts what is missing
        if str(other.args.get("side") or "").upper() in ("RIGHT", "FULL") and not any(part is table for part in nodes_in(other)):
            raise refusal(table, "recursion through the optional side of a join is not monotone")
