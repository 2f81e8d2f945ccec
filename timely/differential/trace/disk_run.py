"""``DiskRun``: a run of a spine in a temporary file, in blocks of whole keys that are read one at a time.

In memory are the times, so to advance them writes nothing, the number of the first key of each block, and the block read last.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from timely.dataflow.containers.pickling import pickled
from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import AnyChunk, Layout
from timely.errors import OutOfMemoryError
from timely.memory import MemoryBudget, size_text
from timely.memory.paged_file import Page, PagedFile

if TYPE_CHECKING:
    from timely.differential.updates.int_columns import Array

C = TypeVar("C", bound=AnyChunk)

_LEAST: Final = 1 << 20
"""Bytes that the entries of one key may always take."""


@final
class DiskRun(Generic[C]):
    """Entries in order of the numbers of their keys; the file is deleted when this is collected."""

    __slots__ = (
        "__weakref__",
        "_budget",
        "_entries",
        "_file",
        "_first",
        "_keys",
        "_large",
        "_last",
        "_layout",
        "_pages",
        "times",
    )

    def __init__(self, layout: Layout[C], budget: MemoryBudget) -> None:
        self.times: list[Any] = []
        self._layout = layout
        self._budget = budget
        self._file = PagedFile(budget)
        self._first = array("q")  # numbers of the first keys of blocks
        self._pages: list[Page] = []
        self._large: dict[int, tuple[int, int]] = {}  # entries and bytes of the blocks that have one key
        self._last: tuple[int, Any] = -1, None  # the block that was read last
        self._entries = 0
        self._keys = 0
        weakref.finalize(self, self._file.close).atexit = False

    def append(self, chunk: C, codes_of: dict[Any, int]) -> None:
        """Write the next block; ``SpillError`` for a full disk."""
        page = self._file.append(pickled(self._layout.encoded(chunk, codes_of)))
        if chunk.count_keys() == 1:
            self._large[len(self._pages)] = len(chunk), chunk.work(sum(page.sizes))
        self._pages.append(page)
        self._first.append(chunk.first)
        self._entries += len(chunk)
        self._keys += chunk.count_keys()

    def __len__(self) -> int:
        return self._entries

    def count_keys(self) -> int:
        """Return the number of keys."""
        return self._keys

    @property
    def nbytes(self) -> int:
        """The bytes in memory that count: none."""
        return 0

    def _block(self, number: int, whole: bool = False) -> C:
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
        return self._layout.decoded(self._last[1], self.times)

    def _find(self, number: int) -> int:
        """Return the block that may have a number, or -1."""
        return bisect_right(self._first, number) - 1

    def lookup(self, number: int, key: object, entries: list[Entry]) -> None:
        """Append the entries of one key."""
        block = self._find(number)
        if block >= 0:
            self._block(block, whole=True).lookup(number, key, entries)

    def near(self, keys: Array) -> Iterator[C]:
        """Return the blocks that may have some of sorted ``keys``."""
        import numpy as np

        places = np.searchsorted(np.frombuffer(self._first, np.int64), keys, side="right") - 1
        return (self._block(number, whole=True) for number in np.unique(places).tolist() if number >= 0)

    def parts(self, keys: Iterable[Any]) -> Iterator[C]:
        """Return the entries of some keys, which the layout can have."""
        by_block: dict[int, list[Any]] = {}
        for key in keys:
            number = self._layout.number(key)
            assert number is not None
            by_block.setdefault(self._find(number), []).append(key)
        for block, some in by_block.items():
            if block >= 0:
                yield self._block(block).part(some)

    def pieces(self, entries: int) -> Iterator[C]:
        """Return it in ranges of keys with about so many entries each, or a block."""
        waiting: list[C] = []
        for number in range(len(self._pages)):
            block = self._block(number)
            if waiting and sum(map(len, waiting)) + len(block) > entries:
                yield self._layout.concatenated(waiting)
                waiting = []
            waiting.append(block)
        if waiting:
            yield self._layout.concatenated(waiting)


class DiskWriter(Generic[C]):
    """Writes the parts of a run, in order of the numbers of their keys."""

    def __init__(self, layout: Layout[C], budget: MemoryBudget, block: int) -> None:
        self._layout = layout
        self._block = block
        self._run = DiskRun(layout, budget)
        self._waiting: list[C] = []  # less than a block
        self._codes_of: dict[Any, int] = {}  # of the times of all parts

    def add(self, part: C) -> None:
        """Add the next part."""
        self._waiting.append(part)
        if sum(map(len, self._waiting)) >= self._block:
            self._write(all_of_it=False)

    def _write(self, all_of_it: bool) -> None:
        parts, self._waiting = self._waiting, []
        whole = self._layout.concatenated(parts)
        for piece in whole.pieces(self._block):
            if not all_of_it and piece.last == whole.last:
                self._waiting = [piece]  # the next part may go on there
            else:
                self._run.append(piece, self._codes_of)

    def finish(self, moved: Callable[[Any], Any]) -> DiskRun[C]:
        """Return the run, with the times that those of the parts have become."""
        if self._waiting:
            self._write(all_of_it=True)
        self._run.times = list(map(moved, self._codes_of))
        return self._run
