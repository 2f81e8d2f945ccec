"""``BlockRun``: a run of a spine in blocks of whole keys, which are in memory, or in a temporary file and read one at a time.

Large runs in memory are blocks, so that no merge ends with a copy of all of it.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from timely.dataflow.containers.pickling import pickled
from timely.differential.trace.compaction_frontier import Move
from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import Layout, cancels
from timely.errors import OutOfMemoryError
from timely.memory import MemoryBudget, size_text
from timely.memory.paged_file import Page, PagedFile

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Chunk
    from timely.differential.trace.object_chunk import ObjectChunk
    from timely.differential.updates.int_columns import Array

C = TypeVar("C", "Chunk[Any]", "ObjectChunk[Any, Any]")

_LEAST: Final = 1 << 20
"""Bytes that the entries of one key may always take."""


@final
class MemoryBlocks(Generic[C]):
    def __init__(self) -> None:
        self._chunks: list[C] = []

    def append(self, chunk: C) -> None:
        """Add the next block."""
        self._chunks.append(chunk)

    def block(self, number: int, whole: bool = False) -> C:
        return self._chunks[number]

    @property
    def nbytes(self) -> int:
        """The bytes of the chunks."""
        return sum(chunk.nbytes for chunk in self._chunks)

    @property
    def cancels(self) -> bool:
        """Whether entries have come to equal times, and may cancel."""
        return any(cancels(chunk.times) for chunk in self._chunks)

    def advance(self, moved: Move) -> None:
        for chunk in self._chunks:
            chunk.times = list(map(moved, chunk.times))


@final
class DiskBlocks(Generic[C]):
    """Blocks in a file, which is deleted when this is collected.

    In memory are the times, so to advance them writes nothing, and the block that was read last.
    """

    nbytes: Final = 0

    def __init__(self, layout: Layout[C], budget: MemoryBudget) -> None:
        self._layout: Layout[C] = layout
        self._budget = budget
        self._codes_of: dict[object, int] = {}  # of the times as they were when blocks were written
        self._times: list[Any] = []
        self._pages: list[Page] = []
        self._large: dict[int, tuple[int, int]] = {}  # entries and bytes of the blocks that have one key
        self._last: tuple[int, Any] = -1, None  # the block that was read last
        self._file = PagedFile(budget)
        weakref.finalize(self, self._file.close).atexit = False

    def append(self, chunk: C) -> None:
        """Write the next block; ``SpillError`` for a full disk."""
        page = self._file.append(pickled(self._layout.encoded(chunk, self._codes_of)))
        self._times = list(self._codes_of)
        if chunk.count_keys() == 1:
            self._large[len(self._pages)] = len(chunk), chunk.work(sum(page.sizes))
        self._pages.append(page)

    def block(self, number: int, whole: bool = False) -> C:
        """Return a block; ``OutOfMemoryError`` if the ``whole`` of one key is needed at once, and exceeds the memory budget."""
        if whole and number in self._large:
            entries, size = self._large[number]
            limit = self._budget.limit
            if limit is not None and size > max(limit, _LEAST):
                raise OutOfMemoryError(
                    f"one key has {entries:,} entries on disk, which take about {size_text(size)} in memory, where all of them"
                    f" are needed; the budget for state is {size_text(limit)}. Give more memory= (timely.execute, or a"
                    " timely.memory.MemoryBudget), or make keys finer, so that none has so many values"
                )
        if self._last[0] != number:
            self._last = number, self._file.load(self._pages[number])
        return self._layout.decoded(self._last[1], self._times)

    @property
    def cancels(self) -> bool:
        """Whether entries have come to equal times, and may cancel."""
        return cancels(self._times)

    def advance(self, moved: Move) -> None:
        self._times = list(map(moved, self._times))


@final
class BlockRun(Generic[C]):
    """Entries in order of the numbers of their keys."""

    __slots__ = ("_blocks", "_entries", "_first", "_keys", "_layout", "on_disk")

    def __init__(self, layout: Layout[C], budget: MemoryBudget | None) -> None:
        """Begin empty, on disk with a budget."""
        self._layout: Layout[C] = layout
        self.on_disk = budget is not None
        self._blocks: MemoryBlocks[C] | DiskBlocks[C] = MemoryBlocks() if budget is None else DiskBlocks(layout, budget)
        self._first = array("q")  # numbers of the first keys of blocks
        self._entries = 0
        self._keys = 0

    def append(self, chunk: C) -> None:
        """Add the next block; ``SpillError`` for a full disk."""
        self._blocks.append(chunk)
        self._first.append(chunk.first)
        self._entries += len(chunk)
        self._keys += chunk.count_keys()

    def __len__(self) -> int:
        return self._entries

    def count_keys(self) -> int:
        return self._keys

    @property
    def nbytes(self) -> int:
        """The bytes in memory that count."""
        return self._blocks.nbytes

    @property
    def cancels(self) -> bool:
        """Whether entries have come to equal times, and may cancel."""
        return self._blocks.cancels

    def advance(self, moved: Move) -> None:
        self._blocks.advance(moved)

    def only_block(self) -> C | None:
        """Return its only block, if that is in memory."""
        return self._blocks.block(0) if len(self._first) == 1 and not self.on_disk else None

    def _find(self, number: int) -> int:
        """Return the block that may have a number, or -1."""
        return bisect_right(self._first, number) - 1

    def lookup(self, number: int, key: object, entries: list[Entry]) -> None:
        block = self._find(number)
        if block >= 0:
            self._blocks.block(block, whole=True).lookup(number, key, entries)

    def near(self, keys: Array) -> Iterator[tuple[slice, C]]:
        """Return the blocks that may have some of sorted ``keys``, each with the range of those."""
        import numpy as np

        bounds = [*np.searchsorted(keys, np.frombuffer(self._first, np.int64)).tolist(), len(keys)]
        for number, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                yield slice(start, stop), self._blocks.block(number, whole=True)

    def parts(self, keys: Iterable[Any]) -> Iterator[C]:
        """Return the entries of some keys, which the layout can have."""
        by_block: dict[int, list[Any]] = {}
        for key in keys:
            number = self._layout.number(key)
            assert number is not None
            by_block.setdefault(self._find(number), []).append(key)
        for block, some in by_block.items():
            if block >= 0:
                yield self._blocks.block(block).part(some)

    def pieces(self, entries: int) -> Iterator[C]:
        """Return it in ranges of keys with about so many entries each."""
        waiting: list[C] = []
        for number in range(len(self._first)):
            for piece in self._blocks.block(number).pieces(entries):
                if waiting and sum(map(len, waiting)) + len(piece) > entries:
                    yield self._layout.concatenated(waiting)
                    waiting = []
                waiting.append(piece)
        if waiting:
            yield self._layout.concatenated(waiting)


class RunWriter(Generic[C]):
    """Makes a run of parts, in order of the numbers of their keys; on disk with a budget."""

    def __init__(self, layout: Layout[C], budget: MemoryBudget | None, block: int) -> None:
        self._layout: Layout[C] = layout
        self._block = block
        self._run: BlockRun[C] = BlockRun(layout, budget)
        self._waiting: list[C] = []  # less than a block
        self._entries = 0  # of those

    def add(self, part: C) -> None:
        self._waiting.append(part)
        self._entries += len(part)
        if self._entries >= self._block:
            self._write(all_of_it=False)

    def _write(self, all_of_it: bool) -> None:
        parts, self._waiting, self._entries = self._waiting, [], 0
        whole = self._layout.concatenated(parts)
        for piece in whole.pieces(self._block):
            if not all_of_it and piece.last == whole.last and len(piece) < self._block:
                self._waiting, self._entries = [piece], len(piece)  # the next part goes on there
            else:
                self._run.append(piece)

    def finish(self, moved: Move) -> C | BlockRun[C]:
        """Return the run, with the times that those of the parts have become; as a chunk, if it is one block in memory."""
        if self._waiting:
            self._write(all_of_it=True)
        run = self._run
        run.advance(moved)
        only = run.only_block()
        return run if only is None else only
