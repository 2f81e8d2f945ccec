"""Several runs at one store, at every moment, and processes that are killed without a word: nothing is lost, and nothing comes
twice.

The invariants are those of docs/recovery.md, "Runs that overlap".
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import timely
from tests.recovery.programs import expected, nothing, program
from tests.recovery.races import BROKEN, Scene, commit, trail
from tests.recovery.stores import HookedStore
from tests.support.store_races import HDFS, LOCAL_FILES, OBJECTS, Guarantees, StoreRace, explore_stores, sample_stores
from timely.errors import CheckpointError
from timely.recovery import Recovery

WHOLE = Guarantees("whole listings", renames=False, late=False, whole_lists=True)
KINDS = [LOCAL_FILES, OBJECTS, HDFS]


@pytest.mark.parametrize(("before", "states"), [(0, 500), pytest.param(1, 5_000, marks=pytest.mark.soak)])
def test_two_runs_in_every_order(before: int, states: int) -> None:
    scene = Scene([1, 0], WHOLE, retries=0, before=before)
    assert explore_stores(scene.make, scene.check) > states


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_three_runs_and_writes_that_fail(kind: Guarantees) -> None:
    scene = Scene([2, 1, 1], kind, faults=1, retries=2, keep=2)
    sample_stores(scene.make, scene.check, seed=7, races=25)
    assert len(scene.acknowledged) >= 1


SAMPLED = [rule for rule in BROKEN if rule not in ("the own claim is still there", "marks are deleted oldest first")]
SEEDS = {
    "check after the fence": 25,
    "claim": 3,
    "check before an acknowledgement": 2,
    "a claim is withdrawn only before the fence": 12,
}
"""Where some hundred races would pass before one does harm, seeds that come to it soon."""


@pytest.mark.parametrize("rule", SAMPLED)
def test_without_a_rule_something_is_lost(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[rule](monkeypatch)
    scene = Scene([2, 1, 1], Guarantees("late", renames=False, late=True), faults=1, retries=2)
    with pytest.raises(AssertionError, match="was acknowledged, and"):
        sample_stores(scene.make, scene.check, seed=SEEDS.get(rule, 1), races=400)


CLAIM_0 = "delete 00000002-*.claim"
"""The deletion of the claim of run 0, which started when there was a run before it."""


def overtaken_twice(scene: Scene, until: str) -> None:
    """Run 0 lists the names while run 2 deletes the marks of run 1, which has not seen the manifest of run 0."""
    with scene.make() as race:
        race.advance(0, "write *.manifest")
        race.advance(1, CLAIM_0)
        race.advance(0, "end list")
        race.advance(2, until)
        assert (0, "least") in race.decisions()
        race.step((0, "least"))
        for index in (0, 2, 1):
            race.advance(index)
            scene.check(race)


@pytest.mark.parametrize("until", ["", "delete *.manifest", CLAIM_0])
def test_a_listing_that_misses_both_newer_runs_does_no_harm(until: str) -> None:
    overtaken_twice(Scene([1, 0, 0], LOCAL_FILES), until)


@pytest.mark.parametrize(
    ("rule", "until"), [("the own claim is still there", "delete *.manifest"), ("marks are deleted oldest first", CLAIM_0)]
)
def test_without_a_rule_such_a_listing_does_harm(rule: str, until: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[rule](monkeypatch)
    with pytest.raises(AssertionError, match="was acknowledged, and"):
        overtaken_twice(Scene([1, 0, 0], LOCAL_FILES), until)


def test_a_claim_that_comes_to_nothing_saves_no_commit() -> None:
    """Once, run 0 took the claim of run 2 for a run that had resumed from its checkpoint, which run 1 deleted then."""
    scene = Scene([1, 0, 0], WHOLE, before=0)
    with scene.make() as race:
        race.advance(0, "write *.manifest")
        race.advance(1, "write *.fence")
        race.step((0, "ok"))
        race.advance(2, "write *.claim")
        race.step((2, "ok"))
        for index in (0, 1, 2):
            race.advance(index)
            scene.check(race)


@pytest.mark.parametrize("every", [None, 3])
def test_with_full_every_the_newest_checkpoints_share_no_fate(tmp_path: Path, every: int | None) -> None:
    recovery, handle, _ = trail(tmp_path, full_every=every)
    for item in "abcdefgh":
        commit(recovery, handle, item)
    shared = min(tmp_path.glob("*.state")) if every is None else next(tmp_path.glob("*-00000006-00000.state"))
    shared.write_bytes(b"damaged")
    if every is None:
        with pytest.raises(CheckpointError, match="no checkpoint at"):
            trail(tmp_path)
    else:
        assert trail(tmp_path, full_every=every)[2] == list("abcdef")


@pytest.mark.parametrize("every", [0, -1, "2"])
def test_a_full_every_that_is_no_number_is_refused(tmp_path: Path, every: object) -> None:
    with pytest.raises(timely.ConfigurationError, match="full_every="):
        Recovery(timely.Worker(), tmp_path, full_every=every)  # type: ignore[arg-type]


def test_what_was_cleared_stays_cleared_whatever_an_old_run_still_writes(tmp_path: Path) -> None:
    """The manifest of a run that was taken over comes late, and so does a claim that comes to nothing."""
    recovery, handle, _ = trail(tmp_path)
    commit(recovery, handle, "a")
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix in (".manifest", ".state")}
    recovery.clear()
    for name, data in left.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "00000009-0123abcd.claim").write_bytes(b"")
    assert trail(tmp_path)[2] == []


def test_a_run_that_was_replaced_clears_nothing_and_leaves_no_claim(tmp_path: Path) -> None:
    recovery, handle, _ = trail(tmp_path)
    commit(recovery, handle, "a")
    trail(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(CheckpointError):
        recovery.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert trail(tmp_path)[2] == ["a"]


def test_a_race_is_the_same_for_the_same_decisions() -> None:
    def states() -> list[int]:
        scene = Scene([1, 1], OBJECTS, before=0)
        with scene.make(Random(3)) as race:
            collected = []
            while choices := race.decisions():
                collected.append(len(choices))
                race.step(choices[len(collected) % len(choices)])
            return collected

    assert states() == states()


def test_a_run_is_killed_where_it_stands() -> None:
    scene = Scene([1, 1], HDFS)
    race: StoreRace
    with scene.make() as race:
        race.advance(1, "write *.fence")
        names = set(race.files)
    assert set(race.files) == names
    scene.check(race)


EPOCHS = 12


class Fuse:
    """Kills its process at the ``number``-th event."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, event: str) -> None:
        self.number -= 1
        if self.number == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(directory: Path, workers: int, victim: int, at: int) -> list[tuple[int, list[Any], int]]:
    """Run the program in so many processes; ``victim`` ends at its ``at``-th event, if it comes so far."""

    def one(worker: timely.Worker) -> tuple[int, list[Any], int]:
        event = Fuse(at) if worker.index == victim else nothing
        store = HookedStore(directory, lambda moment, name: event(moment))
        return program(worker, store, EPOCHS, every=2, event=event)

    return timely.execute(one, processes=workers)


def check_kills(directory: Path, seed: int, kills: int) -> tuple[int, int]:
    """Try to kill so often, then let a run come to its end; return how many runs were killed, and after how many of these there
    was a checkpoint that had not been there before.
    """
    choose = random.Random(seed)
    killed = advanced = 0
    newest = ""
    for _ in range(kills):
        try:
            run(directory, choose.choice((2, 2, 3)), choose.randrange(2), choose.randrange(1, 100))
        except timely.TimelyError as error:
            assert "exit code -9" in str(error) or isinstance(error, timely.PeerLostError), error
            killed += 1
            result = max((path.name for path in directory.glob("*.manifest")), default="")
            advanced += result != newest
            newest = result
    results = run(directory, 2, victim=-1, at=0)
    assert Counter(record for _, came, _ in results for record in came) == expected(EPOCHS)
    assert sum(seen for _, _, seen in results) == 6 * EPOCHS
    return killed, advanced


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    killed, _ = check_kills(tmp_path, seed=0, kills=10)
    assert killed >= 3
