"""``TraceHandle``: one reader of an arrangement, which looks keys up at complete times.

Invariant: what a handle holds is read as it was, at every complete time from its ``since`` on, until it lets go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from typing_extensions import TypeVar

from timely.differential.operators.arrangement import Index
from timely.differential.operators.collection_bases import TraceHandleBase
from timely.differential.trace.cursors import Keep
from timely.differential.trace.entries import accumulate
from timely.differential.updates.updates import Diff, summed_up
from timely.errors import CompactedError, NotCompleteError, RoutingError, TimestampError, brief
from timely.operators.state_registration import key_route
from timely.order import PartialOrder, less_equal, reaches

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class Moment(NamedTuple):
    """Which times count in a read: those at or before ``at``, or, without it, those that ``upper`` has passed."""

    at: Any
    upper: list[Any]

    def counts(self, time: Any) -> bool:
        return not reaches(self.upper, time) if self.at is None else less_equal(time, self.at)


class _Held:
    """What a handle holds; the trace refers to this and not to the handle, which can be collected."""

    def __init__(self, frontier: list[Any]) -> None:
        self.frontier = frontier

    def __call__(self) -> list[Any]:
        return self.frontier


class TraceHandle(TraceHandleBase[T, K, V], Generic[T, K, V]):
    """One reader of an arrangement, from ``Arrangement.trace``: it reads complete times at or after ``since``.

    It holds the arrangement's history from where that began when the handle was made. ``advance`` lets go of some of it, and
    ``close()``, the end of a ``with`` block, and being collected let go of all.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         pairs, collection = dd.new_collection(scope)
    ...         arranged = collection.arrange_by_key()
    ...         trace, probe = arranged.trace, collection.probe()
    ...     pairs.insert(("k", 1))
    ...     pairs.advance_to(1)
    ...     pairs.remove(("k", 1))
    ...     pairs.advance_to(2)
    ...     worker.step_while(lambda: probe.less_than(2))
    ...     answers = trace.get("k", at=0), trace.get("k"), list(trace.items(at=0)), trace.upper
    ...     pairs.close()
    >>> answers
    ({1: 1}, {}, [('k', {1: 1})], [2])
    """

    __slots__ = ("__weakref__", "_closed", "_held", "index", "keep")

    def __init__(self, index: Index, keep: Keep | None = None, since: Sequence[T] | None = None) -> None:
        self._closed = False
        self.index = index
        self.keep = keep  # which records it reads, of a trace that is filtered
        self._held = _Held(list(index.trace.holds.since if since is None else since))
        index.trace.holds.add(self._held, reads=True)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"since={self.since}, upper={self.upper}"
        return f"TraceHandle({self.index.path!r}, {state})"

    # -- frontiers -------------------------------------------------------------------------------------------------

    @property
    def since(self) -> list[T]:
        """The frontier at or after which it can read."""
        return list(self._held.frontier)

    @property
    def upper(self) -> list[T]:
        """The frontier of the times that are not complete."""
        trace = self.index.trace
        return trace.lattice.lower_envelope(trace.upper())

    @property
    def closed(self) -> bool:
        """Whether it has let go of the trace."""
        return self._closed

    def advance(self, frontier: T | Iterable[T]) -> None:
        """Let go of the history before ``frontier``, one time or several; ``TimestampError`` for a step back."""
        self.check_open("advance")
        times = self._times(frontier)
        since = self._held.frontier
        for time in times:
            if not reaches(since, time):
                raise TimestampError(
                    f"advance({brief(times)}): a reader of {self.index.path} that is at {brief(since)} cannot go back; the"
                    f" trace is complete before {brief(self.upper)}"
                )
        self._held.frontier = self.index.trace.lattice.lower_envelope(times)
        self.index.activate()

    def _times(self, frontier: Any) -> list[T]:
        try:
            self._check_time(frontier)
        except TimestampError:
            if not isinstance(frontier, Iterable) or isinstance(frontier, str | bytes):
                raise
            times = list(frontier)
            for time in times:
                self._check_time(time)
            return times
        return [frontier]

    def _check_time(self, time: object) -> None:
        try:
            self.index.trace.lattice.domain.check(time)
        except TimestampError as error:
            raise TimestampError(f"a read of {self.index.path}: {error}") from None

    # -- reading ---------------------------------------------------------------------------------------------------

    def owner(self, key: K) -> int:
        """Return the index of the worker that has ``key``: no other can ``get`` it."""
        return key_route(self.index.key)(key) % self.index.scope.allocator.peers

    def get(self, key: K, at: T | None = None) -> dict[V, Diff]:
        """Return the values of ``key`` with their counts, at the complete time ``at`` or the latest one.

        ``NotCompleteError`` or ``CompactedError`` for a time that cannot be read, with both frontiers; ``RoutingError`` for a key
        of another worker.
        """
        return self._of_key(key, self._moment(at))

    def items(self, at: T | None = None) -> Iterator[tuple[K, dict[V, Diff]]]:
        """Return ``(key, {value: count})`` for the keys of this worker, at the complete time ``at`` or the latest one."""
        return iter(list(self._of_all(self._moment(at))))

    def to_arrow(self, at: T | None = None) -> pa.Table:
        """Return what ``items`` does as a table of ``key``, ``value`` and ``count``, or ``record`` and ``count``. Needs PyArrow.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         trace = dd.collection(scope, [(1, "a"), (1, "b")]).arrange_by_key().trace
        ...     worker.run()
        ...     trace.to_arrow().to_pydict()
        {'key': [1, 1], 'value': ['a', 'b'], 'count': [1, 1]}
        """
        return self._table(self._moment(at))

    def snapshot(self, at: T | None = None) -> TraceSnapshot[T, K, V]:
        """Return a reader of one time, ``at`` or the latest complete one, for a ``with`` block."""
        return TraceSnapshot(self.clone(), self._moment(at))

    def _moment(self, at: T | None) -> Moment:
        self.check_open("read")
        since, upper = self._held.frontier, list(self.index.trace.upper())
        if at is None:
            return self._latest(since, upper)
        self._check_time(at)
        if reaches(upper, at):
            raise NotCompleteError(f"{self.index.path} is not complete at {brief(at)}: {self._frontiers()}")
        if not reaches(since, at):
            raise CompactedError(f"{self.index.path} has no history at {brief(at)}: {self._frontiers()}")
        return Moment(at, upper)

    def _latest(self, since: list[T], upper: list[T]) -> Moment:
        if not upper and since:
            return Moment(None, upper)
        if not self.index.trace.lattice.domain.total:
            raise TimestampError(
                f"{self.index.path}: give the time to read at, since there is no latest one in a partial order;"
                f" {self._frontiers()}"
            )
        if not since:
            raise CompactedError(f"{self.index.path} has no history left: {self._frontiers()}")
        if reaches(upper, since[0]):
            raise NotCompleteError(f"{self.index.path} has no complete time that this reader may read: {self._frontiers()}")
        return Moment(None, upper)

    def _of_key(self, key: K, moment: Moment) -> dict[V, Diff]:
        allocator = self.index.scope.allocator
        owner = self.owner(key) if allocator.peers > 1 else allocator.index
        if owner != allocator.index:
            raise RoutingError(
                f"{self.index.path}: worker {owner} has the key {brief(key)}, and this is worker {allocator.index}: ask there, or"
                " join a collection of keys, whose answers come at one time"
            )
        return self._counts(key, moment)

    def _of_all(self, moment: Moment) -> Iterator[tuple[K, dict[V, Diff]]]:
        for key in list(self.index.trace.keys()):
            counts = self._counts(key, moment)
            if counts:
                yield key, counts

    def _table(self, moment: Moment) -> pa.Table:
        from timely.differential.updates.arrow_tables import table_of, table_of_columns

        pairs, trace = self.index.pairs, self.index.trace
        chunks = trace.chunks(trace.number) if self.keep is None else None
        if chunks is not None:
            from timely.differential.updates.int_columns import counted as counted_columns

            rows, counts = counted_columns(chunks, moment.counts)
            return table_of_columns(rows, counts, None, self.index.path)
        counted = (
            ((key, value) if pairs else key, count) for key, counts in self._of_all(moment) for value, count in counts.items()
        )
        return table_of(counted, None, self.index.path, pairs=pairs)

    def _counts(self, key: K, moment: Moment) -> dict[V, Diff]:
        keep, pairs, entries = self.keep, self.index.pairs, self.index.trace.history(key)
        if keep is None and moment.at is not None:
            sums = accumulate(entries, moment.at)
        else:
            sums = summed_up(
                (value, diff)
                for value, time, diff in entries
                if moment.counts(time) and (keep is None or keep((key, value) if pairs else key))
            )
        ring = self.index.ring
        return sums if ring.native is not None else {value: ring.unwrap(count) for value, count in sums.items()}

    def _frontiers(self) -> str:
        return f"this reader has what is at or after since={self.since}, and what upper={self.upper} has passed is complete"

    # -- sharing ---------------------------------------------------------------------------------------------------

    def clone(self) -> TraceHandle[T, K, V]:
        """Return another handle at the same ``since``."""
        self.check_open("clone")
        return TraceHandle(self.index, self.keep, self.since)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the trace; a no-op when it is closed."""
        if not self._closed:
            self._closed = True
            self.index.trace.holds.release(self._held)
            self.index.release()

    def check_open(self, deed: str) -> None:
        """Raise ``CompactedError`` if it was closed."""
        if self._closed:
            raise CompactedError(f"{deed}: this reader of {self.index.path} was closed; {self._frontiers()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.index.trace.holds.release(self._held)  # may run at any moment, so that nothing is compacted here
            if not self.index.ended and self.index.sync_activator is not None:
                self.index.sync_activator.activate()


class TraceSnapshot(Generic[T, K, V]):
    """Reads of one time, from ``TraceHandle.snapshot``; its history stays until it is closed."""

    def __init__(self, handle: TraceHandle[T, K, V], moment: Moment) -> None:
        self._handle = handle
        self._moment = moment

    def get(self, key: K) -> dict[V, Diff]:
        """Return the values of ``key`` with their counts."""
        self._handle.check_open("get")
        return self._handle._of_key(key, self._moment)

    def items(self) -> Iterator[tuple[K, dict[V, Diff]]]:
        """Return ``(key, {value: count})`` for the keys of this worker."""
        self._handle.check_open("items")
        return iter(list(self._handle._of_all(self._moment)))

    def to_arrow(self) -> pa.Table:
        """Return the records of this worker as ``TraceHandle.to_arrow`` does."""
        self._handle.check_open("to_arrow")
        return self._handle._table(self._moment)

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
