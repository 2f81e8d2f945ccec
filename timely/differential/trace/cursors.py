"""``Cursor``: one reader of a trace. It sees the deltas that it has processed, and no others.

Otherwise a join would count a pair twice, or never, if both of its sides are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from timely.differential.trace.compaction_frontier import Hold, Move
from timely.differential.trace.deltas import Delta, Row, RowDelta
from timely.differential.trace.entries import SHORT, Entry, compacted
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Update
from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import Lattice

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Gathered, Matches
    from timely.differential.updates.int_columns import Array

T = TypeVar("T", bound=PartialOrder)


Keep: TypeAlias = Callable[[Any], bool]
"""Whether a reader sees a record."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Cursor(Generic[T]):
    """One reader of a trace, in a scope of its own: sees the deltas that it has processed, with times of that scope.

    ``hold()`` returns the frontier, in times of the scope, at which it may still read. Inside ``run()``, several times are
    processed in turn, and a key's entries are kept aside and compacted as the hold moves: else ``n`` times would read ``n``
    entries each.
    """

    __slots__ = (
        "_ahead",
        "_bounds",
        "_direct",
        "_hidden",
        "_inner",
        "_outer_hold",
        "_restored",
        "_run",
        "_to_inner",
        "_trace",
        "hold",
        "keep",
        "lattice",
        "many",
        "seen",
    )

    def __init__(
        self,
        trace: Trace[Any],
        times: Lattice[T],
        hold: Hold,
        to_inner: Move | None = None,
        to_outer: Move | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._trace = trace
        self.keep = keep
        self.many = trace.limits.columns
        self._direct = keep is None and to_inner is None  # what it sees is in the trace
        self.lattice = times
        self.hold = hold
        self.seen = trace.number
        self._ahead: set[int] = set()
        self._restored = 0  # the number of the last delta of a checkpoint
        self._hidden: dict[object, list[tuple[int, Entry]]] = {}  # by key: negated entries that hide what a restored delta has
        self._to_inner = to_inner
        self._inner: dict[Any, T] = {}
        self._run: dict[object, list[Entry]] | None = None
        self._bounds: dict[object, int] = {}
        self._outer_hold: Hold = hold if to_outer is None else lambda: [to_outer(time) for time in hold()]
        trace.add_cursor(self)
        trace.holds.add(self._outer_hold)

    def close(self) -> None:
        self._trace.holds.release(self._outer_hold)
        self._trace.remove_cursor(self)

    def __len__(self) -> int:
        """Return about how many keys the trace has."""
        return len(self._trace)

    def keys(self) -> Iterator[Any]:
        return self._trace.keys()

    def history(self, key: object) -> list[Entry]:
        """Return what it sees of ``key``, which must not be changed."""
        run = self._run
        if run is None:
            if self._direct and not self._hidden:
                return self._trace.visible(key, self.seen, self._ahead)
            return self._visible(key)
        entries = run.get(key)
        if entries is None:
            entries = run[key] = list(self._visible(key))
        return entries

    def _visible(self, key: object) -> list[Entry]:
        entries = self._seen(key)
        if self._to_inner is not None or self.keep is not None:
            entries = self._moved(key, entries)
        if self._hidden and key in self._hidden:
            entries = entries + [entry for _, entry in self._hidden[key]]
        return entries

    def _seen(self, key: object) -> list[Entry]:
        """Return the entries of ``key`` in the trace that it has seen."""
        return self._trace.visible(key, self.seen, self._ahead)

    def _moved(self, key: object, entries: list[Entry]) -> list[Entry]:
        """Return those of the entries that it keeps, at times of its scope."""
        keep = self.keep
        if keep is not None and entries:
            pairs = self._trace.pairs
            entries = [entry for entry in entries if keep((key, entry[0]) if pairs else key)]
        if self._to_inner is None or not entries:
            return entries
        inner = self._inner
        inside = []
        for value, time, diff in entries:
            moved = inner.get(time)
            if moved is None:
                if len(inner) >= 1024:
                    inner.clear()
                moved = inner[time] = self._to_inner(time)
            inside.append((value, moved, diff))
        return inside

    def matches(self, keys: Array) -> Matches | None:
        """Return what it sees of sorted, unique ``keys`` as chunks, or ``None`` where it sees only parts of them."""
        if self.keep is not None or self._hidden:
            return None
        return self._at_inner_times(self._trace.matches(keys, self.seen, self._ahead))

    def _at_inner_times(self, matches: Matches) -> Matches:
        return matches if self._to_inner is None else matches.moved(self._to_inner)

    def gather(self, keys: Array) -> Gathered | None:
        """Return what it sees of sorted, unique ``keys`` as columns, or ``None`` where that cannot be."""
        matches = self.matches(keys)
        return None if matches is None else matches.gathered(keys, self._trace.pairs)

    @property
    def trace(self) -> Trace[Any]:
        return self._trace

    def rows(self, delta: Delta[Any], others: Cursor[Any] | None = None) -> Iterable[Row]:
        """Return the updates of a delta; those whose keys ``others`` may have, in an order in which it reads them fast."""
        rows = delta.rows(self._trace.pairs, others)
        if self.keep is not None:
            rows = self.filtered(rows)
        return sorted(rows, key=lambda row: hash(row[0])) if others is not None and others._trace.reads_disk else rows

    def filtered(self, rows: Iterable[Row]) -> Iterable[Row]:
        keep, pairs = self.keep, self._trace.pairs
        return rows if keep is None else [row for row in rows if keep(row[:2] if pairs else row[0])]

    def see(self, delta: Delta[Any], time: T) -> None:
        """Take note that the delta, which came at ``time``, has been processed."""
        run = self._run
        if run is not None:
            self._add(run, delta, time)
        if delta.number < 0:
            self._uncover(delta)
            return
        ahead = self._ahead
        if delta.number != self.seen:
            ahead.add(delta.number)
            return
        self.seen += 1
        while self.seen in ahead:
            ahead.remove(self.seen)
            self.seen += 1
        self._trace.settle()

    def restore(self, updates: Iterable[Update], time: T) -> RowDelta:
        """Return a delta that waited in a checkpoint; its entries are hidden until ``see``."""
        delta = RowDelta(updates)
        delta.number = self._restored = self._restored - 1
        for key, value, diff in self.rows(delta):
            self._hidden.setdefault(key, []).append((delta.number, (value, time, -diff)))
        return delta

    def _uncover(self, delta: Delta[Any]) -> None:
        for key, _, _ in self.rows(delta):
            left = [entry for entry in self._hidden.pop(key, ()) if entry[0] != delta.number]
            if left:
                self._hidden[key] = left

    def _add(self, run: dict[object, list[Entry]], delta: Delta[Any], time: T) -> None:
        bounds = self._bounds
        for key, value, diff in self.rows(delta):
            entries = run.get(key)
            if entries is not None:
                entries.append((value, time, diff))
                if len(entries) > bounds.get(key, SHORT) or not self._trace.limits.patience:
                    summed = run[key] = compacted(entries, self.lattice, self.lattice.lower_envelope(self.hold()), {})
                    bounds[key] = 2 * len(summed) + SHORT

    def begin_run(self) -> None:
        """Begin a run of several times."""
        self._run = {}

    def end_run(self) -> None:
        self._run = None
        self._bounds.clear()
