"""Imports: a trace that another dataflow of the worker reads, without a copy.

An import sends one *piece* for each time of the history that it starts with, and then every delta since. A piece only refers to
the trace, so its cost is that of the keys that are looked up. Invariant: each update is in one piece or in one later delta.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from typing_extensions import override

from timely.dataflow import Capability, CapabilitySet, OperatorInfo, OutputPort, ScopeBuilder, check_scope
from timely.differential.operators.arrangement import Arrangement, Index, describe_shared
from timely.differential.trace.compaction_frontier import Hold, Move
from timely.differential.trace.cursors import Cursor, Keep
from timely.differential.trace.deltas import Delta, Partner, Row
from timely.differential.trace.entries import Entry, compacted
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Container, Update
from timely.errors import ChangedDataflowError, GraphError, TimestampError
from timely.operators.generic import source
from timely.operators.state_registration import register_union_state
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Chunk, Matches
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


_KEYS_A_LOOKUP: Final = 4096
"""Keys of a piece that columns pass in the time in which rows look up one."""

_LOOKUPS: Final = 40
"""Keys that are made columns in the time in which rows look up one."""

_DONE: Final = sys.maxsize
"""The number of a reader that waits for no delta."""


class _Start(Generic[T]):
    """Where an import starts: at ``since`` and before delta ``number``, with pieces at ``times``."""

    def __init__(self, trace: Trace[T], since: list[T]) -> None:
        self.number = trace.number
        self.since = since
        self._lattice = trace.lattice
        self._moved: dict[T, T] = {}
        self.times: list[T] = list(dict.fromkeys(map(self.moved, trace.holds.times))) if len(trace) else []

    def moved(self, time: T) -> T:
        """Return a time of the trace as it is in the import."""
        moved = self._moved.get(time)
        if moved is None:
            if len(self._moved) >= 1024:
                self._moved.clear()
            moved = self._moved[time] = self._lattice.advance(time, self.since)
        return moved


class _Base(Generic[T]):
    """The trace as it was when it was imported; it lets go when the last piece has been dropped."""

    def __init__(self, trace: Trace[T], start: _Start[T], place: _Place[T]) -> None:
        self.trace = trace
        self.start = start
        self._place = place
        self._columns: dict[T, Chunk[T]] | None = None  # once somebody has asked for all of it

    def __del__(self) -> None:
        self._place.leave()  # may run at any moment

    def entries(self, key: object, time: T) -> list[Entry]:
        """Return the entries of ``key`` that belong to the piece of ``time``."""
        start = self.start
        entries = [entry for entry in self.trace.visible(key, start.number, _NOTHING) if start.moved(entry[1]) == time]
        return entries if len(entries) < 2 else compacted(entries, self.trace.lattice, start.since, {})

    def columns(self, time: T, keys: int | None = None) -> Chunk[T] | None:
        """Return the piece of ``time`` as columns, for a reader of so many ``keys``, or of all.

        ``None`` where rows are faster, or values are no whole numbers.
        """
        if keys is not None and (keys < self.trace.limits.columns or keys < len(self.trace) // _KEYS_A_LOOKUP):
            return None
        if self._columns is None:
            if keys is not None and _LOOKUPS * keys * len(self.start.times) < len(self.trace):
                return None
            chunks = self.trace.chunks(self.start.number)
            if chunks is None:
                return None
            from timely.differential.trace.chunk import by_time

            self._columns = by_time(chunks, self.start.times, self.start.moved, self.trace.pairs)
        return self._columns[time]


_NOTHING: Final[set[int]] = set()


class _Place(Generic[T]):
    """What keeps the trace as it was: a cursor that sees nothing, and a hold."""

    def __init__(self, trace: Trace[T], since: list[T]) -> None:
        self.seen = trace.number
        self._times = since
        self._hold = lambda: self._times
        trace.add_cursor(self)
        trace.holds.add(self._hold)

    def leave(self) -> None:
        """Hold nothing from now on."""
        self.seen = _DONE
        self._times = []

    def remove(self, trace: Trace[T]) -> None:
        """Unregister the import from the trace, if it holds nothing."""
        if self.seen == _DONE:
            trace.holds.release(self._hold)
            trace.remove_cursor(self)


class Piece(Generic[T]):
    """The updates of one time that a trace had when it was imported: a container that is read by key."""

    __slots__ = ("_base", "_size", "number", "time")

    def __init__(self, base: _Base[T], time: T) -> None:
        self._base = base
        self.time = time
        self.number = base.start.number
        self._size = max(1, len(base.trace))  # what is counted when it is sent is counted when it is received

    def __len__(self) -> int:
        """Return about how many updates it has, and at least one."""
        return self._size

    @property
    def chunk(self) -> Chunk[T] | None:
        """All of it as columns, or ``None`` where that cannot be."""
        return self._base.columns(self.time)

    def chunk_for(self, others: Partner) -> Chunk[T] | None:
        """Return all of it as columns, to be joined with ``others``; ``None`` where rows are faster."""
        return self._base.columns(self.time, len(others))

    def updates(self) -> Any:
        chunk = self.chunk
        if chunk is None:
            return list(self)
        from timely.differential.updates.int_columns import Updates

        return Updates(chunk.row_keys(), chunk.int_values, chunk.diffs)

    def __iter__(self) -> Iterator[Update]:
        pairs = self._base.trace.pairs
        for key, value, diff in self.rows(pairs):
            yield ((key, value) if pairs else key), diff

    def rows(self, pairs: bool, others: Partner | None = None) -> Iterator[Row]:
        """Return it as rows, or those of keys that ``others`` may have."""
        trace = self._base.trace
        return self.of_keys(dict.fromkeys(trace.keys() if others is None or len(others) >= len(trace) else others.keys()))

    def of_keys(self, keys: Collection[Any]) -> Iterator[Row]:
        """Return the updates of some keys."""
        base, time = self._base, self.time
        chunk = base.columns(time, len(keys))
        if chunk is not None and len(chunk) < 8 * len(keys):
            values = repeat(None) if chunk.int_values is None else chunk.int_values.tolist()
            for row in zip(chunk.row_keys().tolist(), values, chunk.row_diffs().tolist()):  # one may be endless
                if row[0] in keys:
                    yield row
            return
        for key in keys:
            for value, _, diff in base.entries(key, time):
                yield key, value, diff


class ImportCursor(Cursor[Any]):
    """A reader of an import: of what the import started with it sees the pieces that it has processed."""

    __slots__ = ("_moved_outside", "_unseen")

    def __init__(
        self,
        started: _Start[T],
        trace: Trace[T],
        times: Lattice[T],
        hold: Hold,
        to_inner: Move | None,
        to_outer: Move | None,
        keep: Keep | None,
    ) -> None:
        moved = started.moved
        inward = to_inner
        super().__init__(trace, times, hold, moved if inward is None else (lambda time: inward(moved(time))), to_outer, keep)
        self.seen = started.number
        self._moved_outside = moved
        self._unseen = set(started.times)

    @override
    def _seen(self, key: object) -> list[Entry]:
        entries = self._trace.visible(key, self.seen, self._ahead)
        unseen = self._unseen
        if not unseen or not entries:
            return entries
        moved = self._moved_outside
        return [entry for entry in entries if moved(entry[1]) not in unseen]

    @override
    def _at_inner_times(self, matches: Matches) -> Matches:
        unseen, moved, inward = self._unseen, self._moved_outside, self._to_inner
        assert inward is not None
        return matches.moved(inward, (lambda time: moved(time) not in unseen) if unseen else None)

    @override
    def see(self, delta: Delta[Any], time: T) -> None:
        if not isinstance(delta, Piece):
            super().see(delta, time)
            return
        self._unseen.discard(delta.time)
        run = self._run
        if run is not None:
            for key, value, diff in self.filtered(delta.of_keys(run)):
                run[key].append((value, time, diff))


class TraceImport(Generic[T]):
    def __init__(self, index: Index, since: list[T], capability: Capability[T], info: OperatorInfo) -> None:
        registry = index.scope.allocator.registry
        relation = index.scope.identities.relation_of[index.path]
        if info.begins is not None and (registry is None or registry.begins(relation) is None):
            raise ChangedDataflowError(
                f"{info.path} goes on from a checkpoint, and the trace of {index.path} that it imports begins anew: name"
                " them both, or use another directory to start anew"
            )
        self._index = index
        self._trace: Trace[T] = index.trace
        self._start = _Start(index.trace, since)
        self._place = _Place(index.trace, since)
        base = _Base(index.trace, self._start, self._place)
        self._pieces = [Piece(base, time) for time in self._start.times]
        self._arrived: deque[tuple[T, Delta[T]]] = deque()
        self._capabilities = CapabilitySet([capability])
        self._upper: list[T] | None = None
        self._activate = info.activator.activate
        self._closed = False
        self._trace.listeners.append(self._receive)
        index.imports.append(self._activate)
        register_union_state(info, lambda: [True], self._resume)
        info.at_end(self._end)
        describe_shared(info, index)

    def cursor(self, *arguments: Any) -> Cursor[Any]:
        """Return a new reader, which has seen nothing yet."""
        return ImportCursor(self._start, *arguments)

    def records(self, batch: Container) -> Any:
        """Return what is sent as a container that can also be sent to another worker."""
        return batch.updates() if isinstance(batch, Piece) else batch

    def close(self) -> None:
        """Send what has come and nothing more, so that the dataflow can end; a no-op when it is closed."""
        if not self._closed:
            self._closed = True
            self._detach()
            self._activate()

    def _resume(self, items: Iterable[bool]) -> None:
        """Start without what those who read the import have had before the checkpoint."""
        if any(items):
            self._start.times = []
            self._pieces = []

    def _receive(self, time: T, delta: Delta[T]) -> None:
        self._arrived.append((time, delta))

    def logic(self, output: OutputPort[T]) -> None:
        """Send what has come, and follow the frontier of the trace."""
        moved = self._start.moved
        for piece in self._pieces:
            self._send(output, piece.time, piece)
        self._pieces.clear()
        while self._arrived:
            time, delta = self._arrived.popleft()
            self._send(output, moved(time), delta)
        upper = [] if self._closed else [moved(time) for time in self._trace.upper()]
        if upper != self._upper:
            self._upper = upper
            self._capabilities.downgrade(upper)
        self._place.remove(self._trace)

    def _send(self, output: OutputPort[T], time: T, batch: Container) -> None:
        with self._capabilities.delayed(time) as capability:
            output.session(capability).give_batch(batch)

    def _detach(self) -> None:
        trace, index = self._trace, self._index
        trace.listeners = [call for call in trace.listeners if call != self._receive]
        index.imports = [call for call in index.imports if call != self._activate]

    def _end(self) -> None:
        """Let go of the trace: the dataflow that imports it is complete or dropped."""
        self._closed = True
        self._pieces.clear()
        self._arrived.clear()
        self._detach()
        self._place.leave()
        self._place.remove(self._trace)
        self._index.release()


def import_trace(
    index: Index, since: Sequence[Any], scope: ScopeBuilder[Any], keep: Keep | None, name: str
) -> Arrangement[Any, Any, Any]:
    """Return the arrangement of a trace in ``scope``, with its history from ``since`` on."""
    check_scope(scope, name)
    if scope.root.allocator is index.scope.root.allocator:
        raise GraphError(f"{index.path} cannot be imported into {scope.path!r}, a scope of its own dataflow: use enter(scope)")
    if getattr(scope.root.allocator, "worker", None) is not getattr(index.scope.root.allocator, "worker", None):
        raise GraphError(f"{index.path} cannot be imported into {scope.path!r}, which is a dataflow of another worker")
    lattice = index.trace.lattice
    if scope.subgraph.domain.spec != lattice.domain.spec:
        raise TimestampError(
            f"{index.path} has times of type {lattice.domain.name}, and scope {scope.path!r} has times of type"
            f" {scope.subgraph.domain.name}: import it into a dataflow with its own times, and enter other scopes from there"
        )
    made: list[TraceImport[Any]] = []

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        made.append(TraceImport(index, list(since), capability, info))
        return made[0].logic

    stream = source(scope, name, constructor)
    return Arrangement(stream, index, keep=keep, imported=made.pop())
