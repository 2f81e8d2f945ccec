"""``InputHandle``: sends a program's records into one dataflow or several. It is on the path of every record, and compiled."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Self

from timely.dataflow import Capability, OperatorInfo, OutputPort
from timely.errors import CapabilityError, ContainerError, TimestampError, brief
from timely.operators.state_registration import ResumeTime
from timely.operators.type_variables import D, T
from timely.progress import TimeDomain


class Draft:
    """The batch that a handle appends to, in its buffers already, and sealed by the first that sends it."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: list[Any] = []


class InputBuffer(Generic[T]):
    """What a handle has sent into one stream and its operator has not sent on.

    Once the dataflow is dropped it ignores what is sent.
    """

    __slots__ = ("_abandoned", "_capability", "_draft", "_info", "_later", "_now", "_ready", "_sync_activator")

    def __init__(self, capability: Capability[T], info: OperatorInfo, draft: Draft) -> None:
        self._capability = capability
        self._draft = draft
        self._info = info
        self._ready: list[tuple[Capability[T], list[Any]]] = []
        self._now: list[Any] = []  # at the time of the capability
        self._later: dict[T, list[Any]] = {}  # records of ``send_at``, which are in ``_ready`` too
        self._abandoned = False
        self._sync_activator = info.activator.new_sync_activator()
        info.at_end(self._discard)

    def put(self, batch: Any) -> None:
        if self._capability.held:
            self._now.append(batch)
            if len(self._now) == 1:
                self._info.activator.activate()

    def put_at(self, time: T, record: Any) -> None:
        if self._capability.held:
            records = self._later.get(time)
            if records is None:
                records = self._later[time] = []
                self._ready.append((self._capability.delayed(time), [records]))
                self._info.activator.activate()
            records.append(record)

    def advance_to(self, time: T) -> None:
        if self._now:
            later = self._capability.delayed(time)
            self._ready.append((self._capability, self._now))
            self._capability, self._now = later, []
        elif self._capability.held:
            self._capability.downgrade(time)

    def close(self) -> None:
        if self._now:
            self._ready.append((self._capability.copy(), self._now))
            self._now = []
        self._capability.drop()

    def abandon(self) -> None:
        """Close it in the next step; may be called at any moment, on any thread."""
        if self._capability.held:
            self._abandoned = True
            self._sync_activator.activate()

    def _discard(self) -> None:
        self.close()
        self._ready.clear()
        self._later.clear()

    def logic(self, output: OutputPort[T]) -> None:
        self._draft.records = []
        self._later = {}
        ready, self._ready = self._ready, []
        for capability, batches in ready:
            for batch in batches:
                output.push(capability.time, batch)  # no session: it would check a capability that is known to be held
            capability.drop()
        if self._now:
            batches, self._now = self._now, []
            for batch in batches:
                output.push(self._capability.time, batch)
        if self._abandoned:
            self._capability.drop()


class InputHandle(Generic[T, D]):
    """Sends records at ``time``, which only advances, until ``close()``. One that nothing refers to is closed.

    ``CapabilityError`` after ``close()``, ``TimestampError`` for a step back, and for sending before the time at which a
    run resumes (``timely.recovery``).

    >>> import timely
    >>> def build(scope):
    ...     numbers, stream = scope.new_input()
    ...     numbers.send(1)
    ...     numbers.advance_to(3)
    ...     numbers.send_batch([2, 3])
    ...     return stream
    >>> timely.example(build)
    [(0, [1]), (3, [2, 3])]
    """

    __slots__ = ("_begins", "_buffers", "_closed", "_domain", "_draft", "_info", "_time")

    def __init__(self, domain: TimeDomain[T], info: OperatorInfo) -> None:
        self._info = info
        self._draft = Draft()
        self._buffers: list[InputBuffer[T]] = []
        self._domain = domain
        self._time = domain.minimum
        self._begins: ResumeTime[T] | None = None
        self._closed = False

    def feed(self, capability: Capability[T], info: OperatorInfo, begins: ResumeTime[T] | None) -> InputBuffer[T]:
        """Send into one more stream from now on, and return its buffer; ``CapabilityError`` if the handle is closed."""
        if self._closed:
            raise self._is_closed("input_from")
        self.flush()
        capability.downgrade(self._time)
        if begins is not None:
            self._begins = begins
        self._buffers.append(InputBuffer(capability, info, self._draft))
        return self._buffers[-1]

    @property
    def time(self) -> T:
        """The time at which the next record is sent."""
        return self._time

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def label(self) -> str:
        """The name of the input in errors."""
        return f"input {self._info.name!r} ({self._info.path})"

    def send(self, record: D) -> None:
        """Send one record at the current time."""
        if self._closed:
            raise self._is_closed("send")
        records = self._draft.records
        records.append(record)
        if len(records) == 1:
            self._hand_over(records)

    def send_batch(self, container: Any) -> None:
        """Send a whole container (a list, an Arrow record batch, an array), which must not be changed afterwards."""
        if self._closed:
            raise self._is_closed("send_batch")
        try:
            len(container)
        except TypeError as error:
            raise ContainerError(
                f"send_batch: {self.label} sends containers, such as a list, an Arrow record batch or an array, and this is a"
                f" {type(container).__name__}, which has no length: make a list of it"
            ).caused_by(error)
        self.flush()
        self._hand_over(container)

    def send_at(self, time: T, record: D) -> None:
        """Send one record at ``time``, which is at or after the current one; ``TimestampError`` for others."""
        if self._closed:
            raise self._is_closed("send_at")
        self._check_time("send_at", time)
        if time == self._time:
            self.send(record)
            return
        begins = self._begins
        if begins is not None and not begins.reached(time):
            raise begins.refusal(self._info, time, "advance_to")
        for buffer in self._buffers:
            buffer.put_at(time, record)

    def _hand_over(self, batch: Any) -> None:
        begins = self._begins
        if begins is not None:
            if not begins.reached(self._time):
                self._draft.records = []  # what is refused is not sent later
                raise begins.refusal(self._info, self._time, "advance_to")
            self._begins = None
        for buffer in self._buffers:
            buffer.put(batch)

    def advance_to(self, time: T) -> None:
        """Advance to ``time``; ``TimestampError`` unless it is at or after the current one."""
        if self._closed:
            raise self._is_closed("advance_to")
        self._check_time("advance_to", time)
        self.flush()
        for buffer in self._buffers:
            buffer.advance_to(time)
        self._time = time

    def flush(self) -> None:
        """Seal the records sent so far as one batch; the next step sends them in any case."""
        self._draft.records = []

    def close(self) -> None:
        """Close the input; a no-op when it is closed."""
        if not self._closed:
            self._closed = True
            self.flush()
            for buffer in self._buffers:
                buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_time(self, deed: str, time: T) -> None:
        try:
            self._domain.check(time)
        except TimestampError as error:
            raise TimestampError(f"{deed}: {self.label}: {error}").caused_by(None)
        if not self._time <= time:
            raise TimestampError(
                f"{self.label} is at {brief(self._time)} and cannot {deed.replace('_', ' ')} {brief(time)}, which is not at"
                " or after it"
            )

    def _is_closed(self, deed: str) -> CapabilityError:
        return CapabilityError(f"{deed}: {self.label} was closed at {brief(self._time)}: close it after all that is sent")

    def __del__(self) -> None:
        if not self._closed:
            for buffer in self._buffers:  # may run at any moment
                buffer.abandon()

    def __repr__(self) -> str:
        return f"InputHandle({self._info.path!r}, {'closed' if self._closed else f'at {self._time!r}'})"
