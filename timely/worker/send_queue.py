"""``SendQueue``: the bytes that a connection has yet to take, in memory and beyond a limit in a temporary file.

Invariant: bytes leave in the order in which they came, each once. What a full disk does not take stays in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from timely.errors import SpillError
from timely.memory.paged_file import Page, PagedFile, PageQueue

_BLOCK: Final = 1 << 18
"""Bytes that are read from a file at once."""

Piece: TypeAlias = bytes | memoryview


class _Stored(NamedTuple):
    """Bytes in a file."""

    file: PagedFile
    at: int
    end: int


class SendQueue:
    """A queue of bytes, of which about ``limit`` are in memory. The first piece always is.

    >>> queue = SendQueue(limit=5)
    >>> queue.extend([b"first"])
    >>> queue.extend([b"second", b"third"])
    >>> queue.size, queue.on_disk
    (16, 11)
    >>> queue.sent(5)
    >>> [bytes(piece) for piece in queue.pieces(9)]
    [b'secondthird']
    """

    __slots__ = ("_files", "_items", "limit", "on_disk", "size")

    def __init__(self, limit: int) -> None:
        self._items: deque[memoryview | _Stored] = deque()
        self._files = PageQueue(align=1)  # a page is read in blocks
        self.limit = limit
        self.size = 0
        """Bytes in all."""
        self.on_disk = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def extend(self, pieces: Sequence[Piece]) -> None:
        size = sum(map(len, pieces))
        if not size:
            return
        if self.size and self.size - self.on_disk + size > self.limit:
            try:
                self._store(pieces, size)
                return
            except OSError as error:
                import logging  # takes long to load

                text = "%d bytes for a worker in another process stay in memory: they cannot be written, %s"
                logging.getLogger(__name__).warning(text, size, error)
        self._items.extend([memoryview(piece) for piece in pieces if len(piece)])
        self.size += size

    def _store(self, pieces: Sequence[Piece], size: int) -> None:
        file, page = self._files.append(pieces)
        self._items.append(_Stored(file, page.at, page.at + size))
        self.size += size
        self.on_disk += size

    def pieces(self, most: int) -> list[memoryview]:
        """Return the first pieces, at least one and at most so many, without removing them. ``SpillError`` for a damaged file."""
        first = self._items[0]
        if not isinstance(first, memoryview):
            self._load(first)
        pieces: list[memoryview] = []
        for item in self._items:
            if not isinstance(item, memoryview) or len(pieces) == most:
                break
            pieces.append(item)
        return pieces

    def _load(self, stored: _Stored) -> None:
        """Read the next block of the first item, which is in a file."""
        file, at, end = stored
        size = min(end - at, _BLOCK)
        try:
            [block] = file.read(Page(at, [size]))
        except OSError as error:
            raise SpillError(
                f"what waits for a worker in another process cannot be read back from its temporary file, {error}: let nothing"
                " touch the temporary files of a run"
            ) from error
        self._items.popleft()
        self.on_disk -= size
        if at + size < end:
            self._items.appendleft(_Stored(file, at + size, end))
        else:
            self._files.release(file)
        self._items.appendleft(block)

    def sent(self, count: int) -> None:
        """Remove this number of bytes from the pieces in memory."""
        items = self._items
        self.size -= count
        while count:
            first = items[0]
            assert isinstance(first, memoryview)
            if count < len(first):
                items[0] = first[count:]
                return
            count -= len(first)
            items.popleft()

    def clear(self) -> None:
        """Discard everything."""
        self._files.clear()
        self._items.clear()
        self.size = self.on_disk = 0
