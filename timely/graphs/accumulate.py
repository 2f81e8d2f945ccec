"""``accumulated``: at each time all edges so far, for algorithms for which each time is a graph of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.errors import SchemaError
from timely.graphs.gather import gather
from timely.graphs.input import next_time
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def accumulated(batches: Stream[T, Any]) -> Stream[T, Any]:
    """Return, at each time at which anything comes on any worker, the Arrow batches of that time and of all before.

    So ``pagerank(accumulated(edges))`` ranks, at each time, the graph of all edges so far, from the beginning. Every
    worker keeps its batches, and hands on one batch for each time. ``SchemaError``, as the cause of an
    ``OperatorError``, for batches of different schemas, and ``TimestampError`` for times of which neither comes before
    the other.

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
    kept: list[pa.RecordBatch] = []
    last: Any = None
    log: Any = None

    def tick(info: OperatorInfo, _: object, __: list[list[Any]]) -> list[Any]:
        return [list(range(info.peers))]

    def finish(info: OperatorInfo, time: T, collected: list[list[Any]]) -> list[Any]:
        nonlocal last
        last = next_time(info, last, time)
        for batch in collected[0]:
            if not isinstance(batch, pa.RecordBatch) or (kept and batch.schema != kept[0].schema):
                raise SchemaError(
                    f"{info.path}: all batches must be Arrow record batches of one schema; what came is"
                    f" {getattr(batch, 'schema', type(batch).__name__)}, after {kept[0].schema if kept else 'nothing'}"
                )
            kept.append(batch)
        log.append(None, (time, collected[0]))
        if not kept:
            return [[]]
        kept[:] = [pa.concat_batches(kept)]
        return [kept[0]]

    def keep(info: OperatorInfo) -> None:
        def load(items: Iterable[tuple[T, list[pa.RecordBatch]]]) -> None:
            nonlocal last
            for time, batches in items:
                last = time
                kept.extend(batches)

        def rescale(parts: Sequence[Iterable[tuple[T, list[pa.RecordBatch]]]]) -> None:
            for place, items in enumerate(parts):
                load((time, batches if place % info.peers == info.worker else []) for time, batches in items)

        def save() -> Iterator[tuple[None, tuple[T, list[pa.RecordBatch]]]]:
            if last is not None:
                yield None, (last, kept)

        nonlocal log
        log = info.register_state(save, load, rescale=rescale, logged=True)

    (ticks,) = gather("accumulated: tell", [(batches, Pipeline)], 1, tick)
    (grown,) = gather("accumulated", [(batches, Pipeline), (ticks, Exchange(int))], 1, finish, keep=keep)
    return grown
