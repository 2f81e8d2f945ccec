"""``Blocks``: the entries of sorted keys in a temporary file, in blocks that are read one at a time.

In memory are the first key of each block, and the block that was read last. Keys are whole numbers of 64 bits: those of columns,
or hashes of the keys of rows. Invariant: all entries of a key are in one block.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_right
from typing import Any, Final

from timely.dataflow.pickling import pickled
from timely.errors import OutOfMemoryError
from timely.memory import MemoryBudget, size_text
from timely.memory.paged_file import Page, PagedFile

BLOCK: Final = 4096
"""Entries of a block of columns. To read one takes 20 to 30 µs from the page cache; a block of 32,768 takes 100."""

ROWS: Final = 256
"""Entries of a block of rows, which takes about 100 µs to unpickle."""

LEAST: Final = 1 << 20
"""Bytes that the entries of one key may always take."""


class Blocks:
    """A file of pickled blocks. It is written at its end, and deleted when this is collected.

    >>> blocks = Blocks(MemoryBudget())
    >>> blocks.append(5, ["from five on"]) == blocks.append(9, ["from nine on"])
    True
    >>> [blocks.find(key) for key in (4, 5, 8, 9)], blocks.read(1)
    ([-1, 0, 0, 1], ['from nine on'])
    """

    __slots__ = ("__weakref__", "_file", "_last", "_number", "_pages", "budget", "first")

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self._file = PagedFile(budget)
        self.first = array("q")
        """The first key of each block."""
        self._pages: list[Page] = []
        self._number = -1  # of the block that was read last
        self._last: Any = None
        weakref.finalize(self, self._file.close).atexit = False

    def __len__(self) -> int:
        return len(self.first)

    def append(self, first: int, block: Any) -> int:
        """Write a block whose first key is ``first``, and return its bytes; ``SpillError`` for a full disk."""
        page = self._file.append(pickled(block))
        self._pages.append(page)
        self.first.append(first)
        return sum(page.sizes)

    def find(self, key: int) -> int:
        """Return the number of the block that may have ``key``, or -1."""
        return bisect_right(self.first, key) - 1

    def read(self, number: int) -> Any:
        """Return a block, which must not be changed."""
        if number != self._number:
            self._last = self._file.load(self._pages[number])
            self._number = number
        return self._last

    def check(self, entries: int, size: int) -> None:
        """Raise ``OutOfMemoryError`` if one key, whose entries take about so many bytes in memory, exceeds the budget."""
        limit = self.budget.limit
        if limit is not None and size > max(limit, LEAST):
            raise OutOfMemoryError(
                f"one key has {entries:,} entries on disk, which take about {size_text(size)} in memory, where all of them are"
                f" needed; the budget for state is {size_text(limit)}. Give more memory= (timely.execute, or a"
                " timely.memory.MemoryBudget), or make keys finer, so that none has so many values"
            )
