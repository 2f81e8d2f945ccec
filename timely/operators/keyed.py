"""Operators that remember what came before: a state machine for each key, and which records were seen already.

Records of one key, and equal records, come together on one worker. The invariant: what is sent at a time depends on the records
at that time and, for state machines, at those that go before it in one order of all times, never on when they arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, records_of, scope_of
from timely.errors import brief
from timely.operators.by_record import ByRecord, by_first, check_hashable
from timely.operators.generic import unary_frontier
from timely.operators.in_order import InOrder, order_key
from timely.operators.pending import Pending
from timely.operators.state_log import Changes, owner
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


def state_machine(
    stream: Stream[T, tuple[K, V]],
    fold: Callable[[K, V, S | None], tuple[S | None, Iterable[E]]],
    key: Callable[[K], Any] | None = None,
) -> Stream[T, E]:
    """Return what the state machines of all keys send: ``fold(key, value, state)`` returns ``(next state, outputs)``.

    Records are pairs ``(key, value)``. A new key has the state ``None``, and one whose next state is ``None`` is forgotten; so
    are all when the stream has ended. Records are taken in one total order of their times, each when nothing before it can come
    any more. In a loop that is epoch by epoch, and round by round within an epoch, however many epochs are in flight. Order
    within a time is unspecified.

    Times of a type of your own are taken by their ``sort_key()``. ``TimestampError`` for a type that has none and is not total;
    the same, as the cause of an ``OperatorError``, for different times with equal keys. Keys of records are what ``exchange``
    takes, or else ``key(k)`` says what to deal them by. In a run with checkpoints states stay when the stream has ended, for the
    run that goes on.

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
                if state is not None:
                    states[k] = state
                else:
                    states.pop(k, None)

        def save_waiting() -> Iterator[tuple[int, tuple[T, K, V]]]:
            for time in waiting:
                for k, value in waiting[time][1]:
                    yield dealt_by(k), (time, k, value)

        def load_waiting(items: Iterable[tuple[T, K, V]]) -> None:
            for time, k, value in items:
                waiting.at(time, lambda: (capability.delayed(time), []))[1].append((k, value))  # noqa: B023  # called at once

        changes = Changes(info.keep(lambda: ((dealt_by(k), (k, state)) for k, state in states.items()), load, logged=True))
        info.keep(save_waiting, load_waiting)
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
                    session.give_many(outputs)
                    if state is not None:
                        states[k] = state
                    else:
                        states.pop(k, None)
                held.drop()
                if changes.kept:
                    for k in dict.fromkeys(k for k, _ in records):
                        changes.note(dealt_by(k), k, (k, states.get(k)))
            if not frontier and not changes.kept:
                states.clear()

        return logic

    dealt_by = owner(key)
    order = order_key(scope_of(stream, "state_machine").time, "state_machine")
    return unary_frontier(stream, by_first(key), "state_machine", constructor)


def distinct(stream: Stream[T, D], key: Callable[[D], Any] | None = None) -> Stream[T, D]:
    """Return the stream of the same records, each once for each time at which it comes, as soon as it comes.

    Records are hashable: ``RoutingError``, as the cause of an ``OperatorError``, for one that is not. What was seen at a time is
    forgotten when the time is complete. Equal records come together on one worker: they are what ``exchange`` takes as keys, or
    else ``key(record)`` says what to deal them by.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([3, 1, 3, 3]).distinct())
    [(0, [1, 3])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        seen: Pending[T, set[D]] = Pending()

        def save() -> Iterator[tuple[int, tuple[T, D]]]:
            for time in seen:
                for record in seen[time]:
                    yield dealt_by(record), (time, record)

        def load(items: Iterable[tuple[T, D]]) -> None:
            for time, record in items:
                seen.at(time, set).add(record)

        info.keep(save, load)

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
                pass  # nothing can come at that time any more

        return logic

    dealt_by = owner(key)
    return unary_frontier(stream, ByRecord(key or (lambda record: record)), "distinct", constructor)
