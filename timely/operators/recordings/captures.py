"""``capture`` collects a stream's messages; ``capture_into`` records its messages and progress, to be replayed.

Records are recorded before the progress that completes their time. Each worker has its own part of the stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

import attrs

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
from timely.operators.recordings.capture_events import Event, EventSink, Messages, Progress
from timely.operators.type_variables import D, T
from timely.order import linear_extension

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
