"""Operators that say one thing about all the records of a time, or about all the records of a key.

They wait until a time is complete, so that what they say needs no revision. The invariant: the answer depends on the records of
the time alone, not on how they were batched or in which order they came, as long as the functions given do not.
What is kept for a time is dropped with its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from timely.dataflow import InputPort, OperatorInfo, OutputPort, Pact, Pipeline, Stream, records_of
from timely.errors import StateError, brief
from timely.operators.by_record import by_first, check_hashable, check_pair
from timely.operators.generic import unary_notify
from timely.operators.notificator import Notificator
from timely.operators.state_log import keep_here, owner
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


def accumulate(stream: Stream[T, D], initial: S, f: Callable[[S, D], S]) -> Stream[T, S]:
    """Return, for each time that has records, what ``f(state, record)`` makes of them, one after the other, from ``initial``.

    Each worker accumulates its own records, and sends its answer when the time is complete. ``f`` returns the next state.
    Every time starts from ``initial``, or from a copy of its own where that is a list, dict or set, so that ``f`` may add to such
    a state; nothing else, nor what is in these, may it change. To accumulate over all workers, ``exchange`` to one of them first.
    ``StateError`` where a run goes on with fewer workers and two have begun with the same time, as nobody can say what their
    states make together.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(10)).accumulate(0, lambda total, x: total + x))
    [(0, [45])]
    """

    def add(state: S, batch: Iterable[D]) -> S:
        for record in records_of(batch):
            state = f(state, record)
        return state

    def keep(info: OperatorInfo, states: dict[T, S]) -> None:
        def load(items: Iterable[tuple[T, S]]) -> None:
            for time, state in items:
                if time in states:
                    raise StateError(
                        f"operator {info.name!r} ({info.path}): two workers had begun to accumulate what came at"
                        f" {brief(time)}, and here one is to go on with both: go on with as many workers as there were, or"
                        " use aggregate"
                    )
                states[time] = state

        keep_here(info, states.items, load)

    def start() -> S:
        return copy(initial) if isinstance(initial, list | dict | set) else initial

    return by_time(stream, Pipeline, "accumulate", start, add, lambda state: [[state]], keep)


def count(stream: Stream[T, Any]) -> Stream[T, int]:
    """Return, for each time that has records, how many there are on this worker; for containers of every kind.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream("abc").count())
    [(0, [3])]
    """

    def keep(info: OperatorInfo, numbers: dict[T, int]) -> None:
        def load(items: Iterable[tuple[T, int]]) -> None:
            for time, number in items:
                numbers[time] = numbers.get(time, 0) + number

        keep_here(info, numbers.items, load)

    return by_time(stream, Pipeline, "count", lambda: 0, lambda number, batch: number + len(batch), lambda n: [[n]], keep)


def value_counts(stream: Stream[T, D], key: Callable[[D], Any] | None = None) -> Stream[T, tuple[D, int]]:
    """Return, for each time, ``(record, how often)`` for each different record, on all workers together.

    Records are hashable: ``RoutingError``, as the cause of an ``OperatorError``, for one that is not. Each worker first counts
    its own, and only these counts go to the worker that a record belongs to, when the time is complete. Records are what
    ``exchange`` takes as keys, or else ``key(record)`` says what to deal them by. Arrow batches are read as rows; ``group_by``
    counts on columns.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(["to be or", "not to be"]).flat_map(str.split).value_counts())
    [(0, [('be', 2), ('not', 1), ('or', 1), ('to', 2)])]
    """

    def add(counts: dict[D, int], batch: Any) -> dict[D, int]:
        records = records_of(batch)
        try:
            counts.update(records)  # of a Counter, which is what it is
        except TypeError:
            check_hashable(records)
            raise
        return counts

    return _here_first(stream, "value_counts", Counter, add, int.__add__, key)


def reduce_by_key(
    stream: Stream[T, tuple[K, V]], combine: Callable[[V, V], V], key: Callable[[K], Any] | None = None
) -> Stream[T, tuple[K, V]]:
    """Return, for each time, ``(key, value)`` for each key: all its values, of all workers, combined two by two.

    Records are pairs ``(key, value)``. Each worker first combines its own, and only what comes of that goes to the worker that a
    key belongs to, when the time is complete: of many records with few keys next to nothing is exchanged, where ``aggregate``
    exchanges all of them. ``combine(a, b)`` must be associative and commutative, since values come in any order, and must change
    neither of them. Keys are what ``exchange`` takes, or else ``key(k)`` says what to deal them by. ``RoutingError``, as the
    cause of an ``OperatorError``, for a record that is no pair. Source: the combiners of Dean and Ghemawat 2004, MapReduce.

    >>> import timely
    >>> pairs = [("a", 3), ("b", 4), ("a", 5)]
    >>> timely.example(lambda scope: scope.to_stream(pairs).reduce_by_key(max))
    [(0, [('a', 5), ('b', 4)])]
    """

    def add(states: dict[K, V], batch: Any) -> dict[K, V]:
        records = records_of(batch)
        try:
            return _combined(states, records, combine)
        except (TypeError, ValueError):
            for record in records:
                check_pair(record)
            raise

    return _here_first(stream, "reduce_by_key", dict, add, combine, key)


_NOTHING: Any = object()


def _combined(states: dict[K, V], pairs: Iterable[tuple[K, V]], combine: Callable[[V, V], V]) -> dict[K, V]:
    """Return ``states`` after the values of some pairs have come to them."""
    known = states.get
    for k, value in pairs:
        state = known(k, _NOTHING)
        states[k] = value if state is _NOTHING else combine(state, value)
    return states


def _here_first(
    stream: Stream[T, D],
    name: str,
    start: Callable[[], dict[K, V]],
    add: Callable[[dict[K, V], Any], dict[K, V]],
    combine: Callable[[V, V], V],
    key: Callable[[K], Any] | None,
) -> Stream[T, tuple[K, V]]:
    """Return ``(key, value)`` for each key of each time, where each worker does ``add(states, container)`` for what it has, and
    what it has then for a key is combined with what the others have.
    """
    dealt_by = owner(key)

    def items(times: dict[T, dict[K, V]]) -> Iterator[tuple[T, K, V]]:
        for time, states in times.items():
            for k, value in states.items():
                yield time, k, value

    def load(times: dict[T, dict[K, V]], found: Iterable[tuple[T, K, V]]) -> None:
        for time, k, value in found:
            _combined(times.setdefault(time, start()), [(k, value)], combine)

    def keep_alone(info: OperatorInfo, times: dict[T, dict[K, V]]) -> None:
        keep_here(info, lambda: items(times), lambda found: load(times, found))

    def keep_by_key(info: OperatorInfo, times: dict[T, dict[K, V]]) -> None:
        info.keep(lambda: ((dealt_by(item[1]), item) for item in items(times)), lambda found: load(times, found))

    def add_up(states: dict[K, V], batch: list[tuple[K, V]]) -> dict[K, V]:
        return _combined(states, batch, combine)

    def finish(states: dict[K, V]) -> list[list[tuple[K, V]]]:
        return [list(states.items())]

    here: Stream[T, tuple[K, V]] = by_time(stream, Pipeline, f"{name} (here)", start, add, finish, keep_alone)
    return by_time(here, by_first(key), name, start, add_up, finish, keep_by_key)


def aggregate(
    stream: Stream[T, tuple[K, V]],
    fold: Callable[[K, V, Any], S],
    emit: Callable[[K, S], E],
    key: Callable[[K], Any] | None = None,
) -> Stream[T, E]:
    """Return ``emit(key, state)`` for each key of each time, where ``fold(key, value, state)`` was applied to its values.

    Records are pairs ``(key, value)``; those of one key come together on one worker, all of them (``reduce_by_key`` combines
    on each worker first). ``fold`` returns the next state, and gets ``None`` for the first value of a key. Keys are what
    ``exchange`` takes, or else ``key(k)`` says what to deal them by.

    >>> import timely
    >>> def build(scope):
    ...     pairs = scope.to_stream(range(10)).map(lambda x: (x % 2, x))
    ...     return pairs.aggregate(lambda key, value, total: (total or 0) + value, lambda key, total: (key, total))
    >>> timely.example(build)
    [(0, [(0, 20), (1, 25)])]
    """

    def add(states: dict[K, S], batch: Iterable[tuple[K, V]]) -> dict[K, S]:
        known = states.get
        for k, value in records_of(batch):
            states[k] = fold(k, value, known(k))
        return states

    def finish(states: dict[K, S]) -> list[list[E]]:
        return [[emit(k, state) for k, state in states.items()]]

    dealt_by = owner(key)

    def keep(info: OperatorInfo, times: dict[T, dict[K, S]]) -> None:
        def save() -> Iterator[tuple[int, tuple[T, K, S]]]:
            for time, states in times.items():
                for k, state in states.items():
                    yield dealt_by(k), (time, k, state)

        def load(items: Iterable[tuple[T, K, S]]) -> None:
            for time, k, state in items:
                times.setdefault(time, {})[k] = state

        info.keep(save, load)

    return by_time(stream, by_first(key), "aggregate", dict, add, finish, keep)


def by_time(
    stream: Stream[T, D],
    pact: Pact,
    name: str,
    start: Callable[[], S],
    add: Callable[[S, Any], S],
    finish: Callable[[S], Iterable[Any]],
    keep: Callable[[OperatorInfo, dict[T, S]], None],
) -> Stream[T, Any]:
    """Return the containers ``finish(state)`` for each time once it is complete, where ``add(state, container)`` was applied to
    what came. ``keep`` declares the states.
    """
    states: dict[T, S] = {}

    def logic(input: InputPort[T, D], output: OutputPort[T], notificator: Notificator[T]) -> None:
        for capability, batch in input:
            time = capability.time
            if time not in states:
                states[time] = start()
                notificator.notify_at(capability.retain())
            states[time] = add(states[time], batch)
        for complete, _ in notificator:
            if complete.time in states:
                session = output.session(complete)
                for batch in finish(states.pop(complete.time)):
                    session.give_batch(batch)

    return unary_notify(stream, pact, name, [], logic, keep=lambda info: keep(info, states))
