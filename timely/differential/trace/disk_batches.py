"""``DiskBatch``: a batch of columns whose entries are on disk, in blocks; it is read as a batch in memory is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from timely.differential.trace import block_file
from timely.differential.trace.block_file import Blocks
from timely.differential.trace.column_batches import Batch, Gathered, joined_batches
from timely.differential.updates.int_columns import Array
from timely.memory import MemoryBudget

_WORK: Final = 64
"""Bytes for each entry of a key, while a reduction sorts them."""


class DiskBatch:
    """Entries sorted by key and value, in blocks of whole keys. The times are in memory, so to advance them writes nothing."""

    __slots__ = ("_blocks", "_entries", "_keys", "times")

    def __init__(self, written: Blocks, entries: int, keys: int, times: list[Any]) -> None:
        self._blocks = written
        self._entries = entries
        self._keys = keys
        self.times = times

    def __len__(self) -> int:
        return self._entries

    def count_keys(self) -> int:
        """Return the number of keys."""
        return self._keys

    @property
    def nbytes(self) -> int:
        """The bytes in memory that count: none."""
        return 0

    def _block(self, number: int) -> Batch:
        return Batch.of(self._blocks.read(number), self.times)

    def lookup(self, key: Any, found: list[Any]) -> None:
        """Append the entries of one key."""
        number = self._blocks.find(key)
        if number >= 0:
            self._block(number).lookup(key, found)

    def pieces(self, entries: int) -> Iterator[Batch]:
        """Return it in ranges of keys with about so many entries each, or a block."""
        waiting: list[Batch] = []
        for number in range(len(self._blocks)):
            block = self._block(number)
            if waiting and sum(map(len, waiting)) + len(block) > entries:
                yield _in_a_row(waiting)
                waiting = []
            waiting.append(block)
        if waiting:
            yield _in_a_row(waiting)

    def loaded(self) -> Batch:
        """Return all of it in memory."""
        parts = list(self.pieces(len(self)))
        return parts[0] if parts else Batch(np.zeros(0, np.int64), None, None, None, [])

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of sorted, unique ``keys``, or ``None`` if there are none."""
        if not len(keys):
            return None
        places = np.searchsorted(np.frombuffer(self._blocks.first, np.int64), keys, side="right") - 1
        numbers, starts = np.unique(places, return_index=True)
        ends = [*starts[1:].tolist(), len(keys)]
        parts = []
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            block = self._block(number) if number >= 0 else None
            part = None if block is None else block.gather(keys[start:end])
            if block is not None and part is not None:
                if len(block.keys) == 1:
                    self._blocks.check(len(block), _WORK * len(block))
                parts.append(part._replace(numbers=part.numbers + start))
        if not parts:
            return None
        values = [part.values for part in parts if part.values is not None]
        return Gathered(
            np.concatenate([part.numbers for part in parts]),
            np.concatenate(values) if values else None,
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.diffs for part in parts]),
            self.times,
        )


def _in_a_row(parts: list[Batch]) -> Batch:
    """Return batches of ascending keys and the same list of times as one, with codes of that list."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([len(part) for part in parts])
    shifted = [part.offsets[1:] + (end - len(part)) for part, end in zip(parts, ends.tolist(), strict=True)]
    values = [part.values for part in parts if part.values is not None]
    columns = (
        np.concatenate([part.keys for part in parts]),
        np.concatenate([np.zeros(1, np.int64), *shifted]),
        np.concatenate(values) if values else None,
        None if all(part.codes is None for part in parts) else np.concatenate([part.all_codes() for part in parts]),
        None if all(part.diffs is None for part in parts) else np.concatenate([part.all_diffs() for part in parts]),
    )
    return Batch.of(columns, parts[0].times)


class DiskParts:
    """Writes the parts of a merge, in order of their keys."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._blocks = Blocks(budget)
        self._waiting: list[Batch] = []  # less than a block
        self._codes: dict[Any, int] = {}  # of the times of all parts
        self._entries = 0
        self._keys = 0

    def add(self, part: Batch) -> None:
        """Add the next part."""
        self._waiting.append(part)
        if sum(map(len, self._waiting)) >= block_file.BLOCK:
            self._write(all_of_it=False)

    def _write(self, all_of_it: bool) -> None:
        parts = [part for part in self._waiting if len(part)]
        self._waiting = []
        if not parts:
            return
        whole = joined_batches(parts, {time: time for part in parts for time in part.times})
        for piece in whole.pieces(block_file.BLOCK):
            if len(piece) < block_file.BLOCK and not all_of_it and piece.keys[-1] == whole.keys[-1]:
                self._waiting = [piece]  # the next part goes on there
            else:
                self._append(piece)

    def _append(self, piece: Batch) -> None:
        keys, offsets, values, _, diffs = piece.columns()
        table = np.array([self._codes.setdefault(time, len(self._codes)) for time in piece.times], np.int32)
        codes = table[piece.all_codes()]
        self._blocks.append(int(keys[0]), (keys, offsets, values, codes if codes.any() else None, diffs))
        self._entries += len(piece)
        self._keys += len(keys)

    def finish(self, now: Mapping[Any, Any]) -> DiskBatch:
        """Return the whole, with the times that those of the parts have become."""
        self._write(all_of_it=True)
        return DiskBatch(self._blocks, self._entries, self._keys, [now[time] for time in self._codes])
