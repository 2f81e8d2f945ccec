"""Joins and reductions of columns: the same results as of rows, for large deltas of whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from timely.differential.operators.join_results import JoinResult
from timely.differential.trace.chunk import Chunk, Gathered
from timely.differential.updates.int_columns import LARGE, Array, Updates, greatest_of, record_columns, summed
from timely.operators.keyed.sorted_keys import spread
from timely.order import less_equal


def join(
    time: Any,
    delta: Chunk[Any],
    others: Gathered,
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
    limit: int,
) -> Iterator[int]:
    """Collect the pairs of a delta and what was gathered for its keys, by time in ``found``; yield how many there are."""
    bounds = [lub(time, when) for when in others.times]
    lengths = np.diff(delta.offsets)[others.numbers]
    ends = np.cumsum(lengths)
    at = 0
    while at < len(ends):  # a portion of the pairs at a time
        done = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(ends, done + 10 * limit, side="right")))
        yield _join_portion(delta, others, slice(at, stop), lengths, bounds, side, result, found)
        at = stop


def fits(delta: Chunk[Any], others: Gathered) -> bool:
    """Return whether the products of differences fit into 64 bits."""
    return delta.diffs is None or greatest_of(delta.diffs) * greatest_of(others.diffs) < LARGE * LARGE


def _join_portion(
    delta: Chunk[Any],
    others: Gathered,
    rows: slice,
    lengths: Array,
    bounds: list[Any],
    side: int,
    result: JoinResult,
    found: dict[Any, list[Any]],
) -> int:
    index = others.numbers[rows]
    numbers, mine = spread(np.arange(rows.start, rows.stop), delta.offsets[index], lengths[rows])
    keys = delta.keys[others.numbers[numbers]]
    values = None if delta.int_values is None else delta.int_values[mine]
    other_values = None if others.values is None else others.values[numbers]
    diffs = others.diffs[numbers]
    if delta.diffs is not None:
        diffs = diffs * delta.diffs[mine]
    left, right = (other_values, values) if side else (values, other_values)
    if len(set(bounds)) == 1:
        _emit(found, bounds[0], keys, left, right, diffs, result)
    else:
        codes = others.codes[numbers]
        places: dict[Any, list[int]] = {}
        for code, bound in enumerate(bounds):
            places.setdefault(bound, []).append(code)
        for bound, chosen in places.items():
            here = np.flatnonzero(codes == chosen[0] if len(chosen) == 1 else np.isin(codes, chosen))
            if len(here):
                _emit(found, bound, keys[here], _at(left, here), _at(right, here), diffs[here], result)
    return len(keys)


def _at(column: Array | None, rows: Array) -> Array | None:
    return None if column is None else column[rows]


def _emit(
    found: dict[Any, list[Any]],
    bound: Any,
    keys: Array,
    left: Array | None,
    right: Array | None,
    diffs: Array,
    result: JoinResult,
) -> None:
    batches = found.setdefault(bound, [])
    if result.columns is None:
        rows: list[Any] = []
        collect = result.collect
        for update in zip(keys.tolist(), _listed(left), _listed(right), diffs.tolist()):  # some are endless
            collect(rows, *update)
        batches.append(rows)
        return
    made = result.columns(keys, left, right)
    updates = Updates(*record_columns(made, len(keys), "columns"), None if (diffs == 1).all() else diffs)
    batches.append(updates if greatest_of(diffs) < LARGE else list(updates))  # products of columns must fit into 64 bits


def _listed(column: Array | None) -> Any:
    return repeat(None) if column is None else column.tolist()


class Counts(NamedTuple):
    """Accumulated counts of values by key number, sorted by both, none of them zero."""

    numbers: Array
    values: Array | None
    counts: Array


def accumulated(gathered: Gathered, time: Any, lub: Callable[[Any, Any], Any], later: dict[Any, list[Array]]) -> Counts:
    """Return the counts at ``time``; collect in ``later`` the keys that have to be looked at again, by time."""
    index, values, codes, diffs, times = gathered
    chosen = [less_equal(when, time) for when in times]
    if not all(chosen):
        rows = np.array(chosen, bool)[codes]
        for code, counts in enumerate(chosen):
            if not counts:
                waiting = index[codes == code]
                if len(waiting):
                    later.setdefault(lub(time, times[code]), []).append(waiting)
        index, diffs = index[rows], diffs[rows]
        values = None if values is None else values[rows]
    columns, sums = summed([index] if values is None else [index, values], diffs)
    assert sums is not None
    return Counts(columns[0], columns[1] if len(columns) > 1 else None, sums)


def changes(keys: Array, now: Counts, before: Counts) -> Updates:
    """Return the updates that turn what was sent into what is to be."""
    columns = [np.concatenate((now.numbers, before.numbers))]
    if now.values is not None or before.values is not None:
        parts = [values for values in (now.values, before.values) if values is not None]
        columns.append(np.concatenate(parts))
    rows, diffs = summed(columns, np.concatenate((now.counts, -before.counts)))
    return Updates(keys[rows[0]], rows[1] if len(rows) > 1 else None, diffs)


def reduced(name: str, counts: Counts, pairs: bool) -> Counts | None:
    """Return what the aggregate ``name`` returns for each key, or ``None`` where numbers grow too large."""
    if not len(counts.numbers):
        return Counts(counts.numbers, np.zeros(0, np.int64) if pairs else None, counts.counts)
    starts = np.flatnonzero(np.concatenate((np.ones(1, bool), counts.numbers[1:] != counts.numbers[:-1])))
    return _KERNELS[name](counts, starts)


def count_columns(counts: Counts, starts: Array) -> Counts:
    """Return the number of values of each key."""
    totals = np.add.reduceat(counts.counts, starts)
    return Counts(counts.numbers[starts], totals, np.ones(len(starts), np.int64))


def sum_columns(counts: Counts, starts: Array) -> Counts | None:
    """Return the sum of the values of each key, unless it might not fit into 64 bits."""
    assert counts.values is not None
    if greatest_of(counts.values) * greatest_of(counts.counts) * len(counts.counts) >= 1 << 63:
        return None
    totals = np.add.reduceat(counts.values * counts.counts, starts)
    return Counts(counts.numbers[starts], totals, np.ones(len(starts), np.int64))


def least_columns(counts: Counts, starts: Array) -> Counts:
    """Return the least value with a positive count of each key."""
    return _first(counts, np.flatnonzero(counts.counts > 0), last=False)


def greatest_columns(counts: Counts, starts: Array) -> Counts:
    """Return the greatest value with a positive count of each key."""
    return _first(counts, np.flatnonzero(counts.counts > 0), last=True)


def _first(counts: Counts, positive: Array, last: bool) -> Counts:
    assert counts.values is not None
    index, values = counts.numbers[positive], counts.values[positive]
    changes = index[1:] != index[:-1]
    edge = np.ones(min(len(index), 1), bool)
    rows = np.flatnonzero(np.concatenate((changes, edge) if last else (edge, changes)))
    return Counts(index[rows], values[rows], np.ones(len(rows), np.int64))


def distinct_columns(counts: Counts, starts: Array) -> Counts:
    """Return each record with a positive count once."""
    positive = np.flatnonzero(counts.counts > 0)
    return Counts(counts.numbers[positive], None, np.ones(len(positive), np.int64))


_KERNELS: Final[dict[str, Callable[[Counts, Array], Counts | None]]] = {
    "count": count_columns,
    "sum": sum_columns,
    "least": least_columns,
    "greatest": greatest_columns,
    "distinct": distinct_columns,
}
