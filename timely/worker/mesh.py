"""Authenticated and encrypted connections among the workers of one run, and the handshake that opens every one of them.

The invariant: nothing that arrives on a connection is interpreted before whoever sent it has shown that it holds the
key that was made for the run, and that it belongs to the same run and the same generation of it; both ends show it.
Until then a connection is good for a TLS handshake and one message of fixed size, within a few seconds, and it holds
up nobody else. A caller may assume that every socket handed out is connected to the worker it is filed under, and
that nobody on the way can read, change, repeat or leave out what goes through it without being noticed.

The connection is TLS 1.3 with a certificate on both sides (:mod:`timely.worker.credentials`). Whoever dials names the
run in the first message already, so that one who cannot is turned away before any key is used; when the handshake is
over it says a *hello* (the run, its generation, who it is and whom it wants), and is admitted or refused.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping

import attrs

from timely.errors import AuthenticationError, ConfigurationError, PeerLostError, file_error_text, out_of_files
from timely.worker import credentials
from timely.worker.credentials import Identity, doorkeeper, speaker

Address = tuple[str, int]
"""A host and a port."""

RUN = 16
"""Bytes of the id of a run."""

PATIENCE = 5.0
"""Seconds that a connection gets to say hello."""

_MAGIC = b"timely-2"
_HELLO = struct.Struct(f"!8s{RUN}sQII")
_WELCOME, _REFUSED = b"welcome!", b"refused!"
_CROWD = 256
_BACKLOG = 512
_TRIES = 6
_PAUSE = 0.05
_REST = 1.0

_log = logging.getLogger(__name__)


@attrs.frozen
class Hello:
    """Who dials, and whom: the run (16 bytes), its generation, and the indices of the worker that dials and of the
    one it wants.

    >>> hello = Hello(bytes(16), 7, sender=1, receiver=0)
    >>> Hello.unpack(hello.pack()) == hello
    True
    """

    run: bytes
    generation: int
    sender: int
    receiver: int

    def pack(self) -> bytes:
        """Return the message of fixed size that says so."""
        return _HELLO.pack(_MAGIC, self.run, self.generation, self.sender, self.receiver)

    @classmethod
    def unpack(cls, said: bytes) -> Hello:
        """Return what was said. :class:`~timely.errors.AuthenticationError` if it is of another protocol."""
        magic, run, generation, sender, receiver = _HELLO.unpack(said)
        if magic != _MAGIC:
            raise AuthenticationError("it does not speak this protocol")
        return cls(run, generation, sender, receiver)


@attrs.define(eq=False)
class _Guest:
    """One who has dialled, from ``where``, and has not said yet who it is."""

    where: str
    deadline: float
    authentic: bool = False
    said: bytes = b""


class Reception:
    """Admits to a listener those who hold the key of a run, on a selector that may watch other sockets too.

    Every key of the selector has a function of the ready socket as its data. ``context_of(run)`` returns the TLS
    settings for a run, always the same ones, and ``None`` for one that is not known. ``admit(sock, hello)`` is called
    for each connection that has authenticated itself: it owns the socket from there on, which does not block, and
    calls :func:`welcome` or :func:`refuse`. Strangers are logged and dropped.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        context_of: Callable[[bytes], ssl.SSLContext | None],
        admit: Callable[[ssl.SSLSocket, Hello], None],
        patience: float = PATIENCE,
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._context_of = context_of
        self._context = doorkeeper(lambda name: context_of(_run_of(name)))
        self._admit = admit
        self._patience = patience
        self._waiting: dict[ssl.SSLSocket, _Guest] = {}
        self._again = 0.0
        """When to listen again, where there was no room for one more connection and nobody to make any; 0 while it listens."""
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        try:
            plain, address = listener.accept()
            plain.setblocking(False)
            _at_once(plain)
        except OSError as error:  # gone again already, or too many files open
            _log.warning("a connection could not be accepted: %s", error)
            if self._waiting:
                self._drop_oldest("its place is needed")
            else:  # it would be ready, and could not be accepted, again and again
                self._selector.unregister(listener)
                self._again = time.monotonic() + _REST
            return
        if len(self._waiting) >= _CROWD:
            self._drop_oldest("too many connections wait without having said who they are")
        where = "{}:{}".format(*address[:2])
        try:
            sock = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            refuse(plain, str(error), where)
            return
        self._waiting[sock] = _Guest(where, time.monotonic() + self._patience)
        self._selector.register(sock, selectors.EVENT_READ, self._advance)

    def _advance(self, sock: ssl.SSLSocket) -> None:
        """Go on with the handshake, and then with the hello, as far as what has arrived allows."""
        guest = self._waiting[sock]
        try:
            if not guest.authentic:
                sock.do_handshake()
                guest.authentic = True
            piece = sock.recv(_HELLO.size - len(guest.said))
            if not piece:
                raise AuthenticationError("it went away before it had said who it is")
            guest.said += piece
            hello = self._check(sock, guest.said) if len(guest.said) == _HELLO.size else None
        except ssl.SSLWantReadError:
            self._selector.modify(sock, selectors.EVENT_READ, self._advance)
        except ssl.SSLWantWriteError:
            self._selector.modify(sock, selectors.EVENT_WRITE, self._advance)
        except (OSError, ValueError) as error:  # an AuthenticationError is one too
            nameless = isinstance(error, ssl.SSLError) and error.reason == "CALLBACK_FAILED"
            self._drop(sock, "it did not name a run that is known here" if nameless else str(error))
        else:
            if hello is not None:
                self._forget(sock)
                self._admit(sock, hello)

    def _check(self, sock: ssl.SSLSocket, said: bytes) -> Hello:
        """Return who it is that has shown to hold the key of the run that it asked for, and no other's."""
        hello = Hello.unpack(said)
        if self._context_of(hello.run) is not sock.context:
            raise AuthenticationError("it holds the key of one run, and names another")
        return hello

    def expire(self) -> None:
        """Drop the connections that have been silent for too long. To be called at least about once a second."""
        now = time.monotonic()
        if self._again and self._again <= now:
            self._again = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for sock, guest in list(self._waiting.items()):
            if guest.deadline <= now:
                self._drop(sock, f"it did not say who it is within {self._patience:g} s")

    def close(self) -> None:
        """Stop listening and drop everybody who was not admitted. The listener itself stays open."""
        if not self._again:
            self._selector.unregister(self._listener)
        for sock in list(self._waiting):
            self._forget(sock)
            sock.close()

    def _drop_oldest(self, reason: str) -> None:
        if self._waiting:
            self._drop(next(iter(self._waiting)), reason)

    def _drop(self, sock: ssl.SSLSocket, reason: str) -> None:
        where = self._waiting[sock].where
        self._forget(sock)
        refuse(sock, reason, where)

    def _forget(self, sock: ssl.SSLSocket) -> None:
        del self._waiting[sock]
        self._selector.unregister(sock)


def _run_of(name: str) -> bytes:
    """Return the run that a name of TLS stands for; nobody's for one that stands for none."""
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""


def welcome(sock: ssl.SSLSocket) -> bool:
    """Admit whoever said hello on this connection; return whether it is still there."""
    try:
        sock.send(_WELCOME)  # a fresh connection always has room for it
    except OSError as error:
        refuse(sock, str(error))
        return False
    return True


def refuse(sock: socket.socket, reason: str, where: str = "", *, known: bool = False) -> None:
    """Close a connection that is not wanted, and log who it was and why. One who is ``known`` holds the run's key, and
    is told that it is refused.
    """
    if not where:
        with contextlib.suppress(OSError):
            where = "{}:{}".format(*sock.getpeername()[:2])
    _log.warning("refused a connection from %s: %s", where or "somebody", reason)
    if known:
        with contextlib.suppress(OSError):
            sock.send(_REFUSED)
    sock.close()


def open_listener(host: str) -> socket.socket:
    """Return a socket that listens at ``host`` on a free port.

    >>> listener = open_listener("127.0.0.1")
    >>> listener.getsockname()[0]
    '127.0.0.1'
    >>> listener.close()
    """
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=_BACKLOG)


def dial(address: Address, context: ssl.SSLContext, hello: Hello, deadline: float) -> ssl.SSLSocket:
    """Return a blocking connection to ``address`` on which both ends have shown that they hold the run's keys.

    ``context`` is from :func:`~timely.worker.credentials.speaker`, ``deadline`` a time of :func:`time.monotonic`.
    Raises :class:`~timely.errors.AuthenticationError` where whoever listens does not hold the key, and
    :class:`OSError` (:class:`TimeoutError` among them) where nobody answers, or where we are refused. One who merely
    hangs up, as a listener does that is crowded, is dialled again a few times.
    """
    for attempt in range(_TRIES):
        try:
            return _dial_once(address, context, hello, deadline)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            pause = _PAUSE * 2**attempt
            if attempt == _TRIES - 1 or _left(deadline) <= pause:
                raise
            time.sleep(pause)
    raise AssertionError("unreachable")


def _dial_once(address: Address, context: ssl.SSLContext, hello: Hello, deadline: float) -> ssl.SSLSocket:
    plain = socket.create_connection(address, timeout=_left(deadline))
    sock = plain
    try:
        _at_once(plain)
        sock = secure = context.wrap_socket(plain, server_hostname=hello.run.hex(), do_handshake_on_connect=False)
        secure.settimeout(_left(deadline))
        secure.do_handshake()
        secure.sendall(hello.pack())
        answer = _read_exactly(secure, len(_WELCOME), deadline)
        if answer == _REFUSED:
            raise ConnectionRefusedError("it does not take this worker in")
        if answer != _WELCOME:
            raise AuthenticationError("whoever listens there does not speak this protocol")
        connected(secure)
        return secure
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise AuthenticationError("whoever listens there does not hold the key of this run") from error
    except BaseException:
        sock.close()
        raise


def connected(sock: socket.socket) -> None:
    """Have the socket be as the workers use it: blocking, small messages sent at once, dead machines noticed in the end."""
    sock.settimeout(None)
    _at_once(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _at_once(sock: socket.socket) -> None:
    """Have small messages be sent at once, and not wait for the other end to say that it has the ones before, which it does
    after 40 ms. The handshake has two in a row already.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _read_exactly(sock: ssl.SSLSocket, size: int, deadline: float) -> bytes:
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
    identity: Identity,
    timeout: float = 30.0,
    *,
    run: bytes = bytes(RUN),
    generation: int = 0,
) -> dict[int, ssl.SSLSocket]:
    """Connect worker ``index`` with every other worker in ``addresses``; return one blocking socket per peer, by its
    index.

    ``identity`` is that of all workers of the run. Each worker dials those below it and admits those above it at
    ``listener``, which stays the caller's. ``timeout`` is in seconds, for the whole. Raises
    :class:`~timely.errors.PeerLostError` where a worker cannot be reached in time, and
    :class:`~timely.errors.AuthenticationError` where a stranger sits at its address. Strangers who come to us are
    refused and logged, and delay nobody.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from timely.worker.credentials import make_identity
    >>> listeners = [open_listener("127.0.0.1") for _ in range(2)]
    >>> addresses = {i: listener.getsockname() for i, listener in enumerate(listeners)}
    >>> workers = make_identity("worker")
    >>> with ThreadPoolExecutor() as pool:
    ...     zero, one = pool.map(lambda i: connect_mesh(i, listeners[i], addresses, workers), range(2))
    >>> zero[1].send(b"hello"), one[0].recv(5)
    (5, b'hello')
    >>> for sock in (zero[1], one[0], *listeners): sock.close()
    """
    if len(run) != RUN:
        raise ConfigurationError(f"a mesh needs a run id of {RUN} bytes; this one has {len(run)}")
    deadline = time.monotonic() + timeout
    sockets: dict[int, ssl.SSLSocket] = {}
    try:
        context = speaker(identity, identity.certificate)
        for peer in sorted(peer for peer in addresses if peer < index):
            sockets[peer] = _dial_peer(addresses[peer], context, Hello(run, generation, index, peer), deadline)
        _Gate(index, {peer for peer in addresses if peer > index}, run, generation, sockets).run(
            listener, identity, deadline
        )
    except BaseException:
        for sock in sockets.values():
            sock.close()
        raise
    return sockets


def _dial_peer(address: Address, context: ssl.SSLContext, hello: Hello, deadline: float) -> ssl.SSLSocket:
    where = f"worker {hello.receiver} at {address[0]}:{address[1]}"
    try:
        return dial(address, context, hello, deadline)
    except AuthenticationError as error:
        raise AuthenticationError(f"{where}: {error}") from error
    except OSError as error:
        others = "; it has ended, cannot be reached from here, or belongs to another attempt of the run"
        raise PeerLostError(
            f"worker {hello.sender} could not connect to {where}: {file_error_text(error)}{'' if out_of_files(error) else others}"
        ) from error


class _Gate:
    """Admits the workers above one of them, each once."""

    def __init__(
        self, index: int, missing: set[int], run: bytes, generation: int, sockets: dict[int, ssl.SSLSocket]
    ) -> None:
        self._index = index
        self._missing = missing
        self._run = run
        self._generation = generation
        self._sockets = sockets

    def run(self, listener: socket.socket, identity: Identity, deadline: float) -> None:
        """Admit until nobody is missing; :class:`~timely.errors.PeerLostError` at the deadline."""
        context = credentials.listener(identity, identity.certificate)
        with selectors.DefaultSelector() as selector:
            reception = Reception(selector, listener, lambda run: context if run == self._run else None, self._admit)
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

    def _admit(self, sock: ssl.SSLSocket, hello: Hello) -> None:
        if hello.run != self._run or hello.generation != self._generation:
            refuse(
                sock,
                f"it is of generation {hello.generation} of this run, which is in generation {self._generation}",
                known=True,
            )
        elif hello.receiver != self._index or hello.sender not in self._missing:
            refuse(
                sock,
                f"worker {hello.sender} wants worker {hello.receiver}, which worker {self._index} does not expect",
                known=True,
            )
        elif welcome(sock):
            self._missing.discard(hello.sender)
            self._sockets[hello.sender] = sock
            connected(sock)
