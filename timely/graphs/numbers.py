"""``Numbers`` and ``Names``: a dictionary of nodes that grows, from values to numbers and back, on one worker.

The invariant: equal values have equal numbers, different ones different numbers, and a number once given stays; numbers
are dense, from 0 up. Values that are whole numbers below the surface (integers, dates, times) and lie close together
are looked up in a table, at the cost of a gather; all others in a dictionary, once for each distinct value of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timely.graphs.pairs import MISSING, Column, dense, distinct, span

SPARE = 1 << 16
"""Places that a table may have however few values there are."""


class Found:
    """Where the numbers of values are, to be written out when they are wanted, and where; it stays true when more are given.

    >>> found, _ = Numbers().find(pa.array(["b", "a", "b"]))
    >>> found.fill(numbers := np.empty(3, np.int64))
    >>> found.fill(others := np.empty(2, np.int64), through=np.array([50, 60]))
    >>> numbers.tolist(), others.tolist()
    ([0, 1, 0], [50, 60])
    """

    __slots__ = ("_parts", "_table")

    def __init__(self, table: Column, parts: list[Column]) -> None:
        self._table = table
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def found_in(self, table: Column) -> Found:
        """Return where the numbers are in another table, in the same places."""
        return Found(table, self._parts)

    def fill(self, numbers: npt.NDArray[np.integer[Any]], through: Column | None = None) -> None:
        """Write the numbers of as many of the values as there is room for, or what a table has in their places; as integers of
        the size that there is room for, which the caller knows to be enough.

        The two tables become one first, where there are more values than it has places.
        """
        table = self._table
        if through is not None and len(numbers) > len(table):
            table, through = through.take(table, mode="clip"), None  # of places without a value there is nothing to be had
        table = table.astype(numbers.dtype, copy=False)
        at = 0
        for places in self._parts:
            into = numbers[at : at + len(places)]
            np.take(table, places[: len(into)], out=into, mode="clip")
            at += len(into)
        if through is not None:
            numbers[:] = through[numbers]


class Numbers:
    """Numbers for values, given in the order in which the values turn up; those of one batch in an order of their own.

    >>> numbers = Numbers()
    >>> found, fresh = numbers.number(pa.array(["b", "a", "b"]))
    >>> found.tolist(), fresh.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    >>> found, fresh = numbers.number(pa.array(["a", "c"]))
    >>> found.tolist(), fresh.to_pylist(), len(numbers)
    ([1, 2], ['c'], 3)
    """

    __slots__ = ("_count", "_known", "_low", "_table")

    def __init__(self) -> None:
        self._count = 0
        self._low = 0
        self._table: Column | None = np.empty(0, np.int64)
        self._known: dict[Any, int] = {}

    def __len__(self) -> int:
        return self._count

    def number(self, *columns: pa.Array) -> tuple[Column, pa.Array]:
        """Return the number of every value of the columns, one after the other, and the values that were new, in the order of
        their numbers.

        There must be a column, and those of all calls must be of one type, and without nulls.
        """
        found, fresh = self.find(*columns)
        found.fill(numbers := np.empty(len(found), np.int64))
        return numbers, fresh

    def find(self, *columns: pa.Array) -> tuple[Found, pa.Array]:
        """Do as ``number``, but return where the numbers are found in their place."""
        kind = columns[0].type
        keys = [whole for column in columns if (whole := as_integers(column)) is not None]
        if self._table is not None:
            if keys and self._reach(keys):
                parts = [part - self._low if self._low else part for part in keys]
                return Found(self._table, parts), from_integers(self._add(parts) + self._low, kind)
            self._leave_table()
        if not keys:
            return self._search(pa.concat_arrays(columns))
        found, fresh = self._search(pa.array(np.concatenate(keys)))
        return found, from_integers(fresh.to_numpy(), kind)

    def learn(self, column: pa.Array) -> None:
        """Give the next numbers to the values of ``column``, in their order: what ``values`` has returned, or ``number`` as new.

        >>> numbers = Numbers()
        >>> numbers.learn(pa.array([9, 7, 8]))
        >>> numbers.number(pa.array([7, 5, 9]))[0].tolist(), numbers.values(pa.int64()).to_pylist()
        ([1, 3, 0], [9, 7, 8, 5])
        """
        keys = as_integers(column)
        fresh = np.arange(self._count, self._count + len(column))
        if self._table is not None and keys is not None and self._reach([keys]):
            self._table[keys - self._low] = fresh
        else:
            self._leave_table()
            values = column.to_pylist() if keys is None else keys.tolist()
            self._known.update(zip((value if value == value else None for value in values), fresh.tolist()))
        self._count += len(column)

    def values(self, kind: pa.DataType) -> pa.Array:
        """Return the values, which are of type ``kind``, in the order of their numbers."""
        if not self._count:
            return pa.array([], kind)
        if self._table is not None:
            places = np.flatnonzero(self._table != MISSING)
            return from_integers(places[np.argsort(self._table[places])] + self._low, kind)
        values = sorted(self._known, key=self._known.__getitem__)
        if as_integers(pa.array([], kind)) is not None:
            return from_integers(np.array(values, np.int64), kind)
        if pa.types.is_floating(kind):
            return pa.array([np.nan if value is None else value for value in values], kind)
        return pa.array(values, kind)

    def _leave_table(self) -> None:
        """Go on with a dictionary."""
        if self._table is not None:
            self._known = {key + self._low: number for key, number in enumerate(self._table.tolist()) if number != MISSING}
            self._table = None

    def _reach(self, columns: list[Column]) -> bool:
        """Have the table reach all of the keys; False if it would be mostly empty."""
        assert self._table is not None
        reach = span(columns)
        if reach is None:
            return True
        low, high = reach[0], reach[1] + 1
        end = self._low + len(self._table)
        if self._low <= low and high <= end:
            return True
        if len(self._table):
            low, high = min(low, self._low), max(high, end)
        if high - low > 8 * (self._count + sum(map(len, columns))) + SPARE:
            return False
        if 0 < low <= high - low:
            low = 0  # keys are places then, and nothing has to be subtracted
        if len(self._table):
            high += (high - low) // 4  # for what comes next
        table = np.full(high - low, MISSING, np.int64)
        table[self._low - low :][: len(self._table)] = self._table
        self._table, self._low = table, low
        return True

    def _add(self, parts: list[Column]) -> Column:
        """Give numbers to those of these places of the table that have none; return them."""
        assert self._table is not None
        if self._count:
            parts = [places[self._table.take(places) == MISSING] for places in parts]
        fresh = distinct(parts, len(self._table))
        self._table[fresh] = np.arange(self._count, self._count + len(fresh))
        self._count += len(fresh)
        return fresh

    def _search(self, column: pa.Array) -> tuple[Found, pa.Array]:
        """Find the numbers in the dictionary; return where they are, and what was new."""
        encoded = column.dictionary_encode()
        known = self._known
        # A float that is not a number is not equal to itself; None, which no column has here, stands for it.
        values = (value if value == value else None for value in encoded.dictionary.to_pylist())
        distinct = np.fromiter((known.setdefault(value, len(known)) for value in values), np.int64)
        numbers, firsts = np.unique(distinct, return_index=True)
        fresh = encoded.dictionary.take(pa.array(firsts[numbers >= self._count]))
        self._count = len(known)
        return Found(distinct, [encoded.indices.to_numpy()]), fresh


class Names:
    """The values of numbers: what ``Numbers`` gave out as new, in that order, to be had back by number.

    >>> names = Names()
    >>> names.add(pa.array(["b", "a"]))
    >>> names.add(pa.array(["c"]))
    >>> names.take(np.array([0, 2, 0])).to_pylist()
    ['b', 'c', 'b']
    """

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    @property
    def chunks(self) -> list[pa.Array]:
        """All the values, in the order of their numbers."""
        return self._chunks

    def add(self, values: pa.Array) -> None:
        """Take in the values of the next numbers."""
        self._chunks.append(values)
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])

    def take(self, numbers: Column) -> pa.Array:
        """Return the values of ``numbers``."""
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(numbers))
        found = pa.chunked_array(self._chunks).take(pa.array(numbers))
        return pa.concat_arrays(found.chunks) if found.num_chunks else self._chunks[0].slice(0, 0)


def ranks(values: pa.Array) -> Column:
    """Return the place of each of ``values``, which are distinct, in their order, from 0 up.

    >>> ranks(pa.array(["c", "a", "b"])).tolist(), ranks(pa.array([-(2**63), 6, 9])).tolist()
    ([2, 0, 1], [0, 1, 2])
    """
    if pa.types.is_signed_integer(values.type):
        plain = values.to_numpy()
        if bool((plain[1:] > plain[:-1]).all()):
            return np.arange(len(values))
    order = pc.sort_indices(values).to_numpy()
    return dense(order, np.arange(len(order)))


def as_integers(column: pa.Array) -> Column | None:
    """Return the whole numbers that a column's values are stored as; None where they are not.

    >>> as_integers(pa.array([3, -1], pa.int8())).tolist(), as_integers(pa.array([2**64 - 1], pa.uint64())).tolist()
    ([3, -1], [-1])
    """
    kind = column.type
    if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)):
        stored = column.view(f"int{kind.bit_width}")
    else:
        return None
    whole: Column = stored.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return whole


def from_integers(keys: Column, kind: pa.DataType) -> pa.Array:
    """Return the column of that type of which ``keys`` are the whole numbers.

    >>> from_integers(np.array([-1, 5]), pa.uint64()).to_pylist() == [2**64 - 1, 5]
    True
    """
    return pa.array(keys).cast(f"int{kind.bit_width}").view(kind)
