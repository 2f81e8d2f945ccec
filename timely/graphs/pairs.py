"""The columns that circulate inside the graph dataflows: NumPy arrays of whole numbers, one row for each record.

``Rows`` has two or more columns of int64. In edges they are the numbers of the source and the target; in values, the
number of a node and its value, which is never negative. Node numbers come from ``encode``: dense, below 2**32, and a
node belongs to the worker ``number % workers``, where its place in dense local arrays is ``number // workers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[np.int64]

MISSING = -1
"""What stands for "no value" in dense arrays."""


def first(rows: Rows) -> Column:
    """Return the first column: the key that takes an edge to the worker of its source, a value to that of its node."""
    return rows[:, 0]


def second(rows: Rows) -> Column:
    """Return the second column: the key that takes an edge to the worker of its target."""
    return rows[:, 1]


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


def look_up(table: Column, places: Column) -> Column:
    """Return what a dense array has at ``places``, ``MISSING`` where it ends before.

    >>> look_up(np.array([5, 6]), np.array([1, 2, 0])).tolist()
    [6, -1, 5]
    """
    found = np.full(len(places), MISSING, np.int64)
    inside = places < len(table)
    found[inside] = table[places[inside]]
    return found
