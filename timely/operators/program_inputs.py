"""Inputs: how a program sends records into a dataflow from outside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from time import monotonic
from types import FunctionType, TracebackType
from typing import Any, Final, Generic, Literal, Self

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope, operator_name
from timely.errors import CapabilityError, ContainerError, GraphError, brief
from timely.operators.generic import source
from timely.operators.input_handle import InputHandle
from timely.operators.state_registration import ResumeTime, SourcePosition, resume_time
from timely.operators.type_variables import D, T

CHUNK = 4096
"""Records that ``to_stream`` sends in one activation."""

_PLAIN: Final = (list, tuple, range, str, bytes, dict, set, frozenset)
"""Collections, of which every worker may have been given the same."""

_FEW: Final = 5
"""Records compared with those of another worker."""

PROMPT = 0.05
"""Seconds after which ``to_stream`` sends what a generator has yielded by then."""


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
        handle: InputHandle[T, Any] = InputHandle(scope.subgraph.domain, info)
        handles.append(handle)
        return handle.feed(capability, info, resume_time(scope, info)).logic

    output = source(scope, name, constructor)
    return handles.pop(), output


def input_from(scope: ScopeBuilder[T], handle: InputHandle[T, D], name: str = "input") -> Stream[T, D]:
    """Return one more stream of what ``handle`` sends from now on, in any dataflow of the same worker.

    ``CapabilityError`` for a closed handle, ``TimestampError`` for one whose times are not those of the scope, both as the cause
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
    iterable = getattr(iterable, "to_pylist", lambda: iterable)()  # an array of Arrow gives objects of its own

    check_on(scope, "to_stream", on)

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


def check_on(scope: ScopeBuilder[Any], operator: str, on: object) -> None:
    """Raise ``GraphError`` unless ``on`` says which workers send."""
    check_scope(scope, operator)
    if on is not None and on != "each" and on not in range(scope.allocator.peers):
        raise GraphError(
            f"{operator}(on={on!r}) in scope {scope.path!r}: give the number of one of the {scope.allocator.peers} workers,"
            " or 'each'"
        )


def sketch_of(function: Any, around: tuple[Any, ...] = ()) -> str | None:
    """Return what distinguishes one worker's function from another's: its name, and the plain values that it is made with.

    ``None`` where it is made with others, so that it may do something else on each worker.
    """
    if not isinstance(function, FunctionType):
        return None
    try:
        values = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:
        return None  # a variable that has no value yet
    parts: list[str | None] = []
    for value in (*values, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if isinstance(value, FunctionType):
            parts.append(None if value in around else sketch_of(value, (*around, function)))
        elif isinstance(value, _PLAIN):
            parts.append(_summary_of(value))
        else:
            parts.append(brief(value) if value is None or isinstance(value, int | float) else None)
    name = f"{function.__qualname__} of line {function.__code__.co_firstlineno}"
    return None if None in parts else ", ".join([name, *filter(None, parts)])


def _summary_of(records: Any) -> str:
    """Return what distinguishes one worker's records from another's: type, number, the first few, and the last of a sequence."""
    few = [brief(record) for record in itertools.islice(records, _FEW)]
    if len(records) > _FEW:
        few += ["...", brief(records[-1])] if isinstance(records, Sequence) else ["..."]
    return f"{type(records).__name__} of {len(records)}: {', '.join(few)}"


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


class UnorderedHandle(Generic[T, D]):
    """Sends records at the times that capabilities allow: ``session(capability)`` opens a session, as an output does."""

    __slots__ = ("_begins", "_info", "_over", "_port", "_ready")

    def __init__(self, capability: Capability[T], info: OperatorInfo, begins: ResumeTime[T] | None = None) -> None:
        self._begins = begins
        self._port = capability.port
        self._info = info
        self._over = False
        self._ready: list[tuple[Capability[T], Any]] = []
        info.at_end(self.end)

    def session(self, capability: Capability[T]) -> UnorderedSession[T, D]:
        """Return a session for the input's capability, or one made from it.

        ``CapabilityError`` for one that was dropped or belongs elsewhere; ``TimestampError`` for a time before the one at
        which a run resumes (``timely.recovery``).
        """
        where = f"input {self._info.name!r} ({self._info.path})"
        if not isinstance(capability, Capability):
            raise CapabilityError(f"{where}: a session needs a capability, not {brief(capability)}: delayed(time) makes one")
        if self._port is None or not capability.permits(self._port):
            owner = "was dropped" if capability.port is None else f"belongs to {capability.port.label}"
            raise CapabilityError(
                f"{where}: the capability for {brief(capability.time)} {owner}; send with the one that came with this input,"
                " or with one made from it"
            )
        if self._begins is not None and not self._begins.reached(capability.time):
            raise self._begins.refusal(self._info, capability.time, "downgrade")
        return UnorderedSession(self, capability)

    def put(self, capability: Capability[T], batch: Any) -> None:
        if not self._over:
            self._ready.append((capability, batch))
            self._info.activator.activate()

    def end(self) -> None:
        self._over = True
        self._ready.clear()

    def logic(self, output: OutputPort[T]) -> None:
        ready, self._ready = self._ready, []
        for capability, batch in ready:
            output.session(capability).give_batch(batch)
            capability.drop()

    def __repr__(self) -> str:
        return f"UnorderedHandle({self._info.path!r})"


class UnorderedSession(Generic[T, D]):
    """Sends records at one time, in the worker's next step, while its capability is held and its ``with`` block is open."""

    __slots__ = ("_capability", "_handle", "time")

    def __init__(self, handle: UnorderedHandle[T, D], capability: Capability[T]) -> None:
        self._handle = handle
        self._capability: Capability[T] | None = capability
        self.time = capability.time

    def give(self, record: D) -> None:
        self.give_batch([record])

    def give_many(self, records: Iterable[D]) -> None:
        """Send records, as one batch."""
        self.give_batch(list(records))

    def give_batch(self, container: Any) -> None:
        """Send a whole container, which must not be changed afterwards.

        ``CapabilityError`` once the capability does not allow this time any more, or the session's ``with`` block is over.
        """
        if self._capability is None:
            raise CapabilityError(f"this session at {brief(self.time)} ended with its own with-block; open a new one")
        self._handle.put(self._capability.delayed(self.time), container)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the capability, which the name after ``as`` would otherwise hold."""
        self._capability = None


def new_unordered_input(
    scope: ScopeBuilder[T], name: str = "unordered_input"
) -> tuple[tuple[UnorderedHandle[T, Any], Capability[T]], Stream[T, Any]]:
    """Return ``((handle, capability), stream)``: send with ``handle.session(capability)``, at times that it allows.

    The capability is at the minimum time. Downgrade it as times are done, ``delayed`` it for times needed longer, and drop all at
    the end.

    >>> import timely
    >>> def build(scope):
    ...     (handle, capability), stream = scope.new_unordered_input()
    ...     handle.session(capability.delayed(5)).give("five")
    ...     handle.session(capability).give("zero")
    ...     return stream
    >>> timely.example(build)
    [(0, ['zero']), (5, ['five'])]
    """
    made: list[tuple[UnorderedHandle[T, Any], Capability[T]]] = []

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        info.declare_stateless()  # the program sends, and drops the capabilities for, what is not part of the checkpoint
        handle: UnorderedHandle[T, Any] = UnorderedHandle(capability, info, resume_time(scope, info))
        made.append((handle, capability))
        return handle.logic

    output = source(scope, name, constructor)
    return made.pop(), output
