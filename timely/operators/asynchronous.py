"""Async sources and async functions of records: what is awaited is awaited beside the dataflow, not in its way.

A worker has one thread, so nothing in an operator may wait; these have it done on another one
(``timely.operators.background_tasks``).
The invariants: whatever is awaited holds the capability for its time, so that no frontier passes it; what is under way is
bounded; and none of it runs any more once the dataflow is complete, has been dropped, or its worker closed. A caller may not
assume any order among the results of one time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, ScopeBuilder, Stream, records_of
from timely.errors import ContainerError, StateError, brief
from timely.operators.bounds import check_bound
from timely.operators.generic import source, unary
from timely.operators.state_log import keep_here
from timely.order import PartialOrder

if TYPE_CHECKING:
    import asyncio

    from timely.operators.background_tasks import Errands  # loaded where it is used: asyncio takes a while to load

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")

AHEAD: Final = 64
"""Containers that an async source may be ahead of its worker."""

_OVER: Final = object()
"""What comes after the last pair of an async iterable."""


def map_async(stream: Stream[T, D], f: Callable[[D], Awaitable[E]], limit: int = 64) -> Stream[T, E]:
    """Return the stream of what awaiting ``f(record)`` gives, at the times of the records, in the order in which it comes.

    ``f`` is an ``async def``, or anything that returns an awaitable. On each worker at most ``limit`` of them are under way
    at once: begun, and their result not sent on yet. Records beyond that wait in front of the operator, and nothing else of the
    dataflow does. A time is complete downstream when all results for it have been sent. What ``f`` raises ends the run with an
    ``OperatorError``, as in any operator. When the dataflow is dropped or the worker closed, ``f`` is cancelled wherever it
    waits, and its ``finally`` clauses have run when that returns. ``ConfigurationError`` for a ``limit`` that is no whole
    number of at least 1. A run that goes on from a checkpoint calls ``f`` again for what was under way at that moment, so ``f``
    may see such a record twice; what comes of it is sent once.

    ``f`` runs on another thread than the program: what both use is for them to protect.

    >>> import asyncio, timely
    >>> async def look_up(word):
    ...     await asyncio.sleep(0)  # here somebody would be asked
    ...     return word, len(word)
    >>> timely.example(lambda scope: scope.to_stream(["naiad", "nymph", "sea"]).map_async(look_up, limit=2))
    [(0, [('naiad', 5), ('nymph', 5), ('sea', 3)])]
    """
    limit = check_bound("map_async", "limit", limit)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        from timely.operators.background_tasks import Errands

        mapping: _Mapping[T, D, E] = _Mapping(f, limit, Errands(info))
        keep_here(info, mapping.unanswered, lambda items: mapping.ask_again(capability, items))
        capability.drop()
        return mapping.logic

    return unary(stream, Pipeline, "map_async", constructor)


class _Mapping(Generic[T, D, E]):
    """The operator behind ``map_async``: which records wait, which are under way, and what holds their times."""

    def __init__(self, f: Callable[[D], Awaitable[E]], limit: int, errands: Errands[tuple[int, E]]) -> None:
        self._f = f
        self._limit = limit
        self._begun = 0
        self._errands = errands
        self._waiting: deque[tuple[T, D]] = deque()
        self._underway: dict[int, tuple[T, D]] = {}
        self._held: dict[T, tuple[Capability[T], int]] = {}

    def unanswered(self) -> Iterable[tuple[T, D]]:
        """Return the records whose results were not sent on, with their times."""
        return [*self._underway.values(), *self._waiting]

    def ask_again(self, capability: Capability[T], items: Iterable[tuple[T, D]]) -> None:
        """Take in what another run had not sent the results of."""
        for time, record in items:
            held, records = self._held.get(time) or (capability.delayed(time), 0)
            self._held[time] = (held, records + 1)
            self._waiting.append((time, record))

    def logic(self, input: InputPort[T, D], output: OutputPort[T]) -> None:
        """Send on what has come back, and begin as much as that makes room for."""
        for capability, batch in input:
            time = capability.time
            held, records = self._held.get(time) or (capability.retain(), 0)
            self._held[time] = (held, records + len(batch))
            self._waiting.extend((time, record) for record in records_of(batch))
        found: dict[T, list[E]] = {}
        for number, result in self._errands.take():
            time, _ = self._underway.pop(number)
            found.setdefault(time, []).append(result)
        for time, results in found.items():
            held, records = self._held.pop(time)
            output.session(held).give_batch(results)
            if records > len(results):
                self._held[time] = (held, records - len(results))
            else:
                held.drop()
        while self._waiting and len(self._underway) < self._limit:
            self._begun += 1
            self._underway[self._begun] = waiting = self._waiting.popleft()
            self._errands.start(_await, self._f, self._begun, waiting[1])
        self._errands.expect(bool(self._held))


async def _await(put: Callable[[tuple[int, E]], None], f: Callable[[D], Awaitable[E]], number: int, record: D) -> None:
    put((number, await f(record)))


@overload
def from_async(
    scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, list[D]]]]
) -> Stream[T, D]: ...
@overload
def from_async(scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]: ...
def from_async(scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]:
    """Return the stream of what the async iterable ``batches()`` gives: pairs ``(time, container)``.

    ``batches`` is called once on each worker, when the dataflow first runs; an async generator function is one. Times may come
    several times and never go back. An empty container says only that time has moved on: until the next pair, more may
    come at the time of the last one. The stream is over when the iterable is.

    The iterable is at most 64 containers ahead of its worker. What it raises ends the run with an ``OperatorError``; so do, as
    its cause, ``CapabilityError`` for a time that goes back and ``ContainerError`` for what is no pair. When the dataflow is
    dropped or the worker closed, it is cancelled where it waits, and closed. ``StateError`` for a run that is to go on from a
    checkpoint at which it was not over: nobody can have an iterable begin in the middle. What is to be taken up
    again, the program sends through an input handle.

    >>> import asyncio, timely
    >>> async def ticks():
    ...     for time in range(3):
    ...         await asyncio.sleep(0)  # here one would wait for somebody to say something
    ...         yield time, [f"tick {time}"]
    >>> timely.example(lambda scope: scope.from_async("clock", ticks))
    [(0, ['tick 0']), (1, ['tick 1']), (2, ['tick 2'])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        from timely.operators.background_tasks import Errands

        return _Feed(batches, capability, Errands(info), info).logic

    return source(scope, name, constructor)


class _Feed(Generic[T]):
    """The operator behind ``from_async``."""

    def __init__(
        self,
        batches: Callable[[], AsyncIterable[tuple[T, Any]]],
        capability: Capability[T],
        errands: Errands[Any],
        info: OperatorInfo,
    ) -> None:
        self._batches = batches
        self._capability = capability
        self._errands = errands
        self._label = f"from_async {info.name!r} ({info.path})"
        self._room = errands.room(AHEAD)
        self._started = False
        info.keep(
            lambda: [(None, not self._capability.held)],
            self._load,
            rescale=lambda parts: self._load(over for items in parts for over in items),
        )

    def _load(self, items: Iterable[bool]) -> None:
        for over in items:
            if not over:
                raise StateError(
                    f"{self._label}: its iterable was not over at the checkpoint, and cannot be taken up in the middle: send what"
                    " it gives through an input handle, from where the checkpoint is"
                )
            self._started = True
            self._capability.drop()

    def logic(self, output: OutputPort[T]) -> None:
        """Send on what has come."""
        if not self._started:
            self._started = True
            self._errands.start(_iterate, self._batches, self._room)
        for item in self._errands.take():
            if item is _OVER:
                self._capability.drop()
                continue
            if not isinstance(item, tuple) or len(item) != 2:
                raise ContainerError(f"{self._label}: the iterable is to give pairs (time, container), and gave {brief(item)}")
            time, batch = item
            self._capability.downgrade(time)
            output.session(self._capability).give_batch(batch)
            self._errands.call(self._room.release)
        self._errands.expect(self._capability.held)


async def _iterate(put: Callable[[Any], None], batches: Callable[[], AsyncIterable[Any]], room: asyncio.Semaphore) -> None:
    """Hand over what ``batches()`` gives, as far as there is room."""
    iterator = aiter(batches())
    try:
        async for item in iterator:
            await room.acquire()
            put(item)
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
    put(_OVER)
