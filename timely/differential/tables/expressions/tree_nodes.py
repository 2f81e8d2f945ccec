"""Nodes of SQLGlot's trees as lists: each of its generators takes several calls for a node."""

from __future__ import annotations

from sqlglot import exp


def nodes_in(root: exp.Expr, closed: tuple[type[exp.Expr], ...] = ()) -> list[exp.Expr]:
    """Return the nodes of an expression level by level; what stands inside of those of ``closed`` is left out.

    >>> from sqlglot import parse_one
    >>> [node.key for node in nodes_in(parse_one("-a + (select 1)"), (exp.Query,))]
    ['add', 'neg', 'subquery', 'column', 'identifier']
    """
    nodes = [root]
    for node in nodes:
        if not isinstance(node, closed):
            for value in node.args.values():
                if isinstance(value, exp.Expr):
                    nodes.append(value)
                elif isinstance(value, list):
                    for part in value:
                        if isinstance(part, exp.Expr):
                            nodes.append(part)
    return nodes


def columns_of(node: exp.Expr) -> list[exp.Column]:
    """Return the columns in an expression, also those in its subqueries."""
    return [part for part in nodes_in(node) if isinstance(part, exp.Column)]


def has_node(node: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Return whether a node of one of these classes is in an expression."""
    for part in nodes_in(node):  # not by any(): a generator takes a call for each node
        if isinstance(part, kinds):
            return True
    return False


def has_query(node: exp.Expr) -> bool:
    """Return whether an expression has a subquery."""
    return has_node(node, exp.Query)
