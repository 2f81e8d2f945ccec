"""Operators that move records to later times, and hold them until those times have come.

What they hold is counted: a record that is delayed to a time holds a capability for it, so that nobody downstream takes the
time for complete before. The invariant: every record comes out, once, at the time that it was delayed to, and in one batch
with all others of that time on its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, records_of, scope_of
from timely.errors import CapabilityError, brief
from timely.operators.generic import Keep, binary_frontier, unary_notify
from timely.operators.in_order import InOrder, order_key
from timely.operators.notificator import Notificator
from timely.operators.pending import Pending
from timely.operators.state_log import keep_here
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")


def delay(stream: Stream[T, D], f: Callable[[D, T], T]) -> Stream[T, D]:
    """Return the stream of the same records, each at ``f(record, time)``, which must be at or after its ``time``.

    A record is held until nothing at or before its new time can come in any more. ``CapabilityError`` for an earlier time.

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

    return unary_notify(stream, Pipeline, "delay", [], logic, keep=_keep(held))


def delay_batch(stream: Stream[T, D], f: Callable[[T], T]) -> Stream[T, D]:
    """Return the stream of the same containers, each at ``f(time)``, which must be at or after its ``time``.

    As ``delay``, where the new time does not depend on the record; for containers of every kind.

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

    return unary_notify(stream, Pipeline, "delay_batch", [], logic, keep=_keep(held))


def _keep(held: dict[T, list[Any]]) -> Keep:
    """Return what declares all that is held, by time."""

    def load(items: Iterable[tuple[T, list[Any]]]) -> None:
        for time, what in items:
            held.setdefault(time, []).extend(what)

    return lambda info: keep_here(info, held.items, load)


def reclock(stream: Stream[T, D], clock: Stream[T, Any]) -> Stream[T, D]:
    """Return the stream of the same records, each at the first time at or after its own at which something comes on ``clock``.

    That makes fine times coarse, so that less has to be said of progress. Where several such times are first, as in a loop, it is
    the one that ``state_machine`` takes first. ``TimestampError`` for times without a total order, as for ``state_machine``.
    A record is held until both streams have passed the time of the clock; one that the clock never gets to comes out at its own
    time, when the clock has ended. Each worker goes by what comes on the clock there; in a run that goes on with another number
    of workers, each goes by what had come on any and was still to be gone by.

    >>> import timely
    >>> def build(scope):
    ...     ticks = scope.to_stream([0, 10, 20]).delay(lambda x, time: x)
    ...     return scope.to_stream([3, 10, 11, 99]).delay(lambda x, time: x).apply(timely.operators.reclock, ticks)
    >>> timely.example(build)
    [(10, [3, 10]), (20, [11]), (99, [99])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        held: Pending[T, tuple[Capability[T], list[Any]]] = Pending()
        ticks: InOrder[T, Capability[T]] = InOrder(order, info)

        def load_held(items: Iterable[tuple[T, list[Any]]]) -> None:
            for time, batches in items:
                held.at(time, lambda: (capability.delayed(time), []))[1].extend(batches)  # noqa: B023  # called at once

        def load_ticks(times: Iterable[T]) -> None:
            for time in times:
                ticks.at(time, lambda: capability.delayed(time))  # noqa: B023  # called at once

        keep_here(info, lambda: ((time, held[time][1]) for time in held), load_held)
        info.keep(
            lambda: ((None, time) for time in ticks),
            load_ticks,
            rescale=lambda parts: load_ticks(time for times in parts for time in times),
        )
        capability.drop()

        def send(capability: Capability[T], batches: list[Any], output: OutputPort[T]) -> None:
            for batch in batches:
                output.session(capability).give_batch(batch)

        def logic(records: InputPort[T, D], clock: InputPort[T, Any], output: OutputPort[T]) -> None:
            for capability, batch in records:
                if capability.time not in held:
                    held[capability.time] = (capability.retain(), [])
                held[capability.time][1].append(batch)
            for capability, _ in clock:
                ticks.at(capability.time, capability.retain)
            ahead, to_tick = records.frontier, clock.frontier

            def due(tick: T) -> bool:
                return not (ahead.less_equal(tick) or to_tick.less_equal(tick)) and ticks.is_next(tick, to_tick)

            for tick, at_tick in ticks.take(due):
                for _, (_, batches) in held.take(lambda time: time <= tick):  # noqa: B023  # called in this turn of the loop
                    send(at_tick, batches, output)
            if not to_tick:  # what has no tick at or after it has nothing left to wait for
                left = list(ticks)
                for time in [time for time in held if not any(time <= tick for tick in left)]:
                    send(*held.pop(time), output)

        return logic

    order = order_key(scope_of(stream, "reclock").time, "reclock")
    return binary_frontier(stream, clock, Pipeline, Pipeline, "reclock", constructor)
