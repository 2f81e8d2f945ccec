"""Two workers as threads of one process against one worker, on records and functions of Python: what is gained without the GIL.

Word count splits lines and counts the words where they are, or sends every word to the worker that counts it: one worker sends
nothing. The map computes a lot for each record. Each worker has its half of the input from the beginning; the time is from the
first one's start to the last one's end. Two processes do the same beside them. All answers are checked. The rows name the kind of
interpreter: run the group with each.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import timely
from benchmarks.measure import in_turn
from benchmarks.report import Row
from timely import Stream

Records: TypeAlias = Stream[int, Any]

LINES, WORDS, VOCABULARY = 100_000, 10, 5_000
NUMBERS, BATCH = 30_000, 500

Bars: TypeAlias = tuple[float, float]
"""Floor and aim of a gain."""

THREADS: dict[str, tuple[Bars, Bars]] = {
    "word count by record": ((0.8, 1), (1, 1.6)),
    "word count, every word sent": ((0.4, 0.7), (0.6, 1)),
    "map that computes": ((0.8, 1), (1.5, 1.9)),
}
"""Bars of two threads: with the GIL, where they can only lose little, and without."""

PROCESSES: dict[str, Bars] = {
    "word count by record": (1, 1.8),
    "word count, every word sent": (0.55, 1),
    "map that computes": (1.4, 1.9),
}


def interpreter() -> str:
    """Return what kind of Python this is."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "with the GIL"
    is_enabled: Callable[[], bool] = vars(sys)["_is_gil_enabled"]  # not there before 3.13
    return "free-threaded, with the GIL" if is_enabled() else "free-threaded"


def lines() -> list[str]:
    """Return lines of ten words each, the same ones each time."""
    draw = random.Random(1)
    vocabulary = [f"word{number}" for number in range(VOCABULARY)]
    return [" ".join(draw.choices(vocabulary, k=WORDS)) for _ in range(LINES)]


def count_words(stream: Records) -> Records:
    """Count words on each worker, and exchange the counts."""
    return stream.flat_map(str.split).value_counts()


def count_exchanged(stream: Records) -> Records:
    """Count each word on the worker that it is sent to."""
    return stream.flat_map(str.split).exchange(lambda word: word).value_counts()


def steps(number: int) -> tuple[int, int]:
    """Return a number, and how often it is halved, or tripled and increased, until it is 1."""
    start, taken = number, 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        taken += 1
    return start, taken


def compute(stream: Records) -> Records:
    """Compute a lot for each record."""
    return stream.map(steps)


def seconds(build: Callable[[Records], Records], given: list[Any], expected: list[Any], workers: int, processes: int) -> float:
    """Return the seconds in which so many workers do it. ``AssertionError`` for a wrong answer."""

    def program(worker: timely.Worker) -> tuple[float, float, list[Any]]:
        mine = given[worker.index :: worker.peers]
        batches = [mine[at : at + BATCH] for at in range(0, len(mine), BATCH)]
        worker.all_gather(None)
        start = time.perf_counter()
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = build(stream).capture()
        for batch in batches:
            handle.send_batch(batch)
            worker.step()
        handle.close()
        worker.run()
        return start, time.perf_counter(), [record for _, records in seen.extract() for record in records]

    runs = timely.execute(program, workers=workers, processes=processes)
    assert sorted(record for *_, records in runs for record in records) == expected, "a wrong answer"
    return max(end for _, end, _ in runs) - min(start for start, _, _ in runs)


def run(rounds: int) -> list[Row]:
    """Return the rows."""
    kind, rows, text = interpreter(), [], lines()
    numbers = list(range(900_000, 900_000 + NUMBERS))
    words = sorted(Counter(word for line in text for word in line.split()).items())
    workloads: dict[str, tuple[Callable[[Records], Records], list[Any], list[Any]]] = {
        "word count by record": (count_words, text, words),
        "word count, every word sent": (count_exchanged, text, words),
        "map that computes": (compute, numbers, sorted(map(steps, numbers))),
    }
    for name, (build, given, expected) in workloads.items():
        work = partial(seconds, build, given, expected)
        work(1, 1)  # the first run imports and specializes
        times = in_turn({"one": partial(work, 1, 1), "threads": partial(work, 2, 1), "processes": partial(work, 1, 2)}, rounds)
        one = times["one"]
        bars = THREADS[name][kind == "free-threaded"]
        rows.append(Row(f"{name}: two threads against one ({kind}; one: {one:.2f} s)", one / times["threads"], *bars))
        rows.append(Row(f"{name}: two processes against one ({kind})", one / times["processes"], *PROCESSES[name]))
    return rows
