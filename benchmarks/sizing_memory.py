"""What a worker holds in memory and what a connection costs, measured on workers and connections that are idle.

Memory is what fresh processes hold (Linux), or what Python allocates while something is kept. The processor's time for a
handshake and for a message is the only thing here that depends on the machine.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import ssl
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Row
from timely import Capability, Exchange, InputPort, OperatorInfo, OutputPort, Pipeline, Stream, Worker
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous
from timely.worker.credentials import listener, make_identity, speaker
from timely.worker.transports import Inbox


def resident(program: str = "") -> int:
    """Return the KiB that a fresh interpreter holds in memory (Linux) after it has run a program."""
    report = "import sys; print([l for l in open('/proc/self/status') if l.startswith('VmRSS')][0].split()[1])"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True, check=True)
    return int(done.stdout)


IMPORTS = {
    "nothing": "",
    "timely": "import timely",
    "timely, NumPy and Arrow": "import timely, numpy, pyarrow",
    "a worker of timely.spark": "import pyspark.worker, timely.spark.task",
}


def allocated(make: Callable[[], Any]) -> int:
    """Return how many bytes Python allocates for what ``make`` returns, while that is kept."""
    make()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before if kept is not None else 0
    finally:
        tracemalloc.stop()


def pass_on(capability: Capability[int], info: OperatorInfo) -> Callable[[InputPort[int, int], OutputPort[int]], None]:
    """An operator that passes on what it gets."""

    def logic(input: InputPort[int, int], output: OutputPort[int]) -> None:
        for came_with, batch in input:
            output.session(came_with).give_batch(batch)

    return logic


def idle_worker(operators: int, workers: int, exchanges: int = 0) -> Worker:
    """Return one of so many workers with a dataflow of a chain of operators, some of which exchange."""
    worker = Worker(Quiet(workers) if workers > 1 else None)
    with worker.dataflow() as scope:
        _, stream = scope.new_input()
        chain: Stream[int, int] = stream
        for place in range(operators):
            pact = Exchange(lambda x: x) if place < exchanges else Pipeline
            chain = chain.unary(pact, "pass on", pass_on)
        chain.probe()
    worker.step()
    return worker


class Quiet:
    """The transport of a worker whose peers say nothing, and hear nothing."""

    def __init__(self, peers: int) -> None:
        self.index, self.peers = 0, peers

    def send(self, peer: int, message: Any) -> None:
        """Nobody hears it."""

    def flush(self) -> None:
        """Nothing waits."""

    def receive(self) -> list[tuple[int, Any]]:
        """Nothing arrives."""
        return []

    def crowded(self, limit: int) -> bool:
        """Nothing is on its way."""
        return False

    def wait(self, timeout: float | None = None) -> None:
        """There is nothing to wait for."""

    def wake(self) -> None:
        """It does not wait."""

    def close(self, timeout: float = 5.0) -> None:
        """There is nothing to close."""


def connections(count: int) -> tuple[list[ssl.SSLSocket], float]:
    """Return both ends of so many encrypted connections, and the seconds of processor time that they took, both ends."""
    identity = make_identity("timely worker")
    client, server = speaker(identity, identity.certificate), listener(identity, identity.certificate)
    start = time.process_time()
    ends: list[ssl.SSLSocket] = []
    for _ in range(count):
        one, two = socket.socketpair()
        one.setblocking(False)
        two.setblocking(False)
        dials = client.wrap_socket(one, server_hostname="run", do_handshake_on_connect=False)
        admits = server.wrap_socket(two, server_side=True, do_handshake_on_connect=False)
        _shake_hands(dials, admits)
        ends += [dials, admits]
    return ends, time.process_time() - start


def _shake_hands(*ends: ssl.SSLSocket) -> None:
    missing = set(ends)
    while missing:
        for end in list(missing):
            try:
                end.do_handshake()
                missing.discard(end)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass


_CONNECTED = """
from benchmarks.sizing_memory import connections, held
from timely.worker.transports import SocketTransport
connections(3)
before = held()
ends, seconds = connections({count})
transport = SocketTransport({count} * 2, dict(enumerate(ends)))
print((held() - before) / len(ends), seconds / {count} * 1e3)
"""


_MESSAGES = """
import time
from benchmarks.sizing_memory import connections
from timely.progress import ProgressBatch
from timely.worker.transports import SocketTransport
ends, _ = connections(1)
one, two = (SocketTransport(index, {{1 - index: end}}) for index, end in enumerate(ends))
message = "progress", 0, ProgressBatch(0, 5, (((0, 1, 5), -1), ((0, 1, 6), 1)))
start = time.process_time()
for _ in range({count}):
    one.send(1, message)
    one.flush()
    while not two.receive():
        pass
print((time.process_time() - start) / {count} * 1e6)
"""


def per_message(count: int = 5_000) -> float:
    """Return the microseconds of processor time that a batch of progress takes over an encrypted connection, both ends."""
    done = subprocess.run([sys.executable, "-c", _MESSAGES.format(count=count)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def held() -> int:
    """Return the KiB that this process holds in memory (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def per_connection(count: int = 200) -> tuple[float, float]:
    """Return the KiB for one end of an encrypted connection, and the milliseconds of processor time of a handshake.

    Both ends are in one process, and both do their part of the handshake. What the kernel keeps for a socket is not in it.
    """
    program = _CONNECTED.format(count=count)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kib, milliseconds = done.stdout.split()
    return float(kib), float(milliseconds)


def open_files() -> int:
    """Return how many files a worker has open for the driver and for being woken, beside the sockets to its peers."""
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    invitation = server.invitation(server.open_run(1))
    before = len(os.listdir("/proc/self/fd"))
    with Registration(invitation, index=0, generation=1, stage=1) as registration:
        registration.peers(("127.0.0.1", 1))
        inbox = Inbox()
        inbox.descriptor()
        found = len(os.listdir("/proc/self/fd")) - before - 1  # the driver's end is in this process too
        inbox.close()
        registration.done()
    server.close()
    return found


def memory_rows() -> list[Row]:
    """Count what a worker holds in memory: its process, its operators, its peers."""
    rows = [Row(f"process with {name}, MiB", resident(program) / 1024) for name, program in IMPORTS.items()]
    for operators in (10, 100, 1000):
        alone, shared = (allocated(functools.partial(idle_worker, operators, workers)) for workers in (1, 2))
        shown = f"{shared / operators / 1024:.3g} with peers"
        rows.append(Row(f"dataflow of {operators} operators, KiB each", alone / operators / 1024, note=shown))
    few, many = (allocated(functools.partial(idle_worker, 10, workers)) for workers in (100, 1100))
    dealt = allocated(lambda: idle_worker(10, 1100, 10))
    rows.append(Row("a peer, in the worker's own books, bytes", (many - few) / 1000))
    rows.append(Row("a channel for a peer, bytes", (dealt - many) / 10 / 1100))
    kib, milliseconds = per_connection()
    rows.append(Row("a peer, its encrypted connection, KiB", kib, note="one end, in the process"))
    rows.append(Row("a handshake, ms of processor time", milliseconds, note="both ends"))
    rows.append(Row("a batch of progress, us of processor time", per_message(), note="both ends, encrypted"))
    rows.append(Row("open files beside those to peers, Python's and Spark's", open_files()))
    return rows
