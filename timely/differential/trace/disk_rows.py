"""``RowRuns``: the part of a trace whose rows are on disk, in runs of geometrically growing size, sorted by the hash of the key.

Python's objects need not have an order, but equal ones have equal hashes. Rows are pickled. What does not come back equal (an
object that is only equal to itself, a float that is not a number) or cannot be pickled stays in memory.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from timely.differential.trace import block_file
from timely.differential.trace.block_file import Blocks
from timely.differential.trace.state_memory import ENTRY, OBJECTS
from timely.memory import MemoryBudget

PORTION: Final = 4096
"""Entries that are merged at a time, in about 10 ms."""

Entries: TypeAlias = list[tuple[Any, Any, Any]]
"""``(value, time, diff)`` of one key."""

Compact: TypeAlias = Callable[[Entries], Entries]
"""Adds up entries that have become equal."""

_NONE: Final[Entries] = []


class DiskRows:
    """One run: rows in block_file. Times are codes, so to advance them writes nothing."""

    __slots__ = ("_blocks", "_large", "entries", "keys", "times")

    def __init__(self, written: Blocks, large: dict[int, tuple[int, int]], entries: int, keys: int, times: list[Any]) -> None:
        self._blocks = written
        self._large = large  # entries and bytes of the blocks that have one key
        self.entries = entries
        self.keys = keys
        self.times = times

    def lookup(self, key: Any) -> Entries:
        """Return the entries of one key."""
        number = self._blocks.find(hash(key))
        if number in self._large:
            self._blocks.check(*self._large[number])
        found = self._blocks.read(number).get(key, _NONE) if number >= 0 else _NONE
        return self._at_times(found) if found else _NONE

    def _at_times(self, found: Entries) -> Entries:
        times = self.times
        return [(value, times[code], diff) for value, code, diff in found]

    def items(self) -> Iterator[tuple[int, Any, Entries]]:
        """Return hash, key and entries of each key, in order of the hashes."""
        for number in range(len(self._blocks)):
            for key, found in self._blocks.read(number).items():
                yield hash(key), key, self._at_times(found)


class _Writer:
    """Writes one run; ``add`` takes keys in order of their hashes."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._blocks = Blocks(budget)
        self._codes: dict[Any, int] = {}
        self._block: dict[Any, Entries] = {}
        self._count = 0
        self._first = self._last = 0
        self.times: list[Any] = []  # of the codes
        self._entries = 0
        self._keys = 0
        self._large: dict[int, tuple[int, int]] = {}

    def add(self, number: int, key: Any, found: Entries) -> None:
        """Add the entries of a key whose hash is ``number``."""
        if self._count >= block_file.ROWS and number != self._last:
            self._flush()
        if not self._block:
            self._first = number
        codes, times = self._codes, self.times
        coded = []
        for value, time, diff in found:
            code = codes.get(time)
            if code is None:
                code = codes[time] = len(times)
                times.append(time)
            coded.append((value, code, diff))
        self._block[key] = coded
        self._count += len(coded)
        self._last = number

    def _flush(self) -> None:
        if self._block:
            size = self._blocks.append(self._first, self._block)
            if len(self._block) == 1:
                self._large[len(self._blocks) - 1] = self._count, OBJECTS * size + ENTRY * self._count
            self._entries += self._count
            self._keys += len(self._block)
            self._block, self._count = {}, 0

    def finish(self) -> DiskRows:
        """Return the run."""
        self._flush()
        return DiskRows(self._blocks, self._large, self._entries, self._keys, self.times)


class RowRuns:
    """The runs of a trace, the oldest first, and the largest."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._runs: list[DiskRows] = []
        self._hidden: set[Any] = set()  # keys that are kept elsewhere now
        self._merge: Iterator[None] | None = None
        self._writer: _Writer | None = None  # of the merge

    def __bool__(self) -> bool:
        return bool(self._runs)

    def spill(self, rows: Mapping[Any, Entries], compact: Compact) -> dict[Any, Entries]:
        """Write rows as a new run, and return those that have to stay in memory. If the disk is full, nothing has changed."""
        writer = _Writer(self._budget)
        left: dict[Any, Entries] = {}
        ordered = sorted(rows, key=hash)
        for start in range(0, len(ordered), block_file.ROWS):
            part = {key: kept for key in ordered[start : start + block_file.ROWS] if (kept := compact(rows[key]))}
            lost = {} if _comes_back(part) else {key: found for key, found in part.items() if not _comes_back({key: found})}
            left.update(lost)
            for key, found in part.items():
                if key not in lost:
                    writer.add(hash(key), key, found)
        run = writer.finish()
        if run.entries:
            self._runs.append(run)
        return left

    def lookup(self, key: Any) -> Entries:
        """Return the entries of one key."""
        if key in self._hidden:
            return _NONE
        found = [entries for run in self._runs if (entries := run.lookup(key))]
        return found[0] if len(found) == 1 else [entry for entries in found for entry in entries]

    def items(self) -> Iterator[tuple[Any, Entries]]:
        """Return every key with its entries, in order of the hashes."""
        for _, key, found in self._merged(self._runs):
            yield key, found

    def _merged(self, runs: Sequence[DiskRows]) -> Iterator[tuple[int, Any, Entries]]:
        ordered = heapq.merge(*(run.items() for run in runs), key=itemgetter(0))
        for number, rows in groupby(ordered, key=itemgetter(0)):
            together: dict[Any, Entries] = {}
            for _, key, found in rows:
                together[key] = together[key] + found if key in together else found
            for key, found in together.items():
                if key not in self._hidden:
                    yield number, key, found

    def advance(self, moved: Callable[[Any], Any]) -> None:
        """Advance all times: only short lists change."""
        for times in (*(run.times for run in self._runs), *(() if self._writer is None else (self._writer.times,))):
            times[:] = map(moved, times)

    def work(self, compact: Compact) -> bool:
        """Merge a portion of two runs that are due; return whether there is more to do."""
        if self._merge is None:
            sources = self._due()
            if not sources:
                return False
            self._merge = self._merging(sources, compact)
        if next(self._merge, self) is self:
            self._merge = self._writer = None
        return True

    def _due(self) -> list[DiskRows]:
        """Return two neighbours to merge, or one run half of whose times have become equal: entries may cancel."""
        runs = self._runs
        for place in range(len(runs) - 1, 0, -1):
            if runs[place - 1].entries < 2 * runs[place].entries:
                return runs[place - 1 : place + 1]
        return next(([run] for run in runs if run.times and 2 * len(set(run.times)) <= len(run.times)), [])

    def compact(self, compact: Compact) -> None:
        """Merge all runs."""
        if self._runs:
            for _ in self._merging(list(self._runs), compact):
                pass
        self._merge = self._writer = None
        self._hidden.clear()

    def _merging(self, sources: list[DiskRows], compact: Compact) -> Iterator[None]:
        writer = self._writer = _Writer(self._budget)
        portion = 0
        for number, key, found in self._merged(sources):
            kept = compact(found)
            if kept:
                writer.add(number, key, kept)
            portion += len(found)
            if portion >= PORTION:
                portion = 0
                yield
        place = self._runs.index(sources[0]) if sources else 0
        merged = writer.finish()
        self._runs[place : place + len(sources)] = [merged] if merged.entries else []

    def hide(self, key: Any) -> None:
        """Return nothing of ``key`` any more."""
        self._hidden.add(key)

    def keys(self) -> Iterable[Any]:
        """Return the keys that have entries, some of them several times."""
        return (key for run in self._runs for _, key, _ in run.items() if key not in self._hidden)

    def count_keys(self) -> int:
        """Return the number of keys, or more where several runs have them."""
        return sum(run.keys for run in self._runs)

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(run.entries for run in self._runs)


def _comes_back(rows: dict[Any, Entries]) -> bool:
    """Return whether rows are equal to their unpickled pickle."""
    try:
        return bool(pickle.loads(pickle.dumps(rows, 5)) == rows)
    except Exception:  # whatever a user's class raises
        return False
