"""``Arrangement``: a collection indexed by key, which any number of operators share.

The operator that arranges appends each delta to its trace and passes it on at once, before its time is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

import attrs
from typing_extensions import TypeVar

from timely.dataflow import Activator, Capability, InputPort, OperatorBuilder, OperatorInfo, OutputPort, ScopeBuilder, Stream
from timely.differential.rings import Ring
from timely.differential.trace import Cursor, Hold, Trace
from timely.differential.updates import ByUpdate, as_columns, by_key, by_record, consolidate
from timely.operators.state import key_route
from timely.order import PartialOrder
from timely.progress import Lattice, lattice

if TYPE_CHECKING:
    from timely.differential.collections import Collection

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


@attrs.define(eq=False)
class Index:
    """The trace of an arrangement, and what concerns all who use it, in whatever scope."""

    trace: Trace[Any]
    key: Callable[[Any], Any] | None
    ring: Ring
    path: str
    scope: ScopeBuilder[Any]
    activator: Activator | None = None
    released: bool = False

    @property
    def pairs(self) -> bool:
        """Whether records are pairs of a key and a value."""
        return self.trace.pairs

    def activate(self) -> None:
        """Have the operator compact its trace, of which a reader has let go."""
        self.released = True
        if self.activator is not None:
            self.activator.activate()


class Arrangement(Generic[T, K, V]):
    """A collection indexed by key on each worker; made by ``arrange_by_key()`` or ``arrange_by_self()``.

    ``stream`` has its deltas.
    """

    __slots__ = ("_to_inner", "_to_outer", "index", "keep", "stream")

    def __init__(
        self,
        stream: Stream[T, Any],
        index: Index,
        to_inner: Callable[[Any], T] | None = None,
        to_outer: Callable[[T], Any] | None = None,
        keep: Callable[[Any], bool] | None = None,
    ) -> None:
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
        return Cursor(self.index.trace, self.lattice, hold, self._to_inner, self._to_outer, self.keep)

    def enter(self, scope: ScopeBuilder[Any]) -> Arrangement[Any, K, V]:
        """Return it inside ``scope``, which is nested directly in its own: the same trace, without a copy."""
        stream = self.stream.enter(scope)
        way = scope.subgraph.refinement
        if way.identity:
            return Arrangement(stream, self.index, self._to_inner, self._to_outer, self.keep)
        return Arrangement(
            stream, self.index, _composed(self._to_inner, way.to_inner), _composed(way.to_outer, self._to_outer), self.keep
        )

    def as_collection(self, f: Callable[[K, V], Any] | None = None) -> Collection[T, Any]:
        """Return the collection of its records, or of ``f(key, value)``."""
        from timely.differential.collections import Collection

        whole: Collection[T, Any] = Collection(self.stream, self.index.ring, arrangement=None if self.keep else self)
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
        register_trace(info, trace, key)
        index.activator = info.activator
        info.describe(trace.size)

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> bool:
            appended = 0
            for capability, batch in input:
                columns = as_columns([batch], pairs)
                delta: Any
                if columns is not None:
                    delta = trace.append_columns(capability.time, columns.consolidated())
                else:
                    delta = trace.append(capability.time, consolidate(batch))
                if delta:
                    output.session(capability).give_batch(delta)
                    appended += len(delta)
            released, index.released = index.released, False
            return trace.maintain(appended, released)

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


def register_trace(info: OperatorInfo, trace: Trace[Any], key: Callable[[Any], Any] | None) -> None:
    """Register a trace as state: its entries by key, with times advanced to those that can still be told apart."""
    route = key_route(key)

    def save() -> Iterator[tuple[int, tuple[Any, Sequence[Any]]]]:
        trace.compact()
        for key in trace:
            yield route(key), (key, trace.history(key))

    def load(items: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        for key, entries in items:
            trace.load(key, entries)

    info.register_state(save, load)
