"""``Table``: a collection with a schema; ``sql``: a query over tables as a table that stays right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Generic

import attrs
import pyarrow as pa
from sqlglot import exp
from sqlglot import parse as parse_sql
from sqlglot.errors import OptimizeError, ParseError, SqlglotError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema
from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder, Stream, warn
from timely.differential.collections import Collection
from timely.differential.inputs import InputSession, new_sender
from timely.differential.linear import linear
from timely.differential.outputs import Output, output
from timely.differential.rings import INTEGERS
from timely.differential.tables.arrow_rows import (
    RowFields,
    arrow_table,
    by_batches,
    counted_reader,
    data_schema,
    is_arrow,
    plain_schema,
    stream_reader,
)
from timely.differential.tables.asof_joins import asof_join
from timely.differential.tables.column_stages import checked, pruned
from timely.differential.tables.correlation import keep_order_names, name_outputs, restore_all, with_unique_tables
from timely.differential.tables.join_order import conjuncts, select_less, using_names
from timely.differential.tables.kinds import Column, Kind, arrow_schema, columns_of, lower_case, row_check
from timely.differential.tables.recent_rows import recent_rows
from timely.differential.tables.refusals import mark_positions, naming_the_line, no_table, position_of, refusal
from timely.differential.tables.relation import Relation
from timely.differential.tables.row_limits import limit_inside
from timely.differential.tables.scalar_compiler import NameScope, Scalar, compile_scalar
from timely.differential.tables.sorting import first_rows, sort_key
from timely.differential.tables.time_windows import Axis, Length, axis_of, sessions, sliding, span_of
from timely.differential.tables.translation import translate
from timely.differential.tables.using import expand_stars, mark_using
from timely.errors import GraphError, SchemaError, SqlError, brief
from timely.operators.input import to_stream
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
        self.columns = _each_named_once(columns)
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
        rows = self.collection
        return output(rows.stream, rows.ring, worker, name, self.schema)

    def to_batches(self, *, name: str = "to_batches") -> Stream[T, pa.RecordBatch]:
        """Return the changes of each complete time as Arrow batches: the columns, and ``count``, by how much each row changed."""
        return self.collection.to_batches(self.schema, name=name)

    # -- windows of time -------------------------------------------------------------------------------------------

    def tumbling(self, column: Expression, size: Length, *, origin: Any = None) -> Table[T]:
        """Return each row with ``window_start`` and ``window_end`` of the window of ``size`` that it is in.

        Windows follow each other, and one begins at ``origin``, as in ``time_bucket`` of SQL: by default 2000-01-03, a Monday.
        A window has the moments from its start up to its end, without that. Rows whose ``column`` is ``NULL`` are in none.

        ``size`` is a text such as ``"10 minutes"`` or ``"1 month"``, or a timedelta; for a column of whole numbers it is one too.

        >>> import datetime
        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> noon = datetime.datetime(2024, 1, 1, 12)
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         clicks = dd.table(scope, pa.schema([("at", pa.timestamp("us"))]))
        ...         counts = clicks.tumbling("at", "10 minutes").group_by("window_start").agg("count(*) as n").output()
        ...     for minute in (1, 8, 15):
        ...         clicks.session.insert((noon + datetime.timedelta(minutes=minute),))
        ...     clicks.session.close()
        ...     sorted((start.strftime("%H:%M"), n) for start, n in counts.at(0))
        [('12:00', 2), ('12:10', 1)]
        """
        axis = self._axis("tumbling", column)
        length = span_of(size, axis, "tumbling", months=True)
        rows = sliding(self.collection, axis, length, length, origin, "tumbling")
        return Table(rows, (*self.columns, *axis.columns))

    def sliding(self, column: Expression, size: Length, step: Length, *, origin: Any = None) -> Table[T]:
        """Return each row once for each window of ``size`` that it is in, where a window begins every ``step``.

        Columns, lengths and ``origin`` are those of ``tumbling``.
        """
        axis = self._axis("sliding", column)
        length, distance = span_of(size, axis, "sliding"), span_of(step, axis, "sliding", months=True)
        rows = sliding(self.collection, axis, length, distance, origin, "sliding")
        return Table(rows, (*self.columns, *axis.columns))

    def sessions(self, column: Expression, gap: Length, by: Expression | Sequence[Expression] = ()) -> Table[T]:
        """Return each row with ``window_start`` and ``window_end`` of its session.

        Rows of equal ``by`` are of one session while each comes at most ``gap`` after another. It starts at its first row, and
        ends ``gap`` after its last. A late row may join two sessions, and a row that goes may divide one. A change costs a
        pass over the rows of its key.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         clicks = dd.table(scope, pa.schema([("user", pa.string()), ("at", pa.int64())]))
        ...         visits = clicks.sessions("at", gap=10, by="user").group_by("user", "window_start")
        ...         counts = visits.agg("count(*) as n").output()
        ...     for at in (1, 15):
        ...         clicks.session.insert(("ada", at))
        ...     clicks.session.advance_to(1)
        ...     clicks.session.insert(("ada", 8))
        ...     clicks.session.close()
        ...     sorted(counts.at(0)), sorted(counts.at(1))
        ([('ada', 1, 1), ('ada', 15, 1)], [('ada', 1, 3)])
        """
        axis = self._axis("sessions", column)
        found = span_of(gap, axis, "sessions")
        keys = [self._scalar(part).function for part in _listed(by)]
        rows = sessions(self.collection, axis, found, lambda row: tuple(key(row) for key in keys), "sessions")
        return Table(rows, (*self.columns, *axis.columns))

    def keep_recent(self, column: Expression, keep: Length) -> tuple[Table[T], Table[T]]:
        """Return the rows of the last ``keep`` before the latest ``column`` so far, and the changes that came too late.

        This bounds what is kept for windows of time: rows leave the first table when they are no longer recent. Changes to rows
        that are not recent when they come are in the second table instead. There a row that is taken away too late counts -1.
        What comes at one time is late by the latest row of the times before it.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         clicks = dd.table(scope, pa.schema([("at", pa.int64())]))
        ...         recent, late = (table.output() for table in clicks.keep_recent("at", 10))
        ...     for time, at in enumerate((3, 20, 5, 12)):
        ...         clicks.session.insert((at,))
        ...         clicks.session.advance_to(time + 1)
        ...     clicks.session.close()
        ...     [sorted(recent.at(time)) for time in range(4)], late.at(3)
        ([[(3,)], [(20,)], [(20,)], [(12,), (20,)]], {(5,): 1})
        """
        axis = self._axis("keep_recent", column)
        found = span_of(keep, axis, "keep_recent")
        recent, late = recent_rows(self.collection, axis, found, "keep_recent")
        return Table(recent, self.columns), Table(late, self.columns)

    def _axis(self, operator: str, column: Expression) -> Axis:
        return axis_of(self._scalar(column), operator)

    @naming_the_line
    def _scalar(self, expression: Expression) -> Scalar:
        """Return an expression as a function of rows."""
        query = exp.select(self._parsed(expression)).from_("this")
        mark_positions(query, query.sql(dialect="duckdb"))
        (found,) = _qualified(query, {"this": self}).selects
        return compile_scalar(found.unalias(), Relation(self.collection, self.columns).named("this").scope)

    @naming_the_line
    def _parsed(self, expression: Expression) -> exp.Expr:
        """Return an expression; a text that is the name of a column is that column, also where it is no identifier of SQL."""
        name = lower_case(expression) if isinstance(expression, str) else ""
        names = [column.name for column in self.columns]
        if name not in names or exp.to_identifier(name).quoted is False:
            return _parsed(expression)
        try:
            read = {lower_case(column.name) for column in _parsed(expression).find_all(exp.Column)}
        except SqlError:
            read = set()
        quoted = exp.to_identifier(name).sql(dialect="duckdb")
        if read and read <= {*names}:
            raise SqlError(f"{name} is a column, and an expression of others: write {quoted}, or the expression in parentheses")
        return exp.column(name, "this")

    # -- the method chain ------------------------------------------------------------------------------------------

    def select(self, *expressions: Expression) -> Table[T]:
        """Return the table of ``expressions``, such as ``"price * n as total"``."""
        return self._run(exp.select(*map(self._parsed, expressions)).from_("this"))

    @naming_the_line
    def with_columns(self, *expressions: Expression, **named: Expression) -> Table[T]:
        """Return the table with more columns, or others in the place of those of the same name.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         lines = dd.table(scope, pa.table({"price": [2, 5], "n": [3, 1]}))
        ...         more = lines.with_columns("upper('x') as x", n="n + 1", total="price * n").output()
        ...     more.at(0)
        {(2, 4, 'X', 6): 1, (5, 2, 'X', 5): 1}
        """
        given = [*map(self._parsed, expressions), *(exp.alias_(self._parsed(part), name) for name, part in named.items())]
        new: dict[str, exp.Expr] = {}
        for part in given:
            name = lower_case(part.alias_or_name)
            if not name or part.is_star:
                raise SqlError(f"{part.sql(dialect='duckdb')} of with_columns needs a name: add 'as name'")
            if name in new:
                raise SqlError(f"with_columns makes column {name!r} twice")
            new[name] = part
        kept = [new.pop(column.name) if column.name in new else exp.column(column.name, "this") for column in self.columns]
        return self._run(exp.select(*kept, *new.values()).from_("this"))

    @naming_the_line
    def rename(self, names: Mapping[str, str]) -> Table[T]:
        """Return the table with other names for some columns: ``{old: new}``."""
        new = dict(zip(self._names("rename", names), names.values()))
        selected = [exp.alias_(exp.column(column.name), new.get(column.name, column.name)) for column in self.columns]
        renamed = [lower_case(part.alias) for part in selected]
        for name in renamed:
            if renamed.count(name) > 1:
                raise SqlError(f"rename makes two columns {name!r}")
        return self._run(exp.select(*selected).from_("this"))

    @naming_the_line
    def cast(self, types: Mapping[str, str]) -> Table[T]:
        """Return the table with columns of other types: ``{name: type of SQL}``, such as ``{"price": "decimal(8, 2)"}``."""
        new = dict(zip(self._names("cast", types), types.values()))
        selected: list[exp.Expr] = []
        for column in self.columns:
            value: exp.Expr = exp.column(column.name)
            if column.name in new:
                value = exp.alias_(_parsed(f"CAST(x AS {new[column.name]})"), column.name)
                value.this.set("this", exp.column(column.name))
            selected.append(value)
        return self._run(exp.select(*selected).from_("this"))

    @naming_the_line
    def drop(self, *names: str) -> Table[T]:
        """Return the table without some columns."""
        gone = self._names("drop", names)
        kept = [exp.column(column.name) for column in self.columns if column.name not in gone]
        if not kept:
            raise SqlError("drop leaves no column")
        return self._run(exp.select(*kept).from_("this"))

    def _names(self, operator: str, names: Iterable[str]) -> list[str]:
        """Return the names of columns in lower case; ``SqlError`` for those that are not there."""
        here = [column.name for column in self.columns]
        for name in names:
            if not isinstance(name, str) or lower_case(name) not in here:
                raise SqlError(f"{operator}: there is no column {brief(name)}; there are {', '.join(here)}")
        return [lower_case(name) for name in names]

    def where(self, *conditions: Expression) -> Table[T]:
        """Return the rows for which all conditions are true."""
        return self._run(exp.select("*").from_("this").where(*map(_parsed, conditions)))

    def join(self, other: Table[T], on: Expression | Sequence[Expression], how: str = "inner") -> Table[T]:
        """Return the join: ``how`` is inner, left, right, full, semi, anti, asof or asof left.

        ``on`` is the name of a column, a list of names, or a condition in which the tables are called ``this`` and ``other``.

        An as-of join gives each row the nearest earlier row of ``other`` among those with equal keys. The last name of ``on`` is
        the column of the order: ``this`` is at or after ``other``. A condition has one inequality instead. ``asof left`` keeps
        rows without a match. Of rows of ``other`` that tie, the first by all their columns is taken.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         trades = dd.table(scope, pa.table({"share": ["x", "x"], "at": [1, 7]}))
        ...         quotes = dd.table(scope, pa.table({"share": ["x", "x"], "at": [2, 5], "price": [10, 11]}))
        ...         priced = trades.join(quotes, on=["share", "at"], how="asof left").output()
        ...     priced.at(0)
        {('x', 1, None): 1, ('x', 7, 11): 1}
        """
        if how in ("asof", "asof left"):
            return self._joined_as_of(other, on, optional=how == "asof left")
        if how not in ("inner", "left", "right", "full", "semi", "anti"):
            raise GraphError(f"how is inner, left, right, full, semi, anti, asof or asof left, not {brief(how)}")
        condition = self._parsed(on) if isinstance(on, str | exp.Expr) else None
        join = exp.Join(this=exp.to_table("other"), **({"kind": how} if how in ("inner", "semi", "anti") else {"side": how}))
        if isinstance(condition, exp.Column):
            join.set("using", [exp.to_identifier(condition.name)])
        elif condition is not None:
            join.set("on", condition)
        else:
            join.set("using", [exp.to_identifier(str(name)) for name in on])
        selected = "this.*" if how in ("semi", "anti") else "*"
        query = exp.select(selected).from_("this")
        query.append("joins", join)
        return self._run(query, other=other)

    @naming_the_line
    def _joined_as_of(self, other: Table[T], on: Expression | Sequence[Expression], *, optional: bool) -> Table[T]:
        condition = self._parsed(on) if isinstance(on, str | exp.Expr) else None
        names: list[str] = []
        if condition is None or isinstance(condition, exp.Column):
            names = self._names("join", [condition.name] if condition is not None else [str(name) for name in on])
            other._names("join", names)
            pairs = [(exp.column(name, "this"), exp.column(name, "other")) for name in names]
            equal = [exp.EQ(this=one, expression=another) for one, another in pairs[:-1]]
            condition = exp.and_(*equal, exp.GTE(this=pairs[-1][0], expression=pairs[-1][1]))
        query = exp.select(exp.Star()).from_("this")
        query.append("joins", exp.Join(this=exp.to_table("other"), on=condition))
        tables = {"this": self, "other": other}
        _check_tables(tables)
        mark_positions(query, query.sql(dialect="duckdb"))
        (join,) = _qualified(query, tables).args["joins"]
        left = Relation(self.collection, self.columns).named("this")
        right = Relation(other.collection, other.columns).named("other")
        found = asof_join(left, right, list(conjuncts(join.args["on"])), join, optional=optional)
        width = len(left.columns)
        kept = [i for i, column in enumerate(found.columns) if i < width or column.name not in names]
        rows = (
            found.collection if len(kept) == len(found.columns) else found.collection.map(lambda row: tuple(row[i] for i in kept))
        )
        return Table(rows, tuple(found.columns[i] for i in kept))

    def explode(self, column: str) -> Table[T]:
        """Return a row for each element of the lists of ``column``, which becomes the element; empty lists have no row.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         posts = dd.table(scope, pa.table({"id": [1, 2], "tags": [["a", "b"], []]}))
        ...         tags = posts.explode("tags").output()
        ...     tags.at(0)
        {(1, 'a'): 1, (1, 'b'): 1}
        """
        (name,) = self._names("explode", [column])
        return self.with_columns(exp.alias_(exp.Explode(this=exp.column(name, "this")), name))

    def map_rows(self, f: Callable[[tuple[Any, ...]], Any], schema: pa.Schema, *, name: str = "map_rows") -> Table[T]:
        """Return the table of ``f(row)``: a tuple of ``schema`` for each row, which is a tuple too.

        ``f`` is called for rows that come and for rows that go, so its result must depend on the row alone. What it raises
        becomes an ``OperatorError``, and so does a ``SchemaError`` for what is no row of ``schema``.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         words = dd.table(scope, pa.table({"word": ["ada", "bob"]}))
        ...         turned = words.map_rows(lambda row: (row[0][::-1],), pa.schema([("word", pa.string())])).output()
        ...     turned.at(0)
        {('ada',): 1, ('bob',): 1}
        """
        columns = columns_of(schema)
        check = row_check(columns, schema)
        return Table(self.collection.map(lambda row: check(f(row)), name=name), columns)

    def map_batches(self, f: Callable[[pa.RecordBatch], Any], schema: pa.Schema, *, name: str = "map_batches") -> Table[T]:
        """Return the table of ``f(batch)``: Arrow data with the columns of ``schema`` for each Arrow batch of rows.

        How rows are put into batches is unspecified, and changes from run to run. So the result for a batch must be the results
        for its rows one by one, put together. There may be fewer or more rows. Errors are those of ``map_rows``.

        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         numbers = dd.table(scope, pa.table({"n": [1, 2, 3]}))
        ...         many = numbers.map_batches(lambda batch: batch.filter(pc.field("n") > 1), numbers.schema).output()
        ...     many.at(0)
        {(2,): 1, (3,): 1}
        """
        rows = by_batches(f, self.columns, schema, name)
        return Table(Collection(linear(self.collection.stream, name, rows), self.collection.ring), columns_of(schema))

    def group_by(self, *keys: Expression) -> GroupedTable[T]:
        """Return the groups of rows with equal ``keys``; ``agg`` makes a table of them."""
        return GroupedTable(self, keys)

    def distinct(self) -> Table[T]:
        """Return each row once."""
        return self._run(exp.select("*").from_("this").distinct())

    def union(self, other: Table[T]) -> Table[T]:
        """Return the rows that either table has, each once; columns go together by position, as in SQL."""
        return self._combined(exp.union, other, distinct=True)

    def union_all(self, other: Table[T]) -> Table[T]:
        """Return the rows of both."""
        return self._combined(exp.union, other, distinct=False)

    def except_(self, other: Table[T]) -> Table[T]:
        """Return the rows that ``other`` does not have, each once."""
        return self._combined(exp.except_, other, distinct=True)

    def except_all(self, other: Table[T]) -> Table[T]:
        """Return the rows without those of ``other``, each taken away as often as it is there."""
        return self._combined(exp.except_, other, distinct=False)

    def intersect(self, other: Table[T]) -> Table[T]:
        """Return the rows that both tables have, each once."""
        return self._combined(exp.intersect, other, distinct=True)

    def intersect_all(self, other: Table[T]) -> Table[T]:
        """Return the rows that both tables have, each as often as the table that has it less often."""
        return self._combined(exp.intersect, other, distinct=False)

    def _combined(self, operation: Callable[..., exp.Query], other: Table[T], *, distinct: bool) -> Table[T]:
        return self._run(operation(exp.select("*").from_("this"), exp.select("*").from_("other"), distinct=distinct), other=other)

    def limit(self, k: int, order_by: Expression | Sequence[Expression], *, offset: int = 0) -> Table[T]:
        """Return the first ``k`` rows in an order, after the first ``offset``; rows that tie are ordered by all their columns."""
        _check_number("limit", "k", k, 1)
        _check_number("limit", "offset", offset, 0)
        query = exp.select("*").from_("this").order_by(*self._ordered(order_by), dialect="duckdb").limit(k)
        return self._run(query.offset(offset) if offset else query)

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
        _check_number("top", "k", k, 1)
        query = exp.select("*").from_("this").order_by(*self._ordered(order_by), dialect="duckdb")
        keys = [self._scalar(part).function for part in _listed(by)]
        places = Relation(self.collection, self.columns).named("this").places
        scope = NameScope(self.columns, {**places, **{exp.column(column.name): i for i, column in enumerate(self.columns)}})
        order = sort_key(_qualified(query, {"this": self}).args["order"].expressions, scope, len(self.columns))
        rows = first_rows(self.collection, lambda row: tuple(key(row) for key in keys), order, k)
        return Table(rows, self.columns)

    def _ordered(self, given: Expression | Sequence[Expression]) -> list[Expression]:
        """Return expressions of an order, which may have a direction."""
        names = {column.name for column in self.columns}
        listed = _listed(given)
        return [
            self._parsed(part).sql(dialect="duckdb") if isinstance(part, str) and lower_case(part) in names else part
            for part in listed
        ]

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
        keys = [self._table._parsed(key) for key in self._keys]
        query = exp.select(*keys, *map(_parsed, aggregates)).from_("this")
        if keys:
            query = query.group_by(*(key.unalias() for key in keys))
        return self._table._run(query)

    def limit(self, k: int, order_by: Expression | Sequence[Expression]) -> Table[T]:
        """Return the first ``k`` rows of each group in an order, as ``Table.top`` does with ``by``."""
        return self._table.top(k, order_by, by=self._keys)


def _each_named_once(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with names of their own: a second ``id`` is ``id_1``."""
    used = {column.name for column in columns}
    if len(used) == len(columns):
        return columns
    found: list[Column] = []
    for column in columns:
        name = column.name
        if any(other.name == name for other in found):
            name = next(new for number in count(1) if (new := f"{column.name}_{number}") not in used)
            used.add(name)
        found.append(attrs.evolve(column, name=name))
    return tuple(found)


def _listed(given: Expression | Sequence[Expression]) -> list[Expression]:
    return [given] if isinstance(given, str | exp.Expr) else list(given)


def _check_number(operator: str, name: str, number: int, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise GraphError(f"{operator}: {name} is a whole number from {least} on, not {brief(number)}")


@naming_the_line
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
        several = isinstance(found, exp.Select) and len(found.expressions) > 1
        advice = ": give each as an argument of its own" if several else ""
        raise SqlError(f"{brief(expression)} is not one expression of SQL{advice}")
    parsed: exp.Expr = found.expressions[0]
    parsed.pop()
    return parsed


def table(
    source: Any, data: Any = None, *, schema: pa.Schema | None = None, count: str | None = None, name: str = "table"
) -> Table[Any]:
    """Return a table: of an input, of a collection, of Arrow data, or of a stream of Arrow batches.

    - ``table(scope, schema)``: one that its ``session`` changes.
    - ``table(collection, schema)``: the records of a collection, which are tuples.
    - ``table(scope, data)``: the rows of ``data`` at the minimum time, once, whichever number of workers is given it. ``data``
      exports Arrow: a PyArrow table or batch, a DataFrame of polars or pandas, a relation of DuckDB.
    - ``table(stream, schema)``: the rows of a stream of Arrow batches, or of tuples, each at its time; ``scope.read_parquet`` and
      the like make such streams.

    ``count`` names a column of Arrow data, which the table does not have, that says how often each row is added, or taken away:
    ``to_batches`` and ``to_pandas(counts=True)`` make one. An index of pandas without a name is left out, and one with a name
    is a column.

    Rows are checked against the schema when they come: ``SchemaError`` for others.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         people = dd.table(scope, pa.table({"id": [1, 2], "name": ["ada", "bob"]}))
    ...         names = people.select("upper(name) as name").output()
    ...     names.at(0)
    {('ADA',): 1, ('BOB',): 1}
    """
    if isinstance(data, pa.Schema):
        if schema is not None:
            raise GraphError("table: the schema is given twice")
        data, schema = None, data
    if data is not None:
        if not is_arrow(data):
            raise GraphError(f"table: {brief(data)} is no pyarrow.Schema, and no Arrow data")
        found = arrow_table(data, name)
        batches = to_stream(source, found.combine_chunks().to_batches(), on=0)
        return table(batches, data_schema(found.schema) if schema is None else schema, count=count, name=name)
    if schema is None:
        raise GraphError("table: give the pyarrow.Schema of its rows, or Arrow data, which has one")
    given = schema
    if count is not None:
        schema = _without_counts(schema, count, source, name)
    columns = columns_of(schema)
    session: InputSession[Any, Any] | None = None
    if isinstance(source, Collection):
        rows = source
    elif isinstance(source, Stream):
        read = stream_reader(schema, name) if count is None else counted_reader(given, count, name)
        rows = Collection(linear(source, name, read))
    else:
        sender, stream = new_sender(source, name)
        session, rows = InputSession(sender, INTEGERS, RowFields(schema, name)), Collection(stream)
    check = row_check(columns, schema)
    found = checked(rows, check, columns, plain_schema(schema), name, by_session=session is not None)
    return Table(found, columns, session)


def _without_counts(schema: pa.Schema, count: str, source: Any, name: str) -> pa.Schema:
    if not isinstance(source, Stream):
        raise GraphError(f"{name}: count= names a column of Arrow data: give data or a stream; session.update takes counts too")
    place = schema.get_field_index(count)
    if place < 0 or not pa.types.is_integer(schema.field(place).type):
        raise SchemaError(f"{name}: count={count!r} names no column of whole numbers; there are {', '.join(schema.names)}")
    return schema.remove(place)


def sql(scope: ScopeBuilder[T], query: str, /, **tables: Table[T] | Collection[T, Any]) -> Table[T]:
    """Return a query over ``tables``, or collections with a schema, as a table that stays right; the dialect is DuckDB's.

    ``SqlError`` for what is not kept up to date, with the construct and its position in the text. A view has no order:
    ``ORDER BY`` without ``LIMIT`` has no effect, which a ``TimelyWarning`` says.

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
    found = query_over(scope, query, tables)
    warn_of_order(query)
    return found


def query_over(scope: ScopeBuilder[T], query: str, tables: Mapping[str, Table[T] | Collection[T, Any]]) -> Table[T]:
    """Return what ``sql`` does, for whoever warns of an order by themselves."""
    return _translated(scope, _tree_of(query), query, {lower_case(name): _as_table(found) for name, found in tables.items()})


def _tree_of(query: str) -> exp.Expr:
    try:
        trees = [tree for tree in parse_sql(query, read="duckdb") if tree is not None]
    except (ParseError, TokenError) as error:
        raise SqlError(f"the query cannot be parsed: {error}") from None
    if len(trees) != 1:
        raise SqlError(f"a view is one query, and here are {len(trees)}")
    return trees[0]


def warn_of_order(query: str, view: str = "") -> None:
    """Warn of an ``ORDER BY`` that decides nothing: neither which rows there are, nor in which order they are read."""
    tree = _tree_of(query)
    order, distinct = tree.args.get("order"), tree.args.get("distinct")
    if order is None or tree.args.get("limit") or tree.args.get("offset") or (distinct is not None and distinct.args.get("on")):
        return
    mark_positions(tree, query)
    warn(f"{view}a view has no order: ORDER BY{position_of(order)} has no effect without LIMIT; sort when you read")


def _as_table(found: Any) -> Any:
    return table(found, found.schema) if isinstance(found, Collection) and found.schema is not None else found


def _sql_type(kind: Kind) -> str:
    """Return the name of a type for sqlglot, which resolves the fields of structs by it."""
    if kind.element is not None:
        return f"{_sql_type(kind.element)}[]"
    if kind.fields:
        fields = ((exp.to_identifier(name, quoted=True).sql(dialect="duckdb"), part) for name, part in kind.fields)
        return f"STRUCT({', '.join(f'{name} {_sql_type(part)}' for name, part in fields)})"
    return {Kind.NULL: "VARCHAR", Kind.INTEGER: "BIGINT"}.get(kind, kind.value)


def _qualified(tree: exp.Expr, tables: Mapping[str, Table[Any]]) -> exp.Query:
    schema: dict[str, object] = {
        name: {column.name: _sql_type(column.kind) for column in found.columns} for name, found in tables.items()
    }
    known = MappingSchema(schema, dialect="duckdb", normalize=False)  # which parses names otherwise: they are any texts
    try:
        found = qualify(tree.copy(), schema=known, dialect="duckdb", quote_identifiers=False, identify=False)
    except (OptimizeError, AssertionError) as error:
        raise _unresolved(tree, str(error), tables) from None
    assert isinstance(found, exp.Query)
    for identifier in found.find_all(exp.Identifier):
        identifier.set("quoted", exp.to_identifier(identifier.name).quoted)  # equal in whatever way they are written
    return found


def _unresolved(tree: exp.Expr, message: str, tables: Mapping[str, Table[Any]]) -> SqlError:
    """Return the error for a name that is not found, or found twice."""
    own = {lower_case(cte.alias) for cte in tree.find_all(exp.CTE)}
    read: dict[str, list[str]] = {}
    for item in tree.find_all(exp.Table):
        name = lower_case(item.name)
        if name in own or not isinstance(item.this, exp.Identifier):
            continue
        if name not in tables:
            return no_table(item, tables)
        read[lower_case(item.alias_or_name)] = [column.name for column in tables[name].columns]
    named = re.search(r"(column|table|join):? '?(.+?)(' could not be resolved|$)", message, re.IGNORECASE | re.DOTALL)
    if named is None:
        return SqlError(f"the names of the query cannot be resolved: {message}")
    name = lower_case(named[2])
    known = own.union(read, *read.values(), (lower_case(part.alias) for part in tree.find_all(exp.Subquery, exp.UDTF)))
    for column in tree.find_all(exp.Column):  # of one that is qualified the message may have the table alone
        table = lower_case(column.table)
        if table and table not in known and name in (table, lower_case(column.name)):
            return refusal(column, f"there is no table {table} in FROM; there are: {', '.join(read) or 'none'}")
    found = [part for part in tree.find_all(exp.Column, exp.Identifier) if lower_case(part.name) == name]
    having = [alias for alias, columns in read.items() if name in columns]
    if len(having) > 1:
        why = f"the name is ambiguous: write {' or '.join(f'{alias}.{name}' for alias in having)}"
    else:
        near = difflib.get_close_matches(name, [each for columns in read.values() for each in columns], 1)
        meant = f": did you mean {exp.to_identifier(near[0]).sql(dialect='duckdb')}?" if near and near[0] != name else ""
        here = "; ".join(f"{alias} has {', '.join(columns)}" for alias, columns in read.items())
        why = f"there is no column of this name; {here or 'FROM has no table'}{meant}"
    return refusal(found[0], why) if found else SqlError(f"{name}: {why}")


def _check_tables(tables: Mapping[str, Any]) -> None:
    for name, found in tables.items():
        if not isinstance(found, Table):
            raise GraphError(
                f"sql reads tables, and {name} is {brief(found)}: make one with dd.table(collection, schema), or give the"
                " collection a schema"
            )


def _pruned(relation: Relation, names: set[str]) -> Relation:
    """Return the columns of a table that a query reads."""
    kept = [place for place, column in enumerate(relation.columns) if column.name in names]
    if len(kept) == len(relation.columns):
        return relation
    return Relation(pruned(relation.collection, kept), tuple(relation.columns[place] for place in kept))


@naming_the_line
def _translated(scope: ScopeBuilder[Any], tree: exp.Expr, text: str, tables: Mapping[str, Table[Any]]) -> Table[Any]:
    _check_tables(tables)
    if not isinstance(tree, exp.Query):
        raise SqlError(f"a view is a query, not {tree.key.upper()}")
    mark_positions(tree, text)
    for part in reversed(list(tree.walk())):  # what stands inside first, since parts are copied
        keep_order_names(part)
        restore_all(part)
    own = {lower_case(cte.alias) for cte in tree.find_all(exp.CTE)}
    columns = {name: [column.name for column in found.columns] for name, found in tables.items() if name not in own}
    for part in tree.walk():
        if isinstance(part, exp.Select):
            name_outputs(part)
            mark_using(part)
            expand_stars(part, columns)
        if isinstance(part, exp.Parameter | exp.Placeholder):
            raise refusal(part, "parameters have no values here")
    qualified = limit_inside(with_unique_tables(_qualified(tree, tables)))
    select_less(qualified)
    read = {column.name for column in qualified.find_all(exp.Column)}
    for item in qualified.find_all(exp.Table):
        if item.alias_column_names and item.name in tables:  # its columns have other names there
            read.update(column.name for column in tables[item.name].columns)
    for join in qualified.find_all(exp.Join):
        if using_names(join) == []:  # a natural join compares all that both sides have
            read.update(column.name for found in tables.values() for column in found.columns)
        read.update(lower_case(name) for name in using_names(join) or [])
    names = {name: _pruned(Relation(found.collection, found.columns), read) for name, found in tables.items()}
    relation = translate(qualified, scope, names)
    return Table(relation.collection, relation.columns)
