"""Updates: pairs of a record and a difference, at the time of the message that carries them.

A container of updates is a list, or :class:`timely.differential.updates.int_columns.Updates`, which iterates over the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs
from typing_extensions import override

from timely.dataflow import Exchange, records_of
from timely.errors import RoutingError, brief
from timely.operators.keyed.by_record import check_hashable

Diff: TypeAlias = Any
"""By how much a count changes: a number, or a member of a ring, which is added, negated and multiplied."""

Update: TypeAlias = tuple[Any, Diff]
"""``(record, difference)``."""

Container: TypeAlias = Any
"""Updates on a port: a list of them, or columns, which iterate over the same pairs."""

Counts: TypeAlias = dict[Any, Diff]
"""The counts of the values of a key; of ``None``, where the key is the record."""

Key: TypeAlias = Callable[[Any], Any]
"""A user's function of a key, by whose result records are exchanged."""

Kernel: TypeAlias = Callable[..., Any]
"""A user's function of NumPy arrays."""


def consolidate(updates: Iterable[Update]) -> list[Update]:
    """Return the updates with those of equal records added up, and without those that add up to nothing.

    >>> consolidate([("a", -1), ("b", -2), ("a", 1)])
    [('b', -2)]
    """
    return list(summed_up(updates).items())


def summed_up(updates: Iterable[Update]) -> Counts:
    """Return the sums of the differences of equal records, without those that are zero."""
    sums: dict[Any, Any] = {}
    try:
        for record, diff in updates:
            sums[record] = sums[record] + diff if record in sums else diff
    except TypeError:
        check_hashable(record for record, _ in updates)
        raise
    return sums if all(sums.values()) else {record: diff for record, diff in sums.items() if diff}


def in_order(items: Iterable[Any], key: Key | None = None) -> list[Any]:
    """Return things sorted, unless some cannot be compared.

    >>> in_order([2, 1]), in_order([2, "a"])
    ([1, 2], [2, 'a'])
    """
    ordered = list(items)
    try:
        ordered.sort(key=key)
    except (TypeError, ArithmeticError):
        pass
    return ordered


@attrs.frozen
class ByUpdate(Exchange):
    """Exchange each update by ``key(update)``; ``column`` says that columns go by their key, as rows of them do."""

    key: Key
    column: bool | None = None

    @override
    def parts(self, time: object, batch: Any, workers: int) -> Any:
        if not isinstance(batch, list):
            if self.column is not None and batch.routed(pairs=self.column):
                return batch.parts(workers)
            batch = records_of(batch)
        return super().parts(time, batch, workers)


@attrs.frozen
class ToOwner(ByUpdate):
    """Exchange updates as ``ByUpdate`` does where there are several workers, unless one ``worker`` has them all."""

    worker: int | None = None

    @override
    def parts(self, time: object, batch: Any, workers: int) -> Any:
        if workers == 1:
            return [(0, batch)]  # also what cannot be routed
        return super().parts(time, batch, workers) if self.worker is None else [(self.worker % workers, batch)]


def to_owner(worker: int | None) -> ToOwner:
    """Return the pact that sends each update to ``worker``, or to the worker of its record."""
    return ToOwner(_record, False) if worker is None else ToOwner(lambda update: worker, worker=worker)


def by_key(key: Key | None) -> ByUpdate:
    """Return the pact that exchanges updates of pairs by ``key(first)``, or by the first part."""
    if key is None:
        return ByUpdate(_first, True)
    chosen = key
    return ByUpdate(lambda update: chosen(_first(update)))


def by_record(key: Key | None) -> ByUpdate:
    """Return the pact that exchanges updates by ``key(record)``, or by the record."""
    if key is None:
        return ByUpdate(_record, False)
    chosen = key
    return ByUpdate(lambda update: chosen(update[0]))


def _first(update: Any) -> Any:
    record = update[0]
    if type(record) is not tuple or len(record) != 2:
        raise _no_pair(record)
    return record[0]


def _record(update: Any) -> Any:
    return update[0]


def _no_pair(record: Any) -> RoutingError:
    return RoutingError(f"its records must be tuples of a key and a value, and {brief(record)} came: make pairs with map")
