"""In which order tables are joined, and which conditions on single tables follow from those of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from timely.differential.tables.expressions.tree_nodes import columns_of, has_query
from timely.differential.tables.values.refusals import only


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return what stands in parentheses."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and not node.args.get("with_")):
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
        node = node.this
    return node


def columns_in(node: exp.Expr) -> set[str]:
    """Return the names of the tables whose columns an expression has."""
    return {column.table for column in columns_of(node)}


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that must all be true for ``node`` to be, and what follows from its alternatives.

    >>> from sqlglot import parse_one
    >>> conditions = conjuncts(parse_one("(a.x = b.x and a.y = 1) or (a.x = b.x and a.y = 2)"))
    >>> [condition.sql() for condition in conditions][:2]
    ['a.x = b.x', 'a.y = 1 OR a.y = 2']
    """
    if node is None:
        return
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    elif isinstance(node, exp.Paren | exp.Where | exp.Having | exp.Qualify):
        yield from conjuncts(node.this)
    else:
        if isinstance(node, exp.Or):
            yield from _implied(node)
        yield node


def _alternatives(node: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Or):
        yield from _alternatives(node.this)
        yield from _alternatives(node.expression)
    else:
        yield node


def _implied(node: exp.Or) -> Iterator[exp.Expr]:
    """Yield the conditions that all alternatives have, and for each table what one of them says of it alone."""
    tables = columns_in(node)
    if len(tables) < 2 or has_query(node):
        return
    branches = [list(conjuncts(branch)) for branch in _alternatives(node)]
    common = [condition for condition in branches[0] if all(condition in branch for branch in branches[1:])]
    yield from common
    for table in sorted(tables):
        parts = [[part for part in branch if columns_in(part) == {table} and part not in common] for branch in branches]
        if all(parts):
            yield exp.or_(*(exp.and_(*(part.copy() for part in of_branch), wrap=False) for of_branch in parts))


def by_equalities(
    first: exp.Expr, joins: Sequence[exp.Expr], conditions: Sequence[exp.Expr]
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return inner joins so that each has an equality with a table before it, where there is one, and all conditions.

    Other joins stay as they are.
    """
    if len(joins) < 2 or not all(map(_movable, joins)) or any(_lateral(join, [first, *joins]) for join in joins):
        return list(joins), list(conditions)
    every = [*(part for join in joins for part in conjuncts(join.args.get("on"))), *conditions]
    left = []
    for join in joins:
        moved = join.copy()
        moved.set("on", None)
        left.append(moved)
    names, order = {first.alias_or_name}, list[exp.Expr]()
    while left:
        chosen = next((join for join in left if _connected(join.this.alias_or_name, names, every)), left[0])
        left = [join for join in left if join is not chosen]
        names.add(chosen.this.alias_or_name)
        order.append(chosen)
    return order, every


def _movable(join: exp.Expr) -> bool:
    kind, condition = str(join.args.get("kind") or "").upper(), join.args.get("on")
    plain = kind in ("", "INNER", "CROSS") and not any(join.args.get(name) for name in ("side", "using", "method"))
    return plain and (condition is None or not has_query(condition))


def _lateral(join: exp.Expr, items: Sequence[exp.Expr]) -> bool:
    """Return whether a joined item may read columns of others."""
    if isinstance(join.this, exp.Table):
        return not isinstance(join.this.this, exp.Identifier)
    names = {(item.this if isinstance(item, exp.Join) else item).alias_or_name for item in items}
    return not isinstance(join.this, exp.Subquery | exp.Values) or bool(columns_in(join.this) & names)


def _connected(name: str, names: set[str], conditions: Sequence[exp.Expr]) -> bool:
    """Return whether a table has an equality with others."""
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            sides = [columns_in(condition.this), columns_in(condition.expression)]
            if {name} in sides and any(side and side <= names for side in sides):
                return True
    return False
