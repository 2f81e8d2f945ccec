"""``accumulated``: at each time all batches so far, for algorithms that take each time as a graph of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.errors import SchemaError
from timely.graphs.stages.edge_input import next_time
from timely.graphs.stages.gathering import gather
from timely.graphs.stages.repartitioned_state import Log, register_state
from timely.operators.type_variables import T

Item: TypeAlias = tuple[Any, list[pa.RecordBatch]]
"""The last time, and batches."""


def accumulated(batches: Stream[T, Any]) -> Stream[T, Any]:
    """Return, at each time at which any worker receives anything, the Arrow batches of that time and of all before.

    ``pagerank(accumulated(edges))`` ranks, at each time, the graph of all edges so far. ``SchemaError``, as the cause of an
    ``OperatorError``, for batches of different schemas; ``TimestampError`` for times without an order.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     handle, edges = scope.new_input()
    ...     found = accumulated(edges).capture()
    >>> for epoch in range(2):
    ...     handle.send_batch(pa.record_batch({"src": [epoch], "dst": [epoch + 1]}))
    ...     handle.advance_to(epoch + 1)
    >>> handle.close()
    >>> worker.run()
    >>> found.extract()
    [(0, [(0, 1)]), (1, [(0, 1), (1, 2)])]
    """
    history: list[pa.RecordBatch] = []
    last: Any = None
    log: Log | None

    def finish(info: OperatorInfo, time: T, collected: list[list[Any]]) -> list[Any]:
        nonlocal last
        last = next_time(info, last, time)
        for batch in collected[0]:
            if not isinstance(batch, pa.RecordBatch) or (history and batch.schema != history[0].schema):
                raise SchemaError(
                    f"{info.path}: all batches must be Arrow record batches of one schema; got"
                    f" {getattr(batch, 'schema', type(batch).__name__)} after {history[0].schema if history else 'nothing'}"
                )
            history.append(batch)
        if log is not None:
            log((time, list(collected[0])))
        if not history:
            return [[]]
        history[:] = [pa.concat_batches(history)]
        return [history[0]]

    def register(info: OperatorInfo) -> None:
        def save() -> Iterator[Item]:
            if last is not None:
                yield last, history

        def load(item: Item) -> None:
            nonlocal last
            last, batches = item
            history.extend(batches)

        nonlocal log
        log = register_state(
            info, save, load, lambda item, sender, _: [item if sender % info.peers == info.worker else (item[0], [])]
        )

    (ticks,) = gather("accumulated: tick", [(batches, Pipeline)], 1, lambda info, *_: [list(range(info.peers))])
    (grown,) = gather("accumulated", [(batches, Pipeline), (ticks, Exchange(int))], 1, finish, keep=register)
    return grown
