"""Rows of a trace as columns of Arrow: batches that are sorted by a key that is a whole number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from timely.differential.row_columns import Array, Columns, Fixed, KeyedRows, LazyColumn, RowColumns, reader


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

    def __len__(self) -> int:
        return int(self.offsets[-1])

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


def can_merge(one: RowBatch, other: RowBatch) -> bool:
    """Return whether two batches can be merged."""
    return one.time == other.time and one.diff == other.diff and _types(one) == _types(other)


def _types(batch: RowBatch) -> list[Any]:
    columns = [column.get() for column in batch.columns]
    return [("decimal", column.scale) if isinstance(column, Fixed) else column.type for column in columns]


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Fixed):
        return Fixed(pa.concat_arrays([part.numbers for part in parts]), parts[0].scale)
    return pa.concat_arrays(parts)
