"""Recorded streams in files, and on connections of ``multiprocessing.connection``: a ``Pipe``, ``Listener`` or ``Client``.

A file is ``MAGIC``, the version of its format, and frames (``capture_events``): ``FileSink`` writes one, ``FileSource`` reads it,
complete or still being written. Invariant: a reader gets every event once and in order, or a ``CaptureError`` that says how many
were good. A truncated file is an error, at once when its writer has gone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING, Any, Final, Generic

from typing_extensions import override

from timely.errors import CaptureError, file_error_text
from timely.operators.recordings.capture_events import (
    HEADER,
    LARGEST,
    Damaged,
    Decoder,
    Encoder,
    Event,
    EventSource,
    Header,
    Piece,
    StreamState,
    parse_header,
)
from timely.operators.type_variables import T

try:
    import fcntl
except ImportError:  # without file locks a writer that has gone looks like one that is slow
    fcntl = None  # type: ignore[assignment]


MAGIC: Final = b"timely events\r\n\x1a"
VERSION: Final = 2
_PREAMBLE: Final = MAGIC + struct.pack("<Q", VERSION)
_MOST_PARTS: Final = 512
_AHEAD: Final = 1 << 16
"""Bytes that are read at once, and those that are encoded before they are written."""


class FileSink(Generic[T]):
    """Records a stream into a new file, which is complete, and closed, when the stream is over; until then it can be followed.

    ``close()`` before that, or the end of the process, leaves a truncated file. ``CaptureError`` if the file exists or cannot be
    written, and for an event that breaks the rules of ``capture_events``, cannot be pickled, or comes after the end.

    >>> import pathlib, tempfile, timely
    >>> path = pathlib.Path(tempfile.mkdtemp(), "numbers.events")
    >>> with (worker := timely.Worker()).dataflow() as scope:
    ...     scope.to_stream(range(3)).capture_into(timely.FileSink(path))
    >>> worker.run()
    >>> timely.example(lambda scope: scope.replay(path))
    [(0, [0, 1, 2])]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._encoder: Encoder[T] = Encoder()
        self._file = -1
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX)  # as long as the writer lives
        except FileExistsError:
            raise CaptureError(
                f"there is a file {self.path!r} already: record into another (each worker into its own), or remove it first"
            ) from None
        except OSError as error:
            raise CaptureError(f"{self.path!r} cannot be written: {file_error_text(error)}") from error
        self._write([_PREAMBLE])

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file < 0

    def append(self, event: Event[T]) -> None:
        """Write the next event; close the file after the last."""
        self.append_all([event])

    def append_all(self, events: Iterable[Event[T]]) -> None:
        """Write several events: as ``append`` of each, but a large part of them at once."""
        parts: list[Piece] = []
        waiting: list[tuple[Event[T], int]] = []
        listed, at, size = list(events), 0, 0
        try:
            while at < len(listed):
                if self.closed or self._encoder.state.over:
                    over = "it is complete" if self._encoder.state.over else "it was closed before the stream was over"
                    raise self._encoder.state.broken(f"{self.path!r} takes no more events: {over}")
                encoded, count = self._encoder.encode(listed, at)
                parts += encoded
                size += sum(map(len, encoded))
                waiting += [(event, size) for event in listed[at : at + count]]
                at += count
                if size > _AHEAD:
                    written, parts, waiting, size = (parts, waiting), [], [], 0
                    self._write(*written)
        finally:
            if parts:
                self._write(parts, waiting)
        if self._encoder.state.over and not self.closed:
            os.fsync(self._file)
            self.close()

    def _write(self, parts: list[Piece], events: Sequence[tuple[Event[T], int]] = ()) -> None:
        """Write the parts of events, given the offset at which each ends."""
        done = 0
        try:
            while parts:
                count = os.writev(self._file, parts[:_MOST_PARTS])
                done += count
                whole = 0
                while whole < len(parts) and count >= len(parts[whole]):
                    count -= len(parts[whole])
                    whole += 1
                parts = parts[whole:]
                if count:
                    parts[0] = memoryview(parts[0])[count:]
        except OSError as error:
            self.close()
            for event, end in reversed(events):
                if end > done:
                    self._encoder.state.revert(event)
            raise self._encoder.state.broken(f"{self.path!r} cannot be written, and breaks off here: {error}") from error

    def close(self) -> None:
        """Close the file; a no-op when it is closed."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        self.close()


class FileSource(EventSource[T]):
    """Reads a recorded stream: give it to ``replay``, or iterate over its events.

    ``follow=True`` reads a file that is still being written, or will be, to its end. It accepts plain data only, unless you
    trust the file (``trusted=True``): see ``capture_events``. ``CaptureError`` if the file is missing, damaged or
    truncated; its ``events``, ``position`` and ``frontier`` say how much was good.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False, trusted: bool = False) -> None:
        self.path = os.fspath(path)
        self._follow = follow
        self._decoder: Decoder[T] = Decoder(trusted)
        self._file: BufferedReader | None = None
        self._position = 0
        self._good = 0
        if not follow:
            self._open()

    def _open(self) -> None:
        try:
            self._file = BufferedReader(FileIO(self.path), _AHEAD)
        except OSError as error:
            if not (self._follow and isinstance(error, FileNotFoundError)):
                raise CaptureError(f"{self.path!r} cannot be read: {file_error_text(error)}") from error

    @property
    @override
    def checked_state(self) -> StreamState[T]:
        return self._decoder.state

    @override
    def take(self) -> Event[T] | None:
        """Return the next event, or ``None`` if it has not been written yet; ``EOFError`` after the last."""
        if self._file is None:
            if self._decoder.ended:
                raise EOFError
            self._open()
            if self._file is None:
                return None
        file = self._file
        try:
            event = self._next(file)
            if event is None:
                if self._follow and not _writer_has_gone(file):
                    return None
                event = self._next(file)  # what it wrote last
        except Damaged as damage:
            raise self._broken(f"{self.path!r} is damaged: {damage}") from damage.__cause__
        except CaptureError as error:
            raise self._broken(f"{self.path!r} is no recording of a stream: {error}") from error
        if event is None:
            raise self._broken(f"{self.path!r} breaks off in the middle of the stream, after {_size(file)} bytes")
        return event

    def _next(self, file: BufferedReader) -> Event[T] | None:
        """Return the next event, or ``None`` if its frame is incomplete."""
        decoder, event = self._decoder, None
        while event is None:
            if decoder.waiting is not None:
                event = decoder.following()
            elif (frame := self._next_frame(file)) is not None:
                header, body = frame
                event = decoder.decode(header, body)
                self._position += HEADER + header.size
                if decoder.ended and (more := _size(file) - self._position):
                    raise Damaged(f"{more} bytes follow the end of the stream")
            else:
                return None
        if decoder.waiting is None:
            self._good = self._position
        if decoder.ended:
            self.close()
        return event

    def _next_frame(self, file: BufferedReader) -> tuple[Header, memoryview] | None:
        """Return the header and body of the next frame, or ``None`` if it is incomplete."""
        if self._position == 0 and not self._has_preamble(file):
            return None
        file.seek(self._position)
        head = file.read(HEADER)
        if len(head) < HEADER:
            return None
        header = parse_header(head, self._decoder.frames, self._decoder.trusted)
        if header.size > _AHEAD and _size(file) < file.tell() + header.size:  # which may be announced and never come
            return None
        body = bytearray(header.size)
        return (header, memoryview(body)) if file.readinto(body) == header.size else None

    def _has_preamble(self, file: BufferedReader) -> bool:
        """Check how the file begins; return whether that is complete."""
        file.seek(0)
        beginning = file.read(len(_PREAMBLE))
        if not beginning.startswith(MAGIC[: len(beginning)]):
            raise Damaged("it does not begin as a recording does")
        if len(beginning) < len(_PREAMBLE):
            return False
        (version,) = struct.unpack_from("<Q", beginning, len(MAGIC))
        if version != VERSION:
            raise Damaged(f"its format is of version {version}, and this library reads version {VERSION}")
        self._position = self._good = len(_PREAMBLE)
        return True

    def _broken(self, what: str) -> CaptureError:
        self.close()
        return self._decoder.state.broken(what, self._good)

    def __iter__(self) -> Iterator[Event[T]]:
        """Yield the events written and not read yet."""
        while not self._decoder.ended:
            event = self.take()
            if event is None:
                return
            yield event

    def close(self) -> None:
        """Close the file; a no-op when it is closed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


def _size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _writer_has_gone(file: BufferedReader) -> bool:
    """Return whether no writer has the lock; an empty file may wait for its writer to take it."""
    if fcntl is None or _size(file) == 0:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class ConnectionSink(Generic[T]):
    """Sends a stream over a connection as it is recorded; a send blocks while the receiver is behind.

    The owner closes the connection. Before the end of the stream that is a ``CaptureError`` at the other end, and here once the
    other end has closed.

    >>> import multiprocessing, timely
    >>> there, here = multiprocessing.Pipe()
    >>> sink = ConnectionSink(there)
    >>> for event in (timely.Progress([(0, 1)]), timely.Messages(0, ["a"]), timely.Progress([(0, -1)])):
    ...     sink.append(event)
    >>> timely.example(lambda scope: scope.replay(ConnectionSource(here)))
    [(0, ['a'])]
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._encoder: Encoder[T] = Encoder()

    def append(self, event: Event[T]) -> None:
        """Send the next event."""
        frames, _ = self._encoder.encode([event])
        try:
            self._connection.send_bytes(b"".join(frames))
        except OSError as error:
            self._encoder.state.revert(event)
            raise self._encoder.state.broken(f"the recorded stream cannot be sent on: {error}") from error


class ConnectionSource(EventSource[T]):
    """Receives a stream that a ``ConnectionSink`` sends: give it to ``replay``.

    It accepts plain data only, unless you trust the sender (``trusted=True``): see ``capture_events``.
    ``CaptureError`` if the connection ends before the stream, or carries something else.
    """

    def __init__(self, connection: Connection[Any, Any], *, trusted: bool = False) -> None:
        self._connection = connection
        self._decoder: Decoder[T] = Decoder(trusted)

    @property
    @override
    def checked_state(self) -> StreamState[T]:
        return self._decoder.state

    @override
    def take(self) -> Event[T] | None:
        """Return the next event, or ``None`` if it has not arrived yet; ``EOFError`` after the last."""
        if self._decoder.ended:
            raise EOFError
        state = self._decoder.state
        try:
            if not self._connection.poll():
                return None
            most = None if self._decoder.trusted else 2 * LARGEST  # the last event comes with the end
            return self._decode(memoryview(self._connection.recv_bytes(most)))
        except (EOFError, OSError) as error:
            raise state.broken("the connection ended in the middle of the stream") from error
        except Damaged as damage:
            raise state.broken(f"what came over the connection is damaged: {damage}") from damage.__cause__
        except CaptureError as error:
            raise state.broken(f"what came over the connection is no recording of a stream: {error}") from error

    def _decode(self, data: memoryview) -> Event[T] | None:
        event: Event[T] | None = None
        while data and event is None:
            if len(data) < HEADER:
                raise Damaged(f"{len(data)} bytes are too few")
            header = parse_header(data, self._decoder.frames, self._decoder.trusted)
            event = self._decoder.decode(header, data[HEADER : HEADER + header.size])
            if self._decoder.waiting is not None:
                raise Damaged("it has two events where one is sent")
            data = data[HEADER + header.size :]
        if data:
            raise Damaged(f"{len(data)} bytes are too many")
        return event
