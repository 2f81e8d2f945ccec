"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body and how many buffers it has), the sizes of the
buffers, and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of
its containers (Arrow batches as IPC, arrays as they are), which are neither copied into the pickle nor out of it. Frames are
only ever read from peers that have shown to hold the run's key, since unpickling executes what it is told to.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final

from timely.dataflow.pickling import dumps
from timely.progress import ProgressBatch
from timely.worker.coalesce import PROGRESS

HEADER: Final = struct.Struct("<QQ")
LARGEST: Final = 2 << 30
"""Bytes of the largest frame between machines, unless a transport is told otherwise."""

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


def encode(message: Any) -> list[bytes | memoryview]:
    """Return the pieces of the frame for ``message``, to be written one after another.

    >>> decode(memoryview(b"".join(encode((1, "two")))[HEADER.size :]), 1)
    (1, 'two')
    """
    loose: list[pickle.PickleBuffer] = []
    keep: Callable[[pickle.PickleBuffer], object] = loose.append
    main = dumps(message, keep)
    if not loose and len(main) < _SMALL:
        pad = -len(main) % 8
        return [b"".join((_ONE.pack(8 + len(main) + pad, 1, len(main)), main, _PAD[:pad]))]
    parts: list[bytes | memoryview] = [main, *(piece.raw() for piece in loose)]
    sizes = [len(part) for part in parts]
    body = 8 * len(sizes) + sum(size + -size % 8 for size in sizes)
    pieces: list[bytes | memoryview] = [HEADER.pack(body, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)]
    for part, size in zip(parts, sizes, strict=True):
        pieces.append(part)
        if size % 8:
            pieces.append(_PAD[: -size % 8])
    return pieces


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


def decode(body: memoryview, buffers: int) -> Any:
    """Return the message in the body of a frame with this many buffers; its large pieces are views of ``body``.

    ``FrameError`` if the buffers do not make up the body. What unpickling raises is raised as it is.
    """
    if buffers == 1:
        (size,) = _SIZE.unpack_from(body)
        if 8 + size + -size % 8 != len(body):
            raise _not_made_up(body, buffers)
        return pickle.loads(body[8 : 8 + size])
    sizes = struct.unpack_from(f"<{buffers}Q", body)
    at = 8 * buffers
    if at + sum(size + -size % 8 for size in sizes) != len(body):
        raise _not_made_up(body, buffers)
    parts = []
    for size in sizes:
        parts.append(body[at : at + size])
        at += size + -size % 8
    return pickle.loads(parts[0], buffers=parts[1:])


def _not_made_up(body: memoryview, buffers: int) -> FrameError:
    return FrameError(f"it sent {len(body)} bytes that its {buffers} buffers do not make up")
