"""``attach`` and ``without``: rows of node numbers joined with the values of nodes, time by time.

Rows go to the worker of the node in question. The invariant: a row comes out at most once, at its own time, on that worker; a
node has at most one value at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.graphs.arrays import MISSING, Column, Rows, dense, first, join_rows, look_up, second
from timely.graphs.gathering import gather
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


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
    def finish(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        rows, known = join_rows(collected[0], 2), join_rows(collected[1], 2)
        table = dense(known[:, 0] // info.peers, known[:, 1])
        return [select(rows, look_up(table, rows[:, column] // info.peers))]

    (selected,) = gather(name, [(rows, Exchange((first, second)[column])), (values, Exchange(first))], 1, finish)
    return selected
