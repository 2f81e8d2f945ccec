"""``ColumnStore``: the part of a trace that came as columns, in batches of geometrically growing size.

Times are codes, which a short list translates. To advance times changes that list, and no column; batches that merge add up what
has become equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from timely.differential.columns import Array, Updates, integers, summed

PORTION: Final = 32_768
"""Entries that are merged at a time, in 2 to 4 ms."""

SAVED: Final = 1 << 19
"""Entries of one item of a checkpoint."""

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

    def portions(self) -> Iterator[tuple[Any, ...]]:
        """Return the columns of the entries, and their times, so many entries at a time."""
        columns = (self.all_keys(), self.values, self.codes, self.diffs)
        for row in range(0, len(self), SAVED):
            yield *(None if column is None else column[row : row + SAVED] for column in columns), self.times

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


def _view(array: Array) -> memoryview:
    contiguous: Any = np.ascontiguousarray(array)
    return memoryview(contiguous)


def spread(numbers: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return, for ranges of rows, the number of the range and the row of each.

    >>> numbers, rows = spread(np.array([5, 6]), np.array([10, 20]), np.array([2, 1]))
    >>> numbers.tolist(), rows.tolist()
    ([5, 5, 6], [10, 11, 20])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(numbers, lengths), np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


class ColumnDelta(Updates):
    """The updates that a trace has appended as number ``number``: sorted, each record once; ``batch`` has them by key."""

    __slots__ = ("batch", "number")

    def __init__(self, updates: Updates, number: int, time: Any) -> None:
        super().__init__(updates.keys, updates.values, updates.diffs)
        self.number = number
        self.batch = Batch(updates.keys, updates.values, None, updates.diffs, [time])


class ColumnStore:
    """The batches of a trace: those that every cursor has seen, and fresh ones with their numbers."""

    def __init__(self) -> None:
        self._settled: list[Batch] = []
        self._fresh: deque[tuple[int, Batch]] = deque()
        self._hidden: set[int] = set()  # keys that are kept elsewhere now
        self._merge: _Merge | None = None
        self.changed = False  # since there was last nothing to merge

    def append(self, delta: ColumnDelta, fresh: bool) -> None:
        """Append a delta, which cursors may still have to see."""
        if fresh:
            self._fresh.append((delta.number, delta.batch))
        else:
            self.add(delta.batch)

    def add(self, batch: Batch) -> None:
        """Add a batch that counts as seen, and merge neighbours of which the older is less than twice the newer.

        Large ones are merged in portions, by ``work``.
        """
        settled = self._settled
        settled.append(batch)
        self.changed = True
        while len(settled) > 1 and len(settled[-2]) < 2 * len(settled[-1]):
            if len(settled[-2]) + len(settled[-1]) > 2 * PORTION:
                return
            if self._merge is not None and settled[-2] in self._merge.sources:
                return
            newer = settled.pop()
            settled[-1] = merged([settled[-1], newer], self._hidden)

    def work(self) -> bool:
        """Merge a portion of two large batches that are due; return whether there is more to do."""
        settled = self._settled
        if self._merge is None:
            sources = self._due()
            if not sources:
                self.changed = False
                return False
            self._merge = _Merge(sources, self._hidden)
        found = self._merge.work()
        if found is not None:
            sources = self._merge.sources
            place = settled.index(sources[0])
            settled[place : place + len(sources)] = [found]
            self._merge = None
        return True

    def _due(self) -> list[Batch]:
        """Return two neighbours to merge, or one batch half of whose times have become equal: entries may cancel."""
        settled = self._settled
        for place in range(len(settled) - 1, 0, -1):
            if len(settled[place - 1]) < 2 * len(settled[place]):
                return settled[place - 1 : place + 1]
        return next(([batch] for batch in settled if batch.times and 2 * len(set(batch.times)) <= len(batch.times)), [])

    def settle(self, low: int) -> None:
        """Settle the deltas before number ``low``."""
        while self._fresh and self._fresh[0][0] < low:
            self.add(self._fresh.popleft()[1])

    def visible(self, seen: int | None, ahead: Container[int]) -> Iterator[Batch]:
        """Return the batches before delta ``seen``, and those of ``ahead``; all of them for ``None``."""
        yield from self._settled
        for number, batch in self._fresh:
            if seen is None or number < seen or number in ahead:
                yield batch

    def before(self, number: int) -> list[Batch]:
        """Return what came before delta ``number``."""
        found = [batch for batch in self.visible(number, ()) if len(batch)]
        return [merged([batch], self._hidden) for batch in found] if self._hidden else found

    def lookup(self, key: Any, seen: int | None, ahead: Container[int]) -> list[Any]:
        """Return the entries of one key."""
        found: list[Any] = []
        number = key if type(key) is int else whole(key)
        if number is not None and number not in self._hidden:
            for batch in self._settled if not self._fresh else self.visible(seen, ahead):
                batch.lookup(number, found)
        return found

    def gather(self, keys: Array, seen: int | None, ahead: Container[int]) -> list[Gathered]:
        """Return the entries of sorted, unique ``keys``, by batch."""
        found = []
        for batch in self.visible(seen, ahead):
            index, rows = batch.select(keys)
            if len(index):
                values, codes, diffs = batch.values, batch.codes, batch.diffs
                found.append(
                    Gathered(
                        index,
                        None if values is None else values[rows],
                        np.zeros(len(rows), np.int32) if codes is None else codes[rows],
                        np.ones(len(rows), np.int64) if diffs is None else diffs[rows],
                        batch.times,
                    )
                )
        return found

    def advance(self, moved: Callable[[Any], Any]) -> None:
        """Advance all times: only the short lists change."""
        for batch in self.visible(None, ()):
            batch.times = [moved(time) for time in batch.times]
            self.changed = self.changed or len(batch.times) > 1

    def compact(self) -> None:
        """Merge all batches that every cursor has seen."""
        self._merge = None
        if self._settled:
            self._settled = [merged(self._settled, self._hidden)]
            self._hidden.clear()

    def hide(self, key: Any) -> None:
        """Return nothing of ``key`` any more."""
        number = whole(key)
        if number is not None:
            self._hidden.add(number)

    @property
    def hides(self) -> bool:
        """Whether it still has entries of keys that are kept elsewhere."""
        return bool(self._hidden)

    def keys(self) -> set[Any]:
        """Return the keys that have entries."""
        return {key for batch in self.visible(None, ()) for key in batch.keys.tolist()} - self._hidden

    def clear(self) -> None:
        """Drop all that every cursor has seen."""
        self._merge = None
        self._settled.clear()

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self.visible(None, ())))

    def count_keys(self) -> int:
        """Return the number of keys, or more where several batches have them."""
        return sum(len(batch.keys) for batch in self.visible(None, ()))

    def batches(self) -> list[Batch]:
        """Return the batches that every cursor has seen, the largest first."""
        return self._settled


class _Merge:
    """The merge of batches, a range of keys at a time. They are read meanwhile, and may have their times advanced."""

    def __init__(self, sources: list[Batch], hidden: set[int]) -> None:
        self.sources = sources
        self._hidden = hidden
        self._done: list[Batch] = []
        self._at = [0 for _ in sources]  # how many keys of each are merged
        self._times = [list(source.times) for source in sources]

    def work(self) -> Batch | None:
        """Merge the next range; return the whole once it is complete."""
        parts: list[Batch] = []
        larger = max(self.sources, key=len)
        at = self._at[self.sources.index(larger)]
        row = int(larger.offsets[at]) + PORTION
        stop = int(np.searchsorted(larger.offsets, row))
        bound = None if stop >= len(larger.keys) else larger.keys[stop]
        for number, source in enumerate(self.sources):
            first = self._at[number]
            last = len(source.keys) if bound is None else int(np.searchsorted(source.keys, bound))
            parts.append(source.cut(first, last, self._times[number]))
            self._at[number] = last
        self._done.append(merged(parts, self._hidden))
        if bound is not None:
            return None
        now: dict[Any, Any] = {}
        for times, source in zip(self._times, self.sources, strict=True):
            now.update(zip(times, source.times, strict=True))
        return joined_batches([part for part in self._done if len(part)] or self._done[:1], now)


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


def by_time(batches: Sequence[Batch], times: Iterable[Any], moved: Callable[[Any], Any], pairs: bool) -> dict[Any, Batch]:
    """Return the entries of batches at each of the ``times`` that ``moved`` takes theirs to."""
    parts: dict[Any, list[Batch]] = {time: [] for time in times}
    for batch in batches:
        places: dict[Any, int] = {}
        table = np.array([places.setdefault(moved(time), len(places)) for time in batch.times], np.int64)
        if batch.codes is None:
            parts[next(iter(places))].append(batch)
            continue
        codes = table[batch.codes]
        order = np.argsort(codes, kind="stable")
        keys, values, diffs = batch.all_keys(), batch.values, batch.diffs
        bounds = np.searchsorted(codes[order], np.arange(len(places) + 1))
        for place, time in enumerate(places):
            rows = order[bounds[place] : bounds[place + 1]]
            part = [None if column is None else column[rows] for column in (values, diffs)]
            parts[time].append(Batch(keys[rows], part[0], None, part[1], [time]))
    single = {id(batch) for batch in batches}
    empty = Batch(_NO_KEYS, _NO_KEYS if pairs else None, None, None, [None])
    return {
        time: found[0]
        if len(found) == 1 and id(found[0]) in single
        else merged([part.at([time]) for part in found], set())
        if found
        else empty
        for time, found in parts.items()
    }


def advanced_batch(batches: Sequence[Batch], moved: Callable[[Any], Any]) -> Batch:
    """Return the sum of batches, with their times advanced."""
    if len(batches) == 1 and batches[0].codes is None:
        return batches[0].at([moved(batches[0].times[0])])
    return merged([batch.at(list(map(moved, batch.times))) for batch in batches], set())


def row_entries(
    keys: Array, visible: Callable[[Any], Iterable[Any]], pairs: bool, held: Iterable[Any] | None = None
) -> Gathered | None:
    """Return the entries of keys that are rows, or ``None`` where they are not whole numbers.

    ``held`` has the keys that have rows, where these are few.
    """
    numbered: Iterable[tuple[int, Any]] = enumerate(keys.tolist())
    if held is not None:
        few = np.array(sorted({number for number in map(whole, held) if number is not None}), np.int64)
        places = np.searchsorted(keys, few)
        places[places == len(keys)] = 0
        found = places[keys[places] == few] if len(keys) else few
        numbered = zip(found.tolist(), keys[found].tolist(), strict=True)
    rows = [(number, *entry) for number, key in numbered for entry in visible(key)]
    return _columns_of(rows, pairs)


def _columns_of(rows: Sequence[tuple[int, Any, Any, Any]], pairs: bool) -> Gathered | None:
    codes_of: dict[Any, int] = {}
    codes = np.array([codes_of.setdefault(row[2], len(codes_of)) for row in rows], np.int32)
    values = integers([row[1] for row in rows]) if pairs and rows else None
    diffs = integers([row[3] for row in rows]) if rows else np.zeros(0, np.int64)
    if diffs is None or (pairs and rows and values is None):
        return None
    if pairs and values is None:
        values = np.zeros(0, np.int64)
    return Gathered(np.array([row[0] for row in rows], np.int64), values, codes, diffs, list(codes_of))


def one(parts: Sequence[Gathered], pairs: bool) -> Gathered:
    """Return the sum of parts."""
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


def batch_of_rows(entries: Mapping[Any, Sequence[Any]], moved: Callable[[Any], Any], pairs: bool) -> Batch | None:
    """Return the entries of a dictionary as a batch, or ``None`` unless all are whole numbers."""
    keys = integers(list(entries))
    if keys is None:
        return None
    rows = [(number, *entry) for number, key in enumerate(entries) for entry in entries[key]]
    found = _columns_of(rows, pairs)
    if found is None:
        return None
    columns = [keys[found.numbers], *([] if found.values is None else [found.values])]
    times = list(dict.fromkeys(map(moved, found.times)))
    if len(times) > 1:
        table = np.array([times.index(moved(time)) for time in found.times], np.int32)
        columns.append(table[found.codes])
    summed_rows, diffs = summed(columns, found.diffs)
    codes = summed_rows.pop() if len(times) > 1 else None
    return Batch(summed_rows[0], summed_rows[1] if pairs else None, codes, diffs, times)
