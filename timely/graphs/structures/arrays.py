"""NumPy arrays of whole numbers, the columns of every graph dataflow, and what is computed on them.

``Rows`` has a row for each record: an edge as ``(source, target)``, a value as ``(node, value)``, where values are never
negative. Node numbers come from ``encode``: dense, below 2**32. A node belongs to worker ``number % workers``, and its place in
that worker's dense arrays is ``number // workers``. A float (weight, distance, rank) travels as the bits of a float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from timely.dataflow import OperatorInfo

Rows: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

BLOCK: Final = 1 << 17
"""Rows that are worked on at a time where they may be on disk."""

MISSING = -1
"""Stands for "no value" in dense arrays."""


def first(rows: Rows) -> Column:
    """Return the first column: the routing key of an edge by its source, of a value by its node."""
    return rows[:, 0]


def second(rows: Rows) -> Column:
    """Return the second column: the routing key of an edge by its target."""
    return rows[:, 1]


def owned(info: OperatorInfo, rows: Rows) -> Rows:
    """Return the rows whose first column is a node of this worker."""
    mine: Rows = rows[rows[:, 0] % info.peers == info.worker]
    return mine


def both_ways(edges: Rows) -> Rows:
    """Return the edges in both directions, without self-loops."""
    edges = edges[edges[:, 0] != edges[:, 1]]
    return np.concatenate((edges, edges[:, ::-1]))


def join_rows(parts: Iterable[Rows], columns: int) -> Rows:
    """Return the rows of all parts as one array with this number of ``columns``."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, columns), np.int64)


def joined_blocks(parts: Iterable[Rows], size: int | None = BLOCK) -> Iterator[Rows]:
    """Yield the rows of all parts, in arrays of about ``size`` rows, or in one."""
    some: list[Rows] = []
    rows = 0
    for part in parts:
        some.append(part)
        rows += len(part)
        if size is not None and rows >= size:
            yield join_rows(some, 0)
            some, rows = [], 0
    if some:
        yield join_rows(some, 0)


def join_columns(parts: Sequence[Column]) -> Column:
    return np.concatenate([np.empty(0, np.int64), *parts])


def dense(places: Column, values: Any) -> Column:
    """Return an array with ``values`` at ``places``, and ``MISSING`` elsewhere up to the greatest place."""
    table = np.full(int(places.max()) + 1 if len(places) else 0, MISSING, np.int64)
    table[places] = values
    return table


def look_up(table: Column, places: Column) -> Column:
    """Return the values of a dense array at ``places``, ``MISSING`` beyond its end."""
    values = np.full(len(places), MISSING, np.int64)
    inside = places < len(table)
    values[inside] = table[places[inside]]
    return values


def grow(table: Column, places: int, fill: int = MISSING) -> Column:
    """Return ``table`` if it has so many places, else a copy with spare ones, all filled with ``fill``.

    The spare places make growth in small steps cost linear time.
    """
    if places <= len(table):
        return table
    grown = np.full(max(places, len(table) * 5 // 4), fill, np.int64)
    grown[: len(table)] = table
    return grown


def distinct(parts: Iterable[Column], bound: int) -> Column:
    """Return each value of all ``parts`` once, in order. Values are at least 0 and below ``bound``."""
    parts, few, count = iter(parts), [], 0
    for part in parts:
        few.append(part)
        count += len(part)
        if count * 16 >= bound:
            break
    else:  # sorting few values is cheaper than a large bitmap
        return sorted_distinct(join_columns(few))
    present = np.zeros(bound, np.bool_)
    for part in itertools.chain(few, parts):
        present[part] = True
    return np.flatnonzero(present)


def sorted_distinct(values: Column) -> Column:
    """Return each value once, in order. ``numpy.unique`` hashes, which takes many times longer for packed pairs."""
    values = np.sort(values)
    return values[run_starts(values)]


def value_counts(values: Column) -> tuple[Column, Column]:
    """Return each value once, in order, and how often it occurs."""
    values = np.sort(values)
    starts = run_starts(values)
    return values[starts], np.diff(np.append(starts, len(values)))


def last_of_equals(values: Column, scratch: Column) -> Mask:
    """Return a mask that selects each distinct value once. ``scratch`` is any array longer than the greatest value."""
    order = np.arange(len(values))
    scratch[values] = order  # of equal values the last one stays
    mask: Mask = scratch[values] == order
    return mask


def inverse(order: Column) -> Column:
    """Return the inverse of a permutation."""
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    return at


def run_starts(values: npt.NDArray[Any]) -> Column:
    return np.flatnonzero(np.concatenate((np.ones(min(len(values), 1), np.bool_), values[1:] != values[:-1])))


def ranges(starts: Column, counts: Column) -> Column:
    """Return the whole numbers of all the ranges that have these starts and lengths."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def bits(values: Floats) -> Column:
    """Return the bits of floats as whole numbers."""
    return values.view(np.int64)


def floats(column: Column) -> Floats:
    """Return the floats whose bits are in a column."""
    return np.ascontiguousarray(column).view(np.float64)


def sorted_order(keys: Column) -> Column:
    """Return the order that sorts ``keys``, whole numbers from 0 up. The order is stable.

    A radix sort of 16 bits a pass: NumPy sorts 16-bit numbers without comparisons, several times faster than int64.
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


@attrs.frozen(eq=False)
class Lists:
    """``starts`` has where the ``values`` of each place begin, and the end of the last."""

    starts: Column
    values: Column

    @classmethod
    def of_distinct(cls, places: Column, values: Column, count: int) -> Lists:
        """Return the values at each of ``count`` places, in order, each value once."""
        places, values = distinct_pairs(places, values)
        return cls(np.searchsorted(places, np.arange(count + 1)), values)

    def lengths(self, places: Column) -> Column:
        """Return how many values there are at ``places``."""
        return self.starts[places + 1] - self.starts[places]

    def chosen(self, places: Column) -> tuple[Column, Column]:
        """Return the lengths and the values of the lists at ``places``."""
        counts = self.lengths(places)
        return counts, self.values[ranges(self.starts[places], counts)]


def distinct_pairs(first: Column, second: Column) -> tuple[Column, Column]:
    """Return each pair once, in order."""
    width = int(second.max(initial=0)) + 1
    pairs = sorted_distinct(first * width + second)
    return pairs // width, pairs % width
