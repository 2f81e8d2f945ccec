"""``KeyKinds``: warns of a join whose keys can never be equal, such as numbers on one side and the same numbers as texts."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from numbers import Number
from typing import Any, Final

from timely.dataflow import OperatorInfo, warn
from timely.errors import brief

_KINDS: Final = ((str, "text"), (bytes, "bytes"), (Number, "number"), (Decimal, "number"), (datetime.date, "date"))


class KeyKinds:
    """The first key of each side of a join, 0 and 1; ``missing`` are the sides whose key has not come yet."""

    def __init__(self, info: OperatorInfo) -> None:
        self._info = info
        self._keys: dict[int, Any] = {}
        self.missing = {0, 1}

    def see(self, side: int, keys: Iterable[Any]) -> None:
        """Look at the first of a side's keys; ``TimelyWarning``, at the join's line, where it never equals the other side's."""
        for key in keys:
            self._keys[side] = key
            self.missing.discard(side)
            break
        if not self.missing:
            left, right = self._keys[0], self._keys[1]
            if _differ(left, right):
                warn(
                    f"{self._info.path} joins keys such as {brief(left)} on the left with {brief(right)} on the right, which are"
                    " never equal: convert one side with map",
                    self._info.origin,
                )


def _differ(left: object, right: object) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and any(map(_differ, left, right))  # others may be lists, of any lengths
    kinds = [next((kind for base, kind in _KINDS if isinstance(key, base)), None) for key in (left, right)]
    return None not in kinds and kinds[0] != kinds[1]
