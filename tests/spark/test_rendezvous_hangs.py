"""The rendezvous finds out which worker hangs, and a worker that the driver does.

White box: a process that takes part is stopped from outside.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.spark.attempts import complete, leave, peers_of, register
from timely.errors import (
    ConfigurationError,
    PeerLostError,
    SparkError,
)
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous
from timely.spark.stage_messages import Pulse

PEER = """
import pickle, sys
from timely.spark.registration import Registration
invitation = pickle.loads(bytes.fromhex(sys.stdin.readline()))
with Registration(invitation, index=1, generation=1, stage=0) as registration:
    registration.peers(("127.0.0.1", 1))
    print("joined", flush=True)
    sys.stdin.readline()
"""

DRIVER_ELSEWHERE = """
import pickle, sys
from timely.spark.rendezvous import Rendezvous
server = Rendezvous("127.0.0.1", "127.0.0.1")
print(pickle.dumps(server.invitation(server.open_run(1, patience=2.0))).hex(), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def program(source: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", source], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def write_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_worker_that_hangs_is_named_and_the_others_stop(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2, patience=2.0)
    with program(PEER) as peer, register(server, run, 0, 1, timeout=600) as joined:
        write_line(peer, pickle.dumps(server.invitation(run)).hex())
        peers_of(joined, 0, 1)
        assert read_line(peer) == "joined"
        os.kill(peer.pid, signal.SIGSTOP)
        why = joined.stopped(600)
    assert isinstance(why, PeerLostError)
    assert f"worker 1 has been silent for 2 s ({socket.gethostname()}, pid {peer.pid})" in str(why)
    assert str(run.failure) == str(why)
    assert run.generation is None


def test_a_driver_that_hangs_is_found_out() -> None:
    with program(DRIVER_ELSEWHERE) as driver:
        invitation = pickle.loads(bytes.fromhex(read_line(driver)))
        with Registration(invitation, index=0, generation=1, stage=0) as joined:
            peers_of(joined, 0, 1)
            os.kill(driver.pid, signal.SIGSTOP)
            why = joined.stopped(600)
            os.kill(driver.pid, signal.SIGCONT)
    assert isinstance(why, SparkError)
    assert "has been silent for 2 s" in str(why)


def test_a_worker_that_is_busy_does_not_hang(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(1, patience=1.0)
    (joined,) = complete(server, run, pool, 1)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:  # never hands over of its own accord, nor looks at its connection
        pass
    assert joined.stopped(0.5) is None
    leave(joined)


def test_time_in_which_one_was_held_up_oneself_is_nobodys_silence() -> None:
    now = [100.0]
    pulse = Pulse(20.0, lambda: now[0])
    message = pulse.beat()
    for _ in range(10):
        now[0] += 1.0
        assert pulse.beat() - message <= 10.0
    now[0] += 500.0  # the whole process was stopped
    assert pulse.beat() - message <= 11.0
    for _ in range(20):
        now[0] += 1.0
        pulse.beat()
    assert pulse.beat() - message > 20.0


def test_patience_must_be_some(server: Rendezvous) -> None:
    with pytest.raises(ConfigurationError, match="patience"):
        server.open_run(1, patience=0.0)
