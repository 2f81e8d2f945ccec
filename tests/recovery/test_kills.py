"""Processes are killed without a word, at moments that a seed chooses, while they work or write a checkpoint; others take over.

What a run commits with its checkpoints is what a run without faults commits: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import timely
from tests.recovery.programs import expected, nothing, program
from tests.recovery.stores import HookedStore

EPOCHS = 12


class Fuse:
    """Kills its process at the ``number``-th event."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, event: str) -> None:
        self.number -= 1
        if self.number == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(directory: Path, workers: int, victim: int, at: int) -> list[tuple[int, list[Any], int]]:
    """Run the program in so many processes; ``victim`` ends at its ``at``-th event, if it comes so far."""

    def one(worker: timely.Worker) -> tuple[int, list[Any], int]:
        event = Fuse(at) if worker.index == victim else nothing
        store = HookedStore(directory, lambda moment, name: event(moment))
        return program(worker, store, EPOCHS, every=2, event=event)

    return timely.execute(one, processes=workers)


def check_kills(directory: Path, seed: int, kills: int) -> tuple[int, int]:
    """Try to kill so often, then let a run come to its end; return how many runs were killed, and after how many of these there
    was a checkpoint that had not been there before.
    """
    choose = random.Random(seed)
    killed = advanced = 0
    newest = ""
    for _ in range(kills):
        try:
            run(directory, choose.choice((2, 2, 3)), choose.randrange(2), choose.randrange(1, 100))
        except timely.TimelyError as error:
            assert "exit code -9" in str(error) or isinstance(error, timely.PeerLostError), error
            killed += 1
            result = max((path.name for path in directory.glob("*.manifest")), default="")
            advanced += result != newest
            newest = result
    results = run(directory, 2, victim=-1, at=0)
    assert Counter(record for _, came, _ in results for record in came) == expected(EPOCHS)
    assert sum(seen for _, _, seen in results) == 6 * EPOCHS
    return killed, advanced


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    killed, _ = check_kills(tmp_path, seed=0, kills=10)
    assert killed >= 3
