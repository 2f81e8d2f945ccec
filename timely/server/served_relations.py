"""``ServedRelations``: the tables and views of a server, computed in epochs, and read at one complete time.

Invariants: who reads sees all of them as they are at ``time``. Who holds ``running`` is the only one to compute epochs; who holds
``reading`` reads or writes what is read. New definitions are computed beside those that run, by who makes them, with neither.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time as clock
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import attrs

from timely.dataflow.first_rows import counted_preview
from timely.differential.tables.arrow_rows import check_added
from timely.differential.tables.names.statements import is_append_only
from timely.differential.tables.names.user_functions import Functions
from timely.differential.tables.operators.time_windows import Lateness
from timely.differential.tables.values.kinds import Column, row_check
from timely.differential.updates.updates import consolidate
from timely.errors import (
    ConfigurationError,
    DifferenceError,
    OperatorError,
    OutputError,
    TimelyError,
    ViewError,
    brief,
    error_text,
)
from timely.recovery.state_registry import WorkerState
from timely.server.catalog import NO_KEYS, Catalog, Definition, late_of, unknown
from timely.server.computation import Computation, EndlessError, failure, watermark_of
from timely.server.contents import Change, Contents, EpochChanges, Row, RowCondition

Changes = Mapping[Row, int] | Iterable[Change]
"""What happens to a table: rows with what their counts grow by."""

_log = logging.getLogger("timely.server")

_FEW: Final = 10
"""Epochs that a build may be behind when it is switched to: writes wait for these."""
_SOON: Final = 0.1
_EACH: Final = 2e-5
"""Seconds after which a view that failed is tried again, at least; and for each row that it reads, ten times what it takes."""
_ROWS: Final = 1000
"""Rows that a view which failed may be computed from anew, for each change of a row: a millisecond."""
_ROUNDS: Final = 20
"""How often a build tries to be no further behind."""


@attrs.frozen
class Limits:
    """Bounds of what clients may ask for."""

    queries: int = 16
    """Queries that run at one time."""
    query_length: int = 20_000
    """Characters of a query."""
    query_seconds: float = 30.0
    """Seconds that a query may take in one epoch."""
    view_seconds: float = 300.0
    """Seconds of processor time that a view may take in one epoch."""
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
    waiting: int = 16 << 20
    """Bytes of the bodies of all requests that wait to be written."""
    definitions: int = 1000
    """Tables and views."""
    epochs: int = 1000
    """Epochs whose changes are remembered, for clients that come back."""
    changes: int = 100_000
    """Changes of a view that are remembered."""
    replay_seconds: float = 5.0
    """Seconds of computing after which a checkpoint is taken, where there is ``data``: a restart repeats about as much."""


class Answer(NamedTuple):
    """Rows of a table or view with their counts, at one complete time; ``more`` says that there are others."""

    time: int
    columns: tuple[Column, ...]
    rows: list[tuple[Row, int]]
    more: bool

    def _repr_html_(self) -> str:
        return counted_preview([column.name for column in self.columns], self.rows, len(self.rows)).html()


class ViewDescription(NamedTuple):
    """What a table, view or query is at the current time; ``error`` says why it has no result now."""

    name: str
    kind: Literal["table", "view", "query"]
    columns: tuple[Column, ...]
    rows: int
    query: str | None
    error: str | None


class RelationState(NamedTuple):
    """What a checkpoint has of a table or view: its rows, if they are still right, and the remembered epochs after ``start``."""

    name: str
    rows: Mapping[Row, int] | None
    start: int
    epochs: Sequence[EpochChanges]
    behind: int


@attrs.define(eq=False)
class ServedRelation:
    """A table or view that is read, and what computes it."""

    definition: Definition
    contents: Contents
    check: Callable[[Any], Row] | None = None
    """What checks a row of a table."""
    computation: Computation | None = None
    """Of a view that has a result."""
    error: str | None = None
    """Why it has no result."""
    shown: bool = False
    """Whether it has had one."""
    saves: bool = False
    """Whether checkpoints have its computation."""
    failed: type[TimelyError] | None = None
    """With what it failed last; one that has taken too long is not tried again."""
    behind: int = 0
    """Changes that it has not been tried with since it failed."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def kind(self) -> Literal["table", "view"]:
        return "view" if self.definition.schema is None else "table"

    def rows_read(self, relations: Mapping[str, ServedRelation]) -> int:
        """Return how many rows it reads."""
        return sum(relations[read].contents.size for read in self.definition.reads)

    def compute_from(self, relations: Mapping[str, ServedRelation], state: WorkerState | None = None) -> None:
        """Begin a computation, which has seen no rows, or those that it had in a checkpoint."""
        tables = {read: relations[read].definition.as_read for read in sorted(self.definition.reads)}
        state = state or (WorkerState(0, 1) if self.saves else None)
        functions = dict(self.definition.functions)
        self.computation = Computation(self.definition.query, tables, functions, name=self.name, state=state)

    def row_check(self) -> Callable[[Any], Row]:
        """Return what checks a row; ``ConfigurationError`` for a view."""
        if self.check is None:
            raise ConfigurationError(f"{self.name} is a view: only tables are changed")
        return self.check

    def checked(self, changes: Changes) -> list[Change]:
        """Return changes added up, with their rows checked."""
        check, schema = self.row_check(), self.definition.schema
        checked: list[Change] = consolidate([(check(row), _whole(diff)) for row, diff in pairs(changes)])
        if schema is not None and is_append_only(schema):
            for row, diff in checked:
                check_added(row, diff, f"table {self.name}")
        return checked

    def counted(self, checked: list[Change], earlier: Mapping[Row, int]) -> list[Change]:
        """Return changes, after ``earlier`` ones of the same epoch, none of whose rows is there less than 0 times then."""
        rows = self.contents.rows
        for row, diff in checked:
            count = rows.get(row, 0) + earlier.get(row, 0) + diff
            if count < 0:
                raise DifferenceError(f"table {self.name}: {brief(row)} would be there {count} times: nothing was changed")
        return checked

    def copy(self) -> ServedRelation:
        """Return a relation that holds the same rows, and is not computed."""
        return attrs.evolve(self, contents=self.contents.copy(), computation=None)

    def description(self) -> ViewDescription:
        query = " ".join(self.definition.query.split()) or None
        return ViewDescription(self.name, self.kind, self.contents.columns, self.contents.size, query, self.error)

    def state(self) -> RelationState:
        """Return what a checkpoint has of it: without a result, what it had last."""
        return RelationState(self.name, self.contents.rows, *self.contents.remembered(), self.behind)


class Epoch(NamedTuple):
    """What an epoch changes: rows, by relation; and why there is no result, or ``None`` where there is one again."""

    changes: dict[str, list[Change]]
    errors: dict[str, str | None]


def compute(relations: Mapping[str, ServedRelation], views: Iterable[str], epoch: Epoch, seconds: float) -> None:
    """Add to an epoch what it changes in ``views``, which are in the order of their definitions.

    A view that fails is computed anew from all rows: it may have failed on one that came and went within the epoch. While that
    fails too it has no result. It is tried again when one in a thousand of the rows that it reads has changed, and in an epoch
    without changes. What is tried depends on epochs alone, so that a log repeats it. After ``seconds`` it is not tried again.
    """
    changes, errors = epoch
    quiet = not any(changes.values())
    for name in views:
        view = relations[name]
        sources = {read: relations[read] for read in sorted(view.definition.reads)}
        broken = {read: error for read, each in sources.items() if (error := errors.get(read, each.error)) is not None}
        if view.failed is EndlessError:
            continue
        if broken:
            read, error = next(iter(broken.items()))
            view.behind = 0
            view.computation, errors[name] = None, f"view {read}, which it reads, has no result now: {error}"
            continue
        news = {read: changes[read] for read in sources if read in changes}
        if view.computation is None and view.error is not None:
            view.behind += sum(map(len, news.values()))
            due = quiet or view.behind * _ROWS >= view.rows_read(relations)
            if not (errors.keys() & sources.keys() or (view.behind and due)):
                continue
        view.behind = 0
        try:
            try:
                if view.computation is not None:
                    if any(news.values()):
                        changes[name] = view.computation.advance(news, seconds)
                    continue
            except OperatorError:
                pass
            view.compute_from(relations)
            assert view.computation is not None
            rows = {read: consolidate([*each.contents.rows.items(), *news.get(read, ())]) for read, each in sources.items()}
            changes[name] = view.contents.difference(view.computation.advance(rows, seconds))
            errors[name] = None
        except (OperatorError, EndlessError) as error:
            view.computation, errors[name], view.failed = None, failure(error), type(error)


def apply(relations: Mapping[str, ServedRelation], time: int, epoch: Epoch) -> None:
    for name, changes in epoch.changes.items():
        each = relations[name]
        if each.shown:
            each.contents.apply(time, changes)
        else:
            each.contents.start_at(time, changes)
            each.shown = True
    for name, error in epoch.errors.items():
        relations[name].error = error


class _Missed(NamedTuple):
    """Epochs, added up."""

    changes: dict[str, dict[Row, int]]
    errors: dict[str, str | None]


class ViewBuild:
    """What a catalog defines anew, with the views that read it, computed beside what runs.

    It begins with what these read as that is now, and follows the epochs that come meanwhile.
    """

    def __init__(self, live: ServedRelations, catalog: Catalog, rows: Mapping[str, Iterable[Change]]) -> None:
        before, after = live.catalog.definitions, catalog.definitions
        changed = {name for name, each in before.items() if after.get(name) != each}
        names = {*changed, *catalog.readers(changed), *(after.keys() - before.keys())}
        self.catalog = catalog
        self.new = {name: live.new_relation(each) for name, each in after.items() if name in names}
        """Relations by name, which nobody reads yet."""
        self.moves = bool(changed)
        """Whether something that was there is another one, or gone."""
        self.seconds = 0.0
        """Processor time that it has taken."""
        self.behind = 0
        """How many epochs it has yet to follow."""
        self._missed, self._reading = _Missed({}, {}), live.reading
        self._time, self._seconds = live.time, live.limits.view_seconds
        self._views = [name for name, each in self.new.items() if each.kind == "view"]
        sources = {read for name in self._views for read in self.new[name].definition.reads}
        self.read = {name: live.by_name[name].copy() for name in before if name in sources and name not in names}
        for name, each in self.new.items():
            if each.kind == "table":
                each.contents.start_at(live.time, list(rows.get(name, ())))
                each.shown = True

    def resume(self, state: RelationState, computation: WorkerState | None) -> None:
        """Have a view go on from a checkpoint. Where its computation cannot, it is computed from what it reads."""
        view = self.new[state.name]
        view.contents.start_at(self._time, list((state.rows or {}).items()))
        view.shown = state.rows is not None
        try:
            if computation is not None and view.shown:
                view.compute_from({**self.read, **self.new}, computation)
        except TimelyError as error:
            _log.warning("view %s is computed anew: %s", view.name, error)

    def run(self) -> None:
        """Compute it, up to few epochs that it is behind then. ``ViewError`` where that cannot be done."""
        began = clock.thread_time()
        self._compute(Epoch({}, {}))
        for _ in range(_ROUNDS):
            if self.behind > _FEW:
                self.follow()
        self.seconds = clock.thread_time() - began

    def miss(self, epoch: Epoch) -> None:
        """Take note of an epoch; for who holds ``reading``. Changes are added up, so they are no more than there are rows."""
        self.behind += 1
        for name in self.read.keys() & epoch.changes.keys():
            missed = self._missed.changes.setdefault(name, {})
            for row, diff in epoch.changes[name]:
                if count := missed.pop(row, 0) + diff:
                    missed[row] = count
        self._missed.errors.update({name: epoch.errors[name] for name in self.read.keys() & epoch.errors.keys()})

    def follow(self) -> None:
        """Compute what has changed meanwhile, as one epoch."""
        with self._reading:
            (changes, errors), self._missed, self.behind = self._missed, _Missed({}, {}), 0
        self._compute(Epoch({name: list(rows.items()) for name, rows in changes.items()}, errors))

    def _compute(self, epoch: Epoch) -> None:
        relations = {**self.read, **self.new}
        try:
            compute(relations, self._views, epoch, self._seconds)
        except Exception as error:
            raise ViewError(f"nothing was changed, since it cannot be built: {error_text(error)}") from error
        apply(relations, self._time, epoch)


class Decision(NamedTuple):
    """What happens in an epoch: changes of tables, or another catalog, whose new tables begin with these rows."""

    changes: dict[str, list[Change]]
    catalog: Catalog | None = None
    build: ViewBuild | None = None


class OutdatedError(ViewError):
    """What is defined has changed since a change of it was compiled."""


class ServedRelations:
    """All tables and views, in the order of their definitions."""

    def __init__(self, limits: Limits, functions: Functions) -> None:
        self.limits = limits
        self.running = threading.RLock()
        self.reading = threading.Condition(threading.Lock())
        self.catalog = Catalog(functions=tuple(functions.items()))
        self.by_name: dict[str, ServedRelation] = {}
        self.time = 0
        """The complete time that is read."""
        self.broken: str | None = None
        """Why no epoch can be computed any more."""
        self.listeners: list[Callable[[], object]] = []
        """Called behind each epoch."""
        self.saves = False
        """Whether checkpoints have computations."""
        self._builds: list[ViewBuild] = []

    def new_relation(self, definition: Definition) -> ServedRelation:
        """Return a relation that holds nothing."""
        contents = Contents(definition.columns, self.time, self.limits.epochs, self.limits.changes)
        check = None if definition.schema is None else row_check(definition.columns, definition.schema)
        return ServedRelation(definition, contents, check, saves=self.saves)

    def of(self, name: str) -> ServedRelation:
        """Return a table or view; ``OutputError`` where there is none."""
        relation = self.by_name.get(name.lower())
        if relation is None:
            raise OutputError(unknown(name, self.by_name))
        return relation

    def accepted(self, name: str, changes: Changes, earlier: Mapping[str, Mapping[Row, int]]) -> dict[str, list[Change]]:
        """Return what changes of a table change after ``earlier`` ones of the same epoch: its late rows and watermark too."""
        table = self.of(name)
        checked, lateness = table.checked(changes), table.definition.lateness
        if lateness is None:
            return {table.name: table.counted(checked, earlier.get(table.name, {}))}
        place, mark = lateness.place, watermark_of(table.name)
        horizon = self.by_name[mark].contents.rows
        in_time: list[Change] = []
        late: list[Change] = []
        for row, diff in checked:
            (late if any(row[place] < before for (before,) in horizon) else in_time).append((row, diff))
        now = {row for row, count in consolidate([*horizon.items(), *earlier.get(mark, {}).items()])}
        return {
            table.name: table.counted(in_time, earlier.get(table.name, {})),
            mark: watermark_changes(lateness, in_time, now),
            late_of(table.name): [((*row, 1 if diff > 0 else -1), abs(diff)) for row, diff in late],
        }

    def readable(self, name: str) -> Contents:
        """Return what is read; ``ViewError`` where there is no result. For who holds ``reading``."""
        relation = self.of(name)
        if relation.error is not None:
            raise ViewError(f"{relation.kind} {relation.name} has no result now: {relation.error}")
        return relation.contents

    def replacements(self, name: str, upserts: Sequence[Row], key: Sequence[str], earlier: Mapping[Row, int]) -> list[Change]:
        """Return the changes of a table by which rows replace those with an equal key, after ``earlier`` ones of their epoch."""
        table = self.of(name)
        if table.definition.lateness is not None:
            raise ConfigurationError(f"table {table.name} {NO_KEYS}: insert and delete rows, or declare it without LATENESS")
        names = [column.name for column in table.contents.columns]
        if not key or not isinstance(key, list | tuple) or any(column not in names for column in key):
            raise ConfigurationError(f"key is a list of columns of table {table.name} ({', '.join(names)}), not {brief(key)}")
        places = [names.index(column) for column in key]
        last = {tuple(row[place] for place in places): row for row in map(table.row_check(), upserts)}
        changes: list[Change] = [(row, 1) for row in last.values()]
        changes += [(row, -diff) for row, diff in earlier.items() if tuple(row[place] for place in places) in last]
        with self.reading:
            for values in last:
                where = [RowCondition(place, "eq", value) for place, value in zip(places, values)]
                changes += [(row, -count) for row, count in table.contents.find(where)]
        return changes

    def check_whole(self) -> None:
        """Raise ``ViewError`` where no epoch can be computed any more."""
        if self.broken is not None:
            raise ViewError(f"the dataflows have ended, and are still read at epoch {self.time}: {self.broken}")

    @property
    def retry_after(self) -> float | None:
        """Seconds after which an epoch without changes is to try what failed with what has changed; ``None`` if nothing has."""
        sizes = [each.rows_read(self.by_name) for each in list(self.by_name.values()) if each.behind]
        return max(_SOON, _EACH * max(sizes)) if sizes else None

    @contextlib.contextmanager
    def build(self, base: Catalog, catalog: Catalog, rows: Mapping[str, Iterable[Change]]) -> Iterator[ViewBuild]:
        """Begin to build what ``catalog`` changes in ``base``; ``OutdatedError`` where that has changed."""
        with self.reading:
            if self.catalog is not base:
                raise OutdatedError("what is defined has changed meanwhile")
            build = ViewBuild(self, catalog, rows)
            self._builds.append(build)
        try:
            yield build
        finally:
            with self.reading:
                self._builds.remove(build)

    def decided(self, decision: Decision, *, advance: bool = False) -> Mapping[str, list[Change]]:
        """Have a decision, which was checked, happen in the next epoch, and return what that changes in what was there.

        New definitions happen in the current one, unless they are to ``advance``, or something that was there changes.
        """
        with self.running:
            if decision.catalog is None:
                return self.compute(self.time + 1, decision.changes)
            if decision.build is not None:
                return self._switch(decision.build, advance)
            with self.build(self.catalog, decision.catalog, decision.changes) as build:
                build.run()
                return self._switch(build, advance)

    def compute(self, time: int, changes: Mapping[str, list[Change]]) -> Mapping[str, list[Change]]:
        """Compute an epoch with changes of tables, which were checked, and return all that it changes."""
        epoch = Epoch(dict(changes), {})
        try:
            views = (name for name, each in self.by_name.items() if each.kind == "view")
            compute(self.by_name, views, epoch, self.limits.view_seconds)
        except BaseException as error:  # some have computed it, and others have not
            self.broken = error_text(error) if isinstance(error, Exception) else type(error).__name__
            raise
        self._publish(time, epoch, self.catalog, self.by_name)
        return epoch.changes

    def _switch(self, build: ViewBuild, advance: bool) -> Mapping[str, list[Change]]:
        """Have what was built be read; who follows a view that was there with the same columns gets the difference."""
        build.follow()
        time, epoch = self.time + (advance or build.moves), Epoch({}, {})
        relations: dict[str, ServedRelation] = {}
        for name, definition in build.catalog.definitions.items():
            there, new = self.by_name.get(name), build.new.get(name)
            if new is None:
                relations[name] = self.by_name[name]
            elif there is None or new.kind == "table" or there.definition.columns != definition.columns:
                new.contents.start_at(time, [])
                relations[name] = new
            else:
                relations[name] = attrs.evolve(new, contents=there.contents, error=there.error, shown=there.shown)
                epoch.errors[name] = new.error
                if new.error is None:
                    epoch.changes[name] = there.contents.difference(new.contents.rows.items())
        self._publish(time, epoch, build.catalog, relations)
        return epoch.changes

    def _publish(self, time: int, epoch: Epoch, catalog: Catalog, relations: dict[str, ServedRelation]) -> None:
        with self.reading:
            self.time, self.catalog, self.by_name = time, catalog, relations
            apply(relations, time, epoch)
            for build in self._builds:
                build.miss(epoch)
            self.reading.notify_all()
        for listener in self.listeners:
            listener()

    def restore(
        self, time: int, catalog: Catalog, states: Sequence[RelationState], computations: Mapping[str, WorkerState]
    ) -> list[str]:
        """Have all tables and views as they were at an epoch; views without a computation are computed anew.

        Return the names of those that have other rows now.
        """
        self.time = time
        tables = {each.name: list(each.rows.items()) for each in states if each.rows is not None}
        with self.running, self.build(self.catalog, catalog, tables) as build:
            for each in states:
                if build.new[each.name].kind == "view":
                    build.resume(each, computations.get(each.name))
            build.run()
            other = [each.name for each in states if each.rows is None or build.new[each.name].contents.remembered()[1]]
            self._switch(build, advance=False)
        for each in states:
            relation = self.by_name[each.name]
            if relation.error is not None:
                relation.behind = each.behind  # so that the log repeats when it is tried again
            elif each.name not in other:
                relation.contents.remember(each.start, each.epochs)
        return other

    def states(self) -> list[RelationState]:
        """Return what there is now, for a checkpoint; nothing may change meanwhile."""
        return [each.state() for each in self.by_name.values()]


def watermark_changes(lateness: Lateness, changes: Iterable[Change], now: Collection[Row] = ()) -> list[Change]:
    """Return what changes make of a watermark: so long before the latest moment of a row that came; it never goes back."""
    marks = [(lateness.span.horizon(row[lateness.place]),) for row, diff in changes if diff > 0]
    latest = max([*marks, *now], default=None)
    return [] if latest is None or latest in now else [*((row, -1) for row in now), (latest, 1)]


def pairs(changes: Changes) -> Iterable[Change]:
    """Return changes as pairs of rows and what their counts grow by."""
    return changes.items() if isinstance(changes, Mapping) else changes


def _whole(diff: int) -> int:
    if type(diff) is not int:
        raise DifferenceError(f"the count of a row changes by a whole number, not {brief(diff)}")
    return diff
