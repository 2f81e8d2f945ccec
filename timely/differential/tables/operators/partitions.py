"""Partitions of rows: what is made of the rows of a key changes when one of them does, and for no other key.

Rows are held by a number of their key, which other keys may have too: the rows of a number are always told apart by their keys.
A change costs a pass over the rows of its number, of which columns are read alone that the result depends on. Where the first
rows of each partition are enough, a few more of these are held besides, and the others are read only when too many of them left.
Of a partition that this befalls, so many that come next are held in their order, each time twice as many as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Protocol

import attrs
import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, route, route_column
from timely.dataflow.containers.keys import combined
from timely.differential.collections import Collection
from timely.differential.operators.arrangement import pact_for, register_trace
from timely.differential.operators.reductions import Restored
from timely.differential.operators.scope_times import bounds_in, due_in
from timely.differential.tables.expressions.column_compiler import Expressions, column_of
from timely.differential.tables.expressions.column_stages import staged
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.values.kinds import Column
from timely.differential.trace.entries import accumulate
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace, delta_of
from timely.differential.updates.int_columns import LARGE, Array, each_once, order_and_starts
from timely.differential.updates.row_columns import ArrowValues, Fixed, KeyedRows, LazyColumn, RowColumns, together
from timely.differential.updates.updates import Update, consolidate
from timely.errors import RoutingError
from timely.memory import MemoryBudget
from timely.operators.generic import unary_frontier
from timely.operators.keyed.column_kernels import NoKernel
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, register_keyed_state

Counts = Mapping[Row, int]

_READ: Final = 16
"""Rows of columns that are read in the time in which one goes by rows."""

_RESERVES: Final = 1_000
"""Partitions of which the next rows are held too."""


class Partitioning(Protocol):
    """What is made of the rows of partitions, by rows and by columns."""

    @property
    def name(self) -> str:
        """The name of the operator."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns of the rows."""

    @property
    def key(self) -> Callable[[Row], Row]:
        """What rows of a partition have in common."""

    @property
    def key_columns(self) -> Expressions | None:
        """The parts of the key as columns, where there are kernels."""

    def changes(self, before: Counts, after: Counts) -> Iterable[Update]:
        """Return how results change, where rows are there so often before and after."""

    def column_changes(self, entries: Entries) -> list[RowColumns] | None:
        """Return the same of columns; ``None`` where rows have to be gone through."""


class FirstRows(Protocol):
    """Which first rows of partitions are held: at least so many where there are as many, and none that comes after ``most``."""

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...

    def place(self, row: Row) -> Any:
        """Return what the rows of a partition are sorted by."""

    def front(self, entries: Entries, most: int) -> Counts | None:
        """Return the first ``most`` rows of each partition, as they are after a change, ``None`` where they go by rows."""

    def rows(self, before: Counts, after: Counts) -> Counts | None:
        """Return the rows that are held after a change of those that were; ``None`` where too few are left."""

    def columns(self, entries: Entries, whole: Array) -> Array | None:
        """Have those entries count that are held, of ``whole`` numbers from all; return the numbers of which too few are left.

        ``None`` where rows have to be gone through.
        """


def held_together(rows: Collection[Any, Row]) -> bool:
    """Return whether what is made of a partition is made of columns: times have one order, and memory no limit."""
    return rows.scope.subgraph.domain.total and MemoryBudget.current().limit is None


def partitioned(
    rows: Collection[Any, Row], of: Partitioning, first: FirstRows | None = None, *, grows: bool = False
) -> Collection[Any, Row]:
    """Return what is made of the partitions of rows, or of the first rows of each; where none leaves, no others are held."""
    key_columns = of.key_columns

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [((_number(of.key(row)), row), diff) for row, diff in updates]

    def by_columns(table: RowColumns) -> KeyedRows | None:
        keys = None if key_columns is None else key_columns(table)
        numbers = None if keys is None else _numbers(keys, len(table))
        return None if numbers is None else KeyedRows(numbers, table)

    numbered = staged(rows, "number of a key", by_rows, by_columns)
    if held_together(rows):
        return Collection(_stream(numbered.stream, of, first, grows))
    return numbered.reduce(lambda _, counts: of.changes({}, dict(counts)), name=of.name).map(itemgetter(1))


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


def _stream(stream: Stream[Any, Any], of: Partitioning, first: FirstRows | None, grows: bool) -> Stream[Any, Any]:
    """Return the changes of what is made of partitions; times of the scope have a total order."""
    times, due = bounds_in(stream.scope), due_in(stream.scope)

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        pending: Pending[Any, tuple[Capability[Any], list[Any]]] = Pending(total=True)
        ports: list[InputPort[Any, Update]] = []
        now: list[Any] = []

        def upper() -> list[Any]:
            return [*ports[0].elements, *pending.minimum(), *now] if ports else [times.domain.minimum]

        trace: Trace[Any] = Trace(times, True, upper)
        firsts: Trace[Any] = trace if first is None or grows else Trace(times, True, upper)
        changes = _Changes(of, first, trace, firsts)

        def save() -> Iterator[Restored]:
            for time, (_, waiting) in pending.items():
                for record, diff in chain.from_iterable(waiting):
                    yield Restored(record[0], time, (record, diff))

        def load(items: Iterable[Restored]) -> None:
            for _, time, update in items:
                pending.at(time, lambda: (capability.delayed(time), []))[1].append([update])  # noqa: B023  # called at once

        register_trace(info, trace, None)
        if firsts is not trace:
            register_trace(info, firsts, None)
        register_keyed_state(info, save, load, lambda item: key_route(None)(item.key))
        info.describe(trace.size)

        def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> bool:
            if not ports:
                ports.append(input)
            appended = 0
            for held, batch in input:
                pending.at(held.time, lambda: (held.retain(), []))[1].append(batch)  # noqa: B023  # called at once

            for time, (taken, batches) in pending.take(lambda time: due(time, input.elements)):
                now[:] = [time]
                with output.session(taken) as session:
                    for container in changes.of(time, batches):
                        if len(container):
                            session.give_batch(container)
                taken.drop()
                appended += sum(map(len, batches))
            now.clear()
            left = trace.maintain(appended)
            return (firsts is not trace and firsts.maintain(appended)) or left

        return guarded(info, logic, trace.size)

    return unary_frontier(stream, pact_for(True, None), of.name, constructor)


@attrs.define(eq=False)
class _Reserve:
    """The rows of a partition that come next to those held, up to the place ``end``, or all: with their counts, by place."""

    key: Row
    size: int
    end: Any
    counts: SortedDict = attrs.Factory(SortedDict)

    def add(self, row: Row, place: Any, diff: int) -> bool:
        """Add a change of a row; return whether its count is not negative."""
        if self.end is not None and place > self.end:
            return True
        count = self.counts.pop(place, (row, 0))[1] + diff
        if count:
            self.counts[place] = row, count
        if len(self.counts) > 2 * self.size:  # rows came before the end: those far behind are read again when they are near
            while len(self.counts) > self.size:
                self.counts.popitem()
            self.end = self.counts.peekitem()[0]
        return bool(count >= 0)

    def take(self, first: FirstRows, after: Counts, held: Counts) -> bool:
        """Add the rows that are not held after a change, and leave those that are; return whether no count is negative."""
        moved = {row: after.get(row, 0) - held.get(row, 0) for row in {**after, **held}}
        return all(self.add(row, first.place(row), count) for row, count in moved.items() if count)


class _Changes:
    """What changes of rows change; the rows are in a trace, by the number of their key, and the first ones in another."""

    def __init__(self, of: Partitioning, first: FirstRows | None, trace: Trace[Any], firsts: Trace[Any]) -> None:
        self._of = of
        self._first = first
        self._trace = trace
        self._firsts = firsts
        self._reserves: dict[int, _Reserve] = {}

    def of(self, time: Any, batches: Sequence[Any]) -> Iterator[Any]:
        """Append batches at a time that no later batch comes before, and yield how results change."""
        trace = self._trace
        arrow = all(isinstance(batch, KeyedRows) for batch in batches)
        many = trace.limits.columns // 4 if arrow else trace.limits.columns  # 100 of Arrow take 11 ms by rows, 2 by columns
        count, each = sum(map(len, batches)), self._firsts.entries_per_key()
        tables = self._as_tables(batches) if count >= many or count * each >= _READ * many else None
        changes = None if tables is None else self._by_columns(time, tables)
        appended: Sequence[Any] = tables or ()
        if changes is None:
            appended = [consolidate(chain.from_iterable(batches))]
            yield self._by_rows(time, appended[0])
        else:
            yield from changes
        if self._first is None or trace is not self._firsts:
            _append(trace, time, appended)

    def _by_rows(self, time: Any, updates: Iterable[Update]) -> list[Update]:
        """Return how results change."""
        by_number: dict[int, list[Update]] = {}
        for (number, row), diff in updates:
            by_number.setdefault(number, []).append((row, diff))
        changes: list[Update] = []
        moved: list[Update] = []
        for number, diffs in by_number.items():
            before = accumulate(self._firsts.history(number), time)
            if self._first is None:
                after = _changed(before, diffs)
            else:
                held = self._first_rows(self._first, time, number, before, diffs)
                counts = {row: held.get(row, 0) - before.get(row, 0) for row in {**before, **held}}
                moved += [((number, row), count) for row, count in counts.items() if count]
                after = held
            if after != before:
                changes += self._of.changes(before, after)
        if moved:
            _append(self._firsts, time, [moved])
        return changes

    def _first_rows(self, first: FirstRows, time: Any, number: int, before: Counts, diffs: Sequence[Update]) -> Counts:
        """Return the rows of a number that are held after changes of those held before, and of others."""
        place, reserve = first.place, self._reserves.pop(number, None)
        if (
            reserve is not None
            and sum(before.values()) >= first.least
            and all(self._of.key(row) == reserve.key for row, _ in diffs)
        ):
            last = max(place(row) for row, count in before.items() if count > 0)
            after = _changed(before, [update for update in diffs if not place(update[0]) > last])  # keys have no <=
            known = all(reserve.add(row, place(row), diff) for row, diff in diffs if place(row) > last)
            held = first.rows(before, after)
            if held is None and known and (reserve.end is None or len(reserve.counts) >= first.most):
                held = first.rows({}, _changed(after, islice(reserve.counts.values(), first.most)))
            if held and known and reserve.take(first, after, held):  # a partition that has ended has none
                self._reserves[number] = reserve
        else:
            after = _changed(before, diffs)
            held = first.rows(before, after)
        if held is None:
            size = 4 * first.most if reserve is None else 2 * reserve.size
            front = self._front(first, time, number, diffs, size)
            held = first.rows({}, front)
            assert held is not None
            keys = {self._of.key(row) for row in front}
            if held and len(keys) == 1 and len(self._reserves) < _RESERVES:
                reserve = _Reserve(keys.pop(), size, max(map(place, front)) if sum(front.values()) >= size else None)
                if reserve.take(first, front, held):
                    self._reserves[number] = reserve
        return held

    def _front(self, first: FirstRows, time: Any, number: int, diffs: Sequence[Update], size: int) -> Counts:
        """Return the first rows of each partition of a number after changes: ``size``, or all."""
        counts = None
        if self._trace.entries_per_key() >= self._trace.limits.columns:
            new = self._as_tables([[((number, row), diff) for row, diff in diffs]])
            short = np.array([number])
            rest = None if new is None else self._held(self._trace, short)
            entries = None if rest is None or new is None else _entries((), list(map(_part_of, new)), rest, short)
            counts = None if entries is None else first.front(entries, size)
        return _changed(accumulate(self._trace.history(number), time), diffs) if counts is None else counts

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

    def _held(self, trace: Trace[Any], each: Array) -> list[_Part] | None:
        """Return the entries of numbers, ``None`` where some have values that go by rows."""
        matches = trace.matches(each, trace.number, set())
        loose = self._as_tables([[((key, row), diff) for key, rows in matches.loose.items() for row, _, diff in rows]])
        if loose is None:
            return None
        parts = []
        for some, chunk in matches.chunks:
            index, rows = chunk.select(each[some])
            values: Any = chunk.values
            parts.append(_Part(each[some][index], values[rows], chunk.row_diffs()[rows]))
        return parts + list(map(_part_of, loose))

    def _by_columns(self, time: Any, tables: Sequence[KeyedRows]) -> Sequence[RowColumns] | None:
        """Return how results change; ``None`` where rows have to be gone through."""
        each = each_once(np.concatenate([table.keys for table in tables]))
        if self._reserves:
            for number in each.tolist():
                self._reserves.pop(number, None)
        held, new, first = self._held(self._firsts, each), list(map(_part_of, tables)), self._first
        entries = None if held is None else _entries(held, new)
        if held is None or entries is None or first is None:
            return None if entries is None else self._of.column_changes(entries)
        short = first.columns(entries, each[:0])
        if short is not None and len(short):
            rest = self._held(self._trace, short)
            entries = None if rest is None else _entries(held, new, rest, short)
            short = None if entries is None else first.columns(entries, short)
        if short is None or entries is None:
            return None
        changes = self._of.column_changes(entries)
        if changes is not None:
            _append(self._firsts, time, entries.moved())
        return changes


def _changed(counts: Counts, diffs: Iterable[Update]) -> Counts:
    after = dict(counts)
    for row, diff in diffs:
        after[row] = after.get(row, 0) + diff
    return after


def _append(trace: Trace[Any], time: Any, batches: Sequence[Any]) -> None:
    arrow = all(isinstance(batch, KeyedRows) for batch in batches)
    for delta in [delta_of(batch.ordered(), time) for batch in batches] if arrow else trace.deltas(time, batches):
        trace.append(time, delta)


@attrs.frozen(eq=False)
class _Part:
    """Some entries: rows by the numbers of their keys, each with its difference."""

    numbers: Array
    values: ArrowValues
    diffs: Array


def _part_of(table: KeyedRows) -> _Part:
    return _Part(table.keys, ArrowValues(table.table.columns, len(table)), np.full(len(table), table.table.diff))


def _entries(
    held: Sequence[_Part], new: Sequence[_Part], rest: Sequence[_Part] = (), short: Array | None = None
) -> Entries | None:
    """Return entries that are held, and new ones; of ``short`` numbers the ``rest`` counts for what is held."""
    parts = [*held, *rest, *new]
    if len({part.values.kind for part in parts}) > 1:
        return None
    numbers, after = (np.concatenate(arrays) for arrays in zip(*((part.numbers, part.diffs) for part in parts)))
    before, count = after.copy(), sum(len(part.numbers) for part in held)
    before[count:] = 0
    if short is not None:
        after[:count][np.isin(numbers[:count], short)] = 0
    entries = Entries(numbers, [part.values for part in parts], before, after)
    negative = numbers[after < 0]
    entries.sum_up(negative if short is None else np.concatenate((negative, short)))
    return entries


@attrs.frozen(eq=False)
class Entries:
    """Entries of some keys, in several parts, and the counts of their rows before and after a change."""

    numbers: Array
    parts: Sequence[ArrowValues]
    before: Array
    after: Array

    def rows(self, rows: Array) -> ArrowValues:
        """Return some of the rows, by ascending number."""
        ends = np.cumsum([0, *map(len, self.parts)])
        bounds = rows.searchsorted(ends)
        pieces = zip(self.parts, ends.tolist(), bounds[:-1].tolist(), bounds[1:].tolist())
        first, *more = [part[rows[start:end] - before] for part, before, start, end in pieces if start < end] or [
            self.parts[0][:0]
        ]
        return first.concatenated(more)

    def read(self, kernel: Expressions) -> ArrowValues | None:
        """Return the columns of expressions."""
        read = []
        for part in self.parts:
            columns = kernel(RowColumns(part.columns, len(part)))
            if columns is None:
                return None
            read.append(ArrowValues(tuple(map(LazyColumn, columns)), len(part)))
        return read[0].concatenated(read[1:]) if len({each.kind for each in read}) == 1 else None

    def sum_up(self, numbers: Array) -> None:
        """Have one entry of equal rows count for all, of some numbers: some may cancel."""
        some = np.flatnonzero(np.isin(self.numbers, numbers))
        if not len(some):
            return
        order, starts = order_and_starts([self.numbers[some], *self.rows(some).numbers()])
        for counts in (self.before, self.after):
            sums = np.add.reduceat(counts[some][order], starts)
            counts[some] = 0
            counts[some[order[starts]]] = sums

    def moved(self) -> list[KeyedRows]:
        """Return how the rows change."""
        changed = self.after - self.before
        return [
            KeyedRows(self.numbers[rows], RowColumns(self.rows(rows).columns, len(rows), diff))
            for diff in np.unique(changed[changed != 0]).tolist()
            for rows in [np.flatnonzero(changed == diff)]
        ]
