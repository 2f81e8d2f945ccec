"""``Chunk``: entries of a trace as columns, sorted by key; and the sum of chunks. It imports NumPy.

Keys are whole numbers of 64 bits. Values are an array of whole numbers, rows of Arrow (``ArrowValues``), or none where the key is
the record. Times are codes, which a short list translates: to advance times changes that list, and no column.

Invariants: keys ascend, each once, and all entries of a key are in one chunk. ``codes is None`` means one time, ``diffs is None``
means all 1. Sums add up whole numbers always, and rows of those keys that have a negative difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

import numpy as np

from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import Layout
from timely.differential.updates.int_columns import LARGE, Array, greatest_of, integers, order_and_starts, summed
from timely.operators.keyed.sorted_keys import equal_keys, group_starts, spread

if TYPE_CHECKING:
    from timely.differential.updates.row_columns import ArrowValues

T = TypeVar("T")

_WORK: Final = 64
"""Bytes for each entry of a key, while a reduction sorts them."""

_FEW: Final = 4
"""Entries from which on they are read together: one alone takes 0.73 to 0.88 times as long."""

_NO_NUMBERS: Final = np.zeros(0, np.int64)
_START: Final = np.zeros(1, np.int64)
_END: Final = 1 << 63


Values: TypeAlias = "Array | ArrowValues"


class Gathered(NamedTuple):
    """The entries of some keys: entry ``i`` is of key ``numbers[i]`` of those asked for, at ``times[codes[i]]``."""

    numbers: Array
    values: Array | None
    codes: Array
    diffs: Array
    times: list[Any]


class Matches(NamedTuple):
    """What a reader sees of some keys: chunks, which may have other keys as well, and entries by key that are in no chunk.

    Each chunk comes with the range of those keys that it may have.
    """

    chunks: Iterable[tuple[slice, Chunk[Any]]]
    loose: Mapping[int, list[Entry]]

    def moved(self, move: Callable[[Any], Any], counts: Callable[[Any], bool] | None = None) -> Matches:
        """Return the same at other times, without the times for which ``counts(time)`` is false."""
        loose = {
            key: [(value, move(time), diff) for value, time, diff in entries if counts is None or counts(time)]
            for key, entries in self.loose.items()
        }
        return Matches(_moved(self.chunks, move, counts), loose)

    def gathered(self, keys: Array, pairs: bool) -> Gathered | None:
        """Return the entries of sorted, unique ``keys`` as columns, or ``None`` where some are not whole numbers."""
        if self.loose:
            return None
        parts: list[Gathered] = []
        for some, chunk in self.chunks:
            if chunk.layout.has_rows:
                return None
            part = chunk.gather(keys[some])
            if len(part.numbers):
                parts.append(part._replace(numbers=part.numbers + some.start) if some.start else part)
        return one(parts, pairs)


def _moved(
    chunks: Iterable[tuple[slice, Chunk[Any]]], move: Callable[[Any], Any], counts: Callable[[Any], bool] | None
) -> Iterator[tuple[slice, Chunk[Any]]]:
    for keys, chunk in chunks:
        chosen = chunk if counts is None else chunk.chosen(list(map(counts, chunk.times)))
        yield keys, chosen.at(list(map(move, chosen.times)))


@final
class Chunk(Generic[T]):
    """Entries sorted by key. Those of ``keys[i]`` stand from ``offsets[i]`` to ``offsets[i + 1]``."""

    __slots__ = ("_views", "codes", "diffs", "keys", "offsets", "times", "values")

    def __init__(
        self, keys: Array, offsets: Array, values: Values | None, codes: Array | None, diffs: Array | None, times: list[T]
    ) -> None:
        self.keys = keys
        self.offsets = offsets
        self.values = values
        self.codes = codes
        self.diffs = diffs
        self.times = times
        self._views: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, keys: Array, values: Values | None, codes: Array | None, diffs: Array | None, times: list[T]) -> Chunk[T]:
        """Return entries that are sorted by key; ``keys`` has the key of each."""
        starts = group_starts(keys)
        return cls(keys[starts], np.concatenate((starts, np.array([len(keys)]))), values, codes, diffs, times)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def count_keys(self) -> int:
        return len(self.keys)

    def all_keys(self) -> Iterator[int]:
        return iter(self.keys.tolist())

    @property
    def nbytes(self) -> int:
        columns = (self.keys, self.offsets, self.values, self.codes, self.diffs)
        return sum(column.nbytes for column in columns if column is not None)

    @property
    def int_values(self) -> Array | None:
        """The values as whole numbers."""
        assert self.values is None or isinstance(self.values, np.ndarray)
        return self.values

    @property
    def layout(self) -> Layout[Chunk[T]]:
        """What it shares with the chunks that it can be added up with."""
        return INTS if self.values is None or isinstance(self.values, np.ndarray) else _row_layout(self.values.kind)

    # -- reading ---------------------------------------------------------------------------------------------------

    def lookup(self, number: int, key: object, entries: list[Entry]) -> None:
        """Append the entries of one key: reading a ``memoryview`` is three times as fast as reading an array."""
        views = self._views
        if views is None:
            values = self.values if self.values is None or isinstance(self.values, np.ndarray) else self.values.reader()
            arrays = (self.keys, self.offsets, values, self.codes, self.diffs)
            views = self._views = tuple([_view(array) if isinstance(array, np.ndarray) else array for array in arrays])
        keys, offsets, listed, codes, diffs = views
        place = bisect_left(keys, number)
        if place == len(keys) or keys[place] != number:
            return
        times = self.times
        first, last = offsets[place], offsets[place + 1]
        if last - first < _FEW:
            for row in range(first, last):
                value, time = None if listed is None else listed[row], times[0 if codes is None else codes[row]]
                entries.append((value, time, 1 if diffs is None else diffs[row]))
            return
        entries.extend(
            zip(
                repeat(None, last - first) if listed is None else listed[first:last],
                repeat(times[0]) if codes is None else [times[code] for code in codes[first:last]],  # without an end
                repeat(1) if diffs is None else diffs[first:last],
            )
        )

    def rows(self, keys: Iterable[int]) -> Iterator[tuple[int, Any, Any]]:
        """Return ``(key, value, difference)`` of the entries of keys."""
        for key in keys:
            entries: list[Entry] = []
            self.lookup(key, key, entries)
            yield from ((key, value, diff) for value, _, diff in entries)

    def select(self, keys: Array) -> tuple[Array, Array]:
        """Return, for those of sorted ``keys`` that are here, the number in ``keys`` and the row of each entry."""
        chosen, here = equal_keys(keys, self.keys)
        starts = self.offsets[here]
        return spread(chosen, starts, self.offsets[here + 1] - starts)

    def near(self, keys: Array) -> Iterable[tuple[slice, Chunk[T]]]:
        """Return what may have some of sorted ``keys``: all of it."""
        return ((slice(0, len(keys)), self),)

    def gather(self, keys: Array) -> Gathered:
        """Return the entries of sorted, unique ``keys``."""
        index, rows = self.select(keys)
        values = self.int_values
        return Gathered(
            index,
            None if values is None else values[rows],
            np.zeros(len(rows), np.int32) if self.codes is None else self.codes[rows],
            np.ones(len(rows), np.int64) if self.diffs is None else self.diffs[rows],
            self.times,
        )

    def chosen(self, counts: Sequence[bool]) -> Chunk[T]:
        """Return the entries at those times of which ``counts`` says so."""
        if all(counts):
            return self
        rows = np.array(counts, bool)[self.row_codes()].nonzero()[0]
        return self._rows(self.row_keys()[rows], rows)

    def values_at(self, rows: Array) -> Values | None:
        """Return the values of some entries."""
        return None if self.values is None else self.values[rows]

    def part(self, keys: Iterable[Any]) -> Chunk[T]:
        """Return the entries of some keys."""
        wanted = np.array(sorted(keys), np.int64)
        index, rows = self.select(wanted)
        return self._rows(wanted[index], rows)

    # -- ranges ----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return int(self.keys[0])

    @property
    def last(self) -> int:
        return int(self.keys[-1])

    def pieces(self, entries: int) -> Iterator[Chunk[T]]:
        """Return it in ranges of keys with about so many entries each."""
        first = 0
        while first < len(self.keys):
            row = int(self.offsets[first]) + entries
            last = max(int(self.offsets.searchsorted(row, side="right")) - 1, first + 1)
            yield self._cut(first, last)
            first = last

    def split(self, bound: int) -> tuple[Chunk[T] | None, Chunk[T] | None]:
        """Return the entries of keys up to ``bound``, and the others."""
        place = int(self.keys.searchsorted(bound, side="right"))
        if place in (0, len(self.keys)):
            return (self, None) if place else (None, self)
        return self._cut(0, place), self._cut(place, len(self.keys))

    def _cut(self, first: int, last: int) -> Chunk[T]:
        if first == 0 and last == len(self.keys):
            return self
        start, end = int(self.offsets[first]), int(self.offsets[last])
        rows = slice(start, end)
        return Chunk(
            self.keys[first:last],
            self.offsets[first : last + 1] - start,
            None if self.values is None else self.values[rows],
            None if self.codes is None else self.codes[rows],
            None if self.diffs is None else self.diffs[rows],
            self.times,
        )

    def _rows(self, keys: Array, rows: Array) -> Chunk[T]:
        """Return some rows, in order of ``keys``, which are theirs."""
        return Chunk.of(
            keys,
            None if self.values is None else self.values[rows],
            None if self.codes is None else self.codes[rows],
            None if self.diffs is None else self.diffs[rows],
            self.times,
        )

    def at(self, times: list[T]) -> Chunk[T]:
        """Return the same entries at other times."""
        return Chunk(self.keys, self.offsets, self.values, self.codes, self.diffs, times)

    def negated(self) -> Chunk[T]:
        """Return the same entries with differences negated."""
        return Chunk(self.keys, self.offsets, self.values, self.codes, -self.row_diffs(), self.times)

    def work(self, size: int) -> int:
        """Return about how many bytes its entries take in memory while they are read; as a pickle they take ``size``."""
        return _WORK * len(self)

    # -- entry by entry --------------------------------------------------------------------------------------------

    def row_keys(self) -> Array:
        return self.keys if len(self.keys) == len(self) else self.keys.repeat(self.offsets[1:] - self.offsets[:-1])

    def row_codes(self) -> Array:
        """Return the code of each entry."""
        return np.zeros(len(self), np.int32) if self.codes is None else self.codes

    def row_diffs(self) -> Array:
        """Return the difference of each entry."""
        return np.ones(len(self), np.int64) if self.diffs is None else self.diffs


def _view(array: Array) -> memoryview:
    contiguous: Any = np.ascontiguousarray(array)
    return memoryview(contiguous)


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


# -- sums ----------------------------------------------------------------------------------------------------------


def _common(chunks: Sequence[Chunk[T]]) -> tuple[list[T], Array | None]:
    """Return the times of chunks, and the code that each entry has among them."""
    codes_of: dict[T, int] = {}
    tables = []
    for chunk in chunks:
        tables.append(np.array([codes_of.setdefault(time, len(codes_of)) for time in chunk.times], np.int32))
    if len(codes_of) < 2:
        return list(codes_of), None
    codes = [table[chunk.row_codes()] for table, chunk in zip(tables, chunks, strict=True)]
    return list(codes_of), codes[0] if len(codes) == 1 else np.concatenate(codes)


def _columns(chunks: Sequence[Chunk[T]]) -> tuple[Values | None, Array | None]:
    """Return the values and the differences of chunks, one after the other."""
    diffs = None
    if any(chunk.diffs is not None for chunk in chunks):
        diffs = np.concatenate([chunk.row_diffs() for chunk in chunks])
    values: list[Any] = [chunk.values for chunk in chunks]
    if values[0] is None or len(chunks) == 1:
        return values[0], diffs
    return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0].concatenated(values[1:]), diffs


def concatenated(chunks: Sequence[Chunk[T]]) -> Chunk[T]:
    """Return chunks of ascending ranges of keys as one."""
    if len(chunks) == 1:
        return chunks[0]
    times, codes = _common(chunks)
    values, diffs = _columns(chunks)
    ends = np.cumsum([len(chunk) for chunk in chunks]).tolist()
    shifted = [chunk.offsets[1:] + (end - len(chunk)) for chunk, end in zip(chunks, ends, strict=True)]
    return Chunk(
        np.concatenate([chunk.keys for chunk in chunks]), np.concatenate([_START, *shifted]), values, codes, diffs, times
    )


def merged(chunks: Sequence[Chunk[T]]) -> Chunk[T]:
    times, codes = _common(chunks)
    values, diffs = _columns(chunks)
    keys = np.concatenate([chunk.row_keys() for chunk in chunks])
    if values is None or isinstance(values, np.ndarray):
        return _summed(keys, values, codes, diffs, times, runs=True)
    chosen, diffs = _rows_left(keys, values, codes, diffs)
    return _chunk(keys[chosen], values[chosen].loaded(), None if codes is None else codes[chosen], diffs, times)


def _summed(
    keys: Array, values: Array | None, codes: Array | None, diffs: Array | None, times: list[T], runs: bool = False
) -> Chunk[T]:
    """Return the sum of entries of whole numbers; ``runs`` are sorted."""
    columns = [column for column in (keys, values, codes) if column is not None]
    rows, diffs = summed(columns, diffs, runs)
    return _chunk(rows[0], None if values is None else rows[1], None if codes is None else rows[-1], diffs, times)


def _chunk(keys: Array, values: Values | None, codes: Array | None, diffs: Array | None, times: list[T]) -> Chunk[T]:
    """Return sorted entries as a chunk, without times that nothing is left of."""
    if diffs is not None and (diffs == 1).all():
        diffs = None
    if codes is not None:
        used = np.zeros(len(times), bool)
        used[codes] = True
        if not used.all():
            codes = (used.cumsum(dtype=np.int32) - 1)[codes]
            times = [time for time, left in zip(times, used.tolist(), strict=True) if left]
    return Chunk.of(keys, values, codes, diffs, times)


def _rows_left(keys: Array, values: ArrowValues, codes: Array | None, diffs: Array | None) -> tuple[Array, Array | None]:
    """Return the numbers of the rows that are left of a sum, in order of their keys, and their differences."""
    order = keys.argsort(kind="stable")
    if diffs is None or (diffs > 0).all():
        return order, None if diffs is None else diffs[order]
    crossed = np.isin(keys[order], keys[diffs < 0])  # others have nothing to cancel
    some = order[crossed]
    columns = [keys[some], *values[some].numbers(), *([] if codes is None else [codes[some]])]
    within, starts = order_and_starts(columns)
    sums = np.add.reduceat(diffs[some][within], starts)
    rows = np.concatenate((order[~crossed], some[within[starts]][sums != 0]))
    diffs = np.concatenate((diffs[order[~crossed]], sums[sums != 0]))
    again = keys[rows].argsort(kind="stable")
    return rows[again], diffs[again]


def _number(key: object) -> int | None:
    return key if type(key) is int and -_END <= key < _END else whole(key)


def _encoded(chunk: Chunk[T], codes_of: dict[T, int]) -> object:
    table = np.array([codes_of.setdefault(time, len(codes_of)) for time in chunk.times], np.int32)
    codes = table[chunk.row_codes()]
    return chunk.keys, chunk.offsets, chunk.values, codes if codes.any() else None, chunk.diffs


def _decoded(block: tuple[Array, Array, Values | None, Array | None, Array | None], times: list[T]) -> Chunk[T]:
    return Chunk(*block, times)


def _row_layout(kind: tuple[object, ...]) -> Layout[Chunk[T]]:
    return Layout(kind, _number, merged, concatenated, _encoded, _decoded, attrgetter("row_chunks"))


INTS: Final[Layout[Chunk[Any]]] = Layout("ints", _number, merged, concatenated, _encoded, _decoded, attrgetter("int_chunks"))


# -- whole numbers --------------------------------------------------------------------------------------------------


def by_time(chunks: Sequence[Chunk[T]], times: Iterable[T], moved: Callable[[T], T], pairs: bool) -> dict[T, Chunk[T]]:
    """Return the entries of chunks of whole numbers at each of the ``times`` that ``moved`` takes theirs to."""
    parts: dict[T, list[Chunk[T]]] = {time: [] for time in times}
    for chunk in chunks:
        places: dict[T, int] = {}
        table = np.array([places.setdefault(moved(time), len(places)) for time in chunk.times], np.int64)
        if chunk.codes is None:
            parts[next(iter(places))].append(chunk)
            continue
        codes = table[chunk.codes]
        order = codes.argsort(kind="stable")
        bounds = codes[order].searchsorted(np.arange(len(places) + 1))
        keys = chunk.row_keys()
        for place, time in enumerate(places):
            rows = order[bounds[place] : bounds[place + 1]]
            same = chunk._rows(keys[rows], rows)
            parts[time].append(merged([Chunk(same.keys, same.offsets, same.values, None, same.diffs, [time])]))
    empty: Chunk[T] = Chunk.of(_NO_NUMBERS, _NO_NUMBERS if pairs else None, None, None, [])
    return {
        time: (some[0] if len(some) == 1 else merged([chunk.at([time]) for chunk in some])) if some else empty
        for time, some in parts.items()
    }


def one(parts: Sequence[Gathered], pairs: bool) -> Gathered:
    if len(parts) == 1:
        return parts[0]
    codes_of: dict[Any, int] = {}
    translated = []
    for part in parts:
        table = np.array([codes_of.setdefault(time, len(codes_of)) for time in part.times], np.int32)
        translated.append(table[part.codes] if len(table) else part.codes)
    empty: list[Array] = [np.zeros(0, np.int64)]
    return Gathered(
        np.concatenate([part.numbers for part in parts] or empty),
        np.concatenate([part.values for part in parts if part.values is not None] or empty) if pairs else None,
        np.concatenate(translated or [np.zeros(0, np.int32)]),
        np.concatenate([part.diffs for part in parts] or empty),
        list(codes_of),
    )


def chunk_of_rows(entries: Mapping[Any, Sequence[Entry]], moved: Callable[[T], T] | None, pairs: bool) -> Chunk[T] | None:
    """Return the sum of the entries of a dictionary, at the times that ``moved`` takes theirs to.

    ``None`` unless all are whole numbers, and no difference is large.
    """
    keys = integers(list(entries))
    rows = [(number, *entry) for number, key in enumerate(entries) for entry in entries[key]]
    values = integers([row[1] for row in rows]) if pairs else None
    diffs = integers([row[3] for row in rows])
    if keys is None or diffs is None or greatest_of(diffs) >= LARGE or (pairs and values is None):
        return None
    codes_of: dict[T, int] = {}
    codes = np.array([codes_of.setdefault(row[2], len(codes_of)) for row in rows], np.int32)
    times = list(codes_of)
    if moved is not None:
        codes_of = {}
        codes = np.array([codes_of.setdefault(moved(time), len(codes_of)) for time in times], np.int32)[codes]
        times = list(codes_of)
    return _summed(keys[[row[0] for row in rows]], values, None if len(times) < 2 else codes, diffs, times)
