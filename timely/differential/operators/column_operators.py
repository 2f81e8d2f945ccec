"""Reductions of columns: the same results as of rows, for large deltas of whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from timely.differential.operators.reduce_inputs import OwnTrace
from timely.differential.trace.chunk import Gathered
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Keys
from timely.differential.updates.int_columns import Array, Updates, each_once, greatest_of, integers, summed
from timely.operators.keyed.sorted_keys import group_starts
from timely.order import PartialOrder, less_equal

T = TypeVar("T", bound=PartialOrder)


class KeyCounts(NamedTuple):
    """Accumulated counts of values by key number, sorted by both, none of them zero."""

    numbers: Array
    values: Array | None
    counts: Array


ReduceKernel: TypeAlias = "str | Callable[[KeyCounts, Array], KeyCounts | None]"
"""The name of one of the functions below, or another one like them."""


def reduced_columns(
    kernel: ReduceKernel,
    input: OwnTrace[T],
    sent: Cursor[T],
    time: T,
    keys: Sequence[Keys],
    wait: Callable[[T, list[int]], object],
) -> tuple[Updates | None, Iterable[Any]]:
    """Return the changes at ``time`` for keys, and the keys that are left for rows to do."""
    numbers = [integers(list(part)) if isinstance(part, dict) else part for part in keys]
    arrays = [part for part in numbers if part is not None]
    if len(arrays) < len(numbers):
        return None, [key for part in keys for key in (part if isinstance(part, dict) else part.tolist())]
    each = each_once(np.concatenate(arrays))
    large = input.large(each)
    if large:
        each = each[~np.isin(each, np.array(large, np.int64))]
    entries, before = input.gather(each), sent.gather(each)
    if entries is None or before is None:
        return None, [*each.tolist(), *large]
    later: dict[T, list[Array]] = {}
    lub = sent.lattice.lub
    now = reduced(kernel, accumulated(entries, time, lub, later), sent.trace.pairs)
    if now is None:
        return None, [*each.tolist(), *large]
    updates = changes(each, now, accumulated(before, time, lub, later))
    for bound, parts in later.items():
        wait(bound, each[np.unique(np.concatenate(parts))].tolist())
    return updates, large


def accumulated(gathered: Gathered, time: T, lub: Callable[[T, T], T], later: dict[T, list[Array]]) -> KeyCounts:
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
    columns, sums = summed([index] if values is None else [index, values], diffs, runs=True)
    assert sums is not None
    return KeyCounts(columns[0], columns[1] if len(columns) > 1 else None, sums)


def changes(keys: Array, now: KeyCounts, before: KeyCounts) -> Updates:
    """Return the updates that turn what was sent into what is to be."""
    columns = [np.concatenate((now.numbers, before.numbers))]
    if now.values is not None or before.values is not None:
        parts = [values for values in (now.values, before.values) if values is not None]
        columns.append(np.concatenate(parts))
    rows, diffs = summed(columns, np.concatenate((now.counts, -before.counts)), runs=True)
    return Updates(keys[rows[0]], rows[1] if len(rows) > 1 else None, diffs)


def reduced(kernel: ReduceKernel, counts: KeyCounts, pairs: bool) -> KeyCounts | None:
    """Return what a kernel returns for each key, or ``None`` where numbers grow too large."""
    if not len(counts.numbers):
        return KeyCounts(counts.numbers, np.zeros(0, np.int64) if pairs else None, counts.counts)
    starts = group_starts(counts.numbers)
    return (_KERNELS[kernel] if isinstance(kernel, str) else kernel)(counts, starts)


def count_columns(counts: KeyCounts, starts: Array) -> KeyCounts:
    """Return the number of values of each key."""
    totals = np.add.reduceat(counts.counts, starts)
    return KeyCounts(counts.numbers[starts], totals, np.ones(len(starts), np.int64))


def sum_columns(counts: KeyCounts, starts: Array) -> KeyCounts | None:
    """Return the sum of the values of each key, unless it might not fit into 64 bits."""
    assert counts.values is not None
    if greatest_of(counts.values) * greatest_of(counts.counts) * len(counts.counts) >= 1 << 63:
        return None
    totals = np.add.reduceat(counts.values * counts.counts, starts)
    return KeyCounts(counts.numbers[starts], totals, np.ones(len(starts), np.int64))


def extreme_columns(counts: KeyCounts, starts: Array, last: bool) -> KeyCounts:
    """Return the least value with a positive count of each key, or the ``last``."""
    assert counts.values is not None
    positive = (counts.counts > 0).nonzero()[0]
    index, values = counts.numbers[positive], counts.values[positive]
    starts = group_starts(index)
    rows = np.concatenate((starts[1:], np.array([len(index)]))) - 1 if last and len(index) else starts
    return KeyCounts(index[rows], values[rows], np.ones(len(rows), np.int64))


def distinct_columns(counts: KeyCounts, starts: Array) -> KeyCounts:
    """Return each record with a positive count once."""
    positive = (counts.counts > 0).nonzero()[0]
    return KeyCounts(counts.numbers[positive], None, np.ones(len(positive), np.int64))


_KERNELS: Final[dict[str, Callable[[KeyCounts, Array], KeyCounts | None]]] = {
    "count": count_columns,
    "sum": sum_columns,
    "least": partial(extreme_columns, last=False),
    "greatest": partial(extreme_columns, last=True),
    "distinct": distinct_columns,
}
