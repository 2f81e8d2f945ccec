"""``IntDelta``: a delta of a trace as columns of whole numbers. It imports NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np

from timely.differential.trace.chunk import Chunk
from timely.differential.trace.deltas import Partner, Row, RowDelta
from timely.differential.updates.int_columns import Updates

T = TypeVar("T")


class IntDelta(Updates, Generic[T]):
    """A delta that is sorted columns of whole numbers; ``chunk`` has them by key."""

    __slots__ = ("chunk", "number")

    number: int

    def __init__(self, updates: Updates, time: T) -> None:
        super().__init__(updates.keys, updates.values, updates.diffs)
        self.chunk: Chunk[T] = Chunk.of(updates.keys, updates.values, None, updates.diffs, [time])

    def alone(self) -> Updates:
        """Return the updates alone; nobody changes their arrays."""
        return Updates(self.keys, self.values, self.diffs)

    def chunk_for(self, others: Partner) -> Chunk[T] | None:
        """Return it as columns, if it is large."""
        return self.chunk if len(self.keys) >= others.many else None

    def rows(self, pairs: bool, others: Partner | None = None) -> list[Row]:
        return RowDelta(self).rows(pairs)

    def split(self, keys: Iterable[int]) -> tuple[RowDelta, IntDelta[T]]:
        """Return the updates of ``keys`` as rows, and the others."""
        chosen = np.isin(self.keys, np.array(list(keys), np.int64))
        return RowDelta(self.chosen(chosen)), IntDelta(self.chosen(~chosen), self.chunk.times[0])
