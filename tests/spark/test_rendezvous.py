"""The rendezvous brings together the workers of one attempt, never of two, lets no stranger in, and finds out who hangs.

White box: attempts of a stage that overtake each other, and strangers, are played by threads; a process that takes part is
stopped from outside.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from tests.spark.attempts import address, complete, leave, peers_of, register
from timely.errors import (
    AuthenticationError,
    ConfigurationError,
    OperatorError,
    PeerLostError,
    SparkError,
)
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous, RunEntry, rendezvous
from timely.spark.session import addresses
from timely.spark.stage_messages import DRIVER, Join, Pulse
from timely.worker import credentials
from timely.worker.credentials import speaker
from timely.worker.mesh import Hello, dial


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_learn_where_all_are(server: Rendezvous, pool: ThreadPoolExecutor, workers: int) -> None:
    run = server.open_run(workers)
    joined = complete(server, run, pool, 3)
    for registration in joined:
        assert registration.stopped() is None
        registration.done()
    leave(*joined)
    assert run.failure is None


def test_a_newer_attempt_takes_over(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(3)
    old = [register(server, run, index, 10) for index in range(2)]
    waiting = [pool.submit(peers_of, old[index], index, 10) for index in range(2)]
    new = complete(server, run, pool, 13)
    for waited in waiting:
        with pytest.raises(PeerLostError, match="a newer attempt"):
            waited.result()
    late = register(server, run, 2, 10)
    with pytest.raises(PeerLostError, match="a newer attempt"):
        peers_of(late, 2, 10)
    assert all(registration.stopped() is None for registration in new)
    leave(*old, *new, late)


def test_a_worker_of_an_older_attempt_does_not_complete_a_newer_one(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    new = [register(server, run, index, 13) for index in range(2)]
    first = pool.submit(peers_of, new[0], 0, 13)
    while not run.attending:
        threading.Event().wait(0.01)
    old = register(server, run, 1, 10)
    with pytest.raises(PeerLostError, match="a newer attempt"):
        peers_of(old, 1, 10)
    expected = {index: address(index, 13) for index in range(2)}
    assert peers_of(new[1], 1, 13) == first.result() == expected
    leave(*new, old)


def test_a_complete_attempt_is_notified_that_it_is_superseded(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    old = complete(server, run, pool, 1)
    new = complete(server, run, pool, 3)
    for registration in old:
        assert "a newer attempt" in str(registration.stopped(600))
    leave(*old)
    assert all(registration.stopped(0.05) is None for registration in new)
    leave(*new)


def test_stages_of_one_run_do_not_disturb_each_other(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    one, two = complete(server, run, pool, 1, stage=4), complete(server, run, pool, 9, stage=7)
    assert all(registration.stopped() is None for registration in (*one, *two))
    leave(*one, *two)


def test_the_first_error_reaches_everybody(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(3)
    joined = complete(server, run, pool, 1)
    joined[1].report(OperatorError("map failed", "map", "/flow/map#1", 1))
    for index in (0, 2):
        message = joined[index].stopped(600)
        assert isinstance(message, OperatorError)
        assert (str(message), message.name, message.path, message.worker) == ("map failed", "map", "/flow/map#1", 1)
        joined[index].report(PeerLostError("worker 1 has gone away"))
    leave(*joined)
    assert isinstance(run.failure, OperatorError)


def test_a_worker_that_goes_away_ends_the_attempt(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(3)
    joined = complete(server, run, pool, 1)
    joined[2].done()
    leave(joined[2])
    assert joined[0].stopped(0.05) is None
    leave(joined[1])
    assert "worker 1 has gone away" in str(joined[0].stopped(600))
    leave(joined[0])


def test_a_loss_before_all_are_there_ends_the_attempt(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(3)
    zero, one, two = (register(server, run, index, 1) for index in range(3))
    waiting = pool.submit(peers_of, zero, 0, 1)
    one._connection.send(Join(0, ["127.0.0.1", 1], "here"))
    leave(one)
    with pytest.raises(PeerLostError, match="gone away"):
        waiting.result()
    with pytest.raises(PeerLostError, match="already gone away"):
        peers_of(two, 2, 1)
    leave(zero, two)


def test_waiting_for_the_others_ends(server: Rendezvous) -> None:
    alone = register(server, server.open_run(2), 0, 1, timeout=0.2)
    with pytest.raises(SparkError, match="worker 0 waited in vain for the other 1 workers"):
        peers_of(alone, 0, 1)
    leave(alone)


def test_a_stranger_is_refused(server: Rendezvous) -> None:
    run, other = server.open_run(1), server.open_run(1)
    for changed in ({"identity": other.identity}, {"run": b"y" * 16}):
        with pytest.raises(SparkError, match="worker 0 cannot reach the driver"):
            Registration(attrs.evolve(server.invitation(run), **changed), index=0, generation=1, stage=0)


def test_a_run_that_nobody_wants_is_forgotten_once_its_workers_have_left(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    def open_more() -> None:
        for _ in range(40):
            server.open_run(1).wanted = lambda: False

    run = server.open_run(1)
    working = complete(server, run, pool, 1)
    run.wanted = lambda: False
    open_more()
    leave(*complete(server, run, pool, 2), *working)
    while run.generation is not None:  # until the server has seen them leave
        threading.Event().wait(0.01)
    open_more()
    with pytest.raises(SparkError, match="worker 0 cannot reach the driver"):
        register(server, run, 0, 3)


def test_runs_that_are_not_wanted_any_more_do_not_add_up(server: Rendezvous) -> None:
    def known() -> int:
        gc.collect()
        return sum(isinstance(thing, RunEntry) for thing in gc.get_objects())

    before = known()
    for _ in range(150):
        server.open_run(1).wanted = lambda: False
    assert known() < before + 40


def test_who_holds_the_key_of_one_run_cannot_join_another(server: Rendezvous, caplog: pytest.LogCaptureFixture) -> None:
    mine, other = server.open_run(1), server.open_run(1)
    context = speaker(mine.identity, mine.driver.certificate)
    with (
        socket.create_connection(server.address) as plain,
        context.wrap_socket(plain, server_hostname=mine.id.hex()) as sock,
    ):
        sock.sendall(Hello(other.id, 1, 0, DRIVER).pack())
        assert sock.recv(8) == b""
    assert "holds the key of one run, and names another" in caplog.text


def test_a_worker_cannot_pose_as_the_driver(pool: ThreadPoolExecutor, server: Rendezvous) -> None:
    def impostor(listener: socket.socket, context: ssl.SSLContext) -> None:
        plain, _ = listener.accept()
        with plain, pytest.raises(OSError):
            context.wrap_socket(plain, server_side=True)

    run = server.open_run(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        invitation = attrs.evolve(server.invitation(run), address=listener.getsockname()[:2])
        stolen = credentials.listener(invitation.identity, invitation.identity.certificate)
        done = pool.submit(impostor, listener, stolen)
        with pytest.raises(AuthenticationError, match="the driver at 127"):
            Registration(invitation, index=0, generation=1, stage=0)
        done.result()


def test_no_driver_no_run(server: Rendezvous) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[:2]
    invitation = attrs.evolve(server.invitation(server.open_run(1)), address=nobody)
    with pytest.raises(SparkError, match="spark.driver.host"):
        Registration(invitation, index=0, generation=1, stage=0)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!I", 1 << 30),
        struct.pack("!I", 3) + b"{{{",
        struct.pack("!I", 28) + b'{"kind":"Join","content":{}}',
        struct.pack("!I", 100_000) + 100_000 * b"[",
    ],
)
def test_nonsense_ends_only_its_own_connection(server: Rendezvous, pool: ThreadPoolExecutor, data: bytes) -> None:
    run = server.open_run(1)
    context = speaker(run.identity, run.driver.certificate)
    with dial(server.address, context, Hello(run.id, 1, 0, DRIVER), time.monotonic() + 600) as sock:
        sock.sendall(data)
        sock.settimeout(600)
        assert sock.recv(1) == b""
    leave(*complete(server, run, pool, 2))


def test_no_bytes_of_a_stranger_stop_the_driver(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    """They come before any certificate has been shown: random ones, and beginnings of a handshake that are changed."""
    source = random.Random(1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=32 * "a")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    begun = outgoing.read()
    for _ in range(40):
        message = bytearray(
            source.choice([begun, source.randbytes(source.randrange(600)), begun[: source.randrange(len(begun))]])
        )
        for _ in range(source.randrange(4) if message else 0):
            message[source.randrange(len(message))] = source.randrange(256)
        with contextlib.suppress(OSError), socket.create_connection(server.address, timeout=600) as sock:
            sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
    leave(*complete(server, server.open_run(2), pool, 1))


def test_the_end_of_the_driver_is_noticed(pool: ThreadPoolExecutor) -> None:
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    (joined,) = complete(server, server.open_run(1), pool, 1)
    server.close()
    assert "connection to the driver" in str(joined.stopped(600))
    joined.report(ValueError("nobody hears this"))
    leave(joined)


def test_one_server_per_process() -> None:
    assert rendezvous("127.0.0.1", "127.0.0.1") is rendezvous("127.0.0.1", "127.0.0.1")


def test_a_bind_address_that_is_not_ours_is_explained() -> None:
    with pytest.raises(SparkError, match="bindAddress"):
        Rendezvous("192.0.2.77", "192.0.2.77")


def test_keys_are_not_printed(server: Rendezvous) -> None:
    run = server.open_run(1)
    printed = repr(run) + repr(server.invitation(run))
    for key in (run.identity.key, run.driver.key):
        assert str(key)[30:60] not in printed
    assert run.driver.key not in pickle.dumps(server.invitation(run))


def test_a_run_may_be_opened_while_a_worker_of_another_joins(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    class Place(str):
        """Is compared with that of every run; meanwhile somebody opens one more."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            server.open_run(1)
            return str.__eq__(self, other)

    run = server.open_run(1, place=Place("there"))
    for _ in range(3):
        server.open_run(1)
    leave(*complete(server, run, pool, 1))


@pytest.mark.parametrize("bind", [{}, {"spark.driver.bindAddress": "[::]"}])
def test_an_address_of_ipv6_is_accepted_as_spark_writes_it(bind: dict[str, str]) -> None:
    settings = {"spark.driver.host": "[2001:db8::7]"} | bind
    context = SimpleNamespace(master="spark://there:7077", getConf=lambda: settings)
    assert addresses(cast(Any, context)) == ("::" if bind else "2001:db8::7", "2001:db8::7")


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
