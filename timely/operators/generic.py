"""Operators of one's own: unary, binary, sources and sinks, with or without frontiers and notifications.

These are short-cuts through the operator builder for the usual shapes. A constructor gets the initial capability (to keep,
delay or drop; one that is ignored holds nothing back) and the operator's information, and returns the logic, which is called
with the inputs and then the output whenever there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from timely.dataflow import (
    Capability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pact,
    ScopeBuilder,
    Stream,
    scope_of,
)
from timely.operators.notificator import Notificator
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")

SourceConstructor: TypeAlias = Callable[[Capability[T], OperatorInfo], Callable[[OutputPort[T]], object]]
UnaryConstructor: TypeAlias = Callable[[Capability[T], OperatorInfo], Callable[[InputPort[T, D], OutputPort[T]], object]]
BinaryConstructor: TypeAlias = Callable[
    [Capability[T], OperatorInfo], Callable[[InputPort[T, D], InputPort[T, E], OutputPort[T]], object]
]
SinkConstructor: TypeAlias = Callable[[OperatorInfo], Callable[[InputPort[T, D]], object]]
UnaryNotifyLogic: TypeAlias = Callable[[InputPort[T, D], OutputPort[T], Notificator[T]], object]
Keep: TypeAlias = Callable[[OperatorInfo], object]
"""Declares the state of an operator, by ``info.register_state(...)`` or ``info.declare_stateless()``."""
BinaryNotifyLogic: TypeAlias = Callable[[InputPort[T, D], InputPort[T, E], OutputPort[T], Notificator[T]], object]


def source(scope: ScopeBuilder[T], name: str, constructor: SourceConstructor[T]) -> Stream[T, Any]:
    """Return the stream of a source: ``constructor(capability, info)`` returns ``logic(output)``.

    The logic runs once at the start, and then when ``info.activator.activate()`` has been called.

    >>> import timely
    >>> def constructor(capability, info):
    ...     def logic(output):
    ...         if capability.held:
    ...             output.session(capability).give(capability.time)
    ...             if capability.time < 3:
    ...                 capability.downgrade(capability.time + 1)
    ...                 info.activator.activate()
    ...             else:
    ...                 capability.drop()
    ...     return logic
    >>> timely.example(lambda scope: scope.source("count to three", constructor))
    [(0, [0]), (1, [1]), (2, [2]), (3, [3])]
    """
    builder = OperatorBuilder(scope, name)
    output = builder.new_output()
    builder.build(lambda capabilities, info: constructor(capabilities.pop(), info))
    return output


def sink(stream: Stream[T, D], pact: Pact, name: str, constructor: SinkConstructor[T, D]) -> None:
    """End ``stream`` in an operator: ``constructor(info)`` returns ``logic(input)``, run on input and on progress.

    >>> import timely
    >>> seen = []
    >>> def constructor(info):
    ...     def logic(input):
    ...         for capability, batch in input:
    ...             seen.extend(batch)
    ...     return logic
    >>> def build(scope):
    ...     numbers = scope.to_stream([1, 2, 3])
    ...     numbers.sink(timely.Pipeline, "keep", constructor)
    ...     return numbers
    >>> _ = timely.example(build)
    >>> seen
    [1, 2, 3]
    """
    builder = OperatorBuilder(scope_of(stream, name), name)
    builder.new_input(stream, pact)
    builder.build(lambda _, info: constructor(info))


def unary(stream: Stream[T, D], pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
    """Return the output of an operator that runs when there is input: ``constructor(capability, info)`` returns
    ``logic(input, output)``.

    >>> import timely
    >>> def running_maximum(capability, info):
    ...     largest = [0]
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             with output.session(capability) as session:
    ...                 for x in batch:
    ...                     if x > largest[0]:
    ...                         largest[0] = x
    ...                         session.give(x)
    ...     return logic
    >>> timely.example(lambda scope: scope.to_stream([3, 1, 4, 1, 5]).unary(timely.Pipeline, "maximum", running_maximum))
    [(0, [3, 4, 5])]
    """
    return _unary(stream, pact, name, constructor, notify=False)


def unary_frontier(stream: Stream[T, D], pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
    """As ``unary``, and the logic also runs when the frontier of its input has moved; ``input.frontier`` shows it.

    >>> import timely
    >>> def total(capability, info):
    ...     held, sums = {}, {}
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             if capability.time not in held:
    ...                 held[capability.time] = capability.retain()
    ...             sums[capability.time] = sums.get(capability.time, 0) + sum(batch)
    ...         for time in [time for time in held if not input.frontier.less_equal(time)]:
    ...             output.session(held.pop(time)).give(sums.pop(time))
    ...     return logic
    >>> timely.example(lambda scope: scope.to_stream(range(10)).unary_frontier(timely.Pipeline, "total", total))
    [(0, [45])]
    """
    return _unary(stream, pact, name, constructor, notify=True)


def _unary(stream: Stream[T, D], pact: Pact, name: str, constructor: UnaryConstructor[T, D], *, notify: bool) -> Stream[T, Any]:
    builder = OperatorBuilder(scope_of(stream, name), name)
    builder.new_input(stream, pact, notify=notify)
    output = builder.new_output()
    builder.build(lambda capabilities, info: constructor(capabilities.pop(), info))
    return output


def unary_notify(
    stream: Stream[T, D],
    pact: Pact,
    name: str,
    initial_times: Iterable[T],
    logic: UnaryNotifyLogic[T, D],
    *,
    keep: Keep | None = None,
) -> Stream[T, Any]:
    """Return the output of ``logic(input, output, notificator)``, which may ask to be notified when a time is complete.

    ``initial_times`` are requests made at the start. ``keep(info)`` is called once, before the logic runs, to declare what it
    keeps beside its requests, which are declared then too (``Notificator.keep``);
    ``keep=timely.OperatorInfo.declare_stateless`` says
    that there is nothing. Without it no run with the operator can be checkpointed. Source: Naiad section 2.2 (``NotifyAt`` and
    ``OnNotify``).

    >>> import timely
    >>> def logic(input, output, notificator):
    ...     for capability, batch in input:
    ...         notificator.notify_at(capability.retain())
    ...     for capability, count in notificator:
    ...         output.session(capability).give(f"{capability.time} is complete")
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).unary_notify(timely.Pipeline, "tell", [], logic))
    [(0, ['0 is complete'])]
    """
    builder = OperatorBuilder(scope_of(stream, name), name)
    notificator = Notificator([builder.new_input(stream, pact)])
    output = builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> UnaryNotifyLogic[T, D]:
        _request(notificator, info, capabilities.pop(), initial_times, keep)
        return logic

    builder.build(constructor, notificator)
    return output


def binary(
    stream: Stream[T, D],
    other: Stream[T, E],
    pact: Pact,
    other_pact: Pact,
    name: str,
    constructor: BinaryConstructor[T, D, E],
) -> Stream[T, Any]:
    """Return the output of an operator with two inputs: ``constructor(capability, info)`` returns
    ``logic(left, right, output)``, run when there is input.

    >>> import timely
    >>> def both(capability, info):
    ...     def logic(left, right, output):
    ...         for input in (left, right):
    ...             for capability, batch in input:
    ...                 output.session(capability).give_batch(batch)
    ...     return logic
    >>> def build(scope):
    ...     one, two = scope.to_stream([1, 2]), scope.to_stream([3])
    ...     return one.binary(two, timely.Pipeline, timely.Pipeline, "both", both)
    >>> timely.example(build)
    [(0, [1, 2, 3])]
    """
    return _binary(stream, other, pact, other_pact, name, constructor, notify=False)


def binary_frontier(
    stream: Stream[T, D],
    other: Stream[T, E],
    pact: Pact,
    other_pact: Pact,
    name: str,
    constructor: BinaryConstructor[T, D, E],
) -> Stream[T, Any]:
    """As ``binary``, and the logic also runs when the frontier of either input has moved.

    >>> import timely
    >>> def ends(capability, info):
    ...     held = [capability]
    ...     def logic(left, right, output):
    ...         for input in (left, right):
    ...             for _ in input:
    ...                 pass
    ...         if held and not left.frontier and not right.frontier:
    ...             output.session(held.pop()).give("both are over")
    ...     return logic
    >>> def build(scope):
    ...     one, two = scope.to_stream([1, 2]), scope.to_stream([3])
    ...     return one.binary_frontier(two, timely.Pipeline, timely.Pipeline, "ends", ends)
    >>> timely.example(build)
    [(0, ['both are over'])]
    """
    return _binary(stream, other, pact, other_pact, name, constructor, notify=True)


def _binary(
    stream: Stream[T, D],
    other: Stream[T, E],
    pact: Pact,
    other_pact: Pact,
    name: str,
    constructor: BinaryConstructor[T, D, E],
    *,
    notify: bool,
) -> Stream[T, Any]:
    builder = OperatorBuilder(scope_of(stream, name), name)
    builder.new_input(stream, pact, notify=notify)
    builder.new_input(other, other_pact, notify=notify)
    output = builder.new_output()
    builder.build(lambda capabilities, info: constructor(capabilities.pop(), info))
    return output


def binary_notify(
    stream: Stream[T, D],
    other: Stream[T, E],
    pact: Pact,
    other_pact: Pact,
    name: str,
    initial_times: Iterable[T],
    logic: BinaryNotifyLogic[T, D, E],
    *,
    keep: Keep | None = None,
) -> Stream[T, Any]:
    """Return the output of ``logic(left, right, output, notificator)``; a time is complete when both inputs have passed it.
    ``keep`` is as for ``unary_notify``.

    >>> import timely
    >>> def logic(left, right, output, notificator):
    ...     for input in (left, right):
    ...         for capability, batch in input:
    ...             notificator.notify_at(capability.retain())
    ...     for capability, count in notificator:
    ...         output.session(capability).give((capability.time, count))
    >>> def build(scope):
    ...     one, two = scope.to_stream([1, 2]), scope.to_stream([3])
    ...     return one.binary_notify(two, timely.Pipeline, timely.Pipeline, "tell", [], logic)
    >>> timely.example(build)
    [(0, [(0, 2)])]
    """
    builder = OperatorBuilder(scope_of(stream, name), name)
    inputs: list[InputPort[T, Any]] = [builder.new_input(stream, pact), builder.new_input(other, other_pact)]
    notificator = Notificator(inputs)
    output = builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> BinaryNotifyLogic[T, D, E]:
        _request(notificator, info, capabilities.pop(), initial_times, keep)
        return logic

    builder.build(constructor, notificator)
    return output


def _request(
    notificator: Notificator[T], info: OperatorInfo, capability: Capability[T], times: Iterable[T], keep: Keep | None
) -> None:
    """Make the initial requests; declare them, and whatever else there is, as state where that is wanted."""
    if keep is None:
        notificator.request(capability, times)
    else:
        notificator.keep(info, capability, times)
        keep(info)


def empty(scope: ScopeBuilder[T]) -> Stream[T, Any]:
    """Return a stream on which nothing ever comes, and which is complete from the start.

    >>> import timely
    >>> timely.example(lambda scope: scope.empty())
    []
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        info.declare_stateless()
        capability.drop()
        return lambda output: None

    return source(scope, "empty", constructor)
