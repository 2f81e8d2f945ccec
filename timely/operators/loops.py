"""Loops: ``feedback`` opens one, ``connect_loop`` closes it.

A loop is an operator whose path summary strictly advances time, and whose input is connected after its output has been used.
A message whose time the summary lets not through (a bounded loop, at its bound) is dropped, and so is what it held back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, get_args, get_origin

from timely.dataflow import (
    Capability,
    OperatorBuilder,
    OperatorInfo,
    Pact,
    Pipeline,
    ScopeBuilder,
    Stream,
    check_scope,
)
from timely.errors import GraphError, TimestampError, brief
from timely.order import PartialOrder, Product
from timely.progress import Antichain, PathSummary, ProductSummary, Step, time_domain

T = TypeVar("T", bound=PartialOrder)


class LoopHandle(Generic[T]):
    """The open end of a loop: give it to ``stream.connect_loop(handle)``, once."""

    __slots__ = ("_connect", "_connected", "path")

    def __repr__(self) -> str:
        return f"LoopHandle({self.path!r})"

    def __init__(self, path: str, connect: Callable[[Stream[T, Any], Pact], None]) -> None:
        self.path = path
        self._connect = connect
        self._connected = False

    def connect(self, stream: Stream[T, Any], pact: Pact = Pipeline) -> None:
        """Connect the loop; ``GraphError`` the second time."""
        if self._connected:
            raise GraphError(f"loop {self.path} is connected already: concatenate the streams that are to go round it")
        self._connect(stream, pact)
        self._connected = True

    def check(self) -> None:
        """Raise ``GraphError`` if the loop was never connected."""
        if not self._connected:
            raise GraphError(
                f"loop {self.path} was never connected: call stream.connect_loop(handle) before its scope is built"
            )


def advance_by_one(spec: Any) -> PathSummary[Any]:
    """Return the summary that advances the innermost coordinate of times of type ``spec`` by one.

    ``TimestampError`` for types that do not say what "by one" is: give ``feedback`` a summary for those.

    >>> advance_by_one(Product[int, int])
    ProductSummary(Step(0), Step(1))
    """
    return _advance_by_one(spec, "feedback")


def _advance_by_one(spec: Any, where: str) -> PathSummary[Any]:
    summary = _by_one(spec)
    if summary is None:
        raise TimestampError(
            f"{where} needs a summary for times of type {time_domain(spec).name}: give one that strictly advances them, as in"
            " feedback(summary)"
        )
    return summary


def _by_one(spec: Any) -> PathSummary[Any] | None:
    if spec is int:
        return Step(1)
    if get_origin(spec) is not Product:
        return None
    outer, inner = get_args(spec)
    step = _by_one(inner)
    return None if step is None else ProductSummary(time_domain(outer).identity, step)


def feedback(scope: ScopeBuilder[T], summary: PathSummary[T] | None = None) -> tuple[LoopHandle[T], Stream[T, Any]]:
    """Return the handle of a new loop, and the stream of what comes round it, advanced by ``summary``.

    By default the innermost coordinate advances by one. A cycle that does not strictly advance is a ``CycleError`` when the
    dataflow is built, and a loop that is never connected a ``GraphError``. Source: Naiad section 2.1.

    >>> import timely
    >>> def build(scope):
    ...     handle, again = scope.feedback(timely.Step(1, limit=3))
    ...     numbers = scope.to_stream([7]).concat(again)
    ...     numbers.connect_loop(handle)
    ...     return numbers
    >>> timely.example(build)
    [(0, [7]), (1, [7]), (2, [7]), (3, [7])]
    """
    check_scope(scope, "feedback")
    chosen = _advance_by_one(scope.time, f"feedback in scope {scope.path!r}") if summary is None else summary
    builder = OperatorBuilder(scope, "feedback")
    port = builder.reserve_input(notify=False)
    output = builder.new_output({0: Antichain([chosen])})

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        return lambda input, output: input.advance(output, chosen)

    builder.build(constructor)
    handle: LoopHandle[T] = LoopHandle(builder.info.path, partial(builder.connect, port))
    scope.checks.append(handle.check)
    return handle, output


def connect_loop(stream: Stream[T, Any], handle: LoopHandle[T], pact: Pact = Pipeline) -> None:
    """Feed ``stream`` into the loop of ``handle``. ``GraphError`` if it is connected already, or what is given is no handle.

    ``pact`` says which worker each record goes round on. What is to be exchanged in each round is better exchanged here than
    where it comes out of the loop: it leaves in the pass in which it was made, and what has come is taken up in one pass.

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
