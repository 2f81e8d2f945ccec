"""Records by key: ``ByRecord``, the pact of operators that read records; ``KeyKinds``, which warns of keys that never meet.

Invariant: equal keys meet on one worker, whichever containers they came in.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import islice, product
from numbers import Number
from typing import Any, Final

import attrs
from typing_extensions import override

from timely.dataflow import Exchange, OperatorInfo, records_of, warn
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


_KINDS: Final = ((str, "text"), (bytes, "bytes"), (Number, "number"), (Decimal, "number"), (datetime.date, "date"))


_MOST: Final = 100
"""Keys of a side that are looked at: a side may have keys of several kinds."""


class KeyKinds:
    """The kinds of the first keys of each side of a join, 0 and 1; ``missing`` are the sides whose keys have not come yet."""

    def __init__(self, info: OperatorInfo) -> None:
        self._info = info
        self._examples: dict[int, dict[Any, Any]] = {}
        self.missing = {0, 1}

    def see(self, side: int, keys: Iterable[Any]) -> None:
        """Look at the first keys of a side; ``TimelyWarning``, at the join's line, where none can equal one of the other side."""
        examples: dict[Any, Any] = {}
        for key in islice(keys, _MOST):
            examples.setdefault(_kind(key), key)
        if not examples:
            return
        self._examples[side] = examples
        self.missing.discard(side)
        if not self.missing and not any(_may_equal(left, right) for left, right in product(self._examples[0], self._examples[1])):
            left, right = (next(iter(self._examples[side].values())) for side in (0, 1))
            warn(
                f"{self._info.path} joins keys such as {brief(left)} on the left with {brief(right)} on the right, which are"
                " never equal: convert one side with map",
                self._info.origin,
            )


def _kind(key: object) -> Any:
    """Return the kind of a key; those of the parts of a tuple; ``None`` for a type that may equal any other."""
    if isinstance(key, tuple):
        return tuple(map(_kind, key))
    return next((kind for base, kind in _KINDS if isinstance(key, base)), None)


def _may_equal(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) != len(right) or all(map(_may_equal, left, right))  # others may be lists, of any lengths
    return left is None or right is None or left == right
