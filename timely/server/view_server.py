"""``ViewServer``: serves views by HTTP, from a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from aiohttp import web

from timely.errors import ConfigurationError
from timely.server.connections import Once
from timely.server.endpoints import Endpoints
from timely.server.views import Views


class ViewServer:
    """Serves ``views`` at ``url`` until ``close``, or the end of its ``with`` block.

    Port 0 is any free port. It is for this machine unless ``host`` is another address, and then under ``names`` too; there is no
    password. Clients change tables only if it is ``writable``, and define sources and sinks only with ``connectors``.
    ``ConfigurationError`` if the address cannot be served.

    >>> import json, urllib.request
    >>> import pyarrow as pa
    >>> views = Views()
    >>> views.table("orders", pa.schema([("customer", pa.string()), ("price", pa.int64())]), [("ada", 30), ("ada", 12)])
    >>> views.view("totals", "select customer, sum(price) as total from orders group by customer")
    >>> with ViewServer(views) as server, urllib.request.urlopen(server.url + "views/totals?customer=ada") as answer:
    ...     found = json.load(answer)
    >>> found["time"], found["rows"]
    (0, [{'customer': 'ada', 'total': 42}])
    """

    def __init__(
        self,
        views: Views,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        names: Sequence[str] = (),
        writable: bool = False,
        connectors: bool = False,
        problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.host = host
        self.port = port
        self._endpoints = Endpoints(views, host=host, names=names, writable=writable, connectors=connectors, problems=problems)
        self._limits = views.limits
        self._started: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="timely server", daemon=True)
        self._thread.start()
        try:
            self.port = self._started.result()
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            advice = f"; try --port {port + 1}, or --port 0 for any free one" if taken else ""
            self._thread.join()
            raise ConfigurationError(
                f"ViewServer(port={port!r}, host={host!r}) cannot be served there: {error}{advice}"
            ) from error

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def close(self) -> None:
        """End what clients follow, and stop serving; a no-op when it is closed."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        connections = self._endpoints.connections
        runner = web.AppRunner(
            self._endpoints.application(),
            handler_cancellation=True,
            shutdown_timeout=2.0,
            keepalive_timeout=self._limits.patience,
            auto_decompress=False,
            max_line_size=16 * self._limits.query_length,  # a query in an address
            access_log=None,
            logger=_logger(),
        )
        try:
            await runner.setup()
            http = runner.server
            assert http is not None
            loop = asyncio.get_running_loop()
            backlog = connections.backlog
            listening = await loop.create_server(lambda: connections.accepted(http), self.host, self.port, backlog=backlog)
            port: int = listening.sockets[0].getsockname()[1]
        except BaseException as error:
            await runner.cleanup()
            self._started.set_exception(error)
            return
        with self._endpoints.running():
            self._started.set_result(port)
            closing = loop.create_task(connections.close_unread(http))
            await self._over.wait()
            listening.close()
            closing.cancel()
            self._endpoints.close_streams()
            await runner.cleanup()


def _logger() -> logging.Logger:
    """Return the logger of what goes wrong in a handler, once for each place."""
    logger = logging.getLogger("timely.server")
    if not logger.filters:
        logger.addFilter(Once())
    return logger
