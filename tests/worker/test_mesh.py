"""The mesh lets in the workers of one generation of one run, and nobody else, whatever a stranger does; and what goes through it
is nobody else's business.

White box: strangers speak the handshake wrongly in every way, which no worker does.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import select
import selectors
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from timely.errors import AuthenticationError, ConfigurationError, PeerLostError
from timely.worker import SocketTransport, credentials, mesh
from timely.worker.credentials import Identity, make_identity, speaker
from timely.worker.mesh import Hello, Reception, connect_mesh, open_listener
from timely.worker.wire import HEADER

WORKERS = make_identity("timely worker")
OTHERS = make_identity("timely worker")
RUN = b"r" * 16
NONE = bytes(16)
Sockets = dict[int, ssl.SSLSocket]
Address = tuple[str, int]


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


def addresses_of(listeners: list[socket.socket]) -> dict[int, Address]:
    return {index: listener.getsockname() for index, listener in enumerate(listeners)}


class Half:
    """Worker 0 of a mesh of two as it waits for worker 1, and the addresses of both."""

    def __init__(self, pool: ThreadPoolExecutor, listeners: list[socket.socket], **run: Any) -> None:
        self.addresses = addresses_of(listeners[:2])
        self._listener, self._run = listeners[1], run
        self.zero: Future[Sockets] = pool.submit(connect_mesh, 0, listeners[0], self.addresses, WORKERS, 600, **run)

    def connect(self) -> Sockets:
        """Return the connections of worker 1."""
        return connect_mesh(1, self._listener, self.addresses, WORKERS, 600, **self._run)

    def finish(self) -> None:
        """Connect worker 1, and close all."""
        close(self.connect(), self.zero.result())


@pytest.fixture
def half(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> Half:
    return Half(pool, listeners)


def close(*meshes: Sockets) -> None:
    for sockets in meshes:
        for sock in sockets.values():
            sock.close()


def dial(address: Address, hello: Hello, identity: Identity = WORKERS, trusted: Identity = WORKERS) -> ssl.SSLSocket:
    return mesh.dial(address, speaker(identity, trusted.certificate), hello, time.monotonic() + 600)


# -- who gets in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_pair_is_connected_once(pool: ThreadPoolExecutor, listeners: list[socket.socket], workers: int) -> None:
    listeners = listeners[:workers]
    addresses = addresses_of(listeners)
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, WORKERS, 600), range(workers)))
    for index, sockets in enumerate(meshes):
        assert sorted(sockets) == [peer for peer in range(workers) if peer != index]
        for peer, sock in sockets.items():
            sock.sendall(struct.pack("!II", index, peer))
    for index, sockets in enumerate(meshes):
        for peer, sock in sockets.items():
            assert sock.gettimeout() is None
            assert sock.version() == "TLSv1.3"
            assert struct.unpack("!II", sock.recv(8)) == (peer, index)
    close(*meshes)


def strangers(address: Address) -> list[socket.socket]:
    """One who says nothing, one who takes it for a web server, one who talks too much, one who is slow, one who leaves."""
    silent, browser, long, slow, leaving = (socket.create_connection(address) for _ in range(5))
    browser.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
    long.sendall(os.urandom(100_000))
    slow.sendall(b"\x16\x03\x01")  # how a handshake begins
    leaving.close()
    return [silent, browser, long, slow]


def test_strangers_are_refused_and_block_nobody(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    addresses = addresses_of(listeners[:2])
    caplog.set_level(logging.WARNING, "timely.worker.mesh")
    came = strangers(addresses[0])
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, WORKERS, 600), range(2)))
    meshes[1][0].sendall(b"ok")
    assert meshes[0][1].recv(2) == b"ok"
    assert caplog.text.count("refused a connection from 127.0.0.1:") >= 2
    close(*meshes)
    for stranger in came:
        stranger.close()


def nameless(address: Address, name: str | None) -> None:
    """Dial as somebody who holds the key, and asks for another run, or for none."""
    context = speaker(WORKERS, WORKERS.certificate)
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=name):
        pytest.fail("a handshake that asks for nobody here must not succeed")


@pytest.mark.parametrize("name", [None, "localhost", "ab" * 16])
def test_who_cannot_name_the_run_sees_no_certificate(half: Half, name: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ssl.SSLError, match="(?i)unrecognized.name"):
        nameless(half.addresses[0], name)
    half.finish()
    assert "it did not name a run that is known here" in caplog.text


def test_a_handshake_waits_for_no_acknowledgement(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small messages in a row, as the end of a handshake and the hello are, would wait for 40 ms between them."""
    at_once: list[int] = []
    shake = ssl.SSLSocket.do_handshake

    def shaken(sock: ssl.SSLSocket, block: bool = False) -> None:
        at_once.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        shake(sock, block)

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", shaken)
    addresses = addresses_of(listeners[:2])
    close(*pool.map(lambda i: connect_mesh(i, listeners[i], addresses, WORKERS), range(2)))
    assert len(at_once) >= 2
    assert all(at_once)


def test_a_slow_connection_is_dropped(listeners: list[socket.socket], caplog: pytest.LogCaptureFixture) -> None:
    with selectors.DefaultSelector() as selector, socket.create_connection(listeners[0].getsockname()) as slow:
        admitted: list[Hello] = []
        reception = Reception(selector, listeners[0], lambda run: None, lambda _, hello: admitted.append(hello), patience=0.0)
        slow.sendall(b"\x16\x03\x01\x02")
        while not select.select([slow], [], [], 0)[0]:
            for key, _ in selector.select(0.1):
                key.data(key.fileobj)
            reception.expire()
        reception.close()
    assert admitted == []
    assert "did not say who it is" in caplog.text


def test_three_hundred_connections_at_once_leave_room_for_the_workers(
    pool: ThreadPoolExecutor, listeners: list[socket.socket]
) -> None:
    addresses = addresses_of(listeners[:3])
    crowd = [socket.create_connection(addresses[0]) for _ in range(300)]
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, WORKERS, 600), range(3)))
    assert [sorted(sockets) for sockets in meshes] == [[1, 2], [0, 2], [0, 1]]
    close(*meshes)
    for stranger in crowd:
        stranger.close()


def test_a_crowd_that_pushes_a_worker_out_only_delays_it(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "_CROWD", 0)  # whoever comes next pushes out the one before, worker or not
    addresses = addresses_of(listeners[:2])
    crowd = [socket.create_connection(addresses[0]) for _ in range(20)]
    meshes = list(pool.map(lambda i: connect_mesh(i, listeners[i], addresses, WORKERS, 600), range(2)))
    close(*meshes)
    for stranger in crowd:
        stranger.close()


class Full(socket.socket):
    """A listener of a process that has too many files open."""

    asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        if self.asked < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_listener_that_cannot_accept_is_not_asked_again_and_again(
    listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with (
        selectors.DefaultSelector() as selector,
        Full(fileno=listeners[0].detach()) as full,
        socket.create_connection(full.getsockname()) as waiting,
    ):
        reception = Reception(selector, full, lambda run: None, lambda sock, hello: None)

        def serve() -> int:
            for _ in range(5):
                for key, _ in selector.select(0):
                    key.data(key.fileobj)
                reception.expire()
            return full.asked

        assert serve() == 1
        now += 2.0
        assert serve() == 2
        reception.close()  # while it is not listened to
        again = Reception(selector, full, lambda run: None, lambda sock, hello: None)
        assert serve() == 3
        again.close()
        assert waiting.fileno() >= 0


@pytest.mark.parametrize("other", [{"generation": 8}, {"generation": 6}, {"receiver": 2}, {"sender": 0}])
def test_another_generation_or_another_worker_is_refused(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], other: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    half = Half(pool, listeners, run=RUN, generation=7)
    mine = {"generation": 7, "sender": 1, "receiver": 0} | other
    with pytest.raises(ConnectionRefusedError):
        dial(half.addresses[0], Hello(RUN, **mine))
    half.finish()
    assert "refused a connection from 127.0.0.1" in caplog.text


def test_the_certificate_of_another_run_is_refused_on_both_ends(
    half: Half, listeners: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AuthenticationError, match="worker 0 at 127.*does not hold the key of this run"):
        connect_mesh(1, listeners[1], half.addresses, OTHERS, 600)
    with pytest.raises(OSError) as refused:  # it knows whom to trust, and has no key of theirs
        dial(half.addresses[0], Hello(NONE, 0, 1, 0), OTHERS, WORKERS)
    assert not isinstance(refused.value, TimeoutError)
    half.finish()
    assert caplog.text.count("refused a connection from") >= 2


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2], ids=["without a certificate", "older"])
def test_other_tls_is_refused(half: Half, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    with socket.create_connection(half.addresses[0]) as plain, pytest.raises(OSError):
        with context.wrap_socket(plain, server_hostname=NONE.hex()) as sock:
            assert version is ssl.TLSVersion.TLSv1_3, "an older handshake does not succeed"
            sock.sendall(Hello(NONE, 0, 1, 0).pack())
            assert sock.recv(8) != b""
        pytest.fail("it was answered")
    half.finish()


def test_a_stranger_at_the_address_of_a_worker_is_found_out(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    def impostor() -> None:
        context = credentials.listener(OTHERS, WORKERS.certificate)
        plain, _ = listeners[0].accept()
        with pytest.raises(OSError), plain:
            context.wrap_socket(plain, server_side=True)

    seen = pool.submit(impostor)
    with pytest.raises(AuthenticationError, match="worker 0 at 127"):
        connect_mesh(1, listeners[1], addresses_of(listeners[:2]), WORKERS, 600)
    seen.result()


def test_a_holder_of_the_key_with_another_protocol_is_found_out(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    def other_protocol() -> None:
        plain, _ = listeners[0].accept()
        with credentials.listener(WORKERS, WORKERS.certificate).wrap_socket(plain, server_side=True) as sock:
            sock.sendall(b"12345678")
            sock.recv(100)

    done = pool.submit(other_protocol)
    with pytest.raises(AuthenticationError, match="does not speak this protocol"):
        connect_mesh(1, listeners[1], addresses_of(listeners[:2]), WORKERS, 600)
    done.result()


def test_a_missing_worker_is_named(listeners: list[socket.socket]) -> None:
    with pytest.raises(PeerLostError, match=r"worker 0 waited in vain for worker\(s\) \[1, 2\]"):
        connect_mesh(0, listeners[0], addresses_of(listeners[:3]), WORKERS, 0.1)


def test_a_worker_that_is_gone_is_named(listeners: list[socket.socket]) -> None:
    addresses = addresses_of(listeners[:2])
    listeners[0].close()
    with pytest.raises(PeerLostError, match="worker 1 could not connect to worker 0"):
        connect_mesh(1, listeners[1], addresses, WORKERS, 5)


def test_a_run_id_that_is_none_is_refused(listeners: list[socket.socket]) -> None:
    with pytest.raises(ConfigurationError, match="16 bytes"):
        connect_mesh(0, listeners[0], {}, WORKERS, run=b"short")


def test_two_workers_of_one_index_cannot_both_be_in(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    addresses = addresses_of(listeners[:3])
    zero = pool.submit(connect_mesh, 0, listeners[0], addresses, WORKERS, 600)
    first = dial(addresses[0], Hello(NONE, 0, 1, 0))
    with pytest.raises(ConnectionRefusedError):
        dial(addresses[0], Hello(NONE, 0, 1, 0))
    second = dial(addresses[0], Hello(NONE, 0, 2, 0))
    assert sorted(zero.result()) == [1, 2]
    close(zero.result(), {1: first, 2: second})


# -- who is on the way -------------------------------------------------------------------------------------------------


class Interceptor:
    """Somebody on the way: passes on what goes from one worker to another, writes it down, and may meddle with it."""

    def __init__(self, target: Address) -> None:
        self.said = [bytearray(), bytearray()]
        """What whoever dialled said, and what it was answered."""
        self.meddle: Callable[[bytes], bytes | None] = lambda data: data
        """What is passed on, of what whoever dialled says; ``None`` to hang up."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._target = target
        self._thread = threading.Thread(target=self._pass_on)
        self._thread.start()

    def _pass_on(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        with self._listener, near, far, contextlib.suppress(ConnectionError):  # who is cut off says no goodbye
            ways = {near: (far, 0), far: (near, 1)}
            while ways:
                for sock in select.select(list(ways), [], [], 600)[0]:
                    other, way = ways[sock]
                    data: bytes | None = sock.recv(1 << 16)
                    if data and way == 0:
                        data = self.meddle(data)
                    if not data:
                        return
                    self.said[way] += data
                    other.sendall(data)

    def join(self) -> None:
        self._thread.join()


def intercepted(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> tuple[Interceptor, SocketTransport, SocketTransport]:
    """Return two workers that are connected through somebody else."""
    half = Half(pool, listeners)
    interceptor = Interceptor(half.addresses[0])
    half.addresses = half.addresses | {0: interceptor.address}
    one = half.connect()
    return interceptor, SocketTransport(0, half.zero.result()), SocketTransport(1, one)


def part(pool: ThreadPoolExecutor, interceptor: Interceptor, *transports: SocketTransport) -> None:
    list(pool.map(lambda transport: transport.close(), transports))
    interceptor.join()


def send(transport: SocketTransport, peer: int, message: object) -> None:
    transport.send(peer, message)
    transport.flush()


def receive(transport: SocketTransport) -> list[tuple[int, object]]:
    while not (arrived := transport.receive()):
        transport.wait(600)
    return list(arrived)


def test_whoever_listens_on_the_way_learns_nothing(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    interceptor, zero, one = intercepted(pool, listeners)
    marker, answer = "the marker in the payload", "the marker in the answer"
    send(one, 0, ("data", [marker] * 100))
    assert receive(zero) == [(1, ("data", [marker] * 100))]
    send(zero, 1, ("data", [answer]))
    assert receive(one) == [(0, ("data", [answer]))]
    part(pool, interceptor, zero, one)
    assert len(interceptor.said[0]) > 100 and len(interceptor.said[1]) > 100
    seen = bytes(interceptor.said[0] + interceptor.said[1])
    for secret in (marker.encode(), answer.encode(), WORKERS.certificate, pickle.dumps(marker)[:8]):
        assert secret not in seen


@pytest.mark.parametrize(
    ("meddle", "most"),
    [(lambda data: data[:-1] + bytes([data[-1] ^ 1]), 0), (lambda data: data + data, 1)],
    ids=["change", "repeat"],
)
def test_what_is_changed_or_repeated_on_the_way_cuts_the_connection(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], meddle: Callable[[bytes], bytes], most: int
) -> None:
    interceptor, zero, one = intercepted(pool, listeners)
    interceptor.meddle = meddle
    send(one, 0, ("data", [1]))
    arrived = []
    with pytest.raises(PeerLostError, match="worker 1 is cut off from worker 0"):
        while True:
            arrived += receive(zero)
    assert arrived in ([], [(1, ("data", [1]))][:most])
    part(pool, interceptor, zero, one)


def test_a_stream_that_is_cut_short_is_a_lost_peer(pool: ThreadPoolExecutor, listeners: list[socket.socket]) -> None:
    interceptor, zero, one = intercepted(pool, listeners)
    send(one, 0, ("data", [1]))
    assert receive(zero) == [(1, ("data", [1]))]
    interceptor.meddle = lambda data: None
    send(one, 0, ("data", [2]))
    with pytest.raises(PeerLostError, match="worker 1"):
        receive(zero)
    part(pool, interceptor, zero, one)


def test_a_session_that_was_recorded_opens_no_door(
    pool: ThreadPoolExecutor, listeners: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    interceptor, zero, one = intercepted(pool, listeners)
    send(one, 0, ("data", [1]))
    receive(zero)
    part(pool, interceptor, zero, one)
    again = Half(pool, listeners)
    with socket.create_connection(again.addresses[0]) as replaying:
        replaying.sendall(interceptor.said[0])
        replaying.settimeout(600)
        with contextlib.suppress(ConnectionError):  # closed, or reset since some of what was sent was never read
            while replaying.recv(1 << 16):
                pass
    assert not again.zero.done()
    assert "refused a connection" in caplog.text
    again.finish()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (HEADER.pack(1 << 50, 1), "announced a message of 1125899906842624 bytes"),
        (HEADER.pack(64, 0), "0 buffers in 64 bytes"),
        (HEADER.pack(64, 9), "9 buffers in 64 bytes"),
        (HEADER.pack(24, 1) + struct.pack("<Q", 1 << 40) + bytes(16), "do not make up"),
        (b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", "announced a message"),
    ],
)
def test_a_peer_that_sends_what_is_no_message_is_cut_off(half: Half, data: bytes, fault: str) -> None:
    with dial(half.addresses[0], Hello(NONE, 0, 1, 0)) as peer:
        transport = SocketTransport(0, half.zero.result())
        peer.sendall(data)
        with pytest.raises(PeerLostError, match=f"worker 1 is cut off from worker 0: it .*{fault}"):
            receive(transport)
        transport.close()


# -- keys --------------------------------------------------------------------------------------------------------------


def test_no_key_is_printed_or_left_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert WORKERS.key.decode() not in repr(WORKERS) + str(WORKERS)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []

    def load(context: ssl.SSLContext, path: str) -> None:
        seen.append((Path(path).parent, Path(path).stat().st_mode & 0o777))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    speaker(WORKERS, WORKERS.certificate)
    assert seen == [(tmp_path, 0o600)]
    assert list(tmp_path.iterdir()) == []
