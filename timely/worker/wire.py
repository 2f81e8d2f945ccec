"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body, the number of buffers), the sizes of the buffers,
and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of containers,
which are neither copied into the pickle nor out of it. Unpickling executes code: frames are read only from peers that hold the
run's key.
"""

from __future__ import annotations

import pickle
import struct
from collections import deque
from typing import Any, Final, TypeAlias

from timely.dataflow.containers.pickling import pickled

Piece: TypeAlias = bytes | memoryview

HEADER: Final = struct.Struct("<QQ")
LARGEST: Final = 2 << 30
"""Bytes of the largest frame between machines, unless a transport has another limit."""

LARGE: Final = 1 << 26
"""Bytes of a body with one buffer from which on it is received in blocks."""

_BLOCK: Final = (1 << 25) + (1 << 16)
"""Bytes of a block: more than an allocator keeps for itself, so that a block that is freed goes back to the system."""

_ONE: Final = struct.Struct("<QQQ")
_SIZE: Final = struct.Struct("<Q")
_PAD: Final = b"\0" * 8
_SMALL: Final = 1 << 15
"""Bytes of a pickle up to which it is joined with its header."""
_JOINED: Final = 1 << 16
"""Bytes of a body up to which its pieces are joined."""


def encode(message: Any) -> list[Piece]:
    """Return the pieces of the frame for ``message``, to be written one after another."""
    return framed(pickled(message))


def framed(buffers: list[Piece]) -> list[Piece]:
    """Return the pieces of the frame with these buffers."""
    main = buffers[0]
    if len(buffers) == 1 and len(main) < _SMALL:
        pad = -len(main) % 8
        return [b"".join((_ONE.pack(8 + len(main) + pad, 1, len(main)), main, _PAD[:pad]))]
    sizes = [len(buffer) for buffer in buffers]
    body = sum(8 + size + -size % 8 for size in sizes)
    pieces: list[Piece] = [HEADER.pack(body, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)]
    for buffer, size in zip(buffers, sizes):
        pieces.append(buffer)
        if size % 8:
            pieces.append(_PAD[: -size % 8])
    return pieces if body >= _JOINED else [b"".join(pieces)]


class FrameError(ValueError):
    """What arrived is no frame, or is larger than allowed."""


def announced(head: bytes | memoryview, at: int, largest: int | None) -> tuple[int, int]:
    """Return the size of the body and the number of buffers that the header at this place announces.

    ``FrameError`` for more bytes than ``largest`` (``None`` is no bound), or more buffers than fit into them.
    """
    size, buffers = HEADER.unpack_from(head, at)
    if largest is not None and size > largest:
        raise FrameError(f"it announced a message of {size} bytes, and {largest} is the most that is taken")
    if not 0 < buffers <= size // 8:
        raise FrameError(f"it announced {buffers} buffers in {size} bytes, which is no message")
    return size, buffers


def decode(body: memoryview, buffers: int) -> Any:
    """Return the message in the body of a frame with this many buffers; its large pieces are views of ``body``.

    ``FrameError`` if the buffers do not make up the body. What unpickling raises is raised as it is.
    """
    if buffers == 1:
        (size,) = _SIZE.unpack_from(body)
        if 8 + size + -size % 8 == len(body):
            return pickle.loads(body[8 : 8 + size])
    parts: list[memoryview] = []
    at = 8 * buffers
    for size in struct.unpack_from(f"<{buffers}Q", body):
        parts.append(body[at : at + size])
        at += size + -size % 8
    if at != len(body):
        raise FrameError(f"it sent {len(body)} bytes that its {buffers} buffers do not make up")
    return pickle.loads(parts[0], buffers=parts[1:])


class LargeBody:
    """The body of a large frame with one buffer, in blocks: each is freed when it is unpickled."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._blocks = deque([bytearray(min(_BLOCK, size - at)) for at in range(0, size, _BLOCK)])
        self._at = 0

    def __len__(self) -> int:
        return self._size

    def room(self, at: int) -> memoryview:
        """Return where to put what comes from place ``at`` on: the rest of its block."""
        return memoryview(self._blocks[at // _BLOCK])[at % _BLOCK :]

    def decode(self) -> Any:
        """Return the message, and free the body. ``FrameError`` if the buffer does not make up the body."""
        (size,) = _SIZE.unpack(self.read(8))
        if 8 + size + -size % 8 != self._size:
            raise FrameError(f"it sent {self._size} bytes that its buffer does not make up")
        return pickle.load(self)

    def readinto(self, room: Any) -> int:
        """Fill ``room`` with the next bytes; return how many there were."""
        rest = memoryview(room).cast("B")
        filled = 0
        while filled < len(rest) and self._blocks:
            block = self._blocks[0]
            part = memoryview(block)[self._at : self._at + len(rest) - filled]
            rest[filled : filled + len(part)] = part
            filled += len(part)
            self._at += len(part)
            if self._at == len(block):
                self._blocks.popleft()
                self._at = 0
        return filled

    def read(self, size: int) -> bytes:
        """Return the next bytes, for the unpickler."""
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(buffer)])

    def readline(self) -> bytes:
        """Return nothing: these pickles have no lines."""
        return b""
