"""The two engines that keep counts and frontiers at run time: for totally and for partially ordered times.

Both go upward through the marked cells of a plan once. A marked cell is recomputed from its own counts and its predecessors'
frontiers; if it changed, its successors are marked. So an unmarked cell is always up to date, and frontiers may retreat. This is
the inner loop of everything: it allocates only what it reports, and is written to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeAlias, TypeVar

from timely.order import PartialOrder, Product, less_equal, reaches
from timely.progress.compiler import NOWHERE, Plan
from timely.progress.minimal_heap import FEW, MinimalHeap
from timely.progress.timestamp import PathSummary, ProductSummary, Step
from timely.progress.tracker import Tracker

T = TypeVar("T", bound=PartialOrder)

Advance: TypeAlias = Callable[[Any], Any] | None
"""What a summary does to a time; None for the identity."""

_pair: Final = tuple.__new__  # half the price of calling Product
_PRODUCT: Final = Product
_push: Final = heappush  # compiled code looks up an imported name at each use, and a constant once
_pop: Final = heappop

SMALL: Final = 64
"""Heaps up to this size are not worth compacting."""


def make_tracker(plan: Plan[T]) -> Tracker[T]:
    """Return a tracker for a plan, with the engine for the order of its times."""
    return TotalTracker(plan) if plan.topology.domain.total else PartialTracker(plan)


Cell: TypeAlias = tuple[list[Any], dict[Any, int], tuple[tuple[int, Advance, bool], ...], tuple[int, ...], int]
"""A cell's times (a heap, or those that crossed zero), counts, predecessors, successors, and observer.

With each predecessor there is how its times advance, and whether incomparable ones stay so.
"""

Entry: TypeAlias = tuple[dict[Any, int] | None, Advance, int, dict[Any, int], list[Any]]
"""The counts of a contracted location, how its times advance to its cell, the cell, and that cell's counts and times."""


def _advance(plan: Plan[Any], summary: PathSummary[Any] | None) -> Advance:
    """Return what advances a time along a path; what loops do most is done by one call."""
    if summary is None:
        return None
    if plan.topology.domain.spec is int and type(summary) is Step and summary.limit is None:
        advance: Callable[[Any], Any] = summary.n.__add__
        return advance
    if type(summary) is ProductSummary and _stays(summary.outer) and type(summary.inner) is Step and summary.inner.limit is None:
        rounds = summary.inner.n
        return lambda time: _pair(_PRODUCT, (time[0], time[1] + rounds))
    return summary.results_in


def _stays(summary: PathSummary[Any]) -> bool:
    """Return whether a summary of integers, or of products of these, changes nothing."""
    if type(summary) is ProductSummary:
        return _stays(summary.outer) and _stays(summary.inner)
    return type(summary) is Step and summary == Step(0)


def _embeds(summary: PathSummary[Any] | None) -> bool:
    """Return whether a summary surely keeps incomparable times incomparable."""
    if type(summary) is ProductSummary:
        return _embeds(summary.outer) and _embeds(summary.inner)
    return summary is None or type(summary) is Step


def _cells(plan: Plan[Any], counts: list[dict[Any, int]]) -> list[Cell]:
    successors: list[list[int]] = [[] for _ in plan.predecessors]
    for end, ways in enumerate(plan.predecessors):
        for start, _ in ways:
            if not successors[start] or successors[start][-1] != end:
                successors[start].append(end)
    cells: list[Cell] = []
    for cell, observer in enumerate(plan.observers):
        predecessors = tuple([(start, _advance(plan, way), _embeds(way)) for start, way in plan.predecessors[cell]])
        cells.append(([], counts[cell], predecessors, tuple(successors[cell]), observer))
    return cells


def _entries(plan: Plan[Any], cells: list[Cell], contracted: list[dict[Any, int] | None]) -> list[Entry]:
    """Return where the changes at each location go."""
    entries: list[Entry] = []
    for own, shift, cell in zip(contracted, plan.shifts, plan.cells):
        if cell == NOWHERE:
            entries.append((own, None, cell, {}, []))
        else:
            times, counts = cells[cell][:2]
            entries.append((own, _advance(plan, shift), cell, counts, times))
    return entries


class TotalTracker(Tracker[T], Generic[T]):
    """The engine for totally ordered times: a frontier is one time or None, a cell's own minimum the top of a lazy heap.

    A time is in a cell's heap, once, exactly while it is a key of the cell's counts. It leaves both when it is the top with the
    count zero, or when a heap of mostly such times is compacted. Only ``<``, equality and hashes are asked of the times.
    """

    __slots__ = ("_cells", "_changes", "_entries", "_limits", "_values")

    def __init__(self, plan: Plan[T]) -> None:
        super().__init__(plan)
        self._cells = _cells(plan, self._counts)
        self._entries = _entries(plan, self._cells, self._contracted)
        self._limits = [SMALL] * len(self._cells)
        self._values: list[Any] = [None] * len(self._cells)
        self._changes: list[tuple[int, T, int]] = []

    def update_at(self, index: int, time: T, diff: int) -> None:
        contracted, advance, cell, counts, heap = self._entries[index]
        moved: Any = time
        if contracted is not None:
            total = contracted.get(time, 0) + diff
            if total:
                contracted[time] = total
            elif diff:
                del contracted[time]
            if cell < 0:
                return
            if advance is not None:
                moved = advance(time)
                if moved is None:
                    return
        known = counts.get(moved)
        if known is None:
            _push(heap, moved)
            counts[moved] = diff
            if len(heap) > SMALL:
                self._compact(cell, heap, counts)
        else:
            counts[moved] = known + diff
        value = self._values[cell]
        if not self._marked[cell] and (value is None or not value < moved):
            self._marked[cell] = True
            _push(self.dirty, cell)

    def propagate_observed(self) -> list[tuple[int, T, int]]:
        changes = self._changes
        if changes:
            changes.clear()
        dirty = self.dirty
        values = self._values
        watchers = self._watchers
        marked = self._marked
        while dirty:
            cell: int = _pop(dirty)
            marked[cell] = False
            heap, counts, predecessors, successors, observer = self._cells[cell]
            least: Any = None
            while heap:
                least = heap[0]
                count = counts[least]
                if count > 0:
                    break
                if count < 0:
                    least = _first_positive(heap, counts)
                    break
                _pop(heap)
                del counts[least]
                least = None
            for start, advance, _ in predecessors:
                time = values[start]
                if time is None:
                    continue
                if advance is not None:
                    time = advance(time)
                if time is not None and (least is None or time < least):
                    least = time
            before = values[cell]
            if least != before:
                values[cell] = least
                if observer >= 0:  # not NOWHERE; a literal saves a look-up, 3 % of a round trip
                    watcher = watchers[observer]
                    if watcher is not None:
                        elements, queue, number = watcher
                        if before is not None and least is not None:
                            elements[0] = least
                        else:
                            elements[:] = () if least is None else (least,)
                        queue.add(number)
                    else:
                        if before is not None:
                            changes.append((observer, before, -1))
                        if least is not None:
                            changes.append((observer, least, 1))
                for successor in successors:
                    if not marked[successor]:
                        marked[successor] = True
                        _push(dirty, successor)
        return changes

    def _compact(self, cell: int, heap: list[Any], counts: dict[Any, int]) -> None:
        """Rebuild a heap that has doubled since the last time from the times whose counts are not zero."""
        if len(heap) > self._limits[cell]:
            for time in [time for time, count in counts.items() if count == 0]:
                del counts[time]
            heap[:] = counts
            heapify(heap)
            self._limits[cell] = max(SMALL, 2 * len(heap))

    def _value(self, cell: int) -> tuple[T, ...]:
        value = self._values[cell]
        return () if value is None else (value,)


def _first_positive(heap: list[Any], counts: dict[Any, int]) -> Any:
    """Return the least time of positive count, or None; times of negative count stay in the heap."""
    negative: list[Any] = []
    least: Any = None
    while heap:
        least = heap[0]
        count = counts[least]
        if count > 0:
            break
        _pop(heap)
        if count < 0:
            negative.append(least)
        else:
            del counts[least]
        least = None
    for time in negative:
        _push(heap, time)
    return least


class PartialTracker(Tracker[T], Generic[T]):
    """The engine for partially ordered times: a frontier is a tuple of incomparable times.

    A cell also keeps the minimal elements of its own counts, and the times whose counts crossed zero since the last propagation;
    with many times, a heap besides. Only ``<=``, equality and hashes are asked of the times.
    """

    __slots__ = ("_cells", "_changes", "_entries", "_heaps", "_own", "_values")

    def __init__(self, plan: Plan[T]) -> None:
        super().__init__(plan)
        self._cells = _cells(plan, self._counts)
        self._entries = _entries(plan, self._cells, self._contracted)
        self._heaps: dict[int, MinimalHeap[Any]] = {}
        self._own: list[tuple[Any, ...]] = [()] * len(self._cells)
        self._values: list[tuple[Any, ...]] = [()] * len(self._cells)
        self._changes: list[tuple[int, T, int]] = []

    def update_at(self, index: int, time: T, diff: int) -> None:
        contracted, advance, cell, counts, crossed = self._entries[index]
        moved: Any = time
        if contracted is not None:
            total = contracted.get(time, 0) + diff
            if total:
                contracted[time] = total
            elif diff:
                del contracted[time]
            if cell < 0:
                return
            if advance is not None:
                moved = advance(time)
                if moved is None:
                    return
        known = counts.get(moved, 0)
        total = known + diff
        if total:
            counts[moved] = total
        elif diff:
            del counts[moved]
        if (known > 0) != (total > 0):
            crossed.append(moved)
            if not self._marked[cell]:
                self._marked[cell] = True
                _push(self.dirty, cell)

    def propagate_observed(self) -> list[tuple[int, T, int]]:
        changes = self._changes
        if changes:
            changes.clear()
        dirty = self.dirty
        values = self._values
        watchers = self._watchers
        marked = self._marked
        while dirty:
            cell: int = _pop(dirty)
            marked[cell] = False
            crossed, counts, predecessors, successors, observer = self._cells[cell]
            after = self._own[cell]
            if crossed:
                if len(counts) == 1 and not self._heaps:
                    for time, count in counts.items():
                        after = (time,) if count > 0 else ()
                else:
                    after = self._own_minimum(cell, counts, crossed)
                self._own[cell] = after
                crossed.clear()
            for start, advance, embeds in predecessors:
                times = values[start]
                if len(times) == 1:
                    time = times[0]
                    if advance is not None:
                        time = advance(time)
                        if time is None:
                            continue
                    after = _with(after, time) if after else (time,)
                elif times:
                    moved = times if advance is None else _advanced(times, advance, embeds)
                    after = _union(after, moved) if after else moved
            before = values[cell]
            if after != before and (len(after) < 2 or len(after) != len(before) or set(after) != set(before)):
                values[cell] = after
                if observer >= 0:  # not NOWHERE; a literal saves a look-up, 3 % of a round trip
                    watcher = watchers[observer]
                    if watcher is not None:
                        elements, queue, number = watcher
                        elements[:] = after
                        queue.add(number)
                    else:
                        gone, come = before, after
                        if len(before) > FEW:
                            gone, come = _trimmed(before, after)
                        old, new = set(gone), set(come)
                        for time in gone:
                            if time not in new:
                                changes.append((observer, time, -1))
                        for time in come:
                            if time not in old:
                                changes.append((observer, time, 1))
                for successor in successors:
                    if not marked[successor]:
                        marked[successor] = True
                        _push(dirty, successor)
        return changes

    def _own_minimum(self, cell: int, counts: dict[Any, int], crossed: list[Any]) -> tuple[Any, ...]:
        """Return the minimal times of positive count, when the times ``crossed`` have come or gone."""
        if len(counts) <= FEW:
            self._heaps.pop(cell, None)
            least: tuple[Any, ...] = ()
            for time, count in counts.items():
                if count > 0:
                    least = _with(least, time) if least else (time,)
            return least
        heap = self._heaps.get(cell)
        if heap is None or len(heap) > 2 * len(counts):
            heap = self._heaps[cell] = MinimalHeap(time for time, count in counts.items() if count > 0)
        else:
            for time in crossed:
                if counts.get(time, 0) > 0:
                    heap.add(time)
        return heap.minimum(counts, crossed)

    def _value(self, cell: int) -> tuple[T, ...]:
        return self._values[cell]


def _trimmed(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return two antichains without the times that both begin and end with: few are left to hash where one came or went."""
    low, high, shorter = 0, 0, min(len(one), len(other))
    while low < shorter and one[low] is other[low]:
        low += 1
    while high < shorter - low and one[-1 - high] is other[-1 - high]:
        high += 1
    return one[low : len(one) - high], other[low : len(other) - high]


def _with(antichain: tuple[Any, ...], time: Any) -> tuple[Any, ...]:
    """Return an antichain with ``time`` inserted; the same object if nothing changed."""
    if len(antichain) == 1:  # as mostly
        other = antichain[0]
        if less_equal(other, time):
            return antichain
        return (time,) if less_equal(time, other) else (other, time)
    for other in antichain:
        if less_equal(other, time):
            return antichain
    return (*[other for other in antichain if not less_equal(time, other)], time)


def _advanced(times: tuple[Any, ...], advance: Callable[[Any], Any], embeds: bool) -> tuple[Any, ...]:
    """Return the minimal ones of times advanced along a path."""
    moved = [time for time in [advance(time) for time in times] if time is not None]
    if embeds or len(moved) < 2:
        return tuple(moved)
    least: tuple[Any, ...] = ()
    for time in moved:
        least = _with(least, time) if least else (time,)
    return least


def _union(antichain: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the minimal ones of two antichains: comparing only what the first does not have with what it has."""
    known, times = set(antichain), list(antichain)
    new = [time for time in other if time not in known and not reaches(times, time)]
    return (*[time for time in antichain if not reaches(new, time)], *new) if new else antichain
