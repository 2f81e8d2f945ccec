"""The rendezvous brings together the workers of one attempt, never of two, carries the first error to everybody and messages to
whom they are for, and finds out who hangs.

White box: attempts of a stage that overtake each other, and strangers, are played by threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
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
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import attrs
import pytest

from timely import errors
from timely.errors import (
    AuthenticationError,
    ConfigurationError,
    CycleError,
    OperatorError,
    PeerLostError,
    SparkError,
    TimelyError,
    WorkerError,
)
from timely.spark import messages
from timely.spark.messages import DRIVER, LARGEST, Done, Join, Message, Pulse, describe, framed, revive
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous, RunEntry, rendezvous
from timely.spark.session import addresses
from timely.worker import credentials
from timely.worker.credentials import speaker
from timely.worker.mesh import Address, Hello, dial


@pytest.fixture
def server() -> Iterator[Rendezvous]:
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    yield server
    server.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def register(
    server: Rendezvous, run: RunEntry, index: int, generation: int, stage: int = 0, timeout: float = 10.0
) -> Registration:
    return Registration(server.invitation(run), index=index, generation=generation, stage=stage, timeout=timeout)


def address(index: int, generation: int) -> Address:
    return ("127.0.0.1", 1000 * generation + index)


def peers_of(registration: Registration, index: int, generation: int) -> dict[int, Address]:
    return registration.peers(address(index, generation))


def complete(server: Rendezvous, run: RunEntry, pool: ThreadPoolExecutor, generation: int, stage: int = 0) -> list[Registration]:
    joined = [register(server, run, index, generation, stage) for index in range(run.workers)]
    told = pool.map(lambda index: peers_of(joined[index], index, generation), range(run.workers))
    expected = {index: address(index, generation) for index in range(run.workers)}
    assert all(peers == expected for peers in told)
    return joined


def leave(*registrations: Registration) -> None:
    for registration in registrations:
        registration.__exit__()


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


def test_a_complete_attempt_is_told_that_it_is_superseded(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    old = complete(server, run, pool, 1)
    new = complete(server, run, pool, 3)
    for registration in old:
        assert "a newer attempt" in str(registration.stopped(10))
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
        told = joined[index].stopped(10)
        assert isinstance(told, OperatorError)
        assert (str(told), told.name, told.path, told.worker) == ("map failed", "map", "/flow/map#1", 1)
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
    assert "worker 1 has gone away" in str(joined[0].stopped(10))
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
    "said",
    [
        struct.pack("!I", 1 << 30),
        struct.pack("!I", 3) + b"{{{",
        struct.pack("!I", 28) + b'{"kind":"join","content":{}}',
        struct.pack("!I", 100_000) + 100_000 * b"[",
    ],
)
def test_nonsense_ends_only_its_own_connection(server: Rendezvous, pool: ThreadPoolExecutor, said: bytes) -> None:
    run = server.open_run(1)
    context = speaker(run.identity, run.driver.certificate)
    with dial(server.address, context, Hello(run.id, 1, 0, DRIVER), time.monotonic() + 10) as sock:
        sock.sendall(said)
        sock.settimeout(10)
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
        said = bytearray(source.choice([begun, source.randbytes(source.randrange(600)), begun[: source.randrange(len(begun))]]))
        for _ in range(source.randrange(4) if said else 0):
            said[source.randrange(len(said))] = source.randrange(256)
        with contextlib.suppress(OSError), socket.create_connection(server.address, timeout=10) as sock:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
    leave(*complete(server, server.open_run(2), pool, 1))


def test_the_end_of_the_driver_is_noticed(pool: ThreadPoolExecutor) -> None:
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    (joined,) = complete(server, server.open_run(1), pool, 1)
    server.close()
    assert "connection to the driver" in str(joined.stopped(10))
    joined.report(ValueError("nobody hears this"))
    leave(joined)


def test_one_server_per_process() -> None:
    assert rendezvous("127.0.0.1", "127.0.0.1") is rendezvous("127.0.0.1", "127.0.0.1")


def test_a_bind_address_that_is_not_ours_is_explained() -> None:
    with pytest.raises(SparkError, match="bindAddress"):
        Rendezvous("192.0.2.77", "192.0.2.77")


@pytest.mark.parametrize(
    "error",
    [OperatorError("a", "b", "c", 4), CycleError("round and round", ["a"]), WorkerError("w"), PeerLostError("p")],
)
def test_errors_survive_the_journey(error: TimelyError) -> None:
    back = revive(describe(error, 1))
    assert type(back) is type(error)
    assert str(back) == str(error)


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise LookupError


def test_an_error_that_cannot_say_what_it_is_is_told_all_the_same() -> None:
    assert str(revive(describe(Mute(), 7))) == "worker 7 raised Mute, which raises LookupError when printed"


def test_what_is_not_ours_becomes_a_worker_error() -> None:
    back = revive(describe(KeyError("k"), 7))
    assert type(back) is WorkerError
    assert "worker 7 raised KeyError" in str(back)
    assert type(revive(describe(KeyError("k"), 7) | {"type": "Sequence"})) is WorkerError
    raised = OperatorError("failed", "map", "/map", 1)
    raised.__cause__ = ValueError("the cause")
    assert "ValueError: the cause" in revive(describe(raised, 1)).__notes__[0]
    assert len(str(revive(describe(ValueError("x" * 100_000), 0)))) < 10_000


def test_keys_are_not_printed(server: Rendezvous) -> None:
    run = server.open_run(1)
    printed = repr(run) + repr(server.invitation(run))
    for key in (run.identity.key, run.driver.key):
        assert str(key)[30:60] not in printed
    assert run.driver.key not in pickle.dumps(server.invitation(run))


# -- messages ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Note(Message):
    """Any text or number."""

    kind: ClassVar[str] = "note"
    content: Any = None


@attrs.frozen
class Other(Message):
    """Nothing, of another kind."""

    kind: ClassVar[str] = "other"


def wait_for(registration: Registration, count: int) -> list[Any]:
    """The contents of so many notes, once they have come."""
    arrived = threading.Event()
    registration.alert(arrived.set)
    contents: list[Any] = []
    while True:
        contents += [note.content for note in registration.receive(Note)]
        if len(contents) >= count or registration.stopped() is not None:
            return contents
        arrived.wait(10)
        arrived.clear()


def test_workers_and_driver_tell_each_other_things_in_order(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    told: queue.Queue[tuple[int, int, Any]] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: told.put((worker, generation, note.content)))
    joined = complete(server, run, pool, 4)
    for number in range(100):
        joined[1].send(Note(number))
        joined[1].send(Other())
    assert [told.get(timeout=10) for _ in range(100)] == [(1, 4, number) for number in range(100)]
    assert run.generation == 4
    for number in range(100):
        assert run.send(0, Note(number**2))
    assert run.broadcast(Note("ü" * 1000)) == 2
    assert wait_for(joined[0], 101) == [number**2 for number in range(100)] + ["ü" * 1000]
    assert wait_for(joined[1], 1) == ["ü" * 1000]
    assert not joined[0].receive(Note) and not joined[1].receive(Other)
    leave(*joined)


def test_large_messages_both_ways_at_once(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(1)
    told: queue.Queue[int] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: told.put(len(note.content)))
    (joined,) = complete(server, run, pool, 1)
    text = "x" * (LARGEST - 100)
    for _ in range(10):
        joined.send(Note(text))
        run.send(0, Note(text))
    assert wait_for(joined, 10) == [text] * 10
    assert [told.get(timeout=30) for _ in range(10)] == [LARGEST - 100] * 10
    leave(joined)


@pytest.mark.parametrize("content", ["x" * LARGEST, {1, 2}])
def test_what_cannot_be_sent_is_refused_at_the_sender(server: Rendezvous, pool: ThreadPoolExecutor, content: Any) -> None:
    run = server.open_run(1)
    (joined,) = complete(server, run, pool, 1)
    for send in (joined.send, partial(run.send, 0)):
        with pytest.raises(ConfigurationError, match="must be plain JSON|is too long"):
            send(Note(content))
    assert joined.stopped() is None
    leave(joined)


def test_only_the_newest_generation_is_spoken_with(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2)
    assert run.generation is None
    assert run.broadcast(Note()) == 0
    told: queue.Queue[tuple[int, int]] = queue.Queue()
    run.listen(Other, lambda worker, generation, message: told.put((worker, generation)))
    old = complete(server, run, pool, 1)
    new = complete(server, run, pool, 3, stage=1)
    newer = complete(server, run, pool, 5)
    assert "a newer attempt" in str(old[0].stopped(10))
    old[0].send(Other())
    leave(*old)
    newer[0].send(Other())
    assert told.get(timeout=10) == (0, 5)
    assert run.broadcast(Note()) == 2
    assert wait_for(newer[1], 1) == [None]
    assert old[0].receive(Note) == new[0].receive(Note) == []
    leave(*new, *newer)


def test_a_listener_that_fails_is_logged_and_harms_nobody(
    server: Rendezvous, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    run = server.open_run(1)
    told: queue.Queue[int] = queue.Queue()
    run.listen(Note, lambda worker, generation, note: 1 // note.content)
    run.listen(Note, lambda worker, generation, note: told.put(note.content))
    (joined,) = complete(server, run, pool, 1)
    joined.send(Note(0))
    joined.send(Note(1))
    assert [told.get(timeout=10) for _ in range(2)] == [0, 1]
    assert "ZeroDivisionError" in caplog.text
    leave(joined)


# -- who hangs ---------------------------------------------------------------------------------------------------------

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


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_worker_that_hangs_is_named_and_the_others_stop(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
    run = server.open_run(2, patience=2.0)
    with program(PEER) as peer, register(server, run, 0, 1, timeout=60) as joined:
        say(peer, pickle.dumps(server.invitation(run)).hex())
        peers_of(joined, 0, 1)
        assert hear(peer) == "joined"
        os.kill(peer.pid, signal.SIGSTOP)
        why = joined.stopped(60)
    assert isinstance(why, PeerLostError)
    assert f"worker 1 has been silent for 2 s ({socket.gethostname()}, pid {peer.pid})" in str(why)
    assert str(run.failure) == str(why)
    assert run.generation is None


def test_a_driver_that_hangs_is_found_out() -> None:
    with program(DRIVER_ELSEWHERE) as driver:
        invitation = pickle.loads(bytes.fromhex(hear(driver)))
        with Registration(invitation, index=0, generation=1, stage=0) as joined:
            peers_of(joined, 0, 1)
            os.kill(driver.pid, signal.SIGSTOP)
            why = joined.stopped(60)
            os.kill(driver.pid, signal.SIGCONT)
    assert isinstance(why, SparkError)
    assert "has been silent for 2 s" in str(why)


def test_a_worker_that_is_busy_is_not_taken_for_one_that_hangs(server: Rendezvous, pool: ThreadPoolExecutor) -> None:
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
    heard = pulse.beat()
    for _ in range(10):
        now[0] += 1.0
        assert pulse.beat() - heard <= 10.0
    now[0] += 500.0  # the whole process was stopped
    assert pulse.beat() - heard <= 11.0
    for _ in range(20):
        now[0] += 1.0
        pulse.beat()
    assert pulse.beat() - heard > 20.0


def test_patience_must_be_some(server: Rendezvous) -> None:
    with pytest.raises(ConfigurationError, match="patience"):
        server.open_run(1, patience=0.0)


# -- what may come in between ------------------------------------------------------------------------------------------


def dial_and_join(server: Rendezvous, run: RunEntry, index: int, generation: int) -> ssl.SSLSocket:
    """Return the connection of a worker that has joined, and neither reads nor gives signs of life."""
    context = speaker(run.identity, run.driver.certificate)
    sock = dial(server.address, context, Hello(run.id, generation, index, DRIVER), time.monotonic() + 10)
    sock.sendall(framed(Join(0, ["127.0.0.1", 1], "here")))
    return sock


def test_what_a_worker_said_before_it_left_is_heard_though_it_did_not_listen(server: Rendezvous) -> None:
    run = server.open_run(2)
    with register(server, run, 1, 1) as other:
        waiting = threading.Thread(target=peers_of, args=(other, 1, 1))
        waiting.start()
        deaf = dial_and_join(server, run, 0, 1)
        waiting.join()
        heard = queue.SimpleQueue[int]()
        run.listen(Other, lambda worker, generation, message: heard.put(worker))
        for _ in range(20):  # more than the connection holds, so that the driver has something left to send
            assert run.send(0, Note("x" * 1_000_000))
        other.send(Other())
        assert heard.get(timeout=10) == 1  # the driver has sent what could be sent
        deaf.sendall(framed(Other()) + framed(Done()))
        deaf.close()
        assert heard.get(timeout=10) == 0
        assert other.stopped(0.2) is None
        other.done()
    assert run.failure is None


def test_a_worker_that_does_not_take_what_it_is_sent_is_declared_gone_and_nothing_is_left_out(
    server: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_MOST_WAITING", 8 << 20)
    run = server.open_run(2)
    with register(server, run, 1, 1) as other:
        waiting = threading.Thread(target=peers_of, args=(other, 1, 1))
        waiting.start()
        with dial_and_join(server, run, 0, 1):
            waiting.join()
            for _ in range(40):
                run.send(0, Note("x" * 1_000_000))
            stopped = other.stopped(10)
    assert isinstance(stopped, PeerLostError)
    assert "worker 0 does not take what it is sent" in str(stopped)


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
def test_an_address_of_ipv6_is_taken_as_spark_writes_it(bind: dict[str, str]) -> None:
    settings = {"spark.driver.host": "[2001:db8::7]"} | bind
    context = SimpleNamespace(master="spark://there:7077", getConf=lambda: settings)
    assert addresses(cast(Any, context)) == ("::" if bind else "2001:db8::7", "2001:db8::7")


@pytest.mark.parametrize("name", [name for name, kind in vars(errors).items() if isinstance(kind, type)])
def test_an_error_of_any_class_is_told(name: str) -> None:
    told = describe(WorkerError("it failed"), 1) | {"type": name}
    assert str(revive(told)).endswith("it failed")
