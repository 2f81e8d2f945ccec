"""What a session must offer, and what is said where it, or a package, does not.

White box: masters, Python versions and missing packages are played, since one process has one session.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import timely.spark.batch
from tests.support.spark_programs import SparkPrograms
from timely import spark as ts
from timely.errors import ConfigurationError, SparkError
from timely.spark.session import context_of, is_local, this_python

ROOT = Path(timely.spark.batch.__file__).parents[2]


def failed_import(program: str, **environment: str) -> str:
    """The last line of what a program says that cannot import something."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named(package: str) -> None:
    last = failed_import(f"import sys; sys.modules['{package}'] = None\nimport timely\nimport timely.spark")
    assert last.startswith("timely.errors.ConfigurationError: timely.spark needs the package py")
    assert 'pip install "timely-dataflow[spark]"' in last


def test_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timely.spark.batch, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r'pandas.*pip install "timely-dataflow\[spark\]"'):
        ts.run(lambda scope: {}, {"x": cast(DataFrame, None)}, {"x": "x long"}, workers=1)


@pytest.fixture
def connect() -> Iterator[Any]:
    """A session of Spark Connect, to a server that is not there: whatever asks it anything waits in vain."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session = ConnectSession("sc://127.0.0.1:1")
    session.release_session_on_close = False
    yield session
    session.client._release_session_on_exit = False
    session.client.close()


def test_a_session_of_spark_connect_has_no_context(connect: Any) -> None:
    with pytest.raises(SparkError, match=r"this session is one of Spark Connect, and this needs a classic session.*master\("):
        context_of(connect)


def test_the_client_of_spark_connect_alone_has_no_local_session() -> None:
    program = "import timely.graphs.spark\ntimely.spark.local_session(2)"
    message = failed_import(program, SPARK_SKIP_CONNECT_COMPAT_TESTS="1")
    assert message.startswith("timely.errors.ConfigurationError: a local session needs all of pyspark")
    assert 'pip install "timely-dataflow[spark]"' in message


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_what_is_local(master: str, local: bool) -> None:
    assert is_local(cast(Any, SimpleNamespace(master=master))) is local


@pytest.mark.parametrize(
    ("master", "chosen", "used"),
    [
        ("local[2]", None, sys.executable),
        ("local[2]", "python3.99", "before"),
        ("yarn", None, "before"),
        ("local-cluster[2,1,1024]", None, sys.executable),
        ("spark://127.0.0.1:40000", None, sys.executable),
        ("spark://10.0.0.1:7077", None, "before"),
    ],
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
def test_a_session_outlives_processes_that_another_thread_forks(session: SparkSession) -> None:
    """They let go of what the session's own thread was connected to Java by."""
    assert SparkSession.getActiveSession() is session
    forking = threading.Thread(target=timely.execute, args=(lambda worker: None,), kwargs={"processes": 2})
    forking.start()
    forking.join()
    assert SparkSession.getActiveSession() is session
    assert session.range(3).count() == 3


@pytest.mark.spark
def test_a_session_that_is_up_is_used(session: SparkSession) -> None:
    shuffles = session.conf.get("spark.sql.shuffle.partitions")
    assert ts.local_session(2) is session
    assert session.conf.get("spark.sql.shuffle.partitions") == shuffles
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.spark
def test_a_stopped_session_is_an_error(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    """In a process of programs: the session of the other tests goes on."""
    program = """
        from timely import SparkError, spark
        session = spark.local_session(1)
        numbers = session.range(3)
        session.stop()
        try:
            spark.check(session, 1)
        except SparkError as error:
            print(error)
        for go in (spark.run, lambda *given, **more: spark.stream(*given, foreach_epoch=print, checkpoint="nowhere", **more)):
            try:
                go(lambda scope, numbers: {"numbers": numbers}, {"numbers": numbers}, {"numbers": "id long"}, workers=1)
            except SparkError as error:
                print(error)
    """
    ended = spark_programs.run(textwrap.dedent(program), tmp_path)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "this Spark session was stopped: make another one",
        *["the Spark session of the inputs was stopped: make another one, and the inputs in it"] * 2,
    ]
