"""Joins of rows that are columns: the same results as row by row, for large deltas whose keys are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from timely.differential.operators.join_results import JoinResult
from timely.differential.trace.column_batches import whole_numbers
from timely.differential.trace.column_store import ColumnDelta
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.row_store import RowBatch, RowDelta
from timely.differential.updates.int_columns import LARGE, each_once
from timely.differential.updates.row_columns import Array, Columns, rows_at
from timely.operators.keyed.sorted_keys import SortedKeys, equal_keys, pairs


class SortedRows(NamedTuple):
    """Updates in order of their keys: those of ``keys[i]`` are rows ``offsets[i]`` to ``offsets[i + 1]``, all of one ``diff``."""

    keys: Array
    offsets: Array
    columns: Columns | None
    diff: int


def parts_of(delta: Any) -> list[SortedRows] | None:
    """Return a delta as parts: of rows, or of keys alone; ``None`` for others."""
    if isinstance(delta, RowDelta):
        return [_part(delta.rows_by_key)]
    if not isinstance(delta, ColumnDelta) or delta.values is not None:
        return None
    batch = delta.batch
    if batch.diffs is None:
        return [SortedRows(batch.keys, batch.offsets, None, 1)]
    found = []
    for diff in np.unique(batch.diffs).tolist():
        keys = batch.keys[batch.diffs == diff]
        found.append(SortedRows(keys, np.arange(len(keys) + 1), None, diff))
    return found


def _part(rows: RowBatch) -> SortedRows:
    return SortedRows(rows.keys, rows.offsets, rows.columns, rows.diff)


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
    parts = parts_of(delta)
    batches = others.row_batches()
    if parts is None or batches is None or mine.row_batches() is None or (not batches and parts[0].columns is None):
        return None
    keys = [part.keys for part in parts]
    against: Iterable[tuple[Any, SortedRows]] = (
        (when, _part(piece)) for batch, when in batches for piece in batch.near(each_once(np.concatenate(keys)))
    )
    loose = others.loose_rows(keys)
    if loose is None:  # there are columns of whole numbers: keys alone, of which this side's rows are chosen
        if batches:
            return None
        gathered = others.gather(parts[0].keys)
        if gathered is None or gathered.values is not None or (abs(gathered.diffs) >= LARGE).any():
            return None
        against = alone = list[tuple[Any, SortedRows]]()
        for code, when in enumerate(gathered.times):
            for diff in np.unique(gathered.diffs[gathered.codes == code]).tolist():
                numbers = gathered.numbers[(gathered.codes == code) & (gathered.diffs == diff)]
                alone.append((when, SortedRows(parts[0].keys[numbers], np.arange(len(numbers) + 1), None, diff)))
    return _joined(time, delta, parts, against, loose or (), others, side, lub, result, found, limit)


def _joined(
    time: Any,
    delta: Any,
    parts: list[SortedRows],
    against: Iterable[tuple[Any, SortedRows]],
    loose: Collection[Any],
    others: Cursor[Any],
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
    limit: int,
) -> Iterator[int]:
    assert result.rows is not None
    for when, other in against:
        for mine in parts:
            bound = lub(time, when)
            for keys, first, second in pairs(
                SortedKeys(mine.keys, mine.offsets), SortedKeys(other.keys, other.offsets), 10 * limit
            ):
                one = None if mine.columns is None else rows_at(mine.columns, first)
                two = None if other.columns is None else rows_at(other.columns, second)
                left, right = (two, one) if side else (one, two)
                found.setdefault(bound, []).append(result.rows(keys, left, right, mine.diff * other.diff))
                yield len(keys)
    if loose:
        yield from _with_loose_rows(time, delta, parts, loose, others, side, lub, result, found)


def _with_loose_rows(
    time: Any,
    delta: Any,
    parts: list[SortedRows],
    loose: Collection[Any],
    others: Cursor[Any],
    side: int,
    lub: Callable[[Any, Any], Any],
    result: JoinResult,
    found: dict[Any, list[Any]],
) -> Iterator[int]:
    """Collect the pairs with rows of ``others`` that are not columns."""
    held = whole_numbers(loose)
    rows = delta.rows_by_key if isinstance(delta, RowDelta) else None
    results: dict[Any, list[Any]] = {}
    for mine in parts:
        places, _ = equal_keys(mine.keys, held)
        for place in places.tolist():
            key = int(mine.keys[place])
            values = [None] if rows is None else [rows.row(row) for row in range(*mine.offsets[place : place + 2].tolist())]
            for other, when, factor in others.loose_history(key):
                collected = results.setdefault(lub(time, when), [])
                for value in values:
                    left, right = (other, value) if side else (value, other)
                    result.collect(collected, key, left, right, mine.diff * factor)
    for bound, collected in results.items():
        found.setdefault(bound, []).append(collected)
    yield sum(map(len, results.values()))
