"""``Trace``: the updates of one arrangement on one worker, by key, with as much history as its readers hold.

A key has a list of entries (``RowLists``). Large deltas of whole numbers or of Arrow rows, and rows that memory has no room for,
are in runs: those of each layout in a ``Spine``. All are read together.

Invariants: for every time at or after ``since``, the entries of a key with times at or before it add up to what was appended. An
update is in the lists or in one spine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from timely.differential.trace.compaction_frontier import Hold, Holds
from timely.differential.trace.deltas import Delta, RowDelta
from timely.differential.trace.entries import Entry, size_in_words
from timely.differential.trace.layouts import Layout
from timely.differential.trace.object_chunk import OBJECT_LAYOUT, equal_when_pickled
from timely.differential.trace.row_lists import RowLists
from timely.differential.trace.spine import Spine
from timely.differential.trace.state_memory import StateMemory, memory_of
from timely.differential.trace.trace_limits import TraceLimits
from timely.differential.updates.containers import as_columns, columns_module, is_keyed_rows
from timely.differential.updates.updates import Container, consolidate
from timely.memory import MemoryBudget
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Chunk, Gathered, Matches
    from timely.differential.trace.int_delta import IntDelta
    from timely.differential.updates.int_columns import Array
    from timely.differential.updates.row_columns import KeyedRows

T = TypeVar("T", bound=PartialOrder)

_NO_NUMBERS: Final[set[int]] = set()


class TraceReader(Protocol):
    """What a trace waits for: it settles the deltas that all of its readers have seen."""

    seen: int
    """The number of the first delta that it has not seen."""


def has_arrow_rows(spine: Spine[Any]) -> bool:
    """Return whether the values of a spine are Arrow rows."""
    return spine.layout.has_rows and bool(spine)


def delta_of(updates: Container, time: T) -> Delta[T]:
    """Return consolidated updates at ``time`` as a delta."""
    if isinstance(updates, list):
        return RowDelta(updates)
    if is_keyed_rows(updates):
        from timely.differential.trace.arrow_delta import ArrowDelta

        return ArrowDelta(updates, time)
    from timely.differential.trace.int_delta import IntDelta

    return IntDelta(updates, time)


class Trace(Generic[T]):
    """The updates of one arrangement on one worker.

    ``pairs``: records are pairs of a key and a value; else a record is a key, and its value is ``None``. ``upper()`` is the
    frontier of what may still be appended.
    """

    __slots__ = (
        "_cursors",
        "_grown",
        "_memory",
        "_mixed",
        "_rows",
        "_spines",
        "_unfolded",
        "holds",
        "lattice",
        "limits",
        "listeners",
        "number",
        "pairs",
        "reads_disk",
        "upper",
    )

    def __init__(self, times: Lattice[T], pairs: bool, upper: Hold) -> None:
        self.limits = TraceLimits.current()
        self.lattice = times
        self.pairs = pairs
        self.upper = upper
        self.holds: Holds[T] = Holds(times, upper, self.limits.patience)
        self.number = 0  # of the next delta
        self.listeners: list[Callable[[T, Delta[T]], object]] = []  # called with each delta: the imports of this trace
        self._cursors: list[TraceReader] = []
        self._rows = RowLists(self.holds, pairs)
        self._spines: list[Spine[Any]] = []  # one for each layout that came
        self._unfolded = 0  # rows appended since they were last made columns
        self._mixed = False  # not all rows are whole numbers
        self.reads_disk = False  # whether to read it in order of `hash(key)` is much faster: each block is read once
        self._memory: StateMemory | None = memory_of(self, self.limits.counted)  # where there is a limit
        self._grown = 0  # updates since that was last asked

    # -- writing ---------------------------------------------------------------------------------------------------

    def deltas(self, time: T, batches: Sequence[Any]) -> Iterable[RowDelta | IntDelta[T]]:
        """Return batches of updates, consolidated, as deltas to be appended at ``time``.

        They are several where readers of a large one would exceed the memory budget.
        """
        updates = as_columns(batches, self.pairs, self.limits.columns)
        if updates is None:
            updates = consolidate(batches[0] if len(batches) == 1 else chain.from_iterable(batches))
            if len(updates) <= self.limits.delta:
                return (RowDelta(updates),) if updates else ()
        else:
            updates = updates.consolidated()
        return self._deltas_of(time, (updates,))

    def row_deltas(self, time: T, batches: Sequence[Container]) -> Iterable[Delta[T]]:
        """Return what ``deltas`` does, but of batches that are all Arrow rows as such."""
        if not is_keyed_rows(batches[0]) or not self._takes_rows(batches):
            return self.deltas(time, batches)
        from timely.differential.updates.row_columns import together

        return self._deltas_of(time, map(methodcaller("ordered"), together(batches)))

    def append(self, time: T, delta: Delta[T]) -> Delta[T]:
        """Append a delta at ``time``, and return it; every cursor must see it."""
        number = delta.number = self.number
        self.number += 1
        updates = len(delta)
        if updates:
            self.holds.times[time] = None
        for listener in self.listeners:
            listener(time, delta)
        self._grown += updates
        chunk = delta.chunk
        if chunk is None:
            self._unfolded += updates
            self._rows.append(number, time, delta, bool(self._cursors))
        else:
            self._spine(chunk.layout).append(number, chunk, bool(self._cursors))
        return delta

    def _spine(self, layout: Layout[Any]) -> Spine[Any]:
        for spine in self._spines:
            if spine.layout == layout:
                return spine
        spine = Spine(layout, self.budget, self.limits, self.holds.moved)
        self._spines.append(spine)
        self.holds.parts.append(spine)
        return spine

    def _spine_of(self, layout: Layout[Any]) -> Spine[Any] | None:
        """Return the spine of a layout, if any of it came."""
        return next((spine for spine in self._spines if spine.layout == layout), None)

    def _deltas_of(self, time: T, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield sorted columns, or rows, as deltas, as many as the memory budget needs."""
        for updates in batches:
            size = len(updates)
            largest = size if self._memory is None else self.limits.delta
            part = updates.__getitem__ if isinstance(updates, list) else updates.chosen
            for row in range(0, size, largest or 1):
                yield delta_of(updates if size <= largest else part(slice(row, row + largest)), time)

    def _takes_rows(self, batches: Sequence[KeyedRows]) -> bool:
        """Return whether updates are to be kept as columns: 1,000 of TPC-H take half the time, 130 a fifth more."""
        from timely.differential.updates.int_columns import LARGE

        updates, largest = sum(map(len, batches)), max(map(len, self._spines), default=0)
        small = all(abs(batch.table.diff) < LARGE for batch in batches)
        if len({batch.table.diff for batch in batches}) > 1 and updates < self.limits.columns:
            return False  # as rows they cancel, of which joins would otherwise make many more
        return self.pairs and small and (updates >= 2 * self.limits.columns or 16 * updates >= largest)

    def load(self, key: object, entries: Iterable[Entry]) -> None:
        """Add entries of a checkpoint, which count as seen."""
        loaded = self._rows.load(key, entries)
        self._grown += len(loaded)
        self.holds.times.update(dict.fromkeys(time for _, time, _ in loaded))

    def load_columns(self, chunk: Chunk[T]) -> None:
        """Add a chunk of a checkpoint, as ``load`` does."""
        chunk.times = list(map(self.holds.moved, chunk.times))
        self.holds.times.update(dict.fromkeys(chunk.times))
        self._spine(chunk.layout).add(chunk)
        self._grown += len(chunk)
        self.limit_memory()

    def saved_columns(self, moved: Callable[[T], T]) -> Iterator[Chunk[T]]:
        """Return all entries that are columns, or many enough to become such, at the times that ``moved`` takes theirs to."""
        if len(self._rows.settled) > self.limits.folded and columns_module() is not None:
            self._fold()
        for spine in self._spines:
            if spine.layout is not OBJECT_LAYOUT:
                yield from spine.saved(self.limits.saved, moved)

    def saved_rows(self) -> Iterator[tuple[Any, list[Entry]]]:
        """Return the other entries by key, some keys twice."""
        objects = self._spine_of(OBJECT_LAYOUT)
        for chunk in () if objects is None else objects.saved(self.limits.object_chunks.portion):
            yield from chunk.items()
        rows = self._rows.keys()
        for key in rows:
            yield key, self._rows.visible(key, self.number, _NO_NUMBERS)

    def settle(self) -> None:
        """Settle the deltas that every cursor has seen."""
        low = self.number
        for cursor in self._cursors:
            if cursor.seen < low:
                low = cursor.seen
        for spine in self._spines:
            if spine.fresh:
                spine.settle(low)
        self._rows.settle(low)
        if not self.limits.patience:
            self.compact()

    # -- reading ---------------------------------------------------------------------------------------------------

    def add_cursor(self, cursor: TraceReader) -> None:
        """Have ``cursor`` see every delta from now on."""
        self._cursors.append(cursor)

    def remove_cursor(self, cursor: TraceReader) -> None:
        """Wait for ``cursor`` no longer."""
        self._cursors = [other for other in self._cursors if other is not cursor]
        self.settle()

    def history(self, key: object) -> list[Entry]:
        """Return all entries of ``key``, which must not be changed."""
        return self.visible(key, self.number, _NO_NUMBERS)

    def visible(self, key: object, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` in the deltas before number ``seen`` and in those of ``ahead``."""
        entries = self._rows.visible(key, seen, ahead)
        for spine in self._spines:
            below = spine.lookup(key, seen, ahead)
            if below:
                entries = below + entries
        return entries

    def matches(self, keys: Array, seen: int, ahead: set[int]) -> Matches:
        """Return what has some of sorted, unique ``keys`` of the deltas before number ``seen`` and of those of ``ahead``."""
        from timely.differential.trace.chunk import Matches, chunk_of_rows

        rows = self._rows
        if len(rows.settled) <= len(keys) and not self.has_rows:
            self._fold()  # to look up every key would cost as much
        loose = self._loose(keys, seen, ahead)
        chunks: list[tuple[slice, Chunk[T]]] = []
        if loose and not self.has_rows:
            chunk: Chunk[T] | None = chunk_of_rows(loose, None, self.pairs)
            if chunk is not None:
                chunks, loose = [(slice(0, len(keys)), chunk)], {}
        runs = [run for spine in self._spines if spine.layout is not OBJECT_LAYOUT for run in spine.visible(seen, ahead)]
        return Matches(chain(*[run.near(keys) for run in runs], chunks), loose)

    def _loose(self, keys: Array, seen: int, ahead: set[int]) -> dict[int, list[Entry]]:
        """Return the entries of ``keys`` that are not columns."""
        from timely.differential.trace.chunk import whole_numbers

        rows = self._rows
        objects = self._spine_of(OBJECT_LAYOUT)
        if objects is None and not rows.settled and not rows.fresh:
            return {}
        some: list[int] = keys.tolist()
        if objects is None and 8 * (len(rows.settled) + len(rows.fresh)) < len(some):
            held = whole_numbers(rows.keys())
            places = keys.searchsorted(held).clip(max=len(keys) - 1)
            some = held[keys[places] == held].tolist()
        loose = {}
        for key in some:
            entries = rows.visible(key, seen, ahead)
            if objects is not None:
                entries = objects.lookup(key, seen, ahead) + entries
            if entries:
                loose[key] = entries
        return loose

    def gather(self, keys: Array) -> Gathered | None:
        """Return all entries of sorted, unique ``keys`` as columns, or ``None`` where some are not whole numbers."""
        return self.matches(keys, self.number, _NO_NUMBERS).gathered(keys, self.pairs)

    def chunks(self, number: int) -> list[Chunk[T]] | None:
        """Return what came before delta ``number`` as columns; ``None`` where some are not whole numbers, or all are few."""
        if len(self) < self.limits.columns or columns_module() is None:
            return None
        from timely.differential.trace.chunk import INTS, chunk_of_rows

        if not self._fold() or any(spine and spine.layout != INTS for spine in self._spines):
            return None
        ints = self._spine_of(INTS)
        runs = () if ints is None else ints.visible(number)
        chunks: list[Chunk[T]] = [piece for run in runs if len(run) for piece in run.pieces(len(run))]
        rows = self._rows.before(number)
        if rows:
            chunk = chunk_of_rows(rows, self.holds.moved, self.pairs)
            if chunk is None:
                return None
            chunks.append(chunk)
        return chunks

    @property
    def has_rows(self) -> bool:
        """Whether it has runs of Arrow rows."""
        return any(map(has_arrow_rows, self._spines))

    def keys(self) -> Iterator[Any]:
        """Return the keys that have entries, and some that had."""
        keys = self._rows.keys()
        for spine in self._spines:
            keys.update(dict.fromkeys(spine.keys()))
        return iter(keys)

    def __len__(self) -> int:
        """Return the number of keys that have entries, or a little more."""
        return len(self._rows.settled) + len(self._rows.fresh) + sum(spine.count_keys() for spine in self._spines)

    def entries(self) -> int:
        """Return the number of entries, by counting them."""
        return sum(map(len, self._spines)) + self._rows.entries()

    def size(self) -> str:
        """Return how many entries and keys it has, in words; a bound of the keys, where finding the number takes long."""
        settled = self._rows.settled
        keys = len(settled) + sum(key not in settled for key in list(self._rows.fresh))
        below = sum(spine.count_keys() for spine in self._spines)
        runs = sum(spine.count_runs() for spine in self._spines)
        most = runs > 1 or bool(keys and below) or self.reads_disk
        return size_in_words(self.entries(), keys + below, False, most)

    def entries_per_key(self) -> int:
        """Return about how many entries a key has, and at least one."""
        settled = list(islice(self._rows.settled.values(), 64))
        entries = sum(map(len, settled)) + sum(map(len, self._spines))
        keys = len(settled) + sum(spine.count_keys() for spine in self._spines)
        return max(entries // max(keys, 1), 1)

    def rows_per_key(self) -> int:
        """Return about how many Arrow rows a key has, 0 where there are none."""
        return max([len(spine) // (spine.count_keys() or 1) for spine in self._spines if has_arrow_rows(spine)], default=0)

    # -- compaction ------------------------------------------------------------------------------------------------

    def maintain(self, appended: int) -> bool:
        """Compact some keys, at a cost that goes with how many updates were appended. Return whether others wait."""
        if self._memory is not None:
            self.limit_memory()
        patience, rows, holds = self.limits.patience, self._rows, self.holds
        if not patience:
            self.compact()
            return False
        if self._unfolded > self.limits.folded and self._spines:
            self._maintain_rows()
        more = False
        for spine in self._spines:
            if spine.changed:
                more = spine.work() or more
        rows.appended += appended
        rows.idle += 1
        if rows.idle < patience and len(rows.touched) < patience and not holds.reader_advanced and not holds.reader_released:
            return more  # each round computes `since`
        return rows.maintain(2 * appended + patience) or more

    def _maintain_rows(self) -> None:
        """Make columns of some rows where these are many; keys of Arrow rows that have become other rows leave the columns."""
        if self._unfolded <= max(self.limits.folded, max(map(len, self._spines)) // 4):
            return
        if not self.has_rows:
            if not self._mixed and columns_module() is not None and self._spine_of(OBJECT_LAYOUT) is None:
                self._fold(self.limits.folded // 2)
        elif all(cursor.seen >= self.number for cursor in self._cursors) and not self._rows.fresh:
            self.settle()
            self._unfolded = 0
            self.holds.advance()
            settled = self._rows.settled
            for spine in filter(has_arrow_rows, self._spines):
                removed = spine.remove(settled)
                if removed is None:
                    continue
                for key in removed.all_keys():
                    entries: list[Entry] = []
                    removed.lookup(key, key, entries)
                    settled[key] = entries + settled[key]
                    if not self._rows.compact_key(key):
                        settled.pop(key, None)

    def _fold(self, rows: int | None = None) -> bool:
        """Make columns of so many of the settled rows, or of all; return whether that could be done."""
        from timely.differential.trace.chunk import chunk_of_rows

        lists = self._rows
        if lists.settled:
            if self._mixed:
                return False
            self.holds.advance()
            chosen = lists.settled if rows is None else lists.take(rows)
            chunk = chunk_of_rows(chosen, self.holds.moved, self.pairs)
            if chunk is None:
                lists.settled.update(chosen)
                self._mixed = True
                return False
            self._spine(chunk.layout).add(chunk)
            self._unfolded -= len(chunk)
            if rows is None:
                lists.replace({})
        if not lists.settled:
            self._unfolded = 0
        return True

    def compact(self) -> None:
        self._rows.compact()
        for spine in self._spines:
            spine.compact()

    def compact_key(self, key: object) -> list[Entry]:
        entries = self._rows.compact_key(key)
        return self.holds.compacted(self.history(key)) if self._spines else entries

    def remove(self, key: object) -> list[Entry]:
        """Remove a key, of which nothing is fresh, and return its entries."""
        entries = self.history(key)
        self._rows.remove(key)
        for spine in self._spines:
            spine.remove([key])
        return entries

    # -- state on disk ---------------------------------------------------------------------------------------------

    @property
    def has_limit(self) -> bool:
        """Whether its memory is limited."""
        return self._memory is not None

    def limit_memory(self) -> None:
        """Move state to disk, where it has grown beyond the memory budget."""
        if self._memory is not None and self._grown:
            self._memory.appended(self._grown)
            self._grown = 0

    @property
    def budget(self) -> MemoryBudget:
        return MemoryBudget.current() if self._memory is None else self._memory.budget

    def recount(self) -> int:
        """Count anew what it has in memory, and return it."""
        held = self.held()
        if self._memory is not None:
            self._memory.count(held)
        return held

    def held(self) -> int:
        """Return about how many bytes it has in memory and could move to disk."""
        return sum(spine.nbytes for spine in self._spines) + (
            0 if self._memory is None else self._memory.row_bytes(self._rows.settled)
        )

    def spill(self) -> None:
        """Move to disk what every cursor has seen."""
        assert self._memory is not None
        lists = self._rows
        if lists.settled and not self._mixed and columns_module() is not None and not self.has_rows:
            self._fold()
        for spine in self._spines:
            spine.spill()
        if lists.settled:
            self.holds.advance()
            left: dict[object, list[Entry]] = {}
            block = self.limits.object_chunks.block
            self._spine(OBJECT_LAYOUT).written(equal_when_pickled(lists.settled, block, self.holds.compacted, left))
            lists.replace(left)
        objects = self._spine_of(OBJECT_LAYOUT)
        self.reads_disk = objects is not None and objects.reads_disk
