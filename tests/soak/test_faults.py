"""Runs that are killed at random moments, over and over, and give what a run without faults does.

What a case does is drawn from its number, so that one that fails can be run again: ``pytest -m soak tests/soak/test_faults.py -k
"[7]"``. Where a run is when the clock strikes is chance all the same.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import session
from tests.spark.faults import SCHEMA, Row, Saboteur, alive, building, outcome, requirements
from timely import spark as ts

__all__ = ["session"]  # a fixture

pytestmark = [pytest.mark.soak, pytest.mark.spark]
CASES = 60
ROWS = 1500
WORKERS = 2
EVERY = 2
PATIENCE = 6.0


@attrs.frozen
class Clock:
    """Kills or stops a worker so many seconds after the first one has begun, from outside: once."""

    notes: Path
    signal: signal.Signals
    after: float
    choice: int

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @property
    def struck(self) -> bool:
        """Whether it did."""
        return (self.notes / "struck").exists()

    def _run(self, over: threading.Event) -> None:
        while not list(self.notes.glob("worker-*")):
            if over.wait(0.01):
                return
        if over.wait(self.after):
            return
        pids = sorted(int(note.name.rpartition("-")[2]) for note in self.notes.glob("worker-*"))
        pids = [pid for pid in pids if alive(pid) and b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        if pids:
            os.kill(pids[self.choice % len(pids)], self.signal)
            (self.notes / "struck").touch()


@attrs.frozen
class Case:
    """What is to happen in one run."""

    saboteur: Saboteur
    clock: Clock | None

    @classmethod
    def draw(cls, number: int, notes: Path, counts: dict[str, int], seconds: float) -> Case:
        choose = random.Random(number)
        place = choose.choice(["loop", "loop", "input", "save"])
        deed = choose.choice(["SIGKILL"] * 7 + ["SIGSTOP", "raise", "full"])
        after = choose.randint(1, max(counts[place] // WORKERS, 1))
        saboteur = Saboteur(notes, deed, place, after, choose.randrange(WORKERS))
        when = choose.choice([signal.SIGKILL, signal.SIGKILL, None, None, None, signal.SIGSTOP])
        clock = None if when is None else Clock(notes, when, choose.uniform(0.0, seconds), choose.randrange(WORKERS))
        return cls(saboteur, clock)

    @property
    def faults(self) -> int:
        """How many faults have struck."""
        return self.saboteur.acted + (self.clock is not None and self.clock.struck)

    def __str__(self) -> str:
        one = self.saboteur
        clock = "" if self.clock is None else f", {self.clock.signal.name} after {self.clock.after:.1f} s"
        return f"{one.deed} of worker {one.victim} at {one.place} {one.after}{clock}"


def run(edges: DataFrame, saboteur: Saboteur, place: Path) -> ts.Result:
    return ts.run(
        building(saboteur), {"requirements": edges}, {"all": SCHEMA}, workers=WORKERS, epoch="epoch", checkpoint=place,
        checkpoint_every=EVERY, patience=PATIENCE,
    )  # fmt: skip


@attrs.define
class Tally:
    """What all cases together came to."""

    faults: Counter[str] = attrs.field(factory=Counter)
    runs: int = 0
    resumed: int = 0
    attempts: int = 0
    again: int = 0

    def add(self, case: Case, resumed: list[int]) -> None:
        """Take note of a run, which went on from these epochs."""
        if not case.faults:
            return
        self.faults[case.saboteur.deed] += case.saboteur.acted
        if case.clock is not None:
            self.faults[f"{case.clock.signal.name} by the clock"] += case.clock.struck
        self.runs += 1
        self.resumed += bool(resumed)
        self.attempts += len(resumed)
        self.again += case.saboteur.rows() - ROWS


@attrs.frozen
class Plain:
    """A run without faults: what it gives, how long it takes, and how often containers come by the places of the dataflow."""

    rows: Counter[Row]
    seconds: float
    counts: dict[str, int]


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return requirements(session, ROWS).persist()


@pytest.fixture(scope="module")
def plain(edges: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """What has no checkpoints, on another number of workers, says what is right."""
    right = outcome(ts.run(building(), {"requirements": edges}, {"all": SCHEMA}, workers=1, epoch="epoch")["all"])
    counts = {}
    for place in ("loop", "save"):
        counting = Saboteur(tmp_path_factory.mktemp("count"), "count", place)
        began = time.monotonic()
        assert outcome(run(edges, counting, counting.notes / "kept")["all"]) == right
        seconds = time.monotonic() - began
        counts[place] = counting.count("loop")
        if place == "loop":
            counts["input"] = counting.count("input")
    return Plain(right, seconds, counts)


@pytest.mark.parametrize("number", range(CASES))
def test_nothing_is_lost_and_nothing_comes_twice(
    edges: DataFrame, plain: Plain, tmp_path: Path, tally: Tally, number: int
) -> None:
    case = Case.draw(number, tmp_path, plain.counts, plain.seconds)
    with case.clock.running() if case.clock is not None else contextlib.nullcontext():
        result = run(edges, case.saboteur, tmp_path / "kept")
        rows = outcome(result["all"])
    print(f"case {number}: {case}: {case.faults} faults, went on from {result.resumed}", flush=True)
    assert rows == plain.rows
    assert not list((tmp_path / "kept").glob("*.manifest"))
    tally.add(case, result.resumed)


def test_most_runs_went_on_from_a_checkpoint(tally: Tally, cover: Callable[[int, str], None]) -> None:
    faults = tally.faults.total()
    cover(faults, f"faults ({', '.join(f'{count} {deed}' for deed, count in tally.faults.most_common())}) in")
    cover(tally.runs, f"runs with faults, of which {tally.resumed} went on from a checkpoint, in {tally.attempts} attempts, in")
    cover(round(100 * tally.again / (ROWS * max(tally.runs, 1))), "percent of the rows taken in again by each of them, in")
    assert faults >= 50
    assert tally.resumed > tally.runs / 2
