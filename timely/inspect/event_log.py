"""``EventLog``: all that a worker does, as structured events, for a program, a file, or another dataflow.

It is opened on a worker before the dataflows that it is to tell of are built. The invariant: the events of one worker come in the
order in which things happened; of what an operator does in one run, its ``Scheduled`` comes last. A worker without a log pays
nothing for it; with one, each run of an operator and each message costs a few microseconds more.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

from timely.dataflow import InputPort, Operator, ScopeBuilder
from timely.inspect.events import (
    ChannelBuilt,
    Ended,
    Event,
    Held,
    Notified,
    OperatorBuilt,
    ProgressHeard,
    ProgressTold,
    Read,
    Scheduled,
    Sent,
    Waited,
)
from timely.inspect.snapshot import ENTRY, EXIT, Snapshot, snapshot
from timely.operators import Messages, Progress
from timely.operators.events import EventSink
from timely.progress import Location, ProgressBatch, Source, Target
from timely.scopes import Subgraph
from timely.worker import Worker
from timely.worker.internals import tracers

_LOG = logging.getLogger(__name__)

Recorder = Callable[[int, Any, int], None]

Listener = Callable[[Any, Sequence[InputPort[Any, Any]]], None]


class EventLog:
    """The events of one worker, given to whoever asked for them with ``subscribe`` or ``into``.

    What a scope of one's own (``add_scope``) does is not told, but that it is there, and what comes to it and from it is read by
    others.

    >>> import timely
    >>> from timely.inspect import EventLog, Scheduled
    >>> worker, events = timely.Worker(), []
    >>> log = EventLog(worker)
    >>> log.subscribe(events.append)
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream([1, 2]).map(str).capture()
    >>> worker.run()
    >>> sorted({event.path for event in events if isinstance(event, Scheduled)})
    ['/df/capture#2', '/df/map#1', '/df/to_stream#0']
    """

    def __init__(self, worker: Worker, clock: Callable[[], float] = perf_counter) -> None:
        self.worker = worker.index
        self._clock = clock
        self._start = clock()
        self._takers: list[Callable[[Event], object]] = []
        self._streams: list[_Stream] = []
        self._paths: dict[int, str] = {}
        self._aside = False
        tracers(worker).append(self)

    @property
    def now(self) -> float:
        """Seconds since the log was opened."""
        return self._clock() - self._start

    def subscribe(self, take: Callable[[Event], object]) -> None:
        """Have each event from now on given to ``take``, on the worker's thread, as it happens.

        If it raises, the dataflow goes on without it: the error goes to the log ``timely.inspect.event_log``.
        """
        self._takers.append(take)

    def into(self, sink: EventSink) -> None:
        """Record the events from now on as a stream into ``sink``, with their microseconds since the log was opened as times.

        It can be replayed as a dataflow where ``sink`` is one for that: a ``timely.EventLink``, a ``timely.FileSink``, a
        ``timely.ConnectionSink``. It is over with ``close``. A dataflow on the same worker that replays it is built within
        ``aside``, or it would have events of its own to read for ever. Who reads a file of events says that they trust it.

        >>> import timely
        >>> worker, link = timely.Worker(), timely.EventLink()
        >>> log = EventLog(worker)
        >>> log.into(link)
        >>> with worker.dataflow(name="df") as scope:
        ...     _ = scope.to_stream([1, 2]).map(str).capture()
        >>> worker.run()
        >>> log.close()
        >>> with log.aside(), worker.dataflow(name="of the log") as scope:
        ...     kinds = scope.replay(link).map(lambda event: type(event).__name__).value_counts().capture()
        >>> worker.run()
        >>> total = {}
        >>> for _, counts in kinds.extract():
        ...     for kind, count in counts:
        ...         total[kind] = total.get(kind, 0) + count
        >>> total["OperatorBuilt"], total["ChannelBuilt"], total["Ended"]
        (3, 2, 1)
        """
        stream = _Stream(sink)
        self._streams.append(stream)
        self._takers.append(stream.take)

    def close(self) -> None:
        """End what is recorded; events that come later are not told to anybody."""
        for stream in self._streams:
            stream.close(int(self.now * 1e6))
        self._streams.clear()
        self._takers.clear()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Let dataflows that are built in the ``with`` block be none of the log's business."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    def _tell(self, event: Event) -> None:
        for take in self._takers:
            try:
                take(event)
            except Exception:
                self._takers = [other for other in self._takers if other is not take]
                _LOG.exception("a subscriber of the event log of worker %d failed, and is told nothing more", self.worker)

    # -- what the worker tells ---------------------------------------------------------------------------------------------

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Tell what was built, and look on at every operator from now on."""
        if self._aside:
            return
        self._paths[number] = scope.path
        self._tell_structure(snapshot(scope))
        for subgraph in scope.scopes:
            subgraph.intercept(functools.partial(self._around, subgraph, subgraph.trackers[0].locations))
            subgraph.time_runs(functools.partial(self._timed, subgraph))
            for child in subgraph.children:
                if isinstance(child.scope, Operator):
                    child.scope.notified = functools.partial(self._notified, child.scope.path, child.scope.notified)

    def _tell_structure(self, shape: Snapshot) -> None:
        for child in shape.children:
            self._tell(OperatorBuilt(self.now, self.worker, child.path, child.name, child.inputs, child.outputs, child.built_at))
        for wire in shape.wires:
            source = _end(shape, wire.source, ENTRY)
            target = _end(shape, wire.target, EXIT)
            self._tell(ChannelBuilt(self.now, self.worker, source, target, wire.exchanged))
        for child in shape.children:
            self._tell_structure(child)

    def _around(
        self, subgraph: Subgraph[Any, Any], places: Sequence[Location], child: int, hold: Recorder, note: Recorder
    ) -> Iterable[Recorder]:
        """Return what counts as ``hold`` and ``note`` do, and tells of it."""
        path = f"{subgraph.path}/{subgraph.children[child].name}#{child}"

        def holds(number: int, time: Any, diff: int) -> None:
            hold(number, time, diff)
            place = places[number]
            if self._takers and isinstance(place, Source):
                self._tell(Held(self.now, self.worker, path, place.port, time, diff))

        def notes(number: int, time: Any, diff: int) -> None:
            note(number, time, diff)
            if not self._takers:
                return
            if number < 0:
                self._tell(Sent(self.now, self.worker, path, (subgraph.path, ~number), time, diff))
                return
            place = places[number]
            if isinstance(place, Target) and diff < 0:
                self._tell(Read(self.now, self.worker, path, place.port, time, -diff))
            elif isinstance(place, Target):
                to = f"{subgraph.path}/{subgraph.children[place.node].name}#{place.node}"
                self._tell(Sent(self.now, self.worker, path, (to, place.port), time, diff))

        return holds, notes

    def _timed(self, subgraph: Subgraph[Any, Any], child: int, run: Callable[[], bool]) -> Callable[[], bool]:
        """Return what runs an operator as ``run`` does, and tells how long it took."""
        path = f"{subgraph.path}/{subgraph.children[child].name}#{child}"

        def timed() -> bool:
            begun = self._clock()
            try:
                return run()
            finally:
                if self._takers:
                    over = self._clock()
                    self._tell(Scheduled(over - self._start, self.worker, path, over - begun))

        return timed

    def _notified(self, path: str, other: Listener | None, time: Any, inputs: Sequence[InputPort[Any, Any]]) -> None:
        if other is not None:
            other(time, inputs)  # another log of the same worker
        if self._takers:
            self._tell(Notified(self.now, self.worker, path, time))

    def sent(self, number: int, batch: ProgressBatch[Any]) -> None:
        """Tell of a progress batch that goes to the peers."""
        if self._takers and number in self._paths:
            self._tell(ProgressTold(self.now, self.worker, self._paths[number], len(batch.updates)))

    def received(self, number: int, sender: int, batch: ProgressBatch[Any]) -> None:
        """Tell of a progress batch that came from a peer."""
        if self._takers and number in self._paths:
            self._tell(ProgressHeard(self.now, self.worker, self._paths[number], sender, len(batch.updates)))

    def waited(self, seconds: float) -> None:
        """Tell that there was nothing to do."""
        if self._takers:
            self._tell(Waited(self.now, self.worker, seconds))

    def stepped(self) -> None:
        """Pass on what the turn has brought to those who record it."""
        for stream in self._streams:
            stream.flush(int(self.now * 1e6))

    def ended(self, number: int) -> None:
        """Tell that a dataflow is over."""
        path = self._paths.pop(number, None)
        if path is not None:
            self._tell(Ended(self.now, self.worker, path))


def _end(shape: Snapshot, end: tuple[int, int], boundary: int) -> tuple[str, int]:
    """Return the path and the port of an end of a wire; on the boundary, those of the scope."""
    node, port = end
    return (shape.path if node == boundary else shape.children[node].path), port


class _Stream:
    """Events on their way into a sink, as one stream with times in microseconds."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._time = 0
        self._batch: list[Event] = []
        sink.append(Progress([(0, 1)]))

    def take(self, event: Event) -> None:
        self._batch.append(event)

    def flush(self, now: int) -> None:
        """Hand over what was gathered, and say that nothing before ``now`` comes any more."""
        if self._batch:
            batch, self._batch = self._batch, []
            self._sink.append(Messages(self._time, batch))
            if now > self._time:
                self._sink.append(Progress([(now, 1), (self._time, -1)]))
                self._time = now

    def close(self, now: int) -> None:
        self.flush(now)
        self._sink.append(Progress([(self._time, -1)]))
