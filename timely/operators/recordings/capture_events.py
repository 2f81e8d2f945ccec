"""Events, of which a recorded stream is made; the rules that they keep, which ``StreamState`` checks; events as frames of bytes.

A stream opens with a ``Progress`` that counts times up. From then on a time is counted up, or has records, only at or after a
time with a positive count; no count becomes negative; the stream is over when no count is left. Source: the capture of timely
dataflow.

A frame is a header of ``HEADER`` bytes (its number, the size of its body, the number of its pieces, checksums of body and header)
and a body: the sizes of the pieces, and the pieces, padded to eight bytes. The first piece is a pickle, the others the buffers of
Arrow batches and arrays. A frame holds one event, or records and the progress after them; its number is that of its first event.
The last frame has the number of events, so that truncation, damage and loss are noticed. Unpickling executes code, so a decoder
accepts plain data only (:mod:`timely.dataflow.containers.plain_data`) unless the bytes are trusted.
"""

from __future__ import annotations

import operator
import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias

import attrs

from timely.dataflow import PlainPickles, unpickled_plain
from timely.errors import CaptureError, brief
from timely.operators.type_variables import T
from timely.order import reaches
from timely.progress import Antichain


def _pairs(changes: Iterable[tuple[T, int]]) -> tuple[tuple[T, int], ...]:
    try:
        return tuple([(time, operator.index(diff)) for time, diff in changes])
    except (TypeError, ValueError) as error:
        raise CaptureError(f"changes of progress are pairs of a time and a whole number, not {brief(changes)}") from error


@attrs.frozen
class Messages(Generic[T]):
    """A container of records came at ``time``."""

    time: T
    batch: Any


@attrs.frozen
class Progress(Generic[T]):
    """The counts of times change by these pairs ``(time, difference)``, at once; ``CaptureError`` for anything else.

    >>> Progress([(0, -1), (1, +1)])  # later records are at 1 or later
    Progress(changes=((0, -1), (1, 1)))
    """

    changes: tuple[tuple[T, int], ...] = attrs.field(converter=_pairs)


Event: TypeAlias = Messages[T] | Progress[T]


class EventSink(Protocol):
    """What a stream can be captured into, such as a list."""

    def append(self, event: Any, /) -> object:
        """Append the next event."""


class EventSource(Generic[T]):
    """What a stream can be replayed from: derive from it for a source of your own."""

    __slots__ = ()

    def take(self) -> Event[T] | None:
        """Return the next event, ``None`` if it has not come yet; ``EOFError`` if there are no more.

        It is not called after the event with which the stream is over.
        """
        raise NotImplementedError

    def notify(self, wake: Callable[[], None]) -> bool:
        """Call ``wake()``, on any thread, when there is an event; called after ``take`` has returned ``None``.

        ``False``, the default, if the source cannot: then it is polled.
        """
        return False

    @property
    def checked_state(self) -> StreamState[T] | None:
        """The state of the stream after the event that ``take`` returned last, if the source keeps it: events were checked then.

        ``None``, the default, for a source whose events ``replay`` is to check.

        >>> print(EventSource().checked_state)
        None
        """
        return None

    @property
    def outside(self) -> bool:
        """Whether another thread may call ``wake()``, so that a worker that waits for it has not stalled."""
        return False


@attrs.define(eq=False, repr=False)
class StreamState(Generic[T]):
    """The state of one stream of events; ``apply`` refuses an event that breaks the rules.

    >>> state = StreamState()
    >>> for event in Progress([(0, 1)]), Messages(2, ["a"]), Progress([(0, -1), (3, 1)]):
    ...     state.apply(event)
    >>> state.frontier, state.over, state.events
    (Antichain([3]), False, 3)
    """

    events: int = attrs.field(default=0, init=False)
    _counts: dict[T, int] = attrs.field(factory=dict, init=False)
    """The times with a positive count: few, since a recording counts the times of a frontier."""
    _total: int = attrs.field(default=0, init=False)
    _open: bool = attrs.field(default=False, init=False)

    @property
    def frontier(self) -> Antichain[T]:
        """The minimal times at which records may still come; empty before the stream opens and when it is over."""
        return Antichain(self._counts)

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return self._open and self._total == 0

    def apply(self, event: Event[T]) -> None:
        """Follow the event; ``CaptureError``, without a change, if it breaks the rules."""
        try:
            if isinstance(event, Messages):
                if not reaches([*self._counts], event.time):
                    raise self.broken(f"event {self.events} has records at {brief(event.time)}, which cannot come any more")
            elif isinstance(event, Progress):
                self._count(self._net(event.changes))
                self._open = True
            else:
                raise self.broken(
                    f"event {self.events} is to be Messages(time, batch) or Progress(changes), and is {brief(event)}"
                )
        except (TypeError, ValueError) as error:
            if isinstance(error, CaptureError):
                raise
            raise self.broken(f"event {self.events} has a time that does not go with those before: {error}") from error
        self.events += 1

    def revert(self, event: Event[T]) -> None:
        """Remove the last event, which could not be written."""
        self.events -= 1
        self._open = self.events > 0
        if isinstance(event, Progress):
            self._count((time, -diff) for time, diff in event.changes)

    def _net(self, changes: Iterable[tuple[T, int]]) -> Iterable[tuple[T, int]]:
        """Return the changes by time; ``CaptureError`` if they break the rules, ``TypeError`` for times that do not compare."""
        net: dict[T, int] = {}
        for time, diff in changes:
            net[time] = net.get(time, 0) + diff
        counts = self._counts
        if not self._open:
            Antichain(net)  # compares them
        elif not counts:
            raise self.broken(f"event {self.events} comes after the stream was over")
        for time, diff in net.items():
            if diff > 0:
                if self._open and not reaches([*counts], time):
                    raise self.broken(
                        f"event {self.events} counts {brief(time)} up, which is not at or after a time still counted"
                    )
            elif counts.get(time, 0) + diff < 0:
                raise self.broken(f"event {self.events} counts {brief(time)} down below zero")
        return net.items()

    def _count(self, changes: Iterable[tuple[T, int]]) -> None:
        counts = self._counts
        for time, diff in changes:
            count = counts[time] = counts.get(time, 0) + diff
            self._total += diff
            if not count:
                del counts[time]

    def broken(self, what: str, position: int | None = None) -> CaptureError:
        """Return the error that says what is wrong, and how many events are good."""
        times = self.frontier.elements
        if not self._open:
            still = "the stream has not opened yet, with a Progress that counts times up"
        else:
            still = f"after these, records may still come at or after {', '.join(map(brief, times))}" if times else "it was over"
        where = "" if position is None else f", the first {position} bytes"
        return CaptureError(f"{what}; {self.events} events are good{where}: {still}", self.events, times, position)


Piece: TypeAlias = bytes | memoryview

_FRAME: Final = struct.Struct("<QQII")
_SUM: Final = struct.Struct("<Q")
_HEADER: Final = struct.Struct("<QQIIQ")
_PADDING: Final = bytes(7)
_SMALL: Final = 1 << 16
"""Bytes of a frame up to which a copy costs less than another checksum and another part to be written."""
HEADER: Final = _HEADER.size

LARGEST: Final = 2 << 30
"""Bytes of the largest frame that is read of an untrusted writer: a file of a few blocks can announce any number."""

_MESSAGES: Final = "messages"
_PROGRESS: Final = "progress"
_END: Final = "end"


_REMEDY: Final = (
    "if it comes from somebody you trust with your machine, read it with trusted=True, since to unpickle such things executes"
    " what they say"
)


class Damaged(Exception):
    """A frame is not as it was written."""


def frame(number: int, parts: list[Piece]) -> list[Piece]:
    """Return the pieces of the frame for what was pickled into ``parts``, to be written one after another."""
    sizes = [len(part) for part in parts]
    body: list[Piece] = [struct.pack(f"<{len(sizes)}Q", *sizes)]
    for part, over in zip(parts, sizes, strict=True):
        body += part, _PADDING[: -over % 8]
    if sum(sizes) < _SMALL:
        body = [b"".join(body)]
    size = checksum = 0
    for part in body:
        size += len(part)
        checksum = zlib.crc32(part, checksum)
    head = _FRAME.pack(number, size, len(sizes), checksum)
    return [head + _SUM.pack(zlib.crc32(head)), *body]


class Header(NamedTuple):
    """The size, number of pieces and checksum of a frame's body."""

    size: int
    pieces: int
    checksum: int


def parse_header(data: Piece, number: int, trusted: bool) -> Header:
    """Return what the header of frame ``number`` says; ``Damaged`` if it is not that, or announces too much."""
    first, size, pieces, checksum, own = _HEADER.unpack_from(data)
    if own != zlib.crc32(data[: _FRAME.size]):
        raise Damaged(f"the header of frame {number} does not have the checksum that it should have")
    if first != number:
        raise Damaged(f"frame {first} stands where frame {number} should")
    if size > LARGEST and not trusted:
        raise Damaged(f"frame {number} has {size} bytes, and {LARGEST} are the most that are read; {_REMEDY}")
    return Header(size, pieces, checksum)


def check_body(header: Header, body: memoryview, number: int) -> None:
    """Raise ``Damaged`` for a body that was changed."""
    if header.size != len(body):
        raise Damaged(f"frame {number} has {len(body)} bytes of {header.size}")
    if zlib.crc32(body) != header.checksum:
        raise Damaged(f"frame {number} does not have the checksum that it should have")


def parse_body(header: Header, body: memoryview, number: int, trusted: bool) -> Any:
    """Return the content of a frame; ``Damaged`` if it was changed or cannot be read."""
    check_body(header, body, number)
    return content_of(header, body, number, trusted)


def content_of(header: Header, body: memoryview, number: int, trusted: bool) -> Any:
    """Return the content of a frame that was checked; ``Damaged`` if it cannot be read."""
    at = 8 * header.pieces
    parts = []
    try:
        for size in struct.unpack_from(f"<{header.pieces}Q", body):
            parts.append(body[at : at + size])
            at += size + -size % 8
        return pickle.loads(parts[0], buffers=parts[1:]) if trusted else unpickled_plain(parts)
    except Exception as error:
        remedy = f": {_REMEDY}" if isinstance(error, pickle.UnpicklingError) and not trusted else ""
        raise Damaged(f"frame {number} cannot be read: {error or type(error).__name__}{remedy}") from error


@attrs.define(eq=False)
class Encoder(Generic[T]):
    """Encodes the events of one stream; the last event is followed by the frame that ends the stream."""

    state: StreamState[T] = attrs.field(factory=StreamState)
    _pickles: PlainPickles = attrs.field(factory=PlainPickles)

    def encode(self, events: Sequence[Event[T]], at: int = 0) -> tuple[list[Piece], int]:
        """Return the bytes of the next frame, and how many events it holds: ``events[at]``, and the next if that is the progress
        after records.

        ``CaptureError`` if the first event breaks the rules or cannot be pickled.
        """
        event = events[at]
        if isinstance(event, Messages) and at + 1 < len(events) and isinstance(events[at + 1], Progress):
            try:
                return self._frame(event, events[at + 1]), 2
            except CaptureError:
                pass  # the first may be good by itself
        return self._frame(event), 1

    def _frame(self, event: Event[T], following: Event[T] | None = None) -> list[Piece]:
        state, number = self.state, self.state.events
        try:
            pieces = frame(number, self._pickles.pickled(_content(event, following)))
        except Exception as error:
            raise state.broken(f"event {number} cannot be recorded: {error}") from error
        state.apply(event)
        if following is not None:
            try:
                state.apply(following)
            except CaptureError:
                state.revert(event)
                raise
        if state.over:
            pieces += frame(state.events, self._pickles.pickled((_END, state.events)))
        return pieces


def _content(event: Any, following: Any) -> tuple[Any, ...]:
    if isinstance(event, Messages):
        if following is not None:
            return _MESSAGES, event.time, event.batch, following.changes
        return _MESSAGES, event.time, event.batch
    if isinstance(event, Progress):
        return _PROGRESS, event.changes
    raise CaptureError(f"it is to be Messages(time, batch) or Progress(changes), and is {event!r}")


@attrs.define(eq=False)
class Decoder(Generic[T]):
    """Decodes the events of one stream; returns the last event only with the frame that ends the stream."""

    trusted: bool
    state: StreamState[T] = attrs.field(factory=StreamState)
    frames: int = 0
    """The number of the next frame: that of its first event."""
    ended: bool = False
    waiting: Progress[T] | None = None
    """The progress in the last frame, which comes after the records in it."""
    _last: Event[T] | None = None

    def decode(self, header: Header, body: memoryview) -> Event[T] | None:
        """Return the event in the next frame, or ``None`` for the last one until the stream has ended.

        ``Damaged`` for a frame that was changed, ``CaptureError`` for an event that breaks the rules.
        """
        content = parse_body(header, body, self.frames, self.trusted)
        if self._last is not None:
            return self._end(content)
        self.frames += 1
        match content:
            case (str(kind), time, batch, changes) if kind == _MESSAGES:
                self.frames += 1
                self.waiting = Progress(changes)
                return self._accepted(Messages(time, batch))
            case (str(kind), time, batch) if kind == _MESSAGES:
                return self._accepted(Messages(time, batch))
            case (str(kind), changes) if kind == _PROGRESS:
                return self._accepted(Progress(changes))
        raise Damaged(f"frame {self.frames - 1} holds no event")

    def following(self) -> Event[T] | None:
        """Return the event that is ``waiting``, as ``decode`` does."""
        event, self.waiting = self.waiting, None
        assert event is not None
        return self._accepted(event)

    def _accepted(self, event: Event[T]) -> Event[T] | None:
        self.state.apply(event)
        if self.state.over:
            self.state.revert(event)
            self._last = event
            return None
        return event

    def _end(self, content: Any) -> Event[T] | None:
        if content != (_END, self.frames) or self._last is None:
            raise Damaged(f"frame {self.frames} is not the end of the stream, which should be there")
        self.state.apply(self._last)
        self.ended = True
        return self._last
