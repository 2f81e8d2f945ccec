"""The simulator: a program's workers in one thread, under a schedule that decides who does what when.

``simulate`` runs what ``timely.execute`` would run, unchanged. Every worker's program comes to a halt whenever its worker is
about to take in messages or to wait; then the schedule decides: which worker goes on, or which messages arrive. The invariant: a
run is a function of its decisions. They are recorded, so that any run can be run again, and cut down to what it takes for
whatever went wrong. After each turn all that can be seen from outside is checked (:mod:`timely.testing.onlooker`).

A caller must see to it that a program depends on nothing else: no clock, no unseeded random numbers, no order of a set of
strings. Cycles of garbage are not collected during a run, since when they are is not a function of the decisions.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from timely import Worker
from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError, InvariantViolation, StalledError, WorkerError
from timely.execution.threads import first_failure, run_worker
from timely.progress import Routes
from timely.testing.network import Network
from timely.testing.onlooker import Tracer
from timely.testing.passage import OverheardAccumulator, Passage
from timely.testing.schedule import Decision, Delivery, Turn, Whims
from timely.testing.turns import Player, UnreferencedCapabilities
from timely.worker import Scheduler, Transport

T = TypeVar("T")

_PATIENCE = 10_000
"""After so many turns in which nothing whatever happens, a run is taken to have stalled."""

_STEP = 0.001
"""Seconds that a worker's step takes by its own clock, which stands still otherwise, unless it waits."""

_WORTH_PRINTING = 60


class SimulatedWorker(Worker):
    """A worker that is looked at after each of its turns. It may be stepped by hand, without a simulation; then its steps raise
    the :class:`~timely.errors.InvariantViolation` themselves.

    >>> network = Network(2)
    >>> onlooker = Tracer(network)
    >>> workers = [SimulatedWorker(network.transport(index), None, onlooker) for index in range(2)]
    >>> for worker in workers:
    ...     with worker.dataflow() as scope:
    ...         probe = scope.to_stream([worker.index]).exchange(lambda x: 0).probe()
    >>> while not probe.done():
    ...     for index, worker in enumerate(workers):
    ...         _ = worker.step(), network.deliver(1 - index, index)
    >>> probe.done()
    True
    """

    def __init__(
        self,
        transport: Transport,
        scheduler: Scheduler | None,
        onlooker: Tracer,
        routes: Routes | None = None,
        passage: Passage | None = None,
    ) -> None:
        self._onlooker = onlooker
        self.elapsed = 0.0
        self._long = False
        super().__init__(transport, scheduler, lambda: self.elapsed)
        if routes is not None and passage is not None:
            self._aggregator = OverheardAccumulator(self.index, routes, passage)
        onlooker.watch(self)

    def _step_once(self) -> None:
        self.elapsed += _STEP
        super()._step_once()
        self._onlooker.check(self.index)

    def _is_slow(self, dataflow: Any) -> bool:
        self._long = not self._long  # as if every other turn were: nothing may depend on it
        return self._long

    def _send_early(self, chosen: Iterable[int]) -> bool:
        said = super()._send_early(chosen)
        if said:
            self._onlooker.check(self.index)  # what was done between turns is told by itself, as what the turn does is
        return said

    def _send_progress(self, dataflow: Any) -> bool:
        said = super()._send_progress(dataflow)
        self._onlooker.flushed(self.index, dataflow.number)
        return said

    def _install(self, dataflow: Any) -> None:
        self._onlooker.built(self.index, dataflow.number, dataflow.scopes, dataflow.exchange, dataflow.labels)
        super()._install(dataflow)

    def drop_dataflow(self, scope: ScopeBuilder[Any]) -> None:
        """Drop a dataflow; what is true of it from now on is nobody's to say."""
        for number, dataflow in self._dataflows.items():
            if dataflow.scope is scope:
                self._onlooker.dropped(number)
        super().drop_dataflow(scope)

    def alive(self) -> frozenset[int]:
        """Return the numbers of the dataflows that are not complete here."""
        return frozenset(self._dataflows)

    def early(self, sender: int) -> list[Any]:
        """Return what has come from a peer for dataflows that are not built here yet, oldest first."""
        return [message for messages in self._early.values() for source, message in messages if source == sender]


class Simulation(Generic[T]):
    """One run of a program: ``simulate`` makes one and runs it; one that fails is made by hand, to look at it afterwards.

    ``results`` are what the programs returned, in worker order, ``decisions`` all that was decided, and ``network`` and
    ``workers`` are there to be looked at.

    >>> run = simulate(lambda worker: worker.index, workers=2)
    >>> run.results, [worker.peers for worker in run.workers]
    ([0, 1], [2, 2])
    """

    def __init__(
        self,
        program: Callable[[Worker], T],
        workers: int = 3,
        seed: int = 0,
        *,
        decisions: Sequence[Decision] | None = None,
        network: Callable[[int], Network] = Network,
        routes: Routes | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigurationError(f"workers={workers!r}: there must be at least one")
        self.results: list[T] = []
        self.decisions: list[Decision] = []
        self.network = network(workers)
        passage = None if routes is None or routes.direct_only else Passage(routes)
        self._onlooker = Tracer(self.network, passage)
        self.workers = [
            SimulatedWorker(
                self.network.transport(index, functools.partial(self.pause, index)), self, self._onlooker, routes, passage
            )
            for index in range(workers)
        ]
        self._program = program
        self._outcomes: list[tuple[bool, Any]] = [(False, WorkerError(f"worker {w} has not ended")) for w in range(workers)]
        self._players = [Player(functools.partial(self._play, w), f"simulated worker {w}") for w in range(workers)]
        self._waits = [False] * workers
        self._dataflow: int | None = None
        self._current = self.workers[0]
        schedule = Whims(self, seed).decisions() if decisions is None else iter(decisions)
        self._schedule: Iterator[Decision] = schedule

    # -- what the workers see ----------------------------------------------------------------------------------------

    def pause(self, worker: int, waits: bool) -> None:
        """Bring a worker's program to a halt until its next turn."""
        self._waits[worker] = waits
        self._players[worker].pause()

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        """Return which dataflows run in this step: the scheduler of every worker here."""
        return active if self._dataflow is None else [active[self._dataflow % len(active)]]

    def park(self, timeout: float | None) -> None:
        """Wait, as the worker whose turn it is: its own time goes on by as much as it would have waited at most."""
        self._current.transport.wait(timeout)
        self._current.elapsed += timeout or 0.0

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> Simulation[T]:
        """Take all decisions, the given ones first; return this, or raise what ``timely.execute`` would, or what was violated."""
        try:
            with _no_collection():
                self._take_all()
        except BaseException as error:
            self._annotate(error)
            raise
        finally:
            for player in self._players:
                player.abandon()
        failure = first_failure(self._outcomes)
        if failure is not None:
            self._annotate(failure)
            raise failure
        self.results = [result for _, result in self._outcomes]
        return self

    def _take_all(self) -> None:
        idle = 0
        while not self.ended:
            decision = next(self._schedule, None)
            if decision is None:
                self._schedule = self._in_turn()
                continue
            idle = idle + 1 if self._decide(decision) else 0
            if idle > _PATIENCE:
                raise self._stalled()
        if all(succeeded for succeeded, _ in self._outcomes):
            self._onlooker.check_end()

    @property
    def ended(self) -> bool:
        """Whether every program has ended."""
        return all(player.ended for player in self._players)

    def _decide(self, decision: Decision) -> bool:
        """Take a decision; return whether it was a turn in which nothing happened. One that cannot be taken is passed over."""
        if isinstance(decision, Delivery):
            pair = (decision.source, decision.target)
            if pair in self.network.sent and self.network.deliver(*pair, decision.count):
                self.decisions.append(decision)
            return False
        if not 0 <= decision.worker < len(self.workers) or self._players[decision.worker].ended:
            return False
        self.decisions.append(decision)
        return self._turn(decision)

    def _turn(self, decision: Turn) -> bool:
        """Let a worker go on; return whether nothing has come of it."""
        index = decision.worker
        worker, player = self.workers[index], self._players[index]
        busy = bool(self.network.inboxes[index]) or not worker.idle or not player.started
        sent = self.network.count
        self._dataflow, self._current = decision.dataflow, worker
        player.turn()
        if player.ended and not self._outcomes[index][0]:
            self._onlooker.give_up()
        busy = busy or player.ended or not worker.idle or self.network.count != sent
        self._onlooker.raise_fault()
        return not busy

    def _play(self, index: int) -> None:
        """What a worker's thread does: what a thread of ``timely.execute`` does."""
        try:
            self._outcomes[index] = run_worker(self._program, self.workers[index])
        except UnreferencedCapabilities:
            raise
        except BaseException as error:  # an interruption ends the run as it would without threads
            self._outcomes[index] = (False, error)

    def runnable(self, index: int) -> bool:
        """Return whether a worker can go on without having waited in vain."""
        return not self._players[index].ended and (not self._waits[index] or bool(self.network.inboxes[index]))

    def waiting(self) -> list[int]:
        """Return the workers whose programs have not ended, whether they can go on or not."""
        return [index for index, player in enumerate(self._players) if not player.ended]

    def _in_turn(self) -> Iterator[Decision]:
        """The plain schedule, for when there are no more decisions: everything arrives, and one after the other goes on."""
        while True:
            for source, target in self.network.waiting():
                yield Delivery(source, target, len(self.network.sent[source, target]))
            ready = [index for index in self.waiting() if self.runnable(index)]
            for index in ready or self.waiting():
                yield Turn(index)

    def _stalled(self) -> StalledError:
        names = ", ".join(f"worker {index}" for index in self.waiting())
        return StalledError(
            f"the programs of {names} wait for something that never comes: in {_PATIENCE} turns nothing was sent and nothing done"
        )

    def _annotate(self, error: BaseException) -> None:
        """Say, in a note on the error, how to run into it again."""
        decided = tuple(self.decisions)
        if isinstance(error, InvariantViolation):
            error.decisions = decided
        if len(decided) <= _WORTH_PRINTING:
            how = f"simulate(program, workers={len(self.workers)}, decisions={list(decided)!r}) runs into it again"
        else:
            how = f"after {len(decided)} decisions; timely.testing.shrink cuts them down"
        error.add_note(f"in a simulation: {how}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no cycles of garbage meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def simulate(
    program: Callable[[Worker], T],
    workers: int = 3,
    seed: int = 0,
    *,
    decisions: Sequence[Decision] | None = None,
    network: Callable[[int], Network] = Network,
    routes: Routes | None = None,
) -> Simulation[T]:
    """Run ``program(worker)`` on simulated workers, as ``timely.execute`` would on real ones, and check every invariant.

    The schedule is the one that ``seed`` stands for, or the ``decisions`` given: those that cannot be taken are passed over, and
    when they are used up everything arrives and all go on in turn, to the end. ``network`` makes the network between the workers;
    ``routes`` say who tells whom of progress, where not everybody tells everybody.

    Returns the run, with its ``results`` and ``decisions``. Raises what ``timely.execute`` raises;
    :class:`~timely.errors.InvariantViolation` for what does not hold; ``StalledError`` where programs wait for what never comes.
    Source of what is checked: :mod:`timely.testing.invariants`.

    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> run = simulate(program, workers=2, seed=7)
    >>> run.results
    [[(0, [2, 2])], [(0, [1, 1, 3, 3])]]
    >>> again = simulate(program, workers=2, decisions=run.decisions)
    >>> again.decisions == run.decisions
    True
    >>> simulate(program, workers=2, decisions=[Turn(1), Turn(1), Delivery(1, 0), Turn(0)]).results == run.results
    True
    """
    return Simulation(program, workers, seed, decisions=decisions, network=network, routes=routes).run()


def shrink(
    program: Callable[[Worker], Any],
    decisions: Sequence[Decision],
    failing: type[BaseException] | Callable[[BaseException], bool] = InvariantViolation,
    *,
    workers: int = 3,
    network: Callable[[int], Network] = Network,
    routes: Routes | None = None,
) -> list[Decision]:
    """Return as few of ``decisions`` as it takes for the program to fail still, by leaving out more and more of them.

    ``failing`` says which failure is meant: a type of error, or a function of the error. ``ConfigurationError`` if the program
    does not fail so to begin with. The answer may be empty, where the program fails under the plain schedule too. Source: delta
    debugging (Zeller and Hildebrandt 2002).

    >>> from timely import StalledError
    >>> def forgetful(worker):
    ...     with worker.dataflow() as scope:
    ...         handle, stream = scope.new_input()
    ...     return handle  # which keeps it open
    >>> run = Simulation(forgetful, workers=2, seed=1)
    >>> try:
    ...     run.run()
    ... except StalledError:
    ...     shrink(forgetful, run.decisions, StalledError, workers=2)
    []
    """

    def fails(candidate: Sequence[Decision]) -> bool:
        try:
            simulate(program, workers, decisions=candidate, network=network, routes=routes)
        except Exception as error:
            return isinstance(error, failing) if isinstance(failing, type) else failing(error)
        return False

    kept = list(decisions)
    if not fails(kept):
        raise ConfigurationError("shrink: with these decisions the program does not fail in this way")
    size = len(kept)
    while size:
        start, shorter = 0, False
        while start < len(kept):
            candidate = kept[:start] + kept[start + size :]
            if fails(candidate):
                kept, shorter = candidate, True
            else:
                start += size
        size = min(size, len(kept)) if shorter and size == 1 else size // 2
    return kept
