"""``LivePage``: a page that shows runs while they run, served by the process that is asked to, on its own machine.

It shows the dataflows drawn, with their frontiers, what each operator has taken of the time and made of the records in every
worker, and, where nothing moves, who holds it: of the workers of this process, of those in processes forked from it, and of runs
on Spark that are given the page. It is served on the loopback interface unless another is asked for; there is nothing on it that
changes anything. The invariant: workers do not wait for it. They keep a tally as they go, and other threads read all the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from timely.errors import ConfigurationError
from timely.inspect.board import Board, Groups
from timely.inspect.report import Reporter, Tell, reporting, tell_of
from timely.monitor.memory import resident_memory
from timely.worker import Worker

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
"""What the page may load: what it brings with it, and its own state."""

_LARGEST: Final = 1 << 20
"""Bytes of a report from another process, at most; many systems take less."""


class _Wire:
    """How processes that are forked from this one tell their reports: datagrams, which are lost where nobody takes them."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        for end in (self._here, self._there):
            end.setblocking(False)

    def send(self, report: Mapping[str, Any]) -> None:
        """Send a report, if there is room for it just now, and ever."""
        content = zlib.compress(json.dumps(report).encode(), 1)
        with contextlib.suppress(OSError):
            if len(content) <= _LARGEST:
                self._there.send(content)

    def take(self) -> list[dict[str, Any]]:
        """Return the reports that have come."""
        found = []
        with contextlib.suppress(OSError):
            while content := self._here.recv(_LARGEST):
                found.append(json.loads(zlib.decompress(content)))
        return found

    def close(self) -> None:
        """Close both ends."""
        self._here.close()
        self._there.close()


class LivePage:
    """Serves the page for as long as its ``with`` block lasts, or until ``close``; ``url`` is where.

    ``watch(worker)`` is called on a worker before its dataflows are built, in this process or in one that ``timely.execute`` has
    forked; ``timely.spark.run`` and ``timely.spark.stream`` are given the page as ``live``. ``host`` is who may come: by default,
    this machine only. A port of 0 is any that is free. ``ConfigurationError`` for one that cannot be had.

    >>> import json, timely, urllib.request
    >>> from timely.inspect import LivePage
    >>> worker = timely.Worker()
    >>> with LivePage() as page:
    ...     page.watch(worker)
    ...     with worker.dataflow(name="df") as scope:
    ...         numbers, stream = scope.new_input()
    ...         _ = stream.map(str).probe()
    ...     numbers.send(1)
    ...     _ = worker.step()
    ...     with urllib.request.urlopen(page.url + "state.json") as answer:
    ...         [run] = json.load(answer)["runs"]
    >>> [(row["path"], [done[2] for done in row["by_worker"]]) for row in run["dataflows"][0]["operators"]]
    [('/df/input#0', [0]), ('/df/map#1', [1]), ('/df/probe#2', [1])]
    """

    look: Callable[[Worker, Tell], AbstractContextManager[None]] = staticmethod(reporting)
    """What ``timely.spark`` has each worker do: tell its reports while it works."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._watched: Groups[Reporter] = Groups(lambda reporter: reporter.over)
        self._begun = monotonic()
        self._lock = threading.Lock()
        self._board = Board()
        self._taking_in = threading.Lock()
        self._process = os.getpid()
        self._wire = _Wire() if hasattr(os, "fork") else None
        page = self

        class Handler(_Handler):
            live = page

        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), Handler)
        except (OSError, OverflowError) as error:
            if self._wire is not None:
                self._wire.close()
            raise ConfigurationError(f"LivePage({port!r}, {host!r}) cannot be served there: {error}") from error
        self._server.between = self._take_in
        self.host = host
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="timely live page", daemon=True).start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def watch(self, worker: Worker) -> None:
        """Show a worker: the dataflows that are built on it from now on. Called on the worker's thread."""
        if os.getpid() == self._process:
            with self._lock:
                self._watched.add(worker.index, worker.peers, Reporter(worker))
        elif self._wire is not None:
            tell_of(worker, self._wire.send)

    def open(self, name: str) -> Callable[[int, int, Mapping[str, Any]], None]:
        """Return what takes the reports of a run elsewhere: ``hear(worker, attempt, report)``, on whatever thread."""
        return self._board.open(name)

    def _take_in(self) -> None:
        """Take in what other processes have told; when it returns, nothing that had come is still on its way to the board."""
        with self._taking_in:
            for report in () if self._wire is None else self._wire.take():
                self._board.hear(report)

    def state(self) -> dict[str, Any]:
        """Return what the page shows now, as plain data."""
        self._take_in()
        with self._lock:
            watched = self._watched.all()
        return {
            "at": monotonic() - self._begun,
            "memory": resident_memory(),
            "process": os.getpid(),
            "runs": self._board.state([[each.report() for each in group] for group in watched]),
        }

    def close(self) -> None:
        """Serve it no longer; a process that was forked from the one that serves it closes its own end only."""
        if os.getpid() == self._process:
            self._server.shutdown()
        self._server.server_close()
        if self._wire is not None:
            self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Answers each browser on a thread of its own, and says nothing of those that go away in the middle."""

    daemon_threads = True
    between: Callable[[], None] = staticmethod(lambda: None)
    """Called now and then, several times in a second."""

    def server_bind(self) -> None:
        """Bind as any server does; that of HTTP would ask who knows whom for this machine's name, which nobody wants to know."""
        TCPServer.server_bind(self)

    def service_actions(self) -> None:
        """Do what is to be done between two requests."""
        self.between()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection that broke; tell of anything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    """The same at an address of IPv6."""

    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """Answers a browser. Nothing but the two pages there are is given, and only under the names that the page goes by."""

    live: LivePage
    timeout = 60.0
    """Seconds that a browser may take to say what it wants; some connect beforehand, and then want nothing."""

    def do_GET(self) -> None:
        """Give the page, or what is on it."""
        if not self._is_meant():
            self.send_error(403, "this page goes by another name")
        elif self.path == "/":
            self._give("text/html; charset=utf-8", files("timely.inspect").joinpath("live.html").read_bytes())
        elif self.path == "/state.json":
            try:
                content = json.dumps(self.live.state())
            except RuntimeError:  # it was changed while it was read, again and again
                self.send_error(503, "the run is too busy to be looked at: try again")
                return
            self._give("application/json", content.encode())
        else:
            self.send_error(404)

    def _is_meant(self) -> bool:
        """Whether the browser asks for this page by its own address: pages from elsewhere, by another name, may not read it."""
        host = self.live.host
        if not (host in ("::1", "localhost") or host.startswith("127.")):
            return True
        name = re.sub(r":[0-9]+$", "", self.headers.get("Host", ""))
        return name in ("127.0.0.1", "localhost", "[::1]", host)

    def _give(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on the terminal of whoever runs the dataflow."""
