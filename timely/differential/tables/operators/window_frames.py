"""Frames of window functions: for each row of a sorted partition, the ranges of rows that its function sees."""

from __future__ import annotations

import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import attrs

from timely.differential.operators.aggregates import Descending
from timely.differential.tables.expressions.bound import Literal
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.sorting import Ordering, RowOrdering
from timely.differential.tables.values import moment_functions, scalars
from timely.differential.tables.values.kinds import DOUBLES, MOMENTS, NUMBERS, Kind, canonical_float, single, start_of_day
from timely.errors import SqlError

Ranges = tuple[tuple[int, int], ...]
"""Rows of a frame: from the first number of each pair to before the second, in ascending order."""


@attrs.frozen
class Partition:
    """The sorted rows of a partition, the values that they are ordered by, and where the peers of each begin and end."""

    rows: list[Row]
    values: list[tuple[Any, ...]]
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, rows: list[Row], order: RowOrdering) -> Partition:
        """Return the partition of rows that are sorted by ``order``."""
        values = [order.values(row) for row in rows]
        starts: list[int] = []
        ends: list[int] = []
        for _, peers in groupby(map(order.by.key, values)):
            start, size = len(starts), sum(1 for _ in peers)
            starts += [start] * size
            ends += [start + size] * size
        return cls(rows, values, starts, ends)


@attrs.frozen
class FrameEnd:
    """One end of a frame: ``UNBOUNDED``, ``CURRENT ROW``, or a distance, ``PRECEDING`` or ``FOLLOWING``."""

    bound: str | Literal
    side: str = ""


@attrs.frozen
class WindowFrame:
    """A frame as it is written: of ``ROWS``, ``GROUPS`` or ``RANGE``."""

    kind: str
    start: FrameEnd
    end: FrameEnd
    exclude: str = ""


Frames = Callable[[Partition], list[Ranges]]
Edge = Callable[[Partition], list[int]]


def frames_of(frame: WindowFrame | None, order: Ordering) -> Frames:
    """Return what gives the frame of each row: by default all rows up to its last peer, or all without an order."""
    if frame is None:
        return lambda partition: [((0, end),) for end in partition.ends]
    first = _edge(frame.start, frame.kind, True, order)
    last = _edge(frame.end, frame.kind, False, order)
    exclude = frame.exclude

    def frames(partition: Partition) -> list[Ranges]:
        by_row: list[Ranges] = []
        for row, (start, end) in enumerate(zip(first(partition), last(partition))):
            ranges: Ranges = ((start, end),) if start < end else ()
            peers = partition.starts[row], partition.ends[row]
            if exclude == "CURRENT ROW":
                ranges = _without(ranges, row, row + 1)
            elif exclude == "GROUP":
                ranges = _without(ranges, *peers)
            elif exclude == "TIES":
                ranges = _without(_without(ranges, peers[0], row), row + 1, peers[1])
            by_row.append(ranges)
        return by_row

    if exclude not in ("", "NO OTHERS", "CURRENT ROW", "GROUP", "TIES"):
        raise SqlError(f"EXCLUDE {exclude} is not supported")
    return frames


def _without(ranges: Ranges, start: int, end: int) -> Ranges:
    parts = [part for low, high in ranges for part in ((low, min(high, start)), (max(low, end), high))]
    return tuple((low, high) for low, high in parts if low < high)


def _edge(end: FrameEnd, kind: str, start: bool, order: Ordering) -> Edge:
    """Return one end of a frame, for each row of a partition."""
    bound = end.bound
    if bound == "UNBOUNDED":
        if end.side != ("PRECEDING" if start else "FOLLOWING"):
            raise SqlError(f"a frame cannot {'start' if start else 'end'} with UNBOUNDED {end.side}")
        return lambda partition: [0 if start else len(partition.rows)] * len(partition.rows)
    if not order.kinds and kind != "RANGE":
        raise SqlError(f"a frame of {kind} needs ORDER BY: the order of the rows is unspecified")
    if bound == "CURRENT ROW":
        if kind == "ROWS":
            return lambda partition: list(range(0 if start else 1, len(partition.rows) + (0 if start else 1)))
        return lambda partition: partition.starts if start else partition.ends
    assert isinstance(bound, Literal)
    sign = -1 if end.side == "PRECEDING" else 1
    if kind == "RANGE":
        return _distance(bound, sign, start, order)
    if bound.kind is not Kind.INTEGER:
        raise SqlError(f"a frame of {kind} has literal whole numbers")
    moved = sign * bound.value
    return _rows_away(moved, start) if kind == "ROWS" else _groups_away(moved, start)


def _rows_away(moved: int, start: bool) -> Edge:
    def edge(partition: Partition) -> list[int]:
        size = len(partition.rows)
        return [min(max(row + moved + (0 if start else 1), 0), size) for row in range(size)]

    return edge


def _groups_away(moved: int, start: bool) -> Edge:
    def edge(partition: Partition) -> list[int]:
        groups = sorted(set(zip(partition.starts, partition.ends)))
        number = {first: index for index, (first, _) in enumerate(groups)}

        def place(first: int) -> int:
            group = number[first] + moved
            if 0 <= group < len(groups):
                return groups[group][0 if start else 1]
            return 0 if group < 0 else len(partition.rows)

        return [place(first) for first in partition.starts]

    return edge


def _distance(bound: Literal, sign: int, start: bool, order: Ordering) -> Edge:
    """Return the end of a frame that reaches up to a distance from the row's own value; nulls are near to nulls alone."""
    if len(order.kinds) != 1:
        raise SqlError("a frame of RANGE with a distance needs ORDER BY of one expression")
    descending = order.descending[0]
    seen, move = _moves(bound, order.kinds[0], -sign if descending else sign)
    wrap: Callable[[Any], Any] = Descending if descending else lambda value: value
    search = bisect_left if start else bisect_right

    def edge(partition: Partition) -> list[int]:
        values = [value for (value,) in partition.values]
        low = next((row for row, value in enumerate(values) if value is not None), len(values))
        high = next((row for row in range(low, len(values)) if values[row] is None), len(values))
        places = [wrap(seen(value)) for value in values[low:high]]
        peers = partition.starts if start else partition.ends
        return [
            peers[row] if value is None else low + search(places, wrap(move(seen(value)))) for row, value in enumerate(values)
        ]

    return edge


def _moves(bound: Literal, kind: Kind, sign: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how a value of the order is compared, and how it is moved by a distance."""
    if bound.kind in (Kind.INTERVAL, Kind.MONTHS) and kind in MOMENTS:
        months, delta = bound.value if bound.kind is Kind.MONTHS else (0, bound.value)
        if (months, delta) < (0, datetime.timedelta()):
            raise SqlError("a distance is not negative")
        seen: Callable[[Any], Any] = start_of_day if kind is Kind.DATE else lambda value: value
        return seen, lambda value: moment_functions.add_interval(value, sign * months, sign * delta)
    if bound.kind.base in NUMBERS and kind.base in NUMBERS:
        number = Decimal(str(bound.value)) * sign
        if kind in DOUBLES:
            fit = single if kind is Kind.REAL else canonical_float
            return lambda value: value, lambda value: fit(value + fit(float(number)))
        return Decimal, lambda value: scalars.EXACT.add(value, number)
    raise SqlError(f"a frame of RANGE over {kind.value} has literal distances: numbers, or intervals for dates")


def values_in(frame: Ranges, values: Sequence[Any]) -> list[Any]:
    """Return the values of the rows of a frame."""
    return [value for start, end in frame for value in values[start:end]]
