"""``Worker``: builds dataflows and steps them, without a thread of its own.

A step is a turn (:mod:`timely.worker.turn`), and waits before it if it may. Idle dataflows cost nothing. The invariant: a worker
waits only where nothing can move before something arrives, or is due; and where nothing ever will, that is an error and no wait.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from timely.dataflow import ScopeBuilder
from timely.dataflow.scope import ScopeContext
from timely.errors import ConfigurationError, GraphError, StalledError, WorkerError, brief
from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import ProgressExchange, ProgressGroups
from timely.worker.dataflows import DataflowBuild, InstalledDataflow, Pointstamp
from timely.worker.gc_control import collector_paused, find_garbage
from timely.worker.graph_check import describe
from timely.worker.scheduler import Scheduler
from timely.worker.silence import warn_of_never_run, warn_of_no_way_out
from timely.worker.tracer import EVERYWHERE
from timely.worker.transport import Transport
from timely.worker.turn import CONFER, DONE, ENDED, GRAPH, HELD, QUIET, SERVING, Turning

if TYPE_CHECKING:
    from timely.inspect import Explanation
    from timely.inspect.explanation import Place

T = TypeVar("T", bound=PartialOrder)
V = TypeVar("V")
_PATIENCE: Final = 1.0
_STRETCH: Final = 1000
_ADVICE: Final = "close the inputs and drop the capabilities"
_LONGEST: Final = 1e6  # seconds: what a system can be asked to wait has a bound, and whoever waits looks again


_Opening = contextlib.AbstractContextManager[ScopeBuilder[T]]


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker(Turning):
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
        routes: ProgressGroups | None = None,
    ) -> None:
        super().__init__(transport, scheduler, clock, routes=routes)
        self._being_built: list[str] = []
        try:
            for look in EVERYWHERE:
                look(self)
        except BaseException as error:
            self.abort(error)  # peers may be waiting for it already
            self.close()
            raise

    # -- dataflows -----------------------------------------------------------------------------------------------------

    @overload
    def dataflow(self, *, name: str | None = None) -> _Opening[int]: ...
    @overload
    def dataflow(self, time: type[T], *, name: str | None = None) -> _Opening[T]: ...
    def dataflow(self, time: Any = int, *, name: str | None = None) -> Any:
        """Open a dataflow with times of type ``time``: a context manager that yields the scope to build it in.

        Every worker builds the same dataflows in the same order. When the block ends the graph is compiled: ``CycleError``
        for a loop that does not advance, ``UnconnectedLoopError`` for one that was never connected; a graph that differs
        from a peer's is a ``GraphMismatchError`` as soon as that is known. In the block Python's garbage collector is paused, if
        it was on: it would look again and again at all that has been built.
        """
        return ScopeContext(self._open(time, name), "dataflow")

    @contextlib.contextmanager
    def _open(self, time: Any, name: str | None) -> Iterator[ScopeBuilder[Any]]:
        number = self._agenda.grow()
        building = DataflowBuild(self, number)
        exchange = ProgressExchange[Pointstamp](self.index, self.peers) if self.peers > 1 else None
        scope: ScopeBuilder[Any] = ScopeBuilder(name or f"dataflow{number}", time, building, None, building.wake, exchange)
        self._being_built.append(scope.name)
        try:
            with collector_paused():
                yield scope
                scope.finish()
            if building.registry is not None:
                building.registry.built(scope)
        except BaseException:
            building.end()
            raise
        finally:
            self._being_built.remove(scope.name)
        building.installed = True
        self._install(InstalledDataflow(number, scope, building))
        if self.index == 0:
            warn_of_no_way_out(scope)

    def _install(self, dataflow: InstalledDataflow) -> None:
        number = dataflow.number
        self._dataflows[number] = dataflow
        self._agenda.add(number)
        for onlooker in self.tracers:
            onlooker.built(number, dataflow.scope)
        if self.peers == 1:
            return
        given = {path: sketch for path, (sketch, _) in dataflow.scope.given.items()}
        message = GRAPH, number, self._agreement.built(number, describe(dataflow.scope)), given
        for peer in range(self.peers):
            if peer != self.index:
                self.tell(peer, message)
        self._agreement.expect(number, dataflow.name)
        for sender, early in self._early.pop(number, ()):
            self._act(sender, early)

    def drop_dataflow(self, scope: ScopeBuilder[Any]) -> None:
        """Drop a dataflow that is not wanted any more, with all its state and whatever is in flight; others run on.

        What peers still send to it is taken in and thrown away. Its handles stay as they are, and lead nowhere. To drop one that
        is complete does nothing more. Every worker drops it, each when it likes: for those that do not, it can never complete.
        ``GraphError`` for a nested scope, a dataflow that is still being built, one of another worker, or what is no scope.

        >>> worker = Worker()
        >>> with worker.dataflow(name="unwanted") as scope:
        ...     handle, stream = scope.new_input()
        >>> worker.drop_dataflow(scope)
        >>> worker.step()
        False
        """
        if not isinstance(scope, ScopeBuilder):
            raise GraphError(f"drop_dataflow takes the scope that `with worker.dataflow(...) as scope` gave, not {brief(scope)}")
        building = scope.allocator
        if scope.parent is not None:
            raise GraphError(f"scope {scope.path!r} cannot be dropped: drop the dataflow {scope.root.path!r} that it is in")
        if not isinstance(building, DataflowBuild) or building.worker is not self:
            raise GraphError(f"dataflow {scope.path!r} is not one of worker {self.index}, which cannot drop it")
        if not building.installed:
            raise GraphError(f"dataflow {scope.path!r} is not built yet: drop it after its with-block")
        if building.number in self._dataflows:
            for subgraph in scope.scopes:
                subgraph.dropped = True
        self._forget(building.number)

    def has(self, scope: ScopeBuilder[Any]) -> bool:
        """Return whether a dataflow of this worker is neither complete nor dropped."""
        return any(dataflow.scope is scope for dataflow in self._dataflows.values())

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
        """Run every dataflow that has something to do, once; return whether any dataflow is not complete yet.

        Never waits. ``OperatorError`` if an operator raised, ``PeerLostError`` if another worker failed or went away; after
        either, the worker cannot go on. ``WorkerError`` in an operator: what it has done in one activation is told as a whole.
        """
        self._begin_step()
        try:
            if self._plain:
                self._pass()
            else:
                self._turn()
        except BaseException as error:
            self.abort(error)
            raise
        finally:
            self._stepping = False
        return bool(self._dataflows)

    @property
    def idle(self) -> bool:
        """Whether no dataflow has anything to do until something arrives or an input is used."""
        return not self._may_run() and not self._rung

    @property
    def quiet(self) -> bool:
        """Whether no dataflow has anything to do, where they are paused too."""
        return not self._agenda.ready and not self._rung

    @property
    def expects(self) -> bool:
        """Whether a dataflow waits for something outside that is still to come: a moment, or another thread."""
        return bool(self.timers.entries) or self._expects()

    def _may_run(self) -> bool:
        """Whether a dataflow has something to do, and may do it."""
        return bool(self._agenda.ready) and not self._paused

    def _expects(self) -> bool:
        """Whether somebody outside may still ring for a dataflow that is not complete."""
        return any(bell.expected for dataflow in self._dataflows.values() for bell in dataflow.bells)

    def step_or_park(self, timeout: float | None = None) -> bool:
        """As ``step``, but first wait, for at most ``timeout`` seconds, if there is nothing to do.

        ``StalledError`` where waiting without a bound could never end: with no peers, nothing can arrive.
        """
        self._check_outside()
        if self._dataflows and self.idle:
            self._park(timeout, "advance or close the inputs, and drop or downgrade the capabilities")
        return self.step()

    def step_while(self, predicate: Callable[[], bool]) -> None:
        """Step as long as ``predicate()`` is true, waiting when there is nothing to do.

        ``StalledError`` if nothing that this worker could do will ever change that, ``ConfigurationError`` for what is no
        function.
        """
        if not callable(predicate):
            raise ConfigurationError(
                f"step_while takes a function, as in step_while(lambda: probe.less_than(1)), not {brief(predicate)}"
            )
        while predicate():
            if not self._dataflows:
                raise StalledError(
                    "step_while: every dataflow is complete, and the predicate still holds; it never will change"
                    " (a dataflow that is still being built runs after its with-block)"
                )
            self.step_or_park(None if self._alone else _PATIENCE)

    def run(self) -> None:
        """Step until every dataflow is complete.

        ``StalledError`` if one cannot complete, since an input is still open or a capability is still held. A worker without
        peers can go on when that has been closed or dropped; with peers it ends the run, since they find out one by one.
        ``GraphError`` where the only dataflow that there is to run is still being built.
        """
        if self._failed is not None:
            raise self._has_failed()
        if self._being_built and not self._dataflows:
            raise GraphError(
                f"dataflow {self._being_built[-1]!r} is still being built, and there is no other to run: call run() after its"
                " with-block"
            )
        while self._dataflows:
            self._run_on(_PATIENCE, _STRETCH)

    def run_step(self, patience: float = _PATIENCE) -> bool:
        """One step of ``run``, for a caller who looks after something else in between; return whether more are to follow.

        Waits first if there is nothing to do, for at most ``patience`` seconds. To wait here is to say that this worker will do
        nothing of its own accord any more, so nothing may be sent, closed or dropped between these steps.
        ``StalledError`` as in ``run``.

        >>> worker = Worker()
        >>> with worker.dataflow() as scope:
        ...     seen = scope.to_stream([1, 2]).capture()
        >>> while worker.run_step():
        ...     pass
        >>> seen.extract()
        [(0, [1, 2])]
        """
        return self._run_on(patience, 1)

    def rest(self, patience: float = _PATIENCE) -> bool:
        """One step for a caller who holds input back while much is under way; return whether to hold it back is in vain.

        It is where no worker has anything to do and nothing is on its way, so that what is under way can only be waiting for
        more input. Of the peers those that are in this method or in ``run_step`` count as having nothing to do. Waits first if
        there is nothing to do, for at most ``patience`` seconds. Another worker may go on in the meantime, and then it was not
        in vain after all: to send one batch more is never wrong.

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
            quiet = self.idle and bool(self._dataflows)
            if quiet and self._alone and not self._expects():
                return True
            if quiet:
                self._park(patience)
            before = self._stall.moves
            self._turn()
            if not quiet or not self.idle or self._expects() or self._stall.moves != before:
                return False
            if self._stall.resting():
                return True
            news = self._stall.news(final=False)
            if news is not None:
                self._tell_all((HELD, news))
        except BaseException as error:
            self.abort(error)
            raise
        finally:
            self._stepping = False
        return False

    def explain(self, what: Place) -> Explanation:
        """Return why the frontier at a stream or a probe is where it is, or what a dataflow whose scope is given waits for.

        See ``timely.inspect.explain``.

        >>> worker = Worker()
        >>> with worker.dataflow(name="df") as scope:
        ...     numbers, stream = scope.new_input()
        ...     probe = stream.probe()
        >>> [reason.path for reason in worker.explain(probe).reasons]
        ['/df/input#0']
        """
        from timely import inspect

        return inspect.explain(self, what)

    def under_way(self) -> int:
        """Return how many records are on their way to an operator, on any worker, as far as is known here.

        These are the records of all messages that were sent and have not been read; one that goes to several operators counts
        for each. Takes time in the size of the dataflows.

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

    def _run_on(self, patience: float, passes: int) -> bool:
        """Take steps of ``run``: up to ``passes`` of them where nobody else has to be heard in between."""
        self._begin_step()
        try:
            if self._rung:
                self._answer()
            waits = not self._may_run() and self._is_waiting()
            if waits:
                self._wait_with_all(patience)
            if self._plain:
                passes = passes if self.collector is None else 1
                while passes and self._agenda.ready:
                    self._pass()
                    passes -= 1
            elif not waits:
                self._turn()
        except StalledError:
            raise  # nothing is broken: when something has been closed or dropped, a worker without peers can go on
        except BaseException as error:
            self.abort(error)
            raise
        finally:
            self._stepping = False
        return bool(self._dataflows)

    def _park(self, timeout: float | None, advice: str = _ADVICE) -> None:
        """Wait for something to arrive; ``StalledError`` where that could never end."""
        due = None if self._paused else self.timers.pause()
        if self._alone and due is None and not self._expects():
            if timeout is None and not self._finds_abandoned():
                raise StalledError(self._why_stalled(advice))
            timeout = 0.0  # nothing can arrive
        if self.collector is not None:
            self.collector.idle()
        if due is not None:
            timeout = min(due, _LONGEST if timeout is None else timeout)
        begun = perf_counter() if self.tracers else 0.0
        if self._scheduler is not None:
            self._scheduler.park(timeout)
        else:
            self.transport.wait(timeout)
        for onlooker in self.tracers:
            onlooker.waited(perf_counter() - begun)

    def _wait_with_all(self, patience: float) -> None:
        """Wait; if it was in vain, tell the peers so, and ``StalledError`` if it is in vain for all of them."""
        self._park(None if self._alone else patience)
        before = self._stall.moves
        self._turn()
        if self._stall.moves != before or not self.idle or not self._is_waiting():
            return
        if self.expects:
            return  # it waits for something that is still to happen
        if self._stall.still() and not self._stall.has_searched:
            if self._finds_abandoned():
                return
            self._stall.search_was_in_vain()
        if self._stall.stalled():
            raise StalledError(self._why_stalled())
        news = self._stall.news()
        if news is not None:
            self._tell_all((QUIET, news))

    def _finds_abandoned(self) -> bool:
        """Have Python look for what nothing refers to any more; return whether something of this worker's was among it.

        A capability in a cycle of objects is dropped when Python's collector finds it, which may be never where nothing moves.
        """
        find_garbage()
        return bool(self._rung)

    def _is_waiting(self) -> bool:
        """Whether there is anything to wait for: a dataflow that is not complete, or what a peer is to say."""
        return bool(self._dataflows or self._council.missing() or self._serving or self._in_round())

    def _in_round(self) -> bool:
        """Return whether progress that others sent before they gave their values may still be on its way."""
        return self._aggregator.in_round(self._council.round)

    def _why_stalled(self, advice: str = _ADVICE) -> str:
        held = [f"a value to come from worker {peer}, which all are to agree on" for peer in self._council.missing()]
        for dataflow in self._dataflows.values():
            held += [f"{what} in dataflow {dataflow.name!r}" for what in dataflow.root.outstanding()]
        if self._paused and self._agenda.ready:
            return f"worker {self.index} is paused, and there is still {'; '.join(held[:5])}: set its paused to False"
        if any(what.startswith("a message for") for what in held):
            advice += ", and have operators read what comes to them"
        if not held:
            names = ", ".join(repr(dataflow.name) for dataflow in self._dataflows.values())
            held = [f"dataflow {names} that is not complete, though nothing is held in it"]
            advice = "check times of your own with timely.testing.check_timestamp, check_summary and check_refinement"
        return f"nothing can move any more, and there is still {'; '.join(held[:5])}: {advice}"

    # -- peers -----------------------------------------------------------------------------------------------------------

    def confer(self, value: V) -> list[V]:
        """Give a value, and return what all workers gave, in worker order; every worker calls it, as often as the others.

        Steps until all have. What a peer sent before it gave its value has arrived when this returns, since messages between two
        workers keep their order. ``StalledError`` where all others wait for something else, or have ended; ``RoutingError`` for
        a value that cannot be sent.

        >>> import timely
        >>> timely.execute(lambda worker: worker.confer(10 * worker.index), workers=3)
        [[0, 10, 20], [0, 10, 20], [0, 10, 20]]
        """
        self._check_outside()
        if self._failed is not None:
            raise self._has_failed()
        number = self._council.speak(value)
        for peer in range(self.peers):
            if peer != self.index:
                self.tell(peer, (CONFER, number, value))
        self._aggregator.begin_round(number)
        self._send_aggregated()
        self._flush()
        while self._council.missing() or self._in_round():
            if self._council.in_vain():
                raise StalledError(self._why_stalled())
            self._run_on(_PATIENCE, 1)
        self._aggregator.end_round(number)
        return self._council.conclude()

    def finish(self) -> None:
        """Run every dataflow to its end, and tell the peers that this worker builds no more."""
        for peer in range(self.peers):
            if peer != self.index:
                self.tell(peer, (DONE, len(self._agenda.waits)))
        self.transport.flush()
        self.run()
        self._serve()
        self._tell_all((ENDED,))

    def _serve(self) -> None:
        """Pass on what others tell of dataflows that were dropped here, until nobody wants any more or nothing can move."""
        self._serving = self._aggregator.forwarding
        if self._serving:
            self._tell_all((SERVING,))
        with contextlib.suppress(StalledError):  # it is for those to raise who still want something
            while self._serving and not self._stall.unwanted():
                self._run_on(_PATIENCE, 1)
        self._serving = False

    def close(self) -> None:
        """Close the connections to the peers, after what was sent has gone out.

        Peers with whom a dataflow is not complete are told that this worker has failed them: they could only wait for it.
        """
        if self._dataflows and not self._alone:
            unfinished = ", ".join(repr(dataflow.name) for dataflow in self._dataflows.values())
            self.abort(WorkerError(f"it was closed before dataflow {unfinished} was complete"))
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
