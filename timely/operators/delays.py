"""Operators that move records to later times, and hold them, with a capability, until these are complete.

Invariant: every record comes out once, at its new time, in one batch with all others of that time on its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, operator_name, records_of, scope_of
from timely.errors import CapabilityError, brief
from timely.operators.generic import binary_frontier, unary_notify
from timely.operators.in_order import InOrder, order_key
from timely.operators.keyed.complete_times import merged
from timely.operators.notificator import Notificator
from timely.operators.pending import Pending
from timely.operators.state_registration import register_list_state, register_union_state
from timely.operators.type_variables import D, T


def delay(stream: Stream[T, D], f: Callable[[D, T], T], *, name: str | None = None) -> Stream[T, D]:
    """Return the same records, each at ``f(record, time)``; ``CapabilityError`` where that is not at or after ``time``.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([5, 7, 5]).delay(lambda x, time: x))
    [(5, [5, 5]), (7, [7])]
    """
    held: dict[T, list[D]] = {}

    def logic(input: InputPort[T, D], output: OutputPort[T], notificator: Notificator[T]) -> None:
        for capability, batch in input:
            for record in records_of(batch):
                time = f(record, capability.time)
                if time not in held:
                    notificator.notify_at(capability.delayed(time))
                    held[time] = []
                elif not capability.time <= time:
                    raise CapabilityError(
                        f"{input.label}: {brief(record)} at {brief(capability.time)} cannot be delayed to {brief(time)}"
                    )
                held[time].append(record)
        for complete, _ in notificator:
            output.session(complete).give_batch(held.pop(complete.time, []))

    return unary_notify(
        stream, Pipeline, operator_name("delay", name, f), [], logic, state=lambda info: merged(list.__add__)(info, held)
    )


def delay_batch(stream: Stream[T, D], f: Callable[[T], T], *, name: str | None = None) -> Stream[T, D]:
    """Return the same containers, each at ``f(time)``; for containers of every kind. Errors as of ``delay``.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([5, 7]).delay_batch(lambda time: time + 1))
    [(1, [5, 7])]
    """
    held: dict[T, list[Any]] = {}

    def logic(input: InputPort[T, D], output: OutputPort[T], notificator: Notificator[T]) -> None:
        for capability, batch in input:
            time = f(capability.time)
            later = capability.delayed(time)
            if time in held:
                later.drop()
            else:
                notificator.notify_at(later)
            held.setdefault(time, []).append(batch)
        for complete, _ in notificator:
            session = output.session(complete)
            for batch in held.pop(complete.time, []):
                session.give_batch(batch)

    return unary_notify(
        stream, Pipeline, operator_name("delay_batch", name, f), [], logic, state=lambda info: merged(list.__add__)(info, held)
    )


def reclock(stream: Stream[T, D], clock: Stream[T, Any], *, name: str | None = None) -> Stream[T, D]:
    """Return the same records, each at the first time at or after its own at which something comes on ``clock``.

    Coarser times mean less progress traffic. Where several such times are minimal, the first in the order of ``state_machine``
    is chosen; ``TimestampError`` for times without that order. Records after the last tick come out at their own time, when the
    clock has ended. Each worker reads its own part of the clock; on another number of workers, each resumes with all pending
    ticks.

    >>> import timely
    >>> def build(scope):
    ...     ticks = scope.to_stream([0, 10, 20]).delay(lambda x, time: x)
    ...     return scope.to_stream([3, 11, 99]).delay(lambda x, time: x).apply(timely.operators.reclock, ticks)
    >>> timely.example(build)
    [(10, [3]), (20, [11]), (99, [99])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        held: Pending[T, tuple[Capability[T], list[Any]]] = Pending()
        ticks: InOrder[T, Capability[T]] = InOrder(order, info)

        def save_held() -> Iterator[tuple[T, list[Any]]]:
            return ((time, held[time][1]) for time in held)

        def load_held(items: Iterable[tuple[T, list[Any]]]) -> None:
            for time, batches in items:
                held.at(time, lambda: (capability.delayed(time), []))[1].extend(batches)  # noqa: B023  # called at once

        def load_ticks(times: Iterable[T]) -> None:
            for time in times:
                ticks.at(time, lambda: capability.delayed(time))  # noqa: B023  # called at once

        register_list_state(info, save_held, load_held)
        register_union_state(info, lambda: iter(ticks), load_ticks)
        capability.drop()

        def send(capability: Capability[T], batches: list[Any], output: OutputPort[T]) -> None:
            for batch in batches:
                output.session(capability).give_batch(batch)

        def logic(records: InputPort[T, D], clock: InputPort[T, Any], output: OutputPort[T]) -> None:
            for capability, batch in records:
                held.at(capability.time, lambda: (capability.retain(), []))[1].append(batch)  # noqa: B023  # called at once
            for capability, _ in clock:
                ticks.at(capability.time, capability.retain)
            ahead, to_tick = records.frontier, clock.frontier

            def due(tick: T) -> bool:
                return not (ahead.less_equal(tick) or to_tick.less_equal(tick)) and ticks.is_next(tick, to_tick)

            for tick, at_tick in ticks.take(due):
                for _, (_, batches) in held.take(lambda time: time <= tick):  # noqa: B023  # called in this iteration
                    send(at_tick, batches, output)
            if not to_tick:  # records without a tick at or after them have nothing left to wait for
                left = list(ticks)
                for time in [time for time in held if not any(time <= tick for tick in left)]:
                    send(*held.pop(time), output)

        return logic

    order = order_key(scope_of(stream, "reclock").time, "reclock")
    return binary_frontier(stream, clock, Pipeline, Pipeline, operator_name("reclock", name), constructor)
