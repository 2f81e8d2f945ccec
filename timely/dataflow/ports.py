"""The ports that an operator's logic reads and sends at, and the sessions that it sends in.

The counts of one activation are reported together when it is over. Data moves only inside activations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, overload

from timely.dataflow.capability import Capability, InputCapability
from timely.dataflow.channel import Pusher
from timely.dataflow.containers.container import records_of
from timely.dataflow.port_owner import Closable, CountedInput, CountedOutput, PortOwner
from timely.dataflow.spill import Queue, SpillQueue
from timely.errors import CapabilityError, ContainerError, ErrorSubject, GraphError, brief
from timely.order import PartialOrder, Product, linear_extension
from timely.progress import Antichain, PathSummary

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D", covariant=True)  # what reads records of a type reads those of its subtypes: a batch is not changed

_PRODUCT: Final = Product  # compiled, a name that was imported is looked up at each use, and a constant is not

FLUSH_AT = 8192
"""Records that a session buffers before it sends them."""

SMALL = 512
"""Operators that work by record concatenate waiting batches of fewer records than this."""


class InputPort(CountedInput[T], Generic[T, D]):
    """One input of an operator: iterate over it for ``(capability, batch)`` pairs, in the order in which they arrived.

    ``batch`` is the container that was sent: a list of records, an Arrow record batch, an array. Other operators may share it, so
    it must not be changed.
    """

    __slots__ = ("elements", "observed", "queue")

    def __init__(self, operator: PortOwner[T], index: int, observed: bool) -> None:
        super().__init__(operator, index)
        self.observed = observed
        self.queue: Queue[T] = deque()
        self.elements: list[T] = []

    @property
    def frontier(self) -> Antichain[T]:
        """The times that may still come; ``GraphError`` for an input with ``notify=False``."""
        if not self.observed:
            raise GraphError(f"{self.label} does not observe its frontier: use unary_frontier, or new_input(..., notify=True)")
        return Antichain(self.elements)

    def place(self) -> ErrorSubject:
        return self.operator.place()

    def __iter__(self) -> Iterator[tuple[InputCapability[T], list[D]]]:
        while self.queue:
            time, batch = self._read()
            yield InputCapability(time, self), batch

    def _read(self) -> tuple[T, Any]:
        """Remove the first message and count it as read; ``ContainerError`` if its container was changed on the way."""
        time, batch, records = self.queue.popleft()
        if len(batch) != records:
            raise ContainerError(
                f"{self.label}: a {type(batch).__name__} that was sent with {records} records has {len(batch)} where it is read;"
                " whoever sends or reads a container must not change it afterwards: send a copy, or make a new one for each"
            )
        self.operator.has_read = True
        self._messages.update_at(self.number, time, -records)
        return time, batch

    def forward(self, output: OutputPort[T], f: Callable[[Any], Any]) -> None:
        """Read all that has arrived, and send ``f(batch)`` on ``output`` for each batch, at its time.

        ``CapabilityError`` for an output of another operator, one where the summary is not the identity, or outside of an
        activation.

        >>> import timely
        >>> def constructor(capability, info):
        ...     return lambda input, output: input.forward(output, lambda batch: [len(batch)])
        >>> timely.example(lambda scope: scope.to_stream("abc").unary(timely.Pipeline, "lengths", constructor))
        [(0, [3])]
        """
        operator = self.operator
        if output.operator is not operator or not operator.running or output.index not in self.identities:
            raise self._cannot_forward(output)
        while self.queue:
            time, batch = self._read()
            output.push(time, f(batch))

    def advance(self, output: OutputPort[T], summary: PathSummary[T]) -> None:
        """Read all that has arrived, and send each batch on ``output`` at ``summary.results_in`` of its time, if there is one.

        ``CapabilityError`` for an output of another operator, for a summary that does not lead there, or outside of an
        activation.
        """
        operator = self.operator
        if output.operator is not operator or not operator.running or summary not in self.summaries[output.index]:
            raise self._cannot_advance(output, summary)
        while self.queue:
            time, batch = self._read()
            later = summary.results_in(time)
            if later is not None:
                output.push(later, batch)

    def forward_records(self, output: OutputPort[T], f: Callable[[list[D]], Any]) -> None:
        """Do what ``forward`` does, by record: ``f(records)`` gets the records of one batch, or of small ones of one time."""
        operator = self.operator
        if output.operator is not operator or not operator.running or output.index not in self.identities:
            raise self._cannot_forward(output)
        while self.queue:
            time, batch = self._read()
            records = batch if type(batch) is list else records_of(batch)
            if self.queue and len(records) < SMALL:
                records = self._concatenated(time, records)
            output.push(time, f(records))

    def _concatenated(self, time: T, records: list[D]) -> list[D]:
        """Return ``records`` and those of the following messages that are small and of the same time."""
        queue = self.queue
        if isinstance(queue, SpillQueue):
            return records  # the next message may be on disk, and is read when it is its turn
        concatenated = list(records)
        while queue and len(concatenated) < FLUSH_AT:
            following, batch, count = queue[0]
            if count >= SMALL or following != time or len(batch) != count:
                break
            self._read()
            concatenated.extend(batch if type(batch) is list else records_of(batch))
        return concatenated

    def _cannot_forward(self, output: OutputPort[T]) -> CapabilityError:
        return CapabilityError(
            f"{output.label}: what {self.label} reads can be forwarded there only in an activation of the same operator, and"
            " only where the summary between them is the identity"
        )

    def _cannot_advance(self, output: OutputPort[T], summary: PathSummary[T]) -> CapabilityError:
        return CapabilityError(
            f"{output.label}: what {self.label} reads can be sent there by {brief(summary)} only in an activation of the same"
            " operator, and only where that is a summary between them"
        )

    def by_time(self) -> Iterator[tuple[InputCapability[T], list[list[D]]]]:
        """Read all that has arrived, as ``(capability, batches)`` for each time, earlier times first."""
        arrived: dict[T, tuple[InputCapability[T], list[list[D]]]] = {}
        for capability, batch in self:
            arrived.setdefault(capability.time, (capability, []))[1].append(batch)
        for time in linear_extension(arrived):
            yield arrived[time]


class OutputPort(CountedOutput[T], Generic[T]):
    """One output of an operator: ``session(capability)`` opens a session in which to send at the capability's time."""

    __slots__ = ("tee",)

    def __init__(self, operator: PortOwner[T], index: int, tee: list[Pusher[T]]) -> None:
        super().__init__(operator, index)
        self.tee = tee

    # Overloaded for the type checker alone: the compiled method accepts anything, and raises its own error.
    @overload
    def session(self, capability: Capability[T]) -> Session[T]: ...
    @overload
    def session(self, capability: InputCapability[T]) -> Session[T]: ...
    def session(self, capability: Any) -> Session[T]:
        """Open a session for ``capability``; it ends with its ``with`` block, or else with the activation.

        ``CapabilityError`` if the capability does not permit to send here.
        """
        operator = self.operator
        if not operator.running:
            raise CapabilityError(f"{self.label}: sessions can be opened only while the operator's logic runs")
        try:
            held: Capability[T] | InputCapability[T] = capability
            permitted = held.permits(self)
        except (AttributeError, TypeError):
            raise CapabilityError(
                f"{self.label}: a session needs a capability, not {brief(capability)}: the one that came with the input, or one"
                " that was retained"
            ).caused_by(None)
        if not permitted:
            raise held.refused_by(self)
        session: Session[T] = Session(self, held.time)
        operator.sessions.append(session)
        return session

    def push(self, time: T, batch: Any) -> None:
        """Send one container at ``time`` to everything that is connected."""
        try:
            records = len(batch)
        except TypeError as error:
            raise ContainerError(
                f"{self.label}: a container is a list, an Arrow record batch, an array, or something of one's own with a length,"
                f" and what was sent is a {type(batch).__name__}"
            ).caused_by(error)
        if records and self.tee:
            for number in self._targets:
                self._messages.update_at(number, time, records)
            for pusher in self.tee:
                pusher.push(time, batch, records)


class Session(Closable, Generic[T]):
    """Sends records or whole containers at one time on one output.

    Records are buffered; a ``with`` block that ends in an error drops the buffer. ``CapabilityError`` for anything sent after the
    ``with`` block, or after the activation in which the session was opened.
    """

    __slots__ = ("_buffer", "_port", "time")

    def __init__(self, port: OutputPort[T], time: T) -> None:
        self._port: OutputPort[T] | None = port
        self._buffer: list[Any] = []
        self.time = time

    def give(self, record: Any) -> None:
        """Send one record."""
        buffer = self._buffer
        buffer.append(record)
        if len(buffer) >= FLUSH_AT or self._port is None:
            self.flush()

    def give_many(self, records: Iterable[Any]) -> None:
        """Send records one by one."""
        buffer = self._buffer
        buffer.extend(records)
        if len(buffer) >= FLUSH_AT or self._port is None:
            self.flush()

    def give_batch(self, container: Any, time: T | None = None) -> None:
        """Send a whole container, which must not be changed afterwards: a list, an Arrow record batch, an array.

        It is sent at the session's time, or at a later ``time``: several times need one session. ``CapabilityError`` for a time
        that is not at or after the session's, ``TimestampError`` for what is no time of the scope.
        """
        port = self._port
        if port is None:
            raise self._has_ended()
        if self._buffer:
            self.flush()
        if time is None:
            time = self.time
        else:
            if type(time) is not type(self.time) or type(time) is _PRODUCT:
                port.check(time)
            if not self.time <= time:
                raise CapabilityError(
                    f"{port.label}: a session at {brief(self.time)} does not permit to send at {brief(time)}: that needs a"
                    " capability, at or before it"
                )
        port.push(time, container)

    def flush(self) -> None:
        """Send the buffer."""
        port = self._port
        if port is None:
            raise self._has_ended()
        if self._buffer:
            buffer, self._buffer = self._buffer, []
            port.push(self.time, buffer)

    def _has_ended(self) -> CapabilityError:
        return CapabilityError(
            f"this session at {brief(self.time)} ended with the activation it was opened in, or with its own with-block;"
            " open a new one"
        )

    def close(self) -> None:
        """Send the buffer, and end the session."""
        if self._port is not None:
            if self._buffer:
                self.flush()
            self._port = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._buffer = []
        self.close()
