"""``Operator``: the scope that runs one operator's logic.

Every send and every held time goes through a capability, so its counts need no check.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Never, TypeVar

from typing_extensions import override

from timely.dataflow.capability import Capability
from timely.dataflow.identity import Identities
from timely.dataflow.info import Activator, Allocator, OperatorInfo, StateDeclarations
from timely.dataflow.origin import is_ours, origin
from timely.dataflow.port_owner import PortOwner
from timely.dataflow.ports import InputPort
from timely.errors import ErrorSubject, RecoveryError, brief, error_text, failure
from timely.order import PartialOrder
from timely.progress import ChangeBatch, CountSink
from timely.scopes import Counts, SubgraphBuilder, Summaries

T = TypeVar("T", bound=PartialOrder)

_CONSTRUCTOR: Final = "; a constructor is called with (capability, info), and that of a sink with (info)"

_KINDS: Final = ((0x20, "a generator function"), (0x80, "an async function"), (0x200, "an async generator function"))
"""``inspect.CO_GENERATOR``, ``CO_COROUTINE`` and ``CO_ASYNC_GENERATOR``; importing ``inspect`` takes long."""


class _EarlyCounts(CountSink[Any]):
    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: ChangeBatch[tuple[int, Any]] = ChangeBatch()

    def update_at(self, index: int, time: Any, diff: int) -> None:
        self.changes.update((index, time), diff)


class Operator(PortOwner[T]):
    """One operator as a scope."""

    def __init__(self, name: str, builder: SubgraphBuilder[Any, T], allocator: Allocator, identities: Identities) -> None:
        scope = self.scope = builder.subgraph
        self.index = builder.add_child(name, self)
        path = f"{scope.path}/{name}#{self.index}"
        identity = identities.add(path, scope.path, name)
        relation = identities.relation_of[path]
        super().__init__(name, path, scope.domain, scope.touch, allocator.unreferenced)
        self.input_ports: list[InputPort[T, Any]] = []
        self.allocator = allocator
        self._logic: Callable[[], object] = _nothing
        self._early = _EarlyCounts()
        self._loops: list[Operator[Any]] | None = None
        activator = Activator(scope, self.index, allocator, self.run_loops)
        state = StateDeclarations(allocator.registry)
        self.info = OperatorInfo(
            name, self.index, path, activator, allocator.index, allocator.peers, origin(), identity, relation, state
        )

    @property
    @override
    def inputs(self) -> int:
        return len(self.input_ports)

    @property
    @override
    def outputs(self) -> int:
        return len(self.output_ports)

    @property
    def observes(self) -> tuple[int, ...]:
        return tuple(port.index for port in self.input_ports if port.observed)

    @override
    def activate(self) -> None:
        self.scope.activate(self.index)

    @override
    def place(self) -> ErrorSubject:
        return self.info.place()

    def construct(
        self,
        constructor: Callable[[list[Capability[T]], OperatorInfo], Callable[..., object]],
        arguments: tuple[object, ...],
    ) -> None:
        """Give the constructor the initial capabilities, and take the logic: a function of the ports and ``arguments``."""
        early = self._early
        for input in self.input_ports:
            input.count_in(input.index, early)
        for output in self.output_ports:
            output.count_in(output.index, early, [], early)
        capabilities = [Capability(self.domain.minimum, output) for output in self.output_ports]
        early.changes.clear()  # they are counted in the internal summary
        try:
            logic = constructor(capabilities, self.info)
            if not callable(logic):
                raise TypeError(f"the constructor must return the logic, a function of the ports, and returned {brief(logic)}")
            kind = why_not_run(logic)
            if kind is not None:
                raise TypeError(
                    f"the constructor must return the logic, a function that works when it is called, and {logic!r} is {kind}:"
                    " send by output.session(capability).give(...), and await in map_async or from_async"
                )
        except RecoveryError:
            raise  # it names the operator already
        except Exception as error:
            self.fail(error, _CONSTRUCTOR if _is_of_our_call(error, 2) else "")
        self._logic = functools.partial(logic, *self.input_ports, *self.output_ports, *arguments)
        self.built = True
        del capabilities
        self.unreferenced.drop()

    @override
    def attach(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        fanout: Sequence[list[int]],
        capabilities: CountSink[T],
        messages: CountSink[T],
    ) -> list[list[T]]:
        for (output, time), diff in self._early.changes.drain():
            capabilities.update_at(sources[output], time, diff)
        for input, number in zip(self.input_ports, targets, strict=True):
            input.count_in(number, messages)
        for port, number, numbers in zip(self.output_ports, sources, fanout, strict=True):
            port.count_in(number, capabilities, numbers, messages)
        return [input.elements for input in self.input_ports]

    @override
    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        minimum = self.domain.minimum
        return [port.summaries for port in self.input_ports], [[(minimum, 1)] for _ in self.output_ports]

    @override
    def run(self) -> bool:
        self.call += 1
        self.running = True
        self.has_read = False
        try:
            again = self._logic()
            sessions = self.sessions
            if sessions:
                for session in sessions:
                    session.close()
                sessions.clear()
            if self.closing:
                self._flush()
        except Exception as error:
            self.fail(error, self._called() if _is_of_our_call(error, 1) else "")
        finally:
            self.running = False
        if self.unreferenced.noted:
            self.unreferenced.drop()
        if self.iterating:  # a notificator was left before its end
            self.iterating = 0
            self.activate()
        if self.has_read:  # logic that leaves all of its input unread waits for something else
            for input in self.input_ports:
                if input.queue:
                    self.activate()
        return again is True

    def _flush(self) -> None:
        for pusher in self.closing:
            pusher.close()
        self.closing.clear()

    def run_loops(self) -> None:
        self._flush()  # what is held back would miss this round
        if self._loops is None:
            edges, children = self.scope.edges, self.scope.children
            after = {edge.target.node for edge in edges if edge.source.node == self.index}
            before = {edge.source.node for edge in edges if edge.target.node == self.index}
            between = [child.scope for child in children if child.index in after & before]
            self._loops = [scope for scope in between if isinstance(scope, Operator)]
        for operator in self._loops:
            if not operator.running:
                self.scope.run_now(operator.index)

    @property
    def logic(self) -> object:
        """What the constructor returned, with the state that it refers to."""
        return self._logic

    def waiting(self) -> Iterator[tuple[int, T, Any]]:
        """Yield the messages that wait at the inputs, ``(input, time, batch)``, in the order in which they are read."""
        for port in self.input_ports:
            for time, batch, _ in port.queue:
                yield port.index, time, batch

    def restore(self, input: int, time: T, batch: Any) -> None:
        """Put a message of a checkpoint where it waited, before anything runs."""
        records = len(batch)
        self.input_ports[input].queue.append((time, batch, records))
        self.scope.restore_message(self.index, input, time, records)

    def discard(self) -> None:
        """Free the logic with its state, and all that has arrived, since handles of a program may keep the operator alive."""
        self._logic = _nothing
        for input in self.input_ports:
            input.queue.clear()
        try:
            self.info.end()
        except Exception as error:
            self.fail(error)

    def _called(self) -> str:
        arguments = getattr(self._logic, "args", ())
        return f"; its logic is called with ({', '.join(type(argument).__name__ for argument in arguments)})"

    def fail(self, error: Exception, advice: str = "") -> Never:
        raise failure(error, self.info.place(), self.info.worker, advice)


def _is_of_our_call(error: Exception, frames: int) -> bool:
    """Return whether a user's function has other parameters than it was called with: the call itself raised the error then.

    That is in one of the first ``frames`` of the traceback, which are the library's own.
    """
    if not isinstance(error, TypeError) or " argument" not in error_text(error):
        return False
    trace = error.__traceback__
    while trace is not None and frames and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
        frames -= 1
    return trace is None


def why_not_run(function: Any) -> str | None:
    """Return the kind of a function that does nothing when called, in words; ``None`` for any other."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return next((kind for flag, kind in _KINDS if flags & flag), None)


def _nothing() -> None:
    """Do nothing, as an operator that has not been built."""
