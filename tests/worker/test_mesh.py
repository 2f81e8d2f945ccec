"""The mesh lets in the workers of one generation of one run, and nobody else, whatever a stranger does."""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from timely.errors import AuthenticationError, ConfigurationError, PeerLostError
from timely.worker import mesh
from timely.worker.mesh import NONCE, Challenge, Hello, Introduction, connect_mesh, open_listener

SECRET = b"s" * 32
RUN = b"r" * 16
Sockets = dict[int, socket.socket]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    listeners = [open_listener("127.0.0.1") for _ in range(4)]
    yield listeners
    for listener in listeners:
        listener.close()


def addresses_of(listeners: list[socket.socket]) -> dict[int, tuple[str, int]]:
    return {index: listener.getsockname() for index, listener in enumerate(listeners)}


def close(*meshes: Sockets) -> None:
    for sockets in meshes:
        for sock in sockets.values():
            sock.close()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_pair_is_connected_once(pool: ThreadPoolExecutor, listeners: list[socket.socket], workers: int) -> None:
    listeners = listeners[:workers]
    addresses = addresses_of(listeners)
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, SECRET, 10), range(workers)))
    for index, sockets in enumerate(meshes):
        assert sorted(sockets) == [peer for peer in range(workers) if peer != index]
        for peer, sock in sockets.items():
            sock.sendall(struct.pack("!II", index, peer))
    for index, sockets in enumerate(meshes):
        for peer, sock in sockets.items():
            assert sock.gettimeout() is None
            assert struct.unpack("!II", sock.recv(8)) == (peer, index)
    close(*meshes)


def strangers(address: tuple[str, int]) -> list[socket.socket]:
    """One who says nothing, one who talks nonsense, one who talks too much, one who replays, one who leaves."""
    silent, noisy, long, replaying, leaving = (socket.create_connection(address) for _ in range(5))
    noisy.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
    long.sendall(os.urandom(100_000))
    said = Introduction(SECRET, Hello(bytes(16), 0, 1, 0)).answer(os.urandom(NONCE))
    replaying.sendall(said)
    leaving.close()
    return [silent, noisy, long, replaying]


def test_strangers_are_refused_and_block_nobody(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    addresses = addresses_of(listeners[:2])
    caplog.set_level(logging.WARNING, "timely.worker.mesh")
    came = strangers(addresses[0])
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, SECRET, 10), range(2)))
    meshes[1][0].sendall(b"ok")
    assert meshes[0][1].recv(2) == b"ok"
    said = caplog.text
    assert "does not speak this protocol" in said
    assert "does not know the secret" in said
    assert "it went away" in said
    close(*meshes)
    for stranger in came:
        stranger.close()


def test_a_silent_connection_is_dropped(
    pool: ThreadPoolExecutor,
    listeners: list[socket.socket],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mesh.Reception.__init__, "__defaults__", (0.05,))
    addresses = addresses_of(listeners[:2])
    with socket.create_connection(addresses[0]) as silent:
        zero = pool.submit(connect_mesh, 0, listeners[0], addresses, SECRET, 10)
        silent.settimeout(10)
        assert len(silent.recv(NONCE)) == NONCE
        assert silent.recv(1) == b""
        one = connect_mesh(1, listeners[1], addresses, SECRET, 10)
        close(zero.result(), one)
    assert "did not say who it is" in caplog.text


def test_a_crowd_of_strangers_makes_room(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "_CROWD", 3)
    addresses = addresses_of(listeners[:2])
    crowd = [socket.create_connection(addresses[0]) for _ in range(20)]
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, SECRET, 10), range(2)))
    close(*meshes)
    for stranger in crowd:
        stranger.close()


@pytest.mark.parametrize("other", [{"generation": 8}, {"generation": 6}, {"run": b"x" * 16}])
def test_another_generation_or_run_is_refused(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], other: dict[str, bytes | int]
) -> None:
    addresses = addresses_of(listeners[:2])
    zero: Future[Sockets] = pool.submit(connect_mesh, 0, listeners[0], addresses, SECRET, 10, run=RUN, generation=7)
    mine: dict[str, bytes | int] = {"run": RUN, "generation": 7}
    stale = mine | other
    hello = Hello(bytes(stale["run"]), int(stale["generation"]), 1, 0)
    with pytest.raises(ConnectionResetError):
        mesh.dial(addresses[0], SECRET, hello, time.monotonic() + 10)
    one = connect_mesh(1, listeners[1], addresses, SECRET, 10, run=RUN, generation=7)
    close(zero.result(), one)


def test_a_worker_with_another_secret_is_refused(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    addresses = addresses_of(listeners[:2])
    zero = pool.submit(connect_mesh, 0, listeners[0], addresses, SECRET, 10)
    with pytest.raises(PeerLostError, match="worker 1 could not connect to worker 0 at 127"):
        connect_mesh(1, listeners[1], addresses, b"t" * 32, 10)
    close(connect_mesh(1, listeners[1], addresses, SECRET, 10), zero.result())


def test_a_stranger_at_the_address_of_a_worker_is_found_out(
    pool: ThreadPoolExecutor, listeners: list[socket.socket]
) -> None:
    def impostor() -> bytes:
        sock, _ = listeners[0].accept()
        with sock:
            sock.sendall(os.urandom(NONCE))
            hello = sock.recv(1000)
            sock.sendall(os.urandom(32))
            return hello

    heard = pool.submit(impostor)
    with pytest.raises(AuthenticationError, match="worker 0 at 127"):
        connect_mesh(1, listeners[1], addresses_of(listeners[:2]), SECRET, 10)
    assert SECRET not in heard.result()


def test_a_missing_worker_is_named(listeners: list[socket.socket]) -> None:
    with pytest.raises(PeerLostError, match=r"worker 0 waited in vain for worker\(s\) \[1, 2\]"):
        connect_mesh(0, listeners[0], addresses_of(listeners[:3]), SECRET, 0.1)


def test_a_worker_that_is_gone_is_named(listeners: list[socket.socket]) -> None:
    addresses = addresses_of(listeners[:2])
    listeners[0].close()
    with pytest.raises(PeerLostError, match="worker 1 could not connect to worker 0"):
        connect_mesh(1, listeners[1], addresses, SECRET, 5)


def test_a_weak_secret_is_refused(listeners: list[socket.socket]) -> None:
    with pytest.raises(ConfigurationError, match="at least 16 bytes"):
        connect_mesh(0, listeners[0], {}, b"short")


def test_nothing_but_a_hello_is_ever_read() -> None:
    challenge = Challenge(lambda run: SECRET)
    with pytest.raises(AuthenticationError, match="nobody has been authenticated"):
        challenge.welcome()
    assert challenge.receive(b"x" * (challenge.missing - 1)) is None
    with pytest.raises(AuthenticationError):
        challenge.receive(b"xx")


def test_two_workers_of_one_index_cannot_both_be_in(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    addresses = addresses_of(listeners[:3])
    zero = pool.submit(connect_mesh, 0, listeners[0], addresses, SECRET, 10)
    first = mesh.dial(addresses[0], SECRET, Hello(bytes(16), 0, 1, 0), time.monotonic() + 10)
    with pytest.raises(ConnectionResetError):
        mesh.dial(addresses[0], SECRET, Hello(bytes(16), 0, 1, 0), time.monotonic() + 10)
    second = mesh.dial(addresses[0], SECRET, Hello(bytes(16), 0, 2, 0), time.monotonic() + 10)
    assert sorted(zero.result()) == [1, 2]
    close(zero.result(), {1: first, 2: second})
