"""``Worker``: builds dataflows and steps them, without a thread of its own.

A step takes in what peers have sent, runs every dataflow that has something to do, and sends the peers what this worker's
operators did, one atomic batch for each dataflow. Idle dataflows cost nothing. The invariant: a peer hears what was produced no
later than what was made of it, because everything a dataflow's scopes say leaves in one stream, in order.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, overload

from timely.dataflow import Bell, Operator, ScopeBuilder
from timely.dataflow.foreign import Foreign
from timely.dataflow.keeping import Keeper
from timely.errors import ConfigurationError, PeerLostError, RoutingError, ScopeError, StalledError, UnsendableError, WorkerError
from timely.native import mypyc_attr
from timely.order import PartialOrder
from timely.progress import ProgressBatch, ProgressExchange, Routes
from timely.scopes import Subgraph
from timely.worker.accumulate import SWEPT, Accumulator
from timely.worker.agreement import Agreement, describe
from timely.worker.coalesce import DATA, PROGRESS
from timely.worker.collector import Collector
from timely.worker.config import Config
from timely.worker.council import Council
from timely.worker.mailbag import Mailbag
from timely.worker.onlooking import EVERYWHERE, Onlooker
from timely.worker.scheduler import Scheduler
from timely.worker.stall import StallDetector
from timely.worker.timers import Timers
from timely.worker.transport import LocalTransport, Transport

if TYPE_CHECKING:
    from timely.inspect import Explanation
    from timely.inspect.explain import Place

T = TypeVar("T", bound=PartialOrder)
Pointstamp = tuple[int, int, Any]

GRAPH: Final = "graph"
ABORT: Final = "abort"
CONFER: Final = "confer"
DONE: Final = "done"
QUIET: Final = "quiet"
HELD: Final = "held"
ENDED: Final = "ended"
_PATIENCE: Final = 1.0
_STRETCH: Final = 1000
_LONGEST: Final = 1e6  # seconds: what a system can be asked to wait has a bound, and whoever waits looks again


_Opening = contextlib.AbstractContextManager[ScopeBuilder[T]]


class _Building:
    """The allocator of one dataflow: numbers its channels in the order in which they are opened."""

    def __init__(self, worker: Worker, number: int) -> None:
        self.index = worker.index
        self.peers = worker.peers
        self.keeper: Keeper | None = None if worker.keepers is None else worker.keepers(number)
        self.channels: list[Callable[[Any, Any, int], None]] = []
        self.labels: list[str] = []
        self.bells: list[Bell] = []
        self.number = number
        self.worker = worker
        self.installed = False
        self.ended = False
        self.mailbag = Mailbag(number, worker.tell)
        self.post = self.mailbag.put
        self._active = worker._active

    def wake(self) -> None:
        """Have the dataflow run in the next step."""
        self._active[self.number] = 1

    def open_channel(self, deliver: Callable[[Any, Any, int], None], label: str) -> int:
        """Open the next channel."""
        self.channels.append(deliver)
        self.labels.append(label)
        return len(self.channels) - 1

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done later."""
        if not self.ended:
            self.worker.timers.after(seconds, action, self.number)

    def end(self) -> None:
        """Do nothing later any more: the dataflow is complete or dropped, or was never finished."""
        self.ended = True
        if self.worker.timers:
            self.worker.timers.forget(self.number)

    def hang_bell(self, answer: Callable[[], None]) -> Bell:
        """Return a bell that the worker hears."""
        bell = Bell(answer, self.worker)
        self.bells.append(bell)
        return bell


class _Dataflow:
    """What a worker keeps of one dataflow until it is complete or dropped."""

    def __init__(self, number: int, scope: ScopeBuilder[Any], building: _Building) -> None:
        self.number = number
        self.name = scope.name
        self.scope = scope
        self.root: Subgraph[Any, Any] = scope.subgraph
        self.scopes = scope.scopes
        self.channels = building.channels
        self.labels = building.labels
        self.bells = building.bells
        self.end = building.end
        self.mailbag = building.mailbag
        self.exchange: ProgressExchange[Pointstamp] | None = scope.exchange

    def discard(self) -> None:
        """Free the state of the operators, also where a program still has handles of the dataflow."""
        with contextlib.ExitStack() as stack:  # all of them, even if one fails
            for subgraph in self.scopes:
                for child in subgraph.children:
                    if isinstance(child.scope, Operator | Foreign):
                        stack.callback(child.scope.discard)


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
        routes: Routes | None = None,
    ) -> None:
        self.transport: Transport = LocalTransport() if transport is None else transport
        self.index = self.transport.index
        self.peers = self.transport.peers
        self._alone = self.peers == 1
        self._paused = False
        self.scheduler = scheduler
        self.config = Config()
        self.keepers: Callable[[int], Keeper] | None = None
        self.timers = Timers(clock)
        self.onlookers: list[Onlooker] = []
        self._stall = StallDetector(self.index, self.peers)
        self._dataflows: dict[int, _Dataflow] = {}
        self._active = bytearray()
        self._rung: deque[Bell] = deque()
        self._early: dict[int, list[tuple[int, Any]]] = {}
        self._agreement = Agreement(self.index, self.peers)
        self._council = Council(self.index, self.peers)
        self._serving = False
        self._accumulator: Accumulator | None = None
        if routes is not None and routes.workers != self.peers:
            raise ConfigurationError(f"there are {self.peers} workers, and routes for {routes.workers}: make them for this run")
        if routes is not None and not routes.direct_only:
            self._accumulator = Accumulator(self.index, routes.around(self.index))
        self.collector: Collector | None = None
        self._failed: BaseException | None = None
        self._stepping = False
        try:
            for look in EVERYWHERE:
                look(self)
        except BaseException as error:
            self.abort(error)  # peers may be waiting for it already
            self.close()
            raise

    @property
    def scheduler(self) -> Scheduler | None:
        """What chooses the dataflows that run in a step, and waits; without any, all that are active run. It may be replaced."""
        return self._scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Scheduler | None) -> None:
        self._scheduler = scheduler
        self._plain = self._alone and scheduler is None and not self._paused

    @property
    def paused(self) -> bool:
        """While it is set, no dataflow runs: what arrives is taken in, and waits, and so does what is to be done later."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._plain = self._alone and self._scheduler is None and not paused

    # -- dataflows -----------------------------------------------------------------------------------------------------

    @overload
    def dataflow(self, *, name: str | None = None) -> _Opening[int]: ...
    @overload
    def dataflow(self, time: type[T], *, name: str | None = None) -> _Opening[T]: ...
    def dataflow(self, time: Any = int, *, name: str | None = None) -> Any:
        """Open a dataflow with times of type ``time``: a context manager that yields the scope to build it in.

        Every worker builds the same dataflows in the same order. When the block ends the graph is compiled: ``CycleError``
        for a loop that does not advance, ``UnconnectedLoopError`` for one that was never connected; a graph that differs
        from a peer's is a ``GraphMismatchError`` as soon as that is known.
        """
        return self._open(time, name)

    @contextlib.contextmanager
    def _open(self, time: Any, name: str | None) -> Iterator[ScopeBuilder[Any]]:
        number = len(self._active)
        self._active.append(0)
        building = _Building(self, number)
        exchange = ProgressExchange[Pointstamp](self.index, self.peers) if self.peers > 1 else None
        scope: ScopeBuilder[Any] = ScopeBuilder(name or f"dataflow{number}", time, building, None, building.wake, exchange)
        try:
            yield scope
            scope.finish()
            if building.keeper is not None:
                building.keeper.built(scope)
        except BaseException:
            building.end()
            raise
        building.installed = True
        self._install(_Dataflow(number, scope, building))

    def _install(self, dataflow: _Dataflow) -> None:
        number = dataflow.number
        self._dataflows[number] = dataflow
        self._active[number] = 1
        for onlooker in self.onlookers:
            onlooker.built(number, dataflow.scope)
        if self.peers == 1:
            return
        message = GRAPH, number, self._agreement.built(number, describe(dataflow.scope))
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
        ``ScopeError`` for a nested scope, a dataflow that is still being built, or one of another worker.

        >>> worker = Worker()
        >>> with worker.dataflow(name="unwanted") as scope:
        ...     handle, stream = scope.new_input()
        >>> worker.drop_dataflow(scope)
        >>> worker.step()
        False
        """
        building = scope.allocator
        if scope.parent is not None:
            raise ScopeError(f"scope {scope.path!r} cannot be dropped: drop the dataflow {scope.root.path!r} that it is in")
        if not isinstance(building, _Building) or building.worker is not self:
            raise ScopeError(f"dataflow {scope.path!r} is not one of worker {self.index}, which cannot drop it")
        if not building.installed:
            raise ScopeError(f"dataflow {scope.path!r} is not built yet: drop it after its with-block")
        if self._accumulator is not None and building.number in self._dataflows:
            self._accumulator.dropped(building.number)
        self._forget(building.number)

    def has(self, scope: ScopeBuilder[Any]) -> bool:
        """Return whether a dataflow of this worker is neither complete nor dropped."""
        return any(dataflow.scope is scope for dataflow in self._dataflows.values())

    def _forget(self, number: int) -> None:
        """Let go of a dataflow that is complete or dropped."""
        dataflow = self._dataflows.pop(number, None)
        if dataflow is not None:
            dataflow.end()
            dataflow.discard()
            self._active[number] = 0  # what is let go of may have asked to be run once more
            for onlooker in self.onlookers:
                onlooker.ended(number)

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

    def _begin_step(self) -> None:
        if self._failed is not None:
            raise self._has_failed()
        self._check_outside()
        if self.collector is not None:
            self.collector.between()
        self._stepping = True

    def _check_outside(self) -> None:
        """Raise ``WorkerError`` if an operator is running."""
        if self._stepping:
            raise WorkerError(
                f"worker {self.index} is stepped while one of its operators runs: an operator that waits for something returns,"
                " and is run again for input, for progress or by its activator"
            )

    def _has_failed(self) -> PeerLostError:
        error = PeerLostError(f"worker {self.index} has failed already: {self._failed}")
        error.__cause__ = self._failed
        return error

    def _turn(self) -> None:
        """Take in what has arrived, run what is active, and send what that led to."""
        for sender, message in self.transport.receive():
            self._take(sender, message)
        if self._rung:
            self._answer()
        if self.timers and not self._paused:
            self.timers.run_due()
        active = self._active
        ready: list[int] = []
        number = self._next_active()
        while number >= 0:
            ready.append(number)
            number = active.find(1, number + 1)
        chosen = self._scheduler.choose(ready) if self._scheduler is not None and ready else ready
        for number in chosen:
            active[number] = 0
            dataflow = self._dataflows.get(number)
            if dataflow is not None:
                alive = dataflow.root.pull_internal_progress((), (), ())
                self._send_progress(dataflow)
                if not alive:
                    self._forget(number)
                    if self._accumulator is not None:
                        self._accumulator.completed(number)
        if self._accumulator is not None:
            self._pass_on(self._accumulator)
        self._flush()
        for onlooker in self.onlookers:
            onlooker.turned()

    def _flush(self) -> None:
        """Pass on to the peers what was sent."""
        try:
            self.transport.flush()
        except UnsendableError as error:
            raise RoutingError(f"{self._whereabouts(error.message)}: {error}").caused_by(error.__cause__)

    def _whereabouts(self, message: Any) -> str:
        """Return, for an error, what a message carries, and to where."""
        if message[0] == CONFER:
            return "a value for all workers to agree on"
        dataflow = self._dataflows.get(message[1])
        if message[0] == DATA and dataflow is not None:
            return f"exchange into {dataflow.labels[message[2]]}"
        return f"times of dataflow {message[1]}"

    def _pass(self) -> None:
        """What a turn comes to without peers and without a scheduler: run each active dataflow once, in order."""
        if self._rung:
            self._answer()
        if self.timers:
            self.timers.run_due()
        active, dataflows = self._active, self._dataflows
        number = active.find(1)
        while number >= 0:
            active[number] = 0
            dataflow = dataflows.get(number)  # none: it is complete, dropped, or not finished
            if dataflow is not None and not dataflow.root.pull_internal_progress((), (), ()):
                self._forget(number)
            number = active.find(1, number + 1)
        for onlooker in self.onlookers:
            onlooker.turned()

    def _send_progress(self, dataflow: _Dataflow) -> None:
        """Send the peers what this worker's operators sent, and what they did, as one batch."""
        dataflow.mailbag.empty()
        batch = dataflow.exchange.flush() if dataflow.exchange is not None else None
        if batch is None:
            return
        for onlooker in self.onlookers:
            onlooker.told(dataflow.number, batch)
        if self._accumulator is not None:
            self._accumulator.say(dataflow.number, batch)
            return
        message = PROGRESS, dataflow.number, batch
        for peer in range(self.peers):
            if peer != self.index:
                self.tell(peer, message)

    def _pass_on(self, accumulator: Accumulator) -> None:
        """Send those around what this worker's operators did, and what it heard from the others, as one batch."""
        for peer, message in accumulator.messages():
            self.tell(peer, message)

    def tell(self, peer: int, message: Any) -> None:
        """Send a peer a message that it may act on."""
        self._stall.sent(peer)
        self.transport.send(peer, message)

    @property
    def idle(self) -> bool:
        """Whether no dataflow has anything to do until something arrives or an input is used."""
        return self._next_active() < 0 and not self._rung

    @property
    def quiet(self) -> bool:
        """Whether no dataflow has anything to do, where they are paused too."""
        return 1 not in self._active and not self._rung

    @property
    def expects(self) -> bool:
        """Whether a dataflow waits for something outside that is still to come: a moment, or another thread."""
        return bool(self.timers) or self._expects()

    def _next_active(self) -> int:
        """Return the first dataflow that may run and has something to do, or -1."""
        return -1 if self._paused else self._active.find(1)

    def hear(self, bell: Bell) -> None:
        """Have a bell answered in the next step, which need not wait: the one method that other threads may call."""
        self._rung.append(bell)
        self.transport.wake()

    def _answer(self) -> None:
        """Answer the bells that have been rung so far."""
        for _ in range(len(self._rung)):
            self._rung.popleft().answer()

    def _expects(self) -> bool:
        """Whether somebody outside may still ring for a dataflow that is not complete."""
        return any(bell.expected for dataflow in self._dataflows.values() for bell in dataflow.bells)

    def step_or_park(self, timeout: float | None = None) -> bool:
        """As ``step``, but first wait, for at most ``timeout`` seconds, if there is nothing to do.

        ``StalledError`` where waiting without a bound could never end: with no peers, nothing can arrive.
        """
        self._check_outside()
        if self._dataflows and self.idle:
            self._park(timeout)
        return self.step()

    def step_while(self, predicate: Callable[[], bool]) -> None:
        """Step as long as ``predicate()`` is true, waiting when there is nothing to do.

        ``StalledError`` if nothing that this worker could do will ever change that.
        """
        while predicate():
            if not self._dataflows:
                raise StalledError("step_while: every dataflow is complete, and the predicate still holds; it never will change")
            self.step_or_park(None if self._alone else _PATIENCE)

    def run(self) -> None:
        """Step until every dataflow is complete.

        ``StalledError`` if one cannot complete, since an input is still open or a capability is still held. A worker without
        peers can go on when that has been closed or dropped; with peers it ends the run, since they find out one by one.
        """
        if self._failed is not None:
            raise self._has_failed()
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
            waits = self._next_active() < 0 and self._is_waiting()
            if waits:
                self._wait_with_all(patience)
            if self._plain:
                passes = passes if self.collector is None else 1
                while passes and 1 in self._active:
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

    def _park(self, timeout: float | None) -> None:
        """Wait for something to arrive; ``StalledError`` where that could never end."""
        due = None if self._paused else self.timers.pause()
        if self._alone and due is None and not self._expects():
            if timeout is None:
                raise StalledError(self._why_stalled())
            timeout = 0.0  # nothing can arrive
        if self.collector is not None:
            self.collector.idle()
        if due is not None:
            timeout = min(due, _LONGEST if timeout is None else timeout)
        begun = perf_counter() if self.onlookers else 0.0
        if self._scheduler is not None:
            self._scheduler.park(timeout)
        else:
            self.transport.wait(timeout)
        for onlooker in self.onlookers:
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
        if self._stall.stalled():
            raise StalledError(self._why_stalled())
        news = self._stall.news()
        if news is not None:
            self._tell_all((QUIET, news))

    def _is_waiting(self) -> bool:
        """Whether there is anything to wait for: a dataflow that is not complete, or what a peer is to say."""
        return bool(self._dataflows or self._council.missing() or self._serving or self._sweeping())

    def _sweeping(self) -> bool:
        """Whether something that others told before they gave their values may still be on its way."""
        return self._accumulator is not None and self._accumulator.sweeping(self._council.round)

    def _tell_all(self, message: Any) -> None:
        """Send every peer a message that does not count as one to act on."""
        for peer in range(self.peers):
            if peer != self.index:
                self.transport.send(peer, message)
        self.transport.flush()

    def _why_stalled(self) -> str:
        held = [f"a value to come from worker {peer}, which all are to agree on" for peer in self._council.missing()]
        for dataflow in self._dataflows.values():
            held += [f"{what} in dataflow {dataflow.name!r}" for what in dataflow.root.outstanding()]
        return f"nothing can move any more, and there is still {'; '.join(held[:5])}: close the inputs and drop the capabilities"

    # -- peers -----------------------------------------------------------------------------------------------------------

    def _take(self, sender: int, message: Any) -> None:
        """Act on one message of a peer."""
        kind = message[0]
        if kind == QUIET:
            self._stall.heard(sender, message[1])
            return
        if kind == HELD:
            self._stall.heard(sender, message[1], final=False)
            return
        if kind == ENDED:
            self._stall.ended(sender)
            return
        self._stall.got(sender, message[2].count if kind == PROGRESS else 1)
        self._act(sender, message)

    def _act(self, sender: int, message: Any) -> None:
        """Act on a message that was counted, or keep it until the dataflow that it is for has been built."""
        kind = message[0]
        if kind == ABORT:
            raise PeerLostError(f"worker {sender} failed, so worker {self.index} stops: {message[1]}")
        if kind == DONE:
            self._agreement.ended(sender, message[1])
            self._council.left(sender)
            for number, dataflow in self._dataflows.items():
                self._agreement.expect(number, dataflow.name)
            return
        if kind == CONFER:
            self._council.heard(sender, message[1], message[2])
            return
        if kind == SWEPT:
            if self._accumulator is not None:
                self._accumulator.swept(sender, message[1])
            return
        number = message[1]
        if not self._agreement.knows(number):
            self._early.setdefault(number, []).append((sender, message))
            return
        if kind == GRAPH:
            self._agreement.compare(number, sender, message[2])
            return
        if kind == PROGRESS and self._accumulator is not None:
            self._accumulator.hear(sender, number, message[2])
        target = self._dataflows.get(number)
        if target is None:
            return  # complete or dropped here: nothing in it matters any more
        if kind == DATA:
            target.channels[message[2]](message[3], message[4], len(message[4]))
        else:
            self._receive(target, message[2])

    def _receive(self, dataflow: _Dataflow, batch: ProgressBatch[Pointstamp]) -> None:
        """Apply a peer's batch as a whole, before anything is derived from it."""
        for onlooker in self.onlookers:
            onlooker.heard(dataflow.number, batch.sender, batch)
        exchange = cast("ProgressExchange[Pointstamp]", dataflow.exchange)
        scopes = dataflow.scopes
        for (scope, location, time), diff in exchange.receive(batch):
            scopes[scope].receive(location, time, diff)

    def confer(self, value: Any) -> list[Any]:
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
        if self._accumulator is not None:
            self._accumulator.begin(number)
            self._pass_on(self._accumulator)
        self._flush()
        while self._council.missing() or self._sweeping():
            if self._council.in_vain():
                raise StalledError(self._why_stalled())
            self._run_on(_PATIENCE, 1)
        if self._accumulator is not None:
            self._accumulator.concluded(number)
        return self._council.conclude()

    def finish(self) -> None:
        """Run every dataflow to its end, and tell the peers that this worker builds no more."""
        for peer in range(self.peers):
            if peer != self.index:
                self.tell(peer, (DONE, len(self._active)))
        self.transport.flush()
        self.run()
        self._serve()
        self._tell_all((ENDED,))

    def _serve(self) -> None:
        """Pass on what others tell of dataflows that were dropped here, until they have ended or nothing can move."""
        self._serving = self._accumulator is not None and self._accumulator.serving
        with contextlib.suppress(StalledError):  # it is for those to raise who still want something
            while self._serving and not self._stall.alone():
                self._run_on(_PATIENCE, 1)
        self._serving = False

    def abort(self, error: BaseException) -> None:
        """Tell every peer that this worker has failed, so that they stop too."""
        if self._failed is None:
            self._failed = error
            with contextlib.suppress(RoutingError):
                self.transport.flush()  # what cannot be sent is dropped with this, and is not in the way of the next
            self._tell_all((ABORT, f"{type(error).__name__}: {error}"))

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
                    stack.callback(dataflow.discard)
            self._dataflows.clear()
        finally:
            self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
