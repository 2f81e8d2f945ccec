"""Where the workers of a run find each other, and what they and the driver tell each other on the way.

The driver's process runs one small server. Every attempt of a barrier stage is a *generation* of its run: its workers
dial in, show that they hold the key that was made for the run, say where they listen, and are told the addresses of
all once all are there. The connection stays open: a worker reports its first error on it, and is told to stop when
another one failed or when a newer attempt has taken over; and both sides may tell each other what they like
(:meth:`Registration.tell`, :meth:`Run.send`). The invariant: addresses are only ever handed out to workers of one and
the same generation, and never again to one that is older than the newest seen. A caller may assume that every wait
ends, in an answer or in a :class:`~timely.errors.SparkError`; and that a worker that hangs, or a driver that does, is
found out: each end says every second that it is alive, from a thread of its own.

A run is known as long as the driver's process lives, because its DataFrames are lazy and may be asked for again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import selectors
import socket
import ssl
import struct
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from timely import errors
from timely.errors import AuthenticationError, ConfigurationError, OperatorError, SparkError, TimelyError, WorkerError
from timely.worker import credentials
from timely.worker.credentials import Identity, make_identity
from timely.worker.mesh import RUN, Address, Hello, Reception, dial, open_listener, refuse, welcome
from timely.worker.transport import WOULD_BLOCK
from timely.worker.wire import LARGEST as LARGEST_FRAME

DRIVER = 0xFFFF_FFFF
"""What the driver goes by where the index of a worker stands."""

LARGEST = 1 << 20
"""Bytes of the longest message that is sent between a worker and the driver."""

SILENT = "silent"
"""The kind of message that those who listen for it (:meth:`Run.listen`) get from the server: a worker has been declared gone."""

SILENCE = 30.0
"""Seconds of silence after which a worker is declared gone, and a driver too."""

Callback = Callable[[int, int, dict[str, Any]], None]
"""What hears messages of one kind: ``callback(worker, generation, content)``."""

_FRAME = struct.Struct("!I")
_CHUNK = 65_536
_MOST_WAITING = 64 << 20
_LAST_WORDS = 5.0
_LONGEST = {"message": 4_096, "name": 512, "path": 512, "trace": 8_192}
"""Characters of each text of an error that are told; of a traceback the last ones. All of them fit into one frame."""

_log = logging.getLogger(__name__)


@attrs.frozen
class Invitation:
    """What a worker must know to take part in a run; it travels to the tasks with the function they run.

    ``identity`` is that of all workers of the run, with its key; ``driver`` is the certificate of the driver, whose
    key stays there, so that nobody who gets hold of an invitation can pose as the driver. ``patience`` is in seconds.
    """

    address: Address
    run: bytes
    identity: Identity = attrs.field(repr=False)
    driver: bytes = attrs.field(repr=False)
    workers: int
    patience: float = SILENCE
    largest: int = LARGEST_FRAME
    """Bytes of the largest message between two workers."""


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
    else:
        try:
            error = kind(told["message"]) if issubclass(kind, TimelyError) else WorkerError(told["message"])
        except TypeError:  # no class, or one that needs more than a message
            error = WorkerError(told["message"])
    if told["trace"]:
        error.add_note(told["trace"])
    return error


def _framed(value: dict[str, Any]) -> bytes:
    """Return a message as it goes over the connection. :class:`~timely.errors.ConfigurationError` if it cannot."""
    try:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"what workers and driver tell each other must be plain JSON values: {error}") from error
    if len(data) > LARGEST:
        raise ConfigurationError(
            f"a message of {len(data)} bytes is too long to be told between a worker and the driver; {LARGEST} is the "
            "most: write it to a file that both can reach, and tell its name"
        )
    return _FRAME.pack(len(data)) + data


class _Frames:
    """JSON values on a connection, each after its length. Never waits; reads, and what waits to be sent, are bounded."""

    __slots__ = ("_buffer", "_leaving", "_out", "sock")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._buffer = bytearray()
        self._out = bytearray()
        self._leaving = b""

    @property
    def backlog(self) -> int:
        """How many bytes wait for the other side to take them."""
        return len(self._out) + len(self._leaving)

    def put(self, frame: bytes) -> None:
        """Have a frame sent with the next flush. OSError where too much waits already."""
        if self.backlog > _MOST_WAITING:
            raise ConnectionAbortedError("does not take what it is told")
        self._out += frame

    def flush(self) -> None:
        """Send as much as goes now. OSError where the connection has ended."""
        while self._leaving or self._out:
            if not self._leaving:  # TLS insists on getting the very same bytes again after it could not go on
                self._leaving = bytes(self._out[:_CHUNK])
                del self._out[:_CHUNK]
            try:
                sent = self.sock.send(self._leaving)
            except WOULD_BLOCK:
                return
            self._leaving = self._leaving[sent:]

    def read(self) -> list[dict[str, Any]]:
        """Receive once; return the whole frames there are, none if there is nothing. Raises EOFError at the end,
        OSError, ValueError for nonsense.
        """
        try:
            data = self.sock.recv(_CHUNK)  # more than a record of TLS has, so that none stays behind half read
        except WOULD_BLOCK:
            return []
        if not data:
            raise EOFError
        self._buffer += data
        return self._complete()

    def _complete(self) -> list[dict[str, Any]]:
        frames = []
        while len(self._buffer) >= _FRAME.size:
            (size,) = _FRAME.unpack_from(self._buffer)
            if size > LARGEST:
                raise ValueError(f"a message of {size} bytes was announced; {LARGEST} is the most")
            end = _FRAME.size + size
            if len(self._buffer) < end:
                break
            frames.append(json.loads(bytes(self._buffer[_FRAME.size : end])))
            del self._buffer[:end]
        return frames


class _Pulse:
    """Says when to give a sign of life, and how long the other side has gone without one.

    Time in which this process itself was held up is nobody else's silence, and is not counted.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval: float = min(1.0, patience / 4)
        self._clock = clock
        self._seen = clock()
        self._excused = 0.0

    def beat(self) -> float:
        """Note that this process is alive; to be called every ``interval``. Return the time that counts."""
        now = self._clock()
        held_up = now - self._seen - self.interval
        self._seen = now
        if held_up > self.interval:
            self._excused += held_up
        return now - self._excused


# -- the driver's side -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Member:
    """One worker of one generation, as the driver sees it."""

    frames: _Frames
    run: Run
    index: int
    generation: int
    heard: float
    stage: int = -1
    address: Address | None = None
    place: str = "it never said where it is"
    finished: bool = False
    lost: str = ""

    def tell(self, value: dict[str, Any]) -> None:
        """Send what goes now; the server sends the rest."""
        self.put(_framed(value))

    def put(self, frame: bytes) -> None:
        try:
            self.frames.put(frame)
        except OSError as error:  # nothing is left out of what a worker is told: it hears all, or is given up
            self.lost = str(error)
        else:
            self.flush()

    def flush(self) -> None:
        with contextlib.suppress(OSError):  # whoever is gone will be found to be gone, after what it has said before
            self.frames.flush()


@attrs.define(eq=False)
class _Group:
    """The workers of one stage's newest attempt."""

    generation: int
    members: dict[int, _Member] = attrs.field(factory=dict)
    stopped: bool = False

    @property
    def is_live(self) -> bool:
        """Whether any of its workers is at work."""
        return not self.stopped and any(not member.finished for member in self.members.values())

    def stop(self, why: dict[str, Any]) -> None:
        """Tell everybody, once, that this generation is over."""
        if not self.stopped:
            self.stopped = True
            for member in self.members.values():
                if not member.finished:
                    member.tell({"stop": why})


@attrs.define(eq=False)
class Run:
    """One run as the driver knows it: its id, its keys, what it failed of last, and a way to talk with its workers."""

    id: bytes
    workers: int
    patience: float
    driver: Identity = attrs.field(repr=False)
    identity: Identity = attrs.field(repr=False)
    context: ssl.SSLContext = attrs.field(repr=False)
    place: str | None = None
    largest: int = LARGEST_FRAME
    failure: TimelyError | None = None
    _runs: Mapping[bytes, Run] = attrs.field(factory=dict, repr=False)
    _call: Callable[[Callable[[], None]], None] = attrs.field(default=lambda action: None, repr=False)
    _groups: dict[int, _Group] = attrs.field(factory=dict, repr=False)
    _listeners: dict[str, list[Callback]] = attrs.field(factory=dict, repr=False)

    # What any thread may call. Reading the dictionaries is safe beside the one thread that changes them.

    @property
    def generation(self) -> int | None:
        """The newest generation all of whose workers have come and none has gone; ``None`` while there is none."""
        group = self._newest()
        return None if group is None or group.stopped or len(group.members) < self.workers else group.generation

    def listen(self, kind: str, callback: Callback) -> None:
        """Have ``callback(worker, generation, content)`` called for each message of this kind that a worker tells.

        It is called on the server's thread, which serves all runs: it must not wait. What it raises is logged.
        """
        self._listeners.setdefault(kind, []).append(callback)

    def send(self, index: int, kind: str, content: dict[str, Any]) -> bool:
        """Send a message to one worker of the newest generation of the run; return whether there is such a worker now.

        Messages to one worker arrive in the order in which they were sent. :class:`~timely.errors.ConfigurationError`
        for content that is not JSON, or longer than ``LARGEST``.
        """
        frame = _framed({"say": kind, "content": content})
        group = self._newest()
        member = None if group is None or group.stopped else group.members.get(index)
        if member is None or member.finished:
            return False
        self._call(lambda: member.put(frame))
        return True

    def broadcast(self, kind: str, content: dict[str, Any]) -> int:
        """Send a message to every worker of the newest generation; return how many they are.

        Fewer than ``workers`` if some have not come yet or have gone. Errors as for :meth:`send`.
        """
        return sum(self.send(index, kind, content) for index in range(self.workers))

    def _newest(self) -> _Group | None:
        return max(list(self._groups.values()), key=lambda group: group.generation, default=None)

    # What the server's thread does.

    def join(self, member: _Member) -> None:
        """Take in a worker that has said where it listens; when the last one has come, tell all where all are."""
        if self._is_taken(member.stage):
            why = (
                f"another run keeps its checkpoints at {self.place} and has not ended. Let one action end before the next begins,"
                " persist() the result, or give each run a place of its own"
            )
            self.failure = ConfigurationError(why)
            member.tell({"stop": describe(self.failure, member.index)})
            return
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

    def _is_taken(self, stage: int) -> bool:
        """Return whether another stage, of this run or of another, is at work where this one keeps its checkpoints."""
        if self.place is None:
            return False
        others = [run for run in list(self._runs.values()) if run.place == self.place]  # others may open more meanwhile
        return any(
            group.is_live for run in others for number, group in run._groups.items() if (run, number) != (self, stage)
        )

    def hear(self, member: _Member, kind: str, content: dict[str, Any]) -> None:
        """Hand on what a worker tells, unless its generation is over."""
        group = self._groups.get(member.stage)
        if group is None or group.members.get(member.index) is not member:
            return
        for callback in self._listeners.get(kind, ()):
            try:
                callback(member.index, member.generation, content)
            except Exception:
                _log.exception("what listens for messages of kind %r failed", kind)

    def fail(self, member: _Member, told: dict[str, Any]) -> None:
        """Keep the first error of a generation, and tell it to the others."""
        group = self._groups.get(member.stage)
        if group is not None and group.members.get(member.index) is member and not group.stopped:
            self.failure = revive(told)
            group.stop(told)

    def leave(self, member: _Member, why: str | None = None) -> None:
        """Note that a worker's connection has ended: the end of the others too, unless it had finished."""
        group = self._groups.get(member.stage)
        if group is None or group.members.get(member.index) is not member:
            return
        if why is not None:
            self.hear(member, SILENT, {"why": why})
        del group.members[member.index]
        if not member.finished:
            told = _told(why or f"worker {member.index} has gone away")
            if why is not None and not group.stopped:
                self.failure = revive(told)
            group.stop(told)


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
        self._reception = Reception(self._selector, self._listener, self._context_of, self._admit)
        self._closing = False
        self._members: dict[ssl.SSLSocket, _Member] = {}
        self._errands: deque[Callable[[], None]] = deque()
        self._bell = _Bell()
        self._selector.register(self._bell, selectors.EVENT_READ, self._run_errands)
        self._pulse = _Pulse(SILENCE)
        self._beaten = 0.0
        self._thread = threading.Thread(target=self._serve, name="timely-rendezvous", daemon=True)
        self._thread.start()

    def open_run(
        self, workers: int, *, patience: float = SILENCE, place: str | None = None, largest: int = LARGEST_FRAME
    ) -> Run:
        """Return a new run of so many workers, with an id and keys of its own.

        A worker of it that gives no sign of life for ``patience`` seconds is declared gone. Of the stages that keep checkpoints
        at one ``place`` only one at a time is let in. No message between two workers may have more than ``largest`` bytes.
        """
        if not patience > 0:
            raise ConfigurationError(f"patience must be more than 0 seconds, not {patience!r}")
        driver, identity = make_identity("timely driver"), make_identity("timely worker")
        context = credentials.listener(driver, identity.certificate)
        name = secrets.token_bytes(RUN)
        run = Run(
            name, workers, patience, driver, identity, context, place=place, largest=largest, runs=self._runs, call=self._later
        )
        self._runs[run.id] = run
        return run

    def invitation(self, run: Run) -> Invitation:
        """Return what the run's workers need to know."""
        certificate = run.driver.certificate
        return Invitation(self.address, run.id, run.identity, certificate, run.workers, run.patience, run.largest)

    def close(self) -> None:
        """End the server and every connection to it."""
        self._closing = True
        self._bell.ring()
        self._thread.join()

    def _later(self, errand: Callable[[], None]) -> None:
        """Have the server's thread do something. Any thread may call it."""
        self._errands.append(errand)
        self._bell.ring()

    def _run_errands(self, bell: _Bell) -> None:
        bell.hush()
        while self._errands:
            self._errands.popleft()()

    def _context_of(self, run: bytes) -> ssl.SSLContext | None:
        known = self._runs.get(run)
        return None if known is None else known.context

    def _serve(self) -> None:
        while not self._closing:
            shortest = min((member.run.patience for member in self._members.values()), default=SILENCE)
            wait = self._pulse.interval = min(1.0, shortest / 4)
            for key, _ in self._selector.select(wait):
                if key.fd in self._selector.get_map():  # a handler before this one may have dropped it
                    key.data(key.fileobj)
            self._look_after(self._pulse.beat(), wait)
            self._reception.expire()
        self._reception.close()
        for sock in (*self._members, self._listener):
            sock.close()
        self._selector.close()
        self._bell.close()

    def _look_after(self, now: float, wait: float) -> None:
        """Give a sign of life, drop who has given none for too long, and watch for those who can take more."""
        beat = now - self._beaten >= wait
        if beat:
            self._beaten = now
        for sock, member in list(self._members.items()):
            if now - member.heard > member.run.patience:
                self._forget(
                    member,
                    f"worker {member.index} has been silent for {member.run.patience:g} s ({member.place}): it hangs, or "
                    "its machine does",
                )
                continue
            if member.lost:
                self._forget(member, f"worker {member.index} {member.lost} ({member.place})")
                continue
            if beat and not member.frames.backlog:
                member.tell({})
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.frames.backlog else 0)
            if self._selector.get_key(sock).events != wanted:
                self._selector.modify(sock, wanted, self._hear)

    def _admit(self, sock: ssl.SSLSocket, hello: Hello) -> None:
        if hello.receiver != DRIVER:
            refuse(sock, "it wants a worker, and this is the driver", known=True)
        elif welcome(sock):
            now = self._pulse.beat()
            self._members[sock] = _Member(_Frames(sock), self._runs[hello.run], hello.sender, hello.generation, now)
            self._selector.register(sock, selectors.EVENT_READ, self._hear)

    def _hear(self, sock: ssl.SSLSocket) -> None:
        member = self._members[sock]
        member.flush()
        try:
            for frame in member.frames.read():
                member.heard = self._pulse.beat()
                _act(member, frame)
        except (EOFError, OSError):
            self._forget(member)
        except Exception as error:  # whatever one worker says must not end the server of all
            _log.warning("worker %d said something that makes no sense: %r", member.index, error)
            self._forget(member)

    def _forget(self, member: _Member, why: str | None = None) -> None:
        sock = member.frames.sock
        del self._members[sock]
        self._selector.unregister(sock)
        sock.close()
        member.run.leave(member, why)


def _act(member: _Member, frame: dict[str, Any]) -> None:
    """Do what a worker's message asks for; an empty one is but a sign of life."""
    if "join" in frame:
        join = frame["join"]
        host, port = join["address"]
        member.stage, member.address, member.place = int(join["stage"]), (str(host), int(port)), str(join["place"])
        member.run.join(member)
    elif "say" in frame:
        member.run.hear(member, str(frame["say"]), dict(frame["content"]))
    elif "error" in frame:
        member.run.fail(member, frame["error"])
    elif "done" in frame:
        member.finished = True


class _Bell:
    """Wakes a thread that waits for sockets."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)

    def fileno(self) -> int:
        """The descriptor that is readable when it has been rung."""
        return self._ear.fileno()

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it has been rung often enough, or is gone
            self._bell.send(b"!")

    def hush(self) -> None:
        with contextlib.suppress(OSError):
            self._ear.recv(4096)

    def close(self) -> None:
        self._ear.close()
        self._bell.close()


_servers: dict[tuple[str, str], Rendezvous] = {}
_servers_lock = threading.Lock()


def rendezvous(bind: str, host: str) -> Rendezvous:
    """Return this process's server that listens at ``bind`` and is reached at ``host``; started when first needed."""
    with _servers_lock:
        server = _servers.get((bind, host))
        if server is None:
            server = _servers[bind, host] = Rendezvous(bind, host)
        return server


# -- the worker's side -------------------------------------------------------------------------------------------------


class Registration:
    """A worker's connection to the driver, as a context manager: :meth:`peers` first; then :meth:`report`,
    :meth:`stopped`, :meth:`done`; and :meth:`tell` and :meth:`heard` for whatever else there is to say.

    A daemon thread does the talking, and says every second that this worker is alive. Raises
    :class:`~timely.errors.SparkError` where the driver cannot be reached within ``timeout`` seconds, and
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
        context = credentials.speaker(invitation.identity, invitation.driver)
        try:
            sock = dial(invitation.address, context, Hello(invitation.run, generation, index, DRIVER), self._deadline)
        except AuthenticationError as error:
            raise AuthenticationError(f"the driver at {where}: {error}") from error
        except OSError as error:
            raise SparkError(
                f"worker {index} cannot reach the driver at {where}: {error}. Executors must be able to connect to "
                "the driver's machine: see spark.driver.host and spark.driver.bindAddress"
            ) from error
        self.host: str = sock.getsockname()[0]
        self._line = _Line(sock, where, invitation.patience)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def peers(self, address: Address) -> dict[int, Address]:
        """Say that this worker listens at ``address``; return where every worker of the generation listens, by index.

        Raises :class:`~timely.errors.SparkError` where they do not all come in time, and what the others failed of
        where they did.
        """
        line = self._line
        place = f"{socket.gethostname()}, pid {os.getpid()}"
        line.send({"join": {"stage": self._stage, "address": list(address), "place": place}})
        line.await_(lambda: line.peers is not None or line.stop is not None, self._deadline)
        if line.stop is not None:
            raise line.stop
        if line.peers is None:
            raise SparkError(
                f"worker {self._index} waited in vain for the other {self._workers - 1} workers of this stage to "
                "start. Spark runs them all at the same time or not at all, so the executors' logs "
                "must say what keeps the others"
            )
        return line.peers

    def report(self, error: BaseException) -> None:
        """Tell the driver, and through it the other workers, what this worker failed of."""
        self._line.send({"error": describe(error, self._index)})

    def done(self) -> None:
        """Tell the driver that this worker has finished, so that its leaving is no loss."""
        self._line.send({"done": True})

    def stopped(self, wait: float = 0.0) -> TimelyError | None:
        """Return what the run failed of, as far as it has been told within ``wait`` seconds; ``None`` while nothing
        has.
        """
        line = self._line
        if wait > 0.0:
            line.await_(lambda: line.stop is not None, time.monotonic() + wait)
        return line.stop

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        """Tell the driver something: whatever listens there for this kind (:meth:`Run.listen`) hears it, in order.

        Does not wait. :class:`~timely.errors.ConfigurationError` for content that is not JSON, or longer than
        ``LARGEST``.
        """
        self._line.send({"say": kind, "content": content})

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """Return what the driver has sent of this kind (:meth:`Run.send`) since the last call, oldest first."""
        return self._line.take(kind)

    def wait(self, seconds: float) -> bool:
        """Wait until something has come since the last wait, a message or the end of the run, for at most so long;
        return whether something has.
        """
        return self._line.wait(seconds)

    def fileno(self) -> int:
        """The descriptor that is readable when something has come since the last :meth:`wait`, for use in a poll."""
        return self._line.news.fileno()

    def alert(self, callback: Callable[[], None]) -> None:
        """Have a function called, on the connection's thread, whenever something comes: to wake whoever waits
        elsewhere, as :meth:`timely.worker.transport.Transport.wake` does.
        """
        self._line.alert = callback


class _Line:
    """The worker's end of the connection to the driver, and the daemon thread that alone uses it."""

    def __init__(self, sock: ssl.SSLSocket, where: str, patience: float) -> None:
        self.stop: TimelyError | None = None
        self.peers: dict[int, Address] | None = None
        self.news = _Bell()
        self.alert: Callable[[], None] | None = None
        self._frames = _Frames(sock)
        self._where = where
        self._patience = patience
        self._came = threading.Condition()
        self._unseen = False
        self._inbox: dict[str, list[dict[str, Any]]] = {}
        self._outbox: deque[bytes] = deque()
        self._bell = _Bell()
        self._closing = 0.0
        self._thread = threading.Thread(target=self._talk, name="timely-registration", daemon=True)
        self._thread.start()

    # What the worker calls.

    def send(self, value: dict[str, Any]) -> None:
        self._outbox.append(_framed(value))
        self._bell.ring()

    def take(self, kind: str) -> list[dict[str, Any]]:
        with self._came:
            return self._inbox.pop(kind, [])

    def await_(self, condition: Callable[[], bool], deadline: float) -> None:
        """Wait for a condition to hold, or for the deadline."""
        with self._came:
            self._came.wait_for(condition, max(deadline - time.monotonic(), 0.0))

    def wait(self, seconds: float) -> bool:
        with self._came:
            came = self._came.wait_for(lambda: self._unseen, seconds)
            self._unseen = False
            self.news.hush()
            return came

    def close(self) -> None:
        """Send what is left to be said, and hang up."""
        self._closing = time.monotonic() + _LAST_WORDS
        self._bell.ring()
        self._thread.join()
        self._bell.close()
        self.news.close()

    # What the thread does.

    def _talk(self) -> None:
        sock = self._frames.sock
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._bell, selectors.EVENT_READ)
                selector.register(sock, selectors.EVENT_READ)
                self._converse(selector)
        except (EOFError, OSError) as error:
            silent = isinstance(error, TimeoutError)
            self._end(SparkError(str(error) if silent else "the connection to the driver has ended"))
        except Exception as error:
            self._end(SparkError(f"the driver said something that makes no sense: {error!r}"))
        finally:
            sock.close()

    def _converse(self, selector: selectors.BaseSelector) -> None:
        """Read, write and give signs of life, until what was to be said is said after the call of :meth:`close`."""
        pulse, frames = _Pulse(self._patience), self._frames
        heard = said = pulse.beat()
        while True:
            self._bell.hush()
            closing = self._closing  # first: what is said before the call of close() is in the outbox by then
            while self._outbox:
                frames.put(self._outbox.popleft())
            frames.flush()
            if closing and (not frames.backlog or time.monotonic() > closing):
                return
            selector.modify(frames.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if frames.backlog else 0))
            selector.select(pulse.interval)
            came = frames.read()
            now = pulse.beat()
            if came:
                heard = now
                self._take_in([frame for frame in came if frame])
            elif now - heard > self._patience:
                raise TimeoutError(
                    f"the driver at {self._where} has been silent for {self._patience:g} s: it hangs, or its machine does"
                )
            if now - said >= pulse.interval and not frames.backlog:
                said = now
                frames.put(_framed({}))

    def _take_in(self, frames: list[dict[str, Any]]) -> None:
        if not frames:
            return
        with self._came:
            for frame in frames:
                if "stop" in frame:
                    self.stop = self.stop or revive(frame["stop"])
                elif "peers" in frame:
                    self.peers = {index: (host, port) for index, (host, port) in enumerate(frame["peers"])}
                elif "say" in frame:
                    self._inbox.setdefault(str(frame["say"]), []).append(dict(frame["content"]))
            self._announce()
        if self.alert is not None:
            self.alert()

    def _end(self, why: TimelyError) -> None:
        with self._came:
            self.stop = self.stop or why
            self._announce()
        if self.alert is not None:
            self.alert()

    def _announce(self) -> None:
        self._unseen = True
        self.news.ring()
        self._came.notify_all()
