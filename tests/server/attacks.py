"""What strangers send to bring a server down.

Each attack runs against one ``timely serve``, while a probe asks ``/health`` all the time. An attack returns what came of it.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.server.client import Reply, ask

ROOT: Final = Path(__file__).resolve().parents[2]

SCRIPT: Final = """create table written (key bigint, text varchar);
create view totals as select kind, sum(amount) as total from events group by kind;
"""

NESTED: Final = "select x * x as x from (" * 30 + "select id as x from orders" + ")" * 30
FIVE_HUNDRED: Final = ", ".join(["c0 as (select id from orders)", *(f"c{n} as (select id from c{n - 1})" for n in range(1, 500))])

QUERIES: Final = {
    "like of many wildcards": "select repeat('a', 3000) like '%a%a%a%a%a%a%a%a%b' as x",
    "pattern that backtracks": "select regexp_matches(repeat('a', 5000), '(a+)+b') as x",
    "30 nested x * x": NESTED,
    "30 doublings of a text": "select x || x as x from (" * 30 + "select 'a' as x" + ")" * 30,
    "cross join": "select a.id, b.id as other from orders a cross join orders b",
    "cross join, counted": "select count(*) as n from orders a cross join orders b",
    "cross join of cross joins": "select count(*) as n from orders a, orders b, orders c, orders d",
    "regexp_replace that grows": "select regexp_replace(repeat('a', 100000), 'a', repeat('b', 100000), 'g') as x",
    "replace that grows": "select replace(repeat('a', 100000), 'a', repeat('b', 100000)) as x",
    "string_agg that grows": "select string_agg(repeat('a', 1000000), '') as x from orders",
    "long padding": "select lpad('a', 2000000000, 'b') as x",
    "list that grows": "select list(a.id) as x from orders a cross join orders b",
    "range": "select * from range(100000000000) r(x)",
    "cube of 25": f"select count(*) as n from orders group by cube({', '.join(f'id + {n}' for n in range(25))})",
    "500 CTEs": f"with {FIVE_HUNDRED} select count(*) as n from c499",
    "9,000 terms": "select " + "1+" * 9000 + "1 as n",
    "9,000 parentheses": "select " + "(" * 9000 + "1" + ")" * 9000 + " as n",
    "deep type": f"select cast(null as bigint{'[]' * 9000}) as x",
    "2,000 columns": "select " + ", ".join(f"id as c{n}" for n in range(1500)) + " from events",
    "2,000 conditions": "select id from events where " + " or ".join(f"id = {n}" for n in range(1400)),
    "40 joins": "select count(*) as n from " + ", ".join(f"orders o{n}" for n in range(40)),
    "loop without end": "with recursive r(n) as (select 1 union select n + 1 from r) select n from r",
    "loop that grows": "with recursive r(n, t) as (select 1, 'a' union select n + 1, t || t from r) select n, t from r",
    "large result": "select a.id, a.amount, b.id as other from events a join orders b on a.id >= b.id",
    "power of powers": "select power(power(power(10, 100), 100), 100) as x",
    "large number": "select " + "9" * 19_000 + " as x",
}


class Outcome(NamedTuple):
    """How an attack went: what came of it, the slowest answer of ``/health`` in seconds, and peaks of memory in MB."""

    result: str
    slowest: float
    server: float
    queries: float


class Server:
    """A ``timely serve`` over 60,000 events and 3,000 orders."""

    def __init__(
        self, folder: Path, *options: str, files: int | None = None, rows: int = 60_000, script: str = "", **environment: str
    ) -> None:
        (folder / "views.sql").write_text(SCRIPT + script)
        events = "".join(f"{n},{n * 7919 % 10007},{'abc'[n % 3]}\n" for n in range(rows))
        (folder / "events.csv").write_text("id,amount,kind\n" + events)
        (folder / "orders.csv").write_text("id,customer\n" + "".join(f"{n},c{n % 50}\n" for n in range(3000)))
        self.log = folder / "log"
        limit = f"ulimit -n {files}; " if files else ""
        inputs = ("--input", f"events={folder / 'events.csv'}", "--input", f"orders={folder / 'orders.csv'}", "--port", "0")
        command = [sys.executable, "-m", "timely.cli", "serve", str(folder / "views.sql"), *inputs, *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'{limit}exec "$@"', "bash", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            )
        while not (match := re.search(r"http://127\.0\.0\.1:([0-9]+)/", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        self.port = int(match[1])

    def memory(self) -> tuple[float, float]:
        """Return the memory of the server, and what its queries have of their own."""
        return _memory(self.process.pid, "Rss"), sum(_memory(each, "Private_Dirty") for each in _children(self.process.pid))

    def health(self) -> dict[str, Any]:
        """Return what ``/health`` says."""
        health: dict[str, Any] = ask(self.port, "/health").content
        return health

    def run(self, attack: Callable[[Server], str]) -> Outcome:
        """Run an attack, and probe until its queries are over."""
        slowest, peaks, over = [0.0], [0.0, 0.0], threading.Event()

        def probe() -> None:
            while not over.is_set():
                begun = time.monotonic()
                try:
                    self.health()
                except (OSError, http.client.HTTPException):
                    slowest.append(float("inf"))
                slowest.append(time.monotonic() - begun)
                peaks[:] = map(max, peaks, self.memory())
                over.wait(0.05)

        probing = threading.Thread(target=probe)
        probing.start()
        try:
            result = attack(self)
            while self.health()["queries"]:
                time.sleep(0.05)
        finally:
            over.set()
            probing.join()
        return Outcome(result, max(slowest), *peaks)

    def end(self) -> tuple[int, float]:
        """End it by SIGTERM; return its status, and the seconds that it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600), time.monotonic() - begun


def _children(number: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for task in Path(f"/proc/{number}/task").iterdir() for each in (task / "children").read_text().split()]
    return []


def _memory(number: int, name: str) -> float:
    with suppress(OSError):
        match = re.search(rf"^{name}:\s+([0-9]+) kB", Path(f"/proc/{number}/smaps_rollup").read_text(), re.MULTILINE)
        return int(match[1]) / 1024 if match else 0.0
    return 0.0


def query(sql: str, accept: str = "application/json") -> Callable[[Server], str]:
    """Return the attack that asks for a query, and waits for its answer."""
    return lambda server: _answer(ask(server.port, "/query", "POST", sql, Accept=accept))


def _answer(reply: Reply) -> str:
    """Return how a request is answered."""
    return f"{reply.status} {str(reply.content)[:70]}"


@contextmanager
def clients(server: Server, count: int, *contents: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent the contents in turn, and read nothing."""
    sockets = []
    try:
        for number in range(count):
            each = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            sockets.append(each)
            with suppress(OSError):  # it was closed for another one
                each.sendall(contents[number % len(contents)])
        yield sockets
    finally:
        for each in sockets:
            each.close()


def holding(count: int, *contents: bytes, seconds: float = 3.0) -> Callable[[Server], str]:
    """Return the attack of so many clients that send something, and then wait."""

    def attack(server: Server) -> str:
        with clients(server, count, *contents):
            time.sleep(seconds)
        return f"{count} connections"

    return attack


def drip(count: int, begin: bytes, piece: bytes, seconds: float = 3.0) -> Callable[[Server], str]:
    """Return the attack of clients that send a byte from time to time."""

    def attack(server: Server) -> str:
        end = time.monotonic() + seconds
        with clients(server, count, begin) as sockets:
            while time.monotonic() < end:
                for each in sockets:
                    with suppress(OSError):
                        each.sendall(piece)
                time.sleep(0.1)
        return f"{count} connections"

    return attack


def together(sql: str, count: int) -> Callable[[Server], str]:
    """Return the attack of so many clients that ask for a query at one time."""

    def attack(server: Server) -> str:
        answers: Counter[str] = Counter()

        def ask() -> None:
            answers[query(sql)(server)[:3]] += 1

        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return str(dict(answers))

    return attack


def leaving(sql: str, count: int) -> Callable[[Server], str]:
    """Return the attack of clients that ask for a query and leave."""

    def attack(server: Server) -> str:
        body = sql.encode()
        for _ in range(count):
            with clients(
                server, 1, b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            ):
                time.sleep(0.02)
        return f"{count} queries"

    return attack


def _get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def _post(path: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode() + body


LOOP: Final = QUERIES["loop without end"]

CLIENTS: Final = {
    "half-open connections": holding(1020, b"", b"GET /health HTTP/1.1\r\nHost: "),
    "40 readers of 60,000 rows": holding(40, _get("/views/events")),
    "40 readers of Arrow": holding(40, _get("/views/events", "Accept: application/vnd.apache.arrow.stream")),
    "followers that read nothing": holding(300, _get("/views/events/changes")),
    "pages that nobody reads": holding(50, _get("/") * 2000),
    "slow headers": drip(50, b"GET /health HTTP/1.1\r\nX: ", b"x"),
    "slow bodies": drip(50, _post("/query", b"select", "Content-Length: 10000"), b"1"),
    "bodies without end": drip(10, _post("/query", b"", "Transfer-Encoding: chunked"), b"8000\r\n" + b"x" * 0x8000 + b"\r\n"),
    "broken requests": holding(
        60, b"\0" * 1000 + b"\r\n\r\n", b"GET\r\n\r\n", _post("/query", b"x", "Content-Length: -1"), seconds=0.5
    ),
    "compressed bodies": holding(5, _post("/query", b"x" * 9, "Content-Encoding: gzip", "Content-Length: 9"), seconds=0.5),
    "100 loops": together(LOOP, 100),
    "50 cross joins": together(QUERIES["cross join"], 50),
    "50 large results": together("select a.id, a.amount, b.customer from events a join orders b on a.id % 3000 = b.id", 50),
    "queries whose clients leave": leaving(LOOP, 50),
    "2,000 conditions of a URL": lambda server: _answer(ask(server.port, "/views/events?" + "&".join(["id.gte=0"] * 600))),
}


ATTACKS: Final = {**{name: query(sql) for name, sql in QUERIES.items()}, **CLIENTS}
