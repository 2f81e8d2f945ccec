"""Runs that fill the memory end with an error that names who holds most, in about the budget; those that fit end with results.

Each is in a process of its own, so that nothing else counts.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.bounds import BUDGET

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what a process occupies"),
]


def printed(call: str) -> list[float]:
    """Return what a function of the benchmark prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"from benchmarks import bounds; bounds.{call}"], capture_output=True, check=True
    )
    answer: list[float] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_a_stash_ends_the_run_in_about_its_budget(workers: int, processes: int) -> None:
    [peak] = printed(f"stash({workers}, {processes})")
    assert BUDGET < peak < 2 * BUDGET


@pytest.mark.parametrize(("workers", "processes"), [(2, 1), (1, 2)])
def test_a_producer_ten_times_as_fast_as_its_consumer_stays_in_200_mb(workers: int, processes: int) -> None:
    peak, read = printed(f"slow_consumer(30, {workers}, {processes})")
    assert peak < 200
    assert read > 100_000
