"""The driver's server: where the workers of a run find each other, and exchange messages with the driver.

Every attempt of a barrier stage is a *generation* of its run. Its workers dial in, show that they hold the run's key, say where
they listen, and get the addresses of all once all are there. The connection stays open for the messages of
``stage_messages``. The invariant: addresses go only to workers of one generation, and never again to one that is older
than the newest seen. Each end says every second that it is alive, from a thread of its own, so that a worker that hangs is found.

A run is known as long as it is :attr:`~RunEntry.wanted`: its DataFrames are lazy, and may be asked for again.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from timely import errors
from timely.errors import ConfigurationError, SparkError, TimelyError
from timely.spark.stage_messages import (
    DRIVER,
    HEARTBEAT,
    SILENCE,
    Done,
    Failed,
    Frames,
    Invitation,
    Join,
    Message,
    Peers,
    Pulse,
    Silent,
    Stop,
    check_patience,
    describe,
    framed,
    revive,
)
from timely.worker import credentials
from timely.worker.credentials import Identity, make_identity
from timely.worker.mesh import RUN, Address, Hello, Reception, open_listener, refuse, welcome
from timely.worker.transports import Waker
from timely.worker.wire import LARGEST as LARGEST_FRAME

M = TypeVar("M", bound=Message)

Callback = Callable[[int, int, M], object]
"""What receives messages of one kind: ``callback(worker, generation, message)``."""

_FEW = 16
"""Number of known runs from which abandoned ones are looked for."""

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _WorkerEntry:
    """One worker of one generation, as the driver sees it."""

    frames: Frames
    run: RunEntry
    index: int
    generation: int
    last_seen: float
    stage: int = -1
    task: int = -1
    address: Address | None = None
    place: str = "it never said where it is"
    finished: bool = False
    lost: str = ""

    def send(self, message: Message) -> None:
        self.put(framed(message))

    def put(self, frame: bytes) -> None:
        """Send what goes now; the server sends the rest."""
        try:
            self.frames.put(frame)
        except OSError as error:  # a worker receives all messages, or is given up
            self.lost = str(error)
        else:
            self.flush()

    def flush(self) -> None:
        with contextlib.suppress(OSError):  # whoever is gone will be found to be gone, after what it has said before
            self.frames.flush()


@attrs.define(eq=False)
class _Generation:
    """The workers of one stage's newest attempt."""

    generation: int
    members: dict[int, _WorkerEntry] = attrs.field(factory=dict)
    stopped: bool = False

    @property
    def is_live(self) -> bool:
        """Whether any of its workers is running."""
        return not self.stopped and any(not member.finished for member in self.members.values())

    def stop(self, error: dict[str, Any], final: bool = False) -> None:
        """Stop every worker, once."""
        if not self.stopped:
            self.stopped = True
            for member in self.members.values():
                if not member.finished:
                    member.send(Stop(error, final))


@attrs.define(eq=False)
class RunEntry:
    """One run as the driver knows it: its id, its keys, its last failure, and messages to and from its workers.

    The server forgets the run when ``wanted``, a function of any thread, returns that no worker of it will come any more.
    """

    id: bytes
    workers: int
    patience: float
    driver: Identity = attrs.field(repr=False)
    identity: Identity = attrs.field(repr=False)
    context: ssl.SSLContext = attrs.field(repr=False)
    place: str | None = None
    largest: int = LARGEST_FRAME
    failure: TimelyError | None = None
    wanted: Callable[[], bool] = attrs.field(default=lambda: True, repr=False)
    is_final: Callable[[TimelyError], bool] = attrs.field(default=lambda error: False, repr=False)
    """Whether workers are to end, rather than fail, for an error. Called on the server's thread."""
    _runs: Mapping[bytes, RunEntry] = attrs.field(factory=dict, repr=False)
    _call: Callable[[Callable[[], None]], None] = attrs.field(default=lambda action: None, repr=False)
    _groups: dict[int, _Generation] = attrs.field(factory=dict, repr=False)
    _listeners: dict[str, list[Callable[[int, int, dict[str, Any]], object]]] = attrs.field(factory=dict, repr=False)

    # What any thread may call. Reading the dictionaries is safe beside the one thread that changes them.

    @property
    def generation(self) -> int | None:
        """The newest generation all of whose workers have come and none has gone; ``None`` while there is none."""
        group = self._newest()
        return None if group is None or group.stopped or len(group.members) < self.workers else group.generation

    @property
    def attending(self) -> int:
        """How many workers of the newest generation are connected now."""
        group = self._newest()
        return 0 if group is None else len(group.members)

    @property
    def stopped(self) -> bool:
        """Whether the newest generation has failed."""
        group = self._newest()
        return group is not None and group.stopped

    def listen(self, kind: type[M], callback: Callback[M]) -> None:
        """Call ``callback(worker, generation, message)`` for each message of this kind.

        It is called on the server's thread, which serves all runs: it must not wait. What it raises is logged.
        """
        self._listeners.setdefault(kind.kind, []).append(
            lambda worker, generation, content: callback(worker, generation, kind(**content))
        )

    def send(self, index: int, message: Message) -> bool:
        """Send a message to one worker of the newest generation; return whether there is such a worker now.

        Messages to one worker arrive in order. :class:`~timely.errors.ConfigurationError` for content that is not JSON, or longer
        than ``LARGEST``.
        """
        frame = framed(message)
        group = self._newest()
        member = None if group is None or group.stopped else group.members.get(index)
        if member is None or member.finished:
            return False
        self._call(lambda: member.put(frame))
        return True

    def broadcast(self, message: Message) -> int:
        """Send a message to every worker of the newest generation; return how many there are. Errors as for :meth:`send`."""
        return sum(self.send(index, message) for index in range(self.workers))

    def _newest(self) -> _Generation | None:
        return max(list(self._groups.values()), key=lambda group: group.generation, default=None)

    # What the server's thread does.

    def join(self, member: _WorkerEntry) -> None:
        """Admit a worker that has said where it listens; with the last one, send all addresses to all."""
        if self._is_in_use(member.stage):
            why = (
                f"another run keeps its checkpoints at {self.place} and has not ended. Let one action end before the next begins,"
                " persist() the result, or give each run a place of its own"
            )
            self.failure = ConfigurationError(why)
            member.send(Stop(describe(self.failure, member.index)))
            return
        group = self._groups.get(member.stage)
        if group is None or group.generation < member.generation:
            if group is not None:
                group.stop(_lost("a newer attempt of this stage has taken over"))
            group = self._groups[member.stage] = _Generation(member.generation)
        if group.generation > member.generation or member.index in group.members or member.index >= self.workers:
            member.send(_stop("a newer attempt of this stage has taken over"))
            return
        group.members[member.index] = member
        if group.stopped:  # before it was complete, so that it never will be
            member.send(_stop("another worker of this attempt has already gone away"))
        elif len(group.members) == self.workers:
            _log.info("generation %d of run %s is complete", group.generation, self.id.hex())
            peers = [group.members[index].address for index in range(self.workers)]
            frame = framed(Peers(peers))  # once: of a thousand workers it takes a millisecond, and each gets it
            for each in group.members.values():
                each.put(frame)

    def _is_in_use(self, stage: int) -> bool:
        """Return whether another stage, of this run or another, is running where this one keeps its checkpoints."""
        if self.place is None:
            return False
        others = [run for run in list(self._runs.values()) if run.place == self.place]  # others may open more meanwhile
        return any(group.is_live for run in others for number, group in run._groups.items() if (run, number) != (self, stage))

    def deliver(self, member: _WorkerEntry, kind: str, content: dict[str, Any]) -> None:
        """Hand a worker's message to the listeners, unless its generation is over."""
        group = self._groups.get(member.stage)
        if group is None or group.members.get(member.index) is not member:
            return
        for callback in self._listeners.get(kind, ()):
            try:
                callback(member.index, member.generation, content)
            except Exception:
                _log.exception("what listens for messages of kind %r failed", kind)

    def fail(self, member: _WorkerEntry, error: dict[str, Any]) -> None:
        """Note the first error of a generation, and send it to the others."""
        group = self._groups.get(member.stage)
        if group is not None and group.members.get(member.index) is member and not group.stopped:
            self.failure = revive(error)
            group.stop(error, self.is_final(self.failure))

    def leave(self, member: _WorkerEntry, why: str | None = None) -> None:
        """Note that a worker's connection has ended: the end of the others too, unless it had finished."""
        group = self._groups.get(member.stage)
        if group is None or group.members.get(member.index) is not member:
            return
        if why is not None:
            self.deliver(member, Silent.kind, {"task": member.task, "why": why})
        del group.members[member.index]
        if not member.finished:
            error = _lost(why or f"worker {member.index} has gone away")
            if why is not None and not group.stopped:
                self.failure = revive(error)
            group.stop(error)


def _lost(message: str) -> dict[str, Any]:
    return describe(errors.PeerLostError(message), -1)


def _stop(message: str) -> Stop:
    return Stop(_lost(message))


class Rendezvous:
    """The driver's server: runs by their id, and the workers that dial in. One daemon thread serves all."""

    def __init__(self, bind: str, host: str) -> None:
        try:
            self._listener = open_listener(bind)
        except OSError as error:
            raise SparkError(
                f"the driver cannot listen at {bind} for its workers: {error}. Set spark.driver.bindAddress to an "
                "address of this machine"
            ) from error
        self.address: Address = (host, self._listener.getsockname()[1])
        self._runs: dict[bytes, RunEntry] = {}
        self._look_at = _FEW
        self._selector = selectors.DefaultSelector()
        self._reception = Reception(self._selector, self._listener, self._context_of, self._admit)
        self._closing = False
        self._members: dict[ssl.SSLSocket, _WorkerEntry] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, self._run_calls)
        self._pulse = Pulse(SILENCE)
        self._last_beat = 0.0
        self._thread = threading.Thread(target=self._serve, name="timely-rendezvous", daemon=True)
        self._thread.start()

    def open_run(
        self, workers: int, *, patience: float = SILENCE, place: str | None = None, largest: int = LARGEST_FRAME
    ) -> RunEntry:
        """Return a new run of so many workers, with an id and keys of its own.

        A worker without a sign of life for ``patience`` seconds is declared gone. Of the stages that keep checkpoints at one
        ``place`` only one at a time is admitted. No message between two workers may have more than ``largest`` bytes.
        """
        check_patience(patience)
        driver, identity = make_identity("timely driver"), make_identity("timely worker")
        context = credentials.listener(driver, identity.certificate)
        name = secrets.token_bytes(RUN)
        run = RunEntry(
            name, workers, patience, driver, identity, context, place=place, largest=largest, runs=self._runs, call=self._later
        )
        if len(self._runs) >= self._look_at:
            self._forget_unwanted()
        self._runs[run.id] = run
        return run

    def _forget_unwanted(self) -> None:
        """Forget unwanted runs; look again at twice as many, so that a run costs two looks at most."""
        known = list(self._runs.values())
        unwanted = [run for run in known if not run.wanted()]
        self._look_at = max(2 * (len(known) - len(unwanted)), _FEW)

        def forget() -> None:
            # The workers of a cancelled job hold the place of their checkpoints until they have left.
            busy = {member.run.id for member in self._members.values()}
            for run in unwanted:
                if run.id not in busy:
                    self._runs.pop(run.id, None)

        self._later(forget)

    def invitation(self, run: RunEntry) -> Invitation:
        """Return what the run's workers need to know."""
        certificate = run.driver.certificate
        return Invitation(self.address, run.id, run.identity, certificate, run.workers, run.patience, run.largest)

    def close(self) -> None:
        """End the server and every connection to it."""
        self._closing = True
        self._waker.wake()
        self._thread.join()

    def _later(self, action: Callable[[], None]) -> None:
        """Call a function on the server's thread. Any thread may call this."""
        self._calls.append(action)
        self._waker.wake()

    def _run_calls(self, waker: Waker) -> None:
        waker.hush()
        while self._calls:
            self._calls.popleft()()

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
            self._check_members(self._pulse.beat(), wait)
            self._reception.expire()
        self._reception.close()
        for sock in (*self._members, self._listener):
            sock.close()
        self._selector.close()
        self._waker.close()

    def _check_members(self, now: float, wait: float) -> None:
        """Give a sign of life, drop silent workers, and watch for those who can receive more."""
        beat = now - self._last_beat >= wait
        if beat:
            self._last_beat = now
        for sock, member in list(self._members.items()):
            if now - member.last_seen > member.run.patience:
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
                member.put(HEARTBEAT)
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.frames.backlog else 0)
            if self._selector.get_key(sock).events != wanted:
                self._selector.modify(sock, wanted, self._receive)

    def _admit(self, sock: ssl.SSLSocket, hello: Hello) -> None:
        if hello.receiver != DRIVER:
            refuse(sock, "it wants a worker, and this is the driver", known=True)
        elif welcome(sock):
            now = self._pulse.beat()
            self._members[sock] = _WorkerEntry(Frames(sock), self._runs[hello.run], hello.sender, hello.generation, now)
            self._selector.register(sock, selectors.EVENT_READ, self._receive)

    def _receive(self, sock: ssl.SSLSocket) -> None:
        member = self._members[sock]
        member.flush()
        try:
            for frame in member.frames.read():
                member.last_seen = self._pulse.beat()
                _handle(member, frame)
        except (EOFError, OSError):
            self._forget(member)
        except Exception as error:  # whatever one worker sends must not end the server of all
            _log.warning("worker %d sent something that makes no sense: %r", member.index, error)
            self._forget(member)

    def _forget(self, member: _WorkerEntry, why: str | None = None) -> None:
        sock = member.frames.sock
        del self._members[sock]
        self._selector.unregister(sock)
        sock.close()
        member.run.leave(member, why)


def _handle(member: _WorkerEntry, frame: dict[str, Any]) -> None:
    """Act on a worker's message; an empty one is a sign of life."""
    if not frame:
        return
    kind, content = str(frame["kind"]), dict(frame["content"])
    if kind == Join.kind:
        join = Join(**content)
        host, port = join.address
        member.stage, member.task = int(join.stage), int(join.task)
        member.address, member.place = (str(host), int(port)), str(join.place)
        member.run.join(member)
    elif kind == Done.kind:
        member.finished = True
    else:
        member.run.deliver(member, kind, content)
        if kind == Failed.kind:
            member.run.fail(member, Failed(**content).error)


_servers: dict[tuple[str, str], Rendezvous] = {}
_servers_lock = threading.Lock()


def rendezvous(bind: str, host: str) -> Rendezvous:
    """Return this process's server that listens at ``bind`` and is reached at ``host``; started when first needed."""
    with _servers_lock:
        server = _servers.get((bind, host))
        if server is None:
            server = _servers[bind, host] = Rendezvous(bind, host)
        return server
