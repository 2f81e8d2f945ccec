"""Spark's classes as Java has read them, kept in a file that every Java of the tests starts from.

With it, Java takes half of the processor time: 6 s instead of 12 for a session, its first job and a first run. The tests start
some thirty of them. The file is made once a checkout, while the tests begin; those that start before it is there do without.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile for a quick start, not for a long life, and collect garbage with one thread."""

INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""Spark interprets expressions: to make and compile a class for each query took a quarter of Java's time."""

DAEMON = Path(__file__).with_name("spark_daemon")
"""The folder of the module that forks Python workers."""

# Spark splits the variable as a shell does: a checkout may be in a folder whose name has spaces.
LOADED = f"-Dspark.python.daemon.module=loaded_daemon {shlex.quote(f'-Dspark.executorEnv.PYTHONPATH={DAEMON}')}"
"""Python workers start with what they need: loading took two thirds of their time."""

SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""A file that is missing, or that another Java has made, is passed over without a word."""


def options(archive: Path, *, as_users: bool) -> str:
    """What the Java of a test starts with; ``as_users`` have it: with generated code, and Python workers that load modules."""
    shared = shlex.quote(f"-XX:SharedArchiveFile={archive}")
    return f"{QUICK} {SILENT} {shared}" + ("" if as_users else f" {INTERPRETED} {LOADED}")


def start(archive: Path) -> subprocess.Popen[bytes]:
    """Begin to make the file."""
    archive.parent.mkdir(exist_ok=True)  # in a fresh checkout pytest makes the folder later; Java would have nowhere to write
    half = archive.with_suffix(f".{os.getpid()}")
    making = f"{QUICK} {INTERPRETED} {SILENT} {shlex.quote(f'-XX:ArchiveClassesAtExit={half}')}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": making}
    command = [sys.executable, "-m", "tests.support.java_archive", str(half), str(archive)]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _make(half: Path, archive: Path) -> None:
    """Use what most tests use of Spark, end its Java, and put the file that it leaves in its place."""
    from pyspark.sql import functions as F  # only this process needs it

    import timely
    from timely import spark

    def through(scope: timely.ScopeBuilder[int], rows: timely.Stream[int, Any]) -> dict[str, timely.Stream[int, Any]]:
        return {"copies": rows}

    session = spark.local_session(2)
    frame = session.createDataFrame([(1, "a"), (2, "b")], "n long, text string")
    assert frame.groupBy("text").agg(F.sum("n")).count() == 2
    result = spark.run(through, {"rows": frame.select("n")}, {"copies": "n long"}, workers=2)
    assert sorted(row.n for row in result["copies"].collect()) == [1, 2]
    gateway = session.sparkContext._gateway
    assert gateway is not None
    session.stop()
    java = gateway.proc
    java.stdin.close()
    java.wait()
    half.rename(archive)


if __name__ == "__main__":
    _make(*map(Path, sys.argv[1:]))
