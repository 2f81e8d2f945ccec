"""Stores: a piece appears whole or not at all, wherever it is kept."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.recovery.programs import Stopped, expected
from tests.recovery.test_recovery import EPOCHS, run
from timely.errors import ConfigurationError
from timely.recovery import LocalStore, Store, open_store

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
