"""``EventLink``: a recorded stream in memory, which any number of readers replay, while it is recorded or later."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic

import attrs
from typing_extensions import override

from timely.errors import CaptureError
from timely.operators.recordings.capture_events import Event, EventSource, Messages, Progress
from timely.operators.recordings.captures import extract
from timely.operators.type_variables import T
from timely.progress import ChangeBatch


@attrs.define(eq=False)
class _Node(Generic[T]):
    """One event and its successor. The chain starts with a node without an event."""

    event: Event[T] | None
    following: _Node[T] | None = None


class EventLink(Generic[T]):
    """A recording in memory: give it to ``capture_into``, and to ``replay`` any number of times.

    The link stores events until ``forget``, and frees what is behind all readers then. ``across_threads=True`` declares that a
    worker in another thread writes it, without which a worker that only waits for it has stalled.
    Several workers may record into one link to ``extract``; only the stream of one worker can be replayed.

    >>> import timely
    >>> link = EventLink()
    >>> with (worker := timely.Worker()).dataflow() as scope:
    ...     scope.to_stream(range(3)).capture_into(link)
    >>> worker.run()
    >>> timely.example(lambda scope: scope.replay(link))
    [(0, [0, 1, 2])]
    """

    def __init__(self, *, across_threads: bool = False) -> None:
        self.across_threads = across_threads
        self._last: _Node[T] = _Node(None)
        self._first = self._last
        self._counts: ChangeBatch[T] = ChangeBatch()
        self._opening: Progress[T] | None = None
        self._waiting: list[weakref.ref[LinkReader[T]]] = []
        self._lock = threading.Lock()

    def append(self, event: Event[T]) -> None:
        """Append the next event, and wake the readers that wait."""
        if not isinstance(event, Messages | Progress):
            raise CaptureError(f"a link records events, Messages(time, batch) and Progress(changes), and was given {event!r}")
        node = _Node(event)
        with self._lock:
            if isinstance(event, Progress):
                self._counts.extend(event.changes)
            self._last.following = node
            self._last = node
            waiting, self._waiting = self._waiting, []
        for reader in waiting:
            alive = reader()
            if alive is not None:
                alive.wake()

    def reader(self) -> LinkReader[T]:
        """Return a new reader, at the first event stored."""
        with self._lock:
            return LinkReader(self, self._opening, self._first)

    def forget(self) -> None:
        """Drop the events so far: a replay that begins later begins here, with the present frontier.

        Present readers still get all events.
        """
        with self._lock:
            if self._last.event is not None:
                self._opening = Progress(self._counts)
            self._first = self._last

    def wait(self, reader: LinkReader[T]) -> None:
        """Wake a reader at the next event, or now, if there is one."""
        with self._lock:
            if reader.up_to_date:
                self._waiting.append(weakref.ref(reader))
                return
        reader.wake()

    def __iter__(self) -> Iterator[Event[T]]:
        """Yield the events stored so far."""
        reader = self.reader()
        while (event := reader.take()) is not None:
            yield event

    def extract(self) -> list[tuple[T, list[Any]]]:
        """Return ``[(time, records)]`` of the events stored so far, as ``Capture.extract`` does."""
        return extract((event.time, event.batch) for event in self if isinstance(event, Messages))


@attrs.define(eq=False, repr=False)
class LinkReader(EventSource[T]):
    """One reader of a link."""

    _link: EventLink[T]
    _opening: Progress[T] | None
    _node: _Node[T]
    _wake: Callable[[], None] | None = attrs.field(default=None, init=False)

    @property
    def up_to_date(self) -> bool:
        return self._opening is None and self._node.following is None

    @property
    @override
    def outside(self) -> bool:
        return self._link.across_threads

    @override
    def take(self) -> Event[T] | None:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        following = self._node.following
        if following is None:
            return None
        self._node = following
        return following.event

    @override
    def notify(self, wake: Callable[[], None]) -> bool:
        self._wake = wake
        self._link.wait(self)
        return True

    def wake(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()
