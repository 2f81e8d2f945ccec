"""Where temporary files are, and errors that say what to set. They are no maps, which would count as memory of the process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO

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


def temporary_file(directory: str | None) -> FileIO:
    """Return a new file for reading and writing that has no name, so that it ends with the process.

    It is unbuffered: a buffer would retry later what could not be written.
    """
    import tempfile

    return tempfile.TemporaryFile(buffering=0, dir=directory)


@contextlib.contextmanager
def blamed(directory: str, size: int) -> Iterator[None]:
    """Raise ``SpillError`` for an ``OSError``, with the directory, the bytes and what to set."""
    try:
        yield
    except OSError as error:
        left = ""
        with contextlib.suppress(OSError, AttributeError):
            disk = os.statvfs(directory)
            left = f", where {size_text(disk.f_bavail * disk.f_frsize)} are free"
        raise SpillError(
            f"{size_text(size)} cannot go to a temporary file in {directory!r}{left}: {error}. Give a directory with more room"
            " (directory= of timely.memory.MemoryBudget, TMPDIR in the environment, spark.local.dir on Spark), more memory=, or"
            " more workers"
        ) from error
