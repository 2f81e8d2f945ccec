"""Joins of chunks: the same results as row by row, for large deltas whose keys are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import numpy as np

from timely.differential.operators.join_results import ColumnsOf, JoinResult
from timely.differential.trace.chunk import Chunk, Matches, Values
from timely.differential.updates.int_columns import LARGE, Array, Updates, greatest_of, integers, joined, record_columns
from timely.differential.updates.updates import Container
from timely.operators.keyed.sorted_keys import SortedKeys, equal_keys, pairs
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

_FEW: Final = 4
"""Times of a run up to which it is first asked whether any counts."""

_SMALL: Final = 4096
"""Updates below which results of several runs are sent as one container."""


def chunk_pairs(
    mine: Chunk[T],
    matches: Matches,
    side: int,
    bound: Callable[[T], T | None],
    result: JoinResult,
    results_by_time: dict[T, list[Any]],
    limit: int,
) -> Iterator[int]:
    """Collect the pairs of a delta and its matches by time in ``results_by_time``, and yield how many, now and then.

    ``bound`` returns the time of pairs with an entry of a time, or ``None`` where that does not count.
    """
    for some, other in matches.chunks:
        bounds = [bound(when) for when in other.times] if len(other.times) < _FEW else []
        if bounds and not any(each is not None for each in bounds):
            continue
        sorted_keys = SortedKeys(mine.keys[some], mine.offsets[some.start : some.stop + 1])
        for keys, first, second in pairs(sorted_keys, SortedKeys(other.keys, other.offsets), 10 * limit):
            bounds = bounds or [bound(when) for when in other.times]  # most runs have none of a few keys
            diffs = _products(mine, first, other, second)
            for at, rows in _by_bound(bounds, None if other.codes is None else other.codes[second]):
                here = slice(None) if rows is None else rows
                one, two = mine.values_at(first[here]), other.values_at(second[here])
                left, right = (two, one) if side else (one, two)
                _collect(results_by_time.setdefault(at, []), keys[here], left, right, diffs[here], result)
            yield len(keys)


def entries_of(keys: Array, matches: Matches) -> Array:
    """Return how many entries chunks have of each of sorted keys."""
    counts = np.zeros(len(keys), np.int64)
    for some, other in matches.chunks:
        numbers, places = equal_keys(keys[some], other.keys)
        counts[some][numbers] += other.offsets[places + 1] - other.offsets[places]
    return counts


def chunk_of(rows: Iterable[tuple[Any, Any, T, Any]], columns_of: ColumnsOf) -> Chunk[T] | None:
    """Return entries with their keys as a chunk, or ``None`` where they cannot be: what joins many with rows would be rows."""
    from timely.differential.updates.row_columns import ArrowValues

    entries = list(rows)
    keys, diffs = integers([entry[0] for entry in entries]), integers([entry[3] for entry in entries])
    if keys is None or diffs is None or greatest_of(diffs) >= LARGE:
        return None
    order = keys.argsort(kind="stable")
    columns = columns_of([entries[row][1] for row in order.tolist()])
    if columns is None:
        return None
    codes_of: dict[T, int] = {}
    codes = np.array([codes_of.setdefault(entry[2], len(codes_of)) for entry in entries], np.int32)
    return Chunk.of(keys[order], ArrowValues(columns, len(order)), codes[order], diffs[order], list(codes_of))


def with_loose(matches: Matches, count: int, columns_of: ColumnsOf) -> Matches:
    """Return the matches of so many keys with the loose ones in a chunk, if they can be."""
    chunk = chunk_of(((key, *entry) for key, entries in matches.loose.items() for entry in entries), columns_of)
    return matches if chunk is None else Matches(chain(matches.chunks, [(slice(0, count), chunk)]), {})


def _products(mine: Chunk[T], first: Array, other: Chunk[T], second: Array) -> Array:
    """Return the products of the differences of pairs; as objects, where they might not fit into 64 bits."""
    if mine.diffs is None or other.diffs is None:
        return mine.row_diffs()[first] if other.diffs is None else other.diffs[second]
    one, two = mine.diffs[first], other.diffs[second]
    return one * two if greatest_of(one) * greatest_of(two) < LARGE * LARGE else one.astype(object) * two


def _by_bound(bounds: list[T | None], codes: Array | None) -> Iterator[tuple[T, Array | None]]:
    """Return the numbers of the pairs of each bound, ``None`` for all of them; those without a bound are none."""
    places: dict[T | None, list[int]] = {}
    for code, bound in enumerate(bounds):
        places.setdefault(bound, []).append(code)
    if (codes is None or len(places) == 1) and bounds[0] is not None:
        yield bounds[0], None
        return
    for bound, chosen in places.items():
        if bound is None or codes is None:
            continue
        rows = np.flatnonzero(codes == chosen[0] if len(chosen) == 1 else np.isin(codes, chosen))
        if len(rows):
            yield bound, rows


def _collect(
    batches: list[Container], keys: Array, left: Values | None, right: Values | None, diffs: Array, result: JoinResult
) -> None:
    """Add the results of pairs at one time to its containers."""
    kinds = {isinstance(values, np.ndarray) for values in (left, right) if values is not None}
    if kinds == {False} and result.rows is not None:
        for diff in np.unique(diffs).tolist():
            here = None if (diffs == diff).all() else np.flatnonzero(diffs == diff)
            one, two = _columns(left, here), _columns(right, here)
            batches.append(result.rows(keys if here is None else keys[here], one, two, diff))
        return
    made = None
    if False not in kinds and result.columns is not None and diffs.dtype != object:
        with suppress(OverflowError):  # some of the numbers are too large for columns
            made = result.columns(keys, left, right)
    if made is not None:
        updates = Updates(*record_columns(made, len(keys), "columns"), None if (diffs == 1).all() else diffs)
        if greatest_of(diffs) >= LARGE:  # products of columns must fit into 64 bits
            batches.append(list(updates))
        elif batches and isinstance(batches[-1], Updates) and len(batches[-1]) + len(updates) < _SMALL:
            batches[-1] = joined([batches[-1], updates])
        else:
            batches.append(updates)
    else:
        rows: list[Any] = []
        collect = result.collect
        for update in zip(keys.tolist(), _listed(left), _listed(right), diffs.tolist()):  # some are endless
            collect(rows, *update)
        batches.append(rows)


def _columns(values: Values | None, rows: Array | None) -> Any:
    if values is None:
        return None
    assert not isinstance(values, np.ndarray)
    return values.columns if rows is None else values[rows].columns


def _listed(values: Values | None) -> Iterable[object]:
    if values is None:
        return repeat(None)
    return values.tolist() if isinstance(values, np.ndarray) else values.reader()[:]
