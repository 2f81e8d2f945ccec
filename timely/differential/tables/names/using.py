"""``USING`` and ``NATURAL``: joins on columns of one name, which are one column afterwards.

sqlglot replaces such a column by ``COALESCE`` of those of both sides. Here it becomes the column of one side where DuckDB takes
that, since the types may differ. Which columns a further join compares is decided here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from timely.differential.tables.expressions.join_order import USING, using_names
from timely.differential.tables.expressions.relation import HIDDEN, Relation
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import refusal

_WRITTEN: Final = "written in the query"
"""Of a ``COALESCE`` that is not of sqlglot."""


def mark_using(select: exp.Expr) -> None:
    """Note the names of ``USING`` in the joins of a parsed ``SELECT``; ``NATURAL`` has those that both sides have."""
    for written in select.find_all(exp.Coalesce):
        written.meta[_WRITTEN] = True
    for join in select.args.get("joins") or []:
        if join.args.get("using"):
            join.meta[USING] = [name.name for name in join.args["using"]]
        elif str(join.args.get("method") or "").upper() == "NATURAL":
            join.meta[USING] = []


def name_sides(query: exp.Expr) -> None:
    """Have each column of ``USING`` be that of the side that has all values; after a full join it is of both sides."""
    for select in query.find_all(exp.Select):
        joins = select.args.get("joins") or []
        if all(using_names(join) is None for join in joins):
            continue
        sides = {join.alias_or_name: str(join.args.get("side") or "").upper() for join in joins}
        for merged in list(select.find_all(exp.Coalesce)):
            parts = [merged.this, *merged.expressions]
            if merged.meta.get(_WRITTEN) or not all(isinstance(part, exp.Column) for part in parts):
                continue
            if len({part.name for part in parts}) == 1 and all(part.table in sides for part in parts[1:]):
                merged.replace(_one_value(parts, [sides[part.table].lower() for part in parts[1:]]))


def _one_value(columns: Sequence[exp.Expr], joins: Sequence[str]) -> exp.Expr:
    """Return what columns that are one are, where all but the first come with ``joins``."""
    found = list(columns[:1])
    for place, how in enumerate(joins, 1):
        if how == "right":
            found = [columns[place]]
        elif how == "full" or len(found) > 1:
            found = list(columns[: place + 1])
    first, *others = (column.copy() for column in found)
    return exp.Coalesce(this=first, expressions=others) if others else first


def expand_stars(select: exp.Select, columns: Mapping[str, Sequence[str]]) -> None:
    """Replace ``t.*`` by the columns of ``t`` where there is ``USING``: sqlglot leaves out, or merges, those that are compared.

    ``columns`` are those of each table. ``SqlError`` for ``t.*`` of a subquery, or with ``EXCLUDE`` and the like.
    """
    if all(using_names(join) is None for join in select.args.get("joins") or []):
        return
    items = [select.args["from_"].this, *(join.this for join in select.args["joins"])]
    tables = {lower_case(item.alias_or_name): item for item in items}
    outputs: list[exp.Expr] = []
    for output in select.expressions:
        if not isinstance(output, exp.Column) or not isinstance(output.this, exp.Star):
            outputs.append(output)
            continue
        item = tables.get(lower_case(output.table))
        known = columns.get(lower_case(item.name)) if isinstance(item, exp.Table) and not item.alias_column_names else None
        if known is None or any(output.this.args.values()):
            raise refusal(output, f"{output.table}.* beside USING is supported for whole tables: name the columns")
        outputs += [exp.column(name, output.args["table"].copy()) for name in known]
    select.set("expressions", outputs)


class UsingColumns:
    """The columns of one ``FROM`` that are one column by ``USING``."""

    def __init__(self) -> None:
        self._merged: dict[str, list[exp.Expr]] = {}
        self._joins: dict[str, list[str]] = {}

    def conditions(
        self, left: Relation, right: Relation, join: exp.Expr, how: str, outside: frozenset[str]
    ) -> list[exp.Expr] | None:
        """Return what ``USING`` compares, or ``None`` where there is none; ``outside`` are tables of queries around this one."""
        names = using_names(join)
        if names is None:
            return None
        mine, theirs = self._columns(left, outside), self._columns(right, outside)
        natural = not names
        names = [lower_case(name) for name in names] or [name for name in mine if name in theirs]
        if not names:
            raise refusal(join, "a NATURAL JOIN needs columns of one name on both sides")
        conditions: list[exp.Expr] = []
        for name in names:
            for side in (mine, theirs):
                if len(side.get(name, ())) != 1:
                    raise refusal(join, f"column {name!r} is ambiguous" if name in side else f"there is no column {name!r}")
            columns = mine[name][0]
            other = theirs[name][0][0]
            joins = self._joins.get(name, [])
            conditions.append(exp.EQ(this=_one_value(columns, joins), expression=other.copy()))
            if how not in ("semi", "anti"):
                self._merged[name] = [*columns, other]
                self._joins[name] = [*joins, how]
        if str(join.args.get("method") or "").upper() == "ASOF" and not natural:
            last = conditions.pop()
            conditions.append(exp.GTE(this=last.this, expression=last.expression))
        return conditions

    def expanded(self, node: exp.Expr) -> exp.Expr:
        """Return an expression in which such a column is what ``name_sides`` makes of it: sqlglot leaves it in ``HAVING``."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or part.table or part.name not in self._merged:
                return part
            return _one_value(self._merged[part.name], self._joins[part.name])

        return node.transform(replaced)

    def _columns(self, relation: Relation, outside: frozenset[str]) -> dict[str, list[list[exp.Expr]]]:
        """Return the columns by name; those that are one already stand together."""
        found: dict[str, list[list[exp.Expr]]] = {}
        for node in relation.places:
            if not isinstance(node, exp.Column) or node.table in outside or node.name.startswith(HIDDEN):
                continue
            merged = self._merged.get(node.name, [])
            together: list[exp.Expr] = merged if node in merged else [node]
            if together not in found.setdefault(node.name, []):
                found[node.name].append(together)
        return found
