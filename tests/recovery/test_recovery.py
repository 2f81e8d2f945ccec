"""A run that resumes from any checkpoint, on any number of workers, gives what a run without a fault gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import Stopped, expected, program
from timely.recovery import Recovery

EPOCHS = 6


def run(where: Any, workers: int, *, epochs: int = EPOCHS, **how: Any) -> tuple[int, Counter[Any], int]:
    """Run the program; return where it began, what came out in all, and how much was tallied."""
    results = timely.execute(lambda worker: program(worker, where, epochs, **how), workers=workers)
    starts = {start for start, _, _ in results}
    assert len(starts) == 1
    return starts.pop(), Counter(record for _, came, _ in results for record in came), sum(seen for _, _, seen in results)


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_fault_all_comes_out(tmp_path: Path, workers: int) -> None:
    assert run(tmp_path, workers) == (0, expected(EPOCHS), 6 * EPOCHS)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (1, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("stop", range(1, EPOCHS + 1))
def test_a_run_goes_on_from_every_boundary(tmp_path: Path, before: int, after: int, stop: int) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, before, stop=stop)
    assert run(tmp_path, after) == (stop, expected(EPOCHS), 6 * EPOCHS)


def test_recovery_is_a_name_of_timely_loaded_on_use() -> None:
    assert timely.Recovery is Recovery
    with pytest.raises(AttributeError, match="has no attribute 'Recoveries'"):
        timely.Recoveries  # type: ignore[attr-defined]  # noqa: B018
