"""Epochs of records sent by several workers through a dataflow, and what came out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import timely
from timely.testing import simulate


def feed(worker: timely.Worker, epochs: list[list[int]], build: Callable[[Any, Any], Any]) -> Any:
    """Send each worker's share of the epochs through ``build(scope, stream)``, and return what came out of it."""
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = build(scope, stream).capture()
    for epoch, records in enumerate(epochs):
        for record in records[worker.index :: worker.peers]:
            handle.send(record)
            worker.step()
        handle.advance_to(epoch + 1)
    handle.close()
    worker.run()
    return seen.extract()


def merged(results: list[list[tuple[Any, list[Any]]]]) -> dict[Any, list[Any]]:
    """What came out on all workers, by time."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for result in results:
        for time, records in result:
            groups[time] += records
    return {time: sorted(records) for time, records in groups.items()}


def simulated(build: Callable[[Any, Any], Any], epochs: list[list[Any]], workers: int, seed: int) -> dict[Any, list[Any]]:
    """What comes out of ``build(scope, stream)`` on all simulated workers, by time."""
    return merged(simulate(lambda worker: feed(worker, epochs, build), workers=workers, seed=seed).results)
