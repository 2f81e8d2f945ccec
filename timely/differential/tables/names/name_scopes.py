"""Scopes: which columns a name of a query can mean, in which order, and what is refused where none or several have it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import attrs
from sqlglot import exp

from timely.differential.tables.values.kinds import lower_case, spelling
from timely.differential.tables.values.refusals import refusal
from timely.errors import SqlError


@attrs.define(eq=False)
class FromItem:
    """A table of ``FROM``: its name in the query, the name that no table around it has, and its columns."""

    name: str
    unique: str
    columns: Sequence[str]
    on_read: Callable[[str], None] | None = None

    def value(self, column: str) -> exp.Expr:
        """Return one of its columns, as the table spells it."""
        if self.on_read is not None:
            self.on_read(column)
        return exp.column(self.columns[self.columns.index(column)], self.unique)


@attrs.define(eq=False)
class MergedColumn:
    """What columns of one name are that tables are joined ``USING``: the value of the side that has all of them."""

    column: exp.Expr

    def value(self, column: str) -> exp.Expr:
        """Return the value."""
        return self.column.copy()

    def joined(self, other: exp.Expr, how: str) -> MergedColumn:
        """Return the column after a join ``how`` of a table whose column of this name is ``other``."""
        if how == "right":
            return MergedColumn(other)
        if how != "full" and not isinstance(self.column, exp.Coalesce):
            return self
        values = [self.column.this, *self.column.expressions] if isinstance(self.column, exp.Coalesce) else [self.column]
        first, *others = (value.copy() for value in (*values, other))
        return MergedColumn(exp.Coalesce(this=first, expressions=others))


Source = FromItem | MergedColumn
"""What a name without a table is looked for in."""


@attrs.define(eq=False)
class QueryScope:
    """The names of one ``SELECT``, and around them those of the queries that it stands in.

    ``tables`` are the columns of those of the database and of ``WITH``; ``taken`` are the unique names of all items in sight.
    """

    around: QueryScope | None
    tables: Mapping[str, Sequence[str]]
    taken: set[str]
    names: set[str] = attrs.Factory(set)
    """Of its items, as the query calls them."""
    items: list[FromItem] = attrs.Factory(list)
    merged: dict[tuple[str, str], MergedColumn] = attrs.Factory(dict)
    """By the unique name of an item and the column."""
    aliases: dict[str, exp.Expr] = attrs.Factory(dict)
    """What the selected columns with ``AS`` are; of several of a name it is the last."""

    @staticmethod
    def inside(around: QueryScope | None, tables: Mapping[str, Sequence[str]]) -> QueryScope:
        """Return an empty scope."""
        return QueryScope(around, tables, set() if around is None else set(around.taken))

    def levels(self) -> Iterator[QueryScope]:
        """Yield the scope, and those around it."""
        level: QueryScope | None = self
        while level is not None:
            yield level
            level = level.around

    def columns(self, items: Sequence[FromItem] | None = None) -> list[tuple[str, Source]]:
        """Return the columns of ``*``, of which those that are one stand where the first of them does."""
        columns: list[tuple[str, Source]] = []
        seen: list[Source] = []
        for item in self.items if items is None else items:
            for name in item.columns:
                source = self.merged.get((item.unique, name), item) if self.merged else item
                if source is not item:
                    if source in seen:
                        continue
                    seen.append(source)
                columns.append((name, source))
        return columns

    def sources(self, name: str, items: Sequence[FromItem] | None = None) -> list[Source]:
        """Return what has a column of this name: tables, and columns of ``USING``."""
        having = [item for item in (self.items if items is None else items) if name in item.columns]
        return list(dict.fromkeys(self.merged.get((item.unique, name), item) for item in having)) if self.merged else list(having)

    def item(self, table: str) -> FromItem | None:
        """Return the table of this name, of the innermost query that has one."""
        level: QueryScope | None = self
        while level is not None:
            for item in level.items:
                if item.name == table:
                    return item
            level = level.around
        return None

    def meaning(self, name: str, node: exp.Expr, alias_first: bool = False) -> exp.Expr | None:
        """Return what a name without a table means: a column of ``FROM``, a selected one, or one of a query around it."""
        level: QueryScope | None = self
        while level is not None:
            sources = [] if alias_first and level is self and name in self.aliases else level.sources(name)
            if sources:
                return level.only(sources, name, node).value(name)
            if name in level.aliases:
                return level.aliases[name].copy()
            level = level.around
        return None

    def only(self, sources: Sequence[Source], name: str, node: exp.Expr) -> Source:
        """Return the one source of a name, which is ambiguous where there are several."""
        if len(sources) > 1:
            tables = [item.name for item in self.items if name in item.columns]
            column = exp.to_identifier(name).sql(dialect="duckdb")
            raise refusal(node, f"the name is ambiguous: write {' or '.join(f'{table}.{column}' for table in tables)}")
        return sources[0]

    def column(self, node: exp.Column, alias_first: bool = False) -> exp.Expr:
        """Return what a column means: one of a table, or a field of a struct."""
        name, *fields = (lower_case(part.name) for part in node.parts)
        value: exp.Expr | None = None
        if fields:
            item = self.item(name)
            if item is not None and fields[0] in item.columns:
                value = item.value(fields.pop(0))
        value = value or self.meaning(name, node, alias_first)
        if value is None:
            raise self._unknown(node)
        for field in fields:
            value = exp.Dot(this=value, expression=exp.to_identifier(field))
        return value

    def no_table(self, node: exp.Expr, table: str) -> SqlError:
        """Return the error for a table that is not in ``FROM``."""
        tables = [item.name for level in self.levels() for item in level.items]
        return refusal(node, f"there is no table {table} in FROM; there are: {', '.join(tables) or 'none'}")

    def _unknown(self, node: exp.Column) -> SqlError:
        """Return the error for a column that is not there."""
        name, table = lower_case(node.name), lower_case(node.table)
        if table and self.item(table) is None:
            return self.no_table(node, table)
        items = [item for level in self.levels() for item in level.items]
        near = difflib.get_close_matches(name, chain.from_iterable(item.columns for item in items), 1)
        meant = f": did you mean {exp.to_identifier(near[0]).sql(dialect='duckdb')}?" if near and near[0] != name else ""
        here = "; ".join(f"{item.name} has {', '.join(item.columns)}" for item in items)
        return refusal(node, f"there is no column of this name; {here or 'FROM has no table'}{meant}")


def distinct_names(columns: Sequence[str]) -> list[str]:
    """Return names for the columns of an item of ``FROM`` as DuckDB gives them, where several have one name.

    >>> distinct_names(["id", "id", "id_1"])
    ['id', 'id_1', 'id_1_1']
    """
    if len(set(columns)) == len(columns):
        return list(columns)
    taken: dict[str, None] = {}
    for name in columns:
        new, number = name, 0
        while new in taken:
            number += 1
            new = lower_case(f"{spelling(name)}_{number}")
        taken[new] = None
    return list(taken)
