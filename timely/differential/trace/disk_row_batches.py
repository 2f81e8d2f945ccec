"""``DiskRowBatch``: a batch of Arrow rows that are on disk, in blocks; it is read as a ``RowBatch`` is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from timely.differential.trace import block_file
from timely.differential.trace.block_file import Blocks
from timely.differential.trace.row_store import RowBatch, merged
from timely.differential.updates.row_columns import Array, Fixed, LazyColumn
from timely.memory import MemoryBudget


class DiskRowBatch:
    """Rows at one time, each with one difference, sorted by key, in blocks of whole keys."""

    __slots__ = ("_blocks", "_keys", "_rows", "_scales", "diff", "number", "time", "types")

    def __init__(self, parts: Iterable[RowBatch], like: RowBatch | DiskRowBatch, number: int, budget: MemoryBudget) -> None:
        """Write parts, in order of their keys, with the time, difference and columns of ``like``, as delta ``number``."""
        self._blocks = Blocks(budget)
        self._rows = self._keys = 0
        self._scales: list[int | None] = []
        self.types: list[Any] = like.types
        self.diff: int = like.diff
        self.time: Any = like.time
        self.number = number
        waiting: RowBatch | None = None  # less than a block
        for part in parts:
            together = part if waiting is None else merged(waiting, part)
            waiting = None
            for piece in together.pieces(block_file.BLOCK):
                if len(piece) < block_file.BLOCK and piece.keys[-1] == together.keys[-1]:
                    waiting = piece
                else:
                    self._append(piece)
        if waiting is not None:
            self._append(waiting)

    def _append(self, piece: RowBatch) -> None:
        columns = [column.get() for column in piece.columns]
        self._scales = [column.scale if isinstance(column, Fixed) else None for column in columns]
        arrays = [column.numbers if isinstance(column, Fixed) else column for column in columns]
        rows = pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])
        self._blocks.append(int(piece.keys[0]), (piece.keys, piece.offsets, rows))
        self._rows += len(piece)
        self._keys += len(piece.keys)

    def __len__(self) -> int:
        return self._rows

    def count_keys(self) -> int:
        """Return the number of keys."""
        return self._keys

    @property
    def nbytes(self) -> int:
        """The bytes in memory that count: none."""
        return 0

    def _block(self, number: int) -> RowBatch:
        keys, offsets, rows = self._blocks.read(number)
        columns = [
            LazyColumn(column if scale is None else Fixed(column, scale))
            for column, scale in zip(rows.columns, self._scales, strict=True)
        ]
        return RowBatch.of(keys, offsets, tuple(columns), self.diff, self.number, self.time)

    def lookup(self, key: Any, found: list[Any]) -> None:
        """Append the entries of one key."""
        number = self._blocks.find(key) if type(key) is int and -(1 << 63) <= key < 1 << 63 else -1
        if number >= 0:
            self._block(number).lookup(key, found)

    def pieces(self, rows: int) -> Iterator[RowBatch]:
        """Return it in ranges of keys, each a block."""
        return map(self._block, range(len(self._blocks)))

    def near(self, keys: Array) -> Iterator[RowBatch]:
        """Return the blocks that may have some of sorted ``keys``."""
        places = np.searchsorted(np.frombuffer(self._blocks.first, np.int64), keys, side="right") - 1
        return (self._block(number) for number in np.unique(places).tolist() if number >= 0)

    def without(self, keys: Array) -> DiskRowBatch:
        """Return the batch without some keys."""
        left = (part for piece in self.pieces(0) if len(part := piece.without(keys)))
        return DiskRowBatch(left, self, self.number, self._blocks.budget)


def on_disk(batch: RowBatch | DiskRowBatch, budget: MemoryBudget) -> DiskRowBatch:
    """Return a batch on disk."""
    return batch if isinstance(batch, DiskRowBatch) else DiskRowBatch([batch], batch, batch.number, budget)


def merged_batches(one: RowBatch | DiskRowBatch, other: RowBatch | DiskRowBatch, budget: MemoryBudget) -> RowBatch | DiskRowBatch:
    """Return two batches that ``can_merge`` as one: on disk where one of them is, and then a block of each is read at a time."""
    if isinstance(one, RowBatch) and isinstance(other, RowBatch):
        return merged(one, other)
    return DiskRowBatch(_merged_parts(one, other), one, max(one.number, other.number), budget)


def _merged_parts(one: RowBatch | DiskRowBatch, other: RowBatch | DiskRowBatch) -> Iterator[RowBatch]:
    sources = [batch.pieces(block_file.BLOCK) for batch in (one, other)]
    rest = [next(source, None) for source in sources]
    while any(piece is not None for piece in rest):
        bound = min(piece.keys[-1] for piece in rest if piece is not None)
        parts = []
        for number, piece in enumerate(rest):
            if piece is None:
                continue
            last = int(np.searchsorted(piece.keys, bound, side="right"))
            if last:
                parts.append(piece.cut(0, last))
            rest[number] = next(sources[number], None) if last == len(piece.keys) else piece.cut(last, len(piece.keys))
        yield parts[0] if len(parts) == 1 else merged(*parts)
