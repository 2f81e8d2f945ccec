"""``RowBatches``: the part of a trace that came as Arrow rows, in batches of geometrically growing size.

They are not added up: a row that goes is an entry of the lists beside them. Keys move out of the batches when these have become
many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from timely.differential.trace.column_batches import whole_numbers
from timely.differential.trace.compaction_frontier import Holds
from timely.differential.trace.disk_row_batches import DiskRowBatch, merged_batches, on_disk
from timely.differential.trace.entries import Entry
from timely.differential.trace.row_store import RowBatch, can_merge
from timely.memory import MemoryBudget

LEAST: Final = 4096
"""Rows beside the batches for which no key moves out."""


class RowBatches:
    """The batches of a trace, the oldest first."""

    __slots__ = ("_batches", "_beside", "_budget")

    def __init__(self, budget: MemoryBudget) -> None:
        self._batches: list[RowBatch | DiskRowBatch] = []
        self._beside = 0  # rows appended beside them
        self._budget = budget

    def append(self, batch: RowBatch) -> None:
        """Append a batch."""
        self._batches.append(batch)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self._batches))

    @property
    def nbytes(self) -> int:
        """The bytes of the batches in memory."""
        return sum(batch.nbytes for batch in self._batches)

    def count_keys(self) -> int:
        """Return the number of keys, or more where several batches have them."""
        return sum(batch.count_keys() for batch in self._batches)

    def keys(self) -> Iterator[Any]:
        """Return the keys, some of them several times."""
        return (key for batch in self._batches for piece in batch.pieces(LEAST) for key in piece.keys.tolist())

    def visible(self, seen: int, ahead: set[int]) -> list[RowBatch | DiskRowBatch]:
        """Return the batches of the deltas before number ``seen`` and of those of ``ahead``."""
        return [batch for batch in self._batches if batch.number < seen or batch.number in ahead]

    def lookup(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of one key."""
        found: list[Entry] = []
        for batch in self._batches:
            if batch.number < seen or batch.number in ahead:
                batch.lookup(key, found)
        return found

    def advance(self, moved: Callable[[Any], Any]) -> None:
        """Advance all times."""
        for batch in self._batches:
            batch.time = moved(batch.time)

    def spill(self) -> None:
        """Move all of it to disk."""
        self._batches = [on_disk(batch, self._budget) for batch in self._batches]

    def merge(self, low: int, holds: Holds[Any]) -> None:
        """Merge neighbours before delta ``low`` of which the older has less than twice the rows of the newer."""
        batches = self._batches
        while len(batches) > 1 and batches[-1].number < low and len(batches[-2]) < 2 * len(batches[-1]):
            if batches[-2].time != batches[-1].time:
                holds.advance()
            if not can_merge(batches[-2], batches[-1]):
                break
            batches[-2:] = [merged_batches(batches[-2], batches[-1], self._budget)]

    def crowded(self, rows: int) -> bool:
        """Count more rows beside the batches, and return whether keys have to move out."""
        self._beside += rows
        return self._beside > max(LEAST, len(self) // 2)

    def move_out(self, settled: dict[Any, list[Entry]], holds: Holds[Any]) -> None:
        """Move the keys that ``settled`` has too out of the batches, their entries added up."""
        self._beside = 0
        holds.advance()
        keys = whole_numbers(settled)
        pieces = (piece for batch in self._batches for piece in batch.near(keys))
        kept = np.concatenate([keys[:0], *(piece.keys[np.isin(piece.keys, keys)] for piece in pieces)])
        for key in np.unique(kept).tolist():
            found: list[Entry] = []
            for batch in self._batches:
                batch.lookup(key, found)
            entries = holds.compacted(found + settled[key])
            if entries:
                settled[key] = entries
            else:
                del settled[key]
        self._batches = [left for batch in self._batches if len(left := batch.without(keys))]
