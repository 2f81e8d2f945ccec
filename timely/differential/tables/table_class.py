"""``Table``: a collection of rows with a schema, and the operators on it, most of which are queries over ``this``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, count
from operator import itemgetter
from typing import Any, Generic

import attrs
import pyarrow as pa
from typing_extensions import TypeVar

from timely.connect import SinkConnector
from timely.dataflow import ScopeBuilder, Stream, declared_schema
from timely.differential.collections import Collection
from timely.differential.inputs import InputSession
from timely.differential.outputs import Output, output
from timely.differential.row_history import RowHistory
from timely.differential.tables.arrow_rows import by_batches
from timely.differential.tables.expressions.column_compiler import Expressions, column_expressions
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import compile_scalar
from timely.differential.tables.names import method_queries as queries
from timely.differential.tables.names.method_queries import Expression, known_names, quoted
from timely.differential.tables.names.name_scopes import distinct_names
from timely.differential.tables.names.queries import query_of, relation_of
from timely.differential.tables.names.refusals import naming_the_line
from timely.differential.tables.operators.recent_rows import IN_TIME, RECENT, recent_rows
from timely.differential.tables.operators.session_windows import Sessions, sessions
from timely.differential.tables.operators.sorting import first_rows, sort_key
from timely.differential.tables.operators.time_windows import (
    Axis,
    Lateness,
    Length,
    TimeSpan,
    axis_of,
    sliding,
    span_of,
    windows_of,
)
from timely.differential.tables.values.kinds import Column, arrow_schema, columns_of, lower_case, row_check
from timely.differential.updates.linear import linear
from timely.errors import GraphError, SqlError, brief
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)
Watermarks = tuple[tuple[int, Collection[Any, Any]], ...]


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
        self,
        collection: Collection[T, Any],
        columns: tuple[Column, ...],
        session: InputSession[T, Any] | None = None,
        history: RowHistory[T] | None = None,
        watermarks: Watermarks = (),
        late: Table[T] | None = None,
        append_only: bool = False,
    ) -> None:
        self._rows = collection
        self._history = history
        self._watermarks = watermarks
        self._late = late
        self._append_only = append_only
        names = [column.name for column in columns]
        if len(set(names)) < len(names):  # a second ``id`` is ``id_1``
            columns = tuple(attrs.evolve(column, name=name) for column, name in zip(columns, distinct_names(names)))
        self.columns = columns
        self._session = session

    @property
    def collection(self) -> Collection[T, Any]:
        """Its rows, for the relation whose operators are being made (``scope.named``)."""
        return self._rows if self._history is None else self._history.read()

    @property
    def _relation(self) -> Relation:
        return Relation(self.collection, self.columns, watermarks=self._watermarks, grows=self._append_only)

    def __repr__(self) -> str:
        return f"Table({', '.join(f'{column.name} {column.kind.value}' for column in self.columns)})"

    @property
    def session(self) -> InputSession[T, Any]:
        """What changes the table from outside; ``GraphError`` where it is computed."""
        if self._session is None:
            raise GraphError(f"{self!r} is computed, or its session is elsewhere: dd.table(scope, schema) has one")
        return self._session

    @property
    def late(self) -> Table[T]:
        """The changes that came too late for a table with a lateness; a row that was taken away too late counts -1."""
        if self._late is None:
            raise GraphError(f"{self!r} has no lateness: dd.table(scope, schema, lateness={{column: length}}) has one")
        return self._late

    @property
    def scope(self) -> ScopeBuilder[T]:
        """The scope that it is in."""
        return self._rows.scope

    @property
    def schema(self) -> pa.Schema:
        """Its columns as an Arrow schema, with the widest type of each kind."""
        return arrow_schema(self.columns)

    def output(self, worker: int | None = None, *, name: str = "output") -> Output[T, Any]:
        """Return what the table holds, to be read at complete times."""
        with self._below(name, f"on worker {worker}"):
            rows = self.collection
            return output(rows.stream, rows.ring, worker, name, self.schema, rows.placement)

    def _below(self, name: str, definition: str) -> AbstractContextManager[object]:
        """Return the block of a relation that is named below this one, if this one has a history."""
        if self._history is None:
            return nullcontext()
        identities, around = self.scope.identities, self._history.name
        names = chain([f"{around}/{name}"], (f"{around}/{name} {number}" for number in count(2)))
        free = next(below for below in names if below not in identities.relations)
        return identities.named(free, "output", definition, (around,))

    def to_batches(self, *, name: str = "to_batches") -> Stream[T, pa.RecordBatch]:
        """Return the changes of each complete time as Arrow batches: the columns, and ``count``, by how much each row changed."""
        self._note("to_batches")
        return self.collection.to_batches(self.schema, name=name)

    def write(self, sink: SinkConnector, *, name: str | None = None) -> None:
        """Have a sink hold the table's rows, exactly once: ``timely.connect.write``.

        >>> import timely
        >>> from timely import connect, differential as dd
        >>> from timely.recovery import MemoryStore, Recovery
        >>> from timely.testing import MemoryBroker, MemorySink, MemorySource
        >>> broker = MemoryBroker({"words": [(("to",), 1), (("be",), 1), (("to",), 1)]})
        >>> with timely.Worker() as worker, Recovery(worker, MemoryStore()) as recovery:
        ...     with worker.dataflow(int) as scope:
        ...         words = dd.table(scope, MemorySource(broker))
        ...         words.group_by("word").agg("count(*) as n").write(MemorySink(broker))
        ...     connect.run(recovery)
        >>> sorted(broker.rows)
        [('be', 1), ('to', 2)]
        """
        self.collection.write(sink, columns=[column.name for column in self.columns], name=name)

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
        axis = self._axis("tumbling", column, size, origin)
        length = span_of(size, axis, "tumbling", months=True)
        return self._in_windows("tumbling", column, axis, length, length, origin)

    def sliding(self, column: Expression, size: Length, step: Length, *, origin: Any = None) -> Table[T]:
        """Return each row once for each window of ``size`` that it is in, where a window begins every ``step``.

        Columns, lengths and ``origin`` are those of ``tumbling``.
        """
        axis = self._axis("sliding", column, size, step, origin)
        length, distance = span_of(size, axis, "sliding"), span_of(step, axis, "sliding", months=True)
        return self._in_windows("sliding", column, axis, length, distance, origin)

    def _in_windows(self, operator: str, column: Expression, axis: Axis, size: TimeSpan, step: TimeSpan, origin: Any) -> Table[T]:
        rows, watermarks = sliding(self.collection, axis, size, step, origin, operator), self._watermarks
        windows = windows_of(Axis(axis.kind, itemgetter(0)), size, step, origin, operator)
        place = {name: place for place, name in enumerate(self._column_names)}.get(str(column).lower())
        for values in [values for own, values in watermarks if own == place]:
            bounds = values.flat_map(lambda row: sorted(windows(row))[:1])
            ends = ((len(self.columns) + end, bounds.map(itemgetter(slice(1 + end, 2 + end)))) for end in (0, 1))
            watermarks = (*watermarks, *ends)
        return Table(rows, (*self.columns, *axis.columns), watermarks=watermarks, append_only=self._append_only)

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
        axis = self._axis("sessions", column, gap, *_listed(by))
        length = span_of(gap, axis, "sessions")
        rows = sessions(self.collection, Sessions(axis, length, *self._key(by), self.columns))
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
        axis = self._axis("keep_recent", column, keep)
        length = span_of(keep, axis, "keep_recent")
        recent, late, _ = recent_rows(self.collection, axis, length, RECENT, "keep_recent")
        return Table(recent, self.columns), Table(late, self.columns)

    def _in_time(self, lateness: Lateness, name: str) -> Table[T]:
        """Return the rows that come in time, with their watermark."""
        place, span = lateness.place, lateness.span
        self._note(name, self.columns[place].name, "lateness", span)
        rows, late, watermark = recent_rows(self.collection, Axis(lateness.kind, itemgetter(place)), span, IN_TIME, name)
        of_late, marks = Table(late, self.columns, append_only=self._append_only), ((place, watermark),)
        return Table(rows, self.columns, self._session, watermarks=marks, late=of_late, append_only=self._append_only)

    def _note(self, *parts: object) -> None:
        """Note the arguments of an operator, and over which columns: the graph of a checkpoint does not show them."""
        self.scope.identities.note(f"{' '.join(map(str, parts))} over {', '.join(map(str, self.columns))}")

    @naming_the_line
    def _axis(self, operator: str, column: Expression, *arguments: object) -> Axis:
        self._note(operator, column, *arguments)
        (value,), scope = queries.values_over(self.columns, [column])
        return axis_of(compile_scalar(value, scope), operator, column_expressions([value], scope))

    @naming_the_line
    def _key(self, by: Expression | Sequence[Expression]) -> tuple[Callable[[Any], Any], Expressions | None]:
        """Return the values of expressions as a function of rows, and of columns."""
        if not by:
            return lambda row: (), Expressions([])
        values, scope = queries.values_over(self.columns, _listed(by))
        functions = [compile_scalar(value, scope).function for value in values]
        return lambda row: tuple([function(row) for function in functions]), column_expressions(values, scope)

    # -- the method chain ------------------------------------------------------------------------------------------

    def select(self, *expressions: Expression) -> Table[T]:
        """Return the table of ``expressions``, such as ``"price * n as total"``."""
        return self._run(queries.selecting(self._column_names, expressions))

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
        return self._run(queries.replacing(self._column_names, expressions, named))

    @naming_the_line
    def rename(self, names: Mapping[str, str]) -> Table[T]:
        """Return the table with other names for some columns: ``{old: new}``."""
        new = dict(zip(known_names("rename", self._column_names, names), names.values()))
        renamed = [new.get(name, name) for name in self._column_names]
        lowered = [lower_case(name) for name in renamed]
        for name in lowered:
            if lowered.count(name) > 1:
                raise SqlError(f"rename makes two columns {name!r}")
        return self._selected(f"{quoted(old)} as {quoted(name)}" for old, name in zip(self._column_names, renamed))

    @naming_the_line
    def cast(self, types: Mapping[str, str]) -> Table[T]:
        """Return the table with columns of other types: ``{name: type of SQL}``, such as ``{"price": "decimal(8, 2)"}``."""
        new = dict(zip(known_names("cast", self._column_names, types), types.values()))
        casts = {name: f"cast({quoted(name)} as {type_}) as {quoted(name)}" for name, type_ in new.items()}
        return self.select(*(casts.get(name, quoted(name)) for name in self._column_names))

    @naming_the_line
    def drop(self, *names: str) -> Table[T]:
        """Return the table without some columns."""
        gone = known_names("drop", self._column_names, names)
        if len(set(gone)) == len(self.columns):
            raise SqlError("drop leaves no column")
        return self._selected(quoted(name) for name in self._column_names if name not in gone)

    @property
    def _column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def where(self, *conditions: Expression) -> Table[T]:
        """Return the rows for which all conditions are true."""
        return self._run(queries.selecting(self._column_names, conditions=conditions))

    @naming_the_line
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
        if how not in ("inner", "left", "right", "full", "semi", "anti", "asof", "asof left"):
            raise GraphError(f"how is inner, left, right, full, semi, anti, asof or asof left, not {brief(how)}")
        return self._run(queries.joining(self._column_names, other._column_names, on, how), other=other)

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
        (name,) = known_names("explode", self._column_names, [column])
        lists = {name: f"unnest({quoted(name)}) as {quoted(name)}"}
        return self._selected(lists.get(name, quoted(name)) for name in self._column_names)

    def map_rows(self, f: Callable[[tuple[Any, ...]], Any], schema: pa.Schema | str, *, name: str = "map_rows") -> Table[T]:
        """Return the table of ``f(row)``: a tuple of ``schema`` for each row, which is a tuple too.

        ``f`` is called for rows that come and for rows that go, so its result must depend on the row alone. What it raises
        becomes an ``OperatorError``, and so does a ``SchemaError`` for what is no row of ``schema``.

        >>> import pyarrow as pa
        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         words = dd.table(scope, pa.table({"word": ["ada", "bob"]}))
        ...         turned = words.map_rows(lambda row: (row[0][::-1],), "word string").output()
        ...     turned.at(0)
        {('ada',): 1, ('bob',): 1}
        """
        schema = declared_schema(schema, name)
        columns = columns_of(schema)
        check = row_check(columns, schema)
        return Table(self.collection.map(lambda row: check(f(row)), name=name), columns)

    def map_batches(self, f: Callable[[pa.RecordBatch], Any], schema: pa.Schema | str, *, name: str = "map_batches") -> Table[T]:
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
        schema = declared_schema(schema, name)
        rows = by_batches(f, self.columns, schema, name)
        return Table(Collection(linear(self.collection.stream, name, rows), self.collection.ring), columns_of(schema))

    def group_by(self, *keys: Expression) -> GroupedTable[T]:
        """Return the groups of rows with equal ``keys``; ``agg`` makes a table of them."""
        return GroupedTable(self, keys)

    def distinct(self) -> Table[T]:
        """Return each row once."""
        return self._sql("select distinct * from this")

    def union(self, other: Table[T]) -> Table[T]:
        """Return the rows that either table has, each once; columns go together by position, as in SQL."""
        return self._combined("union", other)

    def union_all(self, other: Table[T]) -> Table[T]:
        """Return the rows of both."""
        return self._combined("union all", other)

    def except_(self, other: Table[T]) -> Table[T]:
        """Return the rows that ``other`` does not have, each once."""
        return self._combined("except", other)

    def except_all(self, other: Table[T]) -> Table[T]:
        """Return the rows without those of ``other``, each taken away as often as it is there."""
        return self._combined("except all", other)

    def intersect(self, other: Table[T]) -> Table[T]:
        """Return the rows that both tables have, each once."""
        return self._combined("intersect", other)

    def intersect_all(self, other: Table[T]) -> Table[T]:
        """Return the rows that both tables have, each as often as the table that has it less often."""
        return self._combined("intersect all", other)

    def _combined(self, operation: str, other: Table[T]) -> Table[T]:
        return self._sql(f"select * from this {operation} select * from other", other=other)

    def limit(self, k: int, order_by: Expression | Sequence[Expression], *, offset: int = 0) -> Table[T]:
        """Return the first ``k`` rows in an order, after the first ``offset``; rows that tie are ordered by all their columns."""
        _check_number("limit", "k", k, 1)
        _check_number("limit", "offset", offset, 0)
        return self._run(queries.selecting(self._column_names, order=_listed(order_by), limit=k, offset=offset))

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
        self._note("top", k, *_listed(order_by), "by", *_listed(by))
        key, _ = self._key(by)
        orders, scope = queries.sort_keys_over(self.columns, _listed(order_by))
        order = sort_key(orders, scope, len(self.columns))
        return Table(first_rows(self.collection, key, order, k, grows=self._append_only), self.columns)

    def _selected(self, columns: Iterable[str]) -> Table[T]:
        return self._sql(f"select {', '.join(columns)} from this")

    @naming_the_line
    def _sql(self, text: str, **others: Table[T]) -> Table[T]:
        return self._run(query_of(text), **others)

    def _run(self, query: Any, **others: Table[T]) -> Table[T]:
        return table_of(relation_of(self.scope, query, relations({"this": self, **others})))


class GroupedTable(Generic[T]):
    """The groups of a table; from ``Table.group_by``."""

    def __init__(self, table: Table[T], keys: Sequence[Expression]) -> None:
        self._table = table
        self._keys = keys

    def agg(self, *aggregates: Expression) -> Table[T]:
        """Return the keys and ``aggregates``, such as ``"sum(price) as total"``, for each group."""
        table = self._table
        return table._run(queries.selecting(table._column_names, aggregates, keys=self._keys))

    def limit(self, k: int, order_by: Expression | Sequence[Expression]) -> Table[T]:
        """Return the first ``k`` rows of each group in an order, as ``Table.top`` does with ``by``."""
        return self._table.top(k, order_by, by=self._keys)


def table_of(relation: Relation) -> Table[Any]:
    """Return the rows of a query as a table."""
    return Table(relation.collection, relation.columns, watermarks=relation.watermarks, append_only=relation.grows)


def relations(tables: Mapping[str, Any]) -> dict[str, Relation]:
    """Return the rows of tables, by name; ``GraphError`` for what is no table."""
    for name, rows in tables.items():
        if not isinstance(rows, Table):
            raise GraphError(
                f"sql reads tables, and {name} is {brief(rows)}: make one with dd.table(collection, schema), or give the"
                " collection a schema"
            )
    return {name: rows._relation for name, rows in tables.items()}


def _listed(expressions: Expression | Sequence[Expression]) -> list[Expression]:
    return list(expressions) if isinstance(expressions, Sequence) and not isinstance(expressions, str) else [expressions]


def _check_number(operator: str, name: str, number: int, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise GraphError(f"{operator}: {name} is a whole number from {least} on, not {brief(number)}")
