"""Stateless operators that see one record, or one container, at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, operator_name, records_of, scope_of
from timely.errors import ConfigurationError
from timely.operators.generic import stateless, unary_frontier
from timely.operators.state_registration import register_union_state
from timely.operators.type_variables import D, E, T
from timely.progress import Antichain


def map(stream: Stream[T, D], f: Callable[[D], E], *, name: str | None = None) -> Stream[T, E]:
    """Return the stream of ``f(record)``, at the same times and in the same order.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).map(lambda x: x + 1))
    [(0, [2, 3])]
    """
    _check_plain(stream, "map", f)
    return _by_record(stream, operator_name("map", name, f), lambda records: [f(record) for record in records])


def filter(stream: Stream[T, D], predicate: Callable[[D], bool], *, name: str | None = None) -> Stream[T, D]:
    """Return the stream of the records for which ``predicate(record)`` is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(5)).filter(lambda x: x % 2 == 0))
    [(0, [0, 2, 4])]
    """
    _check_plain(stream, "filter", predicate)
    return _by_record(
        stream, operator_name("filter", name, predicate), lambda records: [record for record in records if predicate(record)]
    )


def flat_map(stream: Stream[T, D], f: Callable[[D], Iterable[E]], *, name: str | None = None) -> Stream[T, E]:
    """Return the stream of the elements of ``f(record)``, record by record.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 3]).flat_map(range))
    [(0, [0, 0, 1, 2])]
    """
    _check_plain(stream, "flat_map", f)

    def flatten(records: list[D]) -> list[E]:
        mapped: list[E] = []
        extend = mapped.extend
        for record in records:
            extend(f(record))
        return mapped

    return _by_record(stream, operator_name("flat_map", name, f), flatten)


def map_batch(stream: Stream[T, D], f: Callable[[Any], Any], *, name: str | None = None) -> Stream[T, Any]:
    """Return the stream of the containers ``f(container)``; an empty result sends nothing.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).map_batch(lambda batch: [sum(batch)]))
    [(0, [6])]
    """
    _check_plain(stream, "map_batch", f)

    return stateless(stream, Pipeline, operator_name("map_batch", name, f), InputPort.forward, f)


def _check_plain(stream: Stream[Any, Any], name: str, f: object) -> None:
    if iscoroutinefunction(f):
        called, path = getattr(f, "__name__", repr(f)), scope_of(stream, name).path
        raise ConfigurationError(
            f"{name} in scope {path!r} calls a function, and {called} is an async def, which nothing would await:"
            f" use map_async({called})"
        )


def _by_record(stream: Stream[T, D], name: str, f: Callable[[list[D]], list[E]]) -> Stream[T, E]:
    return stateless(stream, Pipeline, name, InputPort.forward_records, f)


def inspect(stream: Stream[T, D], f: Callable[[D], object], *, name: str | None = None) -> Stream[T, D]:
    """Call ``f(record)`` for each record, and pass the records on.

    >>> import timely
    >>> seen = []
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).inspect(seen.append)), seen
    ([(0, [1, 2])], [1, 2])
    """

    def inspect_all(time: T, batch: list[D]) -> None:
        for record in records_of(batch):
            f(record)

    _check_plain(stream, "inspect", f)
    return _inspect(stream, operator_name("inspect", name, f), inspect_all)


def inspect_time(stream: Stream[T, D], f: Callable[[T, D], object], *, name: str | None = None) -> Stream[T, D]:
    """Call ``f(time, record)`` for each record, and pass the records on.

    >>> import timely
    >>> seen = []
    >>> timely.example(lambda scope: scope.to_stream("ab").inspect_time(lambda *pair: seen.append(pair))), seen
    ([(0, ['a', 'b'])], [(0, 'a'), (0, 'b')])
    """

    def inspect_all(time: T, batch: list[D]) -> None:
        for record in records_of(batch):
            f(time, record)

    _check_plain(stream, "inspect_time", f)
    return _inspect(stream, operator_name("inspect_time", name, f), inspect_all)


def inspect_batch(stream: Stream[T, D], f: Callable[[T, Any], object], *, name: str | None = None) -> Stream[T, D]:
    """Call ``f(time, container)`` for each message, and pass it on; the container must not be changed.

    >>> import timely
    >>> seen = []
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).inspect_batch(lambda *pair: seen.append(pair))), seen
    ([(0, [1, 2])], [(0, [1, 2])])
    """
    _check_plain(stream, "inspect_batch", f)
    return _inspect(stream, operator_name("inspect_batch", name, f), f)


def _inspect(stream: Stream[T, D], name: str, f: Callable[[T, Any], object]) -> Stream[T, D]:
    def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
        for capability, batch in input:
            f(capability.time, batch)
            output.session(capability).give_batch(batch)

    return stateless(stream, Pipeline, name, logic)


def inspect_progress(
    stream: Stream[T, D],
    on_batch: Callable[[T, Any], object],
    on_frontier: Callable[[Antichain[T]], object],
    *,
    name: str | None = None,
) -> Stream[T, D]:
    """Call ``on_batch(time, container)`` for each message and ``on_frontier(frontier)`` for each move of the frontier, and pass
    the messages on.

    The frontier at the start is not reported. A frontier is reported before the messages that have come with it.

    >>> import timely
    >>> seen = []
    >>> timely.example(lambda scope: scope.to_stream([1]).inspect_progress(lambda *pair: seen.append(pair), seen.append)), seen
    ([(0, [1])], [(0, [1]), Antichain([])])
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        known = Antichain([capability.time])
        capability.drop()

        def load(frontiers: Iterable[list[T]]) -> None:
            nonlocal known
            for number, times in enumerate(frontiers):
                known = Antichain([*(known if number else ()), *times])

        # a resumed run begins at the minimum time, and must not report a frontier twice
        register_union_state(info, lambda: [list(known)], load)

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            nonlocal known
            frontier = input.frontier
            if frontier != known and known <= frontier:
                known = frontier
                on_frontier(frontier)
            for capability, batch in input:
                on_batch(capability.time, batch)
                output.session(capability).give_batch(batch)

        return logic

    return unary_frontier(stream, Pipeline, operator_name("inspect_progress", name, on_batch), constructor)
