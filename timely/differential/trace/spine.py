"""``Spine``: the entries of a trace in one layout, in runs of geometrically growing size, in memory or on disk.

Invariants: runs are settled, seen by every cursor, and stand oldest first, those on disk before those in memory. Every update is
in one run, or fresh. Runs that merge add up what has become equal; they are read meanwhile, and may have their times advanced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

from timely.differential.trace.block_run import BlockRun, RunWriter
from timely.differential.trace.compaction_frontier import Move
from timely.differential.trace.entries import Entry
from timely.differential.trace.layouts import Layout, cancels
from timely.differential.trace.trace_limits import TraceLimits
from timely.memory import MemoryBudget

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Chunk
    from timely.differential.trace.object_chunk import ObjectChunk

C = TypeVar("C", "Chunk[Any]", "ObjectChunk[Any, Any]")

Run: TypeAlias = C | BlockRun[C]


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

    def _writer(self, on_disk: bool) -> RunWriter[C]:
        if on_disk:
            return RunWriter(self.layout, self._budget, self._sizes.block)
        return RunWriter(self.layout, None, self._sizes.resident)

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

    def __init__(self, layout: Layout[C], sources: list[Run[C]], portion: int, writer: RunWriter[C]) -> None:
        self.sources: list[Run[C]] = sources
        self._parts: Iterator[C] = _ranges(layout, sources, portion)
        self._writer: RunWriter[C] = writer

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
