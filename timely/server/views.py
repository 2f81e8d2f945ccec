"""``Views``: tables that change in epochs, and views of SQL over them, all at one complete time.

Invariant: what is read of several tables and views is what they are at ``time``; an epoch is applied to all of them, or to none.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import secrets
import threading
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import attrs
import pyarrow as pa

from timely.dataflow import declared_schema
from timely.differential.tables.names.statements import Statement, ViewDefinition, checked_name, parse_script
from timely.differential.tables.sources import warn_of_order
from timely.differential.tables.values.kinds import Column, columns_of, row_check
from timely.differential.updates.updates import consolidate
from timely.errors import (
    CompactedError,
    ConfigurationError,
    DifferenceError,
    OperatorError,
    OutputError,
    SqlError,
    TimelyError,
    ViewError,
    brief,
    error_text,
)
from timely.memory import MemoryBudget, system_memory_left
from timely.server.catalog import Catalog, Definition
from timely.server.contents import Change, Contents, EpochChanges, Row, RowCondition
from timely.server.durable import Durable, RelationState
from timely.server.query_process import LEAST, QueryProcess, QueryRequest, SortColumn, TableState
from timely.server.requests import Decision, Request, RequestKey, RequestKeys
from timely.server.runtime import Runtime

Changes = Mapping[Row, int] | Iterable[Change]
"""What happens to a table: rows with what their counts grow by."""

RelationKind = Literal["table", "view", "query"]


@attrs.frozen
class Limits:
    """Bounds of what clients may ask for."""

    queries: int = 16
    """Queries that run at one time."""
    query_length: int = 20_000
    """Characters of a query."""
    query_seconds: float = 30.0
    """Seconds that a query may take in one epoch."""
    query_memory: int | None = None
    """Bytes that all queries may take, each a quarter of what others leave; by default half of what this process may take."""
    rows: int = 100_000
    """Rows of one answer, of one event, or of the result of a query."""
    subscribers: int = 256
    """Clients that follow changes."""
    patience: float = 30.0
    """Seconds for which a client may send nothing of a request, or take nothing of an answer."""
    body: int = 1 << 20
    """Bytes of the body of a request."""
    epochs: int = 1000
    """Epochs whose changes are remembered, for clients that come back."""
    changes: int = 100_000
    """Changes of a view that are remembered."""
    replay_seconds: float = 5.0
    """Seconds of computing after which a checkpoint is taken, where there is ``data``: a restart repeats about as much."""


class _Outdated(Exception):
    """The catalog has changed since a change of it was compiled."""


class Answer(NamedTuple):
    """Rows of a table or view with their counts, at one complete time; ``more`` says that there are others."""

    time: int
    columns: tuple[Column, ...]
    rows: list[tuple[Row, int]]
    more: bool


class ViewDescription(NamedTuple):
    """What a table, view or query is at the current time; ``error`` says why it has no result now."""

    name: str
    kind: RelationKind
    columns: tuple[Column, ...]
    rows: int
    query: str | None
    error: str | None


@attrs.define(eq=False)
class _Relation:
    """A table or a view that is read."""

    definition: Definition
    contents: Contents
    check: Callable[[Any], Row] | None = None  # of a table
    error: str | None = None  # why it has no result, for readers
    live: bool = True  # its dataflow runs
    shown: bool = False  # it has had a result
    whole: bool = True  # what arrives next is all of it

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def kind(self) -> Literal["table", "view"]:
        return "view" if self.definition.schema is None else "table"


class Views:
    """Tables, views and queries; may be used from any thread. Reading never waits for an epoch that is computed.

    >>> views = Views()
    >>> views.table("orders", "customer string, price long", [("ada", 30), ("bob", 5)])
    >>> views.view("totals", "select customer, sum(price) as total from orders group by customer")
    >>> sorted(views.read("totals").rows)
    [(('ada', 30), 1), (('bob', 5), 1)]
    >>> views.commit({"orders": {("ada", 12): 1}})
    1
    >>> views.changes("totals", since=0)
    [EpochChanges(time=1, changes=[(('ada', 30), -1), (('ada', 42), 1)])]
    """

    def __init__(self, limits: Limits | None = None, data: str | os.PathLike[str] | None = None) -> None:
        self.limits = limits or Limits()
        self._running = threading.RLock()  # who holds it steps the worker
        self._reading = threading.Condition(threading.Lock())  # who holds it reads or writes what is published
        self._catalog = Catalog()
        self._relations: dict[str, _Relation] = {}
        self._time = 0
        self._runtime = Runtime(0)
        self._queries: dict[str, Query] = {}
        self._counting = threading.Lock()  # who holds it begins a query
        self._begun = 0
        self._listeners: list[Callable[[], object]] = []
        self._broken: str | None = None
        self._fed: set[str] = set()
        self._keys = RequestKeys()
        self._durable: Durable | None = None
        self.id = secrets.token_hex(4)
        """The first part of the ids of events: epochs of other views are other epochs."""
        self.restored: str | None = None
        """What was read from ``data``, and how much of a log that was not whole was cut."""
        if data is not None:
            self._durable = Durable(Path(data), self, self.limits.replay_seconds)
            self.id, self.restored = self._durable.id, self._durable.restored

    def close(self) -> None:
        """End, with a checkpoint where there is ``data``; a no-op when it is closed, and without ``data``."""
        if self._durable is not None:
            self._durable.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- definitions -----------------------------------------------------------------------------------------------

    def run_script(self, text: str) -> int:
        """Run the statements of a script, all or none, and return the epoch from which on they hold.

        A table that is there already with the same columns stays as it is. Who follows a view that is replaced gets the
        difference. ``SqlError`` for other statements, ``ConfigurationError`` for a table or view that others read.
        """
        statements = _parsed(text)
        return self._define(lambda catalog: catalog.with_statements(statements))

    def apply_script(self, text: str) -> int:
        """Apply what a script has changed since it was applied last, as ``run_script`` does.

        A view whose text has not changed stays as it is. One that has left the script is dropped, a table never.
        """
        statements = _parsed(text)
        return self._define(lambda catalog: catalog.with_script(statements))

    def table(self, name: str, schema: pa.Schema | str, rows: Iterable[Row] = ()) -> None:
        """Add a table that has ``rows`` at the current time; ``SchemaError`` for rows that do not fit.

        With ``data``, a table that is there with the same columns stays as it is.
        """
        schema = declared_schema(schema, f"table {name}")
        name = checked_name(name)
        check = row_check(columns_of(schema), schema)
        first: list[Change] = consolidate([(check(row), 1) for row in rows])

        def change(catalog: Catalog) -> Catalog:
            if self._durable is None and name in catalog.definitions:
                raise ConfigurationError(f"there is a table or view {name} already: give another name")
            return catalog.with_table(name, schema)

        self._define(change, {name: first})

    def view(self, name: str, query: str, *, replace: bool = False) -> None:
        """Add a view of tables and earlier views, or ``replace`` one; ``SqlError`` for a query that is not kept up to date.

        Who follows a view that is replaced gets the difference. With ``data``, one that is there with the same query stays.
        """
        name = checked_name(name)

        def change(catalog: Catalog) -> Catalog:
            there = catalog.definitions.get(name)
            if self._durable is not None and there is not None and there.query.strip() == query.strip():
                return catalog
            return catalog.with_view(name, query, replace=replace)

        warn_of_order(query, f"view {name}: ")
        self._define(change)

    def drop(self, *names: str, cascade: bool = False) -> None:
        """Drop tables and views; ``ConfigurationError`` where others read them, which ``cascade`` drops too."""
        self._define(lambda catalog: catalog.without([name.lower() for name in names], cascade=cascade))

    def feed(self, name: str) -> None:
        """Take note that files say what a table has: it cannot be dropped."""
        self._fed.add(name)

    def _define(self, change: Callable[[Catalog], Catalog], rows: Mapping[str, list[Change]] | None = None) -> int:
        """Have the catalog be what ``change`` makes of it, and return the epoch; new tables have ``rows``.

        Queries are compiled on the caller's thread, without a lock, since that takes a while for long ones.
        """
        while True:
            base = self._catalog
            changed = change(base)
            if changed == base:
                return self._time
            new = {name: first for name, first in (rows or {}).items() if name not in base.definitions}
            with contextlib.suppress(_Outdated):
                return self._submit(Request(functools.partial(self._checked_catalog, base, changed, new))).result()

    def _checked_catalog(
        self, base: Catalog, changed: Catalog, rows: dict[str, list[Change]], earlier: Mapping[str, Mapping[Row, int]]
    ) -> Decision:
        if self._catalog is not base:
            raise _Outdated
        for name in sorted(self._fed - changed.tables.keys()):
            raise ConfigurationError(f"table {name} follows files, and cannot be dropped: start the server without that input")
        for name, definition in changed.definitions.items():
            for read in sorted(definition.reads):
                there = self._relations.get(read)
                if name not in base.definitions and there is not None and not there.live:
                    raise ViewError(f"view {read}, which it reads, has no result now: {there.error}")
        return Decision(rows, changed)

    def _submit(self, request: Request) -> Future[int]:
        """Have a request happen, and return its epoch: at once, or where there is a log with those of others."""
        if self._durable is not None:
            return self._durable.submit(request)
        future: Future[int] = Future()
        try:
            with self._running:
                epoch = self._keys.first(request.key)
                if epoch is None:
                    self.check_whole()
                    self.decided(request.prepare({}))
                    self._keys.note(request.key, epoch := self._time, clock.time())
            future.set_result(epoch)
        except Exception as error:
            future.set_exception(error)
        return future

    def decided(self, decision: Decision, *, advance: bool = False) -> None:
        """Have a decision happen in the next epoch; new definitions do in the current one, unless they are to ``advance``.

        For the log's thread: what is decided was checked.
        """
        with self._running:
            if decision.catalog is not None:
                self._redefine(decision.catalog, decision.changes, advance)
                return
            recovered = self._recovered(decision.changes)
            self._runtime.begin(decision.changes)
            self._complete(decision.changes, recovered)

    def _redefine(self, catalog: Catalog, rows: Mapping[str, list[Change]], advance: bool) -> None:
        """Run what a catalog defines. What has changed is built anew, with what reads it; followers get the difference."""
        before, relations = self._catalog.definitions, self._relations
        changed = {name for name, each in before.items() if catalog.definitions.get(name) != each}
        affected = {*changed, *catalog.readers(changed), *(catalog.definitions.keys() - before.keys())}
        if advance or changed:
            self._runtime.begin({})
        for name in reversed(relations):
            if name in affected and relations[name].live:
                self._runtime.remove(name)
        result = {
            name: self._new_relation(each, relations.get(name)) if name in affected else relations[name]
            for name, each in catalog.definitions.items()
        }
        try:
            for name, each in result.items():
                broken = [read for read in sorted(each.definition.reads) if not result[read].live]
                if name in affected and broken:
                    each.live, each.error = False, _broken_below(result[broken[0]])
                elif name in affected:
                    self._start(each, rows.get(name, ()))
        except Exception as error:
            self._renew({})  # what there was
            self._complete()
            raise ViewError(f"nothing was changed, since it cannot be built: {error_text(error)}") from error
        with self._reading:
            self._relations, self._catalog = result, catalog
        self._complete(rows)

    def restore(self, time: int, catalog: Catalog, states: Sequence[RelationState]) -> None:
        """Have all tables and views as they were at an epoch; views are computed anew. For the log's thread."""
        with self._running:
            self._time, self._runtime = time, Runtime(time)
            self._redefine(catalog, {each.name: list(each.rows) for each in states if each.rows is not None}, advance=False)
            with self._reading:
                for each in states:
                    if self._relations[each.name].error is None:
                        self._relations[each.name].contents.remember(each.start, each.epochs)

    def states(self) -> tuple[Catalog, list[RelationState]]:
        """Return what there is now; nothing may change meanwhile. For the log's thread."""
        return self._catalog, [_saved(each, self._time) for each in self._relations.values()]

    def stop(self, reason: str) -> None:
        """Have no epoch be computed any more. For the log's thread."""
        self._broken = reason

    def _new_relation(self, definition: Definition, there: _Relation | None) -> _Relation:
        if there is not None and there.definition.columns == definition.columns and definition.schema is None:
            return _Relation(definition, there.contents, error=there.error, shown=there.shown)
        check = None if definition.schema is None else row_check(definition.columns, definition.schema)
        limits = self.limits
        return _Relation(definition, Contents(definition.columns, self._time, limits.epochs, limits.changes), check)

    def _start(self, each: _Relation, rows: Iterable[Change] = ()) -> None:
        """Build the dataflow of a table with rows, or of a view."""
        if each.kind == "table":
            self._runtime.add_table(each.name, each.contents.columns, rows)
        else:
            self._runtime.add_view(each.name, each.definition.query, each.definition.reads)

    def query(self, query: str) -> Query:
        """Return a view that lives until it is closed, in a process of its own.

        ``SqlError`` for what is no query that can be kept up to date; ``ViewError`` if it fails, takes too much, or too many run.
        """
        prepared = self.prepare(query)
        prepared.start()
        return prepared

    def answer(self, query: str) -> Answer:
        """Return the rows of a query at the current time, in its order, up to ``Limits.rows``; errors are those of ``query``.

        >>> import pyarrow as pa
        >>> views = Views()
        >>> views.table("numbers", pa.schema([("n", pa.int64())]), [(1,), (3,), (2,)])
        >>> views.answer("select n from numbers order by n desc limit 2").rows
        [((3,), 1), ((2,), 1)]
        """
        with self.prepare(query, once=True) as prepared:
            return prepared.answer()

    def prepare(self, query: str, *, once: bool = False, ordered: bool = False) -> Query:
        """Return a query that is not started: ``start`` or, if it is to be read ``once``, ``answer`` computes it.

        An ``ordered`` one has columns behind its own, by which its rows are sorted. ``ViewError`` if too many run.
        """
        if len(query) > self.limits.query_length:
            raise SqlError(f"the query has {len(query)} characters, and {self.limits.query_length} at most are read")
        limits = self.limits
        with self._counting:
            if self.queries >= limits.queries:
                raise ViewError(f"{limits.queries} queries run already: close one, or raise the limit")
            left = self._query_memory - sum(each.memory for each in list(self._queries.values()))
            request = QueryRequest(query, limits.query_seconds, max(left // 4, LEAST), limits.rows, once=once, ordered=ordered)
            self._begun += 1
            name = f"query-{self._begun}"
            prepared = self._queries[name] = Query(self, name, QueryProcess(request))
        return prepared

    # -- epochs ----------------------------------------------------------------------------------------------------

    @property
    def time(self) -> int:
        """The complete time that is read."""
        return self._time

    def check(self, name: str, changes: Changes, earlier: Mapping[Row, int] | None = None) -> list[Change]:
        """Return changes of a table added up, with their rows checked, after ``earlier`` ones of the same epoch.

        ``SchemaError`` for rows that do not fit, ``DifferenceError`` for rows that would be there less than 0 times.
        """
        table = self._relation(name)
        if table.check is None:
            raise ConfigurationError(f"{name} is a {table.kind}: only tables are changed")
        check, rows, before = table.check, table.contents.rows, earlier or {}
        checked: list[Change] = consolidate([(check(row), _whole(diff)) for row, diff in _pairs(changes)])
        for row, diff in checked:
            count = rows.get(row, 0) + before.get(row, 0) + diff
            if count < 0:
                raise DifferenceError(f"table {table.name}: {brief(row)} would be there {count} times: nothing was changed")
        return checked

    def commit(self, changes: Mapping[str, Changes], *, idempotency_key: str | None = None) -> int:
        """Change tables in one epoch, bring all views up to date, and return the epoch, which is complete then.

        Where rows are refused nothing is changed. A view that fails has no result until an epoch in which it does not. With
        ``data``, the changes are on disk by then, and may share their epoch with others. A repeated ``idempotency_key`` changes
        nothing, and returns the first epoch; ``IdempotencyError`` for other changes. ``DiskFullError`` where nothing was changed.
        """
        return self.begin_commit(changes, idempotency_key=idempotency_key).result()

    def begin_commit(self, changes: Mapping[str, Changes], *, idempotency_key: str | None = None) -> Future[int]:
        """Begin what ``commit`` does, and return its future result."""
        listed = _listed(changes)

        def prepare(earlier: Mapping[str, Mapping[Row, int]]) -> Decision:
            return Decision({name: self.check(name, changed, earlier.get(name)) for name, changed in listed.items()})

        return self._submit(Request(prepare, RequestKey.of(idempotency_key, listed)))

    def write(
        self,
        name: str,
        insert: Iterable[Row] = (),
        delete: Iterable[Row] = (),
        upsert: Iterable[Row] = (),
        key: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
    ) -> int:
        """Change one table in one epoch, and return the epoch, as ``commit`` does.

        A row of ``upsert`` replaces those with equal values in the columns ``key``; of several such rows the last one counts.
        """
        return self.begin_write(name, insert, delete, upsert, key, idempotency_key=idempotency_key).result()

    def begin_write(
        self,
        name: str,
        insert: Iterable[Row] = (),
        delete: Iterable[Row] = (),
        upsert: Iterable[Row] = (),
        key: Sequence[str] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Future[int]:
        """Begin what ``write`` does, and return its future result."""
        changes: list[Change] = [*((row, 1) for row in insert), *((row, -1) for row in delete)]
        upserts = list(upsert)
        if not upserts:
            return self.begin_commit({name: changes}, idempotency_key=idempotency_key)
        if changes:
            raise ConfigurationError("insert and delete in another epoch than upsert: their order would not be known")

        def prepare(earlier: Mapping[str, Mapping[Row, int]]) -> Decision:
            table = self._relation(name)
            before = earlier.get(table.name, {})
            return Decision({table.name: self.check(name, self._replacements(table, upserts, key, before), before)})

        return self._submit(Request(prepare, RequestKey.of(idempotency_key, (name, upserts, key))))

    def _replacements(self, table: _Relation, upserts: list[Row], key: Sequence[str], earlier: Mapping[Row, int]) -> list[Change]:
        names = [column.name for column in table.contents.columns]
        if not key or not isinstance(key, list | tuple) or any(column not in names for column in key):
            raise ConfigurationError(f"key is a list of columns of table {table.name} ({', '.join(names)}), not {brief(key)}")
        if table.check is None:
            raise ConfigurationError(f"{table.name} is a {table.kind}: only tables are changed")
        places = [names.index(column) for column in key]
        last = {tuple(row[place] for place in places): row for row in map(table.check, upserts)}
        changes: list[Change] = [(row, 1) for row in last.values()]
        changes += [(row, -diff) for row, diff in earlier.items() if tuple(row[place] for place in places) in last]
        with self._reading:
            for values in last:
                where = [RowCondition(place, "eq", value) for place, value in zip(places, values)]
                changes += [(row, -count) for row, count in table.contents.find(where)]
        return changes

    def fill(self, changes: Mapping[str, Changes]) -> None:
        """Put rows into tables that nothing reads yet, at the current time: their epoch has not begun. With ``data``, commit."""
        if self._durable is not None:
            self.commit(changes)
            return
        with self._running:
            self.check_whole()
            checked = {name: self.check(name, changed) for name, changed in _listed(changes).items()}
            for name, rows in checked.items():
                table = self._relations[name]
                if table.contents.rows or any(name in each.definition.reads for each in self._relations.values()):
                    raise ConfigurationError(f"table {name} has rows, or is read already: commit changes it")
                self._runtime.remove(name)
                self._start(table, rows)
                table.shown = False  # it begins with them
                self._complete({name: rows})

    def _complete(self, changes: Mapping[str, list[Change]] | None = None, recovered: Sequence[_Relation] = ()) -> None:
        """Complete the time of the dataflows, and have it read; queries follow in their own time.

        What fails is left out, and the others are built anew: a worker does not go on after an error. A view that stands without
        its history stays: it has failed on a row that came and went within the epoch.
        """
        changed = changes or {}
        joining = list(recovered)
        rebuilt: set[str] = set()
        while True:
            try:
                self._runtime.complete([each.name for each in self._live()])
                if not joining:
                    self._publish(changed)
                    return
                self._runtime.compact()  # so that they do not see what they have failed on
                while joining:
                    self._join(joining.pop(0))
            except OperatorError as error:
                self._leave_out(error, changed, rebuilt)
            except BaseException as error:
                self._broken = error_text(error) if isinstance(error, Exception) else type(error).__name__
                raise

    def _join(self, recovered: _Relation) -> None:
        recovered.live = recovered.whole = True
        self._start(recovered)

    def _live(self) -> list[_Relation]:
        return [each for each in self._relations.values() if each.live]

    def _publish(self, changed: Mapping[str, list[Change]]) -> None:
        """Publish the relations, which are complete, to readers."""
        relations, news = self._live(), {}
        for each in relations:
            if each.kind == "table":
                news[each.name] = changed.get(each.name, [])
            else:
                arrived = self._runtime.drain(each.name)
                news[each.name] = each.contents.difference(arrived) if each.whole else arrived
        time = self._runtime.time
        with self._reading:
            self._time = time
            for each in relations:
                if each.shown:
                    each.contents.apply(time, news[each.name])
                else:
                    each.contents.start_at(time, news[each.name])
                each.whole, each.shown, each.error = False, True, None
            self._reading.notify_all()
        self._runtime.compact()
        for listener in self._listeners:
            listener()

    def _leave_out(self, error: OperatorError, changes: Mapping[str, list[Change]], rebuilt: set[str]) -> None:
        """Go on without the view in which an operator failed, or with it ``rebuilt``, in dataflows that are built anew."""
        failed = self._relations.get(self._runtime.failed(error) or "")
        if failed is None or failed.kind == "table":
            self._broken = str(error)
            raise error
        reason: str | None = _reason(error)
        if failed.kind == "view" and failed.name not in rebuilt:
            rebuilt.add(failed.name)
            reason = self._failure(failed, changes)
        if reason is not None:
            self._give_up(failed, reason)
        self._renew(changes)

    def _renew(self, changes: Mapping[str, list[Change]]) -> None:
        """Build all dataflows anew, with the tables as they are after ``changes``."""
        left = self._live()
        self._runtime = self._rebuilt(self._runtime.time, changes, frozenset(each.name for each in left))
        for each in left:
            each.whole = True

    def _rebuilt(self, time: int, changes: Mapping[str, list[Change]], names: frozenset[str]) -> Runtime:
        """Return dataflows of ``names``, with the tables as they are after ``changes``."""
        runtime = Runtime(time)
        for each in self._relations.values():
            if each.name in names and each.kind == "table":
                runtime.add_table(each.name, each.contents.columns, [*each.contents.rows.items(), *changes.get(each.name, ())])
            elif each.name in names:
                runtime.add_view(each.name, each.definition.query, each.definition.reads)
        return runtime

    def _give_up(self, failed: _Relation, reason: str) -> None:
        with self._reading:
            failed.error, failed.live = reason, False
            for other in self._relations.values():  # in the order of their definition
                broken = [read for read in sorted(other.definition.reads) if not self._relations[read].live]
                if broken and other.live:
                    other.live = False
                    other.error = _broken_below(self._relations[broken[0]])

    def _recovered(self, changes: Mapping[str, list[Change]]) -> list[_Relation]:
        """Return the views that have failed and do so no more, tried by themselves, with the tables as after ``changes``."""
        recovered = []
        for each in self._relations.values():
            if each.live or each.kind != "view" or not self._needed(each.name) & changes.keys():
                continue
            reason = self._failure(each, changes)
            if reason is None:
                recovered.append(each)
            else:
                with self._reading:
                    each.error = reason
        return recovered

    def _failure(self, view: _Relation, changes: Mapping[str, list[Change]]) -> str | None:
        """Return why a view fails by itself, with the tables as after ``changes``; ``None`` where it does not."""
        try:
            self._rebuilt(0, changes, self._needed(view.name)).complete([view.name])
        except OperatorError as error:
            return _reason(error)
        return None

    def _needed(self, name: str) -> frozenset[str]:
        return frozenset([name]).union(*(self._needed(read) for read in self._relations[name].definition.reads))

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, name: str, where: Sequence[RowCondition] = (), limit: int | None = None) -> Answer:
        """Return the rows that fulfil all conditions, up to ``limit`` of them; ``ViewError`` for a view that has failed.

        ``SchemaError`` for a condition whose value can be equal to none of its column, such as a text and numbers. For a query it
        waits until that has caught up.
        """
        with self._reading:
            contents = self._readable(name)
            for condition in where:
                condition.check(contents.columns)
            rows = contents.find(where, None if limit is None else limit + 1)
            time = self._time
        if limit is not None and sum(count for _, count in rows) > limit:
            last, count = rows.pop()  # they are one too many
            return Answer(time, contents.columns, [*rows, (last, count - 1)] if count > 1 else rows, more=True)
        return Answer(time, contents.columns, rows, more=False)

    def changes(self, name: str, since: int) -> list[EpochChanges]:
        """Return what changed in the epochs after ``since``; ``CompactedError`` if that is not remembered."""
        with self._reading:
            contents = self._readable(name)
            later = contents.changes_since(since) if since <= self._time else None
        if later is None:
            raise CompactedError(f"{name}: the changes after epoch {since} are not remembered: read it anew")
        return later

    def describe(self, name: str) -> ViewDescription:
        """Return what a table, view or query is at the current time."""
        query = self._queries.get(name.lower())
        return self._description(self._relation(name)) if query is None else query.description()

    def overview(self) -> tuple[int, list[ViewDescription]]:
        """Return the complete time, and what all tables and views are at it; never waits, also not for who reads."""
        return self._time, [self._description(each) for each in list(self._relations.values())]

    @functools.cached_property
    def _query_memory(self) -> int:
        if self.limits.query_memory is not None:
            return self.limits.query_memory
        total, left = MemoryBudget.current().total, system_memory_left()
        return int(min(total or math.inf, left or math.inf, 64 << 30) / 2)

    @property
    def queries(self) -> int:
        """How many queries run."""
        return sum(each.running for each in list(self._queries.values()))

    @property
    def broken(self) -> str | None:
        """The error after which no epoch can be computed any more, if there was one."""
        return self._broken

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener()``, on some thread, when there may be news; return a function that ends that."""
        self._listeners = [*self._listeners, listener]

        def end() -> None:
            self._listeners = [each for each in self._listeners if each is not listener]

        return end

    def _relation(self, name: str) -> _Relation:
        relation = self._relations.get(name.lower())
        if relation is None:
            known = ", ".join(self._relations)
            raise OutputError(f"there is no table or view {name}: there are {known or 'none'}")
        return relation

    def _readable(self, name: str) -> Contents:
        """Return what is read, if it has a result. The caller holds the lock."""
        query = self._queries.get(name.lower())
        if query is not None:
            return query.caught_up()
        relation = self._relation(name)
        if relation.error is not None or not relation.shown:
            raise ViewError(f"{relation.kind} {relation.name} has no result now: {relation.error or 'it is being computed'}")
        return relation.contents

    @staticmethod
    def _description(each: _Relation) -> ViewDescription:
        query = " ".join(each.definition.query.split()) or None
        return ViewDescription(each.name, each.kind, each.contents.columns, each.contents.size, query, each.error)

    def check_whole(self) -> None:
        """Raise ``ViewError`` where no epoch can be computed any more."""
        if self._broken is not None:
            raise ViewError(f"the dataflows have ended, and are still read at epoch {self._time}: {self._broken}")


class Query:
    """A view that lives until ``close``, or the end of its ``with`` block; read it as any other, by its ``name``.

    A process of its own computes it, and receives what changes.

    >>> import pyarrow as pa
    >>> views = Views()
    >>> views.table("numbers", pa.schema([("n", pa.int64())]), [(1,), (2,)])
    >>> with views.query("select sum(n) as total from numbers") as query:
    ...     _ = views.commit({"numbers": {(3,): 1}})
    ...     views.read(query.name).rows
    [((6,), 1)]
    """

    def __init__(self, views: Views, name: str, process: QueryProcess) -> None:
        self.name = name
        self.order: tuple[SortColumn, ...] = ()
        """The columns by which its rows are sorted."""
        self.width = 0
        """Columns that it selects; those behind are of its order alone."""
        self._views = views
        self._seen: dict[str, Contents] = {}
        self._process = process
        self._contents: Contents | None = None
        self._reads: frozenset[str] = frozenset()
        self._time = 0
        self._error: str | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether it is computed."""
        return not self._closed and self._error is None

    @property
    def memory(self) -> int:
        """The bytes that its process may take, and its result."""
        return self._process.request.memory

    def start(self) -> None:
        """Compute it, and go on when something changes; the errors are those of ``Views.query``."""
        try:
            time, columns, rows, _ = self._computed()
        except BaseException:
            self.close()
            self._process.end()
            raise
        limits = self._views.limits
        self._contents = Contents(columns, time, limits.epochs, limits.changes)
        self._contents.start_at(time, rows)
        self._time = time
        threading.Thread(target=self._run, name=f"timely {self.name}", daemon=True).start()

    def answer(self) -> Answer:
        """Compute it once, up to the end of its process."""
        try:
            return Answer(*self._computed())
        finally:
            self._process.end()

    def _computed(self) -> tuple[int, tuple[Column, ...], list[Change], bool]:
        views, process = self._views, self._process
        seconds = process.request.seconds
        if not views._running.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise ViewError(f"the query waits for the epoch that is computed, and that has taken longer than {seconds:g} s")
        try:
            views.check_whole()
            with views._reading:
                time = views._time
                self._seen = {each.name: each.contents for each in views._relations.values()}
                process.start({each.name: _state(each) for each in views._relations.values()})
        finally:
            views._running.release()
        started = process.started()
        self._reads, self.order, self.width = started.reads, started.order, started.width
        return time, started.columns, *process.changes()

    def _run(self) -> None:
        """Follow what changes, on a thread of its own."""
        try:
            while (changed := self._changed()) is not None:
                time, epochs = changed
                if epochs is None:
                    self._compute_anew()
                    continue
                for epoch, changes in epochs:
                    self._process.send(changes)
                    self._apply(epoch, self._process.changes()[0])
                self._apply(time, [])
        except Exception as error:  # whatever it is, who reads learns of it
            with self._views._reading:
                self._error = str(error) if isinstance(error, TimelyError) else error_text(error)
                self._views._reading.notify_all()
        finally:
            self._process.end()

    def _compute_anew(self) -> None:
        """Catch up in one epoch, since changes that it has not seen are not remembered."""
        self._process.end()
        self._process = QueryProcess(self._process.request)
        if self._closed:  # before there was this process to be killed
            self._process.kill()
        time, _, rows, _ = self._computed()
        assert self._contents is not None
        self._apply(time, self._contents.difference(rows))

    def _changed(self) -> tuple[int, list[tuple[int, dict[str, list[Change]]]] | None] | None:
        """Wait for the next time, and return it with what changes up to it, or ``None`` when the query is closed.

        What changes is ``None`` where not all of it is remembered.
        """
        views = self._views
        epochs: dict[int, dict[str, list[Change]]] = {}
        with views._reading:
            views._reading.wait_for(lambda: self._closed or views._time > self._time)
            if self._closed:
                return None
            for read in self._reads:
                relation = views._relations.get(read)
                if relation is None or relation.contents is not self._seen[read]:
                    raise ViewError(f"{read}, which it reads, was dropped, or has other columns now")
                if relation.error is not None:
                    raise ViewError(f"view {read}, which it reads, has no result now: {relation.error}")
                changed = relation.contents.changes_since(self._time)
                if changed is None:
                    return views._time, None
                for epoch in changed:
                    epochs.setdefault(epoch.time, {})[read] = epoch.changes
            return views._time, sorted(epochs.items())

    def _apply(self, time: int, changes: list[Change]) -> None:
        assert self._contents is not None
        with self._views._reading:
            self._contents.apply(time, changes)
            self._time = time
            self._process.note_rows(len(self._contents.rows))
            self._views._reading.notify_all()

    def caught_up(self) -> Contents:
        """Return what it holds at the complete time, for which it waits; called by who reads."""
        views = self._views
        views._reading.wait_for(lambda: not self.running or (self._contents is not None and self._time == views._time))
        if self._closed or self._contents is None:
            raise OutputError(f"{self.name} is closed")
        if self._error is not None:
            raise ViewError(f"query {self.name} has no result now: {self._error}")
        return self._contents

    def description(self) -> ViewDescription:
        """Return what it is at its time."""
        contents = self._contents
        text = " ".join(self._process.request.text.split())
        columns, size = ((), 0) if contents is None else (contents.columns, contents.size)
        return ViewDescription(self.name, "query", columns, size, text, self._error)

    def close(self) -> None:
        """End it; a no-op when it is closed."""
        self._closed = True
        self._process.kill()
        self._views._queries.pop(self.name, None)
        if self._views._reading.acquire(blocking=False):
            self._views._reading.notify_all()
            self._views._reading.release()
        else:  # who closes it never waits for who reads
            threading.Thread(target=self._notify, name=f"timely {self.name}'s end").start()

    def _notify(self) -> None:
        with self._views._reading:
            self._views._reading.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _parsed(text: str) -> list[Statement]:
    statements = parse_script(text)
    for each in statements:
        if isinstance(each, ViewDefinition):
            warn_of_order(each.query, f"view {each.name}: ")
    return statements


def _saved(each: _Relation, time: int) -> RelationState:
    rows = each.contents.rows.items() if each.kind == "table" else None
    start, epochs = each.contents.remembered() if each.error is None else (time, [])
    return RelationState(each.name, rows, start, epochs)


def _broken_below(read: _Relation) -> str:
    return f"view {read.name}, which it reads, has no result now: {read.error}"


def _state(each: _Relation) -> TableState:
    error = each.error or (None if each.shown else "it is being computed")
    return TableState(each.contents.columns, each.contents.rows.items(), error)


def _pairs(changes: Changes) -> Iterable[Change]:
    return changes.items() if isinstance(changes, Mapping) else changes


def _listed(changes: Mapping[str, Changes]) -> dict[str, list[Change]]:
    listed = {checked_name(name): list(_pairs(changed)) for name, changed in changes.items()}
    if len(listed) < len(changes):
        raise ConfigurationError(f"{', '.join(changes)}: give all changes of a table under one name, in lower case")
    return listed


def _whole(diff: int) -> int:
    if type(diff) is not int:
        raise DifferenceError(f"the count of a row changes by a whole number, not {brief(diff)}")
    return diff


def _reason(error: OperatorError) -> str:
    return error_text(error.__cause__) if isinstance(error.__cause__, Exception) else str(error)
