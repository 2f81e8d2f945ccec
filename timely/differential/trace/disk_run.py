"""``DiskRun``: a run of a spine on disk, in blocks of whole keys that are read one at a time.

The times are in memory, so to advance them writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from timely.differential.trace.block_file import Blocks
from timely.differential.trace.entries import Entry
from timely.memory import MemoryBudget

if TYPE_CHECKING:
    from timely.differential.trace.spine import AnyChunk, Layout
    from timely.differential.updates.int_columns import Array

C = TypeVar("C", bound="AnyChunk")


@final
class DiskRun(Generic[C]):
    """Entries in order of the numbers of their keys."""

    __slots__ = ("_blocks", "_entries", "_keys", "_large", "_layout", "times")

    def __init__(self, layout: Layout[C], blocks: Blocks) -> None:
        self.times: list[Any] = []
        self._layout = layout
        self._blocks = blocks
        self._large: dict[int, tuple[int, int]] = {}  # entries and bytes of the blocks that have one key
        self._entries = 0
        self._keys = 0

    def append(self, chunk: C, codes_of: dict[Any, int]) -> None:
        """Write the next block."""
        size = self._blocks.append(chunk.first, self._layout.encoded(chunk, codes_of))
        self._entries += len(chunk)
        self._keys += chunk.count_keys()
        if chunk.count_keys() == 1:
            self._large[len(self._blocks) - 1] = len(chunk), chunk.work(size)

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
        """Return a block; one key of ``whole`` ones is needed at once."""
        if whole and number in self._large:
            self._blocks.check(*self._large[number])
        return self._layout.decoded(self._blocks.read(number), self.times)

    def lookup(self, number: int, key: object, entries: list[Entry]) -> None:
        """Append the entries of one key."""
        block = self._blocks.find(number)
        if block >= 0:
            self._block(block, whole=True).lookup(number, key, entries)

    def near(self, keys: Array) -> Iterator[C]:
        """Return the blocks that may have some of sorted ``keys``."""
        import numpy as np

        places = np.searchsorted(np.frombuffer(self._blocks.first, np.int64), keys, side="right") - 1
        return (self._block(number, whole=True) for number in np.unique(places).tolist() if number >= 0)

    def parts(self, keys: Iterable[Any]) -> Iterator[C]:
        """Return the entries of some keys, which the layout can have."""
        by_block: dict[int, list[Any]] = {}
        for key in keys:
            number = self._layout.number(key)
            assert number is not None
            by_block.setdefault(self._blocks.find(number), []).append(key)
        for block, some in by_block.items():
            if block >= 0:
                yield self._block(block).part(some)

    def pieces(self, entries: int) -> Iterator[C]:
        """Return it in ranges of keys with about so many entries each, or a block."""
        waiting: list[C] = []
        for number in range(len(self._blocks)):
            block = self._block(number)
            if waiting and sum(map(len, waiting)) + len(block) > entries:
                yield self._layout.concatenated(waiting)
                waiting = []
            waiting.append(block)
        if waiting:
            yield self._layout.concatenated(waiting)


class DiskWriter(Generic[C]):
    """Writes the parts of a run, in order of the numbers of their keys."""

    def __init__(self, layout: Layout[C], budget: MemoryBudget) -> None:
        self._layout = layout
        self._run = DiskRun(layout, Blocks(budget))
        self._waiting: list[C] = []  # less than a block
        self._codes_of: dict[Any, int] = {}  # of the times of all parts

    def add(self, part: C) -> None:
        """Add the next part."""
        self._waiting.append(part)
        if sum(map(len, self._waiting)) >= self._layout.block_entries:
            self._write(all_of_it=False)

    def _write(self, all_of_it: bool) -> None:
        parts, self._waiting = self._waiting, []
        whole = self._layout.concatenated(parts)
        for piece in whole.pieces(self._layout.block_entries):
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
