"""Loops of a million iterations hold no more memory at the end than after the first tenth."""

from __future__ import annotations

import pytest

from benchmarks.memory import growth

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize(("processes", "iterations"), [(1, 1_000_000), (2, 100_000)])
def test_a_loop_does_not_grow(processes: int, iterations: int, data: bool) -> None:
    assert growth(iterations, data, processes) <= 64
