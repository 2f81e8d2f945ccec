"""``ByRecord``: the pact of operators that read records, from containers of any kind.

Invariant: equal keys meet on one worker, whichever containers they came in.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
from typing_extensions import override

from timely.dataflow import Exchange, records_of
from timely.errors import ContainerError, RoutingError, brief


@attrs.frozen
class ByRecord(Exchange):
    """Exchange each record by ``key(record)``; rows of Arrow batches are tuples.

    ``Exchange`` itself keeps arrays whole and refuses Arrow batches, so that these never become Python objects.
    """

    key: Callable[[Any], Any]

    @override
    def parts(self, time: object, batch: Any, workers: int) -> list[tuple[int, Any]]:
        records = records_of(batch)
        if len(records) != len(batch):  # what was counted as sent would never be counted as read
            raise ContainerError(f"a {type(batch).__name__} of length {len(batch)} has {len(records)} records to iterate over")
        try:
            return super().parts(time, records, workers)
        except (TypeError, LookupError):
            if self.key is _FIRST:
                for record in records:
                    _first(record)  # raises for what is no pair
            raise


def by_first(key: Callable[[Any], Any] | None) -> ByRecord:
    """Return the pact that exchanges pairs by ``key(first)``, or by their first part."""
    return ByRecord(_FIRST if key is None else lambda pair: key(_first(pair)))


def check_pair(record: Any) -> None:
    """``RoutingError`` for a record that is no pair."""
    try:
        _, _ = record
    except (TypeError, ValueError):
        raise _no_pair(record) from None


def check_hashable(records: Iterable[Any]) -> None:
    """``RoutingError`` for the first record that is not hashable."""
    for record in records:
        try:
            hash(record)
        except TypeError as error:
            raise RoutingError(f"records must be hashable, and {brief(record)} came: make tuples of them with map") from error


_FIRST: Final = operator.itemgetter(0)
"""A pair's key: a million in 60 ms, and with a function of Python's in 100."""


def _first(pair: Any) -> Any:
    try:
        return pair[0]
    except (TypeError, LookupError):
        raise _no_pair(pair) from None


def _no_pair(record: Any) -> RoutingError:
    return RoutingError(f"its records must be pairs of a key and a value, and {brief(record)} came: make pairs with map")
