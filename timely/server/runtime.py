"""``Runtime``: the running dataflows of tables and views, one dataflow each, on one worker.

A table or view arranges its rows; a view imports the arrangements of what it reads, without a copy. So views come and go while
others run. Invariant: between calls every dataflow is complete at ``time``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import monotonic
from typing import Any

import attrs

import timely
from timely import differential as dd
from timely.differential.tables.kinds import Column
from timely.differential.tables.views import query_over
from timely.differential.updates import consolidate
from timely.errors import OperatorError, SqlError
from timely.server.contents import Change


@attrs.define(eq=False)
class _Dataflow:
    """One table or view that runs."""

    scope: timely.ScopeBuilder[int]
    columns: tuple[Column, ...]
    probe: timely.ProbeHandle[int]
    trace: dd.TraceHandle[int, Any, None] | None  # of what others may read
    session: dd.InputSession[int, Any] | None = None  # of a table
    arrived: list[Change] = attrs.Factory(list)  # of a view, since it was taken last


class Runtime:
    """The dataflows at ``time``, which is complete once ``complete`` has returned."""

    def __init__(self, time: int) -> None:
        self.time = time
        self._worker = timely.Worker()
        self._flows: dict[str, _Dataflow] = {}

    def add_table(self, name: str, columns: tuple[Column, ...], rows: Iterable[Change] = ()) -> None:
        """Add a table that has ``rows`` at the current time."""
        with self._worker.dataflow(int, name=name) as scope:
            session, collection = dd.new_collection(scope, name="table")
            arranged = collection.arrange_by_self()
            flow = _Dataflow(scope, columns, arranged.as_collection().probe(), arranged.trace, session)
        self._flows[name] = flow
        session.advance_to(self.time)
        self._send(session, rows)
        session.advance_to(self.time + 1)

    def add_view(self, name: str, query: str, reads: Collection[str], shared: bool = True) -> None:
        """Add a view of tables and views that run; others can read it if it is ``shared``."""
        with self._worker.dataflow(int, name=name) as scope:
            tables = {}
            for read in sorted(reads):
                source = self._flows[read]
                assert source.trace is not None
                tables[read] = dd.Table(source.trace.import_into(scope).as_collection(), source.columns)
            found = query_over(scope, query, tables)
            collection, trace = found.collection, None
            if shared:
                arranged = collection.arrange_by_self()
                collection, trace = arranged.as_collection(), arranged.trace
            arrived: list[Change] = []
            probe = collection.inspect_batch(lambda time, batch: arrived.extend(batch)).probe()
        self._flows[name] = _Dataflow(scope, found.columns, probe, trace, arrived=arrived)

    def remove(self, name: str) -> None:
        """Drop a view that nothing reads."""
        flow = self._flows.pop(name, None)
        if flow is not None:
            if flow.trace is not None:
                flow.trace.close()
            self._worker.drop_dataflow(flow.scope)

    def begin(self, changes: Mapping[str, Iterable[Change]]) -> None:
        """Begin the next epoch with changes of tables."""
        self.time += 1
        for name, flow in self._flows.items():
            if flow.session is not None:
                self._send(flow.session, changes.get(name, ()))
                flow.session.advance_to(self.time + 1)

    @staticmethod
    def _send(session: dd.InputSession[int, Any], rows: Iterable[Change]) -> None:
        for row, diff in rows:
            session.update(row, diff)

    def complete(self, names: Iterable[str], seconds: float | None = None) -> list[str]:
        """Step until ``names`` are complete, for so many seconds at most; return those that are not.

        ``OperatorError`` of a dataflow that failed: the runtime is of no use then, and ``failed`` says which it was.
        """
        waiting = [self._flows[name].probe for name in names]
        end = None if seconds is None else monotonic() + seconds
        after = self.time + 1

        def more() -> bool:
            while waiting and not waiting[-1].less_than(after):
                waiting.pop()
            return bool(waiting) and (end is None or monotonic() < end)

        self._worker.step_while(more)
        return [name for name in names if self._flows[name].probe.less_than(after)]

    def compact(self) -> None:
        """Let go of what was before the current time."""
        for flow in self._flows.values():
            if flow.trace is not None:
                flow.trace.advance(self.time)

    def drain(self, name: str) -> list[Change]:
        """Return what has changed in a view that is complete, added up, since it was taken last."""
        flow = self._flows[name]
        arrived = flow.arrived[:]
        flow.arrived.clear()
        return consolidate(arrived)

    def failed(self, error: OperatorError) -> str | None:
        """Return the name of the table or view in which an operator failed."""
        name = error.path.split("/")[1] if error.path.count("/") > 1 else ""
        return name if name in self._flows else None


def result_columns(query: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Return the columns of a query over tables without building it among others; ``SqlError`` where it is refused.

    >>> from timely.differential.tables.kinds import Kind
    >>> [column.name for column in result_columns("select n + 1 as m from t", {"t": (Column("n", Kind.INTEGER),)})]
    ['m']
    """
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        made = {name: dd.Table(dd.collection(scope, []), columns) for name, columns in tables.items()}
        try:
            found = query_over(scope, query, made)
        except SqlError as error:  # the line that it names is the server's
            raise SqlError(str(error).rpartition("; at ")[0] or str(error)) from None
        found.collection.probe()
    return found.columns
