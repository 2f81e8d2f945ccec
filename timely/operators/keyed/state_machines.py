"""Operators with keyed state: ``state_machine`` carries it from one time to the next, ``distinct`` has one for each time.

Invariant: what is sent at a time depends on the records of that time and, for ``state_machine``, of the times before it in sort
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, operator_name, records_of, scope_of
from timely.errors import brief
from timely.operators.generic import unary_frontier
from timely.operators.in_order import InOrder, order_key
from timely.operators.keyed.by_record import ByRecord, by_first, check_hashable
from timely.operators.pending import Pending
from timely.operators.state_registration import ChangeLog, key_route, register_keyed_state
from timely.operators.type_variables import D, E, K, S, T, V


def state_machine(
    stream: Stream[T, tuple[K, V]],
    fold: Callable[[K, V, S | None], tuple[S | None, Iterable[E]]],
    key: Callable[[K], Any] | None = None,
    *,
    name: str | None = None,
) -> Stream[T, E]:
    """Return the outputs of ``fold(key, value, state)``, which returns ``(next state, outputs)``, for each pair ``(key, value)``.

    The first state of a key is ``None``, and ``None`` as the next state forgets the key. Times are processed in one total order,
    each once nothing before it can come: in a loop epoch by epoch, and round by round within an epoch. Order within a time is
    unspecified. Pairs are exchanged by ``key(k)``, or by the key itself.

    Times of your own type are sorted by ``sort_key()``: ``TimestampError`` for a type without it that is not total, and for
    different times with equal keys. States outlive the end of the stream only in a run with checkpoints.

    >>> import timely
    >>> def running_sum(key, value, total):
    ...     total = (total or 0) + value
    ...     return total, [(key, total)]
    >>> timely.example(lambda scope: scope.to_stream([("a", 1), ("b", 5), ("a", 2)]).state_machine(running_sum))
    [(0, [('a', 1), ('a', 3), ('b', 5)])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        states: dict[K, S] = {}
        waiting: InOrder[T, tuple[Capability[T], list[tuple[K, V]]]] = InOrder(order, info)

        def load(items: Iterable[tuple[K, S | None]]) -> None:
            for k, state in items:
                put(k, state)

        def put(k: K, state: S | None) -> None:
            if state is not None:
                states[k] = state
            else:
                states.pop(k, None)

        def save_waiting() -> Iterator[tuple[T, K, V]]:
            for time in waiting:
                for k, value in waiting[time][1]:
                    yield time, k, value

        def load_waiting(items: Iterable[tuple[T, K, V]]) -> None:
            for time, k, value in items:
                waiting.at(time, lambda: (capability.delayed(time), []))[1].append((k, value))  # noqa: B023  # called at once

        log: ChangeLog[tuple[K, S | None]] = ChangeLog(info, states.items, load, lambda item: route(item[0]))
        register_keyed_state(info, save_waiting, load_waiting, lambda item: route(item[1]))
        capability.drop()

        def logic(input: InputPort[T, tuple[K, V]], output: OutputPort[T]) -> None:
            for came_with, batch in input:
                waiting.at(came_with.time, lambda: (came_with.retain(), []))[1].extend(records_of(batch))  # noqa: B023
            frontier = input.frontier
            for _, (held, records) in waiting.take(lambda time: waiting.is_next(time, frontier)):
                session = output.session(held)
                for k, value in records:
                    step = fold(k, value, states.get(k))
                    try:
                        state, outputs = step
                    except (TypeError, ValueError):
                        call = f"fold({brief(k)}, {brief(value)}, state)"
                        raise TypeError(f"{call} must return (next state, outputs): {brief(step)}") from None
                    try:
                        session.give_many(outputs)
                    except TypeError:
                        if hasattr(outputs, "__iter__"):
                            raise
                        what = f"(next state, outputs), where outputs are the records to send, in a list: {brief(step)}"
                        raise TypeError(f"fold({brief(k)}, {brief(value)}, state) must return {what}") from None
                    put(k, state)
                held.drop()
                if log.enabled:
                    for k in dict.fromkeys(k for k, _ in records):
                        log.replace(k, (k, states.get(k)))
            if not frontier and not log.enabled:
                states.clear()

        return logic

    route = key_route(key)
    order = order_key(scope_of(stream, "state_machine").time, "state_machine")
    return unary_frontier(stream, by_first(key), operator_name("state_machine", name, fold), constructor)


def distinct(stream: Stream[T, D], key: Callable[[D], Any] | None = None, *, name: str | None = None) -> Stream[T, D]:
    """Return each record once for each time at which it comes, as soon as it comes.

    Records are exchanged by ``key(record)``, or by themselves; ``RoutingError`` for one that is not hashable.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([3, 1, 3, 3]).distinct())
    [(0, [1, 3])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        seen: Pending[T, set[D]] = Pending()

        def save() -> Iterator[tuple[T, D]]:
            for time in seen:
                for record in seen[time]:
                    yield time, record

        def load(items: Iterable[tuple[T, D]]) -> None:
            for time, record in items:
                seen.at(time, set).add(record)

        register_keyed_state(info, save, load, lambda item: route(item[1]))

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            for capability, batch in input:
                known = seen.at(capability.time, set)
                records = records_of(batch)
                try:
                    fresh = [record for record in dict.fromkeys(records) if record not in known]
                except TypeError:
                    check_hashable(records)
                    raise
                known.update(fresh)
                output.session(capability).give_batch(fresh)
            frontier = input.frontier
            for _ in seen.take(lambda time: not frontier.less_equal(time)):
                pass  # complete times are forgotten

        return logic

    route = key_route(key)
    return unary_frontier(stream, ByRecord(key or (lambda record: record)), operator_name("distinct", name), constructor)
