"""Temporary files without a name, for what exceeds memory: pages (``PagedFile``), queues of them, and containers (``Spool``).

Pages are written at the end of a file and read anywhere. A page is a few pieces of bytes, such as a pickle and its buffers.
Invariant: the next page overwrites one that could not be written. A file ends with the process at the latest; whoever opens one
closes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import weakref
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Any, Final, NamedTuple

import attrs

from timely.errors import SpillError
from timely.memory.budget import MemoryBudget, readable_back
from timely.memory.limits import size_text

SEGMENT: Final = 1 << 28
"""Bytes after which a queue begins a new file, so that disk is freed while other pages wait."""

_MOST: Final = 1 << 30
"""Bytes that are written or read by one call: some systems take no more than 2 GB."""

_COUNTED: Final = "nbytes"
"""What has this attribute can go to disk."""


class Page(NamedTuple):
    """Where pieces of these sizes are in a file."""

    at: int
    sizes: list[int]


class PagedFile:
    """A file in the directory of ``budget``, which counts its bytes and which a ``SpillError`` for a full disk names.

    Without a budget it is in the system's directory, and errors are those of the system. Pieces begin at multiples of ``align``.
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


class _Stored(NamedTuple):
    """A container in the file: a pickle, and where its buffers are."""

    pickle: bytes
    buffers: Page


@attrs.define(eq=False)
class _Held:
    """What a spool occupies: bytes in memory, and a file."""

    budget: MemoryBudget
    in_memory: int = 0
    file: PagedFile | None = None

    def release(self) -> None:
        self.budget.give_back(self.in_memory)
        self.in_memory = 0
        if self.file is not None:
            self.file.close()
            self.file = None


class Spool:
    """Containers in the order in which they were appended, in memory while the budget allows, and in one file beyond it.

    What is on disk is read anew when it is iterated over.

    NumPy arrays and Arrow batches, and all else that has ``nbytes`` and can be pickled, go to disk; other objects stay in memory.
    The file ends with the spool. ``SpillError`` if the disk is full; what was appended before stays.

    >>> import numpy as np
    >>> spool = Spool(MemoryBudget(1000))
    >>> for number in range(3):
    ...     spool.append(np.full(100, number))
    >>> len(spool), [int(array[0]) for array in spool], spool.on_disk
    (3, [0, 1, 2], 1600)
    >>> [int(array[0]) for array in spool.drain()], len(spool), spool.on_disk
    ([0, 1, 2], 0, 0)
    """

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget or MemoryBudget.current()
        self._items: list[Any] = []
        self._held = _Held(self._budget)
        weakref.finalize(self, self._held.release).atexit = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def on_disk(self) -> int:
        """Bytes in the file."""
        return 0 if self._held.file is None else self._held.file.size

    def append(self, container: Any) -> None:
        """Add a container, which must not change any more."""
        size = getattr(container, _COUNTED, None)
        arrow = type(container).__module__.startswith("pyarrow")
        if (
            size is None
            or getattr(getattr(container, "dtype", None), "hasobject", False)
            or (arrow and not readable_back(container))
        ):
            self._items.append(container)
        elif self._budget.take(size):
            self._held.in_memory += size
            self._items.append(container)
        else:
            self._items.append(self._store(container))

    def __reduce__(self) -> Any:
        """A checkpoint has the containers one by one; restored, they are held by the budget that is current then."""
        return Spool, (), None, iter(self)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self._items)))

    def __getitem__(self, index: int) -> Any:
        item = self._items[index]
        return self._load(item) if isinstance(item, _Stored) else item

    def drain(self) -> Iterator[Any]:
        """Yield each container, and let go of it when the next one is asked for. The file ends after the last."""
        items, self._items = self._items, []
        items.reverse()
        while items:
            item = items.pop()
            if isinstance(item, _Stored):
                yield self._load(item)
                continue
            size = getattr(item, _COUNTED, 0)
            yield item
            del item
            if self._held.in_memory >= size:
                self._held.in_memory -= size
                self._budget.give_back(size)
        if not self._items:
            self.clear()

    def clear(self) -> None:
        """Let go of all containers."""
        self._items = []
        self._held.release()

    def _store(self, container: Any) -> _Stored:
        if self._held.file is None:
            self._held.file = PagedFile(self._budget)
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(_compact(container), protocol=5, buffer_callback=buffers.append)
        return _Stored(head, self._held.file.append(buffer.raw() for buffer in buffers))

    def _load(self, stored: _Stored) -> Any:
        assert self._held.file is not None
        return pickle.loads(stored.pickle, buffers=self._held.file.read(stored.buffers))


def _compact(container: Any) -> Any:
    """Return a container without the rows that a slice of it does not show: Arrow pickles whole buffers."""
    return _OwnRows(container) if type(container).__module__.startswith("pyarrow") else container


class _OwnRows:
    """A record batch or array of Arrow, pickled as bytes of Arrow IPC, which have the rows of a slice only."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __reduce_ex__(self, _: Any) -> Any:
        import pyarrow as pa

        is_batch = isinstance(self.rows, pa.RecordBatch)
        batch = self.rows if is_batch else pa.record_batch({"": self.rows})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return _read_rows, (pickle.PickleBuffer(sink.getvalue()), is_batch)


def _read_rows(data: Any, is_batch: bool) -> Any:
    import pyarrow as pa

    batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
    return batch if is_batch else batch.column(0)
