"""Operators that merge and split streams, and move records between workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from timely.dataflow import Exchange, InputPort, OutputPort, Pipeline, ScopeBuilder, Stream, operator_name, records_of, scope_of
from timely.errors import GraphError, RoutingError, brief
from timely.operators.generic import empty, stateless, stateless_outputs
from timely.operators.type_variables import D, E, T


def concatenate(
    streams: Iterable[Stream[T, D]], scope: ScopeBuilder[T] | None = None, *, name: str | None = None
) -> Stream[T, D]:
    """Return the stream of the records of all ``streams``, each at its time; ``scope`` is needed for an empty list only.

    >>> import timely
    >>> def build(scope):
    ...     return scope.concatenate([scope.to_stream([1]), scope.to_stream([2]), scope.to_stream([3])])
    >>> timely.example(build)
    [(0, [1, 2, 3])]
    """
    if not isinstance(streams, Iterable):
        raise GraphError(f"concatenate takes the streams in a list, as in concatenate([a, b]), not {streams!r}")
    inputs = list(streams)
    place = scope or next((stream.scope for stream in inputs if isinstance(stream, Stream)), None)
    if place is None and inputs:
        place = scope_of(inputs[0], "concatenate")  # which raises
    if place is None:
        raise GraphError("concatenate of no streams needs to know the scope: use scope.concatenate([])")
    if not inputs:
        return empty(place, name=name)

    def logic(*ports: Any) -> None:
        for input in ports[:-1]:
            input.forward(ports[-1], _same)

    return stateless_outputs(place, inputs, Pipeline, operator_name("concatenate", name), logic, 1, collection=True)[0]


def concat(stream: Stream[T, D], *others: Stream[T, D], name: str | None = None) -> Stream[T, D]:
    """Return the stream of the records of ``stream`` and of ``others``, each at its time.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1]).concat(scope.to_stream([2]), scope.empty()))
    [(0, [1, 2])]
    """
    return concatenate([stream, *others], name=operator_name("concat", name))


def exchange(stream: Stream[T, D], key: Callable[[D], Any] | str | Sequence[str], *, name: str | None = None) -> Stream[T, D]:
    """Send each record to worker ``key(record) % workers``; for Arrow batches ``key`` names a column, or several.

    Keys are what ``timely.dataflow.route`` takes: equal ones go to one worker, the same in every process and on every machine.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).exchange(lambda x: x))
    [(0, [1, 2, 3])]
    """
    return stateless(stream, Exchange(key), operator_name("exchange", name, key), InputPort.forward, _same)


def broadcast(stream: Stream[T, D], *, name: str | None = None) -> Stream[T, D]:
    """Send each record to every worker, in containers of any kind.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).broadcast())
    [(0, [1, 2])]
    """

    called = operator_name("broadcast", name)
    peers = scope_of(stream, "broadcast").allocator.peers

    def send(input: InputPort[T, D], output: OutputPort[T]) -> None:
        for capability, batch in input:
            output.session(capability).give_batch([(worker, batch) for worker in range(peers)])

    def unpack(input: InputPort[T, Any], output: OutputPort[T]) -> None:
        for capability, copies in input:
            session = output.session(capability)
            for _, batch in copies:
                session.give_batch(batch)

    copies = stateless(stream, Pipeline, called, send)
    return stateless(copies, Exchange(lambda copy: copy[0]), f"{called} (received)", unpack)


def partition(stream: Stream[T, D], n: int, f: Callable[[D], tuple[int, E]], *, name: str | None = None) -> list[Stream[T, E]]:
    """Return ``n`` streams, where ``f(record)`` returns ``(index of the stream, record to send)``.

    ``RoutingError`` for an index that is not between 0 and ``n - 1``, ``GraphError`` unless ``n`` is at least 1.

    >>> import timely
    >>> def build(scope):
    ...     small, large = scope.to_stream([1, 20, 3]).partition(2, lambda x: (int(x > 9), x))
    ...     return large
    >>> timely.example(build)
    [(0, [20])]
    """
    if not isinstance(n, int) or n < 1:
        raise GraphError(f"partition({n!r}, f): give the number of streams, of at least 1")

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

    return stateless_outputs(scope_of(stream, "partition"), [stream], Pipeline, operator_name("partition", name, f), logic, n)


def branch(stream: Stream[T, D], f: Callable[[D], bool], *, name: str | None = None) -> tuple[Stream[T, D], Stream[T, D]]:
    """Return two streams: the records for which ``f(record)`` is false, and those for which it is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(5)).branch(lambda x: x % 2 == 0)[1])
    [(0, [0, 2, 4])]
    """
    called = operator_name("branch", name, f)
    first, second = partition(stream, 2, lambda record: (1 if f(record) else 0, record), name=called)
    return first, second


def branch_when(stream: Stream[T, D], f: Callable[[T], bool], *, name: str | None = None) -> tuple[Stream[T, D], Stream[T, D]]:
    """Return two streams: what comes at times for which ``f(time)`` is false, and at those for which it is true.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).branch_when(lambda time: time >= 5)[0])
    [(0, [1, 2])]
    """

    def logic(input: InputPort[T, D], no: OutputPort[T], yes: OutputPort[T]) -> None:
        for capability, batch in input:
            (yes if f(capability.time) else no).session(capability).give_batch(batch)

    first, second = stateless_outputs(
        scope_of(stream, "branch_when"), [stream], Pipeline, operator_name("branch_when", name, f), logic, 2
    )
    return first, second


def _same(batch: D) -> D:
    return batch
