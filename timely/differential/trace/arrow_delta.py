"""``ArrowDelta``: a delta of a trace whose values are Arrow rows. It imports PyArrow."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from timely.differential.trace.chunk import Chunk
from timely.differential.trace.deltas import Partner, Row, RowDelta
from timely.differential.updates.row_columns import ArrowValues, KeyedRows, RowColumns

T = TypeVar("T")


class ArrowDelta(KeyedRows, Generic[T]):
    """A delta that is Arrow rows in order of their keys; ``chunk`` has them by key."""

    __slots__ = ("chunk", "number")

    number: int

    def __init__(self, updates: KeyedRows, time: T) -> None:
        count, diff = len(updates), updates.table.diff
        values = ArrowValues(updates.table.columns, count).loaded()
        super().__init__(updates.keys, RowColumns(values.columns, count, diff))
        diffs = None if diff == 1 else np.full(count, diff)
        self.chunk: Chunk[T] = Chunk.of(updates.keys, values, None, diffs, [time])

    def chunk_for(self, others: Partner) -> Chunk[T]:
        """Return it as columns: to make rows of few would take longer."""
        return self.chunk

    def rows(self, pairs: bool, others: Partner | None = None) -> list[Row]:
        return RowDelta(self).rows(pairs)
