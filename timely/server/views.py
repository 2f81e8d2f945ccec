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
from typing import Any, Self, TypedDict, Unpack

import pyarrow as pa

from timely.dataflow import declared_schema
from timely.dataflow.origin import folded
from timely.differential.tables.names.statements import Statement, ViewDefinition, checked_name, parse_script
from timely.differential.tables.names.user_functions import NO_FUNCTIONS, Functions, named_functions
from timely.differential.tables.sources import lateness_of, warn_of_order
from timely.differential.tables.values.kinds import columns_of, row_check
from timely.differential.updates.updates import consolidate
from timely.differential.why_derivations import Provenance, WhyNot
from timely.errors import CompactedError, ConfigurationError, SqlError, ViewError
from timely.memory import MemoryBudget, system_memory_left
from timely.server.catalog import Catalog, late_of
from timely.server.computation import watermark_of
from timely.server.connector_options import connector_of
from timely.server.contents import Change, Contents, EpochChanges, Row, RowCondition
from timely.server.durable import Durable
from timely.server.live_query import Query
from timely.server.query_process import LEAST, QueryRequest
from timely.server.requests import Request, RequestKey, RequestKeys
from timely.server.served_relations import (
    Answer,
    Changes,
    Decision,
    Limits,
    OutdatedError,
    ServedRelations,
    ViewBuild,
    ViewDescription,
    pairs,
    watermark_changes,
)

_ByTable = dict[str, list[Change]]


class TableWrite(TypedDict, total=False):
    insert: Iterable[Row]
    delete: Iterable[Row]
    upsert: Iterable[Row]
    key: Sequence[str]
    idempotency_key: str | None


@folded
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

    def __init__(
        self,
        limits: Limits | None = None,
        data: str | os.PathLike[str] | None = None,
        functions: Functions = NO_FUNCTIONS,
    ) -> None:
        self.limits = limits or Limits()
        named_functions(functions)  # which refuses names that SQL has
        self._relations = ServedRelations(self.limits, functions)
        self._queries: dict[str, Query] = {}
        self._counting = threading.Lock()  # who holds it begins a query
        self._begun = 0
        self._fed: set[str] = set()
        self.sources: dict[str, str] = {}
        """How far each source has been read."""
        self._keys = RequestKeys()
        self._durable: Durable | None = None
        self.id = secrets.token_hex(4)
        """The first part of the ids of events: epochs of other views are other epochs."""
        self.restored: str | None = None
        """What was read from ``data``, and how much of a log that was not whole was cut."""
        if data is not None:
            self._durable = Durable(Path(data), self._relations, self.limits.replay_seconds)
            self.id, self.restored = self._durable.id, self._durable.restored
        self._retry: threading.Timer | None = None
        self.listen(self._retry_soon)
        self._retry_soon()

    def _retry_soon(self) -> None:
        """Have views that failed be tried soon with what they have not been tried with, in an epoch of its own."""
        seconds = self._relations.retry_after
        if seconds is not None and (self._retry is None or self._retry.finished.is_set()):
            self._retry = threading.Timer(seconds, self.begin_commit, ({},))
            self._retry.daemon = True
            self._retry.start()

    def close(self) -> None:
        """End, with a checkpoint where there is ``data``; a no-op when it is closed, and without ``data``."""
        if self._retry is not None:
            self._retry.cancel()
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
        difference. ``Connectors`` runs sources and sinks. ``SqlError`` for other statements, ``ConfigurationError`` for a table
        or view that others read.
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
        first = {name: consolidate([(check(row), 1) for row in rows])}
        lateness = lateness_of(schema, name)
        if lateness is not None:
            first[watermark_of(name)] = watermark_changes(lateness, first[name])

        def change(catalog: Catalog) -> Catalog:
            if self._durable is None and name in catalog.definitions:
                raise ConfigurationError(f"there is a table or view {name} already: give another name")
            return catalog.with_table(name, schema)

        self._define(change, first)

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
        relations = self._relations
        while True:
            relations.check_whole()
            base = relations.catalog
            changed = change(base)
            if changed == base:
                return relations.time
            for name in sorted(self._fed - changed.tables.keys()):
                raise ConfigurationError(f"table {name} follows files, and is not dropped: start the server without that input")
            if len(changed.definitions) > max(self.limits.definitions, len(base.definitions)):
                raise ConfigurationError(f"there would be more than {self.limits.definitions} tables and views: drop some first")
            for name in changed.definitions.keys() - base.definitions.keys():
                definition = changed.definitions[name]
                if definition.kind == "sink" and self._durable is None:
                    raise ConfigurationError(f"sink {name}: what it has would be forgotten at the end: start with --data DIR")
                if definition.kind in ("source", "sink"):
                    connector_of(definition.connector)
            new = {name: first for name, first in (rows or {}).items() if name not in base.definitions}
            with contextlib.suppress(OutdatedError), relations.build(base, changed, new) as build:
                build.run()
                return self._submit(Request(functools.partial(self._built, base, build, new))).result()

    def _built(
        self, base: Catalog, build: ViewBuild, rows: dict[str, list[Change]], earlier: Mapping[str, Mapping[Row, int]]
    ) -> Decision:
        relations = self._relations
        if relations.catalog is not base:
            raise OutdatedError("what is defined has changed meanwhile")
        build.follow()
        for name in sorted(build.new.keys() - base.definitions.keys()):
            for read in sorted(build.catalog.definitions[name].reads - build.new.keys()):
                if (error := relations.by_name[read].error) is not None:
                    raise ViewError(f"view {read}, which it reads, has no result now: {error}")
        return Decision(rows, build.catalog, build)

    def _submit(self, request: Request) -> Future[int]:
        """Have a request happen, and return its epoch: at once, or where there is a log with those of others."""
        if self._durable is not None:
            return self._durable.submit(request)
        future: Future[int] = Future()
        try:
            with self._relations.running:
                epoch = self._keys.first(request.key)
                if epoch is None:
                    self._relations.check_whole()
                    self._relations.decided(request.prepare({}))
                    self._keys.note(request.key, epoch := self.time, clock.time())
            future.set_result(epoch)
        except Exception as error:
            future.set_exception(error)
        return future

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

    def rehearse(self, script: str) -> None:
        """Compute what the statements of a script define, in a process with the bounds of a query, which leaves nothing.

        ``ViewError`` where a view of the script fails, or takes too much; other errors are those of ``run_script``.
        """
        with self.prepare(script) as rehearsal:
            rehearsal.rehearse()

    def prepare(self, query: str, *, once: bool = False, ordered: bool = False) -> Query:
        """Return a query that is not started: ``start`` or, if it is to be read ``once``, ``answer`` computes it.

        An ``ordered`` one has columns behind its own, by which its rows are sorted. ``ViewError`` if too many run.
        """
        if len(query) > self.limits.query_length:
            raise SqlError(f"the query has {len(query)} characters, and {self.limits.query_length} at most are read")
        limits = self.limits
        with self._counting:
            if self.queries >= limits.queries:
                running = "1 query runs" if limits.queries == 1 else f"{limits.queries} queries run"
                raise ViewError(f"{running} already: close one, or raise the limit")
            left = self._query_memory - sum(each.memory for each in list(self._queries.values()))
            request = QueryRequest(query, limits.query_seconds, max(left // 4, LEAST), limits.rows, once=once, ordered=ordered)
            self._begun += 1
            name = f"query-{self._begun}"
            end = functools.partial(self._queries.pop, name, None)
            prepared = self._queries[name] = Query(self._relations, name, request, end)
        return prepared

    # -- epochs ----------------------------------------------------------------------------------------------------

    @property
    def time(self) -> int:
        """The complete time that is read."""
        return self._relations.time

    def check(
        self, name: str, changes: Changes, earlier: Mapping[str, Mapping[Row, int]] | None = None, mark: str = ""
    ) -> dict[str, list[Change]]:
        """Return changes of a table added up, with their rows checked, after ``earlier`` ones of the same epoch, by its name.

        Those of its late rows and its watermark are beside them. ``SchemaError`` for rows that do not fit, ``DifferenceError``
        for rows that would be there less than 0 times, ``ConfigurationError`` for a table that a source, sink or lateness
        changes: only who knows its ``mark`` does.
        """
        definition = self._relations.of(name).definition
        if definition.owner and definition.made != mark:
            raise ConfigurationError(f"table {name} is that of a {definition.owner}, and nothing else changes it")
        return self._relations.accepted(name, changes, earlier or {})

    def _checked(self, listed: Mapping[str, Changes], earlier: Mapping[str, Mapping[Row, int]], mark: str = "") -> _ByTable:
        checked: _ByTable = {}
        for name, changed in listed.items():
            checked.update(self.check(name, changed, earlier, mark))
        return checked

    @property
    def late(self) -> dict[str, int]:
        """How many changes came too late, by the tables that have a lateness."""
        relations = dict(self._relations.by_name)
        return {
            name: relations[late_of(name)].contents.size
            for name, each in relations.items()
            if each.definition.lateness is not None
        }

    def last_change(self, name: str) -> int:
        """Return the epoch that changed a table last, or that in which it was made."""
        with self._relations.reading:
            return self._readable(name).last_change

    def difference(self, name: str, target: str, since: int | None) -> tuple[int, list[Change]]:
        """Return the time, and what leads from the rows of ``name`` to those of ``target``, which were equal at ``since``.

        ``ConfigurationError`` where they have other columns.
        """
        with self._relations.reading:
            contents, wanted = self._readable(name), self._readable(target)
            if [(each.name, each.kind) for each in contents.columns] != [(each.name, each.kind) for each in wanted.columns]:
                raise ConfigurationError(f"{target} has other columns than {name}, which follows it: drop and create {name} anew")
            later = None if since is None else wanted.changes_since(since)
            if later is None:
                return self.time, contents.difference(wanted.rows.items())
            return self.time, consolidate([change for epoch in later for change in epoch.changes])

    def commit(self, changes: Mapping[str, Changes], *, idempotency_key: str | None = None) -> int:
        """Change tables in one epoch, bring all views up to date, and return the epoch, which is complete then.

        Where rows are refused nothing is changed. A view that fails has no result until an epoch in which it does not. With
        ``data``, the changes are on disk by then, and may share their epoch with others. A repeated ``idempotency_key`` changes
        nothing, and returns the first epoch; ``IdempotencyError`` for other changes. ``DiskFullError`` where nothing was changed.
        """
        return self.begin_commit(changes, idempotency_key=idempotency_key).result()

    def begin_commit(self, changes: Mapping[str, Changes], *, idempotency_key: str | None = None, mark: str = "") -> Future[int]:
        """Begin what ``commit`` does, and return its future result; ``mark`` is that of the tables of a source or sink."""
        listed = _listed(changes)

        def prepare(earlier: Mapping[str, Mapping[Row, int]]) -> Decision:
            return Decision(self._checked(listed, earlier, mark))

        return self._submit(Request(prepare, RequestKey.of(idempotency_key, listed)))

    def write(self, name: str, **rows: Unpack[TableWrite]) -> int:
        """Change one table in one epoch, and return the epoch, as ``commit`` does: ``insert`` and ``delete`` rows, or ``upsert``.

        A row of ``upsert`` replaces those with equal values in the columns ``key``; of several such rows the last one counts.
        """
        return self.begin_write(name, **rows).result()

    def begin_write(
        self,
        name: str,
        *,
        insert: Iterable[Row] = (),
        delete: Iterable[Row] = (),
        upsert: Iterable[Row] = (),
        key: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Future[int]:
        """Begin what ``write`` does, and return its future result."""
        changes: list[Change] = [*((row, 1) for row in insert), *((row, -1) for row in delete)]
        upserts = list(upsert)
        if changes and (upserts or key):
            raise ConfigurationError("insert and delete in another epoch than upsert, which alone has a key")
        if not upserts:
            return self.begin_commit({name: changes}, idempotency_key=idempotency_key)

        def prepare(earlier: Mapping[str, Mapping[Row, int]]) -> Decision:
            replaced = self._relations.replacements(name, upserts, key, earlier.get(name.lower(), {}))
            return Decision(self.check(name, replaced, earlier))

        return self._submit(Request(prepare, RequestKey.of(idempotency_key, (name, upserts, key))))

    def fill(self, changes: Mapping[str, Changes]) -> None:
        """Put rows into tables that nothing reads yet, at the current time: their epoch has not begun. With ``data``, commit."""
        if self._durable is not None:
            self.commit(changes)
            return
        relations = self._relations
        with relations.running:
            relations.check_whole()
            listed = _listed(changes)
            checked = self._checked(listed, {})
            for name in listed:
                table = relations.of(name)
                if table.contents.rows or any(name in each.definition.reads for each in relations.by_name.values()):
                    raise ConfigurationError(f"table {name} has rows, or is read already: commit changes it")
                table.shown = False  # it begins with them
            relations.compute(relations.time, checked)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, name: str, where: Sequence[RowCondition] = (), limit: int | None = None) -> Answer:
        """Return the rows that fulfil all conditions, up to ``limit`` of them; ``ViewError`` for a view that has failed.

        ``SchemaError`` for a condition whose value can be equal to none of its column, such as a text and numbers. For a query it
        waits until that has caught up.
        """
        with self._relations.reading:
            contents = self._readable(name)
            for condition in where:
                condition.check(contents.columns)
            rows = contents.find(where, None if limit is None else limit + 1)
            time = self.time
        if limit is not None and sum(count for _, count in rows) > limit:
            last, count = rows.pop()  # they are one too many
            return Answer(time, contents.columns, [*rows, (last, count - 1)] if count > 1 else rows, more=True)
        return Answer(time, contents.columns, rows, more=False)

    def changes(self, name: str, since: int) -> list[EpochChanges]:
        """Return what changed in the epochs after ``since``; ``CompactedError`` if that is not remembered."""
        with self._relations.reading:
            contents = self._readable(name)
            later = contents.changes_since(since) if since <= self.time else None
        if later is None:
            raise CompactedError(f"{name}: the changes after epoch {since} are not remembered: read it anew")
        return later

    def why(self, name: str, where: Sequence[RowCondition] = (), *, row: Row | None = None) -> Provenance:
        """Return why ``row`` is in a view, or the one that fulfils all conditions: rows of tables over which the view has it.

        It runs in a process with the bounds of a query. ``ConfigurationError`` where it is not there, or not one; other errors
        are those of ``query``.

        >>> views = Views()
        >>> views.table("orders", "customer string, price long", [("ada", 30), ("bob", 5), ("bob", 9)])
        >>> views.view("dearest", "select customer, max(price) as price from orders group by customer")
        >>> print(views.why("dearest", row=("bob", 9)))
        ('bob', 9) follows from
          orders: ('bob', 9)
        """
        with self.prepare("") as search:
            return search.why(name, where, row)

    def holds(self, name: str, provenance: Provenance) -> bool:
        """Return whether an answer of ``why`` for a view is right now: whether all of its rows are there, and the row."""
        with self._relations.reading:
            rows = {each: self._readable(each).rows for each in (name, *provenance.inputs)}
        there = (rows[each].get(row) == count for each, few in provenance.inputs.items() for row, count in few.items())
        return provenance.row in rows[name] and all(there)

    def why_not(self, name: str, values: Mapping[str, Any]) -> WhyNot:
        """Return why no row of a view has ``values`` of some columns: at which operators of its query the last candidates drop.

        It runs in a process with the bounds of a query, and asks the views that the view reads too. ``ConfigurationError`` where
        there is such a row; other errors are those of ``query``.

        >>> views = Views()
        >>> views.table("orders", "customer string, price long", [("ada", 30), ("bob", 5)])
        >>> views.view("dear", "select customer from orders where price > 9")
        >>> print(views.why_not("dear", {"customer": "bob"}))
        no row with customer = 'bob':
          filter in dear: it is not true that price > 9 at line 1, column 35
            customer = 'bob', price = 5
        """
        with self.prepare("") as search:
            return search.why_not(name, values)

    def describe(self, name: str) -> ViewDescription:
        """Return what a table, view or query is at the current time."""
        query = self._queries.get(name.lower())
        return self._relations.of(name).description() if query is None else query.description()

    def overview(self) -> tuple[int, list[ViewDescription]]:
        """Return the complete time, and what all tables and views are at it; never waits, also not for who reads."""
        return self.time, [each.description() for each in self._relations.by_name.values()]

    @property
    def catalog(self) -> Catalog:
        """What is defined."""
        return self._relations.catalog

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
        return self._relations.broken

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener()``, on some thread, when there may be news; return a function that ends that."""
        relations = self._relations
        relations.listeners = [*relations.listeners, listener]

        def end() -> None:
            relations.listeners = [each for each in relations.listeners if each is not listener]

        return end

    def _readable(self, name: str) -> Contents:
        """Return what is read, if it has a result. The caller holds the lock."""
        query = self._queries.get(name.lower())
        return self._relations.readable(name) if query is None else query.caught_up()


def _parsed(text: str) -> list[Statement]:
    statements = parse_script(text)
    for each in statements:
        if isinstance(each, ViewDefinition):
            warn_of_order(each.query, f"view {each.name}: ")
    return statements


def _listed(changes: Mapping[str, Changes]) -> dict[str, list[Change]]:
    listed = {checked_name(name): list(pairs(changed)) for name, changed in changes.items()}
    if len(listed) < len(changes):
        raise ConfigurationError(f"{', '.join(changes)}: give all changes of a table under one name, in lower case")
    return listed
