"""One time of a reduction, done with columns for the keys that are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from timely.differential.column_operators import accumulated, changes, reduced
from timely.differential.column_store import Gathered
from timely.differential.columns import Array, Updates, each_once, integers


class GatheredInput(Protocol):
    """What can be read by an array of keys."""

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of keys as columns."""


class ReductionInput(GatheredInput, Protocol):
    """The input of a reduction."""

    def large(self, keys: Array) -> list[Any]:
        """Return those of ``keys`` that ``gather`` does not have."""


class ColumnReduction:
    """Reduces many keys at once."""

    def __init__(
        self, kernel: str, pairs: bool, input: ReductionInput, sent: GatheredInput, lub: Callable[[Any, Any], Any]
    ) -> None:
        self._kernel = kernel
        self._pairs = pairs
        self._input = input
        self._sent = sent
        self._lub = lub
        self._keys: Array = np.zeros(0, np.int64)
        self._later: dict[Any, list[Array]] = {}

    def process(self, time: Any, taken: Any, more: dict[Any, None]) -> tuple[Updates | None, Iterable[Any]]:
        """Return the changes for the keys ``taken`` and ``more``, and the keys that are left for rows to do."""
        keys = taken if not isinstance(taken, dict) else integers(list(taken))
        others = integers(list(more))
        if keys is None or others is None:
            return None, [*(taken if isinstance(taken, dict) else taken.tolist()), *(key for key in more if key not in taken)]
        keys = each_once(np.concatenate((keys, others)) if len(others) else keys)
        large = self._input.large(keys)
        if large:
            keys = keys[~np.isin(keys, np.array(large, np.int64))]
        entries, sent = self._input.gather(keys), self._sent.gather(keys)
        if entries is None or sent is None:
            return None, [*keys.tolist(), *large]
        later: dict[Any, list[Array]] = {}
        now = reduced(self._kernel, accumulated(entries, time, self._lub, later), self._pairs)
        if now is None:
            return None, [*keys.tolist(), *large]
        before = accumulated(sent, time, self._lub, later)
        self._keys, self._later = keys, later
        return changes(keys, now, before), large

    def later(self) -> Iterator[tuple[Any, list[Any]]]:
        """Return the keys that have to be looked at again, by time."""
        for time, parts in self._later.items():
            chosen = np.zeros(len(self._keys), bool)
            for part in parts:
                chosen[part] = True
            yield time, self._keys[chosen].tolist()
