"""Windows of sessions: rows of a key, each at most a gap after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import attrs
import numpy as np

from timely.differential.collections import Collection
from timely.differential.tables.expressions.column_compiler import Expressions
from timely.differential.tables.expressions.column_stages import staged
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.partitions import Counts, Entries, partitioned
from timely.differential.tables.operators.time_windows import Axis, TimeSpan
from timely.differential.tables.values.kinds import Column
from timely.differential.updates.int_columns import Array, order_and_starts
from timely.differential.updates.row_columns import LazyColumn, RowColumns
from timely.differential.updates.updates import Update
from timely.operators.keyed.sorted_keys import group_starts


@attrs.frozen
class Sessions:
    """What sessions are of: rows of these ``columns`` with an equal key, at most ``gap`` after each other."""

    name: ClassVar[str] = "sessions"

    axis: Axis
    gap: TimeSpan
    key: Callable[[Row], Row]
    key_columns: Expressions | None
    columns: Sequence[Column]

    def changes(self, before: Counts, after: Counts) -> Iterator[Update]:
        """Return how rows with their windows change, where rows are there so often before and after."""
        by_key: dict[Row, list[tuple[Any, Row]]] = {}
        for row in {**before, **after}:
            by_key.setdefault(self.key(row), []).append((self.axis.moment(row), row))
        for rows in by_key.values():
            rows.sort(key=itemgetter(0))
            old, new = self._windows(rows, before), self._windows(rows, after)
            for _, row in rows:
                gone, come = old.get(row), new.get(row)
                if gone is not None and gone == come:
                    if before[row] != after[row]:
                        yield row + gone, after[row] - before[row]
                    continue
                if gone is not None:
                    yield row + gone, -before[row]
                if come is not None:
                    yield row + come, after[row]

    def _windows(self, rows: Sequence[tuple[Any, Row]], counts: Counts) -> dict[Row, tuple[Any, Any]]:
        """Return the windows of those rows of a key, which are in order, that are there."""
        there = [timed for timed in rows if counts.get(timed[1], 0) > 0]
        windows: dict[Row, tuple[Any, Any]] = {}
        first = 0
        for place, (at, _) in enumerate(there, 1):
            end = self.gap.after(at)
            if place == len(there) or there[place][0] > end:
                windows.update(dict.fromkeys([row for _, row in there[first:place]], (there[first][0], end)))
                first = place
        return windows

    def column_changes(self, entries: Entries) -> list[RowColumns] | None:
        """Return the changes of rows with their windows; ``None`` where moments are too far from others."""
        assert self.axis.kernel is not None and self.key_columns is not None
        moments, keys = entries.read(self.axis.kernel), entries.read(self.key_columns)
        if moments is None or keys is None:
            return None
        axis = self.axis.numbers(moments.columns[0].get())
        length = self.gap.delta // self.axis.unit
        if not axis.has_room(0, length):
            return None
        codes = keys.numbers() or [entries.numbers]
        order = order_and_starts([*codes, axis.at])[0]
        old, new = (_windows(counts, order, codes, axis.at, length) for counts in (entries.before, entries.after))
        gone, come = entries.before.clip(0), entries.after.clip(0)
        same = np.where((old == new).all(axis=0), np.minimum(gone, come), 0)
        changes = []
        for counts, windows, sign in ((gone - same, old, -1), (come - same, new, 1)):
            for count in np.unique(counts[counts > 0]).tolist():
                rows = np.flatnonzero(counts == count)
                ends = (LazyColumn(axis.column(side[rows])) for side in windows)
                changes.append(RowColumns((*entries.rows(rows).columns, *ends), len(rows), sign * count))
        return changes


def sessions(rows: Collection[Any, Row], of: Sessions) -> Collection[Any, Row]:
    """Return each row with the beginning and the end of its session."""
    moment, kernel = of.axis.moment, of.axis.kernel

    def by_columns(table: RowColumns) -> RowColumns | None:
        moments = None if kernel is None else kernel(table)
        if moments is None or not moments[0].null_count:
            return table if moments is not None else None
        return table.chosen(np.flatnonzero(moments[0].is_valid().to_numpy(zero_copy_only=False)))

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [(row, diff) for row, diff in updates if moment(row) is not None]

    return partitioned(staged(rows, "moments", by_rows, by_columns), of)


def _windows(counts: Array, order: Array, codes: Sequence[Array], at: Array, gap: int) -> Array:
    """Return the beginnings and the ends of the sessions of the rows that are there, in an order by their keys and moments."""
    windows = np.zeros((2, len(at)), np.int64)
    rows = order[counts[order] > 0]
    moments = at[rows]
    first = np.zeros(len(rows), bool)
    first[group_starts(*(part[rows] for part in codes))] = True
    first[1:] |= moments[1:] - moments[:-1] > gap
    session = first.cumsum() - 1
    windows[0, rows] = moments[first][session]
    windows[1, rows] = moments[np.roll(first, -1)][session] + gap
    return windows
