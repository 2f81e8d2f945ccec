"""``ColumnStore``: the part of a trace that came as columns, in batches of geometrically growing size.

Times are codes, which a short list translates. To advance times changes that list, and no column; batches that merge add up what
has become equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from timely.differential.trace.column_batches import Batch, Gathered, MemoryParts, merged, whole, whole_numbers
from timely.differential.trace.disk_batches import DiskBatch, DiskParts
from timely.differential.updates.int_columns import Array, Updates, integers, summed
from timely.memory import MemoryBudget

PORTION: Final = 32_768
"""Entries that are merged at a time, in 2 to 4 ms."""

SAVED: Final = 1 << 19
"""Entries of one item of a checkpoint."""

_NO_KEYS: Final = np.zeros(0, np.int64)


class ColumnDelta(Updates):
    """The updates that a trace has appended as number ``number``: sorted, each record once; ``batch`` has them by key."""

    __slots__ = ("batch", "number")

    def __init__(self, updates: Updates, number: int, time: Any) -> None:
        super().__init__(updates.keys, updates.values, updates.diffs)
        self.number = number
        self.batch = Batch(updates.keys, updates.values, None, updates.diffs, [time])


class ColumnStore:
    """The batches of a trace: those that every cursor has seen, and fresh ones with their numbers."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._settled: list[Batch | DiskBatch] = []
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
            older, newer = settled[-2:]
            if isinstance(older, DiskBatch) or isinstance(newer, DiskBatch) or len(older) + len(newer) > 2 * PORTION:
                return
            if self._merge is not None and older in self._merge.sources:
                return
            settled[-2:] = [merged([older, newer], self._hidden)]

    def work(self) -> bool:
        """Merge a portion of two large batches that are due; return whether there is more to do."""
        settled = self._settled
        if self._merge is None:
            sources = self._due()
            if not sources:
                self.changed = False
                return False
            self._merge = _Merge(sources, self._hidden, self._parts(sources))
        found = self._merge.work()
        if found is not None:
            sources = self._merge.sources
            place = settled.index(sources[0])
            settled[place : place + len(sources)] = [found]
            self._merge = None
        return True

    def _parts(self, sources: Iterable[Batch | DiskBatch]) -> MemoryParts | DiskParts:
        """Return what collects the merge of batches: on disk where one of them is."""
        return DiskParts(self._budget) if any(isinstance(source, DiskBatch) for source in sources) else MemoryParts()

    @property
    def nbytes(self) -> int:
        """The bytes of the columns in memory."""
        return sum(batch.nbytes for batch in self.visible(None, ()))

    def spill(self) -> None:
        """Move what every cursor has seen to disk, as one batch. These are the newest batches: older ones are there already."""
        held: list[Batch | DiskBatch] = [batch for batch in self._settled if not isinstance(batch, DiskBatch)]
        if not held:
            return
        if self._merge is not None and not set(held).isdisjoint(self._merge.sources):
            self._merge = None
        self._settled[-len(held) :] = [_Merge(held, self._hidden, DiskParts(self._budget)).complete()]
        self.changed = True

    def _due(self) -> list[Batch | DiskBatch]:
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

    def visible(self, seen: int | None, ahead: Container[int]) -> Iterator[Batch | DiskBatch]:
        """Return the batches before delta ``seen``, and those of ``ahead``; all of them for ``None``."""
        yield from self._settled
        for number, batch in self._fresh:
            if seen is None or number < seen or number in ahead:
                yield batch

    def before(self, number: int) -> list[Batch]:
        """Return what came before delta ``number``."""
        found = [batch.loaded() for batch in self.visible(number, ()) if len(batch)]
        return [merged([batch], self._hidden) for batch in found] if self._hidden else found

    def saved(self) -> Iterator[list[Batch]]:
        """Return all of it for a checkpoint, in groups of batches that are in memory at once."""
        held = [batch for batch in self.visible(None, ()) if isinstance(batch, Batch) and len(batch)]
        if held:
            yield [merged(held, self._hidden)] if self._hidden else held
        for batch in self._settled:
            if isinstance(batch, DiskBatch):
                for piece in batch.pieces(SAVED):
                    yield [merged([piece], self._hidden)] if self._hidden else [piece]

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
        found = (batch.gather(keys) for batch in self.visible(seen, ahead))
        return [gathered for gathered in found if gathered is not None]

    def advance(self, moved: Callable[[Any], Any]) -> None:
        """Advance all times: only the short lists change."""
        for batch in self.visible(None, ()):
            batch.times = [moved(time) for time in batch.times]
            self.changed = self.changed or len(batch.times) > 1

    def compact(self) -> None:
        """Merge all batches that every cursor has seen."""
        self._merge = None
        if self._settled:
            self._settled = [_Merge(self._settled, self._hidden, self._parts(self._settled)).complete()]
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
        pieces = (piece for batch in self.visible(None, ()) for piece in batch.pieces(PORTION))
        return {key for piece in pieces for key in piece.keys.tolist()} - self._hidden

    def clear(self) -> None:
        """Drop all that every cursor has seen."""
        self._merge = None
        self._settled.clear()

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self.visible(None, ())))

    def count_keys(self) -> int:
        """Return the number of keys, or more where several batches have them."""
        return sum(batch.count_keys() for batch in self.visible(None, ()))


class _Merge:
    """The merge of batches, a range of keys at a time. They are read meanwhile, and may have their times advanced."""

    def __init__(self, sources: list[Batch | DiskBatch], hidden: set[int], parts: MemoryParts | DiskParts) -> None:
        self.sources = sources
        self._hidden = hidden
        self._parts = parts
        self._pieces = [source.pieces(PORTION) for source in sources]
        self._rest = [next(pieces, None) for pieces in self._pieces]  # of each source: the range of keys under way
        self._at = [0 for _ in sources]  # how many keys of that are merged
        self._times = [list(source.times) for source in sources]

    def work(self) -> Batch | DiskBatch | None:
        """Merge the next range; return the whole once it is complete."""
        bound = min((piece.keys[-1] for piece in self._rest if piece is not None), default=None)
        self._parts.add(
            merged([source.loaded() for source in self.sources] if bound is None else list(self._up_to(bound)), self._hidden)
        )
        if any(piece is not None for piece in self._rest):
            return None
        now: dict[Any, Any] = {}
        for times, source in zip(self._times, self.sources, strict=True):
            now.update(zip(times, source.times, strict=True))
        return self._parts.finish(now)

    def _up_to(self, bound: Any) -> Iterator[Batch]:
        """Return the entries of keys up to ``bound`` that are not merged yet."""
        for number, piece in enumerate(self._rest):
            if piece is None:
                continue
            first, last = self._at[number], int(np.searchsorted(piece.keys, bound, side="right"))
            self._at[number] = last
            if last == len(piece.keys):
                self._rest[number] = next(self._pieces[number], None)
                self._at[number] = 0
            if last > first:
                yield piece.cut(first, last, self._times[number])

    def complete(self) -> Batch | DiskBatch:
        """Merge all of it."""
        found = None
        while found is None:
            found = self.work()
        return found


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
        few = whole_numbers(held)
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
