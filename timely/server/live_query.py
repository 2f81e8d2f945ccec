"""``Query``: a view that lives as long as its client, in a process of its own, which receives what changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from timely.differential.tables.values.kinds import Column
from timely.differential.why_derivations import Provenance, WhyNot
from timely.errors import OutputError, TimelyError, ViewError, error_text
from timely.server import query_process
from timely.server.contents import Change, Contents, Row, RowCondition
from timely.server.query_process import QueryComputation, QueryProcess, QueryRequest, SortColumn, Started, Work
from timely.server.served_relations import Answer, ServedRelations, ViewDescription


class Query:
    """A view that lives until ``close``, or the end of its ``with`` block; read it as any other, by its ``name``.

    A process of its own computes it, and receives what changes.

    >>> import pyarrow as pa
    >>> from timely.server import Views
    >>> views = Views()
    >>> views.table("numbers", pa.schema([("n", pa.int64())]), [(1,), (2,)])
    >>> with views.query("select sum(n) as total from numbers") as query:
    ...     _ = views.commit({"numbers": {(3,): 1}})
    ...     views.read(query.name).rows
    [((6,), 1)]
    """

    def __init__(self, relations: ServedRelations, name: str, request: QueryRequest, at_end: Callable[[], object]) -> None:
        self.name = name
        self.order: tuple[SortColumn, ...] = ()
        """The columns by which its rows are sorted."""
        self.width = 0
        """Columns that it selects; those behind are of its order alone."""
        self._relations = relations
        self._at_end = at_end
        self._seen: dict[str, Contents] = {}
        self._process = QueryProcess(request)
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
        limits = self._relations.limits
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

    def rehearse(self) -> None:
        """Build what it defines, as a script, once in its process. The errors are those of the script, and of a query."""
        self._once(query_process.rehearsal)

    def why(self, name: str, where: Sequence[RowCondition], row: Row | None = None) -> Provenance:
        """Return why a row is there, found out in its process. The errors are those of ``Views.why``, and of a query."""
        result: Provenance = self._once(lambda request, relations: query_process.origin(request, relations, name, where, row))
        return result

    def why_not(self, name: str, values: Mapping[str, Any]) -> WhyNot:
        """Return why no row has these values, found out in its process. The errors are those of ``Views.why_not``."""
        result: WhyNot = self._once(lambda request, relations: query_process.absence(request, relations, name, values))
        return result

    def _once(self, work: Work) -> Any:
        try:
            self._fork(work)
            return self._process.receive()
        finally:
            self._process.end()

    def _fork(self, work: Work) -> int:
        """Start the process with work on what there is at a time, and return the time."""
        relations, seconds = self._relations, self._process.request.seconds
        if not relations.running.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise ViewError(f"the query waits for the epoch that is computed, and that has taken longer than {seconds:g} s")
        try:
            relations.check_whole()
            with relations.reading:
                self._seen = {name: each.contents for name, each in relations.by_name.items()}
                self._process.start(work, relations)
                return relations.time
        finally:
            relations.running.release()

    def _computed(self) -> tuple[int, tuple[Column, ...], list[Change], bool]:
        time = self._fork(QueryComputation)
        started: Started = self._process.receive()
        self._reads, self.order, self.width = started.reads, started.order, started.width
        return time, started.columns, *self._process.changes()

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
            with self._relations.reading:
                self._error = str(error) if isinstance(error, TimelyError) else error_text(error)
                self._relations.reading.notify_all()
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
        relations = self._relations
        epochs: dict[int, dict[str, list[Change]]] = {}
        with relations.reading:
            relations.reading.wait_for(lambda: self._closed or relations.time > self._time)
            if self._closed:
                return None
            for read in self._reads:
                relation = relations.by_name.get(read)
                if relation is None or relation.contents is not self._seen[read]:
                    raise ViewError(f"{read}, which it reads, was dropped, or has other columns now")
                if relation.error is not None:
                    raise ViewError(f"view {read}, which it reads, has no result now: {relation.error}")
                changed = relation.contents.changes_since(self._time)
                if changed is None:
                    return relations.time, None
                for epoch in changed:
                    epochs.setdefault(epoch.time, {})[read] = epoch.changes
            return relations.time, sorted(epochs.items())

    def _apply(self, time: int, changes: list[Change]) -> None:
        assert self._contents is not None
        with self._relations.reading:
            self._contents.apply(time, changes)
            self._time = time
            self._process.note_rows(len(self._contents.rows))
            self._relations.reading.notify_all()

    def caught_up(self) -> Contents:
        """Return what it holds at the complete time, for which it waits; called by who reads."""
        relations = self._relations
        relations.reading.wait_for(lambda: not self.running or (self._contents is not None and self._time == relations.time))
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
        self._at_end()
        if self._relations.reading.acquire(blocking=False):
            self._relations.reading.notify_all()
            self._relations.reading.release()
        else:  # who closes it never waits for who reads
            threading.Thread(target=self._notify, name=f"timely {self.name}'s end").start()

    def _notify(self) -> None:
        with self._relations.reading:
            self._relations.reading.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
