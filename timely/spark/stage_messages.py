"""What the workers and the driver send each other: typed records, as JSON after its length, and errors among them.

The invariant: only JSON is read, and neither what is read nor what waits to be sent grows without bound. An error keeps its text
and, where the receiver knows it, its class.
"""

from __future__ import annotations

import json
import ssl
import struct
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import attrs

from timely import errors
from timely.errors import ConfigurationError, OperatorError, TimelyError, WorkerError, error_text
from timely.worker.credentials import Identity
from timely.worker.mesh import Address
from timely.worker.secure_link import WOULD_BLOCK
from timely.worker.wire import LARGEST as LARGEST_FRAME

DRIVER = 0xFFFF_FFFF
"""The driver's index, in place of a worker's."""

LARGEST = 1 << 20
"""Bytes of the longest message that is sent between a worker and the driver."""

SILENCE = 30.0
"""Seconds of silence after which a worker is declared gone, and a driver too."""

_FRAME = struct.Struct("!I")
_CHUNK = 65_536
_MOST_WAITING = 64 << 20
_LONGEST = {"message": 4_096, "name": 512, "path": 512, "trace": 8_192}
"""Characters of each text of an error that are sent, of a traceback the last ones; together they fit into one frame."""


def check_patience(patience: object) -> None:
    """Raise :class:`~timely.errors.ConfigurationError` unless ``patience`` is a number of seconds that can pass."""
    if not isinstance(patience, int | float) or isinstance(patience, bool) or not patience > 0:
        raise ConfigurationError(f"patience must be more than 0 seconds, not {patience!r}")


@attrs.frozen
class Invitation:
    """What a worker must know to take part in a run; it travels with the task.

    ``identity`` is that of all workers of the run, with its key. ``driver`` is the certificate of the driver, whose key stays
    there: who gets hold of an invitation cannot pose as the driver. ``patience`` is in seconds.
    """

    address: Address
    run: bytes
    identity: Identity = attrs.field(repr=False)
    driver: bytes = attrs.field(repr=False)
    workers: int
    patience: float = SILENCE
    largest: int = LARGEST_FRAME
    """Bytes of the largest message between two workers."""
    by_worker: bool = False
    """Whether worker 0 serves in the driver's place, which workers cannot reach."""

    @property
    def server(self) -> str:
        """Who serves the rendezvous, for errors."""
        return "worker 0" if self.by_worker else "the driver"


@attrs.frozen
class Message:
    """A record that a worker and the driver send each other; the name of its class is what ``kind`` it is on the connection."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__


# Of the server itself, and the workers' end of the connection.


@attrs.frozen
class Join(Message):
    """A worker listens at ``address``; ``place`` says which machine and process it is, for errors. ``task`` is Spark's number."""

    stage: int
    address: Sequence[Any]
    place: str
    task: int = -1


@attrs.frozen
class Peers(Message):
    """Where all workers of a generation listen, in their order."""

    addresses: Sequence[Any]


@attrs.frozen
class Stop(Message):
    """The run has failed: the error, as :func:`describe` returns it."""

    error: dict[str, Any]
    final: bool = False
    """Whether another attempt would be in vain, and no worker has had a row to return."""


@attrs.frozen
class Failed(Message):
    """A worker has failed, and with it the attempt of its stage: the error, as :func:`describe` returns it."""

    stage: int
    error: dict[str, Any]


@attrs.frozen
class Done(Message):
    """A worker has finished, so that its leaving is no loss."""


@attrs.frozen
class Returning(Message):
    """A worker has its first row to return, and does not before it is granted."""


@attrs.frozen
class Granted(Message):
    """The worker may return rows: from now on no failure of this attempt is final."""


@attrs.frozen
class Silent(Message):
    """The server has declared a worker gone. It is not sent: the server's own listeners receive it."""

    task: int
    why: str


# Of any run.


@attrs.frozen
class LogLine(Message):
    """A line of a worker's log, and its level as Python's ``logging`` has it."""

    level: int
    text: str


@attrs.frozen
class LiveReport(Message):
    """What a worker reports to a live page."""

    report: dict[str, Any]


@attrs.frozen
class Resumed(Message):
    """Worker 0 of an attempt has restored the checkpoint of ``epoch``; ``None`` where there is none."""

    epoch: int | None


# Of a stream.


@attrs.frozen
class Order(Message):
    """The driver has all workers do something: ``compute``, ``replay``, ``checkpoint`` or ``end``."""

    action: str
    epoch: int


@attrs.frozen
class Ready(Message):
    """A worker has restored its state and is at the time ``epoch``; ``pid`` is its process."""

    epoch: int
    pid: int


@attrs.frozen
class Computed(Message):
    """A worker has written its part of the outputs of ``epoch``: by output, the name of a file and how many rows it has."""

    epoch: int
    files: Mapping[str, Sequence[Any]]


@attrs.frozen
class Checkpointed(Message):
    """A worker's part of the checkpoint of all epochs before ``epoch`` is complete."""

    epoch: int


class Sender(Protocol):
    """What sends a message to the driver."""

    def send(self, message: Message) -> None:
        """Send it."""


def describe(error: BaseException, worker: int) -> dict[str, Any]:
    """Return what is sent of an error: plain values, of bounded size."""
    known = isinstance(error, TimelyError)
    message = str(error) if known else f"worker {worker} raised {error_text(error)}"
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
    """Return the end of the traceback of an error's cause, where a user's function raised; empty if there is none."""
    cause = error.__cause__
    return "" if cause is None else "".join(traceback.format_exception(cause))[-_LONGEST["trace"] :]


def revive(description: dict[str, Any]) -> TimelyError:
    """Return the error that was described, with the traceback of its cause as a note.

    An unknown class becomes a :class:`~timely.errors.WorkerError`.
    """
    kind = getattr(errors, str(description["type"]), WorkerError)
    error: TimelyError
    if kind is OperatorError:
        error = OperatorError(description["message"], description["name"], description["path"], description["worker"])
    else:
        try:
            error = kind(description["message"]) if issubclass(kind, TimelyError) else WorkerError(description["message"])
        except TypeError:  # no class, or one that needs more than a message
            error = WorkerError(description["message"])
    if description["trace"]:
        error.add_note(description["trace"])
    return error


HEARTBEAT = _FRAME.pack(2) + b"{}"
"""What is sent as a sign of life."""


def framed(message: Message) -> bytes:
    """Return a message as it goes over the connection. :class:`~timely.errors.ConfigurationError` if it cannot."""
    value = {"kind": message.kind, "content": attrs.asdict(message)}
    try:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"a message between workers and driver must be plain JSON values: {error}") from error
    if len(data) > LARGEST:
        raise ConfigurationError(
            f"a message of {len(data)} bytes between a worker and the driver is too long; {LARGEST} is the "
            "most: write it to a file that both can reach, and send its name"
        )
    return _FRAME.pack(len(data)) + data


class Frames:
    """JSON values on a connection, each after its length. Never waits; both directions are bounded."""

    __slots__ = ("_buffer", "_leaving", "_out", "sock")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._buffer = bytearray()
        self._out = bytearray()
        self._leaving = b""

    @property
    def backlog(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._out) + len(self._leaving)

    def put(self, frame: bytes) -> None:
        """Queue a frame for the next flush. OSError if too much waits already."""
        if self.backlog > _MOST_WAITING:
            raise ConnectionAbortedError("does not take what it is sent")
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
        """Receive once; return the whole frames there are. EOFError at the end; OSError, ValueError for nonsense."""
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


class Pulse:
    """Times the signs of life of both ends of a connection.

    Time in which this process itself was held up is not counted as the other side's silence.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval: float = min(1.0, patience / 4)
        self._clock = clock
        self._seen = clock()
        self._excused = 0.0

    def beat(self) -> float:
        """Note that this process is alive; call it every ``interval``. Return the time that counts."""
        now = self._clock()
        held_up = now - self._seen - self.interval
        self._seen = now
        if held_up > self.interval:
            self._excused += held_up
        return now - self._excused
