"""Versions of PySpark: which are refused, and what this library does where a version has no function of its own.

White box: which branch runs depends on the installed version; both are shown on each.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from timely.errors import ConfigurationError, SparkError
from timely.spark import plan, versions


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8", "5.0.0"])
def test_other_versions_are_refused_with_what_is_installed(version: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"needs Spark 3.5 or later, before 5.0; this is PySpark {version}"):
        versions.check_version(version)


def test_another_version_is_refused_at_import() -> None:
    """Before anything is imported that it may lack."""
    program = "import sys, pyspark\npyspark.__version__ = '3.4.4'\nsys.modules['pyspark.util'] = None\nimport timely.graphs.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr.splitlines()[-1].endswith("timely.spark needs Spark 3.5 or later, before 5.0; this is PySpark 3.4.4")


def test_spark_connect_of_before_4_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "HAS_CONNECT", False)
    connect: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    frame: Any = SimpleNamespace(mapInArrow=print, sparkSession=connect())
    with pytest.raises(SparkError, match=r"Spark Connect needs PySpark 4.0 or later: make the session with master\(...\)"):
        plan.session_of({"rows": frame})


@pytest.mark.parametrize("ordered", [True, False])
def test_all_tasks_of_an_attempt_give_its_least_number(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    monkeypatch.setattr(versions, "NUMBERED_BY_PARTITION", ordered)
    numbers = [7, 8, 9] if ordered else [9, 7, 8]
    gather = [str(number) for number in numbers].copy
    tasks: list[Any] = [
        SimpleNamespace(partitionId=partition.__int__, taskAttemptId=number.__int__, allGather=lambda own: gather())
        for partition, number in enumerate(numbers)
    ]
    assert list(map(versions.attempt_of, tasks)) == [7, 7, 7]


def test_a_task_that_never_comes_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "START_WITHIN", 0.01)
    test_ends = threading.Event()
    task: Any = SimpleNamespace(partitionId=lambda: 1, allGather=lambda text: test_ends.wait(600))
    with pytest.raises(SparkError, match="worker 1 waited in vain for the others of its attempt"):
        versions.gathered(task)
    test_ends.set()


@pytest.mark.parametrize("older", [False, True], ids=["as installed", "as Spark 4.0"])
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_shuffle_leaves_each_row_where_it_is(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, partitions: int, older: bool
) -> None:
    if older:
        monkeypatch.setattr(versions, "_release", lambda version: (4, 0))
    placed = session.range(0, 40, 1, partitions).withColumn("partition", F.spark_partition_id())
    shuffled = versions.stay_in_partitions(placed, partitions, F)
    assert shuffled.columns == ["id", "partition"]
    assert "Exchange" in shuffled._jdf.queryExecution().executedPlan().toString()
    rows = shuffled.withColumn("now", F.spark_partition_id()).collect()
    assert len(rows) == 40 and all(row["partition"] == row["now"] for row in rows)


def test_nested_batches_from_java_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_release", lambda version: (4, 1))
    inner = pa.struct(
        [pa.field("lists", pa.list_(pa.list_(pa.string()))), pa.field("maps", pa.map_(pa.string(), pa.list_(pa.int32())))]
    )
    rows: list[Any] = [None, {"lists": [], "maps": None}, {"lists": [[], None, ["a", None]], "maps": [("k", None), ("l", [1])]}]
    batch = pa.record_batch({"one": pa.array(rows, inner), "many": pa.array([rows, None, []], pa.list_(inner))})
    rebuilt = list(versions.batches_from_java([batch, batch.slice(0, 0)]))
    assert rebuilt == [batch, batch.slice(0, 0)]
    assert all(part.validate(full=True) is None for part in rebuilt)
