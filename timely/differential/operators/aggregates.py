"""Aggregates: functions of a key's values that a change updates without reading the other values.

Small groups are lists of entries. A group that stays long becomes *bags*: for each time that can still be told apart, the values
with their counts, their running sums, and their order.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from sortedcontainers import SortedKeyList
from typing_extensions import override

from timely.differential.trace.deltas import Keys, RowDelta, keys_of
from timely.differential.trace.entries import Entry, size_in_words
from timely.differential.trace.state_memory import ENTRY
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Counts, Diff, Key, Update, consolidate
from timely.operators.keyed.numbers import ExactSum, are_canonical, canonical, order_key
from timely.order import PartialOrder, less_equal

if TYPE_CHECKING:
    from timely.differential.trace.int_delta import IntDelta

T = TypeVar("T", bound=PartialOrder)


Counted: TypeAlias = tuple[Any, Diff]
"""``(value, count)``."""


class Bag:
    """The values of one key at one time, with their counts."""

    __slots__ = ("_key", "_order", "counts", "sum", "total")

    def __init__(self, key: Key | None, sums: bool) -> None:
        self.counts: Counts = {}
        self.total: Diff = 0
        self.sum = ExactSum() if sums else None
        self._key = key
        self._order: SortedKeyList | None = None

    def add(self, value: object, diff: Diff) -> None:
        counts = self.counts
        before = counts.get(value)
        count = diff if before is None else before + diff
        if count:
            counts[value] = count
        else:
            del counts[value]
        if self._order is not None:
            if before is None:
                self._order.add(value)
            elif not count:
                self._order.remove(value)
        self.total = self.total + diff
        if self.sum is not None:
            self.sum.add(value, diff)

    def merge(self, other: Bag) -> Bag:
        """Return the sum of both, made in the larger one."""
        large, small = (self, other) if len(self.counts) >= len(other.counts) else (other, self)
        for value, count in small.counts.items():
            large.add(value, count)
        return large

    @property
    def order(self) -> SortedKeyList:
        if self._order is None:
            self._order = SortedKeyList(self.counts, key=self._key)
        return self._order


class Aggregate(ABC):
    """What an aggregate returns for a group: of its accumulated counts, or of its bags at the times that count."""

    sums = False
    """Whether bags add up their values."""
    kernel: str | None = None
    """Which function of ``column_operators`` does the same for columns."""

    @property
    def key(self) -> Key | None:
        """What the values of a bag are sorted by."""
        return None

    @abstractmethod
    def of_counts(self, counts: Counts) -> Iterable[Counted]:
        """Return the output for values with counts, none of them zero, and at least one."""

    @abstractmethod
    def of_bags(self, bags: Sequence[Bag]) -> Iterable[Counted]:
        """Return the output for the sum of bags."""


class Count(Aggregate):
    """The number of values."""

    kernel: str | None = "count"

    @override
    def of_counts(self, counts: Counts) -> Iterable[Counted]:
        return [(sum(counts.values()), 1)]

    @override
    def of_bags(self, bags: Sequence[Bag]) -> Iterable[Counted]:
        total = sum(bag.total for bag in bags)
        return [(total, 1)] if total or _any_left(bags) else []


class Sum(Aggregate):
    sums = True
    kernel: str | None = "sum"

    @override
    def of_counts(self, counts: Counts) -> Iterable[Counted]:
        return [(ExactSum.of(counts.items()).result(), 1)]

    @override
    def of_bags(self, bags: Sequence[Bag]) -> Iterable[Counted]:
        if not sum(bag.total for bag in bags) and not _any_left(bags):
            return []
        sums = [bag.sum for bag in bags if bag.sum is not None]
        return [((sums[0] if len(sums) == 1 else ExactSum.merged(sums)).result(), 1)]


class Top(Aggregate):
    """The first ``k`` values in an order, or with ``last`` the last ones, of those with positive counts."""

    def __init__(self, k: int, key: Key | None = None, *, last: bool = False, kernel: str | None = None) -> None:
        self.k = k
        self._key = key
        self._last = last
        self.kernel = kernel

    @property
    @override
    def key(self) -> Key:
        return self._key or order_key

    @override
    def of_counts(self, counts: Counts) -> Iterable[Counted]:
        positive = [value for value, count in counts.items() if count > 0]
        try:
            chosen = self._chosen(positive, self._key)
        except (TypeError, ArithmeticError):  # Python does not compare all numbers
            if self._key is not None:
                raise
            chosen = self._chosen(positive, order_key)
        return self._first(chosen, counts.__getitem__)

    def _chosen(self, values: list[Any], key: Key | None) -> list[Any]:
        if self.k > 1 or len(values) < 2:
            return sorted(values, key=key, reverse=self._last)
        return [max(values, key=key) if self._last else min(values, key=key)]

    @override
    def of_bags(self, bags: Sequence[Bag]) -> Iterable[Counted]:
        orders = [reversed(bag.order) if self._last else iter(bag.order) for bag in bags]
        if len(bags) == 1:
            return self._first(orders[0], bags[0].counts.__getitem__)
        merged = heapq.merge(*orders, key=self.key, reverse=self._last)
        return self._first(_each_once(merged, self.key), lambda value: sum([bag.counts.get(value, 0) for bag in bags]))

    def _first(self, values: Iterable[Any], count_of: Callable[[Any], Diff]) -> list[Counted]:
        left, first = self.k, []
        for value in values:
            count = count_of(value)
            if count > 0:
                first.append((value, min(count, left)))
                left -= count
                if left <= 0:
                    break
        return first


def _each_once(merged: Iterable[Any], key: Callable[[Any], Any]) -> Iterator[Any]:
    """Return sorted values, each once: equal ones stand among those of equal keys."""
    for _, values in groupby(merged, key):
        yield from dict.fromkeys(values)


class Descending:
    """A sort key that turns an order round.

    >>> sorted([1, 3, 2], key=Descending)
    [3, 2, 1]
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def greatest(k: int, by: Key | None = None, kernel: str | None = None) -> Top:
    """Return the aggregate of the ``k`` greatest values by ``by(value)``, of equal ones the least first."""
    if by is None:
        return Top(k, last=True, kernel=kernel)
    return Top(k, lambda value: (Descending(order_key(canonical(by(value)))), order_key(value)))


def _any_left(bags: Sequence[Bag]) -> bool:
    """Return whether any value has a count other than zero in the sum of the bags."""
    if len(bags) == 1:
        return bool(bags[0].counts)
    sums: Counts = {}
    for bag in bags:
        for value, count in bag.counts.items():
            sums[value] = sums.get(value, 0) + count
    return any(sums.values())


class Groups(Generic[T]):
    """The values of every key, for one aggregate: in a trace, or in bags where there are many."""

    def __init__(self, aggregate: Aggregate, trace: Trace[T]) -> None:
        self._aggregate = aggregate
        self.trace = trace
        self._small = trace.limits.group
        self._large: dict[Any, dict[T, Bag]] = {}  # by key and time
        self._values = 0  # updates of those

    def append(self, time: T, delta: RowDelta | IntDelta[T]) -> Keys:
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

    def large(self, keys: Keys) -> list[Any]:
        """Return those keys that have bags."""
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

    def result(self, key: object, time: T, later: set[T]) -> Iterable[Counted]:
        """Return the output of ``key`` at ``time``; collect in ``later`` the times at which it has to be asked again."""
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


def counts_at(entries: Iterable[Entry], time: T, lub: Callable[[T, T], T], later: set[T]) -> Counts:
    """Return the counts of values at ``time``; collect in ``later`` its bounds with the times that are not before it."""
    sums: Counts = {}
    last: T | None = None
    counts = False
    for value, when, diff in entries:
        if when is not last:
            last = when
            counts = less_equal(when, time)
            if not counts:
                later.add(lub(time, when))
        if counts:
            sums[value] = sums[value] + diff if value in sums else diff
    return {value: count for value, count in sums.items() if count}
