"""``LivePage``: a page that shows a run while it runs, served by the process that it runs in.

It shows the dataflows of the workers of this process, drawn, with their frontiers, what each operator has taken of the time and
made of the records, and, where nothing moves, who holds it. It is served on the loopback interface unless another is asked for;
there is nothing on it that changes anything. The invariant: workers do not wait for it. They keep a tally as they go, and all the
rest is read by the thread that answers.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError
from timely.inspect.event_log import EventLog
from timely.inspect.explain import explain
from timely.inspect.picture import Picture
from timely.inspect.snapshot import Snapshot, snapshot
from timely.inspect.tally import OperatorTally, Tally
from timely.worker import Worker
from timely.worker.memory import resident_memory

_DRAWN: Final = 400
"""Operators of a dataflow that is drawn, at most."""

_STILL: Final = 5.0
"""Seconds without any movement after which the page says what is stuck."""

_TRIES: Final = 20

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
"""What the page may load: what it brings with it, and its own state."""


class _Watched:
    """One worker, its tally, and when it was last seen to move."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.tally = Tally.of(EventLog(worker))
        self._seen: object = None
        self._moved = monotonic()

    def state(self) -> dict[str, Any]:
        """Return what the page is to show of it."""
        shapes = [(scope, _whole(scope)) for scope in self.worker.scopes]
        seen = [(operator.held, operator.waiting) for _, shape in shapes for operator in shape.operators()]
        if seen != self._seen:
            self._seen, self._moved = seen, monotonic()
        still = monotonic() - self._moved
        return {
            "index": self.worker.index,
            "waited": self.tally.waited,
            "told": self.tally.told,
            "heard": self.tally.heard,
            "still": still,
            "dataflows": [self._dataflow(scope, shape, still) for scope, shape in shapes],
        }

    def _dataflow(self, scope: ScopeBuilder[Any], shape: Snapshot, still: float) -> dict[str, Any]:
        operators = shape.operators()
        return {
            "path": shape.path,
            "svg": Picture(shape).svg() if len(operators) <= _DRAWN else None,
            "stuck": str(explain(self.worker, scope)) if still >= _STILL else None,
            "operators": [self._operator(operator) for operator in operators],
        }

    def _operator(self, shape: Snapshot) -> dict[str, Any]:
        tally = self.tally.operators.get(shape.path, OperatorTally())
        return {
            "path": shape.path,
            "built_at": shape.built_at,
            "frontiers": shape.frontiers,
            "held": shape.held,
            "waiting": shape.waiting,
            "runs": tally.runs,
            "seconds": tally.seconds,
            "read": tally.read,
            "sent": tally.sent,
        }


def _whole(scope: ScopeBuilder[Any]) -> Snapshot:
    """Return a snapshot of what another thread is at work on: again, where something was changed in the middle."""
    for _ in range(_TRIES):
        try:
            return snapshot(scope)
        except RuntimeError:
            continue
    return snapshot(scope)


class LivePage:
    """Serves the page for as long as its ``with`` block lasts, or until ``close``; ``url`` is where.

    ``watch(worker)`` is called on a worker before its dataflows are built. ``host`` is who may come: by default, this machine
    only. A port of 0 is any that is free. ``ConfigurationError`` for one that cannot be had.

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
    ...         state = json.load(answer)
    >>> [(row["path"], row["read"]) for row in state["workers"][0]["dataflows"][0]["operators"]]
    [('/df/input#0', 0), ('/df/map#1', 1), ('/df/probe#2', 1)]
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._watched: list[_Watched] = []
        self._begun = monotonic()
        self._lock = threading.Lock()
        page = self

        class Handler(_Handler):
            live = page

        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"LivePage({port!r}, {host!r}) cannot be served there: {error}") from error
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
        with self._lock:
            self._watched.append(_Watched(worker))

    def state(self) -> dict[str, Any]:
        """Return what the page shows now, as plain data."""
        with self._lock:
            watched = sorted(self._watched, key=lambda each: each.worker.index)
            return {
                "at": monotonic() - self._begun,
                "memory": resident_memory(),
                "process": os.getpid(),
                "workers": [each.state() for each in watched],
            }

    def close(self) -> None:
        """Serve it no longer."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Answers each browser on a thread of its own, and says nothing of those that go away in the middle."""

    daemon_threads = True

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
        if self.live.host not in ("127.0.0.1", "::1", "localhost"):
            return True
        name = re.sub(r":[0-9]+$", "", self.headers.get("Host", ""))
        return name in ("127.0.0.1", "localhost", "[::1]")

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
