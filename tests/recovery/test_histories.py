"""Any history of runs, of workers lost and won, and of runs that live on beside their successors, gives what one run gives."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.programs import Stopped, expected
from tests.recovery.races import trail
from tests.recovery.test_fencing import reached, step
from tests.recovery.test_recovery import run
from timely.errors import CheckpointError

EPOCHS = 8


class Crashed(Exception):
    """A worker has ended in the middle of its work."""


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.one_of(st.none(), st.integers(1, 25)), st.integers(1, EPOCHS)),
        max_size=4,
    )
)
@settings(max_examples=15)
def test_any_history_of_crashes_and_of_numbers_of_workers(history: list[tuple[int, int, int | None, int]]) -> None:
    """Each run has its own number of workers, and how often it takes a checkpoint; it ends with one, or anywhere."""
    with tempfile.TemporaryDirectory() as directory:
        for workers, every, crash, stop in history:
            events = [0]

            def event(_: str, events: list[int] = events, crash: int | None = crash) -> None:
                events[0] += 1
                if events[0] == crash:
                    raise Crashed

            with contextlib.suppress(Stopped, Crashed, timely.TimelyError):
                run(directory, workers, epochs=EPOCHS, every=every, stop=stop if crash is None else None, event=event)
        _, came, seen = run(directory, 2, epochs=EPOCHS)
        assert came == expected(EPOCHS)
        assert seen == 6 * EPOCHS


@given(st.lists(st.one_of(st.just("open"), st.integers(0, 3)), max_size=12))
@settings(max_examples=25)
def test_any_history_of_takeovers(history: list[Any]) -> None:
    """Runs are opened beside each other, and step by turns: only the newest can, and each begins where the last one ended."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [trail(directory, full_every=1)]
        commits = 0
        for act in history:
            if act == "open":
                runs.append(trail(directory, full_every=1))
                assert reached(runs[-1]) == (commits or None, commits)
            elif act % len(runs) == len(runs) - 1:
                step(runs[-1])
                commits += 1
            else:
                with contextlib.suppress(CheckpointError):
                    step(runs[act % len(runs)])
                    raise AssertionError("a run that was taken over from has committed")
        assert len(list(Path(directory).iterdir())) <= 3 * 2 + len(runs)
