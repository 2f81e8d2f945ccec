"""The state of a trace in checkpoints: its deltas since the last one, and all of it now and then.

Columns are saved as columns, in a few items. They have no route, so on another number of workers each worker reads them all and
loads what belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from timely.dataflow import OperatorInfo
from timely.differential.trace.deltas import Delta
from timely.differential.trace.entries import Entry, compacted
from timely.differential.trace.layouts import Layout
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Key
from timely.errors import ChangedDataflowError
from timely.operators.state_registration import key_route, register_union_state
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.dataflow.info import Piece
    from timely.differential.trace.chunk import Chunk, Values
    from timely.differential.updates.int_columns import Array

T = TypeVar("T", bound=PartialOrder)

Rows: TypeAlias = Iterable[tuple[object, Sequence[Entry]]]
"""Keys, and their entries."""


FORMAT: Final = 1
"""The format of a trace in checkpoints, which is raised when the items below change."""


class TraceHistory(NamedTuple):
    """The format of a trace in a checkpoint, and where its history begins."""

    format: int
    since: list[Any]


class Columns(NamedTuple):
    """Entries as columns: entry ``i`` is of ``keys[i]``, at ``times[codes[i]]``."""

    keys: Array
    values: Values | None
    codes: Array | None
    diffs: Array | None
    times: list[Any]

    @classmethod
    def of(cls, chunk: Chunk[T]) -> Columns:
        return cls(chunk.row_keys(), chunk.values, chunk.codes, chunk.diffs, chunk.times)


class TraceState(Generic[T]):
    """Saves and restores a trace; ``more`` returns entries that belong to it but are kept elsewhere."""

    def __init__(self, info: OperatorInfo, trace: Trace[T], key: Key | None, more: Callable[[], Rows] | None) -> None:
        self._trace = trace
        self._plain = key is None  # whole numbers are their own routes
        self._route = key_route(key)
        self._more = more
        self._worker = info.worker
        self._peers = info.peers
        self._logged = 0
        self._least = trace.limits.logged
        self._limit = self._least
        self._path = info.path
        register_union_state(info, lambda: [TraceHistory(FORMAT, trace.holds.at_rest())], self._resume)
        self._log = info.register_state(self.save, self.load, rescale=self._rescale, logged=True, at_rest=True)
        self._entries = self._log.entries
        if self._log.kept:
            trace.listeners.append(self._append)

    # -- saving ----------------------------------------------------------------------------------------------------

    def save(self) -> Iterator[Piece]:
        """Return all of it, with times advanced to those that operators can still tell apart."""
        trace = self._trace
        since, advanced = trace.holds.at_rest(), dict[T, T]()
        lattice = trace.lattice

        def moved(time: T) -> T:
            now = advanced.get(time)
            if now is None:
                now = lattice.advance(time, since)
                now = advanced[time] = advanced.setdefault(now, now)
            return now

        for chunk in trace.saved_columns(moved):
            yield None, Columns.of(chunk)
        yield from self._rows(trace.saved_rows(), since, advanced)
        if self._more is not None:
            yield from self._rows(self._more(), since, advanced)

    def _rows(self, rows: Rows, since: Sequence[T], advanced: dict[T, T]) -> Iterator[Piece]:
        for key, entries in rows:
            left = compacted(entries, self._trace.lattice, since, advanced)
            if left:
                yield self._route(key), (key, left)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _append(self, time: T, delta: Delta[T]) -> None:
        """Log a delta, also one that is kept elsewhere."""
        log = self._log
        if not log.kept:
            return
        if log.entries is not self._entries:  # a checkpoint has drained it
            self._entries = log.entries
            self._logged, self._limit = 0, self._least
        chunk = delta.chunk
        if chunk is None:
            route = self._route
            if self._trace.pairs:
                log.entries.extend([(route(key), (key, [(value, time, diff)])) for (key, value), diff in delta])
            else:
                log.entries.extend([(route(record), (record, [(None, time, diff)])) for record, diff in delta])
        elif len(delta):
            log.append(None, Columns.of(chunk))
        self._logged += len(delta)
        if self._logged > self._limit:
            self._compact()

    def _compact(self) -> None:
        """Add up what was logged: without checkpoints a log would grow for ever."""
        since, advanced = self._trace.holds.at_rest(), dict[T, T]()
        rows: dict[object, list[Entry]] = {}
        chunks: dict[Layout[Chunk[T]], list[Chunk[T]]] = {}  # by layout
        for _, item in self._entries:
            if isinstance(item, Columns):
                from timely.differential.trace.chunk import Chunk

                lattice = self._trace.lattice
                chunk: Chunk[T] = Chunk.of(*item[:4], [lattice.advance(time, since) for time in item.times])
                chunks.setdefault(chunk.layout, []).append(chunk)
            else:
                rows.setdefault(item[0], []).extend(item[1])
        summed = (layout.merged(same) for layout, same in chunks.items())
        columns = [(None, Columns.of(piece)) for chunk in summed for piece in chunk.pieces(self._trace.limits.saved)]
        self._entries[:] = [*columns, *self._rows(rows.items(), since, advanced)]
        self._logged = sum(len(item.keys) if isinstance(item, Columns) else len(item[1]) for _, item in self._entries)
        self._limit = 2 * self._logged + self._least

    # -- restoring -------------------------------------------------------------------------------------------------

    def _resume(self, items: Iterable[TraceHistory]) -> None:
        """Begin where the history of a checkpoint does; ``ChangedDataflowError`` for one of another format."""
        for item in items:
            number = item.format if isinstance(item, TraceHistory) else 0
            if number != FORMAT:
                raise ChangedDataflowError(
                    f"{self._path}: the checkpoint has its collection in format {number}, and this version of the library reads"
                    f" format {FORMAT}: use the version that wrote it, or another directory to start anew"
                )
            self._trace.holds.resume(item.since)

    def load(self, items: Iterable[Any]) -> None:
        """Add the items of a checkpoint."""
        rows: dict[object, list[Entry]] = {}  # all of a key at once: it is compacted when it is loaded
        for item in items:
            if isinstance(item, Columns):
                self._load_columns(item)
            elif item[0] in rows:
                rows[item[0]] += item[1]
            else:
                rows[item[0]] = item[1]
                if len(rows) >= self._least and self._trace.has_limit:
                    self._load_rows(rows)
        self._load_rows(rows)

    def _load_rows(self, rows: dict[object, list[Entry]]) -> None:
        for key, entries in rows.items():
            self._trace.load(key, entries)
        self._trace.limit_memory()
        rows.clear()

    def _load_columns(self, columns: Columns) -> None:
        from timely.differential.trace.chunk import Chunk

        self._trace.load_columns(Chunk.of(*columns))

    def _rescale(self, parts: Sequence[Iterable[Any]]) -> None:
        import numpy as np

        for items in parts:
            for columns in items:
                keys = columns.keys
                if self._plain:
                    mine = keys % self._peers == self._worker
                else:
                    unique, places = np.unique(keys, return_inverse=True)
                    owners = [self._route(key) % self._peers == self._worker for key in unique.tolist()]
                    mine = np.array(owners, bool)[places]
                if mine.any():
                    values, codes, diffs = (None if column is None else column[mine] for column in columns[1:4])
                    self._load_columns(Columns(keys[mine], values, codes, diffs, columns.times))
