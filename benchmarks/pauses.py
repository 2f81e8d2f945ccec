"""Pauses: how long one round takes at worst, while Python looks for cyclic garbage in between.

A worker goes round the loop of ``barrier`` in ``benchmarks.control``, and keeps twenty small tuples of each round, as a program
with state does, so that Python's collector has cause to run; with and without two million objects alive from the start. A unit is
one round, in seconds of the thread's processor, so that what other programs do does not count. The 99.9th percentile and the
longest are given, with Python's own collector, and inside a ``timely.worker.GarbageControl``. There is no bar for them.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence

import timely
from benchmarks.exchange import measured
from benchmarks.report import Row
from timely import InputPort, Notificator, OutputPort, Pipeline, Worker
from timely.worker import GarbageControl

ALIVE = 2_000_000
KEPT = 20


def _rounds(rounds: int, alive: int, *, collector: bool) -> Callable[[Worker], list[float]]:
    """Return the program: the seconds of each round, in ascending order."""

    def program(worker: Worker) -> list[float]:
        table = [[number] for number in range(alive)]
        state: dict[int, list[tuple[int, int]]] = {}
        marks: list[float] = []

        def logic(input: InputPort[int, None], output: OutputPort[int], notificator: Notificator[int]) -> None:
            for capability, _ in notificator:
                marks.append(time.thread_time())
                state[capability.time] = [(capability.time, number) for number in range(KEPT)]
                if capability.time < rounds:
                    capability.downgrade(capability.time + 1)
                    notificator.notify_at(capability)

        with worker.dataflow() as scope:
            handle, again = scope.feedback()
            again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(handle)
        with GarbageControl(worker) if collector else contextlib.nullcontext():
            worker.run()
        assert len(table) == alive
        assert len(state) == rounds + 1
        return sorted(after - before for before, after in itertools.pairwise(marks))

    return program


def _worst(program: Callable[[Worker], list[float]], processes: int) -> Sequence[float]:
    """Return the 99.9th percentile and the most, of the worst of the workers."""
    found = timely.execute(program, processes=processes)
    return max(times[len(times) * 999 // 1000] for times in found), max(times[-1] for times in found)


def run(rounds: int = 5, quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    turns = 2_000 if quick else 20_000
    works: dict[str, Callable[[], Sequence[float]]] = {}
    for processes, where in ((1, "1 worker"), (2, "two processes")):
        for alive, how_many in ((0, "little alive"), (ALIVE, "2 M objects alive")):
            for collector, whose in ((False, "Python's collector"), (True, "GarbageControl")):
                program = _rounds(turns, alive, collector=collector)
                works[f"{where}, {how_many}, {whose}"] = lambda p=program, n=processes: _worst(p, n)  # type: ignore[misc]
    rows = []
    for name, (most_of, most) in measured(works, rounds).items():
        rows.append(Row(f"a round, {name}: 99.9th percentile, us", 1e6 * most_of))
        rows.append(Row(f"a round, {name}: longest, us", 1e6 * most))
    return rows
