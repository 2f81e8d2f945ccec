"""``Worker``: builds dataflows and steps them, without a thread of its own.

Invariants: a peer receives progress no later than what follows from it, since all that a dataflow reports leaves in one stream,
in order. A worker waits only where something may still arrive or is due; where nothing ever will, that is an error.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

from timely.dataflow import ScopeBuilder, fold_tracebacks
from timely.dataflow.info import StateRegistry
from timely.dataflow.scope_builder import ScopeContext
from timely.errors import (
    OUT_OF_MEMORY,
    ConfigurationError,
    GraphError,
    OutOfMemoryError,
    PeerLostError,
    RoutingError,
    StalledError,
    UnsendableError,
    WorkerError,
    brief,
    error_text,
)
from timely.memory import MemoryBudget, MemoryWatch, held_most
from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import ActivationQueue, ProgressAggregator, ProgressExchange, ProgressGroups
from timely.worker.all_gather import AllGather
from timely.worker.dataflows import DataflowBuild, InstalledDataflow, Pointstamp, SyncActivations, Timers
from timely.worker.explanation_data import Explanation, Place
from timely.worker.gc_control import collector_paused, find_garbage, times_frozen
from timely.worker.graph_check import GraphCheck, describe_with_names, warn_of_never_run, warn_of_no_way_out, warn_of_the_same
from timely.worker.memory_accounts import accounts_of
from timely.worker.peer_pressure import PATIENCE, FlowControl
from timely.worker.scheduler import Scheduler
from timely.worker.stall import StallDetector
from timely.worker.tracer import Tracer
from timely.worker.transports import LocalTransport, Transport
from timely.worker.worker_messages import (
    AbortMessage,
    AllGatherMessage,
    CrowdedMessage,
    DataMessage,
    EndedMessage,
    GraphMessage,
    GraphsDoneMessage,
    ProgressMessage,
    QuietMessage,
    RoundMessage,
    ServingMessage,
)

T = TypeVar("T", bound=PartialOrder)
V = TypeVar("V")
_PATIENCE: Final = 1.0
_STEPS: Final = 16
"""Steps of ``run`` in a row, on a worker without peers: so many look once at the memory."""

_ADVICE: Final = "close the inputs and drop the capabilities"
_ELSEWHERE: Final = "have every worker call all_gather as often as the others, not wait in step_while; or give a larger patience="
_LONGEST: Final = 1e6
"""Seconds of the longest wait that a system can be asked for."""

_Opening = contextlib.AbstractContextManager[ScopeBuilder[T]]


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker:
    """One worker: ``index`` of ``peers``. Make one, build dataflows on it, and step it by hand, or have ``execute`` do so.

    >>> worker = Worker()
    >>> with worker.dataflow(int, name="shout") as scope:
    ...     words, stream = scope.new_input()
    ...     seen = stream.map(str.upper).capture()
    >>> words.send("hello")
    >>> words.close()
    >>> while worker.step():
    ...     pass
    >>> seen.extract()
    [(0, ['HELLO'])]
    """

    def __init__(
        self,
        transport: Transport | None = None,
        scheduler: Scheduler | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        groups: ProgressGroups | None = None,
    ) -> None:
        self.transport: Transport = LocalTransport() if transport is None else transport
        self.index = self.transport.index
        self.peers = self.transport.peers
        self.scheduler = scheduler
        """Chooses the dataflows that run in a step, and waits. Without one, all active dataflows run. It may be replaced."""
        self.paused = False
        """While set, no dataflow runs: what arrives waits, and so does what is due."""
        # What packages above this one use is reached through timely.worker.internals.
        self._others = [peer for peer in range(self.peers) if peer != self.index]
        self._alone = not self._others
        self._clock = clock
        self._tracers: list[Tracer] = []
        self._state_registries: Callable[[int, str], StateRegistry] | None = None
        self._times_frozen = times_frozen()
        self._timers = Timers(clock)
        self._activations = SyncActivations(self.transport)
        self._stall = StallDetector(self.index, self.peers)
        self._graph_check = GraphCheck(self.index, self.peers)
        self._all_gather = AllGather(self.index, self.peers)
        budget = MemoryBudget.current()
        self._flow = FlowControl(self.index, budget.in_flight)
        self._dataflows: dict[int, InstalledDataflow] = {}
        self._memory = MemoryWatch(budget, lambda: accounts_of(self.transport, self._dataflows.values()))
        self._look_at = 0.0
        """When to look at the memory again."""
        self._queue = ActivationQueue()  # of the dataflows, by number
        self._being_built: list[str] = []
        self._early: dict[int, list[tuple[int, Any]]] = {}
        """Messages for dataflows that are not built here yet, with their senders."""
        groups = groups or ProgressGroups.direct(self.peers)
        if groups.workers != self.peers:
            raise ConfigurationError(f"{self.peers} workers cannot have progress groups of {groups.workers}: make new ones")
        self._aggregator = ProgressAggregator(self.index, groups)
        self._serving = False
        self._failed: BaseException | None = None
        self._stepping = False
        try:
            for look in _HOOKS:
                look(self)
        except BaseException as error:
            self._abort(error)  # peers may be waiting for it already
            self.close()
            raise

    def __repr__(self) -> str:
        state = "failed" if self._failed is not None else f"dataflows: {', '.join(self.dataflows) or 'none'}"
        return f"Worker({self.index} of {self.peers}, {state})"

    # -- dataflows -----------------------------------------------------------------------------------------------------

    @overload
    def dataflow(self, *, name: str | None = None) -> _Opening[int]: ...
    @overload
    def dataflow(self, time: type[T], *, name: str | None = None) -> _Opening[T]: ...
    def dataflow(self, time: Any = int, *, name: Any = None) -> Any:
        """Open a dataflow with times of type ``time``: a context manager that yields the scope to build it in.

        Every worker builds the same dataflows in the same order. When the block ends the graph is compiled: ``CycleError``
        for a loop that does not advance, ``GraphError`` for one that was never connected, and for a graph that differs from a
        peer's as soon as that is known. Python's garbage collector is paused in the block.
        """
        return ScopeContext(self._open(time, name), "dataflow")

    @contextlib.contextmanager
    def _open(self, time: Any, name: str | None) -> Iterator[ScopeBuilder[Any]]:
        number = self._queue.grow()
        name = name or f"dataflow{number}"
        registry = None if self._state_registries is None else self._state_registries(number, name)
        build = DataflowBuild(self, number, registry, self._queue, self._timers, self._activations, self._send, self._flow.defer)
        exchange = ProgressExchange[Pointstamp](self.index, self.peers) if self._others else None
        scope: ScopeBuilder[Any] = ScopeBuilder(name, time, build, None, build.wake, exchange)
        self._being_built.append(scope.name)
        try:
            with collector_paused():
                yield scope
                scope.finish()
            if registry is not None:
                registry.built(scope)
        except BaseException:
            build.end()
            raise
        finally:
            self._being_built.remove(scope.name)
        build.installed = True
        self._install(InstalledDataflow(number, scope, build))
        if self.index == 0:
            warn_of_no_way_out(scope)

    def _install(self, dataflow: InstalledDataflow) -> None:
        number = dataflow.number
        self._dataflows[number] = dataflow
        self._queue.add(number)
        for tracer in self._tracers:
            tracer.built(number, dataflow.scope)
        if self._alone:
            return
        sketches = {path: sketch for path, (sketch, _) in dataflow.scope.given.items()}
        self._send_all(GraphMessage(number, self._graph_check.built(number, describe_with_names(dataflow.scope)), sketches))
        self._graph_check.expect(number, dataflow.name)
        for sender, message in self._early.pop(number, ()):
            self._deliver_to_dataflow(sender, message)

    def drop_dataflow(self, scope: ScopeBuilder[Any]) -> None:
        """Drop a dataflow with all its state and whatever is in flight. Dropping a complete dataflow is a no-op.

        What peers still send to it is discarded, and its handles lead nowhere. Every worker drops it, each when it likes: for
        those that do not, it can never complete. ``GraphError`` for a nested scope, a dataflow that is still being built or of
        another worker, or what is no scope.

        >>> worker = Worker()
        >>> with worker.dataflow(name="unwanted") as scope:
        ...     handle, stream = scope.new_input()
        >>> worker.drop_dataflow(scope)
        >>> worker.step()
        False
        """
        if not isinstance(scope, ScopeBuilder):
            raise GraphError(f"drop_dataflow takes the scope that `with worker.dataflow(...) as scope` gave, not {brief(scope)}")
        build = scope.allocator
        if scope.parent is not None:
            raise GraphError(f"scope {scope.path!r} cannot be dropped: drop the dataflow {scope.root.path!r} that it is in")
        if not isinstance(build, DataflowBuild) or build.worker is not self:
            raise GraphError(f"dataflow {scope.path!r} is not one of worker {self.index}, which cannot drop it")
        if not build.installed:
            raise GraphError(f"dataflow {scope.path!r} is not built yet: drop it after its with-block")
        if build.number in self._dataflows:
            for subgraph in scope.scopes:
                subgraph.dropped = True
        self._forget(build.number)

    def _forget(self, number: int) -> None:
        """Release a dataflow that is complete or dropped."""
        dataflow = self._dataflows.pop(number, None)
        if dataflow is not None:
            dataflow.end()
            dataflow.discard()
            self._queue.remove(number)  # its end may have activated it once more
            for tracer in self._tracers:
                tracer.ended(number)

    @property
    def scopes(self) -> list[ScopeBuilder[Any]]:
        """The outermost scopes of the dataflows that are not complete."""
        return [dataflow.scope for dataflow in self._dataflows.values()]

    @property
    def dataflows(self) -> list[str]:
        """The names of the dataflows that are not complete."""
        return [dataflow.name for dataflow in self._dataflows.values()]

    # -- stepping ------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run every active dataflow once; return whether any dataflow is not complete yet.

        Waits, for a second at most, only while a worker has sent much more than its peers have taken. ``OperatorError`` if an
        operator raised, ``PeerLostError`` if another worker failed or went away; after either, the worker cannot go on.
        ``WorkerError`` inside an operator: an activation reports its progress as a whole.
        """
        self._begin_step()
        try:
            self._watch_memory()
            self._step_once()
            if not self._alone and self._flow.crowded:
                self._wait_for_room()
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            self._stepping = False
        return bool(self._dataflows)

    def _wait_for_room(self) -> None:
        """Step on until peers have taken enough, or for a while: the program would send more after this step."""
        begun = self._clock()
        while self._flow.crowded and (left := begun + PATIENCE - self._clock()) > 0:
            if self.idle:
                self._park(left)
            self._step_once()

    def _begin_step(self) -> None:
        if self._failed is not None:
            self._check_alive()
        if self._stepping:
            self._check_outside()
        self._stepping = True
        self._activations.thread = get_ident()

    def _check_outside(self) -> None:
        """Raise ``WorkerError`` if an operator is running."""
        if self._stepping:
            raise WorkerError(
                f"worker {self.index} is stepped while one of its operators runs: an operator that waits for something returns,"
                " and is run again for input, for progress or by its activator"
            )

    def _check_alive(self) -> None:
        """Raise ``PeerLostError`` if this worker has failed."""
        if self._failed is not None:
            raise PeerLostError(f"worker {self.index} has failed already, and a new one is needed: {self._failed}").caused_by(
                self._failed
            )

    def _watch_memory(self) -> None:
        """Raise ``OutOfMemoryError`` where memory is short; the clock alone takes a twentieth of an idle step."""
        if perf_counter() >= self._look_at:
            self._look_at = self._memory.look()

    def _step_once(self) -> None:
        """Deliver what has arrived, run what is active, and send what that led to."""
        alone, queue = self._alone, self._queue
        if not alone:
            for sender, message in self.transport.receive():
                self._deliver(sender, message)
            if self._flow.waiting:
                self._flow.release(self._clock())
        if self._activations.pending:
            self._activations.run()
        chosen: Sequence[int] = ()
        if not self.paused:
            if self._timers.entries:
                self._timers.run_due()
            if queue.ready:
                chosen = sorted(queue.ready) if len(queue.ready) > 1 else queue.ready.copy()
                if self.scheduler is not None:
                    chosen = self.scheduler.choose(chosen)
        for number in chosen:
            queue.remove(number)
            dataflow = self._dataflows.get(number)
            if dataflow is None:
                continue  # it is complete, dropped, or not finished
            alive = dataflow.run()
            if not alone:
                self._send_progress(dataflow)
            if not alive:
                self._forget(number)
                self._aggregator.complete(number)
        if not alone:
            if self._aggregator.pending:
                self._send_aggregated()
            self._flush()
            if self.transport.crowded(self._flow.limit) is not self._flow.here:
                self._flow.note(self.index, not self._flow.here)
                self._send_control(CrowdedMessage(self._flow.here))
        for tracer in self._tracers:
            tracer.stepped()

    @property
    def idle(self) -> bool:
        """Whether no dataflow has anything to do until something arrives or an input is used."""
        return not self._may_run() and not self._activations.pending

    def _may_run(self) -> bool:
        """Return whether a dataflow is active, and may run."""
        return bool(self._queue.ready) and not self.paused

    def _expects_activation(self) -> bool:
        """Return whether another thread may still activate a dataflow that is not complete."""
        return any(each.expected for dataflow in self._dataflows.values() for each in dataflow.activators)

    def step_or_park(self, timeout: float | None = None) -> bool:
        """As ``step``, but first wait, for at most ``timeout`` seconds, if there is nothing to do.

        ``StalledError`` where waiting without a bound could never end: without peers nothing can arrive.
        """
        try:
            self._check_outside()
            self._check_alive()
            if self._dataflows and self.idle:
                self._park(timeout, "advance or close the inputs, and drop or downgrade the capabilities")
            return self.step()
        except Exception as error:
            fold_tracebacks(error)
            raise

    def step_while(self, predicate: Callable[[], bool]) -> None:
        """Step as long as ``predicate()`` is true, waiting when there is nothing to do.

        ``StalledError`` if nothing that this worker could do will ever change that, ``ConfigurationError`` for what is no
        function.
        """
        if not callable(predicate):
            raise ConfigurationError(
                f"step_while takes a function, as in step_while(lambda: probe.less_than(1)), not {brief(predicate)}"
            )
        try:
            while predicate():
                if not self._dataflows:
                    raise StalledError(
                        "step_while: every dataflow is complete, and the predicate still holds; it never will change"
                        " (a dataflow that is still being built runs after its with-block)"
                    )
                if self._alone or self._timers.entries:
                    self.step_or_park(None if self._alone else _PATIENCE)
                else:
                    self.rest()  # so that peers in all_gather know
        except Exception as error:
            fold_tracebacks(error)
            raise

    def run(self) -> None:
        """Step until every dataflow is complete.

        ``StalledError`` if one cannot complete, since an input is still open or a capability is still held. Without peers a
        worker can go on when that has been closed or dropped; with peers the run ends. ``GraphError`` where the only dataflow
        is still being built.
        """
        self._check_alive()
        if self._being_built and not self._dataflows:
            raise GraphError(
                f"dataflow {self._being_built[-1]!r} is still being built, and there is no other to run: call run() after its"
                " with-block"
            )
        try:
            while self._dataflows:
                self._run_on(_PATIENCE, _STEPS)
        except Exception as error:
            fold_tracebacks(error)
            raise

    def run_step(self, patience: float = _PATIENCE) -> bool:
        """One step of ``run``, for a caller who does something else in between; return whether more are to follow.

        Waits first if there is nothing to do, for at most ``patience`` seconds. Waiting here states that this worker does
        nothing of its own accord any more: send, close and drop nothing between these steps. ``StalledError`` as in ``run``.

        >>> worker = Worker()
        >>> with worker.dataflow() as scope:
        ...     seen = scope.to_stream([1, 2]).capture()
        >>> while worker.run_step():
        ...     pass
        >>> seen.extract()
        [(0, [1, 2])]
        """
        try:
            return self._run_on(patience, 1)
        except Exception as error:
            fold_tracebacks(error)
            raise

    def rest(self, patience: float = _PATIENCE) -> bool:
        """One step for a caller who holds input back while much is in flight; return whether holding it back is in vain.

        It is in vain where no worker has anything to do and nothing is on its way: what is in flight waits for more input. Of
        the peers, those in this method or in ``run_step`` count as idle. Waits first if there is nothing to do, for at most
        ``patience`` seconds. Another worker may have gone on by now; sending one batch more is never wrong.

        >>> worker = Worker()
        >>> with worker.dataflow() as scope:
        ...     numbers, stream = scope.new_input()
        ...     seen = stream.capture()
        >>> numbers.send(1)
        >>> worker.rest(), worker.rest()
        (False, True)
        """
        self._begin_step()
        try:
            self._watch_memory()
            quiet = self.idle and bool(self._dataflows)
            if quiet and self._alone and not self._expects_activation():
                return True
            if quiet:
                self._park(patience)
            before = self._stall.moves
            self._step_once()
            if not quiet or not self.idle or self._expects_activation() or self._stall.moves != before:
                return False
            if self._flow.waiting:
                return False
            report = self._stall.news(final=False)
            if report is not None:  # also where peers rest already: they wait for it
                self._send_control(QuietMessage(report, False))
            return self._stall.resting()
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            self._stepping = False

    def explain(self, what: Place) -> Explanation:
        """Return what ``timely.inspect.explain`` does of a stream, a probe, or the scope of a dataflow."""
        return _EXPLAINERS[-1](self, what)

    def under_way(self) -> int:
        """Return how many records are on their way to an operator, on any worker, as far as is known here.

        A record that goes to several operators counts for each. Takes time in the size of the dataflows.

        >>> import timely
        >>> worker = Worker()
        >>> with worker.dataflow() as scope:
        ...     numbers = scope.to_stream(range(5))
        ...     _ = numbers.unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)
        >>> _ = worker.step()
        >>> worker.under_way()
        5
        """
        return sum(scope.under_way() for dataflow in self._dataflows.values() for scope in dataflow.scopes)

    def _run_on(self, patience: float, steps: int) -> bool:
        """Take steps of ``run``: without peers up to ``steps`` of them, else one."""
        self._begin_step()
        try:
            self._watch_memory()
            if self._activations.pending:
                self._activations.run()
            waits = not self._may_run() and self._is_waiting()
            if waits:
                self._wait_with_all(patience)
            if self._alone and self.scheduler is None:
                while steps and self._may_run():
                    self._step_once()
                    steps -= 1
            elif not waits:
                self._step_once()
        except StalledError:
            raise  # nothing is broken: without peers a worker can go on after something was closed or dropped
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            self._stepping = False
        return bool(self._dataflows)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _park(self, timeout: float | None, advice: str = _ADVICE) -> None:
        """Wait for something to arrive; ``StalledError`` where that could never end."""
        due = None if self.paused else self._timers.pause()
        if self._alone and due is None and not self._expects_activation():
            if timeout is None and not self._finds_unreferenced():
                raise StalledError(self._why_stalled(advice))
            timeout = 0.0  # nothing can arrive
        if due is not None:
            timeout = min(due, _LONGEST if timeout is None else timeout)
        begun = perf_counter() if self._tracers else 0.0
        if self.scheduler is not None:
            self.scheduler.park(timeout)
        else:
            self.transport.wait(timeout)
        for tracer in self._tracers:
            tracer.waited(perf_counter() - begun)

    def _wait_with_all(self, patience: float) -> None:
        """Wait and step; if that was in vain, report so, and raise ``StalledError`` if it is in vain for all workers."""
        self._park(None if self._alone else patience)
        before = self._stall.moves
        self._step_once()
        if self._stall.moves != before or not self.idle or not self._is_waiting():
            return
        if self._timers.entries or self._expects_activation() or self._flow.waiting:
            return  # something is still to happen
        if self._stall.still() and not self._stall.has_searched:
            if self._finds_unreferenced():
                return
            self._stall.search_was_in_vain()
        if self._stall.stalled():
            raise StalledError(self._why_stalled())
        report = self._stall.news()
        if report is not None:
            self._send_control(QuietMessage(report, True))

    def _finds_unreferenced(self) -> bool:
        """Collect garbage; return whether that dropped a capability of this worker.

        One in a cycle of objects is dropped when Python's collector finds it, which may be never where nothing moves.
        """
        find_garbage(self._times_frozen)
        return bool(self._activations.pending)

    def _is_waiting(self) -> bool:
        """Return whether there is anything to wait for: a dataflow that is not complete, or a message of a peer."""
        return bool(self._dataflows or self._is_gathering() or self._serving)

    def _is_gathering(self) -> bool:
        """Return whether a value for ``all_gather``, or progress that was sent before one, may still be on its way."""
        return bool(self._all_gather.missing()) or self._aggregator.in_round(self._all_gather.round)

    def _why_stalled(self, advice: str = _ADVICE) -> str:
        held = [f"a value to come from worker {peer}, for all_gather" for peer in self._all_gather.missing()]
        for dataflow in self._dataflows.values():
            held += [f"{what} in dataflow {dataflow.name!r}" for what in dataflow.root.outstanding()]
        if self.paused and self._queue.ready:
            return f"worker {self.index} is paused, and there is still {'; '.join(held[:5])}: set its paused to False"
        if any(what.startswith("a message for") for what in held):
            advice += ", and have operators read what comes to them"
        if not held:
            names = ", ".join(repr(dataflow.name) for dataflow in self._dataflows.values())
            held = [f"dataflow {names} that is not complete, though nothing is held in it"]
            advice = "check times of your own with timely.testing.check_timestamp, check_summary and check_refinement"
        return f"nothing can move any more, and there is still {'; '.join(held[:5])}: {advice}"

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self, peer: int, message: Any) -> None:
        """Send a peer a message that it may act on."""
        self._stall.count_sent(peer)
        self.transport.send(peer, message)

    def _send_all(self, message: Any) -> None:
        """Send every peer a message that it may act on."""
        for peer in self._others:
            self._send(peer, message)

    def _send_control(self, message: Any) -> None:
        """Send every peer a message that the stall detector does not count, at once."""
        for peer in self._others:
            self.transport.send(peer, message)
        self.transport.flush()

    def _send_progress(self, dataflow: InstalledDataflow) -> None:
        """Send the data of a dataflow, then its progress, as one batch."""
        if dataflow.batcher.held:
            dataflow.batcher.flush()
        batch = dataflow.exchange.flush() if dataflow.exchange is not None else None
        if batch is None:
            return
        for tracer in self._tracers:
            tracer.sent(dataflow.number, batch)
        self._aggregator.add(dataflow.number, batch)

    def _send_aggregated(self) -> None:
        """Send the progress of this worker, and what it forwards."""
        for members, number, batch in self._aggregator.flush():
            message = ProgressMessage(number, batch)
            for peer in members:
                self._send(peer, message)
        if self._aggregator.rounds:
            for members, round in self._aggregator.marks():
                for peer in members:
                    self._send(peer, RoundMessage(round))

    def _flush(self) -> None:
        try:
            self.transport.flush()
        except UnsendableError as error:
            text = f"{self._whereabouts(error.message)}: {error}"
            if isinstance(error.__cause__, MemoryError):
                raise OutOfMemoryError(f"{text}. Send smaller batches or records. {OUT_OF_MEMORY}", worker=self.index).caused_by(
                    error.__cause__
                )
            raise RoutingError(text).caused_by(error.__cause__)

    def _whereabouts(self, message: Any) -> str:
        """Return, for an error, what a message carries, and to where."""
        if isinstance(message, AllGatherMessage):
            return "a value for all_gather"
        if isinstance(message, DataMessage) and message.dataflow in self._dataflows:
            return f"exchange into {self._dataflows[message.dataflow].labels[message.channel]}"
        return f"times of dataflow {message.dataflow}"

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _deliver(self, sender: int, message: Any) -> None:
        """Act on one message of a peer."""
        kind = type(message)
        if kind is DataMessage or kind is GraphMessage:
            self._stall.count_received(sender)
            self._deliver_to_dataflow(sender, message)
        elif kind is ProgressMessage:
            self._stall.count_received(sender, message.batch.count)
            self._deliver_to_dataflow(sender, message)
        elif kind is CrowdedMessage:
            self._flow.note(sender, message.crowded)
        elif kind is QuietMessage:
            self._stall.receive(sender, message.report, message.final)
        elif kind is ServingMessage:
            self._stall.serve(sender)
        elif kind is EndedMessage:
            self._stall.end(sender)
            self._flow.note(sender, False)
        elif kind is AbortMessage:
            who = f"worker {sender} failed, so worker {self.index} stops" if sender >= 0 else f"worker {self.index} stops"
            raise PeerLostError(f"{who}: {message.reason}")
        else:
            self._stall.count_received(sender)
            if kind is AllGatherMessage:
                self._all_gather.receive(sender, message.round, message.value)
            elif kind is RoundMessage:
                self._aggregator.receive_mark(sender, message.round)
            else:
                self._graph_check.end(sender, message.dataflows)
                self._all_gather.leave(sender)
                for number, dataflow in self._dataflows.items():
                    self._graph_check.expect(number, dataflow.name)

    def _deliver_to_dataflow(self, sender: int, message: Any) -> None:
        """Act on a message for a dataflow, or hold it until the dataflow is built."""
        number = message.dataflow
        if number not in self._graph_check.known:
            self._early.setdefault(number, []).append((sender, message))
            return
        kind = type(message)
        dataflow = self._dataflows.get(number)  # none: complete or dropped here
        if kind is DataMessage:
            if dataflow is not None:
                batch = message.batch
                dataflow.channels[message.channel](message.time, batch, len(batch))
        elif kind is ProgressMessage:
            self._aggregator.receive(sender, number, message.batch)
            if dataflow is not None:
                for tracer in self._tracers:
                    tracer.received(number, sender, message.batch)
                exchange, scopes = cast("ProgressExchange[Pointstamp]", dataflow.exchange), dataflow.scopes
                for (scope, location, time), diff in exchange.receive(message.batch):  # all before anything is derived from it
                    scopes[scope].receive(location, time, diff)
        else:
            self._graph_check.compare(number, sender, message.description)
            if self.index == 0 and sender == 1 and dataflow is not None:
                warn_of_the_same(dataflow.scope, message.given)

    # -- peers ---------------------------------------------------------------------------------------------------------

    def all_gather(self, value: V, patience: float = 60.0) -> list[V]:
        """Return the values that all workers give, in worker order; every worker calls it, as often as the others.

        Steps until all have. What a peer sent before it gave its value has arrived when this returns. ``StalledError`` where all
        others wait in ``run`` or have ended, or where for ``patience`` seconds all wait, some of them in ``step_while``, and
        nothing is under way. ``RoutingError`` for a value that cannot be sent.

        >>> import timely
        >>> timely.execute(lambda worker: worker.all_gather(10 * worker.index), workers=3)
        [[0, 10, 20], [0, 10, 20], [0, 10, 20]]
        """
        self._check_outside()
        self._check_alive()
        round = self._all_gather.give(value)
        self._send_all(AllGatherMessage(round, value))
        self._aggregator.begin_round(round)
        self._send_aggregated()
        self._flush()
        resting = self._clock()
        while self._is_gathering():
            if self._all_gather.in_vain():
                raise StalledError(self._why_stalled())
            before = self._stall.moves
            self._run_on(min(_PATIENCE, patience), 1)
            if self._stall.moves != before or not self._stall.resting():
                resting = self._clock()
            elif self._clock() - resting >= patience:
                raise StalledError(self._why_stalled(_ELSEWHERE))
        self._aggregator.end_round(round)
        return self._all_gather.conclude()

    def _finish(self) -> None:
        """Run every dataflow to its end; the peers learn that this worker builds no more."""
        self._send_all(GraphsDoneMessage(len(self._queue.waits)))
        self.transport.flush()
        self.run()
        self._serve()
        self._send_control(EndedMessage())

    def _serve(self) -> None:
        """Pass on progress of dataflows that were dropped here, until no worker needs it or nothing can move."""
        self._serving = self._aggregator.forwarding
        if self._serving:
            self._send_control(ServingMessage())
        with contextlib.suppress(StalledError):  # workers that still wait for something raise it
            while self._serving and not self._stall.unwanted():
                self._run_on(_PATIENCE, 1)
        self._serving = False

    def _abort(self, error: BaseException) -> None:
        """Stop every peer: this worker has failed."""
        if isinstance(error, Exception):
            fold_tracebacks(error)
        if self._failed is None:
            self._failed = error
            if (
                isinstance(error, MemoryError)
                and error is not self._memory.raised
                and (held := held_most(self._memory.accounts()))
            ):
                error.add_note(held)
            try:
                with contextlib.suppress(RoutingError):
                    self.transport.flush()  # what cannot be sent is dropped by this, and does not block the next message
            finally:
                self._send_control(AbortMessage(error_text(error)))

    def close(self) -> None:
        """Close the connections to the peers, after what was sent has gone out.

        Peers with whom a dataflow is not complete see this worker as failed.
        """
        if self._dataflows and not self._alone:
            unfinished = ", ".join(repr(dataflow.name) for dataflow in self._dataflows.values())
            self._abort(WorkerError(f"it was closed before dataflow {unfinished} was complete"))
        try:
            with contextlib.ExitStack() as stack:
                for dataflow in self._dataflows.values():
                    if self._alone and self._failed is None and sys.exc_info()[0] is None:  # else there is an error to read
                        stack.callback(warn_of_never_run, dataflow.scope)
                    stack.callback(dataflow.discard)
            self._dataflows.clear()
        finally:
            self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


_HOOKS: list[Callable[[Worker], object]] = []

_EXPLAINERS: list[Callable[[Worker, Place], Explanation]] = []
"""``timely.inspect.explain``, which stands above: see ``timely.worker.internals.set_explainer``."""


@contextlib.contextmanager
def everywhere(look: Callable[[Worker], object]) -> Iterator[None]:
    """Call ``look(worker)`` for each worker that this process makes in the ``with`` block, on the thread that makes it.

    >>> import timely
    >>> from timely.inspect import everywhere
    >>> seen = []
    >>> with everywhere(lambda worker: seen.append(worker.index)):
    ...     _ = timely.execute(lambda worker: None, workers=2)
    >>> sorted(seen)
    [0, 1]
    """
    _HOOKS.append(look)
    try:
        yield
    finally:
        _HOOKS.remove(look)
