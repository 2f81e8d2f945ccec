"""Authenticated and encrypted connections among the workers of one run, and the handshake that opens each.

Invariant: nothing that arrives is interpreted before its sender has proved that it holds the run's key and belongs to the same
generation of the run; both ends prove it. Until then a connection gets a TLS handshake and one message of fixed size, within
seconds, and delays nobody. The connection is TLS 1.3 with a certificate on both sides; its server name is the run. Then the
dialler sends a *hello*, and is admitted or refused. On Spark the driver distributes the keys; hosts share a credentials file.
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
"""Seconds that a connection has to send its hello."""

_MAGIC = b"timely-2"
_HELLO = struct.Struct(f"!8s{RUN}sQII")
_WELCOME, _REFUSED = b"welcome!", b"refused!"
_CROWD = 256
_BACKLOG = 512
_TRIES = 6
_PAUSE = 0.05
_REST = 1.0
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Keep-alive: an idle connection to a machine that has vanished ends after a minute. The systems' default is two hours."""

_log = logging.getLogger(__name__)


@attrs.frozen
class Hello:
    """The run (16 bytes), its generation, the worker that dials and the one it wants."""

    run: bytes
    generation: int
    sender: int
    receiver: int

    def pack(self) -> bytes:
        """Return the message, of fixed size."""
        return _HELLO.pack(_MAGIC, self.run, self.generation, self.sender, self.receiver)

    @classmethod
    def unpack(cls, message: bytes) -> Hello:
        """Return the hello of a message. ``AuthenticationError`` if it is of another protocol."""
        magic, run, generation, sender, receiver = _HELLO.unpack(message)
        if magic != _MAGIC:
            raise AuthenticationError("it does not speak this protocol")
        return cls(run, generation, sender, receiver)


@attrs.define(eq=False)
class _Pending:
    """A connection from ``where`` whose hello is not complete."""

    where: str
    deadline: float
    authentic: bool = False
    received: bytes = b""


class Reception:
    """Accepts the connections of those who hold the key of a run, on a selector that may watch other sockets too.

    Every key of the selector has a function of the ready socket as its data. ``context_of(run)`` returns the TLS settings of a
    run, always the same, ``None`` for an unknown one. ``admit(sock, hello)`` owns each authenticated socket, which does not
    block, and calls ``welcome`` or ``refuse``. Others are logged and dropped.
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
        self._waiting: dict[ssl.SSLSocket, _Pending] = {}
        self._again = 0.0
        """When to listen again after a failed accept; 0 while it listens."""
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        try:
            plain, address = listener.accept()
            plain.setblocking(False)
            _at_once(plain)
        except OSError as error:  # already closed, or too many open files
            _log.warning("a connection could not be accepted: %s", error)
            if self._waiting:
                self._drop_oldest("its place is needed")
            else:  # it would stay ready, and fail again at once
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
        self._waiting[sock] = _Pending(where, time.monotonic() + self._patience)
        self._selector.register(sock, selectors.EVENT_READ, self._advance)

    def _advance(self, sock: ssl.SSLSocket) -> None:
        """Continue the handshake, then the hello, as far as what has arrived allows."""
        pending = self._waiting[sock]
        try:
            if not pending.authentic:
                sock.do_handshake()
                pending.authentic = True
            piece = sock.recv(_HELLO.size - len(pending.received))
            if not piece:
                raise AuthenticationError("it went away before it had said who it is")
            pending.received += piece
            hello = self._check(sock, pending.received) if len(pending.received) == _HELLO.size else None
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

    def _check(self, sock: ssl.SSLSocket, message: bytes) -> Hello:
        """Return the hello, if it names the run whose key the connection has proved to hold."""
        hello = Hello.unpack(message)
        if self._context_of(hello.run) is not sock.context:
            raise AuthenticationError("it holds the key of one run, and names another")
        return hello

    def serve(self, seconds: float) -> None:
        """Handle what is ready within so many seconds, and drop what has timed out."""
        for key, _ in self._selector.select(seconds):
            if key.fd in self._selector.get_map():  # a handler before this one may have dropped it
                key.data(key.fileobj)
        self.expire()

    def expire(self) -> None:
        """Drop the connections that have timed out. Call it about once a second."""
        now = time.monotonic()
        if self._again and self._again <= now:
            self._again = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for sock, pending in list(self._waiting.items()):
            if pending.deadline <= now:
                self._drop(sock, f"it did not say who it is within {self._patience:g} s")

    def close(self) -> None:
        """Stop listening, and drop what was not admitted. The listener itself stays open."""
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
    """Return the run that a TLS server name stands for, else ``b""``."""
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""


def welcome(sock: ssl.SSLSocket) -> bool:
    """Admit a connection; return whether it is still there."""
    try:
        sock.send(_WELCOME)  # a fresh connection always has room for it
    except OSError as error:
        refuse(sock, str(error))
        return False
    return True


def refuse(sock: socket.socket, reason: str, where: str = "", *, known: bool = False) -> None:
    """Close a connection, and log why. ``known``: it holds the run's key, and receives the refusal."""
    if not where:
        with contextlib.suppress(OSError):
            where = "{}:{}".format(*sock.getpeername()[:2])
    _log.warning("refused a connection from %s: %s", where or "somebody", reason)
    if known:
        with contextlib.suppress(OSError):
            sock.send(_REFUSED)
    sock.close()


def open_listener(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at ``host`` on a port, by default on a free one."""
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def dial(address: Address, context: ssl.SSLContext, hello: Hello, deadline: float) -> ssl.SSLSocket:
    """Return a blocking connection to ``address`` on which both ends have shown that they hold the run's keys.

    ``context`` is from ``credentials.speaker``, ``deadline`` a time of ``time.monotonic``. ``AuthenticationError`` if the
    listener does not hold the key; ``OSError`` (``TimeoutError`` among them) if there is no answer or the dialler is refused. A
    connection that is merely closed, as a crowded listener does, is tried again a few times.
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
        answer = read_exactly(secure, len(_WELCOME), deadline)
        if answer == _REFUSED:
            raise ConnectionRefusedError("it does not take this worker in")
        if answer != _WELCOME:
            raise AuthenticationError("the listener there does not speak this protocol")
        connected(secure)
        return secure
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise AuthenticationError("whoever listens there does not hold the key of this run") from error
    except BaseException:
        sock.close()
        raise


def connected(sock: socket.socket) -> None:
    """Set the socket up for workers: blocking, without delay, with keep-alive."""
    sock.settimeout(None)
    _at_once(sock)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _at_once(sock: socket.socket) -> None:
    """Send small messages without waiting for acknowledgements, which take 40 ms; the handshake has two in a row."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def read_exactly(sock: ssl.SSLSocket, size: int, deadline: float) -> bytes:
    """Return ``size`` bytes. ``TimeoutError`` at the deadline, ``ConnectionResetError`` if the connection ends first."""
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
    """Connect worker ``index`` with every other worker in ``addresses``; return one blocking socket per peer, by index.

    All workers share ``identity``. Each dials those below it and admits those above it at ``listener``, which stays open, within
    ``timeout`` seconds in all. ``PeerLostError`` if a worker cannot be reached in time, ``AuthenticationError`` if something else
    listens at its address.
    """
    if len(run) != RUN:
        raise ConfigurationError(f"a mesh needs a run id of {RUN} bytes; this one has {len(run)}")
    deadline = time.monotonic() + timeout
    missing = {peer for peer in addresses if peer > index}
    sockets: dict[int, ssl.SSLSocket] = {}

    def admit(sock: ssl.SSLSocket, hello: Hello) -> None:
        if hello.run != run or hello.generation != generation:
            reason = f"it is of generation {hello.generation} of this run, which is in generation {generation}"
            refuse(sock, reason, known=True)
        elif hello.receiver != index or hello.sender not in missing:
            reason = f"worker {hello.sender} wants worker {hello.receiver}, which worker {index} does not expect"
            refuse(sock, reason, known=True)
        elif welcome(sock):
            missing.discard(hello.sender)
            sockets[hello.sender] = sock
            connected(sock)

    try:
        context = speaker(identity, identity.certificate)
        for peer in sorted(peer for peer in addresses if peer < index):
            sockets[peer] = _dial_peer(addresses[peer], context, Hello(run, generation, index, peer), deadline)
        accepting = credentials.listener(identity, identity.certificate)
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            reception = Reception(selector, listener, lambda name: accepting if name == run else None, admit)
            stack.callback(reception.close)
            while missing:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerLostError(f"worker {index} waited in vain for worker(s) {sorted(missing)} to connect")
                reception.serve(min(left, 1.0))
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
