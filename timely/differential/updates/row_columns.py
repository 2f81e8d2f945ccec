"""``RowColumns``: updates whose records are rows, as columns of Arrow. Only what has such columns imports this, and so PyArrow.

All rows of a container have one difference. Iteration gives the same updates as tuples, so operators without kernels take it too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias, final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from timely.dataflow import route
from timely.differential.updates.int_columns import Array, split
from timely.differential.updates.updates import Container, Update
from timely.operators.keyed.column_numbers import canonical_column, has_nan, row_values
from timely.operators.keyed.numbers import canonical, row_value

_FEW = 64
"""Rows below which a column is not looked through for equal values."""

_FEW_ROWS = 16
"""Up to here the rows of a key are read one by one: measured, a slice of each column costs as much as 15 rows."""


@attrs.frozen(eq=False)
class Fixed:
    """A column of decimals: integers of 64 bits, scaled by ``10 ** -scale``."""

    numbers: pa.Array
    scale: int

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: pa.Array) -> Fixed:
        return Fixed(self.numbers.take(rows), self.scale)

    def array(self) -> pa.Array:
        """Return them as decimals of Arrow.

        >>> Fixed(pa.array([-125, None]), 2).array().to_pylist()
        [Decimal('-1.25'), None]
        """
        low = self.numbers.fill_null(0).to_numpy()
        halves = pa.py_buffer(np.stack((low, low >> 63), axis=1))
        kind = pa.decimal128(38, self.scale)
        decimals = pa.Array.from_buffers(kind, len(low), [None, halves])
        return pc.if_else(self.numbers.is_valid(), decimals, pa.scalar(None, kind)) if self.numbers.null_count else decimals


def values_of(column: Any) -> list[Any]:
    """Return a column as Python values; equal texts, dates and decimals are one object where there are few of them.

    >>> values_of(pa.array([1, None])), values_of(Fixed(pa.array([125]), 2))
    ([1, None], [Decimal('1.25')])
    """
    if isinstance(column, Fixed):
        return _through_dictionary(column.numbers, lambda numbers: Fixed(numbers, column.scale).array().to_pylist())
    kind = column.type
    if pa.types.is_nested(kind) or (pa.types.is_floating(kind) and has_nan(column)):
        return row_values(column)
    if kind in (pa.int64(), pa.float64(), pa.int32()) and not column.null_count:
        values: list[object] = column.to_numpy().tolist()
        return values
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind) or kind in (pa.string(), pa.large_string())):
        return list(column.to_pylist())
    return _through_dictionary(column, lambda values: values.to_pylist())


def _through_dictionary(column: Any, convert: Callable[[Any], list[Any]]) -> list[object]:
    if len(column) < _FEW:
        return convert(column)
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return convert(column)
    if len(encoded.dictionary) > len(column) // 2:
        return convert(column)
    values = np.empty(len(encoded.dictionary) + 1, object)
    values[:-1] = convert(encoded.dictionary)
    values[-1] = None
    numbers = encoded.indices.fill_null(len(encoded.dictionary)) if encoded.indices.null_count else encoded.indices
    rows: list[object] = values[numbers.to_numpy()].tolist()
    return rows


class LazyColumn:
    """A column of a container, made when it is first read: an array, some rows of another column, or ``make`` of an array.

    Several threads may read it: what it is made of is one attribute, so that none sees a part of what another changes.
    """

    __slots__ = ("made_of",)

    def __init__(self, source: Any, rows: Array | None = None, make: Callable[[Any], Any] | None = None) -> None:
        self.made_of = source, rows, make

    def get(self) -> Any:
        source, rows, make = self.made_of
        if rows is not None:
            source = source.get().take(pa.array(rows))
        elif make is not None:
            source = make(source)
        self.made_of = source, None, None
        return source

    def __reduce__(self) -> tuple[object, ...]:
        return LazyColumn, (self.get(),)


Columns: TypeAlias = tuple[LazyColumn, ...]


def rows_at(columns: Sequence[LazyColumn], rows: Array) -> Columns:
    """Return some rows of columns, by number."""
    composed: dict[int, tuple[Array, Array]] = {}
    chosen = []
    for column in columns:
        source, before, _ = column.made_of
        if before is None:
            chosen.append(LazyColumn(column, rows))
            continue
        if id(before) not in composed:
            composed[id(before)] = before, before[rows]
        chosen.append(LazyColumn(source, composed[id(before)][1]))
    return tuple(chosen)


class RowColumns:
    """Updates of rows: columns of ``count`` rows, each with the difference ``diff``.

    >>> rows = RowColumns((LazyColumn(pa.array([1, 2])), LazyColumn(pa.array(["a", None]))), 2)
    >>> list(rows), list(rows.chosen(np.array([1])))
    ([((1, 'a'), 1), ((2, None), 1)], [((2, None), 1)])
    """

    __slots__ = ("_rows", "columns", "count", "diff")

    def __init__(self, columns: Columns, count: int, diff: int = 1) -> None:
        self.columns = columns
        self.count = count
        self.diff = diff
        self._rows: list[tuple[object, ...]] | None = None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Update]:
        return zip(self.rows(), repeat(self.diff))  # one is endless

    def __repr__(self) -> str:
        return f"RowColumns({self.count:,} rows of {len(self.columns)} columns, {self.diff:+})"

    def __reduce__(self) -> tuple[object, ...]:
        return RowColumns, (self.columns, self.count, self.diff)

    def routed(self, pairs: bool) -> bool:
        """Return whether ``parts`` exchanges it as its rows are."""
        return not pairs

    def parts(self, workers: int) -> list[tuple[int, RowColumns]]:
        """Return pairs ``(worker, updates)``, by row, as ``Updates.parts`` does."""
        return [(0, self)] if workers == 1 else split(self, self.owners(workers), workers)

    def owners(self, workers: int) -> Array:
        return np.array([route(row) % workers for row in self.rows()], np.int64)

    def rows(self) -> list[tuple[object, ...]]:
        if self._rows is None:
            self._rows = list(zip(*(values_of(column.get()) for column in self.columns), strict=True)) or [()] * self.count
        return self._rows

    def chosen(self, rows: Any) -> RowColumns:
        """Return some of the updates, by number or as a slice."""
        if isinstance(rows, slice):
            rows = np.arange(self.count)[rows]
        return RowColumns(rows_at(self.columns, rows), len(rows), self.diff)

    def alone(self) -> RowColumns:
        """Return the updates without what it would read of other columns."""
        for column in self.columns:
            column.get()
        return self

    def arrays(self) -> list[pa.Array]:
        columns = [lazy.get() for lazy in self.columns]
        return [column.array() if isinstance(column, Fixed) else column for column in columns]

    def with_columns(self, columns: Iterable[LazyColumn]) -> RowColumns:
        """Return the same number of rows, of other columns."""
        return RowColumns(tuple(columns), self.count, self.diff)

    def negated(self) -> RowColumns:
        """Return the updates with the difference negated."""
        return RowColumns(self.columns, self.count, -self.diff)


def rows_of_batch(batch: Container, diff: int = 1) -> RowColumns:
    """Return an Arrow batch or table as updates."""
    columns = []
    for column in batch.columns:
        chunks = getattr(column, "chunks", None)
        columns.append(LazyColumn(column if chunks is None else chunks[0] if len(chunks) == 1 else column.combine_chunks()))
    return RowColumns(tuple(columns), batch.num_rows, diff)


class KeyedRows:
    """Updates that are pairs of a whole number and a row.

    >>> rows = RowColumns((LazyColumn(pa.array(["a", "b"])),), 2)
    >>> list(KeyedRows(np.array([7, 5]), rows))
    [((7, ('a',)), 1), ((5, ('b',)), 1)]
    """

    __slots__ = ("keys", "table")

    def __init__(self, keys: Array, table: RowColumns) -> None:
        self.keys = keys
        self.table = table

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Update]:
        return zip(zip(self.keys.tolist(), self.table.rows(), strict=True), repeat(self.table.diff))  # one is endless

    def __reduce__(self) -> tuple[object, ...]:
        return KeyedRows, (self.keys, self.table)

    def routed(self, pairs: bool) -> bool:
        """Return whether ``parts`` exchanges it as its rows are."""
        return pairs

    def chosen(self, rows: Any) -> KeyedRows:
        """Return some of the updates, by number or as a slice."""
        return KeyedRows(self.keys[rows], self.table.chosen(rows))

    def parts(self, workers: int) -> list[tuple[int, KeyedRows]]:
        """Return pairs ``(worker, updates)``, by key, as ``Updates.parts`` does."""
        if workers == 1:
            return [(0, self)]
        return split(self, self.keys % workers, workers)

    def ordered(self) -> KeyedRows:
        if len(self.keys) < 2 or (self.keys[1:] >= self.keys[:-1]).all():
            return self
        return self.chosen(np.argsort(self.keys, kind="stable"))


def reader(column: Any) -> Callable[[int], Any]:
    """Return the function of a row's number that returns its value in a column.

    >>> reader(pa.array([1, 2]))(1), reader(Fixed(pa.array([5, None]), 1))(0)
    (2, Decimal('0.5'))
    """
    if isinstance(column, Fixed):
        number, scale = reader(column.numbers), -column.scale

        def decimal(row: int) -> Decimal | None:
            value = number(row)
            return None if value is None else Decimal(value).scaleb(scale)

        return decimal
    if not column.null_count:
        if column.type == pa.int64() or (column.type == pa.float64() and not has_nan(column)):
            read: Callable[[int], Any] = _view(column.to_numpy()).__getitem__
            return read
        if column.type == pa.date32():
            days = _view(column.view(pa.int32()).to_numpy())
            first, date = datetime.date(1970, 1, 1).toordinal(), datetime.date.fromordinal
            return lambda row: date(first + days[row])
    plain = row_value if pa.types.is_nested(column.type) else canonical
    return lambda row: plain(column[row].as_py())


def _view(array: Any) -> memoryview:
    """Return an array as what is read fastest number by number."""
    contiguous: Any = np.ascontiguousarray(array)
    return memoryview(contiguous)


@final
class ArrowValues:
    """So many rows of columns, as the values of a chunk."""

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
            if stop - start < _FEW_ROWS:
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
