"""Windows: when rows of a partition change, its functions are computed again for that partition, and for no other.

Rows that tie are ordered by all their columns, so that a result is never unspecified. Where only the first rows of partitions
are asked for, as many are held, and some more, so that a change seldom costs a pass over its partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.differential.tables.expressions.bound import Expr, NamedExpr, SortKey
from timely.differential.tables.expressions.column_compiler import Expressions, column_expressions
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope, compile_scalar
from timely.differential.tables.operators.partitions import Counts, Entries, held_together, partitioned
from timely.differential.tables.operators.sorting import RowOrdering, first_rows, ordering
from timely.differential.tables.operators.window_columns import ColumnPartitions, sort_codes
from timely.differential.tables.operators.window_frames import Partition
from timely.differential.tables.operators.window_functions import Compute, WindowCall
from timely.differential.tables.values.kinds import Column, sortable
from timely.differential.updates.int_columns import Array, order_and_starts
from timely.differential.updates.row_columns import ArrowValues, LazyColumn, RowColumns
from timely.differential.updates.updates import Update
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.keyed.sorted_keys import group_starts

_MORE: Final = 16
"""Rows that are held beyond the first ones that are asked for."""


def with_windows(relation: Relation, calls: Sequence[NamedExpr], most: int | None) -> Relation:
    """Return the relation with a column more for each window function; of each partition ``most`` rows may be enough."""
    together: dict[Any, list[tuple[int, WindowCall]]] = {}
    for part in calls:
        call = part.value
        assert isinstance(call, WindowCall)
        together.setdefault((call.partition, call.order), []).append((part.id, call))
    scope = relation.scope
    for (partition, order), members in together.items():
        columns = [Column(call.name, call.kind, call.nullable) for _, call in members]
        windows, rows = _windows(relation, scope, partition, order, [call for _, call in members], most), relation.collection
        if most is not None and not (partition and held_together(rows)):  # of all rows the first ones, whichever leave
            rows = first_rows(rows, windows.key, windows.place, most, grows=relation.grows)
            most = windows.most = None
        held = None if most is None else _First(windows, most)
        rows = partitioned(rows, windows, held, grows=relation.grows)
        relation = relation.extended(rows, columns, [number for number, _ in members])
    return relation


def rows_asked(calls: Sequence[NamedExpr], limits: Sequence[tuple[int, int]]) -> int | None:
    """Return how many rows of a partition are asked for, where no function sees others; ``None`` for all.

    ``limits`` say up to which value columns are asked for.
    """
    functions = [part.value for part in calls]
    if len({(call.partition, call.order) for call in functions if isinstance(call, WindowCall)}) != 1:
        return None
    if not all(isinstance(call, WindowCall) and call.name in ("row_number", "rank", "dense_rank") for call in functions):
        return None
    numbers = {part.id for part in calls if isinstance(part.value, WindowCall) and part.value.name == "row_number"}
    most = [limit for number, limit in limits if number in numbers]
    return max(min(most), 1) if most else None


def _windows(
    relation: Relation,
    scope: RowScope,
    partition: Sequence[Expr],
    order: Sequence[SortKey],
    calls: Sequence[WindowCall],
    most: int | None,
) -> WindowPartitions:
    keys = [compile_scalar(key, scope).function for key in partition]
    computes = [call.compute([compile_scalar(part, scope).function for part in call.inputs]) for call in calls]
    kernels = [None if call.columns is None else column_expressions(call.inputs, scope) for call in calls]
    return WindowPartitions(
        relation.columns,
        lambda row: tuple([key(row) for key in keys]),
        column_expressions(partition, scope) if all(kernels) else None,
        ordering(order, scope),
        column_expressions([key.value for key in order], scope),
        calls,
        computes,
        [kernel for kernel in kernels if kernel is not None],
        most,
    )


@attrs.frozen(eq=False)
class _Sorted:
    """Entries in the order of their partitions and in theirs, and where partitions and peers start."""

    order: Array
    partitions: Array
    peers: Array


@attrs.define(eq=False)
class WindowPartitions:
    """Window functions over one partition and order, for the first ``most`` rows of each partition, or for all."""

    name: ClassVar[str] = "window"

    columns: Sequence[Column]
    key: Callable[[Row], Row]
    key_columns: Expressions | None
    ordering: RowOrdering
    order_columns: Expressions | None
    calls: Sequence[WindowCall]
    computes: Sequence[Compute]
    inputs: Sequence[Expressions]
    most: int | None

    def place(self, row: Row) -> Any:
        """Return what a row is sorted by."""
        return self.ordering.of(row), sortable(row)

    def partitions(self, rows: Iterable[Row]) -> dict[Row, list[Row]]:
        """Return the rows of each key in their order."""
        by_key: dict[Row, list[Row]] = {}
        for row in rows:
            by_key.setdefault(self.key(row), []).append(row)
        for part in by_key.values():
            part.sort(key=self.place)
        return by_key

    def changes(self, before: Counts, after: Counts) -> Iterable[Update]:
        """Return how rows with their functions change, where rows are there so often before and after."""
        changes: Counter[Row] = Counter()
        for rows in self.partitions({**before, **after}).values():
            changes.subtract(self._computed(rows, before))
            changes.update(self._computed(rows, after))
        return [(row, diff) for row, diff in changes.items() if diff]

    def _computed(self, rows: Sequence[Row], counts: Counts) -> Iterable[Row]:
        there = list(islice((row for row in rows for _ in range(counts.get(row, 0))), self.most))
        if not there:
            return ()
        partition = Partition.of(there, self.ordering)
        return [row + more for row, more in zip(there, zip(*(compute(partition) for compute in self.computes)))]

    # -- columns ---------------------------------------------------------------------------------------------------

    def sorted(self, entries: Entries) -> _Sorted | None:
        """Return the order of entries, ``None`` where rows have to be gone through."""
        if self.key_columns is None or self.order_columns is None:
            return None
        keys, orders, by = entries.read(self.key_columns), entries.read(self.order_columns), self.ordering.by
        if keys is None or orders is None:
            return None
        codes = keys.numbers() or [np.zeros(len(entries.numbers), np.int64)]
        try:
            for column, descending, nulls_first in zip(orders.columns, by.descending, by.nulls_first, strict=True):
                codes += sort_codes(column.get(), descending, nulls_first)
            order, peers = order_and_starts(codes)
            of_peers = np.repeat(np.arange(len(peers)), sizes := np.diff(np.append(peers, len(order))))
            tied = np.flatnonzero(sizes[of_peers] > 1)
            if len(tied):
                number = np.empty(len(order), np.int64)
                number[order] = of_peers
                rows = np.sort(order[tied])
                ties = [part for column in entries.rows(rows).columns for part in sort_codes(column.get())]
                order[tied] = rows[order_and_starts([number[rows], *ties])[0]]
        except NoKernel:
            return None
        return _Sorted(order, group_starts(*(part[order] for part in codes[: len(keys.columns) or 1])), peers)

    def column_changes(self, entries: Entries) -> list[RowColumns] | None:
        """Return how rows with their functions change; ``None`` where rows have to be gone through."""
        made = self.sorted(entries)
        inputs = [entries.read(kernel) for kernel in self.inputs]
        if made is None or any(part is None for part in inputs):
            return None
        read = [part for part in inputs if part is not None]
        old, new = (self._results(made, counts, read) for counts in (entries.before, entries.after))
        if old is None or new is None or old.values.kind != new.values.kind:
            return None
        sizes = np.maximum(entries.before, entries.after).clip(0)
        first = sizes.cumsum() - sizes
        one, other = (first[part.rows] + part.copies for part in (old, new))
        _, left, right = np.intersect1d(one, other, assume_unique=True, return_indices=True)
        codes = old.values.concatenated([new.values]).numbers()
        same = np.logical_and.reduce([part[left] == part[len(old.rows) + right] for part in codes])
        changes = []
        for part, unchanged, diff in ((old, left[same], -1), (new, right[same], 1)):
            changed = np.ones(len(part.rows), bool)
            changed[unchanged] = False
            chosen = np.flatnonzero(changed)
            chosen = chosen[part.rows[chosen].argsort(kind="stable")]
            if len(chosen):
                columns = (*entries.rows(part.rows[chosen]).columns, *part.values[chosen].columns)
                changes.append(RowColumns(columns, len(chosen), diff))
        return changes

    def _results(self, made: _Sorted, counts: Array, inputs: Sequence[ArrowValues]) -> _Results | None:
        counts = counts[made.order].clip(0, self.most)
        rows = made.order.repeat(counts)
        starts = []
        for group in (made.partitions, made.peers):
            numbers = np.zeros(len(counts), np.int64)
            numbers[group] = 1
            starts.append(group_starts(numbers.cumsum().repeat(counts)))
        partitions, columns = ColumnPartitions.of(starts[0], starts[1], len(rows)), []
        for call, values in zip(self.calls, inputs, strict=True):
            assert call.columns is not None
            try:
                column = call.columns(partitions, [part.get() for part in values[rows].columns])
            except (NoKernel, OverflowError, pa.ArrowException):
                return None
            if column is None:
                return None
            columns.append(LazyColumn(column))
        copies = np.arange(len(rows)) - (counts.cumsum() - counts).repeat(counts)
        results = _Results(rows, copies, ArrowValues(tuple(columns), len(rows)))
        return results if self.most is None else results.chosen(partitions.places - partitions.starts < self.most)


@attrs.frozen(eq=False)
class _Results:
    """Functions of rows: the entry of each, the number of the copy of it, and the values."""

    rows: Array
    copies: Array
    values: ArrowValues

    def chosen(self, rows: Array) -> _Results:
        return _Results(self.rows[rows], self.copies[rows], self.values[rows])


@attrs.frozen(eq=False)
class _First:
    """Which rows are held of those of which ``least`` are asked for. They are the first ones, and all where there are fewer."""

    windows: WindowPartitions
    least: int

    @property
    def most(self) -> int:
        """How many rows of a partition are held at most; those that are equal to the last one cost nothing."""
        return self.least + _MORE

    def place(self, row: Row) -> Any:
        """Return what the rows of a partition are sorted by."""
        return self.windows.place(row)

    def front(self, entries: Entries, most: int) -> Counts | None:
        """Return the first ``most`` rows of each partition after a change; ``None`` where rows have to be gone through."""
        made = self.windows.sorted(entries)
        if made is None:
            return None
        counts = entries.after[made.order]
        passed, sizes = counts.clip(0).cumsum() - counts.clip(0), np.diff(np.append(made.partitions, len(counts)))
        chosen = np.flatnonzero((counts != 0) & (passed - passed[made.partitions].repeat(sizes) < most))
        rows = np.sort(made.order[chosen])
        return dict(zip(entries.rows(rows).reader()[:], entries.after[rows].tolist(), strict=True))  # type: ignore[arg-type]

    def rows(self, before: Counts, after: Counts) -> Counts | None:
        """Return the rows that are held after a change of those that were; ``None`` where too few are left."""
        held: dict[Row, int] = {}
        for rows in self.windows.partitions({**before, **after}).values():
            there, left = [row for row in rows if before.get(row, 0) > 0], self.most
            if sum([before[row] for row in there]) >= self.least:
                rows = rows[: rows.index(there[-1]) + 1]
                if sum([max(after.get(row, 0), 0) for row in rows]) < self.least:
                    return None
            for row in rows:
                count = after.get(row, 0)
                if count < 0 or (count and left > 0):  # below zero, of one that goes before it comes
                    held[row] = count
                    left -= max(count, 0)
        return held

    def columns(self, entries: Entries, whole: Array) -> Array | None:
        """Have those entries count that are held, of ``whole`` numbers from all; return the numbers of which too few are left."""
        made = self.windows.sorted(entries)
        if made is None:
            return None
        order, starts = made.order, made.partitions
        before, places = entries.before[order].clip(0), np.arange(len(order))
        if not len(order):
            return order
        of_partition = np.arange(len(starts)).repeat(np.diff(np.append(starts, len(order))))
        last = np.maximum.reduceat(np.where(before > 0, places, -1), starts)
        complete = np.isin(entries.numbers[order[starts]], whole) | (np.add.reduceat(before, starts) < self.least)
        counts = np.where(complete[of_partition] | (places <= last[of_partition]), entries.after[order], 0)
        after = counts.clip(0)
        short = ~complete & (np.add.reduceat(after, starts) < self.least)
        if short.any():
            return np.unique(entries.numbers[order[starts[short]]])
        passed = after.cumsum() - after
        entries.after[order] = np.where(passed - passed[starts][of_partition] < self.most, counts, counts.clip(max=0))
        return order[:0]
