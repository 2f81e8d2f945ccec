"""``Computation``: a query that runs on a worker of its own, over tables whose changes it receives an epoch at a time.

So a query that fails ends no other one, and one that is new is computed while others go on.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Container, Iterable, Mapping
from typing import Any

import attrs

import timely
from timely import differential as dd
from timely.differential.collections import Collection
from timely.differential.tables.names.user_functions import NO_FUNCTIONS, Functions
from timely.differential.tables.sources import answer_over
from timely.differential.tables.values.kinds import Column
from timely.differential.updates.updates import consolidate
from timely.errors import OperatorError, SqlError, TimelyError, ViewError, error_text
from timely.recovery.manifest import Layer
from timely.recovery.quiesce import quiesce
from timely.recovery.relations import Relations
from timely.recovery.state_file import Key
from timely.recovery.state_registry import WorkerState
from timely.server.checkpoints import CheckpointPart
from timely.server.contents import Change
from timely.worker import internals


@attrs.frozen
class ReadTable:
    """A table or view that a query reads, and what is known of its rows."""

    columns: tuple[Column, ...]
    append_only: bool = False
    watermark: int | None = None
    """The place of the column of its lateness, of which there is a table ``watermark_of(name)``."""


def watermark_of(table: str) -> str:
    """Return the name of the table of the watermark of another one."""
    return f"{table}_watermark"


class EndlessError(ViewError):
    """A computation has taken too long."""


class Computation:
    """A query over ``tables``, which have no rows before the first epoch; ``SqlError`` where it is refused.

    With ``state`` checkpoints have it as ``name``, and it goes on from the one that the state is of. ``RecoveryError`` where it
    cannot.
    """

    def __init__(
        self,
        query: str,
        tables: Mapping[str, ReadTable],
        functions: Functions = NO_FUNCTIONS,
        *,
        ordered: bool = False,
        name: str = "query",
        state: WorkerState | None = None,
    ) -> None:
        self._worker = timely.Worker()
        self._sessions: dict[str, dd.InputSession[int, Any]] = {}
        self.epochs = 0 if state is None or state.start is None else int(state.start.time)
        """Those that it has completed."""
        self._state = state
        if state is not None:
            internals.set_state_registries(self._worker, state.open)
        arrived: list[Change] = []
        with self._worker.dataflow(int) as scope, scope.identities.named(name, "view", " ".join(query.split()), tuple(tables)):
            rows: dict[str, Collection[int, Any]] = {}
            for name in tables:
                self._sessions[name], rows[name] = dd.new_collection(scope, name=name)
            sources = {name: _table(name, each, rows) for name, each in tables.items()}
            self.answer = answer_over(scope, query, sources, functions, ordered=ordered)
            """If it is ``ordered``, its order, whose columns are behind its own."""
            result = dd.Table(self.answer.rows.collection, self.answer.rows.columns)
            self._probe = result.collection.inspect_batch(lambda time, batch: arrived.extend(batch)).probe()
        self._arrived, self.columns = arrived, result.columns
        self._log(() if state is None else state.layers)
        for session in self._sessions.values():
            session.advance_to(self.epochs)

    def _log(self, layers: Container[Key]) -> None:
        """Log the changes of parts that a checkpoint has; one that it has not is in the next one as it is then."""
        for key, part in () if self._state is None else self._state.parts.items():
            if part.log is not None:
                part.log.kept = key in layers

    @property
    def relations(self) -> Relations:
        """Its dataflow, as a checkpoint describes it."""
        return {} if self._state is None else self._state.descriptions[0]

    def save(self, before: Mapping[Key, list[Layer]]) -> list[CheckpointPart]:
        """Return what it is now, for the checkpoint behind the one with layers ``before``; ``saved`` says how that ended."""
        state = self._state
        assert state is not None
        try:
            quiesce(self._worker, state.scopes, self.epochs)
        finally:
            self._worker.paused = False
        parts = []
        for key, part in state.in_order():
            known = before.get(key, []) if key in state.layers else []
            full = part.is_full(known, whole=not known)
            parts.append(CheckpointPart(key, full, [(None, item) for _, item in part.items(full)]))
        self._log(state.parts)
        return parts

    def saved(self, layers: Mapping[Key, list[Layer]]) -> None:
        """Take note of what the last checkpoint has; without ``layers``, that it has failed."""
        assert self._state is not None
        self._state.layers = {key: layers[key] for key in self._state.parts if key in layers}
        self._log(self._state.layers)
        for part in self._state.parts.values():
            part.committed()

    def advance(self, changes: Mapping[str, Iterable[Change]], seconds: float = math.inf) -> list[Change]:
        """Compute an epoch, and return what it changes. After an error the computation is of no use.

        ``OperatorError`` where an operator fails; ``EndlessError`` where it takes more processor time than ``seconds``.
        """
        self.epochs += 1
        for name, session in self._sessions.items():
            if name in changes:
                session.update_batch(changes[name])
            session.advance_to(self.epochs)
        begun, end = clock.thread_time(), clock.monotonic() + seconds

        def more() -> bool:
            if clock.monotonic() > end and clock.thread_time() > begun + seconds:  # which is asked seldom, since it is slow
                raise EndlessError(f"it took more than {seconds:g} s in one epoch: define it anew, or start the server again")
            return self._probe.less_than(self.epochs)

        self._worker.step_while(more)
        result = consolidate(self._arrived[:])
        self._arrived.clear()
        return result


def _table(name: str, each: ReadTable, rows: Mapping[str, Collection[int, Any]]) -> dd.Table[int]:
    watermarks = () if each.watermark is None else ((each.watermark, rows[watermark_of(name)]),)
    return dd.Table(rows[name], each.columns, watermarks=watermarks, append_only=each.append_only)


def failure(error: OperatorError | EndlessError) -> str:
    """Return why a computation has no result."""
    if isinstance(error, EndlessError):
        return str(error)
    cause = error.__cause__
    return str(cause) if isinstance(cause, TimelyError) else error_text(cause) if cause is not None else str(error)


def result_columns(query: str, tables: Mapping[str, ReadTable], functions: Functions = NO_FUNCTIONS) -> tuple[Column, ...]:
    """Return the columns of a query over tables; ``SqlError`` where it is refused."""
    try:
        return Computation(query, tables, functions).columns
    except SqlError as error:
        raise SqlError(without_line(str(error))) from None


def without_line(message: str) -> str:
    """Return what an ``SqlError`` says without the line of the program, which is the server's.

    >>> without_line("nope at line 1, column 8: there is no such column; at server.py:5")
    'nope at line 1, column 8: there is no such column'
    """
    return message.rpartition("; at ")[0] or message
