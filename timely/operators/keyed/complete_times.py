"""Operators that send one result for all records of a time, or for each key of a time, once the time is complete.

Invariant: a result depends on the records of its time alone, not on how they were batched or ordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from timely.dataflow import (
    Exchange,
    InputPort,
    OperatorInfo,
    OutputPort,
    Pact,
    Pipeline,
    Stream,
    operator_name,
    records_of,
    scope_of,
)
from timely.errors import StateError, brief
from timely.operators.generic import unary_notify
from timely.operators.keyed.by_record import by_first, check_hashable, check_pair
from timely.operators.notificator import Notificator
from timely.operators.state_registration import key_route, register_keyed_state, register_list_state
from timely.operators.type_variables import D, E, K, S, T, V


def by_time(
    stream: Stream[T, D],
    pact: Pact,
    name: str,
    start: Callable[[], S],
    add: Callable[[S, Any], S],
    finish: Callable[[S], Iterable[Any]],
    register: Callable[[OperatorInfo, dict[T, S]], None],
) -> Stream[T, Any]:
    """Return the containers ``finish(state)`` for each complete time, where ``add(state, container)`` folded what came.

    ``register`` registers the states, see ``merged`` and ``keyed``.
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

    return unary_notify(stream, pact, name, [], logic, state=lambda info: register(info, states))


def merged(merge: Callable[[S, S], S] | None) -> Callable[[OperatorInfo, dict[T, S]], None]:
    """Return what registers a worker's states by time, where ``merge`` combines those of two workers, or cannot."""

    def register(info: OperatorInfo, states: dict[T, S]) -> None:
        def load(items: Iterable[tuple[T, S]]) -> None:
            for time, state in items:
                if time not in states:
                    states[time] = state
                elif merge is not None:
                    states[time] = merge(states[time], state)
                else:
                    raise StateError(
                        f"operator {info.name!r} ({info.path}): two workers had begun to accumulate what came at"
                        f" {brief(time)}, and here one is to go on with both: go on with as many workers as there were, or"
                        " use aggregate"
                    )

        register_list_state(info, states.items, load)

    return register


def keyed(
    key: Callable[[K], Any] | None, put: Callable[[dict[T, dict[K, S]], T, K, S], object]
) -> Callable[[OperatorInfo, dict[T, dict[K, S]]], None]:
    """Return what registers states by time and key, where ``put(times, time, key, state)`` restores one."""
    route = key_route(key)

    def register(info: OperatorInfo, times: dict[T, dict[K, S]]) -> None:
        def save() -> Iterator[tuple[T, K, S]]:
            for time, states in times.items():
                for k, state in states.items():
                    yield time, k, state

        def load(items: Iterable[tuple[T, K, S]]) -> None:
            for time, k, state in items:
                put(times, time, k, state)

        register_keyed_state(info, save, load, lambda item: route(item[1]))

    return register


def accumulate(stream: Stream[T, D], initial: S, f: Callable[[S, D], S], *, name: str | None = None) -> Stream[T, S]:
    """Return, for each time with records on this worker, their fold ``f(state, record)`` from ``initial``.

    Each time starts from ``initial``, or from a shallow copy of a list, dict or set, which ``f`` may modify. ``exchange`` first
    to fold over all workers. ``StateError`` where a run resumes with fewer workers and two have begun with the same time.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(10)).accumulate(0, lambda total, x: total + x))
    [(0, [45])]
    """

    def add(state: S, batch: Iterable[D]) -> S:
        for record in records_of(batch):
            state = f(state, record)
        return state

    def start() -> S:
        return copy(initial) if isinstance(initial, list | dict | set) else initial

    return by_time(stream, Pipeline, operator_name("accumulate", name, f), start, add, lambda state: [[state]], merged(None))


def count(stream: Stream[T, Any], *, name: str | None = None) -> Stream[T, int]:
    """Return, for each time with records on this worker, their number; for containers of every kind.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream("abc").count())
    [(0, [3])]
    """

    def add(number: int, batch: Any) -> int:
        return number + len(batch)

    return by_time(stream, Pipeline, operator_name("count", name), int, add, lambda number: [[number]], merged(int.__add__))


def value_counts(
    stream: Stream[T, D], key: Callable[[D], Any] | None = None, *, name: str | None = None
) -> Stream[T, tuple[D, int]]:
    """Return, for each time, ``(record, count)`` for each distinct record on all workers.

    Each worker first counts its own, and only the counts are exchanged, by ``key(record)`` or by the record itself.
    ``RoutingError`` for a record that is not hashable. ``group_by`` counts on Arrow columns.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(["to be or", "not to be"]).flat_map(str.split).value_counts())
    [(0, [('be', 2), ('not', 1), ('or', 1), ('to', 2)])]
    """

    def add(counts: dict[D, int], batch: Any) -> dict[D, int]:
        records = records_of(batch)
        try:
            counts.update(records)  # of a Counter
        except TypeError:
            check_hashable(records)
            raise
        return counts

    return _combine_by_key(stream, operator_name("value_counts", name), Counter, add, int.__add__, key)


def reduce_by_key(
    stream: Stream[T, tuple[K, V]],
    combine: Callable[[V, V], V],
    key: Callable[[K], Any] | None = None,
    *,
    name: str | None = None,
) -> Stream[T, tuple[K, V]]:
    """Return, for each time, ``(key, value)`` for each key: its values on all workers, combined two by two.

    Records are pairs ``(key, value)``; ``RoutingError`` for one that is not. ``combine(a, b)`` is associative and commutative,
    and modifies neither. Each worker first combines its own, and one pair per key and worker is exchanged, by ``key(k)`` or by
    the key itself. Source: the combiners of Dean and Ghemawat 2004, MapReduce.

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

    return _combine_by_key(stream, operator_name("reduce_by_key", name, combine), dict, add, combine, key)


_NOTHING: Any = object()


def _combined(states: dict[K, V], pairs: Iterable[tuple[K, V]], combine: Callable[[V, V], V]) -> dict[K, V]:
    known = states.get
    for k, value in pairs:
        state = known(k, _NOTHING)
        states[k] = value if state is _NOTHING else combine(state, value)
    return states


def _combine_by_key(
    stream: Stream[T, D],
    name: str,
    start: Callable[[], dict[K, V]],
    add: Callable[[dict[K, V], Any], dict[K, V]],
    combine: Callable[[V, V], V],
    key: Callable[[K], Any] | None,
) -> Stream[T, tuple[K, V]]:
    """Return ``(key, value)`` for each key of each time: ``add(states, container)`` locally, then ``combine`` across workers."""

    def put(times: dict[T, dict[K, V]], time: T, k: K, value: V) -> None:
        _combined(times.setdefault(time, start()), [(k, value)], combine)

    def merge(one: dict[K, V], other: dict[K, V]) -> dict[K, V]:
        return _combined(one, other.items(), combine)

    def add_partial(states: dict[K, V], batch: list[tuple[K, V]]) -> dict[K, V]:
        return _combined(states, batch, combine)

    def finish(states: dict[K, V]) -> list[list[tuple[K, V]]]:
        return [list(states.items())]

    local: Stream[T, tuple[K, V]] = by_time(stream, Pipeline, f"{name} (local)", start, add, finish, merged(merge))
    return by_time(local, by_first(key), name, start, add_partial, finish, keyed(key, put))


def aggregate(
    stream: Stream[T, tuple[K, V]],
    fold: Callable[[K, V, Any], S],
    emit: Callable[[K, S], E],
    key: Callable[[K], Any] | None = None,
    *,
    name: str | None = None,
) -> Stream[T, E]:
    """Return ``emit(key, state)`` for each key of each time, after ``state = fold(key, value, state)`` for each of its values.

    Records are pairs ``(key, value)``, exchanged by ``key(k)`` or by the key itself. The first state of a key is ``None``.
    ``reduce_by_key`` exchanges less, where values can be combined.

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

    def put(times: dict[T, dict[K, S]], time: T, k: K, state: S) -> None:
        times.setdefault(time, {})[k] = state

    return by_time(stream, by_first(key), operator_name("aggregate", name, fold), dict, add, finish, keyed(key, put))


def all_reduce(stream: Stream[T, D], combine: Callable[[D, D], D], *, name: str | None = None) -> Stream[T, D]:
    """Return the stream with one record on each worker for each time: all records of the time on all workers, combined.

    ``combine`` is associative. Records are combined in order of arrival on a worker, then in the order of the workers, so that
    each worker gets the same result to the last bit. Containers are read by record; ``map_batch(lambda batch: [batch])`` before
    it combines whole arrays. Source: Naiad section 6.2.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).apply(timely.operators.all_reduce, int.__add__))
    [(0, [6])]
    """
    allocator = scope_of(stream, "all_reduce").allocator
    index, peers = allocator.index, allocator.peers

    def add(records: list[Any], batch: Any) -> list[Any]:
        records.extend(records_of(batch))
        return records

    def reduced(records: list[D]) -> D:
        result, *others = records
        for record in others:
            result = combine(result, record)
        return result

    def to_all(records: list[D]) -> list[Any]:
        partial = reduced(records)
        return [[(peer, index, partial) for peer in range(peers)]]

    def from_all(parts: list[tuple[int, int, D]]) -> list[Any]:
        return [[reduced([record for _, _, record in sorted(parts, key=lambda part: part[1])])]]

    called = operator_name("all_reduce", name, combine)
    parts = by_time(stream, Pipeline, f"{called} (local)", list, add, to_all, merged(list.__add__))
    return by_time(parts, Exchange(lambda part: part[0]), called, list, add, from_all, merged(list.__add__))
