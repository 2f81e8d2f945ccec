"""What a session must offer, and what is said where it, or a package, does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import timely.spark.batch
from timely import spark as ts
from timely.errors import ConfigurationError, SparkError
from timely.spark.session import context_of, is_local, require_slots, this_python

ROOT = Path(timely.spark.batch.__file__).parents[2]


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named(package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None\nimport timely\nimport timely.spark"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("timely.errors.ConfigurationError: timely.spark needs the package py")
    assert "pip install '.[spark]'" in last


def test_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timely.spark.batch, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pandas.*pip install '\.\[spark\]'"):
        ts.run(lambda scope: {}, {"x": cast(DataFrame, None)}, {"x": "x long"}, workers=1)


def test_spark_connect_is_refused() -> None:
    with pytest.raises(SparkError, match="Spark Connect"):
        context_of(cast(SparkSession, SimpleNamespace()))


class Cluster:
    """A cluster as far as :func:`require_slots` looks at one: executors come up while it is being asked."""

    master = "spark://somewhere:7077"

    def __init__(self, *slots: int) -> None:
        self.slots = list(slots)
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return {}

    def resourceProfileManager(self) -> Any:
        return SimpleNamespace(defaultResourceProfile=lambda: None)

    def maxNumConcurrentTasks(self, profile: Any) -> int:
        return self.slots.pop(0) if len(self.slots) > 1 else self.slots[0]


def test_a_cluster_that_is_starting_is_waited_for() -> None:
    cluster = Cluster(0, 2, 4)
    require_slots(cast(SparkSession, cluster), 4)
    assert cluster.slots == [4]


def test_a_cluster_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.spark.session._EXECUTORS_APPEAR_WITHIN", 0.1)
    with pytest.raises(SparkError, match=r"5 workers need 5 task slots.*offers 4.*spark.executor.instances"):
        require_slots(cast(SparkSession, Cluster(4)), 5)


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_what_is_local(master: str, local: bool) -> None:
    assert is_local(cast(Any, SimpleNamespace(master=master))) is local


@pytest.mark.parametrize(
    ("master", "chosen", "used"),
    [("local[2]", None, sys.executable), ("local[2]", "python3.99", "before"), ("yarn", None, "before")],
)
def test_the_python_of_the_tasks(monkeypatch: pytest.MonkeyPatch, master: str, chosen: str | None, used: str) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    context = SimpleNamespace(master=master, pythonExec="before")
    with this_python(cast(Any, context)):
        assert context.pythonExec == used
    assert context.pythonExec == "before"


@pytest.mark.spark
def test_a_session_that_is_up_is_used(session: SparkSession) -> None:
    shuffles = session.conf.get("spark.sql.shuffle.partitions")
    assert ts.local_session(2) is session
    assert session.conf.get("spark.sql.shuffle.partitions") == shuffles
    assert "PYSPARK_PYTHON" not in os.environ
