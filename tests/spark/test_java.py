"""Spark finds a Java where there is one, and makes do with what pip brought where there is none.

White box: which Java is found is decided before a session starts, and a process has only one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from timely.errors import SparkError
from timely.spark import java

# Everything that a bare machine has and Spark's scripts need. No Java among it.
COMMANDS = ("bash", "sh", "dirname", "env", "head", "python3", "ps", "rm", "chmod", "basename", "readlink", "uname")

PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa
from timely.spark import local_session
from timely.spark.java import find_java

def count(batches):
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

assert Path(find_java().home, "bin", "java").is_file()
session = local_session(2)
counted = session.range(7).repartition(2).mapInArrow(count, "rows long", barrier=True).repartition(1)
counted.write.parquet(sys.argv[1])
print(session.read.parquet(sys.argv[1]).groupBy().sum("rows").first()[0])
"""


def script(directory: Path, text: str) -> Path:
    """A home with a ``bin/java`` that runs ``text``."""
    target = directory / "bin" / "java"
    target.parent.mkdir(parents=True)
    target.write_text(f"#!/bin/sh\n{text}\n")
    target.chmod(0o755)
    return directory


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-16' >&2"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java: its PATH, one directory."""
    directory = tmp_path / "commands"
    directory.mkdir()
    for command in COMMANDS:
        if (result := shutil.which(command)) is not None:
            (directory / command).symlink_to(result)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.2", 25), ("9-internal", 9)])
def test_versions_are_understood(tmp_path: Path, text: str, version: int) -> None:
    home = script(tmp_path / "home", says(text))
    assert java.java_version(str(home / "bin" / "java")) == version


@pytest.mark.parametrize("text", ["exit 1", says("17") + "; exit 3", "echo hello"])
def test_what_prints_no_version_is_no_java(tmp_path: Path, text: str) -> None:
    assert java.java_version(str(script(tmp_path / "home", text) / "bin" / "java")) == 0


def test_java_home_comes_first_and_goes_without_the_module_that_prints_a_warning(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = script(tmp_path / "home", f'case "$*" in *incubator*) echo WARNING >&2;; esac; {says("21.0.1")}')
    monkeypatch.setenv("JAVA_HOME", str(home))
    runtime = java.find_java()
    assert runtime.version == 21
    arguments = ["--add-modules=jdk.incubator.vector", "-version"]
    outputs = [
        subprocess.run([place / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stderr
        for place in (home, runtime.home)
    ]
    assert ["WARNING" in output for output in outputs] == [True, False]


def test_an_old_java_home_gives_way_to_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(script(tmp_path / "old", says("1.8.0_392"))))
    (bare / "java").symlink_to(script(tmp_path / "new", says("17.0.1")) / "bin" / "java")
    with java.java_environment() as runtime:
        assert os.environ["JAVA_HOME"] == str(runtime.home)
        assert runtime.version == 17
    assert os.environ["JAVA_HOME"] == str(tmp_path / "old")


def test_without_a_java_the_one_from_pip_is_used(bare: Path, tmp_path: Path) -> None:
    with java.java_environment() as runtime:
        assert os.environ["JAVA_HOME"] == str(runtime.home)
    assert "JAVA_HOME" not in os.environ
    assert runtime.version >= java.OLDEST


def test_no_java_at_all_is_explained(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkError, match=r'pip install "timely-dataflow\[spark\]"'):
        java.find_java()


def test_no_bash_is_explained(bare: Path) -> None:
    (bare / "bash").unlink()
    with pytest.raises(SparkError, match="bash"), java.java_environment():
        pass


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], []),
        (["-cp", "a b", "", "*", "$HOME"], ["-cp", "a b", "", "*", "$HOME"]),
        (["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main"], ["Main"]),
        (
            ["--add-modules", "java.sql", "--add-modules=java.xml"],
            ["--add-modules", "java.sql", "--add-modules=java.xml"],
        ),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
    ],
)
def test_only_the_missing_module_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], passed: list[str]
) -> None:
    prints = f'[ "$1" = -version ] && {says("21")} || for a do printf "%s\\0" "$a"; done'
    monkeypatch.setenv("JAVA_HOME", str(script(tmp_path / "it's real", prints)))
    made = java.find_java().home / "bin" / "java"
    message = subprocess.run([made, *arguments], capture_output=True, text=True, check=True).stdout
    assert message.split("\0")[:-1] == passed


@pytest.mark.soak
@pytest.mark.spark
def test_a_session_runs_on_the_java_from_pip(bare: Path, tmp_path: Path) -> None:
    root = Path(java.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "out.parquet")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
