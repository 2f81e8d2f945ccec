"""Fencing: of several runs on one store only the newest can commit; later commits of older runs are in no lineage."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import expected
from tests.recovery.races import commit, trail
from tests.recovery.stores import CLAIM, FENCE, MANIFEST, NO_SPACE, PARTIAL, STATE, HookedStore, at, fails_at
from tests.recovery.test_store import EPOCHS, run
from timely.errors import CheckpointError
from timely.recovery import Recovery

Run = tuple[Recovery, Any, list[str]]


def step(run: Run) -> None:
    """One record, and a checkpoint after it."""
    commit(*run[:2], "x")


def is_replaced(run: Run) -> None:
    """See that a run commits no more."""
    with pytest.raises(CheckpointError, match="has taken over"):
        step(run)


def reached(run: Run) -> tuple[int | None, int]:
    """Return the time that a run goes on from, and how much has come into it and those before it."""
    return run[0].time, len(run[2])


def test_a_run_that_was_replaced_commits_no_more(tmp_path: Path) -> None:
    old = trail(tmp_path)
    step(old)
    new = trail(tmp_path)
    before = sorted(tmp_path.iterdir())
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"run 00000002-\w{8} has taken over"):
            step(old)
    assert sorted(tmp_path.iterdir()) == before  # nor does it leave anything
    step(new)
    assert len(new[2]) == 2
    assert reached(trail(tmp_path)) == (2, 2)


def test_a_takeover_in_the_middle_of_a_commit_wins(tmp_path: Path) -> None:
    store = HookedStore(tmp_path)
    old = trail(store)
    step(old)
    successors: list[Run] = []
    store.hooks.append(at("write", MANIFEST, lambda: successors.append(trail(tmp_path)), times=1))
    is_replaced(old)
    assert len(list(tmp_path.glob("00000001*.manifest"))) == 2  # it is there, but it is not in the lineage
    assert reached(successors[0]) == (1, 1)
    third = trail(tmp_path)
    assert third[0].time == 1
    step(third)
    assert len(list(tmp_path.glob("*.manifest"))) == 2  # what nobody can go on from is gone
    is_replaced(successors[0])


def test_what_is_committed_while_a_new_run_begins_is_not_lost(tmp_path: Path) -> None:
    old = trail(tmp_path)
    step(old)
    new = trail(HookedStore(tmp_path, at("write", (CLAIM, FENCE), lambda: step(old), times=1)))
    assert reached(new) == (2, 2)
    is_replaced(old)
    step(new)


def test_what_is_deleted_while_a_new_run_begins_is_not_missed(tmp_path: Path) -> None:
    """The older run goes on for so long that nothing is left of what the new one wanted to read."""
    old = trail(tmp_path)
    step(old)
    step(old)
    opened: list[int] = []

    def outrun() -> None:
        opened.append(1)
        for _ in range(len(opened) // 2 * 3):
            step(old)

    assert reached(trail(HookedStore(tmp_path, at("opened", MANIFEST, outrun, times=2)))) == (5, 5)


def test_of_two_runs_that_begin_at_once_one_is_left(tmp_path: Path) -> None:
    first: list[Run] = []
    step(trail(HookedStore(tmp_path, at("write", (CLAIM, FENCE), lambda: first.append(trail(tmp_path)), times=1))))
    is_replaced(first[0])
    assert trail(tmp_path)[0].time == 1


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_run_claims_that_then_withdraws_is_not_gone_on_from(tmp_path: Path, dies: bool) -> None:
    """It began from what was there before the last commit, and finds out only after a third has seen that it is there."""
    third: list[Run] = []

    def begin_third() -> None:
        third.append(trail(tmp_path))
        if dies:
            raise KeyboardInterrupt

    old = trail(tmp_path)
    step(old)
    before = at("write", (CLAIM, FENCE), lambda: step(old), times=1)
    store = HookedStore(tmp_path, before, at("written", (CLAIM, FENCE), begin_third, times=1))
    if dies:
        with pytest.raises(KeyboardInterrupt):
            trail(store)
        last = third[0]
    else:
        last = trail(store)
    assert [reached(third[0]), reached(last)] == [(2, 2)] * 2
    step(last)
    assert trail(tmp_path)[0].time == 3


def test_a_commit_that_a_new_run_has_seen_may_fail_and_is_resumed_from(tmp_path: Path) -> None:
    successors: list[Run] = []
    old = trail(HookedStore(tmp_path, at("written", MANIFEST, lambda: successors.append(trail(tmp_path)))))
    for _ in range(2):
        is_replaced(old)
    assert [recovery.time for recovery, _, _ in successors] == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_when_it_is_cleared_the_next_run_begins_anew_and_older_ones_are_fenced_off(tmp_path: Path, workers: int) -> None:
    zombie = trail(tmp_path)

    def program(worker: timely.Worker) -> tuple[int | None, int]:
        mine = trail(tmp_path, worker)
        step(mine)
        mine[0].clear()
        with pytest.raises(CheckpointError, match="is closed"):
            mine[0].checkpoint(2)
        mine[1].close()
        return reached(mine)

    assert timely.execute(program, workers=workers) == [(None, 1)] * workers
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [CLAIM, FENCE]
    is_replaced(zombie)
    assert timely.execute(program, workers=workers) == [(None, 1)] * workers


def test_runs_that_die_before_their_first_checkpoint_leave_nothing_behind(tmp_path: Path) -> None:
    step(trail(tmp_path))
    for _ in range(5):
        trail(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [CLAIM, FENCE, FENCE, MANIFEST, STATE]


def test_what_crashed_attempts_have_left_is_cleared_away(tmp_path: Path) -> None:
    run_name = "00000001-0123abcd"
    for name in (f"{run_name}-00000007-00000.state", f"{run_name}-00000007-00001.state.partial", f"{run_name}.fence"):
        (tmp_path / name).write_bytes(b"of old")
    (tmp_path / "notes.txt").write_text("not ours")
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        run(tmp_path, 2)  # the fence is damaged, so there may have been one
    (tmp_path / f"{run_name}.fence").unlink()
    assert run(tmp_path, 2) == (0, expected(EPOCHS), 6 * EPOCHS)
    assert not list(tmp_path.glob("00000001-*"))
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("kind", [CLAIM, FENCE])
def test_a_run_whose_beginnings_another_has_deleted_begins_after_it(tmp_path: Path, kind: str) -> None:
    """What the other found unfinished, and older than itself, it took for what somebody had left who died."""
    step(trail(tmp_path))
    others: list[Run] = []
    run = trail(HookedStore(tmp_path, at("whole", kind, lambda: others.append(trail(tmp_path)), times=1)))
    assert len(others) == 1
    step(run)
    is_replaced(others[0])
    assert len(run[2]) == 2
    assert not list(tmp_path.glob(f"*{PARTIAL}"))


@pytest.mark.parametrize("kind", [STATE, MANIFEST])
def test_a_run_whose_checkpoint_another_has_deleted_raises_an_error(tmp_path: Path, kind: str) -> None:
    step(trail(tmp_path))
    others: list[Run] = []
    run = trail(HookedStore(tmp_path, at("whole", kind, lambda: others.append(trail(tmp_path)), times=1)))
    with pytest.raises(CheckpointError, match=r"run 00000003-\w{8} has taken over .*: end it"):
        step(run)
    step(others[0])
    assert len(others[0][2]) == 2


def test_runs_that_begin_at_once_do_not_keep_each_other_from_it_for_long(tmp_path: Path) -> None:
    runs = 16
    claims: list[int] = []
    store, at_once = HookedStore(tmp_path, at("write", CLAIM, lambda: claims.append(1))), threading.Barrier(runs)

    def begin(_: int) -> None:
        at_once.wait()
        Recovery(timely.Worker(), store).close()

    with ThreadPoolExecutor(runs) as pool:
        list(pool.map(begin, range(runs)))
    assert runs <= len(claims) < 20 * runs


def test_a_store_that_cannot_be_begun_at_is_an_error_with_the_reason(tmp_path: Path) -> None:
    def gone(moment: str, name: str) -> None:
        raise FileNotFoundError(name)

    with pytest.raises(CheckpointError, match=r"taking over failed on worker 0: FileNotFoundError: 00000001-\w{8}.claim"):
        trail(HookedStore(tmp_path, gone))


@pytest.mark.parametrize("kind", [CLAIM, FENCE])
@pytest.mark.parametrize("moment", ["write", "written"])
@pytest.mark.parametrize("error", [NO_SPACE, KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_run_that_cannot_begin_takes_its_claim_back(tmp_path: Path, error: BaseException, moment: str, kind: str) -> None:
    """But not where a fence may have been written, which would be resumed from: then the older run has to end."""
    old = trail(tmp_path)
    step(old)
    before = sorted(tmp_path.iterdir())
    with pytest.raises((CheckpointError, KeyboardInterrupt), match="No space left on device|^$"):
        trail(HookedStore(tmp_path, fails_at(moment, kind, error)))
    if kind == CLAIM:
        assert sorted(tmp_path.iterdir()) == before
        step(old)  # which nobody has taken over from
    else:
        is_replaced(old)
    time = 2 if kind == CLAIM else 1
    assert reached(trail(tmp_path)) == (time, time)


def test_a_run_that_is_refused_when_it_reads_again_takes_its_claim_back(tmp_path: Path) -> None:
    def rename() -> None:
        for path in tmp_path.glob("00000001*.manifest"):
            path.rename(path.with_name(path.name.replace("-00000000.", "-00000001.")))

    step(trail(tmp_path))
    with pytest.raises(CheckpointError, match="no checkpoint at .* is good"):
        trail(HookedStore(tmp_path, at("written", CLAIM, rename)))
    assert not list(tmp_path.glob("00000002*"))
