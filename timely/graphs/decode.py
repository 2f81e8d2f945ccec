"""From numbers back to nodes: ``name_components`` for components, ``name_values`` for a value of each node.

``name_components`` names each component by its smallest node. Its invariant: every node that has a name comes out in
one row, on one worker; a node that no membership speaks of is a component of its own. ``name_values`` leaves rows where
they are, on the worker of their node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.graphs.gather import gather
from timely.graphs.numbers import Names
from timely.graphs.pairs import MISSING, Column, dense, first, join_rows, look_up
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def name_components(names: Stream[T, Any], members: Stream[T, Any]) -> Stream[T, Any]:
    """Return Arrow batches ``(node, component)`` from ``names`` as ``encode`` gives them and ``members``, arrays of
    ``(number of the node, number of any one node of its component)``.

    >>> import timely
    >>> def build(scope):
    ...     one = scope.to_stream([0])
    ...     names = one.map_batch(lambda _: pa.record_batch({"id": [0, 1, 2], "value": ["c", "b", "a"]}))
    ...     members = one.map_batch(lambda _: np.array([[0, 0], [1, 0]]))
    ...     return name_components(names, members)
    >>> timely.example(build)
    [(0, [('a', 'a'), ('b', 'b'), ('c', 'b')])]
    """
    alone, together = gather("decode: look up", [(names, Pipeline), (members, Exchange(first))], 2, _look_up)
    (named,) = gather("decode: name", [(together, Exchange("root"))], 1, _name)
    return alone.concat(named)


def name_values(
    names: Stream[T, Any], values: Stream[T, Any], column: str, convert: Callable[[Column], Any], *, lasting: bool = True
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, column)`` from ``names`` as ``encode`` gives them and ``values``, arrays of ``(number
    of the node, value)`` on the worker of the node. ``convert`` makes the column of the values.

    ``lasting`` says that the names are those of a lasting dictionary, and hold for all later times.

    >>> import timely
    >>> def build(scope):
    ...     one = scope.to_stream([0])
    ...     names = one.map_batch(lambda _: pa.record_batch({"id": [0, 1], "value": ["b", "a"]}))
    ...     values = one.map_batch(lambda _: np.array([[0, 5]]))
    ...     return name_values(names, values, "size", lambda sizes: sizes)
    >>> timely.example(build)
    [(0, [('b', 5)])]
    """
    kept = Names()
    note: Callable[[pa.RecordBatch], None] = lambda batch: None  # noqa: E731  # what it is, is only known when it is built

    def finish(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
        nonlocal kept
        if not lasting:
            kept = Names()
        for batch in collected[0]:
            _add(kept, batch, info)
            note(batch)
        rows = join_rows(collected[1], 2)
        if not len(rows):
            return [[]]
        return [pa.record_batch({"node": kept.take(rows[:, 0] // info.peers), column: convert(rows[:, 1])})]

    def keep(info: OperatorInfo) -> None:
        def save() -> Iterator[tuple[None, pa.RecordBatch]]:
            at = 0
            for chunk in kept.chunks:
                yield None, pa.record_batch({"id": np.arange(at, at + len(chunk)) * info.peers + info.worker, "value": chunk})
                at += len(chunk)

        def load(batches: Iterable[pa.RecordBatch]) -> None:
            for batch in batches:
                _add(kept, batch, info)

        def rescale(parts: Sequence[Iterable[pa.RecordBatch]]) -> None:
            batches = [batch for part in parts for batch in part]
            mine = [batch.filter(pa.array(batch.column("id").to_numpy() % info.peers == info.worker)) for batch in batches]
            load([pa.Table.from_batches(mine).sort_by("id").combine_chunks().to_batches()[0]] if sum(map(len, mine)) else [])

        nonlocal note
        if lasting:
            log = info.register_state(save, load, rescale=rescale, logged=True)
            note = lambda batch: log.append(None, batch)  # noqa: E731

    (named,) = gather("decode: values", [(names, Pipeline), (values, Pipeline)], 1, finish, keep=keep)
    return named


def _add(names: Names, batch: pa.RecordBatch, info: OperatorInfo) -> None:
    """Take in names ``(id, value)``, in the order of their numbers, at their places; what has no name, has nulls there.

    After a change of workers there are such: then the numbers of a worker are no longer all that it could have given.
    """
    ids, value = batch.column("id").to_numpy(), batch.column("value")
    if not len(ids):
        return
    known = len(names)
    end = int(ids[-1]) // info.peers + 1
    if ids[0] // info.peers != known or end != known + len(ids):
        at = np.full(end - known, MISSING)
        at[ids // info.peers - known] = np.arange(len(ids))
        value = value.take(pa.array(at, mask=at == MISSING))
    names.add(value)


def _look_up(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
    """Return the components of one node each, and ``(root, value)`` of the others."""
    (names,), members = collected[0], join_rows(collected[1], 2)
    table = dense(members[:, 0] // info.peers, members[:, 1])
    roots = look_up(table, names.column("id").to_numpy() // info.peers)
    value = names.column("value")
    alone = value.filter(pa.array(roots == MISSING))
    together = {"root": roots[roots != MISSING], "value": value.filter(pa.array(roots != MISSING))}
    return [pa.record_batch({"node": alone, "component": alone}), pa.record_batch(together)]


def _name(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Any]:
    """Sort by root and value: the first of each root is the smallest."""
    table = pa.Table.from_batches(collected[0]).sort_by([("root", "ascending"), ("value", "ascending")])
    roots = table.column("root").to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
    sizes = np.diff(np.append(starts, len(roots)))
    value = table.column("value").combine_chunks()
    return [pa.record_batch({"node": value, "component": value.take(pa.array(np.repeat(starts, sizes)))})]
