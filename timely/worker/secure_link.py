"""``SecureLink``: one connection to a worker in another process, over TLS.

It keeps what ``Link`` promises, and differs from it in how bytes get into the socket and out of it. It is a module of its own
since TLS takes a while to load, which a run on one machine has no use for.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from timely.worker.link import Link
from timely.worker.wire import LARGEST

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises, encrypted or not, that cannot go on just now."""

_CHUNK: Final = 1 << 18
_SMALL: Final = 1 << 16
_RECORD: Final = 1 << 14
_MOST_TURNS: Final = 4096


class SecureLink(Link):
    """A link over TLS, where bytes get into the socket and out of it in another way.

    TLS goes out in records of at most 16 KB, and a write that could not be finished has to be repeated with the very same bytes.
    So what waits is written in pieces that are kept until they have gone: slices of large buffers, and small ones joined. What
    comes is read record by record, and no part of one is left behind in the TLS layer, where no poll could see it.
    """

    __slots__ = ("_leaving",)

    _FULL = WOULD_BLOCK

    sock: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket, largest: int | None = LARGEST, room: bytearray | None = None) -> None:
        super().__init__(sock, largest, room)
        self._leaving: bytes | memoryview = b""

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._leaving or self._out)

    def _write(self) -> None:
        """Write all that waits to be written; raise where the connection takes no more."""
        while not self.deaf and (self._leaving or self._out):
            if not self._leaving:
                self._leaving = self._next()
            self._leaving = self._leaving[self.sock.send(self._leaving) :]

    def _next(self) -> bytes | memoryview:
        """Take the next piece to be written off what waits."""
        out = self._out
        first = out.popleft()
        if len(first) > _CHUNK:
            out.appendleft(first[_CHUNK:])
            return first[:_CHUNK]
        if len(first) >= _SMALL or not out:
            return first
        joined = bytearray(first)
        while out and len(joined) + len(out[0]) <= _SMALL:
            joined += out.popleft()
        return bytes(joined)

    def _stop_writing(self) -> None:
        super()._stop_writing()
        self._leaving = b""

    def _read(self, into: list[Any]) -> None:
        turns = 0
        record = self._room[:_RECORD]
        while not self.gone:
            try:
                count = self.sock.recv_into(record if self._body is None else self._body[self._at :])
            except WOULD_BLOCK:
                return
            except OSError as error:
                self._end(str(error) if isinstance(error, ssl.SSLError) else "")
                return
            if count == 0:
                self._end()
            elif self._body is None:
                self._split(record[:count], into)
            else:
                self._at += count
                if self._at == len(self._body):
                    self._take(into)
            turns += 1
            if turns >= _MOST_TURNS and self.sock.pending() == 0:
                return  # the poll finds what else there is, after the other peers have had their turn
