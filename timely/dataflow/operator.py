"""``Operator``: the scope that runs one operator's logic.

It is a leaf of the nesting: its ports count what the logic reads, sends and holds, and one pull runs the logic once and
reports all of that together. Because every send and every held time went through a capability, its reports need no check.
An operator that a ``Subgraph`` has attached counts straight into the subgraph's account; driven by hand, through the ``Scope``
protocol, it fills in the lists of a pull. Either way nothing is derived from its counts before the activation is over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Never, SupportsFloat, TypeVar

from timely.dataflow.capability import Capability
from timely.dataflow.channel import Allocator, ExchangePusher
from timely.dataflow.info import OperatorInfo
from timely.dataflow.operator_state import StateDeclarations
from timely.dataflow.origin import is_ours, origin
from timely.dataflow.ports import InputPort, OutputPort, Session
from timely.dataflow.runnable import why_not_run
from timely.dataflow.sync_activator import SyncActivator
from timely.errors import ConfigurationError, RecoveryError, brief, error_text, failure
from timely.order import PartialOrder
from timely.progress import ChangeBatch, CountSink, TimeDomain
from timely.scopes import Counts, Subgraph, Summaries, TracedSink, TrustedScope

T = TypeVar("T", bound=PartialOrder)

_CONSTRUCTOR: Final = "; a constructor is called with (capability, info), and that of a sink with (info)"


class Activator:
    """Has one operator run in the next pass over its scope, whether or not there is input.

    >>> import timely
    >>> def constructor(capability, info):
    ...     left = [3, 2, 1]
    ...     def logic(output):
    ...         if left:
    ...             output.session(capability).give(left.pop(0))
    ...             info.activator.activate_after(0.001)
    ...         else:
    ...             capability.drop()
    ...     return logic
    >>> timely.example(lambda scope: scope.source("one now and then", constructor))
    [(0, [1, 2, 3])]
    """

    __slots__ = ("_allocator", "_child", "_returns", "_scope")

    def __init__(self, scope: Subgraph[Any, Any], child: int, allocator: Allocator) -> None:
        self._scope = scope
        self._child = child
        self._allocator = allocator
        self._returns: list[Operator[Any]] | None = None

    def activate(self) -> None:
        """Have the operator run soon."""
        self._scope.activate(self._child)

    def activate_after(self, seconds: SupportsFloat) -> None:
        """Have the operator run once, when so many seconds have passed; a worker that waits is awake in time.

        ``ConfigurationError`` for less than no time. A dataflow that is complete before that does not wait for it.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"activate_after({seconds!r}): give a number of seconds of at least 0")
        self._allocator.call_after(seconds, self.activate)

    def bell(self) -> SyncActivator:
        """Return a bell that any thread may ring to have the operator run; this activator is for the worker's thread only."""
        return self._allocator.new_sync_activator(self.activate)

    def come_round(self) -> None:
        """Run those operators now that read this one's output and feed its input, as the feedback of a loop does.

        To be called while the operator runs: what it has sent round the loop is in the queues of its inputs then. Operators
        that are running are left alone. This is what bounded re-entrancy is made of (Naiad section 3.2).
        """
        if self._returns is None:
            self._returns = self._find_returns()
        sender = self._scope.children[self._child].scope
        if isinstance(sender, Operator):
            sender.deal()  # what is held to be joined would miss this round
        for operator in self._returns:
            if not operator.running:
                self._scope.run_now(operator.index)

    def _find_returns(self) -> list[Operator[Any]]:
        edges, children = self._scope.edges, self._scope.children
        after = {edge.target.node for edge in edges if edge.source.node == self._child}
        before = {edge.source.node for edge in edges if edge.target.node == self._child}
        between = [children[node].scope for node in range(len(children)) if node in after & before]
        return [scope for scope in between if isinstance(scope, Operator)]


class Statement(Generic[T]):
    """What an operator that is not attached has to say: it becomes the content of the next pull."""

    __slots__ = ("consumed", "internal", "produced")

    def __init__(self, inputs: int, outputs: int) -> None:
        self.internal: Sequence[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.consumed: Sequence[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.produced: Sequence[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]

    def hold(self, output: int, time: T, diff: int) -> None:
        """Count capabilities of an output."""
        self.internal[output].update(time, diff)

    def read(self, input: int, time: T, diff: int) -> None:
        """Count messages on their way to an input: ``-n`` when n records were read."""
        self.consumed[input].update(time, -diff)

    def sent(self, output: int, time: T, diff: int) -> None:
        """Count messages sent on an output."""
        self.produced[output].update(time, diff)

    def drain_into(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> None:
        """Hand everything over, and start anew."""
        for mine, theirs in ((self.internal, internal), (self.consumed, consumed), (self.produced, produced)):
            for source, target in zip(mine, theirs, strict=True):
                source.drain_into(target)


class Operator(TrustedScope[T]):
    """One operator as a scope. Its reports are right by construction.

    ``notified``, where somebody who looks on has set it, is told of each time that is said to be complete at which inputs.
    ``telling`` is how many notificators are being iterated over; one that is left before its end has the operator run again.
    """

    def __init__(self, name: str, scope: Subgraph[Any, T], allocator: Allocator) -> None:
        self.name = name
        self.input_ports: list[InputPort[T, Any]] = []
        self.output_ports: list[OutputPort[T]] = []
        self.sessions: list[Session[T]] = []
        self.ending: list[ExchangePusher[T]] = []
        self.running = False
        self.built = False
        self.has_read = False
        self.call = 0
        self.telling = 0
        self.touch: Callable[[], None] = scope.touch
        self.allocator = allocator
        self.abandoned = allocator.abandoned
        self.notified: Callable[[T, Sequence[InputPort[T, Any]]], None] | None = None
        self._scope = scope
        self._logic: Callable[[], object] = _nothing
        self._statement: Statement[T] | None = None
        self.index = scope.add_child(name, self)
        self.path = f"{scope.path}/{name}#{self.index}"
        activator = Activator(scope, self.index, allocator)
        keeping = StateDeclarations(allocator.keeper)
        self.info = OperatorInfo(name, self.index, self.path, activator, allocator.index, allocator.peers, origin(), keeping)

    @property
    def inputs(self) -> int:
        """How many inputs it has."""
        return len(self.input_ports)

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        return len(self.output_ports)

    @property
    def scope(self) -> Subgraph[Any, T]:
        """The scope that it is in."""
        return self._scope

    @property
    def observes(self) -> tuple[int, ...]:
        """The inputs whose frontier the logic asks for."""
        return tuple(port.index for port in self.input_ports if port.observed)

    @property
    def domain(self) -> TimeDomain[T]:
        """The type of its times."""
        return self._scope.domain

    def activate(self) -> None:
        """Have it run in this pass, or the next."""
        self._scope.activate(self.index)

    def construct(
        self,
        constructor: Callable[[list[Capability[T]], OperatorInfo], Callable[..., object]],
        arguments: tuple[object, ...],
    ) -> None:
        """Give the constructor the initial capabilities, and take the logic: a function of the ports and ``arguments``.

        The initial capabilities are not counted here, since they are in the internal summary; what becomes of them is.
        """
        statement: Statement[T] = Statement(len(self.input_ports), len(self.output_ports))
        read, hold, sent = TracedSink(statement.read), TracedSink(statement.hold), TracedSink(statement.sent)
        for input in self.input_ports:
            input.account(input.index, read)
        for output in self.output_ports:
            output.account(output.index, hold, [output.index], sent)
        capabilities = [Capability(self.domain.minimum, output) for output in self.output_ports]
        for held in statement.internal:
            held.clear()
        self._statement = statement
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
        self.abandoned.drop()

    def attach(
        self, sources: Sequence[int], targets: Sequence[int], fanout: Sequence[list[int]], hold: CountSink[T], note: CountSink[T]
    ) -> list[list[T]]:
        """Count straight into these accounts from now on: capabilities in ``hold``, messages in ``note``, by these numbers.

        Returns, for each input, the list of its frontier's elements, which the caller keeps up to date.
        """
        statement = self._statement
        if statement is not None:
            for number, held in zip(sources, statement.internal, strict=True):
                for time, diff in held.drain():
                    hold.update_at(number, time, diff)
            self._statement = None
        for input, number in zip(self.input_ports, targets, strict=True):
            input.account(number, note)
        for output, number, numbers in zip(self.output_ports, sources, fanout, strict=True):
            output.account(number, hold, numbers, note)
        return [input.elements for input in self.input_ports]

    # -- the Scope protocol ------------------------------------------------------------------------------------------

    def get_internal_summary(self) -> tuple[Summaries[T], Counts[T]]:
        """Return its summaries, and one capability for the minimum time on each output."""
        minimum = self.domain.minimum
        return [port.summaries for port in self.input_ports], [[(minimum, 1)] for _ in self.output_ports]

    def set_external_summary(self, summaries: Summaries[T], external: Counts[T]) -> None:
        """Take in the initial frontiers; how the world leads back is of no use to an operator."""
        for port, counts in zip(self.input_ports, external, strict=True):
            port.elements[:] = [time for time, _ in counts]

    def push_external_progress(self, external: Sequence[ChangeBatch[T]]) -> None:
        """Take in how the frontiers have moved."""
        for port, changes in zip(self.input_ports, external, strict=True):
            for time, diff in changes.drain():
                if diff > 0:
                    port.elements.append(time)
                else:
                    port.elements.remove(time)

    def pull_internal_progress(
        self,
        internal: Sequence[ChangeBatch[T]],
        consumed: Sequence[ChangeBatch[T]],
        produced: Sequence[ChangeBatch[T]],
    ) -> bool:
        """Run the logic once and report what it did."""
        busy = self.run()
        if self._statement is not None:
            self._statement.drain_into(internal, consumed, produced)
        return busy

    def run(self) -> bool:
        """Run the logic once; return whether it wants to be run again in any case."""
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
            if self.ending:
                self.deal()
        except Exception as error:
            self.fail(error, self._called() if _is_of_our_call(error, 1) else "")
        finally:
            self.running = False
        if self.abandoned.noted:
            self.abandoned.drop()
        if self.telling:
            self.telling = 0
            self.activate()
        if self.has_read:  # one that leaves all of its input unread waits for something else, and may wait in vain
            for input in self.input_ports:
                if input.queue:
                    self.activate()
        return again is True

    def deal(self) -> None:
        """Deal what is held on its way to an exchange."""
        for pusher in self.ending:
            pusher.close()
        self.ending.clear()

    def discard(self) -> None:
        """Let go of the logic, and so of its state, and of all that has arrived: the dataflow goes no further.

        Handles that a program still has keep the operator, and would keep these with it.
        """
        self._logic = _nothing
        for input in self.input_ports:
            input.queue.clear()
        try:
            self.info.end()
        except Exception as error:
            self.fail(error)

    def _called(self) -> str:
        """Return how the logic is called, for a message."""
        arguments = getattr(self._logic, "args", ())
        return f"; its logic is called with ({', '.join(type(argument).__name__ for argument in arguments)})"

    def fail(self, error: Exception, advice: str = "") -> Never:
        """Raise ``OperatorError`` for what the logic raised, with the operator's name, path, worker, and line of the program."""
        raise failure(error, self.info.place(), self.info.worker, advice)


def _is_of_our_call(error: Exception, frames: int) -> bool:
    """Return whether an error says that a function of somebody's has other parameters than it was called with here.

    It was raised by the call then, in one of the first ``frames`` of the traceback, which are the library's own.
    """
    if not isinstance(error, TypeError) or " argument" not in error_text(error):
        return False
    trace = error.__traceback__
    while trace is not None and frames and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
        frames -= 1
    return trace is None


def _nothing() -> None:
    """The logic of an operator that has not been built."""
