"""``UNNEST``: a row for each element of its lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Function, Row, compile_scalar
from timely.differential.tables.expressions.tree_nodes import nodes_in
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.tables.values.refusals import refusal


def unnests_in(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the calls of ``unnest`` in selected expressions, each once; those of subqueries are not among them."""
    calls: dict[exp.Expr, None] = {}
    for node in nodes:
        for part in nodes_in(node, (exp.Query, exp.Explode)):
            if isinstance(part, exp.Explode):
                calls[part] = None
    return list(calls)


def unnested(relation: Relation, nodes: Sequence[exp.Expr]) -> Relation:
    """Return the relation with a column more for each ``unnest`` that is selected: shorter lists are filled up with NULL."""
    if not nodes:
        return relation
    lists: list[Function] = []
    columns: list[Column] = []
    for node in nodes:
        function, element = _list(node.this, relation)
        lists.append(function)
        columns.append(Column("unnest", element))

    def rows(row: Row) -> Iterator[Row]:
        for values in zip_longest(*(function(row) or () for function in lists)):
            yield row + values

    return relation.extended(relation.collection.flat_map(rows, name="unnest"), columns, nodes)


def unnest_of(item: exp.Expr) -> exp.Unnest | None:
    """Return the ``UNNEST`` that an item of FROM is, with its alias, or ``None``."""
    unnest = item
    if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Unnest):
        unnest = item.this.copy()
        unnest.set("alias", item.args.get("alias"))
    return unnest if isinstance(unnest, exp.Unnest) else None


def joined_elements(relation: Relation, node: exp.Unnest, how: str, join: exp.Expr) -> Relation:
    """Return each row beside the elements of its list; ``left`` keeps the rows whose list has none."""
    if how not in ("inner", "left") or len(node.expressions) != 1:
        raise refusal(join, "UNNEST in FROM has one list, and stands in an inner or left join")
    function, element = _list(node.expressions[0], relation)
    alias, offset = node.args.get("alias"), node.args.get("offset")
    names = [column.name for column in (alias.args.get("columns") or [])] if isinstance(alias, exp.TableAlias) else []
    columns = [Column(names[0] if names else "unnest", element)]
    if offset:
        columns.append(Column(offset.name if isinstance(offset, exp.Identifier) else "ordinality", Kind.INTEGER, how == "left"))
    missing = (None,) * len(columns) if how == "left" else None

    def rows(row: Row) -> Iterator[Row]:
        values = function(row)
        if values:
            for number, value in enumerate(values, 1):
                yield (*row, value, number) if offset else (*row, value)
        elif missing is not None:
            yield row + missing

    table = alias.name if isinstance(alias, exp.TableAlias) and alias.name else "unnest"
    nodes = [exp.column(column.name, table) for column in columns]
    longer = relation.extended(relation.collection.flat_map(rows, name="unnest"), columns, nodes)
    return attrs.evolve(longer, tables=relation.tables | {table})


def _list(node: exp.Expr, relation: Relation) -> tuple[Function, Kind]:
    scalar = compile_scalar(node, relation.scope)
    if scalar.kind.element is None:
        raise refusal(node, f"UNNEST takes a list, not {scalar.kind.value}")
    return scalar.function, scalar.kind.element
