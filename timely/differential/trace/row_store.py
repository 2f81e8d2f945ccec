"""Rows of a trace as columns of Arrow: batches that are sorted by a key that is a whole number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from timely.differential.updates.row_columns import Array, Columns, Fixed, KeyedRows, LazyColumn, RowColumns, reader


class RowBatch:
    """Rows at one time, each with one difference. Those of ``keys[i]`` stand from ``offsets[i]`` to ``offsets[i + 1]``."""

    __slots__ = ("_keys", "_readers", "columns", "diff", "keys", "number", "offsets", "time")

    def __init__(self, keyed: KeyedRows, number: int, time: Any) -> None:
        """Take updates in order of their keys, which came as delta ``number``."""
        starts = np.flatnonzero(keyed.keys[1:] != keyed.keys[:-1]) + 1
        self.offsets = np.concatenate((np.zeros(1, np.int64), starts, np.array([len(keyed)] * bool(len(keyed)), np.int64)))
        self.keys = keyed.keys[self.offsets[:-1]]
        self.columns: Columns = tuple(LazyColumn(column.get()) for column in keyed.table.columns)
        self.diff = keyed.table.diff
        self.number = number
        self.time = time
        self._keys: Any = None
        self._readers: list[Callable[[int], Any]] = []

    @classmethod
    def of(cls, keys: Array, offsets: Array, columns: Columns, diff: int, number: int, time: Any) -> RowBatch:
        """Return a batch of what a batch has."""
        batch = cls.__new__(cls)
        batch.keys, batch.offsets, batch.columns, batch.diff, batch.number, batch.time = (
            keys,
            offsets,
            columns,
            diff,
            number,
            time,
        )
        batch._keys = None
        batch._readers = []
        return batch

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def count_keys(self) -> int:
        """Return the number of keys."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """The bytes of its columns."""
        columns = (column.get() for column in self.columns)
        numbers = (column.numbers if isinstance(column, Fixed) else column for column in columns)
        return int(self.keys.nbytes + self.offsets.nbytes + sum(column.nbytes for column in numbers))

    @property
    def types(self) -> list[Any]:
        """The types of its columns."""
        columns = [column.get() for column in self.columns]
        return [("decimal", column.scale) if isinstance(column, Fixed) else column.type for column in columns]

    def cut(self, first: int, last: int) -> RowBatch:
        """Return the rows of ``keys[first:last]``."""
        start, end = int(self.offsets[first]), int(self.offsets[last])
        columns = tuple(LazyColumn(_sliced(column.get(), start, end)) for column in self.columns)
        offsets = self.offsets[first : last + 1] - start
        return RowBatch.of(self.keys[first:last], offsets, columns, self.diff, self.number, self.time)

    def pieces(self, rows: int) -> Iterator[RowBatch]:
        """Return it in ranges of keys with about so many rows each."""
        first = 0
        while first < len(self.keys):
            row = int(self.offsets[first]) + rows
            last = max(int(np.searchsorted(self.offsets, row, side="right")) - 1, first + 1)
            yield self.cut(first, last)
            first = last

    def near(self, keys: Array) -> Iterable[RowBatch]:
        """Return the parts that may have some of ``keys``: all of it."""
        return (self,)

    def keyed(self) -> KeyedRows:
        """Return the updates, in order of their keys."""
        keys = self.keys if len(self.keys) == len(self) else np.repeat(self.keys, np.diff(self.offsets))
        return KeyedRows(keys, RowColumns(self.columns, len(self), self.diff))

    def places(self, key: Any) -> range:
        """Return the numbers of the rows of a key."""
        if type(key) is not int:
            return range(0)
        if self._keys is None:
            self._keys = memoryview(np.ascontiguousarray(self.keys))  # type: ignore[arg-type]
        keys = self._keys
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return range(0)
        return range(int(self.offsets[place]), int(self.offsets[place + 1]))

    def row(self, place: int) -> tuple[Any, ...]:
        """Return one row."""
        if not self._readers:
            self._readers = [reader(column.get()) for column in self.columns]
        return tuple([read(place) for read in self._readers])

    def lookup(self, key: Any, found: list[Any]) -> None:
        """Append the entries of one key."""
        for place in self.places(key):
            found.append((self.row(place), self.time, self.diff))

    def without(self, keys: Array) -> RowBatch:
        """Return the batch without some keys."""
        keyed = self.keyed()
        return RowBatch(keyed.chosen(np.flatnonzero(~np.isin(keyed.keys, keys))), self.number, self.time)


class RowDelta(KeyedRows):
    """The updates that a trace has appended as number ``number``, in order of their keys; ``rows_by_key`` has them by key."""

    __slots__ = ("number", "rows_by_key")

    def __init__(self, batch: RowBatch) -> None:
        keyed = batch.keyed()
        super().__init__(keyed.keys, keyed.table)
        self.number = batch.number
        self.rows_by_key = batch


def merged(one: RowBatch, other: RowBatch) -> RowBatch:
    """Return two batches of one time and one difference as one."""
    parts = one.keyed(), other.keyed()
    keys = np.concatenate([part.keys for part in parts])
    columns = tuple(
        LazyColumn(_joined([first.get(), second.get()])) for first, second in zip(one.columns, other.columns, strict=True)
    )
    keyed = KeyedRows(keys, RowColumns(columns, len(keys), one.diff)).ordered()
    return RowBatch(keyed, max(one.number, other.number), one.time)


def can_merge(one: Any, other: Any) -> bool:
    """Return whether two batches can be merged."""
    return bool(one.time == other.time) and bool(one.diff == other.diff and one.types == other.types)


def _sliced(column: Any, start: int, end: int) -> Any:
    if isinstance(column, Fixed):
        return Fixed(column.numbers.slice(start, end - start), column.scale)
    return column.slice(start, end - start)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Fixed):
        return Fixed(pa.concat_arrays([part.numbers for part in parts]), parts[0].scale)
    return pa.concat_arrays(parts)
