"""``capture`` and ``capture_into``: collect what a stream carries, or record it so that it can be replayed.

``capture`` keeps the messages, to look at them when the dataflow is done, or while it runs. ``capture_into`` records the progress
of the stream as well, in the order that makes it a stream of its own (:mod:`timely.operators.events`): records come before the
progress that says that no more of them will. Both are of one worker: each worker has what came to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from timely.dataflow import InputPort, OperatorInfo, Pipeline, Stream, records_of, scope_of, warn
from timely.errors import CaptureError
from timely.operators.events import EventSink, Messages, Progress
from timely.operators.generic import sink as end_in
from timely.order import PartialOrder, linear_extension

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")


class Capture(Generic[T, D]):
    """What came at one point of a dataflow, on one worker: ``messages`` in the order of arrival, or ``extract()``."""

    __slots__ = ("messages", "name", "waits")

    def __init__(self) -> None:
        self.name = "a capture"
        self.waits: Callable[[], bool] = _never
        self.messages: list[tuple[T, Any]] = []

    def drain(self) -> list[tuple[T, Any]]:
        """Return the messages ``(time, container)`` that have come since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def extract(self) -> list[tuple[T, list[D]]]:
        """Return ``[(time, records)]``: times in an order that extends theirs, the records of each sorted.

        Rows of Arrow batches come as tuples. Records that cannot be compared stay in the order in which they came. A
        ``TimelyWarning`` where the dataflow has not been run at all.

        >>> import timely
        >>> worker = timely.Worker()
        >>> with worker.dataflow(int) as scope:
        ...     letters = scope.to_stream("cab").capture()
        >>> worker.run()
        >>> letters.extract()
        [(0, ['a', 'b', 'c'])]
        """
        if not self.messages and self.waits():
            warn(
                f"extract() of {self.name} returns nothing, since its dataflow has not been run: call worker.run(),"
                " or step the worker, and extract() then"
            )
        return extract(self.messages)


def _never() -> bool:
    return False


def extract(messages: Iterable[tuple[T, Any]]) -> list[tuple[T, list[Any]]]:
    """Return ``[(time, records)]`` of messages ``(time, container)``, as ``Capture.extract`` does.

    >>> extract([(1, ["c"]), (0, ["b"]), (0, ["a"])])
    [(0, ['a', 'b']), (1, ['c'])]
    """
    found: dict[T, list[Any]] = {}
    for time, batch in messages:
        found.setdefault(time, []).extend(records_of(batch))
    return [(time, _sorted(found[time])) for time in linear_extension(found)]


def _sorted(records: list[Any]) -> list[Any]:
    try:
        return sorted(records)
    except (TypeError, ValueError):  # they have no order
        return records


def capture(stream: Stream[T, D]) -> Capture[T, D]:
    """Collect what ``stream`` carries, on this worker. In a run that goes on from a checkpoint: what has come since.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([2, 1]))
    [(0, [1, 2])]
    """
    captured: Capture[T, D] = Capture()
    root = scope_of(stream, "capture").root

    def constructor(info: OperatorInfo) -> Callable[[InputPort[T, D]], object]:
        captured.name = info.path
        captured.waits = lambda: not root.has_run
        info.declare_stateless()  # what it has is the program's, and a run that goes on captures what comes since

        def logic(input: InputPort[T, D]) -> None:
            captured.waits = _never  # which lets go of the dataflow
            for capability, batch in input:
                captured.messages.append((capability.time, batch))

        return logic

    end_in(stream, Pipeline, "capture", constructor)
    return captured


def capture_into(stream: Stream[T, D], sink: EventSink | str | os.PathLike[str]) -> None:
    """Record ``stream``, as it is on this worker: append its events to ``sink``, to be replayed with ``replay``.

    A sink is anything with ``append(event)``: a list, a ``timely.EventLink``, a ``timely.FileSink``, a
    ``timely.ConnectionSink``; a path stands for a ``FileSink``. Containers are recorded as they are. Every worker records its
    own part, so each needs a sink of its own. In a run that goes on from a checkpoint, what comes since is recorded, as
    a stream of its own. ``CaptureError`` for what is no sink.

    >>> import timely
    >>> events = []
    >>> def build(scope):
    ...     stream = scope.to_stream("ab")
    ...     stream.capture_into(events)
    ...     return stream
    >>> _ = timely.example(build)
    >>> for event in events:
    ...     print(event)
    Progress(changes=((0, 1),))
    Messages(time=0, batch=['a', 'b'])
    Progress(changes=((0, -1),))
    """
    append = _sink(sink).append
    minimum = scope_of(stream, "capture_into").subgraph.domain.minimum

    def constructor(info: OperatorInfo) -> Callable[[InputPort[T, D]], object]:
        told: list[T] | None = None  # the frontier as the sink knows it
        info.declare_stateless()  # a run that goes on has a sink of its own, with a stream of what comes since

        def logic(input: InputPort[T, D]) -> None:
            nonlocal told
            if told is None:
                told = [minimum]
                append(Progress([(minimum, 1)]))
            for capability, batch in input:
                append(Messages(capability.time, batch))
            now = list(input.frontier)
            changes = [(time, -1) for time in told if time not in now] + [(time, 1) for time in now if time not in told]
            if changes:
                told = now
                append(Progress(changes))

        return logic

    end_in(stream, Pipeline, "capture_into", constructor)


def _sink(sink: Any) -> Any:
    if isinstance(sink, str | os.PathLike):
        from timely.operators.recording import FileSink

        return FileSink(sink)
    if not callable(getattr(sink, "append", None)):
        raise CaptureError(
            f"capture_into needs something to append events to (a list, an EventLink, a FileSink, a path), not {sink!r}"
        )
    return sink
