"""``Updates``: updates as columns of whole numbers, and what is done to them with NumPy.

A record is a key, or a pair of a key and a value, of 64 bits each. Only what has columns imports this module, and so NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np

from timely.differential.updates.updates import Container, Diff, Kernel, Update
from timely.errors import ContainerError, brief
from timely.operators.keyed.numbers import are_canonical, canonical
from timely.operators.keyed.sorted_keys import group_starts

Array: TypeAlias = np.ndarray[Any, Any]

_BITS: Final = 63

LARGE: Final = 1 << 31
"""Differences from which on updates are rows, so that no product or sum of columns leaves 64 bits."""


class Updates:
    """Updates as columns: ``keys``, ``values`` (``None`` where a record is the key alone), ``diffs`` (``None`` for all 1).

    >>> list(Updates(np.array([1, 1]), np.array([2, 3]), np.array([1, -1])))
    [((1, 2), 1), ((1, 3), -1)]
    """

    __slots__ = ("diffs", "keys", "values")

    def __init__(self, keys: Array, values: Array | None = None, diffs: Array | None = None) -> None:
        self.keys = keys
        self.values = values
        self.diffs = diffs

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Update]:
        keys = self.keys.tolist()
        records = keys if self.values is None else list(zip(keys, self.values.tolist(), strict=True))
        return zip(records, repeat(1) if self.diffs is None else self.diffs.tolist())  # one may be endless

    def __repr__(self) -> str:
        return f"Updates({self.keys!r}, {self.values!r}, {self.diffs!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Updates, (self.keys, self.values, self.diffs)

    def chosen(self, rows: Array) -> Updates:
        """Return some of the updates, by a mask or by number."""
        return Updates(
            self.keys[rows],
            None if self.values is None else self.values[rows],
            None if self.diffs is None else self.diffs[rows],
        )

    def mapped(self, f: Kernel, name: str) -> Updates:
        """Return ``f(keys, values)``, or ``f(keys)``: one array, or two for pairs."""
        return Updates(*record_columns(self._applied(f), len(self), name), self.diffs)

    def flat_mapped(self, f: Kernel, name: str) -> Updates:
        """Return all records of ``f(keys, values)``, or ``f(keys)``: a list of what ``mapped`` takes, all pairs or none."""
        parts = [Updates(*record_columns(made, len(self), name), self.diffs) for made in self._applied(f)]
        if len({part.values is None for part in parts}) != 1:
            raise ContainerError(f"{name}: a function of columns returns a list of arrays, or one of pairs of arrays")
        return joined(parts)

    def _applied(self, f: Kernel) -> Any:
        return f(self.keys) if self.values is None else f(self.keys, self.values)

    def chosen_by(self, p: Kernel) -> Updates:
        """Return the updates for which ``p(keys, values)``, or ``p(keys)``, is true."""
        return self.chosen(np.asarray(self._applied(p), bool))

    def by_delay(self, f: Kernel) -> dict[int, Updates]:
        """Return the updates by the whole number that ``f(keys, values)``, or ``f(keys)``, has for each."""
        delays = as_integers(self._applied(f), "columns")
        return {delay: self.chosen(delays == delay) for delay in np.unique(delays).tolist()}

    def counts(self) -> Array:
        return np.ones(len(self.keys), np.int64) if self.diffs is None else self.diffs

    def consolidated(self) -> Updates:
        """Return the updates in order of record, each record once, none with a difference of zero."""
        rows, diffs = summed([self.keys] if self.values is None else [self.keys, self.values], self.diffs)
        return Updates(rows[0], rows[1] if len(rows) > 1 else None, diffs)

    def negated(self) -> Updates:
        return Updates(self.keys, self.values, -self.counts())

    def routed(self, pairs: bool) -> bool:
        """Return whether ``parts`` exchanges it as its rows are: of ``pairs`` by the key, of others by the record."""
        return (self.values is not None) == pairs

    def parts(self, workers: int) -> list[tuple[int, Updates]]:
        """Return pairs ``(worker, updates)``, by key, as ``timely.dataflow.route`` has it: whole numbers are their own routes."""
        if workers == 1:
            return [(0, self)]
        return split(self, self.keys % workers, workers)


def split(batch: Any, owners: Array, workers: int) -> list[tuple[int, Any]]:
    """Return the parts of a container for each worker that owns some of its updates."""
    by_owner = ((worker, (owners == worker).nonzero()[0]) for worker in range(workers))
    return [(worker, batch.chosen(rows)) for worker, rows in by_owner if len(rows)]


def packed(columns: Sequence[Array]) -> Array | None:
    """Return one whole number for each row, in the rows' lexicographic order; ``None`` where 63 bits are not enough.

    >>> packed([np.array([7, 7, 5]), np.array([1, 0, 9])]).tolist()
    [33, 32, 9]
    """
    lows = [int(column.min()) for column in columns]
    widths = [(int(column.max()) - low).bit_length() for column, low in zip(columns, lows, strict=True)]
    if sum(widths) > _BITS:
        return None
    numbers = columns[0] - lows[0]
    for column, low, width in zip(columns[1:], lows[1:], widths[1:], strict=True):
        numbers = (numbers << width) | (column - low)
    return numbers


def order_and_starts(columns: Sequence[Array], runs: bool = False) -> tuple[Array, Array]:
    """Return the order that sorts rows lexicographically, and where in it each group of equal rows starts.

    With ``runs`` the columns are sorted runs one after the other, which a stable sort merges in linear time.
    """
    numbers = packed(columns)
    if numbers is not None:
        order = numbers.argsort(kind="stable" if runs else None)
        return order, group_starts(numbers[order])
    order = np.lexsort(tuple(reversed(columns)))
    return order, group_starts(*(column[order] for column in columns))


def summed(columns: Sequence[Array], diffs: Array | None, runs: bool = False) -> tuple[list[Array], Array | None]:
    """Return the rows in order, equal ones once with the sum of their differences, and none where that is zero.

    >>> rows, diffs = summed([np.array([2, 1, 2])], np.array([1, 5, -1]))
    >>> rows[0].tolist(), diffs.tolist()
    ([1], [5])
    """
    if not len(columns[0]):
        return list(columns), diffs
    order, starts = order_and_starts(columns, runs)
    if len(starts) == len(order):
        if diffs is None:
            return [column[order] for column in columns], None
        sums = diffs[order]
    elif diffs is None:
        sums = np.diff(np.append(starts, len(order)))
    else:
        sums = np.add.reduceat(diffs[order], starts)
    first = order[starts]
    if not sums.all():
        left = sums.nonzero()[0]
        sums, first = sums[left], first[left]
    return [column[first] for column in columns], sums


def counted(chunks: Sequence[Any], counts: Callable[[Any], bool]) -> tuple[list[Array], Array]:
    """Return the records of chunks of a trace, and the sums of their differences at times for which ``counts(time)``."""
    columns: list[list[Array]] = []
    for chunk in chunks:
        records = [chunk.row_keys(), *([] if chunk.values is None else [chunk.values]), chunk.row_diffs()]
        chosen = np.array([counts(time) for time in chunk.times], bool)
        columns.append(records if chosen.all() else [column[chosen[chunk.row_codes()]] for column in records])
    *records, diffs = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
    rows, sums = summed(records, diffs)
    assert sums is not None
    return rows, sums


def joined(parts: Sequence[Updates]) -> Updates:
    """Return several columns of updates, of one kind, as one."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts if part.values is not None]
    plain = all(part.diffs is None for part in parts)
    return Updates(
        np.concatenate([part.keys for part in parts]),
        np.concatenate(values) if values else None,
        None if plain else np.concatenate([part.counts() for part in parts]),
    )


def from_rows(rows: Sequence[Update], pairs: bool) -> Updates | None:
    """Return rows as columns; ``None`` unless all of it is whole numbers of 64 bits."""
    if pairs:
        records = [record for record, _ in rows]
        if set(map(type, records)) != {tuple} or set(map(len, records)) != {2}:
            return None
        keys = integers([record[0] for record in records])
        values = None if keys is None else integers([record[1] for record in records])
        if values is None:
            return None
    else:
        keys, values = integers([record for record, _ in rows]), None
    diffs = None if keys is None else integers([diff for _, diff in rows])
    if keys is None or diffs is None or greatest_of(diffs) >= LARGE:
        return None
    return Updates(keys, values, None if (diffs == 1).all() else diffs)


def each_once(numbers: Array) -> Array:
    """Return sorted numbers, each once; those that are sorted already are not sorted again."""
    if len(numbers) < 2:
        return numbers
    if (numbers[1:] > numbers[:-1]).all():
        return numbers
    ordered = np.sort(numbers)
    once: Array = ordered[group_starts(ordered)]
    return once


def greatest_of(array: Array) -> int:
    """Return the greatest absolute value."""
    return max(abs(int(array.min())), abs(int(array.max()))) if len(array) else 0


def integers(values: list[object]) -> Array | None:
    """Return a list as an array of 64-bit numbers, or ``None`` if it is not a list of ``int`` that fit."""
    if not set(map(type, values)) <= {int}:
        return None
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None


def as_columns(batches: Iterable[Container], pairs: bool) -> Updates | None:
    """Return containers of rows and columns as columns, or ``None`` unless all of it is whole numbers."""
    parts: list[Updates] = []
    rows: list[Update] = []
    for batch in batches:
        if isinstance(batch, Updates):
            if (batch.values is None) == pairs:
                return None
            parts.append(batch)
        else:
            rows.extend(batch)
    if rows:
        more = from_rows(rows, pairs)
        if more is None:
            return None
        parts.append(more)
    return joined(parts)


def as_integers(array: Any, name: str) -> Array:
    """Return an array of whole numbers as one of 64 bits."""
    plain = np.asarray(array)
    if plain.ndim != 1 or plain.dtype.kind not in "iu" or (plain.dtype.kind == "u" and plain.dtype.itemsize == 8):
        raise TypeError(f"{name}: columns are one-dimensional arrays of whole numbers of up to 64 bits, not {plain.dtype}")
    return plain.astype(np.int64, copy=False)


def record_columns(made: Any, rows: int, name: str) -> tuple[Array, Array | None]:
    """Return what a function of columns returned as keys and values; ``ContainerError`` unless it has a record for each row."""
    arrays = [as_integers(column, name) for column in (made if isinstance(made, tuple) else (made,))]
    if not 1 <= len(arrays) <= 2 or any(len(array) != rows for array in arrays):
        lengths = ", ".join(f"{len(array):,}" for array in arrays)
        raise ContainerError(
            f"{name}: a function of columns returns an array, or two for pairs, of {rows:,} rows here: it returned {len(arrays)}"
            f" with {lengths or 'no'} rows"
        )
    return arrays[0], arrays[1] if len(arrays) > 1 else None


def updates_of(columns: Sequence[Any], diff: Diff, label: str) -> Any:
    """Return given columns as updates: as columns where they are whole numbers, else as rows."""
    if len(columns) == 1 and hasattr(columns[0], "columns"):  # an Arrow batch or table, or a DataFrame
        table = columns[0]
        if not hasattr(table, "column_names"):
            from timely.dataflow import arrow_batches

            schema, batches = arrow_batches(table, label)
            table = schema.empty_table().from_batches(batches, schema)
        columns = [table.column(number) for number in range(len(table.column_names))]
    if not 1 <= len(columns) <= 2:
        raise ContainerError(f"{label}: insert_columns takes one column, or two of keys and values, not {len(columns)}")
    arrays = [_plain(column, label) for column in columns]
    if len({len(array) for array in arrays}) > 1:
        lengths = " and ".join(str(len(array)) for array in arrays)
        raise ContainerError(f"{label}: insert_columns takes columns of one length, not {lengths}")
    diffs = _differences(diff, len(arrays[0]), label)
    whole = all(array.dtype.kind in "iu" and array.dtype != np.uint64 for array in (*arrays, diffs))
    if whole and greatest_of(diffs) < LARGE:
        arrays = [array.astype(np.int64, copy=False) for array in arrays]
        counts = None if (diffs == 1).all() else diffs.astype(np.int64)
        return Updates(arrays[0], arrays[1] if len(arrays) > 1 else None, counts)
    lists = [array.tolist() for array in arrays]
    lists = [list(map(canonical, values)) if not are_canonical(values) else values for values in lists]
    records = lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
    return list(zip(records, diffs.tolist(), strict=True))


def paired(records: Sequence[object], diff: Diff, label: str) -> list[Update]:
    """Return records as updates: ``diff`` is one number for all of them, or an array."""
    return list(zip(records, _differences(diff, len(records), label).tolist(), strict=True))


def _differences(diff: Diff, rows: int, label: str) -> Array:
    diffs = np.asarray(diff)
    if diffs.ndim == 0:
        diffs = np.full(rows, diffs)
    if len(diffs) != rows:
        raise ContainerError(f"{label}: insert_columns has {rows} rows and {len(diffs)} differences")
    return diffs


def _plain(column: Any, label: str) -> Array:
    """Return a column as an array; of objects, with ``None``, where values are missing or of types that NumPy has not."""
    if hasattr(column, "to_pylist") or hasattr(column, "__arrow_c_stream__"):
        import pyarrow as pa

        column = column if hasattr(column, "to_pylist") else pa.chunked_array(column)
        if column.null_count or not pa.types.is_integer(column.type):
            objects = np.empty(len(column), object)
            objects[:] = column.to_pylist()
            return objects
        return np.asarray(column.to_numpy())
    missing = None
    if isinstance(column, np.ma.MaskedArray):
        missing, column = np.ma.getmaskarray(column), column.data
    elif hasattr(column, "isna") and getattr(column, "nlevels", 1) == 1:  # a series or index of pandas
        missing = np.asarray(column.isna())
    if missing is not None and missing.any():
        objects = np.array(column, object)
        objects[missing] = None
        return objects
    array = np.asarray(column)
    if array.ndim != 1:
        raise ContainerError(f"{label}: insert_columns takes columns of values, not {brief(column)}")
    if array.dtype.kind in "mM" and np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as"):
        exact, array = array, array.astype(f"{array.dtype.kind}8[us]")
        if ((array != exact) & ~np.isnat(exact)).any():
            raise ContainerError(
                f"{label}: insert_columns takes whole microseconds, and a value of {exact.dtype} has more digits"
            )
    return array
