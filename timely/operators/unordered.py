"""``new_unordered_input``: an input whose times need not be in order, since the program holds capabilities as an operator does.

The dataflow ends only when all of them have been dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Self

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream
from timely.errors import CapabilityError, brief
from timely.operators.generic import source
from timely.operators.resuming import ResumeTime, resume_time
from timely.operators.type_variables import D, T


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
