"""``Link``: one connection to a worker in another process; :mod:`timely.worker.secure_link` has the encrypted one.

Nothing blocks: what the other side does not take yet waits here, in a file where it is much. Invariant: messages are handed out
in the order in which they were sent, each once and whole, or not at all. A caller calls ``send`` (or appends to ``pending``),
``flush`` and ``read``, and checks ``gone`` and ``fault``.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from timely.dataflow import pickled
from timely.errors import SpillError, UnsendableError
from timely.memory.paged_file import Page, PagedFile, PageQueue
from timely.worker.batching import merge_progress
from timely.worker.peer_pressure import MUCH, weight_of
from timely.worker.wire import HEADER, LARGE, FrameError, LargeBody, Piece, announced, decode, encode, framed
from timely.worker.worker_messages import DataMessage, pack, unpack

_BLOCK: Final = 1 << 18
"""Bytes that are read from a file at once."""


class _Stored(NamedTuple):
    """Bytes in a file."""

    file: PagedFile
    at: int
    end: int


class SendQueue:
    """The bytes that a connection has yet to take, in order: about ``limit`` in memory, the first piece always, the others in a
    file.

    What a full disk does not take stays in memory.
    """

    __slots__ = ("_files", "_items", "limit", "on_disk", "size")

    def __init__(self, limit: int) -> None:
        self._items: deque[memoryview | _Stored] = deque()
        self._files = PageQueue(align=1)  # a page is read in blocks
        self.limit = limit
        self.size = 0
        """Bytes in all."""
        self.on_disk = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def extend(self, pieces: Sequence[Piece]) -> None:
        size = sum(map(len, pieces))
        if not size:
            return
        if self.size and self.size - self.on_disk + size > self.limit:
            try:
                self._store(pieces, size)
                return
            except OSError as error:
                import logging  # takes long to load

                text = "%d bytes for a worker in another process stay in memory: they cannot be written, %s"
                logging.getLogger(__name__).warning(text, size, error)
        self._items.extend([memoryview(piece) for piece in pieces if len(piece)])
        self.size += size

    def _store(self, pieces: Sequence[Piece], size: int) -> None:
        file, page = self._files.append(pieces)
        self._items.append(_Stored(file, page.at, page.at + size))
        self.size += size
        self.on_disk += size

    def pieces(self, most: int) -> list[memoryview]:
        """Return the first pieces, at least one and at most so many, without removing them. ``SpillError`` for a damaged file."""
        first = self._items[0]
        if not isinstance(first, memoryview):
            self._load(first)
        pieces: list[memoryview] = []
        for item in self._items:
            if not isinstance(item, memoryview) or len(pieces) == most:
                break
            pieces.append(item)
        return pieces

    def _load(self, stored: _Stored) -> None:
        """Read the next block of the first item, which is in a file."""
        file, at, end = stored
        size = min(end - at, _BLOCK)
        try:
            [block] = file.read(Page(at, [size]))
        except OSError as error:
            raise SpillError(
                f"what waits for a worker in another process cannot be read back from its temporary file, {error}: let nothing"
                " touch the temporary files of a run"
            ) from error
        self._items.popleft()
        self.on_disk -= size
        if at + size < end:
            self._items.appendleft(_Stored(file, at + size, end))
        else:
            self._files.release(file)
        self._items.appendleft(block)

    def sent(self, count: int) -> None:
        """Remove this number of bytes from the pieces in memory."""
        items = self._items
        self.size -= count
        while count:
            first = items[0]
            assert isinstance(first, memoryview)
            if count < len(first):
                items[0] = first[count:]
                return
            count -= len(first)
            items.popleft()

    def clear(self) -> None:
        """Discard everything."""
        self._files.clear()
        self._items.clear()
        self.size = self.on_disk = 0


ROOM: Final = 1 << 16
"""Bytes that are read at once, where the size of what comes is not known yet."""

TAKEN: Final = 1 << 20
"""Bytes of messages that are taken at once: the rest is taken when these were worked off."""

Frames: TypeAlias = dict[tuple[int, ...], tuple[list[Any], list[Piece]]]
"""Messages, by their identities, and the buffers of the frame with them."""

_MOST_PIECES: Final = 512
_FEW: Final = 16


class Link:
    """One connection to a worker in another process.

    No frame has a body of more than ``largest`` bytes, in either direction. While messages wait, their progress batches are
    merged, and of their bytes about ``in_memory`` are in memory. ``room`` is scratch memory to read into, which the links of one
    thread may share.
    """

    __slots__ = (
        *("_at", "_body", "_buffers", "_head", "_held", "_out", "_room", "_weight"),
        *("closed", "fault", "gone", "largest", "pending", "refused", "sock"),
    )

    _FULL: ClassVar[tuple[type[OSError], ...]] = (BlockingIOError,)
    """What the socket raises when it takes no more for now."""

    def __init__(
        self, sock: socket.socket, largest: int | None = None, room: bytearray | None = None, in_memory: int = 1 << 25
    ) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.largest = largest
        self.gone = False
        self.closed = False
        self.fault = ""
        self.pending: list[Any] = []
        self.refused: UnsendableError | None = None
        """What ``flush`` raises: a message could not be framed."""
        self._weight = 0
        self._held = 0
        self._out = SendQueue(in_memory)
        self._room = memoryview(bytearray(ROOM) if room is None else room)
        self._head = b""
        self._body: memoryview | LargeBody | None = None
        self._buffers = 0
        self._at = 0

    @property
    def backlog(self) -> bool:
        """Whether something is waiting for the other side to take it."""
        return bool(self._out)

    @property
    def waiting(self) -> int:
        """About how many bytes have not been sent yet."""
        return self._weight + self._out.size

    @property
    def framed(self) -> int:
        """How many bytes of frames wait in memory."""
        return self._out.size - self._out.on_disk

    @property
    def busy(self) -> bool:
        """Whether something has not been sent yet."""
        return not self.closed and bool(self.pending or self.backlog)

    # -- out ---------------------------------------------------------------------------------------------------------------

    def send(self, message: Any, weight: int) -> None:
        """Send a message with the next ``flush``, or earlier where much is pending: then it need not stay in memory."""
        self.pending.append(message)
        self._weight += weight
        if self._weight >= MUCH and not self.closed and self.refused is None:
            try:
                self._frame_pending(None)
            except UnsendableError as error:
                self.refused = error

    def flush(self, frames: Frames | None = None) -> None:
        """Frame what is pending, unless the frame before is still on its way, and write as much as the connection takes.

        ``frames`` are those of other links in this flush: what all peers receive is pickled once. ``UnsendableError`` for a
        message that cannot be pickled or is too large; then nothing of the frame is sent.
        """
        if self.refused is not None:
            refused, self.refused = self.refused, None
            raise refused
        if self.backlog:
            self.write()
            if self.backlog:
                self._hold()
                return
        if self.closed:
            self.pending.clear()
            self._weight = 0
        if self.pending:
            self._frame_pending(frames)

    def _frame_pending(self, frames: Frames | None) -> None:
        """Frame what is pending, and write as much as the connection takes."""
        pending, self.pending = self.pending, []
        self._weight = 0
        try:
            if self._held:
                pending, self._held = merge_progress(pending), 0
            self._out.extend(self._frame(pending, frames))
        except UnsendableError:
            raise
        except BaseException:
            self._break_off()
            raise
        self.write()

    def _hold(self) -> None:
        """Merge the waiting messages whenever there are twice as many."""
        if len(self.pending) >= 2 * self._held:
            self.pending = merge_progress(self.pending)
            self._held = max(len(self.pending), _FEW)

    def _frame(self, messages: list[Any], frames: Frames | None = None) -> list[Piece]:
        """Return the pieces of one frame with these messages, or of several where one would be too large."""
        pieces = framed(_pickled(messages, frames))
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
        """Write as much as the connection takes."""
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
        """Write everything; raise where the connection takes no more."""
        out = self._out
        while out and not self.closed:
            pieces = out.pieces(_MOST_PIECES)
            out.sent(self.sock.send(pieces[0]) if len(pieces) == 1 else self.sock.sendmsg(pieces))

    def _break_off(self) -> None:
        """Send nothing more after an interruption: how much has gone is unknown, so the peer must see a lost worker."""
        self._stop_writing()
        self.pending.clear()
        self._weight = 0
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_WR)  # below TLS, which may still be read

    def _stop_writing(self) -> None:
        """Discard what can never be sent."""
        self._out.clear()
        self.closed = True

    # -- in ----------------------------------------------------------------------------------------------------------------

    def read(self, into: list[Any]) -> None:
        """Read what has arrived, and append the messages of every complete frame."""
        try:
            self._read(into)
        except FrameError as error:
            self._end(str(error))
        except BaseException:
            self._end()  # later messages rely on the one that cannot be read
            raise

    def _end(self, fault: str = "") -> None:
        """Read no more: the connection has ended, or its content cannot be trusted."""
        self.gone = True
        self.fault = fault
        self._body = None

    def _read(self, into: list[Any]) -> None:
        taken = 0
        while not self.gone and taken < TAKEN:
            if self._body is not None:
                if not self._fill():
                    return
                taken += len(self._body)
                self._finish_frame(into)
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
            taken += count
            if self._body is None and count < ROOM:
                return

    def _finish_frame(self, into: list[Any]) -> None:
        """Append the messages of the frame that is complete now."""
        body, self._body = self._body, None
        assert body is not None
        frame = body.decode() if isinstance(body, LargeBody) else decode(body, self._buffers)  # may raise anything
        into.extend(map(unpack, frame))

    def _split(self, data: memoryview, into: list[Any]) -> None:
        """Split what has been read into frames. ``data`` is scratch memory: what outlives this call is copied."""
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
                body = memoryview(bytearray(body))  # its large pieces are views of it
            into.extend(map(unpack, decode(body, buffers)))
            at = end
        self._head = bytes(data[at:])

    def _start(self, size: int, buffers: int, first: memoryview) -> None:
        """Begin a frame of which only ``first`` has come."""
        self._body = LargeBody(size) if buffers == 1 and size >= LARGE else memoryview(bytearray(size))
        self._buffers, self._at = buffers, 0
        if len(first):
            self._rest()[: len(first)] = first
            self._at = len(first)

    def _rest(self) -> memoryview:
        """Return where to put what comes next of the incomplete frame."""
        body = self._body
        assert body is not None
        return body.room(self._at) if isinstance(body, LargeBody) else body[self._at :]

    def _fill(self) -> bool:
        """Read into the incomplete frame; return whether it is complete now."""
        body = self._body
        assert body is not None
        while self._at < len(body):
            try:
                count = self.sock.recv_into(self._rest())
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
    """Return the buffers of a frame with these messages; another link may have made it already."""
    if frames is not None:
        made = frames.get(key := tuple(map(id, messages)))
        if made is None:
            made = frames[key] = messages, _pickled(messages, None)  # kept, so that their ids stay theirs
        return made[1]
    try:
        return pickled(list(map(pack, messages)))
    except MemoryError as error:
        largest = max(messages, key=_weight)
        text = f"{_weight(largest)} bytes or more in one message leave no memory to pickle them for a worker in another process"
        raise UnsendableError(text, largest) from error
    except Exception as error:
        raise _unsendable(messages) from error


def _weight(message: Any) -> int:
    return weight_of(message.batch) if isinstance(message, DataMessage) else 0


def _unsendable(pending: Sequence[Any]) -> UnsendableError:
    """Return the error about the first pending message that cannot be pickled."""
    for message in pending:
        try:
            encode(message)
        except Exception as error:
            return UnsendableError(f"{_culprit(message[-1])} cannot be pickled for a worker in another process: {error}", message)
    return UnsendableError("what goes to a worker in another process cannot be pickled", pending[-1])


def _culprit(carried: Any) -> str:
    """Return, for an error, the first record that cannot be pickled, or all that a message carries."""
    for record in carried if isinstance(carried, list) else ():
        try:
            encode(record)
        except Exception:
            return f"a record of type {type(record).__name__}"
    return f"a {type(carried).__name__}"
