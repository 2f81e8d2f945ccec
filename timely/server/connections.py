"""``Connections``: how many clients may be connected, and which of them go when others come."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_SPARE: Final = 256
"""File descriptors for what else the process opens, and for clients that have yet to be refused."""


def connection_limit(most: int = 1024) -> int:
    """Return how many clients may be connected, so that the process never runs out of file descriptors."""
    try:
        import resource
    except ModuleNotFoundError:  # not a Unix
        return most
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if open_files == resource.RLIM_INFINITY else min(most, max(open_files - _SPARE, open_files // 3, 1))


class Connections:
    """The connections of one server.

    A new one is always accepted. Where there are too many the oldest one goes whose request is not being answered; at most half
    of them have requests that are.
    """

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience  # seconds for which a client may take nothing
        self.backlog = min(128, most // 2)
        """Connections that are accepted at once, before any of others is closed."""
        self._busy: set[Any] = set()
        self._unread: dict[Any, int] = {}  # those that have taken nothing, and how often that was seen

    @contextmanager
    def answering(self, request: web.Request, *, always: bool) -> Iterator[None]:
        """A block in which a request is answered; where too many are, only one that is answered ``always``."""
        if not always and len(self._busy) >= self._most // 2:
            raise web.HTTPServiceUnavailable(text=f"{len(self._busy)} requests are being answered: try again later")
        self._busy.add(request.protocol)
        try:
            yield
        finally:
            self._busy.discard(request.protocol)

    def accepted(self, server: web.Server) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        connections = server.connections
        if len(connections) >= self._most:
            for each in connections:
                if each not in self._busy and each.transport is not None and not each.transport.is_closing():
                    _abort(each.transport)
                    break
        return server()

    async def send(self, request: web.Request, response: web.StreamResponse, content: bytes) -> None:
        """Send a piece of an answer; ``ConnectionError`` for a client that does not take it."""
        try:
            async with asyncio.timeout(self._patience):  # wait_for may lose a cancellation
                await response.write(content)
        except TimeoutError:
            _abort(request.transport)
            raise ConnectionResetError("the client takes nothing") from None

    async def close_unread(self, server: web.Server) -> None:
        """Close, for ever, connections of clients that do not take the last of what they have asked for."""
        while True:
            await asyncio.sleep(self._patience / 3)
            waiting = [each for each in server.connections if each not in self._busy and _waits(each)]
            self._unread = {each: self._unread.get(each, 0) + 1 for each in waiting}
            for each, times in self._unread.items():
                if times > 3:
                    _abort(each.transport)


def _waits(connection: Any) -> bool:
    return connection.transport is not None and connection.transport.get_write_buffer_size() > 0


def _abort(transport: Any) -> None:
    """End a connection without waiting for the client; the system drops what it holds for that."""
    if transport is not None:
        with suppress(OSError):  # it is closed already
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


class Once(logging.Filter):
    """Lets each place of an error through once, since clients may cause it as often as they like, and theirs not at all."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[Any] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            return False  # the client's, who is told
        place = None if error is None else error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        what = (record.msg, type(error), place and (place.tb_frame.f_code, place.tb_lineno))
        new = what not in self._seen and len(self._seen) < 100
        self._seen.add(what)
        return new
