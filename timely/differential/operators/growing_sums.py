"""``GrowingSums``: the sums of records whose differences cannot be negated, such as least distances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from timely.dataflow import OperatorInfo, ScopeBuilder
from timely.differential.operators.aggregates import counts_at
from timely.differential.operators.arrangement import register_trace
from timely.differential.operators.scope_times import bounds_in
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Key, Update
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


class GrowingSums(Generic[T]):
    """Each record with its sum at each time. Invariant: an update that was left out changes no sum, at its time or later."""

    def __init__(
        self,
        info: OperatorInfo,
        scope: ScopeBuilder[T],
        key: Key | None,
        waiting: Callable[[], Sequence[T]],
    ) -> None:
        """Keep sums in state of an operator; ``waiting()`` are the first times of what it has not added yet."""
        times = bounds_in(scope)
        self._lub = times.lub
        self._frontier: Sequence[T] = [times.domain.minimum]
        self._trace: Trace[T] = Trace(times, False, lambda: [*self._frontier, *waiting()])
        register_trace(info, self._trace, key)
        info.describe(lambda: f"sums: {self._trace.size()}")

    def add(self, time: T, updates: Iterable[Update], frontier: Sequence[T]) -> list[Update]:
        """Add consolidated updates, and return those that change the sum of their record at ``time``."""
        self._frontier = [*frontier, time]
        history, lub = self._trace.history, self._lub
        changes = []
        for record, diff in updates:
            before = counts_at(history(record), time, lub, set())
            if not before or before[None] + diff != before[None]:
                changes.append((record, diff))
        self._trace.append(time, RowDelta(changes))
        return changes

    def maintain(self, frontier: Sequence[T]) -> bool:
        """Compact some of it; return whether more is to be done."""
        self._frontier = list(frontier)
        return self._trace.maintain(0)
