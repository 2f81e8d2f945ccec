"""``Trace``: the updates of one arrangement on one worker, by key, with as much history as its readers hold.

A key has a list of entries (``RowLists``). Large deltas of whole numbers are columns (``ColumnStore``), those of Arrow rows are
batches (``RowBatches``), and rows that memory has no room for are on disk (``RowRuns``). All four are read together.

Invariant: for every time at or after ``since``, the entries of a key with times at or before it add up to what was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from timely.differential.trace.compaction_frontier import Hold, Holds
from timely.differential.trace.entries import Entry, size_in_words
from timely.differential.trace.row_lists import NO_ENTRIES, RowLists
from timely.differential.trace.state_memory import StateMemory, memory_of
from timely.differential.updates.containers import columns_module
from timely.differential.updates.updates import Delta, Update
from timely.memory import MemoryBudget
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.trace.column_batches import Batch, Gathered
    from timely.differential.trace.column_store import ColumnDelta, ColumnStore
    from timely.differential.trace.disk_row_batches import DiskRowBatch
    from timely.differential.trace.disk_rows import RowRuns
    from timely.differential.trace.row_batches import RowBatches
    from timely.differential.trace.row_store import RowBatch, RowDelta
    from timely.differential.updates.int_columns import Array, Updates
    from timely.differential.updates.row_columns import KeyedRows

T = TypeVar("T", bound=PartialOrder)

_NO_NUMBERS: Final[set[int]] = set()
_LEAST_FOLD: Final = 4096
"""Rows over columns that are always kept as rows."""

_LARGEST: Final = 1 << 16
"""Updates of a delta, where memory is limited."""


class TraceReader(Protocol):
    """What a trace waits for: it settles the deltas that all of its readers have seen."""

    seen: int
    """The number of the first delta that it has not seen."""


class Trace(Generic[T]):
    """The updates of one arrangement on one worker.

    ``pairs``: records are pairs of a key and a value; else a record is a key, and its value is ``None``. ``upper()`` is the
    frontier of what may still be appended.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "_cursors",
        "_grown",
        "_memory",
        "_mixed",
        "_rows",
        "_runs",
        "_tables",
        "_unfolded",
        "holds",
        "lattice",
        "listeners",
        "number",
        "pairs",
        "upper",
    )

    eager: ClassVar[bool] = False
    """Whether everything is compacted whenever something may be: ``timely.testing.differential.forced_compaction`` sets it."""

    def __init__(self, times: Lattice[T], pairs: bool, upper: Hold) -> None:
        self.lattice = times
        self.pairs = pairs
        self.upper = upper
        self.holds: Holds[T] = Holds(times, upper)
        self.number = 0  # of the next delta
        self.listeners: list[Callable[[T, Any], object]] = []  # called with each delta: the imports of this trace
        self._cursors: list[TraceReader] = []
        self._rows = RowLists(self.holds, pairs)
        self._columns: ColumnStore | None = None
        self._tables: RowBatches | None = None
        self._runs: RowRuns | None = None
        self._unfolded = 0  # rows appended since they were last made columns
        self._mixed = False  # not all rows are whole numbers
        self._memory: StateMemory | None = memory_of(self)  # where there is a limit
        self._grown = 0  # updates since that was last asked

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, time: T, updates: Iterable[Update]) -> Delta:
        """Append consolidated updates at ``time``, and return them as a delta, which every cursor must see."""
        delta = Delta(updates)
        delta.number = self.number
        self._announce(time, delta)
        self._unfolded += len(delta)
        self._rows.append(delta.number, time, delta, bool(self._cursors))
        return delta

    def append_columns(self, time: T, updates: Updates) -> ColumnDelta:
        """Append consolidated columns at ``time``, as ``append`` does."""
        from timely.differential.trace.column_store import ColumnDelta

        delta = ColumnDelta(updates, self.number, time)
        self._announce(time, delta)
        self._store().append(delta, fresh=bool(self._cursors))
        return delta

    def append_rows(self, time: T, updates: KeyedRows) -> RowDelta:
        """Append rows that are columns at ``time``, as ``append`` does; they are not added up."""
        from timely.differential.trace.row_batches import RowBatches
        from timely.differential.trace.row_store import RowBatch, RowDelta

        batch = RowBatch(updates.ordered(), self.number, time)
        delta = RowDelta(batch)
        self._announce(time, delta)
        if self._tables is None:
            self._tables = RowBatches(self.budget)
            self.holds.parts.append(self._tables)
        self._tables.append(batch)
        return delta

    def _announce(self, time: T, delta: Any) -> None:
        """Let listeners know a delta, which has the next number."""
        self.number += 1
        if delta:
            self.holds.times[time] = None
        for listener in self.listeners:
            listener(time, delta)
        self._grown += len(delta)

    def _store(self) -> ColumnStore:
        if self._columns is None:
            from timely.differential.trace.column_store import ColumnStore

            self._columns = ColumnStore(self.budget)
            self.holds.parts.append(self._columns)
        return self._columns

    def portions(self, updates: Any) -> Iterable[Any]:
        """Return updates as such that are appended one by one: readers of large deltas would exceed a memory budget."""
        if not len(updates):
            return ()
        if self._memory is None or len(updates) <= _LARGEST:
            return (updates,)
        if not isinstance(updates, list):
            ordered = updates.ordered() if hasattr(updates, "ordered") else updates
            return (ordered.chosen(slice(row, row + _LARGEST)) for row in range(0, len(ordered), _LARGEST))
        return (updates[row : row + _LARGEST] for row in range(0, len(updates), _LARGEST))

    def takes_rows(self, updates: KeyedRows) -> bool:
        """Return whether updates are to be kept as columns: not many small batches, nor what takes rows away."""
        if updates.table.diff < 0:
            return False
        return len(updates) >= _LEAST_FOLD or 16 * len(updates) >= (len(self._tables) if self._tables else 0)

    def load(self, key: Any, entries: Iterable[Entry]) -> None:
        """Add entries of a checkpoint, which count as seen."""
        kept = self._rows.load(key, entries)
        self._grown += len(kept)
        self.holds.times.update(dict.fromkeys(time for _, time, _ in kept))

    def load_columns(self, batch: Batch) -> None:
        """Add a batch of a checkpoint, as ``load`` does."""
        batch.times = [self.holds.moved(time) for time in batch.times]
        self.holds.times.update(dict.fromkeys(batch.times))
        self._store().add(batch)
        self._grown += len(batch)
        self.limit_memory()

    def parts(self) -> tuple[Iterator[list[Batch]], Iterator[tuple[Any, list[Entry]]]]:
        """Return all entries: groups of those that are columns, or many enough to become such, and the others by key."""
        if len(self._rows.settled) > _LEAST_FOLD and columns_module() is not None:
            self._fold()
        return iter(()) if self._columns is None else self._columns.saved(), self._all_rows()

    def _all_rows(self) -> Iterator[tuple[Any, list[Entry]]]:
        """Return every key with its entries that are not columns of whole numbers; those on disk first."""
        keys = self._rows.keys()
        if self._tables is not None:
            keys.update(dict.fromkeys(self._tables.keys()))
        if self._runs is not None:
            for key, found in self._runs.items():
                yield key, self._with_tables(key, found + self._rows.visible(key, self.number, _NO_NUMBERS))
        for key in keys:
            if self._runs is None or not self._runs.lookup(key):
                yield key, self._with_tables(key, self._rows.visible(key, self.number, _NO_NUMBERS))

    def settle(self) -> None:
        """Settle the deltas that every cursor has seen."""
        low = self._low()
        if self._columns is not None:
            self._columns.settle(low)
        self._rows.settle(low)
        if self.eager:
            self.compact()

    def _low(self) -> int:
        """Return the number of the first delta that some cursor has not seen."""
        return min((cursor.seen for cursor in self._cursors), default=self.number)

    # -- reading ---------------------------------------------------------------------------------------------------

    def add_cursor(self, cursor: TraceReader) -> None:
        """Have ``cursor`` see every delta from now on."""
        self._cursors.append(cursor)

    def remove_cursor(self, cursor: TraceReader) -> None:
        """Wait for ``cursor`` no longer."""
        self._cursors = [other for other in self._cursors if other is not cursor]
        self.settle()

    def history(self, key: Any) -> list[Entry]:
        """Return all entries of ``key``, which must not be changed."""
        return self.visible(key, self.number, _NO_NUMBERS)

    def visible(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` in the deltas before number ``seen`` and in those of ``ahead``."""
        found = self._rows.visible(key, seen, ahead)
        if self._runs is not None:
            found = self._runs.lookup(key) + found
        if self._columns is not None:
            below = self._columns.lookup(key, seen, ahead)
            if below:
                found = below + found
        return self._with_tables(key, found, seen, ahead) if self._tables else found

    def _with_tables(self, key: Any, entries: list[Entry], seen: int | None = None, ahead: set[int] = _NO_NUMBERS) -> list[Entry]:
        """Return the entries of ``key`` in the batches of rows, and ``entries``."""
        found = self._tables.lookup(key, self.number if seen is None else seen, ahead) if self._tables else NO_ENTRIES
        return found + entries if found else entries

    def gather(self, keys: Array, seen: int, ahead: set[int]) -> Gathered | None:
        """Return the entries of sorted, unique ``keys`` as columns, or ``None`` where some are not whole numbers."""
        from timely.differential.trace import column_store

        if self._tables:
            return None
        rows = self._rows
        if len(rows.settled) <= len(keys):
            self._fold()  # to look up every key would cost as much
        found = [] if self._columns is None else self._columns.gather(keys, seen, ahead)
        if rows.settled or rows.fresh or self._runs:
            few = not self._runs and 8 * (len(rows.settled) + len(rows.fresh)) < len(keys)
            held = rows.keys() if few else None
            gathered = column_store.row_entries(keys, lambda key: self.loose_history(key, seen, ahead), self.pairs, held)
            if gathered is None:
                return None
            found.append(gathered)
        return column_store.one(found, self.pairs)

    def batches(self, number: int) -> list[Batch] | None:
        """Return what came before delta ``number`` as columns, or ``None`` where some are not whole numbers."""
        from timely.differential.trace.column_store import batch_of_rows

        if self._tables or self._runs or not self._fold():
            return None
        found = [] if self._columns is None else self._columns.before(number)
        rows = self._rows.before(number)
        if rows:
            batch = batch_of_rows(rows, self.holds.moved, self.pairs)
            if batch is None:
                return None
            found.append(batch)
        return found

    def row_batches(self, seen: int, ahead: set[int]) -> list[RowBatch | DiskRowBatch]:
        """Return the batches of rows of the deltas before number ``seen`` and of those of ``ahead``."""
        return [] if self._tables is None else self._tables.visible(seen, ahead)

    @property
    def has_rows(self) -> bool:
        """Whether it has batches of rows."""
        return bool(self._tables)

    def loose_rows(self, keys: Iterable[Array]) -> Collection[Any] | None:
        """Return those of ``keys`` with rows that are not columns, and perhaps more; ``None`` where whole numbers are columns."""
        if self._columns is not None:
            return None
        held = self._rows.keys()
        if self._runs is not None:
            held.update((key, None) for part in keys for key in part.tolist() if self._runs.lookup(key))
        return held

    def loose_history(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` that are not columns, of the deltas before number ``seen`` and of those of ``ahead``."""
        found = self._rows.visible(key, seen, ahead)
        return found if self._runs is None else self._runs.lookup(key) + found

    def keys(self) -> Iterator[Any]:
        """Return the keys that have entries."""
        found = self._rows.keys()
        for part in (self._columns, self._runs, self._tables):
            if part is not None:
                found.update(dict.fromkeys(part.keys()))
        return iter(found)

    def __len__(self) -> int:
        """Return the number of keys that have entries, or a little more."""
        below = sum(part.count_keys() for part in (self._columns, self._runs, self._tables) if part is not None)
        return len(self._rows.settled) + len(self._rows.fresh) + below

    def entries(self) -> int:
        """Return the number of entries, by counting them."""
        below = sum(len(part) for part in (self._columns, self._runs, self._tables) if part is not None)
        return below + self._rows.entries()

    def size(self) -> str:
        """Return how many entries and keys it has, in words; a bound of the keys, where finding the number takes long."""
        settled = self._rows.settled
        keys = len(settled) + sum(key not in settled for key in list(self._rows.fresh))
        store = self._columns
        batches: list[Any] = self.row_batches(self.number, _NO_NUMBERS)
        if store is not None:
            batches += store.visible(None, ())
        below = sum(batch.count_keys() for batch in batches) + (0 if self._runs is None else self._runs.count_keys())
        hides = store is not None and store.hides
        most = hides or len(batches) > 1 or bool(keys and below) or bool(self._runs)
        return size_in_words(self.entries(), keys + below, hides, most)

    def entries_per_key(self) -> int:
        """Return about how many entries a key has, and at least one."""
        settled = list(islice(self._rows.settled.values(), 64))
        entries, keys = sum(map(len, settled)), len(settled)
        for store in (self._columns, self._runs, self._tables):
            if store is not None:
                entries, keys = entries + len(store), keys + store.count_keys()
        return max(entries // max(keys, 1), 1)

    # -- compaction ------------------------------------------------------------------------------------------------

    def maintain(self, appended: int) -> bool:
        """Compact some keys, at a cost that goes with how many updates were appended. Return whether others wait."""
        if self.eager:
            self.limit_memory()
            self.compact()
            return False
        if self._tables:
            self._maintain_tables(self._tables)
        self.limit_memory()
        columns = self._columns
        more = self._runs is not None and self._runs.work(self.holds.compacted)
        more |= columns is not None and (columns.changed or self._unfolded > _LEAST_FOLD) and self._maintain_columns(columns)
        return self._rows.maintain(appended) or more

    def _maintain_columns(self, columns: ColumnStore) -> bool:
        """Make columns of some rows where these are many, or merge some columns; return whether there is more to do."""
        if self._unfolded > max(_LEAST_FOLD, len(columns) // 4) and not self._mixed:
            self._fold(_LEAST_FOLD // 2)
        return columns.work()

    def _maintain_tables(self, tables: RowBatches) -> None:
        """Merge batches of rows, and move keys out of them where rows beside them have become many."""
        low = self._low()
        tables.merge(low, self.holds)
        crowded = tables.crowded(self._unfolded)
        self._unfolded = 0
        if crowded and low == self.number and not self._rows.fresh:
            tables.move_out(self._rows.settled, self.holds)  # what is on disk stays there

    def _fold(self, rows: int | None = None) -> bool:
        """Make columns of so many of the settled rows, or of all; return whether that could be done."""
        from timely.differential.trace.column_store import batch_of_rows

        lists = self._rows
        if lists.settled:
            if self._mixed:
                return False
            self.holds.advance()
            chosen = lists.settled if rows is None else lists.take(rows)
            batch = batch_of_rows(chosen, self.holds.moved, self.pairs)
            if batch is None:
                lists.settled.update(chosen)
                self._mixed = True
                return False
            self._store().add(batch)
            self._unfolded -= len(batch)
            if rows is None:
                lists.replace({})
        if not lists.settled:
            self._unfolded = 0
        return True

    def compact(self) -> None:
        """Compact all keys."""
        self._rows.compact()
        if self._columns is not None:
            self._columns.compact()
        if self._runs is not None:
            self._runs.compact(self.holds.compacted)

    def compact_key(self, key: Any) -> list[Entry]:
        """Compact one key, and return its entries."""
        kept = self._rows.compact_key(key)
        return kept if self._columns is None and self._runs is None else self.holds.compacted(self.history(key))

    def remove(self, key: Any) -> list[Entry]:
        """Remove a key, of which nothing is fresh, and return its entries."""
        entries = self.history(key)
        self._rows.remove(key)
        for part in (self._columns, self._runs):
            if part is not None:
                part.hide(key)
        return entries

    # -- state on disk ---------------------------------------------------------------------------------------------

    @property
    def reads_disk(self) -> bool:
        """Whether to read it in order of ``hash(key)`` is much faster: each block is read once."""
        return bool(self._runs)

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
        """The memory budget that it is in."""
        return MemoryBudget.current() if self._memory is None else self._memory.budget

    def recount(self) -> int:
        """Count anew what it has in memory, and return it."""
        held = self.held()
        if self._memory is not None:
            self._memory.count(held)
        return held

    def held(self) -> int:
        """Return about how many bytes it has in memory and could move to disk."""
        columns = sum(part.nbytes for part in (self._columns, self._tables) if part is not None)
        return columns + (0 if self._memory is None else self._memory.row_bytes(self._rows.settled))

    def spill(self) -> None:
        """Move to disk what every cursor has seen."""
        from timely.differential.trace.disk_rows import RowRuns

        assert self._memory is not None
        if self._rows.settled and not self._mixed and columns_module() is not None:
            self._fold()
        for part in (self._columns, self._tables):
            if part is not None:
                part.spill()
        if self._rows.settled:
            self.holds.advance()
            if self._runs is None:
                self._runs = RowRuns(self._memory.budget)
                self.holds.parts.append(self._runs)
            self._rows.replace(self._runs.spill(self._rows.settled, self.holds.compacted))
