"""Joins by node number, time by time: ``attach`` and ``without`` with values, ``name_values`` with names.

Rows are joined on the worker of the node in question. The invariant: a row comes out at most once, at its own time, on that
worker; a node has at most one value at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.stages.gathering import Collected, drained, gather
from timely.graphs.structures.arrays import BLOCK, MISSING, Column, Rows, dense, first, join_rows, joined_blocks, look_up, second
from timely.graphs.structures.dictionary import Values
from timely.memory import Spool
from timely.operators.type_variables import T


def attach(rows: Stream[T, Any], values: Stream[T, Any], column: int) -> Stream[T, Any]:
    """Return ``rows`` with one more column: the value of the node in ``column`` (0 or 1). Rows without a value are dropped.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2]]))
    ...     values = scope.to_stream([0]).map_batch(lambda _: np.array([[1, 50]]))
    ...     return attach(edges, values, 0)
    >>> timely.example(build)
    [(0, [[1, 2, 50]])]
    """

    def select(rows: Rows, values: Column) -> Rows:
        known = values != MISSING
        return np.column_stack((rows[known], values[known]))

    return _join("attach", rows, values, column, select)


def without(rows: Stream[T, Any], values: Stream[T, Any], column: int) -> Stream[T, Any]:
    """Return those of ``rows`` whose node in ``column`` (0 or 1) has no value.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2]]))
    ...     values = scope.to_stream([0]).map_batch(lambda _: np.array([[1, 50]]))
    ...     return without(edges, values, 0)
    >>> timely.example(build)
    [(0, [[0, 1]])]
    """
    return _join("without", rows, values, column, lambda rows, values: rows[values == MISSING])


def _join(
    name: str, rows: Stream[T, Any], values: Stream[T, Any], column: int, select: Callable[[Rows, Column], Rows]
) -> Stream[T, Any]:
    def finish(info: OperatorInfo, _: object, collected: list[Collected]) -> Iterator[list[Rows]]:
        known = join_rows(drained(collected[1]), 2)
        table = dense(known[:, 0] // info.peers, known[:, 1])
        for some in joined_blocks(drained(collected[0]), BLOCK if isinstance(collected[0], Spool) else None):
            yield [select(some, look_up(table, some[:, column] // info.peers))]

    (selected,) = gather(name, [(rows, Exchange((first, second)[column])), (values, Exchange(first))], 1, finish)
    return selected


def name_values(
    names: Stream[T, Any], values: Stream[T, Any], column: str, convert: Callable[[Column], Any], *, lasting: bool = True
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, column)`` on the worker of the node; ``convert`` makes the column of the values.

    ``names`` are those of ``encode``, for all later times if ``lasting``; ``values`` are arrays of ``(number of the node,
    value)`` on the worker of the node.

    >>> import timely
    >>> def build(scope):
    ...     one = scope.to_stream([0])
    ...     names = one.map_batch(lambda _: pa.record_batch({"id": [0, 1], "value": ["b", "a"]}))
    ...     values = one.map_batch(lambda _: np.array([[0, 5]]))
    ...     return name_values(names, values, "size", lambda sizes: sizes)
    >>> timely.example(build)
    [(0, [('b', 5)])]
    """
    known = Values()
    log: Any = None

    def finish(info: OperatorInfo, _: object, collected: list[Any]) -> list[Any] | Iterator[list[Any]]:
        nonlocal known
        if not lasting:
            known = Values()
            if isinstance(collected[0], Spool):
                return _name_in_blocks(info, collected[0], join_rows(collected[1], 2), column, convert)
        for batch in collected[0]:
            _append(known, batch, info)
            if log is not None:
                log.append(None, batch)
        rows = join_rows(collected[1], 2)
        if not len(rows):
            return [[]]
        return [pa.record_batch({"node": known.take(rows[:, 0] // info.peers), column: convert(rows[:, 1])})]

    def register(info: OperatorInfo) -> None:
        def save() -> Iterator[tuple[None, pa.RecordBatch]]:
            at = 0
            for chunk in known.chunks:
                yield None, pa.record_batch({"id": np.arange(at, at + len(chunk)) * info.peers + info.worker, "value": chunk})
                at += len(chunk)

        def load(batches: Iterable[pa.RecordBatch]) -> None:
            for batch in batches:
                _append(known, batch, info)

        def rescale(senders: Sequence[Iterable[pa.RecordBatch]]) -> None:
            batches = [batch for items in senders for batch in items]
            mine = [batch.filter(pa.array(batch.column("id").to_numpy() % info.peers == info.worker)) for batch in batches]
            if sum(map(len, mine)):
                load(pa.Table.from_batches(mine).sort_by("id").combine_chunks().to_batches()[:1])

        nonlocal log
        if lasting:
            log = info.register_state(save, load, rescale=rescale, logged=True)

    (named,) = gather("decode: values", [(names, Pipeline), (values, Pipeline)], 1, finish, keep=register)
    return named


def _name_in_blocks(
    info: OperatorInfo, names: Spool, rows: Rows, column: str, convert: Callable[[Column], Any]
) -> Iterator[list[Any]]:
    """Yield the rows with their names, a batch of names at a time. The names are in the order of their numbers."""
    places = rows[:, 0] // info.peers
    if not bool((places[1:] > places[:-1]).all()):
        order = np.argsort(places, kind="stable")
        rows, places = rows[order], places[order]
    for batch in names.drain():
        ids = batch.column("id").to_numpy() // info.peers
        here = slice(*np.searchsorted(places, (ids[0], ids[-1] + 1)))
        values = batch.column("value").take(pa.array(np.searchsorted(ids, places[here])))
        for start in range(0, len(values), BLOCK):
            some = slice(start, start + BLOCK)
            yield [pa.record_batch({"node": values[some], column: convert(rows[here, 1][some])})]


def _append(known: Values, batch: pa.RecordBatch, info: OperatorInfo) -> None:
    """Append names ``(id, value)``, in the order of their numbers, with nulls for numbers that have no name.

    With other workers than a checkpoint had, a worker no longer owns all the numbers that it could have given.
    """
    ids, value = batch.column("id").to_numpy(), batch.column("value")
    if not len(ids):
        return
    count = len(known)
    end = int(ids[-1]) // info.peers + 1
    if ids[0] // info.peers != count or end != count + len(ids):
        at = np.full(end - count, MISSING)
        at[ids // info.peers - count] = np.arange(len(ids))
        value = value.take(pa.array(at, mask=at == MISSING))
    known.append(value)
