"""Windows of sessions: rows of a key, each at most a gap after another.

Rows are held by a number of their key, which other keys may have too: the rows of a number are always told apart by their keys.
A change costs a pass over the rows of its number, of which columns are read alone that sessions depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, route, route_column
from timely.dataflow.containers.keys import combined
from timely.differential.collections import Collection
from timely.differential.operators.arrangement import pact_for, register_trace
from timely.differential.operators.reductions import Restored
from timely.differential.operators.scope_times import bounds_in, due_in
from timely.differential.tables.expressions.column_compiler import Expressions, column_of
from timely.differential.tables.expressions.column_stages import staged
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.time_windows import Axis, TimeSpan
from timely.differential.tables.values.kinds import Column
from timely.differential.trace.deltas import Delta
from timely.differential.trace.entries import accumulate
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace, delta_of
from timely.differential.updates.int_columns import LARGE, Array, each_once, order_and_starts
from timely.differential.updates.row_columns import ArrowValues, Fixed, KeyedRows, LazyColumn, RowColumns, together
from timely.differential.updates.updates import Update, consolidate
from timely.errors import RoutingError
from timely.operators.generic import unary_frontier
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.keyed.sorted_keys import group_starts
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state


@attrs.frozen
class Sessions:
    """What sessions are of: rows of these ``columns`` with an equal key, at most ``gap`` after each other."""

    axis: Axis
    gap: TimeSpan
    key: Callable[[Row], Row]
    key_columns: Expressions | None
    """The parts of the key as columns, where there are kernels."""

    columns: Sequence[Column]

    def changes(self, before: Mapping[Row, int], after: Mapping[Row, int]) -> Iterator[Update]:
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

    def _windows(self, rows: Sequence[tuple[Any, Row]], counts: Mapping[Row, int]) -> dict[Row, tuple[Any, Any]]:
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


def sessions(rows: Collection[Any, Row], of: Sessions) -> Collection[Any, Row]:
    """Return each row with the beginning and the end of its session."""
    moment, moment_columns, key_columns = of.axis.moment, of.axis.kernel, of.key_columns

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [((_number(of.key(row)), row), diff) for row, diff in updates if moment(row) is not None]

    def by_columns(table: RowColumns) -> KeyedRows | None:
        moments = None if moment_columns is None else moment_columns(table)
        if moments is None or key_columns is None:
            return None
        if moments[0].null_count:
            table = table.chosen(np.flatnonzero(moments[0].is_valid().to_numpy(zero_copy_only=False)))
        keys = key_columns(table)
        numbers = None if keys is None else _numbers(keys, len(table))
        return None if numbers is None else KeyedRows(numbers, table)

    numbered = staged(rows, "number of a key", by_rows, by_columns)
    if rows.scope.subgraph.domain.total:
        return Collection(_session_stream(numbered.stream, of))
    return numbered.reduce(lambda _, counts: of.changes({}, dict(counts)), name="sessions").map(itemgetter(1))


_BITS: Final = (1 << 62) - 1


def _number(key: Row) -> int:
    return route(key[0] if len(key) == 1 else key) & _BITS


def _numbers(keys: Sequence[Any], rows: int) -> Array | None:
    """Return what ``_number`` does of each row; ``None`` where a column has lists or the like."""
    if not keys:
        return np.full(rows, _number(()))
    try:
        parts = [route_column(key.array() if isinstance(key, Fixed) else key) for key in keys]
    except RoutingError:
        return None
    numbers: Array = (parts[0] if len(parts) == 1 else combined(parts)) & _BITS
    return numbers.astype(np.int64, copy=False)


def _session_stream(stream: Stream[Any, Any], of: Sessions) -> Stream[Any, Any]:
    """Return the changes of rows with their windows; times of the scope have a total order."""
    times, due = bounds_in(stream.scope), due_in(stream.scope)

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        pending: Pending[Any, tuple[Capability[Any], list[Any]]] = Pending(total=True)
        ports: list[InputPort[Any, Update]] = []
        now: list[Any] = []

        def upper() -> list[Any]:
            return [*ports[0].elements, *pending.minimum(), *now] if ports else [times.domain.minimum]

        trace: Trace[Any] = Trace(times, True, upper)
        changes = _Changes(of, trace)

        def save() -> Iterator[Restored]:
            for time, (_, waiting) in pending.items():
                for record, diff in chain.from_iterable(waiting):
                    yield Restored(record[0], time, (record, diff))

        def load(items: Iterable[Restored]) -> None:
            for _, time, update in items:
                pending.at(time, lambda: (capability.delayed(time), []))[1].append([update])  # noqa: B023  # called at once

        register_trace(info, trace, None)
        register_keyed_state(info, save, load, lambda item: key_route(None)(item.key))
        info.describe(trace.size)

        def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> bool:
            if not ports:
                ports.append(input)
            appended = 0
            for held, batch in input:
                pending.at(held.time, lambda: (held.retain(), []))[1].append(batch)  # noqa: B023  # called at once

            def ready(time: Any) -> bool:
                if due(time, input.elements):
                    return True
                waiting = sum(map(len, pending[time][1]))
                return trace.has_limit and waiting > trace.limits.delta and [*input.elements] == [time]

            for time, (taken, batches) in pending.take(ready):
                now[:] = [time]
                with output.session(taken) as session:
                    for container in changes.of(time, batches):
                        if len(container):
                            session.give_batch(container)
                taken.drop()
                appended += sum(map(len, batches))
            now.clear()
            return trace.maintain(appended)

        return guarded(info, logic, trace.size)

    return unary_frontier(stream, pact_for(True, None), "sessions", constructor)


class _Changes:
    """What changes of rows change in their windows; the rows are in a trace, by the number of their key."""

    def __init__(self, of: Sessions, trace: Trace[Any]) -> None:
        self._of = of
        self._trace = trace

    def of(self, time: Any, batches: Sequence[Any]) -> Iterator[Any]:
        """Append batches at a time that no later batch comes before, and yield how windows change.

        Where memory is limited they are done in portions, each of which changes what those before it have made.
        """
        trace = self._trace
        most = max(trace.limits.reduced // trace.entries_per_key(), 1) if trace.has_limit else None
        for portion in [batches] if most is None else _portions(batches, most):
            arrow = all(isinstance(batch, KeyedRows) for batch in portion)
            many = trace.limits.columns // 4 if arrow else trace.limits.columns  # 100 of Arrow take 11 ms by rows, 2 by columns
            tables = self._as_tables(portion) if sum(map(len, portion)) >= many else None
            changes = None if tables is None else self._by_columns(tables)
            deltas: Iterable[Delta[Any]]
            if tables is None or changes is None:
                updates = consolidate(chain.from_iterable(portion))
                yield self._by_rows(time, updates)
                deltas = trace.deltas(time, [updates])
            else:
                yield from changes
                deltas = (delta_of(table.ordered(), time) for table in tables)
            for delta in deltas:
                trace.append(time, delta)

    def _by_rows(self, time: Any, updates: Iterable[Update]) -> list[Update]:
        by_number: dict[int, list[Update]] = {}
        for (number, row), diff in updates:
            by_number.setdefault(number, []).append((row, diff))
        changes: list[Update] = []
        for number, diffs in by_number.items():
            before = accumulate(self._trace.history(number), time)
            after = before.copy()
            for row, diff in diffs:
                after[row] = after.get(row, 0) + diff
            changes += self._of.changes(before, after)
        return changes

    # -- columns ---------------------------------------------------------------------------------------------------

    def _as_tables(self, batches: Iterable[Any]) -> list[KeyedRows] | None:
        """Return updates as columns, ``None`` where some have values that go by rows."""
        tables = []
        by_diff: dict[int, list[Any]] = {}
        for batch in batches:
            if isinstance(batch, KeyedRows):
                tables.append(batch)
                continue
            for pair, diff in batch:
                by_diff.setdefault(diff, []).append(pair)
        for diff, pairs in by_diff.items():
            columns = self._as_columns([row for _, row in pairs])
            if columns is None:
                return None
            numbers = np.array([number for number, _ in pairs], np.int64)
            tables.append(KeyedRows(numbers, RowColumns(columns, len(pairs), diff)))
        return None if any(abs(table.table.diff) >= LARGE for table in tables) else list(together(tables))

    def _as_columns(self, rows: Sequence[Row]) -> tuple[LazyColumn, ...] | None:
        """Return rows as columns that kernels expect."""
        try:
            made = [column_of(column.kind, values) for column, values in zip(self._of.columns, zip(*rows))]
        except (NoKernel, OverflowError, pa.ArrowException):
            return None
        return tuple(map(LazyColumn, made))

    def _by_columns(self, tables: Sequence[KeyedRows]) -> list[RowColumns] | None:
        """Return how windows change; ``None`` where rows have to be gone through."""
        trace = self._trace
        each = each_once(np.concatenate([table.keys for table in tables]))
        matches = trace.matches(each, trace.number, set())
        loose = self._as_tables([[((key, row), diff) for key, rows in matches.loose.items() for row, _, diff in rows]])
        if loose is None:
            return None
        parts: list[tuple[Array, ArrowValues, Array]] = []
        for some, chunk in matches.chunks:
            index, rows = chunk.select(each[some])
            values: Any = chunk.values
            parts.append((each[some][index], values[rows], chunk.row_diffs()[rows]))
        for more in (*loose, *tables):
            parts.append((more.keys, ArrowValues(more.table.columns, len(more)), np.full(len(more), more.table.diff)))
        numbers, held, diffs = zip(*parts, strict=True)
        if len({each.kind for each in held}) > 1:
            return None
        after = np.concatenate(diffs)
        before = after.copy()
        before[-sum(map(len, tables)) :] = 0
        return _Entries(np.concatenate(numbers), held, before, after).changes(self._of)


def _portions(batches: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Return batches in parts of at most so many updates."""
    for batch in batches:
        part = batch.__getitem__ if isinstance(batch, list) else batch.chosen
        for start in range(0, len(batch), most):
            yield [part(slice(start, min(start + most, len(batch))))]


@attrs.frozen(eq=False)
class _Entries:
    """Entries of some keys, in several parts, and the counts of their rows before and after a change."""

    numbers: Array
    parts: Sequence[ArrowValues]
    before: Array
    after: Array

    def _rows(self, rows: Array) -> ArrowValues:
        """Return some of the rows, by ascending number."""
        ends = np.cumsum([0, *map(len, self.parts)])
        bounds = rows.searchsorted(ends)
        pieces = zip(self.parts, ends.tolist(), bounds[:-1].tolist(), bounds[1:].tolist())
        first, *more = [part[rows[start:end] - before] for part, before, start, end in pieces if start < end]
        return first.concatenated(more)

    def _read(self, kernel: Expressions) -> ArrowValues | None:
        """Return the columns of expressions."""
        read = []
        for part in self.parts:
            columns = kernel(RowColumns(part.columns, len(part)))
            if columns is None:
                return None
            read.append(ArrowValues(tuple(map(LazyColumn, columns)), len(part)))
        return read[0].concatenated(read[1:])

    def _sum_up(self) -> None:
        """Have one entry of equal rows count for all, where some may cancel."""
        if (self.after >= 0).all():
            return
        some = np.flatnonzero(np.isin(self.numbers, self.numbers[self.after < 0]))
        order, starts = order_and_starts([self.numbers[some], *self._rows(some).numbers()])
        for counts in (self.before, self.after):
            sums = np.add.reduceat(counts[some][order], starts)
            counts[some] = 0
            counts[some[order[starts]]] = sums

    def changes(self, of: Sessions) -> list[RowColumns] | None:
        """Return the changes of rows with their windows; ``None`` where moments are too far from others."""
        assert of.axis.kernel is not None and of.key_columns is not None
        moments, keys = self._read(of.axis.kernel), self._read(of.key_columns)
        if moments is None or keys is None:
            return None
        axis = of.axis.numbers(moments.columns[0].get())
        length = of.gap.delta // of.axis.unit
        if not axis.has_room(0, length):
            return None
        self._sum_up()
        codes = keys.numbers() or [self.numbers]
        order = order_and_starts([*codes, axis.at])[0]
        old, new = (_windows(counts, order, codes, axis.at, length) for counts in (self.before, self.after))
        gone, come = self.before.clip(0), self.after.clip(0)
        same = np.where((old == new).all(axis=0), np.minimum(gone, come), 0)
        changes = []
        for counts, windows, sign in ((gone - same, old, -1), (come - same, new, 1)):
            for count in np.unique(counts[counts > 0]).tolist():
                rows = np.flatnonzero(counts == count)
                ends = (LazyColumn(axis.column(side[rows])) for side in windows)
                changes.append(RowColumns((*self._rows(rows).columns, *ends), len(rows), sign * count))
        return changes


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
