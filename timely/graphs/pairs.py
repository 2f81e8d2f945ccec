"""The columns that circulate inside the graph dataflows: NumPy arrays of whole numbers, one row for each record.

``Rows`` has two or more columns of int64. In edges they are the numbers of the source and the target; in values, the
number of a node and its value, which is never negative. Node numbers come from ``encode``: dense, below 2**32, and a
node belongs to the worker ``number % workers``, where its place in dense local arrays is ``number // workers``. What is
no whole number (a weight, a distance, a rank) travels in such a column as the bits of a float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

_BLOCK: Final = 1 << 16
"""Values that a processor's cache has room for."""

MISSING = -1
"""What stands for "no value" in dense arrays."""


def first(rows: Rows) -> Column:
    """Return the first column: the key that takes an edge to the worker of its source, a value to that of its node."""
    return rows[:, 0]


def second(rows: Rows) -> Column:
    """Return the second column: the key that takes an edge to the worker of its target."""
    return rows[:, 1]


def _blocks(column: Column) -> Iterator[Column]:
    return (column[start : start + _BLOCK] for start in range(0, len(column), _BLOCK))


def both_ways(edges: Rows) -> Rows:
    """Return the edges in both directions, without loops.

    >>> both_ways(np.array([[1, 2], [3, 3]])).tolist()
    [[1, 2], [2, 1]]
    """
    edges = edges[edges[:, 0] != edges[:, 1]]
    return np.concatenate((edges, edges[:, ::-1]))


def join_rows(parts: Sequence[Rows], columns: int) -> Rows:
    """Return the rows of all parts as one array, also where there are no parts.

    >>> join_rows([], 2).shape
    (0, 2)
    """
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, columns), np.int64)


def dense(places: Column, values: Any) -> Column:
    """Return an array that has ``values`` at ``places``, and ``MISSING`` elsewhere up to the greatest place.

    >>> dense(np.array([3, 0]), [7, 8]).tolist()
    [8, -1, -1, 7]
    """
    table = np.full(int(places.max()) + 1 if len(places) else 0, MISSING, np.int64)
    table[places] = values
    return table


def room(table: Column, places: int, fill: int = MISSING) -> Column:
    """Return ``table`` if it has so many places, and else a copy with some to spare, so that to grow bit by bit costs what is
    new; what is added has ``fill`` in it.

    >>> room(np.array([5, 6]), 2, 0).tolist(), room(np.array([5, 6]), 3, 0)[:3].tolist()
    ([5, 6], [5, 6, 0])
    """
    if places <= len(table):
        return table
    grown = np.full(max(places, len(table) * 5 // 4), fill, np.int64)
    grown[: len(table)] = table
    return grown


def span(columns: Sequence[Column]) -> tuple[int, int] | None:
    """Return the least and the greatest value of all columns, nothing where there is none; a block at a time, looked through
    twice while it is in a processor's cache.

    >>> span([np.array([7, 3]), np.array([], np.int64), np.array([5])]), span([])
    ((3, 7), None)
    """
    blocks = [block for column in columns for block in _blocks(column)]
    if not blocks:
        return None
    ends = [(block.min(), block.max()) for block in blocks]
    return int(min(low for low, _ in ends)), int(max(high for _, high in ends))


def marked(columns: Sequence[Column], places: int) -> npt.NDArray[np.bool_]:
    """Return which of so many places any of the columns name, from 0 up.

    >>> marked([np.array([3, 0]), np.array([3])], 5).tolist()
    [True, False, False, True, False]
    """
    there = np.zeros(places, np.bool_)
    for column in columns:
        for block in _blocks(column):  # NumPy looks through it twice: whether it is within bounds, and to mark
            there[block] = True
    return there


def distinct(parts: Sequence[Column], bound: int) -> Column:
    """Return each value of all ``parts`` once, in order; they are from 0 up and below ``bound``.

    By marks in an array where there are many values, and by sorting where there are so few that the array would cost more.

    >>> distinct([np.array([7, 3]), np.array([7])], 8).tolist(), distinct([np.array([7, 3, 7])], 1000).tolist()
    ([3, 7], [3, 7])
    """
    if sum(map(len, parts)) * 16 < bound:
        return np.unique(np.concatenate(parts))
    return np.flatnonzero(marked(parts, bound))


def translate(values: Column, table: Column) -> None:
    """Replace each of ``values`` by what ``table`` has at that place, a block at a time, which stays in a processor's cache.

    >>> translate(values := np.array([1, 0, 1]), np.array([7, 9]))
    >>> values.tolist()
    [9, 7, 9]
    """
    for block in _blocks(values):
        block[:] = table[block]


def look_up(table: Column, places: Column) -> Column:
    """Return what a dense array has at ``places``, ``MISSING`` where it ends before.

    >>> look_up(np.array([5, 6]), np.array([1, 2, 0])).tolist()
    [6, -1, 5]
    """
    found = np.full(len(places), MISSING, np.int64)
    inside = places < len(table)
    found[inside] = table[places[inside]]
    return found


def bits(values: Floats) -> Column:
    """Return the bits of floats, to travel in a column of whole numbers.

    >>> floats(bits(np.array([0.5, np.inf]))).tolist()
    [0.5, inf]
    """
    return values.view(np.int64)


def floats(column: Column) -> Floats:
    """Return the floats of which a column has the bits."""
    return np.ascontiguousarray(column).view(np.float64)


def sorted_order(keys: Column) -> Column:
    """Return the order that sorts ``keys``, whole numbers from 0 up; equal ones stay as they are.

    Digit by digit, 16 bits at a time, for which NumPy has a sort without comparisons: several times faster than its
    sort of int64 where the keys are node numbers.

    >>> sorted_order(np.array([70000, 3, 70000, 2])).tolist()
    [3, 1, 0, 2]
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    left = int(keys.max(initial=0)) >> 16
    shift = 16
    while left:
        digits = (keys >> shift).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
        left >>= 16
        shift += 16
    return order
