"""A loop that goes on and on keeps as much memory as one that has just begun."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

import timely
from benchmarks.memory import looping

FEW, MANY = 1_000, 4_000


@pytest.mark.parametrize(("workers", "data", "most"), [(1, False, 4_000), (1, True, 4_000), (2, True, 40_000)])
def test_what_is_allocated_does_not_grow_with_the_iterations(workers: int, data: bool, most: int) -> None:
    """Anything that is kept for each of the iterations would be some hundred kilobytes."""
    allocated: dict[int, int] = {}

    def look(iteration: int) -> None:
        if iteration in (FEW, MANY):
            gc.collect()
            allocated[iteration] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        timely.execute(looping(MANY, data, look), workers=workers)
    finally:
        tracemalloc.stop()
    assert allocated[MANY] - allocated[FEW] < most
