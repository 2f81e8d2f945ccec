"""Frames of window functions: for each row of a sorted partition, the ranges of rows that its function sees."""

from __future__ import annotations

import datetime
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import attrs
from sqlglot import exp

from timely.differential.operators.aggregates import Descending
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.sorting import Ordering
from timely.differential.tables.values import moment_functions, scalars
from timely.differential.tables.values.kinds import MOMENTS, NUMBERS, Kind, canonical_float, start_of_day
from timely.differential.tables.values.refusals import refusal
from timely.differential.tables.values.written_calls import interval_of

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
    def of(cls, rows: list[Row], order: Ordering) -> Partition:
        """Return the partition of rows that are sorted by ``order``."""
        values = [order.values(row) for row in rows]
        starts: list[int] = []
        ends: list[int] = []
        for _, peers in groupby(map(order.key, values)):
            start, size = len(starts), sum(1 for _ in peers)
            starts += [start] * size
            ends += [start + size] * size
        return cls(rows, values, starts, ends)


Edge = Callable[[Partition], list[int]]


def frames_of(spec: exp.Expr | None, order: Ordering, window: exp.Expr) -> Callable[[Partition], list[Ranges]]:
    """Return what gives the frame of each row: by default all rows up to its last peer, or all without an order."""
    if spec is None:
        return lambda partition: [((0, end),) for end in partition.ends]
    kind = str(spec.args.get("kind") or "").upper()
    first = _edge(spec, kind, "start", order, window)
    last = _edge(spec, kind, "end", order, window)
    exclude = str(getattr(spec.args.get("exclude"), "name", "") or "").upper()

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
        raise refusal(window, f"EXCLUDE {exclude} is not supported")
    return frames


def _without(ranges: Ranges, start: int, end: int) -> Ranges:
    parts = [part for low, high in ranges for part in ((low, min(high, start)), (max(low, end), high))]
    return tuple((low, high) for low, high in parts if low < high)


def _edge(spec: exp.Expr, kind: str, which: str, order: Ordering, window: exp.Expr) -> Edge:
    """Return one end of a frame, for each row of a partition."""
    bound, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
    start = which == "start"
    if (bound is None and start) or (isinstance(bound, exp.Expr) and not side):
        raise refusal(bound or window, f"PRECEDING or FOLLOWING is missing where the frame {which}s")
    if not isinstance(bound, exp.Expr):
        bound = str(bound or "CURRENT ROW").upper()
    if bound == "UNBOUNDED":
        if side != ("PRECEDING" if start else "FOLLOWING"):
            raise refusal(window, f"a frame cannot {which} with UNBOUNDED {side}")
        return lambda partition: [0 if start else len(partition.rows)] * len(partition.rows)
    if not order.functions and kind != "RANGE":
        raise refusal(window, f"a frame of {kind} needs ORDER BY: the order of the rows is unspecified")
    if bound == "CURRENT ROW":
        if kind == "ROWS":
            return lambda partition: list(range(0 if start else 1, len(partition.rows) + (0 if start else 1)))
        return lambda partition: partition.starts if start else partition.ends
    while isinstance(bound, exp.Paren):
        bound = bound.this
    sign = -1 if side == "PRECEDING" else 1
    if kind == "RANGE":
        return _distance(bound, sign, start, order, window)
    if not isinstance(bound, exp.Literal) or not str(bound.this).isdigit():
        raise refusal(window, f"a frame of {kind} has literal whole numbers")
    moved = sign * int(str(bound.this))
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


def _distance(bound: Any, sign: int, start: bool, order: Ordering, window: exp.Expr) -> Edge:
    """Return the end of a frame that reaches up to a distance from the row's own value; nulls are near to nulls alone."""
    if len(order.functions) != 1:
        raise refusal(window, "a frame of RANGE with a distance needs ORDER BY of one expression")
    descending = order.descending[0]
    seen, move = _moves(bound, order.kinds[0], -sign if descending else sign, window)
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


def _moves(bound: Any, kind: Kind, sign: int, window: exp.Expr) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how a value of the order is compared, and how it is moved by a distance."""
    if isinstance(bound, exp.Interval) and kind in MOMENTS:
        interval = interval_of(bound, sign)
        if interval is not None:
            months, delta = interval
            if (months * sign, delta * sign) < (0, datetime.timedelta()):
                raise refusal(window, "a distance is not negative")
            seen: Callable[[Any], Any] = start_of_day if kind is Kind.DATE else lambda value: value
            return seen, lambda value: moment_functions.add_interval(value, months, delta)
    if isinstance(bound, exp.Literal) and not bound.is_string and kind.base in NUMBERS:
        number = Decimal(str(bound.this)) * sign
        if kind is Kind.DOUBLE:
            return lambda value: value, lambda value: canonical_float(value + float(number))
        return Decimal, lambda value: scalars.EXACT.add(value, number)
    raise refusal(window, f"a frame of RANGE over {kind.value} has literal distances: numbers, or intervals for dates")


def values_in(frame: Ranges, values: Sequence[Any]) -> list[Any]:
    """Return the values of the rows of a frame."""
    return [value for start, end in frame for value in values[start:end]]
