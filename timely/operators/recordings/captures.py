"""``capture`` collects a stream's messages; ``capture_into`` records its messages and progress, to be replayed.

Records are recorded before the progress that completes their time. Each worker has its own part of the stream. An ``EventLink``
keeps a recording in memory, which any number of readers replay, while it is recorded or later.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic

import attrs
from typing_extensions import override

from timely.dataflow import (
    InputPort,
    OperatorInfo,
    Pipeline,
    Stream,
    operator_name,
    pandas_frame,
    polars_frame,
    preview,
    records_of,
    scope_of,
    warn,
)
from timely.errors import CaptureError, SchemaError, require_package
from timely.operators.generic import sink as end_in
from timely.operators.recordings.capture_events import Event, EventSink, EventSource, Messages, Progress
from timely.operators.type_variables import D, T
from timely.order import linear_extension
from timely.progress import ChangeBatch

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.define(eq=False, repr=False)
class Capture(Generic[T, D]):
    """A stream's messages on one worker: ``messages`` in order of arrival, or ``extract()``."""

    messages: list[tuple[T, Any]] = attrs.field(factory=list, init=False)
    name: str = attrs.field(default="a capture", init=False)
    not_run: Callable[[], bool] = attrs.field(default=bool, init=False)

    def __repr__(self) -> str:
        records = sum(len(batch) for _, batch in self.messages)
        times = len({time for time, _ in self.messages})
        return f"Capture({self.name}, records: {records:,}, times: {times:,})"

    def _repr_html_(self) -> str:
        return preview(self.messages, first="time").html()

    def drain(self) -> list[tuple[T, Any]]:
        """Return, and remove, the messages ``(time, container)`` so far."""
        messages, self.messages = self.messages, []
        return messages

    def extract(self) -> list[tuple[T, list[D]]]:
        """Return ``[(time, records)]``: times in an order that extends theirs, records sorted where they can be compared.

        Rows of Arrow batches are tuples. ``TimelyWarning`` where the dataflow has not been run at all.
        """
        if not self.messages and self.not_run():
            warn(
                f"extract() of {self.name} returns nothing, since its dataflow has not been run: call worker.run(),"
                " or step the worker, and extract() then"
            )
        return extract(self.messages)

    def to_arrow(self, schema: pa.Schema | str | None = None) -> pa.Table:
        """Return the records so far, without their times, as an Arrow table. Needs PyArrow.

        Arrow batches have one schema. Rows need ``schema``: a ``pyarrow.Schema``, or a text such as ``"word string, n long"``.
        Polars, DuckDB and PyArrow read a capture of batches itself too, by Arrow's C interface. ``SchemaError`` for others.

        >>> import timely
        >>> with (worker := timely.Worker()).dataflow() as scope:
        ...     captured = scope.to_stream([("to", 2), ("be", 1)]).capture()
        >>> worker.run()
        >>> captured.to_arrow("word string, n long").to_pydict()
        {'word': ['to', 'be'], 'n': [2, 1]}
        """
        require_package("pyarrow", "to_arrow", "arrow")
        import pyarrow as pa

        from timely.dataflow import OutputSchema, declared_schema

        containers = [batch for _, batch in self.messages]
        if schema is not None:
            output = OutputSchema(self.name, declared_schema(schema, self.name))
            return pa.Table.from_batches([output.conform(batch) for batch in containers], output.schema)
        for batch in containers:
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(containers[0].schema):
                raise SchemaError(
                    f"{self.name}: only Arrow batches of one schema are a table by themselves: declare the columns, as in"
                    " to_arrow('node long, name string')"
                )
        if not containers:
            raise SchemaError(f"{self.name} has no records, and so no columns: declare them, as in to_arrow('node long')")
        return pa.Table.from_batches(containers)

    def to_pandas(self, schema: pa.Schema | str | None = None) -> Any:
        """Return what ``to_arrow`` does, as a pandas DataFrame. Needs PyArrow and pandas."""
        return pandas_frame(self.to_arrow(schema))

    def to_polars(self, schema: pa.Schema | str | None = None) -> Any:
        """Return what ``to_arrow`` does, as a polars DataFrame. Needs PyArrow and polars."""
        return polars_frame(self.to_arrow(schema))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the records to a library that reads Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def extract(messages: Iterable[tuple[T, Any]]) -> list[tuple[T, list[Any]]]:
    """Return ``[(time, records)]`` of messages ``(time, container)``, as ``Capture.extract`` does.

    >>> extract([(1, ["c"]), (0, ["b"]), (0, ["a"])])
    [(0, ['a', 'b']), (1, ['c'])]
    """
    by_time: dict[T, list[Any]] = {}
    for time, batch in messages:
        by_time.setdefault(time, []).extend(records_of(batch))
    return [(time, _sorted(by_time[time])) for time in linear_extension(by_time)]


def _sorted(records: list[Any]) -> list[Any]:
    try:
        return sorted(records)
    except (TypeError, ValueError):  # records without an order
        return records


def capture(stream: Stream[T, D], *, name: str | None = None) -> Capture[T, D]:
    """Collect the messages of ``stream`` on this worker; in a run that resumes from a checkpoint, those since.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([2, 1]))
    [(0, [1, 2])]
    """
    captured: Capture[T, D] = Capture()
    root = scope_of(stream, "capture").root

    def constructor(info: OperatorInfo) -> Callable[[InputPort[T, D]], object]:
        captured.name = info.path
        captured.not_run = lambda: not root.has_run
        info.declare_stateless()  # the messages belong to the program

        def logic(input: InputPort[T, D]) -> None:
            captured.not_run = bool  # which is false, and releases the dataflow
            for capability, batch in input:
                captured.messages.append((capability.time, batch))

        return logic

    end_in(stream, Pipeline, operator_name("capture", name), constructor)
    return captured


def capture_into(stream: Stream[T, D], sink: EventSink | str | os.PathLike[str], *, name: str | None = None) -> None:
    """Record ``stream`` on this worker: append its events to ``sink``, to be replayed with ``replay``.

    A sink has ``append(event)``: a list, a ``timely.EventLink``, a ``timely.FileSink``, a ``timely.ConnectionSink``; a path
    stands for a ``FileSink``. Each worker needs its own. A run that resumes from a checkpoint records a new stream.
    ``CaptureError`` for what is no sink.

    >>> import timely
    >>> events = []
    >>> with (worker := timely.Worker()).dataflow() as scope:
    ...     scope.to_stream("ab").capture_into(events)
    >>> worker.run()
    >>> events
    [Progress(changes=((0, 1),)), Messages(time=0, batch=['a', 'b']), Progress(changes=((0, -1),))]
    """
    recorder = _sink(sink)
    append, append_all = recorder.append, getattr(recorder, "append_all", None)
    minimum = scope_of(stream, "capture_into").subgraph.domain.minimum

    def constructor(info: OperatorInfo) -> Callable[[InputPort[T, D]], object]:
        recorded: list[T] | None = None
        info.declare_stateless()  # a resumed run records a new stream

        def logic(input: InputPort[T, D]) -> None:
            nonlocal recorded
            events: list[Event[T]] = []
            if recorded is None:
                recorded = [minimum]
                events.append(Progress([(minimum, 1)]))
            for capability, batch in input:
                events.append(Messages(capability.time, batch))
            now = list(input.frontier)
            if now != recorded:
                before, after = set(recorded), set(now)
                changes = [(time, -1) for time in recorded if time not in after]
                changes += [(time, 1) for time in now if time not in before]
                recorded = now
                if changes:
                    events.append(Progress(changes))
            if append_all is not None:
                append_all(events)
            else:
                for event in events:
                    append(event)

        return logic

    end_in(stream, Pipeline, operator_name("capture_into", name), constructor)


def _sink(sink: Any) -> Any:
    if isinstance(sink, str | os.PathLike):
        from timely.operators.recordings.recording import FileSink

        return FileSink(sink)
    if not callable(getattr(sink, "append", None)):
        raise CaptureError(
            f"capture_into needs something to append events to (a list, an EventLink, a FileSink, a path), not {sink!r}"
        )
    return sink


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
