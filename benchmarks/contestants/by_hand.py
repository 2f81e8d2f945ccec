"""The workloads by hand, in one process: what there is to gain at most, and what all other answers are checked against."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from benchmarks.contestants.told import Answer, Task, main


def word_count(task: Task) -> Answer:
    """One counter."""
    counts: Counter[str] = Counter()
    for lines in task.lines(0):
        counts.update(chain.from_iterable(map(str.split, lines)))
    return counts.items()


def map_filter_map(task: Task) -> Answer:
    """One comprehension."""
    found = [y // 2 for y in [3 * x + 1 for x in range(task.size)] if y % 2 == 0]
    return [("count", len(found)), ("sum", sum(found))]


def sum_by_key(task: Task) -> Answer:
    """One loop."""
    sums: dict[str, int] = {}
    for x in range(task.size):
        key = str(x % 1000)
        sums[key] = sums.get(key, 0) + x
    return sums.items()


def exchange(task: Task) -> Answer:
    """All that there is."""
    return [("count", task.size), ("sum", sum(range(task.size)))]


PROGRAMS = (word_count, map_filter_map, sum_by_key, exchange)

if __name__ == "__main__":
    main(PROGRAMS)
