"""``Trace``: the updates of one arrangement on one worker, by key, with as much history as its readers hold.

A key has a list of entries ``(value, time, diff)``; large deltas of whole numbers are columns below these lists. Each reader
sees the deltas that it has processed, and no others. Otherwise a join would count a pair twice, or never, if both of its sides
are in flight. What some reader has not seen is *fresh*; the rest is *settled*, and may be compacted.

Invariant: for every time at or after ``since``, the entries of a key with times at or before it add up to what was appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from timely.differential.containers import columns_module
from timely.differential.entries import SHORT, Entry, accumulate, compacted, size_in_words
from timely.differential.state_memory import StateMemory, memory_of
from timely.differential.updates import Delta, Update
from timely.memory import MemoryBudget
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.column_batches import Batch, Gathered
    from timely.differential.column_store import ColumnDelta, ColumnStore
    from timely.differential.columns import Array, Updates
    from timely.differential.disk_row_batches import DiskRowBatch
    from timely.differential.disk_rows import RowRuns
    from timely.differential.row_columns import KeyedRows
    from timely.differential.row_store import RowBatch, RowDelta

T = TypeVar("T", bound=PartialOrder)

Hold: TypeAlias = Callable[[], Sequence[Any]]
"""Returns the frontier of the times at which somebody may still read."""

_NONE: Final[list[Entry]] = []
_NO_NUMBERS: Final[set[int]] = set()
_LEAST_FOLD: Final = 4096
"""Rows over columns that are always kept as rows."""

_LARGEST: Final = 1 << 16
"""Updates of a delta, where memory is limited."""

_EVERY: Final = 64
"""Activations, or touched keys, between two rounds of compaction: each computes ``since``, at 5 µs."""


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
        "_advanced",
        "_appended",
        "_columns",
        "_cursors",
        "_fresh",
        "_grown",
        "_holds",
        "_idle",
        "_loose",
        "_many_times",
        "_memory",
        "_mixed",
        "_readers",
        "_rest",
        "_rested",
        "_rows",
        "_runs",
        "_settled",
        "_since",
        "_tables",
        "_touched",
        "_unseen",
        "advanced",
        "lattice",
        "listeners",
        "number",
        "pairs",
        "released",
        "times",
        "upper",
    )

    eager: ClassVar[bool] = False
    """Whether everything is compacted whenever something may be: ``timely.testing.differential.forced_compaction`` sets it."""

    def __init__(self, times: Lattice[T], pairs: bool, upper: Hold) -> None:
        self.lattice = times
        self.pairs = pairs
        self.upper = upper
        self.number = 0  # of the next delta
        self.listeners: list[Callable[[T, Any], object]] = []  # called with each delta: the imports of this trace
        self.times: dict[T, None] = {}  # those of all entries, and some more
        self._many_times = _EVERY  # from which on those are advanced
        self._settled: dict[Any, list[Entry]] = {}
        self._fresh: dict[Any, list[tuple[int, Any, T, Any]]] = {}
        self._unseen: deque[tuple[int, list[Any]]] = deque()
        self._cursors: list[TraceReader] = []
        self._holds: list[Hold] = []  # of operators
        self._readers: list[Hold] = []  # of the program
        self._since: list[T] = [times.domain.minimum]
        self._advanced: dict[T, T] = {}
        self._touched: dict[Any, None] = {}  # keys that may have entries to add up
        self._rest: list[Any] = []  # keys that have some once `since` has moved far enough
        self._rested = self._since  # when those were last looked at
        self._appended = 0  # updates since then
        self.advanced = False  # a reader has advanced
        self.released = False  # a reader has let go of the trace
        self._idle = 0
        self._columns: ColumnStore | None = None
        self._rows = 0  # rows appended since they were last made columns
        self._mixed = False  # not all rows are whole numbers
        self._tables: list[RowBatch | DiskRowBatch] = []  # rows as columns
        self._loose = 0  # rows appended beside them
        self._runs: RowRuns | None = None  # rows on disk
        self._memory: StateMemory | None = memory_of(self)  # where there is a limit
        self._grown = 0  # updates since that was last asked

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, time: T, updates: Iterable[Update]) -> Delta:
        """Append consolidated updates at ``time``, and return them as a delta, which every cursor must see."""
        delta = Delta(updates)
        number = delta.number = self.number
        self.number += 1
        if delta:
            self.times[time] = None
        for listener in self.listeners:
            listener(time, delta)
        fresh, settled, touched = self._fresh, self._settled, self._touched
        keys: list[Any] = []
        self._rows += len(delta)
        self._grown += len(delta)
        for record, diff in delta:
            key, value = record if self.pairs else (record, None)
            if self._cursors:
                if key in fresh:
                    fresh[key].append((number, value, time, diff))
                else:
                    fresh[key] = [(number, value, time, diff)]
                keys.append(key)
            elif key in settled:
                entries = settled[key]
                entries.append((value, time, diff))
                touched[key] = None
                if not len(entries) & (len(entries) - 1) and len(entries) >= SHORT:
                    self.compact_key(key)
            else:
                settled[key] = [(value, time, diff)]
        if keys:
            self._unseen.append((number, keys))
        return delta

    def append_columns(self, time: T, updates: Updates) -> ColumnDelta:
        """Append consolidated columns at ``time``, as ``append`` does."""
        from timely.differential.column_store import ColumnDelta, ColumnStore

        if self._columns is None:
            self._columns = ColumnStore(self.budget)
        delta = ColumnDelta(updates, self.number, time)
        self.number += 1
        if delta:
            self.times[time] = None
        for listener in self.listeners:
            listener(time, delta)
        self._grown += len(delta)
        self._columns.append(delta, fresh=bool(self._cursors))
        return delta

    def append_rows(self, time: T, updates: KeyedRows) -> RowDelta:
        """Append rows that are columns at ``time``, as ``append`` does; they are not added up."""
        from timely.differential.row_store import RowBatch, RowDelta

        batch = RowBatch(updates.ordered(), self.number, time)
        self.number += 1
        self.times[time] = None
        delta = RowDelta(batch)
        for listener in self.listeners:
            listener(time, delta)
        self._grown += len(batch)
        self._tables.append(batch)
        return delta

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
        return len(updates) >= _LEAST_FOLD or 16 * len(updates) >= sum(map(len, self._tables))

    def resume(self, since: Iterable[T]) -> None:
        """Begin at ``since``, where a checkpoint has compacted what is loaded."""
        self._since = self.lattice.upper_envelope(self._since, since)

    def load(self, key: Any, entries: Iterable[Entry]) -> None:
        """Add entries of a checkpoint, which count as seen."""
        kept = compacted([*self._settled.get(key, _NONE), *entries], self.lattice, self._since, self._advanced)
        if not kept:
            self._settled.pop(key, None)
            return
        self._settled[key] = kept
        self._grown += len(kept)
        self.times.update(dict.fromkeys(time for _, time, _ in kept))
        if len(kept) > 1:
            self._rest.append(key)

    def load_columns(self, batch: Batch) -> None:
        """Add a batch of a checkpoint, as ``load`` does."""
        from timely.differential.column_store import ColumnStore

        if self._columns is None:
            self._columns = ColumnStore(self.budget)
        batch.times = [self._moved(time) for time in batch.times]
        self.times.update(dict.fromkeys(batch.times))
        self._columns.add(batch)
        self._grown += len(batch)
        self.limit_memory()

    def parts(self) -> tuple[Iterator[list[Batch]], Iterator[tuple[Any, list[Entry]]]]:
        """Return all entries: groups of those that are columns, or many enough to become such, and the others by key."""
        if len(self._settled) > _LEAST_FOLD and columns_module() is not None:
            self._fold()
        return iter(()) if self._columns is None else self._columns.saved(), self._all_rows()

    def _all_rows(self) -> Iterator[tuple[Any, list[Entry]]]:
        """Return every key with its entries that are not columns of whole numbers; those on disk first."""
        keys = dict.fromkeys((*self._settled, *self._fresh))
        for batch in self._tables:
            keys.update(dict.fromkeys(_keys_of(batch)))
        if self._runs is not None:
            for key, found in self._runs.items():
                yield key, self._with_tables(key, found + self._held_rows(key))
        for key in keys:
            if self._runs is None or not self._runs.lookup(key):
                yield key, self._with_tables(key, self._held_rows(key))

    def _held_rows(self, key: Any) -> list[Entry]:
        """Return the entries of ``key`` that are rows in memory."""
        waiting = self._fresh.get(key)
        settled = self._settled.get(key, _NONE)
        return settled if waiting is None else settled + [entry[1:] for entry in waiting]

    def at_rest(self) -> list[T]:
        """Return the ``since`` of a checkpoint: of what operators may still read, whatever handles hold."""
        held = self.lattice.lower_envelope(time for hold in (self.upper, *self._holds) for time in hold())
        return self.lattice.upper_envelope(self._since, held) or self._since

    def settle(self) -> None:
        """Settle the deltas that every cursor has seen."""
        unseen, fresh, settled = self._unseen, self._fresh, self._settled
        low = min((cursor.seen for cursor in self._cursors), default=self.number)
        if self._columns is not None:
            self._columns.settle(low)
        while unseen and unseen[0][0] < low:
            for key in unseen.popleft()[1]:
                waiting = fresh.get(key)
                if waiting is None or waiting[0][0] >= low:
                    continue  # another update of the key has settled them
                ready = len(waiting)
                if waiting[-1][0] >= low:
                    ready = next(index for index, entry in enumerate(waiting) if entry[0] >= low)
                entries = settled.get(key)
                if entries is None:
                    entries = settled[key] = []
                before = len(entries)
                entries.extend([entry[1:] for entry in waiting[:ready]])
                if ready == len(waiting):
                    del fresh[key]
                else:
                    del waiting[:ready]
                if len(entries) > 1:
                    self._touched[key] = None
                    if len(entries) >= SHORT and before.bit_length() != len(entries).bit_length():
                        self.compact_key(key)
        if self.eager:
            self.compact()

    # -- reading ---------------------------------------------------------------------------------------------------

    def history(self, key: Any) -> list[Entry]:
        """Return all entries of ``key``, which must not be changed."""
        return self.visible(key, self.number, _NO_NUMBERS)

    def visible(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` in the deltas before number ``seen`` and in those of ``ahead``."""
        settled = self._settled.get(key, _NONE)
        waiting = self._fresh.get(key) if self._fresh else None
        if self._runs is not None:
            settled = self._runs.lookup(key) + settled
        if self._columns is not None:
            below = self._columns.lookup(key, seen, ahead)
            if below:
                settled = below + settled
        if self._tables:
            settled = self._with_tables(key, settled, seen, ahead)
        if waiting is None:
            return settled
        found = list(settled)
        for entry in waiting:
            if entry[0] < seen or entry[0] in ahead:
                found.append(entry[1:])
            elif not ahead:
                break  # deltas come in order
        return found

    def gather(self, keys: Array, seen: int, ahead: set[int]) -> Gathered | None:
        """Return the entries of sorted, unique ``keys`` as columns, or ``None`` where some are not whole numbers."""
        from timely.differential import column_store

        if self._tables:
            return None
        if len(self._settled) <= len(keys):
            self._fold()  # to look up every key would cost as much
        found = [] if self._columns is None else self._columns.gather(keys, seen, ahead)
        if self._settled or self._fresh or self._runs:
            few = not self._runs and 8 * (len(self._settled) + len(self._fresh)) < len(keys)
            held = {**self._settled, **self._fresh} if few else None
            rows = column_store.row_entries(keys, lambda key: self._visible_rows(key, seen, ahead), self.pairs, held)
            if rows is None:
                return None
            found.append(rows)
        return column_store.one(found, self.pairs)

    def batches(self, number: int) -> list[Batch] | None:
        """Return what came before delta ``number`` as columns, or ``None`` where some are not whole numbers."""
        from timely.differential.column_store import batch_of_rows

        if self._tables or self._runs or not self._fold():
            return None
        found = [] if self._columns is None else self._columns.before(number)
        waiting = {key: [entry[1:] for entry in entries if entry[0] < number] for key, entries in self._fresh.items()}
        rows = {key: entries for key, entries in waiting.items() if entries}
        if rows:
            batch = batch_of_rows(rows, self._moved, self.pairs)
            if batch is None:
                return None
            found.append(batch)
        return found

    def _with_tables(self, key: Any, entries: list[Entry], seen: int | None = None, ahead: set[int] = _NO_NUMBERS) -> list[Entry]:
        """Return the entries of ``key`` in the batches of rows, and ``entries``."""
        found: list[Entry] = []
        for batch in self._tables:
            if seen is None or batch.number < seen or batch.number in ahead:
                batch.lookup(key, found)
        return found + entries if found else entries

    def row_batches(self, seen: int, ahead: set[int]) -> list[RowBatch | DiskRowBatch]:
        """Return the batches of rows of the deltas before number ``seen`` and of those of ``ahead``."""
        return [batch for batch in self._tables if batch.number < seen or batch.number in ahead]

    @property
    def has_rows(self) -> bool:
        """Whether it has batches of rows."""
        return bool(self._tables)

    def loose_rows(self, keys: Iterable[Array]) -> Collection[Any] | None:
        """Return those of ``keys`` with rows that are not columns, and perhaps more; ``None`` where whole numbers are columns."""
        if self._columns is not None:
            return None
        held = {**self._settled, **self._fresh}
        if self._runs is not None:
            held.update((key, _NONE) for part in keys for key in part.tolist() if self._runs.lookup(key))
        return held

    def _visible_rows(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        settled = self._settled.get(key, _NONE)
        if self._runs is not None:
            settled = self._runs.lookup(key) + settled
        waiting = self._fresh.get(key)
        if waiting is None:
            return settled
        return settled + [entry[1:] for entry in waiting if entry[0] < seen or entry[0] in ahead]

    def loose_history(self, key: Any, seen: int, ahead: set[int]) -> list[Entry]:
        """Return the entries of ``key`` that are not columns, of the deltas before number ``seen`` and of those of ``ahead``."""
        return self._visible_rows(key, seen, ahead)

    def _fold(self, rows: int | None = None) -> bool:
        """Make columns of so many of the settled rows, or of all; return whether that could be done."""
        from timely.differential.column_store import ColumnStore, batch_of_rows

        if self._settled:
            if self._mixed:
                return False
            self._advance_since()
            chosen = self._settled if rows is None else self._some(rows)
            batch = batch_of_rows(chosen, self._moved, self.pairs)
            if batch is None:
                self._settled.update(chosen)
                self._mixed = True
                return False
            if self._columns is None:
                self._columns = ColumnStore(self.budget)
            self._columns.add(batch)
            self._rows -= len(batch)
            if rows is None:
                self._settled.clear()
                self._touched.clear()
                self._rest.clear()
        if not self._settled:
            self._rows = 0
        return True

    def _some(self, rows: int) -> dict[Any, list[Entry]]:
        """Remove keys with so many settled rows, and return them."""
        chosen: dict[Any, list[Entry]] = {}
        while rows > 0 and self._settled:
            key, entries = self._settled.popitem()
            self._touched.pop(key, None)
            chosen[key] = entries
            rows -= len(entries)
        return chosen

    def keys(self) -> Iterator[Any]:
        """Return the keys that have entries."""
        found = dict.fromkeys(self._settled)
        found.update(dict.fromkeys(self._fresh))
        if self._columns is not None:
            found.update(dict.fromkeys(self._columns.keys()))
        if self._runs is not None:
            found.update(dict.fromkeys(self._runs.keys()))
        for batch in self._tables:
            found.update(dict.fromkeys(_keys_of(batch)))
        return iter(found)

    def __len__(self) -> int:
        """Return the number of keys that have entries, or a little more."""
        tables = sum(batch.count_keys() for batch in self._tables)
        below = (0 if self._columns is None else self._columns.count_keys()) + (
            0 if self._runs is None else self._runs.count_keys()
        )
        return len(self._settled) + len(self._fresh) + tables + below

    def entries(self) -> int:
        """Return the number of entries, by counting them."""
        below = sum(map(len, self._tables)) + sum(len(store) for store in (self._columns, self._runs) if store is not None)
        rows, fresh = list(self._settled.values()), list(self._fresh.values())  # whole, if another thread asks
        return below + sum(map(len, rows)) + sum(map(len, fresh))

    def size(self) -> str:
        """Return how many entries and keys it has, in words; a bound of the keys, where finding the number takes long."""
        keys = len(self._settled) + sum(key not in self._settled for key in list(self._fresh))
        store = self._columns
        batches = [] if store is None else list(store.visible(None, ()))
        below = sum(batch.count_keys() for batch in batches) + (0 if self._runs is None else self._runs.count_keys())
        hides = store is not None and store.hides
        most = hides or len(batches) > 1 or bool(keys and below) or bool(self._runs)
        return size_in_words(self.entries(), keys + below, hides, most)

    def at(self, key: Any, time: T) -> dict[Any, Any]:
        """Return the counts of the values of ``key`` at ``time``."""
        return accumulate(self.history(key), time)

    # -- frontiers -------------------------------------------------------------------------------------------------

    def hold(self, hold: Hold, reads: bool = False) -> None:
        """Keep history for the times at or after ``hold()``, until ``release(hold)``.

        ``reads``: the program holds it, to read, and no operator does.
        """
        (self._readers if reads else self._holds).append(hold)

    def release(self, hold: Hold) -> None:
        """Undo ``hold``."""
        self._holds = [other for other in self._holds if other is not hold]
        self._readers = [other for other in self._readers if other is not hold]

    def add_cursor(self, cursor: TraceReader) -> None:
        """Have ``cursor`` see every delta from now on."""
        self._cursors.append(cursor)

    def remove_cursor(self, cursor: TraceReader) -> None:
        """Wait for ``cursor`` no longer."""
        self._cursors = [other for other in self._cursors if other is not cursor]
        self.settle()

    @property
    def since(self) -> list[T]:
        """The lower envelope of ``upper()`` and of what is held: history before it may be lost.

        It never goes back, also where a new reader holds an earlier time. When all is over and nobody reads, it is at the end.
        """
        holds = (self.upper, *self._holds, *self._readers)
        held = self.lattice.lower_envelope(time for hold in holds for time in hold())
        if not held:
            held = [reduce(self.lattice.lub, self.times, self._since[0])]
        return self.lattice.upper_envelope(self._since, held)

    # -- compaction ------------------------------------------------------------------------------------------------

    def maintain(self, appended: int, force: bool = False) -> bool:
        """Compact some keys, at a cost that goes with how many updates were appended. Return whether others wait."""
        if self.eager:
            self.limit_memory()
            self.compact()
            return False
        self._appended += appended
        self._idle += 1
        if self._tables:
            self._maintain_tables()
        self.limit_memory()
        touched = self._touched
        columns = self._columns
        more = self._runs is not None and self._runs.work(self._compacted)
        more |= columns is not None and (columns.changed or self._rows > _LEAST_FOLD) and self._maintain_columns(columns)
        if not force and not self.advanced and not self.released and self._idle < _EVERY and len(touched) < _EVERY:
            return more
        self._idle = 0
        self._advance_since()
        released = force or self.released
        self.advanced = self.released = False
        if self._since is not self._rested and (released or self._appended >= len(self._rest)):
            self._rested = self._since
            self._appended = 0
            touched.update(dict.fromkeys(self._rest))
            self._rest = []
        for _ in range(min(len(touched), 2 * appended + _EVERY)):
            key = touched.popitem()[0]
            entries = self._compact(key)
            if len(entries) > 1 and any(entry[1] is not entries[0][1] for entry in entries):
                self._rest.append(key)
        return more or bool(touched)

    def _maintain_columns(self, columns: ColumnStore) -> bool:
        """Make columns of some rows where these are many, or merge some columns; return whether there is more to do."""
        if self._rows > max(_LEAST_FOLD, len(columns) // 4) and not self._mixed:
            self._fold(_LEAST_FOLD // 2)
            if not self._settled:
                self._rows = 0
        return columns.work()

    def _maintain_tables(self) -> None:
        """Merge batches of rows, and move keys out of them where rows beside them have become many."""
        from timely.differential.disk_row_batches import merged_batches
        from timely.differential.row_store import can_merge

        tables, low = self._tables, min((cursor.seen for cursor in self._cursors), default=self.number)
        while len(tables) > 1 and tables[-1].number < low and len(tables[-2]) < 2 * len(tables[-1]):
            if tables[-2].time != tables[-1].time:
                self._advance_since()
            if not can_merge(tables[-2], tables[-1]):
                break
            tables[-2:] = [merged_batches(tables[-2], tables[-1], self.budget)]
        self._loose += self._rows
        self._rows = 0
        if self._loose > max(_LEAST_FOLD, sum(map(len, tables)) // 2) and low == self.number and not self._fresh:
            self._loose = 0
            self._move_out()

    def _move_out(self) -> None:
        """Keep the keys that have rows beside the batches as rows alone, added up."""
        import numpy as np

        self._advance_since()
        keys = np.array([key for key in self._settled if type(key) is int], np.int64)
        keys.sort()
        pieces = (piece for batch in self._tables for piece in batch.near(keys))
        kept = np.concatenate([keys[:0], *(piece.keys[np.isin(piece.keys, keys)] for piece in pieces)])
        for key in np.unique(kept).tolist():
            entries = self._compacted(self._with_tables(key, self._held_rows(key)))  # what is on disk stays there
            if entries:
                self._settled[key] = entries
            else:
                del self._settled[key]
        self._tables = [left for batch in self._tables if len(left := batch.without(keys))]

    def moves(self) -> bool:
        """Return whether ``since`` has moved since something was last compacted."""
        return self.since != self._since

    def compact(self) -> None:
        """Compact all keys."""
        self._advance_since()
        for key in list(self._settled):
            self._compact(key)
        if self._columns is not None:
            self._columns.compact()
        if self._runs is not None:
            self._runs.compact(self._compacted)

    def _compacted(self, entries: list[Entry]) -> list[Entry]:
        return compacted(entries, self.lattice, self._since, self._advanced)

    # -- state on disk ---------------------------------------------------------------------------------------------

    @property
    def reads_disk(self) -> bool:
        """Whether to read it in order of ``hash(key)`` is much faster: each block is read once."""
        return bool(self._runs)

    def entries_per_key(self) -> int:
        """Return about how many entries a key has, and at least one."""
        settled = list(self._settled.values())[:64]
        entries, keys = sum(map(len, settled)), len(settled)
        for store in (self._columns, self._runs):
            if store is not None:
                entries, keys = entries + len(store), keys + store.count_keys()
        return max(entries // max(keys, 1), 1)

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
        columns = 0 if self._columns is None else self._columns.nbytes
        columns += sum(batch.nbytes for batch in self._tables)
        return columns + (0 if self._memory is None else self._memory.row_bytes(self._settled))

    def spill(self) -> None:
        """Move to disk what every cursor has seen."""
        from timely.differential.disk_rows import RowRuns

        assert self._memory is not None
        if self._settled and not self._mixed and columns_module() is not None:
            self._fold()
        if self._columns is not None:
            self._columns.spill()
        if self._tables:
            from timely.differential.disk_row_batches import on_disk

            self._tables = [on_disk(batch, self._memory.budget) for batch in self._tables]
        if self._settled:
            self._advance_since()
            if self._runs is None:
                self._runs = RowRuns(self._memory.budget)
            self._settled = self._runs.spill(self._settled, self._compacted)
            self._touched.clear()
            self._rest.clear()

    def compact_key(self, key: Any) -> list[Entry]:
        """Compact one key, and return its entries."""
        self._advance_since()
        kept = self._compact(key)
        if self._columns is None and self._runs is None:
            return kept
        return self._compacted(self.history(key))

    def remove(self, key: Any) -> list[Entry]:
        """Remove a key, of which nothing is fresh, and return its entries."""
        entries = self.history(key)
        self._touched.pop(key, None)
        self._settled.pop(key, None)
        if self._columns is not None:
            self._columns.hide(key)
        if self._runs is not None:
            self._runs.hide(key)
        return entries

    def _advance_since(self) -> None:
        since = self.since
        if since != self._since:
            self._since = since
            self._advanced.clear()
            if self._columns is not None:
                self._columns.advance(self._moved)
            if self._runs is not None:
                self._runs.advance(self._moved)
            for batch in self._tables:
                batch.time = self._moved(batch.time)
            if len(self.times) >= self._many_times:
                self.times = dict.fromkeys(self.lattice.advance(time, since) for time in self.times)
                self._many_times = max(_EVERY, 2 * len(self.times))

    def _moved(self, time: T) -> T:
        """Return ``time`` advanced by ``since``; equal times are one object."""
        moved = self._advanced.get(time)
        if moved is None:
            moved = self.lattice.advance(time, self._since)
            moved = self._advanced[time] = self._advanced.setdefault(moved, moved)
        return moved

    def _compact(self, key: Any) -> list[Entry]:
        entries = self._settled.get(key)
        if entries is None:
            return _NONE
        kept = compacted(entries, self.lattice, self._since, self._advanced)
        if kept:
            self._settled[key] = kept
        else:
            del self._settled[key]
        return kept


def _keys_of(batch: RowBatch | DiskRowBatch) -> Iterator[Any]:
    return (key for piece in batch.pieces(_LEAST_FOLD) for key in piece.keys.tolist())
