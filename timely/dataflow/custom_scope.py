"""Scopes of one's own in a dataflow: ``add_scope`` plugs in an object that keeps its own progress, and gives it its data.

The protocol of ``timely.scopes.Scope`` carries progress alone. An object that also takes and makes records has one method more,
``connect``, which hands it an ``Inlet`` for each input and an ``Outlet`` for each output. What it says of its progress is checked
twice: that something it had supports it, and that it is true of the records it took and sent. The invariant: records leave only
after the statement that they belong to was found right, and in the same pull, so that no frontier is ever wrong about them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from timely.dataflow.builder import connect
from timely.dataflow.channel import Pusher
from timely.dataflow.info import OperatorInfo, blaming
from timely.dataflow.operator import Activator
from timely.dataflow.operator_state import StateDeclarations
from timely.dataflow.origin import origin
from timely.dataflow.pact import Pact, Pipeline
from timely.dataflow.scope import ScopeBuilder
from timely.dataflow.spill import Queue
from timely.dataflow.stream import Stream
from timely.errors import CapabilityError, ErrorSubject, GraphError, ProgressError, TimestampError, brief
from timely.order import PartialOrder
from timely.progress import ChangeBatch, Source, Target
from timely.scopes import Counts, Scope, Summaries, ValidatingScope

T = TypeVar("T", bound=PartialOrder)

Given: TypeAlias = Stream[T, Any] | tuple[Stream[T, Any], Pact]
"""What an input reads: a stream, or a stream with the pact by which its records are dealt to the workers."""


class Inlet(Generic[T]):
    """What has come to one input of a scope: iterate over it for ``(time, batch)`` pairs, oldest first; ``len`` of them wait.

    It can be read during ``pull_internal_progress`` only. What was read is reported as ``consumed[input]``, so many records at
    their time, in that pull or in a later one; until then it counts as on its way, and holds its time back.
    """

    __slots__ = ("label", "open", "place", "queue", "read")

    def __init__(self, label: str, place: Callable[[], ErrorSubject]) -> None:
        self.label = label
        self.place = place
        self.open = False
        self.queue: Queue[T] = deque()
        self.read: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self.queue)

    def __iter__(self) -> Iterator[tuple[T, Any]]:
        while self.queue:
            if not self.open:
                raise CapabilityError(f"{self.label}: records can be taken only while the scope is pulled")
            time, batch, records = self.queue.popleft()
            self.read[time] = self.read.get(time, 0) + records
            yield time, batch

    def settle(self, consumed: ChangeBatch[T]) -> None:
        """Take in what the scope says it consumed; ``ProgressError`` where that is more than it has read."""
        for time, count in consumed:
            left = self.read.pop(time, 0) - count
            if left < 0:
                raise ProgressError(
                    f"{self.label}: the scope says that it consumed {count} records at {brief(time)}, and has read {left + count}"
                    " that it had not reported before; report what was read from the inlet"
                )
            if left:
                self.read[time] = left


class Outlet(Generic[T]):
    """Where a scope sends what it makes on one output, during ``pull_internal_progress`` only.

    What is sent is reported in the same pull, as ``produced[output]``: so many records at their time.
    """

    __slots__ = ("_check", "_sent", "_tee", "label", "open")

    def __init__(self, label: str, check: Callable[[object], None], tee: list[Pusher[T]]) -> None:
        self.label = label
        self.open = False
        self._check = check
        self._tee = tee
        self._sent: list[tuple[T, Any, int]] = []

    def send(self, time: T, batch: Any) -> None:
        """Send a whole container (a list, an Arrow record batch, an array), which must not be changed afterwards."""
        if not self.open:
            raise CapabilityError(f"{self.label}: records can be sent only while the scope is pulled")
        self._check(time)
        if len(batch):
            self._sent.append((time, batch, len(batch)))

    def settle(self, produced: ChangeBatch[T]) -> None:
        """Compare what was sent with what the scope says of it; ``ProgressError`` where that differs."""
        counts: ChangeBatch[T] = ChangeBatch((time, records) for time, _, records in self._sent)
        sent, said = dict(counts), dict(produced)
        for time in [*sent, *said]:
            if sent.get(time, 0) != said.get(time, 0):
                raise ProgressError(
                    f"{self.label}: the scope says that it produced {said.get(time, 0)} records at {brief(time)}, and sent"
                    f" {sent.get(time, 0)} in this pull; report what was sent to the outlet, in the same pull"
                )

    def release(self) -> None:
        """Let go what was sent."""
        sent, self._sent = self._sent, []
        for time, batch, records in sent:
            for pusher in self._tee:
                pusher.push(time, batch, records)


class DataScope(Scope[T], Protocol[T]):
    """A ``Scope`` of one's own that takes or makes records."""

    def connect(self, inlets: Sequence[Inlet[T]], outlets: Sequence[Outlet[T]], activate: Callable[[], None]) -> None:
        """Take its inlets, one for each input, its outlets, one for each output, and what has it pulled soon.

        Called once, when it is added. ``activate()`` may be called from any thread, and wakes a worker that waits; inlets and
        outlets belong to the worker's thread.
        """
        ...


class CustomScope(ValidatingScope[T]):
    """A scope of somebody's own in a dataflow: its records and its counts go together, or not at all."""

    def __init__(self, scope: Scope[T], name: str, builder: ScopeBuilder[T]) -> None:
        self.index = len(builder.subgraph.children)
        super().__init__(scope, name, f"{builder.path}/{name}#{self.index}")
        self._builder = builder
        self._takes_data = hasattr(scope, "connect")
        self.inlets: list[Inlet[T]] = [
            Inlet(f"input {port} of scope {name!r} ({self.path})", self.place) for port in range(scope.inputs)
        ]
        self.tees: list[list[Pusher[T]]] = [[] for _ in range(scope.outputs)]
        self._outlets = [
            Outlet(f"output {port} of scope {name!r} ({self.path})", builder.subgraph.domain.check, tee)
            for port, tee in enumerate(self.tees)
        ]
        allocator = builder.allocator
        self._bell = allocator.new_sync_activator(self._activate)
        activator, keeping = Activator(builder.subgraph, self.index, allocator), StateDeclarations(allocator.keeper)
        self.info = OperatorInfo(name, self.index, self.path, activator, allocator.index, allocator.peers, origin(), keeping)
        self._where = self.info.place("scope")

    def place(self) -> ErrorSubject:
        """Return what errors say of it."""
        return self._where

    def _activate(self) -> None:
        self._builder.subgraph.activate(self.index)

    def connect(self) -> None:
        """Give the scope its inlets and outlets."""
        if self._takes_data:
            scope: Any = self.scope
            with self._blamed():
                scope.connect(self.inlets, self._outlets, self._bell.ring)

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return what the scope says; ``TimestampError`` for an initial capability at what is no time here."""
        summaries, counts = super().get_internal_summary()
        for elements in counts:
            for time, _ in elements:
                try:
                    self._builder.subgraph.domain.check(time)
                except TimestampError as error:
                    raise TimestampError(f"scope {self.name!r} ({self.path}): an initial capability: {error}") from None
        return summaries, counts

    def ask_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Have the scope say what it says of itself."""
        with self._blamed():
            return super().ask_internal_summary()

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Pass on how the world leads back."""
        with self._blamed():
            super().set_external_summary(summaries, external)

    def keep(self) -> None:
        """Declare the scope's state, if it has a way to give and to take it back."""
        scope: Any = self.scope
        if not all(callable(getattr(scope, name, None)) for name in ("checkpoint", "restore")):
            return

        def load(states: Iterable[Any]) -> None:
            for state in states:
                scope.restore(state)

        with self._blamed():
            self.info.keep(lambda: [(None, scope.checkpoint())], load)

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Pass on how the frontiers moved."""
        with self._blamed():
            super().push_external_progress(external)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Pull the scope, check what it says, and let go what it sent."""
        before = sum(map(len, self.inlets))
        busy = super().pull_internal_progress(internal, consumed, produced)
        for inlet, taken in zip(self.inlets, consumed, strict=True):
            inlet.settle(taken)
        for outlet, made in zip(self._outlets, produced, strict=True):
            outlet.settle(made)
        with self._blamed():
            for outlet in self._outlets:
                outlet.release()
        if 0 < sum(map(len, self.inlets)) < before:  # one that leaves all of it waits for something else
            self._activate()
        self._bell.expected = busy and self.patient
        return busy

    def discard(self) -> None:
        """Let go of what has come and was not read: the dataflow goes no further."""
        for inlet in self.inlets:
            inlet.queue.clear()

    def ask(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Have the scope work and make its statement, with its inlets and outlets open."""
        ends: list[Inlet[T] | Outlet[T]] = [*self.inlets, *self._outlets]
        for end in ends:
            end.open = True
        try:
            with self._blamed():
                if not self._takes_data:
                    self._pass_over()
                busy = bool(self.scope.pull_internal_progress(internal, consumed, produced))
                if not (busy or self._takes_data):
                    self._account_for(consumed)
                for batch in (*internal, *consumed, *produced):
                    for time, _ in batch:
                        self._builder.subgraph.domain.check(time)
                return busy
        finally:
            for end in ends:
                end.open = False

    def _pass_over(self) -> None:
        """Drop what comes to a scope that speaks of progress alone."""
        for inlet in self.inlets:
            for _ in inlet:
                pass

    def _account_for(self, consumed: Sequence[ChangeBatch[T]]) -> None:
        """Say that what was dropped is consumed, as far as the scope has not: it has no more to say, and saw none of it."""
        for inlet, said in zip(self.inlets, consumed, strict=True):
            reported = dict(said)
            for time, records in inlet.read.items():
                said.update(time, max(0, records - reported.get(time, 0)))

    def _blamed(self) -> AbstractContextManager[None]:
        """Have what is raised name the scope."""
        return blaming(self._where, self.info.worker)


def add_scope(
    builder: ScopeBuilder[T], scope: Scope[T], inputs: Sequence[Given[T]] = (), name: str | None = None
) -> list[Stream[T, Any]]:
    """Plug ``scope``, an object with the methods of ``timely.Scope``, into the scope that ``builder`` builds.

    ``inputs`` are what its inputs read, in order: a stream, or ``(stream, pact)``. Returns the streams of its outputs, in order.
    Each worker adds an object of its own, which speaks for that worker. One that takes or makes records has ``connect`` as well,
    see ``timely.DataScope``; one without speaks of progress alone: what comes to it is dropped, and what it has not reported of
    that by the end of a pull that returns ``False`` counts as consumed. As long as a pull returns ``True`` the dataflow is not
    complete, and the scope is pulled again; one that is ``patient`` is pulled only when something came, a frontier moved or
    ``activate`` was called, and the worker waits meanwhile. Where the run is checkpointed it needs ``checkpoint()``, which
    returns its state, and ``restore(state)``, which is called in a run that goes on, after ``connect`` and before it is asked
    for its summary; such a run has as many workers.

    ``GraphError`` for an object that lacks some of the protocol, or for another number of inputs than it has, ``ScopeError``
    for a stream of another scope. At run time ``ProgressError`` for a statement that is not right, ``OperatorError`` for what
    the object raises. Source: "Hierarchical scopes" posts, 2014.

    >>> import timely
    >>> class Doubler:
    ...     inputs, outputs = 1, 1
    ...     def connect(self, inlets, outlets, activate):
    ...         self.inlet, self.outlet = inlets[0], outlets[0]
    ...     def get_internal_summary(self):
    ...         return [[timely.Antichain([timely.Step(0)])]], [[]]  # time stays as it is; no capability to begin with
    ...     def set_external_summary(self, summaries, external):
    ...         pass
    ...     def push_external_progress(self, external):
    ...         pass
    ...     def pull_internal_progress(self, internal, consumed, produced):
    ...         for time, batch in self.inlet:
    ...             self.outlet.send(time, [2 * x for x in batch])
    ...             consumed[0].update(time, len(batch))
    ...             produced[0].update(time, len(batch))
    ...         return False
    >>> timely.example(lambda scope: scope.add_scope(Doubler(), [scope.to_stream([1, 2])])[0])
    [(0, [2, 4])]
    """
    name = name or type(scope).__name__
    place = f"add_scope({name!r}) in {builder.path}"
    _check_protocol(scope, place)
    if not isinstance(inputs, Iterable):
        raise GraphError(f"{place}: give the streams that the scope reads in a list, one for each input, not {inputs!r}")
    streams = list(inputs)
    if len(streams) != scope.inputs:
        raise GraphError(f"{place}: the scope has {scope.inputs} inputs, and {len(streams)} streams were given")
    foreign = CustomScope(scope, name, builder)
    builder.subgraph.add_child(name, foreign)
    for port, (given, inlet) in enumerate(zip(streams, foreign.inlets, strict=True)):
        stream, pact = given if isinstance(given, tuple) else (given, Pipeline)
        if not isinstance(stream, Stream):
            raise GraphError(f"{place}: input {port} is to be a stream or (stream, pact), and is {stream!r}")
        connect(builder, stream, pact, Target(foreign.index, port), inlet)
    foreign.connect()
    foreign.keep()
    return [Stream(builder, Source(foreign.index, port), tee) for port, tee in enumerate(foreign.tees)]


def _check_protocol(scope: Scope[Any], place: str) -> None:
    """Raise ``GraphError`` for an object that is no scope."""
    methods = ("get_internal_summary", "set_external_summary", "push_external_progress", "pull_internal_progress")
    missing = [name for name in ("inputs", "outputs") if not isinstance(getattr(scope, name, None), int)]
    missing += [name for name in methods if not callable(getattr(scope, name, None))]
    if missing:
        raise GraphError(f"{place}: {scope!r} is no timely.Scope, it lacks {', '.join(missing)}")
    if isinstance(scope, type):
        raise GraphError(f"{place}: {scope!r} is a class: give an object of it, one for each worker")
    if getattr(scope, "patient", False) and not hasattr(scope, "connect"):
        raise GraphError(f"{place}: a scope that is patient needs connect(inlets, outlets, activate), or nothing would wake it")
