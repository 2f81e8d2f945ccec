"""Fencing: of several runs on one store only the newest can commit; later commits of older runs are in no lineage."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import expected
from tests.recovery.test_recovery import EPOCHS, run
from timely.errors import CheckpointError
from timely.recovery import LocalStore, Recovery

# The documented names of the files (docs/recovery.md).
CLAIM, FENCE, MANIFEST, STATE, PARTIAL = ".claim", ".fence", ".manifest", ".state", ".partial"


def counter(worker: timely.Worker, where: Any) -> tuple[Recovery, Any, list[int]]:
    """Return a recovery that is open, an input, and how much has come into it in this run and those that it goes on from."""
    recovery = Recovery(worker, where)
    count = [0]
    with worker.dataflow(int, name="count") as scope:
        handle, stream = scope.new_input()

        def constructor(info: timely.OperatorInfo) -> Callable[..., object]:
            info.register_state(lambda: [(None, count[0])], lambda items: count.__setitem__(0, sum(items)))

            def logic(input: Any) -> None:
                for _, batch in input:
                    count[0] += len(batch)

            return logic

        stream.sink(timely.Pipeline, "count", constructor)
    handle.advance_to(recovery.time or 0)
    return recovery, handle, count


def step(recovery: Recovery, handle: Any) -> None:
    """One record, and a checkpoint after it."""
    handle.send("x")
    handle.advance_to(handle.time + 1)
    recovery.checkpoint(handle.time)


def test_a_run_that_was_replaced_commits_no_more(tmp_path: Path) -> None:
    old = counter(timely.Worker(), tmp_path)
    step(*old[:2])
    new = counter(timely.Worker(), tmp_path)
    before = sorted(tmp_path.iterdir())
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"run 00000002-\w{8} has taken over"):
            step(*old[:2])
    assert sorted(tmp_path.iterdir()) == before  # nor does it leave anything
    step(*new[:2])
    assert new[2] == [2]
    last = counter(timely.Worker(), tmp_path)
    assert (last[0].time, last[2]) == (2, [2])


class Meddled(LocalStore):
    """A store in which something happens right before a manifest is written: too late for its writer to see it."""

    meddle: Callable[[], object] | None = None

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(MANIFEST) and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        super().write(name, chunks)


def test_a_takeover_in_the_middle_of_a_commit_wins(tmp_path: Path) -> None:
    store = Meddled(tmp_path)
    old = counter(timely.Worker(), store)
    step(*old[:2])
    successors: list[Any] = []
    store.meddle = lambda: successors.append(counter(timely.Worker(), tmp_path))
    with pytest.raises(CheckpointError, match="has taken over"):
        step(*old[:2])
    assert len(list(tmp_path.glob("00000001*.manifest"))) == 2  # it is there, but it is not in the lineage
    recovery, handle, count = successors[0]
    assert (recovery.time, count) == (1, [1])
    third = counter(timely.Worker(), tmp_path)
    assert third[0].time == 1
    step(*third[:2])
    assert len(list(tmp_path.glob("*.manifest"))) == 2  # what nobody can go on from is gone
    with pytest.raises(CheckpointError, match="has taken over"):
        step(recovery, handle)


class Delayed(LocalStore):
    """A store in which something happens right before a claim is written."""

    def __init__(self, directory: Path, meddle: Callable[[], object]) -> None:
        super().__init__(directory)
        self.meddle: Callable[[], object] | None = meddle

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith((".claim", ".fence")) and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        super().write(name, chunks)


def test_what_is_committed_while_a_new_run_begins_is_not_lost(tmp_path: Path) -> None:
    old = counter(timely.Worker(), tmp_path)
    step(*old[:2])
    recovery, handle, count = counter(timely.Worker(), Delayed(tmp_path, lambda: step(*old[:2])))
    assert (recovery.time, count) == (2, [2])
    with pytest.raises(CheckpointError, match="has taken over"):
        step(*old[:2])
    step(recovery, handle)


def test_what_is_deleted_while_a_new_run_begins_is_not_missed(tmp_path: Path) -> None:
    """The older run goes on for so long that nothing is left of what the new one wanted to read."""

    class Outrun(LocalStore):
        def open(self, name: str) -> Any:
            result = super().open(name)
            if name.endswith(MANIFEST) and len(opened) < 2:
                opened.append(name)
                for _ in range(len(opened) // 2 * 3):
                    step(*old[:2])
            return result

    opened: list[str] = []
    old = counter(timely.Worker(), tmp_path)
    step(*old[:2])
    step(*old[:2])
    recovery, _, count = counter(timely.Worker(), Outrun(tmp_path))
    assert (recovery.time, count) == (5, [5])


def test_of_two_runs_that_begin_at_once_one_is_left(tmp_path: Path) -> None:
    first: list[Any] = []
    second = counter(timely.Worker(), Delayed(tmp_path, lambda: first.append(counter(timely.Worker(), tmp_path))))
    step(*second[:2])
    with pytest.raises(CheckpointError, match="has taken over"):
        step(*first[0][:2])
    assert counter(timely.Worker(), tmp_path)[0].time == 1


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_run_claims_that_then_withdraws_is_not_gone_on_from(tmp_path: Path, dies: bool) -> None:
    """It began from what was there before the last commit, and finds out only after a third has seen that it is there."""

    class Claimed(Delayed):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if name.endswith((".claim", ".fence")) and not third:
                third.append(counter(timely.Worker(), tmp_path))
                if dies:
                    raise KeyboardInterrupt

    third: list[Any] = []
    old = counter(timely.Worker(), tmp_path)
    step(*old[:2])
    store = Claimed(tmp_path, lambda: step(*old[:2]))
    if dies:
        with pytest.raises(KeyboardInterrupt):
            counter(timely.Worker(), store)
        last = third[0]
    else:
        last = counter(timely.Worker(), store)
    assert [(recovery.time, count) for recovery, _, count in (third[0], last)] == [(2, [2])] * 2
    step(*last[:2])
    assert counter(timely.Worker(), tmp_path)[0].time == 3


def test_a_commit_that_a_new_run_has_seen_may_fail_and_is_resumed_from(tmp_path: Path) -> None:
    class Late(LocalStore):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if name.endswith(MANIFEST):
                successors.append(counter(timely.Worker(), tmp_path))

    successors: list[Any] = []
    old = counter(timely.Worker(), Late(tmp_path))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="has taken over"):
            step(*old[:2])
    assert [recovery.time for recovery, _, _ in successors] == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_when_it_is_cleared_the_next_run_begins_anew_and_older_ones_are_fenced_off(tmp_path: Path, workers: int) -> None:
    zombie = counter(timely.Worker(), tmp_path)

    def program(worker: timely.Worker) -> Any:
        recovery, handle, count = counter(worker, tmp_path)
        step(recovery, handle)
        recovery.clear()
        with pytest.raises(CheckpointError, match="is closed"):
            recovery.checkpoint(2)
        handle.close()
        return recovery.time, count[0]

    assert timely.execute(program, workers=workers) == [(None, 1)] * workers
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".claim", ".fence"]
    with pytest.raises(CheckpointError, match="has taken over"):
        step(*zombie[:2])
    assert timely.execute(program, workers=workers) == [(None, 1)] * workers


def test_runs_that_die_before_their_first_checkpoint_leave_nothing_behind(tmp_path: Path) -> None:
    step(*counter(timely.Worker(), tmp_path)[:2])
    for _ in range(5):
        counter(timely.Worker(), tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".claim", ".fence", ".fence", ".manifest", ".state"]


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


class Slow(LocalStore):
    """A store in which something happens while the first piece of a kind is written, before it gets its name."""

    def __init__(self, directory: Path, kind: str, meddle: Callable[[], object]) -> None:
        super().__init__(directory)
        self.kind = kind
        self.meddle: Callable[[], object] | None = meddle

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        super().write(name, self._with(chunks) if name.endswith(self.kind) else chunks)

    def _with(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        yield from chunks
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()


@pytest.mark.parametrize("kind", [CLAIM, FENCE])
def test_a_run_whose_beginnings_another_has_deleted_begins_after_it(tmp_path: Path, kind: str) -> None:
    """What the other found unfinished, and older than itself, it took for what somebody had left who died."""
    step(*counter(timely.Worker(), tmp_path)[:2])
    others: list[Any] = []
    run = counter(timely.Worker(), Slow(tmp_path, kind, lambda: others.append(counter(timely.Worker(), tmp_path))))
    assert len(others) == 1
    step(*run[:2])
    with pytest.raises(CheckpointError, match="has taken over"):
        step(*others[0][:2])
    assert run[2] == [2]
    assert not list(tmp_path.glob(f"*{PARTIAL}"))


@pytest.mark.parametrize("kind", [STATE, MANIFEST])
def test_a_run_whose_checkpoint_another_has_deleted_raises_an_error(tmp_path: Path, kind: str) -> None:
    step(*counter(timely.Worker(), tmp_path)[:2])
    others: list[Any] = []
    run = counter(timely.Worker(), Slow(tmp_path, kind, lambda: others.append(counter(timely.Worker(), tmp_path))))
    with pytest.raises(CheckpointError, match=r"run 00000003-\w{8} has taken over .*: end it"):
        step(*run[:2])
    step(*others[0][:2])
    assert others[0][2] == [2]


class Counted(LocalStore):
    """Counts how often a run has claimed it."""

    claims = 0

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        self.claims += name.endswith(CLAIM)
        super().write(name, chunks)


def test_runs_that_begin_at_once_do_not_keep_each_other_from_it_for_long(tmp_path: Path) -> None:
    runs = 16
    store, at_once = Counted(tmp_path), threading.Barrier(runs)

    def begin(_: int) -> None:
        at_once.wait()
        Recovery(timely.Worker(), store).close()

    with ThreadPoolExecutor(runs) as pool:
        list(pool.map(begin, range(runs)))
    assert store.claims < 20 * runs


def test_a_store_that_cannot_be_begun_at_is_an_error_with_the_reason(tmp_path: Path) -> None:
    class Gone(LocalStore):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            raise FileNotFoundError(name)

    with pytest.raises(CheckpointError, match=r"taking over failed on worker 0: FileNotFoundError: 00000001-\w{8}.claim"):
        counter(timely.Worker(), Gone(tmp_path))


class Unfenced(LocalStore):
    """A store that has no room for one kind of file; or is ``late`` to notice that."""

    error: BaseException = OSError(errno.ENOSPC, "No space left on device")
    late = False
    kind = CLAIM

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(self.kind) and not self.late:
            raise self.error
        super().write(name, chunks)
        if name.endswith(self.kind):
            raise self.error


@pytest.mark.parametrize("kind", [CLAIM, FENCE])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_run_that_cannot_begin_takes_its_claim_back(tmp_path: Path, error: BaseException, late: bool, kind: str) -> None:
    """But not where a fence may have been written, which would be resumed from: then the older run has to end."""
    recovery, handle, _ = counter(timely.Worker(), tmp_path)
    step(recovery, handle)
    before = sorted(tmp_path.iterdir())
    store = Unfenced(tmp_path)
    store.error, store.late, store.kind = error, late, kind
    with pytest.raises((CheckpointError, KeyboardInterrupt), match="No space left on device|^$"):
        counter(timely.Worker(), store)
    if kind == CLAIM:
        assert sorted(tmp_path.iterdir()) == before
        step(recovery, handle)  # which it was not told to be taken over from
    else:
        with pytest.raises(CheckpointError, match="has taken over"):
            step(recovery, handle)
    last = counter(timely.Worker(), tmp_path)
    time = 2 if kind == CLAIM else 1
    assert (last[0].time, last[2]) == (time, [time])


def test_a_run_that_is_refused_when_it_reads_again_takes_its_claim_back(tmp_path: Path) -> None:
    class Changed(LocalStore):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if name.endswith(CLAIM):
                for path in tmp_path.glob("00000001*.manifest"):
                    path.rename(path.with_name(path.name.replace("-00000000.", "-00000001.")))

    recovery, handle, _ = counter(timely.Worker(), tmp_path)
    step(recovery, handle)
    with pytest.raises(CheckpointError, match="no checkpoint at .* is good"):
        counter(timely.Worker(), Changed(tmp_path))
    assert not list(tmp_path.glob("00000002*"))
