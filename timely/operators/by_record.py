"""``ByRecord``: the pact of operators that work record by record, on whatever container their records come in.

``Exchange`` by a function takes arrays whole and refuses Arrow batches: its point is that these never become Python objects.
An operator that reads records makes objects of them in any case, so here they are made before the exchange. The invariant: equal
keys meet on one worker, whichever kinds of containers the records came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from timely.dataflow import Exchange, records_of
from timely.errors import ContainerError, RoutingError, brief


@attrs.frozen
class ByRecord(Exchange):
    """Every record goes to the worker that ``key(record)`` belongs to; rows of Arrow batches are tuples, as for ``map``.

    >>> ByRecord(lambda pair: pair[0]).parts(0, [(3, "x"), (4, "y")], 2)
    [(0, [(4, 'y')]), (1, [(3, 'x')])]
    """

    key: Callable[[Any], Any]

    def parts(self, time: object, batch: Any, workers: int) -> list[tuple[int, Any]]:
        """Return ``(worker, records)`` for each worker that gets some of a container."""
        records = records_of(batch)
        if len(records) != len(batch):  # what was counted as sent would never be counted as read
            raise ContainerError(f"a {type(batch).__name__} of length {len(batch)} has {len(records)} records to iterate over")
        return super().parts(time, records, workers)


def by_first(key: Callable[[Any], Any] | None) -> ByRecord:
    """Return the pact that brings pairs with equal first parts together, dealt by ``key(first)`` where it is given.

    >>> by_first(None).key((7, "x")), by_first(len).key(("abc", "x"))
    (7, 3)
    """
    if key is None:
        return ByRecord(_first)
    chosen = key
    return ByRecord(lambda pair: chosen(_first(pair)))


def check_pair(record: Any) -> None:
    """``RoutingError`` for a record that is no pair.

    >>> check_pair((7, "x"))
    """
    try:
        _, _ = record
    except (TypeError, ValueError):
        raise _no_pair(record) from None


def check_hashable(records: Iterable[Any]) -> None:
    """``RoutingError`` for the first record that is not hashable.

    >>> check_hashable([(7, "x"), "y"])
    """
    for record in records:
        try:
            hash(record)
        except TypeError as error:
            raise RoutingError(f"records must be hashable, and {brief(record)} came: make tuples of them with map") from error


def _first(pair: Any) -> Any:
    """Return the first part of a pair; ``RoutingError`` for a record that is none."""
    try:
        return pair[0]
    except (TypeError, LookupError):
        raise _no_pair(pair) from None


def _no_pair(record: Any) -> RoutingError:
    return RoutingError(f"its records must be pairs of a key and a value, and {brief(record)} came: make pairs with map")
