"""``replay``: recorded streams as a stream of another dataflow, which goes as far as they have gone.

Each source is one recorded stream. The operator holds a capability for every time of its frontier, so that the frontier behind
the operator is the lowest of what the sources have said, and the stream ends when all of them are over. The invariant: whatever
the order in which sources get ahead of each other, the same records come at the same times. A source that breaks off or breaks
the rules ends in an error, and never in silence, and not before what came ahead of it is on its way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from timely.dataflow import Activator, Allocator, Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope
from timely.errors import CaptureError, StateError, TimelyError, brief
from timely.operators.connection import ConnectionSource
from timely.operators.events import Event, EventSource, Messages, StreamState
from timely.operators.generic import source
from timely.operators.link import EventLink
from timely.operators.recording import FileSource
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

AT_ONCE: Final = 64
"""Events that one source may give in one activation."""

PATIENCE: Final = 0.001
"""Seconds after which a source that cannot tell when there is more is asked again."""


class _Given(EventSource[T]):
    """The events of an iterable, all of which are there."""

    def __init__(self, events: Iterable[Event[T]]) -> None:
        self._events: Iterator[Event[T]] = iter(events)

    def take(self) -> Event[T]:
        for event in self._events:
            return event
        raise EOFError


class _Track(Generic[T]):
    """One recorded stream on its way: how far it has come, and the capabilities for what it may still bring.

    Records among the first ``skip`` events are left out: a run from which this one goes on has passed them on.
    """

    def __init__(self, source: EventSource[T], name: str, capability: Capability[T], check: Callable[[object], None]) -> None:
        self.source = source
        self.path = getattr(source, "path", None)
        self.skip = 0
        self._name = name
        self._check = check
        self._state: StreamState[T] = StreamState()
        self._finished = False
        self._unopened: Capability[T] | None = capability
        self._held: dict[T, Capability[T]] = {}

    @property
    def over(self) -> bool:
        """Whether the stream has brought everything."""
        return self._state.over or self._finished

    @property
    def kept(self) -> _Kept:
        """What a run needs to know that goes on from here."""
        return self.path, max(self._state.events, self.skip), self.over

    def go_on(self, kept: _Kept, label: str) -> None:
        """Begin where a track of another run had come to; ``StateError`` for a source that gives nothing twice."""
        _, self.skip, self._finished = kept
        if self._finished:
            if self._unopened is not None:
                self._unopened.drop()
        elif isinstance(self.source, ConnectionSource):
            raise StateError(
                f"{label}: {self._name} comes over a connection, which had not ended at the checkpoint, and does not give again"
                " what it gave: record into a file, and replay that"
            )

    def advance(self, output: OutputPort[T]) -> bool:
        """Pass on the next event; return whether there was one."""
        try:
            event = self.source.take()
            if event is None:
                return False
            if isinstance(event, Messages):
                self._check(event.time)
                self._state.take_in(event)
                if self._state.events > self.skip:
                    self._send(event.time, event.batch, output)
            else:
                self._move(event)
        except EOFError:
            raise self._state.broken(f"{self._name} ends before the stream is over") from None
        except CaptureError as error:
            raise CaptureError(f"{self._name}: {error}", error.events, error.frontier, error.position) from error
        return True

    def _send(self, time: T, batch: Any, output: OutputPort[T]) -> None:
        held = next(capability for known, capability in self._held.items() if known <= time)
        with held.delayed(time) as capability:
            output.session(capability).give_batch(batch)

    def _move(self, event: Any) -> None:
        """Follow the frontier of the stream: first take what comes to it, from what was there, and then drop what left it."""
        for time, diff in getattr(event, "changes", ()):
            if diff > 0:
                self._check(time)
        changes = self._state.take_in(event)
        before = list(self._held.values()) if self._unopened is None else [self._unopened]
        for time, diff in changes:
            if diff > 0:
                below = next(capability for capability in before if capability.time <= time)
                self._held[time] = below.delayed(time)
        for time, diff in changes:
            if diff < 0:
                self._held.pop(time).drop()
        if self._unopened is not None:
            self._unopened.drop()
            self._unopened = None


def replay(scope: ScopeBuilder[T], *sources: Any) -> Stream[T, Any]:
    """Return the stream of what was recorded with ``capture_into``, at the times at which it was recorded.

    Each source is one recorded stream: a list of events, a ``timely.EventLink``, the path of a file or a ``timely.FileSource``, a
    ``timely.ConnectionSource``, or an ``EventSource`` of one's own. A worker replays the sources that it is given; to share out
    those that ``n`` workers have recorded, give each ``sources[worker.index :: worker.peers]``. Without any, the stream is empty.

    The stream is over when all of its sources are. A run that goes on from a checkpoint reads each source from its beginning and
    passes on what had not been passed on: it needs to be given the same ones, in the same order. On another number of workers
    all of them must be files, which are told by their paths, or over. ``StateError`` where that cannot be, and for a
    connection, which does not begin anew. ``CaptureError``, as the cause of an ``OperatorError``, for a source that
    breaks off, is damaged, or breaks the rules of :mod:`timely.operators.events`; ``TimestampError`` for times that are not the
    scope's.

    >>> import timely
    >>> from timely import Messages, Progress
    >>> first = [Progress([(0, 1)]), Messages(0, ["a"]), Messages(3, ["c"]), Progress([(0, -1)])]
    >>> second = [Progress([(1, 1)]), Messages(1, ["b"]), Progress([(1, -1)])]
    >>> timely.example(lambda scope: scope.replay(first, second))
    [(0, ['a']), (1, ['b']), (3, ['c'])]
    """
    check_scope(scope, "replay")
    found = [_source(given) for given in sources]
    check = scope.subgraph.domain.check

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        tracks = [_Track(each, f"source {n} of replay", capability.copy(), check) for n, each in enumerate(found)]
        found.clear()
        capability.drop()
        _keep(info, tracks)
        return _Replay(tracks, info.activator, scope.allocator).logic

    return source(scope, "replay", constructor)


_Kept: TypeAlias = tuple[str | None, int, bool]
"""The path of a source that is a file, how many events were taken from it, and whether it was over."""


def _keep(info: OperatorInfo, tracks: Sequence[_Track[Any]]) -> None:
    """Declare how far the tracks have come."""
    tracks = tuple(tracks)
    label = f"operator {info.name!r} ({info.path})"

    def load(items: Iterable[list[_Kept]]) -> None:
        for kept in items:
            if len(kept) != len(tracks):
                raise StateError(f"{label}: there were {len(kept)} sources, and now there are {len(tracks)}: give the same ones")
            for track, found in zip(tracks, kept, strict=True):
                track.go_on(found, label)

    def rescale(parts: Sequence[Iterable[list[_Kept]]]) -> None:
        known = [found for items in parts for kept in items for found in kept]
        by_path: dict[str | None, _Kept] = {found[0]: found for found in known if found[0] is not None}
        finished = all(over for _, _, over in known)
        for track in tracks:
            if track.path not in by_path and not finished:
                which = "a source that is no file" if track.path is None else repr(track.path)
                raise StateError(
                    f"{label}: on another number of workers only files that were there before can be gone on with, not {which}:"
                    f" go on with {len(parts)} workers"
                )
            track.go_on(by_path.get(track.path, (None, 0, True)), label)

    info.keep(lambda: [(None, [track.kept for track in tracks])], load, rescale=rescale)


class _Replay(Generic[T]):
    """The operator: takes from every source what there is, and sees to it that it runs when there is more."""

    def __init__(self, tracks: list[_Track[T]], activator: Activator, allocator: Allocator) -> None:
        self._tracks = tracks
        self._activator = activator
        self._bell = activator.bell()
        self._call_after = allocator.call_after
        self._will_look = False
        self._failure: TimelyError | None = None

    def logic(self, output: OutputPort[T]) -> None:
        if self._failure is not None:
            raise self._failure
        blind, moved = False, False
        for track in self._tracks:
            for _ in range(AT_ONCE):
                if track.over:
                    break
                try:
                    taken = track.advance(output)
                except TimelyError as failure:
                    if not moved:
                        raise
                    self._failure = failure  # for the next time, so that what was taken before it gets where it is to go
                    self._activator.activate()
                    return
                if not taken:
                    blind = blind or not track.source.notify(self._bell.ring)
                    break
                moved = True
            else:
                self._activator.activate()
        self._tracks = [track for track in self._tracks if not track.over]
        self._bell.expected = any(track.source.outside for track in self._tracks)
        if blind and not self._will_look:
            self._will_look = True
            self._call_after(PATIENCE, self._look)

    def _look(self) -> None:
        """Run again, since nobody says when a source has more."""
        self._will_look = False
        self._activator.activate()


def _source(given: Any) -> EventSource[Any]:
    """Return what events are taken from."""
    if isinstance(given, EventSource):
        return given
    if isinstance(given, EventLink):
        return given.reader()
    if isinstance(given, str | os.PathLike):
        return FileSource(given)
    if isinstance(given, list | tuple) and given and isinstance(given[0], str | os.PathLike | EventSource | EventLink):
        raise CaptureError(f"replay takes recorded streams one by one, as in replay(*sources), not {brief(given)}")
    if isinstance(given, Iterable):
        return _Given(given)
    raise CaptureError(
        f"replay needs recorded streams (a list of events, an EventLink, a path, a FileSource), not {brief(given)}"
    )
