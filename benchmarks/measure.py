"""How things are timed here: in rounds, all of them in turn, so that a machine that slows down slows all of them down.

What is compared is the median over the rounds, and a ratio of two figures is the median of the ratios of each round, since what
was measured in one round was measured on the same machine at the same load. A :class:`Measured` is a number that remembers its
rounds, so that both come by themselves from ordinary arithmetic. The yardstick for pure Python is an empty ``for`` loop, timed
in every round beside the work: bars that are given for a machine on which 10 million passes take 0.35 s are scaled by it.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar, cast

import timely

R = TypeVar("R")

REFERENCE_LOOP = 0.35
"""Seconds for ten million passes of an empty loop on the machine that the bars are given for."""

YARDSTICK = "empty loop"


class Measured(float):
    """The median of what was found in each round, as a number; ``rounds`` has them all.

    Dividing one by another, or multiplying it with a number, does so in each round. With one that has not as many rounds it is
    done for the medians, and gives a plain number.

    >>> ours, theirs = Measured([1.0, 2.0, 3.0]), Measured([5.0, 20.0, 9.0])
    >>> theirs / ours, (theirs / ours).rounds, 1 / ours
    (5.0, (5.0, 10.0, 3.0), 0.5)
    """

    rounds: tuple[float, ...]

    def __new__(cls, rounds: Iterable[float]) -> Measured:
        rounds = tuple(map(float, rounds))
        self = super().__new__(cls, statistics.median(rounds))
        self.rounds = rounds
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.rounds,)

    def __truediv__(self, other: float) -> float:
        return self._by_round(other, lambda a, b: a / b)

    def __rtruediv__(self, other: float) -> float:
        return self._by_round(other, lambda a, b: b / a)

    def __mul__(self, other: float) -> float:
        return self._by_round(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def _by_round(self, other: float, f: Callable[[float, float], float]) -> float:
        if not isinstance(other, Measured):
            return Measured(f(value, float(other)) for value in self.rounds)
        if len(other.rounds) == len(self.rounds):
            return Measured(map(f, self.rounds, other.rounds))
        return f(float(self), float(other))


def apart(work: Callable[..., R], *arguments: Any) -> R:
    """Return what ``work(*arguments)`` returns, or raise what it raises, in a new process that has nothing of this one.

    ``BrokenProcessPool`` if that ends without a word.

    >>> import os
    >>> apart(os.getpid) == os.getpid()
    False
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def as_workers(work: Callable[[], R], processes: int) -> list[R]:
    """Return what ``work()`` returns in each of so many processes that do it at once, made as those of a run are.

    What such a process keeps of the memory that it frees, and what it has of its parent, is then the same on both sides.

    >>> as_workers(lambda: 5, 1), as_workers(lambda: 5, 2)
    ([5], [5, 5])
    """
    found = timely.execute(lambda worker: work() if worker.index < processes else None, processes=max(processes, 2))
    return cast("list[R]", found[:processes])  # of one alone there is no run of processes: another one waits for it


def empty_loop() -> float:
    """Return the seconds that ten million passes of an empty loop at module level take, from a tenth as many."""
    source = compile("for _ in range(1_000_000): pass", "<empty loop>", "exec")
    start = time.process_time()
    exec(source, {})
    return 10 * (time.process_time() - start)


def in_turn(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Measured]:
    """Run every work once in each round, the yardstick among them, and return for each what it returned, as its median.

    Every other round goes through them backwards, so that none of them always comes after the same one.
    """
    todo = {YARDSTICK: empty_loop, **works}
    found: dict[str, list[float]] = {name: [] for name in todo}
    for turn in range(rounds):
        for name in list(todo)[:: -1 if turn % 2 else 1]:
            found[name].append(todo[name]())
    return {name: Measured(values) for name, values in found.items()}
