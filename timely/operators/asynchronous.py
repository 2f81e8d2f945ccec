"""Async sources and async functions of records, awaited on another thread (``timely.operators.background_tasks``).

Invariants: whatever is awaited holds the capability for its time; what is in flight is bounded; none of it runs once the dataflow
is complete or dropped, or its worker closed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from timely.dataflow import (
    Capability,
    InputPort,
    OperatorInfo,
    OutputPort,
    Pipeline,
    ScopeBuilder,
    Stream,
    operator_name,
    records_of,
)
from timely.errors import ContainerError, StateError, brief
from timely.operators.flow_gates import check_bound
from timely.operators.generic import source, unary
from timely.operators.program_inputs import check_on, sketch_of
from timely.operators.state_registration import register_list_state, register_union_state
from timely.operators.type_variables import D, E, T

if TYPE_CHECKING:
    import asyncio


AHEAD: Final = 64
"""Containers that an async source may be ahead of its worker."""

On = int | Literal["each"] | None
"""Which workers send: one, each, or not declared."""

_OVER: Final = object()
"""Follows the last pair of an async iterable."""


def map_async(stream: Stream[T, D], f: Callable[[D], Awaitable[E]], limit: int = 64, *, name: str | None = None) -> Stream[T, E]:
    """Return the stream of the awaited results of ``f(record)``, at the times of the records, as they arrive.

    On each worker at most ``limit`` calls are in flight, and further records wait in front of the operator. An exception of ``f``
    ends the run as in any operator. When the dataflow is dropped or the worker closed, ``f`` is cancelled. A run that resumes
    from a checkpoint calls ``f`` again for the records in flight; each result is sent once. ``f`` runs on another thread than
    the program. ``ConfigurationError`` for a ``limit`` that is no whole number of at least 1.

    >>> import timely
    >>> async def look_up(word):
    ...     return word, len(word)
    >>> timely.example(lambda scope: scope.to_stream(["naiad", "sea"]).map_async(look_up, limit=2))
    [(0, [('naiad', 5), ('sea', 3)])]
    """
    limit = check_bound("map_async", "limit", limit)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[InputPort[T, D], OutputPort[T]], object]:
        from timely.operators.background_tasks import BackgroundTasks

        tasks: BackgroundTasks[tuple[int, E]] = BackgroundTasks(info)
        numbers = itertools.count()
        waiting: deque[tuple[T, D]] = deque()
        in_flight: dict[int, tuple[T, D]] = {}
        held: dict[T, tuple[Capability[T], int]] = {}  # with the number of records to be sent at the time

        def load(items: Iterable[tuple[T, D]]) -> None:
            for time, record in items:
                later, records = held.get(time) or (capability.delayed(time), 0)
                held[time] = (later, records + 1)
                waiting.append((time, record))

        register_list_state(info, lambda: [*in_flight.values(), *waiting], load)
        capability.drop()

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            for came_with, batch in input:
                time = came_with.time
                later, records = held.get(time) or (came_with.retain(), 0)
                held[time] = (later, records + len(batch))
                waiting.extend((time, record) for record in records_of(batch))
            finished: dict[T, list[E]] = {}
            for number, result in tasks.results():
                finished.setdefault(in_flight.pop(number)[0], []).append(result)
            for time, results in finished.items():
                later, records = held.pop(time)
                output.session(later).give_batch(results)
                if records > len(results):
                    held[time] = (later, records - len(results))
                else:
                    later.drop()
            while waiting and len(in_flight) < limit:
                number = next(numbers)
                in_flight[number] = waiting.popleft()
                tasks.start(_await, f, number, in_flight[number][1])
            tasks.expect(bool(held))

        return logic

    return unary(stream, Pipeline, operator_name("map_async", name, f), constructor)


async def _await(put: Callable[[tuple[int, E]], None], f: Callable[[D], Awaitable[E]], number: int, record: D) -> None:
    put((number, await f(record)))


@overload
def from_async(
    scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, list[D]]]], *, on: On = None
) -> Stream[T, D]: ...
@overload
def from_async(
    scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]], *, on: On = None
) -> Stream[T, Any]: ...
def from_async(
    scope: ScopeBuilder[T], name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]], *, on: On = None
) -> Stream[T, Any]:
    """Return the stream of the pairs ``(time, container)`` of the async iterable ``batches()``, called once on each worker.

    ``on=0`` has worker 0 alone call it; ``on="each"`` declares that all do, which is otherwise a ``TimelyWarning`` where each has
    the same function, made with the same values. Times never go back; an empty container advances time only. The iterable is at
    most 64 containers ahead of its worker. What it raises ends the run with an ``OperatorError``; so do, as its cause,
    ``CapabilityError`` for a time that goes back and ``ContainerError`` for what is no pair. When the dataflow is dropped or the
    worker closed, it is cancelled and closed.
    ``StateError`` for a checkpoint before its end: send through an input handle instead.

    >>> import timely
    >>> async def ticks():
    ...     for time in range(3):
    ...         yield time, [f"tick {time}"]
    >>> timely.example(lambda scope: scope.from_async("clock", ticks))
    [(0, ['tick 0']), (1, ['tick 1']), (2, ['tick 2'])]
    """

    check_on(scope, "from_async", on)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        from timely.operators.background_tasks import BackgroundTasks

        if on is None and info.peers > 1 and (sketch := sketch_of(batches)) is not None:
            scope.root.given[info.path] = f"what {sketch} gives", info.origin
        tasks: BackgroundTasks[Any] = BackgroundTasks(info)
        room = tasks.room(AHEAD)
        label = f"from_async {info.name!r} ({info.path})"
        started = on not in (None, "each", info.worker)
        if started:
            capability.drop()

        def save() -> list[bool]:
            if capability.held:
                raise StateError(
                    "its iterable is not over, and a run that resumes could not take it up in the middle: send what it gives"
                    " through an input handle, from where the checkpoint is"
                )
            return [True]

        def load(items: Iterable[bool]) -> None:
            nonlocal started
            for _ in items:
                started = True
                capability.drop()

        register_union_state(info, save, load)

        def logic(output: OutputPort[T]) -> None:
            nonlocal started
            if not started:
                started = True
                tasks.start(_iterate, batches, room)
            for item in tasks.results():
                if item is _OVER:
                    capability.drop()
                    continue
                if not isinstance(item, tuple) or len(item) != 2:
                    raise ContainerError(f"{label}: the iterable is to give pairs (time, container), and gave {brief(item)}")
                time, batch = item
                capability.downgrade(time)
                output.session(capability).give_batch(batch)
                tasks.call(room.release)
            tasks.expect(capability.held)

        return logic

    return source(scope, name, constructor)


async def _iterate(put: Callable[[Any], None], batches: Callable[[], AsyncIterable[Any]], room: asyncio.Semaphore) -> None:
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
