"""Operators of your own: unary, binary, sources and sinks, with or without frontiers and notifications.

A constructor gets the initial capability (hold, delay or drop it; one that is ignored is dropped) and the operator's information.
It returns the logic, which is called with the inputs and then the output whenever there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from timely.dataflow import (
    Capability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pact,
    Pipeline,
    ScopeBuilder,
    Stream,
    operator_name,
    scope_of,
)
from timely.operators.notificator import Notificator
from timely.operators.type_variables import D, E, T

SourceConstructor: TypeAlias = Callable[[Capability[T], OperatorInfo], Callable[[OutputPort[T]], object]]
UnaryConstructor: TypeAlias = Callable[[Capability[T], OperatorInfo], Callable[[InputPort[T, D], OutputPort[T]], object]]
BinaryConstructor: TypeAlias = Callable[
    [Capability[T], OperatorInfo], Callable[[InputPort[T, D], InputPort[T, E], OutputPort[T]], object]
]
SinkConstructor: TypeAlias = Callable[[OperatorInfo], Callable[[InputPort[T, D]], object]]
UnaryNotifyLogic: TypeAlias = Callable[[InputPort[T, D], OutputPort[T], Notificator[T]], object]
BinaryNotifyLogic: TypeAlias = Callable[[InputPort[T, D], InputPort[T, E], OutputPort[T], Notificator[T]], object]
RegisterState: TypeAlias = Callable[[OperatorInfo], object]
"""Registers the state of an operator, or declares that it has none."""


def source(scope: ScopeBuilder[T], name: str, constructor: SourceConstructor[T]) -> Stream[T, Any]:
    """Return the stream of a source: ``constructor(capability, info)`` returns ``logic(output)``.

    The logic runs once at the start, and then when ``info.activator.activate()`` has been called.

    >>> import timely
    >>> def constructor(capability, info):
    ...     def logic(output):
    ...         output.session(capability).give("hello")
    ...         capability.drop()
    ...     return logic
    >>> timely.example(lambda scope: scope.source("once", constructor))
    [(0, ['hello'])]
    """
    builder = OperatorBuilder(scope, name)
    output = builder.new_output()
    builder.build(lambda capabilities, info: constructor(capabilities.pop(), info))
    return output


def sink(stream: Stream[T, D], pact: Pact, name: str, constructor: SinkConstructor[T, D]) -> None:
    """End ``stream`` in an operator: ``constructor(info)`` returns ``logic(input)``, run on input and on progress.

    >>> import timely
    >>> seen = []
    >>> with (worker := timely.Worker()).dataflow() as scope:
    ...     scope.to_stream([1, 2]).sink(timely.Pipeline, "collect", lambda info: lambda input: seen.extend(x for _, x in input))
    >>> worker.run()
    >>> seen
    [[1, 2]]
    """
    builder = OperatorBuilder(scope_of(stream, name), name)
    builder.new_input(stream, pact)
    builder.build(lambda _, info: constructor(info))


def unary(stream: Stream[T, D], pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
    """Return the output of an operator that runs when there is input: ``constructor(capability, info)`` returns
    ``logic(input, output)``.

    >>> import timely
    >>> def smaller(capability, info):
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             output.session(capability).give_many(x for x in batch if x < 4)
    ...     return logic
    >>> timely.example(lambda scope: scope.to_stream([3, 1, 4, 1, 5]).unary(timely.Pipeline, "smaller", smaller))
    [(0, [1, 1, 3])]
    """
    return _operator([(stream, pact)], name, constructor, notify=False)


def unary_frontier(stream: Stream[T, D], pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
    """As ``unary``, and the logic also runs when ``input.frontier`` has moved.

    >>> import timely
    >>> def end(capability, info):
    ...     def logic(input, output):
    ...         if capability.held and not input.frontier:
    ...             output.session(capability).give("over")
    ...             capability.drop()
    ...     return logic
    >>> timely.example(lambda scope: scope.empty().unary_frontier(timely.Pipeline, "end", end))
    [(0, ['over'])]
    """
    return _operator([(stream, pact)], name, constructor, notify=True)


def unary_notify(
    stream: Stream[T, D],
    pact: Pact,
    name: str,
    initial_times: Iterable[T],
    logic: UnaryNotifyLogic[T, D],
    *,
    state: RegisterState | None = None,
) -> Stream[T, Any]:
    """Return the output of ``logic(input, output, notificator)``, which may request notifications of complete times.

    ``initial_times`` are requested at the start. ``state(info)`` is called once, before the logic runs, to register its state;
    the requests are registered too. ``state=timely.OperatorInfo.declare_stateless`` declares that there is no other state.
    Without ``state`` no run with the operator can be checkpointed. Source: Naiad section 2.2 (``NotifyAt`` and ``OnNotify``).

    >>> import timely
    >>> def logic(input, output, notificator):
    ...     for capability, batch in input:
    ...         notificator.notify_at(capability.retain())
    ...     for capability, count in notificator:
    ...         output.session(capability).give(f"{capability.time} is complete")
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).unary_notify(timely.Pipeline, "notify", [], logic))
    [(0, ['0 is complete'])]
    """
    return _notified([(stream, pact)], name, initial_times, logic, state)


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
    ...     return lambda left, right, output: [output.session(cap).give_batch(x) for port in (left, right) for cap, x in port]
    >>> def build(scope):
    ...     one, two = scope.to_stream([1, 2]), scope.to_stream([3])
    ...     return one.binary(two, timely.Pipeline, timely.Pipeline, "both", both)
    >>> timely.example(build)
    [(0, [1, 2, 3])]
    """
    return _operator([(stream, pact), (other, other_pact)], name, constructor, notify=False)


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
    ...         if held and not left.frontier and not right.frontier:
    ...             output.session(held.pop()).give("both are over")
    ...     return logic
    >>> def build(scope):
    ...     return scope.empty().binary_frontier(scope.empty(), timely.Pipeline, timely.Pipeline, "ends", ends)
    >>> timely.example(build)
    [(0, ['both are over'])]
    """
    return _operator([(stream, pact), (other, other_pact)], name, constructor, notify=True)


def binary_notify(
    stream: Stream[T, D],
    other: Stream[T, E],
    pact: Pact,
    other_pact: Pact,
    name: str,
    initial_times: Iterable[T],
    logic: BinaryNotifyLogic[T, D, E],
    *,
    state: RegisterState | None = None,
) -> Stream[T, Any]:
    """Return the output of ``logic(left, right, output, notificator)``; a time is complete when both inputs have passed it.

    ``initial_times`` and ``state`` are as for ``unary_notify``.

    >>> import timely
    >>> def logic(left, right, output, notificator):
    ...     for capability, count in notificator:
    ...         output.session(capability).give((capability.time, count))
    >>> def build(scope):
    ...     return scope.empty().binary_notify(scope.empty(), timely.Pipeline, timely.Pipeline, "notify", [2, 7], logic)
    >>> timely.example(build)
    [(2, [(2, 1)]), (7, [(7, 1)])]
    """
    inputs: list[tuple[Stream[T, Any], Pact]] = [(stream, pact), (other, other_pact)]
    return _notified(inputs, name, initial_times, logic, state)


def _operator(
    inputs: Sequence[tuple[Stream[T, Any], Pact]], name: str, constructor: Callable[..., Callable[..., object]], *, notify: bool
) -> Stream[T, Any]:
    builder = OperatorBuilder(scope_of(inputs[0][0], name), name)
    for stream, pact in inputs:
        builder.new_input(stream, pact, notify=notify)
    output = builder.new_output()
    builder.build(lambda capabilities, info: constructor(capabilities.pop(), info))
    return output


def _notified(
    inputs: Sequence[tuple[Stream[T, Any], Pact]],
    name: str,
    times: Iterable[T],
    logic: Callable[..., object],
    state: RegisterState | None,
) -> Stream[T, Any]:
    builder = OperatorBuilder(scope_of(inputs[0][0], name), name)
    notificator = Notificator([builder.new_input(stream, pact) for stream, pact in inputs])
    output = builder.new_output()

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        if state is None:
            notificator.request(capabilities.pop(), times)
        else:
            notificator.register(info, capabilities.pop(), times)
            state(info)
        return logic

    builder.build(constructor, notificator)
    return output


def stateless(stream: Stream[T, Any], pact: Pact, name: str, logic: Callable[..., object], *arguments: object) -> Stream[T, Any]:
    """Return the output of an operator without state or constructor: ``logic(input, output, *arguments)`` is called."""
    return stateless_outputs(scope_of(stream, name), [stream], pact, name, logic, 1, *arguments)[0]


def stateless_outputs(
    scope: ScopeBuilder[T],
    streams: Sequence[Stream[T, Any]],
    pact: Pact,
    name: str,
    logic: Callable[..., object],
    outputs: int,
    *arguments: object,
    collection: bool = False,
) -> list[Stream[T, Any]]:
    """Return the outputs of an operator without state or constructor that reads ``streams``.

    With ``collection`` it declares what ``declare_collection`` says.
    """
    builder = OperatorBuilder(scope, name)
    for stream in streams:
        builder.new_input(stream, pact, notify=False)
    made: list[Stream[T, Any]] = [builder.new_output() for _ in range(outputs)]

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        info.state.collection = collection
        return logic

    builder.build(constructor, *arguments)
    return made


def empty(scope: ScopeBuilder[T], *, name: str | None = None) -> Stream[T, Any]:
    """Return a stream without records, complete from the start.

    >>> import timely
    >>> timely.example(lambda scope: scope.empty())
    []
    """
    return stateless_outputs(scope, [], Pipeline, operator_name("empty", name), lambda output: None, 1)[0]
