"""The simulator: all workers of a program in one process, under a schedule that decides which worker runs and what arrives.

A run is a function of its decisions, so any run can be repeated and shrunk. A program must depend on nothing else: no clock, no
unseeded random numbers, no order of a set of strings. Garbage cycles are not collected during a run, as that is not repeatable.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Generic, TypeVar

from timely import Worker
from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError, InvariantViolation, StalledError, WorkerError
from timely.execution.threads import first_failure, run_worker
from timely.progress import ProgressGroups
from timely.testing.checker import InvariantChecker
from timely.testing.coroutine import Coroutine, CoroutineExit
from timely.testing.provenance import TracedAggregator
from timely.testing.schedule import Decision, Delivery, RandomSchedule, Resume
from timely.testing.simulated_network import Network
from timely.worker import Scheduler, Transport
from timely.worker.dataflows import InstalledDataflow
from timely.worker.internals import expects

T = TypeVar("T")

_PATIENCE = 10_000  # steps in which nothing happens, until a run has stalled
_PATIENCE_AT_REST = 1_000  # where all programs wait, and only their own clocks go on
_STEP = 0.001  # seconds that a step takes by the worker's own clock
_WORTH_PRINTING = 60
_SHOWN = 6  # of what is still there in a run that has stalled


class SimulatedWorker(Worker):
    """A worker whose steps are checked. Stepped by hand, without a simulation, it raises ``InvariantViolation`` itself."""

    def __init__(self, transport: Transport, scheduler: Scheduler | None, checker: InvariantChecker) -> None:
        self._checker = checker
        self.elapsed = 0.0
        self._stepping_already = False  # an operator may step its worker, which is to be noticed
        super().__init__(transport, scheduler, lambda: self.elapsed)
        if checker.provenance is not None:
            self._aggregator = TracedAggregator(self.index, checker.provenance)
        checker.add_worker(self)

    def _step_once(self) -> None:
        self.elapsed += _STEP
        rests, moves = self.idle and not self.expects and not self._stepping_already, self._stall.moves
        self._stepping_already = True
        try:
            super()._step_once()
        finally:
            self._stepping_already = False
        if not (rests and self.idle and self._stall.moves == moves):  # a step in which nothing happens need not be checked
            self._checker.check(self.index)

    def _send_progress(self, dataflow: InstalledDataflow) -> None:
        super()._send_progress(dataflow)
        self._checker.flushed(self.index, dataflow.number)

    def _install(self, dataflow: InstalledDataflow) -> None:
        self._checker.built(self.index, dataflow)
        super()._install(dataflow)

    def drop_dataflow(self, scope: ScopeBuilder[Any]) -> None:
        """Drop a dataflow, and check it no longer."""
        for number, dataflow in self._dataflows.items():
            if dataflow.scope is scope:
                self._checker.dropped(number)
        super().drop_dataflow(scope)

    @property
    def expects(self) -> bool:
        """Whether a dataflow waits for a timer or another thread."""
        return expects(self)

    def alive(self) -> frozenset[int]:
        """Return the numbers of the dataflows that are not complete here."""
        return frozenset(self._dataflows)

    def early(self, sender: int) -> list[Any]:
        """Return the messages of a peer for dataflows that are not built here yet, oldest first."""
        return [message for messages in self._early.values() for source, message in messages if source == sender]


class Simulation(Generic[T]):
    """One run of a program. ``simulate`` makes and runs one; make one by hand to inspect a run that fails.

    ``results`` are what the programs returned, in worker order; ``decisions`` are all that were taken.

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
        groups: ProgressGroups | None = None,
        liveness: bool = False,
    ) -> None:
        if workers < 1:
            raise ConfigurationError(f"workers={workers!r}: there must be at least one")
        self.results: list[T] = []
        self.decisions: list[Decision] = []
        self.network = network(workers)
        self._checker = InvariantChecker(self.network, groups, liveness)
        transports = [self.network.transport(w, functools.partial(self.pause, w)) for w in range(workers)]
        self.workers = [SimulatedWorker(transport, self, self._checker) for transport in transports]
        self._program = program
        self._outcomes: list[tuple[bool, Any]] = [(False, WorkerError(f"worker {w} has not ended")) for w in range(workers)]
        self._coroutines = [Coroutine(functools.partial(self._work, w), f"simulated worker {w}") for w in range(workers)]
        self._waits = [False] * workers
        self._dataflow: int | None = None
        self._current = self.workers[0]
        drawn = RandomSchedule(seed, self.network, self.waiting, self.runnable)
        self._schedule = chain(drawn.decisions() if decisions is None else decisions, self._round_robin())

    def pause(self, worker: int, waits: bool) -> None:
        """Pause a worker's program until it is resumed."""
        self._waits[worker] = waits
        self._coroutines[worker].pause()

    def choose(self, active: Sequence[int]) -> Sequence[int]:
        """Return which dataflows run in this step: a simulation is the scheduler of its workers."""
        return active if self._dataflow is None else [active[self._dataflow % len(active)]]

    def park(self, timeout: float | None) -> None:
        """Let the current worker wait; its own clock advances by the timeout."""
        self._current.transport.wait(timeout)
        self._current.elapsed += timeout or 0.0

    def run(self) -> Simulation[T]:
        """Run to the end; return this run, or raise what ``timely.execute`` would, or an ``InvariantViolation``."""
        try:
            with _no_collection():
                self._run_all()
        except BaseException as error:
            self._annotate(error)
            raise
        finally:
            for coroutine in self._coroutines:
                coroutine.close()
        failure = first_failure(self._outcomes)
        if failure is not None:
            self._annotate(failure)
            raise failure
        self.results = [result for _, result in self._outcomes]
        return self

    def _run_all(self) -> None:
        idle = 0
        while self.waiting():
            idle = idle + 1 if self._decide(next(self._schedule)) else 0
            if idle > _PATIENCE or (idle > _PATIENCE_AT_REST and self._rests()):
                names = ", ".join(f"worker {index}" for index in self.waiting())
                held = self._checker.holders()
                there = f"there is still {'; '.join(held[:_SHOWN])}{' ...' * (len(held) > _SHOWN)}" if held else "nothing is left"
                nothing = f"in {idle} steps nothing was sent and nothing done, and {there}"
                raise StalledError(f"the programs of {names} wait for something that never comes: {nothing}")
        if all(succeeded for succeeded, _ in self._outcomes):
            self._checker.check_end()

    def _rests(self) -> bool:
        """Return whether every program waits, and nothing is on its way, due or activated."""
        workers = [self.workers[index] for index in self.waiting()]
        still = all(self._waits[worker.index] and worker.idle and not worker.expects for worker in workers)
        return still and self.network.quiet

    def _decide(self, decision: Decision) -> bool:
        """Take a decision, if it can be taken; return whether it was a step in which nothing happened."""
        if isinstance(decision, Delivery):
            pair = (decision.source, decision.target)
            if pair in self.network.sent and self.network.deliver(*pair, decision.count):
                self.decisions.append(decision)
            return False
        if not 0 <= decision.worker < len(self.workers) or self._coroutines[decision.worker].ended:
            return False
        self.decisions.append(decision)
        return self._resume(decision)

    def _resume(self, decision: Resume) -> bool:
        """Resume a worker; return whether nothing happened."""
        index = decision.worker
        worker, coroutine = self.workers[index], self._coroutines[index]
        busy = bool(self.network.inboxes[index]) or not worker.idle or not coroutine.started
        sent = self.network.count
        self._dataflow, self._current = decision.dataflow, worker
        coroutine.resume()
        if coroutine.ended and not self._outcomes[index][0]:
            self._checker.disable()
        busy = busy or coroutine.ended or not worker.idle or self.network.count != sent
        self._checker.raise_fault()
        return not busy

    def _work(self, index: int) -> None:
        try:
            self._outcomes[index] = run_worker(self._program, self.workers[index])
        except CoroutineExit:
            raise
        except BaseException as error:  # KeyboardInterrupt ends the run as it would without threads
            self._outcomes[index] = (False, error)

    def runnable(self, index: int) -> bool:
        """Return whether a worker can go on without having waited in vain."""
        return not self._coroutines[index].ended and (not self._waits[index] or bool(self.network.inboxes[index]))

    def waiting(self) -> list[int]:
        """Return the workers whose programs have not ended, whether they can go on or not."""
        return [index for index, coroutine in enumerate(self._coroutines) if not coroutine.ended]

    def _round_robin(self) -> Iterator[Decision]:
        """The schedule when there are no more decisions: everything arrives, and all workers run in turn."""
        while True:
            for source, target in self.network.waiting():
                yield Delivery(source, target, len(self.network.sent[source, target]))
            ready = [index for index in self.waiting() if self.runnable(index)]
            for index in ready or self.waiting():
                yield Resume(index)

    def _annotate(self, error: BaseException) -> None:
        """Add a note to the error that says how to repeat the run."""
        decided = tuple(self.decisions)
        if isinstance(error, InvariantViolation):
            error.decisions = decided
        if len(decided) <= _WORTH_PRINTING:
            how = f"simulate(program, workers={len(self.workers)}, decisions={list(decided)!r}) runs into it again"
        else:
            how = f"after {len(decided)} decisions; Hypothesis finds fewer with timely.testing.schedules({len(self.workers)})"
        error.add_note(f"in a simulation: {how}")


@contextmanager
def _no_collection() -> Iterator[None]:
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
    groups: ProgressGroups | None = None,
    liveness: bool = False,
) -> Simulation[T]:
    """Return the run of ``program(worker)`` on simulated workers, as by ``timely.execute``, with every invariant checked.

    The schedule follows from ``seed``, or from ``decisions``; after the last one everything arrives and all workers run in turn.
    ``network`` makes the network between the workers; ``groups`` are those of progress messages. With ``liveness``, no operator
    may hold a capability when its inputs have passed it and all is at rest: L1, with the name of the operator and its worker.

    Raises what ``timely.execute`` raises, :class:`~timely.errors.InvariantViolation` for a violated invariant, and
    ``StalledError`` for programs that wait for what never comes.

    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         seen = scope.to_stream([1, 2, 3]).exchange(lambda x: x).capture()
    ...     worker.run()
    ...     return seen.extract()
    >>> run = simulate(program, workers=2, seed=7)
    >>> run.results
    [[(0, [2, 2])], [(0, [1, 1, 3, 3])]]
    >>> simulate(program, workers=2, decisions=run.decisions).decisions == run.decisions
    True
    """
    return Simulation(program, workers, seed, decisions=decisions, network=network, groups=groups, liveness=liveness).run()
