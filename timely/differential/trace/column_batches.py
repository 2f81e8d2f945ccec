"""``Batch``: the entries of a trace as columns, sorted by key and value, and the sums of batches.

Times are codes, which a short list translates. To advance times changes that list, and no column.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from timely.differential.updates.int_columns import Array, summed
from timely.operators.keyed.sorted_keys import spread

_NO_KEYS: Final = np.zeros(0, np.int64)
_END: Final = 1 << 63


class Gathered(NamedTuple):
    """The entries of some keys: entry ``i`` is of key ``numbers[i]`` of those asked for, at ``times[codes[i]]``."""

    numbers: Array
    values: Array | None
    codes: Array
    diffs: Array
    times: list[Any]

    def chosen(self, counts: Sequence[bool]) -> Gathered:
        """Return the entries at those times of which ``counts`` says so."""
        if all(counts):
            return self
        rows = np.array(counts, bool)[self.codes]
        values = None if self.values is None else self.values[rows]
        return Gathered(self.numbers[rows], values, self.codes[rows], self.diffs[rows], self.times)


class Batch:
    """Entries sorted by key and value. The entries of ``keys[i]`` stand from ``offsets[i]`` to ``offsets[i + 1]``."""

    __slots__ = ("_rows", "codes", "diffs", "keys", "offsets", "times", "values")

    def __init__(self, keys: Array, values: Array | None, codes: Array | None, diffs: Array | None, times: list[Any]) -> None:
        starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        self.offsets = np.concatenate((np.zeros(1, np.int64), starts, np.array([len(keys)])))
        self.keys = keys[self.offsets[:-1]] if len(keys) else _NO_KEYS
        self.values = values
        self.codes = codes
        self.diffs = diffs
        self.times = times
        self._rows: Any = None

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def lookup(self, key: Any, found: list[Any]) -> None:
        """Append the entries of one key: reading a ``memoryview`` is three times as fast as reading an array."""
        rows = self._rows
        if rows is None:
            arrays = (self.keys, self.offsets, self.values, self.codes, self.diffs)
            rows = self._rows = tuple(None if array is None else _view(array) for array in arrays)
        keys, offsets, values, codes, diffs = rows
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return
        times = self.times
        first, last = offsets[place], offsets[place + 1]
        if codes is None and diffs is None and values is not None:  # loaded at once, as most batches are
            time = times[0]
            found.extend([(value, time, 1) for value in values[first:last]])
            return
        for row in range(first, last):
            found.append(
                (
                    None if values is None else values[row],
                    times[0 if codes is None else codes[row]],
                    1 if diffs is None else diffs[row],
                )
            )

    @classmethod
    def of(cls, columns: tuple[Any, ...], times: list[Any]) -> Batch:
        """Return the batch of such ``columns()``, at ``times``."""
        batch = cls.__new__(cls)
        batch.keys, batch.offsets, batch.values, batch.codes, batch.diffs = columns
        batch.times = times
        batch._rows = None
        return batch

    def columns(self) -> tuple[Any, ...]:
        """Return its keys, offsets, values, codes and differences."""
        return self.keys, self.offsets, self.values, self.codes, self.diffs

    def count_keys(self) -> int:
        """Return the number of keys."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """The bytes of its columns."""
        return sum(column.nbytes for column in self.columns() if column is not None)

    def loaded(self) -> Batch:
        """Return all of it in memory."""
        return self

    def pieces(self, entries: int) -> Iterator[Batch]:
        """Return it in ranges of keys with about so many entries each."""
        first = 0
        while first < len(self.keys):
            row = int(self.offsets[first]) + entries
            last = max(int(np.searchsorted(self.offsets, row, side="right")) - 1, first + 1)
            yield self.cut(first, last, self.times)
            first = last

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of sorted, unique ``keys``, or ``None`` if there are none."""
        index, rows = self.select(keys)
        if not len(index):
            return None
        return Gathered(
            index,
            None if self.values is None else self.values[rows],
            np.zeros(len(rows), np.int32) if self.codes is None else self.codes[rows],
            np.ones(len(rows), np.int64) if self.diffs is None else self.diffs[rows],
            self.times,
        )

    def cut(self, first: int, last: int, times: list[Any]) -> Batch:
        """Return the entries of ``keys[first:last]``, at ``times``."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        return Batch(
            np.repeat(self.keys[first:last], np.diff(self.offsets[first : last + 1])),
            None if self.values is None else self.values[rows],
            None if self.codes is None else self.codes[rows],
            None if self.diffs is None else self.diffs[rows],
            times,
        )

    def at(self, times: list[Any]) -> Batch:
        """Return the same entries at other times."""
        return self.cut(0, len(self.keys), times)

    def portions(self, entries: int) -> Iterator[tuple[Any, ...]]:
        """Return the columns of the entries, and their times, so many entries at a time."""
        columns = (self.all_keys(), self.values, self.codes, self.diffs)
        for row in range(0, len(self), entries):
            yield *(None if column is None else column[row : row + entries] for column in columns), self.times

    def all_keys(self) -> Array:
        """Return the key of each entry."""
        return np.repeat(self.keys, np.diff(self.offsets))

    def all_codes(self) -> Array:
        """Return the code of each entry."""
        return np.zeros(len(self), np.int32) if self.codes is None else self.codes

    def all_diffs(self) -> Array:
        """Return the difference of each entry."""
        return np.ones(len(self), np.int64) if self.diffs is None else self.diffs

    def select(self, keys: Array) -> tuple[Array, Array]:
        """Return, for those of sorted ``keys`` that are here, the number in ``keys`` and the row of each entry."""
        if len(keys) <= len(self.keys):
            places = np.searchsorted(self.keys, keys)
            places[places == len(self.keys)] = 0
            chosen = np.flatnonzero(self.keys[places] == keys)
            here = places[chosen]
        else:
            places = np.searchsorted(keys, self.keys)
            places[places == len(keys)] = 0
            here = np.flatnonzero(keys[places] == self.keys)
            chosen = places[here]
        starts = self.offsets[here]
        return spread(chosen, starts, self.offsets[here + 1] - starts)


def whole(key: Any) -> int | None:
    """Return the whole number of 64 bits that ``key`` equals, whatever its type, or ``None``.

    >>> whole(2.0), whole(2.5), whole("2"), whole(1 << 64)
    (2, None, None, None)
    """
    number = key
    if type(key) is not int:
        if isinstance(key, str | bytes | tuple):
            return None
        try:
            number = int(key)
        except (TypeError, ValueError, OverflowError):
            return None
        if number != key:
            return None
    return number if -_END <= number < _END else None


def whole_numbers(keys: Iterable[Any]) -> Array:
    """Return the whole numbers of 64 bits that some of ``keys`` equal, each once and in order.

    >>> whole_numbers(["a", 2.0, 1, 1 << 64]).tolist()
    [1, 2]
    """
    return np.array(sorted({number for number in map(whole, keys) if number is not None}), np.int64)


def _view(array: Array) -> memoryview:
    contiguous: Any = np.ascontiguousarray(array)
    return memoryview(contiguous)


def joined_batches(parts: Sequence[Batch], now: Mapping[Any, Any]) -> Batch:
    """Return batches of ascending ranges of keys as one, with the times that theirs have become."""
    codes_of: dict[Any, int] = {}
    codes = []
    for part in parts:
        table = np.array([codes_of.setdefault(now[time], len(codes_of)) for time in part.times], np.int32)
        codes.append(table[part.all_codes()])
    values = [part.values for part in parts if part.values is not None]
    plain = all(part.diffs is None for part in parts)
    return Batch(
        np.concatenate([part.all_keys() for part in parts]),
        np.concatenate(values) if values else None,
        np.concatenate(codes) if len(codes_of) > 1 else None,
        None if plain else np.concatenate([part.all_diffs() for part in parts]),
        list(codes_of),
    )


def merged(batches: Sequence[Batch], hidden: set[int]) -> Batch:
    """Return the sum of batches, without the entries of hidden keys."""
    codes_of: dict[Any, int] = {}
    for batch in batches:
        for time in batch.times:
            codes_of.setdefault(time, len(codes_of))
    keys = np.concatenate([batch.all_keys() for batch in batches])
    values = [batch.values for batch in batches if batch.values is not None]
    columns = [keys, *([np.concatenate(values)] if values else [])]
    if len(codes_of) > 1:
        translated = [np.array([codes_of[time] for time in batch.times], np.int32)[batch.all_codes()] for batch in batches]
        columns.append(np.concatenate(translated))
    plain = all(batch.diffs is None for batch in batches)
    diffs = None if plain else np.concatenate([batch.all_diffs() for batch in batches])
    if hidden:
        left = ~np.isin(keys, np.array(list(hidden), np.int64))
        columns, diffs = [column[left] for column in columns], None if diffs is None else diffs[left]
    rows, diffs = summed(columns, diffs, runs=True)
    if diffs is not None and (diffs == 1).all():
        diffs = None
    codes = rows.pop() if len(codes_of) > 1 else None
    times = list(codes_of)
    if codes is not None:  # times that nothing is left of
        used = np.unique(codes)
        if len(used) < len(times):
            times = [times[code] for code in used.tolist()]
            codes = np.searchsorted(used, codes).astype(np.int32)
    return Batch(rows[0], rows[1] if values else None, codes, diffs, times)


class MemoryParts:
    """Collects the parts of a merge, in order of their keys, in memory."""

    def __init__(self) -> None:
        self._parts: list[Batch] = []

    def add(self, part: Batch) -> None:
        """Add the next part."""
        self._parts.append(part)

    def finish(self, now: Mapping[Any, Any]) -> Batch:
        """Return the whole, with the times that those of the parts have become."""
        return joined_batches([part for part in self._parts if len(part)] or self._parts[:1], now)
