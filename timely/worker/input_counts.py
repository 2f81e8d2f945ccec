"""``InputCounts``: how many records the inputs of a worker's dataflows have sent, counted for whoever looks on.

It goes between an input and what counts its messages, and leaves all other operators alone; a worker that nobody has it look on
at counts nothing. The invariant: each record is counted once, however many streams lead on from the input.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from timely.dataflow import ScopeBuilder
from timely.progress import ProgressBatch
from timely.scopes import Recorder, Subgraph
from timely.worker.worker import Worker


class InputCounts:
    """Looks on at a worker, and counts the ``records`` of operators that have no inputs of their own.

    >>> worker = Worker()
    >>> taken = InputCounts.of(worker)
    >>> with worker.dataflow() as scope:
    ...     stream = scope.to_stream(range(5))
    ...     _ = stream.map(str), stream.map(repr)
    >>> worker.run()
    >>> taken.records, records_taken(worker)
    (5, 5)
    """

    def __init__(self) -> None:
        self.records = 0

    @classmethod
    def of(cls, worker: Worker) -> InputCounts:
        """Return the one that looks on at a worker; from now on, if there was none."""
        found = _found(worker)
        if found is None:
            found = cls()
            worker.tracers.append(found)
        return found

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Count what the inputs of a dataflow send."""
        for subgraph in scope.scopes:
            subgraph.intercept(functools.partial(self._around, subgraph))

    def _around(
        self, subgraph: Subgraph[Any, Any], index: int, hold: Recorder[Any], note: Recorder[Any]
    ) -> Iterable[Recorder[Any]]:
        child = subgraph.children[index]
        if child.scope.inputs:
            return hold, note
        firsts = {numbers[0] for numbers in child.fanout if numbers}  # of all that an output leads to, one

        def counted(number: int, time: Any, diff: int) -> None:
            if number in firsts:
                self.records += diff
            note(number, time, diff)

        return hold, counted

    def told(self, number: int, batch: ProgressBatch[Any]) -> None:
        """Nothing."""

    def heard(self, number: int, sender: int, batch: ProgressBatch[Any]) -> None:
        """Nothing."""

    def waited(self, seconds: float) -> None:
        """Nothing."""

    def turned(self) -> None:
        """Nothing."""

    def ended(self, number: int) -> None:
        """Nothing."""


def records_taken(worker: Worker) -> int:
    """Return how many records the inputs of a worker have sent; 0 where nobody counts them."""
    found = _found(worker)
    return 0 if found is None else found.records


def _found(worker: Worker) -> InputCounts | None:
    return next((onlooker for onlooker in worker.tracers if isinstance(onlooker, InputCounts)), None)
