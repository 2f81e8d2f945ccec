"""Window functions of columns: of all rows of all partitions at once, which stand one partition after the other, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.differential.tables.expressions.numbered import turned_bits
from timely.differential.tables.operators.aggregations import AggregateCall, First, Sums
from timely.differential.tables.operators.window_frames import FrameEnd, WindowFrame
from timely.differential.tables.values.kinds import NUMBERS
from timely.differential.updates.int_columns import Array, greatest_of
from timely.differential.updates.row_columns import Fixed
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.keyed.column_numbers import has_nan

_FAR: Final = 1 << 40


@attrs.frozen(eq=False)
class ColumnPartitions:
    """For each row where its partition begins and ends, and where its peers do."""

    starts: Array
    ends: Array
    peer_starts: Array
    peer_ends: Array

    @classmethod
    def of(cls, partitions: Array, peers: Array, count: int) -> ColumnPartitions:
        """Return those of ``count`` rows, from where partitions and peers start."""
        sides: list[Array] = []
        for starts in (partitions, peers):
            sizes = np.diff(np.append(starts, count))
            sides += starts.repeat(sizes), (starts + sizes).repeat(sizes)
        return cls(*sides)

    @property
    def places(self) -> Array:
        """The places of all rows."""
        return np.arange(len(self.starts))


WindowColumns = Callable[[ColumnPartitions, Sequence[Any]], Any]
"""A window function of the columns that its inputs are; ``None`` or ``NoKernel`` for values that go by rows."""


def sort_codes(column: Any, descending: bool = False, nulls_first: bool = False) -> list[Array]:
    """Return columns of whole numbers that are in the order of values; ``NoKernel`` for values that have none.

    >>> [codes.tolist() for codes in sort_codes(pa.array(["b", None, "a"]))]
    [[False, True, False], [1, 0, 0]]
    """
    numbers = column.numbers if isinstance(column, Fixed) else column
    codes, kind = [], numbers.type
    if numbers.null_count:
        codes.append(numbers.is_null().to_numpy(zero_copy_only=False) ^ nulls_first)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = numbers.dictionary_encode()
        ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
        ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
        values = np.where(numbers.is_null().to_numpy(zero_copy_only=False), 0, ranks[encoded.indices.fill_null(0).to_numpy()])
    elif kind == pa.float64() and not has_nan(numbers):
        values = turned_bits(pc.add(numbers.fill_null(0.0), 0.0).to_numpy().view(np.int64))
    elif kind == pa.date32():
        values = numbers.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        values = numbers.cast(pa.int64()).fill_null(0).to_numpy()
    else:
        raise NoKernel
    return [*codes, ~values if descending else values]


# -- ranks and values of other rows --------------------------------------------------------------------------------


def _dense_rank(rows: ColumnPartitions, inputs: Sequence[Any]) -> Any:
    numbers = (rows.peer_starts == rows.places).cumsum()
    return pa.array(numbers - numbers[rows.starts] + 1)


RANKS: Final[dict[str, WindowColumns]] = {
    "row_number": lambda rows, inputs: pa.array(rows.places - rows.starts + 1),
    "rank": lambda rows, inputs: pa.array(rows.peer_starts - rows.starts + 1),
    "dense_rank": _dense_rank,
    "percent_rank": lambda rows, inputs: pa.array((rows.peer_starts - rows.starts) / (rows.ends - rows.starts - 1).clip(1)),
    "cume_dist": lambda rows, inputs: pa.array((rows.peer_ends - rows.starts) / (rows.ends - rows.starts)),
}


def shifted(away: int) -> WindowColumns:
    """Return ``lag`` or ``lead``: the value so many rows away, or the other one."""
    away = max(-_FAR, min(away, _FAR))

    def column(rows: ColumnPartitions, inputs: Sequence[Any]) -> Any:
        value, other = (part.numbers if isinstance(part, Fixed) else part for part in inputs)
        scales = {part.scale for part in inputs if isinstance(part, Fixed)}
        if len(scales) > 1:
            return None
        places = rows.places + away
        inside = (rows.starts <= places) & (places < rows.ends)
        result = pc.if_else(pa.array(inside), value.take(pa.array(np.where(inside, places, 0))), other.cast(value.type))
        return Fixed(result, scales.pop()) if scales else result

    return column


# -- aggregates of frames ------------------------------------------------------------------------------------------

Edge = Callable[[ColumnPartitions], Array]


def _edge(end: FrameEnd, kind: str, start: bool) -> Edge | None:
    bound = end.bound
    if bound == "UNBOUNDED":
        return (lambda rows: rows.starts) if start else lambda rows: rows.ends
    if bound == "CURRENT ROW" and kind != "ROWS":
        return (lambda rows: rows.peer_starts) if start else lambda rows: rows.peer_ends
    if kind != "ROWS":
        return None
    away = 0 if isinstance(bound, str) else min(bound.value, _FAR) * (-1 if end.side == "PRECEDING" else 1)
    away += 0 if start else 1
    return lambda rows: (rows.places + away).clip(rows.starts, rows.ends)


def _edges(frame: WindowFrame | None) -> tuple[Edge, Edge] | None:
    """Return where the frame of each row starts and ends, ``None`` for frames that go by rows."""
    if frame is None:
        return (lambda rows: rows.starts), (lambda rows: rows.peer_ends)
    start, end = _edge(frame.start, frame.kind, True), _edge(frame.end, frame.kind, False)
    return None if start is None or end is None or frame.exclude not in ("", "NO OTHERS") else (start, end)


def of_frames(call: AggregateCall, frame: WindowFrame | None) -> WindowColumns | None:
    """Return an aggregate of the frames of rows, where there is one of columns."""
    edges = _edges(frame)
    if edges is None or call.distinct or len(call.inputs) > 1:
        return None
    form, grows = call.form, frame is None or frame.start.bound == "UNBOUNDED"
    if isinstance(form, First) and form.kernel is not None and grows:
        return _extremes(form.kernel == "greatest", edges[1])
    if not isinstance(form, Sums) or form.columns is None or call.name not in ("count", "sum", "avg"):
        return None
    if call.name != "count" and call.inputs[0].kind.base not in NUMBERS:
        return None
    return _sums(form, bool(call.inputs), edges)


def _counted(inputs: Sequence[Any], count: int, valued: bool) -> Array:
    """Return which rows count: those with a value, of which the condition is true."""
    counts = np.ones(count, bool)
    for part in inputs[:1] if valued else ():
        counts &= (part.numbers if isinstance(part, Fixed) else part).is_valid().to_numpy(zero_copy_only=False)
    for condition in inputs[1:] if valued else inputs:
        counts &= condition.fill_null(False).to_numpy(zero_copy_only=False)
    return counts


def _sums(form: Sums, valued: bool, edges: tuple[Edge, Edge]) -> WindowColumns:
    columns = form.columns
    assert columns is not None

    def column(rows: ColumnPartitions, inputs: Sequence[Any]) -> Any:
        counts = _counted(inputs, len(rows.starts), valued)
        added = [counts.astype(np.int64)]
        if form.size > 1:
            value = inputs[0]
            numbers = value.numbers if isinstance(value, Fixed) else value
            more = form.decimals - (value.scale if isinstance(value, Fixed) else 0)
            plain = numbers.fill_null(0).to_numpy()
            if not 0 <= more <= 18 or greatest_of(plain) * 10**more * len(plain) >= 1 << 63:
                return None
            added.append(np.where(counts, plain, 0) * 10**more)
        start, end = (edge(rows) for edge in edges)
        totals = [np.concatenate((np.zeros(1, np.int64), numbers.cumsum())) for numbers in added]
        return columns([np.where(start < end, total[end] - total[start], 0) for total in totals])

    return column


def _extremes(greatest: bool, edge: Edge) -> WindowColumns:
    """Return the greatest or least value of frames that begin where their partitions do."""

    def column(rows: ColumnPartitions, inputs: Sequence[Any]) -> Any:
        (value, *_), count = inputs, len(rows.starts)
        order = np.lexsort(tuple(reversed(sort_codes(value, not greatest))))
        ranks = np.empty(count, np.int64)
        ranks[order] = np.arange(1, count + 1)  # equal values have several, of which any will do
        ranks[~_counted(inputs, count, True)] = 0
        partitions = (rows.starts == rows.places).cumsum() * (count + 1)
        best = np.maximum.accumulate(ranks + partitions) - partitions
        end = edge(rows)
        ranks = np.where(rows.starts < end, best[end - 1], 0)
        return value.take(pa.array(np.append(order, 0)[ranks - 1], mask=ranks == 0))

    return column
