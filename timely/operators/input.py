"""Inputs: how a program sends records into a dataflow from outside, at times of its own choosing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope
from timely.errors import CapabilityError, ContainerError, GraphError, TimestampError, brief
from timely.operators.generic import source
from timely.operators.state_log import Sent
from timely.order import PartialOrder
from timely.progress import Refinement

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")

CHUNK = 4096
"""Records that ``to_stream`` sends in one activation."""

_PLAIN: Final = (list, tuple, range, str, bytes, dict, set, frozenset)
"""What can be read again and again, so that every worker may have been given the same."""

_FEW: Final = 5
"""Records that are compared with those of another worker."""

PROMPT = 0.05
"""Seconds after which ``to_stream`` sends what a generator has yielded by then."""


class Draft:
    """The batch that a handle is filling. It is ready to be sent already, and sealed by whoever sends it first."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: list[Any] = []


class Outbox(Generic[T]):
    """What a handle has sent into one stream and its operator has not picked up yet, the draft included.

    Once the dataflow is dropped it takes nothing in, while the handle may feed others still.
    """

    __slots__ = ("_abandoned", "_bell", "_capability", "_draft", "_info", "_now", "_ready")

    def __init__(self, capability: Capability[T], info: OperatorInfo, draft: Draft) -> None:
        self._capability = capability
        self._draft = draft
        self._info = info
        self._ready: list[tuple[Capability[T], list[Any]]] = []
        self._now: list[Any] = []  # at the current time, which the capability is at: they need none of their own yet
        self._abandoned = False
        self._bell = info.activator.bell()
        info.at_end(self._discard)

    def put(self, batch: Any) -> None:
        """Have a batch sent in the next step."""
        if self._capability.held:
            self._now.append(batch)
            if len(self._now) == 1:
                self._info.activator.activate()

    def advance_to(self, time: T) -> None:
        """Send nothing more before ``time``."""
        if self._now:
            later = self._capability.delayed(time)
            self._ready.append((self._capability, self._now))
            self._capability, self._now = later, []
        elif self._capability.held:
            self._capability.downgrade(time)

    def close(self) -> None:
        """Send nothing more."""
        if self._now:
            self._ready.append((self._capability.copy(), self._now))
            self._now = []
        self._capability.drop()

    def abandon(self) -> None:
        """Have it closed when the operator runs next, which is soon: to be called at any moment, and on any thread."""
        if self._capability.held:
            self._abandoned = True
            self._bell.ring()

    def _discard(self) -> None:
        self.close()
        self._ready.clear()

    def logic(self, output: OutputPort[T]) -> None:
        """Send everything on: the logic of an input's operator."""
        self._draft.records = []
        ready, self._ready = self._ready, []
        for capability, batches in ready:
            self._send(output, capability, batches)
            capability.drop()
        if self._now:
            batches, self._now = self._now, []
            self._send(output, self._capability, batches)
        if self._abandoned:
            self._capability.drop()

    def _send(self, output: OutputPort[T], capability: Capability[T], batches: list[Any]) -> None:
        session = output.session(capability)
        for batch in batches:
            session.give_batch(batch)


class Beginning(Generic[T]):
    """The time that a run goes on from (``timely.recovery``), as it is for the times of a scope in a dataflow with such times."""

    __slots__ = ("_begins", "_nested")

    def __init__(self, begins: Any, nested: Sequence[Refinement[Any, Any]]) -> None:
        self._begins = begins
        self._nested = nested

    def reached(self, time: T) -> bool:
        """Return whether ``time`` is, on the outside of the scopes that it is nested in, not before the run begins."""
        outer: Any = time
        for scope in self._nested:
            outer = scope.to_outer(outer)
        return bool(self._begins <= outer)

    def refusal(self, info: OperatorInfo, time: T, remedy: str) -> TimestampError:
        """Return the error for what is sent at a ``time`` that is over; ``remedy`` is what is to be called instead."""
        first = self._begins
        for scope in reversed(self._nested):
            first = scope.to_inner(first)
        return TimestampError(
            f"input {info.name!r} ({info.path}) is at {brief(time)}, and the run goes on from a checkpoint at"
            f" {brief(self._begins)}, which has all that came before: {remedy}({brief(first)}) first, and send what comes then"
        )


def beginning(scope: ScopeBuilder[T], info: OperatorInfo) -> Beginning[T] | None:
    """Return where an input in a scope begins, where its dataflow goes on from a checkpoint at a time of its own."""
    begins, nested, around = info.begins, [], scope
    if begins is None:
        return None
    while around.parent is not None:
        nested.append(around.subgraph.refinement)
        around = around.parent
    try:
        around.subgraph.domain.check(begins)
    except TimestampError:
        return None  # other dataflows have such times
    return Beginning(begins, nested)


class InputHandle(Generic[T, D]):
    """Sends records at ``time``, which only ever advances; closing it says that nothing more will come.

    It holds a capability for its time, so that no frontier passes it. A handle that nothing refers to any more is closed.
    ``CapabilityError`` for use after ``close()``, ``TimestampError`` for a step back, and for what is sent before the time
    that a run goes on from (``timely.recovery``).

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

    __slots__ = ("_begins", "_check", "_closed", "_draft", "_info", "_outboxes", "_time")

    def __init__(
        self, capability: Capability[T], info: OperatorInfo, check: Callable[[object], None], begins: Beginning[T] | None = None
    ) -> None:
        self._info = info
        self._draft = Draft()
        self._outboxes = [Outbox(capability, info, self._draft)]
        self._check = check
        self._time = capability.time
        self._begins = begins
        self._closed = False

    def feed(self, capability: Capability[T], info: OperatorInfo, begins: Beginning[T] | None = None) -> Outbox[T]:
        """Send into another stream too from now on, which may go on from where it ``begins``; return its outbox.

        ``CapabilityError`` if the handle is closed.
        """
        if self._closed:
            raise self._is_closed("input_from")
        self.flush()
        capability.downgrade(self._time)
        if begins is not None:
            self._begins = begins
        self._outboxes.append(Outbox(capability, info, self._draft))
        return self._outboxes[-1]

    @property
    def time(self) -> T:
        """The time at which the next record is sent."""
        return self._time

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def outbox(self) -> Outbox[T]:
        """What is sent into the stream that the handle was made with."""
        return self._outboxes[0]

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
                f"send_batch: input {self._info.name!r} ({self._info.path}) sends containers, such as a list, an Arrow record"
                f" batch or an array, and this is a {type(container).__name__}, which has no length: make a list of it"
            ) from error
        self.flush()
        self._hand_over(container)

    def _hand_over(self, batch: Any) -> None:
        if self._begins is not None:
            self._check_begun(self._begins)
        for outbox in self._outboxes:
            outbox.put(batch)

    def _check_begun(self, begins: Beginning[T]) -> None:
        """Raise ``TimestampError`` before the time that the dataflow goes on from: what came then is counted already."""
        if not begins.reached(self._time):
            self._draft.records = []  # what is refused is not sent later
            raise begins.refusal(self._info, self._time, "advance_to")
        self._begins = None

    def advance_to(self, time: T) -> None:
        """Move on to ``time``: nothing more will be sent at times that are not at or after it."""
        if self._closed:
            raise self._is_closed("advance_to")
        try:
            self._check(time)
        except TimestampError as error:
            raise TimestampError(f"advance_to: input {self._info.name!r} ({self._info.path}): {error}") from None
        if not self._time <= time:
            raise TimestampError(
                f"input {self._info.name!r} ({self._info.path}) is at {brief(self._time)} and cannot advance to"
                f" {brief(time)}, which is not at or after it"
            )
        self.flush()
        for outbox in self._outboxes:
            outbox.advance_to(time)
        self._time = time

    def flush(self) -> None:
        """Seal the records sent so far as one batch; they go out with the next step in any case."""
        if self._draft.records:
            self._draft.records = []

    def close(self) -> None:
        """Say that nothing more will come; closing it twice does nothing more."""
        if not self._closed:
            self._closed = True
            self.flush()
            for outbox in self._outboxes:
                outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _is_closed(self, deed: str) -> CapabilityError:
        name, path = self._info.name, self._info.path
        return CapabilityError(
            f"{deed}: input {name!r} ({path}) was closed at {brief(self._time)}: close it after all that is sent"
        )

    def __del__(self) -> None:
        if not self._closed:
            for outbox in self._outboxes:  # Python may let go of it in the middle of anything (timely.dataflow.unreferenced)
                outbox.abandon()

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
        info.declare_stateless()  # the program sends, and advances, what is not part of the checkpoint
        handle: InputHandle[T, Any] = InputHandle(capability, info, scope.subgraph.domain.check, beginning(scope, info))
        handles.append(handle)
        return handle.outbox.logic

    output = source(scope, name, constructor)
    return handles.pop(), output


def input_from(scope: ScopeBuilder[T], handle: InputHandle[T, D], name: str = "input") -> Stream[T, D]:
    """Return one more stream of what ``handle`` sends from now on, here or in another dataflow of the same worker.

    Its times begin at the handle's; what was sent before does not come. ``CapabilityError`` for a handle that is closed,
    ``TimestampError`` for one whose times are not those of the scope, both as the cause of an ``OperatorError``; ``GraphError``
    for what is no handle.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    ...     everything = stream.capture()
    >>> numbers.send("early")
    >>> numbers.advance_to(1)
    >>> with worker.dataflow(int) as scope:
    ...     since = scope.input_from(numbers).capture()
    >>> numbers.send("late")
    >>> numbers.close()
    >>> worker.run()
    >>> everything.extract(), since.extract()
    ([(0, ['early']), (1, ['late'])], [(1, ['late'])])
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        info.declare_stateless()
        return handle.feed(capability, info, beginning(scope, info)).logic

    check_scope(scope, name)
    if not isinstance(handle, InputHandle):
        raise GraphError(
            f"input_from in scope {scope.path!r} takes the handle, of the pair (handle, stream) that new_input returns,"
            f" not {brief(handle)}"
        )
    return source(scope, name, constructor)


def to_stream(scope: ScopeBuilder[T], iterable: Iterable[D], *, on: int | Literal["each"] | None = None) -> Stream[T, D]:
    """Return the stream of the records of ``iterable``, all at the minimum time; a bounded number is sent at each activation.

    Each worker sends what it is given. ``on=0`` has worker 0 alone send, whatever the others are given; ``on="each"`` says that
    all are to send the same. Without either, a list, ``range``, string or the like that is the same on two workers is warned of,
    once (``TimelyWarning``): each of its records comes as often as there are workers.

    Of a generator that takes its time, what it has yielded is sent once 50 ms have passed and it yields again. Nothing else runs
    on its worker while it waits: ``from_async`` is for what comes from outside.
    A run that goes on from a checkpoint sends those that had not been sent: it needs to be given the same records.
    ``ContainerError`` for a table of Arrow or pandas, which would be read column by column, ``GraphError`` for a worker ``on``
    which there is none.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(3)))
    [(0, [0, 1, 2])]
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream(range(3), on=0).exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> timely.execute(program, workers=2)
    [[(0, [0, 2])], [(0, [1])]]
    """

    if hasattr(type(iterable), "columns"):
        raise ContainerError(
            f"to_stream sends records one by one, and those of a {type(iterable).__name__} are its columns: give what has the"
            " rows, or send it as a container, with new_input() and send_batch()"
        )

    check_scope(scope, "to_stream")
    if on is not None and on != "each" and on not in range(scope.allocator.peers):
        raise GraphError(
            f"to_stream(on={on!r}) in scope {scope.path!r}: give the number of one of the {scope.allocator.peers} workers,"
            " or 'each'"
        )

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        if on is None and info.peers > 1 and isinstance(iterable, _PLAIN) and len(iterable) > 1:
            scope.root.given[info.path] = _sketch(iterable), info.origin
        sent = Sent(info)
        if sent.over or on not in (None, "each", info.worker):
            sent.over = True
            capability.drop()
        iterator = itertools.islice(iter(iterable if capability.held else ()), sent.count, None)
        take = _take_all if isinstance(iterable, Sized) else _take_promptly

        def logic(output: OutputPort[T]) -> None:
            if capability.held:
                batch, more = take(iterator)
                if batch:
                    output.session(capability).give_batch(batch)
                sent.count += len(batch)
                if not more:
                    sent.over = True
                    capability.drop()
                else:
                    info.activator.activate()

        return logic

    return source(scope, "to_stream", constructor)


def _sketch(given: Any) -> str:
    """Return what tells one worker's records from another's: type and number, the first few, and the last of a sequence."""
    few = [brief(record) for record in itertools.islice(given, _FEW)]
    if len(given) > _FEW:
        few += ["...", brief(given[-1])] if isinstance(given, Sequence) else ["..."]
    return f"{type(given).__name__} of {len(given)}: {', '.join(few)}"


def _take_all(records: Iterator[D]) -> tuple[list[D], bool]:
    """Return the next batch of what is there already, and whether more may follow."""
    batch = list(itertools.islice(records, CHUNK))
    return batch, len(batch) == CHUNK


def _take_promptly(records: Iterator[D]) -> tuple[list[D], bool]:
    """Return the next batch of what is only being made, cut when it takes long, and whether more may follow."""
    batch: list[D] = []
    deadline = monotonic() + PROMPT
    for record in itertools.islice(records, CHUNK):
        batch.append(record)
        if monotonic() >= deadline:
            return batch, True
    return batch, len(batch) == CHUNK
