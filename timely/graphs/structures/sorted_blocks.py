"""``SortedBlocks``: rows of whole numbers in order of their first column, the key, in blocks that a memory budget puts on disk.

An external sort: rows are sorted a run at a time, and cut at quantiles of the keys. The pieces between two cuts become a block.
The invariant: blocks are in order of their keys, and rows with equal keys are in one block. So a lookup reads the blocks of its
keys only, and what is done for each key sees all of its rows. The first key of each block is in memory. Without a limit there is
one block. Nothing changes a block, so one may iterate while others are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from timely.graphs.structures.arrays import BLOCK, Column, Rows, joined_blocks, ranges, run_starts, sorted_order
from timely.memory import MemoryBudget, Spool
from timely.operators.keyed.merge_policy import GEOMETRIC

_RUN: Final = 2 * BLOCK
"""Rows that are sorted at a time."""

_ROWS: Final = 2 * BLOCK
"""About how many rows a block has."""

_SAMPLE: Final = 64
"""Every 64th key is a sample; blocks are cut at samples."""


class SortedBlocks:
    """Sorted rows of one or more columns, without numbers below 0."""

    def __init__(self, *sources: Spool | SortedBlocks) -> None:
        """Sort the rows of all ``sources``. A spool is drained."""
        self._blocks = Spool()
        self._firsts: list[int] = []
        self._rows = 0
        cuts = _cuts(sources)
        pieces: list[list[int]] = [[] for _ in range(len(cuts) + 1)]
        runs = Spool()
        size = _RUN if len(cuts) else None
        for source in sources:
            for rows in joined_blocks(source.drain() if isinstance(source, Spool) else source, size):
                run = _sorted(rows.T)
                for index, piece in enumerate(np.split(run, np.searchsorted(run[0], cuts), axis=1)):
                    if piece.shape[1]:
                        pieces[index].append(len(runs))
                        runs.append(np.ascontiguousarray(piece))
        for some in pieces:
            if len(some) == 1:
                self.append(runs[some[0]])
            elif some:
                self.append(_sorted(np.concatenate([runs[index] for index in some], axis=1)))

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Rows]:
        return (block.T.astype(np.int64, copy=False) for block in self._blocks)

    def append(self, block: Rows) -> None:
        """Add a sorted block of columns, whose keys are all greater than those before."""
        if block.shape[1]:
            self._firsts.append(int(block[0, 0]))
            self._rows += block.shape[1]
            self._blocks.append(_narrow(block))

    def distinct_keys(self) -> Iterator[Column]:
        """Yield each key once, in order, block by block."""
        for block in self._blocks:
            yield block[0, run_starts(block[0])].astype(np.int64)

    def find(self, keys: Column, ends: Column | None = None) -> Iterator[tuple[Column, Column, Rows]]:
        """Yield, for each block with rows of any of ``keys``: the place in ``keys`` of each such row, which it is, and the block.

        With ``ends``, rows whose key is at least that of ``keys`` and less than that of ``ends``. The columns of a block may be
        int32.
        """
        ends = keys + 1 if ends is None else ends
        for places, block in self.touched(keys, ends):
            starts = np.searchsorted(block[0], _as(block, keys[places]))
            counts = np.searchsorted(block[0], _as(block, ends[places])) - starts
            which = ranges(starts, counts)
            if len(which):
                at = np.arange(len(keys)) if isinstance(places, slice) else places
                yield np.repeat(at, counts), which, block

    def touched(self, keys: Column, ends: Column | None = None) -> Iterator[tuple[Column | slice, Rows]]:
        """Yield each block that may have any of ``keys``, or keys from there up to ``ends``, and the places of those."""
        if len(self._firsts) < 2:
            yield from ((slice(None), block) for block in self._blocks)
            return
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.searchsorted(keys if ends is None else ends[order] - 1, self._firsts)
        stops = np.append(np.searchsorted(keys, self._firsts[1:]), len(keys))
        for index in np.flatnonzero(starts < stops).tolist():
            yield order[starts[index] : stops[index]], self._blocks[index]


def add_segment(segments: list[SortedBlocks], new: SortedBlocks) -> None:
    """Add rows to a list of logarithmically many segments."""
    if len(new):
        segments.append(new)
    while (due := GEOMETRIC.due([len(segment) for segment in segments])) is not None:
        segments[due] = [SortedBlocks(*segments[due])]


def _cuts(sources: tuple[Spool | SortedBlocks, ...]) -> Column:
    """Return the first key of each block but the first."""
    if MemoryBudget.current().limit is None:
        return np.empty(0, np.int64)
    samples, rows = [np.empty(0, np.int64)], 0
    for source in sources:
        for some in source:
            samples.append(some[-rows % _SAMPLE :: _SAMPLE, 0])
            rows += len(some)
    sample = np.sort(np.concatenate(samples))
    blocks = -(-rows // _ROWS)
    cuts = sample[np.arange(1, blocks) * len(sample) // max(blocks, 1)]
    return cuts[run_starts(cuts)]


def _sorted(columns: Rows) -> Rows:
    return columns.take(sorted_order(columns[0]), axis=1)


def _narrow(block: Rows) -> Rows:
    """Return a block as int32, if its numbers allow it."""
    fits = block.dtype == np.int64 and int(block.max()) < (1 << 31) - 1 and int(block.min()) >= 0
    return block.astype(np.int32) if fits else block


def _as(block: Rows, keys: Column) -> Column:
    """Return keys of the type of a block, since a search would convert the block else. Greater keys are in no narrow block."""
    return keys if block.dtype == keys.dtype else np.minimum(keys, (1 << 31) - 1).astype(block.dtype)
