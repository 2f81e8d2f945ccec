"""``Stream``: where an output's messages go, as the thing that a program is written in.

A stream belongs to one scope, has a time type ``T`` and records of type ``D``. It holds nothing but the place it comes from
and the list of what is connected to it. Its methods are a façade: each hands over to the function of the same name in
``timely.operators``, looked up when it is called, so that the layers still point one way when they are loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from timely.dataflow.channel import EnterPusher, LeavePusher, Pusher
from timely.dataflow.pact import Pipeline
from timely.errors import GraphError, brief
from timely.order import PartialOrder
from timely.progress import Antichain, Source, Target
from timely.scopes import EGRESS, INGRESS

if TYPE_CHECKING:
    import os

    from timely.dataflow.pact import Pact
    from timely.dataflow.scope import ScopeBuilder
    from timely.operators.captures import Capture
    from timely.operators.events import EventSink
    from timely.operators.generic import (
        BinaryConstructor,
        BinaryNotifyLogic,
        Keep,
        SinkConstructor,
        UnaryConstructor,
        UnaryNotifyLogic,
    )
    from timely.operators.loops import LoopHandle
    from timely.operators.probes import ProbeHandle
    from timely.operators.results import Err, Ok
    from timely.operators.vertices import Vertex

T = TypeVar("T", bound=PartialOrder)
T2 = TypeVar("T2", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")
E2 = TypeVar("E2")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
S = TypeVar("S")
P = ParamSpec("P")


class Stream(Generic[T, D]):
    """A stream of records of type ``D`` at times of type ``T``, in one scope."""

    __slots__ = ("scope", "source", "tee")

    def __init__(self, scope: ScopeBuilder[T], source: Source, tee: list[Pusher[T]]) -> None:
        self.scope = scope
        self.source = source
        self.tee = tee

    def __repr__(self) -> str:
        return f"Stream({self.scope.path!r}, {self.source!r})"

    def apply(self, f: Callable[Concatenate[Stream[T, D], P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return ``f(self, ...)``: anyone's function of a stream, as good as a method.

        >>> import timely
        >>> def squares(stream, power):
        ...     return stream.map(lambda x: x ** power)
        >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).apply(squares, 2))
        [(0, [1, 4, 9])]
        """
        return f(self, *args, **kwargs)

    # -- across scopes ---------------------------------------------------------------------------------------------

    def enter(self, scope: ScopeBuilder[T2]) -> Stream[T2, D]:
        """Return this stream inside ``scope``, a scope nested directly in the stream's own; ``GraphError`` otherwise."""
        if getattr(scope, "parent", None) is not self.scope:
            raise GraphError(
                f"a stream of scope {self.scope.path!r} cannot enter {brief(getattr(scope, 'path', scope))}, which is not nested"
                f" directly in it: {way_between(self.scope, scope, 'enter the scopes on the way one by one')}"
            )
        nested = scope.subgraph
        port = nested.new_input()
        tee: list[Pusher[T2]] = []
        self.scope.subgraph.add_edge(self.source, Target(scope.index, port), local=True)
        self.tee.append(EnterPusher(nested, port, tee))
        return Stream(scope, Source(INGRESS, port), tee)

    def leave(self) -> Stream[Any, D]:
        """Return this stream in the scope around its own; ``GraphError`` at the outermost one."""
        scope, parent = self.scope, self.scope.parent
        if parent is None:
            raise GraphError(f"a stream of the outermost scope {scope.path!r} cannot leave it")
        port = scope.subgraph.new_output()
        tee: list[Pusher[Any]] = []
        scope.subgraph.add_edge(self.source, Target(EGRESS, port), local=True)
        self.tee.append(LeavePusher(scope.subgraph, tee))
        return Stream(parent, Source(scope.index, port), tee)

    # -- operators: each is the function of the same name in timely.operators ----------------------------------------

    def map(self, f: Callable[[D], E]) -> Stream[T, E]:
        """Return the stream of ``f(record)``. See ``timely.operators.map``."""
        from timely import operators

        return operators.map(self, f)

    def filter(self, predicate: Callable[[D], bool]) -> Stream[T, D]:
        """Return the stream of the records for which ``predicate`` holds. See ``timely.operators.filter``."""
        from timely import operators

        return operators.filter(self, predicate)

    def flat_map(self, f: Callable[[D], Iterable[E]]) -> Stream[T, E]:
        """Return the stream of everything in ``f(record)``. See ``timely.operators.flat_map``."""
        from timely import operators

        return operators.flat_map(self, f)

    def map_batch(self, f: Callable[[Any], Any]) -> Stream[T, Any]:
        """Return the stream of the containers ``f(container)``. See ``timely.operators.map_batch``."""
        from timely import operators

        return operators.map_batch(self, f)

    def map_async(self, f: Callable[[D], Awaitable[E]], limit: int = 64) -> Stream[T, E]:
        """Return the stream of what awaiting ``f(record)`` gives. See ``timely.operators.map_async``."""
        from timely import operators

        return operators.map_async(self, f, limit)

    def inspect(self, f: Callable[[D], object]) -> Stream[T, D]:
        """Call ``f(record)`` for each record and pass it on. See ``timely.operators.inspect``."""
        from timely import operators

        return operators.inspect(self, f)

    def inspect_time(self, f: Callable[[T, D], object]) -> Stream[T, D]:
        """Call ``f(time, record)`` for each record and pass it on. See ``timely.operators.inspect_time``."""
        from timely import operators

        return operators.inspect_time(self, f)

    def inspect_batch(self, f: Callable[[T, Any], object]) -> Stream[T, D]:
        """Call ``f(time, container)`` for each message and pass it on. See ``timely.operators.inspect_batch``."""
        from timely import operators

        return operators.inspect_batch(self, f)

    def inspect_progress(
        self, on_batch: Callable[[T, Any], object], on_frontier: Callable[[Antichain[T]], object]
    ) -> Stream[T, D]:
        """See each message and each move of the frontier. See ``timely.operators.inspect_progress``."""
        from timely import operators

        return operators.inspect_progress(self, on_batch, on_frontier)

    def concat(self, *others: Stream[T, D]) -> Stream[T, D]:
        """Return the stream of the records of this stream and of ``others``. See ``timely.operators.concat``."""
        from timely import operators

        return operators.concat(self, *others)

    def exchange(self, key: Callable[[D], Any] | str | Sequence[str]) -> Stream[T, D]:
        """Take each record to the worker of ``key(record)``. See ``timely.operators.exchange``."""
        from timely import operators

        return operators.exchange(self, key)

    def broadcast(self) -> Stream[T, D]:
        """Take each record to every worker. See ``timely.operators.broadcast``."""
        from timely import operators

        return operators.broadcast(self)

    def partition(self, n: int, f: Callable[[D], tuple[int, E]]) -> list[Stream[T, E]]:
        """Return ``n`` streams; ``f(record)`` says ``(which, record)``. See ``timely.operators.partition``."""
        from timely import operators

        return operators.partition(self, n, f)

    def branch(self, f: Callable[[D], bool]) -> tuple[Stream[T, D], Stream[T, D]]:
        """Return the streams of the records for which ``f`` is false, and true. See ``timely.operators.branch``."""
        from timely import operators

        return operators.branch(self, f)

    def branch_when(self, f: Callable[[T], bool]) -> tuple[Stream[T, D], Stream[T, D]]:
        """Return the streams of the records at whose time ``f`` is false, and true. See ``timely.operators.branch_when``."""
        from timely import operators

        return operators.branch_when(self, f)

    def ok_err(self, f: Callable[[D], Ok[E] | Err[E2]]) -> tuple[Stream[T, E], Stream[T, E2]]:
        """Return the streams of the values and of the errors in ``f(record)``. See ``timely.operators.ok_err``."""
        from timely import operators

        return operators.ok_err(self, f)

    def delay(self, f: Callable[[D, T], T]) -> Stream[T, D]:
        """Return the records at the later times ``f(record, time)``. See ``timely.operators.delay``."""
        from timely import operators

        return operators.delay(self, f)

    def delay_batch(self, f: Callable[[T], T]) -> Stream[T, D]:
        """Return the containers at the later times ``f(time)``. See ``timely.operators.delay_batch``."""
        from timely import operators

        return operators.delay_batch(self, f)

    def count(self) -> Stream[T, int]:
        """Return how many records each time has on this worker. See ``timely.operators.count``."""
        from timely import operators

        return operators.count(self)

    def value_counts(self, key: Callable[[D], Any] | None = None) -> Stream[T, tuple[D, int]]:
        """Return how often each record comes at each time, on all workers. See ``timely.operators.value_counts``."""
        from timely import operators

        return operators.value_counts(self, key)

    def group_by(self, keys: str | Sequence[str], /, **columns: tuple[str, str] | str) -> Stream[T, Any]:
        """Return what Arrow batches say of each key at each time. See ``timely.operators.group_by``."""
        from timely import operators

        return operators.group_by(self, keys, **columns)

    def accumulate(self, initial: E, f: Callable[[E, D], E]) -> Stream[T, E]:
        """Return what ``f(state, record)`` makes of all records of a time. See ``timely.operators.accumulate``."""
        from timely import operators

        return operators.accumulate(self, initial, f)

    def aggregate(
        self: Stream[T, tuple[K, V]],
        fold: Callable[[K, V, Any], S],
        emit: Callable[[K, S], E],
        key: Callable[[K], Any] | None = None,
    ) -> Stream[T, E]:
        """Return what is made of the values of each key at each time. See ``timely.operators.aggregate``."""
        from timely import operators

        return operators.aggregate(self, fold, emit, key)

    def reduce_by_key(
        self: Stream[T, tuple[K, V]], combine: Callable[[V, V], V], key: Callable[[K], Any] | None = None
    ) -> Stream[T, tuple[K, V]]:
        """Return the values of each key at each time, combined two by two. See ``timely.operators.reduce_by_key``."""
        from timely import operators

        return operators.reduce_by_key(self, combine, key)

    def state_machine(
        self: Stream[T, tuple[K, V]],
        fold: Callable[[K, V, S | None], tuple[S | None, Iterable[E]]],
        key: Callable[[K], Any] | None = None,
    ) -> Stream[T, E]:
        """Return what the state machine of each key sends, in order of time. See ``timely.operators.state_machine``."""
        from timely import operators

        return operators.state_machine(self, fold, key)

    def distinct(self, key: Callable[[D], Any] | None = None) -> Stream[T, D]:
        """Return each record once for each time. See ``timely.operators.distinct``."""
        from timely import operators

        return operators.distinct(self, key)

    def join(
        self: Stream[T, tuple[K, V]], other: Stream[T, tuple[K, E]], key: Callable[[K], Any] | None = None
    ) -> Stream[T, tuple[K, tuple[V, E]]]:
        """Return ``(key, (left, right))`` for all records with equal keys. See ``timely.operators.join``."""
        from timely import operators

        return operators.join(self, other, key)

    def limit_in_flight(self, records: int, body: Callable[[Stream[Any, D]], Stream[Any, E]]) -> Stream[T, E]:
        """Return ``body(stream)``, which gets no more than so many records at once. See ``timely.operators.limit_in_flight``."""
        from timely import operators

        return operators.limit_in_flight(self, records, body)

    def connect_loop(self, handle: LoopHandle[T], pact: Pact = Pipeline) -> None:
        """Feed this stream back into the loop that ``feedback`` opened. See ``timely.operators.connect_loop``."""
        from timely import operators

        operators.connect_loop(self, handle, pact)

    def probe(self, handle: ProbeHandle[T] | None = None) -> ProbeHandle[T]:
        """Return a handle on which one sees what may still come here. See ``timely.operators.probe``."""
        from timely import operators

        return operators.probe(self, handle)

    def capture(self) -> Capture[T, D]:
        """Collect what comes here, on this worker. See ``timely.operators.capture``."""
        from timely import operators

        return operators.capture(self)

    def capture_into(self, sink: EventSink | str | os.PathLike[str]) -> None:
        """Record what comes here, to be replayed. See ``timely.operators.capture_into``."""
        from timely import operators

        operators.capture_into(self, sink)

    def sink(self, pact: Pact, name: str, constructor: SinkConstructor[T, D]) -> None:
        """End the stream in an operator of one's own. See ``timely.operators.sink``."""
        from timely import operators

        operators.sink(self, pact, name, constructor)

    def unary(self, pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
        """An operator of one's own that runs on input. See ``timely.operators.unary``."""
        from timely import operators

        return operators.unary(self, pact, name, constructor)

    def unary_frontier(self, pact: Pact, name: str, constructor: UnaryConstructor[T, D]) -> Stream[T, Any]:
        """An operator of one's own that runs on input and progress. See ``timely.operators.unary_frontier``."""
        from timely import operators

        return operators.unary_frontier(self, pact, name, constructor)

    def unary_notify(
        self,
        pact: Pact,
        name: str,
        initial_times: Iterable[T],
        logic: UnaryNotifyLogic[T, D],
        *,
        keep: Keep | None = None,
    ) -> Stream[T, Any]:
        """An operator of one's own that is notified of times. See ``timely.operators.unary_notify``."""
        from timely import operators

        return operators.unary_notify(self, pact, name, initial_times, logic, keep=keep)

    def binary(
        self, other: Stream[T, E], pact: Pact, other_pact: Pact, name: str, constructor: BinaryConstructor[T, D, E]
    ) -> Stream[T, Any]:
        """An operator of one's own with two inputs. See ``timely.operators.binary``."""
        from timely import operators

        return operators.binary(self, other, pact, other_pact, name, constructor)

    def binary_frontier(
        self, other: Stream[T, E], pact: Pact, other_pact: Pact, name: str, constructor: BinaryConstructor[T, D, E]
    ) -> Stream[T, Any]:
        """An operator of one's own with two inputs, told of progress. See ``timely.operators.binary_frontier``."""
        from timely import operators

        return operators.binary_frontier(self, other, pact, other_pact, name, constructor)

    def binary_notify(
        self,
        other: Stream[T, E],
        pact: Pact,
        other_pact: Pact,
        name: str,
        initial_times: Iterable[T],
        logic: BinaryNotifyLogic[T, D, E],
        *,
        keep: Keep | None = None,
    ) -> Stream[T, Any]:
        """An operator of one's own with two inputs, notified of times. See ``timely.operators.binary_notify``."""
        from timely import operators

        return operators.binary_notify(self, other, pact, other_pact, name, initial_times, logic, keep=keep)

    def vertex(
        self,
        factory: Vertex[T] | Callable[..., Vertex[T]],
        *args: Any,
        pact: Pact = Pipeline,
        others: Sequence[Stream[T, Any] | tuple[Stream[T, Any], Pact]] = (),
        name: str | None = None,
    ) -> Stream[T, Any]:
        """Return output 0 of the vertex ``factory(*args)``, whose inputs read this stream and ``others``.

        See ``timely.operators.vertex``, which is for any number of outputs.
        """
        from timely import operators

        return operators.vertex(self, factory, *args, pact=pact, others=others, name=name)


def scope_of(stream: Stream[T, Any], reader: str) -> ScopeBuilder[T]:
    """Return the scope of ``stream``, in which an operator ``reader`` is to be made that reads it.

    ``GraphError`` for what is no stream, which says what to give instead: a function of a stream may be called with anything.

    >>> import timely
    >>> timely.operators.map([1, 2], str)
    Traceback (most recent call last):
    ...
    timely.errors.GraphError: operator 'map' reads a timely.Stream, not [1, 2]: make one of it with scope.to_stream(...)
    """
    if not isinstance(stream, Stream):
        raise GraphError(f"operator {reader!r} reads a timely.Stream, not {brief(stream)}: {instead_of(stream)}")
    return stream.scope


def way_between(
    start: ScopeBuilder[Any], end: object, inside: str = "bring it in with enter(scope), or out with leave()"
) -> str:
    """Return how a stream of one scope comes to another, for a message: ``inside`` says how within a dataflow."""
    if getattr(end, "root", start.root) is start.root:
        return inside
    return "that is another dataflow: record it there with capture_into, and replay it here"


def instead_of(given: object) -> str:
    """Return what to give instead of ``given``, which is no stream, for a message."""
    from timely.dataflow.scope import ScopeBuilder
    from timely.operators import Capture, InputHandle, LoopHandle, ProbeHandle, UnorderedHandle

    first = given
    while isinstance(first, tuple) and first:  # new_unordered_input returns ((handle, capability), stream)
        first = first[0]
    if isinstance(first, InputHandle | UnorderedHandle | LoopHandle):
        return "what returns a handle returns its stream too, as in `handle, stream = scope.new_input()`: give that stream"
    if isinstance(given, list | tuple) and any(isinstance(one, Stream) for one in given):
        return "give the streams in it one by one, as in concat(*streams)"
    if isinstance(given, ProbeHandle | Capture):
        return "give the stream on which probe() or capture() was called"
    if isinstance(given, ScopeBuilder):
        return "give a stream of that scope"
    if given is None:
        return "a function that builds part of a dataflow must return its stream"
    return "make one of it with scope.to_stream(...)"
