"""``Dictionary`` and ``Values``: dictionary encoding on one worker, from values to codes and back.

The invariant: equal values have equal codes, different values different ones, and a code never changes. Codes are dense, from 0
up. Integers, dates and times that lie close together are looked up in an array, at the cost of a gather. Everything else is
looked up in a Python dictionary, once for each distinct value of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.graphs.structures.arrays import MISSING, Column, distinct, inverse

SPARE = 1 << 16
"""Places that the lookup array may have however few values there are."""


class Dictionary:
    """Codes for values of one type, given in the order in which the values turn up."""

    def __init__(self) -> None:
        self._count = 0
        self._low = 0
        self._table: Column | None = np.empty(0, np.int64)
        self._codes: dict[Any, int] = {}
        self._unlisted: pa.Array | None = None
        """The first values, which Arrow has told apart: they are in ``_codes`` once there are others to compare."""

    def __len__(self) -> int:
        return self._count

    def encode(self, *columns: pa.Array) -> tuple[Column, pa.Array]:
        """Return the codes of all values of the columns, and the new values in the order of their codes.

        At least one column; all of one type, without nulls.
        """
        kind = columns[0].type
        keys = [integers for column in columns if (integers := as_integers(column)) is not None]
        if self._table is not None:
            if keys and self._reach(keys):
                parts = [part - self._low if self._low else part for part in keys]
                new = from_integers(self._number(parts) + self._low, kind)
                return np.concatenate([self._table.take(part) for part in parts]), new
            self._leave_table()
        if not keys:
            return self._add_to_dict(pa.concat_arrays(columns))
        codes, new = self._add_to_dict(pa.array(np.concatenate(keys)))
        return codes, from_integers(new.to_numpy(), kind)

    def extend(self, column: pa.Array) -> None:
        """Give the next codes to the values of ``column``, which are new, in their order."""
        keys = as_integers(column)
        codes = np.arange(self._count, self._count + len(column))
        if self._table is not None and keys is not None and self._reach([keys]):
            self._table[keys - self._low] = codes
        else:
            self._leave_table()
            self._listed().update(zip(_hashable(column if keys is None else pa.array(keys)), codes.tolist(), strict=True))
        self._count += len(column)

    def values(self, kind: pa.DataType) -> pa.Array:
        """Return the values, which are of type ``kind``, in the order of their codes."""
        if not self._count:
            return pa.array([], kind)
        if self._table is not None:
            places = np.flatnonzero(self._table != MISSING)
            return from_integers(places[np.argsort(self._table[places])] + self._low, kind)
        codes = self._listed()
        values = sorted(codes, key=codes.__getitem__)
        if as_integers(pa.array([], kind)) is not None:
            return from_integers(np.array(values, np.int64), kind)
        if pa.types.is_floating(kind):
            return pa.array([np.nan if value is None else value for value in values], kind)
        return pa.array(values, kind)

    def _leave_table(self) -> None:
        """Go on with a Python dictionary."""
        if self._table is not None:
            self._codes = {key + self._low: code for key, code in enumerate(self._table.tolist()) if code != MISSING}
            self._table = None

    def _reach(self, columns: list[Column]) -> bool:
        """Grow the table to all keys; return False if it would be mostly empty."""
        assert self._table is not None
        columns = [column for column in columns if len(column)]
        if not columns:
            return True
        low, high = int(min(column.min() for column in columns)), int(max(column.max() for column in columns)) + 1
        end = self._low + len(self._table)
        if self._low <= low and high <= end:
            return True
        if len(self._table):
            low, high = min(low, self._low), max(high, end)
        if high - low > 8 * (self._count + sum(map(len, columns))) + SPARE:
            return False
        if 0 < low <= high - low:
            low = 0  # then keys are places, and nothing is subtracted
        if len(self._table):
            high += (high - low) // 4  # spare places for later keys
        table = np.full(high - low, MISSING, np.int64)
        table[self._low - low :][: len(self._table)] = self._table
        self._table, self._low = table, low
        return True

    def _number(self, parts: list[Column]) -> Column:
        """Give codes to those of these places of the table that have none; return them."""
        assert self._table is not None
        if self._count:
            parts = [places[self._table.take(places) == MISSING] for places in parts]
        new = distinct(parts, len(self._table))
        self._table[new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        return new

    def _add_to_dict(self, column: pa.Array) -> tuple[Column, pa.Array]:
        encoded = column.dictionary_encode()
        if not self._count and not pa.types.is_floating(column.type):  # Arrow tells NaN and -NaN apart
            self._count, self._unlisted = len(encoded.dictionary), encoded.dictionary
            return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
        known = self._listed()
        table = np.fromiter((known.setdefault(value, len(known)) for value in _hashable(encoded.dictionary)), np.int64)
        codes, firsts = np.unique(table, return_index=True)
        new = encoded.dictionary.take(pa.array(firsts[codes >= self._count]))
        self._count = len(known)
        return table.take(encoded.indices.to_numpy()), new

    def _listed(self) -> dict[Any, int]:
        """Return the Python dictionary with all values."""
        if self._unlisted is not None:
            self._codes.update(zip(_hashable(self._unlisted), range(self._count), strict=True))
            self._unlisted = None
        return self._codes


def _hashable(column: pa.Array) -> list[Any]:
    """Return the values; NaN, which does not equal itself, as None, which no column of nodes contains."""
    return [value if value == value else None for value in column.to_pylist()]


class Values:
    """The values of codes: what a ``Dictionary`` returned as new, in that order."""

    def __init__(self) -> None:
        self.chunks: list[pa.Array] = []

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def append(self, values: pa.Array) -> None:
        """Add the values of the next codes."""
        self.chunks.append(values)
        while len(self.chunks) > 1 and len(self.chunks[-2]) <= 2 * len(self.chunks[-1]):
            last = self.chunks.pop()
            self.chunks[-1] = pa.concat_arrays([self.chunks[-1], last])

    def take(self, codes: Column) -> pa.Array:
        if len(self.chunks) == 1:
            return self.chunks[0].take(pa.array(codes))
        values = pa.chunked_array(self.chunks).take(pa.array(codes))
        return pa.concat_arrays(values.chunks) if values.num_chunks else self.chunks[0].slice(0, 0)


def ranks(values: pa.Array) -> Column:
    """Return the rank of each of ``values``, which are distinct, from 0 up."""
    if pa.types.is_signed_integer(values.type):
        plain = values.to_numpy()
        if bool((plain[1:] > plain[:-1]).all()):
            return np.arange(len(values))
    return inverse(pc.sort_indices(values).to_numpy())


def as_integers(column: pa.Array) -> Column | None:
    """Return the integers that a column of integers, dates or times stores; None for other types."""
    kind = column.type
    if not (pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))):
        return None
    stored = column.view(f"int{kind.bit_width}")
    integers: Column = stored.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return integers


def from_integers(keys: Column, kind: pa.DataType) -> pa.Array:
    """Return the column of type ``kind`` that stores these integers."""
    return pa.array(keys).cast(f"int{kind.bit_width}").view(kind)
