"""Faults in the middle of a run do no harm: its stage ends promptly, the cause is named, and the run goes on where it was.

One or two of each kind, on the shared session. Many at random moments are in ``tests/soak/test_faults.py``, and those that need a
cluster in ``tests/cluster/test_cluster_faults.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.faults import SCHEMA, Row, Saboteur, alive, building, outcome, requirements
from timely import spark as ts
from timely.errors import CheckpointError, ConfigurationError, OperatorError, PeerLostError

pytestmark = pytest.mark.spark
ROWS = 1500


@pytest.fixture(scope="module")
def edges(session: SparkSession) -> DataFrame:
    return requirements(session, ROWS).persist()


@pytest.fixture(scope="module")
def expected(edges: DataFrame) -> Counter[Row]:
    """What a run without faults and without checkpoints gives, on another number of workers."""
    return outcome(run(edges, None, workers=1)["all"])


def run(edges: DataFrame, saboteur: Saboteur | None, workers: int = 2, **options: Any) -> ts.Result:
    return ts.run(building(saboteur), {"requirements": edges}, {"all": SCHEMA}, workers=workers, epoch="epoch", **options)


def until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait for something that must come to pass."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come to pass"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("deed", "place", "after", "victim"),
    [("raise", "loop", 60, 1), ("SIGKILL", "loop", 80, 0), ("full", "input", 11, 1)],
    ids=["an operator raises", "a process is killed in a loop", "the disk is full"],
)
def test_a_run_goes_on_from_its_last_checkpoint(
    edges: DataFrame, expected: Counter[Row], tmp_path: Path, deed: str, place: str, after: int, victim: int
) -> None:
    saboteur = Saboteur(tmp_path, deed, place, after, victim)
    result = run(edges, saboteur, checkpoint=tmp_path / "kept", checkpoint_every=2)
    assert outcome(result["all"]) == expected
    assert saboteur.acted
    assert len(result.resumed) == 1
    assert 0 < result.resumed[0] < 24
    cause = {"raise": OperatorError, "full": CheckpointError}.get(deed)
    if cause is not None:
        assert isinstance(result.failure, cause)
        assert {"raise": "sabotage", "full": "File too large"}[deed] in str(result.failure)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_worker_that_hangs_is_found_out_and_does_not_live_on(
    edges: DataFrame, expected: Counter[Row], tmp_path: Path, workers: int
) -> None:
    """Whether or not there are others, whose tasks fail then."""
    victim = workers - 1
    saboteur = Saboteur(tmp_path, "SIGSTOP", "loop", 80, victim)
    result = run(edges, saboteur, workers, checkpoint=tmp_path / "kept", checkpoint_every=2, patience=4)
    assert outcome(result["all"]) == expected
    assert saboteur.acted
    assert len(result.resumed) >= 1
    assert isinstance(result.failure, PeerLostError)
    assert f"worker {victim} has been silent for 4 s" in str(result.failure)
    until(lambda: not alive(saboteur.acted_by))


def test_a_fault_that_stays_ends_the_run_and_is_named(edges: DataFrame, tmp_path: Path) -> None:
    saboteur = Saboteur(tmp_path, "raise", "loop", 60, 1, again=True)
    result = run(edges, saboteur, checkpoint=tmp_path / "kept", checkpoint_every=2)
    with pytest.raises(Exception, match="look at loop.*worker 1 raised RuntimeError: sabotage"):
        result["all"].collect()
    assert isinstance(result.failure, OperatorError)
    assert result.failure.worker == 1


def test_a_second_action_at_the_same_time_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """Both would write their checkpoints at one place. The first goes on, undisturbed."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    place = tmp_path / "kept"

    def waiting(batch: Any) -> Any:
        begun.touch()
        until(gate.exists)
        return batch

    def frame(function: Callable[[Any], Any]) -> ts.Result:
        def build(scope: Any, numbers: Any) -> Any:
            return {"numbers": numbers.map_batch(function)}

        numbers = session.range(4)
        return ts.run(build, {"numbers": numbers}, {"numbers": "id long"}, workers=1, epoch="id", checkpoint=place)

    first, second = frame(waiting), frame(lambda batch: batch)
    collected: list[Any] = []
    with background(lambda: collected.extend(first["numbers"].collect())):
        until(begun.exists)
        with pytest.raises(Exception, match="another run keeps its checkpoints at"):
            second["numbers"].collect()
        assert isinstance(second.failure, ConfigurationError)
        gate.touch()
    assert sorted(row.id for row in collected) == [0, 1, 2, 3]
    assert second["numbers"].count() == 4


@contextlib.contextmanager
def background(work: Callable[[], object]) -> Any:
    """Do something in another thread meanwhile."""
    from pyspark import InheritableThread

    thread = InheritableThread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(600)


DRIVER = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.faults import SCHEMA, Saboteur, building, requirements
from timely import spark as ts

notes, rows = Path(sys.argv[1]), int(sys.argv[2])
if __name__ == "__main__":
    session = ts.local_session(2)
    edges = requirements(session, rows)
    saboteur = Saboteur(notes, "wait", "loop", 80, 1)
    result = ts.run(
        building(saboteur), {"requirements": edges}, {"all": SCHEMA}, workers=2, epoch="epoch", checkpoint=notes / "kept",
        checkpoint_every=2,
    )
    result["all"].collect()
"""


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)])
def test_a_driver_that_is_interrupted_leaves_nothing_behind_but_its_checkpoints(
    edges: DataFrame, expected: Counter[Row], tmp_path: Path, how: signal.Signals
) -> None:
    """And another driver goes on from them."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    saboteur = Saboteur(tmp_path, "wait", "loop", 80, 1)
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(ROWS)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as driver:
        try:
            until(lambda: saboteur.acted or driver.poll() is not None, 120)
            driver.send_signal(how)
            _, message = driver.communicate(timeout=600)
        finally:
            driver.kill()
    assert saboteur.acted, message
    assert driver.returncode != 0
    assert how != signal.SIGINT or "KeyboardInterrupt" in message
    until(lambda: not any(alive(pid) for pid in saboteur.pids()))
    assert [path.name for path in scratch.rglob("*") if "timely" in path.name] == []
    result = run(edges, saboteur, checkpoint=tmp_path / "kept", checkpoint_every=2)  # which has acted, and does so once
    assert outcome(result["all"]) == expected
    assert len(result.resumed) == 1
