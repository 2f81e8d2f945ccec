"""What the processes of one run of the tests have covered is added up by the one that reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
from hypothesis import given, settings, strategies as st

@settings(max_examples={cases}, database=None)
@given(st.integers())
def test_property(n):
    pass

def test_soak(cover):
    cover({cases}, "things in")
"""


def test_what_two_processes_cover_is_added_up(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")
    for cases in (3, 4):
        (tmp_path / f"test_{cases}.py").write_text(TESTS.format(cases=cases))
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--figures", "."]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert sorted(line for line in lines if "things in" in line) == ["3 things in test_soak", "4 things in test_soak"]
    assert [line for line in lines if "random cases" in line] == ["7 random cases of properties (Hypothesis)"]
