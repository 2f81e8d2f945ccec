"""``Link``: one connection to a worker in another process; :mod:`timely.worker.secure_link` has the one that is encrypted.

Messages go out in frames (:mod:`timely.worker.wire`) and come in so, and nothing blocks: what the other side is not ready to
take waits here. The invariant: messages are handed out in the order in which they were sent, each once and whole, or not at all.
A caller appends to ``pending``, calls ``flush`` and ``read``, and looks at ``gone`` and ``fault`` afterwards.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from timely.dataflow import pickled
from timely.errors import UnsendableError
from timely.worker.progress_batching import coalesce
from timely.worker.wire import HEADER, FrameError, Piece, announced, decode, encode, framed, restored, thinned

if TYPE_CHECKING:
    from timely.worker.shared_memory import Shared

ROOM: Final = 1 << 16
"""Bytes that are read at once, where it is not known yet what comes."""

Frames: TypeAlias = dict[tuple[int, ...], tuple[list[Any], list[Piece]]]
"""Messages, by their identities, and the buffers of the frame with them."""

_MOST_PIECES: Final = 512
_FEW: Final = 16


class Link:
    """One connection to a worker in another process: frames out, frames in, nothing blocking.

    No frame has a body of more than ``largest`` bytes, where that is given, in either direction. While the other side does not
    take what it is sent, messages wait as they are, and the batches of progress among them become fewer. ``room`` is scratch
    memory to read into, which the links of one thread may share: it holds nothing between two calls. ``shared`` is memory that
    the other side has too: without it no frame may say that a part of it lies there.
    """

    __slots__ = (
        *("_at", "_body", "_buffers", "_head", "_held", "_here", "_out", "_room", "_there"),
        *("deaf", "fault", "gone", "largest", "pending", "sock"),
    )

    _FULL: ClassVar[tuple[type[OSError], ...]] = (BlockingIOError,)
    """What the socket raises that takes no more just now."""

    def __init__(
        self, sock: socket.socket, largest: int | None = None, room: bytearray | None = None, shared: Shared | None = None
    ) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._there = None if shared is None else shared[0]
        self._here = None if shared is None else shared[1]
        self.largest = largest
        self.gone = False
        self.deaf = False
        self.fault = ""
        self.pending: list[Any] = []
        self._held = 0
        self._out: deque[memoryview] = deque()
        self._room = memoryview(bytearray(ROOM) if room is None else room)
        self._head = b""
        self._body: memoryview | None = None
        self._buffers = 0
        self._at = 0

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._out)

    @property
    def busy(self) -> bool:
        """Whether there is anything that has not been sent yet."""
        return not self.deaf and bool(self.pending or self.backlog)

    # -- out ---------------------------------------------------------------------------------------------------------------

    def flush(self, frames: Frames | None = None) -> None:
        """Put what was sent into a frame, unless the one before is still on its way, and write as much as the connection takes.

        ``frames`` are those that other links have made just now: what all peers are told alike is pickled once.
        ``UnsendableError`` if it cannot be pickled or is too large; then none of it is sent, and the next flush starts anew.
        """
        if self.backlog:
            self.write()
            if self.backlog:
                self._hold()
                return
        if self.deaf:
            self.pending.clear()
        if self.pending:
            pending, self.pending = self.pending, []
            try:
                if self._held:
                    pending, self._held = coalesce(pending), 0
                pieces = self._frame(pending, frames)
                self._out.extend([memoryview(piece) for piece in pieces if len(piece)])  # an empty one never goes
            except UnsendableError:
                raise
            except BaseException:
                self._break_off()
                raise
            self.write()

    def _hold(self) -> None:
        """Have messages wait; whenever they have become twice as many, see which of them can be merged."""
        if len(self.pending) >= 2 * self._held:
            self.pending = coalesce(self.pending)
            self._held = max(len(self.pending), _FEW)

    def _frame(self, messages: list[Any], frames: Frames | None = None) -> list[Piece]:
        """Return the pieces of a frame with these messages, or of several where one would be too large."""
        pieces = framed(_pickled(messages, frames), self._there)
        if self.largest is None or (size := sum(map(len, pieces)) - HEADER.size) <= self.largest:
            return pieces
        if len(messages) == 1:
            raise UnsendableError(
                f"{size} bytes in one message are too many for a worker on another machine, which takes {self.largest} at most:"
                " send smaller batches",
                messages[0],
            )
        half = len(messages) // 2
        return self._frame(messages[:half]) + self._frame(messages[half:])

    def write(self) -> None:
        """Write as much of what waits to be written as the connection takes."""
        try:
            self._write()
        except self._FULL:
            return
        except OSError:
            self._stop_writing()
        except BaseException:
            self._break_off()
            raise

    def _write(self) -> None:
        """Write all that waits to be written; raise where the connection takes no more."""
        out = self._out
        while out and not self.deaf:
            sent = self.sock.send(out[0]) if len(out) == 1 else self.sock.sendmsg(_first(out))
            while sent:
                first = out[0]
                if sent < len(first):
                    out[0] = first[sent:]
                    break
                sent -= len(first)
                out.popleft()

    def _break_off(self) -> None:
        """Send nothing more after an interruption, not even a goodbye: what has gone is not known, and to go on would be to
        leave something out, or to send it twice. The other side takes it for what it is, a worker that is lost.
        """
        self._stop_writing()
        self.pending.clear()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_WR)  # of TLS, too, below which it may still be read

    def _stop_writing(self) -> None:
        """Let go of what can never be sent."""
        self._out.clear()
        self.deaf = True

    # -- in ----------------------------------------------------------------------------------------------------------------

    def read(self, into: list[Any]) -> None:
        """Read what has arrived, and append the messages of every complete frame."""
        try:
            self._read(into)
        except FrameError as error:
            self._end(str(error))
        except BaseException:
            self._end()  # whatever comes after what cannot be read was sent by somebody who relied on it
            raise

    def _end(self, fault: str = "") -> None:
        """Read no more: the connection has ended, or what comes over it is not to be trusted."""
        self.gone = True
        self.fault = fault
        self._body = None

    def _read(self, into: list[Any]) -> None:
        while not self.gone:
            if self._body is not None:
                if not self._fill():
                    return
                self._take(into)
                continue
            try:
                count = self.sock.recv_into(self._room)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self._end()
                return
            self._split(self._room[:count], into)
            if self._body is None and count < ROOM:
                return

    def _take(self, into: list[Any]) -> None:
        """Append the messages of the frame that is complete now."""
        assert self._body is not None
        into.extend(restored(decode(self._body, self._buffers, self._here)))  # which raises what it likes, an OSError too
        self._body = None

    def _split(self, data: memoryview, into: list[Any]) -> None:
        """Take the complete frames off what has been read, and start on a frame that is not complete.

        ``data`` is scratch memory: what outlives this call is copied.
        """
        if self._head:
            data, self._head = memoryview(self._head + data), b""
        at = 0
        while len(data) - at >= HEADER.size:
            size, buffers = announced(data, at, self.largest)
            at += HEADER.size
            end = at + size
            if end > len(data):
                self._start(size, buffers, data[at:])
                return
            body = data[at:end]
            if buffers > 1:
                body = memoryview(bytearray(body))  # its large pieces are not copied out of it
            into.extend(restored(decode(body, buffers, self._here)))
            at = end
        self._head = bytes(data[at:])

    def _start(self, size: int, buffers: int, first: memoryview) -> None:
        """Begin a frame of which no more than ``first`` has come."""
        body = memoryview(bytearray(size))
        body[: len(first)] = first
        self._body, self._buffers, self._at = body, buffers, len(first)

    def _fill(self) -> bool:
        """Read on into the frame that is not complete; return whether it is now."""
        body = self._body
        assert body is not None
        while self._at < len(body):
            try:
                count = self.sock.recv_into(body[self._at :])
            except BlockingIOError:
                return False
            except OSError:
                count = 0
            if count == 0:
                self._end()
                return False
            self._at += count
        return True


def _pickled(messages: list[Any], frames: Frames | None) -> list[Piece]:
    """Return the buffers of a frame with these messages, which another link may have made already."""
    if frames is not None:
        made = frames.get(key := tuple(map(id, messages)))
        if made is None:
            made = frames[key] = messages, _pickled(messages, None)  # while they are kept, no others have their ids
        return made[1]
    try:
        return pickled(thinned(messages))
    except Exception as error:
        raise _unsendable(messages) from error


def _first(out: deque[memoryview]) -> list[memoryview]:
    """Return as many pieces as go out at once."""
    return list(out) if len(out) <= _MOST_PIECES else [out[i] for i in range(_MOST_PIECES)]


def _unsendable(pending: Sequence[Any]) -> UnsendableError:
    """Return the error about the first of the pending messages that cannot be pickled, and about what it carries."""
    for message in pending:
        try:
            encode(message)
        except Exception as error:
            return UnsendableError(f"{_culprit(message[-1])} cannot be pickled for a worker in another process: {error}", message)
    return UnsendableError("what goes to a worker in another process cannot be pickled", pending[-1])


def _culprit(carried: Any) -> str:
    """Return, for an error, what in the content of a message cannot be pickled: its first such record, or all of it."""
    for record in carried if isinstance(carried, list) else ():
        try:
            encode(record)
        except Exception:
            return f"a record of type {type(record).__name__}"
    return f"a {type(carried).__name__}"
