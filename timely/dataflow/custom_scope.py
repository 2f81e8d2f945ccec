"""Custom scopes: ``add_scope`` adds an object that keeps its own progress to a dataflow, and gives it its data.

Its reports must be supported by something that it had, and match the records that it read and sent. The invariant: records leave
only after their report was found right, in the same pull.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs
from typing_extensions import override

from timely.dataflow.builder import connect
from timely.dataflow.channel import Pusher
from timely.dataflow.info import Activator, OperatorInfo, StateDeclarations, blaming
from timely.dataflow.origin import origin
from timely.dataflow.pact import Pact, Pipeline
from timely.dataflow.scope_builder import ScopeBuilder, Stream
from timely.dataflow.spill import Queue
from timely.errors import CapabilityError, ErrorSubject, GraphError, ProgressError, TimestampError, brief
from timely.order import PartialOrder
from timely.progress import ChangeBatch, Source, Target
from timely.scopes import Counts, Scope, Summaries, ValidatingScope

T = TypeVar("T", bound=PartialOrder)

ScopeInput: TypeAlias = Stream[T, Any] | tuple[Stream[T, Any], Pact]
"""What an input reads: a stream, or ``(stream, pact)``."""


@attrs.define(eq=False, repr=False)
class Inlet(Generic[T]):
    """The messages at one input of a custom scope: iterate for ``(time, batch)`` pairs, oldest first; ``len`` of them wait.

    Read it during ``pull_internal_progress`` only, and report the records as ``consumed[input]``, in that pull or later. Until
    then they hold their time back.
    """

    label: str
    place: Callable[[], ErrorSubject]
    open: bool = False
    queue: Queue[T] = attrs.field(factory=deque)
    read: dict[T, int] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self.queue)

    def __iter__(self) -> Iterator[tuple[T, Any]]:
        while self.queue:
            if not self.open:
                raise CapabilityError(f"{self.label}: records can be read only while the scope is pulled")
            time, batch, records = self.queue.popleft()
            self.read[time] = self.read.get(time, 0) + records
            yield time, batch

    def settle(self, consumed: ChangeBatch[T]) -> None:
        """Settle what the scope reports as consumed; ``ProgressError`` where that is more than it has read."""
        for time, count in consumed:
            left = self.read.pop(time, 0) - count
            if left < 0:
                raise ProgressError(
                    f"{self.label}: the scope reports that it consumed {count} records at {brief(time)}, and has read"
                    f" {left + count} that it had not reported before; report what was read from the inlet"
                )
            if left:
                self.read[time] = left


@attrs.define(eq=False, repr=False)
class Outlet(Generic[T]):
    """Where a custom scope sends on one output, during ``pull_internal_progress`` only.

    It reports the records in the same pull, as ``produced[output]``.
    """

    label: str
    _check: Callable[[object], None]
    _tee: list[Pusher[T]]
    _sent: list[tuple[T, Any, int]] = attrs.field(factory=list)
    open: bool = False

    def send(self, time: T, batch: Any) -> None:
        """Send a whole container (a list, an Arrow record batch, an array), which must not be changed afterwards."""
        if not self.open:
            raise CapabilityError(f"{self.label}: records can be sent only while the scope is pulled")
        self._check(time)
        if len(batch):
            self._sent.append((time, batch, len(batch)))

    def settle(self, produced: ChangeBatch[T]) -> None:
        """Raise ``ProgressError`` unless the scope reports what was sent."""
        counts: ChangeBatch[T] = ChangeBatch((time, records) for time, _, records in self._sent)
        sent, reported = dict(counts), dict(produced)
        for time in [*sent, *reported]:
            if sent.get(time, 0) != reported.get(time, 0):
                raise ProgressError(
                    f"{self.label}: the scope reports that it produced {reported.get(time, 0)} records at {brief(time)}, and sent"
                    f" {sent.get(time, 0)} in this pull; report what was sent to the outlet, in the same pull"
                )

    def release(self) -> None:
        sent, self._sent = self._sent, []
        for time, batch, records in sent:
            for pusher in self._tee:
                pusher.push(time, batch, records)


class DataScope(Scope[T], Protocol[T]):
    """A custom ``Scope`` that reads or sends records."""

    def connect(self, inlets: Sequence[Inlet[T]], outlets: Sequence[Outlet[T]], activate: Callable[[], None]) -> None:
        """Receive an inlet for each input, an outlet for each output, and ``activate``; called once, when it is added.

        ``activate()`` has the scope pulled soon, from any thread. Inlets and outlets belong to the worker's thread.
        """
        ...


class CustomScope(ValidatingScope[T]):
    """A custom scope in a dataflow: its records and its counts go together, or not at all."""

    def __init__(self, scope: Scope[T], name: str, builder: ScopeBuilder[T]) -> None:
        self.index = len(builder.subgraph.children)
        super().__init__(scope, name, f"{builder.path}/{name}#{self.index}")
        self._builder = builder
        self._has_data = hasattr(scope, "connect")
        self.inlets: list[Inlet[T]] = [
            Inlet(f"input {port} of scope {name!r} ({self.path})", self.place) for port in range(scope.inputs)
        ]
        self.tees: list[list[Pusher[T]]] = [[] for _ in range(scope.outputs)]
        self._outlets = [
            Outlet(f"output {port} of scope {name!r} ({self.path})", builder.subgraph.domain.check, tee)
            for port, tee in enumerate(self.tees)
        ]
        allocator = builder.allocator
        self._activator = allocator.new_sync_activator(self._activate)
        activator, state = Activator(builder.subgraph, self.index, allocator), StateDeclarations(allocator.registry)
        identity = builder.identities.add(self.path, builder.path, name)
        relation = builder.identities.relation_of[self.path]
        self.info = OperatorInfo(
            name, self.index, self.path, activator, allocator.index, allocator.peers, origin(), identity, relation, state
        )
        self._where = self.info.place("scope")

    def place(self) -> ErrorSubject:
        return self._where

    def _activate(self) -> None:
        self._builder.subgraph.activate(self.index)

    def connect(self) -> None:
        if self._has_data:
            scope: Any = self.scope
            with self._blamed():
                scope.connect(self.inlets, self._outlets, self._activator.activate)

    @override
    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        summaries, counts = super().get_internal_summary()
        for elements in counts:
            for time, _ in elements:
                try:
                    self._builder.subgraph.domain.check(time)
                except TimestampError as error:
                    raise TimestampError(f"scope {self.name!r} ({self.path}): an initial capability: {error}") from None
        return summaries, counts

    @override
    def ask_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        with self._blamed():
            return super().ask_internal_summary()

    @override
    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        with self._blamed():
            super().set_external_summary(summaries, external)

    def register_state(self) -> None:
        """Register the scope's state, if it has ``checkpoint`` and ``restore``."""
        scope: Any = self.scope
        if not all(callable(getattr(scope, name, None)) for name in ("checkpoint", "restore")):
            return

        def load(states: Iterable[Any]) -> None:
            for state in states:
                scope.restore(state)

        with self._blamed():
            self.info.register_state(lambda: [(None, scope.checkpoint())], load)

    @override
    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        with self._blamed():
            super().push_external_progress(external)

    @override
    def pull_internal_progress(
        self, internal: Sequence[ChangeBatch[T]], consumed: Sequence[ChangeBatch[T]], produced: Sequence[ChangeBatch[T]]
    ) -> bool:
        before = sum(map(len, self.inlets))
        busy = super().pull_internal_progress(internal, consumed, produced)
        for inlet, read in zip(self.inlets, consumed, strict=True):
            inlet.settle(read)
        for outlet, sent in zip(self._outlets, produced, strict=True):
            outlet.settle(sent)
        with self._blamed():
            for outlet in self._outlets:
                outlet.release()
        if 0 < sum(map(len, self.inlets)) < before:  # a scope that leaves all of it waits for something else
            self._activate()
        self._activator.expected = busy and self.patient
        return busy

    def discard(self) -> None:
        """Free what was not read: the dataflow is complete or dropped."""
        for inlet in self.inlets:
            inlet.queue.clear()

    @override
    def ask(
        self, internal: Sequence[ChangeBatch[T]], consumed: Sequence[ChangeBatch[T]], produced: Sequence[ChangeBatch[T]]
    ) -> bool:
        ends: list[Inlet[T] | Outlet[T]] = [*self.inlets, *self._outlets]
        for end in ends:
            end.open = True
        try:
            with self._blamed():
                if not self._has_data:
                    for inlet in self.inlets:
                        for _ in inlet:
                            pass  # it reports progress alone, so its records are dropped
                busy = bool(self.scope.pull_internal_progress(internal, consumed, produced))
                if not (busy or self._has_data):
                    self._count_dropped(consumed)
                for batch in (*internal, *consumed, *produced):
                    for time, _ in batch:
                        self._builder.subgraph.domain.check(time)
                return busy
        finally:
            for end in ends:
                end.open = False

    def _count_dropped(self, consumed: Sequence[ChangeBatch[T]]) -> None:
        for inlet, changes in zip(self.inlets, consumed, strict=True):
            reported = dict(changes)
            for time, records in inlet.read.items():
                changes.update(time, max(0, records - reported.get(time, 0)))

    def _blamed(self) -> AbstractContextManager[None]:
        return blaming(self._where, self.info.worker)


def add_scope(
    scope: ScopeBuilder[T], scope_object: Scope[T], inputs: Sequence[ScopeInput[T]] = (), name: str | None = None
) -> list[Stream[T, Any]]:
    """Add ``scope_object``, an object with the methods of ``timely.Scope``; return the streams of its outputs, in order.

    ``inputs`` are what its inputs read: a stream each, or ``(stream, pact)``. Each worker adds its own object.

    - A scope that reads or sends records has ``connect`` too, see ``timely.DataScope``. Without it, records that arrive are
      dropped, and count as consumed once a pull returns ``False``.
    - While a pull returns ``True`` the dataflow is not complete, and the scope is pulled again. A ``patient`` scope is only
      pulled when a message arrives, a frontier moves or ``activate`` is called.
    - For checkpoints it has ``checkpoint()``, which returns its state, and ``restore(state)``, which is called after ``connect``
      and before it is asked for its summary. Such a run goes on with as many workers.

    ``GraphError`` for an object that lacks some of the protocol, or another number of inputs; ``GraphError`` for a stream of
    another scope; at run time ``ProgressError`` for a wrong report and ``OperatorError`` for what the object raises. Source:
    "Hierarchical scopes" posts, 2014.

    >>> import timely
    >>> class Idle:
    ...     inputs, outputs = 0, 0
    ...     get_internal_summary = lambda self: ([], [])
    ...     set_external_summary = lambda self, summaries, external: None
    ...     push_external_progress = lambda self, external: None
    ...     pull_internal_progress = lambda self, internal, consumed, produced: False
    >>> with timely.Worker().dataflow() as scope:
    ...     scope.add_scope(Idle())
    []
    """
    name = name or type(scope_object).__name__
    place = f"add_scope({name!r}) in {scope.path}"
    _check_protocol(scope_object, place)
    if not isinstance(inputs, Iterable):
        raise GraphError(f"{place}: give the streams that the scope reads in a list, one for each input, not {inputs!r}")
    streams = list(inputs)
    if len(streams) != scope_object.inputs:
        raise GraphError(f"{place}: the scope has {scope_object.inputs} inputs, and {len(streams)} streams were given")
    custom = CustomScope(scope_object, name, scope)
    scope.subgraph_builder.add_child(name, custom)
    for port, (edge, inlet) in enumerate(zip(streams, custom.inlets, strict=True)):
        stream, pact = edge if isinstance(edge, tuple) else (edge, Pipeline)
        if not isinstance(stream, Stream):
            raise GraphError(f"{place}: input {port} is to be a stream or (stream, pact), and is {stream!r}")
        connect(scope, stream, pact, Target(custom.index, port), inlet)
    custom.connect()
    custom.register_state()
    return [Stream(scope, Source(custom.index, port), tee) for port, tee in enumerate(custom.tees)]


def _check_protocol(scope: Scope[Any], place: str) -> None:
    methods = ("get_internal_summary", "set_external_summary", "push_external_progress", "pull_internal_progress")
    missing = [name for name in ("inputs", "outputs") if not isinstance(getattr(scope, name, None), int)]
    missing += [name for name in methods if not callable(getattr(scope, name, None))]
    if missing:
        raise GraphError(f"{place}: {scope!r} is no timely.Scope, it lacks {', '.join(missing)}")
    if isinstance(scope, type):
        raise GraphError(f"{place}: {scope!r} is a class: give an object of it, one for each worker")
    if getattr(scope, "patient", False) and not hasattr(scope, "connect"):
        raise GraphError(f"{place}: a scope that is patient needs connect(inlets, outlets, activate), or nothing would wake it")
