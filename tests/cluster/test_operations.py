"""Executors that are processes of their own: settings that are really set, packages that they lack, and their logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyspark
import pytest
from pyspark.sql import SparkSession

import timely
from tests.cluster.clusters import HOME, SLOTS, local_cluster
from timely import spark as ts
from timely.errors import SparkError

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

WRONG = {
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "600",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "40",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "15s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.python.udf.pipelined.enabled": "true",
}
NO_MATTER = ("speculation", "adaptive", "timeZone", "pipelined", "interval", "idleTimeoutSeconds")


def counted(session: SparkSession) -> int:
    """How many of 100 rows come through a dataflow, whose workers take different times."""

    def through(scope: timely.ScopeBuilder[int], x: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        def wait(batch: Any) -> Any:
            time.sleep(1 + 2 * (batch.column(0)[0].as_py() % 2))
            return batch

        return {"x": x.exchange("id").map_batch(wait)}

    return ts.run(through, {"x": session.range(100)}, {"x": "id long"}, workers=SLOTS)["x"].count()


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has what Spark requires, and neither this library nor what it requires."""
    folder = tmp_path / "packages"
    folder.mkdir()
    ours = {"timely", "attr", "attrs", "sortedcontainers", "typing_extensions.py"}
    for package in (pyspark, pyarrow):  # another version of Spark is in a place of its own, which comes first
        for path in Path(str(package.__file__)).parents[1].iterdir():
            link = folder / path.name
            if path.name not in ours and path.suffix != ".pth" and "editable" not in path.name and not link.exists():
                link.symlink_to(path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def path_of_the_driver() -> Iterator[None]:
    """What Spark adds to the driver's own path is taken off again."""
    before = list(sys.path)
    yield
    sys.path[:] = before


def test_executors_that_lack_the_library_get_it(bare_python: Path, path_of_the_driver: None) -> None:
    with local_cluster() as session:
        session.sparkContext.pythonExec = str(bare_python)
        with pytest.raises(Exception, match=r"cannot import timely: No module named .timely.\. Call timely\.spark\.ship"):
            counted(session)
        ts.ship(session)
        assert counted(session) == 100


def test_the_log_of_an_executor_says_what_its_worker_did() -> None:
    with local_cluster() as session:
        session.sparkContext.setLogLevel("INFO")
        assert counted(session) == 100
        session.sparkContext.setLogLevel("ERROR")
        logs = [path.read_text() for path in (HOME / "work").glob(f"{session.sparkContext.applicationId}/*/stderr")]
        lines = [line for log in logs for line in log.splitlines() if " timely.spark.task: run " in line]
    for worker in range(SLOTS):
        received = [line.rpartition(": ")[2] for line in lines if f"worker {worker}, attempt " in line]
        assert received[0].startswith("begins, in stage ")
        assert received[1:] == ["has met the other 1 workers", "has finished"]


# Last: what the first session of a process is made with stays with its Java, and with the sessions that come after it.


def test_settings_that_are_really_set_are_found_and_those_that_do_not_matter_do_not() -> None:
    with local_cluster(**WRONG) as session:
        result = ts.check(session, SLOTS)
        assert {finding.setting for finding in result} == {name for name in WRONG if not any(part in name for part in NO_MATTER)}
        assert [finding.setting for finding in result.required] == ["spark.sql.execution.pyspark.udf.killOnIdleTimeout"]
        with pytest.raises(SparkError, match="killOnIdleTimeout=false"):
            counted(session)
        session.conf.set("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "false")
        assert counted(session) == 100


def test_dynamic_allocation_is_refused() -> None:
    with (
        local_cluster(**{"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "2"}) as session,
        pytest.raises(SparkError, match="Set spark.dynamicAllocation.enabled=false"),
    ):
        counted(session)
