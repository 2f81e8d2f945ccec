"""Many runs in one session leave nothing behind: no memory of the driver, no threads, no open files.

``pytest -m soak -o faulthandler_timeout=0 tests/soak/test_runs.py``.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.spark.runs import applying, failing, rows, through
from timely import spark as ts

pytestmark = [pytest.mark.soak, pytest.mark.spark]

RUNS = 200
WARM = 60
"""Runs after which Spark and Python have what they keep for good."""


class Usage(NamedTuple):
    """What a process uses: MiB of memory that is not in files, threads and open files."""

    memory: float
    threads: int
    files: int

    @classmethod
    def of(cls, process: int) -> Usage:
        """Return what a process uses now."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
        memory = int(lines["RssAnon"].split()[0]) / 1024
        return cls(memory, int(lines["Threads"]), len(os.listdir(f"/proc/{process}/fd")))


@pytest.fixture
def session() -> Iterator[SparkSession]:
    session = ts.local_session(2)
    yield session
    session.stop()


def test_many_runs_in_one_session(session: SparkSession, cover: Callable[[int, str], None]) -> None:
    """Every tenth fails. Java forgets plans when it collects garbage, which Spark asks for twice an hour, and this more often."""
    edges = session.createDataFrame([("a", "b"), ("b", "c")], "src string, dst string").persist()
    machine = session._jvm
    assert machine is not None
    java = int(machine.ProcessHandle.current().pid())
    warm: list[Usage] = []
    for number in range(RUNS):
        if number % 10 == 9:
            result = ts.run(applying(failing("no edges")), {"n": session.range(3).withColumnRenamed("id", "n")}, {"n": "n long"})
            with pytest.raises(Exception, match="no edges"):
                result["n"].collect()
        else:
            result = ts.run(through, {"edges": edges}, {"edges": "src string, dst string"})
            assert rows(result["edges"]) == Counter([("a", "b"), ("b", "c")])
        del result
        if number % 20 == 19:
            gc.collect()
            machine.System.gc()
            usage = [Usage.of(process) for process in (os.getpid(), java)]
            print(f"after {number + 1} runs: Python {usage[0]}, Java {usage[1]}")
            if number + 1 == WARM:
                warm = usage
    cover(RUNS, "runs in one session")
    (python, java_before), (python_after, java_after) = warm, usage
    assert python_after.threads <= python.threads + 1
    assert python_after.files <= python.files + 2
    assert python_after.memory < python.memory + 5
    assert java_after.files <= java_before.files + 10
    assert java_after.threads <= java_before.threads + 60  # its pools shrink and grow: 285 to 321 in one trial
