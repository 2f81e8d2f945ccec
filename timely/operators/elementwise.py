"""Operators that look at one record, or one container, at a time. None of them asks for frontiers or holds anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, records_of, scope_of
from timely.errors import ConfigurationError
from timely.operators.generic import unary, unary_frontier
from timely.order import PartialOrder
from timely.progress import Antichain

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")


def map(stream: Stream[T, D], f: Callable[[D], E]) -> Stream[T, E]:
    """Return the stream of ``f(record)``, at the same times and in the same order.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).map(lambda x: x + 1))
    [(0, [2, 3])]
    """
    _check_plain(stream, "map", f)
    return _by_record(stream, "map", lambda records: [f(record) for record in records])


def filter(stream: Stream[T, D], predicate: Callable[[D], bool]) -> Stream[T, D]:
    """Return the stream of the records for which ``predicate(record)`` is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(5)).filter(lambda x: x % 2 == 0))
    [(0, [0, 2, 4])]
    """
    _check_plain(stream, "filter", predicate)
    return _by_record(stream, "filter", lambda records: [record for record in records if predicate(record)])


def flat_map(stream: Stream[T, D], f: Callable[[D], Iterable[E]]) -> Stream[T, E]:
    """Return the stream of everything that ``f(record)`` contains, record by record.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 3]).flat_map(range))
    [(0, [0, 0, 1, 2])]
    """

    _check_plain(stream, "flat_map", f)

    def flatten(records: list[D]) -> list[E]:
        found: list[E] = []
        extend = found.extend
        for record in records:
            extend(f(record))
        return found

    return _by_record(stream, "flat_map", flatten)


def map_batch(stream: Stream[T, D], f: Callable[[Any], Any]) -> Stream[T, Any]:
    """Return the stream of the containers ``f(container)``; an empty result sends nothing.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).map_batch(lambda batch: [sum(batch)]))
    [(0, [6])]
    """
    _check_plain(stream, "map_batch", f)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        info.declare_stateless()
        return lambda input, output: input.forward(output, f)

    return unary(stream, Pipeline, "map_batch", constructor)


def _check_plain(stream: Stream[Any, Any], name: str, f: object) -> None:
    """``ConfigurationError`` for an ``async def``: its call does nothing, and nobody would await what it returns."""
    if iscoroutinefunction(f):
        called, path = getattr(f, "__name__", repr(f)), scope_of(stream, name).path
        raise ConfigurationError(
            f"{name} in scope {path!r} calls a function, and {called} is an async def, which nothing would await:"
            f" use map_async({called})"
        )


def _by_record(stream: Stream[T, D], name: str, f: Callable[[list[D]], list[E]]) -> Stream[T, E]:
    """Return the stream of what ``f(records)`` makes of some records at a time, as many of them as there are."""

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        info.declare_stateless()
        return lambda input, output: input.forward_records(output, f)

    return unary(stream, Pipeline, name, constructor)


def inspect(stream: Stream[T, D], f: Callable[[D], object]) -> Stream[T, D]:
    """Call ``f(record)`` for each record, and pass the records on.

    >>> import timely
    >>> seen = []
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).inspect(seen.append)), seen
    ([(0, [1, 2])], [1, 2])
    """

    def look(time: T, batch: list[D]) -> None:
        for record in records_of(batch):
            f(record)

    _check_plain(stream, "inspect", f)
    return _look(stream, "inspect", look)


def inspect_time(stream: Stream[T, D], f: Callable[[T, D], object]) -> Stream[T, D]:
    """Call ``f(time, record)`` for each record, and pass the records on.

    >>> import timely
    >>> seen = []
    >>> _ = timely.example(lambda scope: scope.to_stream("ab").inspect_time(lambda time, x: seen.append((time, x))))
    >>> seen
    [(0, 'a'), (0, 'b')]
    """

    def look(time: T, batch: list[D]) -> None:
        for record in records_of(batch):
            f(time, record)

    _check_plain(stream, "inspect_time", f)
    return _look(stream, "inspect_time", look)


def inspect_batch(stream: Stream[T, D], f: Callable[[T, Any], object]) -> Stream[T, D]:
    """Call ``f(time, container)`` for each message, and pass it on; the container must not be changed.

    >>> import timely
    >>> seen = []
    >>> _ = timely.example(lambda scope: scope.to_stream([1, 2]).inspect_batch(lambda time, batch: seen.append(len(batch))))
    >>> seen
    [2]
    """
    _check_plain(stream, "inspect_batch", f)
    return _look(stream, "inspect_batch", f)


def _look(stream: Stream[T, D], name: str, look: Callable[[T, Any], object]) -> Stream[T, D]:
    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        info.declare_stateless()

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            for capability, batch in input:
                look(capability.time, batch)
                output.session(capability).give_batch(batch)

        return logic

    return unary(stream, Pipeline, name, constructor)


def inspect_progress(
    stream: Stream[T, D], on_batch: Callable[[T, Any], object], on_frontier: Callable[[Antichain[T]], object]
) -> Stream[T, D]:
    """Call ``on_batch(time, container)`` for each message, ``on_frontier(frontier)`` whenever the frontier has moved, and pass
    the messages on.

    Where both have something new the frontier comes first: it speaks of what is still to come, these messages included. The
    frontier at the start, the minimum time, is not reported.

    >>> import timely
    >>> seen = []
    >>> def build(scope):
    ...     return scope.to_stream([1, 2]).inspect_progress(lambda time, batch: seen.append((time, batch)), seen.append)
    >>> _ = timely.example(build)
    >>> seen
    [(0, [1, 2]), Antichain([])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        known = Antichain([capability.time])
        capability.drop()

        def load(frontiers: Iterable[list[T]]) -> None:
            nonlocal known
            for number, times in enumerate(frontiers):
                known = Antichain([*(known if number else ()), *times])

        # A frontier that was reported is not reported once more, by a run that comes to it from the minimum time again.
        info.register_state(
            lambda: [(None, list(known))],
            load,
            rescale=lambda parts: load(times for frontiers in parts for times in frontiers),
        )

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

    return unary_frontier(stream, Pipeline, "inspect_progress", constructor)
