"""The two kinds of port that an operator's logic works with, and the sessions that it sends in.

An ``InputPort`` hands out what has arrived, batch by batch, each with its capability, and shows the frontier; an
``OutputPort`` opens sessions for capabilities. Both keep count: what was read, what was sent, what is held. The counts of one
activation are reported together when it is over. Data moves only inside activations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from timely.dataflow.capability import Capability, InputCapability
from timely.dataflow.channel import Pusher
from timely.dataflow.container import records_of
from timely.dataflow.spill import Queue, SpillQueue
from timely.errors import CapabilityError, ContainerError, ErrorSubject, GraphError, TimestampError, brief
from timely.order import PartialOrder, linear_extension
from timely.progress import Antichain, CountSink, PathSummary

if TYPE_CHECKING:
    from timely.dataflow.operator import Operator

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D", covariant=True)  # what reads records of a type reads those of its subtypes: a batch is not changed

FLUSH_AT = 8192
"""Records that a session gathers before it passes them on."""

SMALL = 512
"""Batches of fewer records than this are joined by operators that work by record, where several wait."""


class _Unbuilt(CountSink[Any]):
    """What the ports of an operator count in that has not been built."""

    __slots__ = ()

    def update_at(self, index: int, time: Any, diff: int) -> None:
        raise CapabilityError("this operator has not been built yet: call build(...) first")


UNBUILT: Final = _Unbuilt()


class InputPort(Generic[T, D]):
    """One input of an operator: iterate over it for ``(capability, batch)`` pairs, in the order in which they arrived.

    ``batch`` is the container that was sent: a list of records, an Arrow record batch, an array. It may be shared with other
    operators, so it must not be changed. ``frontier`` says which times may still come.
    """

    __slots__ = ("_note", "_number", "elements", "identities", "index", "observed", "operator", "queue", "summaries")

    def __init__(self, operator: Operator[T], index: int, observed: bool) -> None:
        self.operator = operator
        self.index = index
        self.observed = observed
        self.queue: Queue[T] = deque()
        self._number = -1
        self._note: CountSink[T] = UNBUILT
        self.elements: list[T] = []
        self.summaries: Sequence[Antichain[PathSummary[T]]] = ()
        self.identities: frozenset[int] = frozenset()

    @property
    def frontier(self) -> Antichain[T]:
        """The times that may still come, as last told; ``GraphError`` for an input that does not ask for notifications."""
        if not self.observed:
            raise GraphError(f"{self.label} is not told of its frontier: use unary_frontier, or new_input(..., notify=True)")
        return Antichain(self.elements)

    @property
    def label(self) -> str:
        """How errors call it."""
        return f"input {self.index} of operator {self.operator.name!r} ({self.operator.path})"

    def place(self) -> ErrorSubject:
        """Return the operator, for errors."""
        return self.operator.info.place()

    def check(self, time: object) -> None:
        """Raise ``TimestampError`` unless ``time`` is a time of the operator's scope."""
        _check(self, time)

    def __iter__(self) -> Iterator[tuple[InputCapability[T], list[D]]]:
        queue, operator = self.queue, self.operator
        note, number = self._note, self._number
        while queue:
            time, batch, records = queue.popleft()
            if len(batch) != records:
                raise self._was_changed(batch, records)
            operator.has_read = True
            note.update_at(number, time, -records)
            yield InputCapability(time, self), batch

    def forward(self, output: OutputPort[T], f: Callable[[Any], Any]) -> None:
        """Read all that has arrived, and send ``f(batch)`` on ``output`` for each batch, at its time.

        For logic that is nothing else: it is what a loop over the input with a session for each batch is, in fewer steps.
        ``CapabilityError`` where such a session could not be opened: for an output of another operator, one where the summary is
        not the identity, or outside of an activation.

        >>> import timely
        >>> def constructor(capability, info):
        ...     return lambda input, output: input.forward(output, lambda batch: [len(batch)])
        >>> timely.example(lambda scope: scope.to_stream("abc").unary(timely.Pipeline, "lengths", constructor))
        [(0, [3])]
        """
        operator = self.operator
        if output.operator is not operator or not operator.running or output.index not in self.identities:
            raise self._cannot_forward(output)
        queue, note, number = self.queue, self._note, self._number
        while queue:
            time, batch, records = queue.popleft()
            if len(batch) != records:
                raise self._was_changed(batch, records)
            operator.has_read = True
            note.update_at(number, time, -records)
            output.push(time, f(batch))

    def advance(self, output: OutputPort[T], summary: PathSummary[T]) -> None:
        """Read all that has arrived, and send each batch on ``output`` at the time that ``summary`` makes of its own; a batch of
        which it makes none is dropped.

        For the logic of a loop, as ``forward`` is for others. ``CapabilityError`` for an output of another operator, for a
        summary that does not lead there, or outside of an activation.
        """
        operator = self.operator
        if output.operator is not operator or not operator.running or summary not in self.summaries[output.index]:
            raise self._cannot_advance(output, summary)
        queue, note, number = self.queue, self._note, self._number
        while queue:
            time, batch, records = queue.popleft()
            if len(batch) != records:
                raise self._was_changed(batch, records)
            operator.has_read = True
            note.update_at(number, time, -records)
            later = summary.results_in(time)
            if later is not None:
                output.push(later, batch)

    def forward_records(self, output: OutputPort[T], f: Callable[[list[D]], Any]) -> None:
        """As ``forward``, by record: send ``f(records)`` for the records of each batch, or of several small ones of one time.

        >>> import timely
        >>> def constructor(capability, info):
        ...     return lambda input, output: input.forward_records(output, sorted)
        >>> def build(scope):
        ...     return scope.to_stream([3, 2]).concat(scope.to_stream([1])).unary(timely.Pipeline, "sort", constructor)
        >>> timely.example(build)
        [(0, [1, 2, 3])]
        """
        operator = self.operator
        if output.operator is not operator or not operator.running or output.index not in self.identities:
            raise self._cannot_forward(output)
        queue, note, number = self.queue, self._note, self._number
        while queue:
            time, batch, count = queue.popleft()
            if len(batch) != count:
                raise self._was_changed(batch, count)
            operator.has_read = True
            note.update_at(number, time, -count)
            records = batch if type(batch) is list else records_of(batch)
            if queue and count < SMALL:
                records = self._joined(time, records)
            output.push(time, f(records))

    def _joined(self, time: T, records: list[D]) -> list[D]:
        """Return ``records`` and those of the messages that follow, as far as these are small and of the same time."""
        queue = self.queue
        if isinstance(queue, SpillQueue):
            return records  # what comes next may be on disk, to be read when it is its turn
        joined = list(records)
        while queue and len(joined) < FLUSH_AT:
            following, batch, count = queue[0]
            if count >= SMALL or following != time or len(batch) != count:
                break
            queue.popleft()
            self._note.update_at(self._number, time, -count)
            joined.extend(batch if type(batch) is list else records_of(batch))
        return joined

    def _was_changed(self, batch: Any, records: int) -> ContainerError:
        return ContainerError(
            f"{self.label}: a {type(batch).__name__} that was sent with {records} records has {len(batch)} where it is read;"
            " whoever sends or reads a container must not change it afterwards: send a copy, or make a new one for each"
        )

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
        """Read all that has arrived: ``(capability, batches)`` for each time, an earlier time before a later one.

        >>> import timely
        >>> def constructor(capability, info):
        ...     def logic(input, output):
        ...         for capability, batches in input.by_time():
        ...             output.session(capability).give((capability.time, sum(batches, [])))
        ...     return logic
        >>> def build(scope):
        ...     numbers = scope.to_stream([4, 1, 4]).delay(lambda x, time: x)
        ...     both = numbers.concat(numbers.delay(lambda x, time: 2 * x))
        ...     return both.unary(timely.Pipeline, "by time", constructor).map(lambda pair: pair[0])
        >>> timely.example(build)
        [(1, [1]), (2, [2]), (4, [4]), (8, [8])]
        """
        found: dict[T, tuple[InputCapability[T], list[list[D]]]] = {}
        for capability, batch in self:
            found.setdefault(capability.time, (capability, []))[1].append(batch)
        for time in linear_extension(found):
            yield found[time]

    def account(self, number: int, note: CountSink[T]) -> None:
        """Count what is read in ``note``, under ``number``, from now on."""
        self._number = number
        self._note = note


class OutputPort(Generic[T]):
    """One output of an operator: ``session(capability)`` opens a session in which to send at the capability's time."""

    __slots__ = ("_note", "_targets", "hold", "index", "number", "operator", "tee")

    def __init__(self, operator: Operator[T], index: int, tee: list[Pusher[T]]) -> None:
        self.operator = operator
        self.index = index
        self.tee = tee
        self.number = -1
        self.hold: CountSink[T] = UNBUILT
        self._targets: list[int] = []
        self._note: CountSink[T] = UNBUILT

    @property
    def label(self) -> str:
        """How errors call it."""
        return f"output {self.index} of operator {self.operator.name!r} ({self.operator.path})"

    def check(self, time: object) -> None:
        """Raise ``TimestampError`` unless ``time`` is a time of the operator's scope."""
        _check(self, time)

    # Overloaded for the type checker alone: compiled, it takes whatever there is, and says itself what it cannot use; that what
    # it was given is a capability is looked at where the name gets its type, and is a TypeError there.
    @overload
    def session(self, capability: Capability[T]) -> Session[T]: ...
    @overload
    def session(self, capability: InputCapability[T]) -> Session[T]: ...
    def session(self, capability: Any) -> Session[T]:
        """Open a session for ``capability``; it ends with its ``with`` block, or else with the activation.

        ``CapabilityError`` if the capability does not allow to send here.
        """
        operator = self.operator
        if not operator.running:
            raise CapabilityError(f"{self.label}: sessions can be opened only while the operator's logic runs")
        try:
            given: Capability[T] | InputCapability[T] = capability
            permitted = given.permits(self)
        except (AttributeError, TypeError):
            raise CapabilityError(
                f"{self.label}: a session needs a capability, not {brief(capability)}: the one that came with the input, or one"
                " that was retained"
            ).caused_by(None)
        if not permitted:
            raise given.refused_by(self)
        session: Session[T] = Session(self, given.time)
        operator.sessions.append(session)
        return session

    def account(self, number: int, hold: CountSink[T], targets: list[int], note: CountSink[T]) -> None:
        """Count capabilities in ``hold`` under ``number``, and messages in ``note`` under ``targets``, from now on."""
        self.number = number
        self.hold = hold
        self._targets = targets
        self._note = note

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
            note = self._note
            for number in self._targets:
                note.update_at(number, time, records)
            for pusher in self.tee:
                pusher.push(time, batch, records)


class Session(Generic[T]):
    """Sends records or whole containers at one time on one output.

    Records are gathered and go out a few thousand at a time; a ``with`` block that ends in an error drops those still gathered.
    ``CapabilityError`` for anything sent after its ``with`` block, or after the activation in which it was opened.
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

    def give_batch(self, container: Any) -> None:
        """Send a whole container: a list, an Arrow record batch, an array. It must not be changed afterwards."""
        port = self._port
        if port is None:
            raise self._has_ended()
        if self._buffer:
            self.flush()
        port.push(self.time, container)

    def flush(self) -> None:
        """Pass on what was given record by record."""
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
        """Pass on what there is, and end the session."""
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


def _check(port: InputPort[Any, Any] | OutputPort[Any], time: object) -> None:
    try:
        port.operator.domain.check(time)
    except TimestampError as error:
        raise TimestampError(f"{port.label}: {error}").caused_by(None)
