"""``EventLog``: a tracer that records what a worker does as trace events, for a program, a file or another dataflow; ``Tally``.

Open it before the dataflows are built. The events of a worker come in order; ``Scheduled`` comes after all else that the operator
did in that run. Workers without a log pay nothing. With one, each run of an operator and each message costs a few microseconds.

``at`` is in seconds since the log was opened, by the worker's clock, and never goes back. Operators are named by their paths,
which are the same on every worker. ``time`` is a time of the dataflow. Events can be pickled if their times can.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import attrs

from timely.dataflow import InputPort, Operator, ScopeBuilder
from timely.inspect.snapshots import ENTRY, EXIT, Snapshot, snapshot
from timely.operators import Messages, Progress
from timely.operators.recordings.capture_events import EventSink
from timely.progress import Location, ProgressBatch, Source, Target
from timely.scopes import Subgraph, output_port
from timely.worker import Worker
from timely.worker.internals import tracers


@attrs.frozen
class _Traced:
    at: float
    worker: int


@attrs.frozen
class _TracedAt(_Traced):
    path: str


@attrs.frozen
class OperatorBuilt(_TracedAt):
    """An operator or a nested scope was built, by the line ``built_at`` of the program."""

    name: str
    inputs: int
    outputs: int
    built_at: str


@attrs.frozen
class ChannelBuilt(_Traced):
    """A stream connects ``source`` to ``target``, both ``(path, port)``; ``exchanged`` if records may go to other workers."""

    source: tuple[str, int]
    target: tuple[str, int]
    exchanged: bool


@attrs.frozen
class Scheduled(_TracedAt):
    """An operator has run once; ``seconds`` include the operators that it ran inside its own run."""

    seconds: float


@attrs.frozen
class RecordsSent(_TracedAt):
    """An operator has sent ``records`` records at ``time`` to the input ``target``, on any worker."""

    target: tuple[str, int]
    time: Any
    records: int


@attrs.frozen
class Read(_TracedAt):
    """An operator has read ``records`` records at ``time`` from its input ``port``."""

    port: int
    time: Any
    records: int


@attrs.frozen
class Held(_TracedAt):
    """An operator holds ``change`` more capabilities for ``time`` at its output ``port``; negative if fewer."""

    port: int
    time: Any
    change: int


@attrs.frozen
class Notified(_TracedAt):
    """An operator was notified that ``time`` is complete."""

    time: Any


@attrs.frozen
class ProgressSent(_TracedAt):
    """The worker sent its peers a progress batch of a dataflow, of ``updates`` updates."""

    updates: int


@attrs.frozen
class ProgressReceived(_TracedAt):
    """The worker received a progress batch of a dataflow from ``sender``."""

    sender: int
    updates: int


@attrs.frozen
class Waited(_Traced):
    """The worker was idle for so many seconds."""

    seconds: float


@attrs.frozen
class Ended(_TracedAt):
    """A dataflow is complete on this worker, or was dropped."""


Event: TypeAlias = (
    OperatorBuilt
    | ChannelBuilt
    | Scheduled
    | RecordsSent
    | Read
    | Held
    | Notified
    | ProgressSent
    | ProgressReceived
    | Waited
    | Ended
)


_LOG = logging.getLogger(__name__)

Recorder = Callable[[int, Any, int], None]

Listener = Callable[[Any, Sequence[InputPort[Any, Any]]], None]


class EventLog:
    """The trace events of one worker, for those who ``subscribe`` and for the sinks that it is recorded ``into``.

    The inside of a custom scope (``add_scope``) is not traced.

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
        self._subscribers: list[Callable[[Event], object]] = []
        self._streams: list[_Stream] = []
        self._paths: dict[int, str] = {}
        self._aside = False
        tracers(worker).append(self)

    @property
    def now(self) -> float:
        """Seconds since the log was opened."""
        return self._clock() - self._start

    def subscribe(self, receive: Callable[[Event], object]) -> None:
        """Call ``receive`` with each event from now on, on the worker's thread.

        A subscriber that raises is removed, and the error goes to the log ``timely.inspect.event_log``; the dataflow goes on.
        """
        self._subscribers.append(receive)

    def into(self, sink: EventSink) -> None:
        """Record the events from now on as a stream into ``sink``; its times are microseconds since the log was opened.

        Replay it from a ``timely.EventLink``, ``timely.FileSink`` or ``timely.ConnectionSink``; ``close`` ends it. Build a
        dataflow that replays it on the same worker within ``aside``, or it traces itself for ever.

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
        self._subscribers.append(stream.receive)

    def close(self) -> None:
        """End the recorded streams, and drop all later events."""
        for stream in self._streams:
            stream.close(int(self.now * 1e6))
        self._streams.clear()
        self._subscribers.clear()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out the dataflows that are built in the ``with`` block."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    def _emit(self, event: Event) -> None:
        for receive in self._subscribers:
            try:
                receive(event)
            except Exception:
                self._subscribers = [other for other in self._subscribers if other is not receive]
                _LOG.exception("a subscriber of the event log of worker %d failed, and was removed", self.worker)

    # -- the tracer ---------------------------------------------------------------------------------------------

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Record what was built, and trace its operators from now on."""
        if self._aside:
            return
        self._paths[number] = scope.path
        self._emit_structure(snapshot(scope))
        for subgraph in scope.scopes:
            subgraph.intercept(functools.partial(self._around, subgraph, subgraph.trackers[0].locations))
            subgraph.time_runs(functools.partial(self._timed, subgraph))
            for child in subgraph.children:
                if isinstance(child.scope, Operator):
                    child.scope.notified = functools.partial(self._notified, child.scope.path, child.scope.notified)

    def _emit_structure(self, shape: Snapshot) -> None:
        for child in shape.children:
            self._emit(OperatorBuilt(self.now, self.worker, child.path, child.name, child.inputs, child.outputs, child.built_at))
        for wire in shape.wires:
            source = _end(shape, wire.source, ENTRY)
            target = _end(shape, wire.target, EXIT)
            self._emit(ChannelBuilt(self.now, self.worker, source, target, wire.exchanged))
        for child in shape.children:
            self._emit_structure(child)

    def _around(
        self, subgraph: Subgraph[Any, Any], places: Sequence[Location], child: int, hold: Recorder, note: Recorder
    ) -> Iterable[Recorder]:
        """Return ``hold`` and ``note`` with tracing around them."""
        path = f"{subgraph.path}/{subgraph.children[child].name}#{child}"

        def holds(number: int, time: Any, diff: int) -> None:
            hold(number, time, diff)
            place = places[number]
            if self._subscribers and isinstance(place, Source):
                self._emit(Held(self.now, self.worker, path, place.port, time, diff))

        def notes(number: int, time: Any, diff: int) -> None:
            note(number, time, diff)
            if not self._subscribers:
                return
            if number < 0:
                self._emit(RecordsSent(self.now, self.worker, path, (subgraph.path, output_port(number)), time, diff))
                return
            place = places[number]
            if isinstance(place, Target) and diff < 0:
                self._emit(Read(self.now, self.worker, path, place.port, time, -diff))
            elif isinstance(place, Target):
                to = f"{subgraph.path}/{subgraph.children[place.node].name}#{place.node}"
                self._emit(RecordsSent(self.now, self.worker, path, (to, place.port), time, diff))

        return holds, notes

    def _timed(self, subgraph: Subgraph[Any, Any], child: int, run: Callable[[], bool]) -> Callable[[], bool]:
        """Return ``run`` with a clock around it."""
        path = f"{subgraph.path}/{subgraph.children[child].name}#{child}"

        def timed() -> bool:
            begun = self._clock()
            try:
                return run()
            finally:
                if self._subscribers:
                    over = self._clock()
                    self._emit(Scheduled(over - self._start, self.worker, path, over - begun))

        return timed

    def _notified(self, path: str, other: Listener | None, time: Any, inputs: Sequence[InputPort[Any, Any]]) -> None:
        if other is not None:
            other(time, inputs)  # another log of the same worker
        if self._subscribers:
            self._emit(Notified(self.now, self.worker, path, time))

    def sent(self, number: int, batch: ProgressBatch[Any]) -> None:
        """Record a progress batch for the peers."""
        if self._subscribers and number in self._paths:
            self._emit(ProgressSent(self.now, self.worker, self._paths[number], len(batch.updates)))

    def received(self, number: int, sender: int, batch: ProgressBatch[Any]) -> None:
        """Record a progress batch from a peer."""
        if self._subscribers and number in self._paths:
            self._emit(ProgressReceived(self.now, self.worker, self._paths[number], sender, len(batch.updates)))

    def waited(self, seconds: float) -> None:
        """Record idle time."""
        if self._subscribers:
            self._emit(Waited(self.now, self.worker, seconds))

    def stepped(self) -> None:
        """Pass the events of a step on to the sinks."""
        for stream in self._streams:
            stream.flush(int(self.now * 1e6))

    def ended(self, number: int) -> None:
        """Record that a dataflow is complete or dropped."""
        path = self._paths.pop(number, None)
        if path is not None:
            self._emit(Ended(self.now, self.worker, path))


def _end(shape: Snapshot, end: tuple[int, int], boundary: int) -> tuple[str, int]:
    """Return the path and the port of an end of a wire; on the boundary those of the scope."""
    node, port = end
    return (shape.path if node == boundary else shape.children[node].path), port


class _Stream:
    """Writes events into a sink as one stream, with times in microseconds."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._time = 0
        self._batch: list[Event] = []
        sink.append(Progress([(0, 1)]))

    def receive(self, event: Event) -> None:
        self._batch.append(event)

    def flush(self, now: int) -> None:
        """Write the gathered events, and advance to ``now``."""
        if self._batch:
            batch, self._batch = self._batch, []
            self._sink.append(Messages(self._time, batch))
            if now > self._time:
                self._sink.append(Progress([(now, 1), (self._time, -1)]))
                self._time = now

    def close(self, now: int) -> None:
        self.flush(now)
        self._sink.append(Progress([(self._time, -1)]))


@attrs.define
class OperatorTally:
    """The runs of one operator, their seconds, and records read and sent (to two inputs: twice)."""

    runs: int = 0
    seconds: float = 0.0
    read: int = 0
    sent: int = 0


@attrs.define
class Tally:
    """The numbers of one worker: ``operators`` by path, progress batches, and the paths of dataflows that have ended.

    ``edges`` are the records sent, by the paths of sender and receiver and the receiver's port.

    >>> import timely
    >>> from timely.inspect import EventLog, Tally
    >>> worker = timely.Worker()
    >>> tally = Tally.of(EventLog(worker))
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream(range(5)).filter(lambda x: x > 2).capture()
    >>> worker.run()
    >>> found = tally.operators["/df/filter#1"]
    >>> found.read, found.sent, tally.edges["/df/filter#1", "/df/capture#2", 0], tally.ended
    (5, 2, 2, ['/df'])
    """

    worker: int
    operators: defaultdict[str, OperatorTally] = attrs.field(factory=lambda: defaultdict(OperatorTally))
    edges: Counter[tuple[str, str, int]] = attrs.field(factory=Counter)
    ended: list[str] = attrs.field(factory=list)
    waited: float = 0.0
    progress_sent: int = 0
    progress_received: int = 0

    @classmethod
    def of(cls, log: EventLog) -> Tally:
        """Return a tally of the events of ``log`` from now on."""
        tally = cls(log.worker)
        log.subscribe(tally.add)
        return tally

    def add(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Scheduled):
            operator = self.operators[event.path]
            operator.runs += 1
            operator.seconds += event.seconds
        elif isinstance(event, RecordsSent):
            self.operators[event.path].sent += event.records
            self.edges[event.path, *event.target] += event.records
        elif isinstance(event, Read):
            self.operators[event.path].read += event.records
        elif isinstance(event, Waited):
            self.waited += event.seconds
        elif isinstance(event, ProgressSent):
            self.progress_sent += 1
        elif isinstance(event, ProgressReceived):
            self.progress_received += 1
        elif isinstance(event, Ended):
            self.ended.append(event.path)
