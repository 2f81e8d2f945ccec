"""The examples run as they stand, as scripts, and print what they are said to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def run(name: str, directory: Path) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == []
    return done.stdout.splitlines()


def test_every_example_is_tested() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    examples = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert [name for name in examples if not any(test.endswith(f"_{name}") for test in tests)] == []


def test_word_count(tmp_path: Path) -> None:
    lines = run("word_count", tmp_path)
    assert len(lines) == 58
    assert "editors        emacs 105, editor 100, files 46, office 24" in lines
    assert "zope           python 5, object 2, support 2, system 2" in lines


def test_circular_dependencies(tmp_path: Path) -> None:
    first, *circles = run("circular_dependencies", tmp_path)
    assert first == "58 circles; the largest:"
    assert circles[0] == "- libruby libruby3.1 rake ruby ruby-rubygems ruby-sdbm ruby3.1"
    assert [len(circle.split()) - 1 for circle in circles] == [7, 6, 5, 5]


def test_L2_collatz(tmp_path: Path) -> None:
    rounds = [list(map(int, line.partition(":")[2].split())) for line in run("collatz", tmp_path)]
    assert sum(map(len, rounds)) == 64
    assert len(rounds) == 19
    assert rounds[0] == sorted([4, 1, 10, 2, 16, 3, 22, 4, 28])
    assert rounds[-1] == [1]


def test_L4_barrier(tmp_path: Path) -> None:
    assert run("barrier", tmp_path) == ["2 workers passed 1000 rounds, and none was ever ahead of another"]


def smooth(n: int) -> bool:
    """Whether no prime above 5 divides n."""
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1


@pytest.mark.parametrize("attempt", range(3))
def test_custom_timestamp(attempt: int, tmp_path: Path) -> None:
    (line,) = run("custom_timestamp", tmp_path)
    assert list(map(int, line.split())) == [n for n in range(1, 61) if smooth(n)]
