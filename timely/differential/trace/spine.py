"""``Spine``: the entries of a trace in one layout, in runs of geometrically growing size, in memory or on disk.

Invariants: runs are settled, seen by every cursor, and stand oldest first, those on disk before those in memory. Every update is
in one run, or fresh. Runs that merge add up what has become equal; they are read meanwhile, and may have their times advanced.
Large runs are blocks of whole keys, also in memory, so that no merge ends with a copy of all of it.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, final

from timely.dataflow.containers.pickling import pickled
from timely.differential.trace.compaction_frontier import Move
from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import Layout, cancels
from timely.differential.trace.trace_limits import TraceLimits
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
class _MemoryBlocks(Generic[C]):
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
class _DiskBlocks(Generic[C]):
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
        self._blocks: _MemoryBlocks[C] | _DiskBlocks[C] = _MemoryBlocks() if budget is None else _DiskBlocks(layout, budget)
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

    def alone(self) -> Run[C]:
        """Return its only block, if that is in memory, or else itself."""
        return self._blocks.block(0) if len(self._first) == 1 and not self.on_disk else self

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


Run: TypeAlias = C | BlockRun[C]


class _RunWriter(Generic[C]):
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

    def finish(self, moved: Move) -> Run[C]:
        """Return the run, with the times that those of the parts have become; as a chunk, if it is one block in memory."""
        if self._waiting:
            self._write(all_of_it=True)
        self._run.advance(moved)
        return self._run.alone()


@final
class Spine(Generic[C]):
    """The runs of one layout, and fresh chunks with the numbers of their deltas, which cursors may still have to see."""

    def __init__(self, layout: Layout[C], budget: MemoryBudget, limits: TraceLimits, moved: Move) -> None:
        """Begin empty; ``moved(time)`` is a time as it was last advanced."""
        self.layout: Layout[C] = layout
        self._moved = moved
        self._numbered = layout.numbers_keys
        self.changed = False  # since there was last nothing to merge
        self._budget = budget
        self._sizes = layout.sizes(limits)
        self._policy = limits.policy
        self._runs: list[Run[C]] = []
        self.fresh: deque[tuple[int, C]] = deque()
        self._merge: _Merge[C] | None = None

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, number: int, chunk: C, fresh: bool) -> None:
        """Append a delta, which cursors may still have to see."""
        if fresh:
            self.fresh.append((number, chunk))
        else:
            self.add(chunk)

    def add(self, run: Run[C]) -> None:
        """Add a run that counts as seen, and merge those that are due; large ones are merged in portions, by ``work``."""
        if not len(run):
            return
        runs = self._runs
        if _on_disk(run):
            runs.insert(sum(map(_on_disk, runs)), run)
        else:
            runs.append(run)
        self.changed = True
        while (due := self._policy.due([len(each) for each in runs])) is not None and due.stop == len(runs):
            sources = [each for each in runs[due] if not isinstance(each, BlockRun)]
            if len(sources) < due.stop - due.start or sum(map(len, sources)) > 2 * self._sizes.portion:
                return
            if self._merge is not None and any(each in self._merge.sources for each in sources):
                return
            merged = self.layout.merged(sources)
            runs[due] = [merged] if len(merged) else []

    def settle(self, low: int) -> None:
        """Settle the deltas before number ``low``."""
        while self.fresh and self.fresh[0][0] < low:
            self.add(self.fresh.popleft()[1])

    def remove(self, keys: Iterable[object]) -> C | None:
        """Remove keys of which nothing is fresh, by adding the negation of their entries, and return these."""
        keys = [key for key in keys if self.layout.number(key) is not None]
        parts: list[C] = []
        for run in self._runs if keys else ():
            parts.extend(run.parts(keys) if isinstance(run, BlockRun) else [run.part(keys)])
        parts = [part for part in parts if len(part)]
        removed = self.layout.merged(parts) if parts else None
        if removed is None or not len(removed):
            return None
        self.add(removed.negated())
        return removed

    # -- reading ---------------------------------------------------------------------------------------------------

    def visible(self, seen: int | None = None, ahead: Container[int] = ()) -> Iterator[Run[C]]:
        """Return the runs before delta ``seen``, and those of ``ahead``; all of them for ``None``."""
        yield from self._runs
        for number, chunk in self.fresh:
            if seen is None or number < seen or number in ahead:
                yield chunk

    def lookup(self, key: object, seen: int, ahead: Container[int]) -> list[Entry]:
        entries: list[Entry] = []
        number = key if self._numbered and type(key) is int else self.layout.number(key)
        if number is not None:
            for run in self._runs if not self.fresh else self.visible(seen, ahead):
                run.lookup(number, key, entries)
        return entries

    def keys(self) -> Iterator[object]:
        """Return the keys that have entries, and some that had; some of them several times."""
        return (key for run in self.visible() for piece in run.pieces(self._sizes.portion) for key in piece.all_keys())

    def saved(self, entries: int, moved: Move | None = None) -> Iterator[C]:
        """Return all of it, added up, in ranges of keys with about so many entries, at the times that theirs become."""
        parts = _ranges(self.layout, list(self.visible()), entries, moved)
        return (part for part in parts if len(part))

    def __len__(self) -> int:
        return sum(map(len, self.visible()))

    def count_keys(self) -> int:
        """Return the number of keys, or more where several runs have them."""
        return sum(run.count_keys() for run in self.visible())

    def count_runs(self) -> int:
        return len(self._runs) + len(self.fresh)

    @property
    def nbytes(self) -> int:
        """The bytes of the runs in memory."""
        return sum(run.nbytes for run in self.visible())

    @property
    def reads_disk(self) -> bool:
        """Whether there are runs on disk: in order of the numbers of keys, each block of them is read once."""
        return bool(self._runs) and _on_disk(self._runs[0])

    # -- merging ---------------------------------------------------------------------------------------------------

    def advance(self, moved: Move) -> None:
        """Advance all times: only short lists change."""
        for run in self.visible():
            if isinstance(run, BlockRun):
                run.advance(moved)
            else:
                run.times = list(map(moved, run.times))
        self.changed = bool(self._runs)

    def work(self) -> bool:
        """Merge a portion of the runs that are due; return whether there is more to do."""
        if self._merge is None:
            runs = self._runs
            cancelling = [run.cancels if isinstance(run, BlockRun) else cancels(run.times) for run in runs]
            due = self._policy.due([len(run) for run in runs], cancelling)
            if due is None:
                self.changed = False
                return False
            self._merge = self._merge_of(runs[due])
        if self._merge.work():
            self._replace(self._merge)
            self._merge = None
        return True

    def _replace(self, merge: _Merge[C]) -> None:
        place = self._runs.index(merge.sources[0])
        merged = merge.finish(self._moved)
        self._runs[place : place + len(merge.sources)] = [merged] if len(merged) else []

    def compact(self) -> None:
        self._merge = None
        if self._runs:
            self._complete(self._merge_of(list(self._runs)))

    def _merge_of(self, sources: list[Run[C]], on_disk: bool = False) -> _Merge[C]:
        """Return the merge of runs, on disk where one of them is."""
        return _Merge(self.layout, sources, self._sizes.portion, self._writer(on_disk or any(map(_on_disk, sources))))

    def _writer(self, on_disk: bool) -> _RunWriter[C]:
        if on_disk:
            return _RunWriter(self.layout, self._budget, self._sizes.block)
        return _RunWriter(self.layout, None, self._sizes.resident)

    def _complete(self, merge: _Merge[C]) -> None:
        while not merge.work():
            pass
        self._replace(merge)

    def spill(self) -> None:
        """Move the runs to disk, as one: these are the newest, older ones are there already."""
        held = [run for run in self._runs if not _on_disk(run)]
        if not held:
            return
        if self._merge is not None and any(run in self._merge.sources for run in held):
            self._merge = None
        self._complete(self._merge_of(list[Run[C]](held), on_disk=True))
        self.changed = True

    def written(self, parts: Iterable[C]) -> None:
        """Add parts, in order of their keys, as a run on disk."""
        writer = self._writer(on_disk=True)
        for part in parts:
            if len(part):
                writer.add(part)
        self.spill()
        self.add(writer.finish(self._moved))


class _Merge(Generic[C]):
    """The merge of runs, a range of keys at a time."""

    def __init__(self, layout: Layout[C], sources: list[Run[C]], portion: int, writer: _RunWriter[C]) -> None:
        self.sources: list[Run[C]] = sources
        self._parts: Iterator[C] = _ranges(layout, sources, portion)
        self._writer: _RunWriter[C] = writer

    def work(self) -> bool:
        """Merge the next range; return whether that was the last one."""
        part = next(self._parts, None)
        if part is None:
            return True
        if len(part):
            self._writer.add(part)
        return False

    def finish(self, moved: Move) -> Run[C]:
        """Return the whole, with the times that those of its parts have become."""
        return self._writer.finish(moved)


def _on_disk(run: Run[C]) -> bool:
    return isinstance(run, BlockRun) and run.on_disk


def _ranges(layout: Layout[C], runs: Sequence[Run[C]], entries: int, moved: Move | None = None) -> Iterator[C]:
    """Return the sum of runs, a range of keys at a time, at the times that they have then, or ``moved`` ones."""
    pieces = [run.pieces(entries) for run in runs]
    rest = [next(each, None) for each in pieces]
    while any(piece is not None for piece in rest):
        bound = min(piece.last for piece in rest if piece is not None)
        parts: list[C] = []
        for number, piece in enumerate(rest):
            if piece is None:
                continue
            before, after = piece.split(bound)
            rest[number] = next(pieces[number], None) if after is None else after
            if before is not None:
                parts.append(before if moved is None else before.at(list(map(moved, before.times))))
        yield layout.merged(parts)
