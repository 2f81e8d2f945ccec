"""``attach`` and ``without``: rows of node numbers joined with the values of nodes, complete time by complete time.

Rows travel to the worker of the node in question, where the node's value is. The invariant: a row comes out at most
once, at its own time, on the worker of that node; a node has at most one value at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.graphs.gather import gather
from timely.graphs.pairs import MISSING, Column, Rows, dense, first, join_rows, look_up, second
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def attach(rows: Stream[T, Any], values: Stream[T, Any], column: int) -> Stream[T, Any]:
    """Return ``rows`` with one more column: the value of the node in ``column`` (0 or 1). Rows of nodes without a value
    go.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2]]))
    ...     values = scope.to_stream([0]).map_batch(lambda _: np.array([[1, 50]]))
    ...     return attach(edges, values, 0)
    >>> timely.example(build)
    [(0, [[1, 2, 50]])]
    """

    def select(found: Rows, value: Column) -> Rows:
        known = value != MISSING
        return np.column_stack((found[known], value[known]))

    return _looked_up("attach", rows, values, column, select)


def without(rows: Stream[T, Any], values: Stream[T, Any], column: int) -> Stream[T, Any]:
    """Return those of ``rows`` of which the node in ``column`` (0 or 1) has no value.

    >>> import timely
    >>> def build(scope):
    ...     edges = scope.to_stream([0]).map_batch(lambda _: np.array([[0, 1], [1, 2]]))
    ...     values = scope.to_stream([0]).map_batch(lambda _: np.array([[1, 50]]))
    ...     return without(edges, values, 0)
    >>> timely.example(build)
    [(0, [[0, 1]])]
    """
    return _looked_up("without", rows, values, column, lambda found, value: found[value == MISSING])


def _looked_up(
    name: str, rows: Stream[T, Any], values: Stream[T, Any], column: int, select: Callable[[Rows, Column], Rows]
) -> Stream[T, Any]:
    def finish(info: OperatorInfo, _: object, collected: list[list[Any]]) -> list[Rows]:
        found, known = join_rows(collected[0], 2), join_rows(collected[1], 2)
        table = dense(known[:, 0] // info.peers, known[:, 1])
        return [select(found, look_up(table, found[:, column] // info.peers))]

    (selected,) = gather(name, [(rows, Exchange((first, second)[column])), (values, Exchange(first))], 1, finish)
    return selected
