"""Inputs: how a program sends records into a dataflow from outside, at times of its own choosing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream
from timely.errors import InputClosedError, TimeRegressionError
from timely.operators.generic import source
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")

CHUNK = 4096
"""Records that ``to_stream`` sends in one activation."""


class Outbox(Generic[T]):
    """What a handle has sent and its operator has not picked up yet: sealed batches, and the one that is being filled."""

    __slots__ = ("buffer", "ready")

    def __init__(self) -> None:
        self.buffer: list[Any] = []
        self.ready: list[tuple[Capability[T], Any]] = []

    def logic(self, output: OutputPort[T]) -> None:
        """Send everything on: the logic of an input's operator."""
        if self.ready:
            self.buffer = []
            ready, self.ready = self.ready, []
            for capability, batch in ready:
                output.session(capability).give_batch(batch)
                capability.drop()


class InputHandle(Generic[T, D]):
    """Sends records at ``time``, which only ever advances; closing it says that nothing more will come.

    It holds a capability for its time, so that no frontier passes it. A handle that nothing refers to any more is closed.
    ``InputClosedError`` for use after ``close()``, ``TimeRegressionError`` for a step back.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    ...     seen = stream.capture()
    >>> numbers.send(1)
    >>> numbers.advance_to(3)
    >>> numbers.send_batch([2, 3])
    >>> numbers.close()
    >>> worker.run()
    >>> seen.extract()
    [(0, [1]), (3, [2, 3])]
    """

    __slots__ = ("_capability", "_check", "_closed", "_info", "_outbox", "_time")

    def __init__(
        self,
        capability: Capability[T],
        info: OperatorInfo,
        outbox: Outbox[T],
        check: Callable[[object], None],
    ) -> None:
        self._capability = capability
        self._info = info
        self._outbox = outbox
        self._check = check
        self._time = capability.time
        self._closed = False

    @property
    def time(self) -> T:
        """The time at which the next record is sent."""
        return self._time

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def send(self, record: D) -> None:
        """Send one record at the current time."""
        if self._closed:
            raise self._is_closed("send")
        buffer = self._outbox.buffer
        buffer.append(record)
        if len(buffer) == 1:
            self._hand_over(buffer)

    def send_batch(self, batch: Any) -> None:
        """Send a whole container (a list, an Arrow record batch, an array), which must not be changed afterwards."""
        if self._closed:
            raise self._is_closed("send_batch")
        self.flush()
        self._hand_over(batch)

    def _hand_over(self, batch: Any) -> None:
        self._outbox.ready.append((self._capability.delayed(self._time), batch))
        self._info.activator.activate()

    def advance_to(self, time: T) -> None:
        """Move on to ``time``: nothing more will be sent at times that are not at or after it."""
        if self._closed:
            raise self._is_closed("advance_to")
        self._check(time)
        if not self._time <= time:
            raise TimeRegressionError(
                f"input {self._info.name!r} ({self._info.path}) is at {self._time!r} and cannot advance to {time!r}, which is"
                " not at or after it"
            )
        self.flush()
        self._capability.downgrade(time)
        self._time = time

    def flush(self) -> None:
        """Seal the records sent so far as one batch; they go out with the next step in any case."""
        if self._outbox.buffer:
            self._outbox.buffer = []

    def close(self) -> None:
        """Say that nothing more will come; closing it twice does nothing more."""
        if not self._closed:
            self._closed = True
            self.flush()
            self._capability.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _is_closed(self, deed: str) -> InputClosedError:
        return InputClosedError(f"{deed}: input {self._info.name!r} ({self._info.path}) was closed at {self._time!r}")

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"InputHandle({self._info.path!r}, {'closed' if self._closed else f'at {self._time!r}'})"


def new_input(scope: ScopeBuilder[T], name: str = "input") -> tuple[InputHandle[T, Any], Stream[T, Any]]:
    """Return a handle to send records with, and the stream of them.

    >>> import timely
    >>> with timely.Worker().dataflow(int) as scope:
    ...     handle, stream = scope.new_input()
    >>> handle.time
    0
    """
    handles: list[InputHandle[T, Any]] = []

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        outbox: Outbox[T] = Outbox()
        handles.append(InputHandle(capability, info, outbox, scope.subgraph.domain.check))
        return outbox.logic

    output = source(scope, name, constructor)
    return handles.pop(), output


def to_stream(scope: ScopeBuilder[T], records: Iterable[D]) -> Stream[T, D]:
    """Return the stream of ``records``, all at the minimum time; a bounded number of them is sent at each activation.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(3)))
    [(0, [0, 1, 2])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        iterator = iter(records)

        def logic(output: OutputPort[T]) -> None:
            if capability.held:
                batch = list(itertools.islice(iterator, CHUNK))
                if batch:
                    output.session(capability).give_batch(batch)
                if len(batch) < CHUNK:
                    capability.drop()
                else:
                    info.activator.activate()

        return logic

    return source(scope, "to_stream", constructor)
