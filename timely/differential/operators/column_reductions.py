"""One time of a reduction, done with columns for the keys that are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from timely.differential.operators.column_operators import accumulated, changes, reduced
from timely.differential.trace.chunk import Gathered
from timely.differential.updates.int_columns import Array, Updates, each_once, integers
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


class GatheredInput(Protocol):
    """What can be read by an array of keys."""

    def gather(self, keys: Array) -> Gathered | None:
        """Return the entries of keys as columns."""


class ReductionInput(GatheredInput, Protocol):
    """The input of a reduction."""

    def large(self, keys: Array) -> list[int]:
        """Return those of ``keys`` that ``gather`` does not have."""


class Reduced(NamedTuple, Generic[T]):
    """What one time of a reduction gives: ``rows`` are the keys that are left for rows to do."""

    changes: Updates | None
    rows: Iterable[Any]
    later: list[tuple[T, list[int]]]
    """The keys that have to be looked at again, by time."""


def reduce_columns(
    kernel: str,
    pairs: bool,
    input: ReductionInput,
    sent: GatheredInput,
    lub: Callable[[T, T], T],
    time: T,
    taken: Any,
    more: dict[Any, None],
) -> Reduced[T]:
    """Return the changes at ``time`` for the keys ``taken``, a dictionary or an array, and ``more``."""
    keys, others = taken if not isinstance(taken, dict) else integers(list(taken)), integers(list(more))
    if keys is None or others is None:
        return Reduced(None, dict.fromkeys([*(taken if keys is None else keys.tolist()), *more]), [])  # each key once
    keys = each_once(np.concatenate((keys, others)) if len(others) else keys)
    large = input.large(keys)
    if large:
        keys = keys[~np.isin(keys, np.array(large, np.int64))]
    by_rows: Reduced[T] = Reduced(None, [*keys.tolist(), *large], [])
    entries, before = input.gather(keys), sent.gather(keys)
    if entries is None or before is None:
        return by_rows
    later: dict[T, list[Array]] = {}
    now = reduced(kernel, accumulated(entries, time, lub, later), pairs)
    if now is None:
        return by_rows
    updates = changes(keys, now, accumulated(before, time, lub, later))
    return Reduced(updates, large, [(bound, _keys_of(keys, parts)) for bound, parts in later.items()])


def _keys_of(keys: Array, parts: Iterable[Array]) -> list[int]:
    """Return the keys with the numbers in ``parts``, each once."""
    chosen = np.zeros(len(keys), bool)
    for part in parts:
        chosen[part] = True
    keys_of_parts: list[int] = keys[chosen].tolist()
    return keys_of_parts
