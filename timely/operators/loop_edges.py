"""Loops and nested scopes: ``feedback`` opens a loop and ``connect_loop`` closes it; ``enter`` and ``leave`` cross a scope's
border.

A loop's path summary strictly advances time. A message whose time it does not let pass (a bounded loop, at its bound) is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, get_args, get_origin

import attrs

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
    check_scope,
    operator_name,
    scope_of,
)
from timely.errors import GraphError, TimestampError, brief
from timely.operators.type_variables import T2, D, T
from timely.order import Product
from timely.progress import Antichain, PathSummary, ProductSummary, Step, time_domain


@attrs.define(eq=False, repr=False)
class LoopHandle(Generic[T]):
    """The open end of a loop: give it to ``stream.connect_loop(handle)``, once."""

    path: str
    _connect: Callable[[Stream[T, Any], Pact], None]
    _connected: bool = attrs.field(default=False, init=False)

    def __repr__(self) -> str:
        return f"LoopHandle({self.path!r})"

    def connect(self, stream: Stream[T, Any], pact: Pact = Pipeline) -> None:
        """Connect the loop; ``GraphError`` the second time."""
        if self._connected:
            raise GraphError(f"loop {self.path} is connected already: concatenate the streams that are to go round it")
        self._connect(stream, pact)
        self._connected = True

    def check(self) -> None:
        if not self._connected:
            raise GraphError(f"loop {self.path} was never connected: call stream.connect_loop(handle) before its scope is built")


def _by_one(spec: Any) -> PathSummary[Any] | None:
    """Return the summary that advances the innermost coordinate by one, or ``None`` for types without one."""
    if spec is int:
        return Step(1)
    if get_origin(spec) is not Product:
        return None
    outer, inner = get_args(spec)
    step = _by_one(inner)
    return None if step is None else ProductSummary(time_domain(outer).identity, step)


def feedback(
    scope: ScopeBuilder[T], summary: PathSummary[T] | None = None, *, name: str | None = None
) -> tuple[LoopHandle[T], Stream[T, Any]]:
    """Return the handle of a new loop, and the stream of what comes round it, advanced by ``summary``.

    By default the innermost coordinate advances by one; ``TimestampError`` for times without one. When the dataflow is built:
    ``CycleError`` for a cycle that does not strictly advance, ``GraphError`` for a loop that was never connected.
    Source: Naiad section 2.1.

    >>> import timely
    >>> def build(scope):
    ...     handle, again = scope.feedback(timely.Step(1, limit=3))
    ...     numbers = scope.to_stream([7]).concat(again)
    ...     numbers.connect_loop(handle)
    ...     return numbers
    >>> timely.example(build)
    [(0, [7]), (1, [7]), (2, [7]), (3, [7])]
    """
    return open_loop(scope, summary, name=name)


def open_loop(
    scope: ScopeBuilder[T],
    summary: PathSummary[T] | None,
    watch: Callable[[OperatorInfo], Callable[[Iterable[tuple[T, Any, int]]], None]] | None = None,
    *,
    name: str | None = None,
) -> tuple[LoopHandle[T], Stream[T, Any]]:
    """Do what ``feedback`` does; ``watch(info)`` returns what sees each ``(time, batch, records)`` that goes round."""
    check_scope(scope, "feedback")
    chosen = _by_one(scope.time) if summary is None else summary
    if chosen is None:
        raise TimestampError(
            f"feedback in scope {scope.path!r} needs a summary for times of type {time_domain(scope.time).name}: give one that"
            " strictly advances them, as in feedback(summary)"
        )
    builder = OperatorBuilder(scope, operator_name("feedback", name))
    port = builder.reserve_input(notify=False)
    output = builder.new_output({0: Antichain([chosen])})

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        info.declare_collection()
        if watch is None:
            return lambda input, output: input.advance(output, chosen)
        see = watch(info)

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> None:
            see(input.queue)
            input.advance(output, chosen)

        return logic

    builder.build(constructor)
    handle: LoopHandle[T] = LoopHandle(builder.info.path, partial(builder.connect, port))
    scope.checks.append(handle.check)
    return handle, output


def connect_loop(stream: Stream[T, Any], handle: LoopHandle[T], pact: Pact = Pipeline) -> None:
    """Feed ``stream`` into the loop of ``handle``. ``GraphError`` if it is connected already, or what is given is no handle.

    ``pact`` says on which worker each record goes round. Exchange records here, rather than where they come out of the loop: they
    are sent in the pass that made them.

    >>> import timely
    >>> def build(scope):
    ...     handle, again = scope.feedback()
    ...     again.map(lambda x: x).connect_loop(handle)
    ...     return again
    >>> timely.example(build)
    []
    """
    if not isinstance(handle, LoopHandle):
        raise GraphError(
            f"connect_loop takes the handle, of the pair (handle, stream) that feedback returns, not {brief(handle)}"
        )
    handle.connect(stream, pact)


def enter(stream: Stream[T, D], scope: ScopeBuilder[T2]) -> Stream[T2, D]:
    """Return ``stream`` inside ``scope``, which is nested directly in the stream's own; ``GraphError`` otherwise.

    >>> import timely
    >>> with timely.Worker().dataflow() as scope, scope.region("part") as inner:
    ...     enter(scope.empty(), inner)
    Stream('/dataflow0/part#0', Source(-1, 0))
    """
    scope_of(stream, "enter")
    return stream.enter(scope)


def leave(stream: Stream[Any, D]) -> Stream[Any, D]:
    """Return ``stream`` in the scope around its own; ``GraphError`` at the outermost one.

    >>> import timely
    >>> with timely.Worker().dataflow() as scope, scope.region("part") as inner:
    ...     leave(inner.empty())
    Stream('/dataflow0', Source(0, 0))
    """
    scope_of(stream, "leave")
    return stream.leave()
