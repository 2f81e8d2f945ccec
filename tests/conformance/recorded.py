"""What the tests of capture and replay share: record a stream, replay recordings, and the error where that fails."""

from __future__ import annotations

from typing import Any

import pytest

import timely
from timely import CaptureError, OperatorError


def record(scope: timely.ScopeBuilder[int], sink: Any, epochs: int = 1, each: int = 10) -> Any:
    """Record ``each`` numbers at each of so many epochs; return the handle, to be closed or lost."""
    handle, stream = scope.new_input()
    stream.capture_into(sink)
    for epoch in range(epochs):
        handle.advance_to(epoch)
        handle.send_batch(list(range(epoch * each, (epoch + 1) * each)))
    return handle


def recorded(sink: Any, epochs: int = 1, each: int = 10) -> None:
    """Record a whole stream."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        record(scope, sink, epochs, each).close()
    worker.run()


def replayed(*sources: Any, time: Any = int) -> Any:
    """Replay to the end; return what came."""
    worker = timely.Worker()
    with worker.dataflow(time) as scope:
        seen = scope.replay(*sources).capture()
    worker.run()
    return seen.extract()


def read_until_error(path: Any) -> tuple[list[Any], CaptureError]:
    """Read the events of a file that is damaged, or breaks off; return those that came, and the error."""
    events: list[Any] = []
    with pytest.raises(CaptureError, match="is damaged|breaks off in the middle of the stream") as failure:
        for event in timely.FileSource[int](path):
            events.append(event)
    return events, failure.value


def complaint(*sources: Any, time: Any = int) -> CaptureError:
    """Replay what cannot be replayed to the end; return the error."""
    with pytest.raises(OperatorError, match="'replay'.*CaptureError") as failure:
        replayed(*sources, time=time)
    assert isinstance(failure.value.__cause__, CaptureError)
    return failure.value.__cause__
