"""Which checkpoints a run may resume from, and which files it may delete; any history of runs gives what one run gives.

White box: these directories hold runs that took over from each other at every moment, which live runs cannot be made to do.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.programs import Stopped, expected
from tests.recovery.races import trail
from tests.recovery.test_fencing import reached, step
from tests.recovery.test_store import run
from timely.errors import CheckpointError
from timely.recovery import LocalStore
from timely.recovery.history import History, garbage
from timely.recovery.manifest import (
    FENCE,
    MANIFEST,
    Fence,
    FileInfo,
    Manifest,
    checkpoint_name,
    run_name,
    state_name,
)

ONE, TWO, THREE = (run_name(generation, "0123abcd") for generation in (1, 2, 3))


def manifest(run: str, number: int, parent: str | None = None, files: tuple[str, ...] = ()) -> Manifest:
    """A checkpoint of a run."""
    name = checkpoint_name(run, number)
    names = (state_name(name, 0), *files)
    return Manifest(name, "", parent, number, [None], 1, [], {}, {file: FileInfo(1, "") for file in names})


def put(directory: Path, *things: Manifest | Fence) -> History:
    """What is read from a directory with these things in it."""
    store = LocalStore(directory)
    for thing in things:
        name = thing.name + MANIFEST if isinstance(thing, Manifest) else thing.run + FENCE
        store.write(name, [thing.encode()])
    return History(store)


def order(history: History) -> list[tuple[int, int]]:
    """The generations and numbers of a lineage."""
    return [(int(result.run[:8]), result.number) for result in history.lineage()]


def test_a_run_without_checkpoints_whose_fence_is_damaged_may_have_begun_from_any(tmp_path: Path) -> None:
    put(tmp_path, Fence(ONE, None), manifest(ONE, 0), manifest(ONE, 1), Fence(TWO, checkpoint_name(ONE, 0)))
    (tmp_path / (TWO + FENCE)).write_bytes(b"nothing")
    history = History(LocalStore(tmp_path))
    assert order(history) == [(1, 1), (1, 0)]
    assert [why.split(":")[0] for why in history.damaged] == [f"fence {TWO}"]


def test_a_fence_that_was_written_for_another_run_is_damaged(tmp_path: Path) -> None:
    first = checkpoint_name(ONE, 0)
    put(tmp_path, Fence(ONE, None), manifest(ONE, 0), Fence(TWO, first), manifest(TWO, 0, first))
    shutil.copy(tmp_path / (TWO + FENCE), tmp_path / (ONE + FENCE))
    history = History(LocalStore(tmp_path))
    collected = [(int(collected.run[:8]), collected.number) for collected in itertools.islice(history.lineage(), 9)]
    assert collected == [(2, 0), (1, 0)]
    assert history.damaged == [f"fence {ONE}: the content of {ONE}{FENCE} was written as {TWO}{FENCE}"]


def test_a_manifest_that_was_written_for_another_checkpoint_is_damaged(tmp_path: Path) -> None:
    zero, one = (checkpoint_name(ONE, number) for number in range(2))
    put(tmp_path, Fence(ONE, None), manifest(ONE, 0), manifest(ONE, 1, zero))
    shutil.copy(tmp_path / (zero + MANIFEST), tmp_path / (one + MANIFEST))
    history = History(LocalStore(tmp_path))
    assert order(history) == [(1, 0)]
    assert history.damaged == [f"checkpoint {one}: the content of {one}{MANIFEST} was written as {zero}{MANIFEST}"]


def test_a_number_of_a_format_that_is_damaged_is_not_another_format(tmp_path: Path) -> None:
    put(tmp_path, Fence(ONE, None), manifest(ONE, 0), manifest(ONE, 1))
    path = tmp_path / (checkpoint_name(ONE, 1) + MANIFEST)
    path.write_bytes(path.read_bytes().replace(b"timely checkpoint 5", b"timely checkpoint 6"))
    history = History(LocalStore(tmp_path))
    assert order(history) == [(1, 0)]
    assert history.damaged == [f"checkpoint {checkpoint_name(ONE, 1)}: its digest is not that of its content"]


def test_a_directory_that_has_other_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "readme.manifest").write_text("not ours")
    (tmp_path / "0001-23.state").write_text("not ours")
    history = History(LocalStore(tmp_path))
    assert (history.names, history.newest(), order(history)) == ([], None, [])


@pytest.mark.parametrize(
    "name",
    [
        "20240131-4dce2c9a.csv",
        "20240131-4dce2c9a",
        "00000001-deadbeef-notes.txt",
        "00000001-deadbeef.fences",
        "00000001-deadbeef.fence.partial.txt",
        "00000001-deadbeef_fence",
        "00000001-deadbeef-00000003.fence",
        "00000001-deadbeef-00000003.state",
        "00000001-deadbeef-00000003-00000.manifest",
        "00000001-deadbeef-00000003-00000.state\n",
        "x00000001-deadbeef.fence",
        "٠٠٠٠٠٠٠١-deadbeef.fence",
    ],
)
def test_a_name_that_only_begins_as_ours_is_of_somebody_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("not ours")
    history = History(LocalStore(tmp_path))
    assert (history.names, history.newest()) == ([], None)
    assert garbage([name], [], THREE) == []


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
