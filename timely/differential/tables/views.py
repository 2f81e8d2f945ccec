"""``Table``: a collection with a schema; ``sql``: a query over tables as a table that stays right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Generic

import pyarrow as pa
from sqlglot import exp
from sqlglot import parse as parse_sql
from sqlglot.errors import OptimizeError, ParseError, SqlglotError, TokenError
from sqlglot.optimizer.qualify import qualify
from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder
from timely.differential.collections import Collection, new_collection
from timely.differential.inputs import InputSession
from timely.differential.outputs import Output
from timely.differential.tables.kinds import Column, Kind, arrow_schema, columns_of, row_check
from timely.differential.tables.refusals import mark_positions, refusal
from timely.differential.tables.relation import Relation
from timely.differential.tables.scalar_compiler import NameScope, compile_scalar
from timely.differential.tables.sorting import first_rows, sort_key
from timely.differential.tables.translation import translate
from timely.errors import GraphError, SqlError, brief
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)

Expression = str | exp.Expr
"""An expression: a text of SQL, or sqlglot's."""


class Table(Generic[T]):
    """A collection of rows with a schema; rows are tuples, also those of one column. From ``table`` or ``sql``.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         lines = dd.table(scope, pa.schema([("item", pa.string()), ("n", pa.int64())]))
    ...         totals = lines.group_by("item").agg("sum(n) as total").output()
    ...     lines.session.insert(("pen", 2))
    ...     lines.session.insert(("pen", 3))
    ...     lines.session.close()
    ...     totals.at(0)
    {('pen', 5): 1}
    """

    def __init__(
        self, collection: Collection[T, Any], columns: tuple[Column, ...], session: InputSession[T, Any] | None = None
    ) -> None:
        self.collection = collection
        self.columns = columns
        self._session = session

    def __repr__(self) -> str:
        return f"Table({', '.join(f'{column.name} {column.kind.value}' for column in self.columns)})"

    @property
    def session(self) -> InputSession[T, Any]:
        """What changes the table from outside; ``GraphError`` where it is computed."""
        if self._session is None:
            raise GraphError(f"{self!r} is computed, or its session is elsewhere: dd.table(scope, schema) has one")
        return self._session

    @property
    def scope(self) -> ScopeBuilder[T]:
        """The scope that it is in."""
        return self.collection.scope

    @property
    def schema(self) -> pa.Schema:
        """Its columns as an Arrow schema, with the widest type of each kind."""
        return arrow_schema(self.columns)

    def output(self, worker: int | None = None, *, name: str = "output") -> Output[T, Any]:
        """Return what the table holds, to be read at complete times."""
        return self.collection.output(worker, name=name)

    # -- the method chain ------------------------------------------------------------------------------------------

    def select(self, *expressions: Expression) -> Table[T]:
        """Return the table of ``expressions``, such as ``"price * n as total"``."""
        return self._run(exp.select(*map(_parsed, expressions)).from_("this"))

    def where(self, *conditions: Expression) -> Table[T]:
        """Return the rows for which all conditions are true."""
        return self._run(exp.select("*").from_("this").where(*map(_parsed, conditions)))

    def join(self, other: Table[T], on: Expression | Sequence[str], how: str = "inner") -> Table[T]:
        """Return the join: ``how`` is inner, left, right, full, semi or anti.

        ``on`` is the name of a column, a list of names, or a condition in which the tables are called ``this`` and ``other``.
        """
        if how not in ("inner", "left", "right", "full", "semi", "anti"):
            raise GraphError(f"how is inner, left, right, full, semi or anti, not {brief(how)}")
        condition = _parsed(on) if isinstance(on, str | exp.Expr) else None
        join = exp.Join(this=exp.to_table("other"), **({"kind": how} if how in ("inner", "semi", "anti") else {"side": how}))
        if isinstance(condition, exp.Column):
            join.set("using", [exp.to_identifier(condition.name)])
        elif condition is not None:
            join.set("on", condition)
        else:
            join.set("using", [exp.to_identifier(name) for name in on])
        selected = "this.*" if how in ("semi", "anti") else "*"
        query = exp.select(selected).from_("this")
        query.append("joins", join)
        return self._run(query, other=other)

    def group_by(self, *keys: Expression) -> GroupedTable[T]:
        """Return the groups of rows with equal ``keys``; ``agg`` makes a table of them."""
        return GroupedTable(self, keys)

    def distinct(self) -> Table[T]:
        """Return each row once."""
        return self._run(exp.select("*").from_("this").distinct())

    def union_all(self, other: Table[T]) -> Table[T]:
        """Return the rows of both."""
        return self._run(exp.union(exp.select("*").from_("this"), exp.select("*").from_("other"), distinct=False), other=other)

    def except_all(self, other: Table[T]) -> Table[T]:
        """Return the rows without those of ``other``, each taken away as often as it is there."""
        return self._run(exp.except_(exp.select("*").from_("this"), exp.select("*").from_("other"), distinct=False), other=other)

    def top(self, k: int, order_by: Expression | Sequence[Expression], by: Sequence[Expression] = ()) -> Table[T]:
        """Return the first ``k`` rows in an order such as ``"price desc"``, of each group of equal ``by``; ties go by the row.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         rows = dd.collection(scope, [("a", 1), ("a", 3), ("b", 2)])
        ...         scores = dd.table(rows, pa.schema([("name", pa.string()), ("n", pa.int64())]))
        ...         best = scores.top(1, "n desc", by=["name"]).output()
        ...     best.at(0)
        {('a', 3): 1, ('b', 2): 1}
        """
        if not isinstance(k, int) or k < 1:
            raise GraphError(f"top keeps at least one row, not {brief(k)}")
        orders = [order_by] if isinstance(order_by, str | exp.Expr) else list(order_by)
        query = exp.select("*").from_("this").order_by(*orders, dialect="duckdb")
        keys = [by] if isinstance(by, str | exp.Expr) else list(by)
        places = Relation(self.collection, self.columns).named("this").places
        scope = NameScope(self.columns, {**places, **{exp.column(column.name): i for i, column in enumerate(self.columns)}})
        groups = []
        for part in keys:
            selected = _qualified(exp.select(_parsed(part)).from_("this"), {"this": self})
            groups.append(compile_scalar(selected.selects[0].unalias(), scope).function)
        order = sort_key(_qualified(query, {"this": self}).args["order"].expressions, scope, len(self.columns))
        rows = first_rows(self.collection, lambda row: tuple(group(row) for group in groups), order, k)
        return Table(rows, self.columns)

    def _run(self, query: exp.Query, **others: Table[T]) -> Table[T]:
        tables = {"this": self, **others}
        text = query.sql(dialect="duckdb")
        return _translated(self.scope, query, text, tables)


class GroupedTable(Generic[T]):
    """The groups of a table; from ``Table.group_by``."""

    def __init__(self, table: Table[T], keys: Sequence[Expression]) -> None:
        self._table = table
        self._keys = keys

    def agg(self, *aggregates: Expression) -> Table[T]:
        """Return the keys and ``aggregates``, such as ``"sum(price) as total"``, for each group."""
        keys = [_parsed(key) for key in self._keys]
        query = exp.select(*keys, *map(_parsed, aggregates)).from_("this")
        if keys:
            query = query.group_by(*(key.unalias() for key in keys))
        return self._table._run(query)


def _parsed(expression: Expression) -> exp.Expr:
    if isinstance(expression, exp.Expr):
        return expression.copy()
    found: Any
    try:
        found = exp.maybe_parse(f"SELECT {expression}", dialect="duckdb")
    except SqlglotError as error:
        raise SqlError(f"{brief(expression)}: {error}") from None
    if (
        not isinstance(found, exp.Select)
        or len(found.expressions) != 1
        or any(value for name, value in found.args.items() if name not in ("expressions",))
    ):
        raise SqlError(f"{brief(expression)} is not one expression of SQL")
    parsed: exp.Expr = found.expressions[0]
    parsed.pop()
    return parsed


def table(source: Any, schema: pa.Schema, *, name: str = "table") -> Table[Any]:
    """Return the table of a collection of tuples; or, for a scope, one that its ``session`` changes.

    Rows are checked against ``schema`` when they come: ``SchemaError`` for others.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         rows = dd.collection(scope, [(1, "ada"), (2, "bob")])
    ...         people = dd.table(rows, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    ...         names = people.select("upper(name) as name").output()
    ...     names.at(0)
    {('ADA',): 1, ('BOB',): 1}
    """
    columns = columns_of(schema)
    check = row_check(columns, schema)
    if isinstance(source, Collection):
        return Table(source.map(check, name=name), columns)
    session, rows = new_collection(source, name=name)
    return Table(rows.map(check, name=name), columns, session)


def sql(scope: ScopeBuilder[T], query: str, **tables: Table[T] | Collection[T, Any]) -> Table[T]:
    """Return a query over ``tables``, or collections with a schema, as a table that stays right; the dialect is DuckDB's.

    ``SqlError`` for what is not kept up to date, with the construct and its position in the text.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.table(scope, pa.schema([("src", pa.int64()), ("dst", pa.int64())]))
    ...         reached = dd.sql(
    ...             scope,
    ...             "with recursive r(node) as (select 1 union select dst from edges join r on src = node) select node from r",
    ...             edges=edges,
    ...         ).output()
    ...     edges.session.insert((1, 2))
    ...     edges.session.insert((2, 3))
    ...     edges.session.advance_to(1)
    ...     edges.session.remove((2, 3))
    ...     edges.session.close()
    ...     reached.at(0), reached.at(1)
    ({(1,): 1, (2,): 1, (3,): 1}, {(1,): 1, (2,): 1})
    """
    try:
        trees = [tree for tree in parse_sql(query, read="duckdb") if tree is not None]
    except (ParseError, TokenError) as error:
        raise SqlError(f"the query cannot be parsed: {error}") from None
    if len(trees) != 1:
        raise SqlError(f"a view is one query, and here are {len(trees)}")
    return _translated(scope, trees[0], query, {name.lower(): _as_table(found) for name, found in tables.items()})


def _as_table(found: Any) -> Any:
    return table(found, found.schema) if isinstance(found, Collection) and found.schema is not None else found


_SQL_TYPES = {
    Kind.NULL: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.DECIMAL: "DECIMAL",
    Kind.DOUBLE: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}


def _qualified(tree: exp.Expr, tables: Mapping[str, Table[Any]]) -> exp.Query:
    schema: dict[str, object] = {
        name: {column.name: _SQL_TYPES[column.kind] for column in found.columns} for name, found in tables.items()
    }
    try:
        found = qualify(tree.copy(), schema=schema, dialect="duckdb", quote_identifiers=False, identify=False)
    except OptimizeError as error:
        raise _unresolved(tree, str(error), tables) from None
    assert isinstance(found, exp.Query)
    for identifier in found.find_all(exp.Identifier):
        identifier.set("quoted", False)  # names are equal in whatever way they are written
    return found


def _unresolved(tree: exp.Expr, message: str, tables: Mapping[str, Table[Any]]) -> SqlError:
    """Return the error for a name that is not found, or found twice."""
    named = re.search(r"[Cc]olumn '?\"?([^'\"]+)'?\"? could not be resolved", message)
    if named is None:
        return SqlError(f"the names of the query cannot be resolved: {message}")
    name = named[1].split(".")[-1]
    having = [table for table, found in tables.items() if any(column.name == name for column in found.columns)]
    why = f"no column, or an ambiguous one; tables that have it: {', '.join(having) or 'none'}"
    for column in tree.find_all(exp.Column):
        if column.name.lower() == name.lower():
            return refusal(column, why)
    return SqlError(f"{name}: {why}")


def _check_using(select: exp.Select) -> None:
    """Refuse USING after an outer join: sqlglot compares one side's column there, and SQL that of the side that has a row."""
    optional = False
    for join in select.args.get("joins") or []:
        if optional and (join.args.get("using") or join.args.get("method")):
            raise refusal(join, "USING and NATURAL after a RIGHT or FULL JOIN are not supported: write ON with COALESCE")
        optional = optional or str(join.args.get("side") or "").upper() in ("RIGHT", "FULL")


def _translated(scope: ScopeBuilder[Any], tree: exp.Expr, text: str, tables: Mapping[str, Table[Any]]) -> Table[Any]:
    for name, found in tables.items():
        if not isinstance(found, Table):
            raise GraphError(
                f"sql reads tables, and {name} is {brief(found)}: make one with dd.table(collection, schema), or give the"
                " collection a schema"
            )
    if not isinstance(tree, exp.Query):
        raise SqlError(f"a view is a query, not {tree.key.upper()}")
    mark_positions(tree, text)
    for part in tree.walk():
        if isinstance(part, exp.Parameter | exp.Placeholder):
            raise refusal(part, "parameters have no values here")
        if isinstance(part, exp.Select):
            _check_using(part)
    names = {name: Relation(found.collection, found.columns) for name, found in tables.items()}
    relation = translate(_qualified(tree, tables), scope, names)
    return Table(relation.collection, relation.columns)
