"""What a store says is written survives a loss of power, and what is not committed is not counted on."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.races import commit, trail
from tests.recovery.stores import MANIFEST, HookedStore, fails_at
from timely.errors import CheckpointError
from timely.recovery import LocalStore


class LossyDisk:
    """Remembers what was synced: the contents of files and the entries of directories, by their number in the file system.

    A rename may become durable at any time, so a file must have its content before it has its name.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.contents: dict[int, bytes] = {}
        self.entries: dict[int, dict[str, int]] = {}
        self._fsync, self._replace = os.fsync, os.replace
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(os, "replace", self.replace)

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        result = os.fstat(descriptor)
        if stat.S_ISDIR(result.st_mode):
            with os.scandir(descriptor) as entries:
                self.entries[result.st_ino] = {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in entries}
        else:
            self.contents[result.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def replace(self, source: Any, target: Any) -> None:
        assert self.contents.get(os.stat(source).st_ino) == Path(source).read_bytes(), f"{target} has a name before its content"
        self._replace(source, target)

    def after_power_loss(self, root: Path) -> dict[str, bytes]:
        """Return the files that are left below a directory that was there before."""
        files: dict[str, bytes] = {}
        todo = [("", root.stat().st_ino)]
        while todo:
            path, number = todo.pop()
            for name, below in self.entries.get(number, {}).items():
                if below in self.contents:
                    files[path + name] = self.contents[below]
                else:
                    todo.append((f"{path}{name}/", below))
        return files


def test_what_is_written_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LossyDisk(monkeypatch)
    store = LocalStore(tmp_path / "new" / "place")
    store.write("one", [b"1", b"2"])
    assert disk.after_power_loss(tmp_path) == {"new/place/one": b"12"}
    store.write("two", [b"3"])
    assert disk.after_power_loss(tmp_path) == {"new/place/one": b"12", "new/place/two": b"3"}


def test_acknowledged_checkpoints_survive_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LossyDisk(monkeypatch)
    recovery, handle, seen = trail(tmp_path / "place")
    for number in range(4):
        commit(recovery, handle, str(number))
        left = tmp_path / f"left {number}"
        left.mkdir()
        for name, data in disk.after_power_loss(tmp_path).items():
            if name.startswith("place/"):
                (left / name.removeprefix("place/")).write_bytes(data)
        assert trail(left)[2] == seen


def test_the_files_of_a_stream_survive_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = pytest.importorskip("timely.spark.streaming.directory").StreamDirectory.at(tmp_path / "new")
    disk = LossyDisk(monkeypatch)
    directory.write("inputs/0/a", lambda file: file.write(b"rows"))
    assert disk.after_power_loss(tmp_path) == {"new/inputs/0/a": b"rows"}


def test_checkpoints_are_for_their_owner_only(tmp_path: Path) -> None:
    commit(*trail(tmp_path / "new" / "place")[:2], "a")
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("again", [False, True])
def test_what_a_failed_commit_had_is_in_the_next(tmp_path: Path, again: bool) -> None:
    """Neither are its changes forgotten, nor is it counted on: the checkpoint before stays."""
    store = HookedStore(tmp_path)
    recovery, handle, seen = trail(store, keep=1)
    commit(recovery, handle, "a")
    store.hooks.append(fails_at("write", MANIFEST, OSError("no")))
    for item in "bc":
        with pytest.raises(CheckpointError, match="OSError: no"):
            commit(recovery, handle, item)
    store.hooks.clear()
    if again:
        commit(recovery, handle, "d")
        assert seen == list("abcd")
    assert trail(tmp_path, keep=1)[2] == (list("abcd") if again else ["a"])
