"""``timely bench``: the speed of this installation in a few seconds, beside plain Python in the same seconds.

The project's own benchmarks are in its repository, under ``benchmarks/``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import process_time
from typing import Any

import timely


def run(seconds: float, say: Callable[[str], object]) -> None:
    """Measure each for about ``seconds`` of processor time, and ``say`` the figures."""
    for name, work, unit, meaning in (
        ("an empty loop", _passes, "passes/s", "plain Python: how fast this machine is, to compare with another"),
        ("a loop that waits for its frontier", _barrier, "rounds/s", "progress alone: how often a loop can wait for all workers"),
        ("records round a loop, one by one", _pingpong, "rounds/s", "one record through five operators: the least latency"),
        ("words counted", _words, "words/s", "records in batches: flat_map and value_counts"),
        (
            "words counted by a Counter",
            _words_by_hand,
            "words/s",
            "plain Python, the same words: the cost of a dataflow",
        ),
    ):
        say(f"{name:<36} {_rate(seconds, work):>14,.0f} {unit:<9} {meaning}")
    say("per second of processor time, on one worker in one process; more is better")


def _rate(seconds: float, work: Callable[[int], None]) -> float:
    """Return the units that ``work(units)`` does per second of processor time."""
    units, taken = 100, 0.0
    while taken < seconds:
        units = units * 2 if taken < seconds / 4 else int(units * seconds / taken * 1.1)
        start = process_time()
        work(units)
        taken = process_time() - start
    return units / taken


def _passes(units: int) -> None:
    for _ in range(units):
        pass


def _barrier(units: int) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.feedback()

        def logic(input: Any, output: Any, notificator: Any) -> None:
            for capability, _ in notificator:
                if capability.time < units:
                    notificator.notify_at(capability.delayed(capability.time + 1))

        stream.unary_notify(timely.Pipeline, "barrier", [0], logic).connect_loop(handle)
    worker.run()


def _pingpong(units: int) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope, scope.iterative() as loop:
        handle, again = loop.feedback()
        now = scope.to_stream([units]).enter(loop).concat(again).exchange(lambda x: x)
        now.map(lambda x: x - 1).filter(lambda x: x > 0).connect_loop(handle)
    worker.run()


_LINE = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "again"]


def _words(units: int) -> None:
    lines = [_LINE] * (units // len(_LINE) + 1)
    timely.example(lambda scope: scope.to_stream(lines).flat_map(lambda line: line).value_counts())


def _words_by_hand(units: int) -> None:
    counts: Counter[str] = Counter()
    for line in [_LINE] * (units // len(_LINE) + 1):
        counts.update(line)
