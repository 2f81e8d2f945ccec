"""Recorded streams between processes, over a connection of ``multiprocessing.connection``: a ``Pipe``, ``Listener`` or
``Client``.

Invariant: the receiver gets every event once and in order, or a ``CaptureError`` that says how many were good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import override

from timely.errors import CaptureError
from timely.operators.recordings.capture_events import Event, EventSource, StreamState
from timely.operators.recordings.event_frames import HEADER, LARGEST, Damaged, Decoder, Encoder, parse_header
from timely.operators.type_variables import T

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

    It accepts plain data only, unless you trust the sender (``trusted=True``): see ``event_frames``.
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
