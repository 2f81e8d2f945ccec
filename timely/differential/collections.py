"""``Collection``: a multiset that changes with time, and its operators.

At every complete time, what an operator's output holds is the operator's function of what its inputs hold. Order, batches, and
whether equal updates come as one, are unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, ScopeBuilder, Stream, check_scope
from timely.dataflow.origin import origin
from timely.differential.inputs import InputSession
from timely.differential.operators.aggregates import Aggregate, Count, Sum, Top, greatest
from timely.differential.operators.arrangement import Arrangement, arrange, pact_for
from timely.differential.operators.collection_bases import CollectionBase
from timely.differential.operators.growing_sums import growing_sums
from timely.differential.operators.join_results import LEFT, PAIR, JoinResult, mapped
from timely.differential.operators.reductions import Function, by_value, reduce_stream
from timely.differential.operators.trace_joins import join_arrangements
from timely.differential.outputs import Output, output
from timely.differential.updates.containers import consolidated
from timely.differential.updates.linear import as_many_columns, delayed, linear
from timely.differential.updates.rings import INTEGERS, Ring, product_ring, ring_of
from timely.differential.updates.updates import ByUpdate, Container, Counts, Diff, Kernel, Key, Update
from timely.errors import CollectionMismatch, DifferenceError, GraphError, brief
from timely.operators.keyed.complete_times import by_time
from timely.operators.probes import ProbeHandle, probe
from timely.operators.program_inputs import new_input, to_stream
from timely.operators.routing import concat
from timely.operators.state_registration import key_route, register_keyed_state
from timely.order import PartialOrder, Product

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.connect import SinkConnector
    from timely.differential.updates.int_columns import Updates

T = TypeVar("T", bound=PartialOrder, default=int)
D = TypeVar("D", default=Any)
E = TypeVar("E", default=Any)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
W = TypeVar("W", default=Any)

Pairs: TypeAlias = "Collection[T, tuple[K, V]]"
"""Pairs of a key and a value."""


class Collection(CollectionBase[T, D], Generic[T, D]):
    """A multiset of records that changes with time, in one scope: a stream of updates ``(record, diff)`` at their times.

    Operators of pairs need tuples ``(key, value)``. Records are hashable. Operators that keep state take ``key=``: records are
    exchanged by ``key(k)`` instead of the key itself.
    """

    __slots__ = ("_arrangement", "arranged", "consolidated", "placement", "ring", "schema", "stream")

    def __init__(
        self,
        stream: Stream[T, Update],
        ring: Ring = INTEGERS,
        *,
        arrangement: Arrangement[T, Any, Any] | None = None,
        consolidated: bool = False,
        schema: pa.Schema | None = None,
        placement: ByUpdate | None = None,
    ) -> None:
        self.schema = schema
        self.stream = stream
        self.placement = placement  # which worker has an update; `None` where equal records may be on several
        self.ring = ring
        self._arrangement = arrangement
        self.arranged: dict[Any, Arrangement[T, Any, Any]] = {}  # what has been made of its records, for others to share
        self.consolidated = consolidated

    def __repr__(self) -> str:
        return f"Collection({self.stream!r})"

    @property
    def scope(self) -> ScopeBuilder[T]:
        """The scope that it is in."""
        return self.stream.scope

    def _linear(
        self, name: str, rows: Callable[[Iterable[Update]], Container], columns: Callable[[Updates], Container] | None = None
    ) -> Collection[T, Any]:
        return Collection(linear(self.stream, name, rows, columns), self.ring)

    def _like_self(self, other: Collection[Any, D]) -> Collection[Any, D]:
        """Return ``other``, which has records of the same fields, on the same workers unless it has exchanged them."""
        other.schema = self.schema
        other.placement = other.placement or self.placement
        return other

    # -- linear operators ------------------------------------------------------------------------------------------

    def map(self, f: Callable[[D], E], *, columns: Kernel | None = None, name: str = "map") -> Collection[T, E]:
        """Return the collection of ``f(record)``.

        ``columns(keys, values)``, or ``columns(keys)``, does the same for NumPy arrays: it returns an array, or two for pairs.
        Where it raises ``OverflowError``, ``f`` is called instead.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         edges, graph = dd.new_collection(scope)
        ...         back = graph.map(lambda edge: (edge[1], edge[0]), columns=lambda src, dst: (dst, src)).output()
        ...     edges.insert_columns([1, 2], [3, 4])
        ...     edges.close()
        ...     back.at(0)
        {(3, 1): 1, (4, 2): 1}
        """
        kernel = None if columns is None else lambda updates: updates.mapped(columns, name)
        return self._linear(name, lambda updates: [(f(record), diff) for record, diff in updates], kernel)

    def filter(self, p: Callable[[D], object], *, columns: Kernel | None = None, name: str = "filter") -> Collection[T, D]:
        """Return the collection of the records for which ``p(record)`` is true; ``columns`` is as in ``map``, for booleans."""
        kernel = None if columns is None else lambda updates: updates.chosen_by(columns)
        return self._like_self(self._linear(name, lambda updates: [update for update in updates if p(update[0])], kernel))

    def flat_map(
        self, f: Callable[[D], Iterable[E]], *, columns: Kernel | None = None, name: str = "flat_map"
    ) -> Collection[T, E]:
        """Return the collection of all records of ``f(record)``; ``columns`` returns a list of what that of ``map`` does.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         edges, graph = dd.new_collection(scope)
        ...         ends = graph.flat_map(lambda edge: edge, columns=lambda src, dst: [src, dst]).output()
        ...     edges.insert_columns([1, 2], [2, 3])
        ...     edges.close()
        ...     ends.at(0)
        {1: 1, 2: 2, 3: 1}
        """
        kernel = None if columns is None else lambda updates: updates.flat_mapped(columns, name)
        return self._linear(name, lambda updates: [(new, diff) for record, diff in updates for new in f(record)], kernel)

    def explode(self, f: Callable[[D], object], *, name: str = "explode") -> Collection[T, Any]:
        """Return the collection of ``new``, ``factor`` times, for the pair or pairs ``(new, factor)`` of ``f(record)``."""

        def explode(updates: Iterable[Update]) -> list[Update]:
            return [(new, diff * factor) for record, diff in updates for new, factor in _pairs(f(record))]

        return self._linear(name, explode)

    def concat(self, *others: Collection[T, D]) -> Collection[T, D]:
        """Return the sum of the collections."""
        for other in others:
            self._check_other(other, "concat")
        if not others:
            return self
        schema = self.schema if all(other.schema == self.schema for other in others) else None
        placement = self.placement if all(other.placement == self.placement for other in others) else None
        streams = (other.stream for other in others)
        return Collection(concat(self.stream, *streams), self.ring, schema=schema, placement=placement)

    def negate(self, *, name: str = "negate") -> Collection[T, D]:
        """Return the collection with all counts negated; ``DifferenceError`` where they cannot be."""
        self.ring.require("negate", "negate")
        return self._like_self(
            self._linear(name, lambda updates: [(record, -diff) for record, diff in updates], lambda updates: updates.negated())
        )

    def minus(self, other: Collection[T, D]) -> Collection[T, D]:
        """Return the difference of two collections."""
        self._check_other(other, "minus")
        return self.concat(other.negate())

    def _check_other(self, other: object, name: str) -> None:
        if not isinstance(other, Collection):
            raise GraphError(f"{name} takes collections, not {brief(other)}")
        if other.scope is not self.scope:
            raise GraphError(
                f"{name} of a collection of scope {self.scope.path!r} and one of scope {other.scope.path!r}: bring one of them in"
                " with enter(scope), or out with leave()"
            )
        if other.ring is not self.ring:
            product_ring(self.ring, other.ring, name)
            raise GraphError(f"{name} adds up differences, and those of its collections are of two kinds")

    def map_columns(self, f: Kernel, *, name: str = "map_columns") -> Collection[T, Any]:
        """Return ``f(keys, values)``, or ``f(keys)`` where records are no pairs: NumPy arrays to one array, or two for pairs.

        Records are whole numbers, or pairs of them; ``TypeError`` for others.
        """
        return self._linear(
            name, lambda updates: as_many_columns(updates, name).mapped(f, name), lambda updates: updates.mapped(f, name)
        )

    def filter_columns(self, p: Kernel, *, name: str = "filter_columns") -> Collection[T, D]:
        """Return the records for which ``p(keys, values)``, or ``p(keys)``, is true: NumPy arrays to an array of booleans."""
        return self._like_self(
            self._linear(name, lambda updates: as_many_columns(updates, name).chosen_by(p), lambda updates: updates.chosen_by(p))
        )

    # -- scopes and times ------------------------------------------------------------------------------------------

    def enter(self, scope: ScopeBuilder[Any]) -> Collection[Any, D]:
        """Return the collection inside ``scope``, which is nested directly in its own."""
        made = self._arrangement
        entered = Collection(self.stream.enter(scope), self.ring) if made is None else made.enter(scope).as_collection()
        entered.consolidated = self.consolidated
        return self._like_self(entered)

    def enter_at(
        self,
        scope: ScopeBuilder[Any],
        round: Callable[[D], int],
        *,
        columns: Kernel | None = None,
        name: str = "enter_at",
    ) -> Collection[Any, D]:
        """Return the collection inside the loop ``scope``, where each record enters at the round ``round(record)``.

        ``columns(keys, values)``, or ``columns(keys)``, returns the rounds of NumPy arrays.
        """
        late = delayed(self.stream.enter(scope), name, round, lambda time, at: Product(time[0], at), columns)
        return self._like_self(Collection(late, self.ring))

    def leave(self) -> Collection[Any, D]:
        """Return the collection in the scope around its own, where it is the sum over all rounds."""
        return self._like_self(Collection(self.stream.leave(), self.ring))

    def delay(self, f: Callable[[T], T], *, name: str = "delay") -> Collection[T, D]:
        """Return the collection with changes at ``f(time)``, which is monotone and never before ``time``."""
        late = delayed(self.stream, name, lambda record: None, lambda time, _: f(time), None)
        return self._like_self(Collection(late, self.ring))

    # -- arrangements ----------------------------------------------------------------------------------------------

    def arrange_by_key(self: Pairs[T, K, V], *, name: str | None = None, key: Key | None = None) -> Arrangement[T, K, V]:
        """Return the arrangement of pairs ``(key, value)`` by key."""
        return self._arranged(True, name, key)

    def arrange_by_self(self, *, name: str | None = None, key: Key | None = None) -> Arrangement[T, D, None]:
        """Return the arrangement of the records by themselves."""
        return self._arranged(False, name, key)

    def _arranged(self, pairs: bool, name: str | None, key: Key | None) -> Arrangement[T, Any, Any]:
        made = self._arrangement
        if made is not None and made.index.pairs == pairs and made.index.key is key:
            return made
        return arrange(self.stream, self.ring, pairs, key, name)

    def consolidate(self, *, name: str = "consolidate", key: Key | None = None) -> Collection[T, D]:
        """Return the same collection with at most one update for each record and time.

        Where differences cannot be negated, it has only updates that change the sum of their record: of distances, the shorter
        ones. It then keeps each record with its sum, and a loop comes to rest.
        """
        if self.consolidated:
            return self
        stream = self._at_complete_times(consolidated, name, key)
        return Collection(stream, self.ring, consolidated=True, schema=self.schema, placement=pact_for(False, key))

    def _at_complete_times(
        self, put_together: Callable[[list[Container]], Container], name: str, key: Key | None
    ) -> Stream[T, Any]:
        """Return the stream of what ``put_together`` makes of the updates of each time that is complete."""

        def register(info: OperatorInfo, waiting: dict[T, list[Container]]) -> None:
            def save() -> Iterator[tuple[T, Update]]:
                for time, batches in waiting.items():
                    for update in consolidated(batches):
                        yield time, update

            def load(items: Iterable[tuple[T, Update]]) -> None:
                for time, update in items:
                    waiting.setdefault(time, []).append([update])

            route = key_route(key)
            info.declare_collection()
            register_keyed_state(info, save, load, lambda item: route(item[1][0]))

        def add(batches: list[Container], batch: Container) -> list[Container]:
            batches.append(batch)
            return batches

        pact = Pipeline if self.consolidated else pact_for(False, key)
        stream = by_time(self.stream, pact, name, list, add, lambda batches: [put_together(batches)], register)
        return stream if self.ring.negate is not None else growing_sums(stream, key)

    # -- groups ----------------------------------------------------------------------------------------------------

    def distinct(self, *, name: str = "distinct", key: Key | None = None) -> Collection[T, D]:
        """Return each record whose count is positive, once."""
        return self.threshold(_at_most_once, name=name, key=key)

    def threshold(self, f: Callable[[D, Diff], Diff], *, name: str = "threshold", key: Key | None = None) -> Collection[T, D]:
        """Return each record whose count is positive, with the count ``f(record, count)``, a difference as those of this one.

        ``DifferenceError`` for differences without ``is_positive`` or ``negate``.
        """
        self.ring.require("is_positive", name)
        unwrap, once = self.ring.unwrap, f is _at_most_once
        ring = INTEGERS if once else self.ring
        ring.require("negate", name)
        wrap = ring.wrap

        def result(record: D, counts: Counts) -> list[tuple[None, Diff]]:
            count = counts[None]
            return [(None, 1 if once else wrap(f(record, unwrap(count))))] if count > 0 else []

        kernel = "distinct" if once else None
        return self._like_self(self._reduced(Function(result, kernel), name, key, pairs=False, results=False, ring=ring))

    def count(self, *, name: str = "count", key: Key | None = None) -> Collection[T, tuple[D, Diff]]:
        """Return ``(record, count)`` for each record."""
        unwrap = self.ring.unwrap
        return self._reduced(Function(lambda record, counts: [(unwrap(counts[None]), 1)], "count"), name, key, pairs=False)

    def reduce(
        self: Pairs[T, K, V],
        f: Callable[[K, list[tuple[V, Diff]]], Iterable[tuple[W, Diff]]],
        *,
        name: str = "reduce",
        key: Key | None = None,
    ) -> Collection[T, tuple[K, W]]:
        """Return pairs ``(key, value)``, with counts, for the ``(value, count)`` of ``f(key, [(value, count), ...])``.

        ``f`` gets the values whose count is not zero, in ascending order where they can be compared. It is called for the key of
        any change, at times in no particular order, so its result must depend on its arguments alone.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         scores = dd.collection(scope, [("a", 3), ("a", 1), ("b", 2)])
        ...         lowest = scores.reduce(lambda name, values: [(values[0][0], 1)]).output()
        ...     lowest.at(0)
        {('a', 1): 1, ('b', 2): 1}
        """
        self.ring.require("negate", name)
        return self._reduced(Function(by_value(f)), name, key)

    def count_by_key(
        self: Pairs[T, K, V], *, name: str = "count_by_key", key: Key | None = None
    ) -> Collection[T, tuple[K, Diff]]:
        """Return ``(key, number of values)`` of pairs, for each key that has any."""
        return self._reduced(Count(), name, key)

    def sum_by_key(self: Pairs[T, K, V], *, name: str = "sum_by_key", key: Key | None = None) -> Collection[T, tuple[K, V]]:
        """Return ``(key, sum of values)`` of pairs, for each key that has any.

        Sums are exact for numbers of all types; those with floats are rounded once. ``SchemaError`` for a decimal with an
        exponent beyond 100,000.
        """
        return self._reduced(Sum(), name, key)

    def min_by_key(self: Pairs[T, K, V], *, name: str = "min_by_key", key: Key | None = None) -> Collection[T, tuple[K, V]]:
        """Return ``(key, least value)`` of pairs, of the values with positive counts."""
        return self._reduced(Top(1, kernel="least"), name, key)

    def max_by_key(self: Pairs[T, K, V], *, name: str = "max_by_key", key: Key | None = None) -> Collection[T, tuple[K, V]]:
        """Return ``(key, greatest value)`` of pairs, of the values with positive counts."""
        return self._reduced(greatest(1, kernel="greatest"), name, key)

    def top_k(
        self: Pairs[T, K, V], k: int, by: Callable[[V], Any] | None = None, *, name: str = "top_k", key: Key | None = None
    ) -> Collection[T, tuple[K, V]]:
        """Return the ``k`` greatest values of each key by ``by(value)``, and of equals the smaller value first.

        A value of count ``c`` takes ``c`` places, and comes out with the count that fits.
        """
        if not isinstance(k, int) or k < 1:
            raise GraphError(f"top_k keeps at least one value of each key, not {brief(k)}")
        return self._reduced(greatest(k, by), name, key)

    def _reduced(
        self,
        f: Function | Aggregate,
        name: str,
        key: Key | None,
        *,
        pairs: bool = True,
        results: bool = True,
        ring: Ring = INTEGERS,
    ) -> Collection[T, Any]:
        """Return the collection of a reduction, whose differences are those of ``ring``."""
        made = self._arrangement
        shared = made if made is not None and made.index.pairs == pairs and made.index.key is key else None
        reduced = reduce_stream(self.stream, self.ring, f, name, pairs=pairs, results=results, key=key, source=shared, made=ring)
        return Collection(reduced.stream, ring, arrangement=reduced, consolidated=True, placement=reduced.placement)

    # -- joins -----------------------------------------------------------------------------------------------------

    def join(
        self: Pairs[T, K, V], other: Pairs[T, K, W] | Arrangement[T, K, W], *, name: str = "join", key: Key | None = None
    ) -> Collection[T, tuple[K, tuple[V, W]]]:
        """Return ``(key, (left, right))`` for pairs with equal keys, with the product of their counts.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         names, people = dd.new_collection(scope)
        ...         ages = dd.collection(scope, [(1, 30), (2, 40)])
        ...         both = people.join(ages).output()
        ...     names.insert((1, "ada"))
        ...     names.close()
        ...     both.at(0)
        {(1, ('ada', 30)): 1}
        """
        return self._join(other, PAIR, name, key)

    def join_map(
        self: Pairs[T, K, V],
        other: Pairs[T, K, W] | Arrangement[T, K, W],
        f: Callable[[K, V, W], E],
        *,
        columns: Kernel | None = None,
        name: str = "join_map",
        key: Key | None = None,
    ) -> Collection[T, E]:
        """Return ``f(key, left, right)`` for pairs with equal keys, with the product of their counts.

        ``columns(keys, left, right)`` does the same for NumPy arrays of whole numbers, and returns an array, or two for pairs.
        """
        return self._join(other, mapped(f, columns), name, key)

    def semijoin(
        self: Pairs[T, K, V], keys: Collection[T, K] | Arrangement[T, K], *, name: str = "semijoin", key: Key | None = None
    ) -> Pairs[T, K, V]:
        """Return the pairs whose key is in ``keys``, with the product of their counts: ``distinct`` makes those a set."""
        return self._like_self(self._join(keys, LEFT, name, key, pairs=False))

    def antijoin(
        self: Pairs[T, K, V], keys: Collection[T, K] | Arrangement[T, K], *, name: str = "antijoin", key: Key | None = None
    ) -> Pairs[T, K, V]:
        """Return the collection minus its semijoin with ``keys``."""
        self.ring.require("negate", name)
        return self.minus(self.semijoin(keys, name=name, key=key))

    def _join(
        self: Pairs[T, K, V], other: object, result: JoinResult, name: str, key: Key | None, pairs: bool = True
    ) -> Collection[T, Any]:
        if key is None and isinstance(other, Arrangement):
            key = other.index.key
        left = self.arrange_by_key(key=key)
        right = arranged(other, name, pairs, key)
        if left.index.key is not right.index.key:
            raise GraphError(f"{name} of arrangements with different key=: equal keys would be on different workers")
        ring = product_ring(self.ring, right.index.ring, name)
        placement = left.placement if result in (PAIR, LEFT) else None  # others may drop the key
        return Collection(join_arrangements(left, right, result, name), ring, placement=placement)

    # -- out -------------------------------------------------------------------------------------------------------

    def output(self, worker: int | None = None, *, name: str = "output") -> Output[T, D]:
        """Return what the collection holds, to be read at complete times: this worker's share, or all of it on ``worker``.

        Of several workers, each has all of a record. Records that are not there yet are exchanged, by themselves: those that
        cannot be routed, such as objects of plain classes, need ``worker=``, or ``consolidate(key=...)`` before.
        """
        return output(self.stream, self.ring, worker, name, self.schema, self.placement)

    def write(self, sink: SinkConnector, *, columns: Sequence[str] | None = None, name: str | None = None) -> None:
        """Have a sink hold the records, exactly once: ``timely.connect.write``. ``DifferenceError`` for counts of other kinds."""
        from timely import connect

        if self.ring.native is not int:
            raise DifferenceError(f"write {sink.name}: a sink counts rows in whole numbers, and {self!r} does not")
        connect.write(cast("Stream[int, Any]", self.stream), sink, columns=columns, name=name)

    def probe(self, handle: ProbeHandle[T] | None = None) -> ProbeHandle[T]:
        """Return a handle that shows the frontier of the collection."""
        return probe(self.stream, handle)

    def inspect(self, f: Callable[[D, T, Diff], object], *, name: str = "inspect") -> Collection[T, D]:
        """Call ``f(record, time, diff)`` for each update, and return the collection."""

        def look(time: T, batch: Iterable[Update]) -> None:
            for record, diff in batch:
                f(record, time, unwrap(diff))

        unwrap = self.ring.unwrap
        return self._seen(look, name)

    def inspect_batch(self, f: Callable[[T, list[Update]], object], *, name: str = "inspect_batch") -> Collection[T, D]:
        """Call ``f(time, updates)`` for each batch of updates, and return the collection."""
        unwrap = self.ring.unwrap
        return self._seen(lambda time, batch: f(time, [(record, unwrap(diff)) for record, diff in batch]), name)

    def _seen(self, look: Callable[[T, list[Update]], object], name: str) -> Collection[T, D]:
        def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
            info.declare_stateless()
            info.declare_collection()

            def logic(input: InputPort[T, Update], output: OutputPort[T]) -> None:
                for came_with, batch in input:
                    look(came_with.time, batch)
                    output.session(came_with).give_batch(batch)

            return logic

        seen = self.stream.unary(Pipeline, name, constructor)
        return self._like_self(Collection(seen, self.ring, consolidated=self.consolidated))

    def assert_empty(self, *, name: str = "assert_empty") -> None:
        """Raise ``CollectionMismatch`` at the first complete time at which it holds anything."""
        self.consolidate(name=name)._mismatch(
            iter, lambda record, diff: f"a collection that should be empty changes by {brief(diff)} of {brief(record)}", name
        )

    def _mismatch(self, wrong: Callable[[Container], Iterable[Update]], says: Callable[[Any, Diff], str], name: str) -> None:
        """Raise ``CollectionMismatch``, which ``says`` what is wrong with the first update that is."""
        place = origin()
        made = "" if place is None else f"; {name} was called at {place}"

        def look(time: T, batch: Container) -> None:
            for record, diff in wrong(batch):
                raise CollectionMismatch(f"{says(record, diff)} at {brief(time)}{made}", time, record, diff)

        self._seen(look, name)

    def assert_equal(self, other: Collection[T, D]) -> None:
        """Raise ``CollectionMismatch`` at the first complete time at which the two collections differ."""
        self._check_other(other, "assert_equal")
        self.ring.require("negate", "assert_equal")
        self.minus(other).assert_empty(name="assert_equal")

    def to_stream(self) -> Stream[T, Update]:
        """Return the stream of its updates ``(record, diff)``."""
        return self.stream


def _at_most_once(record: object, count: object) -> int:
    return 1


def _pairs(result: Any) -> Iterable[tuple[Any, Diff]]:
    if type(result) is tuple and len(result) == 2:
        return (result,)
    return result  # type: ignore[no-any-return]


def arranged(other: object, name: str, pairs: bool, key: Key | None) -> Arrangement[Any, Any, Any]:
    """Return ``other``, a collection or an arrangement, as an arrangement by key, or by record."""
    if isinstance(other, Arrangement):
        return other
    if not isinstance(other, Collection):
        raise no_collection(name, "a differential.Collection or an Arrangement", other)
    return other.arrange_by_key(key=key) if pairs else other.arrange_by_self(key=key)


def no_collection(name: str, expected: str, value: object) -> GraphError:
    """Return the error for what is no collection, which says where a table has one."""
    advice = ": use table.collection" if isinstance(getattr(value, "collection", None), Collection) else ""
    return GraphError(f"{name} takes {expected}, not {brief(value)}{advice}")


def new_collection(
    scope: ScopeBuilder[T], *, diff: type | Ring = int, schema: pa.Schema | str | None = None, name: str = "new_collection"
) -> tuple[InputSession[T, Any], Collection[T, Any]]:
    """Return a session that changes a collection from outside, and the collection.

    With ``schema``, a ``pyarrow.Schema`` or a text such as ``"name string, age long"``, records are tuples of its fields.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker().dataflow(int) as scope:
    ...     words, collection = dd.new_collection(scope)
    >>> words.time
    0
    """
    ring = ring_of(diff)
    fields = None
    if schema is not None:
        from timely.dataflow import declared_schema
        from timely.differential.updates.arrow_tables import Fields

        fields = Fields(declared_schema(schema, name))
    input, stream = new_input(scope, name)
    return InputSession(input, ring, fields), Collection(stream, ring, schema=fields and fields.schema)


def from_columns(
    scope: ScopeBuilder[T], schema: pa.Schema | str, *, diff: type | Ring = int, name: str = "from_columns"
) -> tuple[InputSession[T, Any], Collection[T, Any]]:
    """Return a session for Arrow batches and tables of ``schema``, and the collection of their rows as tuples.

    >>> import pyarrow as pa, timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         session, collection = dd.from_columns(scope, "name string, age long")
    ...         adults = collection.filter(lambda person: person[1] >= 18).output()
    ...     session.insert_columns(pa.table({"name": ["ada", "bob"], "age": [36, 7]}))
    ...     session.close()
    ...     adults.to_arrow(0).to_pylist()
    [{'name': 'ada', 'age': 36}]
    """
    return new_collection(scope, diff=diff, schema=schema, name=name)


def collection(
    scope: ScopeBuilder[T], records: Iterable[D], *, on: int | Literal["each"] | None = None, name: str = "collection"
) -> Collection[T, D]:
    """Return the collection of ``records`` at the minimum time, which never changes.

    Each worker adds its own ``records``, unless ``on=0`` has worker 0 alone do so, as in ``scope.to_stream``.
    """
    check_scope(scope, name)
    return Collection(linear(to_stream(scope, records, on=on), name, lambda records: [(record, 1) for record in records]))


def from_updates(stream: Stream[T, Update], *, diff: type | Ring = int) -> Collection[T, Any]:
    """Return the collection of a stream of updates ``(record, diff)``."""
    ring = ring_of(diff)
    if ring.native is int:
        return Collection(stream, ring)
    return Collection(linear(stream, "from_updates", lambda updates: [(record, ring.wrap(d)) for record, d in updates]), ring)
