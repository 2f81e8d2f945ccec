"""Recorded streams from one process to another: ``ConnectionSink`` sends one, ``ConnectionSource`` receives it.

Both work on a connection of ``multiprocessing.connection``: one end of a ``Pipe``, or what ``Listener.accept`` and ``Client``
return, which with an ``authkey`` have shown each other that they know it. The events travel as frames
(:mod:`timely.operators.encoding`). The invariant: the receiver has every event once and in order, or a ``CaptureError`` that
says how much came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from timely.errors import CaptureError
from timely.operators.encoding import HEADER, Damaged, Decoder, Encoder
from timely.operators.events import Event, EventSource
from timely.order import PartialOrder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T", bound=PartialOrder)


class ConnectionSink(Generic[T]):
    """Sends a stream over a connection as it is recorded; a send waits while the other side is behind with its reading.

    The connection stays open and is its owner's to close; closed before the stream is over, it is a ``CaptureError`` at the other
    end. ``CaptureError`` here when the other side has gone.

    >>> import multiprocessing, timely
    >>> there, here = multiprocessing.Pipe()
    >>> def build(scope):
    ...     numbers = scope.to_stream(range(3))
    ...     numbers.capture_into(ConnectionSink(there))
    ...     return numbers
    >>> _ = timely.example(build)
    >>> timely.example(lambda scope: scope.replay(ConnectionSource(here)))
    [(0, [0, 1, 2])]
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._encoder: Encoder[T] = Encoder()

    def append(self, event: Event[T]) -> None:
        """Send the next event."""
        pieces = self._encoder.encode(event)
        try:
            self._connection.send_bytes(b"".join(pieces))
        except OSError as error:
            self._encoder.state.take_back(event)
            raise self._encoder.state.broken(f"the recorded stream cannot be sent on: {error}") from error


class ConnectionSource(EventSource[T]):
    """Receives a stream that a ``ConnectionSink`` sends: give it to ``replay``.

    Only plain data is taken, unless the other side is somebody you trust (``trusted=True``), see
    :mod:`timely.operators.encoding`. ``CaptureError`` if the connection ends before the stream is over,
    or carries something else.
    """

    def __init__(self, connection: Connection[Any, Any], *, trusted: bool = False) -> None:
        self._connection = connection
        self._decoder: Decoder[T] = Decoder(trusted)

    def take(self) -> Event[T] | None:
        """Return the next event, or ``None`` if it has not arrived yet; ``EOFError`` after the last."""
        if self._decoder.ended:
            raise EOFError
        state = self._decoder.state
        try:
            if not self._connection.poll():
                return None
            return self._decode(memoryview(self._connection.recv_bytes()))
        except (EOFError, OSError) as error:
            raise state.broken("the connection ended in the middle of the stream") from error
        except Damaged as damage:
            raise state.broken(f"what came over the connection is damaged: {damage}") from damage.__cause__
        except CaptureError as error:
            raise state.broken(f"what came over the connection is no recording of a stream: {error}") from error

    def _decode(self, data: memoryview) -> Event[T] | None:
        """Return the event in one parcel, which for the last event holds the end of the stream as well."""
        event: Event[T] | None = None
        while data and event is None:
            if len(data) < HEADER:
                raise Damaged(f"{len(data)} bytes are too few")
            size = int.from_bytes(data[8:16], "little")
            event = self._decoder.decode(data[:HEADER], data[HEADER : HEADER + size])
            data = data[HEADER + size :]
        if data:
            raise Damaged(f"{len(data)} bytes are too many")
        return event
