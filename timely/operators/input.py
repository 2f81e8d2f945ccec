"""Inputs: how a program sends records into a dataflow from outside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, cast

import attrs

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope, operator_name
from timely.errors import CapabilityError, ContainerError, GraphError, TimestampError, brief
from timely.operators.generic import source
from timely.operators.state import SourcePosition
from timely.operators.type_variables import D, T
from timely.progress import Refinement

CHUNK = 4096
"""Records that ``to_stream`` sends in one activation."""

_PLAIN: Final = (list, tuple, range, str, bytes, dict, set, frozenset)
"""Collections, of which every worker may have been given the same."""

_FEW: Final = 5
"""Records compared with those of another worker."""

PROMPT = 0.05
"""Seconds after which ``to_stream`` sends what a generator has yielded by then."""


@attrs.define(eq=False)
class Draft:
    """The batch that a handle appends to, in its buffers already, and sealed by the first that sends it."""

    records: list[Any] = attrs.Factory(list)


class InputBuffer(Generic[T]):
    """What a handle has sent into one stream and its operator has not sent on.

    Once the dataflow is dropped it ignores what is sent.
    """

    __slots__ = ("_abandoned", "_capability", "_draft", "_info", "_now", "_ready", "_sync_activator")

    def __init__(self, capability: Capability[T], info: OperatorInfo, draft: Draft) -> None:
        self._capability = capability
        self._draft = draft
        self._info = info
        self._ready: list[tuple[Capability[T], list[Any]]] = []
        self._now: list[Any] = []  # at the time of the capability
        self._abandoned = False
        self._sync_activator = info.activator.new_sync_activator()
        info.at_end(self._discard)

    def put(self, batch: Any) -> None:
        if self._capability.held:
            self._now.append(batch)
            if len(self._now) == 1:
                self._info.activator.activate()

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

    def logic(self, output: OutputPort[T]) -> None:
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


@attrs.frozen(eq=False)
class ResumeTime(Generic[T]):
    """The time at which a run resumes (``timely.recovery``), translated to the times of a scope."""

    _begins: Any
    _nested: Sequence[Refinement[Any, Any]]

    def reached(self, time: T) -> bool:
        outer: Any = time
        for scope in self._nested:
            outer = scope.to_outer(outer)
        return bool(self._begins <= outer)

    @property
    def first(self) -> T:
        """The first time of the scope that is not before the run resumes."""
        found = self._begins
        for scope in reversed(self._nested):
            found = scope.to_inner(found)
        return cast(T, found)

    def refusal(self, info: OperatorInfo, time: T, remedy: str) -> TimestampError:
        """Return the error for sending at an earlier ``time``; ``remedy`` is what to call first."""
        return TimestampError(
            f"input {info.name!r} ({info.path}) is at {brief(time)}, and the run goes on from a checkpoint at"
            f" {brief(self._begins)}, which has all that came before: {remedy}({brief(self.first)}) first, and send what comes"
            " then"
        )


def resume_time(scope: ScopeBuilder[T], info: OperatorInfo) -> ResumeTime[T] | None:
    """Return the time at which the dataflow of an input resumes from a checkpoint, or ``None``."""
    begins, nested, around = info.begins, [], scope
    if begins is None:
        return None
    while around.parent is not None:
        nested.append(around.subgraph.refinement)
        around = around.parent
    try:
        around.subgraph.domain.check(begins)
    except TimestampError:
        return None  # a time of another dataflow
    return ResumeTime(begins, nested)


class InputHandle(Generic[T, D]):
    """Sends records at ``time``, which only advances, until ``close()``. One that nothing refers to is closed.

    ``InputClosedError`` after ``close()``, ``TimestampError`` for a step back, and for sending before the time at which a
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

    __slots__ = ("_begins", "_buffers", "_check", "_closed", "_draft", "_info", "_time")

    def __init__(
        self, capability: Capability[T], info: OperatorInfo, check: Callable[[object], None], begins: ResumeTime[T] | None = None
    ) -> None:
        self._info = info
        self._draft = Draft()
        self._buffers = [InputBuffer(capability, info, self._draft)]
        self._check = check
        self._time = capability.time
        self._begins = begins
        self._closed = False

    def feed(self, capability: Capability[T], info: OperatorInfo, begins: ResumeTime[T] | None = None) -> InputBuffer[T]:
        """Send into another stream too from now on, and return its buffer; ``InputClosedError`` if the handle is closed."""
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

    def _is_closed(self, deed: str) -> CapabilityError:
        name, path = self._info.name, self._info.path
        return CapabilityError(
            f"{deed}: input {name!r} ({path}) was closed at {brief(self._time)}: close it after all that is sent"
        )

    def __del__(self) -> None:
        if not self._closed:
            for buffer in self._buffers:  # may run at any moment
                buffer.abandon()

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
        handle: InputHandle[T, Any] = InputHandle(capability, info, scope.subgraph.domain.check, resume_time(scope, info))
        handles.append(handle)
        return handle._buffers[0].logic

    output = source(scope, name, constructor)
    return handles.pop(), output


def input_from(scope: ScopeBuilder[T], handle: InputHandle[T, D], name: str = "input") -> Stream[T, D]:
    """Return one more stream of what ``handle`` sends from now on, in any dataflow of the same worker.

    ``InputClosedError`` for a closed handle, ``TimestampError`` for one whose times are not those of the scope, both as the cause
    of an ``OperatorError``.

    >>> import timely
    >>> def build(scope):
    ...     numbers, stream = scope.new_input()
    ...     numbers.send("early")
    ...     since = scope.input_from(numbers)
    ...     numbers.send("late")
    ...     return since
    >>> timely.example(build)
    [(0, ['late'])]
    """

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        info.declare_stateless()
        return handle.feed(capability, info, resume_time(scope, info)).logic

    check_scope(scope, name)
    if not isinstance(handle, InputHandle):
        raise GraphError(
            f"input_from in scope {scope.path!r} takes the handle, of the pair (handle, stream) that new_input returns,"
            f" not {brief(handle)}"
        )
    return source(scope, name, constructor)


def to_stream(
    scope: ScopeBuilder[T], iterable: Iterable[D], *, on: int | Literal["each"] | None = None, name: str | None = None
) -> Stream[T, D]:
    """Return the stream of the records of ``iterable``, all at the minimum time, a few thousand per activation.

    Each worker sends its own ``iterable``. ``on=0`` has worker 0 alone send; ``on="each"`` declares that all send the same, which
    is otherwise a ``TimelyWarning`` for equal collections. A slow generator's records are sent every 50 ms, and its worker waits
    meanwhile: use ``from_async`` for outside data, and ``read_arrow`` for tables. A run that resumes from a checkpoint needs the
    same records, and sends the rest. ``ContainerError`` for a table of Arrow or pandas, which iterates over columns;
    ``GraphError`` for an unknown worker.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream(range(3)))
    [(0, [0, 1, 2])]
    """
    if hasattr(type(iterable), "columns"):
        raise ContainerError(
            f"to_stream sends records one by one, and those of a {type(iterable).__name__} are its columns: read it with"
            " scope.read_arrow(table)"
        )

    check_scope(scope, "to_stream")
    if on is not None and on != "each" and on not in range(scope.allocator.peers):
        raise GraphError(
            f"to_stream(on={on!r}) in scope {scope.path!r}: give the number of one of the {scope.allocator.peers} workers,"
            " or 'each'"
        )

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        if on is None and info.peers > 1 and isinstance(iterable, _PLAIN) and len(iterable) > 1:
            scope.root.given[info.path] = _summary_of(iterable), info.origin
        sent = SourcePosition(info)
        if sent.over or on not in (None, "each", info.worker):
            sent.over = True
            capability.drop()
        iterator = itertools.islice(iter(iterable if capability.held else ()), sent.count, None)
        read = _next_batch if isinstance(iterable, Sized) else _next_in_time

        def logic(output: OutputPort[T]) -> None:
            if capability.held:
                batch, more = read(iterator)
                if batch:
                    output.session(capability).give_batch(batch)
                sent.count += len(batch)
                if not more:
                    sent.over = True
                    capability.drop()
                else:
                    info.activator.activate()

        return logic

    return source(scope, operator_name("to_stream", name), constructor)


def _summary_of(given: Any) -> str:
    """Return what distinguishes one worker's records from another's: type, number, the first few, and the last of a sequence."""
    few = [brief(record) for record in itertools.islice(given, _FEW)]
    if len(given) > _FEW:
        few += ["...", brief(given[-1])] if isinstance(given, Sequence) else ["..."]
    return f"{type(given).__name__} of {len(given)}: {', '.join(few)}"


def _next_batch(records: Iterator[D]) -> tuple[list[D], bool]:
    batch = list(itertools.islice(records, CHUNK))
    return batch, len(batch) == CHUNK


def _next_in_time(records: Iterator[D]) -> tuple[list[D], bool]:
    batch: list[D] = []
    deadline = monotonic() + PROMPT
    for record in itertools.islice(records, CHUNK):
        batch.append(record)
        if monotonic() >= deadline:
            return batch, True
    return batch, len(batch) == CHUNK
