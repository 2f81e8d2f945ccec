"""``Computation``: a query that runs on a worker of its own, over tables whose changes it receives an epoch at a time.

So a query that fails ends no other one, and one that is new is computed while others go on.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterable, Mapping
from typing import Any

import timely
from timely import differential as dd
from timely.differential.tables.sources import answer_over
from timely.differential.tables.values.kinds import Column
from timely.differential.updates.updates import consolidate
from timely.errors import OperatorError, SqlError, ViewError, error_text
from timely.server.contents import Change


class EndlessError(ViewError):
    """A computation has taken too long."""


class Computation:
    """A query over ``tables``, which have no rows before the first epoch; ``SqlError`` where it is refused.

    >>> from timely.differential.tables.values.kinds import Kind
    >>> sums = Computation("select sum(n) as n from t", {"t": (Column("n", Kind.INTEGER),)})
    >>> sums.advance({"t": [((3,), 2)]}), sums.advance({"t": [((1,), 1)]})
    ([((6,), 1)], [((6,), -1), ((7,), 1)])
    """

    def __init__(self, query: str, tables: Mapping[str, tuple[Column, ...]], *, ordered: bool = False) -> None:
        self._worker = timely.Worker()
        self._sessions: dict[str, dd.InputSession[int, Any]] = {}
        self._epochs = 0
        arrived: list[Change] = []
        with self._worker.dataflow(int) as scope:
            sources = {}
            for name, columns in tables.items():
                self._sessions[name], collection = dd.new_collection(scope, name=name)
                sources[name] = dd.Table(collection, columns)
            self.answer = answer_over(scope, query, sources, ordered=ordered)
            """If it is ``ordered``, its order, whose columns are behind its own."""
            result = dd.Table(self.answer.rows.collection, self.answer.rows.columns)
            self._probe = result.collection.inspect_batch(lambda time, batch: arrived.extend(batch)).probe()
        self._arrived, self.columns = arrived, result.columns

    def advance(self, changes: Mapping[str, Iterable[Change]], seconds: float = math.inf) -> list[Change]:
        """Compute an epoch, and return what it changes. After an error the computation is of no use.

        ``OperatorError`` where an operator fails; ``EndlessError`` where it takes more processor time than ``seconds``.
        """
        self._epochs += 1
        for name, session in self._sessions.items():
            if name in changes:
                session.update_batch(changes[name])
            session.advance_to(self._epochs)
        begun, end = clock.thread_time(), clock.monotonic() + seconds

        def more() -> bool:
            if clock.monotonic() > end and clock.thread_time() > begun + seconds:  # which is asked seldom, since it is slow
                raise EndlessError(f"it took more than {seconds:g} s in one epoch: define it anew, or start the server again")
            return self._probe.less_than(self._epochs)

        self._worker.step_while(more)
        result = consolidate(self._arrived[:])
        self._arrived.clear()
        return result


def failure(error: OperatorError | EndlessError) -> str:
    """Return why a computation has no result."""
    if isinstance(error, EndlessError):
        return str(error)
    return error_text(error.__cause__) if isinstance(error.__cause__, Exception) else str(error)


def result_columns(query: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """Return the columns of a query over tables; ``SqlError`` where it is refused.

    >>> from timely.differential.tables.values.kinds import Kind
    >>> [column.name for column in result_columns("select n + 1 as m from t", {"t": (Column("n", Kind.INTEGER),)})]
    ['m']
    """
    try:
        return Computation(query, tables).columns
    except SqlError as error:
        raise SqlError(without_line(str(error))) from None


def without_line(message: str) -> str:
    """Return what an ``SqlError`` says without the line of the program, which is the server's.

    >>> without_line("nope at line 1, column 8: there is no such column; at server.py:5")
    'nope at line 1, column 8: there is no such column'
    """
    return message.rpartition("; at ")[0] or message
