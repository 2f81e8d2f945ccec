"""``KeyKinds``: warns of a join whose keys can never be equal, such as numbers on one side and the same numbers as texts."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from itertools import islice, product
from numbers import Number
from typing import Any, Final

from timely.dataflow import OperatorInfo, warn
from timely.errors import brief

_KINDS: Final = ((str, "text"), (bytes, "bytes"), (Number, "number"), (Decimal, "number"), (datetime.date, "date"))


_FIRST: Final = 100
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
        for key in islice(keys, _FIRST):
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
