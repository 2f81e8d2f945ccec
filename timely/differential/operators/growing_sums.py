"""``growing_sums``: the sums of records whose differences cannot be negated, such as least distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.operators.aggregates import counts_at
from timely.differential.operators.arrangement import register_trace
from timely.differential.operators.scope_times import bounds_in
from timely.differential.trace.deltas import RowDelta
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Key, Update
from timely.operators.generic import unary_frontier
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)


def growing_sums(stream: Stream[T, Update], key: Key | None) -> Stream[T, Update]:
    """Return those of consolidated updates, of complete times in order, that change the sum of their record at their time.

    It keeps each record with its sums. Invariant: an update that was left out changes no sum, at its time or later.
    """
    times = bounds_in(stream.scope)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        now: Sequence[T] = [times.domain.minimum]
        trace: Trace[T] = Trace(times, False, lambda: now)
        register_trace(info, trace, key)
        info.describe(lambda: f"sums: {trace.size()}")
        capability.drop()

        def logic(input: InputPort[T, Update], output: OutputPort[T]) -> bool:
            nonlocal now
            for came_with, batch in input:
                time, changes = came_with.time, list[Update]()
                now = [*input.elements, time]
                for record, diff in batch:
                    before = counts_at(trace.history(record), time, times.lub, set())
                    if not before or before[None] + diff != before[None]:
                        changes.append((record, diff))
                trace.append(time, RowDelta(changes))
                output.session(came_with).give_batch(changes)
            now = list(input.elements)
            return trace.maintain(0)

        return logic

    return unary_frontier(stream, Pipeline, "sums", constructor)
