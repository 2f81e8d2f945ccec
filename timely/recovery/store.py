"""Where checkpoints are stored: named files that appear whole or not at all.

Recovery needs four verbs of a file system, so that a ``Store`` of your own is a small class. The invariant: every listed name
without the suffix ``PARTIAL`` was written to its end, and is durable once ``write`` has returned. Names are flat, and no name is
written twice. Workers use a store from several threads.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from timely.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow.fs

PARTIAL: Final = ".partial"
"""The suffix of a file that is being written, or whose writer died."""

_WRITTEN: Final = 1 << 20
"""Bytes that are written at once: blocks of some 40 KB, one by one, take the kernel 0.3 instead of 0.15 s for 500 MB."""

_LOST: Final = frozenset({errno.ENOENT, errno.EIO, errno.EISDIR, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)})
_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})


def is_lost(error: object) -> bool:
    """Return whether an error says that a file is missing or damaged.

    Any other error (no permission, no network, too many open files) leaves the file possibly good.
    """
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in _LOST)


class Store(Protocol):
    """Storage for checkpoints. Each method raises ``OSError`` where it fails."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file. It appears as a whole and is durable when this returns, or it does not appear."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for random reads. ``FileNotFoundError`` where there is none.

        After that, or ``errno.EIO`` for damage, recovery uses the checkpoint before. Any other error ends the run.
        """

    def names(self) -> list[str]:
        """Return the names of all files, unfinished ones included."""

    def delete(self, name: str) -> None:
        """Delete a file; a missing one is no error."""


class LocalStore:
    """A directory of this machine, or one that all machines of the run have mounted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = LocalStore(directory)
    ...     store.write("greeting", [b"hello, ", b"world"])
    ...     with store.open("greeting") as file:
    ...         store.names(), file.read()
    (['greeting'], b'hello, world')
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def __repr__(self) -> str:
        return f"LocalStore({str(self.directory)!r})"

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write to a temporary file, sync it, and rename it."""
        path = self.directory / name

        def fill(file: BinaryIO) -> None:
            for chunk in chunks:
                file.write(chunk)

        write_file(path, fill, draft=f"{path}{PARTIAL}")

    def open(self, name: str) -> BinaryIO:
        return (self.directory / name).open("rb")

    def names(self) -> list[str]:
        """Return the names in the directory; none where it does not exist yet."""
        try:
            return sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)


class ArrowStore:
    """A directory of a ``pyarrow.fs.FileSystem``: S3, Google Cloud Storage, Azure, HDFS, or one of fsspec.

    Object stores show an object once its upload is complete; elsewhere files are written under a temporary name and renamed.

    >>> import tempfile, pyarrow.fs
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = ArrowStore(pyarrow.fs.LocalFileSystem(), directory + "/checkpoints")
    ...     store.write("greeting", [b"hello, ", b"world"])
    ...     with store.open("greeting") as file:
    ...         store.names(), file.read()
    (['greeting'], b'hello, world')
    """

    def __init__(self, system: pyarrow.fs.FileSystem, path: str) -> None:
        self.system = system
        self.path = path.rstrip("/")
        self.renames = system.type_name not in _OBJECT_STORES

    @classmethod
    def from_uri(cls, uri: str) -> ArrowStore:
        """Return the store at a URI. ``ConfigurationError`` where PyArrow does not support it, or is not installed."""
        try:
            import pyarrow.fs

            system, path = pyarrow.fs.FileSystem.from_uri(uri)
        except (ImportError, ValueError, OSError) as error:
            raise ConfigurationError(f"no checkpoints can be stored at {uri!r}: {error}") from error
        return cls(system, path)

    def __repr__(self) -> str:
        return f"ArrowStore({self.system.type_name}, {self.path!r})"

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object, or a file that gets its name when it is complete."""
        self.system.create_dir(self.path, recursive=True)
        final = f"{self.path}/{name}"
        partial = final + PARTIAL if self.renames else final
        try:
            with self.system.open_output_stream(partial) as stream:
                for chunk in chunks:
                    stream.write(chunk)
            if partial != final:
                self.system.move(partial, final)
        except BaseException:
            with contextlib.suppress(OSError):
                self.system.delete_file(partial)
            raise

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = self.system.open_input_file(f"{self.path}/{name}")
        return file

    def names(self) -> list[str]:
        """Return the names in the directory; none where it does not exist yet."""
        import pyarrow.fs

        selector = pyarrow.fs.FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self.system.get_file_info(selector) if info.is_file)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_file(f"{self.path}/{name}")


class MemoryStore:
    """A store in memory, for tests; ``files`` has the content of each name.

    >>> store = MemoryStore({"one": b"1"})
    >>> store.write("two", [b"2", b"2"])
    >>> store.names(), store.open("two").read()
    (['one', 'two'], b'22')
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files = dict(files or {})

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        self.files[name] = b"".join(chunks)

    def open(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return io.BytesIO(self.files[name])

    def names(self) -> list[str]:
        return sorted(self.files)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


def write_file(path: str | os.PathLike[str], fill: Callable[[BinaryIO], object], *, draft: str) -> None:
    """Write a file that appears whole and stays, whatever loses power: sync the draft, rename it, sync the directory.

    The file is for its owner only (mode 0600), as are directories that this makes (0700): pickles run code when they are read.
    """
    folder = os.path.dirname(path) or "."
    make_directory(folder)
    try:
        with open(draft, "wb", _WRITTEN, opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    sync_directory(folder)


def make_directory(path: str) -> None:
    """Make a directory for its owner only, and those above it, so that they stay, whatever loses power."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path) or "."
    make_directory(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    sync_directory(above)


def sync_directory(path: str) -> None:
    """Have the names in a directory be durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_uri(place: str) -> bool:
    """Return whether a place is a URI rather than a path. ``ConfigurationError`` for a URI with a single slash.

    >>> is_uri("s3://bucket/run"), is_uri("runs/1")
    (True, False)
    >>> is_uri(str(Path("s3://bucket/run")))
    Traceback (most recent call last):
    timely.errors.ConfigurationError: 's3:/bucket/run' is a URI with one slash, as pathlib writes it: give the text 's3://bucket/run'
    """
    if "://" in place:
        return True
    if beginning := re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", place):  # as a path it would be a folder "s3:" here
        scheme, rest = beginning[1], place[beginning.end() :]
        whole = f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
        raise ConfigurationError(f"{place!r} is a URI with one slash, as pathlib writes it: give the text {whole!r}")
    return False


def open_store(where: str | os.PathLike[str] | Store) -> Store:
    """Return the store at a path or URI, or the given ``Store`` itself.

    Paths and ``file://`` are a :class:`LocalStore`, any other URI an :class:`ArrowStore`. ``ConfigurationError`` for anything
    else.

    >>> open_store("")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: checkpoints are stored at a path, a URI or in a timely.recovery.Store, not in ''
    >>> open_store("/some/where"), open_store("file:///some/where%20else")
    (LocalStore('/some/where'), LocalStore('/some/where else'))
    """
    if isinstance(where, str | os.PathLike):
        text = os.fspath(where)
        if not text:
            raise ConfigurationError("checkpoints are stored at a path, a URI or in a timely.recovery.Store, not in ''")
        if not is_uri(text):
            return LocalStore(text)
        parts = urlsplit(text)
        if parts.scheme != "file":
            return ArrowStore.from_uri(text)
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"no checkpoints can be stored at {text!r}: {parts.netloc!r} is read as a machine; a local path begins with file:///"
            )
        return LocalStore(unquote(parts.path))
    if all(callable(getattr(where, name, None)) for name in ("write", "open", "names", "delete")):
        return where
    raise ConfigurationError(f"checkpoints are stored at a path, a URI or in a timely.recovery.Store, not in {where!r}")
