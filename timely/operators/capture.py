"""``capture``: collect what a stream carries, to look at it when the dataflow is done, or while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from timely.dataflow import InputPort, OperatorInfo, Pipeline, Stream
from timely.operators.generic import sink
from timely.order import PartialOrder, linear_extension

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")


class Capture(Generic[T, D]):
    """What came at one point of a dataflow, on one worker: ``messages`` in the order of arrival, or ``extract()``."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[tuple[T, Any]] = []

    def drain(self) -> list[tuple[T, Any]]:
        """Return the messages ``(time, container)`` that have come since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def extract(self) -> list[tuple[T, list[D]]]:
        """Return ``[(time, records)]``: times in an order that extends theirs, the records of each sorted.

        Rows of Arrow batches come as tuples. Records that cannot be compared stay in the order in which they came.

        >>> import timely
        >>> worker = timely.Worker()
        >>> with worker.dataflow(int) as scope:
        ...     letters = scope.to_stream("cab").capture()
        >>> worker.run()
        >>> letters.extract()
        [(0, ['a', 'b', 'c'])]
        """
        found: dict[T, list[D]] = {}
        for time, batch in self.messages:
            found.setdefault(time, []).extend(records_of(batch))
        return [(time, _sorted(found[time])) for time in linear_extension(found)]


def records_of(batch: Any) -> list[Any]:
    """Return the records of a container: rows of an Arrow batch as tuples, elements of an array as Python values.

    >>> records_of([1, 2])
    [1, 2]
    """
    if isinstance(batch, list):
        return batch
    if hasattr(batch, "columns"):
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return list(batch.tolist())


def _sorted(records: list[Any]) -> list[Any]:
    try:
        return sorted(records)
    except TypeError:  # they have no order
        return records


def capture(stream: Stream[T, D]) -> Capture[T, D]:
    """Collect what ``stream`` carries, on this worker.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([2, 1]))
    [(0, [1, 2])]
    """
    captured: Capture[T, D] = Capture()

    def constructor(info: OperatorInfo) -> Callable[[InputPort[T, D]], object]:
        def logic(input: InputPort[T, D]) -> None:
            for capability, batch in input:
                captured.messages.append((capability.time, batch))

        return logic

    sink(stream, Pipeline, "capture", constructor)
    return captured
