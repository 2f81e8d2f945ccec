"""``Arrangement``: a collection indexed by key, which any number of operators share.

The operator that arranges appends each delta to its trace and passes it on at once, before its time is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

import attrs
from typing_extensions import TypeVar

from timely.dataflow import (
    Activator,
    Capability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    ScopeBuilder,
    Stream,
    SyncActivator,
)
from timely.differential.linear import linear
from timely.differential.rings import Ring
from timely.differential.trace import Cursor, Entry, Hold, Trace
from timely.differential.trace_state import TraceState
from timely.differential.updates import ByUpdate, as_columns, by_key, by_record, consolidate
from timely.errors import GraphError
from timely.operators.input import resume_time
from timely.operators.state import register_union_state
from timely.order import PartialOrder
from timely.progress import Lattice, lattice

if TYPE_CHECKING:
    from timely.differential.collections import Collection
    from timely.differential.handles import TraceHandle

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class Import(Protocol):
    """The import of a trace into another dataflow."""

    def cursor(self, *arguments: Any) -> Cursor[Any]:
        """Return a new reader, which has seen nothing yet; the arguments are those of ``Cursor``."""

    def records(self, batch: Any) -> Any:
        """Return what it sends as a container of updates."""

    def close(self) -> None:
        """End it."""


@attrs.define(eq=False)
class Index:
    """The trace of an arrangement, and what concerns all who use it, in whatever scope."""

    trace: Trace[Any]
    key: Callable[[Any], Any] | None
    ring: Ring
    path: str
    scope: ScopeBuilder[Any]
    activator: Activator | None = None
    sync_activator: SyncActivator | None = None  # for readers that are collected, at any moment
    ended: bool = False
    imports: list[Callable[[], object]] = attrs.Factory(list)  # called when deltas have come, or the frontier has moved

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
        """Have the imports of the trace look what has come."""
        for call in self.imports:
            call()

    def release(self) -> None:
        """Have the operator compact its trace, of which a reader has let go."""
        self.trace.released = True
        self.activate()

    def activate(self) -> None:
        """Have the operator compact its trace, or do it where the dataflow is complete; a reader has advanced."""
        self.trace.advanced = True
        if self.ended:
            if self.trace.moves():
                self.trace.compact()
        elif self.activator is not None:
            self.activator.activate()

    def end(self) -> None:
        """Take note that the dataflow is complete or dropped."""
        self.ended = True
        self.notify()


class Arrangement(Generic[T, K, V]):
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
        stream: Stream[T, Any],
        index: Index,
        to_inner: Callable[[Any], T] | None = None,
        to_outer: Callable[[T], Any] | None = None,
        keep: Callable[[Any], bool] | None = None,
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
        """The scope that it is in."""
        return self.stream.scope

    @property
    def lattice(self) -> Lattice[T]:
        """The lattice of the scope's times."""
        return lattice(self.scope.time)

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

    @property
    def trace(self) -> TraceHandle[Any, K, V]:
        """A new reader of the trace, at the times of the scope in which the collection was arranged."""
        from timely.differential.handles import TraceHandle

        return TraceHandle(self.index, self.keep)

    def close(self) -> None:
        """End an import, so that its dataflow can; what it has had stays. ``GraphError`` for what was not imported."""
        if self.imported is None:
            raise GraphError(f"{self!r} was not imported: close its input, or drop its dataflow")
        self.imported.close()

    # -- operators -------------------------------------------------------------------------------------------------

    def filter_trace(self, p: Callable[[K, V], Any]) -> Arrangement[T, K, V]:
        """Return the same trace without the records for which ``p(key, value)`` is false; they are filtered when read."""
        before, pairs = self.keep, self.index.pairs

        def keep(record: Any) -> bool:
            return bool((before is None or before(record)) and (p(*record) if pairs else p(record, None)))  # type: ignore[arg-type]

        return Arrangement(self.stream, self.index, self._to_inner, self._to_outer, keep, self.imported)

    def join(self, other: Any, *, name: str = "join") -> Collection[T, Any]:
        """Return ``(key, (left, right))``, as ``Collection.join`` does."""
        return self._pairs().join(other, name=name, key=self.index.key)

    def join_map(self, other: Any, f: Callable[[K, V, Any], Any], *, name: str = "join_map") -> Collection[T, Any]:
        """Return ``f(key, left, right)``, as ``Collection.join_map`` does."""
        return self._pairs().join_map(other, f, name=name, key=self.index.key)

    def semijoin(self, keys: Any, *, name: str = "semijoin") -> Collection[T, Any]:
        """Return the pairs whose key is in ``keys``, as ``Collection.semijoin`` does."""
        return self._pairs().semijoin(keys, name=name, key=self.index.key)

    def reduce(
        self, f: Callable[[K, list[tuple[V, Any]]], Iterable[tuple[Any, Any]]], *, name: str = "reduce"
    ) -> Collection[T, tuple[K, Any]]:
        """Return pairs of each key and the values of ``f(key, [(value, count), ...])``, as ``Collection.reduce`` does."""
        return self._pairs().reduce(f, name=name, key=self.index.key)

    def distinct(self, *, name: str = "distinct") -> Collection[T, Any]:
        """Return each record whose count is positive, once."""
        return self._records().distinct(name=name)

    def count(self, *, name: str = "count") -> Collection[T, tuple[Any, Any]]:
        """Return ``(record, count)`` for each record."""
        return self._records().count(name=name)

    def _shared(self) -> Collection[T, Any]:
        """Return the collection of which operators by key read this trace; others would not filter it."""
        from timely.differential.collections import Collection

        return Collection(self.stream, self.index.ring, arrangement=self)

    def _pairs(self) -> Collection[T, Any]:
        return self._shared() if self.index.pairs else self.as_collection()

    def _records(self) -> Collection[T, Any]:
        return self.as_collection() if self.index.pairs else self._shared()

    def as_collection(self, f: Callable[[K, V], Any] | None = None) -> Collection[T, Any]:
        """Return the collection of its records, or of ``f(key, value)``."""
        from timely.differential.collections import Collection

        stream = self.stream
        if self.imported is not None:  # its pieces are for those who look keys up
            stream = linear(stream, "records", self.imported.records)
        whole: Collection[T, Any] = Collection(stream, self.index.ring, arrangement=None if self.keep else self)
        if self.keep is not None:
            whole = whole.filter(self.keep)
        if f is None:
            return whole
        chosen = f
        return whole.map((lambda pair: chosen(*pair)) if self.index.pairs else (lambda key: chosen(key, None)))  # type: ignore[arg-type]


def _composed(first: Callable[[Any], Any] | None, then: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if first is None or then is None:
        return first or then
    one, two = first, then
    return lambda time: two(one(time))


def arrange(
    stream: Stream[T, Any], ring: Ring, pairs: bool, key: Callable[[Any], Any] | None = None, name: str | None = None
) -> Arrangement[T, Any, Any]:
    """Return the arrangement of a stream of updates: by the first part of pairs, or by the records themselves."""
    name = name or ("arrange_by_key" if pairs else "arrange_by_self")
    builder: OperatorBuilder[T] = OperatorBuilder(stream.scope, name)
    port = builder.new_input(stream, pact_for(pairs, key))
    output = builder.new_output()
    trace: Trace[T] = Trace(lattice(stream.scope.time), pairs, lambda: port.elements)
    index = Index(trace, key, ring, builder.info.path, stream.scope)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        register_trace(info, trace, key, stream.scope)
        index.connect(info)
        info.describe(trace.size)

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> bool:
            appended = 0
            for capability, batch in input:
                columns = as_columns([batch], pairs)
                updates: Any = consolidate(batch) if columns is None else columns.consolidated()
                if not updates:
                    continue  # a delta that is not sent would never be seen
                append = trace.append if columns is None else trace.append_columns
                output.session(capability).give_batch(append(capability.time, updates))
                appended += len(updates)
            index.notify()
            return trace.maintain(appended)

        return logic

    builder.build(constructor)
    return Arrangement(output, index)


def describe_shared(info: OperatorInfo, index: Index) -> None:
    """Have an operator that reads a shared trace name whose it is; that one shows its size."""
    path = index.path.removeprefix(info.path.removesuffix(f"{info.name}#{info.index}"))
    info.describe(lambda: f"reads {path}")


def pact_for(pairs: bool, key: Callable[[Any], Any] | None) -> ByUpdate:
    """Return the pact of an operator that keeps updates by key."""
    return by_key(key) if pairs else by_record(key)


def register_trace(
    info: OperatorInfo,
    trace: Trace[Any],
    key: Callable[[Any], Any] | None,
    scope: ScopeBuilder[Any],
    more: Callable[[], Iterable[tuple[Any, Sequence[Entry]]]] | None = None,
) -> None:
    """Register a trace as state: its entries by key, with times advanced to those that operators can still tell apart.

    ``more`` returns entries that belong to it but are kept elsewhere; they are loaded into the trace.
    """

    def resume(items: Iterable[Sequence[Any]]) -> None:
        for since in items:
            trace.resume(since)

    begins = resume_time(scope, info)
    if begins is not None:
        trace.resume([begins.first])
    register_union_state(info, lambda: [trace.at_rest()], resume)
    TraceState(info, trace, key, more)
