"""Temporary files without a name, read and written at places: maps would count as memory of the process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import IO, Any

from timely.errors import ConfigurationError, SpillError
from timely.memory.limits import size_text


def check_directory(directory: str | os.PathLike[str] | None) -> str:
    """Return where temporary files go: ``directory``, else the first of Spark's local ones, else the system's.

    ``ConfigurationError`` if nothing can be written there.
    """
    import tempfile  # takes long to load

    where = os.fspath(directory) if directory is not None else (os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0]
    where = where or tempfile.gettempdir()
    if not (os.path.isdir(where) and os.access(where, os.W_OK)):
        raise ConfigurationError(f"{where!r} is no directory that can be written to: give one for temporary files as directory=")
    return where


def temporary_file(directory: str) -> IO[bytes]:
    """Return a new file for reading and writing that has no name, so that it ends with the process; unbuffered."""
    import tempfile

    with blamed(directory, 0):
        return tempfile.TemporaryFile(buffering=0, dir=directory)


def write_all(file: int, at: int, data: Any) -> int:
    """Write the bytes of a buffer ``at`` a place in a file; return where they end."""
    rest = memoryview(data).cast("B")
    while rest:
        written = os.pwrite(file, rest[: 1 << 30], at)
        at, rest = at + written, rest[written:]
    return at


def read_into(file: int, at: int, data: Any) -> None:
    """Fill a buffer with what is ``at`` a place in a file; ``OSError`` if the file ends too early."""
    rest = memoryview(data).cast("B")
    while rest:
        got = os.preadv(file, [rest[: 1 << 30]], at)
        if not got:
            raise OSError(errno.EIO, "the temporary file ends too early")
        at, rest = at + got, rest[got:]


@contextlib.contextmanager
def blamed(directory: str, size: int) -> Iterator[None]:
    """Raise ``SpillError`` for an ``OSError``, with the directory, the bytes and what to set."""
    try:
        yield
    except OSError as error:
        left = ""
        with contextlib.suppress(OSError, AttributeError):
            found = os.statvfs(directory)
            left = f", where {size_text(found.f_bavail * found.f_frsize)} are free"
        raise SpillError(
            f"{size_text(size)} cannot go to a temporary file in {directory!r}{left}: {error}. Give a directory with more room"
            " (directory= of timely.memory.MemoryBudget, TMPDIR in the environment, spark.local.dir on Spark), more memory=, or"
            " more workers"
        ) from error
