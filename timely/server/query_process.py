"""``QueryProcess``: a query in a process of its own, which the kernel ends where it takes too long or too much.

The process is forked, so it has the rows of all tables and views as they are at one time, and is told what changes from then on.
Planning and computing happen there. Whatever a query does, the process that serves goes on, and ending a query leaves nothing.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import pyarrow as pa

from timely.differential.tables.names.statements import ViewDefinition, parse_script
from timely.differential.tables.values.kinds import Column
from timely.differential.tables.why_not import ViewRows
from timely.differential.why_derivations import Derivation, Inputs, Provenance, WhyNot
from timely.differential.why_provenance import Explainer, provenance_of
from timely.errors import ConfigurationError, OperatorError, SqlError, TimelyError, ViewError, error_text
from timely.memory import MemoryBudget, size_text
from timely.server.computation import Computation, failure, without_line
from timely.server.contents import Change, Row, RowCondition
from timely.server.served_relations import ServedRelations, ViewBuild

try:
    import resource
except ModuleNotFoundError:  # not a Unix, which has no fork either
    resource = None  # type: ignore[assignment]

LEAST: Final = 16 << 20
"""Bytes that any query may take."""

_PIECE: Final = 1000
"""Rows of one message: reading it holds up the threads of the server no longer than that."""

_ANSWER: Final = 1 << 20
"""Bytes of what is sent first, at most, for the same reason: clients who follow it have the server keep it."""


@attrs.frozen
class QueryRequest:
    """A query, the bounds of its process, and what is wanted of it.

    ``rows`` bounds the result. A query to be read ``once`` gives its first rows, in its order, and ends; another one that has
    more rows is refused. An ``ordered`` one has columns of its order behind its own.
    """

    text: str
    seconds: float
    memory: int
    rows: int
    once: bool = False
    ordered: bool = False


Work: TypeAlias = Callable[[QueryRequest, ServedRelations], Any]
"""What a process does; it returns an answer, or a ``QueryComputation``."""


class SortColumn(NamedTuple):
    """A column that rows are sorted by, with where ``NULL`` stands."""

    column: str
    descending: bool
    nulls_first: bool


class Started(NamedTuple):
    """A query runs: its columns, the tables and views that it reads, and its order."""

    columns: tuple[Column, ...]
    reads: frozenset[str]
    order: tuple[SortColumn, ...]
    width: int


class _Complete(NamedTuple):
    """All changes of an epoch have been sent; of a query that is read once there may be ``more`` rows."""

    more: bool


class _Refused(NamedTuple):
    kind: type[TimelyError]
    reason: str


class QueryProcess:
    """The process of one query; its owner starts it, receives and ends it, and any thread may kill it."""

    def __init__(self, request: QueryRequest) -> None:
        self.request = request
        self._size = 0  # about how many bytes its result takes in this process
        self._received = self._rows = 0  # bytes, and how many rows they were
        self._lock = threading.Lock()
        self._number: int | None = None
        self._killed = threading.Event()
        self._connection: Any = None

    def start(self, work: Work, relations: ServedRelations) -> None:
        """Start to work on ``relations`` as they are now: it sends what that returns, and what a computation does then."""
        if not hasattr(os, "fork"):
            raise ConfigurationError("a query runs in a process of its own, and this system cannot fork one")
        try:
            self._connection, theirs = Pipe()
            with self._lock, theirs:
                if self._killed.is_set():
                    raise ViewError("the query has been closed")
                with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of threads: none of them is used
                    self._number = os.fork()
                if self._number == 0:
                    _run(self.request, theirs, lambda: work(self.request, relations))
            if self._killed.is_set():
                self.kill()
        except OSError as error:
            raise ViewError(f"the query has no process: {error}") from None

    def changes(self) -> tuple[list[Change], bool]:
        """Return what an epoch has changed, the first all rows, and whether there are more."""
        changes: list[Change] = []
        while not isinstance(message := self.receive(), _Complete):
            changes += message
            if self._size > self.request.memory:
                raise ViewError(f"the result of the query takes more than {size_text(self.request.memory)}: select less")
        return changes, message.more

    def send(self, changes: Mapping[str, Sequence[Change]]) -> None:
        """Begin the next epoch, with changes of what is read."""
        with contextlib.suppress(OSError):  # it has ended: the next receive fails
            self._connection.send(changes)

    def note_rows(self, rows: int) -> None:
        """Take note of how many rows its result has now."""
        self._size = rows * self._received // max(self._rows, 1)

    def kill(self) -> None:
        """End the process, from any thread, without waiting; a no-op when it has ended."""
        self._killed.set()
        if self._lock.acquire(blocking=False):  # else it is being forked, and killed then, or is dead
            if self._number is not None:
                os.kill(self._number, signal.SIGKILL)
            self._lock.release()

    def end(self) -> int:
        """End the process and return its exit code: a signal as a negative number."""
        self.kill()
        status = 0
        if self._number is not None:
            with contextlib.suppress(ChildProcessError):  # where the program waits for all its children
                os.waitid(os.P_PID, self._number, os.WEXITED | os.WNOWAIT)
                with self._lock:  # from now on another process may have its number
                    number, self._number = self._number, None
                    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        if self._connection is not None:
            self._connection.close()
        return status

    def receive(self) -> Any:
        """Return what the work sends next, first what the query is; ``SqlError`` for what cannot be computed."""
        try:
            content = self._connection.recv_bytes()
        except (EOFError, OSError):
            closed = self._killed.is_set()
            status = self.end()
            if closed:
                raise ViewError("the query has been closed") from None
            if status == -signal.SIGALRM:
                raise ViewError(f"the query took longer than {self.request.seconds:g} s: make it smaller") from None
            raise ViewError(_needs_more(self.request.memory)) from None
        message = pickle.loads(content)
        if isinstance(message, _Refused):
            raise message.kind(message.reason)
        if isinstance(message, list):
            size = len(content) + len(message) * (200 + 40 * len(message[0][0]))
            self._size += size
            self._received += size
            self._rows += len(message)
        return message


def _needs_more(memory: int) -> str:
    return f"the query needs more than {size_text(memory)}: make it smaller, or raise --query-memory"


# -- in the process of the query -----------------------------------------------------------------------------------------


def _run(request: QueryRequest, connection: Connection, work: Callable[[], Any]) -> None:
    """Be the process of a query, up to its end."""
    try:
        _bound(request, connection)
        with MemoryBudget(None, total=math.inf):  # the kernel bounds it
            try:
                _serve(request, connection, work)
            except BaseException as error:
                _bound_memory(None)  # there must be room to say what went wrong
                connection.send(_refused(request, error))
    finally:
        os._exit(0)  # the rest of the program belongs to the other process


def _serve(request: QueryRequest, connection: Connection, work: Callable[[], Any]) -> None:
    try:
        result = work()
    except (TimelyError, MemoryError):
        raise
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
    except Exception as error:
        raise SqlError(f"the query cannot be planned: {error_text(error)}") from None
    first = pickle.dumps(result.started if isinstance(result, QueryComputation) else result)
    if len(first) > _ANSWER:
        raise ConfigurationError(f"the answer takes more than {size_text(_ANSWER)}: ask of a row that follows from less")
    connection.send_bytes(first)
    while isinstance(result, QueryComputation):
        rows, more = result.complete()
        for begin in range(0, len(rows), _PIECE):
            connection.send(rows[begin : begin + _PIECE])
        connection.send(_Complete(more))
        _alarm(0.0)
        try:
            changes = connection.recv()
        except EOFError:
            return
        _alarm(request.seconds)
        result.begin(changes)


def rehearsal(request: QueryRequest, relations: ServedRelations) -> None:
    """Apply the statements of a script to ``relations``; ``ViewError`` where one of its views has no result then."""
    statements = parse_script(request.text)
    build = ViewBuild(relations, relations.catalog.with_statements(statements), {})
    _bound_memory(request.memory - sum(_copied(each.contents.rows.items()) for each in build.read.values()))
    build.run()
    for each in statements:
        if isinstance(each, ViewDefinition) and each.name in build.new and (error := build.new[each.name].error) is not None:
            raise ViewError(f"view {each.name} has no result: {error}")


def _view_rows(request: QueryRequest, relations: ServedRelations, name: str) -> ViewRows:
    """Return what a table or view holds, and all that it reads; the process may read all of it."""
    needed, left = set[str](), [relations.of(name).name]
    while left:
        needed.add(each := left.pop())
        left += relations.by_name[each].definition.reads
    chosen = [each for each in relations.by_name.values() if each.name in needed]
    rows = {each.name: each.contents.rows for each in chosen}
    _bound_memory(request.memory - sum(_copied(each.items()) for each in rows.values()))
    columns = {each.name: each.contents.columns for each in chosen}
    queries = {each.name: each.definition.query for each in chosen if each.kind == "view"}
    return ViewRows(rows, columns, queries, dict(relations.catalog.functions))


def absence(request: QueryRequest, relations: ServedRelations, name: str, values: Mapping[str, Any]) -> WhyNot:
    """Return why no row of a view has ``values``."""
    columns = relations.readable(name).columns
    for place, column in enumerate(columns):
        if column.name in values:
            RowCondition(place, "eq", values[column.name]).check(columns)
    return _view_rows(request, relations, name).why_not(name.lower(), values)


def origin(
    request: QueryRequest, relations: ServedRelations, name: str, where: Sequence[RowCondition], row: Row | None
) -> Provenance:
    """Return why ``row`` is in a table or view, or the one row there that fulfils conditions."""
    contents, held = relations.readable(name), _view_rows(request, relations, name)
    for condition in where:
        condition.check(contents.columns)
    candidates = (each for each in (contents.rows if row is None else [row]) if all(of.holds(each) for of in where))
    rows = list(itertools.islice(candidates, 2))
    if len(rows) != 1:
        how = "several rows fulfil the conditions: add one" if rows else "no row fulfils the conditions: ask why_not"
        raise ConfigurationError(f"why of {name}: {how}")
    (asked,), view = rows, name.lower()
    tables = {each: of for each, of in held.rows.items() if each not in held.queries} or {"no table": {}}
    near = held.origins(view, {asked: 1}) if view in held.queries else {view: {asked: tables[view].get(asked, 0)}}
    if near is None:
        nears = Explainer(held.program(view), tables).nears(asked)
    else:  # a side of a join that is not needed was not looked at
        nears = iter(({each: near.get(each, {}) for each in tables}, tables))

    def steps(inputs: Inputs) -> Derivation:
        """Return the operators of the query."""
        return held.over({each: inputs.get(each, {}) for each in tables}).steps(view, {asked: 1})

    queried = near is not None and view in held.queries
    return provenance_of(held.program(view), nears, asked, steps_of=steps if queried else None)


class QueryComputation:
    """What a process does that computes epochs: what it cannot do is an error of its construction."""

    def __init__(self, request: QueryRequest, relations: ServedRelations) -> None:
        self._request = request
        reads = relations.catalog.reads(request.text)
        tables = {read: relations.readable(read) for read in sorted(reads)}
        as_read = {read: relations.of(read).definition.as_read for read in tables}
        self._size = 0
        functions = dict(relations.catalog.functions)
        self._computation = Computation(request.text, as_read, functions, ordered=request.once or request.ordered)
        answer = self._computation.answer
        self._width, self._sort_key = answer.width, answer.key()
        names = [column.name for column in self._computation.columns]
        order = tuple(SortColumn(names[place], key.descending, key.nulls_first) for place, key in answer.order.items())
        self.started = Started(self._computation.columns[: answer.width if request.once else None], reads, order, answer.width)
        _bound_memory(request.memory - sum(_copied(contents.rows.items()) for contents in tables.values()))
        self.begin({read: contents.rows.items() for read, contents in tables.items()})

    def begin(self, changes: Mapping[str, Iterable[Change]]) -> None:
        self._changes = changes

    def complete(self) -> tuple[list[Change], bool]:
        """Complete the epoch, and return what it has changed, and whether there is more."""
        changes = self._computation.advance(self._changes)
        self._size += sum(diff for _, diff in changes)
        most = self._request.rows
        if self._request.once:
            return self._first(changes), self._size > most
        if self._size > most:
            raise ConfigurationError(f"the query has more than {most} rows: select fewer, or raise --max-rows")
        return changes, False

    def _first(self, rows: list[Change]) -> list[Change]:
        if self.started.order:
            rows.sort(key=lambda counted: self._sort_key(counted[0]))
            rows = [(row[: self._width], count) for row, count in rows]
        first, left = [], self._request.rows
        for row, count in rows:
            if left <= 0:
                break
            first.append((row, min(count, left)))
            left -= count
        return first


def _bound(request: QueryRequest, connection: Connection) -> None:
    """Let the kernel bound this process, and close what the threads of its parent have open."""
    gc.freeze()  # looking for garbage in what is shared would copy it
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which the other process gets too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _alarm(request.seconds)
    nothing = os.open(os.devnull, os.O_RDWR)
    for output in range(3):
        os.dup2(nothing, output)
    mine = connection.fileno()
    os.closerange(3, mine)
    os.closerange(mine + 1, 1 << 16)
    with contextlib.suppress(OSError):
        os.nice(5)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where the machine has no memory left, a query ends and not the server
    pa.set_memory_pool(pa.system_memory_pool())  # others have taken much in advance
    _bound_memory(request.memory)


def _bound_memory(more: int | None) -> None:
    """Limit this process to ``more`` bytes beyond what it has now; None is no limit. ``MemoryError`` if ``more`` is negative."""
    if more is not None and more < 0:
        raise MemoryError
    soft = hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if more is not None:
        with contextlib.suppress(OSError), open("/proc/self/statm") as file:
            soft = int(file.read().split()[5]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _copied(rows: Collection[Change]) -> int:
    """Return about how many bytes are copied when rows are read: counting references to objects writes into their pages."""
    sample = [row for row, _ in itertools.islice(rows, 100)]
    size = sum(sys.getsizeof(row) + sum(map(sys.getsizeof, row)) for row in sample)
    return len(rows) * size // max(len(sample), 1)


def _alarm(seconds: float) -> None:
    """Let the kernel end this process after ``seconds``; 0 is never."""
    signal.setitimer(signal.ITIMER_REAL, min(seconds, 1e6))


def _refused(request: QueryRequest, error: BaseException) -> _Refused:
    if isinstance(error, MemoryError):
        return _Refused(ViewError, _needs_more(request.memory))
    if isinstance(error, OperatorError):
        return _Refused(ViewError, f"the query has no result: {failure(error)}")
    if isinstance(error, TimelyError):
        return _Refused(type(error), without_line(str(error)))
    return _Refused(ViewError, f"the query has no result: {error_text(error)}")
