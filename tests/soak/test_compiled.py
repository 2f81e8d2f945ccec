"""The compiled engine and the pure one do the same, step by step: random programs, every frontier and every message."""

from __future__ import annotations

import difflib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import timely
from tests.compiled import ROOT, NotCompiled, compiled_copy, environment

pytestmark = pytest.mark.soak
AT_ONCE = 50


def traces(folder: Path, seed: int, *options: str) -> list[str]:
    """Return what ``tests.testing.traces`` writes where the package is imported from a folder."""
    env = {**os.environ, **environment(folder), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.testing.traces", str(seed), str(AT_ONCE), *options]
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.skipif(timely.compiled, reason="there is nothing to compare it with")
def test_both_engines_take_the_same_steps(soak_seconds: float, cover: Callable[[int, str], None]) -> None:
    try:
        compiled = compiled_copy()
    except NotCompiled as error:
        pytest.skip(str(error))
    end, seed, count = time.monotonic() + soak_seconds, random.randrange(10**9), 0
    while time.monotonic() < end or not count:
        mine, theirs = (traces(folder, seed) for folder in (ROOT, compiled))
        assert 0 < len(mine) == len(theirs)
        for number in range(len(mine)):
            if mine[number] != theirs[number]:
                here, there = (traces(folder, seed, "--full", str(number)) for folder in (ROOT, compiled))
                lines = difflib.unified_diff(here, there, "pure", "compiled")
                pytest.fail("\n".join([f"program {number} of seed {seed}", *lines]))
        seed, count = seed + 1, count + len(mine)
    cover(count, "programs in")
