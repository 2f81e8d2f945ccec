"""``RowLists``: the rows of a trace that are in memory, a list of entries for each key.

What some reader has not seen is *fresh*, with the number of its delta; the rest is *settled*, and may be compacted. Invariant: an
update is in one of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from timely.differential.trace.compaction_frontier import Holds
from timely.differential.trace.entries import SHORT, Entry
from timely.differential.updates.updates import Update

NO_ENTRIES: Final[list[Entry]] = []


class RowLists:
    """Entries by key: ``settled``, and ``fresh`` ones ``(number, value, time, diff)`` in order of their numbers."""

    __slots__ = ("_holds", "_pairs", "_rest", "_rested", "_unseen", "appended", "fresh", "idle", "settled", "touched")

    def __init__(self, holds: Holds[Any], pairs: bool) -> None:
        self.settled: dict[object, list[Entry]] = {}
        self.fresh: dict[object, list[tuple[int, Any, Any, Any]]] = {}
        self._holds = holds
        self._pairs = pairs
        self._unseen: deque[tuple[int, list[object]]] = deque()  # numbers of deltas, and their keys
        self.touched: dict[object, None] = {}  # keys that may have entries to add up
        self._rest: list[object] = []  # keys that have some once `since` has moved far enough
        self._rested = holds.reached  # when those were last looked at
        self.appended = 0  # updates since then
        self.idle = 0  # activations since the last round of compaction

    def append(self, number: int, time: Any, updates: Iterable[Update], unseen: bool) -> None:
        """Append delta ``number``, which readers may still have to see."""
        fresh, settled, touched, pairs = self.fresh, self.settled, self.touched, self._pairs
        keys: list[object] = []
        for record, diff in updates:
            key, value = record if pairs else (record, None)
            if unseen:
                if key in fresh:
                    fresh[key].append((number, value, time, diff))
                else:
                    fresh[key] = [(number, value, time, diff)]
                keys.append(key)
            elif key in settled:
                entries = settled[key]
                entries.append((value, time, diff))
                touched[key] = None
                if not len(entries) & (len(entries) - 1) and len(entries) >= SHORT:
                    self.compact_key(key)
            else:
                settled[key] = [(value, time, diff)]
        if keys:
            self._unseen.append((number, keys))

    def load(self, key: object, entries: Iterable[Entry]) -> list[Entry]:
        """Add entries that count as seen, and return all settled ones of the key."""
        summed = self._holds.compacted([*self.settled.get(key, NO_ENTRIES), *entries])
        if not summed:
            self.settled.pop(key, None)
            return summed
        self.settled[key] = summed
        if len(summed) > 1:
            self._rest.append(key)
        return summed

    def settle(self, low: int) -> None:
        """Settle the deltas before number ``low``."""
        unseen, fresh, settled = self._unseen, self.fresh, self.settled
        while unseen and unseen[0][0] < low:
            for key in unseen.popleft()[1]:
                waiting = fresh.get(key)
                if waiting is None or waiting[0][0] >= low:
                    continue  # another update of the key has settled them
                ready = len(waiting)
                if waiting[-1][0] >= low:
                    ready = next(index for index, entry in enumerate(waiting) if entry[0] >= low)
                entries = settled.get(key)
                if entries is None:
                    entries = settled[key] = []
                before = len(entries)
                entries.extend([entry[1:] for entry in waiting[:ready]])
                if ready == len(waiting):
                    del fresh[key]
                else:
                    del waiting[:ready]
                if len(entries) > 1:
                    self.touched[key] = None
                    if len(entries) >= SHORT and before.bit_length() != len(entries).bit_length():
                        self.compact_key(key)

    def visible(self, key: object, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` in the deltas before number ``seen`` and in those of ``ahead``; not to be changed."""
        settled = self.settled.get(key, NO_ENTRIES)
        waiting = self.fresh.get(key) if self.fresh else None
        if waiting is None:
            return settled
        entries = list(settled)
        for entry in waiting:
            if entry[0] < seen or entry[0] in ahead:
                entries.append(entry[1:])
            elif not ahead:
                break  # deltas come in order
        return entries

    def before(self, number: int) -> dict[object, list[Entry]]:
        """Return the fresh entries of the deltas before ``number``, by key."""
        waiting = {key: [entry[1:] for entry in entries if entry[0] < number] for key, entries in self.fresh.items()}
        return {key: entries for key, entries in waiting.items() if entries}

    def keys(self) -> dict[object, None]:
        return dict.fromkeys((*self.settled, *self.fresh))

    def entries(self) -> int:
        """Return the number of entries, by counting them."""
        rows, fresh = list(self.settled.values()), list(self.fresh.values())  # whole, if another thread asks
        return sum(map(len, rows)) + sum(map(len, fresh))

    # -- what leaves for another part of the trace -------------------------------------------------------------------

    def take(self, rows: int) -> dict[object, list[Entry]]:
        """Remove keys with so many settled rows, and return them."""
        chosen: dict[object, list[Entry]] = {}
        while rows > 0 and self.settled:
            key, entries = self.settled.popitem()
            self.touched.pop(key, None)
            chosen[key] = entries
            rows -= len(entries)
        return chosen

    def replace(self, settled: dict[object, list[Entry]]) -> None:
        """Have these settled entries, compacted, and no others."""
        self.settled = settled
        self.touched.clear()
        self._rest.clear()

    def remove(self, key: object) -> None:
        """Remove a key, of which nothing is fresh."""
        self.touched.pop(key, None)
        self.settled.pop(key, None)

    # -- compaction ------------------------------------------------------------------------------------------------

    def compact_key(self, key: object) -> list[Entry]:
        """Compact one key, and return its settled entries."""
        self._holds.advance()
        return self._compact(key)

    def compact(self) -> None:
        self._holds.advance()
        for key in list(self.settled):
            self._compact(key)

    def maintain(self, keys: int) -> bool:
        """Compact so many keys. Return whether others wait."""
        holds, touched = self._holds, self.touched
        self.idle = 0
        holds.advance()
        released = holds.reader_released
        holds.reader_advanced = holds.reader_released = False
        if holds.reached is not self._rested and (released or self.appended >= len(self._rest)):
            self._rested = holds.reached
            self.appended = 0
            touched.update(dict.fromkeys(self._rest))
            self._rest = []
        for _ in range(min(len(touched), keys)):
            key = touched.popitem()[0]
            entries = self._compact(key)
            if len(entries) > 1 and any(entry[1] is not entries[0][1] for entry in entries):
                self._rest.append(key)
        return bool(touched)

    def _compact(self, key: object) -> list[Entry]:
        entries = self.settled.get(key)
        if entries is None:
            return NO_ENTRIES
        summed = self._holds.compacted(entries)
        if summed:
            self.settled[key] = summed
        else:
            del self.settled[key]
        return summed
