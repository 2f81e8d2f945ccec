"""The README tells the truth: its programs print what stands below them, its commands are the ones that CI runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.support.spark_programs import SparkPrograms

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a Markdown text as ``(language, content)``, in order."""
    return BLOCK.findall(text)


def programs(text: str) -> list[tuple[str, str]]:
    """Each Python block with the output it shows: the content of the ``text`` block right after it, or nothing."""
    collected = []
    listed = [*blocks(text), ("", "")]
    for (language, source), (following, output) in pairwise(listed):
        if language == "python":
            collected.append((source, output if following == "text" else ""))
    return collected


README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for language, content in blocks(README) if language == "sh" for line in content.splitlines()]
PROGRAMS = [
    pytest.param(source, output, id=f"program{i}", marks=[pytest.mark.spark] if "spark" in source else [])
    for i, (source, output) in enumerate(programs(README))
]


@pytest.mark.parametrize(("source", "output"), PROGRAMS)
def test_a_program_prints_what_the_readme_shows(source: str, output: str, tmp_path: Path, spark_programs: SparkPrograms) -> None:
    if "spark" in source:
        ended = spark_programs.run(source, tmp_path)
        assert ended.status == 0, ended.stderr
        assert ended.stdout == output
        return
    script = tmp_path / "program.py"
    script.write_text(source, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_the_readme_opens_with_a_program_and_its_output() -> None:
    assert [language for language, _ in blocks(README)][:2] == ["python", "text"]
    assert all(output for _, output in programs(README))


def titles(svg: str) -> list[str]:
    """What is drawn: the paths of scopes and operators."""
    return sorted(re.findall(r"<title>([^<\n]+)", svg))


def test_the_picture_of_the_tutorial_is_that_of_its_loop_in_a_loop() -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    program: dict[str, Any] = {}
    exec(next(source for source, _ in programs(tutorial) if "outer.iterative" in source), program)
    with timely.Worker().dataflow(int, name="numbers") as scope:
        program["build"](scope).capture()
    drawn = scope.picture().svg()
    (shown,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", tutorial)
    assert len(titles(drawn)) > 10
    assert titles((ROOT / "docs" / shown).read_text(encoding="utf-8")) == titles(drawn), (
        "draw it anew, with scope.picture().save(...)"
    )


def test_the_moving_picture_is_of_the_live_page_and_moves() -> None:
    (shown,) = re.findall(r'<img src="([^"]+)"', README)
    picture = (ROOT / shown).read_bytes()
    assert picture.startswith(b"GIF89a") and picture.count(b"\x21\xf9\x04") > 1  # an extension before each image
    assert len(picture) < 1_000_000


def test_a_program_is_paired_with_the_output_right_after_it() -> None:
    text = "```python\na\n```\nwords\n```text\nA\n```\n```python\nb\n```\n```sh\nls\n```\n"
    assert programs(text) == [("a\n", "A\n"), ("b\n", "")]


def test_the_readme_has_two_commands_that_start_from_nothing() -> None:
    assert len(COMMANDS) == 2
    main_job, tests = COMMANDS
    assert main_job.endswith("&& .venv/bin/timely demo")
    assert tests.endswith("&& .venv/bin/pytest -n 4")
    assert all(command.startswith("python3 -m venv .venv && ") for command in COMMANDS)


def checks(
    directory: Path, test: str = "true", ruff: str = "true", mypy: str = "true", mkdocs: str = "true", python: str = "true"
) -> tuple[int, str]:
    """Runs .ci/run on a tree of its own, with this test command and these tools; return its status and output."""
    (directory / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", directory / ".ci")
    tools = directory / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, body in {"ruff": ruff, "mypy": mypy, "pip": "true", "mkdocs": mkdocs, "python": python}.items():
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@"\n{body}\n', encoding="utf-8")
        (tools / name).chmod(0o755)
    (directory / "README.md").write_text(f"```text\nno pytest\n```\n```sh\n{test}\n```\npytest\n", encoding="utf-8")
    command = ["bash", str(directory / ".ci" / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_ci_runs_the_tests_of_the_readme_then_the_tools(tmp_path: Path) -> None:
    status, output = checks(tmp_path, test="echo tested && : pytest")
    assert status == 0
    assert output.index("\ntested\n") < output.index("\nruff check .\n") < output.index("\nmypy --strict\n")
    assert output.endswith("passed: tests, spark, lint, prose, types, programs, site\n")


@pytest.mark.parametrize(
    ("commands", "failed"),
    [
        ({"test": "false && : pytest"}, "tests"),
        ({"test": "false | cat && : pytest", "mypy": "exit 2"}, "tests types"),
        ({"test": ": pytest", "ruff": "exit 1", "python": "[ $2 != tests.prose ]"}, "lint prose"),
        ({"test": ": pytest", "mkdocs": "exit 1"}, "site"),
        ({"test": ": pytest", "python": "[ $2 != tests.site ]"}, "site"),
        ({"test": ": pytest", "python": "[ $2 != tests.snippets ]"}, "programs"),
    ],
)
def test_ci_fails_when_any_check_fails(tmp_path: Path, commands: dict[str, str], failed: str) -> None:
    status, output = checks(tmp_path, **commands)
    assert status != 0
    assert output.endswith(f"FAILED: {failed}\n")


def test_ci_says_that_counts_have_grown_and_passes(tmp_path: Path) -> None:
    status, output = checks(tmp_path, test=": pytest", python='[ "$2" = benchmarks ] || exit 0\necho barrier GREW\nexit 1')
    assert status == 0
    assert output.index("python -m benchmarks counts --compare") < output.index("barrier GREW") < output.index("not a failure")
    assert output.endswith("passed: tests, spark, lint, prose, types, programs, site\n")


@pytest.mark.parametrize("test", ["ls", ": pytest\n: pytest again"])
def test_ci_fails_when_the_readme_has_no_single_test_command(tmp_path: Path, test: str) -> None:
    status, output = checks(tmp_path, test=test)
    assert status == 2
    assert "exactly one line with pytest" in output
