"""Naiad's vertices: operators written as two callbacks, ``on_recv`` for messages and ``on_notify`` for complete times.

Invariants: a callback at a time sends and requests at or after it; no ``on_recv`` follows ``on_notify(time)`` at that time or
before; a vertex is re-entered only as deep as its ``reentrancy``. Source: Naiad sections 2.2 and 3.2.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

import attrs

from timely.dataflow import (
    Capability,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pact,
    Pipeline,
    ScopeBuilder,
    Stream,
    make,
    route,
    why_not_run,
)
from timely.errors import CapabilityError, GraphError, StateError, TimestampError, brief
from timely.operators.pending import Pending
from timely.operators.type_variables import T, V
from timely.order import linear_extension
from timely.progress import TimeDomain

K = TypeVar("K", bound=Hashable)

VertexInput: TypeAlias = Stream[T, Any] | tuple[Stream[T, Any], Pact]
"""What an input reads: a stream, or a stream with its pact."""

Permission: TypeAlias = InputCapability[T] | list[Capability[T]]
"""What a callback sends with: the message's capability, or one for each output."""

MAX_REENTRANCY: Final = 100
"""The greatest ``reentrancy``: each level takes some frames of Python's stack."""


class Vertex(Generic[T]):
    """A vertex in Naiad's sense: derive from it, and give the class to ``stream.vertex`` or ``timely.operators.vertex``.

    Override ``on_recv``, and ``on_notify`` if it requests notifications. In them call ``send_by`` and ``notify_at``, for the
    callback's time or a later one; ``__init__`` may call ``notify_at``. Each worker has its own vertex. In a loop, batches of a
    later epoch may come before an earlier one is complete: have a state for each time, or use ``state_machine``.

    ``reentrancy``, at most 100, says how many calls of ``on_recv`` may be nested in a callback. With more than 0, ``send_by`` at
    once delivers what a ``feedback`` leads straight back, so that a vertex may work depth first.

    Its state in a checkpoint is what ``checkpoint`` returns, and its requests. A resumed run makes a new vertex and calls
    ``restore``; on another number of workers, with what ``redistribute`` returns. Source: Naiad sections 2.2, 3.2 (re-entrancy),
    3.4 (checkpoints).

    >>> import timely
    >>> class Ends(timely.Vertex):
    ...     def on_recv(self, port, batch, time):
    ...         self.notify_at(time)
    ...     def on_notify(self, time):
    ...         self.send_by(0, [f"{time} is complete"], time)
    >>> timely.example(lambda scope: scope.to_stream([3, 1, 2]).vertex(Ends))
    [(0, ['0 is complete'])]
    """

    reentrancy: int = 0
    _runner: Runner[T] | None = None
    _requested: tuple[T, ...] = ()

    def on_recv(self, port: int, batch: Any, time: T) -> None:
        """Receive a batch on input ``port`` at ``time``; it must not be modified."""
        raise NotImplementedError(f"{type(self).__name__} has inputs, so it needs on_recv(port, batch, time)")

    def on_notify(self, time: T) -> None:
        """Receive the notification that ``time`` is complete; each requested time comes once, earlier ones first."""
        raise NotImplementedError(f"{type(self).__name__} calls notify_at, so it needs on_notify(time)")

    def send_by(self, port: int, batch: Any, time: T) -> None:
        """Send a container, which must not be modified afterwards, on output ``port`` at ``time``.

        ``CapabilityError`` outside of the callbacks, or for a time that is not at or after the callback's; ``TimestampError``
        for what is no time; ``GraphError`` for an output that the vertex does not have.
        """
        if self._runner is None:
            raise CapabilityError(f"send_by: {type(self).__name__} is not part of a dataflow; send in on_recv or on_notify")
        self._runner.send(port, batch, time)

    def notify_at(self, time: T) -> None:
        """Request ``on_notify(time)`` once ``time`` is complete on every input; until then it is not complete downstream.

        Errors as of ``send_by``.
        """
        if self._runner is None:
            self._requested = (*self._requested, time)
        else:
            self._runner.request(time)

    def checkpoint(self) -> Any:
        """Return the state from which ``restore`` makes another vertex continue: by default a deep copy of all attributes.

        Override both if an attribute cannot be copied, or pickled. Requests are not part of it: see ``pending``.
        """
        return copy.deepcopy(_attributes(self))

    def restore(self, state: Any) -> None:
        """Restore what ``checkpoint`` returned, on a new vertex."""
        for name, value in copy.deepcopy(state).items():
            setattr(self, name, value)

    def redistribute(self, states: Sequence[Any], index: int, peers: int) -> Any:
        """Return what worker ``index`` of ``peers`` restores; ``states`` is what ``checkpoint`` returned on each former worker.

        ``redistribute_by_key`` does it for dictionaries. Every worker requests what any vertex had, so that ``on_notify`` may
        come without state for it. By default a ``StateError``; not called where all states equal that of a new vertex.
        """
        raise StateError(
            f"vertex {type(self).__name__}: it does not say how the state of {len(states)} workers becomes that of {peers}: give"
            f" it a method redistribute(states, index, peers), or go on with {len(states)} workers"
        )


def pending(vertex: Vertex[T]) -> list[T]:
    """Return the times requested of ``vertex`` and not delivered, in order; a new vertex gets them by ``notify_at``."""
    runner = vertex._runner
    return linear_extension(dict.fromkeys(vertex._requested) if runner is None else runner.requests)


def redistribute_by_key(states: Sequence[Mapping[K, V]], index: int, peers: int) -> dict[K, V]:
    """Return the entries whose keys belong to worker ``index`` of ``peers``, for ``Vertex.redistribute``.

    Keys are what the vertex's records are exchanged by. ``StateError`` for a key that is in two of the states.

    >>> redistribute_by_key([{0: "a", 2: "c"}, {1: "b"}], index=1, peers=3)
    {1: 'b'}
    """
    mine: dict[K, V] = {}
    for state in states:
        for key, value in state.items():
            if route(key) % peers == index:
                if key in mine:
                    raise StateError(f"redistribute_by_key: two workers have an entry for {key!r}: exchange records by key")
                mine[key] = value
    return mine


def _attributes(vertex: Vertex[Any]) -> dict[str, Any]:
    state: Any = object.__getstate__(vertex)
    parts = state if isinstance(state, tuple) else (state,)
    ours = ("_runner", "_requested")
    return {name: value for part in parts if part for name, value in part.items() if name not in ours}


@attrs.define(eq=False, repr=False)
class Runner(Generic[T]):
    """Runs one vertex as an operator: has its requests, and what the running callback may send with."""

    _vertex: Vertex[T]
    _info: OperatorInfo
    _domain: TimeDomain[T]
    _inputs: Sequence[InputPort[T, Any]]
    _count: int
    requests: Pending[T, list[Capability[T]]] = attrs.field(factory=Pending)
    _outputs: Sequence[OutputPort[T]] = ()
    _time: T = attrs.Factory(lambda self: self._domain.minimum, takes_self=True)
    _permission: Permission[T] | None = None
    _depth: int = 0

    @property
    def label(self) -> str:
        """The vertex's name in errors."""
        return f"vertex {self._info.name!r} ({self._info.path})"

    def start(self, capabilities: list[Capability[T]], times: Sequence[T]) -> None:
        self._permission = capabilities
        for time in times:
            self.request(time)
        self._permission = None
        for capability in capabilities:
            capability.drop()

    def logic(self, *ports: Any) -> None:
        """Deliver all messages, and then the first complete time: the logic of the operator."""
        self._outputs = ports[len(self._inputs) :]
        for port in self._inputs:
            self._receive(port)
        for time, held in self.requests.take(self._complete):
            self._notify(time, held)
            if self.requests.has_due(self._complete):
                self._info.activator.activate()
            break

    def _receive(self, port: InputPort[T, Any]) -> None:
        for capability, batch in port:
            self._enter(capability, capability.time, functools.partial(self._vertex.on_recv, port.index, batch))

    def _notify(self, time: T, held: list[Capability[T]]) -> None:
        self._enter(held, time, self._vertex.on_notify)
        for capability in held:
            capability.drop()

    def _complete(self, time: T) -> bool:
        return not any(element <= time for port in self._inputs for element in port.elements)

    def _enter(self, permission: Permission[T], time: T, callback: Callable[[T], None]) -> None:
        before = self._permission, self._time
        self._permission, self._time = permission, time
        self._depth += 1
        try:
            callback(time)
        finally:
            self._depth -= 1
            self._permission, self._time = before

    def send(self, port: int, batch: Any, time: T) -> None:
        """Send a batch, and deliver what comes straight back, if the vertex may be re-entered."""
        time = self._allowed("send_by", time)
        if port not in range(self._count):
            raise GraphError(
                f"{self.label}: send_by on output {brief(port)}, and it has {self._count} outputs, counted from 0: the order is"
                " send_by(port, batch, time)"
            )
        with self._capability(port, time) as capability:
            self._outputs[port].session(capability).give_batch(batch)
        if self._depth <= self._vertex.reentrancy:
            self._come_round()

    def request(self, time: T) -> None:
        """Request a notification, and hold the time back on every output until then."""
        time = self._allowed("notify_at", time)
        if time not in self.requests:
            self.requests[time] = [self._capability(output, time) for output in range(self._count)]

    def _allowed(self, deed: str, time: T) -> T:
        if self._permission is None:
            raise CapabilityError(f"{self.label}: {deed} can be called in on_recv and on_notify only")
        if time == self._time:
            return self._time
        try:
            self._domain.check(time)
        except TimestampError as error:
            raise TimestampError(f"{self.label}: {deed}: {error}") from None
        if not self._time <= time:
            raise CapabilityError(
                f"{self.label}: {deed} at {brief(time)} in a callback at {brief(self._time)}: the time must be at or after"
                " the callback's"
            )
        return time

    def _capability(self, output: int, time: T) -> Capability[T]:
        permission = self._permission
        assert permission is not None
        return permission[output].delayed(time) if isinstance(permission, list) else permission.delayed(time, output)

    def _come_round(self) -> None:
        waiting = [len(port.queue) for port in self._inputs]
        self._info.activator.run_loops()
        for port, before in zip(self._inputs, waiting, strict=True):
            if len(port.queue) > before:
                self._receive(port)


@overload
def vertex(
    scope: ScopeBuilder[T],
    factory: Vertex[T] | Callable[..., Vertex[T]],
    *args: Any,
    inputs: Sequence[VertexInput[T]] = (),
    outputs: int = 1,
    name: str | None = None,
) -> list[Stream[T, Any]]: ...
@overload
def vertex(
    scope: Stream[T, Any],
    factory: Vertex[T] | Callable[..., Vertex[T]],
    *args: Any,
    pact: Pact = Pipeline,
    others: Sequence[VertexInput[T]] = (),
    name: str | None = None,
) -> Stream[T, Any]: ...
def vertex(
    scope: ScopeBuilder[T] | Stream[T, Any],
    factory: Vertex[T] | Callable[..., Vertex[T]],
    *args: Any,
    inputs: Sequence[VertexInput[T]] = (),
    outputs: int = 1,
    name: str | None = None,
    pact: Pact = Pipeline,
    others: Sequence[VertexInput[T]] = (),
) -> list[Stream[T, Any]] | Stream[T, Any]:
    """Return the output streams of ``factory(*args)``, a ``Vertex``, run as an operator with any number of inputs and outputs.

    Given a stream, it is ``stream.vertex(factory, ...)``. ``factory`` is a class that derives from ``Vertex``, a function that
    makes one, or one made for this place and worker. ``inputs`` are streams, or ``(stream, pact)``. A vertex without inputs that
    requests notifications in ``__init__`` is a source. ``GraphError`` for arguments of the other form, for what is no vertex, or
    is part of a dataflow already; ``OperatorError`` for what ``factory`` raises. Source: Naiad section 2.2.

    >>> import timely
    >>> class Later(timely.Vertex):
    ...     def on_recv(self, port, batch, time):
    ...         self.send_by(0, batch, time + 5)
    >>> timely.example(lambda scope: timely.operators.vertex(scope, Later, inputs=[scope.to_stream("ab")])[0])
    [(5, ['a', 'b'])]
    """
    if isinstance(scope, Stream):
        if inputs or outputs != 1:
            raise GraphError("vertex of a stream reads that and `others`, and has one output: for more, give the scope")
        read = [(scope, pact), *_listed("others", others)]
        return vertex(scope.scope, factory, *args, inputs=read, name=name)[0]
    if others or pact is not Pipeline:
        raise GraphError("vertex in a scope reads its `inputs`, each a stream or (stream, pact): it takes no pact and no others")
    if not callable(factory) and not isinstance(factory, Vertex):
        raise GraphError(f"vertex: {factory!r} must be or make a timely.Vertex")
    if isinstance(factory, Vertex):
        made = factory
    else:
        made = make(scope, name or str(getattr(factory, "__name__", "vertex")), factory, *args)
    _check(made, factory)
    pairs = [each if isinstance(each, tuple) else (each, Pipeline) for each in _listed("inputs", inputs)]
    try:
        count = operator.index(outputs)
    except TypeError:
        count = -1
    if count < 0:
        raise GraphError(f"vertex: outputs={outputs!r} is no number of outputs: give 0, or how many there are to be")
    builder = OperatorBuilder(scope, name or type(made).__name__)
    ports = [builder.new_input(stream, pact) for stream, pact in pairs]
    streams: list[Stream[T, Any]] = [builder.new_output() for _ in range(count)]

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., None]:
        runner = Runner(made, info, scope.subgraph.domain, ports, count)
        _register(made, info)
        requested, made._requested = made._requested, ()
        made._runner = runner
        runner.start(capabilities, requested)
        return runner.logic

    builder.build(constructor)
    return streams


def _listed(name: str, listed: Sequence[VertexInput[T]]) -> list[VertexInput[T]]:
    if not isinstance(listed, Iterable):
        raise GraphError(f"vertex: {name} is a list of streams, each with its pact or without, not {brief(listed)}")
    return list(listed)


def _register(made: Vertex[T], info: OperatorInfo) -> None:
    def load(items: Iterable[tuple[Any, list[T]]]) -> None:
        for state, times in items:
            made._requested = ()
            made.restore(state)
            made._requested = (*made._requested, *times)

    def rescale(parts: Sequence[Iterable[tuple[Any, list[T]]]]) -> None:
        restored = [item for items in parts for item in items]
        states, times = [state for state, _ in restored], dict.fromkeys(time for _, waiting in restored for time in waiting)
        made._requested = ()
        if not _all_new(made, states):
            made.restore(made.redistribute(states, info.worker, info.peers))
        made._requested = (*made._requested, *times)

    info.register_state(lambda: [(None, (made.checkpoint(), pending(made)))], load, rescale=rescale)


def _all_new(made: Vertex[Any], states: Sequence[Any]) -> bool:
    try:
        new = made.checkpoint()
        return all(bool(state == new) for state in states)
    except Exception:  # states that cannot be compared are not known to be equal
        return False


def _check(made: object, factory: object) -> None:
    if not isinstance(made, Vertex):
        raise GraphError(f"vertex: {factory!r} must be or make a timely.Vertex, and made {brief(made)}")
    if made._runner is not None:
        raise GraphError(f"{made._runner.label} is part of a dataflow already: make another one for each place and each worker")
    for name, callback in (("on_recv", made.on_recv), ("on_notify", made.on_notify)):
        what = why_not_run(callback)
        if what is not None:
            raise GraphError(f"vertex {type(made).__name__}: {name} is {what}, and does nothing when it is called: use send_by")
    if made.reentrancy not in range(MAX_REENTRANCY + 1):
        kind = type(made).__name__
        raise GraphError(f"vertex {kind}: reentrancy = {made.reentrancy!r} must be a whole number from 0 to {MAX_REENTRANCY}")
