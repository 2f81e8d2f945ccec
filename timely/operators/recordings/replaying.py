"""``replay``: recorded streams as a stream of another dataflow.

The operator holds a capability for every time of each source's frontier. Invariant: the same records come at the same times,
whichever source is ahead. A source that is truncated or breaks the rules is an error, after what came before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias

import attrs
from typing_extensions import override

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Session, Stream, check_scope, operator_name
from timely.errors import CaptureError, StateError, TimelyError, brief
from timely.operators.generic import source
from timely.operators.recordings.capture_events import Event, EventSource, Messages, StreamState
from timely.operators.recordings.captures import EventLink
from timely.operators.recordings.recording import ConnectionSource, FileSource
from timely.operators.type_variables import T

EVENTS_PER_ACTIVATION: Final = 16
"""Events read from one source in one activation. With 64, so many records live at once that the collector takes a fifth more."""

POLL_INTERVAL: Final = 0.001
"""Seconds between reads of a source without ``notify``."""


@attrs.define(eq=False)
class _Given(EventSource[T]):
    _events: Iterator[Event[T]]

    @override
    def take(self) -> Event[T]:
        for event in self._events:
            return event
        raise EOFError


@attrs.define(eq=False)
class _Track(Generic[T]):
    """One recorded stream: how far it was read, and the capabilities for its frontier at the start of the activation.

    They permit what the activation sends: ``follow`` moves them once, at its end. The first ``skip`` events send nothing: the run
    that this one resumes has sent their records.
    """

    source: EventSource[T]
    _name: str
    _held: dict[T, Capability[T]]
    _check: Callable[[object], None]
    skip: int = 0
    _finished: bool = False
    _session: Session[T] | None = attrs.field(default=None, init=False)
    _moved: bool = attrs.field(default=False, init=False)
    events: int = attrs.field(default=0, init=False)
    _state: StreamState[T] = attrs.field(init=False)
    _applies: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        state = self.source.checked_state
        self._state, self._applies = (StreamState(), True) if state is None else (state, False)

    @property
    def path(self) -> str | None:
        return getattr(self.source, "path", None)

    @property
    def over(self) -> bool:
        return self._state.over or self._finished

    @property
    def position(self) -> _Position:
        return self.path, max(self.events, self.skip), self.over

    def resume(self, position: _Position, label: str) -> None:
        """Skip what another run has sent; ``StateError`` for a source that cannot be read again."""
        _, self.skip, self._finished = position
        if self._finished:
            for capability in self._held.values():
                capability.drop()
        elif isinstance(self.source, ConnectionSource):
            raise StateError(
                f"{label}: {self._name} comes over a connection, which had not ended at the checkpoint, and does not give again"
                " what it gave: record into a file, and replay that"
            )

    def advance(self, output: OutputPort[T]) -> bool:
        """Send what the next events say, and return whether there may be more: ``False`` if they have not come yet."""
        state, check = self._state, self._check
        try:
            for _ in range(EVENTS_PER_ACTIVATION):
                event = self.source.take()
                if event is None:
                    return False
                if not self._applies and state.events != self.events + 1:
                    raise CaptureError("something else reads it too: give replay a source of its own")
                if isinstance(event, Messages):
                    check(event.time)
                    if self._applies:
                        state.apply(event)
                    if self.events >= self.skip:
                        self._send(event.time, event.batch, output)
                else:
                    for time, diff in getattr(event, "changes", ()):
                        if diff > 0:
                            check(time)
                    if self._applies:
                        state.apply(event)
                    self._moved = True
                self.events += 1
                if state.over:
                    break
        except EOFError:
            raise state.broken(f"{self._name} ends before the stream is over") from None
        except CaptureError as error:
            raise CaptureError(f"{self._name}: {error}", error.events, error.frontier, error.position) from error
        return True

    def _send(self, time: T, batch: Any, output: OutputPort[T]) -> None:
        session = self._session
        if session is None or not session.time <= time:
            session = self._session = output.session(self._below(time))
        session.give_batch(batch, time)

    def follow(self) -> None:
        """Move the capabilities to the frontier: first delay them to its new times, then drop those of the old ones."""
        self._session = None
        if self._moved:
            self._moved = False
            before = self._held
            self._held = {
                time: before[time] if time in before else self._below(time).delayed(time) for time in self._state.frontier
            }
            for time, capability in before.items():
                if time not in self._held:
                    capability.drop()

    def _below(self, time: T) -> Capability[T]:
        return next(capability for known, capability in self._held.items() if known <= time)


def replay(scope: ScopeBuilder[T], *sources: Any, name: str | None = None) -> Stream[T, Any]:
    """Return the stream that ``capture_into`` has recorded, at the times at which it was recorded.

    Each source is one recorded stream: a list of events, a ``timely.EventLink``, the path of a file or a ``timely.FileSource``, a
    ``timely.ConnectionSource``, or your own ``EventSource``. Each worker replays the sources given to it; share those of ``n``
    workers as ``sources[worker.index :: worker.peers]``. The stream is over when all sources are.

    A run that resumes from a checkpoint needs the same sources, in order, and skips what was sent; on another number of workers
    all of them must be files, or over. ``StateError`` otherwise, and for a connection. ``CaptureError`` for a source that is
    truncated, damaged, or breaks the rules of ``capture_events``; ``TimestampError`` for times that are not the
    scope's.

    >>> import timely
    >>> events = [timely.Progress([(0, 1)]), timely.Messages(3, ["c"]), timely.Progress([(0, -1)])]
    >>> timely.example(lambda scope: scope.replay(events))
    [(3, ['c'])]
    """
    check_scope(scope, "replay")
    streams = [_source(recorded) for recorded in sources]
    check = scope.subgraph.domain.check

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        tracks = [
            _Track(each, f"source {n} of replay", {capability.time: capability.copy()}, check) for n, each in enumerate(streams)
        ]
        streams.clear()
        capability.drop()
        _register(info, tuple(tracks))
        activator, sync_activator = info.activator, info.activator.new_sync_activator()
        call_after = scope.allocator.call_after
        polling = False
        failure: TimelyError | None = None

        def poll() -> None:
            nonlocal polling
            polling = False
            activator.activate()

        def logic(output: OutputPort[T]) -> None:
            nonlocal polling, failure
            if failure is not None:
                raise failure
            silent, moved = False, False
            for track in tracks:
                before = track.events
                try:
                    more = track.over or track.advance(output)
                except TimelyError as error:
                    if not moved and track.events == before:
                        raise
                    failure = error  # raised next time, after what came before it was sent
                    if isinstance(error, CaptureError):
                        track.follow()
                    activator.activate()
                    return
                moved = moved or track.events > before
                track.follow()
                if not more:
                    silent = silent or not track.source.notify(sync_activator.activate)
                elif not track.over:
                    activator.activate()
            tracks[:] = [track for track in tracks if not track.over]
            sync_activator.expected = any(track.source.outside for track in tracks)
            if silent and not polling:
                polling = True
                call_after(POLL_INTERVAL, poll)

        return logic

    return source(scope, operator_name("replay", name), constructor)


_Position: TypeAlias = tuple[str | None, int, bool]
"""The path of a source that is a file, the number of events read, and whether it was over."""


def _register(info: OperatorInfo, tracks: Sequence[_Track[Any]]) -> None:
    label = f"operator {info.name!r} ({info.path})"

    def load(items: Iterable[list[_Position]]) -> None:
        for positions in items:
            if len(positions) != len(tracks):
                raise StateError(
                    f"{label}: there were {len(positions)} sources, and now there are {len(tracks)}: give the same ones"
                )
            for track, position in zip(tracks, positions, strict=True):
                track.resume(position, label)

    def rescale(parts: Sequence[Iterable[list[_Position]]]) -> None:
        known = [position for items in parts for positions in items for position in positions]
        by_path: dict[str | None, _Position] = {position[0]: position for position in known if position[0] is not None}
        finished = all(over for _, _, over in known)
        for track in tracks:
            if track.path not in by_path and not finished:
                which = "a source that is no file" if track.path is None else repr(track.path)
                raise StateError(
                    f"{label}: on another number of workers only files that were there before can be gone on with, not {which}:"
                    f" go on with {len(parts)} workers"
                )
            track.resume(by_path.get(track.path, (None, 0, True)), label)

    info.register_state(lambda: [(None, [track.position for track in tracks])], load, rescale=rescale)


def _source(recorded: Any) -> EventSource[Any]:
    if isinstance(recorded, EventSource):
        return recorded
    if isinstance(recorded, EventLink):
        return recorded.reader()
    if isinstance(recorded, str | os.PathLike):
        return FileSource(recorded)
    if isinstance(recorded, list | tuple) and recorded and isinstance(recorded[0], str | os.PathLike | EventSource | EventLink):
        raise CaptureError(f"replay takes recorded streams one by one, as in replay(*sources), not {brief(recorded)}")
    if isinstance(recorded, Iterable):
        return _Given(iter(recorded))
    raise CaptureError(
        f"replay needs recorded streams (a list of events, an EventLink, a path, a FileSource), not {brief(recorded)}"
    )
