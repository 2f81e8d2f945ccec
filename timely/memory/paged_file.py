"""``PagedFile``: one temporary file without a name, for what exceeds memory. Pages are written at its end and read anywhere.

A page is a few pieces of bytes, such as a pickle and its buffers. Invariant: the next page overwrites one that could not be
written. A file ends with the process at the latest; whoever opens one closes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Any, Final, NamedTuple

from timely.errors import SpillError
from timely.memory.budget import MemoryBudget
from timely.memory.limits import size_text

SEGMENT: Final = 1 << 28
"""Bytes after which a queue begins a new file, so that disk is freed while other pages wait."""

_MOST: Final = 1 << 30
"""Bytes that are written or read by one call: some systems take no more than 2 GB."""


class Page(NamedTuple):
    """Where pieces of these sizes are in a file."""

    at: int
    sizes: list[int]


class PagedFile:
    """A file in the directory of ``budget``, which counts its bytes and which a ``SpillError`` for a full disk names.

    Without a budget it is in the system's directory, and errors are those of the system. Pieces begin at multiples of ``align``.

    >>> file = PagedFile(MemoryBudget())
    >>> page = file.append([b"some", b"pieces"])
    >>> [bytes(piece) for piece in file.read(page)], file.size
    ([b'some', b'pieces'], 16)
    >>> file.close()
    """

    __slots__ = ("_align", "_budget", "_file", "size")

    def __init__(self, budget: MemoryBudget | None = None, align: int = 8) -> None:
        self._budget = budget
        self._align = align  # arrays begin at multiples of 8
        with self._blamed(0):
            self._file = temporary_file(None if budget is None else budget.directory)
        self.size = 0

    def append(self, pieces: Iterable[Any]) -> Page:
        """Write pieces, each of which has a buffer, and return where they are."""
        views = [memoryview(piece).cast("B") for piece in pieces]
        page = Page(self.size, [len(view) for view in views])
        at = self.size
        with self._blamed(sum(page.sizes)):
            for view in views:
                self._file.seek(at)
                at = self._aligned(at + len(view))
                while view:
                    view = view[self._file.write(view[:_MOST]) :]
        if self._budget is not None:
            self._budget.take_disk(at - self.size)
        self.size = at
        return page

    def read(self, page: Page) -> list[memoryview]:
        """Return the pieces of a page, in memory of their own."""
        starts, end = [], page.at
        for size in page.sizes:
            starts.append(self._aligned(end))
            if size:  # behind the last byte there may be no padding, so an empty piece may begin behind the file's end
                end = starts[-1] + size
        data = memoryview(bytearray(end - page.at))
        with self._blamed(len(data)):
            self._file.seek(page.at)
            rest = data
            while rest:
                count = self._file.readinto(rest[:_MOST])
                if not count:
                    raise OSError(errno.EIO, "the temporary file ends too early")
                rest = rest[count:]
        return [data[start - page.at :][:size] for start, size in zip(starts, page.sizes, strict=True)]

    def load(self, page: Page) -> Any:
        """Return the object whose pickle is the first piece, with the others as its buffers."""
        head, *buffers = self.read(page)
        return pickle.loads(head, buffers=buffers)

    def close(self) -> None:
        """Delete the file; closing it again is a no-op."""
        if self._budget is not None:
            self._budget.give_back(on_disk=self.size)
        self.size = 0
        self._file.close()

    def _aligned(self, at: int) -> int:
        return -(-at // self._align) * self._align

    def _blamed(self, size: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._budget is None else blamed(self._budget.directory, size)


class PageQueue:
    """Files for pages that are read once, oldest first. A file ends when all its pages were released."""

    def __init__(self, align: int = 8) -> None:
        self._align = align
        self._pages: dict[PagedFile, int] = {}  # of each file, the newest last: how many pages are still to be read

    def append(self, pieces: Iterable[Any]) -> tuple[PagedFile, Page]:
        """Write pieces, and return the file and the page; ``OSError`` for a full disk."""
        file = next(reversed(self._pages), None)
        if file is None or file.size >= SEGMENT:
            file = PagedFile(align=self._align)
            self._pages[file] = 0
        try:
            page = file.append(pieces)
        except OSError:
            if not self._pages[file]:
                self._close(file)
            raise
        self._pages[file] += 1
        return file, page

    def release(self, file: PagedFile) -> None:
        """Count a page of a file as read."""
        self._pages[file] -= 1
        if not self._pages[file]:
            self._close(file)

    def clear(self) -> None:
        """Delete all files."""
        for file in list(self._pages):
            self._close(file)

    def _close(self, file: PagedFile) -> None:
        del self._pages[file]
        file.close()


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
