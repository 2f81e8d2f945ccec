"""Aggregates: functions of a key's values, and *bags*, of which a change updates them without reading the other values.

A bag has the values of a key at one time, with their counts, their running sum, and their order.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from sortedcontainers import SortedKeyList
from typing_extensions import override

from timely.differential.trace.entries import Entry
from timely.differential.updates.updates import Counts, Diff, Key
from timely.operators.keyed.numbers import ExactSum, canonical, order_key
from timely.order import PartialOrder, less_equal

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
