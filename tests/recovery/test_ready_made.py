"""Ready-made operators in a dataflow that is kept: their state goes with the checkpoint, to any number of workers, by itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import Stopped
from timely.recovery import Recovery

EPOCHS = 9


def total(key: str, value: int, state: int | None) -> tuple[int, list[tuple[str, int]]]:
    """A running total, and the same as what goes out."""
    new = (state or 0) + value
    return new, [(key, new)]


def build(scope: timely.ScopeBuilder[int]) -> tuple[Any, list[Any]]:
    """State of several kinds: running totals, what was joined before, and records that wait for their time, in a loop too."""
    handle, numbers = scope.new_input()
    pairs = numbers.map(lambda x: (f"key{x % 7}", x))  # each once in an epoch, as their order would not be promised
    early = pairs.delay(lambda pair, time: time + pair[1] % 4)
    with scope.iterative() as loop:
        connected, again = loop.feedback()
        both = numbers.enter(loop).concat(again).exchange(lambda x: x)
        small, large = both.branch(lambda x: x >= 100)
        small.map(lambda x: 3 * x + 1).connect_loop(connected)
        beyond = large.leave()
    streams: list[timely.Stream[int, Any]] = [
        pairs.state_machine(total),
        pairs.join(early.filter(lambda pair: pair[1] % 3 == 0)),
        early.aggregate(lambda key, value, state: (state or 0) + value, lambda key, state: (key, state)),
        beyond.exchange(lambda x: x).distinct(),
        early.map(lambda pair: pair[1]).exchange(lambda x: 0).count(),
    ]
    return handle, [stream.capture() for stream in streams]


def program(worker: timely.Worker, where: Path, stop: int | None) -> Counter[Any]:
    """Everything that came out, in this run and in those that it goes on from."""
    with Recovery(worker, where) as recovery:
        with worker.dataflow(int, name="ready made") as scope:
            handle, captures = build(scope)
        before = sum(recovery.notes, Counter[Any]()) if worker.index == 0 else Counter[Any]()

        def so_far() -> Counter[Any]:
            return before + Counter(
                (number, time, record)
                for number, capture in enumerate(captures)
                for time, batch in capture.messages
                for record in batch
            )

        start = recovery.time or 0
        handle.advance_to(start)
        for epoch in range(start, EPOCHS):
            handle.send_batch([x for x in range(7 * epoch, 7 * epoch + 7) if x % worker.peers == worker.index])
            handle.advance_to(epoch + 1)
            recovery.checkpoint(epoch + 1, notes=so_far)
            if epoch + 1 == stop:
                raise Stopped
        handle.close()
        worker.run()
        return so_far()


@pytest.mark.parametrize("workers", [(1, 1, 1), (2, 3, 1), (3, 2, 2)])
def test_they_go_on_as_if_nothing_had_been(tmp_path: Path, workers: tuple[int, int, int]) -> None:
    (undisturbed,) = timely.execute(lambda worker: program(worker, tmp_path / "other", None))
    stop: int | None
    for count, stop in zip(workers, (2, 5, None), strict=True):
        try:
            results = timely.execute(lambda worker, stop=stop: program(worker, tmp_path, stop), workers=count)  # type: ignore[misc]
        except Stopped:
            continue
    assert sum(results, Counter[Any]()) == undisturbed
    assert {number for number, _, _ in undisturbed} == set(range(5))
