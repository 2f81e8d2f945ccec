"""Where the workers of a run find each other, and tell the driver what went wrong.

The driver's process runs one small server. Every attempt of a barrier stage is a *generation* of its run: its workers
dial in, authenticate themselves with the run's secret, say where they listen, and are told the addresses of all once
all are there. The connection stays open: a worker reports its first error on it, and is told to stop when another one
failed or when a newer attempt has taken over. The invariant: addresses are only ever handed out to workers of one and
the same generation, and never again to one that is older than the newest seen. A caller may assume that every wait
ends, in an answer or in a :class:`~timely.errors.SparkError`.

A run is known as long as the driver's process lives, because its DataFrames are lazy and may be asked for again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import selectors
import socket
import struct
import threading
import time
import traceback
from multiprocessing import connection
from typing import Any

import attrs

from timely import errors
from timely.errors import AuthenticationError, OperatorError, SparkError, TimelyError, WorkerError
from timely.worker.mesh import RUN, Address, Challenge, Hello, Reception, connected, dial, open_listener, refuse

DRIVER = 0xFFFF_FFFF
"""What the driver goes by where the index of a worker stands."""

_FRAME = struct.Struct("!I")
_LARGEST = 65_536
_LONGEST = {"message": 4_096, "name": 512, "path": 512, "trace": 8_192}
"""Characters of each text of an error that are told; of a traceback the last ones. All of them fit into one frame."""

_log = logging.getLogger(__name__)


@attrs.frozen
class Invitation:
    """What a worker must know to take part in a run; it travels to the tasks with the function they run."""

    address: Address
    run: bytes
    secret: bytes = attrs.field(repr=False)
    workers: int


def describe(error: BaseException, worker: int) -> dict[str, Any]:
    """Return what is told of an error to others: plain values, of bounded size.

    >>> describe(ValueError("no"), 3)["message"]
    'worker 3 raised ValueError: no'
    """
    known = isinstance(error, TimelyError)
    message = str(error) if known else f"worker {worker} raised {type(error).__name__}: {error}"
    operator = error if isinstance(error, OperatorError) else OperatorError("", worker=worker)
    return {
        "type": type(error).__name__ if known else WorkerError.__name__,
        "message": message[: _LONGEST["message"]],
        "name": operator.name[: _LONGEST["name"]],
        "path": operator.path[: _LONGEST["path"]],
        "trace": trace_of(error),
        "worker": operator.worker,
    }


def trace_of(error: BaseException) -> str:
    """Return the end of the traceback of what caused an error, which is where a user's function raised; empty if
    nothing did.
    """
    cause = error.__cause__
    return "" if cause is None else "".join(traceback.format_exception(cause))[-_LONGEST["trace"] :]


def revive(told: dict[str, Any]) -> TimelyError:
    """Return the error that was told, the traceback of its cause as a note.

    One of a class that is not known here becomes a :class:`~timely.errors.WorkerError`.

    >>> revive(describe(OperatorError("it failed", "map", "[0, 1]", 2), 2)).path
    '[0, 1]'
    """
    kind = getattr(errors, str(told["type"]), WorkerError)
    error: TimelyError
    if kind is OperatorError:
        error = OperatorError(told["message"], told["name"], told["path"], told["worker"])
    elif isinstance(kind, type) and issubclass(kind, TimelyError):
        error = kind(told["message"])
    else:
        error = WorkerError(told["message"])
    if told["trace"]:
        error.add_note(told["trace"])
    return error


class _Frames:
    """JSON values on a connection, each after its length; reads are bounded."""

    __slots__ = ("_buffer", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.sock.sendall(_FRAME.pack(len(data)) + data)

    def read(self) -> list[dict[str, Any]]:
        """Receive once; return the whole frames there are. Raises EOFError at the end, OSError, ValueError for
        nonsense.
        """
        data = self.sock.recv(_LARGEST)
        if not data:
            raise EOFError
        self._buffer += data
        return self._complete()

    def _complete(self) -> list[dict[str, Any]]:
        frames = []
        while len(self._buffer) >= _FRAME.size:
            (size,) = _FRAME.unpack_from(self._buffer)
            if size > _LARGEST:
                raise ValueError(f"a message of {size} bytes was announced; {_LARGEST} is the most")
            end = _FRAME.size + size
            if len(self._buffer) < end:
                break
            frames.append(json.loads(bytes(self._buffer[_FRAME.size : end])))
            del self._buffer[:end]
        return frames


@attrs.define(eq=False)
class _Member:
    """One worker of one generation, as the driver sees it."""

    frames: _Frames
    run: Run
    index: int
    generation: int
    stage: int = -1
    address: Address | None = None
    finished: bool = False

    def tell(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # whoever is gone need not be told
            self.frames.send(value)


@attrs.define(eq=False)
class _Group:
    """The workers of one stage's newest attempt."""

    generation: int
    members: dict[int, _Member] = attrs.field(factory=dict)
    stopped: bool = False

    def stop(self, why: dict[str, Any]) -> None:
        """Tell everybody, once, that this generation is over."""
        if not self.stopped:
            self.stopped = True
            for member in self.members.values():
                if not member.finished:
                    member.tell({"stop": why})


@attrs.define(eq=False)
class Run:
    """One run as the driver knows it: its id, its secret, and what it failed of last."""

    id: bytes
    secret: bytes = attrs.field(repr=False)
    workers: int
    failure: TimelyError | None = None
    _groups: dict[int, _Group] = attrs.field(factory=dict, repr=False)

    def join(self, member: _Member) -> None:
        """Take in a worker that has said where it listens; when the last one has come, tell all where all are."""
        group = self._groups.get(member.stage)
        if group is None or group.generation < member.generation:
            if group is not None:
                group.stop(_told("a newer attempt of this stage has taken over"))
            group = self._groups[member.stage] = _Group(member.generation)
        if group.generation > member.generation or member.index in group.members or member.index >= self.workers:
            member.tell({"stop": _told("a newer attempt of this stage has taken over")})
            return
        group.members[member.index] = member
        if group.stopped:  # before it was complete, so that it never will be
            member.tell({"stop": _told("another worker of this attempt has already gone away")})
        elif len(group.members) == self.workers:
            _log.info("generation %d of run %s is complete", group.generation, self.id.hex())
            peers = [group.members[index].address for index in range(self.workers)]
            for each in group.members.values():
                each.tell({"peers": peers})

    def fail(self, member: _Member, told: dict[str, Any]) -> None:
        """Keep the first error of a generation, and tell it to the others."""
        group = self._groups.get(member.stage)
        if group is not None and group.members.get(member.index) is member and not group.stopped:
            self.failure = revive(told)
            group.stop(told)

    def leave(self, member: _Member) -> None:
        """Note that a worker's connection has ended: the end of the others too, unless it had finished."""
        group = self._groups.get(member.stage)
        if group is None or group.members.get(member.index) is not member:
            return
        if not member.finished:
            group.stop(_told(f"worker {member.index} has gone away"))
        del group.members[member.index]


def _told(message: str) -> dict[str, Any]:
    return describe(errors.PeerLostError(message), -1)


class Rendezvous:
    """The driver's server: runs by their id, and the workers that dial in. One daemon thread serves all.

    >>> server = Rendezvous("127.0.0.1", "127.0.0.1")
    >>> run = server.open_run(1)
    >>> with Registration(server.invitation(run), index=0, generation=5, stage=1) as worker:
    ...     worker.peers(("127.0.0.1", 4000))
    {0: ('127.0.0.1', 4000)}
    >>> server.close()
    """

    def __init__(self, bind: str, host: str) -> None:
        try:
            self._listener = open_listener(bind)
        except OSError as error:
            raise SparkError(
                f"the driver cannot listen at {bind} for its workers: {error}. Set spark.driver.bindAddress to an "
                "address of this machine"
            ) from error
        self.address: Address = (host, self._listener.getsockname()[1])
        self._runs: dict[bytes, Run] = {}
        self._selector = selectors.DefaultSelector()
        self._reception = Reception(self._selector, self._listener, self._secret_of, self._admit)
        self._closing = False
        self._members: dict[socket.socket, _Member] = {}
        self._thread = threading.Thread(target=self._serve, name="timely-rendezvous", daemon=True)
        self._thread.start()

    def open_run(self, workers: int) -> Run:
        """Return a new run of so many workers, with an id and a secret of its own."""
        run = Run(secrets.token_bytes(RUN), secrets.token_bytes(32), workers)
        self._runs[run.id] = run
        return run

    def invitation(self, run: Run) -> Invitation:
        """Return what the run's workers need to know."""
        return Invitation(self.address, run.id, run.secret, run.workers)

    def close(self) -> None:
        """End the server and every connection to it."""
        self._closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()[:2], timeout=1).close()
        self._thread.join()

    def _secret_of(self, run: bytes) -> bytes | None:
        known = self._runs.get(run)
        return None if known is None else known.secret

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(1.0):
                if key.fd in self._selector.get_map():  # a handler before this one may have dropped it
                    key.data(key.fileobj)
            self._reception.expire()
        self._reception.close()
        for sock in (*self._members, self._listener):
            sock.close()
        self._selector.close()

    def _admit(self, sock: socket.socket, hello: Hello, challenge: Challenge) -> None:
        if hello.receiver != DRIVER:
            refuse(sock, "it wants a worker, and this is the driver")
            return
        try:
            sock.sendall(challenge.welcome())
        except OSError as error:
            refuse(sock, str(error))
            return
        self._members[sock] = _Member(_Frames(sock), self._runs[hello.run], hello.sender, hello.generation)
        self._selector.register(sock, selectors.EVENT_READ, self._hear)

    def _hear(self, sock: socket.socket) -> None:
        member = self._members[sock]
        try:
            for frame in member.frames.read():
                _act(member, frame)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._forget(member)
        except (ValueError, TypeError, KeyError) as error:
            _log.warning("worker %d said something that makes no sense: %r", member.index, error)
            self._forget(member)

    def _forget(self, member: _Member) -> None:
        sock = member.frames.sock
        del self._members[sock]
        self._selector.unregister(sock)
        sock.close()
        member.run.leave(member)


def _act(member: _Member, frame: dict[str, Any]) -> None:
    """Do what a worker's message asks for."""
    if "join" in frame:
        host, port = frame["join"]["address"]
        member.stage, member.address = int(frame["join"]["stage"]), (str(host), int(port))
        member.run.join(member)
    elif "error" in frame:
        member.run.fail(member, frame["error"])
    elif "done" in frame:
        member.finished = True


_servers: dict[tuple[str, str], Rendezvous] = {}
_servers_lock = threading.Lock()


def rendezvous(bind: str, host: str) -> Rendezvous:
    """Return this process's server that listens at ``bind`` and is reached at ``host``; started when first needed."""
    with _servers_lock:
        server = _servers.get((bind, host))
        if server is None:
            server = _servers[bind, host] = Rendezvous(bind, host)
        return server


class Registration:
    """A worker's connection to the driver, as a context manager: :meth:`peers` first; then :meth:`report`,
    :meth:`stopped`, :meth:`done`.

    Raises :class:`~timely.errors.SparkError` where the driver cannot be reached within ``timeout`` seconds, and
    :class:`~timely.errors.AuthenticationError` where somebody else answers.
    """

    def __init__(
        self, invitation: Invitation, *, index: int, generation: int, stage: int, timeout: float = 120.0
    ) -> None:
        self._index = index
        self._stage = stage
        self._workers = invitation.workers
        self._deadline = time.monotonic() + timeout
        where = "{}:{}".format(*invitation.address)
        hello = Hello(invitation.run, generation, index, DRIVER)
        try:
            sock = dial(invitation.address, invitation.secret, hello, self._deadline)
        except AuthenticationError as error:
            raise AuthenticationError(f"the driver at {where}: {error}") from error
        except OSError as error:
            raise SparkError(
                f"worker {index} cannot reach the driver at {where}: {error}. Executors must be able to connect to "
                "the driver's machine: see spark.driver.host and spark.driver.bindAddress"
            ) from error
        self._frames = _Frames(connected(sock))
        self._stop: TimelyError | None = None
        self._peers: dict[int, Address] | None = None
        self.host: str = sock.getsockname()[0]

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.sock.close()

    def peers(self, address: Address) -> dict[int, Address]:
        """Say that this worker listens at ``address``; return where every worker of the generation listens, by index.

        Raises :class:`~timely.errors.SparkError` where they do not all come in time, and what the others failed of
        where they did.
        """
        self._send({"join": {"stage": self._stage, "address": list(address)}})
        while self._peers is None:
            self._listen(max(self._deadline - time.monotonic(), 0.0))
            if self._stop is not None:
                raise self._stop
            if self._peers is None and time.monotonic() >= self._deadline:
                raise SparkError(
                    f"worker {self._index} waited in vain for the other {self._workers - 1} workers of this stage to "
                    "start. Spark runs them all at the same time or not at all, so the executors' logs "
                    "must say what keeps the others"
                )
        return self._peers

    def report(self, error: BaseException) -> None:
        """Tell the driver, and through it the other workers, what this worker failed of."""
        self._send({"error": describe(error, self._index)})

    def done(self) -> None:
        """Tell the driver that this worker has finished, so that its leaving is no loss."""
        self._send({"done": True})

    def stopped(self, wait: float = 0.0) -> TimelyError | None:
        """Return what the run failed of, as far as it has been told within ``wait`` seconds; ``None`` while nothing
        has.
        """
        deadline = time.monotonic() + wait
        while self._stop is None:
            left = max(deadline - time.monotonic(), 0.0)
            if not self._listen(left) and left == 0.0:
                break
        return self._stop

    def _listen(self, wait: float) -> bool:
        """Take in what the driver says within ``wait`` seconds; return whether it said something."""
        if not connection.wait([self._frames.sock], wait):
            return False
        try:
            frames = self._frames.read()
        except (EOFError, OSError):
            self._stop = self._stop or SparkError("the connection to the driver has ended")
            return True
        for frame in frames:
            if "stop" in frame and self._stop is None:
                self._stop = revive(frame["stop"])
            elif "peers" in frame:
                self._peers = {index: (host, port) for index, (host, port) in enumerate(frame["peers"])}
        return True

    def _send(self, value: dict[str, Any]) -> None:
        try:
            self._frames.send(value)
        except OSError:
            self._stop = self._stop or SparkError("the connection to the driver has ended")
