"""``SharedMemoryBuffer``: memory that two processes of one machine see, for the large pieces of what one of them sends the other.

It is mapped before the fork, one for each direction between two workers, and has no name: it goes away with the processes,
however they end. The sender copies a piece in and says over the socket where it lies; the receiver copies it out and counts it as
read. The invariant: only the sender writes pieces, only the receiver counts them, and none is written over before it is counted.
Nothing waits: where there is no room, because the receiver is slow or has gone, a piece goes through the socket.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Final, TypeAlias

from timely.worker.wire import FrameError

LARGEST: Final = 1 << 23
"""Bytes of an arena at most. Only as much of it as was ever under way at once takes memory."""

_ALL: Final = 1 << 26
_LEAST: Final = 1 << 18
_LINE: Final = 64
"""Bytes of a line of the processor's caches: pieces start at one, and the count of pieces has one to itself."""

_PAGE: Final = 1 << 12
_SIZE: Final = 32
"""Bits for the size of a piece in what names its place."""


class SharedMemoryBuffer:
    """Memory of so many bytes for pieces that one worker sends another.

    The sender calls ``put``, the receiver ``piece`` and ``read``, for the pieces in the order in which they were put.

    >>> arena = SharedMemoryBuffer(1 << 12)
    >>> place = arena.put(b"a piece")
    >>> bytes(arena.piece(place))
    b'a piece'
    >>> arena.put(bytes(1 << 12)) is None  # there is no room
    True
    >>> arena.read(1)
    >>> arena.put(bytes(1 << 12)) is None
    False
    >>> arena.close()
    """

    __slots__ = ("_gone", "_mapping", "_memory", "_read", "_under_way")

    def __init__(self, size: int) -> None:
        self._mapping = mmap.mmap(-1, _LINE + size)
        self._read = memoryview(self._mapping)[:8].cast("Q")
        self._memory = memoryview(self._mapping)[_LINE:]
        self._gone = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Where the pieces start and end that have not been read yet, as far as the sender knows."""

    def put(self, piece: bytes | memoryview) -> int | None:
        """Copy a piece in, and return its place; ``None`` if there is no room for it now."""
        under_way, gone = self._under_way, self._read[0]
        while self._gone < gone:
            under_way.popleft()
            self._gone += 1
        start = self._room(len(piece))
        if start is None:
            return None
        end = start + len(piece)
        self._memory[start:end] = piece
        under_way.append((start, end))
        return start << _SIZE | len(piece)

    def _room(self, size: int) -> int | None:
        """Return where so many bytes fit: behind the last piece that is under way, or else before the first."""
        everything = len(self._memory)
        if not self._under_way:
            return 0 if size <= everything else None  # what was used last is in the caches, and in memory
        first, end = self._under_way[0][0], -(-self._under_way[-1][1] // _LINE) * _LINE
        if first >= end:  # the last one is before the first already
            return end if end + size <= first else None
        if end + size <= everything:
            return end
        return 0 if size <= first else None

    def piece(self, place: int) -> memoryview:
        """Return the piece at a place, where it lies. ``FrameError`` if that is not in this memory."""
        start = place >> _SIZE
        end = start + (place & (1 << _SIZE) - 1)
        if end > len(self._memory):
            raise FrameError(f"it named bytes {start} to {end} of memory that has {len(self._memory)}")
        return self._memory[start:end]

    def read(self, pieces: int) -> None:
        """Let the sender write over so many more pieces.

        A processor may let other ones see this before it has done what comes just before it in the program, but not before what
        it did thousands of instructions ago: so after a message has been unpickled, and not between its pieces.
        """
        self._read[0] += pieces

    def close(self) -> None:
        """Let go of the memory, in this process."""
        self._read.release()
        self._memory.release()
        self._mapping.close()


Shared: TypeAlias = tuple[SharedMemoryBuffer, SharedMemoryBuffer]
"""What a worker shares with one in another process: memory to write to, and memory to read from."""


def arenas(count: int) -> list[SharedMemoryBuffer]:
    """Return so many arenas, of 64 MB together at most; none where each would be too small, or there is no memory."""
    size = min(LARGEST, _ALL // max(count, 1)) // _PAGE * _PAGE
    made: list[SharedMemoryBuffer] = []
    if size >= _LEAST:
        try:
            while len(made) < count:
                made.append(SharedMemoryBuffer(size))
        except OSError:
            while made:
                made.pop().close()
    return made
