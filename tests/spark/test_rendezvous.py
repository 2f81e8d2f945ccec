"""The rendezvous brings together the workers of one attempt, never of two, and carries the first error to everybody."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from timely.errors import (
    AuthenticationError,
    CycleError,
    OperatorError,
    PeerLostError,
    SparkError,
    TimelyError,
    WorkerError,
)
from timely.spark.rendezvous import DRIVER, Registration, Rendezvous, Run, describe, rendezvous, revive
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
    server: Rendezvous, run: Run, index: int, generation: int, stage: int = 0, timeout: float = 10.0
) -> Registration:
    return Registration(server.invitation(run), index=index, generation=generation, stage=stage, timeout=timeout)


def address(index: int, generation: int) -> Address:
    return ("127.0.0.1", 1000 * generation + index)


def peers_of(registration: Registration, index: int, generation: int) -> dict[int, Address]:
    return registration.peers(address(index, generation))


def complete(
    server: Rendezvous, run: Run, pool: ThreadPoolExecutor, generation: int, stage: int = 0
) -> list[Registration]:
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
    one._send({"join": {"stage": 0, "address": ["127.0.0.1", 1]}})
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
    run = server.open_run(1)
    invitation = attrs.evolve(server.invitation(run), secret=b"x" * 32)
    with pytest.raises(SparkError, match="worker 0 cannot reach the driver"):
        Registration(invitation, index=0, generation=1, stage=0)
    unknown = attrs.evolve(server.invitation(run), run=b"y" * 16)
    with pytest.raises(SparkError, match="worker 0 cannot reach the driver"):
        Registration(unknown, index=0, generation=1, stage=0)


def test_whoever_sits_at_the_address_of_the_driver_is_found_out(pool: ThreadPoolExecutor, server: Rendezvous) -> None:
    def impostor(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"n" * 32)
            sock.recv(1000)
            sock.sendall(b"m" * 32)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        invitation = attrs.evolve(server.invitation(server.open_run(1)), address=listener.getsockname()[:2])
        done = pool.submit(impostor, listener)
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
    "said", [struct.pack("!I", 1 << 30), struct.pack("!I", 3) + b"{{{", struct.pack("!I", 11) + b'{"join": 1}']
)
def test_nonsense_ends_only_its_own_connection(server: Rendezvous, pool: ThreadPoolExecutor, said: bytes) -> None:
    run = server.open_run(1)
    hello = Hello(run.id, 1, 0, DRIVER)
    with dial(server.address, run.secret, hello, time.monotonic() + 10) as sock:
        sock.sendall(said)
        sock.settimeout(10)
        assert sock.recv(1) == b""
    leave(*complete(server, run, pool, 2))


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


def test_what_is_not_ours_becomes_a_worker_error() -> None:
    back = revive(describe(KeyError("k"), 7))
    assert type(back) is WorkerError
    assert "worker 7 raised KeyError" in str(back)
    assert type(revive(describe(KeyError("k"), 7) | {"type": "Sequence"})) is WorkerError
    raised = OperatorError("failed", "map", "/map", 1)
    raised.__cause__ = ValueError("the cause")
    assert "ValueError: the cause" in revive(describe(raised, 1)).__notes__[0]
    assert len(str(revive(describe(ValueError("x" * 100_000), 0)))) < 10_000


def test_a_secret_is_not_printed(server: Rendezvous) -> None:
    run = server.open_run(1)
    assert repr(run.secret) not in repr(run) + repr(server.invitation(run))
