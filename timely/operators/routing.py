"""Operators that bring streams together, take them apart, and move records between workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from timely.dataflow import (
    Capability,
    Exchange,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pipeline,
    ScopeBuilder,
    Stream,
    records_of,
    scope_of,
)
from timely.errors import GraphError, RoutingError, brief
from timely.operators.generic import empty, unary
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")


def concatenate(streams: Iterable[Stream[T, D]], scope: ScopeBuilder[T] | None = None) -> Stream[T, D]:
    """Return the stream of the records of all ``streams``, each at its time. Without any, ``scope`` says where.

    ``GraphError`` for what is no stream, or no list of them.

    >>> import timely
    >>> def build(scope):
    ...     return scope.concatenate([scope.to_stream([1]), scope.to_stream([2]), scope.to_stream([3])])
    >>> timely.example(build)
    [(0, [1, 2, 3])]
    """
    if not isinstance(streams, Iterable):
        raise GraphError(f"concatenate takes the streams in a list, as in concatenate([a, b]), not {streams!r}")
    given = list(streams)
    place = scope or next((stream.scope for stream in given if isinstance(stream, Stream)), None)
    if place is None and given:
        place = scope_of(given[0], "concatenate")  # which says what it is that is no stream
    if place is None:
        raise GraphError("concatenate of no streams needs to know the scope: use scope.concatenate([])")
    if not given:
        return empty(place)
    builder = OperatorBuilder(place, "concatenate")
    for stream in given:
        builder.new_input(stream, Pipeline, notify=False)
    output = builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(*ports: Any) -> None:
            out = ports[-1]
            for input in ports[:-1]:
                input.forward(out, _same)

        return logic

    builder.build(constructor)
    return output


def concat(stream: Stream[T, D], *others: Stream[T, D]) -> Stream[T, D]:
    """Return the stream of the records of ``stream`` and of ``others``, each at its time.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1]).concat(scope.to_stream([2]), scope.empty()))
    [(0, [1, 2])]
    """
    return concatenate([stream, *others])


def exchange(stream: Stream[T, D], key: Callable[[D], Any] | str | Sequence[str]) -> Stream[T, D]:
    """Take each record to worker ``key(record) % workers``; for Arrow batches ``key`` names a column.

    Keys are what ``timely.dataflow.route`` takes. Equal ones go to one worker, the same in every process and on every machine.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).exchange(lambda x: x))
    [(0, [1, 2, 3])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        info.declare_stateless()
        return lambda input, output: input.forward(output, _same)

    return unary(stream, Exchange(key), "exchange", constructor)


def broadcast(stream: Stream[T, D]) -> Stream[T, D]:
    """Take each record to every worker. Containers travel whole, whatever they are made of.

    >>> import timely
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([worker.index]).broadcast().capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> timely.execute(program, workers=2)
    [[(0, [0, 1])], [(0, [0, 1])]]
    """

    def send(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        info.declare_stateless()

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            for capability, batch in input:
                output.session(capability).give_batch([(worker, batch) for worker in range(info.peers)])

        return logic

    def unpack(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, Any], OutputPort[T]], object]:
        info.declare_stateless()

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> None:
            for capability, parcels in input:
                session = output.session(capability)
                for _, batch in parcels:
                    session.give_batch(batch)

        return logic

    parcels = unary(stream, Pipeline, "broadcast", send)
    return unary(parcels, Exchange(lambda parcel: parcel[0]), "broadcast (received)", unpack)


def partition(stream: Stream[T, D], n: int, f: Callable[[D], tuple[int, E]]) -> list[Stream[T, E]]:
    """Return ``n`` streams: ``f(record)`` says ``(which, record to send there)``.

    ``RoutingError`` for a ``which`` that is not between 0 and ``n - 1``, ``GraphError`` unless ``n`` is at least 1.

    >>> import timely
    >>> def build(scope):
    ...     small, large = scope.to_stream([1, 20, 3]).partition(2, lambda x: (int(x > 9), x))
    ...     return large
    >>> timely.example(build)
    [(0, [20])]
    """
    if not isinstance(n, int) or n < 1:
        raise GraphError(f"partition({n!r}, f): give the number of streams, of at least 1")
    builder = OperatorBuilder(scope_of(stream, "partition"), "partition")
    builder.new_input(stream, Pipeline, notify=False)
    streams: list[Stream[T, E]] = [builder.new_output() for _ in range(n)]

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[T, D], *outputs: OutputPort[T]) -> None:
            for capability, batch in input:
                parts: list[list[E]] = [[] for _ in outputs]
                for record in records_of(batch):
                    choice = f(record)
                    try:
                        which, sent = choice
                    except (TypeError, ValueError):
                        says = f"f({brief(record)}) must return (which stream, record): {brief(choice)}"
                        raise RoutingError(f"partition({n}, f): {says}") from None
                    if which not in range(n):
                        says = f"f({brief(record)}) says stream {brief(which)}"
                        raise RoutingError(f"partition({n}, f): {says}, and there are 0 to {n - 1}")
                    try:
                        parts[which].append(sent)
                    except TypeError:
                        says = f"f({brief(record)}) says stream {brief(which)}, which is no whole number"
                        raise RoutingError(f"partition({n}, f): {says}: the streams are 0 to {n - 1}") from None
                for output, part in zip(outputs, parts, strict=True):
                    if part:
                        output.session(capability).give_batch(part)

        return logic

    builder.build(constructor)
    return streams


def branch(stream: Stream[T, D], f: Callable[[D], bool]) -> tuple[Stream[T, D], Stream[T, D]]:
    """Return two streams: the records for which ``f(record)`` is false, and those for which it is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(5)).branch(lambda x: x % 2 == 0)[1])
    [(0, [0, 2, 4])]
    """
    first, second = partition(stream, 2, lambda record: (1 if f(record) else 0, record))
    return first, second


def branch_when(stream: Stream[T, D], f: Callable[[T], bool]) -> tuple[Stream[T, D], Stream[T, D]]:
    """Return two streams: what comes at times for which ``f(time)`` is false, and at those for which it is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).branch_when(lambda time: time >= 5)[0])
    [(0, [1, 2])]
    """
    builder = OperatorBuilder(scope_of(stream, "branch_when"), "branch_when")
    builder.new_input(stream, Pipeline, notify=False)
    first, second = builder.new_output(), builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[T, D], no: OutputPort[T], yes: OutputPort[T]) -> None:
            for capability, batch in input:
                (yes if f(capability.time) else no).session(capability).give_batch(batch)

        return logic

    builder.build(constructor)
    return first, second


def _same(batch: D) -> D:
    return batch
