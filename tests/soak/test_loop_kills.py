"""Graph functions whose workers, executors and drivers are killed in the middle of a loop give what they give without.

What a case does is drawn from its number, so that one that fails can be run again: ``pytest -m soak tests/soak/test_loop_kills.py
-k "[7]"``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.cluster.clusters import local_cluster
from tests.spark.conftest import session
from tests.spark.loops import EVERY, FUNCTIONS, Kill, Killer, rows, weighted_edges
from timely import spark as ts

__all__ = ["session"]  # a fixture

pytestmark = [pytest.mark.soak, pytest.mark.spark]
CASES = 50
SECONDS = 300.0
NODES = 150


@attrs.frozen
class Case:
    """A graph function, and what is killed while it runs."""

    function: str
    deed: str
    kills: tuple[Kill, ...]

    @classmethod
    def draw(cls, number: int) -> Case:
        choose = random.Random(number)
        function = list(FUNCTIONS)[number % len(FUNCTIONS)]
        deed = "driver" if number % 10 == 3 else "executor" if number % 10 == 7 else "worker"
        kills = [Kill(choose.randrange(2), choose.randint(4, 60), deed) for _ in range(choose.randint(1, 2))]
        return cls(function, deed, tuple(kills))


def run(case: Case, edges: DataFrame, place: Path) -> tuple[list[Any], list[int]]:
    """Run one case, in this driver; return the rows, and from where its attempts resumed."""
    killer: Any = Killer(place, place / "kept", case.kills)
    result = FUNCTIONS[case.function](edges, workers=2, checkpoint=place / "kept", checkpoint_every=EVERY, live=killer)
    return rows(result), result.resumed


def main(number: int, place: Path) -> None:
    """Run one case in a driver of its own, which may be killed, and run again."""
    case = Case.draw(number)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(local_cluster()) if case.deed == "executor" else ts.local_session(2)
        tables = run(case, weighted_edges(cluster, NODES), place)
        (place / "found").write_text(json.dumps(tables))


def in_another_driver(number: int, place: Path) -> tuple[list[Any], list[int]]:
    """Run a case in drivers of its own, each until it ends or is to be killed."""
    code = f"from pathlib import Path; from tests.soak.test_loop_kills import main; main({number}, Path({str(place)!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    deadline = time.monotonic() + SECONDS
    while not (place / "found").exists():
        killed = len(list(place.glob("kill-*")))
        with subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True) as driver:
            while driver.poll() is None:
                wanted = [note for note in place.glob("kill-*") if note.read_text() == "driver"]
                if len(wanted) > killed or time.monotonic() > deadline:
                    driver.send_signal(signal.SIGKILL)
                time.sleep(0.01)
        assert time.monotonic() < deadline, "it has not come to pass"
        assert driver.returncode in (0, -signal.SIGKILL)
    answer, resumed = json.loads((place / "found").read_text())
    return [tuple(row) for row in answer], resumed


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return weighted_edges(session, NODES)


@pytest.fixture(scope="module")
def expected(edges: DataFrame) -> dict[str, list[Any]]:
    """What runs without checkpoints give."""
    return {name: rows(function(edges, workers=2)) for name, function in FUNCTIONS.items()}


tally: Counter[str] = Counter()


@pytest.mark.parametrize("number", range(CASES))
def test_what_is_killed_in_a_loop_goes_on(number: int, edges: DataFrame, expected: dict[str, list[Any]], tmp_path: Path) -> None:
    case = Case.draw(number)
    tables, resumed = run(case, edges, tmp_path) if case.deed == "worker" else in_another_driver(number, tmp_path)
    assert tables == expected[case.function]
    done = [note.read_text() for note in tmp_path.glob("kill-*")]
    assert len(resumed) <= len(done)
    tally.update(done)
    tally["runs"] += 1
    tally["resumed"] += len(resumed) > 0


def test_most_runs_were_killed_and_went_on() -> None:
    if tally["runs"] < CASES:
        pytest.skip(f"only {tally['runs']} cases were run")
    print(dict(tally))
    assert sum(tally[deed] for deed in ("worker", "executor", "driver")) >= CASES * 3 // 4
    assert tally["resumed"] >= CASES // 2
