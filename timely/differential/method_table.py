"""The methods of arrangements, trace handles and collections that make objects of modules above their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder, Stream
from timely.differential.batches import to_batches
from timely.differential.collections import Collection, Pairs
from timely.differential.iteration import Body, iterate_from
from timely.differential.operators import collection_bases
from timely.differential.operators.arrangement import Arrangement
from timely.differential.operators.handles import TraceHandle
from timely.differential.operators.imports import import_trace
from timely.differential.updates.linear import linear
from timely.differential.updates.updates import Diff, Key
from timely.order import PartialOrder

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=PartialOrder, default=int)
D = TypeVar("D", default=Any)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
W = TypeVar("W", default=Any)
E = TypeVar("E", default=Any)


class CollectionMethods(Generic[T, D]):
    """The loops and the files of a collection."""

    __slots__ = ()

    def iterate(self, f: Body[D]) -> Collection[T, D]:
        """Return the limit of ``x = f(scope, x)``, which begins with this collection, at each time of its own.

        A loop that does not settle does not end; ``worker.explain`` shows what still changes.

        >>> import timely
        >>> from timely import differential as dd
        >>> def halve(scope, numbers):
        ...     return numbers.map(lambda x: x if x % 2 else x // 2)
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         odd = dd.collection(scope, range(1, 10)).iterate(halve).output()
        ...     odd.at(0)
        {1: 4, 3: 2, 5: 1, 7: 1, 9: 1}
        """
        return iterate_from(cast("Collection[T, D]", self), f)

    def to_batches(self, schema: pa.Schema | str | None = None, *, name: str = "to_batches") -> Stream[T, Any]:
        """Return the changes of each complete time as Arrow batches: the fields, and ``count``, by how much each row changed.

        ``schema``, a ``pyarrow.Schema`` or a text such as ``"key string, value long"``, is that of the collection unless it is
        given. Records are tuples by position; the innermost values of nested ones may be the columns. ``SchemaError`` without a
        schema, and for values that are not of its types.

        >>> import timely
        >>> from timely import differential as dd
        >>> def build(scope):
        ...     pairs = dd.collection(scope, [("a", 1), ("a", 1), ("b", 2)])
        ...     return pairs.to_batches("name string, n long")
        >>> timely.example(build)
        [(0, [('a', 1, 2), ('b', 2, 1)])]
        """
        return to_batches(cast("Collection[T, D]", self), schema, name)


class ArrangementMethods(Generic[T, K, V]):
    """The operators of an arrangement."""

    __slots__ = ()

    @property
    def trace(self) -> TraceHandle[Any, K, V]:
        """A new reader of the trace, at the times of the scope in which the collection was arranged."""
        arrangement = _whole(self)
        return TraceHandle(arrangement.index, arrangement.keep)

    def join(self, other: Pairs[T, K, W] | Arrangement[T, K, W], *, name: str = "join") -> Collection[T, tuple[K, tuple[V, W]]]:
        """Return ``(key, (left, right))``, as ``Collection.join`` does."""
        return _by_key(self).join(other, name=name, key=_key(self))

    def join_map(
        self, other: Pairs[T, K, W] | Arrangement[T, K, W], f: Callable[[K, V, W], E], *, name: str = "join_map"
    ) -> Collection[T, E]:
        """Return ``f(key, left, right)``, as ``Collection.join_map`` does."""
        return _by_key(self).join_map(other, f, name=name, key=_key(self))

    def semijoin(self, keys: Collection[T, K] | Arrangement[T, K], *, name: str = "semijoin") -> Pairs[T, K, V]:
        """Return the pairs whose key is in ``keys``, as ``Collection.semijoin`` does."""
        return _by_key(self).semijoin(keys, name=name, key=_key(self))

    def reduce(
        self, f: Callable[[K, list[tuple[V, Diff]]], Iterable[tuple[W, Diff]]], *, name: str = "reduce"
    ) -> Collection[T, tuple[K, W]]:
        """Return pairs of each key and the values of ``f(key, [(value, count), ...])``, as ``Collection.reduce`` does."""
        return _by_key(self).reduce(f, name=name, key=_key(self))

    def distinct(self, *, name: str = "distinct") -> Collection[T, Any]:
        """Return each record whose count is positive, once."""
        return _by_record(self).distinct(name=name)

    def count(self, *, name: str = "count") -> Collection[T, tuple[Any, Any]]:
        return _by_record(self).count(name=name)

    def as_collection(self, f: Callable[[K, V], object] | None = None) -> Collection[T, Any]:
        """Return the collection of its records, or of ``f(key, value)``."""
        made = _whole(self)
        stream = made.stream
        if made.imported is not None:  # its pieces are for those who look keys up
            stream = linear(stream, "records", made.imported.records)
        shared = None if made.keep else made
        whole: Collection[T, Any] = Collection(stream, made.index.ring, arrangement=shared, placement=made.placement)
        if made.keep is not None:
            whole = whole.filter(made.keep)
        if f is None:
            return whole
        chosen: Callable[..., Any] = f
        return whole.map((lambda pair: chosen(*pair)) if made.index.pairs else (lambda key: chosen(key, None)))


class TraceHandleMethods(Generic[T, K, V]):
    """The imports of a trace."""

    __slots__ = ()

    def import_into(self, scope: ScopeBuilder[Any], *, name: str = "import") -> Arrangement[T, K, V]:
        """Return the arrangement in another dataflow of the same worker, without a copy: ``close()`` it to end that dataflow.

        It starts with what is accumulated at ``since``, at the times of ``since``. Later history comes at its own times, and then
        what happens from now on.
        """
        handle = cast("TraceHandle[T, K, V]", self)
        handle.check_open("import_into")
        return import_trace(handle.index, handle.since, scope, handle.keep, name)


def _whole(methods: ArrangementMethods[T, K, V]) -> Arrangement[T, K, V]:
    return cast("Arrangement[T, K, V]", methods)


def _shared(arrangement: Arrangement[T, K, V]) -> Collection[T, Any]:
    """Return the collection of which operators by key read this trace; others would not filter it."""
    return Collection(arrangement.stream, arrangement.index.ring, arrangement=arrangement)


def _by_key(methods: ArrangementMethods[T, K, V]) -> Pairs[T, K, V]:
    arrangement = _whole(methods)
    return _shared(arrangement) if arrangement.index.pairs else arrangement.as_collection()


def _by_record(methods: ArrangementMethods[T, K, V]) -> Collection[T, Any]:
    arrangement = _whole(methods)
    return arrangement.as_collection() if arrangement.index.pairs else _shared(arrangement)


def _key(methods: ArrangementMethods[T, K, V]) -> Key | None:
    return _whole(methods).index.key


def _assemble(source: type, base: Any) -> None:
    for name, value in vars(source).items():
        if not name.startswith("_"):
            setattr(base, name, value)


_assemble(CollectionMethods, collection_bases.CollectionBase)
_assemble(ArrangementMethods, collection_bases.ArrangementBase)
_assemble(TraceHandleMethods, collection_bases.TraceHandleBase)
