"""The command of the guide for a standalone cluster runs: what it sets reaches the program, and the program its workers."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cluster.clusters import HOME, ROOT, on_this_machine, start_master, start_worker

pytestmark = pytest.mark.cluster

GUIDE = ROOT / "docs" / "spark_operations.md"

PROGRAM = """
import sys

from pyspark.sql import SparkSession

from timely.graphs.spark import connected_components
from timely.spark import check

session = SparkSession.builder.getOrCreate()
print(session.sparkContext.appName)
edges = session.range(99).selectExpr("id AS src", "id + 3 AS dst").where("src % 33 != 32")
members = connected_components(edges)
print(members.rdd.getNumPartitions(), "workers")
members.write.parquet(sys.argv[1])
print(check(session, workers=2))
"""

CHANGED = {
    "spark.authenticate.secret": "for the test alone",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.timely.workers": "2",
}
LEFT_OUT = ("spark.pyspark.python",)
"""What belongs to the archive, which is left out: it would pack the whole environment."""


def documented() -> list[str]:
    """The command under the heading Standalone, as its words."""
    section = GUIDE.read_text(encoding="utf-8").partition("\n### Standalone\n")[2]
    command, _ = re.findall(r"^```sh\n(.*?)^```$", section.partition("\n### ")[0], re.MULTILINE | re.DOTALL)
    return shlex.split(command.replace("\\\n", " "))


def here(words: list[str], master: str, program: Path, *arguments: str) -> list[str]:
    """The command for a cluster of this machine: another master, host, secret and size, and no archive."""
    command, rest = [str(HOME / "bin" / words[0])], words[1:-1]
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        name, _, setting = value.partition("=")
        if option == "--archives" or name in LEFT_OUT:
            continue
        if option == "--conf":
            value = f"{name}={CHANGED.get(name, setting)}"
        command += [option, {"--master": master, "--executor-memory": "512m"}.get(option, value)]
    assert {*CHANGED, *LEFT_OUT} <= {value.partition("=")[0] for value in rest}
    return [*command, str(program), *arguments]


def test_the_documented_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nightly.py"
    program.write_text(PROGRAM, encoding="utf-8")
    safe = {"authenticate": "true", "authenticate.secret": CHANGED["spark.authenticate.secret"], "network.crypto.enabled": "true"}
    options = " ".join(f"-Dspark.{name}='{value}'" for name, value in safe.items())
    monkeypatch.setenv("SPARK_DAEMON_JAVA_OPTS", options)  # the daemons have the secret, too
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SPARK_HOME", str(HOME))
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_this_machine())
        master = stack.enter_context(start_master()).said
        command = here(documented(), master, program, str(tmp_path / "members"))
        for number in range(2):
            stack.enter_context(start_worker(master, tmp_path / f"worker{number}"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n")[:3] == ["nightly", "2 workers", "every setting that matters is as it should be"]
    assert list((tmp_path / "members").glob("*.parquet"))
