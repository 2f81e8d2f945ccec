"""The inputs of reductions, by key: a trace of their own, an arrangement, or the groups of an aggregate.

Small groups are lists of entries. A group that stays long becomes bags, one for each time that can still be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from typing_extensions import override

from timely.differential.operators.aggregates import Aggregate, Bag, Counted, counts_at
from timely.differential.trace.cursors import Cursor
from timely.differential.trace.deltas import Keys, RowDelta, keys_of
from timely.differential.trace.entries import Entry, size_in_words
from timely.differential.trace.state_memory import ENTRY
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Container, Counts, Diff, Update, consolidate
from timely.operators.keyed.numbers import are_canonical, canonical
from timely.order import PartialOrder, less_equal

if TYPE_CHECKING:
    from timely.differential.trace.chunk import Gathered
    from timely.differential.trace.int_delta import IntDelta
    from timely.differential.updates.int_columns import Array

T = TypeVar("T", bound=PartialOrder)

Rows = Callable[[Any, Counts], Iterable[Counted]]
"""A function of a key and its values, ``{value: count}``."""

_PER_UPDATE: Final = 16
"""Entries that columns read in the time in which a bag takes an update."""


class OwnTrace(Generic[T]):
    """The input is a trace of the reduction's own, to which a time's updates are appended when it is taken."""

    def __init__(self, trace: Trace[T], rows: Rows) -> None:
        self.trace = trace
        self.pairs = trace.pairs
        self._rows = rows

    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        """Take the batches of ``time``, and return their keys."""
        for delta in self.trace.deltas(time, batches):
            yield keys_of(self.trace.append(time, delta), self.pairs)

    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        """Return the output of ``key`` at ``time``; collect in ``later`` the times at which it has to be asked again."""
        counts = counts_at(self.trace.history(key), time, self.trace.lattice.lub, later)
        return self._rows(key, counts) if counts else ()

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of keys as columns, or ``None`` where that cannot be."""
        return self.trace.gather(keys)

    def large(self, keys: Keys) -> list[Any]:
        """Return those of ``keys`` that ``gather`` does not have."""
        return []

    def restore(self, updates: list[Update], time: T) -> Any:
        """Return a batch of updates that waited in a checkpoint."""
        return updates

    def maintain(self, portion: int) -> bool:
        """Compact some of it; return whether more is to be done."""
        return self.trace.maintain(portion)


class SharedTrace(OwnTrace[T]):
    """The input is an arrangement, whose deltas are seen when their time is taken."""

    def __init__(self, cursor: Cursor[T], rows: Rows) -> None:
        super().__init__(cursor.trace, rows)
        self._cursor = cursor

    @override
    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        cursor = self._cursor
        for delta in batches:
            whole = cursor.keep is None and delta.chunk is not None
            yield keys_of(delta, self.pairs) if whole else dict.fromkeys([key for key, _, _ in cursor.rows(delta)])
            cursor.see(delta, time)

    @override
    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        counts = counts_at(self._cursor.history(key), time, self._cursor.lattice.lub, later)
        return self._rows(key, counts) if counts else ()

    @override
    def gather(self, keys: Array) -> Gathered | None:
        return self._cursor.gather(keys)

    @override
    def restore(self, updates: list[Update], time: T) -> Any:
        return self._cursor.restore(updates, time)

    @override
    def maintain(self, portion: int) -> bool:
        return False  # its arrangement does that


class Groups(OwnTrace[T]):
    """The input is the values of every key, for one aggregate: in a trace, or in bags where there are many."""

    def __init__(self, aggregate: Aggregate, trace: Trace[T]) -> None:
        super().__init__(trace, lambda key, counts: aggregate.of_counts(counts))
        self._aggregate = aggregate
        self._small = trace.limits.group
        self._large: dict[Any, dict[T, Bag]] = {}  # by key and time
        self._values = 0  # updates of those
        self._taken = 0  # updates of the last time

    @override
    def take(self, time: T, batches: list[Container]) -> Iterator[Keys]:
        self._taken = sum(map(len, batches))
        for delta in self.trace.deltas(time, batches):
            yield self._append(time, delta)

    @override
    def gather(self, keys: Array) -> Gathered | None:
        entries, limits = self.trace.gather(keys), self.trace.limits
        if entries is not None and len(keys) < limits.columns and len(entries.numbers) > _PER_UPDATE * self._taken:
            return None  # rows make a bag of such a group, to which an update costs the same however large it is
        return entries

    def _append(self, time: T, delta: RowDelta | IntDelta[T]) -> Keys:
        """Add a delta at ``time``, and return its keys."""
        if delta.chunk is None:
            delta = RowDelta(_canonical(delta))
        keys, trace = keys_of(delta, pairs=True), self.trace
        large = self.large(keys)
        if large:
            bagged, delta = delta.split(large)
            for (key, value), diff in bagged:
                self._add(self._large[key], value, time, diff)
            for key in large:
                self._merge(self._large[key])
            for listener in trace.listeners:
                listener(time, bagged)
        trace.append(time, delta)
        return keys

    @override
    def large(self, keys: Keys) -> list[Any]:
        if not self._large:
            return []
        return [key for key in (keys if isinstance(keys, dict) else keys.tolist()) if key in self._large]

    def _add(self, bags: dict[T, Bag], value: object, time: T, diff: Diff) -> None:
        if time not in bags:
            bags[time] = Bag(self._aggregate.key, self._aggregate.sums)
        bags[time].add(value, diff)
        self._values += 1

    def _has_room(self, entries: int) -> bool:
        """Return whether so many more entries in bags, which stay in memory, take at most a quarter of the memory budget."""
        limit = self.trace.budget.limit
        return limit is None or ENTRY * (self._values + entries) <= limit // 4

    def _enlarge(self, key: object) -> bool:
        """Make bags of a key's entries, if they are still many when compacted."""
        entries = self.trace.compact_key(key)
        if len(entries) <= self._small:
            return False
        self.trace.remove(key)
        bags = self._large[key] = {}
        for value, time, diff in entries:
            self._add(bags, value, time, diff)
        return True

    def bags(self) -> Iterator[Iterable[Bag]]:
        for bags in self._large.values():
            yield bags.values()

    def _merge(self, bags: dict[T, Bag]) -> None:
        """Merge the bags whose times can no longer be told apart."""
        if len(bags) < 2:
            return
        times, since = self.trace.lattice, self.trace.holds.since
        for time in list(bags):
            moved = times.advance(time, since)
            if moved != time:
                bag = bags.pop(time)
                bags[moved] = bags[moved].merge(bag) if moved in bags else bag

    @override
    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        lub = self.trace.lattice.lub
        bags = self._large.get(key)
        if bags is None:
            entries = self.trace.history(key)
            if len(entries) <= self._small or not self._has_room(len(entries)) or not self._enlarge(key):
                counts = counts_at(entries, time, lub, later)
                return self._aggregate.of_counts(counts) if counts else ()
            bags = self._large[key]
        chosen = []
        for when, bag in bags.items():
            if less_equal(when, time):
                if bag.counts:
                    chosen.append(bag)
            else:
                later.add(lub(time, when))
        return self._aggregate.of_bags(chosen) if chosen else ()

    def large_entries(self) -> Iterator[tuple[Any, list[Entry]]]:
        for key, bags in self._large.items():
            yield key, [(value, time, diff) for time, bag in bags.items() for value, diff in bag.counts.items()]

    def size(self) -> str:
        """Return how many entries and keys there are, in words."""
        bags = [bag for by_time in list(self._large.values()) for bag in list(by_time.values())]
        large = size_in_words(sum(len(bag.counts) for bag in bags), len(self._large))
        return f"{self.trace.size()}; in large groups {large}" if bags else self.trace.size()


def _canonical(updates: Iterable[Update]) -> Iterable[Update]:
    """Return consolidated updates with the values that stand for equal ones."""
    if are_canonical([record[1] for record, _ in updates]):
        return updates
    return consolidate([((record[0], canonical(record[1])), diff) for record, diff in updates])
