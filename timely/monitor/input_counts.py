"""``InputCounts``: counts the records that the inputs of a worker's dataflows send. Invariant: each record is counted once."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from timely.dataflow import ScopeBuilder
from timely.scopes import Recorder, Subgraph
from timely.worker.internals import tracers
from timely.worker.tracer import Tracer
from timely.worker.worker import Worker


class InputCounts(Tracer):
    """A tracer that counts the ``records`` of operators without inputs."""

    def __init__(self) -> None:
        self.records = 0

    @classmethod
    def of(cls, worker: Worker) -> InputCounts:
        """Return the tracer of this kind that a worker has; it gets one if it has none."""
        counts = _tracer_of(worker)
        if counts is None:
            counts = cls()
            tracers(worker).append(counts)
        return counts

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
        firsts = {numbers[0] for numbers in child.fanout if numbers}  # one of the streams that an output leads to

        def counted(number: int, time: Any, diff: int) -> None:
            if number in firsts:
                self.records += diff
            note(number, time, diff)

        return hold, counted


def records_sent(worker: Worker) -> int:
    """Return how many records the inputs of a worker have sent; 0 where nothing counts them."""
    counts = _tracer_of(worker)
    return 0 if counts is None else counts.records


def _tracer_of(worker: Worker) -> InputCounts | None:
    return next((tracer for tracer in tracers(worker) if isinstance(tracer, InputCounts)), None)
