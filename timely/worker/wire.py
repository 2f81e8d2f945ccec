"""How messages become bytes and bytes become messages again, between processes that trust each other.

A frame is a header (two little-endian 64-bit numbers: the size of the body and how many buffers it has), the sizes of the
buffers, and the buffers, each padded to eight bytes. The first buffer is a pickle; the others are the large flat pieces of
its containers (Arrow batches as IPC, arrays as they are), which are neither copied into the pickle nor out of it. Frames are
only ever read from peers that have shown the run's secret, since unpickling executes what it is told to.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final

from timely.dataflow.pickling import dumps

HEADER: Final = struct.Struct("<QQ")
_PAD: Final = b"\0" * 8


def encode(message: Any) -> list[bytes | memoryview]:
    """Return the pieces of the frame for ``message``, to be written one after another.

    >>> decode(memoryview(b"".join(encode((1, "two")))[HEADER.size :]), 1)
    (1, 'two')
    """
    loose: list[pickle.PickleBuffer] = []
    keep: Callable[[pickle.PickleBuffer], object] = loose.append
    parts: list[bytes | memoryview] = [dumps(message, keep)]
    parts.extend(piece.raw() for piece in loose)
    sizes = [len(part) for part in parts]
    body = 8 * len(sizes) + sum(size + -size % 8 for size in sizes)
    pieces: list[bytes | memoryview] = [HEADER.pack(body, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)]
    for part, size in zip(parts, sizes, strict=True):
        pieces.append(part)
        if size % 8:
            pieces.append(_PAD[: -size % 8])
    return pieces


def decode(body: memoryview, buffers: int) -> Any:
    """Return the message in the body of a frame with this many buffers; its large pieces are views of ``body``."""
    sizes = struct.unpack_from(f"<{buffers}Q", body)
    at = 8 * buffers
    parts = []
    for size in sizes:
        parts.append(body[at : at + size])
        at += size + -size % 8
    return pickle.loads(parts[0], buffers=parts[1:])
