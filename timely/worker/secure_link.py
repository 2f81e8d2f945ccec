"""``SecureLink``: a ``Link`` over TLS. A module of its own, since ``ssl`` takes a while to load."""

from __future__ import annotations

import ssl
from typing import Any, Final

from timely.worker.process_link import TAKEN, Link
from timely.worker.wire import LARGEST

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises, encrypted or not, when it cannot go on for now."""

_CHUNK: Final = 1 << 18
_SMALL: Final = 1 << 16
_RECORD: Final = 1 << 14
_MOST_JOINED: Final = 64


class SecureLink(Link):
    """A link over TLS.

    A write that could not be finished has to be repeated with the very same bytes, so each piece is kept until it has gone:
    slices of large buffers, and small ones joined. A record is always read whole: no poll sees what stays in the TLS layer.
    """

    __slots__ = ("_leaving",)

    _FULL = WOULD_BLOCK

    sock: ssl.SSLSocket

    def __init__(
        self,
        sock: ssl.SSLSocket,
        largest: int | None = LARGEST,
        room: bytearray | None = None,
        in_memory: int = 1 << 25,
    ) -> None:
        super().__init__(sock, largest, room, in_memory)
        self._leaving: bytes | memoryview = b""

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._leaving or self._out)

    def _write(self) -> None:
        """Write everything; raise where the connection takes no more."""
        while not self.closed and (self._leaving or self._out):
            if not self._leaving:
                self._leaving = self._next()
            self._leaving = self._leaving[self.sock.send(self._leaving) :]

    def _next(self) -> bytes | memoryview:
        """Remove and return the next piece to write."""
        pieces = self._out.pieces(_MOST_JOINED)
        chunk: bytes | memoryview = pieces[0][:_CHUNK]
        if len(chunk) < _SMALL and len(pieces) > 1:
            joined = bytearray()
            for piece in pieces:
                if len(joined) + len(piece) > _SMALL:
                    break
                joined += piece
            chunk = bytes(joined)
        self._out.sent(len(chunk))
        return chunk

    def _stop_writing(self) -> None:
        super()._stop_writing()
        self._leaving = b""

    def _read(self, into: list[Any]) -> None:
        taken = 0
        record = self._room[:_RECORD]
        while not self.gone:
            try:
                count = self.sock.recv_into(record if self._body is None else self._rest())
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
                    self._finish_frame(into)
            taken += count
            if taken >= TAKEN and self.sock.pending() == 0:
                return  # the poll finds the rest, after the other peers
