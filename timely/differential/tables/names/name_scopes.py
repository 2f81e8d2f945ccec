"""Scopes: which columns a name of a query can mean, in which order, and what is refused where none or several have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.bound import Call, Expr, Literal, NamedExpr, Ref, SortKey
from timely.differential.tables.expressions.calls import call
from timely.differential.tables.names.hints import of_column
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.plan.nodes import Project, QueryPlan, TableScan
from timely.differential.tables.values.kinds import Kind, lower_case, spelling
from timely.differential.tables.values.overloads import SqlFunction
from timely.errors import SqlError, did_you_mean, listed_names


@attrs.frozen
class TableRows:
    """What a query may read by a name: its columns, and its rows, of a table or a plan."""

    columns: Sequence[str]
    kinds: Sequence[Kind]
    rows: str | QueryPlan

    def plan(self, fresh: Callable[[], int], node: exp.Expr) -> QueryPlan:
        """Return a plan of its rows, whose columns have numbers of their own."""
        refs = tuple(Ref(kind, fresh()) for kind in self.kinds)
        if isinstance(self.rows, str):
            return TableScan(self.rows, refs, at=node)
        return Project(self.rows, tuple(NamedExpr(ref.id, own) for ref, own in zip(refs, self.rows.columns)))


Tables = Mapping[str, TableRows]


@attrs.frozen
class BoundQuery:
    """The plan of a query, the names of its columns, and its order; columns behind those are of a shown order alone."""

    plan: QueryPlan
    names: Sequence[str]
    order: Sequence[SortKey] = ()


@attrs.define(eq=False)
class FromItem:
    """A table of ``FROM``: its name in the query, and its columns."""

    name: str
    columns: Mapping[str, Ref]

    def value(self, column: str) -> Expr:
        """Return one of its columns."""
        return self.columns[column]


@attrs.define(eq=False)
class MergedColumn:
    """What columns of one name are that tables are joined ``USING``: the value of the side that has all of them."""

    column: Expr

    def value(self, column: str) -> Expr:
        """Return the value."""
        return self.column

    def joined(self, other: Expr, how: str) -> MergedColumn:
        """Return the column after a join ``how`` of a table whose column of this name is ``other``."""
        if how == "right":
            return MergedColumn(other)
        several = isinstance(self.column, Call) and self.column.name == "coalesce"
        if how != "full" and not several:
            return self
        values = self.column.parts if several else (self.column,)
        return MergedColumn(call("coalesce", [*values, other]))


Source = FromItem | MergedColumn
"""What a name without a table is looked for in."""


@attrs.define(eq=False)
class QueryScope:
    """The names of one ``SELECT``, and around them those of the queries that it stands in.

    ``tables`` are those of the database and of ``WITH``.
    """

    around: QueryScope | None
    tables: Tables
    names: set[str] = attrs.Factory(set)
    """Of its items, as the query calls them."""
    items: list[FromItem] = attrs.Factory(list)
    merged: dict[tuple[FromItem, str], MergedColumn] = attrs.Factory(dict)
    """By an item and the column."""
    aliases: dict[str, Expr] = attrs.Factory(dict)
    """What the selected columns with ``AS`` are; of several of a name it is the last."""
    windows: dict[str, exp.Expr] = attrs.Factory(dict)
    """The windows of ``WINDOW``."""
    alias_first: set[int] = attrs.Factory(set)
    """The names, as nodes, that mean selected columns though ``FROM`` has them too."""

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
                source = self.merged.get((item, name), item) if self.merged else item
                if source is not item:
                    if source in seen:
                        continue
                    seen.append(source)
                columns.append((name, source))
        return columns

    def sources(self, name: str, items: Sequence[FromItem] | None = None) -> list[Source]:
        """Return what has a column of this name: tables, and columns of ``USING``."""
        having = [item for item in (self.items if items is None else items) if name in item.columns]
        return list(dict.fromkeys(self.merged.get((item, name), item) for item in having)) if self.merged else list(having)

    def spelled(self, name: str, value: Expr) -> str:
        """Return the name of a column as its table spells it."""
        items = (item for level in self.levels() for item in level.items)
        own = (item for item in items if isinstance(value, Ref) and item.columns.get(name) == value)
        return next((key for item in own for key in item.columns if key == name), name)

    def owners(self) -> dict[int, int]:
        """Return of which item each column is."""
        return {ref.id: place for place, item in enumerate(self.items) for ref in item.columns.values()}

    def item(self, table: str) -> FromItem | None:
        """Return the table of this name, of the innermost query that has one."""
        return next((item for level in self.levels() for item in level.items if item.name == table), None)

    def meaning(self, name: str, node: exp.Expr, alias_first: bool = False) -> Expr | None:
        """Return what a name without a table means: a column of ``FROM``, a selected one, or one of a query around it."""
        for level in self.levels():
            sources = [] if alias_first and level is self and name in self.aliases else level.sources(name)
            if sources:
                return level.only(sources, name, node).value(name)
            if name in level.aliases:
                return level.aliases[name]
        return None

    def only(self, sources: Sequence[Source], name: str, node: exp.Expr) -> Source:
        """Return the one source of a name, which is ambiguous where there are several."""
        if len(sources) > 1:
            tables = [item.name for item in self.items if name in item.columns]
            column = exp.to_identifier(name).sql(dialect="duckdb")
            raise refusal(node, f"the name is ambiguous: write {' or '.join(f'{table}.{column}' for table in tables)}")
        return sources[0]

    def column(self, node: exp.Expr, written: Sequence[str]) -> Expr:
        """Return what a column means: one of a table, or a field of a struct."""
        name, *fields = map(lower_case, written)
        value: Expr | None = None
        if fields:
            item = self.item(name)
            if item is not None and fields[0] in item.columns:
                value = item.value(fields.pop(0))
        if value is None:
            value = self.meaning(name, node, id(node) in self.alias_first)
        if value is None:
            raise self._unknown(node, written)
        if isinstance(value, Ref):
            value = attrs.evolve(value, at=node)
        for field in fields:
            value = call("struct_extract", [value, Literal(Kind.TEXT, field, field)], node)
        return value

    def no_table(self, node: exp.Expr, table: str) -> SqlError:
        """Return the error for a table that is not in ``FROM``."""
        tables = [item.name for level in self.levels() for item in level.items]
        return refusal(node, f"there is no table {table} in FROM; there are: {listed_names(tables)}{did_you_mean(table, tables)}")

    def _unknown(self, node: exp.Expr, written: Sequence[str]) -> SqlError:
        """Return the error for a column that is not there."""
        tables = [lower_case(table) for table in written[:-1]]
        if tables and self.item(tables[-1]) is None:
            return self.no_table(node, tables[-1])
        items = [item for level in self.levels() for item in level.items]
        columns = [_written(each) for item in items for each in item.columns]
        quoted = not tables and any(part.args.get("quoted") for part in node.find_all(exp.Identifier))
        meant = of_column(written[-1], columns, quoted=quoted, in_call=isinstance(node.parent, exp.Func))
        here = "; ".join(f"{item.name} has {listed_names(map(_written, item.columns))}" for item in items)
        return refusal(node, f"there is no column of this name; {here or 'FROM has no table'}{meant}")


def _written(column: str) -> str:
    """Return the name of a column as a query has it, with quotes where it needs them."""
    return exp.to_identifier(str(column)).sql(dialect="duckdb")


class NameBinder(Protocol):
    """What binds the parts of queries and expressions; ``functions`` are those of the program."""

    functions: Mapping[str, SqlFunction]

    def query(self, node: exp.Expr, around: QueryScope | None, tables: Tables, *, joins: bool = False) -> BoundQuery:
        """Return a query; ``FROM`` reads the ``joins`` behind its parentheses."""

    def with_tables(self, clause: exp.Expr | None, around: QueryScope | None, tables: Tables) -> Tables:
        """Return the tables that a query may read: ``tables`` and those of its ``WITH``."""

    def subquery(self, node: exp.Expr, scope: QueryScope, *, exists: bool = False) -> QueryPlan:
        """Return the plan of a subquery of an expression."""

    def value(self, node: Any, scope: QueryScope) -> Expr:
        """Return an expression."""

    def plain_value(self, node: exp.Expr, scope: QueryScope) -> Expr:
        """Return an expression without aggregates."""

    def fresh(self) -> int:
        """Return the number of a new column."""


def distinct_names(columns: Sequence[str]) -> list[str]:
    """Return names for the columns of an item of ``FROM`` as DuckDB gives them, where several have one name."""
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
