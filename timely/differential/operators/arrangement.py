"""``Arrangement``: a collection indexed by key, which any number of operators share.

The operator that arranges appends each delta to its trace and passes it on at once, before its time is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from timely.dataflow import (
    Activator,
    Capability,
    InputCapability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    ScopeBuilder,
    Stream,
    SyncActivator,
)
from timely.differential.operators.collection_bases import ArrangementBase
from timely.differential.operators.scope_times import bounds_in
from timely.differential.trace.compaction_frontier import Hold, Move
from timely.differential.trace.cursors import Cursor, Keep
from timely.differential.trace.entries import Entry
from timely.differential.trace.state_memory import guarded
from timely.differential.trace.trace import Trace
from timely.differential.trace.trace_state import TraceState
from timely.differential.updates.rings import Ring
from timely.differential.updates.updates import ByUpdate, Container, Key, Update, by_key, by_record
from timely.errors import GraphError
from timely.order import PartialOrder
from timely.progress import Lattice, lattice

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


Messages: TypeAlias = Iterable[tuple[InputCapability[T], Container]]
"""What has arrived at a port, of whatever containers."""


class Import(Protocol):
    """The import of a trace into another dataflow."""

    def cursor(self, *arguments: Any) -> Cursor[Any]:
        """Return a new reader, which has seen nothing yet; the arguments are those of ``Cursor``."""

    def records(self, batch: Container) -> Any:
        """Return what it sends as a container of updates."""

    def close(self) -> None:
        """End it."""


class Index:
    """The trace of an arrangement, and what concerns all who use it, in whatever scope."""

    def __init__(self, trace: Trace[Any], key: Key | None, ring: Ring, path: str, scope: ScopeBuilder[Any]) -> None:
        self.trace = trace
        self.key = key
        self.ring = ring
        self.path = path
        self.scope = scope
        self.activator: Activator | None = None
        self.sync_activator: SyncActivator | None = None  # for readers that are collected, at any moment
        self.ended = False
        self.imports: list[Callable[[], object]] = []  # called when deltas have come, or the frontier has moved

    @property
    def pairs(self) -> bool:
        """Whether records are pairs of a key and a value."""
        return self.trace.pairs

    def connect(self, info: OperatorInfo) -> None:
        """Take the operator that appends to the trace."""
        self.activator = info.activator
        self.sync_activator = self.scope.allocator.new_sync_activator(self.release)
        info.at_end(self.end)

    def notify(self) -> None:
        """Activate the imports of the trace."""
        for call in self.imports:
            call()

    def release(self) -> None:
        """Compact the trace in the operator, after a reader has let go."""
        self.trace.holds.reader_released = True
        self.activate()

    def activate(self) -> None:
        """Compact the trace after a reader has advanced: in the operator, or at once if the dataflow is complete."""
        self.trace.holds.reader_advanced = True
        if self.ended:
            if self.trace.holds.moves():
                self.trace.compact()
        elif self.activator is not None:
            self.activator.activate()

    def end(self) -> None:
        """Take note that the dataflow is complete or dropped."""
        self.ended = True
        self.notify()


class Arrangement(ArrangementBase[T, K, V], Generic[T, K, V]):
    """A collection indexed by key on each worker; made by ``arrange_by_key()`` or ``arrange_by_self()``.

    ``stream`` has its deltas. Join it, reduce it or read it any number of times: its trace is one.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         edges = dd.collection(scope, [(1, 2), (2, 3)]).arrange_by_key()
    ...         start = dd.collection(scope, [(1, "a")])
    ...         steps = edges.join_map(start, lambda node, target, label: (target, label)).output()
    ...         trace = edges.trace
    ...     steps.at(0), trace.get(2, at=0)
    ({(2, 'a'): 1}, {3: 1})
    """

    __slots__ = ("_to_inner", "_to_outer", "imported", "index", "keep", "stream")

    def __init__(
        self,
        stream: Stream[T, Update],
        index: Index,
        to_inner: Move | None = None,
        to_outer: Move | None = None,
        keep: Keep | None = None,
        imported: Import | None = None,
    ) -> None:
        self.imported = imported
        self.stream = stream
        self.index = index
        self.keep = keep
        self._to_inner = to_inner
        self._to_outer = to_outer

    def __repr__(self) -> str:
        return f"Arrangement({self.index.path!r})"

    @property
    def scope(self) -> ScopeBuilder[T]:
        return self.stream.scope

    @property
    def lattice(self) -> Lattice[T]:
        """The lattice of the scope's times."""
        return lattice(self.scope.time)

    @property
    def placement(self) -> ByUpdate:
        """Which worker has an update."""
        return pact_for(self.index.pairs, self.index.key)

    def cursor(self, hold: Hold) -> Cursor[T]:
        """Return a new reader, which has to see every delta of ``stream`` and holds history at ``hold()``."""
        make = Cursor if self.imported is None else self.imported.cursor
        return make(self.index.trace, self.lattice, hold, self._to_inner, self._to_outer, self.keep)

    def enter(self, scope: ScopeBuilder[Any]) -> Arrangement[Any, K, V]:
        """Return it inside ``scope``, which is nested directly in its own: the same trace, without a copy."""
        stream = self.stream.enter(scope)
        way = scope.subgraph.refinement
        if way.identity:
            return Arrangement(stream, self.index, self._to_inner, self._to_outer, self.keep, self.imported)
        to_inner, to_outer = _composed(self._to_inner, way.to_inner), _composed(way.to_outer, self._to_outer)
        return Arrangement(stream, self.index, to_inner, to_outer, self.keep, self.imported)

    def close(self) -> None:
        """End an import, so that its dataflow can; what it has had stays. ``GraphError`` for what was not imported."""
        if self.imported is None:
            raise GraphError(f"{self!r} was not imported: close its input, or drop its dataflow")
        self.imported.close()

    # -- operators -------------------------------------------------------------------------------------------------

    def filter_trace(self, p: Callable[[K, V], object]) -> Arrangement[T, K, V]:
        """Return the same trace without the records for which ``p(key, value)`` is false; they are filtered when read."""
        before, pairs = self.keep, self.index.pairs

        def keep(record: Any) -> bool:
            return bool((before is None or before(record)) and (p(*record) if pairs else p(record, None)))  # type: ignore[arg-type]

        return Arrangement(self.stream, self.index, self._to_inner, self._to_outer, keep, self.imported)


def _composed(first: Move | None, then: Move | None) -> Move | None:
    if first is None or then is None:
        return first or then
    one, two = first, then
    return lambda time: two(one(time))


def arrange(
    stream: Stream[T, Update], ring: Ring, pairs: bool, key: Key | None = None, name: str | None = None
) -> Arrangement[T, Any, Any]:
    """Return the arrangement of a stream of updates: by the first part of pairs, or by the records themselves."""
    name = name or ("arrange_by_key" if pairs else "arrange_by_self")
    builder: OperatorBuilder[T] = OperatorBuilder(stream.scope, name)
    port = builder.new_input(stream, pact_for(pairs, key))
    output = builder.new_output()
    trace: Trace[T] = Trace(bounds_in(stream.scope), pairs, lambda: port.elements)
    index = Index(trace, key, ring, builder.info.path, stream.scope)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        register_trace(info, trace, key)
        index.connect(info)
        info.describe(trace.size)

        def logic(input: InputPort[T, Update], output: OutputPort[T]) -> bool:
            appended = 0
            for capability, batches in _together(input, trace.limits.delta):
                time = capability.time
                for delta in trace.row_deltas(time, batches):  # one that is not sent would never be seen
                    output.session(capability).give_batch(trace.append(time, delta))
                    appended += len(delta)
            index.notify()
            return trace.maintain(appended)

        return guarded(info, logic, trace.size)

    builder.build(constructor)
    return Arrangement(output, index)


def _together(input: Messages[T], most: int) -> Iterator[tuple[InputCapability[T], list[Container]]]:
    """Yield what has arrived in order; batches of one time and type in a row come together, of about ``most`` updates."""
    batches: list[Container] = []
    held, updates = None, 0
    for capability, batch in input:
        if held is not None and (updates > most or capability.time != held.time or type(batch) is not type(batches[0])):
            yield held, batches
            held = None
        if held is None:
            held, updates, batches = capability, 0, []
        batches.append(batch)
        updates += len(batch)
    if held is not None:
        yield held, batches


def describe_shared(info: OperatorInfo, index: Index) -> None:
    """Show, at an operator that reads a shared trace, the name of its owner, which shows the size."""
    path = index.path.removeprefix(info.path.removesuffix(f"{info.name}#{info.index}"))
    info.describe(lambda: f"reads {path}")


def pact_for(pairs: bool, key: Key | None) -> ByUpdate:
    """Return the pact of an operator that keeps updates by key."""
    return by_key(key) if pairs else by_record(key)


def register_trace(
    info: OperatorInfo,
    trace: Trace[Any],
    key: Key | None,
    more: Callable[[], Iterable[tuple[object, Sequence[Entry]]]] | None = None,
) -> None:
    """Register a trace as state: its entries by key, with times advanced to those that operators can still tell apart.

    ``more`` returns entries that belong to it but are kept elsewhere; they are loaded into the trace.
    """
    info.declare_collection()
    TraceState(info, trace, key, more)
