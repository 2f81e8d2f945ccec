"""``ArrowValues``: the values of a chunk that are rows, as columns of Arrow. It imports PyArrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from timely.differential.trace.chunk import Chunk
from timely.differential.trace.deltas import Partner, Row, RowDelta
from timely.differential.updates.int_columns import Array
from timely.differential.updates.row_columns import (
    Columns,
    Fixed,
    KeyedRows,
    LazyColumn,
    RowColumns,
    reader,
    rows_at,
    values_of,
)
from timely.operators.keyed.column_numbers import canonical_column

T = TypeVar("T")

_FEW = 16
"""Up to here the rows of a key are read one by one: measured, a slice of each column costs as much as 15 rows."""


@final
class ArrowValues:
    """So many rows of columns."""

    __slots__ = ("_count", "columns")

    def __init__(self, columns: Columns, count: int) -> None:
        self.columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[object, ...]:
        columns = [column.get() for column in self.columns]
        arrays = [column.numbers if isinstance(column, Fixed) else column for column in columns]
        batch = pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])
        return _unpickled, (batch, [column.scale if isinstance(column, Fixed) else None for column in columns], self._count)

    @property
    def nbytes(self) -> int:
        """The bytes of the columns."""
        columns = (column.get() for column in self.columns)
        return sum((column.numbers if isinstance(column, Fixed) else column).nbytes for column in columns)

    @property
    def kind(self) -> tuple[object, ...]:
        """The types of the columns."""
        columns = [column.get() for column in self.columns]
        return tuple([("decimal", column.scale) if isinstance(column, Fixed) else column.type for column in columns])

    def __getitem__(self, rows: slice | Array) -> ArrowValues:
        """Return some of the rows, by number; columns are made when they are first read."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self._count)
            columns = tuple([LazyColumn(_sliced(column.get(), start, stop)) for column in self.columns])
            return ArrowValues(columns, stop - start)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return ArrowValues(rows_at(self.columns, rows), len(rows))

    def loaded(self) -> ArrowValues:
        """Return the same rows, their columns made."""
        return ArrowValues(tuple([LazyColumn(column.get()) for column in self.columns]), self._count)

    def concatenated(self, more: Sequence[ArrowValues]) -> ArrowValues:
        """Return these rows and more."""
        parts = [self, *more]
        columns = [
            LazyColumn(_joined([column.get() for column in same])) for same in zip(*(part.columns for part in parts), strict=True)
        ]
        return ArrowValues(tuple(columns), sum(map(len, parts)))

    def numbers(self) -> list[Array]:
        """Return columns of numbers that are equal exactly where rows are."""
        return [_numbered(column.get()) for column in self.columns]

    def reader(self) -> Sequence[object]:
        """Return the rows as a sequence of tuples, made when they are read."""
        return _Reader([column.get() for column in self.columns], self._count)


def _unpickled(batch: pa.RecordBatch, scales: list[int | None], count: int) -> ArrowValues:
    columns = zip(batch.columns, scales, strict=True)
    return ArrowValues(tuple([LazyColumn(c if scale is None else Fixed(c, scale)) for c, scale in columns]), count)


class _Reader(Sequence[object]):
    """Rows of columns as tuples."""

    def __init__(self, columns: list[Any], count: int) -> None:
        self._columns = columns
        self._count = count
        self._readers: list[Callable[[int], Any]] = []

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self._count)
            if stop - start < _FEW:
                return [self[row] for row in range(start, stop)]
            slices = [values_of(_sliced(column, start, stop)) for column in self._columns]
            return list(zip(*slices, strict=True)) or [()] * (stop - start)
        if not self._readers:
            self._readers = [reader(column) for column in self._columns]
        return tuple([read(rows) for read in self._readers])


def _sliced(column: Any, start: int, stop: int) -> Any:
    if isinstance(column, Fixed):
        return Fixed(column.numbers.slice(start, stop - start), column.scale)
    return column.slice(start, stop - start)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Fixed):
        return Fixed(pa.concat_arrays([part.numbers for part in parts]), parts[0].scale)
    return pa.concat_arrays(parts)


def _numbered(column: Any) -> Array:
    """Return numbers that are equal where the values of a column are, as Python has them."""
    try:
        encoded = canonical_column(column.numbers if isinstance(column, Fixed) else column).dictionary_encode()
    except pa.ArrowNotImplementedError:
        places: dict[Any, int] = {}
        return np.array([places.setdefault(value, len(places)) for value in values_of(column)], np.int64)
    numbers: Array = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64)


def together(batches: Sequence[KeyedRows]) -> Iterator[KeyedRows]:
    """Return those with one difference, and with columns of the same types, as one."""
    alike: dict[tuple[int, object], tuple[list[Array], list[ArrowValues]]] = {}
    for batch in batches:
        values = ArrowValues(batch.table.columns, len(batch))
        parts = alike.setdefault((batch.table.diff, values.kind), ([], []))
        parts[0].append(batch.keys)
        parts[1].append(values)
    for (diff, _), (keys, (first, *more)) in alike.items():
        values = first.concatenated(more) if more else first
        yield KeyedRows(np.concatenate(keys), RowColumns(values.columns, len(values), diff))


class ArrowDelta(KeyedRows, Generic[T]):
    """A delta that is Arrow rows in order of their keys; ``chunk`` has them by key."""

    __slots__ = ("chunk", "number")

    number: int

    def __init__(self, updates: KeyedRows, time: T) -> None:
        count, diff = len(updates), updates.table.diff
        values = ArrowValues(updates.table.columns, count).loaded()
        super().__init__(updates.keys, RowColumns(values.columns, count, diff))
        diffs = None if diff == 1 else np.full(count, diff)
        self.chunk: Chunk[T] = Chunk.of(updates.keys, values, None, diffs, [time])

    def chunk_for(self, others: Partner) -> Chunk[T]:
        """Return it as columns: to make rows of few would take longer."""
        return self.chunk

    def rows(self, pairs: bool, others: Partner | None = None) -> list[Row]:
        return RowDelta(self).rows(pairs)
