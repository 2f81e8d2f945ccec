"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body and how many buffers it has), the sizes of the
buffers, and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of its
containers (arrays and large Arrow batches as they are, others as IPC), which are neither copied into the pickle nor out of it.
Between processes that share memory (:mod:`timely.worker.shared_memory`) a large buffer may lie there; then its place stands
where its size would.
Frames are only ever read from peers that have shown to hold the run's key, since unpickling executes what it is told to.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from timely.dataflow.pickling import pickled
from timely.progress import ProgressBatch
from timely.worker.progress_batching import PROGRESS

if TYPE_CHECKING:
    from timely.worker.shared_memory import SharedMemoryBuffer

Piece: TypeAlias = bytes | memoryview

HEADER: Final = struct.Struct("<QQ")
LARGEST: Final = 2 << 30
"""Bytes of the largest frame between machines, unless a transport is told otherwise."""

FAR: Final = 1 << 15
"""Bytes from which on a buffer goes through shared memory, where there is any."""

AWAY: Final = 1 << 63
"""The bit that tells a place in shared memory from the size of a buffer that follows."""

_ONE: Final = struct.Struct("<QQQ")
_SIZE: Final = struct.Struct("<Q")
_PAD: Final = b"\0" * 8
_SMALL: Final = 1 << 16
"""Bytes that are rather joined into one piece than written as several."""


def thinned(messages: list[Any]) -> list[Any]:
    """Return the messages of a frame with plain tuples for their batches of progress: what is sent most should take least to
    pickle, and a pickle of tuples names no class.

    >>> thinned([("progress", 0, ProgressBatch(2, 7, (("a", 1),))), None])
    [('progress', 0, (2, 7, (('a', 1),), 1)), None]
    """
    return [_thin(message) if message is not None and message[0] == PROGRESS else message for message in messages]


def _thin(message: Any) -> Any:
    batch = message[2]
    return PROGRESS, message[1], (batch.sender, batch.sequence, batch.updates, batch.count)


def restored(messages: list[Any]) -> list[Any]:
    """Return the messages of a frame as they were before ``thinned``.

    >>> restored([("progress", 0, (2, 7, (("a", 1),), 1)), None])
    [('progress', 0, ProgressBatch(sender=2, sequence=7, updates=(('a', 1),))), None]
    """
    return [
        (PROGRESS, message[1], ProgressBatch(*message[2])) if message is not None and message[0] == PROGRESS else message
        for message in messages
    ]


def encode(message: Any) -> list[Piece]:
    """Return the pieces of the frame for ``message``, to be written one after another.

    >>> decode(memoryview(b"".join(encode((1, "two")))[HEADER.size :]), 1)
    (1, 'two')
    """
    return framed(pickled(message))


def framed(buffers: list[Piece], arena: SharedMemoryBuffer | None = None) -> list[Piece]:
    """Return the pieces of the frame with these buffers, of which ``arena`` takes the large ones, as far as it has room."""
    main = buffers[0]
    if len(buffers) == 1 and len(main) < FAR:
        pad = -len(main) % 8
        return [b"".join((_ONE.pack(8 + len(main) + pad, 1, len(main)), main, _PAD[:pad]))]
    sizes = []
    pieces: list[Piece] = [b""]
    body = 8 * len(buffers)
    for buffer in buffers:
        size = len(buffer)
        place = arena.put(buffer) if arena is not None and size >= FAR else None
        if place is not None:
            sizes.append(AWAY | place)
            continue
        sizes.append(size)
        pieces.append(buffer)
        if size % 8:
            pieces.append(_PAD[: -size % 8])
        body += size + -size % 8
    pieces[0] = HEADER.pack(body, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    return pieces if body >= _SMALL else [b"".join(pieces)]


class FrameError(ValueError):
    """What arrived is no frame, or a larger one than is taken."""


def announced(head: bytes | memoryview, at: int, largest: int | None) -> tuple[int, int]:
    """Return the size of the body and the number of buffers that the header at this place announces.

    ``FrameError`` for more bytes than ``largest`` (``None`` is no bound), or more buffers than fit into them.

    >>> announced(HEADER.pack(24, 1), 0, 1000)
    (24, 1)
    """
    size, buffers = HEADER.unpack_from(head, at)
    if largest is not None and size > largest:
        raise FrameError(f"it announced a message of {size} bytes, and {largest} is the most that is taken")
    if not 0 < buffers <= size // 8:
        raise FrameError(f"it announced {buffers} buffers in {size} bytes, which is no message")
    return size, buffers


def decode(body: memoryview, buffers: int, arena: SharedMemoryBuffer | None = None) -> Any:
    """Return the message in the body of a frame with this many buffers; its large pieces are views of ``body``, and copies of
    what is in ``arena``.

    ``FrameError`` if the buffers do not make up the body, or are said to lie where they cannot. What unpickling raises is raised
    as it is.
    """
    if buffers == 1:
        (size,) = _SIZE.unpack_from(body)
        if 8 + size + -size % 8 == len(body):
            return pickle.loads(body[8 : 8 + size])
    parts: list[memoryview | bytearray] = []
    at, away = 8 * buffers, 0
    for size in struct.unpack_from(f"<{buffers}Q", body):
        if size & AWAY and arena is not None:
            piece = arena.piece(size ^ AWAY)
            parts.append(bytearray(piece) if parts else piece)  # a pickle is read where it lies
            away += 1
        else:
            parts.append(body[at : at + size])
            at += size + -size % 8
    if at != len(body):
        raise _not_made_up(body, buffers)
    message = pickle.loads(parts[0], buffers=parts[1:])
    if arena is not None and away:
        arena.read(away)
    return message


def _not_made_up(body: memoryview, buffers: int) -> FrameError:
    return FrameError(f"it sent {len(body)} bytes that its {buffers} buffers do not make up")
