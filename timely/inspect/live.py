"""``LivePage``: a page that shows runs while they run, served by this process.

It draws the dataflows with their frontiers, the time and the records of each operator in every worker, and what is stuck. It
shows the workers of this process, of processes forked from it, and of runs on Spark that are given the page. It is read-only,
on the loopback interface by default, and only for those who know its address, which has a token. Workers do not wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from time import monotonic, thread_time
from types import TracebackType
from typing import Any, Final, Self

from timely.errors import ConfigurationError
from timely.inspect.pictures import asset, script_value
from timely.inspect.report import Reporter, report_always, reporting
from timely.inspect.report_aggregator import ReportAggregator, RunGroups, RunSamples
from timely.monitor.memory import resident_memory
from timely.worker import Worker

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'"
"""What the page may load: its own script and style, and its state."""

_SAMPLED: Final = 20
"""The pause after a sample is at least so many times the processor time that it took."""

_LARGEST: Final = 1 << 20
"""Bytes of a report from another process, at most; many systems take less."""

_CONNECTIONS: Final = 32
"""Requests that are answered at one time; others get status 503."""

_BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class _Channel:
    """Carries reports from forked processes as datagrams, which are lost if not received."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        for end in (self._here, self._there):
            end.setblocking(False)

    def send(self, report: Mapping[str, Any]) -> None:
        """Send a report, if there is room for it."""
        content = zlib.compress(json.dumps(report).encode(), 1)
        with contextlib.suppress(OSError):
            if len(content) <= _LARGEST:
                self._there.send(content)

    def receive(self) -> list[dict[str, Any]]:
        """Return the reports that have come."""
        reports = []
        with contextlib.suppress(OSError):
            while content := self._here.recv(_LARGEST):
                reports.append(json.loads(zlib.decompress(content)))
        return reports

    def close(self) -> None:
        self._here.close()
        self._there.close()


class LivePage:
    """Serves the page at ``url`` until ``close``, or the end of its ``with`` block.

    The address has a token: only its holders may look.
    Call ``watch(worker)`` before the worker's dataflows are built, in this process or in one that ``timely.execute`` forks; give
    the page to ``timely.spark.run`` or ``timely.spark.stream`` as ``live``. Port 0 is any free port. ``ConfigurationError`` if
    the address cannot be served.

    >>> import tempfile, timely
    >>> worker, report = timely.Worker(), Path(tempfile.mkdtemp()) / "report.html"
    >>> with LivePage() as page:  # page.url is its address
    ...     page.watch(worker)
    ...     with worker.dataflow(name="df") as scope:
    ...         _ = scope.to_stream([1]).map(str).probe()
    ...     worker.run()
    ...     page.save(report)
    >>> [run] = page.state()["runs"]
    >>> [(row["path"], [done[2] for done in row["by_worker"]]) for row in run["dataflows"][0]["operators"]]
    [('/df/to_stream#0', [0]), ('/df/map#1', [1]), ('/df/probe#2', [1])]
    >>> "/df/map#1" in report.read_text(encoding="utf-8")
    True
    """

    look = staticmethod(reporting)
    """How ``timely.spark`` has its workers send reports."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._watched: RunGroups[Reporter] = RunGroups(lambda reporter: reporter.over)
        self._begun = monotonic()
        self._lock = threading.Lock()
        self._aggregator = ReportAggregator()
        self._samples = RunSamples()
        self._next_sample = 0.0
        self._receiving = threading.Lock()
        self._process = os.getpid()
        self._channel = _Channel() if hasattr(os, "fork") else None
        page = self

        class Handler(_Handler):
            live = page

        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), Handler)
        except (OSError, OverflowError) as error:
            if self._channel is not None:
                self._channel.close()
            raise ConfigurationError(f"LivePage({port!r}, {host!r}) cannot be served there: {error}") from error
        self._server.between = self._follow
        self.host = host
        self._token = secrets.token_urlsafe(24)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="timely live page", daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{self._token}/"

    def page_of(self, path: str) -> str | None:
        """Return what a path names below the token; ``None`` where it has another token, or none."""
        root = f"/{self._token}/"
        below = path[len(root) :].partition("?")[0]
        return below if secrets.compare_digest(path[: len(root)].encode(), root.encode()) else None

    def watch(self, worker: Worker) -> None:
        """Show the dataflows that are built on a worker from now on. Called on the worker's thread."""
        if os.getpid() == self._process:
            with self._lock:
                self._watched.add(worker.index, worker.peers, Reporter(worker))
        elif self._channel is not None:
            report_always(worker, self._channel.send)

    def open(self, name: str) -> Callable[[int, int, Mapping[str, Any]], None]:
        """Return a function that receives the reports of a run elsewhere: ``receive(worker, attempt, report)``, on any thread."""
        return self._aggregator.open(name)

    def _receive(self) -> None:
        """Pass on all reports that other processes have sent so far."""
        with self._receiving:
            for report in () if self._channel is None else self._channel.receive():
                self._aggregator.receive(report)

    def _follow(self) -> None:
        """Receive reports; about once a second take a sample, in at most a small part of the time."""
        self._receive()
        if monotonic() >= self._next_sample:
            with contextlib.suppress(RuntimeError):  # it changed whenever it was read
                self._runs()

    def _runs(self) -> list[dict[str, Any]]:
        begun = thread_time()
        self._next_sample = monotonic() + 1.0
        with self._lock:
            watched = self._watched.all()
        reports = [[each.report(draws=place == 0) for place, each in enumerate(group)] for group in watched]
        runs = self._aggregator.state(reports)
        now = monotonic()
        self._next_sample = now + max(1.0, _SAMPLED * (thread_time() - begun))
        with self._lock:
            self._samples.add(runs, now - self._begun)
        return runs

    def state(self, drawn: Collection[str] = ()) -> dict[str, Any]:
        """Return the content of the page without drawings that are ``drawn``, as plain data; ``cost`` is its processor time."""
        begun = thread_time()
        self._receive()
        runs = self._runs()
        with self._lock:
            runs = [{**run, "samples": self._samples.of(run)} for run in runs]
        for flow in [flow for run in runs for flow in run["dataflows"]]:
            if flow["drawing"] in drawn:
                flow["drawings"] = None
        return {
            "at": monotonic() - self._begun,
            "memory": resident_memory(),
            "process": os.getpid(),
            "runs": runs,
            "cost": thread_time() - begun,
        }

    def save(self, path: str | Path) -> None:
        """Write what the page shows now as one HTML file, which needs neither the run nor a network.

        At any time, also after ``close``. ``RuntimeError`` if the run is too busy to be read.
        """
        state = {**self.state(), "saved_at": datetime.now(UTC).isoformat()}
        Path(path).write_text(_page(state), encoding="utf-8")

    def close(self) -> None:
        """Stop serving; a forked process closes only its own end."""
        if os.getpid() == self._process:
            self._server.shutdown()
        self._server.server_close()
        if self._channel is not None:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _page(saved: Mapping[str, Any] | None = None) -> str:
    """Return the page, which asks for its state; or a report with a saved one."""
    style = "".join(map(asset, ("page.css", "drawing.css", "live.css")))
    page = (
        asset("live.html")
        .replace("/* style */", style)
        .replace("/* script */", "".join(map(asset, ("preact.js", "drawing.js", "live.js"))))
    )
    return page.replace('id="saved">null<', f'id="saved">{script_value(saved)}<', 1)


class _Server(ThreadingHTTPServer):
    """Answers each browser on its own thread, a bounded number at one time; ignores those that go away."""

    daemon_threads = True
    request_queue_size = _CONNECTIONS
    between: Callable[[], None] = staticmethod(lambda: None)
    """Called several times in a second."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a request, if there are not too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.settimeout(0)
            request.send(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request on its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def server_bind(self) -> None:
        """Bind without the look-up of the host name that ``HTTPServer`` does."""
        TCPServer.server_bind(self)

    def service_actions(self) -> None:
        """Call ``between``."""
        self.between()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """Serves the page and its state, and only under the page's own host name."""

    live: LivePage
    timeout = 60.0
    """Seconds until a request must come; some browsers connect ahead of need."""

    def do_GET(self) -> None:
        """Serve the page or its state."""
        page = self.live.page_of(self.path)
        if not self._is_own_name():
            self.send_error(403, "this page has another host name")
        elif page is None:
            self.send_error(403, "open the address that the program has printed, with its token")
        elif page == "":
            self._serve("text/html; charset=utf-8", _page().encode())
        elif page == "state.json":
            try:
                content = json.dumps(self.live.state(self.headers.get("Timely-Drawn", "").split()))
            except RuntimeError:  # it changed whenever it was read
                self.send_error(503, "the run is too busy to be read: try again")
                return
            self._serve("application/json", content.encode())
        else:
            self.send_error(404)

    def _is_own_name(self) -> bool:
        """Whether the request names this host: keeps pages of other names (DNS rebinding) from reading it."""
        host = self.live.host
        if not (host in ("::1", "localhost") or host.startswith("127.")):
            return True
        name = re.sub(r":[0-9]+$", "", self.headers.get("Host", ""))
        return name in ("127.0.0.1", "localhost", "[::1]", host)

    def _serve(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
