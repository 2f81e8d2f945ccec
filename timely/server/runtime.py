"""``Runtime``: the running dataflows of tables and views, one dataflow each, on one worker.

A table or view arranges its rows; a view imports the arrangements of what it reads, without a copy. So views come and go while
others run. Invariant: between calls every dataflow is complete at ``time``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

import timely
from timely import differential as dd
from timely.differential.tables.expressions.relation import beginning_at
from timely.differential.tables.sources import query_over
from timely.differential.tables.values.kinds import Column
from timely.differential.updates.updates import consolidate
from timely.errors import OperatorError, SqlError
from timely.server.contents import Change


@attrs.define(eq=False)
class _Dataflow:
    """One table or view that runs."""

    scope: timely.ScopeBuilder[int]
    columns: tuple[Column, ...]
    probe: timely.ProbeHandle[int]
    trace: dd.TraceHandle[int, Any, None]
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

    def add_view(self, name: str, query: str, reads: Collection[str]) -> None:
        """Add a view of tables and views that run."""
        with self._worker.dataflow(int, name=name) as scope:
            tables = {}
            for read in sorted(reads):
                source = self._flows[read]
                tables[read] = dd.Table(source.trace.import_into(scope).as_collection(), source.columns)
            with beginning_at(self.time):
                result = query_over(scope, query, tables)
            arranged = result.collection.arrange_by_self()
            arrived: list[Change] = []
            probe = arranged.as_collection().inspect_batch(lambda time, batch: arrived.extend(batch)).probe()
        self._flows[name] = _Dataflow(scope, result.columns, probe, arranged.trace, arrived=arrived)

    def remove(self, name: str) -> None:
        """Drop a view that nothing reads."""
        flow = self._flows.pop(name, None)
        if flow is not None:
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

    def complete(self, names: Iterable[str]) -> None:
        """Step until ``names`` are complete.

        ``OperatorError`` of a dataflow that failed: the runtime is of no use then, and ``failed`` says which it was.
        """
        waiting = [self._flows[name].probe for name in names]
        after = self.time + 1

        def more() -> bool:
            while waiting and not waiting[-1].less_than(after):
                waiting.pop()
            return bool(waiting)

        self._worker.step_while(more)

    def compact(self) -> None:
        """Let go of what was before the current time."""
        for flow in self._flows.values():
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

    >>> from timely.differential.tables.values.kinds import Kind
    >>> [column.name for column in result_columns("select n + 1 as m from t", {"t": (Column("n", Kind.INTEGER),)})]
    ['m']
    """
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        made = {name: dd.Table(dd.collection(scope, []), columns) for name, columns in tables.items()}
        try:
            result = query_over(scope, query, made)
        except SqlError as error:
            raise SqlError(without_line(str(error))) from None
        result.collection.probe()
    return result.columns


def without_line(message: str) -> str:
    """Return what an ``SqlError`` says without the line of the program, which is the server's.

    >>> without_line("nope at line 1, column 8: there is no such column; at server.py:5")
    'nope at line 1, column 8: there is no such column'
    """
    return message.rpartition("; at ")[0] or message
