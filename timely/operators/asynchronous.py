"""Async sources and async functions of records, awaited on another thread (``timely.operators.background_tasks``).

Invariants: whatever is awaited holds the capability for its time; what is in flight is bounded; none of it runs once the dataflow
is complete or dropped, or its worker closed. Order within a time is unspecified.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, ScopeBuilder, Stream, records_of
from timely.errors import ContainerError, StateError, brief
from timely.operators.bounds import check_bound
from timely.operators.generic import source, unary
from timely.operators.state import register_list_state, register_union_state
from timely.order import PartialOrder

if TYPE_CHECKING:
    import asyncio

    from timely.operators.background_tasks import BackgroundTasks  # loaded on use: asyncio takes a while to import

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
E = TypeVar("E")

AHEAD: Final = 64
"""Containers that an async source may be ahead of its worker."""

_OVER: Final = object()
"""Follows the last pair of an async iterable."""


def map_async(stream: Stream[T, D], f: Callable[[D], Awaitable[E]], limit: int = 64) -> Stream[T, E]:
    """Return the stream of the awaited results of ``f(record)``, at the times of the records, as they arrive.

    On each worker at most ``limit`` calls are in flight, and further records wait in front of the operator. An exception of ``f``
    ends the run as in any operator. When the dataflow is dropped or the worker closed, ``f`` is cancelled. A run that resumes
    from a checkpoint calls ``f`` again for the records in flight; each result is sent once. ``f`` runs on another thread than
    the program. ``ConfigurationError`` for a ``limit`` that is no whole number of at least 1.

    >>> import asyncio, timely
    >>> async def look_up(word):
    ...     await asyncio.sleep(0)  # a request to a service
    ...     return word, len(word)
    >>> timely.example(lambda scope: scope.to_stream(["naiad", "nymph", "sea"]).map_async(look_up, limit=2))
    [(0, [('naiad', 5), ('nymph', 5), ('sea', 3)])]
    """
    limit = check_bound("map_async", "limit", limit)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        from timely.operators.background_tasks import BackgroundTasks

        mapping: _AsyncMap[T, D, E] = _AsyncMap(f, limit, BackgroundTasks(info))
        register_list_state(info, mapping.unfinished, lambda items: mapping.restore(capability, items))
        capability.drop()
        return mapping.logic

    return unary(stream, Pipeline, "map_async", constructor)


class _AsyncMap(Generic[T, D, E]):
    """The operator behind ``map_async``: waiting records, those in flight, and the capabilities for their times."""

    def __init__(self, f: Callable[[D], Awaitable[E]], limit: int, tasks: BackgroundTasks[tuple[int, E]]) -> None:
        self._f = f
        self._limit = limit
        self._begun = 0
        self._tasks = tasks
        self._waiting: deque[tuple[T, D]] = deque()
        self._in_flight: dict[int, tuple[T, D]] = {}
        self._held: dict[T, tuple[Capability[T], int]] = {}

    def unfinished(self) -> Iterable[tuple[T, D]]:
        """Return the records whose results were not sent, with their times."""
        return [*self._in_flight.values(), *self._waiting]

    def restore(self, capability: Capability[T], items: Iterable[tuple[T, D]]) -> None:
        """Queue the unfinished records of another run."""
        for time, record in items:
            held, records = self._held.get(time) or (capability.delayed(time), 0)
            self._held[time] = (held, records + 1)
            self._waiting.append((time, record))

    def logic(self, input: InputPort[T, D], output: OutputPort[T]) -> None:
        """Send results, and begin as many calls as that leaves room for."""
        for capability, batch in input:
            time = capability.time
            held, records = self._held.get(time) or (capability.retain(), 0)
            self._held[time] = (held, records + len(batch))
            self._waiting.extend((time, record) for record in records_of(batch))
        found: dict[T, list[E]] = {}
        for number, result in self._tasks.results():
            time, _ = self._in_flight.pop(number)
            found.setdefault(time, []).append(result)
        for time, results in found.items():
            held, records = self._held.pop(time)
            output.session(held).give_batch(results)
            if records > len(results):
                self._held[time] = (held, records - len(results))
            else:
                held.drop()
        while self._waiting and len(self._in_flight) < self._limit:
            self._begun += 1
            self._in_flight[self._begun] = waiting = self._waiting.popleft()
            self._tasks.start(_await, self._f, self._begun, waiting[1])
        self._tasks.expect(bool(self._held))


async def _await(put: Callable[[tuple[int, E]], None], f: Callable[[D], Awaitable[E]], number: int, record: D) -> None:
    put((number, await f(record)))


@overload
def from_async(scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, list[D]]]]) -> Stream[T, D]: ...
@overload
def from_async(scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]: ...
def from_async(scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]:
    """Return the stream of the pairs ``(time, container)`` of the async iterable ``batches()``, called once on each worker.

    Times never go back; an empty container advances time only. The iterable is at most 64 containers ahead of its worker. What
    it raises ends the run with an ``OperatorError``; so do, as its cause, ``CapabilityError`` for a time that goes back and
    ``ContainerError`` for what is no pair. When the dataflow is dropped or the worker closed, it is cancelled and closed.
    ``StateError`` for a run that resumes from a checkpoint before its end: send through an input handle instead.

    >>> import asyncio, timely
    >>> async def ticks():
    ...     for time in range(3):
    ...         await asyncio.sleep(0)  # wait for a message
    ...         yield time, [f"tick {time}"]
    >>> timely.example(lambda scope: scope.from_async("clock", ticks))
    [(0, ['tick 0']), (1, ['tick 1']), (2, ['tick 2'])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        from timely.operators.background_tasks import BackgroundTasks

        return _AsyncSource(batches, capability, BackgroundTasks(info), info).logic

    return source(scope, name, constructor)


class _AsyncSource(Generic[T]):
    """The operator behind ``from_async``."""

    def __init__(
        self,
        batches: Callable[[], AsyncIterable[tuple[T, Any]]],
        capability: Capability[T],
        tasks: BackgroundTasks[Any],
        info: OperatorInfo,
    ) -> None:
        self._batches = batches
        self._capability = capability
        self._tasks = tasks
        self._label = f"from_async {info.name!r} ({info.path})"
        self._room = tasks.room(AHEAD)
        self._started = False
        register_union_state(info, lambda: [not self._capability.held], self._load)

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
        """Send what the iterable has yielded."""
        if not self._started:
            self._started = True
            self._tasks.start(_iterate, self._batches, self._room)
        for item in self._tasks.results():
            if item is _OVER:
                self._capability.drop()
                continue
            if not isinstance(item, tuple) or len(item) != 2:
                raise ContainerError(f"{self._label}: the iterable is to give pairs (time, container), and gave {brief(item)}")
            time, batch = item
            self._capability.downgrade(time)
            output.session(self._capability).give_batch(batch)
            self._tasks.call(self._room.release)
        self._tasks.expect(self._capability.held)


async def _iterate(put: Callable[[Any], None], batches: Callable[[], AsyncIterable[Any]], room: asyncio.Semaphore) -> None:
    """Put what ``batches()`` yields, as far as there is room."""
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
