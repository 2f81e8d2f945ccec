"""Joins of rows that are columns: the same results as row by row, for large deltas whose keys are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from timely.differential.operators.join_results import JoinResult
from timely.differential.trace.arrow_values import ArrowValues, RowDelta
from timely.differential.trace.chunk import Chunk, ColumnDelta, whole_numbers
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.entries import Entry
from timely.differential.updates.int_columns import LARGE, Array, greatest_of
from timely.operators.keyed.sorted_keys import SortedKeys, equal_keys, pairs

if TYPE_CHECKING:
    from timely.differential.updates.row_columns import Columns


def _chunk_of(delta: Any) -> Chunk[Any] | None:
    """Return a delta of Arrow rows, or of keys alone, as a chunk; ``None`` for others."""
    if isinstance(delta, RowDelta):
        return delta.row_chunk
    return delta.chunk if isinstance(delta, ColumnDelta) and delta.values is None else None


def join(
    time: Any,
    mine: Cursor[Any],
    others: Cursor[Any],
    delta: Any,
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
    limit: int,
) -> Iterator[int] | None:
    """Collect the pairs of a delta and what ``others`` has by time in ``found``, and yield how many; ``None`` to go by rows."""
    chunk, runs = _chunk_of(delta), others.row_runs()
    if chunk is None or runs is None or mine.row_runs() is None or (not runs and chunk.values is None):
        return None
    against: Iterable[Chunk[Any]] = (near for run in runs for _, _, near in run.near(chunk.keys))
    loose = others.loose_rows([chunk.keys])
    if loose is None:  # there are columns of whole numbers: keys alone, of which this side's rows are chosen
        if runs:
            return None
        gathered = others.gather(chunk.keys)
        if gathered is None or gathered.values is not None or greatest_of(gathered.diffs) >= LARGE:
            return None
        order = np.argsort(gathered.numbers, kind="stable")
        keys = chunk.keys[gathered.numbers[order]]
        return _joined(
            time,
            chunk,
            [Chunk.of(keys, None, gathered.codes[order], gathered.diffs[order], gathered.times)],
            lambda times: times,
            (),
            others,
            side,
            lub,
            result,
            found,
            limit,
        )
    return _joined(time, chunk, against, others.inner_times, loose, others, side, lub, result, found, limit)


def _joined(
    time: Any,
    mine: Chunk[Any],
    against: Iterable[Chunk[Any]],
    inner_times: Callable[[list[Any]], list[Any]],
    loose: Collection[Any],
    others: Cursor[Any],
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
    limit: int,
) -> Iterator[int]:
    assert result.rows is not None
    for other in against:
        bounds = [lub(time, when) for when in inner_times(other.times)]
        for keys, first, second in pairs(SortedKeys(mine.keys, mine.offsets), SortedKeys(other.keys, other.offsets), 10 * limit):
            diffs = mine.row_diffs()[first] * other.row_diffs()[second]
            for bound, diff, rows in _groups(bounds, None if other.codes is None else other.codes[second], diffs):
                one, two = _columns(mine, first, rows), _columns(other, second, rows)
                left, right = (two, one) if side else (one, two)
                found.setdefault(bound, []).append(result.rows(keys if rows is None else keys[rows], left, right, diff))
            yield len(keys)
    if loose:
        yield from _with_loose_rows(time, mine, loose, others, side, lub, result, found)


def _groups(bounds: list[Any], codes: Array | None, diffs: Array) -> Iterator[tuple[Any, int, Array | None]]:
    """Return the numbers of the pairs of each bound and difference, ``None`` for all of them."""
    places: dict[Any, int] = {}
    table = np.array([places.setdefault(bound, len(places)) for bound in bounds], np.int64)
    first = int(diffs[0])
    if (codes is None or len(places) == 1) and (diffs == first).all():
        yield next(iter(places)), first, None
        return
    numbers = np.zeros(len(diffs), np.int64) if codes is None else table[codes]
    for place, bound in enumerate(places):
        of_bound = numbers == place
        for diff in np.unique(diffs[of_bound]).tolist():
            yield bound, diff, np.flatnonzero(of_bound & (diffs == diff))


def _columns(chunk: Chunk[Any], numbers: Array, rows: Array | None) -> Columns | None:
    """Return the columns of some pairs, of which these are the rows, or ``None`` for keys alone."""
    if not isinstance(chunk.values, ArrowValues):
        return None
    return chunk.values[numbers if rows is None else numbers[rows]].columns


def _with_loose_rows(
    time: Any,
    mine: Chunk[Any],
    loose: Collection[Any],
    others: Cursor[Any],
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
) -> Iterator[int]:
    """Collect the pairs with rows of ``others`` that are not columns."""
    results: dict[Any, list[Any]] = {}
    places, _ = equal_keys(mine.keys, whole_numbers(loose))
    for key in mine.keys[places].tolist():
        entries: list[Entry] = []
        mine.lookup(key, key, entries)
        for other, when, factor in others.loose_history(key):
            collected = results.setdefault(lub(time, when), [])
            for value, _, diff in entries:
                left, right = (other, value) if side else (value, other)
                result.collect(collected, key, left, right, diff * factor)
    for bound, collected in results.items():
        found.setdefault(bound, []).append(collected)
    yield sum(map(len, results.values()))
