"""Authenticated connections among the workers of one run, and the handshake that opens every one of them.

The invariant: nothing that arrives on a connection is interpreted before whoever sent it has shown that it knows the
secret of the run, and that it belongs to the same run and the same generation of it; both ends show it. Until then a
connection is good for one message of fixed size, within a few seconds, and it holds up nobody else. A caller may
assume that every socket handed out is connected to the worker it is filed under.

The handshake is a challenge and a response both ways, three messages in all: whoever listens sends a nonce; whoever
dialled sends a *hello* (who it is, whom it wants, a nonce of its own) and an HMAC over all of that under the secret;
the listener answers with an HMAC over the whole, which is also the admission. A stranger learns a random number.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping

import attrs

from timely.errors import AuthenticationError, ConfigurationError, PeerLostError

Address = tuple[str, int]
"""A host and a port."""

NONCE = 32
RUN = 16
MAC = hashlib.sha256().digest_size
PATIENCE = 5.0
"""Seconds that a connection gets to say hello."""

_MAGIC = b"timely-1"
_HELLO = struct.Struct(f"!8s{RUN}sQII{NONCE}s")
_HELLO_SIZE = _HELLO.size + MAC
_CROWD = 256

_log = logging.getLogger(__name__)


@attrs.frozen
class Hello:
    """Who dials, and whom: the run (16 bytes), its generation, and the indices of the worker that dials and of the
    one it wants.
    """

    run: bytes
    generation: int
    sender: int
    receiver: int


class Challenge:
    """The listener's half of one handshake, without a socket: say :attr:`nonce`, :meth:`receive` the rest, say
    :meth:`welcome`.

    ``secret_of`` returns the secret of a run, or ``None`` for a run it does not know.

    >>> secret = bytes(32)
    >>> listener = Challenge(lambda run: secret)
    >>> dialler = Introduction(secret, Hello(bytes(16), 7, sender=1, receiver=0))
    >>> listener.receive(dialler.answer(listener.nonce)).generation
    7
    >>> dialler.check(listener.welcome())
    """

    __slots__ = ("_received", "_secret", "_secret_of", "nonce")

    def __init__(self, secret_of: Callable[[bytes], bytes | None]) -> None:
        self.nonce: bytes = os.urandom(NONCE)
        self._secret_of = secret_of
        self._secret: bytes | None = None
        self._received = b""

    @property
    def missing(self) -> int:
        """How many bytes are still to come; never more than a hello has."""
        return _HELLO_SIZE - len(self._received)

    def receive(self, data: bytes) -> Hello | None:
        """Take the next bytes; return who it is once they are all there, and ``None`` before.

        Raises :class:`~timely.errors.AuthenticationError` for one who does not know the secret.
        """
        self._received += data
        if self.missing > 0:
            return None
        magic, run, generation, sender, receiver, _ = _HELLO.unpack_from(self._received)
        self._secret = self._secret_of(run) if magic == _MAGIC else None
        if self._secret is None or self.missing < 0:
            raise AuthenticationError("it does not speak this protocol, or names a run that is not known here")
        spoken, mac = self._received[: _HELLO.size], self._received[_HELLO.size :]
        if not hmac.compare_digest(mac, _mac(self._secret, b"hello", self.nonce, spoken)):
            raise AuthenticationError("it does not know the secret of the run that it names")
        return Hello(run, generation, sender, receiver)

    def welcome(self) -> bytes:
        """Return what admits the one whose hello was received, and proves in turn that we know the secret."""
        if self._secret is None:
            raise AuthenticationError("nobody has been authenticated on this connection yet")
        return _mac(self._secret, b"welcome", self.nonce, self._received)


class Introduction:
    """The dialler's half of one handshake, without a socket; see :class:`Challenge`."""

    __slots__ = ("_expected", "_secret", "_spoken")

    def __init__(self, secret: bytes, hello: Hello) -> None:
        self._secret = secret
        self._spoken: bytes = _HELLO.pack(
            _MAGIC, hello.run, hello.generation, hello.sender, hello.receiver, os.urandom(NONCE)
        )
        self._expected = b""

    def answer(self, nonce: bytes) -> bytes:
        """Return the hello that answers the listener's nonce."""
        hello = self._spoken + _mac(self._secret, b"hello", nonce, self._spoken)
        self._expected = _mac(self._secret, b"welcome", nonce, hello)
        return hello

    def check(self, welcome: bytes) -> None:
        """Raise :class:`~timely.errors.AuthenticationError` unless the listener's welcome shows that it knows the
        secret.
        """
        if not hmac.compare_digest(welcome, self._expected):
            raise AuthenticationError("whoever listens there does not know the secret of this run")


def _mac(secret: bytes, purpose: bytes, nonce: bytes, message: bytes) -> bytes:
    return hmac.digest(secret, b"timely " + purpose + b"\0" + nonce + message, "sha256")


class Reception:
    """Admits to a listener those who know a secret, on a selector that may watch other sockets too.

    Every key of the selector has a function of the ready socket as its data. ``admit(sock, hello, challenge)`` is
    called for each connection that has authenticated itself: it owns the socket from there on, which does not block,
    and decides whether to send the welcome. Strangers are logged and dropped.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        secret_of: Callable[[bytes], bytes | None],
        admit: Callable[[socket.socket, Hello, Challenge], None],
        patience: float = PATIENCE,
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._secret_of = secret_of
        self._admit = admit
        self._patience = patience
        self._waiting: dict[socket.socket, tuple[Challenge, float]] = {}
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:  # gone again already, or too many files open
            _log.warning("a connection could not be accepted: %s", error)
            self._drop_oldest("its place is needed")
            return
        if len(self._waiting) >= _CROWD:
            self._drop_oldest("too many connections wait without having said who they are")
        challenge = Challenge(self._secret_of)
        sock.setblocking(False)
        self._waiting[sock] = (challenge, time.monotonic() + self._patience)
        self._selector.register(sock, selectors.EVENT_READ, self._read)
        try:
            sock.send(challenge.nonce)  # a fresh socket always has room for it
        except OSError as error:
            self._drop(sock, str(error))

    def _read(self, sock: socket.socket) -> None:
        challenge, _ = self._waiting[sock]
        try:
            data = sock.recv(challenge.missing)
            if not data:
                raise AuthenticationError("it went away before it had said who it is")
            hello = challenge.receive(data)
        except BlockingIOError:
            return
        except OSError as error:  # which an AuthenticationError is too
            self._drop(sock, str(error))
            return
        if hello is not None:
            self._forget(sock)
            self._admit(sock, hello, challenge)

    def expire(self) -> None:
        """Drop the connections that have been silent for too long. To be called about once a second."""
        now = time.monotonic()
        for sock, (_, deadline) in list(self._waiting.items()):
            if deadline <= now:
                self._drop(sock, f"it did not say who it is within {self._patience:g} s")

    def close(self) -> None:
        """Stop listening and drop everybody who was not admitted. The listener itself stays open."""
        self._selector.unregister(self._listener)
        for sock in list(self._waiting):
            self._forget(sock)
            sock.close()

    def _drop_oldest(self, reason: str) -> None:
        if self._waiting:
            self._drop(next(iter(self._waiting)), reason)

    def _drop(self, sock: socket.socket, reason: str) -> None:
        self._forget(sock)
        refuse(sock, reason)

    def _forget(self, sock: socket.socket) -> None:
        del self._waiting[sock]
        self._selector.unregister(sock)


def refuse(sock: socket.socket, reason: str) -> None:
    """Close a connection that is not wanted, and log who it was and why."""
    peer = "somebody"
    with contextlib.suppress(OSError):
        peer = "{}:{}".format(*sock.getpeername()[:2])
    _log.warning("refused a connection from %s: %s", peer, reason)
    sock.close()


def open_listener(host: str) -> socket.socket:
    """Return a socket that listens at ``host`` on a free port.

    >>> listener = open_listener("127.0.0.1")
    >>> listener.getsockname()[0]
    '127.0.0.1'
    >>> listener.close()
    """
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=128)


def dial(address: Address, secret: bytes, hello: Hello, deadline: float) -> socket.socket:
    """Return a blocking connection to ``address`` on which both ends have shown that they know ``secret``.

    ``deadline`` is a time of :func:`time.monotonic`. Raises :class:`~timely.errors.AuthenticationError` where whoever
    listens does not know the secret, and :class:`OSError` (:class:`TimeoutError` among them) where nobody answers, or
    where we are refused.
    """
    introduction = Introduction(secret, hello)
    sock = socket.create_connection(address, timeout=_left(deadline))
    try:
        nonce = _read_exactly(sock, NONCE, deadline)
        sock.sendall(introduction.answer(nonce))
        introduction.check(_read_exactly(sock, MAC, deadline))
        return connected(sock)
    except BaseException:
        sock.close()
        raise


def connected(sock: socket.socket) -> socket.socket:
    """Return the socket as the workers use it: blocking, small messages sent at once, dead peers noticed in the end."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _read_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(_left(deadline))
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the connection was closed before the handshake was over")
        data += piece
    return data


def connect_mesh(
    index: int,
    listener: socket.socket,
    addresses: Mapping[int, Address],
    secret: bytes,
    timeout: float = 30.0,
    *,
    run: bytes = bytes(RUN),
    generation: int = 0,
) -> dict[int, socket.socket]:
    """Connect worker ``index`` with every other worker in ``addresses``; return one blocking socket per peer, by its
    index.

    Each worker dials those below it and admits those above it at ``listener``, which stays the caller's. ``timeout``
    is in seconds, for the whole. Raises :class:`~timely.errors.PeerLostError` where a worker cannot be reached in
    time, and :class:`~timely.errors.AuthenticationError` where a stranger sits at its address. Strangers who come to
    us are refused and logged, and delay nobody.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> listeners = [open_listener("127.0.0.1") for _ in range(2)]
    >>> addresses = {i: listener.getsockname() for i, listener in enumerate(listeners)}
    >>> with ThreadPoolExecutor() as pool:
    ...     zero, one = pool.map(lambda i: connect_mesh(i, listeners[i], addresses, bytes(32)), range(2))
    >>> zero[1].send(b"hello"), one[0].recv(5)
    (5, b'hello')
    >>> for sock in (zero[1], one[0], *listeners): sock.close()
    """
    if len(secret) < 16 or len(run) != RUN:
        raise ConfigurationError(f"a mesh needs a secret of at least 16 bytes and a run id of {RUN} bytes")
    deadline = time.monotonic() + timeout
    sockets: dict[int, socket.socket] = {}
    try:
        for peer in sorted(peer for peer in addresses if peer < index):
            sockets[peer] = _dial_peer(addresses[peer], secret, Hello(run, generation, index, peer), deadline)
        _Gate(index, {peer for peer in addresses if peer > index}, run, generation, sockets).run(
            listener, secret, deadline
        )
    except BaseException:
        for sock in sockets.values():
            sock.close()
        raise
    return sockets


def _dial_peer(address: Address, secret: bytes, hello: Hello, deadline: float) -> socket.socket:
    where = f"worker {hello.receiver} at {address[0]}:{address[1]}"
    try:
        return dial(address, secret, hello, deadline)
    except AuthenticationError as error:
        raise AuthenticationError(f"{where}: {error}") from error
    except OSError as error:
        raise PeerLostError(
            f"worker {hello.sender} could not connect to {where}: {error}; it has ended, cannot be reached from here, "
            "or belongs to another attempt of the run"
        ) from error


class _Gate:
    """Admits the workers above one of them, each once."""

    def __init__(
        self, index: int, missing: set[int], run: bytes, generation: int, sockets: dict[int, socket.socket]
    ) -> None:
        self._index = index
        self._missing = missing
        self._run = run
        self._generation = generation
        self._sockets = sockets

    def run(self, listener: socket.socket, secret: bytes, deadline: float) -> None:
        """Admit until nobody is missing; :class:`~timely.errors.PeerLostError` at the deadline."""
        with selectors.DefaultSelector() as selector:
            reception = Reception(selector, listener, lambda run: secret if run == self._run else None, self._admit)
            try:
                while self._missing:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise PeerLostError(
                            f"worker {self._index} waited in vain for worker(s) {sorted(self._missing)} to connect"
                        )
                    for key, _ in selector.select(min(left, 1.0)):
                        if key.fd in selector.get_map():  # a handler before this one may have dropped it
                            key.data(key.fileobj)
                    reception.expire()
            finally:
                reception.close()

    def _admit(self, sock: socket.socket, hello: Hello, challenge: Challenge) -> None:
        if hello.generation != self._generation:
            refuse(
                sock, f"it is of generation {hello.generation} of this run, which is in generation {self._generation}"
            )
        elif hello.receiver != self._index or hello.sender not in self._missing:
            refuse(
                sock, f"worker {hello.sender} wants worker {hello.receiver}, which worker {self._index} does not expect"
            )
        else:
            try:
                sock.sendall(challenge.welcome())
            except OSError as error:
                refuse(sock, str(error))
                return
            self._missing.discard(hello.sender)
            self._sockets[hello.sender] = connected(sock)
