"""``ObjectChunk``: entries of a trace whose keys and values are any objects, in order of the hash of the key.

Python's objects need not have an order, but equal ones have equal hashes. Invariant: all keys of one hash are in one chunk.
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, final

from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import Layout
from timely.differential.trace.state_memory import ENTRY, OBJECTS

K = TypeVar("K")
T = TypeVar("T")


@final
class ObjectChunk(Generic[K, T]):
    """Entries ``(value, code, diff)`` by key, in order of the hashes; ``times[code]`` is the time of an entry."""

    __slots__ = ("_numbers", "rows", "times")

    def __init__(self, rows: dict[K, list[Entry]], times: list[T]) -> None:
        self.rows = rows
        self.times = times
        self._numbers: list[int] | None = None

    @classmethod
    def of(cls, entries: Mapping[K, Sequence[Entry]]) -> ObjectChunk[K, T]:
        """Return entries ``(value, time, diff)`` by key as a chunk."""
        codes_of: dict[T, int] = {}
        rows = {
            key: [(value, codes_of.setdefault(time, len(codes_of)), diff) for value, time, diff in entries[key]]
            for key in sorted(entries, key=hash)
        }
        return cls(rows, list(codes_of))

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def count_keys(self) -> int:
        return len(self.rows)

    def all_keys(self) -> Iterator[K]:
        return iter(self.rows)

    @property
    def nbytes(self) -> int:
        """About the bytes that it takes in memory."""
        return ENTRY * len(self)

    def lookup(self, number: int, key: K, entries: list[Entry]) -> None:
        coded = self.rows.get(key)
        if coded is not None:
            times = self.times
            entries.extend([(value, times[code], diff) for value, code, diff in coded])

    def items(self) -> Iterator[tuple[K, list[Entry]]]:
        """Return every key with its entries ``(value, time, diff)``."""
        times = self.times
        for key, coded in self.rows.items():
            yield key, [(value, times[code], diff) for value, code, diff in coded]

    def part(self, keys: Iterable[K]) -> ObjectChunk[K, T]:
        """Return the entries of some keys."""
        rows = self.rows
        return ObjectChunk({key: rows[key] for key in sorted(keys, key=hash) if key in rows}, self.times)

    # -- ranges ----------------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        if self._numbers is None:
            self._numbers = list(map(hash, self.rows))
        return self._numbers

    @property
    def first(self) -> int:
        return self.numbers[0]

    @property
    def last(self) -> int:
        return self.numbers[-1]

    def pieces(self, entries: int) -> Iterator[ObjectChunk[K, T]]:
        """Return it in ranges of hashes with about so many entries each."""
        numbers = self.numbers
        ends = list(accumulate(map(len, self.rows.values())))
        first = 0
        while first < len(numbers):
            done = ends[first - 1] if first else 0
            last = max(bisect_right(ends, done + entries), first + 1)
            last = bisect_right(numbers, numbers[last - 1])  # equal hashes stay together
            yield self._cut(first, last)
            first = last

    def split(self, bound: int) -> tuple[ObjectChunk[K, T] | None, ObjectChunk[K, T] | None]:
        """Return the entries of hashes up to ``bound``, and the others."""
        place = bisect_right(self.numbers, bound)
        if place in (0, len(self.numbers)):
            return (self, None) if place else (None, self)
        return self._cut(0, place), self._cut(place, len(self.numbers))

    def _cut(self, first: int, last: int) -> ObjectChunk[K, T]:
        if first == 0 and last == len(self.rows):
            return self
        keys = list(self.rows)[first:last]
        return ObjectChunk({key: self.rows[key] for key in keys}, self.times)

    def at(self, times: list[T]) -> ObjectChunk[K, T]:
        """Return the same entries at other times."""
        return ObjectChunk(self.rows, times)

    def negated(self) -> ObjectChunk[K, T]:
        """Return the same entries with differences negated."""
        rows = {key: [(value, code, -diff) for value, code, diff in coded] for key, coded in self.rows.items()}
        return ObjectChunk(rows, self.times)

    def work(self, size: int) -> int:
        """Return about how many bytes its entries take in memory while they are read; as a pickle they take ``size``."""
        return OBJECTS * size + ENTRY * len(self)


def equal_when_pickled(
    rows: Mapping[K, list[Entry]], at_once: int, compact: Callable[[list[Entry]], list[Entry]], left: dict[K, list[Entry]]
) -> Iterator[ObjectChunk[K, Any]]:
    """Return rows as chunks, in order of the hashes; what does not come back equal from a pickle is put into ``left``.

    Such are an object that is only equal to itself, a float that is not a number, and what cannot be pickled.
    """
    ordered = sorted(rows, key=hash)
    start = stop = 0
    while start < len(ordered):
        stop = min(start + at_once, len(ordered))
        while stop < len(ordered) and hash(ordered[stop]) == hash(ordered[stop - 1]):
            stop += 1
        part = {key: entries for key in ordered[start:stop] if (entries := compact(rows[key]))}
        start = stop
        lost = {} if _comes_back(part) else {key: entries for key, entries in part.items() if not _comes_back({key: entries})}
        left.update(lost)
        yield ObjectChunk.of({key: entries for key, entries in part.items() if key not in lost})


def _comes_back(rows: dict[K, list[Entry]]) -> bool:
    try:
        return bool(pickle.loads(pickle.dumps(rows, 5)) == rows)
    except Exception:  # whatever a user's class raises
        return False


def _merged(chunks: Sequence[ObjectChunk[K, T]]) -> ObjectChunk[K, T]:
    together: dict[K, dict[tuple[Any, int], Any]] = {}
    codes_of: dict[T, int] = {}
    for chunk in chunks:
        for key, coded in _encoded(chunk, codes_of).items():
            sums = together.setdefault(key, {})
            for value, code, diff in coded:
                place = (value, code)
                sums[place] = sums[place] + diff if place in sums else diff
    left = ((key, [(*place, diff) for place, diff in sums.items() if diff]) for key, sums in together.items())
    rows = {key: coded for key, coded in left if coded}
    return ObjectChunk({key: rows[key] for key in sorted(rows, key=hash)}, list(codes_of))


def _concatenated(chunks: Sequence[ObjectChunk[K, T]]) -> ObjectChunk[K, T]:
    codes_of: dict[T, int] = {}
    rows: dict[K, list[Entry]] = {}
    for chunk in chunks:
        rows.update(_encoded(chunk, codes_of))
    return ObjectChunk(rows, list(codes_of))


def _encoded(chunk: ObjectChunk[K, T], codes_of: dict[T, int]) -> dict[K, list[Entry]]:
    table = [codes_of.setdefault(time, len(codes_of)) for time in chunk.times]
    return {key: [(value, table[code], diff) for value, code, diff in coded] for key, coded in chunk.rows.items()}


OBJECT_LAYOUT: Final[Layout[ObjectChunk[Any, Any]]] = Layout(
    "objects", hash, _merged, _concatenated, _encoded, ObjectChunk, attrgetter("object_chunks"), numbers_keys=False
)
