"""Stores: a piece appears whole or not at all, and survives a loss of power; a run resumes from any checkpoint in any of them."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.recovery.programs import Stopped, expected, program
from tests.recovery.races import commit, trail
from tests.recovery.stores import MANIFEST, HookedStore, fails_at
from timely.errors import CheckpointError, ConfigurationError
from timely.recovery import LocalStore, Recovery, Store, open_store

Make = Callable[[Path], Store]


def arrow(directory: Path) -> Store:
    pytest.importorskip("pyarrow")
    from pyarrow import fs

    from timely.recovery import ArrowStore

    return ArrowStore(fs.LocalFileSystem(), str(directory))


def objects(directory: Path) -> Store:
    """A store of objects that has no directories, and no way to rename one."""
    pytest.importorskip("pyarrow")
    from pyarrow import fs

    from timely.recovery import ArrowStore

    store = ArrowStore(fs.SubTreeFileSystem(str(directory.parent), fs.LocalFileSystem()), directory.name)
    store.renames = False
    return store


MAKE: dict[str, Make] = {"local": LocalStore, "arrow": arrow, "objects": objects}


@pytest.fixture(params=MAKE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind, in a directory that does not exist yet."""
    return MAKE[request.param](tmp_path / "place")


def test_what_was_written_can_be_read_from_anywhere_in_it(store: Store) -> None:
    assert store.names() == []
    store.write("one", [b"abc", b"", b"def"])
    store.write("empty", [])
    assert store.names() == ["empty", "one"]
    with store.open("one") as file:
        assert file.read() == b"abcdef"
        file.seek(2)
        assert file.read(3) == b"cde"
        assert file.seek(0, 2) == 6
    with store.open("empty") as file:
        assert file.read() == b""


def test_a_piece_that_could_not_be_written_does_not_appear(store: Store) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        store.write("one", chunks())
    assert store.names() == []
    store.write("one", [b"all"])
    assert store.names() == ["one"]


def test_a_piece_can_be_deleted_and_what_is_not_there_too(store: Store) -> None:
    store.delete("one")
    store.write("one", [b"x"])
    store.delete("one")
    assert store.names() == []
    with pytest.raises(FileNotFoundError):
        store.open("one")


def test_a_run_goes_on_from_any_store(store: Store) -> None:
    with pytest.raises(Stopped):
        run(store, 2, stop=3)
    assert run(store, 3) == (3, expected(EPOCHS), 6 * EPOCHS)


@pytest.mark.parametrize("uri", ["mock://bucket/checkpoints", "no-such-scheme://place/x"])
def test_a_uri_that_nobody_knows_is_refused(uri: str) -> None:
    pytest.importorskip("pyarrow")
    if uri.startswith("mock"):
        open_store(uri)
        return
    with pytest.raises(ConfigurationError, match="no checkpoints can be stored at 'no-such-scheme"):
        open_store(uri)


def test_directories_above_a_store_are_made_too(tmp_path: Path) -> None:
    for number, make in enumerate((LocalStore, arrow)):
        store = make(tmp_path / str(number) / "some" / "where")
        store.write("one", [b"1"])
        assert store.names() == ["one"]


def test_paths_and_file_uris_need_no_arrow(tmp_path: Path) -> None:
    for where in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        result = open_store(where)
        assert isinstance(result, LocalStore)
        assert result.directory == tmp_path


@pytest.mark.parametrize("where", [7, None, object()])
def test_what_is_no_place_is_refused(where: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoints are stored at a path, a URI or"):
        open_store(where)  # type: ignore[arg-type]


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
