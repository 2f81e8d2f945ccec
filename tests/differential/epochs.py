"""What a program on collections holds at each epoch, on some number of workers, with all epochs in flight or one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import timely
from timely import differential as dd

Updates = Sequence[tuple[Any, int]]
"""``(record, diff)``."""


def held(
    build: Callable[..., dd.Collection[int, Any]], epochs: Sequence[Sequence[Updates]], workers: int = 1, at_once: bool = False
) -> list[dict[Any, int]]:
    """Return what ``build(*collections)`` holds at each epoch; each of ``epochs`` has the updates of each collection.

    Updates are sent by the workers in turn. ``at_once``: all of them are sent before the first step.
    """

    def program(worker: timely.Worker) -> list[dict[Any, int]]:
        with worker.dataflow(int) as scope:
            inputs = [dd.new_collection(scope) for _ in epochs[0]]
            output = build(*(collection for _, collection in inputs)).output()
        by_epoch = []
        for epoch, changes in enumerate(epochs):
            for (session, _), updates in zip(inputs, changes, strict=True):
                for record, diff in updates[worker.index :: worker.peers]:
                    session.update(record, diff)
                session.advance_to(epoch + 1)
            if not at_once:
                by_epoch.append(output.at(epoch))
        if at_once:
            by_epoch = [output.at(epoch) for epoch in range(len(epochs))]
        return by_epoch

    parts = timely.execute(program, workers=workers)
    return [total(part[epoch] for part in parts) for epoch in range(len(epochs))]


@contextmanager
def changing(
    build: Callable[[Any], Any] = lambda collection: collection.output(), time: Any = int, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield a session of a collection, on a worker of its own, and what ``build`` makes of the collection."""
    with timely.Worker() as worker:
        with worker.dataflow(time, name="df") as scope:
            session, collection = dd.new_collection(scope, **options)
            built = build(collection)
        worker.step()  # so that nothing warns of a dataflow that was never run
        yield session, built
        session.close()


def contents(build: Callable[[Any], Any]) -> Any:
    """Return what ``build(scope)`` holds in the end, where nothing changes."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            output = build(scope).output()
        return output.at(0)


def total(parts: Iterable[dict[Any, int]]) -> dict[Any, int]:
    """Return the sum of collections."""
    sums: Counter[Any] = Counter()
    for part in parts:
        for record, count in part.items():
            sums[record] += count
    return {record: count for record, count in sums.items() if count}


def accumulated(epochs: Iterable[Updates]) -> list[dict[Any, int]]:
    """Return what a collection holds after the updates of each epoch."""
    held, by_epoch = Counter[Any](), []
    for updates in epochs:
        for record, diff in updates:
            held[record] += diff
        by_epoch.append({record: count for record, count in held.items() if count})
    return by_epoch
