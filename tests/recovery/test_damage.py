"""What is damaged, missing or cut off is not used: the checkpoint before is, and if none is good the run says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import timely
from tests.recovery.programs import Stopped, expected, program
from tests.recovery.stores import NO_SPACE, HookedStore, fails_at
from tests.recovery.test_store import EPOCHS, run
from timely.errors import CheckpointError
from timely.recovery import LocalStore

Damage = Callable[[Path], object]


def flip(where: float) -> Damage:
    """Change one byte of a file, at this part of its length."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[min(int(where * len(data)), len(data) - 1)] ^= 0x40
        path.write_bytes(data)

    return damage


def keep(end: int) -> Damage:
    """Cut off what is behind ``end``."""
    return lambda path: path.write_bytes(path.read_bytes()[:end])


DAMAGES: dict[str, Damage] = {
    "start": flip(0.0),
    "middle": flip(0.5),
    "index": flip(0.9),
    "end": flip(1.0),
    "cut": keep(-3),
    "empty": keep(0),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("kind", ["manifest", "state"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, damage: Damage, kind: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, workers, stop=4)
    damage(sorted(tmp_path.glob(f"*3*.{kind}"))[-1])
    start, came, _ = run(tmp_path, workers)
    assert came == expected(EPOCHS)
    assert start == 3
    if not (kind == "manifest" and damage is Path.unlink):  # then there is none to speak of
        assert "not used: checkpoint 00000001-" in caplog.text


def test_where_no_checkpoint_is_good_the_error_has_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, 2, stop=4)
    for path in tmp_path.glob("*.state"):
        DAMAGES["cut"](path)
    with pytest.raises(CheckpointError, match=r"no checkpoint at .* is good: .*bytes where .* were written.*another directory"):
        run(tmp_path, 2)


@pytest.mark.parametrize("damage", ["cut", "empty", "missing"])
def test_without_its_fence_a_run_is_still_followed(tmp_path: Path, damage: str) -> None:
    for stop in (2, 4):
        with pytest.raises(Stopped):
            run(tmp_path, 2, stop=stop)
    DAMAGES[damage](sorted(tmp_path.glob("*.fence"))[-1])
    assert run(tmp_path, 2) == (4, expected(EPOCHS), 6 * EPOCHS)


class Full(LocalStore):
    """A store on a disk that is full after so many bytes."""

    def __init__(self, directory: Path, room: int) -> None:
        super().__init__(directory)
        self.room = room

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        super().write(name, self._limited(chunks))

    def _limited(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk[: self.room]
            self.room -= len(chunk)
            if self.room < 0:
                raise NO_SPACE


@pytest.mark.parametrize("room", [0, 10, 500, 1500, 2500, 4000, 5000])
def test_where_the_disk_is_full_the_checkpoint_before_is_still_good(tmp_path: Path, room: int) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, 2, stop=2)
    with pytest.raises(CheckpointError, match=r"No space left on device"):
        timely.execute(lambda worker: program(worker, Full(tmp_path, room if worker.index == 0 else 10**9), EPOCHS), workers=2)
    assert not list(tmp_path.glob("*.partial"))
    start, came, _ = run(tmp_path, 2)
    assert start >= 2
    assert came == expected(EPOCHS)


def test_a_worker_goes_on_after_the_disk_was_full_and_the_next_checkpoint_has_all(tmp_path: Path) -> None:
    failures: list[str] = []

    def fill(moment: str, name: str) -> None:
        if moment == "write" and name.endswith("00000002-00001.state") and not failures:
            failures.append(name)
            raise NO_SPACE
        assert not list(tmp_path.glob("*00000002-0000*.state")) or not name.endswith("00000003-00000.state")

    store = HookedStore(tmp_path, fill)

    def tolerant(worker: timely.Worker) -> object:
        return program(worker, store, EPOCHS, stop=4, tolerant=True)

    with pytest.raises(Stopped):
        timely.execute(tolerant, workers=2)
    assert failures
    assert run(tmp_path, 2) == (4, expected(EPOCHS), 6 * EPOCHS)


@pytest.mark.parametrize("ending", [".manifest", ".fence", "3-00000.state", "3-00001.state"])
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EMFILE, r"Too many open files; raise how many .* \(ulimit -n\)"),
        (errno.EACCES, "Permission denied"),
        (errno.ESTALE, "Stale file handle"),
    ],
)
def test_what_cannot_be_opened_now_is_not_damaged(tmp_path: Path, ending: str, number: int, text: str) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, 2, stop=4)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CheckpointError, match=f"on worker [01]: .*{text}"):
        run(HookedStore(tmp_path, fails_at("open", ending, OSError(number, os.strerror(number)))), 2)
    assert sorted(os.listdir(tmp_path)) == before  # which were good, and would have been passed over and deleted
    assert run(tmp_path, 2) == (4, expected(EPOCHS), 6 * EPOCHS)


def test_files_are_bounded_in_number(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, 2, epochs=50, stop=20, archived=False)
    run(tmp_path, 2, epochs=50, archived=False)
    layers = 16  # of a log, before all of it is saved anew
    assert len(list(tmp_path.iterdir())) <= 2 * (layers + 2) + 2 + 2
    assert len(list(tmp_path.glob("*.manifest"))) == 2
    assert sorted(tmp_path.glob("*.fence"))[-1].name.startswith("00000002")
