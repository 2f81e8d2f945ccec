"""``Store``: where checkpoints lie, as named pieces of bytes that appear whole or not at all.

Four verbs are all that recovery asks of a file system, so that a store of one's own is a small class. The invariant that the
others build on: a name that ``names`` lists, without the suffix ``PARTIAL``, was written to its end, and what was written is
durable when ``write`` returns. Names are flat, and no name is ever written twice. Workers use a store from several threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from timely.errors import ConfigurationError

PARTIAL: Final = ".partial"
"""What the name of a piece ends in that is still being written, or was when its writer died."""


_LOST: Final = frozenset({errno.ENOENT, errno.EIO, errno.EISDIR, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)})


def is_lost(error: object) -> bool:
    """Return whether an error says that a piece is not there, or that what it lies on is damaged.

    Any other (no permission, no network, too many open files) says that it cannot be read now, and it may be good.

    >>> is_lost(FileNotFoundError(errno.ENOENT, "No such file")), is_lost(PermissionError(errno.EACCES, "Permission denied"))
    (True, False)
    """
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in _LOST)


class Store(Protocol):
    """A place for checkpoints. Each method raises ``OSError`` where it fails."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a piece: it appears under its name as a whole, and is durable when this returns; or it does not appear."""

    def open(self, name: str) -> BinaryIO:
        """Open a piece for reading at any place of it. ``FileNotFoundError`` where there is none.

        After that, or an ``OSError`` which says that the piece is damaged (``errno.EIO``), the checkpoint before is used in its
        place; after any other the run does not begin.
        """

    def names(self) -> list[str]:
        """Return the names of all pieces, those included that were never finished."""

    def delete(self, name: str) -> None:
        """Delete a piece; nothing happens where there is none."""


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
        """Write to a file beside, and rename it when all of it is on the disk."""
        self.directory.mkdir(parents=True, exist_ok=True)
        beside = self.directory / (name + PARTIAL)
        try:
            with beside.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.directory / name)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        self._sync()

    def _sync(self) -> None:
        """Have the directory remember its names."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open(self, name: str) -> BinaryIO:
        """Open a file of the directory."""
        return (self.directory / name).open("rb")

    def names(self) -> list[str]:
        """Return the names in the directory; a directory that does not exist yet is empty."""
        try:
            return sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self.directory / name).unlink(missing_ok=True)


def open_store(where: str | os.PathLike[str] | Store) -> Store:
    """Return the store at ``where``: a path, a URI, or a store already.

    ``file://`` and paths are a :class:`LocalStore`. Any other URI is what PyArrow can reach (``s3://``, ``gs://``,
    ``hdfs://``), see :class:`timely.recovery.arrow_store.ArrowStore`. ``ConfigurationError`` for what is none of these.

    >>> open_store("/some/where"), open_store("file:///some/where%20else")
    (LocalStore('/some/where'), LocalStore('/some/where else'))
    """
    if isinstance(where, str | os.PathLike):
        text = os.fspath(where)
        if "://" not in text:
            return LocalStore(text)
        parts = urlsplit(text)
        if parts.scheme == "file":
            if parts.netloc not in ("", "localhost"):
                raise ConfigurationError(
                    f"no checkpoints can be kept at {text!r}: {parts.netloc!r} stands where a machine is named; a path of"
                    " this one begins with file:///"
                )
            return LocalStore(unquote(parts.path))
        from timely.recovery.arrow_store import ArrowStore

        return ArrowStore.from_uri(text)
    if all(callable(getattr(where, name, None)) for name in ("write", "open", "names", "delete")):
        return where
    raise ConfigurationError(f"checkpoints are kept at a path, a URI or a timely.recovery.Store, not at {where!r}")
